//! What has to come out of moving files: the paper's figure, the goal, and what was measured.

use std::collections::BTreeMap;

use super::cases::{CAT, CP, OURS, RSYNC, Reader, TAR};
use super::daemon::{self, Way};
use super::measure::MODEL;
use super::outcomes::Packed;
use super::packing::{DEDUPE, E4DEFRAG, NONE, Packing, REGION_2M, REGION_64K, ROOT, USER};
use super::small;
use crate::bench::exhibits::Aim;
use crate::bench::measure::{count, number as number_in};
use crate::bench::page::{Table, fs_name, number};

/// The outcomes of full size, by case and packing.
pub(super) type Outcomes<'a> = BTreeMap<&'a str, BTreeMap<&'a str, &'a Packed>>;

/// One row.
struct Row {
    what: String,
    /// What the figure is, with its unit.
    figure: &'static str,
    paper: &'static str,
    aim: Option<Aim>,
    value: Option<f64>,
    /// The program's words, where it refused.
    refused: Option<String>,
}

/// The rows, whatever of them was measured.
pub(super) fn table(outcomes: &Outcomes) -> Table {
    let mut table = Table::new(&["case", "disk", "figure", "the paper", "to reach", "measured", ""]);
    for row in rows(outcomes) {
        let verdict = match (row.aim, row.value, &row.refused) {
            (Some(_), _, Some(words)) => format!("refused: “{words}”"),
            (None, _, Some(_)) => "refused".into(),
            (_, None, None) => "not measured".into(),
            (None, ..) => String::new(),
            (Some(aim), Some(value), _) if aim.is_met(value) => "met".into(),
            _ => "**not met**".into(),
        };
        let aim = row.aim.map_or("–".into(), Aim::text);
        let measured = row.value.map_or("–".into(), number);
        table.row(vec![row.what, format!("`{MODEL}`"), row.figure.into(), row.paper.into(), aim, measured, verdict]);
    }
    table
}

fn rows(outcomes: &Outcomes) -> Vec<Row> {
    [beside_a_load, small_files, all_files, sweeping, costs, rest].iter().flat_map(|rows| rows(outcomes)).collect()
}

fn of<'a>(outcomes: &Outcomes<'a>, case: &str, packing: Packing) -> Option<&'a Packed> {
    outcomes.get(case)?.get(packing.name).copied()
}

/// The disk's time of a reader before the files were moved, by that after it.
pub(super) fn times(before: Option<&Packed>, after: Option<&Packed>, reader: &str) -> Option<f64> {
    let busy_ms = |packed: Option<&Packed>| Some(packed?.of(reader)?.busy_ms);
    Some(busy_ms(before)? / busy_ms(after)?)
}

/// The row of a case, whose figure is taken from one packing.
fn row(
    outcomes: &Outcomes,
    (case, packing): (&str, Packing),
    what: &str,
    figure: &'static str,
    value: impl Fn(&Packed) -> Option<f64>,
) -> Row {
    let packed = of(outcomes, case, packing);
    let refused = packed.and_then(|packed| packed.refused.clone());
    let what = format!("{}: {what}", shown(case));
    Row { what, figure, paper: "–", aim: None, value: packed.and_then(value), refused }
}

impl Row {
    fn aim(self, aim: Aim) -> Self {
        Self { aim: Some(aim), ..self }
    }

    fn paper(self, paper: &'static str) -> Self {
        Self { paper, ..self }
    }
}

/// The name of a case as tables have it.
pub(super) fn shown(case: &str) -> String {
    let (recipe, fs) = case.split_once('-').unwrap_or((case, ""));
    let (fs, way) = fs.split_once('-').unwrap_or((fs, ""));
    // Exchange-range has its hyphen from the kernel.
    let way = way.replace('-', " ").replace("exchange range", "exchange-range");
    format!("`{recipe}`, {} {way}", fs_name(fs)).trim_end().to_owned()
}

const XFS_WITHOUT_REFLINKS: [&str; 2] = ["random-xfs-without-reflinks", "random-xfs-with-exchange-range"];

const TIMES: &str = "disk time, as aged ÷ packed";

fn faster(outcomes: &Outcomes, (case, packing): (&str, Packing), reader: Reader) -> Row {
    let (reader, before) = (reader.name(), of(outcomes, case, NONE));
    let what = format!("{reader}, after {}", packing.name);
    row(outcomes, (case, packing), &what, TIMES, |packed| times(before, Some(packed), &reader))
}

/// The daemon beside a load: what readers gain by it, and what it costs the load.
fn beside_a_load(outcomes: &Outcomes) -> Vec<Row> {
    let of = |way: Way| outcomes.get(daemon::CASE).and_then(|ways| ways.get(way.name)).copied();
    let row = |way: Way, figure, value: Option<f64>, aim| {
        let what = format!("`dfs`, ext4: {}, {}", small::NAME, way.name);
        Row { what, figure, paper: "–", aim, value, refused: None }
    };
    let gain = |way, aim, paper| {
        row(way, "disk time, without it ÷ with it", times(of(daemon::OFF), of(way), small::NAME), aim).paper(paper)
    };
    let cost = |way, aim, paper| {
        let value = of(way).zip(of(daemon::OFF)).map(|(with, without)| with.busy_ms / without.busy_ms);
        row(way, "disk time of the load and all moves ÷ of the load alone", value, aim).paper(paper)
    };
    let mut rows = vec![
        gain(daemon::DEFAULT, Some(Aim::AtLeast(1.47)), "1.47, 1.78"),
        gain(daemon::UNBOUNDED, Some(Aim::AtLeast(1.78)), "1.47, 1.78"),
        cost(daemon::DEFAULT, Some(Aim::AtMost(1.17)), "1.11, 1.17"),
    ];
    rows.extend([daemon::TENTH, daemon::HALF].map(|way| gain(way, None, "–")));
    rows.extend([daemon::TENTH, daemon::HALF, daemon::UNBOUNDED].map(|way| cost(way, None, "–")));
    rows
}

fn small_files(outcomes: &Outcomes) -> Vec<Row> {
    let of = |packing| faster(outcomes, ("dfs-ext4", packing), Reader::Small);
    vec![of(ROOT).aim(Aim::AtLeast(2.5)).paper("1.47, 1.78"), of(REGION_2M), of(E4DEFRAG)]
}

fn all_files(outcomes: &Outcomes) -> Vec<Row> {
    let ext4 = |packing, reader| faster(outcomes, ("random-ext4", packing), reader);
    let mut rows = vec![
        ext4(ROOT, TAR).aim(Aim::AtLeast(12.0)),
        ext4(USER, TAR).aim(Aim::AtLeast(4.5)),
        ext4(E4DEFRAG, TAR),
        ext4(REGION_64K, TAR),
    ];
    rows.extend([CP, RSYNC, CAT].map(|reader| ext4(ROOT, reader)));
    rows.extend([CP, RSYNC, CAT].map(|reader| ext4(USER, reader)));
    rows.push(faster(outcomes, ("random-xfs", ROOT), TAR).aim(Aim::AtLeast(3.3)));
    rows.extend([CP, RSYNC, CAT].map(|reader| faster(outcomes, ("random-xfs", ROOT), reader)));
    rows.extend(XFS_WITHOUT_REFLINKS.map(|case| faster(outcomes, (case, ROOT), TAR)));
    rows.extend([TAR, CP, RSYNC, CAT].map(|reader| faster(outcomes, ("random-btrfs", DEDUPE), reader)));
    rows
}

/// The time in which the disk streams as many bytes as a reader read, at the rate of where the files lie.
fn streaming_ms(packed: &Packed, read_bytes: u64) -> Option<f64> {
    let bound = &packed.readers.get(&super::cases::BOUND.name())?.detail;
    let useful_bytes = count(bound, "useful_bytes");
    (useful_bytes > 0).then(|| number_in(bound, "streaming_ms") * read_bytes as f64 / useful_bytes as f64)
}

fn sweeping(outcomes: &Outcomes) -> Vec<Row> {
    let ours = |reader: Reader| {
        let name = reader.name();
        let figure = "disk time, ours ÷ streaming the bytes that it read";
        row(outcomes, ("random-ext4", ROOT), &format!("{name}, after {}", ROOT.name), figure, |packed| {
            let outcome = packed.of(&name)?;
            Some(outcome.busy_ms / streaming_ms(packed, outcome.bytes)?)
        })
    };
    let swept = row(
        outcomes,
        ("random-ext4", ROOT),
        &format!("{}, after {}", OURS.name(), ROOT.name),
        "disk time, ours ÷ one perfect sweep",
        |packed| Some(packed.of(&OURS.name())?.busy_ms / packed.of(&super::cases::BOUND.name())?.busy_ms),
    );
    vec![ours(OURS).aim(Aim::AtMost(1.1)), ours(super::cases::MERGED), swept]
}

fn costs(outcomes: &Outcomes) -> Vec<Row> {
    let mut rows = Vec::new();
    for (case, packing) in [
        ("random-ext4", ROOT),
        ("random-ext4", USER),
        ("dfs-ext4", ROOT),
        ("random-xfs", ROOT),
        ("random-ext4", E4DEFRAG),
    ] {
        let content = "written where files lie now ÷ the blocks of those that moved";
        let all = "the same with the journal, metadata and places left again";
        for (figure, value) in
            [(content, Packed::content_over_own as fn(&Packed) -> _), (all, Packed::written_over_own)]
        {
            let row = row(outcomes, (case, packing), packing.name, figure, value);
            rows.push(if packing == E4DEFRAG { row } else { row.aim(Aim::AtMost(1.2)) });
        }
    }
    let in_requests = [
        ("random-ext4", REGION_64K),
        ("random-ext4", ROOT),
        ("random-ext4", USER),
        ("dfs-ext4", ROOT),
        ("dfs-ext4", REGION_2M),
    ];
    for (case, packing) in in_requests {
        let row = row(
            outcomes,
            (case, packing),
            packing.name,
            "write requests for a region, those behind each other as one",
            Packed::requests_for_a_region,
        );
        rows.push(row.aim(Aim::AtMost(2.0)).paper("1"));
    }
    for (case, packing) in in_requests {
        let figure = "write requests for each 16 blocks that moved, the paper's region, those behind each other as one";
        let row = row(outcomes, (case, packing), packing.name, figure, Packed::requests_for_16_blocks);
        rows.push(row.aim(Aim::AtMost(2.0)).paper("1"));
    }
    rows
}

fn rest(outcomes: &Outcomes) -> Vec<Row> {
    let again = |(case, packing): (&'static str, Packing)| {
        let what = format!("{}, once more", packing.name);
        let row = row(outcomes, (case, packing), &what, "files that it moves", |packed| {
            Some(packed.again.as_ref()?.moved_files as f64)
        });
        row.aim(Aim::AtMost(0.0))
    };
    [("random-ext4", ROOT), ("random-ext4", USER), ("dfs-ext4", ROOT), ("random-xfs", ROOT)].map(again).into()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bench::defrag::outcomes::{Again, Written};
    use crate::bench::results::Outcome;

    fn read(seconds: &[(&str, f64)]) -> Packed {
        let outcome = |seconds: f64| Outcome { busy_ms: seconds * 1000.0, bytes: 200, ..Outcome::default() };
        let readers = seconds.iter().map(|(name, seconds)| ((*name).to_owned(), outcome(*seconds))).collect();
        Packed { readers, ..Packed::default() }
    }

    /// 300 s before; packed by root 20 s for tar, that is 15 times; by a user 100 s, 3 times. 100 useful bytes stream in 4 s,
    /// so the 200 that ours read in 8 s; it took 10.
    #[test]
    fn each_figure_is_held_against_its_goal() {
        let aged = read(&[("GNU tar", 300.0), ("cp -a", 300.0)]);
        let mut packed =
            read(&[("GNU tar", 20.0), ("cp -a", 120.0), ("onesweep tar", 10.0), ("one perfect sweep", 8.0)]);
        packed.readers.get_mut("one perfect sweep").unwrap().detail =
            json!({"streaming_ms": 4000.0, "useful_bytes": 100});
        packed.moved_bytes = 1000;
        packed.written = Written { bytes: 1300, content_bytes: 1100, content_runs: 30, ..Written::default() };
        packed.said = json!({"moved_regions": 20});
        packed.again = Some(Again { moved_files: 7, ..Again::default() });
        let (user, refused) =
            (read(&[("GNU tar", 100.0)]), Packed { refused: Some("no ext4".into()), ..Packed::default() });
        let way = |busy_ms, seconds| Packed { busy_ms, ..read(&[(small::NAME, seconds)]) };
        let (off, on) = (way(1000.0, 30.0), way(1200.0, 20.0));
        let ways = [(daemon::OFF.name, &off), (daemon::DEFAULT.name, &on)].into();
        let ext4 = [(NONE.name, &aged), (ROOT.name, &packed), (USER.name, &user)].into();
        let xfs = [(NONE.name, &aged), (ROOT.name, &refused)].into();
        let packed = read(&[("GNU tar", 60.0)]);
        let whole = [(NONE.name, &aged), (ROOT.name, &packed)].into();
        let xfs = [("random-xfs", xfs), (XFS_WITHOUT_REFLINKS[0], whole)];
        let text = table(&[("random-ext4", ext4), (daemon::CASE, ways)].into_iter().chain(xfs).collect()).to_string();
        for row in [
            "daemon, budget 20 % | `barracuda-7200.11` | disk time, without it ÷ with it | 1.47, 1.78 | ≥ 1.47 | 1.50 | met |",
            "daemon, budget 20 % | `barracuda-7200.11` | disk time of the load and all moves ÷ of the load alone | 1.11, 1.17 | ≤ 1.17 | 1.20 | **not met** |",
            "daemon, no budget | `barracuda-7200.11` | disk time, without it ÷ with it | 1.47, 1.78 | ≥ 1.78 | – | not measured |",
            "| `random`, ext4: GNU tar, after onesweep defrag | `barracuda-7200.11` | disk time, as aged ÷ packed | – | ≥ 12 | 15.0 | met |",
            "| `random`, ext4: GNU tar, after onesweep defrag, not root | `barracuda-7200.11` | disk time, as aged ÷ packed | – | ≥ 4.5 | 3.00 | **not met** |",
            "| `random`, ext4: cp -a, after onesweep defrag | `barracuda-7200.11` | disk time, as aged ÷ packed | – | – | 2.50 |  |",
            "| `random`, ext4: GNU tar, after e4defrag | `barracuda-7200.11` | disk time, as aged ÷ packed | – | – | – | not measured |",
            "| `random`, XFS: GNU tar, after onesweep defrag | `barracuda-7200.11` | disk time, as aged ÷ packed | – | ≥ 3.3 | – | refused: “no ext4” |",
            "| `random`, XFS without reflinks: GNU tar, after onesweep defrag | `barracuda-7200.11` | disk time, as aged ÷ packed | – | – | 5.00 |  |",
            "| `random`, XFS with exchange-range: GNU tar, after onesweep defrag | `barracuda-7200.11` | disk time, as aged ÷ packed | – | – | – | not measured |",
            "disk time, ours ÷ streaming the bytes that it read | – | ≤ 1.1 | 1.25 | **not met** |",
            "disk time, ours ÷ one perfect sweep | – | – | 1.25 |  |",
            "the blocks of those that moved | – | ≤ 1.2 | 1.10 | met |",
            "the same with the journal, metadata and places left again | – | ≤ 1.2 | 1.30 | **not met** |",
            "behind each other as one | 1 | ≤ 2 | 1.50 | met |",
            "| `random`, ext4: onesweep defrag, once more | `barracuda-7200.11` | files that it moves | – | ≤ 0 | 7.00 | **not met** |",
            "| `dfs`, ext4: files of 2 to 12 blocks, after onesweep defrag | `barracuda-7200.11` | disk time, as aged ÷ packed | 1.47, 1.78 | ≥ 2.5 | – | not measured |",
        ] {
            assert!(text.contains(row), "{row}\n{text}");
        }
    }
}
