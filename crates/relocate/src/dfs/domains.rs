//! What of each directory lies in memory (3.2, 3.3, 4).

use std::collections::{BTreeMap, HashMap};

use super::{Block, DomainId, FileId, Plan, SMALL};

/// A block in memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cached {
    /// The file that it is of.
    pub file: FileId,
    /// Its number in that file.
    pub logical: u32,
    /// Where the host has it.
    pub address: u64,
}

/// The in-core inode of a file.
#[derive(Debug)]
struct InCore {
    domain: DomainId,
    /// Where its blocks lie, by their numbers in the file. A hole has no place.
    places: Vec<Option<Block>>,
    cached: usize,
    /// Its number in a chain of the de-fragmentation table.
    chained: Option<u64>,
}

impl InCore {
    fn is_whole(&self) -> bool {
        self.cached == self.places.len()
    }

    fn is_fragmented(&self) -> bool {
        self.places.windows(2).any(|pair| !is_contiguous(pair[0], pair[1]))
    }

    fn is_relocatable(&self) -> bool {
        SMALL.contains(&self.places.len()) && self.is_whole() && self.is_fragmented()
    }
}

fn is_contiguous(place: Option<Block>, next: Option<Block>) -> bool {
    place.is_some_and(|place| next == Some(place + 1))
}

/// The files of a chain, in the order in which they came.
type Chain = BTreeMap<u64, FileId>;

/// All de-fragmentation domains: files, by their directories, and the blocks of them that are in memory.
///
/// It takes some 40 bytes for each block in memory, and 60 for each file with 8 more for each of its blocks.
#[derive(Debug, Default)]
pub struct Domains {
    files: HashMap<FileId, InCore>,
    blocks: HashMap<Block, Cached>,
    /// The de-fragmentation tables: small fragmented files that are wholly in memory, by domain and number of blocks.
    tables: HashMap<(DomainId, usize), Chain>,
    next: u64,
}

impl Domains {
    /// Nothing in memory.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A file has come into memory, with where its blocks lie, though none of them itself; or it has other places now.
    /// Of a file that was known, all blocks leave memory.
    pub fn open(&mut self, domain: DomainId, file: FileId, places: Vec<Option<Block>>) {
        self.forget(file);
        self.files.insert(file, InCore { domain, places, cached: 0, chained: None });
    }

    /// A block has come into memory, or to another address. Nothing happens for what is unknown or a hole.
    pub fn load(&mut self, file: FileId, logical: u32, address: u64) {
        let Some(inode) = self.files.get_mut(&file) else { return };
        let Some(&Some(place)) = inode.places.get(logical as usize) else { return };
        if self.blocks.insert(place, Cached { file, logical, address }).is_none() {
            inode.cached += 1;
            self.chain(file);
        }
    }

    /// A block has left memory. Its file stays known, until [`Self::forget`].
    pub fn evict(&mut self, place: Block) -> Option<Cached> {
        let cached = self.blocks.remove(&place)?;
        if let Some(inode) = self.files.get_mut(&cached.file) {
            inode.cached -= 1;
        }
        self.chain(cached.file);
        Some(cached)
    }

    /// A file has left memory, or is no more.
    pub fn forget(&mut self, file: FileId) {
        let Some(inode) = self.files.get(&file) else { return };
        for place in inode.places.clone().into_iter().flatten() {
            if self.blocks.get(&place).is_some_and(|cached| cached.file == file) {
                self.evict(place);
            }
        }
        self.unchain(file);
        self.files.remove(&file);
    }

    /// What the plan says has been done.
    pub fn moved(&mut self, plan: &Plan) {
        let moves: Vec<_> = plan.moves().collect();
        let taken: Vec<_> =
            moves.iter().filter_map(|change| Some((change, self.blocks.remove(&change.from)?))).collect();
        for (change, cached) in taken {
            self.blocks.insert(change.to, cached);
            if let Some(inode) = self.files.get_mut(&change.file) {
                inode.places[change.logical as usize] = Some(change.to);
            }
        }
        plan.files().into_iter().for_each(|file| self.chain(file));
    }

    /// What lies in memory of this place of the disk.
    #[must_use]
    pub fn at(&self, place: Block) -> Option<Cached> {
        self.blocks.get(&place).copied()
    }

    /// The directory of a file.
    #[must_use]
    pub fn domain_of(&self, file: FileId) -> Option<DomainId> {
        Some(self.files.get(&file)?.domain)
    }

    /// Where the blocks of a file lie.
    #[must_use]
    pub fn places(&self, file: FileId) -> &[Option<Block>] {
        self.files.get(&file).map_or(&[], |inode| &inode.places)
    }

    /// The block fragmentation bitmap: is this block in memory, the next of its file too, and that one elsewhere?
    ///
    /// It is looked up rather than kept, so that no eviction can leave a bit behind.
    #[must_use]
    pub fn is_fragmented_at(&self, place: Block) -> bool {
        let next = self.at(place).and_then(|cached| self.place_of(cached.file, cached.logical.checked_add(1)?));
        next.is_some_and(|next| next != place + 1 && self.blocks.contains_key(&next))
    }

    /// Is the file small, fragmented and wholly in memory?
    #[must_use]
    pub fn is_relocatable(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(InCore::is_relocatable)
    }

    /// A chain of a domain's de-fragmentation table, in the order in which its files came.
    pub fn chain_of(&self, domain: DomainId, blocks: usize) -> impl Iterator<Item = FileId> {
        self.tables.get(&(domain, blocks)).into_iter().flat_map(Chain::values).copied()
    }

    pub(super) fn place_of(&self, file: FileId, logical: u32) -> Option<Block> {
        self.places(file).get(logical as usize).copied().flatten()
    }

    /// Puts a file into the chain where it belongs, or takes it out.
    fn chain(&mut self, file: FileId) {
        let Some(inode) = self.files.get_mut(&file) else { return };
        match (inode.is_relocatable(), inode.chained) {
            (true, None) => {
                inode.chained = Some(self.next);
                self.tables.entry((inode.domain, inode.places.len())).or_default().insert(self.next, file);
                self.next += 1;
            }
            (false, Some(_)) => self.unchain(file),
            _ => {}
        }
    }

    fn unchain(&mut self, file: FileId) {
        let Some(inode) = self.files.get_mut(&file) else { return };
        let Some(number) = inode.chained.take() else { return };
        let key = (inode.domain, inode.places.len());
        if let Some(chain) = self.tables.get_mut(&key) {
            chain.remove(&number);
            if chain.is_empty() {
                self.tables.remove(&key);
            }
        }
    }
}
