//! What C hands over, as Rust takes it, and strings as C takes them.
//!
//! # Safety
//!
//! Nobody can check what C says of its memory: each function here trusts what the header asks of callers.

use std::{
    ffi::{CStr, CString, OsStr, c_char, c_int, c_void},
    mem::MaybeUninit,
    os::{
        fd::{BorrowedFd, OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use crate::fault::Fault;

/// What C gives to its own callback, in whatever thread that is called.
#[derive(Clone, Copy)]
pub(crate) struct User(pub(crate) *mut c_void);

// SAFETY: it is never followed here; C is told which callbacks are called by other threads.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

impl User {
    /// Of this value, so that a closure takes it as a whole and not the pointer in it.
    pub(crate) fn get(&self) -> *mut c_void {
        self.0
    }
}

/// A string of C.
///
/// # Safety
///
/// It is NULL or ends with a zero, and stays as it is meanwhile.
pub(crate) unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a CStr, Fault> {
    if text.is_null() {
        return Err(Fault::argument(format!("{name} is NULL")));
    }
    // SAFETY: it isn't NULL, and the caller promises the rest.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// A string of C as a path.
///
/// # Safety
///
/// As of [`text`].
pub(crate) unsafe fn path<'a>(path: *const c_char, name: &str) -> Result<&'a Path, Fault> {
    // SAFETY: the caller promises it.
    let path = unsafe { text(path, name) }?;
    Ok(Path::new(OsStr::from_bytes(path.to_bytes())))
}

/// A list of C: NULL is one without members.
///
/// # Safety
///
/// It is NULL, or has `count` members, which stay as they are meanwhile.
pub(crate) unsafe fn list<'a, T>(first: *const T, count: usize, name: &str) -> Result<&'a [T], Fault> {
    match (first.is_null(), count) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Fault::argument(format!("{name} is NULL, and has {count} members"))),
        // No list of C is longer; a negative number would look so.
        (false, count) if count > isize::MAX as usize / size_of::<T>() => {
            Err(Fault::argument(format!("{count} members of {name} are more than can be")))
        }
        // SAFETY: it isn't NULL, no longer than memory, and the caller promises the rest.
        (false, count) => Ok(unsafe { std::slice::from_raw_parts(first, count) }),
    }
}

/// A descriptor of our own for what C has opened.
pub(crate) fn descriptor(fd: RawFd) -> Result<OwnedFd, Fault> {
    const EBADF: c_int = 9;
    if fd < 0 {
        return Err(Fault { number: EBADF, ..Fault::argument(format!("{fd} is no descriptor")) });
    }
    // SAFETY: it isn't -1, and the kernel refuses what isn't open.
    let own = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned();
    own.map_err(|error| {
        let text = format!("descriptor {fd}: {error}");
        Fault::io(crate::fault::ONESWEEP_ERROR_ARGUMENT, &error, text)
    })
}

/// The handle behind a pointer that may not be NULL.
pub(crate) fn given<T>(pointer: Option<T>, name: &str) -> Result<T, Fault> {
    pointer.ok_or_else(|| Fault::argument(format!("{name} is NULL")))
}

/// Gives C a handle. It is NULL until then, also when the call fails.
pub(crate) fn hand_out<T>(
    to: Option<&mut MaybeUninit<*mut T>>,
    make: impl FnOnce() -> Result<T, Fault>,
) -> Result<(), Fault> {
    let to = given(to, "the pointer to the handle")?;
    to.write(std::ptr::null_mut());
    let made = make()?;
    to.write(Box::into_raw(Box::new(made)));
    Ok(())
}

/// Text as C takes it. A zero within, which only a damaged name can have, is shown as a question mark.
pub(crate) fn c_text(text: impl Into<Vec<u8>>) -> CString {
    CString::new(text.into()).unwrap_or_else(|error| {
        let bytes = error.into_vec().into_iter().map(|byte| if byte == 0 { b'?' } else { byte });
        CString::new(bytes.collect::<Vec<_>>()).unwrap_or_default()
    })
}

/// A path as C takes it.
pub(crate) fn c_path(path: &Path) -> CString {
    c_text(path.as_os_str().as_bytes())
}

/// The pointer to a string that may be missing.
pub(crate) fn pointer(text: Option<&CString>) -> *const c_char {
    text.map_or(std::ptr::null(), |text| text.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_c_is_believed_that_can_be_checked() {
        // SAFETY: NULL is allowed, and what is too long is not looked at.
        let (null, none, long) = unsafe {
            (
                list::<u64>(std::ptr::null(), 1, "list"),
                list::<u64>(std::ptr::null(), 0, "list"),
                list(&1_u64, usize::MAX, "list"),
            )
        };
        assert!(null.is_err() && long.is_err());
        assert!(none.unwrap().is_empty());
        assert_eq!((descriptor(-1).unwrap_err().number, descriptor(1_000_000).unwrap_err().number), (9, 9));
        assert_eq!(c_text(*b"a\0b").to_bytes(), b"a?b");
    }
}
