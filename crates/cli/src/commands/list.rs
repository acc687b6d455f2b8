//! `onesweep list`: the order of reading, for other programs.

use std::{
    borrow::Cow,
    io::{self, BufWriter, IsTerminal, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use onesweep::{BulkRead, Entries, Indexes, PlannedFile, Summary, SweptFile};
use onesweep_deliver::list::{LONG_HEADER, Style, write_file};
use serde::Serialize;

use crate::{
    args::ListArgs,
    report::Failure,
    session::{Session, StandardOutput},
    visible::write_line,
};

/// A file as `--json` shows it, one to a line.
#[derive(Serialize)]
struct Line<'a> {
    path: Cow<'a, str>,
    /// The bytes in hexadecimal, when the path is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    disk: &'a str,
    address: Option<u64>,
    fragments: u32,
    size: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    dirty: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    encrypted: bool,
}

impl<'a> Line<'a> {
    fn new(file: &'a PlannedFile) -> Self {
        let hex = |path: &Path| path.as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            path: file.path.to_string_lossy(),
            path_hex: file.path.to_str().is_none().then(|| hex(&file.path)),
            disk: &file.disk,
            address: file.address,
            fragments: file.fragments,
            size: file.size,
            dirty: file.marks.dirty,
            encrypted: file.marks.encrypted,
        }
    }
}

pub(crate) fn run(args: ListArgs) -> Result<u8, Failure> {
    let session = Session::start(args.common, StandardOutput::Data)?;
    session.check_roots(None, &args.paths)?;
    let entries = if args.all { Entries::All } else { Entries::Files };
    let read = session.bulk_read(&args.paths)?.entries(entries).ignore_cache(true).indexes(Indexes::Left);
    let read = read.addresses(args.long || session.is_json());
    let style = match (args.null, args.long) {
        (true, _) => Style::Nul,
        (_, true) => Style::Long,
        _ => Style::Lines,
    };
    let stdout = io::stdout().lock();
    let form = Form { style, visible: stdout.is_terminal() };
    let mut out = BufWriter::new(stdout);
    let listed = list(&session, read, form, &mut out)?;
    out.flush().map_err(|error| session.output(&error))?;
    if listed.files == 0 {
        session.tell_of_unread(&args.paths);
    }
    session.finish("list", &listed, ())
}

/// How paths are written.
#[derive(Clone, Copy)]
struct Form {
    style: Style,
    /// Control characters as escapes: a name must not tell a terminal what to do.
    visible: bool,
}

fn list(session: &Session, read: BulkRead, form: Form, out: &mut dyn Write) -> Result<Summary, Failure> {
    let sweep = read.clone().plan()?;
    if sweep.is_partial() {
        if form.style == Style::Long || session.is_json() {
            let what = "places are known of the first window of the tree only";
            let advice = "take an order over the whole tree, raise --catalog-limit, or list paths alone";
            return Err(Failure::told(format!("{what}; {advice}")));
        }
        drop(sweep);
        return list_by_windows(session, read.content(false), form, out);
    }
    sweep.errors().for_each(|error| session.complain_of(error));
    let mut listed = Summary { windows: 1, ..Summary::default() };
    let output = |error: io::Error| session.output(&error);
    if form.style == Style::Long && !session.is_json() {
        writeln!(out, "{LONG_HEADER}").map_err(output)?;
    }
    for file in sweep.files() {
        if session.is_interrupted() {
            break;
        }
        listed.files += 1;
        listed.bytes += file.size;
        listed.dirty_files += u64::from(file.marks.dirty);
        let written = if session.is_json() {
            write_json(out, &file)
        } else {
            write_line(out, form.visible, |out| write_file(out, &file, form.style))
        };
        written.map_err(output)?;
    }
    Ok(listed)
}

fn write_json(out: &mut dyn Write, file: &PlannedFile) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &Line::new(file))?;
    out.write_all(b"\n")
}

/// A tree too large for one plan is swept without its content: window by window, in the order of each.
fn list_by_windows(session: &Session, read: BulkRead, form: Form, out: &mut dyn Write) -> Result<Summary, Failure> {
    let mut written = Ok(());
    let summary = session.run(read, |item| {
        match item {
            Ok(file) if !file.is_closing() => written = write_names(out, &file, form),
            Ok(_) => {}
            Err(error) => session.complain_of(&error),
        }
        written.is_ok()
    })?;
    written.map_err(|error| session.output(&error))?;
    Ok(summary)
}

fn write_names(out: &mut dyn Write, file: &SweptFile, form: Form) -> io::Result<()> {
    let end: &[u8] = if form.style == Style::Nul { b"\0" } else { b"\n" };
    let names = std::iter::once(file.path()).chain(file.links().iter().map(|link| link.as_path()));
    for name in names {
        write_line(out, form.visible, |out| {
            out.write_all(name.as_os_str().as_bytes())?;
            out.write_all(end)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use onesweep::Marks;

    use super::*;

    #[test]
    fn a_path_that_is_no_text_keeps_its_bytes() {
        let path = std::ffi::OsStr::from_bytes(b"a\xff").into();
        let file =
            PlannedFile { path, disk: "sda".into(), address: None, fragments: 0, size: 1, marks: Marks::default() };
        let mut out = Vec::new();
        write_json(&mut out, &file).unwrap();
        let value: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((value["path"].as_str(), value["path_hex"].as_str()), (Some("a\u{fffd}"), Some("61ff")));
        assert!(value["address"].is_null());
    }
}
