//! Directories read from what the file system says of many inodes at a time, for a first harvest: none of them is opened,
//! but on XFS.
//!
//! Sizes and times of what waits in memory aren't there. So all of it is written first, after all directories are heeded: whatever
//! is told from then on has its directory read once more, in the ordinary way. So is whatever is unusual. XFS tells no names so:
//! there a directory is opened and listed, and nothing else is asked of it.

mod ahead;
mod btrfs;
mod ext4;
mod xfs;

use std::{collections::HashSet, fmt, io, iter, ops::Range};

use onesweep_sys::files::{self, EntryType, Stat, Time};

use crate::{
    identity::NodeId,
    moment::seconds,
    reading::{Empty, Reading},
    survey::{self, Facts, stamp_of_sum},
    totals::Sums,
    volume::{Kind, TICK_SECONDS, Volume, access_by, add, stand_out},
};

/// So many directories with nothing in them are told with the one that they are in; the rest is read.
const EMPTY_AT_ONCE: usize = 4096;
/// So many names are gathered before what they name is looked at.
const NAMES_AT_ONCE: usize = 4096;

/// An inode, as it is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    ino: u64,
    generation: u32,
    mode: u32,
    links: u32,
    owner: (u32, u32),
    size: u64,
    /// Units of 512 bytes.
    blocks: u64,
    mtime: (i64, u32),
    ctime: (i64, u32),
    /// An access list may be among them.
    has_xattrs: bool,
}

impl Told {
    /// The same in place of what `stat` says of another inode of the file system.
    fn stat(&self, other: &Stat) -> Stat {
        let time = |(secs, nanos)| Time { secs, nanos };
        Stat {
            ino: self.ino,
            mode: self.mode,
            nlink: self.links,
            uid: self.owner.0,
            gid: self.owner.1,
            size: self.size,
            blocks: self.blocks,
            mtime: time(self.mtime),
            ctime: time(self.ctime),
            is_mount_root: false,
            ..*other
        }
    }
}

/// Names of directories, one behind the other.
#[derive(Debug, Default)]
pub(super) struct Names {
    bytes: Vec<u8>,
    /// The inodes, and where the names are.
    all: Vec<(u64, Range<usize>)>,
}

impl Names {
    fn add(&mut self, ino: u64, name: &[u8]) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(name);
        self.all.push((ino, from..self.bytes.len()));
    }

    fn append(&mut self, other: &Names, range: Range<usize>) {
        other.all[range].iter().for_each(|(ino, place)| self.add(*ino, &other.bytes[place.clone()]));
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.all.clear();
    }
}

/// What tells of a file system's inodes.
enum Source {
    Ext4(Box<ext4::Tables>),
    Xfs(xfs::Inodes),
    Btrfs(btrfs::Trees),
}

/// What tells of them to one thread.
enum Session<'a> {
    Ext4(ext4::Session<'a>),
    Xfs(xfs::Session<'a>),
    Btrfs(btrfs::Session<'a>),
}

impl Source {
    fn of(volume: &Volume) -> io::Result<Source> {
        match volume.kind() {
            Kind::Ext => ext4::Tables::of(volume).map(|tables| Source::Ext4(Box::new(tables))),
            Kind::Xfs => xfs::Inodes::of(volume).map(Source::Xfs),
            Kind::Btrfs => btrfs::Trees::of(volume).map(Source::Btrfs),
            Kind::Other => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn session<'a>(&'a self, volume: &'a Volume) -> Session<'a> {
        match self {
            Source::Ext4(tables) => Session::Ext4(tables.session()),
            Source::Xfs(inodes) => Session::Xfs(inodes.session(volume)),
            Source::Btrfs(trees) => Session::Btrfs(trees.session(volume)),
        }
    }
}

impl Session<'_> {
    /// Tells directories of a subvolume with these numbers, which rise, those that can be told; they are listed next.
    fn look_into(&mut self, subvolume: u64, directories: &[u64], found: &mut dyn FnMut(Told)) {
        match self {
            Session::Ext4(session) => session.look(directories, found),
            Session::Xfs(session) => session.look(directories, found),
            Session::Btrfs(session) => session.look_into(subvolume, directories, found),
        }
    }

    /// Adds the names of a directory, and gives its access list, if it has one. `None` where that can't all be told, or the names are
    /// more than `most`.
    fn list(&mut self, directory: NodeId, told: &Told, most: usize, names: &mut Names) -> Option<Option<Vec<u8>>> {
        match self {
            Session::Ext4(session) => session.list(directory, told, most, names).map(|()| None),
            Session::Xfs(session) => session.list(directory, told, most, names),
            Session::Btrfs(session) => session.list(directory, most, names).map(|()| None),
        }
    }

    /// Whether nothing is in a directory that was told, and it has no access list; false, too, where that isn't known without waiting for a look into it.
    fn is_known_empty(&mut self, directory: NodeId, told: &Told) -> bool {
        match self {
            Session::Ext4(session) => session.is_known_empty(told),
            Session::Xfs(session) => session.is_known_empty(directory, told),
            Session::Btrfs(_) => btrfs::Session::is_known_empty(told),
        }
    }

    /// Tells inodes of a subvolume with these numbers, which rise, those that can be told.
    fn look(&mut self, subvolume: u64, inodes: &[u64], found: &mut dyn FnMut(Told)) {
        match self {
            Session::Ext4(session) => session.look(inodes, found),
            Session::Xfs(session) => session.look(inodes, found),
            Session::Btrfs(session) => session.look(subvolume, inodes, found),
        }
    }
}

/// A file system whose directories are read so.
pub(crate) struct Bulk {
    source: Source,
    /// The count of its changes, where it has one: whatever changed with a lower one is told.
    generation: Option<u64>,
    /// Before everything was written, in seconds since 1970.
    began: i64,
    /// Directories in which something is mounted.
    with_mounts: HashSet<NodeId>,
    other: Stat,
}

impl fmt::Debug for Bulk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bulk").field("began", &self.began).finish_non_exhaustive()
    }
}

impl Bulk {
    /// Has everything written that waits. An error where directories can't be read so.
    pub(crate) fn begin(volume: &Volume) -> io::Result<Bulk> {
        let (began, other) = (seconds(), files::statx_fd(volume.top())?);
        if matches!(volume.kind(), Kind::Other) || volume.shows_other_owners()? {
            return Err(io::ErrorKind::Unsupported.into());
        }
        files::sync_file_system(volume.top())?;
        let is_btrfs = matches!(volume.kind(), Kind::Btrfs);
        let generation = is_btrfs.then(|| survey::btrfs::generation(volume.top())).transpose()?;
        Ok(Bulk { source: Source::of(volume)?, generation, began, with_mounts: volume.with_mounts()?, other })
    }

    /// Reads directories, none of which has more entries than that; `None` for those that have to be read in the ordinary way.
    pub(crate) fn read(&self, volume: &Volume, directories: &[NodeId], most: usize) -> Vec<Option<Reading>> {
        let mut session = self.source.session(volume);
        let mut readings = Vec::with_capacity(directories.len());
        let follows = |one: &NodeId, next: &NodeId| one.subvolume == next.subvolume && one.ino < next.ino;
        for some in directories.chunk_by(follows) {
            self.read_some(volume, some, most, &mut session, &mut readings);
        }
        readings
    }

    /// Of one subvolume, by rising numbers.
    fn read_some(
        &self,
        volume: &Volume,
        directories: &[NodeId],
        most: usize,
        session: &mut Session<'_>,
        readings: &mut Vec<Option<Reading>>,
    ) {
        let numbers: Vec<u64> = directories.iter().map(|directory| directory.ino).collect();
        let mut own = Vec::with_capacity(numbers.len());
        let subvolume = directories.first().map_or(0, |directory| directory.subvolume);
        session.look_into(subvolume, &numbers, &mut |told| own.push(told));
        let mut left = directories.iter().peekable();
        while left.peek().is_some() {
            let (mut names, mut listed) = (Names::default(), Vec::new());
            for &directory in left.by_ref() {
                let from = names.all.len();
                let told = self.is_plain(directory, &own).and_then(|told| {
                    let list = session.list(directory, told, most, &mut names)?;
                    (names.all.len() - from <= most).then_some((*told, list))
                });
                if told.is_none() {
                    names.all.truncate(from);
                }
                listed.push((directory, told, from..names.all.len()));
                if names.all.len() >= NAMES_AT_ONCE {
                    break;
                }
            }
            let mut wanted: Vec<u64> = names.all.iter().map(|(ino, _)| *ino).collect();
            // One with two names among them is wanted twice: it is counted how often each was asked for.
            wanted.sort_unstable();
            let mut found = Vec::with_capacity(wanted.len());
            if !wanted.is_empty() {
                session.look(subvolume, &wanted, &mut |told| found.push(told));
            }
            for (directory, told, place) in listed {
                let entries = names.all.get_mut(place).unwrap_or_default();
                entries.sort_unstable_by_key(|(ino, _)| *ino);
                let named =
                    entries.iter().map(|(ino, place)| Some((by_number(&found, *ino)?, &names.bytes[place.clone()])));
                let told = told.as_ref().map(|(told, list)| (told, list.as_deref()));
                readings.push(told.and_then(|told| self.reading(volume, session, directory, told, named)));
            }
        }
    }

    /// A directory that is there, and of which nothing is special.
    fn is_plain<'a>(&self, directory: NodeId, own: &'a [Told]) -> Option<&'a Told> {
        let told = by_number(own, directory.ino)?;
        let is_it = told.generation == directory.generation && EntryType::of_mode(told.mode) == EntryType::Dir;
        (is_it && !self.with_mounts.contains(&directory)).then_some(told)
    }

    fn reading<'a>(
        &self,
        volume: &Volume,
        session: &mut Session<'_>,
        directory: NodeId,
        (told, list): (&Told, Option<&[u8]>),
        named: impl Iterator<Item = Option<(&'a Told, &'a [u8])>>,
    ) -> Option<Reading> {
        let stat = told.stat(&self.other);
        let access = access_by(list, &stat);
        let mut reading = Reading { access, blocks: stat.blocks as i64, ..Reading::default() };
        add(&mut reading, &stat);
        reading.own.sums = Sums { closed: i64::from(!access.is_open_to_all()), ..reading.own.sums };
        let mut sum = Facts::of(&stat).term(volume.key());
        for named in named {
            // Who has gone meanwhile is told of.
            let (told, name) = named?;
            let id = NodeId { subvolume: directory.subvolume, ino: told.ino, generation: told.generation };
            let stat = told.stat(&self.other);
            if stat.file_type() == EntryType::Dir {
                reading.directories.push((id, name.into()));
                if reading.empty.len() < EMPTY_AT_ONCE {
                    reading.empty.extend(self.empty(volume, session, id, told));
                }
                continue;
            }
            reading.changed_at = reading.changed_at.max(stat.ctime.secs);
            if stat.nlink > 1 {
                reading.linked.push(volume.linked(id, &stat));
                reading.own.sums.shared_names += 1;
                stand_out(&mut reading.own.extremes, &stat);
            } else {
                add(&mut reading, &stat);
                reading.inodes.push(stat.ino);
            }
            sum = sum.wrapping_add(Facts::of(&stat).term(volume.key()));
        }
        let last_changed = reading.changed_at.max(stat.ctime.secs).saturating_add(TICK_SECONDS);
        reading.stamp = match self.generation {
            Some(generation) => generation,
            None if last_changed >= self.began => 0,
            None => stamp_of_sum(sum),
        };
        Some(reading)
    }

    /// What reading it would say of a directory with nothing in it, where that is known.
    fn empty(&self, volume: &Volume, session: &mut Session<'_>, id: NodeId, told: &Told) -> Option<Empty> {
        if self.with_mounts.contains(&id) || !session.is_known_empty(id, told) {
            return None;
        }
        let Reading { access, blocks, own, stamp, .. } =
            self.reading(volume, session, id, (told, None), iter::empty())?;
        Some(Empty { id, access, blocks, own, stamp })
    }
}

fn by_number(rising: &[Told], ino: u64) -> Option<&Told> {
    rising.binary_search_by_key(&ino, |told| told.ino).ok().and_then(|at| rising.get(at))
}
