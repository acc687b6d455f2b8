//! A mounted file system, whose directories are opened by their numbers.

pub(crate) mod listing;
mod waits;

use std::{
    collections::{HashMap, HashSet},
    ffi::CStr,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use onesweep_layout::MountTable;
use onesweep_sys::{
    fanotify::Group,
    features::kernel_version,
    files::{self, EntryType, Stat, magic},
    handle::{self, FileHandle},
    lease, usage, xfs,
};

use self::{listing::Listing, waits::Waits};
use crate::{
    access_lists::AccessLists,
    bulk::Bulk,
    custom::declare::Declared,
    facts,
    file_system::FileSystem,
    identity::{Family, NodeId},
    lost_names,
    moment::seconds,
    mounts::Mounts,
    names::Names,
    preload::Preload,
    reading::{Directories, LinkedName, OpenFile, Reading, Remounted, Wanted, is_gone},
    record::Access,
    settling::Settings,
    survey::{self, Facts, Method, Tell, stamp_of_sum},
    totals::{Extremes, Largest, Sums},
    tracker::SizesFollow,
    written,
};

pub(crate) const ACCESS_LIST: &CStr = c"system.posix_acl_access";

/// A mounted file system.
#[derive(Debug)]
pub struct Volume {
    top: OwnedFd,
    known: Known,
    root: NodeId,
    mount: Option<u64>,
    mounts: Mounts,
    kind: Kind,
    /// That of its inodes, but of subvolumes of btrfs.
    dev: u64,
    /// The place behind the last name of directories of one block, of units of 8 bytes, where that is known.
    end_of_directory: Option<u64>,
    /// Of stamps.
    key: AtomicU64,
    preload: Option<Preload>,
    declared: Option<Arc<Declared>>,
    sizes: SizesFollow,
    settling_seconds: i64,
    /// Of an XFS.
    uuid: Option<u128>,
    /// Who reads it has its disk read, and the kernel counts that.
    has_reads_told: bool,
    has_silent_overlays: AtomicBool,
    /// How directories are read until a first harvest is over.
    bulk: RwLock<Option<Arc<Bulk>>>,
    access_lists: AccessLists,
}

/// How its inodes are known.
#[derive(Debug)]
enum Known {
    /// By handles, which the kernel's events name, too.
    Handles(Family),
    /// By what `stat` tells, and directories by their names.
    Names(Names),
}

/// Which one it is, among those that are mounted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VolumeFacts {
    pub(crate) root: NodeId,
    pub(crate) mount: Option<u64>,
    pub(crate) dev: u64,
    pub(crate) is_btrfs: bool,
}

/// What can be asked of it beside what all can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Ext,
    Xfs,
    Btrfs,
    Other,
}

/// An inode that changed less than so many seconds before a reading may have changed once more at the same time by its clock.
pub(crate) const TICK_SECONDS: i64 = 1;

impl Volume {
    /// The file system at `path`, from the top of the mount that `path` lies in.
    ///
    /// `Unsupported` where inodes have no handles that are known here (FUSE, NFS and other network file systems, overlays
    /// without `nfs_export`).
    pub fn of(path: &Path) -> io::Result<Volume> {
        let (top, stat) = top_of(path)?;
        let told = handle::handle_at(top.as_fd(), c"")?;
        let unknown = || io::Error::new(io::ErrorKind::Unsupported, "its inodes have no handles that are known");
        let family = Family::of(&told, stat.ino).ok_or_else(unknown)?;
        let root = family.node(&told).ok_or_else(unknown)?;
        let magic_number = files::file_system(top.as_fd())?.magic;
        let kind = match magic_number {
            magic::EXT => Kind::Ext,
            magic::XFS => Kind::Xfs,
            magic::BTRFS => Kind::Btrfs,
            _ => Kind::Other,
        };
        let preload = Preload::of(magic_number, &stat);
        let told = (kind == Kind::Xfs).then(|| xfs::facts(top.as_fd()).ok()).flatten();
        let end_of_directory = told.map(|facts| facts.end_of_directory());
        let uuid = told.map(|facts| u128::from_be_bytes(facts.uuid)).filter(|&uuid| uuid != 0);
        let settling_seconds = Settings::read().seconds(kind);
        let volume = Volume::read_again(top, &stat, Known::Handles(family), root)?;
        let has_reads_told = !matches!(kind, Kind::Other) && usage::counts_blocks_read();
        Ok(Volume { kind, preload, end_of_directory, settling_seconds, uuid, has_reads_told, ..volume })
    }

    /// The same of any file system, of which nobody is asked what changes: it is read again from time to time. For those in user
    /// space and on other machines, of which nobody can tell, and overlays.
    pub fn timed(path: &Path) -> io::Result<Volume> {
        let (top, stat) = top_of(path)?;
        let names = Names::below(&stat);
        let root = names.node(&stat);
        Volume::read_again(top, &stat, Known::Names(names), root)
    }

    /// One of which nothing is known but its inodes: all is read again anyhow, so nothing has to settle.
    fn read_again(top: OwnedFd, stat: &Stat, known: Known, root: NodeId) -> io::Result<Volume> {
        Ok(Volume {
            top,
            known,
            root,
            mount: stat.mnt_id,
            mounts: Mounts::on(stat.mnt_id)?,
            kind: Kind::Other,
            dev: stat.dev,
            end_of_directory: None,
            key: AtomicU64::new(0),
            preload: None,
            declared: None,
            sizes: SizesFollow::default(),
            settling_seconds: 0,
            uuid: None,
            has_reads_told: false,
            has_silent_overlays: AtomicBool::new(false),
            bulk: RwLock::default(),
            access_lists: AccessLists::default(),
        })
    }

    /// The same, of which readings tell these summaries, too.
    pub fn with_summaries(self, declared: Option<Arc<Declared>>) -> Volume {
        Volume { declared, ..self }
    }

    /// The same, of which sizes are told like this; with each write all the same where it takes a walk to find out what else has
    /// changed.
    pub fn with_sizes(self, wanted: SizesFollow) -> Volume {
        let sizes = self.method().map_or(SizesFollow::Write, |_| wanted);
        Volume { sizes, ..self }
    }

    /// The directory at its top.
    pub fn root(&self) -> NodeId {
        self.root
    }

    /// The directory at its top, open.
    pub fn top(&self) -> BorrowedFd<'_> {
        self.top.as_fd()
    }

    /// What the daemon has to know of it.
    pub(crate) fn facts(&self) -> VolumeFacts {
        let Self { root, mount, dev, kind, .. } = *self;
        VolumeFacts { root, mount, dev, is_btrfs: kind == Kind::Btrfs }
    }

    /// Opens a directory for listing.
    pub fn open(&self, directory: NodeId) -> io::Result<OwnedFd> {
        match &self.known {
            Known::Handles(family) => {
                handle::open_by_handle(self.top(), &family.handle(directory), handle::Access::List)
            }
            Known::Names(names) => files::open_dir_at(names.open(self.top(), directory)?.as_fd(), c"."),
        }
    }

    /// The inode of an open file.
    pub fn node_of(&self, fd: BorrowedFd<'_>) -> io::Result<NodeId> {
        match &self.known {
            Known::Handles(_) => self.node(&handle::handle_at(fd, c"")?),
            Known::Names(names) => Ok(names.node(&files::statx_fd(fd)?)),
        }
    }

    fn node(&self, handle: &FileHandle) -> io::Result<NodeId> {
        let node = self.family().and_then(|family| family.node(handle));
        node.ok_or_else(|| io::Error::new(io::ErrorKind::Unsupported, "a handle of another kind"))
    }

    /// The inode of a name, of which `stat` tells this.
    fn node_at(&self, fd: BorrowedFd<'_>, name: &CStr, stat: &Stat) -> io::Result<NodeId> {
        match &self.known {
            Known::Handles(_) => self.node(&handle::handle_at(fd, name)?),
            Known::Names(names) => Ok(names.node(stat)),
        }
    }

    /// The handle of an inode, where there are any.
    fn handle(&self, inode: NodeId) -> io::Result<FileHandle> {
        self.family().map(|family| family.handle(inode)).ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// Reads directories, none of which has more entries than that, by what is told of many inodes at a time; `None` for those that have
    /// to be read in the ordinary way. None at all but between [`begin_bulk`](Directories::begin_bulk) and its end.
    pub fn read_in_bulk(&self, directories: &[NodeId], entries_max: usize) -> Vec<Option<Reading>> {
        let bulk = self.bulk.read().unwrap_or_else(PoisonError::into_inner).clone();
        bulk.map(|bulk| bulk.read(self, directories, entries_max)).unwrap_or_default()
    }

    /// Reads directories, one after the other, unless they have more entries than that.
    pub(crate) fn read_each(
        &self,
        directories: &[NodeId],
        entries_max: usize,
        mut each: impl FnMut(io::Result<Reading>),
    ) {
        let mut waits = Waits::begin(self.has_reads_told);
        let mut found = self.read_in_bulk(directories, entries_max).into_iter();
        // The first of them has it.
        let mut in_bulk = waits.more();
        // What changes from now on has this count, or a higher one.
        let listing = || Listing::new(self.generation().unwrap_or(0), entries_max);
        let mut opened = None;
        for &directory in directories {
            each(match found.next().flatten() {
                Some(reading) => Ok(Reading { waits: std::mem::take(&mut in_bulk), ..reading }),
                None if directory.is_stub() => self.read_stub(),
                None => {
                    let listing = opened.get_or_insert_with(listing);
                    let reading = self.open(directory).and_then(|fd| self.list(directory, fd.as_fd(), listing));
                    reading.map(|reading| Reading {
                        waits: waits.more().saturating_add(std::mem::take(&mut in_bulk)),
                        ..reading
                    })
                }
            });
        }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    /// The place behind the last name of a directory of this size, where that is known and tells the end.
    pub(crate) fn end_of_directory(&self, size: u64) -> Option<u64> {
        self.end_of_directory.filter(|end| size <= end * 8)
    }

    /// Whether owners are others by its mount than they are.
    pub(crate) fn shows_other_owners(&self) -> io::Result<bool> {
        let table = MountTable::read()?;
        let mount = self.mount.and_then(|mount| table.by_id(mount)).ok_or(io::ErrorKind::NotFound)?;
        Ok(mount.options.split(',').any(|option| option == "idmapped"))
    }

    /// Directories in which something is mounted.
    pub(crate) fn with_mounts(&self) -> io::Result<HashSet<NodeId>> {
        let directories = self.mounts.all_in(self.top())?;
        directories.iter().map(|fd| self.node_of(fd.as_fd())).collect()
    }

    pub(crate) fn key(&self) -> u64 {
        self.key.load(Ordering::Relaxed)
    }

    /// An inode with several names, of which `stat` tells this.
    pub(crate) fn linked(&self, id: NodeId, stat: &Stat) -> LinkedName {
        // Where nobody tells what changes, each directory is as it was when it was read.
        let facts = if self.changes_are_told() { facts::of(stat, self.declared.as_deref(), self.key()) } else { 0 };
        LinkedName { facts, ..linked(id, stat) }
    }
}

impl VolumeFacts {
    /// Whatever mounts they are seen by.
    pub(crate) fn is_same_system(&self, other: &VolumeFacts) -> bool {
        (self.root, self.dev) == (other.root, other.dev)
    }

    pub(crate) fn may_hold(&self, dev: u64) -> bool {
        self.is_btrfs || self.dev == dev
    }
}

/// See [`FileSystem::is_it`]. The number is that of the handle that the same directory has told.
pub(crate) fn is_it(volume: &dyn FileSystem, facts: &VolumeFacts, stat: &Stat, id: NodeId) -> bool {
    if !facts.is_btrfs {
        return (facts.dev, id.ino) == (stat.dev, stat.ino);
    }
    // What a mount shows is one file system, and as long as its top is open no other mount has its number.
    if stat.mnt_id.is_some() && stat.mnt_id == facts.mount {
        return true;
    }
    // Device numbers of subvolumes aren't known. By another mount it takes the warden, which a question waits for.
    let same = volume.handle_of(id).and_then(|fd| files::statx_fd(fd.as_fd()));
    same.is_ok_and(|same| (same.dev, same.ino) == (stat.dev, stat.ino))
}

impl FileSystem for Volume {
    fn may_hold(&self, dev: u64) -> bool {
        self.facts().may_hold(dev)
    }

    fn is_it(&self, stat: &Stat, id: NodeId) -> bool {
        is_it(self, &self.facts(), stat, id)
    }

    fn root(&self) -> NodeId {
        self.root
    }

    fn family(&self) -> Option<Family> {
        match self.known {
            Known::Handles(family) => Some(family),
            Known::Names(_) => None,
        }
    }

    fn top(&self) -> BorrowedFd<'_> {
        self.top.as_fd()
    }

    fn identity(&self) -> io::Result<Vec<u8>> {
        let stat = files::statx_fd(self.top())?;
        if !self.changes_are_told() {
            // Most of them have no birth, and all the same number at the top.
            let table = MountTable::read()?;
            let mount = self.mount.and_then(|mount| table.by_id(mount)).ok_or(io::ErrorKind::NotFound)?;
            let (source, point) = (mount.source.as_bytes(), mount.mount_point.as_os_str().as_bytes());
            let parts = [&b"timed"[..], mount.fs_type.as_bytes(), source, point, self.root.ino.to_string().as_bytes()]
                .join(&b' ');
            return Ok(parts);
        }
        let born = stat.btime.unwrap_or_default();
        let told = files::file_system(self.top())?;
        // Two that were made in the same second are alike but for this, and so are copies. Elsewhere it isn't the same after a reboot.
        let id = match self.kind {
            Kind::Ext | Kind::Btrfs => told.id.into(),
            _ => self.uuid.unwrap_or(0),
        };
        Ok(identity(told.magic, id, self.root, (born.secs, born.nanos)).into_bytes())
    }

    fn identity_before(&self) -> io::Result<Option<Vec<u8>>> {
        if self.uuid.is_none() {
            return Ok(None);
        }
        let born = files::statx_fd(self.top())?.btime.unwrap_or_default();
        let told = files::file_system(self.top())?;
        Ok(Some(identity(told.magic, 0, self.root, (born.secs, born.nanos)).into_bytes()))
    }

    fn handle_of(&self, directory: NodeId) -> io::Result<OwnedFd> {
        if let Known::Names(names) = &self.known {
            return names.open(self.top(), directory);
        }
        let fd = handle::open_by_handle(self.top(), &self.handle(directory)?, handle::Access::Facts)?;
        match files::statx_fd(fd.as_fd())?.file_type() {
            EntryType::Dir => Ok(fd),
            _ => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    fn access_list(&self, directory: NodeId) -> Option<Vec<u8>> {
        access_list(self.open(directory).ok()?.as_fd())
    }

    fn access_lists(&self) -> &AccessLists {
        &self.access_lists
    }

    fn ignore(&self, group: &Group, directories: &[NodeId]) -> Vec<bool> {
        if !self.changes_are_told() {
            return vec![true; directories.len()];
        }
        // One that is ignored reports again when the kernel has forgotten its inode.
        let ignore =
            |&id| self.open(id).and_then(|fd| group.ignore_directory(fd.as_fd(), self.sizes.ignored())).is_ok();
        directories.iter().map(ignore).collect()
    }

    fn heed(&self, group: &Group, directories: &[NodeId]) -> Vec<io::Result<()>> {
        if !self.changes_are_told() {
            return directories.iter().map(|_| Ok(())).collect();
        }
        let heed = |&directory: &NodeId| match self.open(directory) {
            Ok(fd) => group.heed_directory(fd.as_fd(), self.sizes.ignored()),
            // One that is gone is ignored no more.
            Err(error) if is_gone(&error) => Ok(()),
            Err(error) => Err(error),
        };
        directories.iter().map(heed).collect()
    }
}

impl Directories for Volume {
    fn read(&self, directory: NodeId) -> io::Result<Reading> {
        self.read_some(&[directory]).pop().unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()))
    }

    fn read_some(&self, directories: &[NodeId]) -> Vec<io::Result<Reading>> {
        self.read_some_up_to(directories, usize::MAX)
    }

    fn read_some_up_to(&self, directories: &[NodeId], entries_max: usize) -> Vec<io::Result<Reading>> {
        let mut readings = Vec::with_capacity(directories.len());
        self.read_each(directories, entries_max, |reading| readings.push(reading));
        readings
    }

    fn look(&self, inode: NodeId) -> io::Result<LinkedName> {
        let fd = handle::open_by_handle(self.top(), &self.handle(inode)?, handle::Access::Facts)?;
        let stat = files::statx_fd(fd.as_fd())?;
        if stat.nlink == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(self.linked(inode, &stat))
    }

    fn is_written(&self, inode: NodeId) -> io::Result<bool> {
        if !self.changes_are_told() {
            return Ok(false);
        }
        let handle = self.handle(inode)?;
        let fd = handle::open_by_handle(self.top(), &handle, handle::Access::Facts)?;
        // What else changes has no content.
        if files::statx_fd(fd.as_fd())?.file_type() != EntryType::File {
            return Ok(false);
        }
        let asked = handle::open_by_handle(self.top(), &handle, handle::Access::Read);
        // Whoever has a lease on it that keeps readers out writes it.
        Ok(asked.and_then(|fd| lease::is_open_for_writing(fd.as_fd())).unwrap_or(true))
    }

    fn changes_are_told(&self) -> bool {
        matches!(self.known, Known::Handles(_))
    }

    fn open_by_lost_names(&self) -> Vec<NodeId> {
        if !self.changes_are_told() {
            return Vec::new();
        }
        let files = lost_names::files(|dev| self.may_hold(dev));
        files.iter().filter_map(|file| self.node_of(file.as_fd()).ok()).collect()
    }

    fn sizes_follow(&self) -> SizesFollow {
        self.sizes
    }

    fn open_for_writing(&self) -> io::Result<Vec<OpenFile>> {
        let unknown = || io::Error::new(io::ErrorKind::Unsupported, "its mount isn't known");
        if !self.changes_are_told() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let (began, mut found) = (seconds(), HashMap::new());
        let has_overlays = written::files(self.mount.ok_or_else(unknown)?, self.top(), |file, is_silent| {
            let (Ok(stat), Ok(id)) = (files::statx_fd(file), self.node_of(file)) else { return };
            if stat.file_type() == EntryType::File && stat.nlink > 0 {
                let is_young = stat.mtime.secs.max(stat.ctime.secs).saturating_add(TICK_SECONDS) >= began;
                let stamp = if is_young { 0 } else { stamp_of_sum(Facts::of(&stat).term(self.key())) };
                // By one descriptor all may be told, and by another nothing.
                found.entry(id).or_insert(OpenFile { id, stamp, is_silent: false }).is_silent |= is_silent;
            }
        })?;
        let are_silent = has_overlays && written::are_overlays_silent(kernel_version());
        self.has_silent_overlays.store(are_silent, Ordering::Relaxed);
        Ok(found.into_values().collect())
    }

    fn has_silent_overlays(&self) -> bool {
        self.has_silent_overlays.load(Ordering::Relaxed)
    }

    fn sync(&self) -> io::Result<()> {
        files::sync_file_system(self.top())
    }

    fn settling_seconds(&self) -> i64 {
        self.settling_seconds
    }

    /// XFS changes the time of directories that are exchanged, for programs that heed nothing else.
    fn moves_change_times(&self) -> bool {
        self.kind == Kind::Xfs
    }

    fn remounted(&self) -> Remounted {
        let (directories, is_partial) = self.mounts.changed_in(self.top(), |fd| self.node_of(fd));
        Remounted { directories, is_partial }
    }

    fn is_mounted_alike(&self) -> bool {
        self.mounts.are_alike()
    }

    fn method(&self) -> Option<Method> {
        match self.kind {
            Kind::Ext | Kind::Xfs => Some(Method::Sums),
            Kind::Btrfs => Some(Method::Generations),
            Kind::Other => None,
        }
    }

    fn declared(&self) -> Option<Arc<Declared>> {
        self.declared.clone()
    }

    fn set_key(&self, key: u64) {
        self.key.store(key, Ordering::Relaxed);
    }

    fn generation(&self) -> io::Result<u64> {
        if self.kind == Kind::Btrfs { survey::btrfs::generation(self.top()) } else { Ok(0) }
    }

    fn survey(&self, since: u64, subvolumes: &[u64], tell: Tell<'_>) -> io::Result<()> {
        match self.kind {
            Kind::Ext => survey::ext4::survey(self, self.key(), tell),
            Kind::Xfs => survey::xfs::survey(self, self.key(), tell),
            Kind::Btrfs => survey::btrfs::survey(self, since, subvolumes, tell),
            Kind::Other => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn begin_bulk(&self) -> bool {
        if self.declared.is_some() || !self.changes_are_told() {
            return false;
        }
        let bulk = Bulk::begin(self).ok().map(Arc::new);
        let has_begun = bulk.is_some();
        *self.bulk.write().unwrap_or_else(PoisonError::into_inner) = bulk;
        has_begun
    }

    fn end_bulk(&self) {
        *self.bulk.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn bring_in(&self, wanted: &Wanted<'_>) {
        if let Some(preload) = &self.preload {
            preload.bring_in(wanted);
        }
    }

    fn parent(&self, directory: NodeId) -> io::Result<NodeId> {
        if let Known::Names(names) = &self.known {
            return names.parent(self.top(), directory);
        }
        let fd = self.open(directory)?;
        if files::statx_fd(fd.as_fd())?.nlink == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        let above = files::open_handle_at(fd.as_fd(), c"..")?;
        self.node_of(above.as_fd())
    }
}

/// The top of the mount that a path lies in.
fn top_of(path: &Path) -> io::Result<(OwnedFd, Stat)> {
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
    Ok((top, stat))
}

/// What tells a file system from others. It is kept in stores, and names them.
fn identity(magic: u32, id: u128, root: NodeId, born: (i64, u32)) -> String {
    let NodeId { subvolume, ino, generation } = root;
    format!("{magic:x} {id:x} {subvolume}.{ino}.{generation} {}.{}", born.0, born.1)
}

pub(crate) fn access_list(fd: BorrowedFd<'_>) -> Option<Vec<u8>> {
    files::xattr_fd(fd, ACCESS_LIST).ok().flatten()
}

pub(crate) fn access(fd: BorrowedFd<'_>, stat: &Stat) -> Access {
    access_by(access_list(fd).as_deref(), stat)
}

/// The same of a directory with this access list.
pub(crate) fn access_by(list: Option<&[u8]>, stat: &Stat) -> Access {
    Access { mode: stat.mode, uid: stat.uid, gid: stat.gid, acl: list.map_or(0, hash_of) }
}

/// FNV-1a: it has to tell lists apart, and to be the same in every run.
pub(crate) fn hash_of(list: &[u8]) -> u64 {
    list.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
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

/// An inode with several names of a tree that is read once: nobody asks whether it has changed.
pub(crate) fn linked(id: NodeId, stat: &Stat) -> LinkedName {
    // What it frees depends on where all its names are.
    let weight = Sums { freed_blocks: 0, ..weight(stat) };
    LinkedName { id, weight, links: stat.nlink, facts: 0 }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt};

    use super::*;

    /// Of a file blocks may change later. A million of directories that were made just now would all be read again.
    #[test]
    fn a_directory_without_files_settles_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("inner")).expect("a directory");
        let volume = Volume::timed(folder.path()).expect("a volume");
        let changed_at = || {
            let directory = files::open_dir(folder.path()).expect("it opens");
            let id = volume.node_of(directory.as_fd()).expect("its inode");
            let reading = volume.list(id, directory.as_fd(), &mut Listing::new(0, usize::MAX)).expect("it reads");
            reading.changed_at
        };
        assert_eq!(changed_at(), 0);
        fs::write(folder.path().join("file"), "x").expect("a file");
        let file = fs::metadata(folder.path().join("file")).expect("its stat");
        assert_eq!(changed_at(), file.ctime());
    }

    /// To open one by its number takes another process where the daemon asks.
    #[test]
    fn what_is_seen_by_the_same_mount_needs_no_look_by_its_number() {
        let folder = tempfile::tempdir().expect("a folder");
        let volume = Volume::timed(folder.path()).expect("a volume");
        let stat = files::statx_fd(files::open_dir(folder.path()).expect("it opens").as_fd()).expect("its stat");
        let unknown = NodeId { subvolume: 256, ino: u64::MAX, generation: 3 };
        assert!(volume.handle_of(unknown).is_err());
        let seen_by = |mount| is_it(&volume, &VolumeFacts { is_btrfs: true, mount, ..volume.facts() }, &stat, unknown);
        assert_eq!([stat.mnt_id, None, stat.mnt_id.map(|mount| mount + 1)].map(seen_by), [true, false, false]);
    }

    #[test]
    fn an_identity_stays_what_it_is() {
        let root = NodeId { subvolume: 5, ino: 256, generation: 7 };
        assert_eq!(identity(0xef53, 0x1f, root, (1_790_000_000, 9)), "ef53 1f 5.256.7 1790000000.9");
    }
}
