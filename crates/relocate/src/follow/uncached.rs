//! Files that are not in memory, and are worth being read: the directory would gain by them lying in order with the others.

use std::cmp::Reverse;
use std::path::PathBuf;

use crate::carry::Settings;
use crate::host::{Failure, Host, Stays, Trouble};
use crate::pack::Region;
use crate::passes::plan_for;
use crate::places::Places;
use crate::survey::Candidate;

/// A file of a directory.
#[derive(Clone, Debug)]
pub(super) enum Seen {
    /// What is known of it is in memory; its bytes are not, where it stays for that.
    InMemory(Candidate),
    /// Not even that.
    Uncached(PathBuf),
}

impl Seen {
    fn is_to_be_read(&self) -> bool {
        match self {
            Seen::InMemory(file) => file.stays == Some(Stays::NotCached),
            Seen::Uncached(_) => true,
        }
    }

    pub(super) fn in_memory(&self) -> Option<Candidate> {
        match self {
            Seen::InMemory(file) => Some(file.clone()),
            Seen::Uncached(_) => None,
        }
    }
}

/// What a directory may cost now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Most {
    /// Files that are read.
    pub(super) reads: u64,
    /// Blocks after which no further region is moved.
    pub(super) blocks: u64,
}

/// What is to be read.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// In the order of the disk.
    pub(super) paths: Vec<PathBuf>,
    /// More would be, but for the blocks that may not be moved now.
    pub(super) is_cut: bool,
}

/// Those of the files of a directory, in its order, that are to be read before it is put in order. Their inodes are looked at, nothing else
/// is read. Files of more blocks than `largest` are passed over.
pub(super) fn worth_reading<H: Host>(
    host: &mut H,
    seen: &[Seen],
    (settings, largest): (&Settings, u64),
    most: Most,
) -> Result<Wanted, Failure> {
    if most.reads == 0 || !seen.iter().any(Seen::is_to_be_read) {
        return Ok(Wanted::default());
    }
    let mut files = Vec::with_capacity(seen.len());
    for file in seen {
        files.push(match file {
            Seen::InMemory(known) if file.is_to_be_read() => Candidate { stays: None, ..known.clone() },
            Seen::InMemory(known) => known.clone(),
            Seen::Uncached(path) => looked_at(host, path.clone(), largest)?,
        });
    }
    let is_uncached = |turn: usize| seen[turn].is_to_be_read() && files[turn].places.blocks() > 0;
    let (turns, is_cut) = chosen(plan_for(&files, settings).regions, &is_uncached, most);
    let mut found: Vec<(Option<u64>, PathBuf)> =
        turns.into_iter().map(|turn| (files[turn].places.first(), files[turn].path.clone())).collect();
    found.sort_unstable();
    Ok(Wanted { paths: found.into_iter().map(|(_, path)| path).collect(), is_cut })
}

fn looked_at<H: Host>(host: &mut H, path: PathBuf, largest: u64) -> Result<Candidate, Failure> {
    let (inode, places, stays) = match host.look(&path) {
        Ok(looked) if looked.places.blocks() <= largest => (looked.inode, looked.places, looked.stays),
        Ok(looked) => (looked.inode, Places::default(), looked.stays),
        Err(Trouble::Stays(stays)) => (0, Places::default(), Some(stays)),
        Err(Trouble::Failed(failure)) => return Err(failure),
    };
    Ok(Candidate::new(path, inode, places, stays))
}

/// The uncached files of whole regions, which come in the order in which they would be moved: of those first that save most for each file
/// that has to be read, as long as reads are left. What would not be moved any more is not read either; it is told whether there is any.
fn chosen(mut regions: Vec<Region>, is_uncached: &dyn Fn(usize) -> bool, most: Most) -> (Vec<usize>, bool) {
    let uncached = |region: &Region| region.files.clone().filter(|&turn| is_uncached(turn)).count() as u64;
    let (mut blocks, mut is_cut) = (most.blocks, false);
    regions.retain(|region| {
        let is_moved = blocks > 0;
        is_cut |= !is_moved && uncached(region) > 0;
        blocks = blocks.saturating_sub(region.blocks);
        is_moved
    });
    regions.sort_by_key(|region| Reverse(region.saves * 1000 / uncached(region).max(1)));
    let (mut left, mut turns) = (most.reads, Vec::new());
    for region in regions {
        let count = uncached(&region);
        if count <= left {
            left -= count;
            turns.extend(region.files.filter(|&turn| is_uncached(turn)));
        }
    }
    (turns, is_cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_come_whole_and_those_first_that_save_most_for_a_read() {
        let region = |files: std::ops::Range<usize>, saves| Region { files, blocks: 10, saves };
        let regions = || vec![region(0..4, 4), region(4..8, 4), region(8..12, 1)];
        let even = |turn: usize| turn.is_multiple_of(2) || turn < 4;
        let chosen = |reads| chosen(regions(), &even, Most { reads, blocks: u64::MAX }).0;
        assert_eq!(chosen(u64::MAX), [4, 6, 0, 1, 2, 3, 8, 10]);
        assert_eq!(chosen(6), [4, 6, 0, 1, 2, 3]);
        assert_eq!(chosen(5), [4, 6, 8, 10], "the second is too large");
        assert_eq!(chosen(1), [0; 0]);
        assert_eq!(super::chosen(regions(), &|_| false, Most { reads: 5, blocks: u64::MAX }), (Vec::new(), false));
    }

    #[test]
    fn what_is_not_moved_any_more_is_not_read() {
        let region = |files: std::ops::Range<usize>| Region { files, blocks: 10, saves: 4 };
        let regions = || vec![region(6..8), region(0..3), region(3..6)];
        let chosen = |blocks, is_uncached: &dyn Fn(usize) -> bool| {
            chosen(regions(), is_uncached, Most { reads: u64::MAX, blocks })
        };
        assert_eq!(chosen(u64::MAX, &|_| true), (vec![6, 7, 0, 1, 2, 3, 4, 5], false));
        assert_eq!(chosen(20, &|_| true), (vec![6, 7, 0, 1, 2], true), "the third is not moved any more");
        assert_eq!(
            chosen(11, &|_| true),
            (vec![6, 7, 0, 1, 2], true),
            "the second is, with the last block that is left"
        );
        assert_eq!(chosen(10, &|_| true), (vec![6, 7], true));
        assert_eq!(chosen(10, &|turn| turn < 6), (vec![], true), "what is in memory takes its part");
        assert_eq!(chosen(20, &|turn| turn < 3), (vec![0, 1, 2], false), "nothing of the third would be read");
        assert_eq!(chosen(0, &|_| true), (vec![], true));
    }
}
