//! How much of the disk a harvest may take that nobody waits for.

use std::time::Duration;

/// So many portions a second: who asks waits no longer for one.
const PORTIONS: u32 = 10;
/// Fewer at a time would leave the disk no choice.
const LEAST: u32 = 16;
const MOST: u32 = 256;
/// Entries of a directory that cost as much as a directory: its own inode and block are read for it, and for each 16 entries or so a block
/// of inodes, mostly beside the one before. Few directories have more.
const ENTRIES: u64 = 64;

/// What reading a directory of so many entries counts for, in directories.
pub(crate) fn charge(entries: usize) -> u64 {
    (entries as u64).div_ceil(ENTRIES).max(1)
}

/// How a harvest in the background goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Directories that are read in a second, at most, of up to 64 entries each: one with more counts for as many. 0 for as many as can
    /// be.
    pub directories: u32,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { directories: 1000 }
    }
}

impl Budget {
    /// Directories that are read in one go.
    pub fn portion(&self) -> usize {
        let portion = if self.directories == 0 { MOST } else { (self.directories / PORTIONS).clamp(LEAST, MOST) };
        portion as usize
    }

    /// How long to wait when what was read in that time counts for so many.
    pub fn pause(&self, charge: u64, took: Duration) -> Duration {
        if self.directories == 0 {
            return Duration::ZERO;
        }
        Duration::from_secs_f64(charge as f64 / f64::from(self.directories)).saturating_sub(took)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_keep_to_the_number_a_second() {
        for directories in [1, 100, 1000, 1_000_000] {
            let budget = Budget { directories };
            let (mut read, mut time) = (0, Duration::ZERO);
            while time < Duration::from_secs(100) {
                let (portion, took) = (budget.portion() as u64, Duration::from_millis(3));
                read += portion;
                time += took + budget.pause(portion, took);
            }
            let most = u64::from(directories) * 100 + budget.portion() as u64 * 2;
            assert!(read <= most, "{read} of {most}");
        }
        assert_eq!(Budget { directories: 0 }.pause(1 << 40, Duration::ZERO), Duration::ZERO);
        assert_eq!([0, 1, 64, 65, 1_000_000].map(charge), [1, 1, 1, 2, 15_625]);
        // What took longer needs no pause.
        assert_eq!(Budget { directories: 10 }.pause(16, Duration::from_secs(2)), Duration::ZERO);
    }
}
