//! Groups of processes that do not outlast this one, however it ends.
//!
//! What is to end with its parent (`PR_SET_PDEATHSIG`) ends alone, and when the thread that has forked it does; what it has started
//! goes on. So a child of this process waits for the end of a pipe, and ends the groups that are noted in memory that both share.
//! Who leads a group notes it itself before it becomes another program, so that none is missed.
//!
//! The child is this program, forked and not executed anew, in a session of its own that no signal but SIGKILL reaches. Where it is
//! killed, or was stopped, all goes on as without it.
#![allow(unsafe_code)]

use std::{
    fmt,
    io::{self, PipeWriter, Read},
    os::fd::{AsRawFd, RawFd},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

use crate::{apart::stand_apart, shared_words::SharedWords};

/// No group.
const FREE: u32 = 0;
/// A group that has no leader yet.
const TAKEN: u32 = u32::MAX;
/// Where the child has the pipe.
const HOLD: RawFd = 0;

/// The groups that end with this process. The child ends when this is dropped.
pub struct Groups {
    noted: SharedWords,
    /// Nothing is ever written to it.
    hold: Option<PipeWriter>,
    child: libc::pid_t,
}

impl fmt::Debug for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Groups").field("child", &self.child).finish_non_exhaustive()
    }
}

impl Groups {
    /// As many groups at a time. Best made while this process is small: as long as the child is there, memory that is written to
    /// is there twice.
    #[doc(alias = "fork")]
    pub fn new(at_once: usize) -> io::Result<Self> {
        let noted = SharedWords::new(at_once)?;
        let (mut ready, tell) = io::pipe()?;
        let (held, hold) = io::pipe()?;
        let descriptors = [held.as_raw_fd(), tell.as_raw_fd()];
        // SAFETY: the child calls nothing but `watch`, which takes no lock, allocates nothing and never returns.
        let child = unsafe {
            match libc::fork() {
                0 => watch(descriptors, &noted),
                child => child,
            }
        };
        if child < 0 {
            return Err(io::Error::last_os_error());
        }
        drop((held, tell));
        let groups = Self { noted, hold: Some(hold), child };
        // Until it is deaf to signals, what ends this process may end it, too.
        ready.read_exact(&mut [0])?;
        Ok(groups)
    }

    /// A place for one more; none where there are too many.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Place> {
        let free = |word: &AtomicU32| word.compare_exchange(FREE, TAKEN, SeqCst, SeqCst).is_ok();
        let at = self.noted.iter().position(free)?;
        Some(Place { groups: Arc::clone(self), at })
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.hold = None;
        // SAFETY: no status is asked for. That somebody else has waited for it is no loss.
        while unsafe { libc::waitpid(self.child, std::ptr::null_mut(), 0) } < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
}

/// The place of one group. To be dropped once the group was ended and before its leader is waited for: then its number is another's.
pub(crate) struct Place {
    groups: Arc<Groups>,
    at: usize,
}

impl Place {
    /// For the leader, in the child that was forked: a system call and a write to memory.
    pub(crate) fn note(&self) -> impl Fn() + Send + Sync + use<> {
        let (groups, at) = (Arc::clone(&self.groups), self.at);
        move || groups.noted[at].store(std::process::id(), SeqCst)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.groups.noted[self.at].store(FREE, SeqCst);
    }
}

/// The life of the child: tells that it is there, waits for the end of the pipe, ends the groups.
///
/// # Safety
///
/// In a child that was just forked, by which other threads of its parent may have held any lock.
unsafe fn watch([held, tell]: [RawFd; 2], noted: &[AtomicU32]) -> ! {
    // SAFETY: plain system calls on numbers, and on memory of this process.
    unsafe {
        stand_apart();
        libc::write(tell, [0_u8].as_ptr().cast(), 1);
        libc::dup2(held, HOLD);
        // Whoever reads the end of a pipe of this program must not wait for this process.
        libc::syscall(libc::SYS_close_range, 1, u32::MAX, 0);
        let mut byte = 0_u8;
        // Nothing comes but the end.
        while libc::read(HOLD, (&raw mut byte).cast(), 1) < 0 && *libc::__errno_location() == libc::EINTR {}
        for word in noted {
            // Neither a mark nor what `kill` takes for this group, or for everybody.
            match i32::try_from(word.load(SeqCst)) {
                Ok(leader) if leader > 1 => {
                    libc::kill(-leader, libc::SIGKILL);
                }
                _ => {}
            }
        }
        libc::_exit(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_once_and_again() {
        let groups = Arc::new(Groups::new(2).unwrap());
        let (one, two) = (groups.take().unwrap(), groups.take().unwrap());
        assert!(groups.take().is_none());
        (one.note())();
        assert_eq!(groups.noted[one.at].load(SeqCst), std::process::id());
        let at = one.at;
        drop(one);
        assert_eq!(groups.take().unwrap().at, at);
        drop(two);
    }
}
