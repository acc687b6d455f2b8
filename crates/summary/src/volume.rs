//! A mounted file system, whose directories are opened by their numbers.

use std::{
    ffi::CString,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
};

use onesweep_sys::{
    files::{self, DirReader, EntryType, Stat},
    handle::{self, FileHandle},
};

use crate::{
    identity::{Family, NodeId},
    preload::Preload,
    reading::{Directories, LinkedName, Reading, Wanted},
    record::Access,
    totals::{Extremes, Largest, Sums},
};

const ACCESS_LIST: &std::ffi::CStr = c"system.posix_acl_access";

/// A mounted file system.
#[derive(Debug)]
pub struct Volume {
    top: OwnedFd,
    family: Family,
    root: NodeId,
    mount: Option<u64>,
    settling_seconds: i64,
    preload: Option<Preload>,
}

/// Delayed allocation of ext4 and btrfs.
const SETTLING_SECONDS: i64 = 35;
/// Blocks that XFS allocates ahead are given back by and by.
const SETTLING_SECONDS_OF_XFS: i64 = 360;
const MAGIC_OF_XFS: u32 = 0x5846_5342;

impl Volume {
    /// The file system at `path`, from the top of the mount that `path` lies in.
    ///
    /// `Unsupported` where inodes have no handles that are known here (FUSE, NFS and other network file systems, overlays
    /// without `nfs_export`).
    pub fn of(path: &Path) -> io::Result<Volume> {
        let mut top = files::open_dir(path)?;
        let mut stat = files::statx_fd(top.as_fd())?;
        while !stat.is_mount_root {
            let above = files::open_dir_at(top.as_fd(), c"..")?;
            let next = files::statx_fd(above.as_fd())?;
            if (next.dev, next.ino) == (stat.dev, stat.ino) {
                break;
            }
            (top, stat) = (above, next);
        }
        let told = handle::handle_at(top.as_fd(), c"")?;
        let unknown = || io::Error::new(io::ErrorKind::Unsupported, "its inodes have no handles that are known");
        let family = Family::of(&told, stat.ino).ok_or_else(unknown)?;
        let root = family.node(&told).ok_or_else(unknown)?;
        let magic = files::file_system(top.as_fd())?.magic;
        let settling_seconds = if magic == MAGIC_OF_XFS { SETTLING_SECONDS_OF_XFS } else { SETTLING_SECONDS };
        let preload = Preload::of(magic, &stat);
        Ok(Volume { top, family, root, mount: stat.mnt_id, settling_seconds, preload })
    }

    /// The directory at its top.
    pub fn root(&self) -> NodeId {
        self.root
    }

    /// How its handles are laid out.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The directory at its top, open.
    pub fn top(&self) -> BorrowedFd<'_> {
        self.top.as_fd()
    }

    /// Opens a directory for listing.
    pub fn open(&self, directory: NodeId) -> io::Result<OwnedFd> {
        handle::open_by_handle(self.top(), &self.family.handle(directory), handle::Access::List)
    }

    /// The access list of a directory, as it is now.
    pub fn access_list(&self, directory: NodeId) -> Option<Vec<u8>> {
        access_list(self.open(directory).ok()?.as_fd())
    }

    /// What tells this file system from others on the same machine.
    pub fn identity(&self) -> io::Result<Vec<u8>> {
        let stat = files::statx_fd(self.top())?;
        let born = stat.btime.unwrap_or_default();
        let magic = files::file_system(self.top())?.magic;
        Ok(format!("{magic:x} {:?} {}.{}", self.root, born.secs, born.nanos).into_bytes())
    }

    /// The inode of an open file.
    pub fn node_of(&self, fd: BorrowedFd<'_>) -> io::Result<NodeId> {
        self.node(&handle::handle_at(fd, c"")?)
    }

    fn node(&self, handle: &FileHandle) -> io::Result<NodeId> {
        self.family.node(handle).ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "a handle of another kind"))
    }

    fn list(&self, fd: BorrowedFd<'_>) -> io::Result<Reading> {
        let stat = files::statx_fd(fd)?;
        let access = access(fd, &stat);
        let changed_at = stat.ctime.secs;
        let mut reading = Reading { access, blocks: stat.blocks as i64, changed_at, ..Reading::default() };
        add(&mut reading, &stat);
        reading.own.sums.closed = i64::from(!access.is_open_to_all());
        let mut names: Vec<(u64, CString, EntryType)> = Vec::new();
        DirReader::with_buffer(32 << 10)
            .read(fd, |entry| names.push((entry.ino, entry.name.to_owned(), entry.kind)))?;
        // Inodes lie in the order of their numbers.
        names.sort_unstable_by_key(|(ino, ..)| *ino);
        for (_, name, kind) in names {
            let entered = match (kind, self.mount) {
                (EntryType::Dir, Some(mount)) => self.directory(&mut reading, fd, name, mount),
                _ => self.entry(&mut reading, fd, name),
            };
            match entered {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                done => done?,
            }
        }
        Ok(reading)
    }

    /// Nothing but its identity is needed: it is read itself.
    fn directory(&self, reading: &mut Reading, fd: BorrowedFd<'_>, name: CString, ours: u64) -> io::Result<()> {
        let (handle, mount) = handle::handle_and_mount_at(fd, &name)?;
        if mount == ours {
            reading.directories.push((self.node(&handle)?, name.into_bytes()));
        }
        Ok(())
    }

    fn entry(&self, reading: &mut Reading, fd: BorrowedFd<'_>, name: CString) -> io::Result<()> {
        let stat = files::statx_at(fd, name.as_c_str(), true)?;
        reading.changed_at = reading.changed_at.max(stat.ctime.secs);
        // What is mounted there belongs to another file system, or to another place of this one.
        let is_mounted = stat.mnt_id.zip(self.mount).map_or(stat.is_mount_root, |(its, ours)| its != ours);
        if is_mounted {
            return Ok(());
        }
        if stat.file_type() == EntryType::Dir {
            let id = self.node(&handle::handle_at(fd, &name)?)?;
            reading.directories.push((id, name.into_bytes()));
        } else if stat.nlink > 1 {
            let id = self.node(&handle::handle_at(fd, &name)?)?;
            reading.linked.push(linked(id, &stat));
            reading.own.sums.shared_names += 1;
            stand_out(&mut reading.own.extremes, &stat);
        } else {
            add(reading, &stat);
            reading.inodes.push(stat.ino);
        }
        Ok(())
    }
}

impl Directories for Volume {
    fn read(&self, directory: NodeId) -> io::Result<Reading> {
        let fd = self.open(directory)?;
        self.list(fd.as_fd())
    }

    fn look(&self, inode: NodeId) -> io::Result<LinkedName> {
        let fd = handle::open_by_handle(self.top(), &self.family.handle(inode), handle::Access::Facts)?;
        let stat = files::statx_fd(fd.as_fd())?;
        if stat.nlink == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(linked(inode, &stat))
    }

    fn sync(&self) -> io::Result<()> {
        files::sync_file_system(self.top())
    }

    fn settling_seconds(&self) -> i64 {
        self.settling_seconds
    }

    fn bring_in(&self, wanted: &Wanted<'_>) {
        if let Some(preload) = &self.preload {
            preload.bring_in(wanted);
        }
    }

    fn parent(&self, directory: NodeId) -> io::Result<NodeId> {
        let fd = self.open(directory)?;
        if files::statx_fd(fd.as_fd())?.nlink == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        let above = files::open_handle_at(fd.as_fd(), c"..")?;
        self.node_of(above.as_fd())
    }
}

pub(crate) fn access_list(fd: BorrowedFd<'_>) -> Option<Vec<u8>> {
    files::xattr_fd(fd, ACCESS_LIST).ok().flatten()
}

pub(crate) fn access(fd: BorrowedFd<'_>, stat: &Stat) -> Access {
    let list = access_list(fd);
    // FNV-1a: it has to tell lists apart, and to be the same in every run.
    let hash = |bytes: Vec<u8>| {
        bytes
            .iter()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    };
    Access { mode: stat.mode, uid: stat.uid, gid: stat.gid, acl: list.map_or(0, hash) }
}

fn weight(stat: &Stat) -> Sums {
    let (size, blocks) = (stat.size as i64, stat.blocks as i64);
    let mut sums = Sums { blocks, freed_blocks: blocks, ..Sums::default() };
    match stat.file_type() {
        EntryType::Dir => (sums.directories, sums.directory_bytes) = (1, size),
        EntryType::File => (sums.files, sums.bytes) = (1, size),
        _ => (sums.others, sums.bytes) = (1, size),
    }
    sums
}

pub(crate) fn add(reading: &mut Reading, stat: &Stat) {
    reading.own.sums += weight(stat);
    stand_out(&mut reading.own.extremes, stat);
}

/// The directory is put in by who knows its number.
pub(crate) fn stand_out(extremes: &mut Extremes, stat: &Stat) {
    let is_file = stat.file_type() == EntryType::File;
    let largest = is_file.then_some(Largest { bytes: stat.size, ino: stat.ino, directory: 0 });
    *extremes = extremes.or(Extremes { newest: Some(stat.mtime), largest });
}

pub(crate) fn linked(id: NodeId, stat: &Stat) -> LinkedName {
    // What it frees depends on where all its names are.
    let weight = Sums { freed_blocks: 0, ..weight(stat) };
    LinkedName { id, weight, links: stat.nlink }
}
