//! Packing until nothing gains any more: each pass frees room for the next.
//!
//! Free space in pieces holds few large regions. So after a pass that found a place for less than half of its regions, the next one
//! plans smaller ones. What those leave may hold large ones again: so it begins anew, until it went through all sizes and nothing
//! was moved. A run after that finds what this one found, and moves nothing.

use crate::carry::{Ended, Report, Settings, carry_out};
use crate::host::Host;
use crate::pack::{Item, Plan, Rules, Score, plan, score};
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
    /// All passes together. Regions that were left are those of the last one.
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
    let mut done = Done { before: score(&items(files)), ..Done::default() };
    let (mut now, mut has_moved) = (*settings, false);
    for _ in 0..most {
        let plan = plan_for(files, &now);
        let sum = &done.report;
        let pass = carry_out(host, files, &plan, &now, &mut |own| {
            goes_on(&Report {
                regions: sum.regions + own.regions,
                files: sum.files + own.files,
                blocks: sum.blocks + own.blocks,
                large: sum.large + own.large,
                ..Report::default()
            })
        });
        let (found, has_ended) = (pass.regions, pass.ended.is_some());
        done.passes += u32::from(found > 0);
        add(&mut done.report, pass);
        has_moved |= found > 0;
        if has_ended {
            break;
        }
        match smaller(&now.rules, found, &plan) {
            Some(smaller) => now.rules = smaller,
            None if found > 0 => {}
            None if has_moved && now.rules != settings.rules => (now, has_moved) = (*settings, false),
            None => {
                done.is_at_rest = true;
                break;
            }
        }
    }
    done.after = score(&items(files));
    done
}

/// The rules for smaller regions, where too few of a plan's regions found a place.
fn smaller(rules: &Rules, found: u64, plan: &Plan) -> Option<Rules> {
    next_smaller(rules).filter(|_| 2 * found < plan.regions.len() as u64)
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
    sum.files += pass.files;
    sum.blocks += pass.blocks;
    sum.large += pass.large;
    sum.commits += pass.commits;
    sum.stayed.extend(pass.stayed);
    sum.torn.extend(pass.torn);
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
    fn regions_get_smaller_where_few_found_a_place() {
        let regions = vec![Region { files: 0..2, blocks: 8, saves: 3 }; 4];
        let plan = Plan { regions, ..Plan::default() };
        let rules = Rules { budget: 7, margin: 1, ..Rules::for_regions(512) };
        let expected = Rules { budget: 7, margin: 1, ..Rules::for_regions(128) };
        assert_eq!(smaller(&rules, 1, &plan), Some(expected));
        assert_eq!(smaller(&rules, 2, &plan), None, "half of them did");
        assert_eq!(smaller(&Rules { region: 20, ..rules }, 0, &plan).map(|rules| rules.region), Some(16));
        assert_eq!(smaller(&Rules { region: 16, ..rules }, 0, &plan), None);
    }
}
