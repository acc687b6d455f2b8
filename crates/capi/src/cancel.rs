//! Stopping a sweep from outside.

use onesweep::Cancel as Switch;

use crate::fault::look;

/// Stops sweeps from outside: from another thread, from a callback, from a signal handler.
pub struct Cancel {
    pub(crate) switch: Switch,
}

/// Makes a cancel handle that is not thrown. Never NULL.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_cancel_new() -> *mut Cancel {
    look(std::ptr::null_mut(), || Box::into_raw(Box::new(Cancel { switch: Switch::new() })))
}

/// Stops all sweeps and plans that have this handle among their options, each within one request to its disk; those that begin
/// later, too. Safe in any thread and in signal handlers, and more than once. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_cancel_throw(cancel: Option<&Cancel>) {
    if let Some(cancel) = cancel {
        cancel.switch.cancel();
    }
}

/// Whether it was thrown. False for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_cancel_is_thrown(cancel: Option<&Cancel>) -> bool {
    cancel.is_some_and(|cancel| cancel.switch.is_cancelled())
}

/// Frees a cancel handle. Options that have it, and sweeps that run, go on as if it were never thrown any more. NULL is
/// ignored.
#[unsafe(no_mangle)]
pub extern "C" fn onesweep_cancel_free(cancel: Option<Box<Cancel>>) {
    look((), || drop(cancel));
}
