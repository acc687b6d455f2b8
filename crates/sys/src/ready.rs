//! Waiting for a socket, and a bell that another thread rings.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll},
    io::Errno,
};

/// Wakes the thread that waits with it ([`wait`]). Rung before somebody waits, it is heard then.
#[derive(Debug)]
#[doc(alias = "eventfd")]
pub struct Bell(OwnedFd);

impl Bell {
    /// One that was not rung. Fails where there is no descriptor left.
    pub fn new() -> io::Result<Bell> {
        Ok(Bell(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Can be rung any number of times, and is heard once.
    pub fn ring(&self) {
        // It fails only where it was rung 2⁶⁴ − 1 times and nobody heard it.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    fn silence(&self) {
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }
}

/// What a socket is waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Bytes have come, or somebody wants to connect.
    pub read: bool,
    /// There is room for bytes to go.
    pub write: bool,
}

/// What there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Something can be read; that may be the end, or an error.
    pub read: bool,
    /// Something can be written.
    pub write: bool,
    /// Nothing will be taken or come any more, whether it was waited for or not.
    pub is_over: bool,
    /// The bell was rung.
    pub is_rung: bool,
}

/// Waits until the socket has what is wanted, the bell is rung, or the time is over, whichever is first.
#[doc(alias = "poll")]
pub fn wait(socket: BorrowedFd<'_>, wanted: Wanted, bell: &Bell, time: Option<Duration>) -> io::Result<Ready> {
    let mut flags = PollFlags::empty();
    flags.set(PollFlags::IN, wanted.read);
    flags.set(PollFlags::OUT, wanted.write);
    wait_for(&mut [PollFd::from_borrowed_fd(socket, flags), heard(bell)], bell, time)
}

/// Waits for the bell alone; whether it was rung.
pub fn wait_for_bell(bell: &Bell, time: Option<Duration>) -> io::Result<bool> {
    Ok(wait_for(&mut [heard(bell)], bell, time)?.is_rung)
}

/// Whether something can be read at once. Never waits; costs a microsecond.
pub fn can_read(socket: BorrowedFd<'_>) -> io::Result<bool> {
    let mut all = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    match poll(&mut all, Some(&Timespec::default())) {
        // It isn't known.
        Err(Errno::INTR) => Ok(true),
        counted => Ok(counted? > 0),
    }
}

fn heard(bell: &Bell) -> PollFd<'_> {
    PollFd::from_borrowed_fd(bell.0.as_fd(), PollFlags::IN)
}

/// The bell is the last of them.
fn wait_for(all: &mut [PollFd<'_>], bell: &Bell, time: Option<Duration>) -> io::Result<Ready> {
    // Beyond what the kernel can count, it is for good.
    let time = time.and_then(|time| Timespec::try_from(time).ok());
    match poll(all, time.as_ref()) {
        // To the caller it is a time that was over soon.
        Err(Errno::INTR) => return Ok(Ready::default()),
        counted => counted?,
    };
    let is_rung = all.last().is_some_and(|fd| !fd.revents().is_empty());
    if is_rung {
        bell.silence();
    }
    let socket = if all.len() == 2 { all[0].revents() } else { PollFlags::empty() };
    let is_over = socket.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
    Ok(Ready {
        read: socket.contains(PollFlags::IN) || is_over,
        write: socket.contains(PollFlags::OUT) || is_over,
        is_over,
        is_rung,
    })
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::net::UnixStream, thread};

    use super::*;

    #[test]
    fn a_bell_is_heard_once_from_before_and_from_another_thread() {
        let bell = Bell::new().unwrap();
        bell.ring();
        bell.ring();
        assert!(wait_for_bell(&bell, None).unwrap());
        assert!(!wait_for_bell(&bell, Some(Duration::ZERO)).unwrap());
        thread::scope(|scope| {
            scope.spawn(|| bell.ring());
            assert!(wait_for_bell(&bell, None).unwrap());
        });
    }

    #[test]
    fn what_has_come_can_be_read() {
        let (mut here, there) = UnixStream::pair().unwrap();
        assert!(!can_read(there.as_fd()).unwrap());
        here.write_all(b"x").unwrap();
        assert!(can_read(there.as_fd()).unwrap());
    }

    #[test]
    fn a_socket_is_ready_for_what_it_was_asked_for() {
        let bell = Bell::new().unwrap();
        let (mut one, other) = UnixStream::pair().unwrap();
        let both = Wanted { read: true, write: true };
        let ready = wait(other.as_fd(), both, &bell, None).unwrap();
        assert_eq!(ready, Ready { write: true, ..Ready::default() });
        one.write_all(b"x").unwrap();
        let ready = wait(other.as_fd(), Wanted { read: true, write: false }, &bell, None).unwrap();
        assert_eq!(ready, Ready { read: true, ..Ready::default() });
        let nothing = Wanted::default();
        assert_eq!(wait(other.as_fd(), nothing, &bell, Some(Duration::ZERO)).unwrap(), Ready::default());
        drop(one);
        assert!(wait(other.as_fd(), nothing, &bell, None).unwrap().is_over);
        bell.ring();
        assert!(wait(other.as_fd(), nothing, &bell, None).unwrap().is_rung);
    }
}
