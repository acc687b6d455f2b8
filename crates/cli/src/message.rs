//! Messages: `onesweep: path: what failed: why; what to do`, each on one line.

use std::{io, path::Path};

use onesweep::{FileError, SweepError};

/// A path as text on one line.
pub(crate) fn path_text(path: &Path) -> String {
    one_line(&path.to_string_lossy())
}

/// Control characters as escapes, so that a name can't break a line or a terminal.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_control() { line.extend(char.escape_default()) } else { line.push(char) }
    }
    line
}

/// Why, without the number that Rust puts behind it.
pub(crate) fn why(error: &io::Error) -> String {
    without_numbers(&error.to_string())
}

/// The text of an error, on one line.
pub(crate) fn of_error(error: &impl std::fmt::Display) -> String {
    one_line(&without_numbers(&error.to_string()))
}

/// Takes each ` (os error 2)` out.
fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut rest = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, behind)) if number.bytes().all(|byte| byte.is_ascii_digit()) => rest += behind,
            _ => rest.extend([" (os error ", part]),
        }
    }
    rest
}

/// Why a run can't go on without a thread.
pub(crate) fn no_thread(error: &io::Error) -> String {
    format!("{NO_THREAD}: {}{MORE_THREADS}", why(error))
}

/// As the library says it.
const NO_THREAD: &str = "cannot start a thread";
const MORE_THREADS: &str = "; raise the limit on processes (ulimit -u, or pids.max of the control group)";

/// What is meant by a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// A file of those that are swept.
    Swept,
    /// Where the result goes, or what tells how to read.
    Other,
}

/// What can be done about it.
fn advice(error: &io::Error, part: Part, is_root: bool) -> &'static str {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::PermissionDenied => match (part, is_root) {
            (Part::Swept, false) => "; run as root, or leave it out with --exclude",
            (Part::Swept, true) => "; leave it out with --exclude",
            (Part::Other, false) => "; run as root, or change its permissions",
            (Part::Other, true) => "",
        },
        Kind::NotFound => "; check the name",
        Kind::StorageFull | Kind::QuotaExceeded => "; make room and run again",
        Kind::FileTooLarge => "; raise the limit on the size of files (ulimit -f), unless it is the file system's own",
        Kind::InvalidFilename => "; go nearer with cd",
        Kind::StaleNetworkFileHandle => "; mount the share again",
        _ if error.raw_os_error() == Some(EIO) => "; the disk can't read it: see the kernel log",
        _ if error.raw_os_error() == Some(EMFILE) => "; raise the limit on open files (ulimit -n)",
        _ => "",
    }
}

const EIO: i32 = 5;
const EMFILE: i32 = 24;

/// `path: cannot step: why; what to do`, of a file that is swept.
pub(crate) fn of_step(path: &Path, step: &str, error: &io::Error) -> String {
    with_advice(path, step, error, Part::Swept)
}

/// As [`of_step`], of an output, a destination, a list.
pub(crate) fn of_other(path: &Path, step: &str, error: &io::Error) -> String {
    with_advice(path, step, error, Part::Other)
}

fn with_advice(path: &Path, step: &str, error: &io::Error, part: Part) -> String {
    format!("{}: cannot {step}: {}{}", path_text(path), why(error), advice(error, part, is_root()))
}

fn is_root() -> bool {
    onesweep_sys::user::effective_uid() == 0
}

/// What went wrong with one file of a sweep.
pub(crate) fn of_file(error: &FileError) -> String {
    match error {
        FileError::Io { path, step, source } => of_step(path, step, source),
        // A named path that was never there comes as this, too.
        FileError::Vanished { path } => {
            format!("{}: cannot read: No such file or directory; it vanished, or the name is wrong", path_text(path))
        }
        FileError::Changed { path, attempts } => {
            let path = path_text(path);
            format!("{path}: cannot read: changed each of {attempts} times; run again when nobody writes to it")
        }
        FileError::Stopped { disk, source } => {
            format!("{disk}: cannot finish the sweep: {}{}", why(source), advice(source, Part::Other, is_root()))
        }
        other => of_error(other),
    }
}

/// Why a sweep could not start.
pub(crate) fn of_sweep(error: &SweepError) -> String {
    match error {
        SweepError::Root { path, source } => of_step(path, "read", source),
        SweepError::Device { path, reason, .. } => {
            format!("{}: cannot read its device: {}", path_text(path), one_line(&without_numbers(reason)))
        }
        SweepError::Snapshot { path, reason, .. } => {
            let reason = one_line(&without_numbers(reason));
            format!("{}: cannot hold it at one moment: {reason}", path_text(path))
        }
        SweepError::System { what, source } if *what == NO_THREAD => no_thread(source),
        SweepError::System { what, source } => {
            let advice = match source.kind() {
                io::ErrorKind::NotFound => "; mount /proc",
                _ => advice(source, Part::Other, is_root()),
            };
            format!("{what}: {}{advice}", why(source))
        }
        other => of_error(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_errors_are_left_out() {
        let error = io::Error::other(format!("a: {} at b", io::Error::from_raw_os_error(2)));
        assert_eq!(why(&error), "a: No such file or directory at b");
        assert_eq!(without_numbers("x (os error y) (os error 5)"), "x (os error y)");
    }

    #[test]
    fn nobody_is_told_to_do_what_does_not_help() {
        for number in [1, 13] {
            let error = io::Error::from_raw_os_error(number);
            assert_eq!(advice(&error, Part::Swept, false), "; run as root, or leave it out with --exclude");
            assert!(!advice(&error, Part::Swept, true).contains("root"));
            assert!(!advice(&error, Part::Other, false).contains("--exclude"));
            assert_eq!(advice(&error, Part::Other, true), "");
        }
        let source = io::Error::from_raw_os_error(13);
        let reason = format!("no: {source}; be root");
        let error = SweepError::Device { path: "d".into(), reason, source: Some(source) };
        assert_eq!(of_sweep(&error), "d: cannot read its device: no: Permission denied; be root");
    }

    #[test]
    fn messages_are_one_line_and_end_with_advice() {
        let denied = || io::Error::from_raw_os_error(13);
        let path = || "a\nb\x1b[2J".into();
        let error = FileError::Io { path: path(), step: "open".into(), source: denied() };
        let expected = r"a\nb\u{1b}[2J: cannot open: Permission denied; ";
        assert!(of_file(&error).starts_with(expected) && of_file(&error).ends_with("leave it out with --exclude"));
        for error in [FileError::Vanished { path: path() }, FileError::Changed { path: path(), attempts: 3 }] {
            assert!(!of_file(&error).contains('\n'));
        }
        let said = of_file(&FileError::Vanished { path: "gone".into() });
        assert_eq!(said, "gone: cannot read: No such file or directory; it vanished, or the name is wrong");
        let error = SweepError::Root { path: "gone".into(), source: io::Error::from_raw_os_error(2) };
        assert_eq!(of_sweep(&error), "gone: cannot read: No such file or directory; check the name");
        let error = FileError::Io { path: "f".into(), step: "read".into(), source: io::Error::from_raw_os_error(EIO) };
        assert!(of_file(&error).contains("kernel log"));
    }
}
