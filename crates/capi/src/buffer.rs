//! Bytes that C has taken over.

use std::ffi::c_void;

use onesweep_sys::buffer::Bytes;

use crate::fault::look;

/// The content of a file that was taken over: the caller's own, and no part of the budget.
pub struct Buffer {
    pub(crate) bytes: Bytes,
}

/// The bytes, valid until the buffer is freed; the caller may change them. NULL for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_buffer_data(buffer: Option<&mut Buffer>) -> *mut c_void {
    buffer.map_or(std::ptr::null_mut(), |buffer| buffer.bytes.as_mut_ptr().cast())
}

/// How many bytes there are. 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_buffer_size(buffer: Option<&Buffer>) -> usize {
    buffer.map_or(0, |buffer| buffer.bytes.len())
}

/// Frees a buffer, in any thread, also after the sweep. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_buffer_free(buffer: Option<Box<Buffer>>) {
    look((), || drop(buffer));
}
