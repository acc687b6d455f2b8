//! Free space that is held by donors, for the regions of a batch.

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::path::Path;

use crate::errno::is_short;
use crate::host::{Exchange, Failure, Host};
use crate::pack::{Fitted, Free, Piece, fit_into};
use crate::places::{Places, Run};

/// Donors, what they hold, and what of it no region has.
pub(super) struct Space<H: Host> {
    donors: Vec<Donor<H::Donor>>,
    held: Held,
    /// What of that no region has.
    unused: Free,
    /// A region may begin in the middle of a donor, behind another. Else a donor serves one region at most.
    pub(super) shares_donors: bool,
    /// Blocks that stay free behind each region.
    pub(super) slack: u64,
    /// Nothing more could be captured.
    pub(super) is_exhausted: bool,
    /// Files would not come to lie one behind the other in what is captured for them.
    is_in_pieces: bool,
    /// So many blocks may be captured yet, so that others find room meanwhile.
    left: u64,
}

struct Donor<D> {
    /// Until it is given back.
    held: Option<D>,
    /// What it had at first.
    runs: Vec<Run>,
    /// A region has some of it.
    is_taken: bool,
}

/// Blocks that are captured together, at least: where the donors are, no page has blocks of two.
const TOGETHER: u64 = 16;
/// Tries to capture a donor for one region.
const TRIES: usize = 4;
/// Free space is in too many pieces for donors of their own when fewer files than this come for each break.
const FILES_FOR_A_BREAK: u64 = 16;

/// Half of what is free is left to others.
pub(super) fn for_regions(free_blocks: u64) -> u64 {
    free_blocks / 2
}

impl<H: Host> Space<H> {
    /// Nothing, with so many free blocks around.
    pub(super) fn of(free_blocks: u64, shares_donors: bool, slack: u64) -> Self {
        Self {
            donors: Vec::new(),
            held: Held::default(),
            unused: Free::default(),
            shares_donors,
            slack,
            is_exhausted: false,
            is_in_pieces: false,
            left: for_regions(free_blocks),
        }
    }

    /// What no region has.
    pub(super) fn unused(&self) -> &Free {
        &self.unused
    }

    /// The pieces that no region has, of those in which files would come to lie.
    pub(super) fn unused_at(&self, files: &[Places]) -> Vec<Piece> {
        files.iter().flat_map(Places::runs).flat_map(|&run| self.unused.at(piece(run))).collect()
    }

    /// Captures as many blocks more, or what there is; false in a directory of somebody else's, which says nothing of others.
    pub(super) fn capture(&mut self, host: &mut H, near: &Path, blocks: u64) -> Result<bool, Failure> {
        let wanted = blocks.max(1).next_multiple_of(TOGETHER);
        let captured = host.capture(near, wanted.min(self.left));
        if captured.error.as_ref().is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
            && captured.donors.is_empty()
        {
            return Ok(false);
        }
        self.is_exhausted = captured.error.is_some() || captured.donors.is_empty() || wanted >= self.left;
        self.left = self.left.saturating_sub(wanted);
        let is_short = captured.error.as_ref().is_none_or(is_short);
        for donor in captured.donors {
            let places = places_of(host, &donor, near)?;
            self.hold(donor, &places);
        }
        match captured.error {
            Some(source) if !is_short => Err(Failure::new("capture free space", near, source)),
            _ => Ok(true),
        }
    }

    /// Captures places that no region gets, as many as can be had without want.
    pub(super) fn capture_slack(&mut self, host: &mut H, near: &Path, blocks: u64) -> Vec<H::Donor> {
        if blocks == 0 || self.is_exhausted || blocks >= self.left {
            return Vec::new();
        }
        self.left -= blocks;
        host.capture(near, blocks).donors
    }

    /// Captures a donor for these files alone, and tells where they come to lie in it. `None` where the host needs no such donor, where
    /// free space is in so many pieces that too many files would not lie behind the one before, or it isn't worth it: then what was
    /// captured is given back, and added to `given_back`.
    pub(super) fn capture_for(
        &mut self,
        host: &mut H,
        near: &Path,
        files: &[&Places],
        is_worth: &dyn Fn(&Fitted) -> bool,
        given_back: &mut u64,
    ) -> Result<Option<Fitted>, Failure> {
        let parts: Vec<u64> = files.iter().flat_map(|places| places.between_holes()).collect();
        let wanted = parts.iter().sum::<u64>();
        let mut for_nothing = Vec::new();
        let mut found = None;
        for _ in 0..TRIES {
            // One for the next try, and one to make way for it.
            if self.is_in_pieces || wanted.saturating_mul(for_nothing.len() as u64 + 2) > self.left {
                break;
            }
            // What stands against it is told when other space is captured.
            let mut capture = |parts: &[u64]| host.capture_for(near, parts)?.donors.into_iter().next();
            if !for_nothing.is_empty() {
                // The parts come from the largest pieces of free space, by turns where those are of a size: so one is made smaller.
                for_nothing.extend(capture(&[wanted]));
            }
            let Some(donor) = capture(&parts) else { break };
            let places = places_of(host, &donor, near)?;
            found = fit_into(files, &places).filter(|fitted| fitted.breaks * FILES_FOR_A_BREAK <= files.len() as u64);
            match &found {
                Some(fitted) if is_worth(fitted) => {
                    self.left -= wanted;
                    self.hold(donor, &places);
                    break;
                }
                Some(_) => {
                    for_nothing.push(donor);
                    found = None;
                    break;
                }
                None => for_nothing.push(donor),
            }
            self.is_in_pieces = for_nothing.len() + 1 >= 2 * TRIES;
        }
        *given_back += wanted * for_nothing.len() as u64;
        Ok(found)
    }

    fn hold(&mut self, donor: H::Donor, places: &Places) {
        let number = self.donors.len();
        for &run in places.runs() {
            // What another donor had there it has given away meanwhile, for a file that did not come.
            self.held.cut(run);
            self.held.0.insert(run.place, (number, run));
            self.unused.add(piece(run));
        }
        self.donors.push(Donor { held: Some(donor), runs: places.runs().to_vec(), is_taken: false });
    }

    /// Gives a region these places, and those that stay free behind them.
    pub(super) fn take(&mut self, files: &[Places]) {
        let behind = files.last().and_then(Places::end).map(|place| Run { logical: 0, place, blocks: self.slack });
        for &run in files.iter().flat_map(Places::runs).chain(&behind) {
            self.unused.remove(piece(run));
            let donors: Vec<usize> = self.held.within(run).map(|(donor, _)| donor).collect();
            for donor in donors {
                if !mem::replace(&mut self.donors[donor].is_taken, true) && !self.shares_donors {
                    self.held_by(donor).iter().for_each(|&run| self.unused.remove(piece(run)));
                }
            }
        }
    }

    /// No region has anything.
    pub(super) fn let_go(&mut self) {
        self.donors.iter_mut().for_each(|donor| donor.is_taken = false);
        self.unused = self.held.0.values().map(|&(_, run)| piece(run)).collect();
    }

    /// Gives back the donors of which no region has anything; tells how many blocks.
    pub(super) fn give_back_unused(&mut self) -> u64 {
        let before = self.unused.blocks();
        for donor in 0..self.donors.len() {
            if !self.donors[donor].is_taken {
                for run in self.held_by(donor) {
                    self.unused.remove(piece(run));
                    self.held.0.remove(&run.place);
                }
                self.donors[donor].held = None;
            }
        }
        before - self.unused.blocks()
    }

    /// What a donor holds.
    fn held_by(&self, donor: usize) -> Vec<Run> {
        let had = self.donors[donor].runs.iter().flat_map(|&run| self.held.within(run));
        had.filter(|&(holder, _)| holder == donor).map(|(_, run)| run).collect()
    }

    /// The exchanges by which a file comes to these places, all of which are held.
    pub(super) fn steps(&self, to: &Places) -> Vec<(&H::Donor, Exchange)> {
        let mut steps = Vec::new();
        for &run in to.runs() {
            for (donor, held) in self.held.within(run) {
                let Some(donor) = &self.donors[donor].held else { continue };
                let (start, end) = (held.place.max(run.place), held.end().min(run.end()));
                let exchange = Exchange {
                    from: run.logical + (start - run.place),
                    to: held.logical + (start - held.place),
                    blocks: end - start,
                };
                steps.push((donor, exchange));
            }
        }
        steps
    }
}

/// By place: the donor, and a run of its blocks. No two have the same place.
#[derive(Default)]
struct Held(BTreeMap<u64, (usize, Run)>);

impl Held {
    /// The runs that have any of these places.
    fn within(&self, run: Run) -> impl Iterator<Item = (usize, Run)> {
        let before = self.0.range(..run.place).next_back().filter(move |(_, (_, held))| held.end() > run.place);
        before.into_iter().chain(self.0.range(run.place..run.end())).map(|(_, held)| *held)
    }

    /// Nobody holds these places any more.
    fn cut(&mut self, run: Run) {
        let cut: Vec<(usize, Run)> = self.within(run).collect();
        for (donor, held) in cut {
            self.0.remove(&held.place);
            for left in beside(held, run) {
                self.0.insert(left.place, (donor, left));
            }
        }
    }
}

fn piece(run: Run) -> Piece {
    Piece { place: run.place, blocks: run.blocks }
}

fn places_of<H: Host>(host: &mut H, donor: &H::Donor, near: &Path) -> Result<Places, Failure> {
    host.donor_places(donor).map_err(|source| Failure::new("tell where free space lies", near, source))
}

/// What of a run lies before and behind the places of another.
fn beside(run: Run, other: Run) -> impl Iterator<Item = Run> {
    let before = Run { blocks: other.place.saturating_sub(run.place).min(run.blocks), ..run };
    let behind = other.end().clamp(run.place, run.end());
    let behind = Run { logical: run.logical + (behind - run.place), place: behind, blocks: run.end() - behind };
    [before, behind].into_iter().filter(|run| run.blocks > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(logical: u64, place: u64, blocks: u64) -> Run {
        Run { logical, place, blocks }
    }

    #[test]
    fn what_others_hold_is_cut_out() {
        let cut = |other: Run| {
            let mut held = Held::default();
            held.0.insert(100, (3, run(5, 100, 10)));
            held.cut(other);
            held.0.into_values().collect::<Vec<_>>()
        };
        assert_eq!(cut(run(0, 90, 10)), [(3, run(5, 100, 10))]);
        assert_eq!(cut(run(0, 110, 1)), [(3, run(5, 100, 10))]);
        assert_eq!(cut(run(0, 90, 30)), []);
        assert_eq!(cut(run(0, 95, 7)), [(3, run(7, 102, 8))]);
        assert_eq!(cut(run(0, 102, 2)), [(3, run(5, 100, 2)), (3, run(9, 104, 6))]);
        assert_eq!(cut(run(0, 109, 9)), [(3, run(5, 100, 9))]);
    }
}
