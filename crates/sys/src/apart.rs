//! Threads and forked children that share less with their process than others.
#![allow(unsafe_code)]

/// Gives this thread a table of files of its own, with the standard ones alone. Linux 5.9.
///
/// For a thread that has just begun and owns no file: the numbers of its process are no files of it any more.
pub(crate) fn leave_files() -> std::io::Result<()> {
    // SAFETY: numbers alone. The thread has no file that it could use afterwards.
    match unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_UNSHARE) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

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
