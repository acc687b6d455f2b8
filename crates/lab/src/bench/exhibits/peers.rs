//! Every program on the same images: the peers, and ours in every order, strategy and mode.

use std::fmt::Write as _;

use super::{Case, Exhibit};
use crate::bench::page::{self, Table};
use crate::bench::plot::Pictures;
use crate::bench::results::Results;
use crate::bench::run::{Disk, Run, Setting, Stretch, Subject};
use crate::bench::work::{Tool, Work};

const ORDERS: [&str; 6] =
    ["fragment", "first-extent", "inode", "inode-per-directory", "first-extent-per-directory", "directory"];

/// One table for each image.
pub(crate) struct Peers {
    settings: Vec<Setting>,
}

impl Peers {
    pub(crate) fn new(seed: u64) -> Self {
        let images = [
            ("random", "ext4", 1.0),
            ("random", "xfs", 1.0),
            ("random", "btrfs", 1.0),
            ("source", "ext4", 1.0),
            ("fragmented", "ext4", 1.0),
        ];
        let disk = Disk::new("barracuda-7200.11", Stretch::Whole);
        let setting =
            |(recipe, fs, scale): (_, _, _)| Setting::new(Subject::new(recipe, fs, scale, seed), disk.clone());
        Self { settings: images.map(setting).to_vec() }
    }

    /// btrfs has no device mode: what lies on its device need not be what its files hold.
    fn works(fs: &str) -> Vec<Work> {
        let strategies: &[&str] = if fs == "btrfs" { &[] } else { &["vanilla", "unmerged", "merged"] };
        let peers = [
            Tool::GnuTar,
            Tool::GnuTarByInode,
            Tool::BsdTar,
            Tool::Cp,
            Tool::FindCat,
            Tool::Rsync,
            Tool::Fclones,
            Tool::Rmlint,
            Tool::InFlight,
        ];
        let mut works: Vec<Work> = peers.map(Work::of).to_vec();
        for tool in [Tool::Tar, Tool::Sum, Tool::Copy] {
            works.extend(ORDERS.map(|order| Work::with(tool, &["--order", order])));
            works.extend(strategies.iter().map(|strategy| Work::with(tool, &["--device", "--strategy", strategy])));
        }
        works.push(Work::of(Tool::Bound));
        works
    }

    fn runs(setting: &Setting) -> Vec<Run> {
        Self::works(&setting.image.fs).into_iter().map(|work| setting.run(work)).collect()
    }

    fn table(setting: &Setting, results: &Results) -> Table {
        let mut table =
            Table::new(&["program", "requests", "MB read", "seeks", "data s", "disk time s", "GNU tar ÷ this"]);
        let tar = setting.run(Work::of(Tool::GnuTar));
        for run in Self::runs(setting) {
            let name = run.work.name();
            let name = if run.work.is_ours() { format!("`{name}`") } else { name };
            let Some(record) = results.of(&run) else {
                table.row(vec![name, "not measured".into()]);
                continue;
            };
            let outcome = &record.outcome;
            if let Some(missing) = &outcome.missing {
                table.row(vec![name, format!("missing: {missing}")]);
                continue;
            }
            let times = results.times(&tar, &run).map_or(String::new(), page::spread);
            table.row(vec![
                name,
                outcome.requests.to_string(),
                format!("{:.0}", outcome.bytes as f64 / 1e6),
                outcome.seeks.to_string(),
                outcome.data_ms.map_or(String::new(), |ms| page::number(ms / 1000.0)),
                results.seconds(&run).map_or(String::new(), page::spread),
                times,
            ]);
        }
        let streaming = results.of(&setting.run(Work::of(Tool::Bound)));
        if let Some(ms) = streaming.and_then(|record| record.outcome.detail["streaming_ms"].as_f64()) {
            let mut row = vec!["streaming the useful bytes".to_owned()];
            row.extend(std::iter::repeat_n(String::new(), 4));
            row.push(page::number(ms / 1000.0));
            row.push(results.busy_ms(&tar).map_or(String::new(), |tar| page::number(tar.median / ms)));
            table.row(row);
        }
        table
    }
}

impl Exhibit for Peers {
    fn title(&self) -> &'static str {
        "Every program on the same disk"
    }

    fn cases(&self) -> Vec<Case> {
        let case = |setting: &Setting| Case {
            name: format!("peers-{}-{}", setting.image.recipe, setting.image.fs),
            runs: Self::runs(setting),
        };
        self.settings.iter().map(case).collect()
    }

    fn show(&self, results: &Results, _pictures: &mut Pictures) -> Result<String, String> {
        let mut text = String::from(
            "Cold, track buffer off. *Data* is the time of the requests that touch \
             the content of files; all columns before the disk time are of the first round. fclones hashes every file when it is given a transformation; rmlint reads only what may be a duplicate: look at what it \
             read. btrfs refuses `--device`: what lies on its device need not be what its files hold. `fragmented` is read \
             with a budget of 64M, the default by then; with 1G, which its tables have, it comes as near to one sweep as the \
             others.\n\n",
        );
        for setting in &self.settings {
            let _ = writeln!(text, "{}\n\n{}", page::subject(setting, results), Self::table(setting, results));
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::results::tests::{on_its_image, record, setting};
    use crate::bench::results::{Outcome, Record};

    #[test]
    fn btrfs_is_not_asked_for_what_it_refuses() {
        let of_device = |fs| Peers::works(fs).iter().filter(|work| work.name().contains("--device")).count();
        assert_eq!((of_device("ext4"), of_device("btrfs")), (9, 0));
        assert_eq!(Peers::works("ext4").len(), Peers::works("btrfs").len() + 9);
    }

    #[test]
    fn a_missing_program_is_named() {
        let mut results = on_its_image();
        results.enter(record(setting().run(Work::of(Tool::GnuTar)), 3000.0));
        results.enter(record(setting().run(Work::with(Tool::Tar, &["--order", "fragment"])), 100.0));
        let gone = Outcome { missing: Some("rsync isn't installed".into()), ..Outcome::default() };
        results.enter(Record { outcome: gone, ..record(setting().run(Work::of(Tool::Rsync)), 0.0) });
        let table = Peers::table(&setting(), &results).to_string();
        assert!(table.contains("| rsync -a | missing: rsync isn't installed |"), "{table}");
        assert!(table.contains("| `onesweep tar --order fragment` | 0 | 0 | 0 |  | 0.10 | 30.0 |"), "{table}");
        assert!(table.contains("| rmlint | not measured |"), "{table}");
    }
}
