//! A mounted XFS: what the kernel tells of its inodes, without a walk.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    ops::ControlFlow,
    os::fd::{AsFd, BorrowedFd},
    path::Path,
    sync::{
        Condvar, Mutex, MutexGuard,
        mpsc::{self, SyncSender},
    },
    thread,
};

use onesweep_sys::{
    files::{self, DirReader},
    inode::XFLAG_REALTIME,
    xfs::{self, Parents},
};

use super::{
    groups::{each_group, groups_at_a_time},
    owned::OwnedRuns,
};
use crate::{
    device::Devices,
    extent::Extent,
    tables::{Found, Inode, InodeFlags, Name, TableError, Tables, Timestamp, VolumeFacts, Wanted},
};

/// Directories that are read at a time: more than a disk's queue holds, for some wait for their parents.
const IN_FLIGHT: usize = 64;
const LISTING_BUFFER: usize = 32 << 10;
const STACK_BYTES: usize = 128 << 10;
/// Inodes that go from one thread to the other at once, 128 bytes each.
const BATCH: usize = 1024;

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const TYPE_BITS: u32 = 0o170_000;

/// A mounted XFS: inodes by `XFS_IOC_BULKSTAT`, group by group in the order of the disk, or several groups at a time where they
/// lie on several disks or on one without a head; their names by
/// `XFS_IOC_GETPARENTS`, in the same pass, where the file system keeps parent pointers (`mkfs.xfs -n parent=1`), else from
/// its directories, many at a time, while further inodes come.
///
/// What is dirty is written first. Then all is as it is when it is asked for: what changes meanwhile may come as it was before
/// or as it is after, and a name that goes from one directory to another may come twice or not at all. Targets of
/// symbolic links and extended attributes are not told. Needs root. It takes 16 bytes for each directory that waits to be
/// read, and the names of those that were, until they are told.
///
/// Extents are told where they are wanted and the file system has a [reverse map](MountedXfs::has_reverse_map): all of that map
/// is asked for (`FS_IOC_GETFSMAP`) before the first inode. That takes 32 bytes for each extent, of 64 MiB at most: where they
/// don't fit, groups come one by one, and the map is gone over again for the inodes that follow. A file with more than a million extents
/// is told without.
#[derive(Debug)]
pub struct MountedXfs {
    directory: File,
    facts: VolumeFacts,
    groups: u32,
    groups_at_a_time: usize,
    has_reverse_map: bool,
    dev: u64,
}

impl MountedXfs {
    /// The file system of a directory; `None` where that is no XFS. `EPERM` without root.
    pub fn open(directory: &Path) -> io::Result<Option<MountedXfs>> {
        let directory = File::from(files::open_dir(directory)?);
        let kind = files::file_system(directory.as_fd())?;
        if kind.magic != XFS_MAGIC {
            return Ok(None);
        }
        let facts = VolumeFacts {
            fs_type: "xfs",
            block_bytes: u32::try_from(kind.block_size).unwrap_or(4096),
            bytes: kind.blocks.saturating_mul(kind.block_size),
            root: xfs::root_inode(directory.as_fd())?,
            inodes_used: Some(kind.inodes_used),
            ..VolumeFacts::default()
        };
        let xfs::Facts { groups, has_reverse_map, .. } = xfs::facts(directory.as_fd())?;
        let dev = files::statx_fd(directory.as_fd())?.dev;
        let stack = Devices::of_system().ok().and_then(|devices| devices.by_fd(directory.as_fd()).ok());
        let groups_at_a_time = stack.as_ref().map_or(1, groups_at_a_time);
        Ok(Some(MountedXfs { directory, facts, groups, groups_at_a_time, has_reverse_map, dev }))
    }

    /// Asks for so many allocation groups at a time, whatever lies below. The order of what is told depends on it, and nothing
    /// else.
    pub fn ask_groups_at_a_time(&mut self, groups: usize) {
        self.groups_at_a_time = groups.max(1);
    }

    /// Whether it keeps the names of inodes with them.
    pub fn has_parent_pointers(&self) -> bool {
        Parents::of(self.directory.as_fd()).is_ok()
    }

    /// Whether it keeps the owners of all blocks in the order of the disk (`mkfs.xfs -m rmapbt=1`).
    pub fn has_reverse_map(&self) -> bool {
        self.has_reverse_map
    }
}

/// As in `statfs`.
const XFS_MAGIC: u32 = 0x5846_5342;

/// A directory whose names are wanted: its inode and generation.
type Listed = (u64, u32);

impl Tables for MountedXfs {
    fn facts(&self) -> &VolumeFacts {
        &self.facts
    }

    fn scan(&mut self, wanted: Wanted, found: &mut dyn Found) -> Result<(), TableError> {
        let fd = self.directory.as_fd();
        // The size that is told is the one that was written last. A failure leaves some as they were.
        let _ = files::sync_file_system(fd);
        let mut places = (wanted.extents && self.has_reverse_map).then(|| Places::of(fd, self.dev));
        let places = &mut places;
        let mut parents = Parents::of(fd).ok();
        if let Some(parents) = &mut parents {
            return self.scan_inodes(places, found, &mut |inode, found| tell_names(parents, inode, found)).map(drop);
        }
        let waiting = Waiting::default();
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            let _closed = Closed(&waiting);
            let mut started = 0;
            for _ in 0..IN_FLIGHT {
                let (tell, waiting) = (tell.clone(), &waiting);
                let read = move || {
                    let mut listing = DirReader::with_buffer(LISTING_BUFFER);
                    while let Some(directory) = waiting.take() {
                        let names = names_of(fd, directory, &mut listing);
                        if tell.send((directory.0, names)).is_err() {
                            break;
                        }
                    }
                };
                let builder = thread::Builder::new().name("onesweep-names".into()).stack_size(STACK_BYTES);
                started += usize::from(builder.spawn_scoped(scope, read).is_ok());
            }
            drop(tell);
            if started == 0 {
                let source = io::Error::other("no thread can be started that reads directories");
                return Err(TableError::Kernel { what: "names".to_owned(), source });
            }
            let goes_on = self.scan_inodes(places, found, &mut |inode, found| {
                if inode.mode & TYPE_BITS != DIRECTORY {
                    return ControlFlow::Continue(());
                }
                waiting.add((inode.ino, inode.generation));
                told.try_iter().try_for_each(|(ino, names)| tell_directory(ino, names, found))
            })?;
            waiting.close();
            if goes_on.is_continue() {
                let _ = told.iter().try_for_each(|(ino, names)| tell_directory(ino, names, found));
            }
            Ok(())
        })
    }
}

impl MountedXfs {
    /// Tells all inodes, each before `then`.
    fn scan_inodes(
        &self,
        places: &mut Option<Places<'_>>,
        found: &mut dyn Found,
        then: &mut Then<'_>,
    ) -> Result<ControlFlow<()>, TableError> {
        let mut goes_on = ControlFlow::Continue(());
        // Going to and fro between groups, each would find its own runs left out.
        let is_alone = self.groups_at_a_time == 1 || places.as_ref().is_some_and(|places| !places.has_all());
        let mut tell = |inode: &xfs::Inode| {
            let mut told = told_inode(inode, self.facts.block_bytes);
            if let Some(places) = places {
                match places.extents(&told) {
                    Ok(extents) => told.extents = extents,
                    Err(problem) => goes_on = found.problem(problem),
                }
            }
            if goes_on.is_continue() {
                goes_on = found.inode(told);
            }
            if goes_on.is_continue() {
                goes_on = then(inode, found);
            }
            goes_on
        };
        let told = if is_alone { self.one_by_one(&mut tell) } else { self.side_by_side(&mut tell) };
        match told {
            Ok(()) => Ok(goes_on),
            Err((group, source)) => {
                Err(TableError::Kernel { what: format!("the inodes of allocation group {group}"), source })
            }
        }
    }

    fn one_by_one(&self, tell: &mut Tell<'_>) -> Result<(), (u32, io::Error)> {
        let mut goes_on = ControlFlow::Continue(());
        for group in 0..self.groups {
            let told = xfs::bulkstat(self.directory.as_fd(), group, &mut |inode| {
                goes_on = tell(&inode);
                goes_on.is_continue()
            });
            match told {
                Ok(()) if goes_on.is_continue() => {}
                Ok(()) => break,
                // There is no such group any more.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput && group > 0 => break,
                Err(error) => return Err((group, error)),
            }
        }
        Ok(())
    }

    /// Several groups at a time. What they tell comes by turns.
    fn side_by_side(&self, tell: &mut Tell<'_>) -> Result<(), (u32, io::Error)> {
        let (send, told) = mpsc::sync_channel::<Vec<xfs::Inode>>(self.groups_at_a_time);
        thread::scope(|scope| {
            let ask = move || each_group(self.groups, self.groups_at_a_time, &|group| self.send_group(group, &send));
            let builder = thread::Builder::new().name("onesweep-groups".into());
            let Ok(asking) = builder.spawn_scoped(scope, ask) else { return self.one_by_one(tell) };
            for batch in told {
                // Nobody hears those who ask on, which they notice.
                if batch.iter().try_for_each(&mut *tell).is_break() {
                    break;
                }
            }
            asking.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// `Break` when nobody wants to hear more.
    fn send_group(&self, group: u32, send: &SyncSender<Vec<xfs::Inode>>) -> io::Result<ControlFlow<()>> {
        let mut batch = Vec::with_capacity(BATCH);
        let mut is_heard = true;
        xfs::bulkstat(self.directory.as_fd(), group, &mut |inode| {
            batch.push(inode);
            if batch.len() == BATCH {
                is_heard = send.send(std::mem::replace(&mut batch, Vec::with_capacity(BATCH))).is_ok();
            }
            is_heard
        })?;
        let is_heard = is_heard && send.send(batch).is_ok();
        Ok(if is_heard { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    }
}

/// Where files lie, from the reverse map, for the inodes that come next.
struct Places<'a> {
    fd: BorrowedFd<'a>,
    dev: u64,
    /// What of it is here; why there is nothing, until that was told.
    runs: Result<OwnedRuns, Option<io::Error>>,
}

impl<'a> Places<'a> {
    fn of(fd: BorrowedFd<'a>, dev: u64) -> Places<'a> {
        Places { fd, dev, runs: OwnedRuns::gather(fd, dev, 0).map_err(Some) }
    }

    fn has_all(&self) -> bool {
        self.runs.as_ref().is_ok_and(OwnedRuns::is_all)
    }

    /// Of a file or directory; fails once, and tells nothing from then on.
    fn extents(&mut self, inode: &Inode) -> Result<Vec<Extent>, TableError> {
        let has_content = matches!(inode.mode & TYPE_BITS, FILE | DIRECTORY);
        if !has_content || inode.allocated == 0 || inode.flags.contains(InodeFlags::ELSEWHERE) {
            return Ok(Vec::new());
        }
        if self.runs.as_ref().is_ok_and(|runs| !runs.covers(inode.number)) {
            // Memory of the last ones is given back first.
            self.runs = Err(None);
            self.runs = OwnedRuns::gather(self.fd, self.dev, inode.number).map_err(Some);
        }
        match &mut self.runs {
            Ok(runs) => Ok(runs.extents(inode.number, inode.size)),
            Err(failure) => match failure.take() {
                Some(source) => Err(TableError::Kernel { what: "where files lie".to_owned(), source }),
                None => Ok(Vec::new()),
            },
        }
    }
}

/// Told of an inode.
type Tell<'a> = dyn FnMut(&xfs::Inode) -> ControlFlow<()> + 'a;

/// Told of an inode that was found.
type Then<'a> = dyn FnMut(&xfs::Inode, &mut dyn Found) -> ControlFlow<()> + 'a;

/// Directories that wait for a thread, until there will be no more.
#[derive(Debug, Default)]
struct Waiting {
    directories: Mutex<(VecDeque<Listed>, bool)>,
    changed: Condvar,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, (VecDeque<Listed>, bool)> {
        self.directories.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn add(&self, directory: Listed) {
        self.lock().0.push_back(directory);
        self.changed.notify_one();
    }

    fn close(&self) {
        self.lock().1 = true;
        self.changed.notify_all();
    }

    /// The next one; `None` when there will be no more.
    fn take(&self) -> Option<Listed> {
        let mut state = self.lock();
        loop {
            if let Some(directory) = state.0.pop_front() {
                return Some(directory);
            }
            if state.1 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }
}

/// Lets the threads end, however the scan does.
struct Closed<'a>(&'a Waiting);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        // Of what nobody asks for any more, nothing is read.
        self.0.lock().0.clear();
        self.0.close();
    }
}

fn told_inode(told: &xfs::Inode, block: u32) -> Inode {
    let time = |(seconds, nanoseconds)| Timestamp { seconds, nanoseconds };
    let [atime, mtime, ctime, btime] = told.times.map(time);
    let is_elsewhere = told.xflags & XFLAG_REALTIME != 0;
    Inode {
        number: told.ino,
        generation: told.generation,
        mode: told.mode,
        uid: told.uid,
        gid: told.gid,
        size: told.size,
        allocated: told.blocks.saturating_mul(block.into()),
        links: told.nlink,
        rdev: if is_device(told.mode) { files::makedev(told.device.0, told.device.1) } else { 0 },
        mtime,
        ctime,
        atime,
        btime: Some(btime),
        flags: if is_elsewhere { InodeFlags::ELSEWHERE } else { InodeFlags::empty() },
        ..Inode::default()
    }
}

fn is_device(mode: u32) -> bool {
    matches!(mode & TYPE_BITS, 0o020_000 | 0o060_000)
}

/// Tells the names that an inode keeps.
fn tell_names(parents: &mut Parents<'_>, inode: &xfs::Inode, found: &mut dyn Found) -> ControlFlow<()> {
    let mut goes_on = ControlFlow::Continue(());
    let told = parents.visit(inode.ino, inode.generation, &mut |directory, name| {
        if goes_on.is_continue() {
            goes_on = found.name(Name { directory, inode: inode.ino, name });
        }
    });
    match told {
        // One that is gone by now has no names.
        Err(source) if !is_gone(&source) => {
            found.incomplete(None);
            found.problem(TableError::Kernel { what: format!("the names of inode {}", inode.ino), source })
        }
        _ => goes_on,
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StaleNetworkFileHandle | io::ErrorKind::NotFound)
}

/// What a thread read of one directory.
type Names = io::Result<Vec<(u64, Vec<u8>)>>;

fn tell_directory(directory: u64, names: Names, found: &mut dyn Found) -> ControlFlow<()> {
    match names {
        Ok(names) => names.iter().try_for_each(|(inode, name)| found.name(Name { directory, inode: *inode, name })),
        Err(error) if is_gone(&error) => ControlFlow::Continue(()),
        Err(source) => {
            found.incomplete(Some(directory));
            found.problem(TableError::Kernel { what: format!("the names in directory {directory}"), source })
        }
    }
}

fn names_of(fd: BorrowedFd<'_>, (ino, generation): Listed, listing: &mut DirReader) -> Names {
    let directory = xfs::open_directory(fd, ino, generation)?;
    let mut names = Vec::new();
    listing.read(directory.as_fd(), |entry| names.push((entry.ino, entry.name.to_bytes().to_vec())))?;
    Ok(names)
}
