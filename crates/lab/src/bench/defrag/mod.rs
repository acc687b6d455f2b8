//! `onesweep-lab bench defrag`: what moving small files side by side gives to those who read them.
//!
//! | module | what it knows |
//! |---|---|
//! | [`cases`] | images, what packs each, and who reads it then |
//! | [`packing`] | a program that moves files, run on an emulated disk |
//! | [`contents`] | what is in the files of an image, and where each lies |
//! | [`written`] | what a trace says of writes |
//! | [`small`] | the small files of each directory, from cold |
//! | [`measure`] | a copy that is packed, checked, held against the image and read |
//! | [`daemon`], [`ageing`] | the daemon beside a load that ages the file system |
//! | [`outcomes`] | what came out, in a file |
//! | [`goals`], [`page`] | tables and a picture of it |

mod ageing;
mod cases;
mod contents;
mod daemon;
mod goals;
mod measure;
mod outcomes;
mod packing;
mod page;
mod small;
mod written;

use std::path::PathBuf;

use self::cases::{CASES, Case};
use self::daemon::Load;
use self::outcomes::{Measured, Outcomes, Packed};
use super::images::Images;
use super::run::Subject;
use super::sweep;
use super::work::Programs;
use crate::interrupt::Interrupt;

pub(crate) use self::ageing::run as do_ageing;
pub(crate) use self::page::{BEGIN, END, show};

/// What is asked for.
pub(crate) struct Order {
    /// The directory of the results.
    pub(crate) out: PathBuf,
    /// Names of cases, or how they begin; all when there is none.
    pub(crate) cases: Vec<String>,
    pub(crate) seed: u64,
    pub(crate) scale: f64,
    /// Whether what was measured before is measured again.
    pub(crate) again: bool,
    pub(crate) cache: PathBuf,
    pub(crate) programs: Programs,
}

/// Programs whose versions are named.
const PROGRAMS: [&str; 4] = ["tar", "cp", "rsync", "find"];

/// The image of a case. A small ext4 has blocks of 1 KiB unless it is told otherwise.
fn subject(case: &Case, order: &Order) -> Subject {
    let subject = Subject::new(case.recipe, case.fs, order.scale, order.seed).mkfs(case.mkfs);
    if case.fs == "ext4" && order.scale < 1.0 { subject.mkfs(&["-b", "4096"]) } else { subject }
}

/// Measures the packings of the cases that are asked for and not yet there.
pub(crate) fn run(order: &Order) -> Result<u8, String> {
    let interrupt = Interrupt::by_signals()?;
    let is_asked = |name: &str| order.cases.is_empty() || order.cases.iter().any(|asked| name.starts_with(&**asked));
    let cases: Vec<_> = CASES.iter().filter(|case| is_asked(case.name)).collect();
    let is_daemon_asked = is_asked(daemon::CASE);
    if cases.is_empty() && !is_daemon_asked {
        let known: Vec<&str> = CASES.iter().map(|case| case.name).chain([daemon::CASE]).collect();
        return Err(format!("no such case; known are {}", known.join(", ")));
    }
    std::fs::create_dir_all(&order.out).map_err(|error| format!("{}: {error}", order.out.display()))?;
    let mut outcomes = Outcomes::load(&order.out)?;
    let mut images = Images::new(&order.cache)?;
    let mut measuring = Measuring { order, interrupt: &interrupt, outcomes: &mut outcomes, code: 0 };
    for case in cases {
        let subject = subject(case, order);
        if !case.mkfs.is_empty()
            && let Err(complaint) = subject.fs()?.can_make(&subject.mkfs)
        {
            // Behind its first line may come all options that it knows.
            let why = complaint.lines().next().unwrap_or_default();
            eprintln!("{} is left out, since its mkfs does not take {}: {why}", case.name, case.mkfs.join(" "));
            continue;
        }
        for lot in case.lots {
            measuring.one(case.name, lot.packing.name, || {
                measure::measure(&subject, lot, &mut images, &order.programs, &interrupt)
            })?;
        }
    }
    let load = Load { scale: order.scale, seed: order.seed, programs: &order.programs, interrupt: &interrupt };
    for way in daemon::WAYS.into_iter().filter(|_| is_daemon_asked) {
        let without = measuring.outcomes.of(daemon::CASE, daemon::OFF.name, order.scale, order.seed).cloned();
        measuring.one(daemon::CASE, way.name, || load.measure(way, without.as_ref()))?;
    }
    Ok(measuring.code)
}

/// One after the other, each written down.
struct Measuring<'a> {
    order: &'a Order,
    interrupt: &'a Interrupt,
    outcomes: &'a mut Outcomes,
    /// How it ends.
    code: u8,
}

impl Measuring<'_> {
    /// What fails is told, and left out.
    fn one(
        &mut self,
        case: &str,
        packing: &str,
        measure: impl FnOnce() -> Result<Packed, String>,
    ) -> Result<(), String> {
        let order = self.order;
        if self.outcomes.has(case, packing, order.scale, order.seed) && !order.again {
            return Ok(());
        }
        eprintln!("{case}: {packing}");
        match measure() {
            Ok(outcome) => {
                let (machine, commit) = (sweep::machine(&order.programs, &PROGRAMS), sweep::commit());
                let measured = Measured { scale: order.scale, seed: order.seed, commit, machine, outcome };
                self.outcomes.enter(case, packing, measured);
                self.outcomes.save(&order.out)
            }
            Err(_) if self.interrupt.came() => Err("interrupted; what was measured is kept".into()),
            Err(complaint) => {
                eprintln!("{case}, {packing} is left out: {complaint}");
                self.code = 1;
                Ok(())
            }
        }
    }
}
