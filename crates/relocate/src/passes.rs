//! Packing until nothing gains any more: each pass frees room for the next.

use crate::carry::{Ended, Report, Settings, carry_out};
use crate::host::Host;
use crate::pack::{Item, Plan, Score, plan, score};
use crate::survey::Candidate;

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

/// Plans and carries out, `most` times at most, until a pass moves nothing.
///
/// `goes_on` is asked before each region with the sum of what was done: regions, files, blocks and what was read back.
pub fn pack_until_rest<H: Host>(
    host: &mut H,
    files: &mut [Candidate],
    settings: &Settings,
    most: u32,
    goes_on: &mut dyn FnMut(&Report) -> bool,
) -> Done {
    let mut done = Done { before: score(&items(files)), ..Done::default() };
    for _ in 0..most {
        let plan = plan_for(files, settings);
        if plan.regions.is_empty() {
            done.report.not_better = 0;
            done.report.no_room = 0;
            break;
        }
        let sum = &done.report;
        let pass = carry_out(host, files, &plan, settings, &mut |now| {
            goes_on(&Report {
                regions: sum.regions + now.regions,
                files: sum.files + now.files,
                blocks: sum.blocks + now.blocks,
                read_back: sum.read_back + now.read_back,
                ..Report::default()
            })
        });
        let is_last = pass.regions == 0 || pass.ended.is_some();
        done.passes += u32::from(pass.regions > 0);
        add(&mut done.report, pass);
        if is_last {
            break;
        }
    }
    done.after = score(&items(files));
    done
}

fn items(files: &[Candidate]) -> Vec<Item<'_>> {
    files.iter().map(Candidate::item).collect()
}

fn add(sum: &mut Report, pass: Report) {
    sum.regions += pass.regions;
    sum.files += pass.files;
    sum.blocks += pass.blocks;
    sum.read_back += pass.read_back;
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
