//! How much may be written and read to put files in order.

/// A part of what others write to the same device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// `None`: as much as is worth it.
    percent: Option<u32>,
    /// Blocks that the device had written when this began.
    began: Option<u64>,
    /// Blocks that were moved.
    moved: u64,
    /// Files that were read to be moved.
    reads: u64,
}

/// Blocks that others write for each file that may be read. That many written one behind the other keep a disk for about as long as the
/// way to one small file, twice over.
const BLOCKS_FOR_A_READ: u64 = 100;

impl Budget {
    pub(super) fn new(percent: Option<u32>) -> Budget {
        Budget { percent, began: None, moved: 0, reads: 0 }
    }

    /// Blocks that may be moved now. `written` are those that the device has written so far, with what was moved. What the
    /// journal writes for the moves counts as others' own.
    pub(super) fn allows(&mut self, written: u64) -> u64 {
        let Some(percent) = self.percent else { return u64::MAX };
        let part = self.by_others(written).saturating_mul(percent.into()) / 100;
        part.saturating_sub(self.moved)
    }

    /// Files that may be read now.
    pub(super) fn allows_to_read(&mut self, written: u64) -> u64 {
        if self.percent.is_none() {
            return u64::MAX;
        }
        (self.by_others(written) / BLOCKS_FOR_A_READ).saturating_sub(self.reads)
    }

    fn by_others(&mut self, written: u64) -> u64 {
        let began = *self.began.get_or_insert(written);
        written.saturating_sub(began).saturating_sub(self.moved)
    }

    pub(super) fn spend(&mut self, blocks: u64) {
        self.moved += blocks;
    }

    pub(super) fn spend_reads(&mut self, files: u64) {
        self.reads += files;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_what_others_write_may_be_moved() {
        let mut budget = Budget::new(Some(20));
        assert_eq!(budget.allows(1000), 0, "what was written before does not count");
        assert_eq!(budget.allows(2000), 200);
        budget.spend(150);
        assert_eq!(budget.allows(2150), 50, "what is moved is no reason to move more");
        budget.spend(80);
        assert_eq!(budget.allows(2230), 0);
        assert_eq!(budget.allows(3230), 170);
        assert_eq!(budget.allows(10), 0, "a device that counts anew");
    }

    #[test]
    fn some_files_may_be_read_for_what_others_write() {
        let mut budget = Budget::new(Some(20));
        assert_eq!(budget.allows_to_read(1000), 0);
        assert_eq!(budget.allows_to_read(1000 + 5 * BLOCKS_FOR_A_READ), 5);
        budget.spend_reads(3);
        budget.spend(2 * BLOCKS_FOR_A_READ);
        assert_eq!(budget.allows_to_read(1000 + 5 * BLOCKS_FOR_A_READ), 0, "what is moved is no reason to read more");
        assert_eq!(budget.allows_to_read(1000 + 9 * BLOCKS_FOR_A_READ), 4);
        assert_eq!(Budget::new(None).allows_to_read(0), u64::MAX);
    }

    #[test]
    fn without_a_part_all_may_be_moved() {
        let mut budget = Budget::new(None);
        budget.spend(1 << 40);
        assert_eq!(budget.allows(7), u64::MAX);
    }
}
