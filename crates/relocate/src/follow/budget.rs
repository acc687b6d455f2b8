//! How much may be written and read to put files in order.
//!
//! Others earn it by what they write to the same device, and it is spent on what is moved and on what that has the file system write. The
//! device doesn't tell whose a write is, and what is moved comes to it seconds later: so as many blocks of what it writes next are taken for
//! our own as were spent.

/// A part of what others write to the same device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// `None`: as much as is worth it.
    percent: Option<u32>,
    /// Blocks that the device had written when it was asked last.
    seen: Option<u64>,
    /// Blocks of ours that it may not have written by then.
    own: u64,
    /// Hundredths of blocks that may be written; less than none after a region that was larger than what was left.
    credit: i64,
    /// Blocks of others for which no file was read yet.
    credit_for_reads: i64,
}

/// Blocks that others write for each file that may be read. Small files of a directory that are read in the order of the disk take it some
/// 1.3 ms each, about as long as so many blocks that are written one behind the other.
const BLOCKS_FOR_A_READ: u64 = 25;
/// Blocks that may be written at once, at most, however much others wrote before: 256 MiB of blocks of 4 KiB.
const MOST: u64 = 1 << 16;
/// Files that may be read at once, at most.
const MOST_READS: u64 = 1 << 14;
/// Blocks for each file that is moved: its inode, and bitmap and descriptor of its old and of its new place, each to the journal and in place.
const BLOCKS_FOR_A_FILE: u64 = 10;
/// Files of one directory share most of them. Under the load of the lab it was 90 to 190 blocks for each time that one was put in order, by
/// the disk's books with and without the daemon.
const BLOCKS_FOR_A_DIRECTORY: u64 = 190;

/// What the file system writes for itself when so many files of a directory are moved, about.
fn metadata_blocks(files: u64) -> u64 {
    files.saturating_mul(BLOCKS_FOR_A_FILE).min(BLOCKS_FOR_A_DIRECTORY)
}

impl Budget {
    pub(super) fn new(percent: Option<u32>) -> Budget {
        Budget { percent, seen: None, own: 0, credit: 0, credit_for_reads: 0 }
    }

    /// Blocks that may be moved now. `written` are those that the device has written so far, by whomever.
    pub(super) fn allows(&mut self, written: u64) -> u64 {
        let Some(percent) = self.percent else { return u64::MAX };
        self.earn(written, percent);
        self.credit.max(0) as u64 / 100
    }

    /// Files that may be read now.
    pub(super) fn allows_to_read(&mut self, written: u64) -> u64 {
        let Some(percent) = self.percent else { return u64::MAX };
        self.earn(written, percent);
        self.credit_for_reads.max(0) as u64 / BLOCKS_FOR_A_READ
    }

    fn earn(&mut self, written: u64, percent: u32) {
        let before = self.seen.replace(written).unwrap_or(written);
        let all = written.saturating_sub(before);
        let own = all.min(self.own);
        self.own -= own;
        self.credit = earned(self.credit, (all - own).saturating_mul(percent.into()), MOST * 100);
        self.credit_for_reads = earned(self.credit_for_reads, all - own, MOST_READS * BLOCKS_FOR_A_READ);
    }

    /// So many files of a directory were moved, with so many blocks.
    pub(super) fn spend(&mut self, files: u64, blocks: u64) {
        let all = blocks.saturating_add(metadata_blocks(files));
        self.own = self.own.saturating_add(all);
        self.credit = spent(self.credit, all.saturating_mul(100));
    }

    pub(super) fn spend_reads(&mut self, files: u64) {
        self.credit_for_reads = spent(self.credit_for_reads, files.saturating_mul(BLOCKS_FOR_A_READ));
    }
}

fn earned(credit: i64, more: u64, most: u64) -> i64 {
    credit.saturating_add_unsigned(more).min(most as i64)
}

fn spent(credit: i64, less: u64) -> i64 {
    credit.saturating_sub_unsigned(less)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_what_others_write_may_be_moved() {
        let mut budget = Budget::new(Some(20));
        assert_eq!(budget.allows(1000), 0, "what was written before does not count");
        assert_eq!(budget.allows(2000), 200);
        assert_eq!(budget.allows(2000), 200, "nothing is earned twice");
        budget.spend(0, 150);
        assert_eq!(budget.allows(2000), 50, "it is on its way to the device");
        assert_eq!(budget.allows(2150), 50, "what is moved is no reason to move more");
        budget.spend(0, 80);
        assert_eq!(budget.allows(2230), 0);
        assert_eq!(
            budget.allows(3230),
            170,
            "a region may be larger than what is left, and then less is left for the next"
        );
        assert_eq!(budget.allows(10), 170, "a device that counts anew");
        assert_eq!(budget.allows(110), 190);
    }

    #[test]
    fn what_the_file_system_writes_for_it_is_spent_and_earns_nothing() {
        let mut budget = Budget::new(Some(20));
        budget.allows(0);
        assert_eq!(budget.allows(10_000), 2000);
        budget.spend(7, 100);
        assert_eq!(budget.allows(10_000 + 100 + 7 * BLOCKS_FOR_A_FILE), 2000 - 100 - 7 * BLOCKS_FOR_A_FILE);
        budget.spend(500, 1000);
        let left = 2000 - 100 - 7 * BLOCKS_FOR_A_FILE - 1000 - BLOCKS_FOR_A_DIRECTORY;
        assert_eq!(budget.allows(10_000 + 1100 + 7 * BLOCKS_FOR_A_FILE + BLOCKS_FOR_A_DIRECTORY), left);
    }

    /// As under the load of the lab: what comes to the device beside what others write is at most that part of it, once all of it is there.
    #[test]
    fn all_that_is_written_is_bounded() {
        for percent in [5, 10, 20, 50, 100] {
            let (mut budget, mut written, mut others, mut own) = (Budget::new(Some(percent)), 0, 0, 0);
            budget.allows(written);
            for turn in 0..10_000_u64 {
                let more = turn * 7919 % 3000;
                (written, others) = (written + more, others + more);
                let blocks = budget.allows(written);
                if blocks > 0 {
                    let files = blocks.div_ceil(5);
                    budget.spend(files, blocks);
                    own += blocks + metadata_blocks(files);
                    written += blocks + metadata_blocks(files);
                }
                assert!(own <= others * u64::from(percent) / 100 + BLOCKS_FOR_A_DIRECTORY, "{percent}: {own} {others}");
            }
            assert!(own * 100 >= others * u64::from(percent) * 9 / 10, "{percent}: {own} of {others}");
        }
    }

    #[test]
    fn what_others_wrote_long_ago_is_no_reason_for_a_burst() {
        let mut budget = Budget::new(Some(20));
        budget.allows(0);
        budget.allows_to_read(0);
        assert_eq!((budget.allows(1 << 40), budget.allows_to_read(1 << 40)), (MOST, MOST_READS));
        budget.spend(0, MOST);
        budget.spend_reads(MOST_READS);
        assert_eq!((budget.allows((1 << 40) + MOST), budget.allows_to_read((1 << 40) + MOST)), (0, 0));
    }

    #[test]
    fn some_files_may_be_read_for_what_others_write() {
        let mut budget = Budget::new(Some(20));
        assert_eq!(budget.allows_to_read(1000), 0);
        assert_eq!(budget.allows_to_read(1000 + 5 * BLOCKS_FOR_A_READ), 5);
        budget.spend_reads(3);
        budget.spend(0, 2 * BLOCKS_FOR_A_READ);
        assert_eq!(budget.allows_to_read(1000 + 7 * BLOCKS_FOR_A_READ), 2, "what is moved is no reason to read more");
        assert_eq!(budget.allows_to_read(1000 + 9 * BLOCKS_FOR_A_READ), 4);
        assert_eq!(Budget::new(None).allows_to_read(0), u64::MAX);
    }

    #[test]
    fn without_a_part_all_may_be_moved() {
        let mut budget = Budget::new(None);
        budget.spend(1, 1 << 40);
        assert_eq!(budget.allows(7), u64::MAX);
    }
}
