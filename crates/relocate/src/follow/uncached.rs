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

/// Those of the files of a directory, in its order, that are to be read before it is put in order, at most so many, in the order of the
/// disk. Their inodes are looked at, nothing else is read. Files of more blocks than `largest` are passed over.
pub(super) fn worth_reading<H: Host>(
    host: &mut H,
    seen: &[Seen],
    (settings, largest): (&Settings, u64),
    most: u64,
) -> Result<Vec<PathBuf>, Failure> {
    if most == 0 || !seen.iter().any(Seen::is_to_be_read) {
        return Ok(Vec::new());
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
    let turns = chosen(plan_for(&files, settings).regions, &is_uncached, most);
    let mut found: Vec<(Option<u64>, PathBuf)> =
        turns.into_iter().map(|turn| (files[turn].places.first(), files[turn].path.clone())).collect();
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

fn looked_at<H: Host>(host: &mut H, path: PathBuf, largest: u64) -> Result<Candidate, Failure> {
    let (inode, places, stays) = match host.look(&path) {
        Ok(looked) if looked.places.blocks() <= largest => (looked.inode, looked.places, looked.stays),
        Ok(looked) => (looked.inode, Places::default(), looked.stays),
        Err(Trouble::Stays(stays)) => (0, Places::default(), Some(stays)),
        Err(Trouble::Failed(failure)) => return Err(failure),
    };
    Ok(Candidate { path, inode, places, stays })
}

/// The uncached files of whole regions, at most so many: of those first that save most for each file that has to be read.
fn chosen(mut regions: Vec<Region>, is_uncached: &dyn Fn(usize) -> bool, most: u64) -> Vec<usize> {
    let uncached = |region: &Region| region.files.clone().filter(|&turn| is_uncached(turn)).count() as u64;
    regions.sort_by_key(|region| Reverse(region.saves * 1000 / uncached(region).max(1)));
    let (mut left, mut turns) = (most, Vec::new());
    for region in regions {
        let count = uncached(&region);
        if count <= left {
            left -= count;
            turns.extend(region.files.filter(|&turn| is_uncached(turn)));
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_come_whole_and_those_first_that_save_most_for_a_read() {
        let region = |files: std::ops::Range<usize>, saves| Region { files, blocks: 10, saves };
        let regions = || vec![region(0..4, 4), region(4..8, 4), region(8..12, 1)];
        let even = |turn: usize| turn.is_multiple_of(2) || turn < 4;
        assert_eq!(chosen(regions(), &even, u64::MAX), [4, 6, 0, 1, 2, 3, 8, 10]);
        assert_eq!(chosen(regions(), &even, 6), [4, 6, 0, 1, 2, 3]);
        assert_eq!(chosen(regions(), &even, 5), [4, 6, 8, 10], "the second is too large");
        assert_eq!(chosen(regions(), &even, 1), [0; 0]);
        assert_eq!(chosen(regions(), &|_| false, 5), [0; 0]);
    }
}
