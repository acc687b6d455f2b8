//! What tables tell, taken into a catalogue: inodes get entries without names, and names wait for their places.

use std::{collections::HashMap, ops::ControlFlow, ops::Range};

use onesweep_layout::{
    Extent, ExtentFlags,
    tables::{Found, Inode, InodeFlags, Moved, Name, TableError, spans::Spans},
};

use crate::{
    catalogue::{Amends, Catalogue, Entry, EntryId, Extra, Flags, NameAt},
    item::Kind,
    plan::Fragment,
    progress::Cancel,
};

/// Problems that are told one by one; of a badly damaged file system there may be millions.
const PROBLEMS_MAX: usize = 1000;

/// Larger units of packed files are made by nobody, and each is in memory as a whole.
const UNIT_MAX: u32 = 1 << 20;

/// A name that was told, until it has its place.
#[derive(Debug, Clone, Copy)]
pub(super) struct NameOf {
    pub(super) directory: u64,
    pub(super) inode: u64,
    pub(super) at: NameAt,
    pub(super) len: u16,
}

/// Bytes of a name without its text, and of an inode, beside the catalogue.
const NAME_BYTES: u64 = size_of::<NameOf>() as u64;
pub(super) const INODE_BYTES: u64 = 24;

/// What is taken of what is told.
#[derive(Debug, Clone)]
pub(super) enum Take<'a> {
    /// Everything, unless it is more than so many bytes.
    All(u64),
    /// Directories without their names. Everything else is measured.
    Directories,
    /// The names of these inodes.
    NamesOf(&'a HashMap<u64, EntryId>),
    /// What is no directory and has its number in a range, with all its names.
    Range(&'a Range<u64>, &'a HashMap<u64, EntryId>),
    /// The number of what this directory gives this name.
    Named(u64, &'a [u8]),
}

/// What was taken.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) by_inode: HashMap<u64, EntryId>,
    pub(super) names: Vec<NameOf>,
    pub(super) spans: Spans,
    pub(super) problems: Vec<TableError>,
    pub(super) problems_met: u64,
    /// It is not all, since there is no room.
    pub(super) full: bool,
    /// What was asked for by its name.
    pub(super) named: Option<u64>,
}

impl Gathered {
    pub(super) fn note(&mut self, problem: TableError) {
        self.problems_met += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }
}

/// A device on which content lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct On {
    pub(super) volume: u16,
    /// Where the file system begins in it.
    pub(super) start: u64,
}

/// How an image is to be understood.
#[derive(Debug, Clone, Copy)]
pub(super) struct Traits<'a> {
    pub(super) own: On,
    /// Where the content is of inodes that have it elsewhere, as far as that is here.
    pub(super) elsewhere: Option<On>,
    pub(super) block: u64,
    /// Bytes of a unit of packed files.
    pub(super) unit: u32,
    pub(super) moved: &'a [Moved],
    /// Encrypted content is delivered as it lies there, in the form in which ntfs-3g takes it back (`efs_raw`).
    pub(super) is_encrypted_content_told: bool,
}

pub(super) struct Gatherer<'a> {
    pub(super) catalogue: &'a mut Catalogue,
    pub(super) traits: Traits<'a>,
    pub(super) take: Take<'a>,
    pub(super) cancel: &'a Cancel,
    pub(super) found: Gathered,
}

impl Gatherer<'_> {
    fn go_on(&mut self) -> ControlFlow<()> {
        if let Take::All(limit) = self.take {
            let (names, inodes) = (self.found.names.len() as u64, self.found.by_inode.len() as u64);
            self.found.full |= self.catalogue.bytes() + names * NAME_BYTES + inodes * INODE_BYTES > limit;
        }
        let over = self.found.full || self.cancel.is_cancelled();
        if over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn is_taken(&self, inode: &Inode) -> bool {
        let is_directory = Kind::of_mode(inode.mode) == Some(Kind::Directory);
        match self.take {
            Take::All(_) => true,
            Take::Directories => is_directory,
            Take::Range(range, _) => !is_directory && range.contains(&inode.number),
            Take::NamesOf(_) | Take::Named(..) => false,
        }
    }

    fn is_name_taken(&self, name: &Name<'_>) -> bool {
        match self.take {
            Take::All(_) => true,
            Take::Directories | Take::Named(..) => false,
            Take::NamesOf(inodes) => inodes.contains_key(&name.inode),
            Take::Range(range, directories) => range.contains(&name.inode) && !directories.contains_key(&name.inode),
        }
    }

    /// Adds the fragments of a file; tells what of them is to be changed when it was read.
    fn place(&mut self, id: EntryId, inode: &Inode) -> Amends {
        let is_packed = inode.extents.iter().any(|extent| extent.flags.contains(ExtentFlags::ENCODED));
        if is_packed && (1..=UNIT_MAX).contains(&self.traits.unit) {
            return self.place_packed(id, inode);
        }
        let mut amends = Amends::default();
        for extent in inode.extents.iter().filter(|extent| !extent.is_zeros()) {
            let length = extent.length.min(inode.size.saturating_sub(extent.logical));
            let end = extent.logical + length;
            let block_end = end.next_multiple_of(self.traits.block).min(inode.size);
            if end < block_end {
                // Fragments are whole blocks, and behind what was written lies anything.
                amends.zeros.push(end..block_end);
            }
            if length == 0 {
                continue;
            }
            let strange = ExtentFlags::ENCODED | ExtentFlags::UNKNOWN | ExtentFlags::DELALLOC;
            match extent.physical.filter(|_| !extent.flags.intersects(strange)) {
                Some(physical) => self.add(id, physical, extent.logical, length, &mut amends),
                None => self.fail(id),
            }
        }
        amends
    }

    /// Lengthens an encrypted file to the whole blocks of its cipher, and by two bytes for how many bytes of these are no
    /// content, which are to be put at its end.
    fn padding_of_encrypted(&self, inode: &mut Inode) -> Option<(u64, [u8; 4])> {
        const CIPHER_BYTES: u64 = 512;
        let is_file = Kind::of_mode(inode.mode) == Some(Kind::File);
        let is_raw = self.traits.is_encrypted_content_told && inode.flags.contains(InodeFlags::ENCRYPTED);
        if !is_raw || !is_file || inode.inline.is_some() || inode.size == 0 {
            return None;
        }
        let end = inode.size.checked_next_multiple_of(CIPHER_BYTES)?;
        let [low, high, ..] = (end - inode.size).to_le_bytes();
        inode.size = end.checked_add(2)?;
        // The last two lie behind the end.
        Some((end, [low, high, 0, 0]))
    }

    /// Adds a run where its bytes are, which a journal may know better.
    fn add(&mut self, id: EntryId, physical: u64, logical: u64, length: u64, amends: &mut Amends) {
        let end = physical + length;
        let first = self.traits.moved.partition_point(|moved| moved.from + moved.length <= physical);
        let mut at = physical;
        for moved in self.traits.moved[first..].iter().take_while(|moved| moved.from < end) {
            if at < moved.from {
                self.add_run(id, at, logical + (at - physical), moved.from - at);
            }
            let start = moved.from.max(at);
            let stop = end.min(moved.from + moved.length);
            self.add_run(id, moved.to + (start - moved.from), logical + (start - physical), stop - start);
            if let Some(bytes) = moved.first_bytes.filter(|_| start == moved.from) {
                amends.stamps.push((logical + (start - physical), bytes));
            }
            at = stop;
        }
        if at < end {
            self.add_run(id, at, logical + (at - physical), end - at);
        }
    }

    fn add_run(&mut self, id: EntryId, physical: u64, logical: u64, length: u64) {
        let volume = self.catalogue.get(id).device;
        let on = self.traits.elsewhere.filter(|on| on.volume == volume).unwrap_or(self.traits.own);
        if !self.catalogue.add_fragment(id, Some(on.start + physical), logical, length) {
            self.fail(id);
        }
    }

    fn fail(&mut self, id: EntryId) {
        self.catalogue.get_mut(id).flags.set(Flags::UNREADABLE);
    }

    /// The same for a file that is packed unit by unit: what lies on the device are whole clusters.
    fn place_packed(&mut self, id: EntryId, inode: &Inode) -> Amends {
        self.catalogue.get_mut(id).flags.set(Flags::PACKED);
        let end = inode.size.next_multiple_of(self.traits.unit.into());
        let mut run: Option<Extent> = None;
        for extent in &inode.extents {
            if extent.physical.is_none() {
                self.fail(id);
            }
            // What was never written begins anywhere in a cluster.
            match &mut run {
                Some(run) if run.logical_end() == extent.logical && run.physical_end() == extent.physical => {
                    run.length += extent.length;
                }
                _ => {
                    self.add_packed(id, run.take(), end);
                    run = Some(*extent);
                }
            }
        }
        self.add_packed(id, run, end);
        let unwritten = inode.extents.iter().find(|extent| extent.is_zeros());
        let zeros = unwritten.filter(|extent| extent.logical < inode.size).map(|extent| extent.logical..inode.size);
        Amends { zeros: zeros.into_iter().collect(), ..Amends::default() }
    }

    /// Adds a run as far as the last unit goes.
    fn add_packed(&mut self, id: EntryId, run: Option<Extent>, end: u64) {
        if let Some(Extent { logical, physical: Some(physical), length, .. }) = run
            && logical < end
        {
            self.add_run(id, physical, logical, length.min(end - logical));
        }
    }
}

/// About what an inode will take, by the bytes of a catalogue.
fn cost(inode: &Inode) -> u64 {
    let entry = size_of::<Entry>() as u64 + INODE_BYTES;
    let further = u64::from(inode.links.saturating_sub(1)).min(1 << 16);
    let extra = Extra { inline: None, xattrs: Vec::new(), amends: Amends::default() }.bytes();
    let inline = inode.inline.as_ref().map_or(0, Vec::len);
    let xattrs: usize = inode.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
    let beside = if inline + xattrs > 0 { size_of::<Extra>() + inline + xattrs } else { 0 };
    entry * (1 + further) + extra + beside as u64 + (inode.extents.len() * size_of::<Fragment>()) as u64
}

impl Found for Gatherer<'_> {
    fn inode(&mut self, mut inode: Inode) -> ControlFlow<()> {
        if !self.is_taken(&inode) {
            if let Take::Directories = self.take {
                self.found.spans.add(inode.number, cost(&inode));
            }
            return self.go_on();
        }
        let padding = self.padding_of_encrypted(&mut inode);
        let is_elsewhere = inode.flags.contains(InodeFlags::ELSEWHERE);
        let on = self.traits.elsewhere.filter(|_| is_elsewhere).unwrap_or(self.traits.own);
        let Some(id) = self.catalogue.add_inode(on.volume, &inode) else {
            self.found.full = true;
            return ControlFlow::Break(());
        };
        self.found.by_inode.insert(inode.number, id);
        let is_file = self.catalogue.get(id).is_file();
        let mut amends = if is_file && inode.inline.is_none() { self.place(id, &inode) } else { Amends::default() };
        amends.stamps.extend(padding);
        if is_file && inode.inline.is_none() && is_elsewhere && self.traits.elsewhere.is_none() {
            self.catalogue.get_mut(id).flags.set(Flags::ELSEWHERE);
            self.fail(id);
        }
        if inode.flags.contains(InodeFlags::COMPRESSED) && !inode.extents.is_empty() && is_file {
            // Of a kind that is not known.
            if !self.catalogue.get(id).flags.has(Flags::PACKED) {
                self.fail(id);
            }
        }
        if is_file && inode.flags.contains(InodeFlags::ENCRYPTED) {
            self.catalogue.get_mut(id).flags.set(Flags::ENCRYPTED);
            if !self.traits.is_encrypted_content_told {
                self.fail(id);
            }
        }
        if inode.flags.contains(InodeFlags::UNKNOWN_REPARSE) {
            self.catalogue.get_mut(id).flags.set(Flags::UNKNOWN_REPARSE);
        }
        self.catalogue.add_extra(id, Extra { inline: inode.inline, xattrs: inode.xattrs, amends });
        self.go_on()
    }

    fn name(&mut self, name: Name<'_>) -> ControlFlow<()> {
        if let Take::Named(directory, wanted) = self.take
            && (name.directory, name.name) == (directory, wanted)
        {
            self.found.named = Some(name.inode);
            return ControlFlow::Break(());
        }
        if !self.is_name_taken(&name) {
            if let Take::Directories = self.take {
                self.found.spans.add(name.inode, NAME_BYTES + name.name.len() as u64);
            }
            return self.go_on();
        }
        let (Ok(len), Some(at)) = (u16::try_from(name.name.len()), self.catalogue.keep_name(name.name)) else {
            self.found.full = true;
            return ControlFlow::Break(());
        };
        self.found.names.push(NameOf { directory: name.directory, inode: name.inode, at, len });
        self.go_on()
    }

    fn incomplete(&mut self, _: Option<u64>) {}

    fn problem(&mut self, problem: TableError) -> ControlFlow<()> {
        self.found.note(problem);
        self.go_on()
    }
}
