//! `onesweep-lab bench sweep`: measures what is still missing, and writes down what is done, every few seconds.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueEnum;

use super::exhibits::{self, Case};
use super::images::Images;
use super::measure::{self, Surveys, Unpacked};
use super::results::{Machine, Outcome, Record, Results};
use super::run::Run;
use super::work::{Programs, Work};
use crate::interrupt::Interrupt;
use crate::mount;

/// What is said when it was told to end.
const ENDED: &str = "interrupted; what was measured is kept";

/// How much may be lost when this is killed. All results are one file, which takes its time with thousands of runs in it.
const KEPT_EVERY: Duration = Duration::from_secs(10);

/// Which of the runs that are already there are made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Again {
    /// None.
    No,
    /// Those of our programs.
    Ours,
    /// Those that failed, or whose program was missing.
    Missing,
    All,
}

/// What is asked for.
pub(crate) struct Order {
    /// The directory of the results.
    pub(crate) out: PathBuf,
    /// Names of cases, or how they begin; all when there is none.
    pub(crate) cases: Vec<String>,
    pub(crate) seed: u64,
    /// What the scale of every image is multiplied by. The page shows those of 1.
    pub(crate) scale: f64,
    pub(crate) again: Again,
    /// The directory of the images.
    pub(crate) cache: PathBuf,
    pub(crate) programs: Programs,
}

/// Measures all cases that are asked for.
pub(crate) fn run(order: &Order) -> Result<u8, String> {
    let runs = in_order(chosen(order)?.into_iter().flat_map(|case| case.runs));
    measure_all(order, runs)
}

/// Prints how many of its runs each case lacks that is asked for. A run that two cases share counts in both.
pub(crate) fn list(order: &Order) -> Result<u8, String> {
    let results = Results::load(&order.out)?;
    let wanted = Wanted { again: order.again, with_the_way: exhibits::with_the_way(order.seed) };
    let mut lacking = Vec::new();
    for case in chosen(order)? {
        let runs = in_order(case.runs);
        let due = due(&runs, &results, &wanted);
        println!("{}: {} of {}", case.name, due.len(), runs.len());
        lacking.extend(due);
    }
    println!("runs that are lacking: {}", in_order(lacking).len());
    Ok(0)
}

fn chosen(order: &Order) -> Result<Vec<Case>, String> {
    let cases: Vec<Case> = exhibits::all(order.seed).iter().flat_map(|exhibit| exhibit.cases()).collect();
    let names: Vec<String> = cases.iter().map(|case| case.name.clone()).collect();
    let mut chosen: Vec<Case> = cases.into_iter().filter(|case| is_asked_for(&case.name, &order.cases)).collect();
    if chosen.is_empty() {
        return Err(format!("no such case; known are {}", names.join(", ")));
    }
    for run in chosen.iter_mut().flat_map(|case| &mut case.runs) {
        run.setting.image.scale *= order.scale;
    }
    Ok(chosen)
}

/// Whether a case was asked for.
fn is_asked_for(case: &str, names: &[String]) -> bool {
    names.is_empty() || names.iter().any(|name| case.starts_with(name.as_str()))
}

/// Each run once, those of one image together, in them one round after the other.
pub(super) fn in_order(runs: impl IntoIterator<Item = Run>) -> Vec<Run> {
    let mut images: Vec<(String, Vec<Run>)> = Vec::new();
    for run in runs {
        let name = run.setting.image.name();
        match images.iter_mut().find(|image| image.0 == name) {
            Some(image) if image.1.contains(&run) => {}
            Some(image) => image.1.push(run),
            None => images.push((name, vec![run])),
        }
    }
    for image in &mut images {
        image.1.sort_by_key(|run| run.round);
    }
    images.into_iter().flat_map(|image| image.1).collect()
}

/// Whether a run has to be made.
fn is_due(old: Option<&Outcome>, work: &Work, again: Again) -> bool {
    let Some(old) = old else { return true };
    match again {
        Again::No => false,
        Again::Ours => work.is_ours(),
        Again::Missing => old.missing.is_some(),
        Again::All => true,
    }
}

/// Runs of one image, in the order in which they are measured.
struct Batch {
    name: String,
    runs: Vec<Run>,
}

/// Neighbours of one image together.
fn by_image(runs: Vec<Run>) -> Vec<Batch> {
    let mut batches: Vec<Batch> = Vec::new();
    for run in runs {
        let name = run.setting.image.name();
        match batches.last_mut() {
            Some(batch) if batch.name == name => batch.runs.push(run),
            _ => batches.push(Batch { name, runs: vec![run] }),
        }
    }
    batches
}

/// What has to be made.
#[derive(Debug)]
struct Wanted {
    again: Again,
    /// Runs that count as not made where the way of the head wasn't kept.
    with_the_way: Vec<Run>,
}

/// Which runs of an image have to be made. Where the clock counts, all of a round: pairs of the same moment are compared.
fn due(runs: &[Run], results: &Results, wanted: &Wanted) -> Vec<Run> {
    let lacks_the_way =
        |run: &Run, old: &Outcome| old.missing.is_none() && old.head.is_empty() && wanted.with_the_way.contains(run);
    let alone = |run: &&Run| {
        let old = results.of(run).map(|record| &record.outcome).filter(|old| !lacks_the_way(run, old));
        is_due(old, &run.work, wanted.again)
    };
    let due: Vec<&Run> = runs.iter().filter(alone).collect();
    let beside = |run: &Run| {
        let same_moment = |other: &&Run| other.setting == run.setting && other.round == run.round;
        run.setting.is_by_the_clock() && due.iter().any(same_moment)
    };
    runs.iter().filter(|run| due.contains(run) || beside(run)).cloned().collect()
}

/// Measures runs. An image that can't be made is told of, and its runs are left out. A run that the lab itself can't make is
/// told of and not entered, so that it is due the next time. The exit code says whether anything failed.
pub(crate) fn measure_all(order: &Order, runs: Vec<Run>) -> Result<u8, String> {
    let interrupt = Interrupt::by_signals()?;
    std::fs::create_dir_all(&order.out).map_err(|error| format!("{}: {error}", order.out.display()))?;
    let mut results = Results::load(&order.out)?;
    let (machine, commit) = (
        results.number_of(machine(&order.programs, &["tar", "bsdtar", "cp", "find", "rsync", "fclones", "rmlint"])),
        commit(),
    );
    let mut images = Images::new(&order.cache)?;
    let batches = by_image(runs);
    let wanted = Wanted { again: order.again, with_the_way: exhibits::with_the_way(order.seed) };
    let mut count: usize = batches.iter().map(|batch| due(&batch.runs, &results, &wanted).len()).sum();
    let (began, mut number, mut code) = (Instant::now(), 0, 0);
    let mut kept = began;
    for Batch { name, runs } in batches {
        let foreseen = due(&runs, &results, &wanted).len();
        if foreseen == 0 {
            continue;
        }
        let unpacked = match unpack(&mut images, &runs, &order.programs, &interrupt) {
            Ok(unpacked) => unpacked,
            Err(_) if interrupt.came() => {
                results.save(&order.out)?;
                return Err(ENDED.into());
            }
            Err(complaint) => {
                eprintln!("{name} is left out: {complaint}");
                (code, count) = (1, count - foreseen);
                continue;
            }
        };
        results.images.insert(name, unpacked.facts.clone());
        // If the image isn't the one that was measured before, every run of it is due.
        let runs = due(&runs, &results, &wanted);
        count = count - foreseen + runs.len();
        for run in runs {
            let measured = measure::measure(&run, &unpacked, &order.programs, &interrupt);
            if interrupt.came() {
                results.save(&order.out)?;
                return Err(ENDED.into());
            }
            let passed = began.elapsed().as_secs();
            number += 1;
            let told = measured.as_ref().map_or_else(|fault| format!("not measured: {fault}"), said);
            eprintln!("[{number}/{count}, {passed} s] {}: {told}", run.describe());
            match measured {
                Ok(outcome) => {
                    code |= u8::from(outcome.is_failure());
                    let (outcome, image_sha256) =
                        (Outcome { commit: commit.clone(), ..outcome }, unpacked.facts.image_sha256.clone());
                    results.enter(Record { run, image_sha256, machine, outcome });
                }
                Err(_) => {
                    code = 1;
                    results.remove(&run);
                }
            }
            if kept.elapsed() >= KEPT_EVERY {
                results.save(&order.out)?;
                kept = Instant::now();
            }
        }
    }
    results.save(&order.out)?;
    Ok(code)
}

fn unpack(images: &mut Images, runs: &[Run], programs: &Programs, interrupt: &Interrupt) -> Result<Unpacked, String> {
    let subject = &runs[0].setting.image;
    let (image, facts) = images.take(subject, interrupt)?;
    let (content, peak) = measure::look_at(&image, subject.fs()?.mount_type(), runs, programs, interrupt)?;
    Ok(Unpacked { image, facts, content, peak, surveys: Surveys::default() })
}

/// What came out, for the progress.
fn said(outcome: &Outcome) -> String {
    if let Some(missing) = &outcome.missing {
        return missing.clone();
    }
    if outcome.busy_ms == 0.0 {
        return format!("{:.3} s", outcome.wall_s);
    }
    format!("{:.2} s of disk, {} requests", outcome.busy_ms / 1000.0, outcome.requests)
}

/// The first line that a program prints; rmlint tells its version as a complaint.
fn first_line(program: &str, args: &[&str]) -> String {
    let output = mount::run(program, args).map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
    String::from_utf8_lossy(&output).lines().next().unwrap_or_default().trim().to_owned()
}

/// That of these programs, where they were built by `make bench`; else that of the working directory.
pub(super) fn commit() -> String {
    if let Some(commit) = option_env!("ONESWEEP_COMMIT") {
        return commit.to_owned();
    }
    let commit = first_line("git", &["describe", "--always", "--dirty"]);
    if commit.is_empty() { "unknown".into() } else { commit }
}

/// This machine, with the versions of the programs of those names.
pub(super) fn machine(programs: &Programs, names: &[&str]) -> Machine {
    let model = first_line("sh", &["-c", "grep -m1 'model name' /proc/cpuinfo | cut -d: -f2"]);
    let processors = format!("{} processors ({model})", first_line("nproc", &[]));
    let version = |name: &str| -> Option<(String, String)> {
        let program = programs.find(name)?;
        Some((name.to_owned(), first_line(program.to_str()?, &["--version"])))
    };
    let versions: BTreeMap<String, String> = names.iter().filter_map(|name| version(name)).collect();
    Machine { processors, kernel: first_line("uname", &["-r"]), programs: versions }
}

/// Where our programs are: beside this one, unless told otherwise.
pub(crate) fn programs(onesweep: Option<PathBuf>, tools: Option<PathBuf>) -> Result<Programs, String> {
    let lab = std::env::current_exe().map_err(|error| error.to_string())?;
    let beside = lab.parent().unwrap_or(Path::new("/")).to_owned();
    let onesweep = onesweep.unwrap_or_else(|| beside.join("onesweep"));
    let said = |error: std::io::Error| format!("{}: {error}; build it, or name it with --onesweep", onesweep.display());
    let onesweep = onesweep.canonicalize().map_err(said)?;
    let tools = tools.unwrap_or_else(|| beside.parent().unwrap_or(&beside).join("tools/bin"));
    Ok(Programs { onesweep, lab, tools })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::results::tests::{on_its_image, record, setting};
    use crate::bench::run::{Disk, Setting, Stretch, Subject};
    use crate::bench::work::Tool;

    #[test]
    fn runs_of_an_image_come_together_and_rounds_in_turns() {
        let disk = Disk::new("ssd", Stretch::Whole);
        let [one, two] =
            ["random", "source"].map(|recipe| Setting::new(Subject::new(recipe, "ext4", 1.0, 1), disk.clone()));
        let (tar, ours) = (Work::of(Tool::GnuTar), Work::of(Tool::Tar));
        let mut runs = one.run(tar.clone()).rounds(2);
        runs.extend(two.run(tar.clone()).rounds(1));
        runs.extend(one.run(ours.clone()).rounds(2));
        runs.extend(one.run(ours).rounds(2));
        let names: Vec<String> = in_order(runs).iter().map(Run::describe).collect();
        assert_eq!(names.len(), 5);
        assert!(names[0].contains("random") && names[0].contains("GNU tar"), "{names:?}");
        assert!(names[1].contains("onesweep tar"), "{names:?}");
        assert!(names[2].contains("GNU tar") && names[2].contains("round 2"), "{names:?}");
        assert!(names[4].contains("source"), "{names:?}");
    }

    #[test]
    fn what_is_there_is_kept_unless_it_is_wanted_again() {
        let (tar, ours) = (Work::of(Tool::GnuTar), Work::of(Tool::Tar));
        let done = Outcome::default();
        let failed = Outcome { missing: Some("gone".into()), ..Outcome::default() };
        assert!(is_due(None, &tar, Again::No));
        assert!(!is_due(Some(&failed), &tar, Again::No));
        assert!(is_due(Some(&failed), &tar, Again::Missing) && !is_due(Some(&done), &tar, Again::Missing));
        assert!(is_due(Some(&done), &ours, Again::Ours) && !is_due(Some(&done), &tar, Again::Ours));
        assert!(is_due(Some(&done), &tar, Again::All));
    }

    fn wanted(again: Again) -> Wanted {
        Wanted { again, with_the_way: Vec::new() }
    }

    /// What was measured before its way was drawn has none to draw.
    #[test]
    fn a_run_without_the_way_that_is_drawn_is_made_again() {
        let runs = setting().run(Work::of(Tool::Tar)).rounds(2);
        let mut results = on_its_image();
        for run in &runs {
            results.enter(record(run.clone(), 1.0));
        }
        let wanted = Wanted { again: Again::No, with_the_way: runs[..1].to_vec() };
        assert_eq!(due(&runs, &results, &wanted), runs[..1]);
        let outcome = Outcome { head: vec![(0.0, 1, 2)], ..Outcome::default() };
        results.enter(Record { outcome, ..record(runs[0].clone(), 1.0) });
        assert_eq!(due(&runs, &results, &wanted), []);
        let outcome = Outcome { missing: Some("gone".into()), ..Outcome::default() };
        results.enter(Record { outcome, ..record(runs[0].clone(), 1.0) });
        assert_eq!(due(&runs, &results, &wanted), []);
    }

    #[test]
    fn every_run_is_due_on_an_image_that_was_made_anew() {
        let runs = setting().run(Work::of(Tool::GnuTar)).rounds(3);
        let mut results = on_its_image();
        for run in &runs[..2] {
            results.enter(record(run.clone(), 1.0));
        }
        assert_eq!(due(&runs, &results, &wanted(Again::No)), runs[2..]);
        results.images.get_mut(&setting().image.name()).unwrap().image_sha256 = "def".into();
        assert_eq!(due(&runs, &results, &wanted(Again::No)), runs);
    }

    #[test]
    fn both_sides_of_a_pair_are_due_together() {
        let both =
            |setting: &Setting| [Tool::GnuTar, Tool::Tar].map(|tool| setting.run(Work::of(tool)).rounds(2)).concat();
        let (by_the_clock, by_the_books) = (both(&setting().warm()), both(&setting()));
        let mut results = on_its_image();
        for run in by_the_clock.iter().chain(&by_the_books) {
            results.enter(record(run.clone(), 1.0));
        }
        assert_eq!(due(&by_the_clock, &results, &wanted(Again::No)), []);
        assert_eq!(due(&by_the_clock, &results, &wanted(Again::Ours)), by_the_clock);
        assert_eq!(due(&by_the_books, &results, &wanted(Again::Ours)), by_the_books[2..]);
        results.runs.retain(|record| record.run != by_the_clock[1]);
        assert_eq!(
            due(&by_the_clock, &results, &wanted(Again::No)),
            [by_the_clock[1].clone(), by_the_clock[3].clone()]
        );
    }

    #[test]
    fn a_version_is_read_wherever_it_is_told() {
        assert_eq!(first_line("sh", &["-c", "echo version 2 >&2"]), "version 2");
        assert_eq!(first_line("sh", &["-c", "echo version 1; echo a warning >&2"]), "version 1");
    }

    #[test]
    fn cases_are_asked_for_by_how_they_begin() {
        assert!(is_asked_for("random-ext4", &[]));
        assert!(is_asked_for("random-ext4", &["source".into(), "random".into()]));
        assert!(!is_asked_for("random-ext4", &["ext4".into()]));
        assert!(setting().run(Work::of(Tool::Tar)).describe().contains("random"));
    }
}
