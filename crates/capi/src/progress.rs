//! What a sweep tells while it runs.

use std::ffi::{c_char, c_void};

use onesweep::Progress as Event;

use crate::ffi::{User, c_text, pointer};

/// Entries were found so far: `count`.
pub const ONESWEEP_PROGRESS_WALKED: u32 = 1;
/// Files were looked at so far: `count` of them, with `bytes`.
pub const ONESWEEP_PROGRESS_SURVEYED: u32 = 2;
/// A plan is ready, for the disk that `text` names: `count` files, `bytes`.
pub const ONESWEEP_PROGRESS_PLANNED: u32 = 3;
/// Files were read so far: `count` of them, with `bytes`.
pub const ONESWEEP_PROGRESS_READ: u32 = 4;
/// Something that is to be known and is no error: `text`.
pub const ONESWEEP_PROGRESS_REMARK: u32 = 5;
/// Bytes were read from streamed files so far: `bytes`.
pub const ONESWEEP_PROGRESS_STREAMED: u32 = 6;

/// One event. Numbers are totals since the start; those that an event doesn't tell are 0, and its text is NULL.
#[repr(C)]
pub struct Progress {
    /// One of the ONESWEEP_PROGRESS_ constants; ignore others.
    pub kind: u32,
    /// Entries or files.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
    /// One line, valid during the callback.
    pub text: *const c_char,
}

/// Is told of progress. Called by threads of the library, several at a time: be quick.
pub type ProgressCallback = Option<unsafe extern "C" fn(user: *mut c_void, progress: *const Progress)>;

/// Tells C of an event.
pub(crate) fn tell(callback: unsafe extern "C" fn(*mut c_void, *const Progress), user: User, event: Event) {
    let (kind, count, bytes, text) = match event {
        Event::Walked { entries } => (ONESWEEP_PROGRESS_WALKED, entries, 0, None),
        Event::Surveyed { files, bytes } => (ONESWEEP_PROGRESS_SURVEYED, files, bytes, None),
        Event::Planned { disk, estimate, bytes } => (ONESWEEP_PROGRESS_PLANNED, estimate.files, bytes, Some(disk)),
        Event::Read { files, bytes } => (ONESWEEP_PROGRESS_READ, files, bytes, None),
        Event::Remark { text } => (ONESWEEP_PROGRESS_REMARK, 0, 0, Some(text)),
        Event::Streamed { bytes } => (ONESWEEP_PROGRESS_STREAMED, 0, bytes, None),
        _ => return,
    };
    let text = text.map(c_text);
    let progress = Progress { kind, count, bytes, text: pointer(text.as_ref()) };
    // SAFETY: C's callback, with what C wants it to get; the event lives until it returns.
    unsafe { callback(user.get(), &raw const progress) };
}
