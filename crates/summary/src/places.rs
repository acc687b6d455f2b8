//! Which directory names which inode: for an event that names an inode alone.
//!
//! Inodes of one directory mostly have numbers in a row, so each row of 64 is kept as runs that belong to one directory.
//!
//! A row takes 320 bytes at most, five for each number, of up to 134,217,728 directories, whatever lies where: a byte for the length of a
//! run and four for how far its directory is from that of the run before. Of more directories it takes six. Its key, and its share of the
//! pages that it lies in, come beside: so five bytes a file hold where a row has ten files or more. Where it has one, as where most inodes
//! are directories, which aren't in here, all of that is for one file.

use crate::{
    code::{Reader, Writer},
    nodes::Slot,
};

/// Numbers that are kept together.
pub(crate) const INODES_PER_BLOCK: u64 = 64;

/// The directories of 64 inodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block([Option<Slot>; INODES_PER_BLOCK as usize]);

impl Default for Block {
    fn default() -> Block {
        Block([None; INODES_PER_BLOCK as usize])
    }
}

impl Block {
    pub(crate) fn get(&self, ino: u64) -> Option<Slot> {
        self.0[(ino % INODES_PER_BLOCK) as usize]
    }

    pub(crate) fn set(&mut self, ino: u64, slot: Slot) {
        self.0[(ino % INODES_PER_BLOCK) as usize] = Some(slot);
    }

    /// Forgets directories; true when any was there.
    pub(crate) fn forget(&mut self, is_gone: impl Fn(Slot) -> bool) -> bool {
        let mut has_any = false;
        for place in &mut self.0 {
            has_any |= place.take_if(|slot| is_gone(*slot)).is_some();
        }
        has_any
    }

    /// Inodes of which it says where they are.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().flatten().count()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }

    /// Of each run: its length and the directory, 0 for none, else counted from that of the run before.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        let mut before = 0;
        for run in self.0.chunk_by(|one, other| one == other) {
            out.unsigned(run.len() as u64);
            match run[0] {
                None => out.unsigned(0),
                Some(slot) => {
                    let distance = i64::from(slot.0) - before;
                    // Never 0, which stands for none.
                    out.unsigned(((distance << 1 ^ distance >> 63) as u64) + 1);
                    before = slot.0.into();
                }
            }
        }
        out.0
    }

    /// What can't be read is unknown.
    pub(crate) fn decode(bytes: &[u8]) -> Block {
        let (mut block, mut from, mut at, mut before) = (Block::default(), Reader(bytes), 0, 0_i64);
        while let (Some(length), Some(code)) = (from.unsigned(), from.unsigned()) {
            let slot = code.checked_sub(1).and_then(|code| {
                before = before.checked_add((code >> 1) as i64 ^ -((code & 1) as i64))?;
                u32::try_from(before).ok().map(Slot)
            });
            let end = at + usize::try_from(length).unwrap_or(usize::MAX).min(block.0.len() - at);
            block.0[at..end].fill(slot);
            at = end;
        }
        block
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The numbers of directories for which a row takes five bytes for each inode at most.
    const FOUR_BYTES_APART: u32 = 1 << 27;

    #[test]
    fn a_row_in_as_many_directories_takes_five_bytes_each() {
        let bytes = |far: u32| {
            let mut block = Block::default();
            (0..64).for_each(|ino| block.set(ino, Slot(if ino % 2 == 0 { far } else { 0 })));
            let bytes = block.encode();
            assert_eq!(Block::decode(&bytes), block);
            bytes.len()
        };
        assert_eq!(bytes(200_000), 64 * 4);
        assert_eq!(bytes(FOUR_BYTES_APART - 1), 64 * 5);
        assert_eq!(bytes(FOUR_BYTES_APART), 64 * 6);
        assert_eq!(bytes(u32::MAX), 64 * 6);
    }

    #[test]
    fn a_row_of_one_directory_takes_four_bytes() {
        let mut block = Block::default();
        (0..64).for_each(|ino| block.set(128 + ino, Slot(100_000)));
        assert_eq!(block.encode().len(), 4);
        assert_eq!(Block::decode(&block.encode()).get(130), Some(Slot(100_000)));
    }

    proptest! {
        #[test]
        fn places_come_back(
            places in proptest::collection::vec((0..64_u64, any::<u32>()), 0..80),
            bits in 0..32_u32,
        ) {
            let places: Vec<_> = places.into_iter().map(|(ino, slot)| (ino, slot >> bits)).collect();
            let mut block = Block::default();
            places.iter().for_each(|&(ino, slot)| block.set(ino, Slot(slot)));
            let bytes = block.encode();
            prop_assert_eq!(Block::decode(&bytes), block);
            // Even with each inode in another directory.
            let is_near = places.iter().all(|&(_, slot)| slot < FOUR_BYTES_APART);
            let most = if is_near { 5 } else { 6 };
            prop_assert!(bytes.len() <= 64 * most);
        }

        #[test]
        fn any_bytes_end(bytes: Vec<u8>) {
            let _ = Block::decode(&bytes);
        }
    }
}
