//! Error codes, the last error of each thread, and panics, none of which gets through to C.

use std::{
    cell::RefCell,
    ffi::{CString, c_char, c_int},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
};

use onesweep::{FileError, SweepError};

use crate::ffi::c_text;

/// What went wrong: one of the `ONESWEEP_ERROR_` constants, or `ONESWEEP_OK`. More may come; treat unknown ones as errors.
pub type Code = u32;

/// All went well.
pub const ONESWEEP_OK: Code = 0;
/// An argument is NULL that may not be, an unknown constant, or out of range. Nothing was done.
pub const ONESWEEP_ERROR_ARGUMENT: Code = 1;
/// A fault of the library itself. What was asked for may be half done; please report it.
pub const ONESWEEP_ERROR_FAULT: Code = 2;
/// It ended early, since the cancel handle was thrown, a callback asked for it, or the connection was stopped.
pub const ONESWEEP_ERROR_CANCELLED: Code = 3;
/// A path or descriptor named by the caller can't be used, and no other was named that can.
pub const ONESWEEP_ERROR_ROOT: Code = 4;
/// No path was named.
pub const ONESWEEP_ERROR_NO_ROOTS: Code = 5;
/// An option is out of range or contradicts another.
pub const ONESWEEP_ERROR_SETTING: Code = 6;
/// The block device below a path can't be read directly (ONESWEEP_DEVICE).
pub const ONESWEEP_ERROR_DEVICE: Code = 7;
/// A file system can't be held at one moment (ONESWEEP_SNAPSHOT).
pub const ONESWEEP_ERROR_SNAPSHOT: Code = 8;
/// The system refused something that every sweep needs: the table of mounts, a thread.
pub const ONESWEEP_ERROR_SYSTEM: Code = 9;
/// Of a file: it was listed by its directory and was gone when it was needed.
pub const ONESWEEP_ERROR_VANISHED: Code = 10;
/// A system call on a file failed; the error number tells why.
pub const ONESWEEP_ERROR_IO: Code = 11;
/// An image has nothing of the name that was given.
pub const ONESWEEP_ERROR_NOT_INSIDE: Code = 12;
/// Of a file: each reading of it met a change.
pub const ONESWEEP_ERROR_CHANGED: Code = 13;
/// A directory that is its own ancestor through a mount; it is not entered again.
pub const ONESWEEP_ERROR_LOOP: Code = 14;
/// What was swept is not from one moment, though it was to be (ONESWEEP_SNAPSHOT).
pub const ONESWEEP_ERROR_NOT_ONE_MOMENT: Code = 15;
/// All memory of the budget is in files that the caller keeps. Free or take over some of them, and the sweep goes on; else
/// the next one is ONESWEEP_ERROR_STOPPED.
pub const ONESWEEP_ERROR_BUDGET_LENT: Code = 16;
/// The sweep of a whole disk ended early.
pub const ONESWEEP_ERROR_STOPPED: Code = 17;
/// There is no content, or no more: not a regular file, taken over before, not in memory, or from a walk.
pub const ONESWEEP_ERROR_NO_CONTENT: Code = 18;
/// The plan was carried out already, or is being looked at by a call that has not returned.
pub const ONESWEEP_ERROR_USED: Code = 19;
/// No server of directory summaries listens there.
pub const ONESWEEP_ERROR_NO_SERVER: Code = 20;
/// The directory is on no file system that the server tracks, or isn't known to it.
pub const ONESWEEP_ERROR_NOT_TRACKED: Code = 21;
/// The user may not reach the directory.
pub const ONESWEEP_ERROR_DENIED: Code = 22;
/// The server could not answer, for a reason that the message tells.
pub const ONESWEEP_ERROR_REFUSED: Code = 23;
/// The connection to the server broke, or it said what can't be understood. Open another one.
pub const ONESWEEP_ERROR_CONNECTION: Code = 24;

/// What every code means, in its place.
const MEANINGS: [&std::ffi::CStr; 25] = [
    c"success",
    c"an argument is missing or out of range",
    c"a fault of the library",
    c"stopped early, as it was asked for",
    c"a named path can't be used",
    c"no path was named",
    c"an option is out of range or contradicts another",
    c"the device can't be read directly",
    c"the file system can't be held at one moment",
    c"the system refused something that every sweep needs",
    c"the file vanished while the sweep ran",
    c"a system call failed",
    c"no such file or directory inside the image",
    c"the file changed while it was read",
    c"a mount of a directory that contains it",
    c"what was swept is not from one moment",
    c"the whole budget is lent to the caller",
    c"the sweep of a disk stopped early",
    c"there is no content",
    c"the plan is used already",
    c"no server listens there",
    c"the directory is not tracked",
    c"the directory may not be reached",
    c"the server could not answer",
    c"the connection to the server broke",
];

/// Why a call of C fails.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) code: Code,
    /// What the kernel said; 0 where it wasn't asked.
    pub(crate) number: c_int,
    pub(crate) text: String,
}

impl Fault {
    pub(crate) fn new(code: Code, text: impl Into<String>) -> Self {
        Self { code, number: 0, text: text.into() }
    }

    pub(crate) fn argument(text: impl Into<String>) -> Self {
        Self::new(ONESWEEP_ERROR_ARGUMENT, text)
    }

    pub(crate) fn io(code: Code, error: &io::Error, text: impl Into<String>) -> Self {
        Self { number: number_of(error), ..Self::new(code, text) }
    }

    /// Where the kernel may not have been asked.
    fn io_if(code: Code, error: Option<&io::Error>, text: String) -> Self {
        Self { number: error.map_or(0, number_of), ..Self::new(code, text) }
    }

    pub(crate) fn cancelled() -> Self {
        Self::new(ONESWEEP_ERROR_CANCELLED, "stopped before everything was handed over")
    }
}

impl From<SweepError> for Fault {
    fn from(error: SweepError) -> Self {
        let text = error.to_string();
        match &error {
            SweepError::Root { source, .. } => Self::io(ONESWEEP_ERROR_ROOT, source, text),
            SweepError::NoRoots => Self::new(ONESWEEP_ERROR_NO_ROOTS, text),
            SweepError::Setting(_) => Self::new(ONESWEEP_ERROR_SETTING, text),
            SweepError::Device { source, .. } => Self::io_if(ONESWEEP_ERROR_DEVICE, source.as_ref(), text),
            SweepError::Snapshot { source, .. } => Self::io_if(ONESWEEP_ERROR_SNAPSHOT, source.as_ref(), text),
            SweepError::System { source, .. } => Self::io(ONESWEEP_ERROR_SYSTEM, source, text),
            _ => Self::new(ONESWEEP_ERROR_FAULT, text),
        }
    }
}

impl From<&FileError> for Fault {
    fn from(error: &FileError) -> Self {
        let text = error.to_string();
        match error {
            FileError::Vanished { .. } => Self { number: ENOENT, ..Self::new(ONESWEEP_ERROR_VANISHED, text) },
            FileError::Io { source, .. } => Self::io(ONESWEEP_ERROR_IO, source, text),
            FileError::NotInside { .. } => Self { number: ENOENT, ..Self::new(ONESWEEP_ERROR_NOT_INSIDE, text) },
            FileError::Changed { .. } => Self::new(ONESWEEP_ERROR_CHANGED, text),
            FileError::Loop { .. } => Self::new(ONESWEEP_ERROR_LOOP, text),
            FileError::NotOneMoment { .. } => Self::new(ONESWEEP_ERROR_NOT_ONE_MOMENT, text),
            FileError::BudgetLent { .. } => Self::new(ONESWEEP_ERROR_BUDGET_LENT, text),
            FileError::Stopped { source, .. } => Self::io(ONESWEEP_ERROR_STOPPED, source, text),
            _ => Self::new(ONESWEEP_ERROR_FAULT, text),
        }
    }
}

const ENOENT: c_int = 2;

fn number_of(error: &io::Error) -> c_int {
    error.raw_os_error().unwrap_or(0)
}

struct Last {
    number: c_int,
    text: CString,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::new(Last { number: 0, text: CString::default() });
}

fn remember(fault: Fault) {
    // A thread that is ending has no last error any more.
    let _ = LAST.try_with(|last| *last.borrow_mut() = Last { number: fault.number, text: c_text(fault.text) });
}

/// Runs the body of a function that C calls and gives its code; what goes wrong is the thread's last error from now on.
pub(crate) fn guarded(work: impl FnOnce() -> Result<(), Fault>) -> Code {
    let fault = || Fault::new(ONESWEEP_ERROR_FAULT, "a fault of the library; standard error may tell more");
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(fault()));
    let Err(fault) = done else { return ONESWEEP_OK };
    let code = fault.code;
    remember(fault);
    code
}

/// The same for functions without a code, which give `otherwise` then.
pub(crate) fn look<T>(otherwise: T, look: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(look)).unwrap_or(otherwise)
}

/// What a code means, in a few words. Never NULL; valid for ever.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_strerror(error: Code) -> *const c_char {
    MEANINGS.get(error as usize).copied().unwrap_or(c"unknown error").as_ptr()
}

/// What went wrong in the last call of this thread that failed, in one line: with the path, the cause, and what to do where
/// that is known. Empty before. Valid until the next call of this thread fails, or the thread ends.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_last_message() -> *const c_char {
    LAST.try_with(|last| last.borrow().text.as_ptr()).unwrap_or(c"".as_ptr())
}

/// The error number (errno) of that failure; 0 where no system call failed.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_last_errno() -> c_int {
    LAST.try_with(|last| last.borrow().number).unwrap_or(0)
}

/// Panics, for the test of what happens then. In no release, and in no shared library.
#[cfg(debug_assertions)]
#[doc(hidden)]
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_panic_for_tests() -> Code {
    guarded(|| panic!("asked for by a test"))
}

#[cfg(test)]
mod tests {
    use std::{ffi::CStr, path::PathBuf};

    use super::*;

    fn message() -> String {
        // SAFETY: the pointer is that of a string of this thread, which nothing replaces meanwhile.
        unsafe { CStr::from_ptr(onesweep_last_message()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_is_a_code_and_a_message() {
        assert_eq!(guarded(|| panic!("inside")), ONESWEEP_ERROR_FAULT);
        assert!(message().contains("a fault of the library"), "{}", message());
        assert_eq!(look(7, || panic!("inside")), 7);
        assert_eq!(guarded(|| Ok(())), ONESWEEP_OK);
        assert!(!message().is_empty(), "what went well changes nothing");
    }

    #[test]
    fn errors_of_sweeps_keep_what_the_kernel_said() {
        let (path, reason) = (PathBuf::from("/a"), String::from("no"));
        let source = |number| io::Error::from_raw_os_error(number);
        let denied = || Some(source(13));
        let cases = [
            (SweepError::Root { path: path.clone(), source: source(2) }, ONESWEEP_ERROR_ROOT, 2),
            (SweepError::NoRoots, ONESWEEP_ERROR_NO_ROOTS, 0),
            (
                SweepError::Device { path: path.clone(), reason: reason.clone(), source: denied() },
                ONESWEEP_ERROR_DEVICE,
                13,
            ),
            (SweepError::Device { path: path.clone(), reason: reason.clone(), source: None }, ONESWEEP_ERROR_DEVICE, 0),
            (
                SweepError::Snapshot { path: path.clone(), reason: reason.clone(), source: denied() },
                ONESWEEP_ERROR_SNAPSHOT,
                13,
            ),
            (SweepError::Snapshot { path, reason, source: None }, ONESWEEP_ERROR_SNAPSHOT, 0),
            (SweepError::System { what: "a thread", source: source(11) }, ONESWEEP_ERROR_SYSTEM, 11),
        ];
        for (error, code, number) in cases {
            let fault = Fault::from(error);
            assert_eq!((fault.code, fault.number), (code, number), "{}", fault.text);
        }
    }

    #[test]
    fn errors_of_files_keep_what_the_kernel_said() {
        let path = PathBuf::from("/a/b");
        let source = || io::Error::from_raw_os_error(5);
        let cases = [
            (FileError::Vanished { path: path.clone() }, ONESWEEP_ERROR_VANISHED, ENOENT),
            (FileError::Io { path: path.clone(), step: "open".into(), source: source() }, ONESWEEP_ERROR_IO, 5),
            (FileError::NotInside { path: path.clone() }, ONESWEEP_ERROR_NOT_INSIDE, ENOENT),
            (FileError::Changed { path: path.clone(), attempts: 3 }, ONESWEEP_ERROR_CHANGED, 0),
            (FileError::Loop { path: path.clone() }, ONESWEEP_ERROR_LOOP, 0),
            (FileError::NotOneMoment { path, reason: "late".into() }, ONESWEEP_ERROR_NOT_ONE_MOMENT, 0),
            (FileError::BudgetLent { lent: 7 }, ONESWEEP_ERROR_BUDGET_LENT, 0),
            (FileError::Stopped { disk: "sda".into(), source: source() }, ONESWEEP_ERROR_STOPPED, 5),
        ];
        for (error, code, number) in cases {
            let fault = Fault::from(&error);
            assert_eq!((fault.code, fault.number, &fault.text), (code, number, &error.to_string()));
        }
    }
}
