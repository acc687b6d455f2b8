//! The survey: each file is opened once, in inode order; what lies in the page cache is told from what must come from
//! the disk, and of the latter it is learned where it lies.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use onesweep_layout::{
    AddressSampler, Extent, ExtentFlags, MapError, Meaningless, Sources, btrfs::ItemExtents, tables::ntfs::MountedNtfs,
};
use onesweep_sys::{
    cache,
    features::features,
    files::{self, magic},
    inode, memory,
};

use crate::{
    at_once::Home,
    btrfs::{Btrfs, Checksums},
    catalogue::{Catalogue, EntryId, Flags},
    error::FileError,
    item::Kind,
    opener::Opener,
    placement::Placement,
};

/// Time stamps of files younger than this are not trusted to show a change: they tick coarsely before Linux 6.13.
pub(crate) const SETTLED_SECONDS: i64 = 1;

/// What is to be done with an entry.
#[derive(Debug)]
pub(crate) enum Surveyed {
    /// Nothing has to come from the disk: no content, or all of it in the cache. Open, if it was opened.
    Ready(Option<Opened>),
    /// Its fragments are in the catalogue.
    Planned,
    /// Too large or too special for the plan.
    Streamed,
}

/// A file as it was opened, and what it was then.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) fd: OwnedFd,
    pub(crate) stat: files::Stat,
}

/// What a survey is told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Aim {
    /// Content is wanted, not only the order of reading it.
    pub(crate) content: bool,
    /// The order needs to know where the data lies.
    pub(crate) layout: bool,
    /// The data will be read from the device.
    pub(crate) device: bool,
    /// Files that lie in the cache are told apart.
    pub(crate) cached_first: bool,
    /// Files over this size are streamed.
    pub(crate) large: u64,
    /// So are those whose blocks don't fit here: what one spindle may hold of the budget.
    pub(crate) share: u64,
}

/// What is known of a volume.
struct VolumeFacts {
    /// Its addresses mean something, as far as is known.
    trusted: bool,
    sampler: AddressSampler,
    /// Delayed allocations were written out, so that they have addresses.
    synced: bool,
    /// It can be read from its device.
    from_device: bool,
    /// What waits in memory without a place on the device shows among its extents.
    tells_delayed: bool,
    /// Where its files lie, if the times of its inodes are those of this machine's clock.
    clocked_home: Option<Home>,
    /// Tells where its addresses lie.
    btrfs: Option<Arc<Btrfs>>,
    /// Tells where its files lie.
    ntfs: Option<Arc<MountedNtfs>>,
    /// What will be read of it, whose checksums must come from the disk, too.
    checksums: Checksums,
}

/// Looks at files, one after the other.
pub(crate) struct Surveyor {
    aim: Aim,
    sources: Sources,
    items: ItemExtents,
    volumes: HashMap<u16, VolumeFacts>,
    verdict: Option<Meaningless>,
    /// By device: whether the content of its files is made up when it is read.
    made_up: HashMap<u64, bool>,
}

/// File systems whose regular files have sizes that say nothing.
const MADE_UP: [u32; 12] = [
    magic::PROC,
    magic::SYSFS,
    magic::CGROUP,
    magic::CGROUP2,
    magic::TRACEFS,
    magic::DEBUGFS,
    magic::SECURITYFS,
    magic::SELINUXFS,
    magic::CONFIGFS,
    magic::BINFMT_MISC,
    magic::FUSECTL,
    magic::RESCTRL,
];

/// File systems that tell of delayed allocations (`FIEMAP_EXTENT_DELALLOC`), or have none.
const TELLS_DELAYED: [&str; 6] = ["ext4", "ext3", "ext2", "xfs", "btrfs", "f2fs"];

/// Of a file system that the kernel keeps by itself, and that knows reads that may not wait, or none that have to.
fn clocked_home(fs_type: &str) -> Option<Home> {
    match fs_type {
        "ext4" | "ext3" | "ext2" | "xfs" | "btrfs" | "f2fs" => Some(Home::Disk),
        "tmpfs" => Some(Home::Memory),
        _ => None,
    }
}

impl Surveyor {
    pub(crate) fn new(aim: Aim) -> Self {
        Self {
            aim,
            sources: Sources::new(),
            items: ItemExtents::default(),
            volumes: HashMap::new(),
            verdict: None,
            made_up: HashMap::new(),
        }
    }

    /// Takes note of a volume.
    pub(crate) fn meet(&mut self, volume: u16, placement: &Placement) {
        self.volumes.entry(volume).or_insert_with(|| VolumeFacts {
            trusted: placement.trust.is_order(),
            sampler: AddressSampler::new(placement.device_bytes()),
            synced: false,
            from_device: true,
            tells_delayed: TELLS_DELAYED.contains(&placement.fs_type.as_str()),
            clocked_home: clocked_home(&placement.fs_type),
            btrfs: placement.btrfs.clone(),
            ntfs: placement.ntfs.clone(),
            checksums: Checksums::default(),
        });
    }

    /// True when the extents of a volume come with its inodes, so that no more has to be read for them.
    pub(crate) fn maps_by_items(&self, volume: u16) -> bool {
        self.volumes.get(&volume).is_some_and(|facts| facts.btrfs.is_some())
    }

    /// What was mapped since the last call and has checksums that must be read with it.
    pub(crate) fn take_checksums(&mut self) -> Vec<(Arc<Btrfs>, Checksums)> {
        let volumes = self.volumes.values_mut();
        let taken = volumes.filter_map(|facts| Some((facts.btrfs.clone()?, std::mem::take(&mut facts.checksums))));
        taken.collect()
    }

    /// Why the addresses can't be places on a device, once that is so for every volume.
    pub(crate) fn verdict(&self) -> Option<&Meaningless> {
        self.verdict.as_ref().filter(|_| self.volumes.values().all(|facts| !facts.trusted))
    }

    /// In device mode: reads the files of this volume through the file system all the same.
    pub(crate) fn leave_to_file_system(&mut self, volume: u16) {
        if let Some(facts) = self.volumes.get_mut(&volume) {
            facts.from_device = false;
        }
    }

    /// Where files of this volume lie that may be [read first](crate::at_once) and looked at then, if their content is in memory.
    pub(crate) fn reads_at_once(&self, volume: u16) -> Option<Home> {
        let home = self.volumes.get(&volume).and_then(|facts| facts.clocked_home);
        home.filter(|_| self.aim.content && self.aim.cached_first)
    }

    /// Whether a file is small enough for being held in memory.
    pub(crate) fn is_held(&self, size: u64, cost: u64) -> bool {
        size <= self.aim.large && cost <= self.aim.share
    }

    /// Looks at one entry that is no directory; `opened` is the file, if that is open already.
    pub(crate) fn survey(
        &mut self,
        catalogue: &mut Catalogue,
        opener: &mut Opener,
        id: EntryId,
        opened: Option<OwnedFd>,
    ) -> Result<Surveyed, FileError> {
        let fail = |catalogue: &Catalogue, step: &str, error| FileError::io(catalogue.path(id), step, error);
        if !catalogue.get(id).is_file() {
            let stat = stat_unopened(catalogue, opener, id).map_err(|error| fail(catalogue, "stat", error))?;
            catalogue.get_mut(id).learn(&stat);
            return match Kind::of_mode(stat.mode) {
                // Something else has taken the name since it was listed; the next sweep will meet it.
                Some(Kind::File | Kind::Directory) => Err(FileError::Vanished { path: catalogue.path(id) }),
                _ => Ok(Surveyed::Ready(None)),
            };
        }
        let opened = opened.map_or_else(|| open(catalogue, opener, id), Ok);
        let fd = opened.map_err(|error| fail(catalogue, "open", error))?;
        let stat = files::statx_fd(fd.as_fd()).map_err(|error| fail(catalogue, "stat", error))?;
        if Kind::of_mode(stat.mode) != Some(Kind::File) {
            return Err(FileError::Vanished { path: catalogue.path(id) });
        }
        catalogue.get_mut(id).learn(&stat);
        let foreign = stat.dev != catalogue.volume(catalogue.get(id).device).dev;
        if foreign {
            catalogue.get_mut(id).flags.set(Flags::FOREIGN);
        }
        if self.is_made_up(fd.as_fd(), stat.dev) {
            catalogue.get_mut(id).flags.set(Flags::MADE_UP);
            return Ok(Surveyed::Ready(Some(Opened { fd, stat })));
        }
        if stat.size == 0 {
            return Ok(Surveyed::Ready(Some(Opened { fd, stat })));
        }
        let too_large = !self.is_held(stat.size, catalogue.cost(id));
        let looks_sparse = stat.blocks * 512 < stat.size;
        // Without cachestat the kernel is asked page by page, which takes minutes for a file of some terabytes.
        let is_told = features().cachestat || !too_large;
        let pages = is_told.then(|| cache::residency(fd.as_fd(), 0, stat.size).ok()).flatten();
        if let Some(pages) = &pages {
            let all_cached = pages.cached >= stat.size.div_ceil(memory::page_bytes());
            if self.aim.content && self.aim.cached_first && all_cached && !looks_sparse && !too_large {
                catalogue.get_mut(id).flags.set(Flags::CACHED);
                return Ok(Surveyed::Ready(Some(Opened { fd, stat })));
            }
        }
        if stat.dio_align.is_none() {
            catalogue.get_mut(id).flags.set(Flags::DIRECT_DOUBTFUL);
        }
        if pages.is_none() {
            catalogue.get_mut(id).flags.set(Flags::UNTOLD);
        }
        if pages.as_ref().is_none_or(|pages| pages.cached > 0) {
            catalogue.get_mut(id).flags.set(Flags::PARTLY_CACHED);
        }
        if is_recent(stat.ctime.secs) {
            catalogue.get_mut(id).flags.set(Flags::RECENT);
        }
        let clean = pages.as_ref().is_some_and(is_clean);
        let volume = catalogue.get(id).device;
        // Tables on the device may lag behind: what they call a hole may be none.
        let is_mapped = |facts: &VolumeFacts| facts.trusted && !(looks_sparse && facts.ntfs.is_some());
        if self.aim.layout && !foreign && self.volumes.get(&volume).is_some_and(is_mapped) {
            let dirty = pages.as_ref().is_some_and(is_dirty);
            self.map(catalogue, id, fd.as_fd(), &stat, (clean, dirty));
        } else {
            catalogue.get_mut(id).flags.set(Flags::UNMAPPED);
            if looks_sparse {
                all_but_holes(catalogue, id, fd.as_fd(), stat.size);
            } else {
                whole(catalogue, id, stat.size);
            }
        }
        if self.aim.device {
            self.judge_for_device(catalogue, id, fd.as_fd(), foreign, pages.as_ref());
        }
        if catalogue.get(id).flags.has(Flags::STREAMED) || too_large {
            catalogue.get_mut(id).flags.set(Flags::STREAMED);
            return Ok(Surveyed::Streamed);
        }
        Ok(match catalogue.get(id).fragments {
            0 => Surveyed::Ready(Some(Opened { fd, stat })),
            _ => Surveyed::Planned,
        })
    }

    /// True on file systems whose files have no stored content.
    fn is_made_up(&mut self, fd: BorrowedFd<'_>, dev: u64) -> bool {
        *self
            .made_up
            .entry(dev)
            .or_insert_with(|| files::file_system(fd).is_ok_and(|file_system| MADE_UP.contains(&file_system.magic)))
    }

    /// Learns where the data lies. What can't be mapped is read in inode order.
    ///
    /// `clean` says that nothing of the file waits in memory to be written. Until then an extent may be called
    /// unwritten, or shared with another file, though the bytes to come differ. `dirty` says that something does wait:
    /// then not every file system tells of an extent that it will have.
    fn map(
        &mut self,
        catalogue: &mut Catalogue,
        id: EntryId,
        fd: BorrowedFd<'_>,
        stat: &files::Stat,
        (clean, dirty): (bool, bool),
    ) {
        let number = catalogue.get(id).device;
        let block = u64::from(catalogue.volume(number).block);
        let Self { aim, sources, items, volumes, verdict, .. } = self;
        let facts = volumes.get_mut(&number).expect("only volumes that were met are mapped");
        if !facts.synced {
            facts.synced = true;
            // Once for all files; a failure leaves some of them without an address.
            let _ = files::sync_file_system(fd);
        }
        let (mut seen, mut too_far, mut end, mut mapped) = (Seen::default(), false, 0, 0);
        let btrfs = facts.btrfs.clone();
        let mut visit = |extent: Extent| {
            seen.kinds |= extent.flags;
            let length = extent.length.min(stat.size.saturating_sub(extent.logical));
            mapped += length;
            let part = Part::of(&extent, clean);
            if length == 0 || part == Part::Zeros {
                return;
            }
            // Fragments are whole blocks: where extents are not, they would overlap in memory.
            seen.is_odd |= !extent.logical.is_multiple_of(block) || extent.logical < end;
            end = extent.logical + length.next_multiple_of(block);
            match part {
                // Clones lie at one address rightly, and encoded bytes are fewer than those of the file.
                Part::At(_) if extent.flags.intersects(ExtentFlags::SHARED | ExtentFlags::ENCODED) => {}
                Part::At(address) => facts.sampler.add(address, extent.length),
                _ => seen.is_unmapped = true,
            }
            if seen.is_odd {
                return;
            }
            let mut add = |place, logical, length| too_far |= !catalogue.add_fragment(id, place, logical, length);
            match (&btrfs, part.address()) {
                (Some(btrfs), Some(address)) => {
                    facts.checksums.note(address, length);
                    // How long encoded bytes are is not known; of a place that is not known, the order alone suffers.
                    if extent.flags.contains(ExtentFlags::ENCODED) {
                        add(btrfs.lanes.place(address), extent.logical, length);
                    } else {
                        btrfs.lanes.runs(address, length, &mut |run| {
                            add(run.place, extent.logical + run.skip, run.length);
                        });
                    }
                }
                (_, address) => add(address, extent.logical, length),
            }
        };
        // Items of btrfs tell nothing of what waits in memory.
        let by_items = match &btrfs {
            Some(_) if clean => items.map(fd, stat, &mut visit),
            _ => Err(MapError::Unsupported),
        };
        let outcome = match (by_items, &facts.ntfs) {
            (Err(MapError::Unsupported), Some(ntfs)) => ntfs.map(stat.ino, stat.size, &mut visit),
            (Err(MapError::Unsupported), None) => sources.map(fd, stat, &mut visit),
            (told, _) => told,
        };
        let incomplete = dirty && !facts.tells_delayed && mapped < stat.size;
        // The extents changed while they were told, or the file system is odd: the file is read all the same.
        seen.is_odd |= outcome.is_err() || incomplete;
        if seen.is_odd {
            catalogue.forget_fragments(id);
            whole(catalogue, id, stat.size);
        }
        let entry = catalogue.get_mut(id);
        entry.flags.set(seen.flags(clean, aim.device));
        for (kind, flag) in [(ExtentFlags::ENCODED, Flags::ENCODED), (ExtentFlags::INLINE, Flags::INLINE)] {
            if seen.kinds.contains(kind) {
                entry.flags.set(flag);
            }
        }
        if too_far {
            entry.flags.set(Flags::STREAMED);
        }
        if let Some(why) = facts.sampler.verdict() {
            facts.trusted = false;
            *verdict = Some(why);
        }
    }

    /// What a device read could get wrong, and what it is checked by afterwards.
    fn judge_for_device(
        &self,
        catalogue: &mut Catalogue,
        id: EntryId,
        fd: BorrowedFd<'_>,
        foreign: bool,
        pages: Option<&cache::Residency>,
    ) {
        let from_device = self.volumes.get(&catalogue.get(id).device).is_some_and(|facts| facts.from_device);
        let entry = catalogue.get_mut(id);
        entry.generation = inode::generation(fd).ok().flatten().unwrap_or(0);
        let doubtful = foreign || !from_device || !self.aim.layout || !pages.is_some_and(is_clean);
        // What can't be told may be so.
        let has = |flags: io::Result<Option<u32>>, flag| flags.map_or(true, |flags| flags.unwrap_or(0) & flag != 0);
        // Bytes that mean nothing to who reads the device (DAFT II.D). Not every file system says so of its extents: ext4
        // does not for encrypted ones.
        if has(inode::flags(fd), inode::FLAG_COMPRESSED | inode::FLAG_ENCRYPTED) {
            entry.flags.set(Flags::STREAMED);
        }
        // Data may lie in the journal still, or on another device than the one that is read.
        let elsewhere =
            has(inode::flags(fd), inode::FLAG_JOURNALED) || has(inode::extended_flags(fd), inode::XFLAG_REALTIME);
        if doubtful || elsewhere || entry.flags.has(Flags::RECENT) || entry.flags.has(Flags::UNMAPPED) {
            entry.flags.set(Flags::THROUGH_FILE_SYSTEM);
        }
    }
}

/// What there is to read of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Nothing: it reads as zeros.
    Zeros,
    At(u64),
    /// Something, at a place that is not known.
    Somewhere,
}

impl Part {
    fn of(extent: &Extent, clean: bool) -> Self {
        let is_unwritten = extent.flags.contains(ExtentFlags::UNWRITTEN);
        match extent.physical {
            _ if is_unwritten && clean => Self::Zeros,
            Some(address) if !is_unwritten => Self::At(address),
            _ => Self::Somewhere,
        }
    }

    fn address(self) -> Option<u64> {
        match self {
            Self::At(address) => Some(address),
            Self::Zeros | Self::Somewhere => None,
        }
    }
}

/// What the extents of one file were seen to be.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// The flags of all of them together.
    kinds: ExtentFlags,
    /// Some part of the content lies at no known place.
    is_unmapped: bool,
    /// They make no sense, so that nothing is known.
    is_odd: bool,
}

impl Seen {
    /// What follows for the reading of the file; `device` says that it is to be read from the device.
    fn flags(self, clean: bool, device: bool) -> Flags {
        let mut flags = Flags::NONE;
        if self.is_unmapped || self.is_odd {
            flags.set(Flags::UNMAPPED);
        }
        // Compressed and encrypted bytes mean nothing to who reads the device (DAFT II.D).
        if device && self.kinds.intersects(ExtentFlags::ENCODED | ExtentFlags::ENCRYPTED) {
            flags.set(Flags::STREAMED);
        }
        let plain = !self.is_odd && !self.kinds.intersects(ExtentFlags::NOT_PLAIN - ExtentFlags::UNWRITTEN);
        // Where bytes are encoded, equal addresses don't mean equal bytes of the file.
        if self.kinds.contains(ExtentFlags::SHARED) && plain && clean {
            flags.set(Flags::SHARED);
        }
        // Data among metadata, or not in whole blocks, or not as it is read: the kernel goes through its cache.
        if !plain {
            flags.set(Flags::THROUGH_FILE_SYSTEM);
        }
        flags
    }
}

/// True when nothing of a file waits to be written. Without `cachestat` only an empty cache tells.
fn is_clean(pages: &cache::Residency) -> bool {
    match (pages.dirty, pages.writeback) {
        (Some(dirty), Some(writeback)) => dirty == 0 && writeback == 0,
        _ => pages.cached == 0,
    }
}

/// True when something of a file is known to wait to be written.
fn is_dirty(pages: &cache::Residency) -> bool {
    pages.dirty.is_some_and(|pages| pages > 0) || pages.writeback.is_some_and(|pages| pages > 0)
}

/// Stands for all of a file of which nothing is known.
fn whole(catalogue: &mut Catalogue, id: EntryId, size: u64) {
    if !catalogue.add_fragment(id, None, 0, size) {
        catalogue.get_mut(id).flags.set(Flags::STREAMED);
    }
}

/// Of a file that is not mapped: what is no hole, at places that are not known. All of it where holes can't be told.
fn all_but_holes(catalogue: &mut Catalogue, id: EntryId, fd: BorrowedFd<'_>, size: u64) {
    let block = u64::from(catalogue.volume(catalogue.get(id).device).block);
    let (mut at, mut added, mut fits) = (0, 0, true);
    while at < size {
        let data = match files::seek_data(fd, at) {
            Ok(Some(start)) => files::seek_hole(fd, start).map(|end| end.map(|end| (start, end.min(size)))),
            Ok(None) => break,
            Err(error) => Err(error),
        };
        let Ok(Some((start, end))) = data.map(|data| data.filter(|&(start, end)| at <= start && start < end)) else {
            // It changes just now, or the file system is odd.
            catalogue.forget_fragments(id);
            return whole(catalogue, id, size);
        };
        // Fragments are whole blocks, and must not overlap in memory.
        let first = (start / block * block).max(added);
        if first < end {
            fits &= catalogue.add_fragment(id, None, first, end - first);
            added = end.next_multiple_of(block);
        }
        at = end;
    }
    if !fits {
        catalogue.get_mut(id).flags.set(Flags::STREAMED);
    }
}

pub(crate) fn is_recent(ctime_seconds: i64) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    ctime_seconds >= now - SETTLED_SECONDS
}

pub(crate) fn open(catalogue: &Catalogue, opener: &mut Opener, id: EntryId) -> io::Result<OwnedFd> {
    match opener.parent(catalogue, id)? {
        Some(parent) => files::open_file_at(parent.as_fd(), catalogue.name(id)),
        None => opener.file(catalogue, id, false),
    }
}

pub(crate) fn stat_unopened(catalogue: &Catalogue, opener: &mut Opener, id: EntryId) -> io::Result<files::Stat> {
    match opener.parent(catalogue, id)? {
        Some(parent) => files::statx_at(parent.as_fd(), catalogue.name(id), true),
        None => files::statx_at(files::CURRENT_DIR, catalogue.root(id), true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: u64 = 7 << 12;

    /// What a file of one extent comes to: what is read of it, and how.
    fn judged(flags: ExtentFlags, physical: Option<u64>, clean: bool, device: bool) -> (Part, Flags) {
        let part = Part::of(&Extent { logical: 0, physical, length: 4096, flags }, clean);
        let seen = Seen { kinds: flags, is_unmapped: part == Part::Somewhere, is_odd: false };
        (part, seen.flags(clean, device))
    }

    fn all(of: &[Flags]) -> Flags {
        let mut flags = Flags::NONE;
        of.iter().for_each(|&flag| flags.set(flag));
        flags
    }

    /// Of each flag that an extent can have: what is read of a clean and of a dirty file, and how in file and device mode.
    #[test]
    fn every_flag_of_an_extent_has_its_meaning() {
        use ExtentFlags as Is;
        const AT: Part = Part::At(PLACE);
        const THROUGH: &[Flags] = &[Flags::THROUGH_FILE_SYSTEM];
        const STREAMED: &[Flags] = &[Flags::THROUGH_FILE_SYSTEM, Flags::STREAMED];
        const NOWHERE: &[Flags] = &[Flags::THROUGH_FILE_SYSTEM, Flags::UNMAPPED];
        // Flags, address; clean: part, in file mode, in device mode; the same of a dirty file.
        type How = (Part, &'static [Flags], &'static [Flags]);
        let same = |how: How| (how, how);
        let nowhere = same((Part::Somewhere, NOWHERE, NOWHERE));
        let through = same((AT, THROUGH, THROUGH));
        let scrambled = same((AT, THROUGH, STREAMED));
        let table: [(Is, Option<u64>, (How, How)); 17] = [
            (Is::empty(), Some(PLACE), same((AT, &[], &[]))),
            (Is::UNKNOWN, None, nowhere),
            (Is::DELALLOC, None, nowhere),
            (Is::ENCODED, Some(PLACE), scrambled),
            (Is::ENCRYPTED, Some(PLACE), scrambled),
            (Is::NOT_ALIGNED, Some(PLACE), through),
            (Is::TAIL, Some(PLACE), through),
            // ext4 gives a place to what lies in an inode, btrfs none.
            (Is::INLINE, Some(PLACE), through),
            (Is::INLINE, None, nowhere),
            (Is::MERGED, Some(PLACE), same((AT, &[], &[]))),
            // What waits in memory may be put there, and may be other bytes than those that are shared now.
            (
                Is::UNWRITTEN,
                Some(PLACE),
                ((Part::Zeros, &[], &[]), (Part::Somewhere, &[Flags::UNMAPPED], &[Flags::UNMAPPED])),
            ),
            (Is::SHARED, Some(PLACE), ((AT, &[Flags::SHARED], &[Flags::SHARED]), (AT, &[], &[]))),
            (
                Is::SHARED | Is::UNWRITTEN,
                Some(PLACE),
                (
                    (Part::Zeros, &[Flags::SHARED], &[Flags::SHARED]),
                    (Part::Somewhere, &[Flags::UNMAPPED], &[Flags::UNMAPPED]),
                ),
            ),
            // Equal addresses of encoded bytes are no equal bytes.
            (Is::SHARED | Is::ENCODED, Some(PLACE), scrambled),
            (Is::SHARED | Is::ENCRYPTED, Some(PLACE), scrambled),
            (Is::SHARED | Is::TAIL, Some(PLACE), through),
            (Is::INLINE | Is::NOT_ALIGNED, Some(PLACE), through),
        ];
        let singles = table.iter().map(|row| row.0).filter(|flags| flags.bits().count_ones() == 1);
        assert_eq!(singles.collect::<Is>(), Is::all(), "each flag stands in the table by itself");
        for (flags, physical, (clean, dirty)) in table {
            for (is_clean, (part, in_file_mode, in_device_mode)) in [(true, clean), (false, dirty)] {
                for (device, how) in [(false, in_file_mode), (true, in_device_mode)] {
                    let expected = (part, all(how));
                    assert_eq!(
                        judged(flags, physical, is_clean, device),
                        expected,
                        "{flags:?} at {physical:?}, clean {is_clean}, device {device}"
                    );
                }
            }
        }
    }

    /// Nothing that extents say is believed when they make no sense, but that the bytes are none of a device.
    #[test]
    fn odd_extents_send_a_file_through_the_file_system() {
        for (kinds, device, streamed) in [
            (ExtentFlags::SHARED, false, false),
            (ExtentFlags::SHARED, true, false),
            (ExtentFlags::ENCODED, false, false),
            (ExtentFlags::ENCODED, true, true),
        ] {
            let flags = Seen { kinds, is_unmapped: false, is_odd: true }.flags(true, device);
            let mut expected = all(&[Flags::UNMAPPED, Flags::THROUGH_FILE_SYSTEM]);
            if streamed {
                expected.set(Flags::STREAMED);
            }
            assert_eq!(flags, expected, "{kinds:?}, device {device}");
        }
    }
}
