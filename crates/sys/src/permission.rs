//! Whether files may be opened: the kernel asks before, and whoever opens waits for the answer (fanotify).
#![allow(unsafe_code)]

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    sync::Arc,
};

const CLASS_CONTENT: u32 = 0x4;
const CLOEXEC: u32 = 0x1;
const UNLIMITED_QUEUE: u32 = 0x10;

const MARK_ADD: u32 = 0x1;
const MARK_FLUSH: u32 = 0x80;
const MARK_FILESYSTEM: u32 = 0x100;

const OPEN_PERM: u64 = 0x1_0000;

const ALLOW: u32 = 1;
const DENY: u32 = 2;

/// `struct fanotify_event_metadata`.
const EVENT_BYTES: usize = 24;
/// Questions that are taken at once.
const EVENTS: usize = 8;

/// Where the kernel asks. When it is gone, with all [`Opening`]s, or its process has ended, however, everything may be opened.
#[derive(Clone, Debug)]
pub struct Gate(Arc<OwnedFd>);

impl Gate {
    /// One that no file system asks yet. Neither it nor the files of its questions are there in a program that this process starts.
    ///
    /// The queue has no limit of its own: what doesn't fit into one that has may be opened unasked. There are at most as many
    /// questions in it as there are threads, which wait. `EPERM` without `CAP_SYS_ADMIN`.
    #[doc(alias = "fanotify_init")]
    pub fn new() -> io::Result<Gate> {
        // With O_NONBLOCK neither a fifo nor a lease is waited for when the kernel opens the file for us.
        let files = libc::O_RDONLY | libc::O_LARGEFILE | libc::O_CLOEXEC | libc::O_NOATIME | libc::O_NONBLOCK;
        // SAFETY: two numbers, no pointers.
        let fd = unsafe { libc::fanotify_init(CLASS_CONTENT | CLOEXEC | UNLIMITED_QUEUE, files as u32) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just given this descriptor, and nobody else knows it.
        Ok(Gate(Arc::new(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// From now on each opening of a file on the file system of `root` is asked for, through whatever mount and whatever name; of
    /// directories none is.
    #[doc(alias = "fanotify_mark")]
    pub fn guard_file_system(&self, root: BorrowedFd<'_>) -> io::Result<()> {
        self.mark(MARK_ADD | MARK_FILESYSTEM, OPEN_PERM, root)
    }

    /// From now on nothing is asked any more; what was is still to be answered.
    pub fn leave(&self) -> io::Result<()> {
        self.mark(MARK_FLUSH | MARK_FILESYSTEM, 0, self.0.as_fd())
    }

    fn mark(&self, flags: u32, mask: u64, inode: BorrowedFd<'_>) -> io::Result<()> {
        // SAFETY: without a path the mark goes to the descriptor itself.
        let status =
            unsafe { libc::fanotify_mark(self.0.as_raw_fd(), flags, mask, inode.as_raw_fd(), std::ptr::null()) };
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits for questions, and takes up to eight. Several threads may.
    ///
    /// Where the kernel can't open a file for us (`EMFILE`, `EWOULDBLOCK`), it refuses it to who asked, and the error is that: the next call may succeed.
    pub fn wait(&self, mut each: impl FnMut(Opening)) -> io::Result<()> {
        let mut told = [0; EVENTS * EVENT_BYTES];
        let length = rustix::io::retry_on_intr(|| rustix::io::read(&*self.0, &mut told[..]))?;
        parse(&told[..length], |fd, pid| {
            // SAFETY: the kernel has just made this descriptor for us, and says its number once.
            let file = unsafe { File::from_raw_fd(fd) };
            each(Opening { gate: Arc::clone(&self.0), file, pid, is_answered: false });
        })
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// Somebody opens a file, and waits. One that is dropped without an answer is refused.
#[derive(Debug)]
pub struct Opening {
    gate: Arc<OwnedFd>,
    file: File,
    pid: i32,
    is_answered: bool,
}

impl Opening {
    /// The file, open for reading; nothing that is done by it, or by a copy of it, is asked for.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The process that opens it, as this namespace numbers it; 0 where that is hidden.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Lets it be opened, or refuses it with `EPERM`. That nobody waits any more is no error.
    pub fn answer(mut self, may_open: bool) -> io::Result<()> {
        self.respond(may_open)
    }

    fn respond(&mut self, may_open: bool) -> io::Result<()> {
        self.is_answered = true;
        let mut response = [0; 8];
        response[..4].copy_from_slice(&self.file.as_raw_fd().to_ne_bytes());
        response[4..].copy_from_slice(&(if may_open { ALLOW } else { DENY }).to_ne_bytes());
        match rustix::io::retry_on_intr(|| rustix::io::write(&*self.gate, &response)) {
            Ok(_) | Err(rustix::io::Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if !self.is_answered {
            let _ = self.respond(false);
        }
    }
}

/// The descriptor and the process of each question, as the kernel lays them out (fanotify(7)); `None` when it doesn't.
fn parse(mut told: &[u8], mut each: impl FnMut(i32, i32)) -> Option<()> {
    fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
        bytes.get(at..)?.first_chunk().copied()
    }
    while !told.is_empty() {
        let length = u32::from_ne_bytes(field(told, 0)?) as usize;
        if length < EVENT_BYTES || length > told.len() {
            return None;
        }
        let (event, rest) = told.split_at(length);
        told = rest;
        let [version, _] = field(event, 4)?;
        if version != 3 {
            return None;
        }
        let (mask, fd) = (u64::from_ne_bytes(field(event, 8)?), i32::from_ne_bytes(field(event, 16)?));
        // Nothing else was asked for; without a descriptor there is nothing to answer.
        if mask & OPEN_PERM != 0 && fd >= 0 {
            each(fd, i32::from_ne_bytes(field(event, 20)?));
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Read, path::PathBuf, thread};

    use super::*;
    use crate::testing::{on_xfs, skipped};

    fn event(mask: u64, fd: i32) -> Vec<u8> {
        let mut bytes = (EVENT_BYTES as u32).to_ne_bytes().to_vec();
        bytes.extend([3, 0]);
        bytes.extend((EVENT_BYTES as u16).to_ne_bytes());
        bytes.extend(mask.to_ne_bytes());
        bytes.extend(fd.to_ne_bytes());
        bytes.extend(77_i32.to_ne_bytes());
        bytes
    }

    #[test]
    fn questions_are_told_apart() {
        let mut asked = Vec::new();
        let told = [event(OPEN_PERM, 9), event(0x4000, -1), event(OPEN_PERM, 10)].concat();
        parse(&told, |fd, pid| asked.push((fd, pid))).unwrap();
        assert_eq!(asked, [(9, 77), (10, 77)]);
        for length in (1..told.len()).filter(|length| length % EVENT_BYTES != 0) {
            assert_eq!(parse(&told[..length], |_, _| {}), None, "{length} bytes");
        }
    }

    /// Answers each question by the name of the file, until that of the last one; the names and who asked.
    fn answer(gate: &Gate) -> Vec<(String, i32)> {
        let mut asked = Vec::new();
        while asked.last().is_none_or(|(name, _)| name != "last") {
            gate.wait(|opening| {
                let path = fs::read_link(format!("/proc/self/fd/{}", opening.file().as_raw_fd())).unwrap();
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                asked.push((name.clone(), opening.pid()));
                match &name[..] {
                    "forgotten" => drop(opening),
                    name => opening.answer(!name.starts_with("bad")).unwrap(),
                }
            })
            .unwrap();
        }
        asked
    }

    #[test]
    fn who_opens_waits_for_the_answer() {
        on_xfs(|xfs| {
            let path = |name: &str| xfs.root.join(name);
            for name in ["good", "bad", "forgotten", "last"] {
                fs::write(path(name), name).unwrap();
            }
            rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
            let gate = match Gate::new() {
                Ok(gate) => gate,
                Err(error) => return skipped(&format!("no permission events: {error}")),
            };
            gate.guard_file_system(File::open(&xfs.root).unwrap().as_fd()).unwrap();
            let answers = thread::scope(|scope| {
                let answering = scope.spawn(|| answer(&gate));
                let read = |path: PathBuf| {
                    let mut text = String::new();
                    File::open(path)?.read_to_string(&mut text).map(|_| text)
                };
                let read =
                    ["good", "bad", "forgotten"].map(|name| read(path(name)).map_err(|error| error.raw_os_error()));
                // A fifo isn't waited for by who answers.
                let fifo = File::options().read(true).write(true).open(path("fifo"));
                let written = File::options().append(true).open(path("good"));
                // Whatever came of the others, this ends it.
                File::open(path("last")).unwrap();
                assert_eq!(read, [Ok("good".to_owned()), Err(Some(libc::EPERM)), Err(Some(libc::EPERM))]);
                fifo.and(written).unwrap();
                answering.join().unwrap()
            });
            let own = std::process::id() as i32;
            let names: Vec<&str> =
                answers.iter().map(|(name, _)| name.as_str()).filter(|name| *name != "fifo").collect();
            assert_eq!(names, ["good", "bad", "forgotten", "good", "last"]);
            assert!(answers.iter().all(|(_, pid)| *pid == own), "{answers:?}");
            gate.leave().unwrap();
            assert_eq!(fs::read(path("bad")).unwrap(), b"bad", "nobody asks any more");
        });
    }
}
