//! Free space that is held by donors, for the regions of a batch.

use std::io;
use std::path::Path;

use crate::errno::is_short;
use crate::host::{Exchange, Failure, Host};
use crate::pack::{Fitted, Piece, fit_into};
use crate::places::{Places, Run};

/// Donors, what they hold, and what of it no region has.
pub(super) struct Space<H: Host> {
    donors: Vec<Donor<H::Donor>>,
    /// By place: the donor, and a run of its blocks.
    held: Vec<(usize, Run)>,
    /// The same of what no region has.
    unused: Vec<(usize, Run)>,
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
    /// A region has some of it.
    is_taken: bool,
}

/// Blocks that are captured together, at least: where the donors are, no page has blocks of two.
const TOGETHER: u64 = 16;
/// Tries to capture a donor for one region.
const TRIES: usize = 4;
/// Free space is in too many pieces for donors of their own when fewer files than this come for each break.
const FILES_FOR_A_BREAK: u64 = 16;

impl<H: Host> Space<H> {
    /// Half of what is free is left to others.
    pub(super) fn of(free_blocks: u64, shares_donors: bool, slack: u64) -> Self {
        Self {
            donors: Vec::new(),
            held: Vec::new(),
            unused: Vec::new(),
            shares_donors,
            slack,
            is_exhausted: false,
            is_in_pieces: false,
            left: free_blocks / 2,
        }
    }

    /// Blocks that no region has.
    pub(super) fn unused(&self) -> u64 {
        self.pieces().map(|piece| piece.blocks).sum()
    }

    /// Pieces that no region has.
    pub(super) fn pieces(&self) -> impl Iterator<Item = Piece> {
        self.unused.iter().map(|(_, run)| Piece { place: run.place, blocks: run.blocks })
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
        let mut runs = places.runs().to_vec();
        runs.sort_by_key(|run| run.place);
        let number = self.donors.len();
        self.donors.push(Donor { held: Some(donor), is_taken: false });
        for all in [&mut self.held, &mut self.unused] {
            // What another donor had there it has given away meanwhile, for a file that did not come.
            cut_out(all, &runs);
            all.extend(runs.iter().map(|&run| (number, run)));
            all.sort_by_key(|(_, run)| run.place);
        }
    }

    /// Gives a region these places, and those that stay free behind them.
    pub(super) fn take(&mut self, files: &[Places]) {
        let behind = files.last().and_then(Places::end).map(|place| Run { logical: 0, place, blocks: self.slack });
        let mut runs: Vec<Run> = files.iter().flat_map(Places::runs).copied().chain(behind).collect();
        let donors: Vec<usize> = runs.iter().flat_map(|&run| self.held_in(run)).map(|(donor, _)| donor).collect();
        donors.into_iter().for_each(|donor| self.donors[donor].is_taken = true);
        runs.sort_by_key(|run| run.place);
        cut_out(&mut self.unused, &runs);
        if !self.shares_donors {
            self.unused.retain(|(donor, _)| !self.donors[*donor].is_taken);
        }
    }

    /// No region has anything.
    pub(super) fn let_go(&mut self) {
        self.donors.iter_mut().for_each(|donor| donor.is_taken = false);
        self.unused.clone_from(&self.held);
    }

    /// Gives back the donors of which no region has anything; tells how many blocks.
    pub(super) fn give_back_unused(&mut self) -> u64 {
        self.donors.iter_mut().filter(|donor| !donor.is_taken).for_each(|donor| donor.held = None);
        self.held.retain(|(donor, _)| self.donors[*donor].held.is_some());
        let before = self.unused();
        self.unused.retain(|(donor, _)| self.donors[*donor].held.is_some());
        before - self.unused()
    }

    /// The exchanges by which a file comes to these places, all of which are held.
    pub(super) fn steps(&self, to: &Places) -> Vec<(&H::Donor, Exchange)> {
        let mut steps = Vec::new();
        for &run in to.runs() {
            for (donor, held) in self.held_in(run) {
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

    /// What is held of a run of places.
    fn held_in(&self, run: Run) -> impl Iterator<Item = (usize, Run)> {
        let behind = self.held.partition_point(|(_, held)| held.end() <= run.place);
        self.held[behind..].iter().copied().take_while(move |(_, held)| held.place < run.end())
    }
}

fn places_of<H: Host>(host: &mut H, donor: &H::Donor, near: &Path) -> Result<Places, Failure> {
    host.donor_places(donor).map_err(|source| Failure::new("tell where free space lies", near, source))
}

/// Takes runs, which are in order, out of what donors hold.
fn cut_out(held: &mut Vec<(usize, Run)>, runs: &[Run]) {
    *held = held.iter().flat_map(|&(donor, run)| beside(run, runs).map(move |run| (donor, run))).collect();
}

/// What of a run lies beside others, which are in order.
fn beside(run: Run, others: &[Run]) -> impl Iterator<Item = Run> + use<> {
    let mut left = Vec::new();
    let mut place = run.place;
    let mut keep = |start: u64, end: u64| {
        if start < end {
            left.push(Run { logical: run.logical + (start - run.place), place: start, blocks: end - start });
        }
    };
    let ahead = others.iter().skip_while(|other| other.end() <= run.place);
    for other in ahead.take_while(|other| other.place < run.end()) {
        keep(place, other.place);
        place = place.max(other.end());
    }
    keep(place, run.end());
    left.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_have_is_cut_out() {
        let run = |logical, place, blocks| Run { logical, place, blocks };
        let cut = |others: &[Run]| beside(run(5, 100, 10), others).collect::<Vec<_>>();
        assert_eq!(cut(&[]), [run(5, 100, 10)]);
        assert_eq!(cut(&[run(0, 90, 10), run(0, 110, 1)]), [run(5, 100, 10)]);
        assert_eq!(cut(&[run(0, 90, 30)]), []);
        assert_eq!(cut(&[run(0, 95, 7), run(0, 104, 1), run(0, 109, 9)]), [run(7, 102, 2), run(10, 105, 4)]);
    }
}
