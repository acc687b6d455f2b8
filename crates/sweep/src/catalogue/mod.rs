//! All that is known of a tree while it is swept: names, attributes, fragments.
//!
//! It grows in chunks and holds at most 120 bytes and the name for each entry, and 16 bytes for each fragment.

mod arena;
mod entry;

use std::{
    collections::{HashMap, HashSet},
    ffi::{OsStr, OsString},
    ops::Range,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

pub(crate) use self::arena::NameAt;
use self::arena::{Chunked, Names, NamesMark};
pub(crate) use self::entry::{Entry, EntryId, Flags};
use onesweep_layout::tables;

use crate::{
    item::Marks,
    plan::{Fragment, NO_ADDRESS, Piece},
};

/// A file system that entries lie on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Volume {
    /// As in `st_dev`.
    pub(crate) dev: u64,
    /// The one that entries tell: in a snapshot, that of the original.
    pub(crate) shown_dev: u64,
    /// The unit of fragments, in bytes: the file system's block size.
    pub(crate) block: u32,
    /// Where the volume begins in the address order of its spindle, in bytes.
    pub(crate) base: u64,
    /// Of a file system that is not mounted: nothing of it can be opened, and all of it is known from its tables.
    pub(crate) image: Option<ImageFacts>,
}

impl Volume {
    /// Whether it is a further device of an image, with some of its files' content.
    pub(crate) fn is_beside_image(&self) -> bool {
        self.image.is_some() && self.dev != self.shown_dev
    }
}

/// What is special about a file system in an image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ImageFacts {
    /// Bytes of the units of packed files.
    pub(crate) unit: u32,
    /// It was not closed, and is read all the same.
    pub(crate) is_dirty: bool,
}

/// Where bytes of a file are others than on the device.
#[derive(Debug, Clone, Default)]
pub(crate) struct Amends {
    /// Read as zeros, whatever lies there: ends of blocks, and what was never written.
    pub(crate) zeros: Vec<Range<u64>>,
    /// Bytes that a journal has to keep in another form.
    pub(crate) stamps: Vec<(u64, [u8; 4])>,
}

impl Amends {
    fn bytes(&self) -> usize {
        self.zeros.len() * size_of::<Range<u64>>() + self.stamps.len() * size_of::<(u64, [u8; 4])>()
    }

    /// Makes `bytes`, which begin at `at` of their file, what they have to be.
    pub(crate) fn apply(&self, bytes: &mut [u8], at: u64) {
        let end = at + bytes.len() as u64;
        for range in &self.zeros {
            let (from, to) = (range.start.clamp(at, end), range.end.clamp(at, end));
            bytes[(from - at) as usize..(to - at) as usize].fill(0);
        }
        for (place, stamp) in &self.stamps {
            for (place, byte) in (*place..).zip(stamp) {
                if let Some(old) = place.checked_sub(at).and_then(|offset| bytes.get_mut(usize::try_from(offset).ok()?))
                {
                    *old = *byte;
                }
            }
        }
    }
}

/// What the tables of an image told of an entry, which nobody can ask again.
#[derive(Debug, Default)]
pub(crate) struct Extra {
    /// Content that lies among the metadata; of a symbolic link, its target.
    pub(crate) inline: Option<Vec<u8>>,
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    pub(crate) amends: Amends,
}

impl Extra {
    /// Bytes that it takes in the catalogue.
    pub(crate) fn bytes(&self) -> u64 {
        if self.inline.is_none() && self.xattrs.is_empty() && self.amends.bytes() == 0 {
            return 0;
        }
        let xattrs: usize = self.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
        (size_of::<Self>() + xattrs + self.inline.as_ref().map_or(0, Vec::len) + self.amends.bytes()) as u64
    }
}

/// How much a catalogue holds at some moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    entries: usize,
    names: NamesMark,
    extra_bytes: u64,
}

/// How much memory a plan keeps of a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CatalogueSize {
    /// Files, directories and all others.
    pub entries: u64,
    /// Bytes of their names.
    pub name_bytes: u64,
    /// Fragments of files.
    pub fragments: u64,
    /// Bytes of all of it.
    pub bytes: u64,
}

/// The catalogue of one spindle's tree, or of one window of it.
#[derive(Debug)]
pub(crate) struct Catalogue {
    entries: Chunked<Entry>,
    names: Names,
    fragments: Chunked<Fragment>,
    volumes: Vec<Volume>,
    /// Where to open the entries that have no parent.
    roots: HashMap<EntryId, PathBuf>,
    /// Those that a walk came to.
    met_roots: HashSet<EntryId>,
    extras: HashMap<EntryId, Extra>,
    extra_bytes: u64,
}

impl Catalogue {
    pub(crate) fn new() -> Self {
        Self {
            entries: Chunked::new(),
            names: Names::default(),
            fragments: Chunked::new(),
            volumes: Vec::new(),
            roots: HashMap::new(),
            met_roots: HashSet::new(),
            extras: HashMap::new(),
            extra_bytes: 0,
        }
    }

    /// An empty catalogue of the same volumes.
    pub(crate) fn like(other: &Self) -> Self {
        Self { volumes: other.volumes.clone(), ..Self::new() }
    }

    /// The number of a volume, which is added when it is new.
    pub(crate) fn volume_number(&mut self, volume: Volume) -> u16 {
        let at = self.volumes.iter().position(|known| known.dev == volume.dev).unwrap_or_else(|| {
            self.volumes.push(volume);
            self.volumes.len() - 1
        });
        u16::try_from(at).expect("one spindle has fewer than 65,536 file systems mounted")
    }

    pub(crate) fn volume_numbers(&self) -> Range<u16> {
        0..self.volumes.len() as u16
    }

    pub(crate) fn find_volume(&self, dev: u64) -> Option<u16> {
        self.volumes.iter().position(|known| known.dev == dev).map(|at| at as u16)
    }

    pub(crate) fn volume(&self, number: u16) -> Volume {
        self.volumes[usize::from(number)]
    }

    pub(crate) fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    /// What is in it.
    pub(crate) fn size(&self) -> CatalogueSize {
        CatalogueSize {
            entries: self.entries.len() as u64,
            name_bytes: self.names.bytes(),
            fragments: self.fragments.len() as u64,
            bytes: self.bytes(),
        }
    }

    /// Bytes in use.
    pub(crate) fn bytes(&self) -> u64 {
        self.entries.bytes() + self.names.bytes() + self.fragments.bytes() + self.extra_bytes
    }

    /// Adds an entry as its directory lists it. `None` when the catalogue can hold no more names.
    pub(crate) fn add(&mut self, parent: EntryId, name: &[u8], ino: u64, volume: u16, mode: u32) -> Option<EntryId> {
        if self.len() == EntryId::NONE.0 {
            return None;
        }
        let at = self.names.push(name)?;
        let id = EntryId(self.len());
        self.entries.push(Entry::listed(parent, at, u16::try_from(name.len()).ok()?, ino, volume, mode));
        Some(id)
    }

    /// Adds an entry without a parent. `shown` is how its path begins, `opened` where it is opened.
    pub(crate) fn add_root(
        &mut self,
        shown: &[u8],
        opened: PathBuf,
        volume: u16,
        mode: u32,
        ino: u64,
    ) -> Option<EntryId> {
        let id = self.add(EntryId::NONE, shown, ino, volume, mode)?;
        self.roots.insert(id, opened);
        Some(id)
    }

    /// Adds an inode of an image, which has no name yet. `None` when the catalogue can hold no more.
    pub(crate) fn add_inode(&mut self, volume: u16, inode: &tables::Inode) -> Option<EntryId> {
        let id = self.add(EntryId::NONE, b"", inode.number, volume, inode.mode)?;
        self.get_mut(id).learn_from_tables(inode);
        Some(id)
    }

    /// Keeps what can't be asked for again.
    pub(crate) fn add_extra(&mut self, id: EntryId, extra: Extra) {
        let bytes = extra.bytes();
        if bytes > 0 {
            self.extra_bytes += bytes;
            self.extras.insert(id, extra);
        }
    }

    /// What was kept of an entry of an image.
    pub(crate) fn extra(&self, id: EntryId) -> Option<&Extra> {
        self.extras.get(&id)
    }

    /// How much is there now.
    pub(crate) fn mark(&self) -> Mark {
        Mark { entries: self.entries.len(), names: self.names.mark(), extra_bytes: self.extra_bytes }
    }

    /// Forgets what was added since, and all fragments.
    pub(crate) fn return_to(&mut self, mark: &Mark) {
        self.entries.truncate(mark.entries);
        self.names.return_to(mark.names);
        self.extras.retain(|id, _| (id.0 as usize) < mark.entries);
        self.extra_bytes = mark.extra_bytes;
        self.fragments.clear();
    }

    /// Keeps a name that will get its place later. `None` when there is no room.
    pub(crate) fn keep_name(&mut self, name: &[u8]) -> Option<NameAt> {
        self.names.push(name)
    }

    pub(crate) fn name_at(&self, at: NameAt, len: u16) -> &[u8] {
        self.names.get(at, len)
    }

    /// Makes an inode of an image a root. False when there is no room for its name.
    pub(crate) fn name_root(&mut self, id: EntryId, shown: &[u8]) -> bool {
        let (Some(at), Ok(len)) = (self.names.push(shown), u16::try_from(shown.len())) else { return false };
        self.place(id, EntryId::NONE, at, len);
        true
    }

    /// Gives an inode of an image its first name.
    pub(crate) fn place(&mut self, id: EntryId, parent: EntryId, name: NameAt, name_len: u16) {
        let entry = self.get_mut(id);
        (entry.parent, entry.name, entry.name_len) = (parent, name, name_len);
    }

    /// Gives an inode of an image a further name. False when the catalogue can hold no more.
    pub(crate) fn add_link(&mut self, id: EntryId, parent: EntryId, name: NameAt, name_len: u16) -> bool {
        if self.len() == EntryId::NONE.0 {
            return false;
        }
        let link = EntryId(self.len());
        let entry = self.get(id);
        let further = Entry { parent, name, name_len, first_fragment: 0, fragments: 0, ..entry };
        self.entries.push(further);
        self.get_mut(id).next_link = link;
        true
    }

    /// A root that a walk came to: whoever owns a directory above it may put something else in its place.
    pub(crate) fn mark_met(&mut self, root: EntryId) {
        self.met_roots.insert(root);
    }

    /// What must stand where a root is opened (device and inode), where anything else may.
    pub(crate) fn root_identity(&self, root: EntryId) -> Option<(u64, u64)> {
        let entry = self.get(root);
        self.met_roots.contains(&root).then(|| (self.volume(entry.device).dev, entry.ino))
    }

    /// Copies an entry and what leads to it from another catalogue, but for what `moved` says is here already.
    pub(crate) fn adopt(&mut self, other: &Self, id: EntryId, moved: &mut HashMap<EntryId, EntryId>) {
        let missing: Vec<EntryId> = other.lineage(id).take_while(|id| !moved.contains_key(id)).collect();
        for &id in missing.iter().rev() {
            let entry = other.get(id);
            let parent = entry.parent.some().map_or(EntryId::NONE, |parent| moved[&parent]);
            let name = self.names.push(other.name(id)).expect("the names of a smaller catalogue fit");
            let here = EntryId(self.len());
            self.entries.push(Entry {
                parent,
                name,
                next_link: EntryId::NONE,
                first_fragment: 0,
                fragments: 0,
                ..entry
            });
            if let Some(opened) = other.roots.get(&id) {
                self.roots.insert(here, opened.clone());
            }
            if other.met_roots.contains(&id) {
                self.met_roots.insert(here);
            }
            moved.insert(id, here);
        }
    }

    pub(crate) fn get(&self, id: EntryId) -> Entry {
        self.entries.get(id.0 as usize)
    }

    pub(crate) fn get_mut(&mut self, id: EntryId) -> &mut Entry {
        self.entries.get_mut(id.0 as usize)
    }

    pub(crate) fn name(&self, id: EntryId) -> &[u8] {
        let entry = self.get(id);
        self.names.get(entry.name, entry.name_len)
    }

    /// Where a root is opened.
    pub(crate) fn root(&self, id: EntryId) -> &Path {
        &self.roots[&id]
    }

    /// Where an entry can be opened from outside of the catalogue.
    pub(crate) fn opened_path(&self, id: EntryId) -> PathBuf {
        let lineage: Vec<EntryId> = self.lineage(id).collect();
        let Some((&root, below)) = lineage.split_last() else { return PathBuf::new() };
        let mut path = self.root(root).to_path_buf();
        path.extend(below.iter().rev().map(|&id| OsStr::from_bytes(self.name(id))));
        path
    }

    /// The entry and its ancestors, from itself up to its root.
    pub(crate) fn lineage(&self, id: EntryId) -> impl Iterator<Item = EntryId> {
        std::iter::successors(Some(id), |&id| self.get(id).parent.some())
    }

    /// The path as it is shown and delivered.
    pub(crate) fn path(&self, id: EntryId) -> PathBuf {
        PathBuf::from(OsString::from_vec(self.path_bytes(id)))
    }

    pub(crate) fn path_bytes(&self, id: EntryId) -> Vec<u8> {
        let longest: usize = self.lineage(id).map(|id| self.name(id).len() + 1).sum();
        // From its end, so that nothing but itself has to be allocated for each file that is handed over.
        let mut path = vec![0; longest];
        let mut at = longest;
        for id in self.lineage(id) {
            let name = self.name(id);
            if at < longest && !name.is_empty() && name.last() != Some(&b'/') {
                at -= 1;
                path[at] = b'/';
            }
            at -= name.len();
            path[at..at + name.len()].copy_from_slice(name);
        }
        path.drain(..at);
        path
    }

    /// All names of an inode: the entry's own and those chained to it.
    pub(crate) fn links(&self, id: EntryId) -> impl Iterator<Item = EntryId> {
        std::iter::successors(Some(id), |&id| self.get(id).next_link.some())
    }

    /// Keeps a fragment of the entry; all of one entry's must be added in a row. False when it is out of the range of
    /// a packed fragment.
    pub(crate) fn add_fragment(&mut self, id: EntryId, address: Option<u64>, offset: u64, length: u64) -> bool {
        let volume = self.volume(self.get(id).device);
        let block = u64::from(volume.block);
        let (first, end) = (offset / block, (offset + length).div_ceil(block));
        let (Ok(offset), Ok(length)) = (u32::try_from(first), u32::try_from(end - first)) else {
            return false;
        };
        let at = self.fragments.len() as u32;
        let address = address.map_or(NO_ADDRESS, |address| volume.base + address);
        self.fragments.push(Fragment::new(address, length, offset));
        let entry = self.get_mut(id);
        if entry.fragments == 0 {
            entry.first_fragment = at;
        }
        entry.fragments += 1;
        true
    }

    /// Leaves an entry without fragments.
    pub(crate) fn forget_fragments(&mut self, id: EntryId) {
        self.get_mut(id).fragments = 0;
    }

    pub(crate) fn drop_fragments(&mut self) {
        self.fragments.clear();
    }

    /// The fragments of an entry, in the order of the file.
    pub(crate) fn fragments(&self, id: EntryId) -> impl Iterator<Item = Fragment> {
        let entry = self.get(id);
        let first = entry.first_fragment as usize;
        (first..first + entry.fragments as usize).map(|at| self.fragments.get(at))
    }

    /// The fragments of an entry in bytes; `file` is the number that the pieces carry.
    pub(crate) fn pieces(&self, id: EntryId, file: u32) -> impl Iterator<Item = Piece> {
        let entry = self.get(id);
        let block = self.volume(entry.device).block;
        let shared = entry.flags.has(Flags::SHARED);
        self.fragments(id).map(move |fragment| fragment.piece(file, block, shared))
    }

    /// The device address of the first block of an entry, if it has any.
    pub(crate) fn first_block_address(&self, id: EntryId) -> Option<u64> {
        self.fragments(id).map(|fragment| fragment.address()).find(|&address| address != NO_ADDRESS)
    }

    /// The lowest device address of an entry, if it has any.
    pub(crate) fn lowest_address(&self, id: EntryId) -> Option<u64> {
        self.fragments(id).map(|fragment| fragment.address()).min().filter(|&address| address != NO_ADDRESS)
    }

    /// The ranges of the content that are no holes; the whole content where nothing is mapped.
    pub(crate) fn data_ranges(&self, id: EntryId) -> Vec<Range<u64>> {
        let entry = self.get(id);
        let (block, unit) = (u64::from(self.volume(entry.device).block), self.unit(&entry));
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for fragment in self.fragments(id) {
            let start = u64::from(fragment.offset()) * block;
            let end = (start + u64::from(fragment.length()) * block).next_multiple_of(unit).min(entry.size);
            let start = start / unit * unit;
            match ranges.last_mut() {
                Some(last) if last.end >= start => last.end = last.end.max(end),
                _ => ranges.push(start..end),
            }
        }
        ranges
    }

    /// Bytes of memory that the content takes: whole blocks, or whole units of what is packed.
    pub(crate) fn cost(&self, id: EntryId) -> u64 {
        let entry = self.get(id);
        entry.size.next_multiple_of(self.unit(&entry))
    }

    /// Bytes of the unit in which an entry is packed; of others, of a block.
    fn unit(&self, entry: &Entry) -> u64 {
        let volume = self.volume(entry.device);
        let packed = volume.image.filter(|_| entry.flags.has(Flags::PACKED)).map(|image| image.unit);
        packed.unwrap_or(volume.block).into()
    }

    /// What is to be known of an entry before it is believed.
    pub(crate) fn marks(&self, id: EntryId) -> Marks {
        let entry = self.get(id);
        let is_dirty = self.volume(entry.device).image.is_some_and(|image| image.is_dirty);
        Marks { dirty: is_dirty, encrypted: entry.flags.has(Flags::ENCRYPTED) }
    }

    /// Bytes of the unit in which an entry is packed, if it is.
    pub(crate) fn packed_unit(&self, id: EntryId) -> Option<u64> {
        let entry = self.get(id);
        entry.flags.has(Flags::PACKED).then(|| self.unit(&entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_what_they_have_to_be() {
        let amends = Amends { zeros: vec![2..4, 7..100], stamps: vec![(4, *b"abcd")] };
        for (at, expected) in [(0, *b"xx\0\0ab"), (3, *b"\0abcd\0"), (20, [0; 6]), (200, [b'x'; 6])] {
            let mut bytes = [b'x'; 6];
            amends.apply(&mut bytes, at);
            // Of the stamp at 4, what lies behind 7 goes over the zeros.
            assert_eq!(bytes, expected, "{at}");
        }
    }

    #[test]
    fn what_came_after_a_mark_is_forgotten() {
        let mut catalogue = Catalogue::new();
        let volume = catalogue.volume_number(Volume { dev: 1, shown_dev: 1, block: 4096, base: 0, image: None });
        let name = |number: u32| format!("a name of some length {number}");
        let add = |catalogue: &mut Catalogue, numbers: Range<u32>| {
            for number in numbers {
                let id = catalogue.add(EntryId::NONE, name(number).as_bytes(), 7, volume, 0).unwrap();
                catalogue.add_extra(id, Extra { inline: Some(vec![1; 10]), ..Extra::default() });
                assert!(catalogue.add_fragment(id, Some(4096), 0, 10));
            }
        };
        add(&mut catalogue, 0..20_000);
        let (mark, bytes) = (catalogue.mark(), catalogue.bytes() - catalogue.fragments.bytes());
        for _ in 0..3 {
            add(&mut catalogue, 20_000..50_000);
            catalogue.return_to(&mark);
            assert_eq!((catalogue.len(), catalogue.bytes()), (20_000, bytes));
            assert!((0..20_000).all(|id| catalogue.name(EntryId(id)) == name(id).as_bytes()));
        }
        assert!(catalogue.extra(EntryId(19_999)).is_some() && catalogue.extra(EntryId(20_000)).is_none());
    }
}
