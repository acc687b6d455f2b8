//! How many allocation groups of a mounted XFS are best asked for at a time, and how many requests the drive has then.

use super::Case;
use super::goals::BARRACUDA;
use crate::bench::page::{self, Table};
use crate::bench::results::Results;
use crate::bench::run::{Disk, Run, Setting, Stretch, Subject};
use crate::bench::work::{Tool, Work};

const ROUNDS: u32 = 3;
const DISKS: [(&str, &str); 2] = [("hard disk", BARRACUDA), ("SSD", "ssd")];
const GROUPS: [u32; 3] = [1, 2, 4];

fn run(model: &str, work: Work, seed: u64) -> Run {
    Setting::new(Subject::new("mail", "xfs", 1.0, seed), Disk::new(model, Stretch::Whole)).run(work)
}

/// What is shown in a row, and what is measured for it.
fn rows() -> Vec<(String, Work)> {
    let ours = GROUPS.map(|groups| {
        let options = ["--groups-at-a-time".to_owned(), groups.to_string()];
        (groups.to_string(), Work::with(Tool::Find, &options.each_ref().map(String::as_str)))
    });
    let find = Work::of(Tool::GnuFind);
    [(format!("`{}`", find.name()), find)].into_iter().chain(ours).collect()
}

pub(super) fn case(seed: u64) -> Case {
    let runs = DISKS.iter().flat_map(|(_, model)| rows().into_iter().map(|(_, work)| run(model, work, seed)));
    Case { name: "settled-groups".into(), runs: runs.flat_map(|run| run.rounds(ROUNDS)).collect() }
}

pub(super) fn show(seed: u64, results: &Results) -> String {
    let columns = ["requests", "disk time s", "waiting: median", "waiting: most"];
    let heads: Vec<String> =
        DISKS.iter().flat_map(|(disk, _)| columns.map(|column| format!("{disk}: {column}"))).collect();
    let mut table = Table::new(&[&["groups"], &*heads.iter().map(String::as_str).collect::<Vec<_>>()].concat());
    for (name, work) in rows() {
        let mut row = vec![name];
        row.extend(DISKS.iter().flat_map(|(_, model)| cells(results, &run(model, work.clone(), seed))));
        table.row(row);
    }
    format!(
        "Allocation groups of a mounted XFS (`mail`) that `onesweep find` asks for at a time, below `find` for comparison. By itself it takes one \
         on a hard disk and four on an SSD. Requests that wait are those that the drive could choose from, the chosen one included.\n\n{table}"
    )
}

fn cells(results: &Results, run: &Run) -> [String; 4] {
    let Some(time) = results.seconds(run) else { return ["", "not measured", "", ""].map(String::from) };
    let figure = |of: fn((u64, u64)) -> u64| {
        let waiting = results.figure(run, |outcome| Some(of(outcome.queue?) as f64));
        waiting.map_or(String::new(), |waiting| format!("{:.0}", waiting.median))
    };
    let requests = results.figure(run, |outcome| Some(outcome.requests as f64));
    [
        requests.map_or(String::new(), |requests| page::count(requests.median as u64)),
        page::spread(time),
        figure(|queue| queue.0),
        figure(|queue| queue.1),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::results::{
        Outcome, Record,
        tests::{on_its_image, record, setting},
    };

    #[test]
    fn each_row_tells_how_many_requests_waited() {
        let mut results = on_its_image();
        let facts = results.images[&setting().image.name()].clone();
        let subject = Subject::new("mail", "xfs", 1.0, 7);
        results.images.insert(subject.name(), facts);
        assert_eq!(case(7).runs.len(), 2 * 4 * ROUNDS as usize);
        let runs = case(7).runs;
        assert!(runs.iter().any(|run| run.work.name() == "onesweep find --groups-at-a-time 4"));
        for run in &runs[..3] {
            let record = record(run.clone(), 2000.0);
            results.enter(Record { outcome: Outcome { queue: Some((1, 3)), requests: 9, ..record.outcome }, ..record });
        }
        let shown = show(7, &results);
        assert!(shown.contains("| `find -size +0` | 9 | 2.00 (2.00 to 2.00) | 1 | 3 |"), "{shown}");
        assert!(shown.contains("| 4 |  | not measured |"), "{shown}");
    }
}
