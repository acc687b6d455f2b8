//! What takes code that is unsafe: memory that Python looks at, and descriptors that it has open.
#![allow(unsafe_code)]

use std::{
    ffi::c_int,
    io,
    os::fd::{BorrowedFd, OwnedFd, RawFd},
};

use pyo3::{exceptions::PyBufferError, ffi, prelude::*};

/// Shows bytes to Python, which may look at them as long as it has `owner`, and not change them.
///
/// # Safety
///
/// `view` is one that Python wants to be filled. The bytes stay where they are, and as they are, until `owner` is gone or has
/// been told that the view is (`__releasebuffer__`).
pub(crate) unsafe fn show(
    owner: &Bound<'_, PyAny>,
    bytes: *const [u8],
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    if view.is_null() {
        return Err(PyBufferError::new_err("there is no view to be filled"));
    }
    let len = bytes.len() as ffi::Py_ssize_t;
    // SAFETY: the caller promises the view and the bytes; nobody writes to them, since they are shown to be read alone.
    let filled = unsafe {
        ffi::PyBuffer_FillInfo(view, owner.as_ptr(), bytes.cast::<std::ffi::c_void>().cast_mut(), len, 1, flags)
    };
    if filled == 0 { Ok(()) } else { Err(PyErr::fetch(owner.py())) }
}

/// A descriptor of our own for what Python has opened.
pub(crate) fn descriptor(fd: RawFd) -> io::Result<OwnedFd> {
    const EBADF: i32 = 9;
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(EBADF));
    }
    // SAFETY: it isn't -1, and the kernel refuses what isn't open.
    unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()
}
