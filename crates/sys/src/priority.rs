//! Stepping back behind other readers of the disk, and behind others on the processors.
#![allow(unsafe_code)]

use std::io;

const IOPRIO_WHO_PROCESS: libc::c_int = 1;
const IOPRIO_CLASS_IDLE: libc::c_int = 3;
const IOPRIO_CLASS_SHIFT: u32 = 13;

/// Lets the reads of this thread wait for everybody else's (`IOPRIO_CLASS_IDLE`); threads made later inherit it.
///
/// Only BFQ and mq-deadline heed it. Needs no privilege.
#[doc(alias = "ioprio_set")]
pub fn set_idle_io() -> io::Result<()> {
    set(IOPRIO_CLASS_IDLE << IOPRIO_CLASS_SHIFT)
}

/// Whether this thread's reads wait so.
#[doc(alias = "ioprio_get")]
pub fn is_idle_io() -> bool {
    // SAFETY: two plain numbers; 0 means the calling thread.
    let priority = unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0) };
    priority >> IOPRIO_CLASS_SHIFT == libc::c_long::from(IOPRIO_CLASS_IDLE)
}

/// Does some work while this thread's reads wait so; then it has the priority back that it had.
pub fn while_idle_io<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: two plain numbers; 0 means the calling thread.
    let before = unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0) } as libc::c_int;
    let is_set = set_idle_io().is_ok();
    let result = work();
    if is_set {
        // Without a class, which is told with a level, none may be set.
        let _ = set(if before >> IOPRIO_CLASS_SHIFT > 0 { before } else { 0 });
    }
    result
}

/// How many levels of niceness a thread steps back: one that is as urgent as most are gets ten times as much of a processor.
const LEVELS: i32 = 10;

/// Has others go before this thread on the processors; threads made later inherit it. There is no way back without a privilege.
#[doc(alias = "nice")]
pub fn give_way() -> io::Result<()> {
    // Of Linux it is the calling thread's alone.
    rustix::process::nice(LEVELS)?;
    Ok(())
}

fn set(priority: libc::c_int) -> io::Result<()> {
    // SAFETY: three plain numbers; 0 means the calling thread.
    let status = unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, priority) };
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_idle_for_a_while() {
        std::thread::spawn(|| {
            assert!(!is_idle_io());
            assert!(while_idle_io(is_idle_io) && !is_idle_io());
            set_idle_io().unwrap();
            assert!(while_idle_io(is_idle_io) && is_idle_io());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_gives_way_and_its_process_does_not() {
        let niceness = || rustix::process::getpriority_process(None).unwrap();
        let before = niceness();
        let of_thread = std::thread::spawn(move || give_way().map(|()| niceness())).join().unwrap().unwrap();
        assert_eq!((of_thread, niceness()), ((before + LEVELS).min(19), before));
    }

    #[test]
    fn thread_becomes_idle() {
        // In a thread of its own: the other tests keep their priority.
        let read_back = std::thread::spawn(|| {
            assert!(!is_idle_io());
            set_idle_io().unwrap();
            assert!(std::thread::spawn(is_idle_io).join().unwrap(), "threads made later are, too");
            // SAFETY: two plain numbers; 0 means the calling thread.
            unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, 0) }
        });
        let priority = read_back.join().unwrap();
        assert_eq!(priority >> IOPRIO_CLASS_SHIFT, libc::c_long::from(IOPRIO_CLASS_IDLE));
    }

    #[test]
    fn unknown_class_is_refused() {
        let error = std::thread::spawn(|| set(7 << IOPRIO_CLASS_SHIFT)).join().unwrap();
        assert_eq!(error.unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
