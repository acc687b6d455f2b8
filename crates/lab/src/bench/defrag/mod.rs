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
//! | [`outcomes`] | what came out, in a file |
//! | [`goals`], [`page`] | tables and a picture of it |

mod cases;
mod contents;
mod goals;
mod measure;
mod outcomes;
mod packing;
mod page;
mod small;
mod written;

use std::path::PathBuf;

use self::cases::{CASES, Case};
use self::outcomes::{Measured, Outcomes};
use super::images::Images;
use super::run::Subject;
use super::sweep;
use super::work::Programs;
use crate::interrupt::Interrupt;

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
    let subject = Subject::new(case.recipe, case.fs, order.scale, order.seed);
    if case.fs == "ext4" && order.scale < 1.0 { subject.mkfs(&["-b", "4096"]) } else { subject }
}

/// Measures the packings of the cases that are asked for and not yet there.
pub(crate) fn run(order: &Order) -> Result<u8, String> {
    let interrupt = Interrupt::by_signals()?;
    let is_asked = |name: &str| order.cases.is_empty() || order.cases.iter().any(|asked| name.starts_with(&**asked));
    let cases: Vec<_> = CASES.iter().filter(|case| is_asked(case.name)).collect();
    if cases.is_empty() {
        let known: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        return Err(format!("no such case; known are {}", known.join(", ")));
    }
    std::fs::create_dir_all(&order.out).map_err(|error| format!("{}: {error}", order.out.display()))?;
    let mut outcomes = Outcomes::load(&order.out)?;
    let mut images = Images::new(&order.cache)?;
    let mut code = 0;
    for case in cases {
        let subject = subject(case, order);
        for lot in case.lots {
            let packing = lot.packing;
            if outcomes.has(case.name, packing.name, order.scale, order.seed) && !order.again {
                continue;
            }
            eprintln!("{}: {}", case.name, packing.name);
            match measure::measure(&subject, lot, &mut images, &order.programs, &interrupt) {
                Ok(outcome) => {
                    let (machine, commit) = (sweep::machine(&order.programs, &PROGRAMS), sweep::commit());
                    let measured = Measured { scale: order.scale, seed: order.seed, commit, machine, outcome };
                    outcomes.enter(case.name, packing.name, measured);
                    outcomes.save(&order.out)?;
                }
                Err(_) if interrupt.came() => return Err("interrupted; what was measured is kept".into()),
                Err(complaint) => {
                    eprintln!("{}, {} is left out: {complaint}", case.name, packing.name);
                    code = 1;
                }
            }
        }
    }
    Ok(code)
}
