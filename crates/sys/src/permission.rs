//! Whether files and directories may be opened: the kernel asks before, and whoever opens waits for the answer (fanotify).
#![allow(unsafe_code)]

use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    sync::Arc,
};

use crate::{
    features::features,
    ready::{self, Bell, Wanted},
};

const CLASS_CONTENT: u32 = 0x4;
const CLOEXEC: u32 = 0x1;
const NONBLOCK: u32 = 0x2;
const UNLIMITED_QUEUE: u32 = 0x10;

const MARK_ADD: u32 = 0x1;
const MARK_REMOVE: u32 = 0x2;
const MARK_MOUNT: u32 = 0x10;
const MARK_IGNORED_SURV_MODIFY: u32 = 0x40;
const MARK_FLUSH: u32 = 0x80;
const MARK_FILESYSTEM: u32 = 0x100;
const MARK_IGNORE: u32 = 0x400;
/// What is ignored is so also after the file has changed. Whether directories are is as the mask says (Linux 6.0).
const MARK_IGNORE_LASTING: u32 = MARK_IGNORE | MARK_IGNORED_SURV_MODIFY;

const OPEN: u64 = 0x20;
const OPEN_PERM: u64 = 0x1_0000;
const ONDIR: u64 = 0x4000_0000;

const ALLOW: u32 = 1;
const DENY: u32 = 2;

/// `struct fanotify_event_metadata`.
const EVENT_BYTES: usize = 24;
/// Questions that are taken at once.
const EVENTS: usize = 8;

/// Where the kernel asks before files and directories are opened; of fifos, sockets and devices fanotify tells nothing. When it is gone, with all [`Opening`]s, or its process has ended, however, everything may be opened.
#[derive(Clone, Debug)]
pub struct Gate {
    group: Arc<OwnedFd>,
    unanswered: Unanswered,
}

/// What becomes of a question that is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unanswered {
    Refused,
    Allowed,
}

impl Gate {
    /// One that no file system asks yet. Neither it nor the files of its questions are there in a program that this process starts.
    ///
    /// The queue has no limit of its own: what doesn't fit into one that has may be opened unasked. There are at most as many
    /// questions in it as there are threads, which wait. `EPERM` without `CAP_SYS_ADMIN`.
    #[doc(alias = "fanotify_init")]
    pub fn new() -> io::Result<Gate> {
        // With O_NONBLOCK no lease is waited for when the kernel opens the file for us.
        Self::with(0, libc::O_NONBLOCK, Unanswered::Refused)
    }

    fn with(flags: u32, of_files: i32, unanswered: Unanswered) -> io::Result<Gate> {
        let files = libc::O_RDONLY | libc::O_LARGEFILE | libc::O_CLOEXEC | libc::O_NOATIME | of_files;
        // SAFETY: two numbers, no pointers.
        let fd = unsafe { libc::fanotify_init(CLASS_CONTENT | CLOEXEC | UNLIMITED_QUEUE | flags, files as u32) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just given this descriptor, and nobody else knows it.
        let group = Arc::new(unsafe { OwnedFd::from_raw_fd(fd) });
        Ok(Gate { group, unanswered })
    }

    /// From now on each opening of a file on the file system of `root` is asked for, through whatever mount and whatever name; of
    /// directories none is.
    #[doc(alias = "fanotify_mark")]
    pub fn guard_file_system(&self, root: BorrowedFd<'_>) -> io::Result<()> {
        self.mark(MARK_ADD | MARK_FILESYSTEM, OPEN_PERM, root)
    }

    /// From now on nothing is asked any more; what was is still to be answered.
    pub fn leave(&self) -> io::Result<()> {
        self.mark(MARK_FLUSH | MARK_FILESYSTEM, 0, self.group.as_fd())
    }

    /// Marks what something lies on. A directory may be open as a mere handle (`O_PATH`), to which no mark goes itself.
    fn mark(&self, flags: u32, mask: u64, inside: BorrowedFd<'_>) -> io::Result<()> {
        let (group, inside) = (self.group.as_raw_fd(), inside.as_raw_fd());
        let mark = |path: *const libc::c_char| {
            // SAFETY: a text that ends with a zero, or none.
            let status = unsafe { libc::fanotify_mark(group, flags, mask, inside, path) };
            if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
        };
        match mark(c".".as_ptr()) {
            Err(error) if error.raw_os_error() == Some(libc::ENOTDIR) => mark(std::ptr::null()),
            marked => marked,
        }
    }

    /// Waits for questions, and takes up to eight. Several threads may.
    ///
    /// Where the kernel can't open a file for us (`EMFILE`, `EWOULDBLOCK`), it refuses it to who asked, and the error is that: the next call may succeed.
    pub fn wait(&self, mut each: impl FnMut(Opening)) -> io::Result<()> {
        self.take(&mut [0; EVENTS * EVENT_BYTES], |event| {
            if let Event::Asked(opening) = event {
                each(opening);
            }
        })
    }

    /// Takes as many events as there are, and as there is room for.
    fn take(&self, told: &mut [u8], mut each: impl FnMut(Event)) -> io::Result<()> {
        let length = rustix::io::retry_on_intr(|| rustix::io::read(&*self.group, &mut told[..]))?;
        parse(&told[..length], |mask, fd, pid| {
            // SAFETY: the kernel has just made this descriptor for us, and says its number once.
            let file = unsafe { File::from_raw_fd(fd) };
            if mask & OPEN_PERM != 0 {
                let gate = Arc::clone(&self.group);
                let opening = Opening { gate, file, pid, unanswered: self.unanswered, is_answered: false };
                each(Event::Asked(opening));
            } else {
                each(Event::Opened(file));
            }
        })
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

/// What the kernel has to say.
#[derive(Debug)]
pub enum Event {
    /// Somebody is about to open something, and waits.
    Asked(Opening),
    /// Somebody has opened this.
    Opened(File),
}

/// Where the kernel asks on behalf of a helper: before something is opened through some mounts, while it is to. It tells of directories that
/// were opened, of whole file systems, which nobody waits for. Nothing is refused: what is dropped without an answer may be opened.
///
/// All of it is one group. Two would wait for each other when a process ends: the kernel lets none go while somebody waits for an answer on an object that both have marked.
#[derive(Clone, Debug)]
pub struct HelpersGate(Gate);

impl HelpersGate {
    /// One of which no file system knows yet, so that nobody is asked and nothing told.
    ///
    /// Where somebody else has a lease on a file (a server of files), who takes the question waits until the lease is given back: with `O_NONBLOCK`, who asked would be refused.
    /// `EPERM` without `CAP_SYS_ADMIN`, `EINVAL` where the kernel was built without permissions of fanotify.
    #[doc(alias = "fanotify_init")]
    pub fn new() -> io::Result<HelpersGate> {
        if !features().permissions {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        Gate::with(NONBLOCK, 0, Unanswered::Allowed).map(HelpersGate)
    }

    /// Tells of each directory of the file system of `root` that is opened, and of files where nobody has said whether their mount is watched or left out.
    #[doc(alias = "fanotify_mark")]
    pub fn watch_file_system(&self, root: BorrowedFd<'_>) -> io::Result<()> {
        self.0.mark(MARK_ADD | MARK_FILESYSTEM, OPEN | ONDIR, root)
    }

    /// Asks before a file or a directory is opened through the mount in which `inside` was opened, and tells of its directories alone. Linux 6.0.
    pub fn watch_mount(&self, inside: BorrowedFd<'_>) -> io::Result<()> {
        self.0.mark(MARK_ADD | MARK_MOUNT, OPEN_PERM | OPEN | ONDIR, inside)?;
        // Without the bit for directories, of files.
        self.0.mark(MARK_ADD | MARK_MOUNT | MARK_IGNORE_LASTING, OPEN, inside)
    }

    /// Tells nothing of the mount in which `inside` was opened: it costs nobody anything then.
    pub fn leave_mount_out(&self, inside: BorrowedFd<'_>) -> io::Result<()> {
        self.0.mark(MARK_ADD | MARK_MOUNT | MARK_IGNORE_LASTING, OPEN | ONDIR, inside)
    }

    /// Whether nobody is asked on the file system of `root`, through whatever mount. What is told stays as it is.
    pub fn be_silent(&self, root: BorrowedFd<'_>, is_silent: bool) -> io::Result<()> {
        let what = if is_silent { MARK_ADD } else { MARK_REMOVE };
        self.0.mark(what | MARK_FILESYSTEM | MARK_IGNORE_LASTING, OPEN_PERM | ONDIR, root)
    }

    /// Whether nothing is told of the file system of `root`, either. To be so only while it [is silent](Self::be_silent).
    pub fn be_deaf(&self, root: BorrowedFd<'_>, is_deaf: bool) -> io::Result<()> {
        let what = if is_deaf { MARK_ADD } else { MARK_REMOVE };
        // The bit for directories is there since it is silent.
        self.0.mark(what | MARK_FILESYSTEM | MARK_IGNORE_LASTING, OPEN, root)
    }

    /// Whether there is something to take. Never waits.
    pub fn has_something(&self) -> io::Result<bool> {
        ready::can_read(self.0.group.as_fd())
    }

    /// As [`Gate::leave`].
    pub fn leave(&self) -> io::Result<()> {
        self.0.mark(MARK_FLUSH | MARK_MOUNT, 0, self.0.group.as_fd())?;
        self.0.leave()
    }

    /// Waits until there is something to take, or the bell is rung: true then. Several threads may.
    pub fn wait(&self, bell: &Bell) -> io::Result<bool> {
        let wanted = Wanted { read: true, write: false };
        let is_rung = ready::wait(self.0.group.as_fd(), wanted, bell, None)?.is_rung;
        if is_rung {
            // For the others who wait.
            bell.ring();
        }
        Ok(is_rung)
    }

    /// Takes the next of what there is; `None` where nothing is.
    ///
    /// One alone: the kernel opens all that a call takes before it returns, and where a lease is waited for by the last one, who asked before would wait as well.
    /// Where the kernel can't open a file for us (`EMFILE`), it refuses it to who asked, and the error is that: the next call may succeed.
    pub fn take(&self) -> io::Result<Option<Event>> {
        let mut taken = None;
        match self.0.take(&mut [0; EVENT_BYTES], |event| taken = Some(event)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            done => done.map(|()| taken),
        }
    }
}

/// Somebody opens a file, and waits. One that is dropped without an answer is refused, or allowed by [`HelpersGate`].
#[derive(Debug)]
pub struct Opening {
    gate: Arc<OwnedFd>,
    file: File,
    pid: i32,
    unanswered: Unanswered,
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
            let _ = self.respond(self.unanswered == Unanswered::Allowed);
        }
    }
}

/// The mask, the descriptor and the process of each event, as the kernel lays them out (fanotify(7)); `None` when it doesn't.
fn parse(mut told: &[u8], mut each: impl FnMut(u64, i32, i32)) -> Option<()> {
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
        if mask & (OPEN_PERM | OPEN) != 0 && fd >= 0 {
            each(mask, fd, i32::from_ne_bytes(field(event, 20)?));
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::Read,
        path::{Path, PathBuf},
        thread,
    };

    use super::*;
    use crate::{
        mounting,
        testing::{on_xfs, skipped},
    };

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
        parse(&told, |_, fd, pid| asked.push((fd, pid))).unwrap();
        assert_eq!(asked, [(9, 77), (10, 77)]);
        for length in (1..told.len()).filter(|length| length % EVENT_BYTES != 0) {
            assert_eq!(parse(&told[..length], |_, _, _| {}), None, "{length} bytes");
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
                // Nobody is asked about a fifo.
                let fifo = File::options().read(true).write(true).open(path("fifo"));
                let written = File::options().append(true).open(path("good"));
                // Whatever came of the others, this ends it.
                File::open(path("last")).unwrap();
                assert_eq!(read, [Ok("good".to_owned()), Err(Some(libc::EPERM)), Err(Some(libc::EPERM))]);
                fifo.and(written).unwrap();
                answering.join().unwrap()
            });
            let own = std::process::id() as i32;
            let names: Vec<&str> = answers.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(names, ["good", "bad", "forgotten", "good", "last"]);
            assert!(answers.iter().all(|(_, pid)| *pid == own), "{answers:?}");
            gate.leave().unwrap();
            assert_eq!(fs::read(path("bad")).unwrap(), b"bad", "nobody asks any more");
        });
    }

    /// What was asked (true) and told, by names below the root.
    fn taken(gate: &HelpersGate, root: &Path) -> Vec<(PathBuf, bool)> {
        let mut taken = Vec::new();
        let note = |file: &File, is_asked| {
            let path = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap();
            taken.push((path.strip_prefix(root).unwrap().to_owned(), is_asked));
        };
        let mut note = note;
        while let Some(event) = gate.take().unwrap() {
            match event {
                Event::Asked(opening) => note(opening.file(), true),
                Event::Opened(file) => note(&file, false),
            }
        }
        taken
    }

    #[test]
    fn a_helper_is_asked_of_one_mount_and_refuses_nothing() {
        on_xfs(|xfs| {
            let [inside, shown, other] = ["folder", "shown", "other"].map(|name| xfs.root.join(name));
            for dir in [&inside, &shown, &other] {
                fs::create_dir(dir).unwrap();
            }
            fs::write(inside.join("file"), "bytes").unwrap();
            let gate = match HelpersGate::new() {
                Ok(gate) => gate,
                Err(error) => return skipped(&format!("no permission events: {error}")),
            };
            let root = File::open(&xfs.root).unwrap();
            gate.be_silent(root.as_fd(), true).unwrap();
            gate.watch_file_system(root.as_fd()).unwrap();
            for dir in [&shown, &other] {
                let mount = mounting::mount_to_show(&inside, true).unwrap();
                if *dir == shown {
                    gate.watch_mount(mount.as_fd()).unwrap();
                }
                mounting::show_mount(mount.as_fd(), dir).unwrap();
            }
            let look = |dir: &Path| {
                fs::read_dir(dir).unwrap();
                fs::read(dir.join("file")).unwrap();
            };
            let told = |name: &str| (PathBuf::from(name), false);
            look(&shown);
            look(&other);
            // A file of a mount of which nobody has said anything.
            assert_eq!(taken(&gate, &xfs.root), [told("shown"), told("other"), told("other/file")]);
            gate.leave_mount_out(File::open(other.join("file")).unwrap().as_fd()).unwrap();
            taken(&gate, &xfs.root);
            look(&other);
            assert_eq!(taken(&gate, &xfs.root), []);
            gate.be_deaf(root.as_fd(), true).unwrap();
            look(&shown);
            look(&inside);
            assert!(!gate.has_something().unwrap() && taken(&gate, &xfs.root).is_empty());
            gate.be_deaf(root.as_fd(), false).unwrap();
            look(&shown);
            assert!(gate.has_something().unwrap());
            assert_eq!(taken(&gate, &xfs.root), [told("shown")]);
            gate.be_silent(root.as_fd(), false).unwrap();
            let bell = Bell::new().unwrap();
            let all = thread::scope(|scope| {
                let taking = scope.spawn(|| {
                    let mut all = Vec::new();
                    while !gate.wait(&bell).unwrap() {
                        all.extend(taken(&gate, &xfs.root));
                    }
                    all
                });
                look(&shown);
                look(&other);
                let written = fs::write(shown.join("file"), "").unwrap_err();
                assert_eq!(written.raw_os_error(), Some(libc::EROFS));
                bell.ring();
                taking.join().unwrap()
            });
            let asked: Vec<&Path> = all.iter().filter(|(_, is_asked)| *is_asked).map(|(path, _)| &**path).collect();
            assert_eq!(asked, [Path::new("shown"), Path::new("shown/file")]);
            // Who asks when it goes is let in.
            thread::scope(|scope| {
                let looking = scope.spawn(|| look(&shown));
                gate.wait(&Bell::new().unwrap()).unwrap();
                drop(gate);
                looking.join().unwrap();
            });
            for dir in [&shown, &other] {
                mounting::unmount(dir).unwrap();
            }
        });
    }
}
