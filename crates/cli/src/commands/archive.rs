//! The archive of `onesweep tar`: from the options to `onesweep_deliver::tar`, and what it tells.

use std::{
    io::{self, IsTerminal, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use onesweep::{FileError, Summary, SweptFile};
use onesweep_deliver::tar::{
    Compression, ModeError, Output, Owner, Severity, TarError, TarOptions, TarTotals, TarWriter, parse_mtime,
};
use serde::Serialize;

use super::member_names::MemberNames;
use crate::{
    args::TarArgs,
    message,
    report::Failure,
    session::{Session, StandardOutput},
    size::Size,
};

#[derive(Serialize)]
struct Details {
    members: u64,
    content_bytes: u64,
    archive_bytes: u64,
    written_bytes: u64,
}

/// An archive that is being written.
pub(super) struct Archive<'a> {
    session: &'a Session,
    writer: TarWriter<Output>,
    names: MemberNames,
    verbose: Option<Box<dyn Write>>,
    totals: bool,
    ignore_failed_read: bool,
    failed: Option<TarError>,
}

impl<'a> Archive<'a> {
    pub(super) fn create(session: &'a Session, args: &TarArgs, names: MemberNames) -> Result<Self, Failure> {
        let in_rows = session.settings().order.unwrap_or_default().is_per_directory() && is_one_row(session, args);
        let options = options(args, !in_rows)?;
        let stdout = args.file == Path::new("-");
        if stdout && io::stdout().is_terminal() {
            return Err(Failure::told(
                "an archive is nothing for a terminal; name a file with -f, or pipe it to a program",
            ));
        }
        let output = if stdout { Output::stdout() } else { Output::create(&args.file) }.map_err(failure)?;
        let writer = TarWriter::to_output(output.until(session.cancel()), options).map_err(failure)?;
        let verbose = (args.verbose > 0).then(|| verbose_output(session));
        let (totals, ignore_failed_read) = (args.totals, args.ignore_failed_read);
        Ok(Self { session, writer, names, verbose, totals, ignore_failed_read, failed: None })
    }

    /// Takes one item; false when nothing more can be written.
    pub(super) fn append(&mut self, item: Result<SweptFile, FileError>) -> bool {
        match item {
            Ok(file) => self.append_file(file),
            Err(error) => {
                if self.ignore_failed_read && matches!(error, FileError::Io { .. } | FileError::Vanished { .. }) {
                    self.session.tell(&message::of_file(&error));
                } else {
                    self.session.complain_of(&error);
                }
                true
            }
        }
    }

    fn append_file(&mut self, mut file: SweptFile) -> bool {
        if !self.names.is_empty() {
            file = file.with_paths(|path| self.names.of(path));
        }
        if let Some(out) = &mut self.verbose {
            let written = write_names(out, &self.writer.names(&file), file.marks().dirty);
            if let Err(error) = written {
                self.verbose = None;
                // As with GNU tar, that nobody reads the names does not end the archive.
                if error.kind() != io::ErrorKind::BrokenPipe {
                    self.session.complain(&format!("cannot write the names of the members: {}", message::why(&error)));
                }
            }
        }
        match self.writer.append(file) {
            Ok(warnings) => {
                for warning in warnings {
                    let text = message::of_error(&warning);
                    match warning.severity() {
                        Severity::Notice if self.session.is_quiet() => {}
                        Severity::Notice => self.session.tell(&text),
                        // The archive will be thrown away; what it lacks is no news.
                        Severity::Differs | Severity::Failed if self.session.is_interrupted() => {}
                        Severity::Failed if self.ignore_failed_read => self.session.tell(&text),
                        Severity::Differs | Severity::Failed => self.session.complain(&text),
                    }
                }
                true
            }
            Err(error) => {
                // An interrupted archive takes no more bytes.
                self.failed = Some(error).filter(|_| !self.session.is_interrupted());
                false
            }
        }
    }

    /// Ends the archive. An interrupted one gets no name.
    pub(super) fn finish(self, summary: &Summary) -> Result<u8, Failure> {
        if let Some(error) = self.failed {
            return Err(match error {
                TarError::Write { source, .. } if self.session.standard_output() == StandardOutput::Data => {
                    self.session.output(&source)
                }
                error => failure(error),
            });
        }
        let totals = match self.session.is_interrupted() {
            true => self.writer.totals(),
            false => self.writer.commit().map_err(failure)?,
        };
        if self.totals {
            let bytes = totals.archive_bytes;
            self.session.tell(&format!("Total bytes written: {bytes} ({})", Size(bytes)));
        }
        let TarTotals { members, content_bytes, archive_bytes, written_bytes } = totals;
        self.session.finish("tar", summary, Details { members, content_bytes, archive_bytes, written_bytes })
    }
}

/// Whether everything comes from one disk: others are read side by side.
pub(super) fn is_one_row(session: &Session, args: &TarArgs) -> bool {
    session.settings().one_file_system.unwrap_or_default() && args.paths.len() == 1 && args.files_from.is_empty()
}

fn options(args: &TarArgs, interleaved: bool) -> Result<TarOptions, Failure> {
    let wrong = |option: &str, why: String| Failure::told(format!("{option}: {why}"));
    let owner = args.owner.as_deref().map(Owner::user).transpose();
    let group = args.group.as_deref().map(Owner::group).transpose();
    let mode = args.mode.as_deref().map(str::parse).transpose();
    let mtime = args.mtime.as_deref().map(parse_mtime).transpose();
    Ok(TarOptions {
        interleaved,
        numeric_owner: args.numeric_owner,
        owner: owner.map_err(|error| wrong("--owner", error.to_string()))?,
        group: group.map_err(|error| wrong("--group", error.to_string()))?,
        mtime: mtime.map_err(|error| wrong("--mtime", message::of_error(&error)))?,
        clamp_mtime: args.clamp_mtime,
        mode: mode.map_err(|error: ModeError| wrong("--mode", error.to_string()))?,
        sparse: args.sparse,
        xattrs: args.xattrs,
        acls: args.acls,
        selinux: args.selinux,
        absolute_names: args.absolute_names,
        compression: compression(args)?,
    })
}

fn compression(args: &TarArgs) -> Result<Compression, Failure> {
    let (mut gzip, mut zstd) = (args.gzip, args.zstd);
    if args.auto_compress {
        match args.file.extension().map_or(&b""[..], |suffix| suffix.as_bytes()) {
            b"gz" | b"tgz" | b"taz" => gzip = true,
            b"zst" | b"tzst" => zstd = true,
            b"Z" | b"bz2" | b"tbz" | b"tbz2" | b"tz2" | b"lz" | b"lzma" | b"tlz" | b"lzo" | b"xz" | b"txz" => {
                let why = "this compression is not supported; use .gz or .zst, or write to a pipe";
                return Err(Failure::could_not_run(&args.file, "compress by its suffix", why));
            }
            _ => {}
        }
    }
    match (gzip, zstd, args.level) {
        (true, _, level) => {
            let level = level.map(|level| u32::try_from(level).unwrap_or(u32::MAX));
            Ok(Compression::Gzip(level))
        }
        (_, true, level) => Ok(Compression::Zstd(level)),
        (_, _, None) => Ok(Compression::None),
        (_, _, Some(_)) => Err(Failure::told("--level has no meaning without --gzip or --zstd")),
    }
}

/// Where the names of `-v` go: to standard error when the archive or the summary goes to standard output.
fn verbose_output(session: &Session) -> Box<dyn Write> {
    match session.standard_output() {
        StandardOutput::Summary if !session.is_json() => Box::new(io::LineWriter::new(io::stdout())),
        StandardOutput::Summary | StandardOutput::Data => Box::new(io::stderr()),
    }
}

/// Each on a line, directories with a slash, those of a file system that was not closed with a mark behind a tab, which no name shows.
fn write_names(out: &mut dyn Write, names: &[(&Path, bool)], is_dirty: bool) -> io::Result<()> {
    for (name, is_directory) in names {
        let name = name.as_os_str().as_bytes();
        out.write_all(&shown(name))?;
        out.write_all(if *is_directory && !name.ends_with(b"/") { b"/" } else { b"" })?;
        out.write_all(if is_dirty { b"\tdirty\n" } else { b"\n" })?;
    }
    Ok(())
}

/// As GNU tar shows names: what is no text in escapes, so that a name has one line and tells a terminal nothing.
fn shown(name: &[u8]) -> Vec<u8> {
    let mut line = Vec::with_capacity(name.len());
    let mut add = |byte: u8, is_text: bool| match byte {
        b'\\' => line.extend(b"\\\\"),
        _ if is_text => line.push(byte),
        0x07 => line.extend(b"\\a"),
        0x08 => line.extend(b"\\b"),
        b'\t' => line.extend(b"\\t"),
        b'\n' => line.extend(b"\\n"),
        0x0b => line.extend(b"\\v"),
        0x0c => line.extend(b"\\f"),
        b'\r' => line.extend(b"\\r"),
        _ => line.extend(format!("\\{byte:03o}").bytes()),
    };
    for chunk in name.utf8_chunks() {
        for char in chunk.valid().chars() {
            char.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| add(byte, !char.is_control()));
        }
        chunk.invalid().iter().for_each(|&byte| add(byte, false));
    }
    line
}

fn failure(error: TarError) -> Failure {
    match error.failed_step() {
        Some((path, step, source)) => Failure::io(path, step, source),
        None => Failure::told(message::of_error(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, parse_line};

    #[test]
    fn names_have_a_line_each() {
        let mut out = Vec::new();
        let names = [(Path::new("d"), true), (Path::new("e/"), true), (Path::new("d/f"), false)];
        write_names(&mut out, &names, false).unwrap();
        write_names(&mut out, &names, true).unwrap();
        assert_eq!(out, b"d/\ne/\nd/f\nd/\tdirty\ne/\tdirty\nd/f\tdirty\n");
    }

    #[test]
    fn names_tell_a_terminal_nothing() {
        for (name, line) in [
            (&b"a b'\"*"[..], &b"a b'\"*"[..]),
            (b"a\n\x1b[2J\x7f\\", b"a\\n\\033[2J\\177\\\\"),
            (b"\xc3\xa9 \xc2\x85 \xe9", b"\xc3\xa9 \\302\\205 \\351"),
        ] {
            assert_eq!(shown(name), line);
        }
    }

    #[test]
    fn the_suffix_tells_the_compression() {
        let of = |line: &str| match parse_line(line).unwrap() {
            Command::Tar(args) => compression(&args),
            other => panic!("{other:?}"),
        };
        assert_eq!(of("tar -caf x.tar.gz d").unwrap(), Compression::Gzip(None));
        assert_eq!(of("tar -caf x.tzst --level 5 d").unwrap(), Compression::Zstd(Some(5)));
        assert_eq!(of("tar -caf x.tar d").unwrap(), Compression::None);
        assert_eq!(of("tar -cf x.tgz d").unwrap(), Compression::None);
        of("tar -caf x.tar.xz d").unwrap_err();
    }
}
