//! Reads one directory of a volume: its names, and what is said of each.

use std::{
    ffi::CStr,
    io,
    ops::Range,
    os::fd::{AsFd, BorrowedFd},
};

use onesweep_sys::{
    files::{self, DirReader, EntryType, Stat},
    handle::{self, FileHandle},
    inode,
};

use super::{Kind, Known, TICK_SECONDS, Volume, access, add, stand_out};
use crate::{
    custom::found::{Found, Gathering},
    identity::{NodeId, STUB_INO},
    moment::seconds,
    reading::{Directories, Reading, of_entry, too_large},
    record::Access,
    survey::{Facts, stamp_of_sum},
    totals::{Sums, Totals},
};

impl Volume {
    pub(super) fn list(&self, directory: NodeId, fd: BorrowedFd<'_>, listing: &mut Listing) -> io::Result<Reading> {
        let began = seconds();
        let stat = files::statx_fd(fd)?;
        let access = access(fd, &stat);
        let mut reading = Reading { access, blocks: stat.blocks as i64, ..Reading::default() };
        let mut sum = Facts::of(&stat).term(self.key());
        let mut has_mounts = false;
        add(&mut reading, &stat);
        reading.own.sums.closed = i64::from(!access.is_open_to_all());
        let project = |fd: BorrowedFd<'_>| inode::project(fd).ok().flatten();
        let wants_project = self.declared.as_ref().is_some_and(|declared| declared.wants_project());
        let mut gathering = self.declared.as_deref().map(|declared| {
            let own = if wants_project { project(fd) } else { None };
            Gathering::new(declared, &stat, directory.subvolume, own)
        });
        listing.read(fd, self.end_of_directory(stat.size))?;
        for (name, kind) in listing.by_inodes() {
            let entered = match (kind, self.mount) {
                (EntryType::Dir, Some(mount)) => self.directory(&mut reading, (directory, fd), name, mount),
                _ => self.entry(&mut reading, (directory, fd), name, |stat, linked| {
                    let Some(gathering) = &mut gathering else { return };
                    let asks = wants_project && stat.file_type() == EntryType::File;
                    let file = if asks { files::open_file_at(fd, name).ok() } else { None };
                    let project = file.and_then(|file| project(file.as_fd()));
                    gathering.add(name.to_bytes(), stat, project, linked);
                }),
            };
            match entered {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // All others count, as they do for du, and so does what is below them.
                Err(error) => _ = reading.unreadable.get_or_insert_with(|| of_entry(name.to_bytes(), &error)),
                Ok(Entry::Mounted) => has_mounts = true,
                Ok(Entry::Directory) => {}
                Ok(Entry::Other(term)) => sum = sum.wrapping_add(term),
            }
        }
        reading.custom = gathering.map(Gathering::finish);
        let is_unknown = reading.custom.as_ref().is_some_and(Found::is_unknown);
        let last_changed = reading.changed_at.max(stat.ctime.secs).saturating_add(TICK_SECONDS);
        reading.stamp = match self.kind {
            // What is below a mount isn't known, and what couldn't be looked at may be mended.
            _ if has_mounts || is_unknown || reading.unreadable.is_some() => 0,
            Kind::Btrfs => listing.generation,
            _ if last_changed >= began => 0,
            _ => stamp_of_sum(sum),
        };
        Ok(reading)
    }

    /// It can't be opened by a number, and there is nothing in it; its own facts never change.
    pub(super) fn read_stub(&self) -> io::Result<Reading> {
        let own = Sums { directories: 1, ..Sums::default() };
        let stat = Stat { mode: 0o40_755, size: 0, blocks: 0, uid: 0, gid: 0, ..files::statx_fd(self.top())? };
        let custom = self.declared.as_deref().map(|declared| Gathering::new(declared, &stat, 0, None).finish());
        Ok(Reading {
            access: Access { mode: stat.mode, ..Access::default() },
            own: Totals { sums: own, ..Totals::default() },
            custom,
            stamp: self.generation()?,
            ..Reading::default()
        })
    }

    /// Nothing but its identity is needed: it is read itself.
    fn directory(
        &self,
        reading: &mut Reading,
        (above, fd): (NodeId, BorrowedFd<'_>),
        name: &CStr,
        ours: u64,
    ) -> io::Result<Entry> {
        if let Known::Names(_) = &self.known {
            let stat = files::statx_at(fd, name, true)?;
            return match stat.file_type() {
                EntryType::Dir if stat.mnt_id == Some(ours) => self.named(reading, above, name, &stat),
                EntryType::Dir => Ok(Entry::Mounted),
                // Somebody has put something else in its place, and will be found out the next time.
                _ => Err(io::ErrorKind::NotFound.into()),
            };
        }
        let (handle, mount) = match handle::handle_and_mount_at(fd, name) {
            Ok(found) => found,
            // What is mounted there may have no handles, as proc, sysfs and overlays haven't.
            Err(error) => {
                let is_mounted = files::statx_at(fd, name, true)?.mnt_id != Some(ours);
                return if is_mounted { Ok(Entry::Mounted) } else { Err(error) };
            }
        };
        if mount != ours {
            return Ok(Entry::Mounted);
        }
        let name = name.to_bytes();
        reading.directories.push((self.directory_in(above, &handle, name)?, name.into()));
        Ok(Entry::Directory)
    }

    /// A directory that is known by its name.
    fn named(&self, reading: &mut Reading, above: NodeId, name: &CStr, stat: &Stat) -> io::Result<Entry> {
        let Known::Names(names) = &self.known else { return Err(io::ErrorKind::Unsupported.into()) };
        let id = names.node(stat);
        names.found(id, above, name.to_owned());
        reading.directories.push((id, name.to_bytes().into()));
        Ok(Entry::Directory)
    }

    fn directory_in(&self, above: NodeId, handle: &FileHandle, name: &[u8]) -> io::Result<NodeId> {
        let id = self.node(handle)?;
        let is_stub = self.kind == Kind::Btrfs && id.ino == STUB_INO;
        Ok(if is_stub { NodeId::stub(above, name, self.key()) } else { id })
    }

    fn entry(
        &self,
        reading: &mut Reading,
        (above, fd): (NodeId, BorrowedFd<'_>),
        name: &CStr,
        also: impl FnOnce(&Stat, Option<NodeId>),
    ) -> io::Result<Entry> {
        let stat = files::statx_at(fd, name, true)?;
        reading.changed_at = reading.changed_at.max(stat.ctime.secs);
        // What is mounted there belongs to another file system, or to another place of this one.
        let is_mounted = stat.mnt_id.zip(self.mount).map_or(stat.is_mount_root, |(its, ours)| its != ours);
        if is_mounted {
            return Ok(Entry::Mounted);
        }
        if stat.file_type() == EntryType::Dir {
            if let Known::Names(_) = &self.known {
                return self.named(reading, above, name, &stat);
            }
            let id = self.directory_in(above, &handle::handle_at(fd, name)?, name.to_bytes())?;
            reading.directories.push((id, name.to_bytes().into()));
            return Ok(Entry::Directory);
        }
        if stat.nlink > 1 {
            let id = self.node_at(fd, name, &stat)?;
            also(&stat, Some(id));
            reading.linked.push(self.linked(id, &stat));
            reading.own.sums.shared_names += 1;
            stand_out(&mut reading.own.extremes, &stat);
        } else {
            also(&stat, None);
            add(reading, &stat);
            reading.inodes.push(stat.ino);
        }
        Ok(Entry::Other(Facts::of(&stat).term(self.key())))
    }
}

/// The names of one directory after the other, by the same memory.
pub(super) struct Listing {
    /// Where the file system counts its changes: the count before the first of them was read.
    generation: u64,
    entries_max: usize,
    reader: DirReader,
    /// The names, each with a zero behind it, and of each the inode, the place, and the type.
    names: Vec<u8>,
    entries: Vec<(u64, Range<usize>, EntryType)>,
}

/// For some hundred names: most directories take one call, and another one to tell that there are no more where the place of the last
/// name doesn't.
pub(crate) const LISTED_BYTES: usize = 32 << 10;

impl Listing {
    pub(super) fn new(generation: u64, entries_max: usize) -> Listing {
        let reader = DirReader::with_buffer(LISTED_BYTES);
        Listing { generation, entries_max, reader, names: Vec::new(), entries: Vec::new() }
    }

    fn read(&mut self, directory: BorrowedFd<'_>, end: Option<u64>) -> io::Result<()> {
        let Self { entries_max, reader, names, entries, .. } = self;
        names.clear();
        entries.clear();
        let is_whole = reader.read_up_to(directory, end, |entry| {
            let from = names.len();
            names.extend_from_slice(entry.name.to_bytes_with_nul());
            entries.push((entry.ino, from..names.len(), entry.kind));
            entries.len() <= *entries_max
        })?;
        if is_whole { Ok(()) } else { Err(too_large()) }
    }

    /// The names in the order in which their inodes lie on the disk, that of their numbers.
    fn by_inodes(&mut self) -> impl Iterator<Item = (&CStr, EntryType)> {
        self.entries.sort_unstable_by_key(|(ino, ..)| *ino);
        let names = &self.names;
        self.entries.iter().map(|(_, place, kind)| {
            let name = CStr::from_bytes_with_nul(&names[place.clone()]).expect("each ends with a zero");
            (name, *kind)
        })
    }
}

/// What a name stands for.
enum Entry {
    /// Something of another file system, or of another place of this one.
    Mounted,
    /// A directory, which has a stamp of its own.
    Directory,
    /// Anything else: its term.
    Other(u64),
}
