//! `onesweep-lab bench du`: directory summaries beside `du` and its like, on the same disks.
//!
//! | module | what it measures |
//! |---|---|
//! | [`days`], [`passes`] | questions after a day's changes, with cold caches (FastDu, figure 2); a first harvest; another start |
//! | [`still`] | questions where nothing has changed, by their number and time; memory; a start after a pause |
//! | [`linked`] | snapshots by hard links: a first harvest, a question after one is removed |
//! | [`ages`] | how old what is stored becomes |
//! | [`cost`] | what a tracker costs others (FastDu, table 2) |
//! | [`background`] | what a harvest costs a reader that nobody asked for |
//! | [`overwrite`] | what it costs a write into a directory that has changed |
//! | [`records`] | what it costs reads and writes of a large file, with little memory (FastDu, figure 3) |
//! | [`storm`], [`slab`] | memory under more events than anybody can follow |
//! | [`served`], [`peers`] | the server that is asked, and others that tell the same |
//! | [`stage`] | an emulated disk |
//! | [`volume`] | what is measured on where the disk doesn't matter |
//! | [`outcomes`] | what came out, in a file |
//! | [`page`], [`goals`], [`costs`] | tables and pictures of it |

mod ages;
mod background;
mod cost;
mod costs;
mod days;
mod goals;
mod linked;
mod outcomes;
mod overwrite;
mod page;
mod passes;
mod peers;
mod records;
mod served;
mod slab;
mod stage;
mod still;
mod storm;
mod volume;
mod wide;

use std::path::PathBuf;

use self::outcomes::{Measured, Outcome, Outcomes};
use super::images::Images;
use super::run::Subject;
use super::sweep;
use super::work::Programs;
use crate::interrupt::Interrupt;

pub(crate) use self::page::{BEGIN, END, show};
pub(crate) use self::records::{Kind, run as do_records};

/// What is asked for.
pub(crate) struct Order {
    /// The directory of the results.
    pub(crate) out: PathBuf,
    /// Names of cases, or how they begin where none is called so; all when there is none.
    pub(crate) cases: Vec<String>,
    pub(crate) seed: u64,
    pub(crate) scale: f64,
    /// Whether cases that were measured before are measured again.
    pub(crate) again: bool,
    pub(crate) cache: PathBuf,
    pub(crate) programs: Programs,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    /// A server of the paper, on a file system.
    Days(&'static str, &'static str),
    /// Questions where nothing has changed.
    Still,
    /// The homes of many users, asked for by one of them.
    Homes,
    /// Many directories, on a file system: memory, and a start after a pause.
    Many(&'static str),
    /// The same with files in each of fewer directories.
    Filled(&'static str),
    /// A directory with very many in it.
    Wide,
    /// Snapshots by hard links, on a file system.
    Linked(&'static str),
    /// Work on a source tree in memory, with a tracker and without.
    Cost,
    /// The same, where the server knows much, and what was made before each step.
    CostWhereKnown,
    /// The same, of following what is written to move it, beside the tracker alone.
    CostOfFollowing,
    /// Work on a source tree with a tracker and without, on a disk that takes its time.
    CostOnDisk,
    /// A reader on such a disk, beside a harvest that nobody asked for.
    Background,
    /// Writes into a directory that has changed.
    Overwrite,
    /// A large file, by records of many sizes.
    Records,
    /// The same on a disk that takes its time.
    RecordsOnDisk,
    /// More events than anybody can follow.
    Storm(storm::Visits),
    /// What is stored, asked for while its directories change.
    Ages,
}

const CASES: [Case; 27] = [
    Case::Days("days-a", "ext4"),
    Case::Days("days-a", "xfs"),
    Case::Days("days-b", "ext4"),
    Case::Days("days-b", "xfs"),
    Case::Still,
    Case::Homes,
    Case::Many("ext4"),
    Case::Many("xfs"),
    Case::Many("btrfs"),
    Case::Filled("ext4"),
    Case::Filled("xfs"),
    Case::Filled("btrfs"),
    Case::Wide,
    Case::Linked("ext4"),
    Case::Linked("xfs"),
    Case::Linked("btrfs"),
    Case::Cost,
    Case::CostWhereKnown,
    Case::CostOfFollowing,
    Case::CostOnDisk,
    Case::Background,
    Case::Overwrite,
    Case::Records,
    Case::RecordsOnDisk,
    Case::Storm(storm::Visits::Three),
    Case::Storm(storm::Visits::One),
    Case::Ages,
];

/// Those that are named, of all.
fn asked(names: &[String]) -> Vec<Case> {
    let is_one = |name: &String| CASES.iter().any(|case| case.name() == *name);
    let is_meant =
        |name: &String, case: &str| if is_one(name) { case == name } else { case.starts_with(name.as_str()) };
    let is_asked = |case: &Case| names.is_empty() || names.iter().any(|name| is_meant(name, &case.name()));
    CASES.into_iter().filter(is_asked).collect()
}

/// Things are tried at small scales, and so in few rounds.
fn rounds(scale: f64, rounds: usize) -> usize {
    if scale < 0.1 { 1 } else { rounds }
}

impl Case {
    fn name(self) -> String {
        match self {
            Self::Days(recipe, fs) => format!("{recipe}-{fs}"),
            Self::Still => "still".into(),
            Self::Homes => "homes".into(),
            Self::Many(fs) => format!("many-{fs}"),
            Self::Filled(fs) => format!("filled-{fs}"),
            Self::Wide => "wide".into(),
            Self::Linked(fs) => format!("linked-{fs}"),
            Self::Cost => "cost".into(),
            Self::CostWhereKnown => "cost-known".into(),
            Self::CostOfFollowing => "follow-cost".into(),
            Self::CostOnDisk => "disk-cost".into(),
            Self::Background => "background".into(),
            Self::Overwrite => "overwrite".into(),
            Self::Records => "records".into(),
            Self::RecordsOnDisk => "disk-records".into(),
            Self::Storm(storm::Visits::Three) => "storm".into(),
            Self::Storm(storm::Visits::One) => "storm-once".into(),
            Self::Ages => "ages".into(),
        }
    }

    fn measure(self, order: &Order, images: &mut Images, interrupt: &Interrupt) -> Result<Outcome, String> {
        match self {
            Self::Days(recipe, fs) => {
                let subject = Subject::new(recipe, fs, order.scale, order.seed).steps(0);
                days::measure(&subject, images, &order.programs, interrupt).map(Outcome::Days)
            }
            Self::Still => still::questions(order.scale, &order.programs, interrupt).map(Outcome::Still),
            Self::Homes => still::homes(order.scale, &order.programs, interrupt).map(Outcome::Homes),
            Self::Cost => cost::in_memory(order.scale, order.seed, &order.programs, interrupt).map(Outcome::Costs),
            Self::CostWhereKnown => {
                cost::where_all_is_known(order.scale, order.seed, &order.programs, interrupt).map(Outcome::Costs)
            }
            Self::CostOfFollowing => {
                cost::of_following(order.scale, order.seed, &order.programs, interrupt).map(Outcome::Costs)
            }
            Self::CostOnDisk => cost::on_disk(order.scale, order.seed, &order.programs, interrupt).map(Outcome::Costs),
            Self::Background => {
                background::measure(order.scale, order.seed, &order.programs, interrupt).map(Outcome::Background)
            }
            Self::Overwrite => overwrite::measure(order.scale, &order.programs, interrupt).map(Outcome::Overwrite),
            Self::Records => records::measure(order.scale, &order.programs, interrupt).map(Outcome::Records),
            Self::RecordsOnDisk => records::on_disk(order.scale, &order.programs, interrupt).map(Outcome::Records),
            Self::Storm(visits) => storm::measure(visits, order.scale, &order.programs, interrupt).map(Outcome::Storm),
            Self::Ages => ages::measure(order.scale, &order.programs, interrupt).map(Outcome::Ages),
            Self::Wide => wide::measure(order.scale, &order.programs, interrupt).map(Outcome::Wide),
            Self::Linked(fs) => linked::measure(fs, order.scale, &order.programs, interrupt).map(Outcome::Linked),
            Self::Many(fs) => still::many(fs, order.scale, &order.programs, interrupt).map(Outcome::Many),
            Self::Filled(fs) => still::filled(fs, order.scale, &order.programs, interrupt).map(Outcome::Many),
        }
    }
}

/// Measures the cases that are asked for and not yet there.
pub(crate) fn run(order: &Order) -> Result<u8, String> {
    let interrupt = Interrupt::by_signals()?;
    let cases = asked(&order.cases);
    if cases.is_empty() {
        let known = CASES.map(Case::name).join(", ");
        return Err(format!("no such case; known are {known}"));
    }
    std::fs::create_dir_all(&order.out).map_err(|error| format!("{}: {error}", order.out.display()))?;
    let mut outcomes = Outcomes::load(&order.out)?;
    let mut images = Images::new(&order.cache)?;
    let mut code = 0;
    for case in cases {
        let name = case.name();
        if outcomes.has(&name, order.scale) && !order.again {
            continue;
        }
        eprintln!("measuring {name}");
        match case.measure(order, &mut images, &interrupt) {
            Ok(outcome) => {
                let (machine, commit) = (sweep::machine(&order.programs, &peers::PROGRAMS), sweep::commit());
                outcomes.enter(name, Measured { scale: order.scale, commit, machine, outcome });
                outcomes.save(&order.out)?;
            }
            Err(_) if interrupt.came() => return Err("interrupted; what was measured is kept".into()),
            Err(complaint) => {
                eprintln!("{name} is left out: {complaint}");
                code = 1;
            }
        }
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_named_or_how_some_begin() {
        let asked = |names: &[&str]| -> Vec<String> {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            super::asked(&names).into_iter().map(Case::name).collect()
        };
        assert_eq!(asked(&["cost"]), ["cost"]);
        assert_eq!(asked(&["cos", "linked-x"]), ["linked-xfs", "cost", "cost-known"]);
        assert_eq!(asked(&[]).len(), CASES.len());
        assert!(asked(&["no"]).is_empty());
    }
}
