//! A program that nobody has to trust: it runs as a user of its own, without a network, for a bounded time.
#![allow(unsafe_code)]

use std::{
    fs::File,
    io::{self, ErrorKind, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    process::{Pid, PidfdFlags, pidfd_open},
};

use crate::{
    groups::{Groups, Place},
    limits,
    process::kill_group,
};

/// Programs are looked for by their absolute paths; what they start finds the usual ones.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Runs programs as a user, with one group and no others, with a network that nothing is on, with no environment but `PATH` and
/// `LC_ALL=C`, in `/`, and such that none of them gets rights by what it starts.
#[derive(Debug)]
pub struct Confined {
    uid: u32,
    gid: u32,
    /// A network namespace without anything but its own loopback, which is down.
    network: OwnedFd,
}

/// How a program ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Ended {
    /// Well; this is what it wrote.
    Said(Vec<u8>),
    /// Not well: how, in words.
    Failed(String),
    /// It was killed when its time was up, or when it was to stop.
    Late,
    /// It was killed when it had written more than it may.
    TooMuch,
}

impl Confined {
    /// Programs run as this user and group. Needs `CAP_SYS_ADMIN`; to run them `CAP_SETUID`, `CAP_SETGID` and `CAP_KILL`.
    #[doc(alias = "CLONE_NEWNET")]
    pub fn new(uid: u32, gid: u32) -> io::Result<Confined> {
        // In a thread of its own, so that this one stays where it is.
        let made = thread::Builder::new().spawn(|| {
            // SAFETY: no memory is touched, and the thread ends right after.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } < 0 {
                return Err(io::Error::last_os_error());
            }
            File::open("/proc/thread-self/ns/net").map(OwnedFd::from)
        })?;
        let network = made.join().map_err(|_| io::Error::other("the thread that makes it has ended"))??;
        Ok(Confined { uid, gid, network })
    }

    /// Runs a program, its absolute path first, gives it `input`, and takes at most `most` bytes from it. After `limit` it is
    /// killed, with all of its process group. The error is why it could not be started.
    pub fn run(&self, words: &[String], input: &[u8], limit: Duration, most: usize) -> io::Result<Ended> {
        let until = Instant::now() + limit;
        let (program, rest) = words.split_first().ok_or(ErrorKind::InvalidInput)?;
        let mut command = Command::new(program);
        command.args(rest).env_clear().env("PATH", PATH).env("LC_ALL", "C").current_dir("/").process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        limits::give_back_open_files(&mut command);
        let (uid, gid, network) = (self.uid, self.gid, self.network.as_raw_fd());
        // SAFETY: the closure runs in the forked child, and makes system calls alone: it allocates nothing and takes no lock.
        unsafe { command.pre_exec(move || confine(uid, gid, network)) };
        let mut child = command.spawn()?;
        let ended = converse(&mut child, input, until, Says { most, forgets: false }, &AtomicBool::new(false));
        kill_all(&child)?;
        let status = child.wait()?;
        Ok(match ended? {
            Ended::Said(_) if !status.success() => Ended::Failed(format!("it ended with {status}")),
            ended => ended,
        })
    }
}

/// Runs a command of one's own as it is, with the first `most` bytes that it writes to standard output; what it writes beyond
/// is read and forgotten. After `limit`, and soon after `stop`, it is killed: [`Ended::Late`]. What it has started, in its process
/// group, ends with it in any case; when this process is killed it ends itself, and with `groups` all of its group. The error is
/// why it could not be started.
pub fn run_within(
    mut command: Command,
    limit: Duration,
    most: usize,
    stop: &AtomicBool,
    groups: Option<&Arc<Groups>>,
) -> io::Result<(Ended, ExitStatus)> {
    let until = Instant::now() + limit;
    let place = groups.and_then(Groups::take);
    let note = place.as_ref().map(Place::note);
    let begin = move || {
        if let Some(note) = &note {
            note();
        }
        end_with_parent()
    };
    // SAFETY: the closure runs in the forked child, makes system calls and writes to memory: it allocates nothing and takes no lock.
    unsafe { command.pre_exec(begin) };
    limits::give_back_open_files(&mut command);
    let mut child = command.process_group(0).stdout(Stdio::piped()).spawn()?;
    let ended = converse(&mut child, &[], until, Says { most, forgets: true }, stop);
    kill_all(&child)?;
    drop(place);
    let status = child.wait()?;
    Ok((ended?, status))
}

/// The thread that has forked is the one that waits: it is there as long as somebody wants to know how this ends.
fn end_with_parent() -> io::Result<()> {
    // SAFETY: plain numbers.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends a program that leads a group, with all of it. Until it is waited for, its number is nobody else's.
fn kill_all(child: &Child) -> io::Result<()> {
    match kill_group(child.id()) {
        // Without the right to kill it, it would be waited for until it likes to end.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(error),
        _ => Ok(()),
    }
}

/// Gives up everything but reading and writing what was handed over.
fn confine(uid: libc::uid_t, gid: libc::gid_t, network: libc::c_int) -> io::Result<()> {
    let done = |status: libc::c_int| if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: numbers, a null pointer for an empty list, and a limit that lives during the call.
    unsafe {
        done(libc::setns(network, libc::CLONE_NEWNET))?;
        done(libc::setrlimit(libc::RLIMIT_CORE, &raw const none))?;
        done(libc::setgroups(0, std::ptr::null()))?;
        done(libc::setresgid(gid, gid, gid))?;
        done(libc::setresuid(uid, uid, uid))?;
        done(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        // The thread that waits for it is the one that has forked.
        done(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0))
    }
}

/// What a program may say: so many bytes. More is too much, or forgotten.
struct Says {
    most: usize,
    forgets: bool,
}

/// How long it may take until a stop is heeded.
const LOOK: Duration = Duration::from_millis(50);

/// Feeds a program, and takes what it says, until it has ended.
fn converse(child: &mut Child, mut input: &[u8], until: Instant, says: Says, stop: &AtomicBool) -> io::Result<Ended> {
    let Says { most, forgets } = says;
    let (mut stdin, mut stdout) = (child.stdin.take(), child.stdout.take());
    for pipe in [stdin.as_ref().map(AsFd::as_fd), stdout.as_ref().map(AsFd::as_fd)].into_iter().flatten() {
        fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?;
    }
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(ErrorKind::InvalidInput)?;
    let ended = pidfd_open(pid, PidfdFlags::empty())?;
    let mut said = Vec::new();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || stop.load(Ordering::Relaxed) {
            return Ok(Ended::Late);
        }
        let has_ended =
            wait(stdin.as_ref().map(AsFd::as_fd), stdout.as_ref().map(AsFd::as_fd), ended.as_fd(), left.min(LOOK))?;
        if let Some(pipe) = &mut stdin {
            match pipe.write(input) {
                Ok(written) => input = &input[written..],
                Err(error) if is_for_later(&error) => {}
                // It doesn't want to hear more.
                Err(_) => input = &[],
            }
            if input.is_empty() {
                stdin = None;
            }
        }
        if let Some(pipe) = &mut stdout {
            let mut room = [0; 16 << 10];
            loop {
                match pipe.read(&mut room) {
                    Ok(0) => {
                        stdout = None;
                        break;
                    }
                    Ok(read) => said.extend(&room[..read]),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return Err(error),
                }
                match said.len() > most {
                    true if forgets => said.truncate(most),
                    true => return Ok(Ended::TooMuch),
                    false => {}
                }
                if Instant::now() >= until || stop.load(Ordering::Relaxed) {
                    return Ok(Ended::Late);
                }
            }
        }
        if has_ended {
            return Ok(Ended::Said(said));
        }
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Waits until a pipe is ready or the program has ended; true when it has.
fn wait(
    stdin: Option<BorrowedFd<'_>>,
    stdout: Option<BorrowedFd<'_>>,
    ended: BorrowedFd<'_>,
    left: Duration,
) -> io::Result<bool> {
    // Negative numbers are passed over.
    let one = |fd: Option<BorrowedFd<'_>>, events| libc::pollfd {
        fd: fd.map_or(-1, |fd| fd.as_raw_fd()),
        events,
        revents: 0,
    };
    let mut polled = [one(stdin, libc::POLLOUT), one(stdout, libc::POLLIN), one(Some(ended), libc::POLLIN)];
    // Rounded up, or the last millisecond would be waited for by asking again and again.
    let millis = libc::c_int::try_from(left.as_millis()).unwrap_or(libc::c_int::MAX - 1) + 1;
    // SAFETY: the list is as long as the call is told, and its descriptors are borrowed for the call.
    let status = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, millis) };
    if status < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == ErrorKind::Interrupted { Ok(false) } else { Err(error) };
    }
    Ok(polled[2].revents != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(line: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", line]);
        command
    }

    #[test]
    fn a_command_of_ones_own_has_its_time() {
        let run = |line: &str, limit| run_within(sh(line), limit, 5, &AtomicBool::new(false), None).unwrap();
        let (ended, status) = run("echo one; echo two; exit 3", LONG);
        assert_eq!((ended, status.code()), (Ended::Said(b"one\nt".to_vec()), Some(3)));
        // What it leaves running has its output, and isn't waited for.
        assert_eq!(run("sleep 1000 & echo", LONG).0, Ended::Said(b"\n".to_vec()));
        assert_eq!(run("sleep 1000", Duration::from_millis(100)).0, Ended::Late);
    }

    #[test]
    fn a_command_that_writes_without_end_is_stopped() {
        let stop = AtomicBool::new(false);
        for line in ["yes", "sleep 1000"] {
            stop.store(false, Ordering::Relaxed);
            let ended = thread::scope(|scope| {
                let ended = scope.spawn(|| run_within(sh(line), 1000 * LONG, 5, &stop, None));
                // By then it runs, and was looked at.
                thread::sleep(2 * LOOK);
                stop.store(true, Ordering::Relaxed);
                ended.join().unwrap().unwrap().0
            });
            assert_eq!(ended, Ended::Late);
        }
    }

    const LONG: Duration = Duration::from_secs(60);

    fn run(script: &str, input: &[u8], limit: Duration) -> Option<Ended> {
        if crate::user::effective_uid() != 0 {
            return None;
        }
        let words = ["/bin/sh", "-c", script].map(str::to_owned);
        Some(Confined::new(65_533, 65_532).expect("it is made").run(&words, input, limit, 1 << 20).expect("it starts"))
    }

    fn said(script: &str, input: &[u8]) -> Option<String> {
        run(script, input, LONG).map(|ended| match ended {
            Ended::Said(said) => String::from_utf8(said).expect("text"),
            other => panic!("{script}: {other:?}"),
        })
    }

    #[test]
    fn it_has_its_own_user_and_no_network() {
        let Some(who) =
            said("id -u; id -g; id -G; grep -c : /proc/net/dev; grep NoNewPrivs /proc/self/status; pwd; env", b"")
        else {
            return;
        };
        let lines: Vec<&str> = who.lines().collect();
        assert_eq!(lines[..4], ["65533", "65532", "65532", "1"], "{who}");
        assert_eq!(lines[4..6], ["NoNewPrivs:\t1", "/"], "{who}");
        assert!(!who.contains("HOME="), "{who}");
        let ours = std::fs::read_link("/proc/self/ns/net").expect("a namespace");
        let theirs = said("readlink /proc/self/ns/net", b"").expect("root runs it");
        assert_ne!(theirs.trim(), ours.to_string_lossy());
    }

    #[test]
    fn what_goes_in_comes_out() {
        let many = vec![b'x'; 700_000];
        let Some(ended) = run("cat", &many, LONG) else { return };
        assert_eq!(ended, Ended::Said(many.clone()));
        assert_eq!(run("echo done", &many, LONG), Some(Ended::Said(b"done\n".to_vec())), "it needs not read");
        assert_eq!(run("cat /dev/zero", b"", LONG), Some(Ended::TooMuch));
        assert!(matches!(run("exit 3", b"", LONG), Some(Ended::Failed(how)) if how.contains('3')));
        assert!(matches!(run("kill -9 $$", b"", LONG), Some(Ended::Failed(_))));
        let missing = Confined::new(65_533, 65_533).expect("it is made").run(&["/no/such".to_owned()], b"", LONG, 9);
        assert_eq!(missing.expect_err("it isn't there").kind(), ErrorKind::NotFound);
    }

    /// It ends though nobody would end it, and so does what it has started.
    #[test]
    fn it_is_killed_when_its_time_is_up() {
        let Some(ended) = run("sleep 1000 & sleep 1000", b"", Duration::from_millis(50)) else { return };
        assert_eq!(ended, Ended::Late);
        // One that leaves a child with its output behind is over with its own end.
        assert_eq!(run("echo early; sleep 1000 &", b"", LONG), Some(Ended::Said(b"early\n".to_vec())));
    }
}
