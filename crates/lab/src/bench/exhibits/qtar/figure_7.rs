//! qtar, figures 7 and 8: trees of different sizes.

use std::fmt::Write as _;

use super::{FILES, by_first_extent, disk, drawn, files, seconds, thousandths};
use crate::bench::exhibits::{Case, Exhibit};
use crate::bench::page::{self, Table};
use crate::bench::plot::{Boxes, Group, Line, Lines, Pictures};
use crate::bench::results::Results;
use crate::bench::run::{Run, Setting, Subject};
use crate::bench::statistics::{self, Spread};
use crate::bench::work::{Tool, Work};

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
}
