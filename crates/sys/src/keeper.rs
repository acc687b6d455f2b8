//! A change that must not outlast this process: a frozen file system, a snapshot, a setting.
//!
//! A child process makes the change, waits until it is told to undo it, and undoes it. It is told by the end of a pipe, so
//! it does the same when this process panics or is killed. The change can also have a limit in time.
//!
//! The child is a session of its own that no signal but SIGKILL reaches. It is this program, forked and not executed anew:
//! a program would have to be read, maybe from the file system that is frozen. What it runs it has run once before the
//! change, and holds in memory.
#![allow(unsafe_code)]

use std::io::{self, PipeReader, PipeWriter, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::ioctl::Opcode;

use crate::apart::stand_apart;

/// What the child has open, and nothing else.
const OBJECT: RawFd = 0;
const HOLD: RawFd = 1;
const TOLD: RawFd = 2;

/// A number that descriptors of the child are moved beyond before they get their places.
const BEYOND: RawFd = 16;

/// An argument of an ioctl, which stays where it is.
pub(crate) type Argument = Box<[u64]>;

/// What is done to the object.
pub(crate) enum Step {
    /// An ioctl. Descriptors in its argument are those of the child: the object is 0.
    Ioctl { request: Opcode, argument: Argument },
    /// For what is only done at the end.
    Nothing,
    /// Bytes at its beginning.
    Write(Box<[u8]>),
    /// Bytes to what has no places, as a pipe.
    Tell(Box<[u8]>),
}

/// A change that is undone when this is dropped, at the end of this process, and when its time is up.
pub(crate) struct Keeper {
    child: libc::pid_t,
    /// Nothing is ever written to it.
    hold: Option<PipeWriter>,
    told: PipeReader,
    object: OwnedFd,
    undo: Step,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").field("child", &self.child).finish_non_exhaustive()
    }
}

impl Keeper {
    /// Makes a change to `object` and keeps it. Errors are those of `change`, and of starting a process.
    pub(crate) fn start(
        object: OwnedFd,
        mut change: Step,
        mut undo: Step,
        limit: Option<Duration>,
    ) -> io::Result<Self> {
        let (held, hold) = io::pipe()?;
        let (told, tell) = io::pipe()?;
        let descriptors = [object.as_raw_fd(), held.as_raw_fd(), tell.as_raw_fd()];
        let limit = limit.map(|limit| i64::try_from(limit.as_millis()).unwrap_or(i64::MAX));
        // SAFETY: the child calls nothing but `keep`, which takes no lock, allocates nothing and never returns.
        let child = unsafe {
            match libc::fork() {
                0 => keep(descriptors, &mut change, &mut undo, limit),
                child => child,
            }
        };
        if child < 0 {
            return Err(io::Error::last_os_error());
        }
        drop((held, tell));
        let mut keeper = Self { child, hold: Some(hold), told, object, undo };
        match keeper.hear() {
            Ok(0) => Ok(keeper),
            Ok(errno) => {
                keeper.reap();
                Err(io::Error::from_raw_os_error(errno))
            }
            Err(_) => Err(io::Error::other("the process that was to keep it has ended")),
        }
    }

    /// Undoes the change; false when that was done before because its time was up. To be asked once.
    pub(crate) fn undo(&mut self) -> io::Result<bool> {
        if self.hold.take().is_none() {
            return Ok(true);
        }
        let ended = self.hear().and_then(|in_time| Ok((in_time == 1, self.hear()?)));
        self.reap();
        match ended {
            Ok((in_time, 0)) => Ok(in_time),
            Ok((_, errno)) => Err(io::Error::from_raw_os_error(errno)),
            // Somebody has killed it.
            //
            // SAFETY: the argument is as large as the request says, by the promise of who made the step.
            Err(_) => match unsafe { step(self.object.as_raw_fd(), &mut self.undo) } {
                0 => Ok(true),
                errno => Err(io::Error::from_raw_os_error(errno)),
            },
        }
    }

    /// The next number that the child tells.
    fn hear(&mut self) -> io::Result<i32> {
        let mut word = [0; 4];
        self.told.read_exact(&mut word)?;
        Ok(i32::from_ne_bytes(word))
    }

    fn reap(&mut self) {
        self.hold = None;
        // SAFETY: no status is asked for. That somebody else has waited for it is no loss.
        while unsafe { libc::waitpid(self.child, std::ptr::null_mut(), 0) } < 0
            && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
        {}
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if self.hold.is_some() {
            let _ = self.undo();
        }
    }
}

/// The life of the child: makes the change, tells the error number, waits for the end of the pipe or of its time, undoes
/// the change, tells whether it was in time and the error number.
///
/// # Safety
///
/// In a child that was just forked, by which other threads of its parent may have held any lock.
unsafe fn keep(descriptors: [RawFd; 3], change: &mut Step, undo: &mut Step, limit: Option<i64>) -> ! {
    // SAFETY: plain system calls on numbers and on memory of this process; the arguments of ioctls are as large as their
    // requests say, by the promise of who made the steps.
    unsafe {
        stand_apart();
        let moved = descriptors.map(|fd| libc::fcntl(fd, libc::F_DUPFD, BEYOND));
        for (fd, place) in moved.into_iter().zip([OBJECT, HOLD, TOLD]) {
            libc::dup2(fd, place);
        }
        // Whoever reads the end of a pipe of this program must not wait for this process.
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
        // Without the right to lock memory it works as well, until memory is very short.
        libc::mlockall(libc::MCL_CURRENT | libc::MCL_ONFAULT);
        // Everything once, so that it is in memory.
        wait(HOLD, Some(0));
        step(-1, undo);
        tell(-1, 0);

        let since = now();
        let errno = step(OBJECT, change);
        tell(TOLD, errno);
        if errno == 0 {
            let ended = wait(HOLD, limit.map(|limit| limit - (now() - since)));
            let errno = step(OBJECT, undo);
            tell(TOLD, i32::from(ended));
            tell(TOLD, errno);
        }
        libc::_exit(0)
    }
}

/// Milliseconds of a clock that only goes forward.
///
/// # Safety
///
/// None: it is marked as what it is called from.
unsafe fn now() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes a `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec * 1000 + time.tv_nsec / 1_000_000
}

/// Waits until the other end of a pipe is closed; false when the time was up before.
///
/// # Safety
///
/// None: it is marked as what it is called from.
unsafe fn wait(pipe: RawFd, limit: Option<i64>) -> bool {
    // SAFETY: as of this function.
    let until = limit.map(|limit| unsafe { now() } + limit);
    loop {
        // SAFETY: as of this function.
        let left = until.map(|until| until - unsafe { now() });
        let timeout = left.map_or(-1, |left| left.clamp(0, i32::MAX.into()) as i32);
        let mut polled = libc::pollfd { fd: pipe, events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor is asked for.
        if unsafe { libc::poll(&raw mut polled, 1, timeout) } > 0 {
            return true;
        }
        if left.is_some_and(|left| left <= 0) {
            return false;
        }
    }
}

/// The error number, 0 for none.
///
/// # Safety
///
/// The argument must be as large as the request says.
unsafe fn step(fd: RawFd, step: &mut Step) -> i32 {
    // SAFETY: as of this function; the kernel may write to the argument, which nobody else looks at.
    unsafe {
        let status = match step {
            Step::Ioctl { request, argument } => libc::ioctl(fd, *request as _, argument.as_mut_ptr()) as isize,
            Step::Nothing => 0,
            Step::Tell(bytes) => libc::write(fd, bytes.as_ptr().cast(), bytes.len()),
            Step::Write(bytes) => libc::pwrite(fd, bytes.as_ptr().cast(), bytes.len(), 0),
        };
        if status < 0 { *libc::__errno_location() } else { 0 }
    }
}

/// # Safety
///
/// None: it is marked as what it is called from.
unsafe fn tell(fd: RawFd, number: i32) {
    let word = number.to_ne_bytes();
    // SAFETY: four bytes of a number. A pipe has room for them; that nobody reads them is no loss.
    unsafe { libc::write(fd, word.as_ptr().cast(), word.len()) };
}
