//! Which block goes where, and whether that does harm.

use std::collections::{HashMap, HashSet};

use super::{Allocation, Block, Domains, FileId, Region};

/// What is written by one request, from the start of the region on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Plan {
    /// Where, and the most that may be written.
    pub region: Region,
    /// One after the other, without a gap.
    pub blocks: Vec<Placed>,
}

/// A block of a plan.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Placed {
    /// The file that it is of.
    pub file: FileId,
    /// Its number in that file.
    pub logical: u32,
    /// Where it was.
    pub from: Block,
}

/// A block that gets another place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Move {
    /// The file that it is of.
    pub file: FileId,
    /// Its number in that file.
    pub logical: u32,
    /// Where it was.
    pub from: Block,
    /// Where it comes to.
    pub to: Block,
}

/// Why a plan must not be carried out.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Flaw {
    /// It would write more than the region.
    #[error("{0} blocks are more than the region holds")]
    TooLong(usize),
    /// Its head is not the block that is flushed.
    #[error("the block that is flushed is not written")]
    WithoutHead,
    /// The block is not in memory at that place, or is another one.
    #[error("block {0} is not what lies there in memory")]
    NotCached(Block),
    /// The block is of another domain than the flushed one.
    #[error("block {0} is of another domain")]
    Foreign(Block),
    /// The block comes twice.
    #[error("block {0} comes twice")]
    Twice(Block),
    /// What lies there would be written over.
    #[error("block {0} would be lost")]
    Lost(Block),
    /// The file's layout score would fall.
    #[error("file {} would lie in more pieces", .0.0)]
    Worse(FileId),
}

impl Plan {
    /// The blocks that change their places, in the order of the new ones.
    pub fn moves(&self) -> impl Iterator<Item = Move> {
        let places = self.region.start..;
        self.blocks.iter().zip(places).filter(|(block, to)| block.from != *to).map(|(block, to)| Move {
            file: block.file,
            logical: block.logical,
            from: block.from,
            to,
        })
    }

    /// The files whose inodes change, each once.
    #[must_use]
    pub fn files(&self) -> Vec<FileId> {
        let mut files: Vec<_> = self.moves().map(|change| change.file).collect();
        files.sort_unstable();
        files.dedup();
        files
    }

    /// Does it write what is in memory alone, all that it writes over, nothing twice, nothing of another domain, and
    /// leaves no file in more pieces?
    ///
    /// # Errors
    ///
    /// The first flaw that is found.
    pub fn check(&self, domains: &Domains, allocation: &impl Allocation) -> Result<(), Flaw> {
        if self.blocks.len() > self.region.blocks as usize {
            return Err(Flaw::TooLong(self.blocks.len()));
        }
        let head = domains.at(self.region.start).ok_or(Flaw::NotCached(self.region.start))?;
        let mut taken = HashSet::new();
        for block in &self.blocks {
            let cached =
                domains.at(block.from).filter(|cached| (cached.file, cached.logical) == (block.file, block.logical));
            if cached.is_none() || !allocation.is_allocated(block.from) {
                return Err(Flaw::NotCached(block.from));
            }
            if domains.domain_of(block.file) != domains.domain_of(head.file) {
                return Err(Flaw::Foreign(block.from));
            }
            if !taken.insert(block.from) {
                return Err(Flaw::Twice(block.from));
            }
        }
        if !taken.contains(&self.region.start) {
            return Err(Flaw::WithoutHead);
        }
        let mut places = self.region.start..self.region.start + self.blocks.len() as u64;
        if let Some(lost) = places.find(|place| allocation.is_allocated(*place) && !taken.contains(place)) {
            return Err(Flaw::Lost(lost));
        }
        self.files().into_iter().find(|&file| self.tears(domains, file)).map_or(Ok(()), |file| Err(Flaw::Worse(file)))
    }

    fn tears(&self, domains: &Domains, file: FileId) -> bool {
        let moved: HashMap<u32, Block> =
            self.moves().filter(|change| change.file == file).map(|change| (change.logical, change.to)).collect();
        let before = domains.places(file);
        let after: Vec<_> = (0..).zip(before).map(|(logical, place)| moved.get(&logical).copied().or(*place)).collect();
        adjoining(&after) < adjoining(before)
    }
}

/// Pairs of neighbours in the file that are neighbours on the disk: what its layout score counts.
fn adjoining(places: &[Option<Block>]) -> usize {
    places.windows(2).filter(|pair| pair[0].is_some_and(|place| pair[1] == Some(place + 1))).count()
}
