//! Tables and a picture of what was measured.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use super::cases::{BOUND, CASES, Case};
use super::daemon;
use super::goals::{self, Outcomes as BySize, times};
use super::measure::MODEL;
use super::outcomes::{Measured, Outcomes, Packed};
use super::packing::NONE;
use super::small;
use crate::bench::page::{Table, commits, count, number};
use crate::bench::plot::{Bars, Line, Lines, Pictures};

/// Marks of this part, which can be written without the others.
pub(crate) const BEGIN: &str = "<!-- defrag: written by `onesweep-lab bench report` -->\n";
pub(crate) const END: &str = "<!-- end of defrag -->\n";

/// The part of the page, without its marks; empty where nothing was measured at full size.
pub(crate) fn show(dir: &Path, pictures: &mut Pictures) -> Result<String, String> {
    let outcomes = Outcomes::load(dir)?;
    let is_whole = |measured: &&Measured| measured.scale == 1.0;
    let all: Vec<&Measured> = outcomes.cases.values().flat_map(BTreeMap::values).filter(is_whole).collect();
    let commits = commits(outcomes.cases.iter().flat_map(of_one_case));
    if all.is_empty() {
        return Ok(String::new());
    }
    let mut by_case = BySize::new();
    for (case, packings) in &outcomes.cases {
        let whole = packings.iter().filter(|packing| packing.1.scale == 1.0);
        by_case.insert(case, whole.map(|(name, measured)| (name.as_str(), &measured.outcome)).collect());
    }
    let mut text = format!("\n## Files moved side by side: onesweep defrag\n\n{}\n", preface(&all, &commits));
    let _ = write!(text, "\n### What has to come out of it\n\n{}", goals::table(&by_case));
    if let Some(ways) = by_case.get(daemon::CASE) {
        text += &beside_a_load(ways, pictures)?;
    }
    for case in CASES {
        if let Some(packings) = by_case.get(case.name) {
            text += &of_one(case, packings, pictures)?;
        }
    }
    Ok(text)
}

/// The commits of a case, or of each packing in it where they have several.
fn of_one_case<'a>((case, packings): (&'a String, &'a BTreeMap<String, Measured>)) -> Vec<(String, &'a str)> {
    let whole: Vec<_> = packings.iter().filter(|packing| packing.1.scale == 1.0).collect();
    let is_one = whole.windows(2).all(|pair| pair[0].1.commit == pair[1].1.commit);
    let name = |packing: &str| if is_one { case.clone() } else { format!("{case}, {packing}") };
    whole.into_iter().map(|(packing, measured)| (name(packing), measured.commit.as_str())).collect()
}

fn preface(all: &[&Measured], commits: &str) -> String {
    let host = |measured: &&Measured| format!("{}, Linux {}", measured.machine.processors, measured.machine.kernel);
    let hosts: BTreeSet<String> = all.iter().map(host).collect();
    let programs = all.iter().flat_map(|measured| measured.machine.programs.values().cloned());
    let seeds: BTreeSet<String> = all.iter().map(|measured| measured.seed.to_string()).collect();
    let listed = |all: BTreeSet<String>, between| all.into_iter().collect::<Vec<_>>().join(between);
    format!(
        "Measured by `onesweep-lab bench defrag`, seed {}, at {commits}, on {}. Programs: {}. Modelled disk time on the model `{MODEL}` with \
         its track buffer, each run once and from cold. A copy of the aged image is mounted on that disk for writing, the program moves \
         files, the file system is frozen until all is written, unmounted and checked (`e2fsck -fn`, `xfs_repair -n`, `btrfs check`), and the \
         SHA-256 of each file has to be what it was; else there is no figure. Then each reader has the copy to itself, as in \
         the tables above. *Not root*: by an ordinary user who owns all files. What falls short, and why, is in [lab.md](lab.md).",
        listed(seeds, ", "),
        listed(hosts, "; and "),
        listed(programs.collect(), ", "),
    )
}

/// The daemon's part.
fn beside_a_load(ways: &BTreeMap<&str, &Packed>, pictures: &mut Pictures) -> Result<String, String> {
    let known = || daemon::WAYS.into_iter().filter_map(|way| Some((way.name, *ways.get(way.name)?)));
    let mut table = Table::new(&[
        "onesweep serve",
        "disk",
        "the load with it, s of disk",
        "written, MB",
        "directories looked at",
        "files moved",
        "their blocks, MB",
        "files that were in large pages",
        "no room, not better",
        "small files then, s",
    ]);
    let mut points = Vec::new();
    let off = ways.get(daemon::OFF.name).copied();
    for (name, packed) in known() {
        let said = |key: &str| packed.said[key].as_u64().unwrap_or_default();
        let small = packed.of(small::NAME).map(|outcome| outcome.busy_ms / 1000.0);
        table.row(vec![
            name.to_owned(),
            format!("`{MODEL}`"),
            number(packed.busy_ms / 1000.0),
            number(packed.written.bytes as f64 / 1e6),
            count(said("looks")),
            count(said("moved_files")),
            number(said("moved_blocks") as f64 * 4096.0 / 1e6),
            count(said("large_page_files")),
            format!("{}, {}", count(said("left_no_room")), count(said("left_not_better"))),
            small.map_or("–".into(), number),
        ]);
        if let (Some(gain), Some(off)) = (times(off, Some(packed), small::NAME), off) {
            points.push((packed.busy_ms / off.busy_ms, gain));
        }
    }
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    let lines = vec![Line { name: "budgets, from none of it to all".into(), points }];
    let picture = Lines {
        title: "What the daemon costs and gives".into(),
        x_axis: "disk time of the load, with it ÷ without".into(),
        y_axis: "disk time of small files, without ÷ with".into(),
        lines,
        log_x: false,
        log_y: false,
    };
    let drawn = pictures.add("defrag-daemon", "cost and gain of the daemon by its budget", &picture)?;
    Ok(format!(
        "\n### Beside a load\n\nA fresh ext4 of 2 GiB under the operations of the recipe `dfs` at 200 a second of virtual time, \
         synced each 30 s, in a memory cgroup of 128 MiB, reads with it; beside it what `onesweep serve --relocate` does, by its own \
         code, within so much of what the load writes, and however busy the disk is (`--relocate-pressure 100`; by default it moves \
         nothing while programs wait for disks for more than a fifth of the time). The names and bytes of all files have to be those that come without it. All that the disk does until the file system is frozen counts. Then the \
         files of 2 to 12 blocks are read, each directory from cold.\n\n{table}\n{drawn}"
    ))
}

/// The packings of a case that were measured, in the order of the case.
fn measured<'a>(case: &Case, packings: &BTreeMap<&str, &'a Packed>) -> Vec<(&'static str, &'a Packed)> {
    let of = |name: &'static str| Some((name, *packings.get(name)?));
    case.lots.iter().filter_map(|lot| of(lot.packing.name)).collect()
}

fn of_one(case: &Case, packings: &BTreeMap<&str, &Packed>, pictures: &mut Pictures) -> Result<String, String> {
    let all = measured(case, packings);
    let Some((_, first)) = all.first() else { return Ok(String::new()) };
    let image = &first.image;
    let mut text = format!(
        "\n### Packed: {}\n\n{} files, {:.0} MB, on {:.1} GiB, image SHA-256 `{}…`. Seconds of the disk for who reads, and how many \
         times as fast that is as before.\n\n",
        goals::shown(case.name),
        count(image.files),
        image.file_bytes as f64 / 1e6,
        image.image_bytes as f64 / (1u64 << 30) as f64,
        image.image_sha256.get(..12).unwrap_or(&image.image_sha256),
    );
    let mut readers: Vec<String> = Vec::new();
    for reader in case.lots.iter().flat_map(|lot| lot.readers).map(|reader| reader.name()) {
        if !readers.contains(&reader) {
            readers.push(reader);
        }
    }
    let before = packings.get(NONE.name).copied();
    let mut table = Table::new(&["reader"].into_iter().chain(all.iter().map(|packing| packing.0)).collect::<Vec<_>>());
    for reader in &readers {
        let cell = |(name, packed): &(&str, &Packed)| {
            let Some(outcome) = packed.of(reader) else { return "–".to_owned() };
            let seconds = number(outcome.busy_ms / 1000.0);
            let gain = times(before, Some(packed), reader).filter(|_| *name != NONE.name && *reader != BOUND.name());
            gain.map_or(seconds.clone(), |gain| format!("{seconds} ({} ×)", number(gain)))
        };
        table.row([reader.clone()].into_iter().chain(all.iter().map(cell)).collect());
    }
    let _ = writeln!(text, "{table}\n{}", shares(&readers, &all));
    text += &packing_costs(&all).to_string();
    let group = |reader: &&String| **reader != BOUND.name();
    let series = |(name, packed): &(&'static str, &Packed)| {
        let seconds = |reader: &String| packed.of(reader).map(|outcome| outcome.busy_ms / 1000.0);
        ((*name).to_owned(), readers.iter().filter(group).map(seconds).collect())
    };
    // More series than there are shades can't be told apart.
    let bars = Bars {
        title: format!("{}: reading after packing", case.name),
        axis: "seconds of the disk".into(),
        groups: readers.iter().filter(group).cloned().collect(),
        series: all.iter().take(4).map(series).collect(),
    };
    text.push('\n');
    text += &pictures.add(&format!("defrag-{}", case.name), &bars.title.clone(), &bars)?;
    Ok(text)
}

/// What of the disk's time goes to what is in files, and what to finding it.
fn shares(readers: &[String], all: &[(&'static str, &Packed)]) -> String {
    let heads = ["of that, finding them"].into_iter().chain(all.iter().map(|packing| packing.0));
    let mut table = Table::new(&heads.collect::<Vec<_>>());
    for reader in readers {
        let cell = |(_, packed): &(&str, &Packed)| {
            let rest = |outcome: &crate::bench::results::Outcome| Some(outcome.busy_ms - outcome.data_ms?);
            let rest_ms = packed.of(reader).and_then(rest);
            rest_ms.map_or("–".into(), |ms| number(ms / 1000.0))
        };
        let cells: Vec<String> = all.iter().map(cell).collect();
        if cells.iter().any(|cell| cell != "–") {
            table.row([reader.clone()].into_iter().chain(cells).collect());
        }
    }
    format!(
        "Seconds of the disk for requests that touch no content of files:\n\n{table}\nWhat packing took. *Those behind each other as \
         one* are the requests of the goals: the head has no way to go between them. Counted each for itself a region takes more, \
         where files are written one by one.\n"
    )
}

fn packing_costs(all: &[(&'static str, &Packed)]) -> Table {
    let mut table = Table::new(&[
        "packing",
        "disk, s",
        "clock, s",
        "read, MB",
        "written, MB",
        "of that, where files lie now",
        "files moved",
        "their blocks, MB",
        "regions",
        "requests for content",
        "those behind each other as one",
        "files that were in large pages",
        "passes",
        "seeks before, after",
        "once more: files, s",
    ]);
    let mb = |bytes: u64| number(bytes as f64 / 1e6);
    for (name, packed) in all.iter().filter(|packing| packing.0 != NONE.name) {
        if let Some(words) = &packed.refused {
            table.row(vec![(*name).to_owned(), format!("refused: “{words}”")]);
            continue;
        }
        let said = |key: &str| packed.said[key].as_u64().map_or("–".to_owned(), count);
        let seeks = |when: &str| packed.said[when]["seeks"].as_u64().map(count);
        let written = &packed.written;
        // Files were moved, and nobody knows to which places of the disk.
        let is_unknown = written.content_requests == 0 && packed.moved_files > 0;
        let of_content = |figure: String| if is_unknown { "–".to_owned() } else { figure };
        table.row(vec![
            (*name).to_owned(),
            number(packed.busy_ms / 1000.0),
            number(packed.wall_s),
            mb(packed.read_bytes),
            mb(written.bytes),
            of_content(mb(written.content_bytes)),
            count(packed.moved_files),
            mb(packed.moved_bytes),
            said("moved_regions"),
            of_content(count(written.content_requests)),
            of_content(count(written.content_runs)),
            said("large_page_files"),
            said("passes"),
            seeks("before").zip(seeks("after")).map_or("–".into(), |(before, after)| format!("{before}, {after}")),
            packed.again.as_ref().map_or("–".into(), |again| {
                format!("{}, {}", count(again.moved_files), number(again.busy_ms / 1000.0))
            }),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bench::defrag::outcomes::{Again, Written};
    use crate::bench::images::Facts;
    use crate::bench::results::{Machine, Outcome};

    #[test]
    fn what_was_measured_at_full_size_is_shown() {
        let dir = tempfile::tempdir().unwrap();
        let mut pictures = Pictures::into(&dir.path().join("pictures")).unwrap();
        assert_eq!(show(dir.path(), &mut pictures).unwrap(), "");
        let read = |ms: f64, data_ms| {
            let outcome = Outcome { busy_ms: ms, data_ms: Some(data_ms), ..Outcome::default() };
            BTreeMap::from([("GNU tar".to_owned(), outcome)])
        };
        let image = Facts { files: 22_500, file_bytes: 431_000_000, image_bytes: 8 << 30, ..Facts::default() };
        let aged = Packed { image: image.clone(), readers: read(302_000.0, 300_000.0), ..Packed::default() };
        let packed = Packed {
            image,
            busy_ms: 61_500.0,
            written: Written { bytes: 440_000_000, content_requests: 800, content_runs: 400, ..Written::default() },
            moved_files: 21_000,
            moved_bytes: 400_000_000,
            said: json!({"moved_regions": 200, "passes": 1, "before": {"seeks": 24_689}, "after": {"seeks": 241}}),
            again: Some(Again { busy_ms: 4000.0, ..Again::default() }),
            readers: read(20_000.0, 15_500.0),
            ..Packed::default()
        };
        let unplaced = Packed { written: Written { bytes: 930_000_000, ..Written::default() }, ..packed.clone() };
        let refused = Packed { refused: Some("TREE: no ext4".into()), ..Packed::default() };
        let beside = |seconds: f64, small_seconds: f64, said| {
            let outcome = Outcome { busy_ms: small_seconds * 1000.0, ..Outcome::default() };
            let readers = [(small::NAME.to_owned(), outcome)].into();
            Packed { busy_ms: seconds * 1000.0, said, readers, ..Packed::default() }
        };
        let mut outcomes = Outcomes::default();
        for (case, packing, scale, outcome) in [
            ("random-ext4", "as aged", 1.0, aged.clone()),
            ("random-ext4", "onesweep defrag", 1.0, packed),
            ("random-xfs", "as aged", 1.0, aged.clone()),
            ("random-xfs", "onesweep defrag", 1.0, refused),
            ("random-btrfs", "onesweep defrag --dedupe", 1.0, unplaced),
            ("dfs-ext4", "as aged", 0.5, aged),
            (daemon::CASE, daemon::OFF.name, 1.0, beside(2000.0, 300.0, json!({}))),
            (
                daemon::CASE,
                daemon::DEFAULT.name,
                1.0,
                beside(2200.0, 200.0, json!({"moved_files": 1234, "moved_blocks": 1000})),
            ),
        ] {
            let machine = Machine { processors: "2 processors".into(), kernel: "6.18".into(), ..Machine::default() };
            outcomes.enter(case, packing, Measured { scale, seed: 1, commit: "abc".into(), machine, outcome });
        }
        outcomes.save(dir.path()).unwrap();
        let text = show(dir.path(), &mut pictures).unwrap();
        for words in [
            "seed 1, at `abc`, on 2 processors, Linux 6.18.",
            "22,500 files, 431 MB, on 8.0 GiB",
            "| GNU tar | 302 | 20.0 (15.1 ×) |",
            "| GNU tar | 2.00 | 4.50 |",
            "| onesweep defrag | 61.5 | 0.00 | 0.00 | 440 | 0.00 | 21,000 | 400 | 200 | 800 | 400 | – | 1 | 24,689, 241 | 0, 4.00 |",
            "| onesweep defrag | refused: “TREE: no ext4” |",
            "| onesweep defrag --dedupe | 61.5 | 0.00 | 0.00 | 930 | – | 21,000 | 400 | 200 | – | – | – | 1 | 24,689, 241 | 0, 4.00 |",
            "≤ 1.2 | 1.10 | met |",
            "| daemon, budget 20 % | `barracuda-7200.11` | 2200 | 0.00 | 0 | 1,234 | 4.10 | 0 | 0, 0 | 200 |",
        ] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert!(!text.contains("Packed: `dfs`"), "{text}");
        let picture = std::fs::read_to_string(dir.path().join("pictures/defrag-random-ext4.svg")).unwrap();
        assert!(picture.contains("onesweep defrag"));
    }
}
