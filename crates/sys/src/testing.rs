//! What the tests of several modules need.
#![allow(unsafe_code)]

/// Runs `body` in a thread that has no privilege and owns nothing; `None`, with the reason printed, where that is not
/// possible. Only that thread changes: the kernel keeps the user of each thread apart, only libc makes them agree.
pub(crate) fn as_stranger<T: Send>(body: impl FnOnce() -> T + Send) -> Option<T> {
    const NOBODY: libc::c_long = 65_534;
    const UNCHANGED: libc::c_long = -1;
    let run = || {
        // SAFETY: three plain numbers.
        match unsafe { libc::syscall(libc::SYS_setresuid, UNCHANGED, NOBODY, UNCHANGED) } {
            0 => Some(body()),
            _ => None,
        }
    };
    let answer = std::thread::scope(|scope| scope.spawn(run).join().unwrap());
    if answer.is_none() {
        eprintln!("skipped: only root can become somebody else");
    }
    answer
}
