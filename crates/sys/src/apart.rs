//! A forked child that stays when what ends its parent comes to others, too.
#![allow(unsafe_code)]

/// Gives this process a session of its own, has no signal but SIGKILL reach it, and lets go of the working directory.
///
/// # Safety
///
/// For a child that was just forked, and nobody else's process: it loses its terminal and its signals. It takes no lock.
pub(crate) unsafe fn stand_apart() {
    // SAFETY: plain system calls on memory of this process.
    unsafe {
        libc::setsid();
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
        libc::chdir(c"/".as_ptr());
    }
}
