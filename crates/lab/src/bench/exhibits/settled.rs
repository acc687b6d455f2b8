//! Defaults that measurement settled: how much is in flight, which gaps are read through, and from where.

use std::fmt::Write as _;

use super::goals::BARRACUDA;
use super::{Case, Exhibit, groups};
use crate::bench::page::{self, Table};
use crate::bench::plot::Pictures;
use crate::bench::results::Results;
use crate::bench::run::{Disk, Run, Setting, Stretch, Subject};
use crate::bench::work::{Tool, Work};

const ROUNDS: u32 = 3;
const FILE_SYSTEMS: [&str; 2] = ["ext4", "xfs"];
const DEPTHS: [u32; 6] = [1, 4, 8, 16, 32, 64];
/// Parts of the gap that the disk's model computes.
const GAPS: [(&str, f64); 4] = [("0", 0.0), ("1/4", 0.25), ("1", 1.0), ("4", 4.0)];

/// One question, with its answers side by side.
struct Question {
    /// The end of its case's name.
    case: &'static str,
    text: String,
    head: &'static str,
    answers: Vec<Answer>,
}

/// One way to read.
struct Answer {
    name: String,
    work: Work,
    is_default: bool,
}

impl Answer {
    fn new(name: &str, options: &[&str], is_default: bool) -> Self {
        Self { name: name.to_owned(), work: Work::with(Tool::Tar, options), is_default }
    }
}

/// One table for each question.
pub(crate) struct Settled {
    seed: u64,
}

impl Settled {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    fn questions() -> Vec<Question> {
        let depth = |depth: u32| Answer::new(&depth.to_string(), &["--queue-depth", &depth.to_string()], depth == 16);
        let break_even = onesweep::DiskModel::named(BARRACUDA).map_or(0, |disk| disk.break_even_gap());
        let gap = |(name, part): (&str, f64)| {
            let bytes = ((break_even as f64 * part) as u64).to_string();
            Answer::new(name, &["--device", "--strategy", "merged", "--gap", &bytes], part == 1.0)
        };
        let modes: [(&str, &[&str], bool); 3] = [
            ("through the file system", &[], true),
            ("device, unmerged", &["--device", "--strategy", "unmerged"], false),
            ("device, merged", &["--device", "--strategy", "merged"], false),
        ];
        vec![
            Question {
                case: "queue",
                text: "Requests for content in flight (`--queue-depth`), through the file system. A drive's queue holds 32."
                    .into(),
                head: "in flight",
                answers: DEPTHS.map(depth).into_iter().collect(),
            },
            Question {
                case: "gap",
                text: format!(
                    "The widest gap that `--device --strategy merged` reads through (`--gap`), as a part of the break-even gap \
                     of {} KB, which the disk's model computes.",
                    break_even / 1000
                ),
                head: "gap",
                answers: GAPS.map(gap).into_iter().collect(),
            },
            Question {
                case: "mode",
                text: "Through the file system or from the device. The one needs no privilege and no check afterwards.".into(),
                head: "mode",
                answers: modes.map(|(name, options, is_default)| Answer::new(name, options, is_default)).into(),
            },
        ]
    }

    fn run(&self, fs: &str, answer: &Answer) -> Run {
        let image = Subject::new("random", fs, 1.0, self.seed);
        Setting::new(image, Disk::new(BARRACUDA, Stretch::Whole)).run(answer.work.clone())
    }

    fn table(&self, question: &Question, results: &Results) -> Table {
        let names = FILE_SYSTEMS.map(page::fs_name);
        let columns = ["requests", "MB read", "disk time s", "÷ the default's"];
        let heads: Vec<String> = names.iter().flat_map(|fs| columns.map(|column| format!("{fs}: {column}"))).collect();
        let mut table =
            Table::new(&[&[question.head], &*heads.iter().map(String::as_str).collect::<Vec<_>>()].concat());
        let default = question.answers.iter().find(|answer| answer.is_default);
        for answer in &question.answers {
            let mut row = vec![answer.name.clone() + if answer.is_default { " (default)" } else { "" }];
            row.extend(FILE_SYSTEMS.iter().flat_map(|fs| self.cells(results, fs, answer, default)));
            table.row(row);
        }
        table
    }

    fn cells(&self, results: &Results, fs: &str, answer: &Answer, default: Option<&Answer>) -> [String; 4] {
        let run = self.run(fs, answer);
        let Some(time) = results.seconds(&run) else {
            return ["", "", "not measured", ""].map(String::from);
        };
        let requests = results.figure(&run, |outcome| Some(outcome.requests as f64));
        let megabytes = results.figure(&run, |outcome| Some(outcome.bytes as f64 / 1e6));
        let usual = default.and_then(|default| results.busy_ms(&self.run(fs, default)));
        [
            requests.map_or(String::new(), |requests| page::count(requests.median as u64)),
            megabytes.map_or(String::new(), |bytes| format!("{:.0}", bytes.median)),
            page::spread(time),
            usual.map_or(String::new(), |usual| page::number(time.median * 1000.0 / usual.median)),
        ]
    }
}

impl Exhibit for Settled {
    fn title(&self) -> &'static str {
        "What was settled by measurement"
    }

    fn cases(&self) -> Vec<Case> {
        let case = |question: &Question| {
            let runs = FILE_SYSTEMS.iter().flat_map(|fs| question.answers.iter().map(|answer| self.run(fs, answer)));
            Case { name: format!("settled-{}", question.case), runs: runs.flat_map(|run| run.rounds(ROUNDS)).collect() }
        };
        Self::questions().iter().map(case).chain([groups::case(self.seed)]).collect()
    }

    fn show(&self, results: &Results, _pictures: &mut Pictures) -> Result<String, String> {
        let mut text = String::from(
            "`onesweep tar` of `random`, cold, track buffer off, by one option at a time. First fit against on-demand cleaning, \
             and the batch threshold S between them, are under *Less memory*.\n\n",
        );
        for question in Self::questions() {
            let _ = writeln!(text, "{}\n\n{}", question.text, self.table(&question, results));
        }
        text += &groups::show(self.seed, results);
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::results::tests::{on_its_image, record};

    #[test]
    fn each_question_has_one_default_and_tells_how_much_longer_others_take() {
        let settled = Settled::new(1);
        let mut results = on_its_image();
        for question in Settled::questions() {
            assert_eq!(question.answers.iter().filter(|answer| answer.is_default).count(), 1, "{}", question.case);
            for answer in &question.answers {
                let busy_ms = if answer.is_default { 2000.0 } else { 3000.0 };
                results.enter(record(settled.run("ext4", answer), busy_ms));
            }
        }
        let table = settled.table(&Settled::questions()[1], &results).to_string();
        assert!(table.contains("| 1/4 | 0 | 0 | 3.00 | 1.50 |  |  | not measured |  |"), "{table}");
        assert!(table.contains("| 1 (default) | 0 | 0 | 2.00 | 1.00 |"), "{table}");
    }

    /// The factor 1 has to be what the program takes by itself.
    #[test]
    fn gaps_are_parts_of_the_one_that_plans_take() {
        let questions = Settled::questions();
        let gaps =
            questions[1].answers.iter().map(|answer| answer.work.options.last().unwrap().parse::<u64>().unwrap());
        let gaps: Vec<u64> = gaps.collect();
        assert_eq!(gaps[2], onesweep::DiskModel::default().break_even_gap());
        assert_eq!((gaps[0], gaps[1], gaps[3]), (0, gaps[2] / 4, gaps[2] * 4));
    }
}
