//! `onesweep-lab bench peer`: reads that a server answers when it is quicker, beside the disk alone.
//!
//! The disks are emulated; client and server are in network namespaces of their own, with a link of a limited rate between
//! them.
//!
//! | module | what it measures |
//! |---|---|
//! | [`figures`] | files of many sizes, at random and from start to end (the paper's figures 4 and 3) |
//! | [`faults`] | a server that fails in each of many ways |
//! | [`writes`], [`large`] | writes through the race: their cost, also scattered over a large device; kills |
//! | [`rewritten`] | blocks that are written as a whole and in parts, and read once |
//! | [`troubles`] | a disk with unreadable places; a link that goes and comes |
//! | [`calm`] | what the race costs where it can't gain; the client library; a disk in standby |
//! | [`readers`] | several readers at once, among whose reads the drive chooses |
//! | [`stored`] | what a server keeps of many clients; how large an index is |
//! | [`trees`] | a tree on a device that is quicker than the network |
//! | [`scans`] | a second machine scans what a first one has scanned; the same beside clamdscan |
//! | [`guards`] | what `onesweep guard` adds to an opening |
//! | [`network`], [`site`], [`rig`] | the hosts, what runs on them, and the disks |
//! | [`relay`], [`liar`], [`gets`] | programs of our own on them: what spoils a connection, a server that begins to lie, the client library |
//! | [`clock`], [`clamd`] | a clock of the day that is moved; a scanner of viruses with a signature of our own |
//! | [`contents`], [`series`] | known bytes, and reads of them by the clock |
//! | [`warm`] | reads of what is in memory, of several places by turns |
//! | [`outcomes`] | what came out, in a file |
//! | [`page`], [`goals`] | tables of it |

mod calm;
mod clamd;
mod clock;
mod contents;
mod faults;
mod figures;
pub(crate) mod gets;
mod goals;
mod guards;
mod large;
pub(crate) mod liar;
mod network;
mod outcomes;
mod page;
mod readers;
pub(crate) mod relay;
mod rewritten;
mod rig;
mod scans;
mod series;
mod site;
mod stored;
mod trees;
mod troubles;
mod warm;
mod writes;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use self::outcomes::{Measured, Outcome, Outcomes};
use super::calibration;
use super::sweep;
use super::work::Programs;
use crate::interrupt::Interrupt;

pub(crate) use self::page::{BEGIN, END, show};

/// Whether the programs are those of a release: ours are built together.
const IS_RELEASE: bool = !cfg!(debug_assertions);

/// Figures of a case by name, of each round.
type Figures = BTreeMap<String, Vec<f64>>;

/// What is asked for.
pub(crate) struct Order {
    /// The directory of the results.
    pub(crate) out: PathBuf,
    /// Names of cases, or how they begin; all when there is none.
    pub(crate) cases: Vec<String>,
    pub(crate) scale: f64,
    /// Whether cases that were measured before are measured again.
    pub(crate) again: bool,
    pub(crate) programs: Programs,
}

/// What can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    /// Figure 4, over a link of so many Mbit/s.
    Random(u64),
    /// Figure 3, likewise.
    Sequential(u64),
    Faults,
    Rewritten,
    RewrittenParts,
    WriteThrough,
    Unreadable,
    Links,
    QuickDevice,
    QuickTree,
    Writes,
    WritesTogether,
    WritesScattered,
    SeveralReaders,
    Library,
    Shared,
    IndexSize,
    NoHelp,
    Quiet,
    SecondMachine,
    Scan,
    Guard,
}

const CASES: [Case; 24] = [
    Case::Random(10),
    Case::Random(1000),
    Case::Sequential(10),
    Case::Sequential(1000),
    Case::Faults,
    Case::Rewritten,
    Case::RewrittenParts,
    Case::WriteThrough,
    Case::Unreadable,
    Case::Links,
    Case::QuickDevice,
    Case::QuickTree,
    Case::Writes,
    Case::WritesTogether,
    Case::WritesScattered,
    Case::SeveralReaders,
    Case::Library,
    Case::Shared,
    Case::IndexSize,
    Case::NoHelp,
    Case::Quiet,
    Case::SecondMachine,
    Case::Scan,
    Case::Guard,
];

/// So many at that scale, and at least 20.
fn scaled(count: u64, scale: f64) -> u64 {
    ((count as f64 * scale) as u64).clamp(20.min(count), count.max(20))
}

/// Things are tried at small scales, and so in few rounds.
fn rounds(scale: f64, rounds: usize) -> usize {
    if scale < 0.1 { 1 } else { rounds }
}

impl Case {
    fn name(self) -> String {
        match self {
            Self::Random(mbit) => format!("figure-4-{mbit}"),
            Self::Sequential(mbit) => format!("figure-3-{mbit}"),
            Self::Faults => "faults".into(),
            Self::Rewritten => "rewritten".into(),
            Self::RewrittenParts => "rewritten-parts".into(),
            Self::WriteThrough => "write-through".into(),
            Self::Unreadable => "unreadable".into(),
            Self::Links => "links".into(),
            Self::QuickDevice => "quick-device".into(),
            Self::QuickTree => "quick-tree".into(),
            Self::Writes => "writes".into(),
            Self::WritesTogether => "one-disk-writes".into(),
            Self::WritesScattered => "large-writes".into(),
            Self::SeveralReaders => "several-readers".into(),
            Self::Library => "library".into(),
            Self::Shared => "shared".into(),
            Self::IndexSize => "index-size".into(),
            Self::NoHelp => "no-help".into(),
            Self::Quiet => "quiet".into(),
            Self::SecondMachine => "second-machine".into(),
            Self::Scan => "scan".into(),
            Self::Guard => "guard".into(),
        }
    }

    /// By its name, or by how that begins, if that is no other's name.
    fn is_asked(self, name: &str) -> bool {
        let is_whole = CASES.iter().any(|case| case.name() == name);
        if is_whole { self.name() == name } else { self.name().starts_with(name) }
    }

    fn measure(self, scale: f64, programs: &Programs, interrupt: &Interrupt) -> Result<Outcome, String> {
        let figures: fn(f64, &Programs, &Interrupt) -> Result<Figures, String> = match self {
            Self::Random(mbit) => return figures::random(mbit, scale, programs, interrupt).map(Outcome::Random),
            Self::Sequential(mbit) => {
                return figures::sequential(mbit, scale, programs, interrupt).map(Outcome::Sequential);
            }
            Self::Faults => return faults::measure(scale, programs, interrupt).map(Outcome::Faults),
            Self::Rewritten => rewritten::whole,
            Self::RewrittenParts => rewritten::parts,
            Self::WriteThrough => writes::through,
            Self::Unreadable => troubles::unreadable,
            Self::Links => troubles::links,
            Self::QuickDevice => calm::quick_device,
            Self::QuickTree => trees::quick,
            Self::Writes => writes::random,
            Self::WritesTogether => writes::random_on_one_disk,
            Self::WritesScattered => large::scattered,
            Self::SeveralReaders => readers::several,
            Self::Library => calm::library,
            Self::Shared => stored::shared,
            Self::IndexSize => stored::index,
            Self::NoHelp => calm::no_help,
            Self::Quiet => calm::quiet,
            Self::SecondMachine => scans::second_machine,
            Self::Scan => scans::beside_clamdscan,
            Self::Guard => guards::known,
        };
        figures(scale, programs, interrupt).map(Outcome::Figures)
    }
}

/// Processes that ran or wanted to, in the last minute.
fn load() -> f64 {
    let told = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    told.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or_default()
}

/// Measures the cases that are asked for and not yet there.
pub(crate) fn run(order: &Order) -> Result<u8, String> {
    let interrupt = Interrupt::by_signals()?;
    let cases: Vec<&Case> = CASES
        .iter()
        .filter(|case| order.cases.is_empty() || order.cases.iter().any(|name| case.is_asked(name)))
        .collect();
    if cases.is_empty() {
        let known = CASES.map(Case::name).join(", ");
        return Err(format!("no such case; known are {known}"));
    }
    fs::create_dir_all(&order.out).map_err(|error| format!("{}: {error}", order.out.display()))?;
    let mut outcomes = Outcomes::load(&order.out)?;
    let mut code = 0;
    for case in cases {
        let name = case.name();
        if outcomes.has(&name, order.scale, IS_RELEASE) && !order.again {
            continue;
        }
        eprintln!("measuring {name}");
        let began = load();
        match case.measure(order.scale, &order.programs, &interrupt) {
            Ok(outcome) => {
                let (machine, commit) = (sweep::machine(&order.programs, &[]), sweep::commit());
                let (load, getppid_us) = ([began, load()], calibration::getppid_ns() / 1e3);
                let (scale, is_release) = (order.scale, IS_RELEASE);
                let measured = Measured { scale, commit, machine, load, getppid_us, is_release, outcome };
                outcomes.enter(name, measured);
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
    fn names_tell_cases_apart_and_counts_have_a_least() {
        let names: std::collections::BTreeSet<String> = CASES.map(Case::name).into();
        assert_eq!(names.len(), CASES.len());
        let asked = |name: &str| CASES.iter().filter(|case| case.is_asked(name)).count();
        assert_eq!(["figure-4-10", "figure-4", "figure", "quick", "none"].map(asked), [1, 2, 4, 2, 0]);
        assert_eq!([scaled(1000, 1.0), scaled(1000, 0.1), scaled(1000, 0.001), scaled(10, 0.1)], [1000, 100, 20, 10]);
    }
}
