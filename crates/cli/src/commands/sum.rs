//! `onesweep sum`: manifests, and checking them in the order of the disk.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter, Stdout, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, atomic::AtomicU64, atomic::Ordering::Relaxed},
};

use onesweep::{FileError, MetadataSource, Summary, SweepError, SweptFile};
use onesweep_deliver::sum::{
    Algorithm, Check, Expected, Summed, Summer, Verdict, VerdictKind, read_manifest, write_escaped, write_line,
};
use onesweep_sys::files::EntryType;
use serde::Serialize;

use crate::{
    args::SumArgs,
    message, named,
    report::Failure,
    session::{Session, StandardOutput},
};

pub(crate) fn run(args: SumArgs) -> Result<u8, Failure> {
    if args.check { check(args) } else { sum(args) }
}

/// Standard output, shared by the threads that hash.
struct Printer {
    out: BufWriter<Stdout>,
    failed: Option<io::Error>,
}

impl Printer {
    fn new() -> Mutex<Self> {
        Mutex::new(Self { out: BufWriter::new(io::stdout()), failed: None })
    }

    /// False when nobody takes the output any more.
    fn print(&mut self, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> bool {
        if self.failed.is_none() {
            self.failed = write(&mut self.out).err();
        }
        self.failed.is_none()
    }

    fn finish(mut self, session: &Session) -> Result<(), Failure> {
        self.print(|out| out.flush());
        self.failed.map_or(Ok(()), |error| Err(session.output(&error)))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn unlocked<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn sum(args: SumArgs) -> Result<u8, Failure> {
    let session = Session::start(args.common, StandardOutput::Data)?;
    session.check_roots(None, &args.paths)?;
    let read = session.bulk_read(&args.paths)?;
    let summer = Summer::new(args.algorithm);
    let printer = Printer::new();
    let sorted: Option<Mutex<Vec<Summed>>> = args.sort.then(Mutex::default);
    let sum = |file: SweptFile| {
        session.tell_of_dirty(&file);
        summer.sum(file)
    };
    let summary = session.run_parallel(read, |item| match item.and_then(sum) {
        Ok(mut names) => match &sorted {
            Some(sorted) => {
                lock(sorted).append(&mut names);
                true
            }
            None => lock(&printer).print(|out| write_lines(out, &names)),
        },
        Err(error) => {
            session.complain_of(&error);
            true
        }
    })?;
    for name in summer.left_over() {
        session.complain(&format!("{}: cannot read: another name of the file failed", message::path_text(&name)));
    }
    let mut printer = unlocked(printer);
    if let Some(mut names) = sorted.map(unlocked) {
        names.sort_by(|one, other| one.0.cmp(&other.0));
        printer.print(|out| write_lines(out, &names));
    }
    printer.finish(&session)?;
    // Whoever takes the lines for those of all that was named must know.
    session.unread(&args.paths).iter().for_each(|message| session.complain(message));
    session.finish("sum", &summary, Details { algorithm: args.algorithm.name(), ..Details::default() })
}

fn write_lines(out: &mut dyn Write, names: &[Summed]) -> io::Result<()> {
    names.iter().try_for_each(|(path, digest)| write_line(out, digest, path))
}

#[derive(Default, Serialize)]
struct Details {
    algorithm: &'static str,
    ok: u64,
    mismatched: u64,
    unreadable: u64,
    bad_lines: u64,
}

/// The verdicts of a check: counted, and printed.
struct Verdicts {
    printer: Mutex<Printer>,
    quiet: bool,
    ok: AtomicU64,
    mismatched: AtomicU64,
    unreadable: AtomicU64,
}

impl Verdicts {
    fn take(&self, verdicts: &[Verdict]) -> bool {
        for verdict in verdicts {
            match verdict.kind {
                VerdictKind::Ok => &self.ok,
                VerdictKind::Mismatch => &self.mismatched,
                VerdictKind::Unreadable => &self.unreadable,
            }
            .fetch_add(1, Relaxed);
        }
        let mut told = verdicts.iter().filter(|verdict| !(self.quiet && verdict.kind == VerdictKind::Ok));
        let mut printer = lock(&self.printer);
        told.all(|verdict| printer.print(|out| write_verdict(out, verdict)))
    }
}

/// As coreutils tell it: a backslash in front when the name is escaped.
fn write_verdict(out: &mut dyn Write, verdict: &Verdict) -> io::Result<()> {
    let name = verdict.path.as_os_str().as_bytes();
    if name.iter().any(|byte| matches!(byte, b'\\' | b'\n' | b'\r')) {
        out.write_all(b"\\")?;
    }
    write_escaped(out, name)?;
    out.write_all(match verdict.kind {
        VerdictKind::Ok => b": OK\n",
        VerdictKind::Mismatch => b": FAILED\n",
        VerdictKind::Unreadable => b": FAILED open or read\n",
    })
}

fn check(mut args: SumArgs) -> Result<u8, Failure> {
    if args.paths.is_empty() {
        args.paths.push("-".into());
    }
    // A manifest names files.
    args.common.settings.metadata = Some(MetadataSource::Walk);
    let session = Session::start(args.common, StandardOutput::Data)?;
    let (expected, bad_lines) = manifests(&session, &args.paths, args.algorithm)?;
    let check = Check::new(expected);
    let verdicts = Verdicts {
        printer: Printer::new(),
        quiet: session.is_quiet(),
        ok: AtomicU64::new(0),
        mismatched: AtomicU64::new(0),
        unreadable: AtomicU64::new(0),
    };
    let summary = check_all(&session, &check, &verdicts)?;
    if !session.is_interrupted() {
        let unread = check.finish();
        session.count_errors(unread.len() as u64);
        verdicts.take(&unread);
    }
    let count = |counter: &AtomicU64| counter.load(Relaxed);
    let details = Details {
        algorithm: args.algorithm.name(),
        ok: count(&verdicts.ok),
        mismatched: count(&verdicts.mismatched),
        unreadable: count(&verdicts.unreadable),
        bad_lines,
    };
    session.count_errors(details.mismatched);
    unlocked(verdicts.printer).finish(&session)?;
    for (count, what) in [(details.mismatched, "did NOT match"), (details.unreadable, "could not be read")] {
        if count > 0 {
            session.tell(&format!("{count} of {} listed files {what}", total(&details)));
        }
    }
    if let Some(other) = other_algorithm(args.algorithm, &details) {
        let what = format!("no file matches; if the manifest is one of {other}, try --algorithm {other}");
        session.tell(&what);
    }
    session.finish("sum", &summary, details)
}

/// SHA-256 and BLAKE3 have digests of one length, so a manifest of the one passes for one of the other. When no line
/// matches, that is likelier than that all files changed.
fn other_algorithm(algorithm: Algorithm, details: &Details) -> Option<&'static str> {
    let other = match algorithm {
        Algorithm::Blake3 => Algorithm::Sha256,
        Algorithm::Sha256 => Algorithm::Blake3,
        Algorithm::Md5 => return None,
    };
    (details.mismatched > 0 && details.ok == 0).then_some(other.name())
}

fn total(details: &Details) -> u64 {
    details.ok + details.mismatched + details.unreadable
}

fn manifests(session: &Session, paths: &[PathBuf], algorithm: Algorithm) -> Result<(Vec<Expected>, u64), Failure> {
    let (mut all, mut bad_lines) = (Vec::new(), 0);
    for path in paths {
        let read = open(path).and_then(|input| read_manifest(input, algorithm));
        let (expected, bad) = read.map_err(|error| Failure::io(path, "read the manifest", &error))?;
        let name = message::path_text(path);
        if expected.is_empty() {
            let what = format!("{name}: cannot check: no line is a {algorithm} checksum; try --algorithm");
            return Err(Failure::told(what));
        }
        if let Some(first) = bad.first() {
            session.complain(&format!("{name}: {} lines are no checksums, the first is line {}", bad.len(), first.0));
        }
        bad_lines += bad.len() as u64;
        all.extend(expected);
    }
    Ok((all, bad_lines))
}

fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    Ok(Box::new(BufReader::new(File::open(path)?)))
}

/// Reads all files of the manifest. One that is missing fails alone, though a sweep wants all its roots there.
fn check_all(session: &Session, check: &Check, verdicts: &Verdicts) -> Result<Summary, Failure> {
    loop {
        let (roots, missing): (Vec<_>, Vec<_>) = check.paths().into_iter().partition(|path| named::leads_to_file(path));
        for path in missing {
            session.complain(&message::of_step(&path, "read", &why_no_file(&path)));
            verdicts.take(&check.unreadable(&path));
        }
        if roots.is_empty() {
            return Ok(Summary::default());
        }
        let read = session.bulk_read(&roots)?.follow_roots(true);
        match session.run_parallel(read, |item| check_one(session, check, verdicts, item)) {
            // It vanished since it was looked up: the next round tells.
            Err(Failure::Sweep(SweepError::Root { path, .. })) if !named::leads_to_file(&path) => {}
            ended => return ended,
        }
    }
}

/// Why a path that is no regular file has nothing to check.
fn why_no_file(path: &Path) -> io::Error {
    let kind = match named::look(path, true) {
        Ok(found) => found.file_type(),
        Err(error) => return error,
    };
    match named::special(kind) {
        Some(what) => io::Error::other(format!("it is {what}")),
        None if kind == EntryType::File => io::Error::other("it was made just now; check again"),
        None => io::ErrorKind::IsADirectory.into(),
    }
}

fn check_one(session: &Session, check: &Check, verdicts: &Verdicts, item: Result<SweptFile, FileError>) -> bool {
    match item.and_then(|file| check.check(file)) {
        Ok(found) => verdicts.take(&found),
        Err(error) => {
            session.complain_of(&error);
            error.path().is_none_or(|path| verdicts.take(&check.unreadable(path)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_called_what_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let why = |path: &Path| message::of_step(path, "read", &why_no_file(path));
        assert_eq!(why(Path::new("/dev/null")), "/dev/null: cannot read: it is a device");
        assert!(why(&socket).ends_with(": cannot read: it is a socket"));
        assert!(why(dir.path()).contains("is a directory"), "{}", why(dir.path()));
        assert!(why(&dir.path().join("gone")).contains("No such file"));
    }

    #[test]
    fn verdicts_look_as_those_of_coreutils() {
        let text = |path: &str, kind| {
            let mut out = Vec::new();
            write_verdict(&mut out, &Verdict { path: path.into(), kind }).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(text("a b", VerdictKind::Ok), "a b: OK\n");
        assert_eq!(text("a\nb", VerdictKind::Mismatch), "\\a\\nb: FAILED\n");
        assert_eq!(text("a", VerdictKind::Unreadable), "a: FAILED open or read\n");
    }
}
