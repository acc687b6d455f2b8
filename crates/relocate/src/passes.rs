//! Packing until nothing gains any more: each pass frees room for the next.
//!
//! Free space in pieces holds few large regions. So after a pass that found places for less than half of what its regions were to save,
//! the next one plans smaller ones. What those leave may hold large ones again: so it begins anew, until it went through all sizes and nothing
//! was moved. A run after that finds what this one found, and moves nothing.

use std::mem;

use crate::carry::{Ended, Report, Settings, carry_out};
use crate::host::Host;
use crate::pack::{Item, Plan, Region, Rules, Score, plan, score};
use crate::survey::Candidate;

/// How much smaller regions get, and the smallest there are, in blocks.
const SMALLER: u64 = 4;
const SMALLEST: u64 = 16;

/// What came of it.
#[derive(Debug, Default)]
pub struct Done {
    /// The scores before.
    pub before: Score,
    /// The scores now.
    pub after: Score,
    /// Passes that moved something.
    pub passes: u32,
    /// All passes together. Regions that were left are those of the last one that planned regions as large as was asked for.
    pub report: Report,
    /// Nothing gains any more: it did not end for another reason.
    pub is_at_rest: bool,
}

/// The plan for files in the order of their survey.
#[must_use]
pub fn plan_for(files: &[Candidate], settings: &Settings) -> Plan {
    let mut plan = plan(&items(files), &settings.rules);
    if settings.gain_first {
        plan.sort_by_gain();
    }
    plan
}

/// Plans and carries out, `most` times at most, until regions of no size gain any more.
///
/// `goes_on` is asked before each region with the sum of what was done: regions, files, blocks and large pages.
pub fn pack_until_rest<H: Host>(
    host: &mut H,
    files: &mut [Candidate],
    settings: &Settings,
    most: u32,
    goes_on: &mut dyn FnMut(&Report) -> bool,
) -> Done {
    let mut packing = Packing::new(files, settings, most);
    while packing.gain(u64::MAX).is_some() {
        packing.step(host, files, u64::MAX, goes_on);
    }
    packing.end(files)
}

/// The same in steps, between which something else may be packed: always with the same files, which nobody else changes.
#[derive(Debug)]
pub struct Packing {
    settings: Settings,
    now: Settings,
    has_moved: bool,
    /// Passes that may still be planned.
    left: u32,
    plan: Plan,
    /// So many of its regions had their turn.
    taken: usize,
    /// What this pass has done so far.
    pass: Report,
    done: Done,
}

impl Packing {
    /// Plans the first pass.
    #[must_use]
    pub fn new(files: &[Candidate], settings: &Settings, most: u32) -> Packing {
        let mut packing = Packing {
            settings: *settings,
            now: *settings,
            has_moved: false,
            left: most,
            plan: Plan::default(),
            taken: 0,
            pass: Report::default(),
            done: Done { before: score(&items(files)), ..Done::default() },
        };
        packing.plan_next(files);
        packing
    }

    /// Breaks that a step of about so many blocks saves for each block; `None` when there is none any more.
    #[must_use]
    pub fn gain(&self, blocks: u64) -> Option<f64> {
        let regions = self.next(blocks);
        let sum = |of: fn(&Region) -> u64| regions.iter().map(of).sum::<u64>() as f64;
        (!regions.is_empty()).then(|| sum(|region| region.saves) / sum(|region| region.blocks).max(1.0))
    }

    /// Files that were moved so far, and their blocks.
    #[must_use]
    pub fn moved(&self) -> (u64, u64) {
        (self.done.report.files + self.pass.files, self.done.report.blocks + self.pass.blocks)
    }

    /// Carries out the next regions of the plan, of about so many blocks in all. `goes_on` is asked as by [`pack_until_rest`]; when it
    /// says no, that was the last step.
    pub fn step<H: Host>(
        &mut self,
        host: &mut H,
        files: &mut [Candidate],
        blocks: u64,
        goes_on: &mut dyn FnMut(&Report) -> bool,
    ) {
        let part = Plan { regions: self.next(blocks).to_vec(), ..self.plan };
        let (sum, pass) = (&self.done.report, &self.pass);
        let report = carry_out(host, files, &part, &self.now, &mut |own| {
            goes_on(&Report {
                regions: sum.regions + pass.regions + own.regions,
                files: sum.files + pass.files + own.files,
                blocks: sum.blocks + pass.blocks + own.blocks,
                large: sum.large + pass.large + own.large,
                ..Report::default()
            })
        });
        self.taken += part.regions.len();
        let left = (self.pass.not_better + report.not_better, self.pass.no_room + report.no_room);
        add(&mut self.pass, report);
        (self.pass.not_better, self.pass.no_room) = left;
        if self.pass.ended.is_some() || self.taken == self.plan.regions.len() {
            self.end_pass();
            self.plan_next(files);
        }
    }

    /// What came of it.
    #[must_use]
    pub fn end(mut self, files: &[Candidate]) -> Done {
        if self.taken > 0 {
            self.add_pass();
        }
        self.done.after = score(&items(files));
        self.done
    }

    /// The next regions of about so many blocks: one at least, where there is any.
    fn next(&self, blocks: u64) -> &[Region] {
        let rest = &self.plan.regions[self.taken..];
        let mut left = blocks;
        let fits = |region: &&Region| {
            let fits = left > 0;
            left = left.saturating_sub(region.blocks);
            fits
        };
        let count = rest.iter().take_while(fits).count();
        &rest[..count.max(1).min(rest.len())]
    }

    fn plan_next(&mut self, files: &[Candidate]) {
        while self.left > 0 && self.plan.regions.is_empty() {
            self.left -= 1;
            self.plan = plan_for(files, &self.now);
            if self.plan.regions.is_empty() {
                self.end_pass();
            }
        }
    }

    /// Adds up what the pass has done; gives how many breaks it was to save by what it moved, if it moved anything.
    fn add_pass(&mut self) -> Option<u64> {
        let mut pass = mem::take(&mut self.pass);
        let saves = (pass.regions > 0).then_some(pass.saves);
        // Smaller regions are of files that were left already.
        if self.now.rules != self.settings.rules {
            (pass.not_better, pass.no_room) = (self.done.report.not_better, self.done.report.no_room);
        }
        self.done.passes += u32::from(saves.is_some());
        self.has_moved |= saves.is_some();
        add(&mut self.done.report, pass);
        saves
    }

    /// Says what the next pass is to try, if there is to be one.
    fn end_pass(&mut self) {
        let saves = self.add_pass();
        let plan = mem::take(&mut self.plan);
        self.taken = 0;
        if self.done.report.ended.is_some() {
            self.left = 0;
            return;
        }
        match smaller(&self.now.rules, saves.unwrap_or(0), &plan) {
            Some(smaller) => self.now.rules = smaller,
            None if saves.is_some() => {}
            None if self.has_moved && self.now.rules != self.settings.rules => {
                (self.now, self.has_moved) = (self.settings, false);
            }
            None => (self.done.is_at_rest, self.left) = (true, 0),
        }
    }
}

/// The rules for smaller regions, where too little of what a plan's regions were to save found a place.
fn smaller(rules: &Rules, saves: u64, plan: &Plan) -> Option<Rules> {
    let planned: u64 = plan.regions.iter().map(|region| region.saves).sum();
    next_smaller(rules).filter(|_| 2 * saves < planned)
}

/// The rules for the next smaller regions; `None` when there are none.
pub(crate) fn next_smaller(rules: &Rules) -> Option<Rules> {
    let region = (rules.region / SMALLER).max(SMALLEST);
    (region < rules.region).then(|| Rules { slack: Rules::for_regions(region).slack, region, ..*rules })
}

fn items(files: &[Candidate]) -> Vec<Item<'_>> {
    files.iter().map(Candidate::item).collect()
}

/// Adds what a pass has done. Regions that were left are those of the last one.
pub(crate) fn add(sum: &mut Report, pass: Report) {
    sum.regions += pass.regions;
    sum.pieces += pass.pieces;
    sum.files += pass.files;
    sum.blocks += pass.blocks;
    sum.large += pass.large;
    sum.saves += pass.saves;
    sum.commits += pass.commits;
    sum.stayed.extend(pass.stayed);
    sum.torn.extend(pass.torn);
    // Each is one file, whichever passes it was moved in.
    sum.torn.sort_unstable();
    sum.torn.dedup();
    sum.ended = pass.ended;
    (sum.not_better, sum.no_room) = (pass.not_better, pass.no_room);
}

impl Done {
    /// Whether the caller ended it.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        matches!(self.report.ended, Some(Ended::Stopped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::Region;

    #[test]
    fn what_was_left_is_told_of_regions_that_were_asked_for() {
        let settings = Settings::new(Rules { region: 512, slack: 0, budget: 32, dearest: 32, margin: 1 });
        let mut packing = Packing::new(&[], &settings, 9);
        packing.pass = Report { not_better: 3, no_room: 2, ..Report::default() };
        packing.add_pass();
        packing.now.rules.region = 128;
        packing.pass = Report { no_room: 1, ..Report::default() };
        packing.add_pass();
        assert_eq!((packing.done.report.not_better, packing.done.report.no_room), (3, 2));
        packing.now = settings;
        packing.add_pass();
        assert_eq!(
            (packing.done.report.not_better, packing.done.report.no_room),
            (0, 0),
            "all of them found a place since"
        );
    }

    #[test]
    fn regions_get_smaller_where_little_found_a_place() {
        let regions = vec![Region { files: 0..2, blocks: 8, saves: 3 }; 4];
        let plan = Plan { regions, ..Plan::default() };
        let rules = Rules { budget: 7, dearest: 7, margin: 1, ..Rules::for_regions(512) };
        let expected = Rules { budget: 7, dearest: 7, margin: 1, ..Rules::for_regions(128) };
        assert_eq!(smaller(&rules, 5, &plan), Some(expected));
        assert_eq!(smaller(&rules, 6, &plan), None, "half of what they save did");
        assert_eq!(smaller(&Rules { region: 20, ..rules }, 0, &plan).map(|rules| rules.region), Some(16));
        assert_eq!(smaller(&Rules { region: 16, ..rules }, 0, &plan), None);
    }
}
