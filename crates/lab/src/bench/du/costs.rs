//! Tables and pictures of what a tracker costs others, and of storms.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::goals::{self, more};
use super::outcomes::{Background, Costs, Harvest, Memory, Overwrite, Records, Step, Storm, Times};
use super::records::Kind;
use super::stage;
use crate::bench::page::{Table, count, number, spread};
use crate::bench::plot::{Line, Lines, Pictures};
use crate::bench::statistics;

/// The mean, and the standard deviation beside it.
fn mean(values: Vec<f64>) -> String {
    let found = statistics::spread(values);
    found.map_or_else(String::new, |found| format!("{} ± {}", number(found.mean), number(found.deviation)))
}

/// A figure of a step without a tracker, with it, and what it adds round by round.
fn cells(step: &Step, of: fn(&Times) -> f64) -> [String; 3] {
    let means = |times: &[Times]| mean(times.iter().map(of).collect());
    [means(&step.alone), means(&step.tracked), more(step, of).map_or(String::new(), spread)]
}

fn times(count: usize) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// The steps that are quick are done more often.
fn rounds(costs: &Costs) -> String {
    let counts = || costs.steps.iter().map(|step| step.tracked.len());
    let (least, most) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
    if least == most {
        return format!("{least} rounds");
    }
    let often: Vec<&str> =
        costs.steps.iter().filter(|step| step.tracked.len() == most).map(|step| step.name.as_str()).collect();
    format!("{least} rounds ({most} of {})", often.join(", "))
}

fn explained(costs: &Costs) -> String {
    format!(
        "A source tree of {} files on ext4, {} with the tracker and without it in turns: means with their standard \
         deviations, and the median of what it adds in each round, with the least and the greatest. Compiled are C files that are \
         made for it: {} of 40 small functions beside the whole tree, {} beside the part of it that is on a disk.",
        count(costs.files),
        rounds(costs),
        count(super::cost::compiled(1.0)),
        count(super::cost::compiled(super::cost::ON_DISK)),
    )
}

/// How quick the machine was.
pub(super) fn calibrated(getppid_us: Option<f64>) -> String {
    getppid_us.map_or_else(String::new, |us| format!(" A `getppid` takes {us:.3} µs in the same run."))
}

/// Where the processor is all that counts.
pub(super) fn in_memory(costs: &Costs) -> String {
    format!(
        "\n### FastDu, table 2: what the tracker costs others in memory\n\n{} The server's CPU counts.{}\n\n{}",
        explained(costs),
        calibrated(costs.getppid_us),
        of_processors(costs)
    )
}

/// The same where the server knows much, and all that was made before.
pub(super) fn where_all_is_known(costs: &Costs) -> String {
    format!(
        "\n### The same where the server knows all\n\nThe same source tree of {} files in memory, {}, beside {} directories with a \
         file in each. The server has harvested these, and after each step it is asked for the whole, so that it knows each directory \
         and the place of each file when the next step begins, and ignores none; the question doesn't count. *{}* unpacks the tree \
         over itself: tar removes each file and makes it anew.{}\n\n{}",
        count(costs.files),
        rounds(costs),
        count(super::cost::KNOWN as u64),
        super::cost::AGAIN,
        calibrated(costs.getppid_us),
        of_processors(costs)
    )
}

/// What the mover adds by following alone, which is to be told apart from what it does with the disk.
pub(super) fn of_following(costs: &Costs) -> String {
    format!(
        "\n### What it costs others that files are to be moved\n\nThe same source tree of {} files in memory, {}: *with* is \
         `onesweep serve` with `{}`, which hears what is written and looks at nothing meanwhile, *without* is `onesweep serve`. The \
         CPU of all its processes counts.\n\n{}",
        count(costs.files),
        rounds(costs),
        super::cost::FOLLOWING.join(" "),
        of_processors(costs)
    )
}

fn of_processors(costs: &Costs) -> Table {
    let heads = ["without (s)", "with (s)", "more (%)"];
    let heads = ["elapsed", "CPU"].map(|what| heads.map(|head| format!("{what} {head}"))).concat();
    let heads: Vec<&str> = ["step"].into_iter().chain(heads.iter().map(String::as_str)).collect();
    let mut table = Table::new(&heads);
    for step in &costs.steps {
        let [wall, cpu] = [cells(step, |times| times.wall_s), cells(step, |times| times.cpu_s)];
        table.row([vec![step.name.clone()], wall.into(), cpu.into()].concat());
    }
    table
}

/// Where nobody gets on faster than the disk.
pub(super) fn on_disk(costs: &Costs) -> String {
    let mut table = Table::new(&["step", "without (s)", "with (s)", "more (%)", "the paper: without (s)", "with (s)"]);
    for step in &costs.steps {
        let paper = PAPER.iter().find(|row| row.0 == step.name).map_or(["–"; 2], |row| row.1);
        let measured = cells(step, |times| times.wall_s);
        table.row([vec![step.name.clone()], measured.into(), paper.map(String::from).into()].concat());
    }
    format!(
        "\n### FastDu, table 2: what the tracker costs others on a disk\n\n{} By the clock, on an emulated disk (`{}`) that takes \
         its time, from cold, until all is written. The paper's tree is the source of a kernel.\n\n{table}",
        explained(costs),
        stage::MODEL
    )
}

/// What a reader pays for a harvest in the background, and how quick that is.
pub(super) fn of_background(background: &Background) -> String {
    let of_harvests = |of: fn(&Harvest) -> f64| {
        statistics::spread(background.harvests.iter().map(of).collect()).map_or("–".into(), spread)
    };
    let mut table = Table::new(&["", "without a server (s)", "beside the harvest (s)", "more (%)"]);
    let more = goals::beside_more(background).map_or(String::new(), spread);
    table.row(vec!["tar".into(), mean(background.alone_s.clone()), mean(background.beside_s.clone()), more]);
    format!(
        "\n### What a harvest in the background costs a reader\n\n{} directories with a file in each, on ext4 on an emulated disk (`{}`) \
         that takes its time, under `{}`. A file is made in {} of them, scattered, which is more than one in twenty: five seconds later \
         the server harvests them by itself, from cold, at most {} a second by its `background-budget`. From its first portion on tar \
         reads {} files of a source tree on the same disk, from cold; *without* is after the same with the server ended. In turns, \
         {}: means with their standard deviations, and the median of what it adds in each round, with the least and the greatest. \
         The harvest goes on for {} s beside it, and reads {} directories in that, {} a second: one with a file that was just written is \
         looked at once more when it has settled.\n\n{table}",
        count(background.directories),
        stage::MODEL,
        background.scheduler,
        count(background.dirty),
        count(background.budget),
        count(background.files),
        times(background.beside_s.len()),
        of_harvests(|harvest| harvest.seconds),
        of_harvests(|harvest| harvest.directories as f64),
        goals::harvested(background).map_or("–".into(), spread),
    )
}

/// The paper's table, by our names of the steps.
const PAPER: [(&str, [&str; 2]); 5] = [
    ("untar", ["14.9 ± 0.7", "15.1 ± 0.7"]),
    ("tar", ["5.5 ± 0.3", "5.3 ± 0.1"]),
    ("cp", ["68.1 ± 1.3", "68.3 ± 0.8"]),
    ("rm -r", ["4.2 ± 1.0", "3.6 ± 1.9"]),
    ("compile", ["219.4 ± 0.9", "219.4 ± 1.4"]),
];

pub(super) fn of_overwrite(overwrite: &Overwrite) -> String {
    let middle = |times: &[f64]| statistics::spread(times.to_vec()).map_or(String::new(), spread);
    format!(
        "\n### A write into a directory that has changed\n\n4 KiB that are in memory, on ext4, in µs: {} with the tracker, {} \
         where sizes follow at close, {} without; a `getppid` takes {} in the same rounds.\n",
        middle(&overwrite.tracked_us),
        middle(&overwrite.at_close_us),
        middle(&overwrite.alone_us),
        middle(&overwrite.getppid_us),
    )
}

/// FastDu's figure 3, on an emulated disk in real time or on this machine's.
pub(super) fn of_records(records: &Records, on_disk: bool, pictures: &mut Pictures) -> Result<String, String> {
    let mib = |bytes: u64| bytes >> 20;
    let (title, disk, prefix) = match on_disk {
        true => ("what the tracker costs reads and writes", "an emulated disk in real time", "fastdu-3"),
        false => {
            ("the same on this machine's disk", "this machine's disk, which takes no time to seek", "fastdu-3-own")
        }
    };
    let mut text = format!(
        "\n### FastDu, figure 3: {title}\n\nA file of {} MiB on an ext4 whose image lies on {disk}, in a control group with {} MiB \
         of memory, caches dropped before each; a write ends when all is on the disk. In each round without the tracker, with \
         it, and without it again, {}, for each of {} sizes of records: a median has the least and the greatest size beside it, and \
         what the two without it differ by is what the machine does itself. A block of 4 KiB of which a part is rewritten is read \
         before.\n\n",
        mib(records.file_bytes),
        mib(records.memory_bytes),
        times(records.records.first().map_or(0, |record| record.tracked.len())),
        records.records.iter().map(|record| record.record_bytes).collect::<BTreeSet<_>>().len(),
    );
    let mut table = Table::new(&["", "with the tracker, longer (%)", "without it, the second time, longer (%)"]);
    for kind in Kind::ALL {
        if let Some((tracked, alone)) = goals::slower(records, kind) {
            table.row(vec![kind.name().into(), spread(tracked), spread(alone)]);
        }
    }
    let _ = writeln!(text, "{table}");
    for (name, kinds) in [("writes", [Kind::Write, Kind::Rewrite]), ("reads", [Kind::Read, Kind::Reread])] {
        let line = |kind: Kind, tracked: bool| {
            let of_kind = records.records.iter().filter(move |record| record.kind == kind);
            let points = of_kind.filter_map(|record| {
                let rounds = match tracked {
                    true => record.tracked.clone(),
                    false => record.alone.iter().flatten().copied().collect(),
                };
                Some(((record.record_bytes >> 10) as f64, statistics::spread(rounds)?.median))
            });
            let name = format!("{}, {}", kind.name(), if tracked { "tracked" } else { "alone" });
            Line { name, points: points.collect() }
        };
        let picture = Lines {
            title: format!("{} MiB with {} MiB of memory", mib(records.file_bytes), mib(records.memory_bytes)),
            x_axis: "size of a record (KiB)".into(),
            y_axis: "MB/s".into(),
            lines: kinds.iter().flat_map(|&kind| [line(kind, false), line(kind, true)]).collect(),
            log_x: true,
            log_y: false,
        };
        let words = format!("{name} by size of record, with the tracker and without");
        text += &pictures.add(&format!("{prefix}-{name}"), &words, &picture)?;
    }
    Ok(text)
}

pub(super) fn of_storm(storm: &Storm) -> String {
    let mut table = Table::new(&["MiB", "both processes", "the kernel, for marks", "for events"]);
    let mib = |bytes: u64| number(bytes as f64 / f64::from(1 << 20));
    let states = [
        ("before", Some(storm.before)),
        ("during, the most of each", Some(storm.during)),
        ("after an answer", Some(storm.after)),
        ("some seconds later", storm.at_rest),
    ];
    for (when, memory) in states {
        let Some(memory) = memory else { continue };
        let Memory { resident_kib, marks_bytes, events_bytes } = memory;
        let told = |bytes: Option<u64>| bytes.map_or("not told".into(), mib);
        table.row(vec![when.into(), mib(resident_kib << 10), told(marks_bytes), told(events_bytes)]);
    }
    let text = format!(
        "\n### A storm of events{}\n\n{} directories on ext4; {} events in {} s, {} a second, of four writers that make, link \
         and remove files, before the kernel merges any. {}; the answer after it took {} s, and was GNU du's. Of the kernel \
         is counted what came since the start of the server in the caches {}. What is held grows with the directories that \
         have changed, not with events: each has one mark until it is read, and is told of no more.\n\n{table}",
        if storm.visits == 1 { ", each directory met once" } else { "" },
        count(storm.directories),
        count(storm.events),
        number(storm.seconds),
        count((storm.events as f64 / storm.seconds.max(1e-9)) as u64),
        if storm.overflowed {
            "The server could not be told all, said so, and found out what had changed"
        } else {
            "Nothing was lost"
        },
        number(storm.answered_s),
        if storm.caches.is_empty() { "(none are told)".to_owned() } else { storm.caches.join(", ") },
    );
    match storm.visits {
        0 => text,
        1 => format!("{text}\nNone is ignored: each is told of once, by records of its own.\n"),
        visits => format!(
            "{text}\nEach directory that is met is met {visits} times, in blocks, so that the tracker ignores it by the last; of \
             that only what is told of inodes counts.\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mean_has_its_deviation() {
        assert_eq!(mean(vec![1.0, 2.0, 3.0]), "2.00 ± 1.00");
        assert_eq!(mean(vec![5.0]), "5.00 ± 0.00");
    }

    #[test]
    fn steps_stand_beside_those_of_the_paper() {
        let times = |wall_s| vec![Times { wall_s, cpu_s: wall_s / 2.0, served_s: 0.0 }];
        let step = |name: &str| Step { name: name.into(), tracked: times(11.0), alone: times(10.0) };
        let costs = Costs { files: 7, steps: vec![step("cp"), step("rm -r")], getppid_us: Some(0.25) };
        let text = on_disk(&costs);
        assert!(text.contains("| cp | 10.0 ± 0.00 | 11.0 ± 0.00 | 10.0 | 68.1 ± 1.3 | 68.3 ± 0.8 |"), "{text}");
        let text = in_memory(&costs);
        assert!(text.contains("| step | elapsed without (s) |") && text.contains("| CPU more (%) |"), "{text}");
        assert!(text.contains("| 10.0 | 5.00 ± 0.00 | 5.50 ± 0.00 | 10.0 |"), "{text}");
    }

    #[test]
    fn what_the_server_knows_is_told() {
        let times = |wall_s| vec![Times { wall_s, cpu_s: wall_s, served_s: 0.0 }; 2];
        let step = |name: &str| Step { name: name.into(), tracked: times(12.0), alone: times(10.0) };
        let steps = vec![step("untar"), step(super::super::cost::AGAIN)];
        let text = where_all_is_known(&Costs { files: 7, steps, getppid_us: None });
        assert!(
            text.contains("2 rounds, beside 100,000 directories") && text.contains("| untar again | 10.0"),
            "{text}"
        );
    }

    #[test]
    fn a_reader_stands_beside_a_harvest() {
        let harvest = |directories, seconds| Harvest { directories, seconds };
        let background = Background {
            directories: 100_000,
            dirty: 10_000,
            budget: 1000,
            alone_s: vec![10.0, 20.0],
            beside_s: vec![15.0, 22.0],
            harvests: vec![harvest(9900, 10.0), harvest(9900, 20.0)],
            ..Background::default()
        };
        let text = of_background(&background);
        for words in [
            "A file is made in 10,000 of them",
            "at most 1,000 a second",
            "goes on for 15.0 (10.0 to 20.0) s beside it, and reads 9900 (9900 to 9900) directories in that, 742 (495 to 990) a second",
            "| tar | 15.0 ± 7.07 | 18.5 ± 4.95 | 30.0 (10.0 to 50.0) |",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
    }

    #[test]
    fn a_storm_says_whether_all_was_told() {
        let storm = Storm { events: 6_000_000, seconds: 60.0, ..Storm::default() };
        let text = of_storm(&storm);
        assert!(text.contains("6,000,000 events in 60.0 s, 100,000 a second") && text.contains("Nothing was lost"));
        assert!(text.contains("| before | 0.00 | not told | not told |"), "{text}");
        assert!(!text.contains("is met"), "{text}");
        let storm = Storm { overflowed: true, visits: 3, ..storm };
        let text = of_storm(&storm);
        assert!(text.contains("could not be told all") && text.contains("is met 3 times"), "{text}");
    }

    #[test]
    fn reads_and_writes_are_drawn_by_the_size_of_records() {
        let dir = tempfile::tempdir().unwrap();
        let mut pictures = Pictures::into(dir.path()).unwrap();
        let record = |kind, record_bytes| super::super::outcomes::Record {
            alone: vec![[200.0, 210.0], [190.0, 200.0]],
            tracked: vec![195.0, 200.0],
            ..super::super::outcomes::Record::new(kind, record_bytes)
        };
        let all = [1024, 2048].into_iter().flat_map(|bytes| Kind::ALL.map(|kind| record(kind, bytes)));
        let records = Records { file_bytes: 512 << 20, memory_bytes: 256 << 20, records: all.collect() };
        let text = of_records(&records, true, &mut pictures).unwrap();
        assert!(
            text.contains("512 MiB") && text.contains("| re-read |") && text.contains("fastdu-3-reads.svg"),
            "{text}"
        );
        assert!(std::fs::read_to_string(dir.path().join("fastdu-3-writes.svg")).unwrap().contains("rewrite, tracked"));
        let own = of_records(&records, false, &mut pictures).unwrap();
        assert!(own.contains("this machine's disk") && own.contains("fastdu-3-own-reads.svg"), "{own}");
    }
}
