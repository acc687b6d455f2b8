//! Tables of what was measured.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use super::faults::is_timed;
use super::goals::{self, Outcomes as ByCase, above};
use super::outcomes::{Faulty, Measured, Outcome, Outcomes, Random, Sequential, Taken};
use super::readers;
use crate::bench::page::{NOT_MEASURED, Table, commits, count, measured, number, spread};
use crate::bench::plot::Pictures;
use crate::bench::statistics::{self, Spread};
use crate::size;

/// Marks of this part, which can be written without the others.
pub(crate) const BEGIN: &str = "<!-- peer: written by `onesweep-lab bench report` -->\n";
pub(crate) const END: &str = "<!-- end of peer -->\n";

/// The part of the page; empty where nothing was measured at full size.
pub(crate) fn show(dir: &Path, _pictures: &mut Pictures) -> Result<String, String> {
    let outcomes = Outcomes::load(dir)?;
    let all: BTreeMap<&str, &Measured> =
        outcomes.cases.iter().filter(|case| case.1.scale == 1.0).map(|(name, measured)| (&**name, measured)).collect();
    if all.is_empty() {
        return Ok(String::new());
    }
    let by_case: ByCase = all.iter().map(|(name, measured)| (*name, &measured.outcome)).collect();
    let mut text = format!("\n## Reads that a server answers\n\n{}\n", preface(&all));
    let _ = writeln!(
        text,
        "\n### What has to come out of `onesweep peer`\n\nA median has its least and greatest beside it.\n\n{}",
        goals::table(&by_case)
    );
    for outcome in by_case.values() {
        text += &match outcome {
            Outcome::Random(random) => of_random(random),
            Outcome::Sequential(sequential) => of_sequential(sequential),
            Outcome::Faults(faults) => of_faults(faults),
            Outcome::Figures(_) => String::new(),
        };
    }
    if let Some(Outcome::Figures(figures)) = by_case.get("several-readers") {
        text += &format!(
            "\n### Several readers at once\n\nReads of 4 KiB a second, each reader at random places, one after the other; the drive \
             chooses among those that have reached it.\n\n{}",
            readers::table(figures)
        );
    }
    Ok(text)
}

/// What runs in rows of reads from memory.
const WARM: &str = "Reads from memory are answered by whoever has the bytes nearest. Of a quicker device that is the page cache of the \
    ext4 above the loop device, on either side: neither the mount nor a server is asked. Of a file of 19 KB in a tree each block was \
    read just before, so it is the page cache of FUSE, and the daemon isn't asked. Of a file of 64 MiB it is the page cache of the \
    file system below, to which the kernel passes such reads through. What the mount costs a read that isn't in memory stands in the \
    rows of cold reads. What ten clients have stored are the bytes of blocks: each takes 160 more of the server's memory to be found.";

fn preface(all: &BTreeMap<&str, &Measured>) -> String {
    let listed = |all: BTreeSet<String>| all.into_iter().collect::<Vec<_>>().join(", ");
    let commits = commits(all.iter().map(|(case, measured)| ((*case).to_owned(), measured.commit.as_str())));
    let host = |measured: &&Measured| format!("{}, Linux {}", measured.machine.processors, measured.machine.kernel);
    let hosts = listed(all.values().map(host).collect());
    let loads = statistics::spread(all.values().flat_map(|measured| measured.load).collect());
    let calls = statistics::spread(all.values().map(|measured| measured.getppid_us).collect());
    let unoptimised: Vec<String> =
        all.iter().filter(|(_, measured)| !measured.is_release).map(|(case, _)| format!("`{case}`")).collect();
    let unoptimised = match unoptimised.is_empty() {
        true => String::new(),
        false => format!(
            " Cases measured with programs that were not optimised, which makes them slower and no bytes other: {}.",
            unoptimised.join(", ")
        ),
    };
    format!(
        "Measured by `onesweep-lab bench peer`, at {commits}, on {hosts}; the machine's load was {}, and a `getppid` took {} µs: \
         where the load is above the number of processors, times by the clock have waited for others. The disk is \
         `barracuda-7200.11` in real time, its track buffer on, of which the image is all; where it is said, `ssd`. A server without any \
         of the blocks is asked beside that disk at a fifth of its times. In modelled time alone, by which nothing waits, are writes, \
         blocks that are rewritten, unreadable places, kills among writes, and scans; an index, what a server keeps, the client library \
         and `guard` have no such disk. Client and \
         server are in network namespaces of their own, with TLS between them and a link whose rate tbf limits in each \
         direction. Both sides of a comparison are measured one after the other, round by round; reads of a quicker device by turns of \
         twenty, reads of a tree from memory by turns of one. Every block that is read is \
         held against what was written.{unoptimised}\n\n{WARM}",
        loads.map_or(NOT_MEASURED.into(), spread),
        calls.map_or(NOT_MEASURED.into(), |calls| format!("{:.2}", calls.median)),
    )
}

pub(super) fn link(mbit: u64) -> String {
    if mbit >= 1000 { format!("{} Gbit/s", mbit / 1000) } else { format!("{mbit} Mbit/s") }
}

fn middle(all: &[Taken], of: fn(&Taken) -> f64) -> String {
    let ms = all.iter().map(|taken| of(taken) / 1e3).collect();
    statistics::spread(ms).map_or(NOT_MEASURED.into(), |spread| number(spread.median))
}

fn of_random(random: &Random) -> String {
    let heads = ["file", "disk", "deviation", "p99", "raced", "deviation", "p99"];
    let mut table = Table::new(&heads);
    for of in &random.sizes {
        let mut row = vec![size::display(of.bytes)];
        for all in [&of.disk, &of.raced] {
            let figures: [fn(&Taken) -> f64; 3] = [|taken| taken.mean, |taken| taken.deviation, |taken| taken.p99];
            row.extend(figures.map(|of| middle(all, of)));
        }
        table.row(row);
    }
    format!(
        "\n### The paper's figure 4, {}\n\n{} reads of 4 KiB at random places of a file on ext4, one at a time, in three series; the \
         file isn't cached when one begins. Milliseconds for a read, the medians of the series.\n\n{table}",
        link(random.mbit),
        count(random.reads)
    )
}

fn of_sequential(sequential: &Sequential) -> String {
    let mut table = Table::new(&["file", "disk", "raced", "server alone"]);
    let ms = |all: &[f64]| match (goals::mean(all), statistics::spread(all.to_vec())) {
        (Some(mean), Some(spread)) => measured(Some(Spread { median: mean, ..spread })),
        _ => NOT_MEASURED.into(),
    };
    for copied in &sequential.files {
        let alone = if copied.remote_ms.is_empty() { "–".into() } else { ms(&copied.remote_ms) };
        table.row(vec![size::display(copied.bytes), ms(&copied.disk_ms), ms(&copied.raced_ms), alone]);
    }
    format!(
        "\n### The paper's figure 3, {}\n\nMilliseconds for a file on ext4 that is copied to nowhere: read from its start to its end by \
         128 KiB, as cp reads, and not written; it isn't cached before, the disk's buffer is empty, and the arm is at its other end. The means, since whether a turn is waited for is chance: \
         up to 4 MiB of eight files, each four times, since it also depends on where among the tracks a file lies. The \
         smallest size is the least that is measured. The server alone: by the client library, 64 blocks in flight.\n\n{table}",
        link(sequential.mbit)
    )
}

fn of_faults(faults: &[Faulty]) -> String {
    let heads = [
        "fault",
        "policy",
        "disk, p99",
        "raced, median",
        "raced, p99",
        "above what it may be",
        "first read",
        "extra, %",
    ];
    let mut table = Table::new(&heads);
    for faulty in faults {
        let first = faulty.first_us.iter().map(|us| us / 1e3).collect();
        // Of policies that wait for the server by design no times are asked.
        let time = |time: String| if is_timed(&faulty.policy) { time } else { "–".into() };
        table.row(vec![
            faulty.fault.clone(),
            format!("`{}`", faulty.policy),
            time(middle(&faulty.disk, |taken| taken.p99)),
            time(middle(&faulty.raced, |taken| taken.median)),
            time(middle(&faulty.raced, |taken| taken.p99)),
            time(above(faulty).map_or(NOT_MEASURED.into(), spread)),
            time(statistics::spread(first).map_or(NOT_MEASURED.into(), spread)),
            statistics::spread(faulty.extra_percent.clone()).map_or("–".into(), spread),
        ]);
    }
    format!(
        "\n### A server that fails\n\nMilliseconds for random reads of 4 KiB after the fault, its first read apart; medians of the \
         rounds. A server that comes back is away for fifty reads and more: one thread reads throughout, and the first read is the \
         first that began when it was gone. One that gives wrong bytes was honest until then. Extra: requests without use, of a hundred reads, once 200 have met the fault; where the server can't help.\n\n{table}"
    )
}

#[cfg(test)]
mod tests {
    use super::super::outcomes::{Copied, OfSize};
    use super::*;
    use crate::bench::results::Machine;

    #[test]
    fn what_was_measured_is_shown() {
        let dir = tempfile::tempdir().unwrap();
        let mut pictures = Pictures::into(&dir.path().join("pictures")).unwrap();
        assert_eq!(show(dir.path(), &mut pictures).unwrap(), "");
        let taken = |mean| Taken { mean, deviation: mean / 10.0, median: mean, p99: mean * 2.0, most: mean * 2.0 };
        let sizes = vec![OfSize { bytes: 1 << 20, disk: vec![taken(9000.0)], raced: vec![taken(400.0)] }];
        let files = vec![Copied { bytes: 65536, disk_ms: vec![12.0], raced_ms: vec![11.0], remote_ms: vec![60.0] }];
        let faulty = Faulty {
            fault: "killed".into(),
            policy: "race".into(),
            disk: vec![taken(9000.0)],
            raced: vec![taken(9000.0)],
            first_us: vec![5000.0],
            extra_percent: vec![1.5],
            ..Faulty::default()
        };
        let counted_alone = Faulty {
            fault: "killed".into(),
            policy: "quiet-disk".into(),
            extra_percent: vec![0.5],
            ..Faulty::default()
        };
        let machine = Machine { processors: "2 processors".into(), kernel: "6.18".into(), ..Machine::default() };
        let mut outcomes = Outcomes::default();
        for (case, scale, outcome) in [
            ("figure-4-1000", 1.0, Outcome::Random(Random { mbit: 1000, reads: 1000, sizes })),
            ("figure-3-10", 1.0, Outcome::Sequential(Sequential { mbit: 10, files })),
            ("faults", 1.0, Outcome::Faults(vec![faulty, counted_alone])),
            ("several-readers", 1.0, Outcome::Figures([("10_race_8_alone".to_owned(), vec![150.0])].into())),
            ("figure-4-10", 0.1, Outcome::Random(Random::default())),
        ] {
            let commit = if case == "faults" { "def" } else { "abc" };
            let (commit, machine) = (commit.into(), machine.clone());
            outcomes.enter(
                case.into(),
                Measured {
                    scale,
                    commit,
                    machine,
                    load: [3.0, 5.0],
                    getppid_us: 0.2,
                    is_release: case == "faults",
                    outcome,
                },
            );
        }
        outcomes.save(dir.path()).unwrap();
        let text = show(dir.path(), &mut pictures).unwrap();
        for words in [
            "at `abc` (but `faults` at `def`), on 2 processors, Linux 6.18; the machine's load was 4.00 (3.00 to 5.00)",
            "### The paper's figure 4, 1 Gbit/s\n\n1,000 reads",
            "| 1M | 9.00 | 0.90 | 18.0 | 0.40 | 0.04 | 0.80 |",
            "| 64K | 12.0 | 11.0 | 60.0 |",
            "| killed | `race` | 18.0 | 9.00 | 18.0 | -2.90 | 5.00 | 1.50 |",
            "| killed | `quiet-disk` | – | – | – | – | – | 0.50 |",
            "| 10 Mbit/s | `race` | 8 | 150 | not measured |",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert!(!text.contains("figure 4, 10 Mbit/s\n"), "{text}");
    }
}
