//! The figures of each directory, and of all.

use std::{cmp::Ordering, os::unix::ffi::OsStrExt};

use onesweep::{DiskModel, LaidDirectory, LaidSide};
use onesweep_layout::LayoutScore;
use serde::Serialize;

/// Neighbours, and those of them that are neighbours on the device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(super) struct Score {
    contiguous: u64,
    pairs: u64,
    /// 0 to 1; `None` when there is no pair.
    pub(super) score: Option<f64>,
}

impl Score {
    fn of(score: LayoutScore) -> Self {
        Self { contiguous: score.contiguous, pairs: score.pairs, score: score.ratio() }
    }

    fn add(&mut self, other: &Self) {
        let (contiguous, pairs) = (self.contiguous + other.contiguous, self.pairs + other.pairs);
        *self = Self::of(LayoutScore { contiguous, pairs });
    }
}

/// One of before and after.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Side {
    pub(super) fragments: u64,
    pub(super) layout: Score,
    pub(super) dynamic: Score,
    pub(super) seeks: u64,
    pub(super) seconds: f64,
}

impl Side {
    fn of(side: &LaidSide) -> Self {
        Self {
            fragments: side.fragments,
            layout: Score::of(side.layout),
            dynamic: Score::of(side.dynamic),
            seeks: side.seeks,
            seconds: side.seconds,
        }
    }

    fn add(&mut self, other: &Self) {
        self.fragments += other.fragments;
        self.layout.add(&other.layout);
        self.dynamic.add(&other.dynamic);
        self.seeks += other.seeks;
        self.seconds += other.seconds;
    }
}

/// What is told of a directory, and of all together.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Figures {
    pub(super) files: u64,
    /// With blocks of which the place is known: all else is about these.
    pub(super) placed_files: u64,
    pub(super) fragmented_files: u64,
    pub(super) compressed_files: u64,
    pub(super) unknown_files: u64,
    pub(super) blocks: u64,
    pub(super) bytes: u64,
    pub(super) before: Side,
    pub(super) after: Side,
}

impl Figures {
    fn of(laid: &LaidDirectory, disk: &DiskModel) -> Self {
        let figures = laid.figures(disk);
        Self {
            files: figures.files,
            placed_files: figures.placed_files,
            fragmented_files: figures.fragmented_files,
            compressed_files: figures.compressed_files,
            unknown_files: figures.unknown_files,
            blocks: figures.blocks,
            bytes: figures.bytes,
            before: Side::of(&figures.before),
            after: Side::of(&figures.after),
        }
    }

    /// Seconds that packing would save.
    pub(super) fn gain(&self) -> f64 {
        self.before.seconds - self.after.seconds
    }

    /// Whether any file has bytes of its own on a disk.
    pub(super) fn has_content(&self) -> bool {
        self.placed_files + self.compressed_files + self.unknown_files > 0
    }

    fn add(&mut self, other: &Self) {
        self.files += other.files;
        self.placed_files += other.placed_files;
        self.fragmented_files += other.fragmented_files;
        self.compressed_files += other.compressed_files;
        self.unknown_files += other.unknown_files;
        self.blocks += other.blocks;
        self.bytes += other.bytes;
        self.before.add(&other.before);
        self.after.add(&other.after);
    }
}

/// One directory.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) path: String,
    /// The bytes in hexadecimal, when the path is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    pub(super) disk: String,
    #[serde(flatten)]
    pub(super) figures: Figures,
}

impl Row {
    pub(super) fn of(laid: &LaidDirectory, disk: &DiskModel) -> Self {
        let bytes = laid.path.as_os_str().as_bytes();
        let hex = || bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            path: laid.path.to_string_lossy().into_owned(),
            path_hex: laid.path.to_str().is_none().then(hex),
            disk: laid.disk.clone(),
            figures: Figures::of(laid, disk),
        }
    }

    /// The one that packing would gain more comes first; of equal ones, that with more seeks, then by path.
    fn order(&self, other: &Self) -> Ordering {
        let gain = other.figures.gain().total_cmp(&self.figures.gain());
        let seeks = other.figures.before.seeks.cmp(&self.figures.before.seeks);
        gain.then(seeks).then_with(|| self.path.cmp(&other.path))
    }

    pub(super) fn is_worse_than(&self, other: &Self) -> bool {
        self.order(other) == Ordering::Less
    }
}

/// All directories together.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(super) struct Total {
    pub(super) directories: u64,
    #[serde(flatten)]
    pub(super) figures: Figures,
}

/// The worst directories, and the sum of all. Takes memory for twice as many as are shown.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Row>,
    most: usize,
    pub(super) total: Total,
}

impl Table {
    /// `top` directories are shown; all where it is 0.
    pub(super) fn new(top: usize) -> Self {
        Self { rows: Vec::new(), most: if top == 0 { usize::MAX } else { top }, total: Total::default() }
    }

    pub(super) fn add(&mut self, row: Row) {
        self.total.directories += 1;
        self.total.figures.add(&row.figures);
        self.rows.push(row);
        if self.rows.len() >= self.most.saturating_mul(2).max(64) {
            self.rows.sort_by(Row::order);
            self.rows.truncate(self.most);
        }
    }

    /// Those that are shown, the worst first.
    pub(super) fn rows(&self) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        rows.sort_by(|a, b| a.order(b));
        rows.truncate(self.most);
        rows
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A directory that packing would gain so many seconds.
    pub(in super::super) fn row(path: &str, gain: f64) -> Row {
        let side = |seconds| Side { seconds, seeks: 2, fragments: 3, ..Side::default() };
        let figures = Figures {
            files: 2,
            placed_files: 2,
            blocks: 7,
            before: side(gain + 1.0),
            after: side(1.0),
            ..Figures::default()
        };
        Row { path: path.into(), path_hex: None, disk: "sda".into(), figures }
    }

    #[test]
    fn the_worst_are_kept_and_all_are_summed() {
        let mut table = Table::new(3);
        for number in 0..200 {
            table.add(row(&format!("{number}"), f64::from(number * 37 % 200)));
        }
        let gains: Vec<f64> = table.rows().iter().map(|row| row.figures.gain()).collect();
        assert_eq!(gains, [199.0, 198.0, 197.0]);
        assert_eq!((table.total.directories, table.total.figures.blocks), (200, 1400));
        assert_eq!(table.total.figures.after.seconds, 200.0);
        let mut all = Table::new(0);
        (0..100).for_each(|number| all.add(row(&format!("{number}"), 1.0)));
        assert_eq!(all.rows().len(), 100);
    }

    #[test]
    fn sums_of_scores_are_divided_last() {
        let mut sum = Score::of(LayoutScore { contiguous: 1, pairs: 2 });
        sum.add(&Score::of(LayoutScore { contiguous: 8, pairs: 8 }));
        assert_eq!(sum.score, Some(0.9));
        assert_eq!(Score::of(LayoutScore::default()).score, None);
    }
}
