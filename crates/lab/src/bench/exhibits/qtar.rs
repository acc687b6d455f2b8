//! The figures of qtar, by number.

use std::fmt::Write as _;

use super::{Case, Exhibit};
use crate::bench::page::{self, Table};
use crate::bench::plot::{Bars, Boxes, Draw, Group, Line, Lines, Pictures, Way, Ways};
use crate::bench::results::Results;
use crate::bench::run::{Disk, Run, Setting, Stretch, Subject};
use crate::bench::statistics::{self, Spread};
use crate::bench::work::{Tool, Work};

const BARRACUDA: &str = "barracuda-7200.11";
/// The older disk, on which the paper looks for the program and the scheduler.
const DIAMONDMAX: &str = "diamondmax-10";
/// What `source` is made with at full scale.
const FILES: f64 = 22_500.0;
/// The versions that age it.
const STEPS: u32 = 24;
/// The paper's times are means of as many runs.
const PAPER_ROUNDS: u32 = 5;

fn disk() -> Disk {
    // The paper's disk has a track buffer.
    Disk::new(BARRACUDA, Stretch::Whole).buffered(true)
}

fn by_first_extent() -> Work {
    Work::with(Tool::Tar, &["--order", "first-extent"])
}

fn seconds(results: &Results, run: &Run) -> Option<f64> {
    results.busy_ms(run).map(|busy| busy.median / 1000.0)
}

/// The time of a run as a cell.
fn cell(results: &Results, run: &Run) -> String {
    page::measured(results.seconds(run))
}

/// How many files a tree is made with; and how many there are after its versions, which add more than they remove.
fn files(made_with: f64, aged: &Subject, results: &Results) -> String {
    let made_with = page::count(made_with as u64);
    match results.images.get(&aged.name()) {
        Some(facts) => format!("{made_with} files, {} after {STEPS} versions", page::count(facts.files)),
        None => format!("{made_with} files, more after {STEPS} versions"),
    }
}

/// A picture, or how to get what it is drawn from.
fn drawn(
    pictures: &mut Pictures,
    (name, words): (&str, &str),
    picture: &impl Draw,
    (values, case): (usize, &str),
) -> Result<String, String> {
    if values == 0 {
        return Ok(format!("Not measured yet: `onesweep-lab bench sweep --case {case}`.\n"));
    }
    pictures.add(name, words, picture)
}

/// Programs under schedulers, clean and aged, on two file systems.
pub(crate) struct Figure1 {
    seed: u64,
}

const SCHEDULERS: [&str; 3] = ["none", "mq-deadline", "bfq"];

/// The file system, how it writes itself, the name of its picture, and the rounds of its runs: through ntfs-3g they are long.
const FILE_SYSTEMS_1: [(&str, &str, &str, u32); 2] =
    [("ext4", "ext4", "qtar-1", 3), ("ntfs", "NTFS", "qtar-1-ntfs", 1)];

/// What stands over one name of figure 1: a bar for each scheduler.
struct Bar {
    name: &'static str,
    age: &'static str,
    image: Subject,
    work: Work,
    /// Of a bound, the streaming instead of the sweep.
    streaming: bool,
}

impl Bar {
    /// Bounds are computed: they know no scheduler.
    fn run(&self, scheduler: &str) -> Run {
        let disk = Disk::new(DIAMONDMAX, Stretch::Whole).buffered(true).scheduler(scheduler);
        let setting = Setting::new(self.image.clone(), disk);
        if self.work.is_bound() {
            return setting.with_scheduler("none").of_bounds().run(self.work.clone());
        }
        setting.run(self.work.clone())
    }

    fn seconds(&self, results: &Results, scheduler: &str) -> Option<Spread> {
        let run = self.run(scheduler);
        if self.streaming {
            return results.figure(&run, |outcome| Some(outcome.detail["streaming_ms"].as_f64()? / 1000.0));
        }
        results.seconds(&run)
    }
}

impl Figure1 {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    fn bars(&self, fs: &str) -> Vec<Bar> {
        let mut kinds = vec![
            ("GNU tar", Work::of(Tool::GnuTar), false),
            ("bsdtar", Work::of(Tool::BsdTar), false),
            ("first extent", by_first_extent(), false),
            ("onesweep tar", Work::of(Tool::Tar), false),
        ];
        if fs == "ntfs" {
            kinds.push(("tar DEVICE", Work::of(Tool::Tar).unmounted(), false));
        }
        kinds.extend([("one sweep", Work::of(Tool::Bound), false), ("without seeks", Work::of(Tool::Bound), true)]);
        let mut bars = Vec::new();
        for (steps, age) in [(Some(0), "clean"), (None, "aged")] {
            bars.extend(kinds.iter().map(|(name, work, streaming)| {
                let image = Subject { steps, ..Subject::new("source", fs, 1.0, self.seed) };
                Bar { name, age, image, work: work.clone(), streaming: *streaming }
            }));
        }
        bars
    }

    /// The values of the pictures. The paper tells neither the scheduler nor the age of its two.
    fn table(&self, results: &Results) -> Table {
        let mut table = Table::new(&[&["seconds of disk time"], &SCHEDULERS[..], &["the paper"]].concat());
        for (fs, fs_name, ..) in FILE_SYSTEMS_1 {
            for bar in self.bars(fs) {
                let mut row = vec![format!("{}, {fs_name}, {}", bar.name, bar.age)];
                row.extend(SCHEDULERS.map(|scheduler| page::measured(bar.seconds(results, scheduler))));
                table.row(row);
            }
        }
        for (name, seconds) in [("GNU tar, ext4, the paper's", "48.3"), ("qtar, ext4, the paper's", "11.6")] {
            let mut row = vec![name.to_owned()];
            row.extend(SCHEDULERS.map(|_| String::new()));
            row.push(seconds.into());
            table.row(row);
        }
        table
    }

    fn picture(&self, fs: &str, fs_name: &str, results: &Results) -> Bars {
        let bars = self.bars(fs);
        let values = |scheduler| bars.iter().map(|bar| Some(bar.seconds(results, scheduler)?.median)).collect();
        Bars {
            title: format!("Programs and schedulers, {fs_name}"),
            axis: "modelled disk time (s)".into(),
            series: SCHEDULERS.map(|scheduler| (scheduler.to_owned(), values(scheduler))).to_vec(),
            groups: bars.iter().map(|bar| format!("{}\n{}", bar.name, bar.age)).collect(),
        }
    }
}

impl Exhibit for Figure1 {
    fn title(&self) -> &'static str {
        "qtar, figure 1: programs and schedulers"
    }

    fn cases(&self) -> Vec<Case> {
        let mut runs: Vec<Run> = Vec::new();
        for (fs, _, _, rounds) in FILE_SYSTEMS_1 {
            for bar in self.bars(fs) {
                let rounds = if bar.work.is_bound() { 1 } else { rounds };
                for run in SCHEDULERS.iter().flat_map(|scheduler| bar.run(scheduler).rounds(rounds)) {
                    if !runs.contains(&run) {
                        runs.push(run);
                    }
                }
            }
        }
        vec![Case { name: "figure-1".into(), runs }]
    }

    fn show(&self, results: &Results, pictures: &mut Pictures) -> Result<String, String> {
        let mut text = format!(
            "`source`, clean and after 24 versions, on `{DIAMONDMAX}`, the \
             paper's disk for this figure, track buffer on. NTFS by ntfs-3g, `DEVICE` without it. First extent is ours in the \
             order of qtar. The paper's tree has as many files as the clean one; it tells neither the age nor the scheduler of \
             its two times. What it calls *dirty* was aged by checking out 24 versions of the Linux source one after the other \
             (5.3): `source` replays such changes by a generator, on a file system that holds nothing else. Both sides of each \
             ratio read the same image, and the clean one stands beside it: [lab.md](lab.md#aged-file-systems) tells how far \
             it is from the paper's. One sweep is every sector that is needed in rising order, and without seeks the bytes of the files in \
             one piece: they are computed, and know no scheduler.\n\n"
        );
        for (fs, fs_name, picture, _) in FILE_SYSTEMS_1 {
            let bars = self.picture(fs, fs_name, results);
            let values = bars.series.iter().flat_map(|series| series.1.iter().flatten()).count();
            let words = format!("disk time by program and scheduler, {fs_name}");
            text += &drawn(pictures, (picture, &words), &bars, (values, "figure-1"))?;
        }
        Ok(format!("{text}\n{}", self.table(results)))
    }
}

/// The whole tree, beside one sweep.
pub(crate) struct Figure3 {
    seed: u64,
}

impl Figure3 {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    fn works() -> Vec<(&'static str, Work)> {
        vec![
            ("GNU tar", Work::of(Tool::GnuTar)),
            ("onesweep tar by\nfirst extent, as qtar", by_first_extent()),
            ("onesweep tar", Work::of(Tool::Tar)),
            ("one perfect\nsweep", Work::of(Tool::Bound)),
        ]
    }

    /// The values of the picture.
    fn table(&self, results: &Results) -> Table {
        let mut table = Table::new(&["seconds of disk time", "clean", "after 24 versions", "the paper"]);
        for (name, work) in Self::works() {
            let paper = match work {
                ref work if *work == Work::of(Tool::GnuTar) => "82.5",
                ref work if *work == by_first_extent() => "17.9",
                _ => "",
            };
            let [clean, aged] = [Some(0), None].map(|steps| cell(results, &self.run(steps, &work)));
            table.row(vec![name.replace('\n', " "), clean, aged, paper.into()]);
        }
        table
    }

    fn image(&self, steps: Option<u32>) -> Subject {
        Subject { steps, ..Subject::new("source", "ext4", 1.0, self.seed) }
    }

    fn run(&self, steps: Option<u32>, work: &Work) -> Run {
        let image = self.image(steps);
        let track_buffer = work.tool != Tool::Bound;
        Setting::new(image, disk().buffered(track_buffer)).run(work.clone())
    }
}

impl Exhibit for Figure3 {
    fn title(&self) -> &'static str {
        "qtar, figure 3: time to archive a source tree"
    }

    fn cases(&self) -> Vec<Case> {
        let runs = Self::works().into_iter().flat_map(|(_, work)| [self.run(Some(0), &work), self.run(None, &work)]);
        let rounds = |run: Run| run.rounds(if run.work.is_bound() { 1 } else { PAPER_ROUNDS });
        vec![Case { name: "figure-3".into(), runs: runs.flat_map(rounds).collect() }]
    }

    fn show(&self, results: &Results, pictures: &mut Pictures) -> Result<String, String> {
        let works = Self::works();
        let series: Vec<_> = [("clean", Some(0)), ("after 24 versions", None)]
            .map(|(name, steps)| {
                let value = |work: &(&str, Work)| seconds(results, &self.run(steps, &work.1));
                (name.to_owned(), works.iter().map(value).collect::<Vec<_>>())
            })
            .to_vec();
        let values = series.iter().flat_map(|series| series.1.iter().flatten()).count();
        let files = files(FILES, &self.image(None), results);
        let bars = Bars {
            title: format!("Time to archive a source tree of {files}"),
            axis: "modelled disk time (s)".into(),
            groups: works.iter().map(|work| work.0.to_owned()).collect(),
            series,
        };
        let drawn = drawn(pictures, ("qtar-3", "disk time to archive a source tree"), &bars, (values, "figure-3"))?;
        Ok(format!(
            "`source` of {files}, ext4, track buffer on. The paper's times are those of its figure, for GNU tar and for \
             qtar, on an aged ext4 of as many files as the clean tree.\n\n{drawn}\n{}",
            self.table(results)
        ))
    }
}

/// Where the head was.
pub(crate) struct Figure4 {
    seed: u64,
}

impl Figure4 {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// These are kept with the way of the head.
    pub(crate) fn runs(&self) -> [Run; 3] {
        let setting = Setting::new(Subject::new("source", "ext4", 1.0, self.seed), disk());
        [Work::of(Tool::GnuTar), by_first_extent(), Work::of(Tool::Tar)].map(|work| setting.run(work))
    }

    /// What the picture shows, in figures.
    fn table(&self, results: &Results) -> Table {
        let mut table = Table::new(&["program", "requests", "seeks", "disk time s", "the paper: s"]);
        for (run, paper) in self.runs().iter().zip(["82.5", "17.9 (qtar)", ""]) {
            let mut row = vec![run.work.name()];
            row.extend(results.of(run).map_or_else(
                || [String::new(), String::new()],
                |record| [record.outcome.requests, record.outcome.seeks].map(page::count),
            ));
            row.extend([cell(results, run), paper.into()]);
            table.row(row);
        }
        table
    }
}

impl Exhibit for Figure4 {
    fn title(&self) -> &'static str {
        "qtar, figure 4: the way of the head"
    }

    fn cases(&self) -> Vec<Case> {
        vec![Case { name: "figure-4".into(), runs: self.runs().to_vec() }]
    }

    fn show(&self, results: &Results, pictures: &mut Pictures) -> Result<String, String> {
        let gigabytes = |address: u64| address as f64 / 1e9;
        let mut panels = Vec::new();
        for run in self.runs() {
            let Some(record) = results.of(&run).filter(|record| !record.outcome.head.is_empty()) else { continue };
            let tenths = record.outcome.head.iter();
            let tenths = tenths.map(|&(at, from, to)| (at, gigabytes(from), gigabytes(to))).collect();
            panels.push(Way { title: run.work.name(), tenths });
        }
        let top = panels.iter().flat_map(|way| way.tenths.iter().map(|tenth| tenth.2)).fold(0.1, f64::max);
        let (values, ways) = (panels.len(), Ways { axis: "place (GB)".into(), top, panels });
        let drawn = drawn(pictures, ("qtar-4", "place of the head over time"), &ways, (values, "figure-4"))?;
        Ok(format!(
            "Lowest and highest place in each tenth of a second, `source` \
             after 24 versions, ext4, track buffer on. The time axes differ. The paper's times are those of its figure 3. \
             Requests and seeks are of the round that is drawn.\n\n{drawn}\n{}",
            self.table(results)
        ))
    }
}

/// Partial sorts.
pub(crate) struct Figure5 {
    seed: u64,
}

/// The order, its name in the picture, and what the paper calls it.
const ORDERS: [(&str, &str, &str); 6] = [
    ("directory", "directory\norder", ""),
    ("inode-per-directory", "inode, per\ndirectory", "inode sort"),
    ("inode", "inode", "full inode sort"),
    ("first-extent-per-directory", "first extent,\nper directory", "inode and block sort"),
    ("first-extent", "first extent\n(qtar)", "full inode and block sort (qtar)"),
    ("fragment", "fragment", ""),
];

impl Figure5 {
    const FILES: f64 = 1000.0;
    const ROUNDS: u32 = 3;

    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    fn works() -> Vec<(String, Work)> {
        let mut works = vec![("GNU tar".to_owned(), Work::of(Tool::GnuTar))];
        works.extend(ORDERS.map(|(order, name, _)| (name.to_owned(), Work::with(Tool::Tar, &["--order", order]))));
        works
    }

    /// The values of the picture.
    fn table(&self, results: &Results) -> Table {
        let mut table = Table::new(&["seconds of disk time", "track buffer off", "on", "in the paper"]);
        let named = std::iter::once("unordered (GNU tar)").chain(ORDERS.iter().map(|order| order.2));
        for ((name, work), named) in Self::works().into_iter().zip(named) {
            let [off, on] = [false, true].map(|on| cell(results, &self.run(&work, on)));
            table.row(vec![name.replace('\n', " "), off, on, named.into()]);
        }
        table
    }

    fn image(&self) -> Subject {
        Subject::new("source", "ext4", thousandths(Self::FILES), self.seed)
    }

    fn run(&self, work: &Work, track_buffer: bool) -> Run {
        Setting::new(self.image(), disk().buffered(track_buffer)).run(work.clone())
    }
}

/// The scale of so many files, with four digits.
fn thousandths(files: f64) -> f64 {
    (files / FILES * 1e4).round() / 1e4
}

impl Exhibit for Figure5 {
    fn title(&self) -> &'static str {
        "qtar, figure 5: partial sorts"
    }

    fn cases(&self) -> Vec<Case> {
        let runs = Self::works().into_iter().flat_map(|(_, work)| [false, true].map(|on| self.run(&work, on)));
        vec![Case { name: "figure-5".into(), runs: runs.flat_map(|run| run.rounds(Self::ROUNDS)).collect() }]
    }

    fn show(&self, results: &Results, pictures: &mut Pictures) -> Result<String, String> {
        let works = Self::works();
        let series: Vec<_> = [("track buffer off", false), ("on", true)]
            .map(|(name, on)| {
                let value = |work: &(String, Work)| seconds(results, &self.run(&work.1, on));
                (name.to_owned(), works.iter().map(value).collect::<Vec<_>>())
            })
            .to_vec();
        let values = series.iter().flat_map(|series| series.1.iter().flatten()).count();
        let files = files(Self::FILES, &self.image(), results);
        let bars = Bars {
            title: format!("Partial sorts, {files}"),
            axis: "modelled disk time (s)".into(),
            groups: works.into_iter().map(|work| work.0).collect(),
            series,
        };
        let drawn = drawn(pictures, ("qtar-5", "disk time by order"), &bars, (values, "figure-5"))?;
        Ok(format!(
            "`source` of {files}, which are read; ext4. The paper's figure has no numbers in its text: *full inode and block \
             sort* is best there, and ordering a directory by inode alone helps a lot.\n\n{drawn}\n{}",
            self.table(results)
        ))
    }
}

/// As the file system ages.
pub(crate) struct Figure6 {
    seed: u64,
}

impl Figure6 {
    /// Of the versions for which the paper has no number.
    const ROUNDS: u32 = 2;

    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    fn works() -> [Work; 3] {
        [Work::of(Tool::GnuTar), by_first_extent(), Work::of(Tool::Tar)]
    }

    /// The values of the picture, and what the paper divides.
    fn table(&self, results: &Results) -> Table {
        let works = Self::works();
        let [tar, by_extent, ours] = works.each_ref().map(Work::name);
        let heads = ["versions", &tar, &by_extent, &ours, "GNU tar ÷ first extent", "the paper", "GNU tar ÷ ours"];
        let mut table = Table::new(&heads);
        for step in 0..=STEPS {
            let runs = works.each_ref().map(|work| self.run(step, work));
            let paper = match step {
                0 => "3.95",
                STEPS => "4.75",
                _ => "",
            };
            let times = |ours: usize| page::measured(results.times(&runs[0], &runs[ours]));
            let mut row = vec![step.to_string()];
            row.extend(runs.each_ref().map(|run| cell(results, run)));
            row.extend([times(1), paper.into(), times(2)]);
            table.row(row);
        }
        table
    }

    fn run(&self, step: u32, work: &Work) -> Run {
        let steps = (step < STEPS).then_some(step);
        let image = Subject { steps, ..Subject::new("source", "ext4", 1.0, self.seed) };
        Setting::new(image, disk()).run(work.clone())
    }
}

impl Exhibit for Figure6 {
    fn title(&self) -> &'static str {
        "qtar, figure 6: as the file system ages"
    }

    fn cases(&self) -> Vec<Case> {
        let runs = (0..=STEPS).flat_map(|step| {
            let rounds = if [0, STEPS].contains(&step) { PAPER_ROUNDS } else { Self::ROUNDS };
            Self::works().into_iter().flat_map(move |work| self.run(step, &work).rounds(rounds))
        });
        vec![Case { name: "figure-6".into(), runs: runs.collect() }]
    }

    fn show(&self, results: &Results, pictures: &mut Pictures) -> Result<String, String> {
        let line = |work: Work| {
            let point = |step| Some((f64::from(step), seconds(results, &self.run(step, &work))?));
            Line { name: work.name(), points: (0..=STEPS).filter_map(point).collect() }
        };
        let lines: Vec<Line> = Self::works().map(line).into_iter().collect();
        let values = lines.iter().map(|line| line.points.len()).sum();
        let picture = Lines {
            title: "As the file system ages".into(),
            x_axis: "versions of the tree checked out".into(),
            y_axis: "modelled disk time (s)".into(),
            lines,
            log_x: false,
            log_y: false,
        };
        let drawn = drawn(pictures, ("qtar-6", "disk time by age"), &picture, (values, "figure-6"))?;
        Ok(format!(
            "`source`, ext4, track buffer on; versions 1, 2, 10 and 17 \
             change most. Seconds of disk time; the paper tells of the first and the last how many times as long as qtar GNU \
             tar took. Its points are means of {PAPER_ROUNDS} runs; here the first and the last have as many, those between them \
             {}.\n\n{drawn}\n{}",
            Self::ROUNDS,
            self.table(results)
        ))
    }
}

/// Trees of different sizes, on both file systems, clean and aged.
pub(crate) struct Figure7 {
    seed: u64,
}

const SIZES: [f64; 6] = [100.0, 250.0, 500.0, 1000.0, 5000.0, 22_500.0];
/// What the paper says of its figure 8.
const PAPER_8: [(f64, &str); 2] =
    [(100.0, "about 1.1 on XFS, clean"), (22_500.0, "about 4 on ext4, about 3 on XFS, aged")];
const DIRECTORIES: u64 = 16;
const ROUNDS: u32 = 5;
const KINDS: [(&str, &str, Option<u32>, &str); 4] = [
    ("ext4", "clean", Some(0), "ext4, clean"),
    ("ext4", "aged", None, "ext4, aged"),
    ("xfs", "clean", Some(0), "XFS, clean"),
    ("xfs", "aged", None, "XFS, aged"),
];

impl Figure7 {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    fn works() -> [Work; 3] {
        [Work::of(Tool::GnuTar), by_first_extent(), Work::of(Tool::Tar)]
    }

    fn run(&self, files: f64, kind: usize, directory: u64, work: &Work) -> Run {
        let (fs, _, steps, _) = KINDS[kind];
        let seed = self.seed + directory;
        let image = Subject { steps, ..Subject::new("source", fs, thousandths(files), seed) };
        Setting::new(image, disk()).run(work.clone())
    }

    /// The seconds of all directories, each the median of its rounds.
    fn all(&self, results: &Results, files: f64, kind: usize, work: &Work) -> Vec<f64> {
        let one = |directory| seconds(results, &self.run(files, kind, directory, work));
        (0..DIRECTORIES).filter_map(one).collect()
    }

    fn spread(&self, results: &Results, files: f64, kind: usize, work: &Work) -> Option<Spread> {
        statistics::spread(self.all(results, files, kind, work))
    }

    fn figure_7(&self, results: &Results) -> Boxes {
        let works = Self::works();
        let group = |files, kind: usize| Group {
            name: KINDS[kind].3.to_owned(),
            boxes: works.iter().map(|work| self.spread(results, files, kind, work)).collect(),
        };
        let panel = |files: f64| (format!("{files} files"), (0..KINDS.len()).map(|kind| group(files, kind)).collect());
        Boxes {
            axis: "disk time (s)".into(),
            series: works.iter().map(Work::name).collect(),
            panels: SIZES.map(panel).into_iter().collect(),
            columns: 2,
        }
    }

    /// The improvement of a work over GNU tar, pair by pair of the same directory.
    fn improvement(&self, results: &Results, files: f64, kind: usize, ours: &Work) -> Option<Spread> {
        let pair = |directory| {
            let time = |work| seconds(results, &self.run(files, kind, directory, work));
            Some(time(&Work::of(Tool::GnuTar))? / time(ours)?)
        };
        statistics::spread((0..DIRECTORIES).filter_map(pair).collect())
    }

    fn figure_8(&self, results: &Results, ours: &Work) -> Lines {
        let line = |kind: usize| {
            let point = |files| Some((files, self.improvement(results, files, kind, ours)?.median));
            Line { name: KINDS[kind].3.to_owned(), points: SIZES.into_iter().filter_map(point).collect() }
        };
        Lines {
            title: "Improvement over GNU tar".into(),
            x_axis: "files".into(),
            y_axis: format!("GNU tar ÷ {}", ours.name()),
            lines: (0..KINDS.len()).map(line).collect(),
            log_x: true,
            log_y: false,
        }
    }

    /// The values of figure 8. What the paper says of its own order stands beside that.
    fn table(&self, results: &Results, ours: &Work) -> Table {
        let is_the_papers = *ours == by_first_extent();
        let mut heads = vec!["files"];
        heads.extend(KINDS.map(|kind| kind.3));
        heads.extend(is_the_papers.then_some("the paper"));
        let mut table = Table::new(&heads);
        for files in SIZES {
            let mut row = vec![page::count(files as u64)];
            row.extend((0..KINDS.len()).map(|kind| match self.improvement(results, files, kind, ours) {
                Some(alone) if alone.count == 1 => format!("{}, one directory", page::number(alone.median)),
                improvement => page::measured(improvement),
            }));
            let paper = PAPER_8.iter().find(|paper| is_the_papers && paper.0 == files);
            row.extend(paper.map(|paper| paper.1.to_owned()));
            table.row(row);
        }
        table
    }
}

impl Exhibit for Figure7 {
    fn title(&self) -> &'static str {
        "qtar, figures 7 and 8: sizes of trees"
    }

    fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for files in SIZES {
            for (kind, (fs, age, ..)) in KINDS.into_iter().enumerate() {
                let runs = (0..DIRECTORIES)
                    .flat_map(|directory| Self::works().map(|work| self.run(files, kind, directory, &work)))
                    .flat_map(|run| run.rounds(ROUNDS));
                cases.push(Case { name: format!("figure-7-{files}-{fs}-{age}"), runs: runs.collect() });
            }
        }
        cases
    }

    fn show(&self, results: &Results, pictures: &mut Pictures) -> Result<String, String> {
        let boxes = self.figure_7(results);
        let groups = boxes.panels.iter().flat_map(|panel| &panel.1);
        let values = groups.flat_map(|group| group.boxes.iter().flatten()).count();
        let drawn_7 = drawn(pictures, ("qtar-7", "disk time by size of the tree"), &boxes, (values, "figure-7"))?;
        let mut text = format!(
            "`source` made with as many files as given ({}), track buffer \
             on; {DIRECTORIES} directories, by seeds from {} on, each in a file system of its own, {ROUNDS} runs of each. A \
             box goes from quartile to quartile of the directories, its arms to the extremes; a dot stands for a box \
             too flat to be seen; steps of the time axes are factors. What keeps the smallest trees on a clean XFS from gaining is told in [lab.md](lab.md#every-program-side-by-side).\
             \n\n{drawn_7}\n",
            files(FILES, &Subject::new("source", "ext4", 1.0, self.seed), results),
            self.seed
        );
        for (picture, ours) in [("qtar-8-first-extent", by_first_extent()), ("qtar-8", Work::of(Tool::Tar))] {
            let (name, lines) = (ours.name(), self.figure_8(results, &ours));
            let words = format!("improvement by size of the tree, {name}");
            let drawn = drawn(pictures, (picture, &words), &lines, (values, "figure-7"))?;
            let table = self.table(results, &ours);
            let _ = writeln!(
                text,
                "{drawn}\nGNU tar ÷ `{name}`, median of the directories, with the least and the greatest:\n\n{table}"
            );
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::images::Facts;
    use crate::bench::results::tests::record;

    /// Whoever can't measure a picture reads its values, beside the paper's.
    #[test]
    fn the_values_of_a_picture_stand_below_it() {
        let figure = Figure6::new(1);
        let mut results = Results::default();
        for (work, busy_ms) in Figure6::works().into_iter().zip([80_000.0, 20_000.0, 16_000.0]) {
            let run = figure.run(0, &work);
            results.images.insert(run.setting.image.name(), Facts { image_sha256: "abc".into(), ..Facts::default() });
            for run in run.rounds(2) {
                results.enter(record(run.clone(), busy_ms * f64::from(run.round + 1)));
            }
        }
        let text = figure.show(&results, &mut Pictures::none()).unwrap();
        let row =
            "| 0 | 120 (80.0 to 160) | 30.0 (20.0 to 40.0) | 24.0 (16.0 to 32.0) | 4.00 (4.00 to 4.00) | 3.95 | 5.00 (";
        assert!(text.contains(row), "{text}");
        assert!(
            text.contains("| 24 | not measured | not measured | not measured | not measured | 4.75 | not"),
            "{text}"
        );
    }

    /// The paper's improvements are those of its own order.
    #[test]
    fn figure_8_tells_both_orders_apart() {
        let figure = Figure7::new(1);
        let mut results = Results::default();
        for (work, busy_ms) in Figure7::works().into_iter().zip([80_000.0, 20_000.0, 16_000.0]) {
            let run = figure.run(22_500.0, 0, 0, &work);
            results.images.insert(run.setting.image.name(), Facts { image_sha256: "abc".into(), ..Facts::default() });
            results.enter(record(run, busy_ms));
        }
        let row = |work: &Work| figure.table(&results, work).to_string().lines().last().unwrap().to_owned();
        assert!(row(&by_first_extent()).starts_with("| 22,500 | 4.00, one directory | not"));
        assert!(row(&by_first_extent()).ends_with(&format!("| {} |", PAPER_8[1].1)));
        assert!(row(&Work::of(Tool::Tar)).starts_with("| 22,500 | 5.00, one directory | not"));
        assert!(!row(&Work::of(Tool::Tar)).contains("about"));
    }

    #[test]
    fn bounds_are_the_same_under_every_scheduler() {
        let figure = Figure1::new(1);
        let bars = figure.bars("ntfs");
        let bar = |name| bars.iter().find(|bar| bar.name == name).unwrap();
        assert_eq!(bar("one sweep").run("bfq"), bar("without seeks").run("none"));
        assert_ne!(bar("GNU tar").run("bfq"), bar("GNU tar").run("none"));
        let run = bar("one sweep").run("none");
        let mut results = Results::default();
        results.images.insert(run.setting.image.name(), Facts { image_sha256: "abc".into(), ..Facts::default() });
        let mut swept = record(run, 9000.0);
        swept.outcome.detail = serde_json::json!({"streaming_ms": 7000.0});
        results.enter(swept);
        let table = figure.table(&results).to_string();
        assert!(table.contains("| one sweep, NTFS, clean | 9.00 | 9.00 | 9.00 |"), "{table}");
        assert!(table.contains("| without seeks, NTFS, clean | 7.00 | 7.00 | 7.00 |"), "{table}");
        let bounds = figure.cases()[0].runs.iter().filter(|run| run.work.is_bound()).count();
        assert_eq!(bounds, 4, "one of each image");
        assert!(table.contains("| tar DEVICE, NTFS, aged |") && !table.contains("| tar DEVICE, ext4"), "{table}");
    }

    /// Ageing adds files: what is read after it is more than the tree was made with.
    #[test]
    fn an_aged_tree_is_shown_with_the_files_that_it_has() {
        let mut results = Results::default();
        let fresh = Figure3::new(1).show(&results, &mut Pictures::none()).unwrap();
        assert!(fresh.contains("22,500 files, more after 24 versions"), "{fresh}");
        for (image, files) in [(Figure3::new(1).image(None), 28_315), (Figure5::new(1).image(), 1281)] {
            results.images.insert(image.name(), Facts { files, ..Facts::default() });
        }
        let text = |exhibit: &dyn Exhibit| exhibit.show(&results, &mut Pictures::none()).unwrap();
        let said = "22,500 files, 28,315 after 24 versions";
        assert!(text(&Figure3::new(1)).contains(said) && text(&Figure7::new(1)).contains(said));
        assert!(text(&Figure5::new(1)).contains("1,000 files, 1,281 after 24 versions"));
    }
}
