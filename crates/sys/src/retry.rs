//! System calls that a signal has interrupted.

use std::io;

/// Calls again as long as a signal interrupts it. The call says 0 when it is done.
pub(crate) fn retry(mut call: impl FnMut() -> libc::c_int) -> io::Result<()> {
    loop {
        if call() == 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => {}
            error => return Err(error),
        }
    }
}
