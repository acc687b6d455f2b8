//! Threads for which others wait.

use std::panic::{self, AssertUnwindSafe};

/// A device that no longer answers hangs whatever stands on it, and so does a question of the kernel that nobody answers. Better
/// no process at all: then reads fail, and the kernel lets everything through.
pub(crate) fn or_abort(job: impl FnOnce()) {
    if panic::catch_unwind(AssertUnwindSafe(job)).is_err() {
        std::process::abort();
    }
}
