//! Files, and operations on them.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use onesweep_relocate::dfs::{Block, DomainId, Domains, FileId};

use super::books::Books;
use super::cache::Cache;
use super::disk::Disk;
use super::inodes::Inodes;
use super::read_ahead::{REQUEST_MOST, Sequence, ahead, requests};
use super::score::Score;
use super::shape::Shape;
use super::space::Space;
use super::wish::{DIRECT, wish};
use crate::disk::model::DiskModel;

/// Writes that the driver puts in order when memory is short.
const QUEUE: usize = 64;

/// How DFS is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Relocation {
    /// Blocks of a target region.
    pub(crate) region: u32,
    /// Whether a region may begin before the block that is flushed. In the paper it never does.
    pub(crate) around: bool,
}

/// A file system to be made.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) shape: Shape,
    pub(crate) cache_blocks: usize,
    pub(crate) model: DiskModel,
    /// Whether a new file's blocks are put into one run wherever there is one, as 4.4BSD's reallocblks does for files that
    /// are written at once.
    pub(crate) reallocates: bool,
    /// FFS alone when there is none.
    pub(crate) relocation: Option<Relocation>,
}

/// What was written to a block: which block of which file, and how often that was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Stamp {
    file: u32,
    logical: u32,
    version: u32,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    Data { file: usize, logical: u32, stamp: Stamp },
    Metadata,
}

/// A block in memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) what: What,
    pub(super) dirty: bool,
}

#[derive(Debug)]
pub(super) struct File {
    directory: usize,
    /// Its place in the directory.
    entry: usize,
    pub(super) inode: u32,
    pub(super) places: Vec<Block>,
    versions: Vec<u32>,
    pub(super) indirect: Option<Block>,
    /// How many of its blocks are in memory.
    cached: u32,
}

#[derive(Debug)]
struct Directory {
    inode: u32,
    entries: Vec<Option<usize>>,
    free: BinaryHeap<Reverse<usize>>,
}

/// Files of one size, read.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Readings {
    pub(crate) files: u64,
    pub(crate) blocks: u64,
    pub(crate) ms: f64,
}

#[derive(Debug)]
pub(crate) struct FileSystem {
    pub(super) shape: Shape,
    pub(super) space: Space,
    inodes: Inodes,
    directories: Vec<Directory>,
    /// By their numbers; those that were removed have no blocks.
    pub(super) files: Vec<File>,
    pub(super) cache: Cache<Held>,
    cache_blocks: usize,
    pub(super) disk: Disk,
    /// What lies on the disk.
    pub(super) medium: Vec<Stamp>,
    pub(super) reallocates: bool,
    pub(super) relocation: Option<Relocation>,
    pub(super) domains: Domains,
    pub(super) books: Books,
}

impl FileSystem {
    pub(crate) fn new(settings: &Settings) -> Self {
        let shape = settings.shape;
        Self {
            space: Space::new(shape),
            inodes: Inodes::new(shape),
            directories: Vec::new(),
            files: Vec::new(),
            cache: Cache::new(shape.blocks()),
            cache_blocks: settings.cache_blocks,
            disk: Disk::new(settings.model.clone(), shape),
            medium: vec![Stamp::default(); shape.blocks() as usize],
            reallocates: settings.reallocates,
            relocation: settings.relocation,
            domains: Domains::new(),
            books: Books::default(),
            shape,
        }
    }

    pub(crate) fn books(&self) -> Books {
        self.books
    }

    /// What programs have waited for so far.
    pub(crate) fn foreground_ms(&self) -> f64 {
        self.disk.foreground_ms()
    }

    /// The share of blocks that files may have and that are used.
    pub(crate) fn used(&self) -> f64 {
        let all = (0..self.shape.group_blocks.into()).filter(|block| !self.shape.is_fixed(*block)).count() as u64
            * u64::from(self.shape.groups);
        1.0 - self.space.free_blocks() as f64 / all as f64
    }

    /// A directory. What it holds itself is no part of the model.
    pub(crate) fn make_directory(&mut self) -> Result<usize, String> {
        let inode = self.inodes.take_for_directory().ok_or("no inode is left")?;
        self.use_metadata(self.shape.block_of_inode(inode), true);
        self.directories.push(Directory { inode, entries: Vec::new(), free: BinaryHeap::new() });
        Ok(self.directories.len() - 1)
    }

    /// Makes a file and writes it.
    pub(crate) fn create(&mut self, directory: usize, blocks: u32) -> Result<usize, String> {
        let home = self.shape.group_of_inode(self.directories[directory].inode);
        let inode = self.inodes.take(home).ok_or("no inode is left")?;
        let (places, indirect) = self.allocate(inode, blocks)?;
        let number = self.files.len();
        let listed = &mut self.directories[directory];
        let entry = listed.free.pop().map_or(listed.entries.len(), |entry| entry.0);
        if entry == listed.entries.len() {
            listed.entries.push(None);
        }
        listed.entries[entry] = Some(number);
        let versions = vec![1; places.len()];
        self.files.push(File { directory, entry, inode, places, versions, indirect, cached: 0 });
        self.use_metadata(self.shape.block_of_inode(inode), true);
        if let Some(indirect) = indirect {
            self.cache.insert(indirect, Held { what: What::Metadata, dirty: true });
        }
        self.use_maps(number);
        for logical in 0..blocks {
            self.load(number, logical, true);
            self.disk.think();
            self.shrink()?;
        }
        Ok(number)
    }

    fn allocate(&mut self, inode: u32, blocks: u32) -> Result<(Vec<Block>, Option<Block>), String> {
        let full = "the file system is full";
        let (mut places, mut indirect) = (Vec::with_capacity(blocks as usize), None);
        for logical in 0..blocks as usize {
            let place = wish(self.shape, &self.space, inode, &places);
            if logical == DIRECT {
                indirect = Some(self.space.allocate(place).ok_or(full)?);
            }
            places.push(self.space.allocate(place).ok_or(full)?);
        }
        if self.reallocates {
            let (direct, rest) = places.split_at_mut(DIRECT.min(blocks as usize));
            for window in std::iter::once(direct).chain(rest.chunks_mut(REQUEST_MOST as usize)) {
                self.reallocate(window);
            }
        }
        Ok((places, indirect))
    }

    /// Puts a window of a new file into one run, where there is one.
    fn reallocate(&mut self, window: &mut [Block]) {
        if Score::of(window).share() < 1.0
            && let Some(start) = self.space.run(window[0], window.len() as u32)
        {
            for (place, to) in window.iter_mut().zip(start..) {
                self.space.take(to);
                self.space.release(std::mem::replace(place, to));
            }
        }
    }

    /// The maps of all groups that hold blocks of the file change.
    fn use_maps(&mut self, file: usize) {
        let mut groups: Vec<u32> = self.files[file].places.iter().map(|place| self.shape.group_of(*place)).collect();
        groups.sort_unstable();
        groups.dedup();
        for group in groups {
            self.use_metadata(self.shape.maps(group), true);
        }
    }

    /// Reads a file from its beginning to its end.
    pub(crate) fn read(&mut self, file: usize) -> Result<(), String> {
        self.pass(file, false)
    }

    /// Writes over a file. What of it isn't in memory is read before, as in the paper (5.5).
    pub(crate) fn overwrite(&mut self, file: usize) -> Result<(), String> {
        self.pass(file, true)
    }

    fn pass(&mut self, file: usize, writes: bool) -> Result<(), String> {
        // The time of the last access or change.
        self.use_metadata(self.shape.block_of_inode(self.files[file].inode), true);
        let (mut sequence, mut first) = (Sequence::default(), 0);
        for logical in 0..self.files[file].places.len() as u32 {
            if logical as usize == DIRECT
                && let Some(indirect) = self.files[file].indirect
            {
                self.use_metadata(indirect, false);
            }
            let is_cached = |logical: u32| self.is_cached(file, logical);
            let places = &self.files[file].places;
            let mut wanted = requests(places, logical..logical + 1, is_cached);
            let count = sequence.access(logical);
            let known = first.max(logical + 1);
            first = (known..places.len() as u32).find(|next| !is_cached(*next)).unwrap_or(places.len() as u32);
            wanted.extend(requests(places, ahead(places, first, count), is_cached));
            for request in wanted {
                self.bring(file, request)?;
            }
            let place = self.files[file].places[logical as usize];
            self.cache.touch(place);
            if writes {
                self.write(file, logical);
            }
            self.disk.think();
            self.shrink()?;
        }
        Ok(())
    }

    fn is_cached(&self, file: usize, logical: u32) -> bool {
        self.cache.get(self.files[file].places[logical as usize]).is_some()
    }

    /// Reads blocks of a file that lie in one piece.
    fn bring(&mut self, file: usize, blocks: std::ops::Range<u32>) -> Result<(), String> {
        self.disk.read(self.files[file].places[blocks.start as usize], blocks.end - blocks.start);
        for logical in blocks {
            self.check_on_medium(file, logical)?;
            self.load(file, logical, false);
        }
        Ok(())
    }

    fn stamp(&self, file: usize, logical: u32) -> Stamp {
        Stamp { file: file as u32, logical, version: self.files[file].versions[logical as usize] }
    }

    fn check_on_medium(&self, file: usize, logical: u32) -> Result<(), String> {
        let place = self.files[file].places[logical as usize];
        let (found, wanted) = (self.medium[place as usize], self.stamp(file, logical));
        if found == wanted {
            return Ok(());
        }
        Err(format!("block {logical} of file {file} is lost: at {place} lies {found:?}, not {wanted:?}"))
    }

    /// Takes a block that was read or made into memory.
    fn load(&mut self, file: usize, logical: u32, dirty: bool) {
        let stamp = self.stamp(file, logical);
        let place = self.files[file].places[logical as usize];
        self.cache.insert(place, Held { what: What::Data { file, logical, stamp }, dirty });
        let inode = &mut self.files[file];
        inode.cached += 1;
        if self.relocation.is_none() {
            return;
        }
        let id = FileId(file as u64);
        if inode.cached == 1 {
            let places = inode.places.iter().copied().map(Some).collect();
            self.domains.open(DomainId(inode.directory as u64), id, places);
        }
        self.domains.load(id, logical, place);
    }

    fn write(&mut self, file: usize, logical: u32) {
        self.files[file].versions[logical as usize] += 1;
        let now = self.stamp(file, logical);
        if let Some(held) = self.cache.get_mut(self.files[file].places[logical as usize])
            && let What::Data { stamp, .. } = &mut held.what
        {
            *stamp = now;
            held.dirty = true;
        }
    }

    /// A block of metadata is in memory now, and perhaps dirty; whether it was dirty before.
    pub(super) fn use_metadata(&mut self, block: Block, dirty: bool) -> bool {
        if let Some(held) = self.cache.get_mut(block) {
            let was_dirty = held.dirty;
            held.dirty |= dirty;
            self.cache.touch(block);
            return was_dirty;
        }
        self.disk.read(block, 1);
        self.cache.insert(block, Held { what: What::Metadata, dirty });
        false
    }

    pub(crate) fn remove(&mut self, file: usize) -> Result<(), String> {
        self.use_metadata(self.shape.block_of_inode(self.files[file].inode), true);
        self.use_maps(file);
        for place in std::mem::take(&mut self.files[file].places) {
            self.drop_block(place);
            self.space.release(place);
        }
        if let Some(indirect) = self.files[file].indirect.take() {
            self.cache.remove(indirect);
            self.space.release(indirect);
        }
        let File { directory, entry, inode, .. } = self.files[file];
        self.inodes.release(inode);
        self.directories[directory].entries[entry] = None;
        self.directories[directory].free.push(Reverse(entry));
        self.shrink()
    }

    /// A block leaves memory as it is.
    fn drop_block(&mut self, place: Block) {
        let Some(Held { what: What::Data { file, .. }, .. }) = self.cache.remove(place) else { return };
        self.files[file].cached -= 1;
        if self.relocation.is_some() {
            self.domains.evict(place);
            if self.files[file].cached == 0 {
                self.domains.forget(FileId(file as u64));
            }
        }
    }

    /// Memory goes back to its size: the least recently used blocks leave it, dirty ones by the disk.
    fn shrink(&mut self) -> Result<(), String> {
        while self.cache.len() > self.cache_blocks
            && let Some(oldest) = self.cache.oldest()
        {
            if self.cache.get(oldest).is_some_and(|held| held.dirty) {
                // It may lie elsewhere then, and is looked at again.
                self.flush(oldest)?;
            } else {
                self.drop_block(oldest);
            }
        }
        if self.disk.waiting() >= QUEUE {
            self.drain();
        }
        Ok(())
    }

    /// Everything comes to the disk, and memory is empty.
    pub(crate) fn mount_again(&mut self) -> Result<(), String> {
        self.write_back()?;
        while let Some(oldest) = self.cache.oldest() {
            self.drop_block(oldest);
        }
        self.disk.park();
        Ok(())
    }

    /// Reads all files, directory after directory, in the order of their entries; by the number of their blocks.
    pub(crate) fn read_all(&mut self) -> Result<BTreeMap<u32, Readings>, String> {
        let mut all: BTreeMap<u32, Readings> = BTreeMap::new();
        for directory in 0..self.directories.len() {
            let files: Vec<usize> = self.directories[directory].entries.iter().flatten().copied().collect();
            for file in files {
                let before = self.foreground_ms();
                self.read(file)?;
                let blocks = self.files[file].places.len() as u32;
                let readings = all.entry(blocks).or_default();
                readings.files += 1;
                readings.blocks += u64::from(blocks);
                readings.ms += self.foreground_ms() - before;
            }
        }
        Ok(all)
    }

    /// Layout scores by the number of a file's blocks.
    pub(crate) fn scores(&self) -> BTreeMap<u32, Score> {
        let mut all: BTreeMap<u32, Score> = BTreeMap::new();
        for file in self.files.iter().filter(|file| !file.places.is_empty()) {
            all.entry(file.places.len() as u32).or_default().add(Score::of(&file.places));
        }
        all
    }

    /// A new file, dirty in memory, at these places.
    #[cfg(test)]
    pub(super) fn create_at(&mut self, directory: usize, places: &[Block]) -> usize {
        let file = self.create(directory, places.len() as u32).unwrap();
        for (logical, to) in (0..).zip(places) {
            let from = self.files[file].places[logical as usize];
            self.drop_block(from);
            self.space.release(from);
            self.space.take(*to);
            self.files[file].places[logical as usize] = *to;
        }
        (0..places.len() as u32).for_each(|logical| self.load(file, logical, true));
        file
    }

    /// How many blocks are in memory.
    #[cfg(test)]
    pub(super) fn cached_blocks(&self) -> usize {
        self.cache.len()
    }

    /// Whether each block of each file is where it should be, in memory or on the disk, and no place is used twice.
    #[cfg(test)]
    pub(super) fn check(&self) -> Result<(), String> {
        let mut used: Vec<bool> = (0..self.shape.blocks()).map(|block| self.shape.is_fixed(block)).collect();
        for (number, file) in self.files.iter().enumerate() {
            for place in file.places.iter().copied().chain(file.indirect) {
                if std::mem::replace(&mut used[place as usize], true) {
                    return Err(format!("block {place} is used twice"));
                }
            }
            for (logical, place) in (0..).zip(&file.places) {
                match self.cache.get(*place) {
                    Some(Held { what: What::Data { stamp, .. }, dirty }) if *stamp == self.stamp(number, logical) => {
                        if !dirty {
                            self.check_on_medium(number, logical)?;
                        }
                    }
                    Some(held) => return Err(format!("memory has {held:?} for block {logical} of file {number}")),
                    None => self.check_on_medium(number, logical)?,
                }
            }
        }
        let differs = (0..self.shape.blocks()).find(|block| self.space.is_used(*block) != used[*block as usize]);
        differs.map_or(Ok(()), |block| Err(format!("the map is wrong at {block}")))
    }
}
