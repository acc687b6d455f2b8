//! A recipe under one variant of the file system, measured where the paper measures.

use super::outcomes::{Outcome, Point, Size, Writes};
use crate::age::recipe::{Amount, Op, Recipe};
use crate::age::recipes::dfs::{Points, is_counted};
use crate::disk::model::DiskModel;
use crate::ffs::replay::Replay;
use crate::ffs::score::Score;
use crate::ffs::shape::Shape;
use crate::ffs::system::{FileSystem, Relocation, Settings};
use crate::interrupt::Interrupt;

/// Points of the curve of figure 6, and steps of the progress that is told.
const STEPS: u64 = 20;

/// What is done when a dirty block is flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    Ffs,
    /// FFS whose new files are put into one run.
    Realloc,
    Dfs16,
    Dfs24,
    /// As DFS, but a region may begin before the block that is flushed.
    Around16,
    Around24,
}

impl Variant {
    /// The quickest to measure first.
    pub(super) const ALL: [Self; 6] =
        [Self::Ffs, Self::Realloc, Self::Dfs24, Self::Dfs16, Self::Around24, Self::Around16];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ffs => "ffs",
            Self::Realloc => "ffs-realloc",
            Self::Dfs16 => "dfs-16",
            Self::Dfs24 => "dfs-24",
            Self::Around16 => "around-16",
            Self::Around24 => "around-24",
        }
    }

    fn relocation(self) -> Option<Relocation> {
        let (region, around) = match self {
            Self::Ffs | Self::Realloc => return None,
            Self::Dfs16 => (16, false),
            Self::Dfs24 => (24, false),
            Self::Around16 => (16, true),
            Self::Around24 => (24, true),
        };
        Some(Relocation { region, around })
    }
}

/// The paper's disk, unless another is tried. The lab's model of it has the track buffer and the write cache of later drives; this one has the
/// 512 KB that Red Hill's history gives, as a track buffer, since writes that a drive keeps back would be merged
/// whatever the file system does.
fn disk(model: &DiskModel) -> DiskModel {
    DiskModel { buffer_segments: 8, buffer_segment_bytes: 64 << 10, write_cache: 0, ..model.clone() }
}

/// The paper's file system and cache, or a part of them.
fn settings(scale: f64, variant: Variant, model: &DiskModel) -> Settings {
    let groups = (f64::from(Shape::PAPER.groups) * scale).round().max(3.0) as u32;
    let cache_blocks = ((128 << 20) as f64 / 4096.0 * scale) as usize;
    Settings {
        shape: Shape { groups, ..Shape::PAPER },
        cache_blocks,
        model: disk(model),
        reallocates: variant == Variant::Realloc,
        relocation: variant.relocation(),
    }
}

/// From the first operation to point 2. Writes and flushes are those of the tenth of all operations before it.
pub(super) fn measure(
    recipe: Recipe,
    amount: &Amount,
    variant: Variant,
    model: &DiskModel,
    points: Points,
    interrupt: &Interrupt,
) -> Result<Outcome, String> {
    let mut replay = Replay::new(FileSystem::new(&settings(amount.scale, variant, model)));
    let mut outcome = Outcome::default();
    let (mut count, mut books) = (0, replay.system.books());
    let late = points.second - points.second / 10;
    let next = |done: usize| points.reached + (points.second - points.reached) * done as u64 / STEPS;
    for op in recipe.ops(amount) {
        let is_counted = is_counted(&op);
        let write = if let Op::Overwrite(_, bytes) = &op { *bytes } else { 0 };
        let before = replay.system.foreground_ms();
        replay.apply(op)?;
        if write > 0 && count >= late {
            outcome.writes.add(write, replay.system.foreground_ms() - before);
        }
        if !is_counted {
            continue;
        }
        count += 1;
        if count == next(outcome.curve.len()) {
            interrupt.check()?;
            outcome.curve.push((count, all(&replay.system).share()));
            let percent = 100 * count / points.second;
            eprintln!("{}, {}: {percent} % of {} operations", recipe.name(), variant.name(), points.second);
        }
        if count == points.first {
            outcome.first = point(&mut replay.system, count)?;
        }
        if count == late {
            books = replay.system.books();
        }
        if count == points.second {
            outcome.flush = replay.system.books().since(&books);
            outcome.second = point(&mut replay.system, count)?;
            return Ok(outcome);
        }
    }
    Err("the operations end before point 2".into())
}

fn all(system: &FileSystem) -> Score {
    let mut all = Score::default();
    system.scores().into_values().for_each(|score| all.add(score));
    all
}

/// Layout and reading after everything was brought to the disk and memory was emptied, as the paper does by mounting anew.
fn point(system: &mut FileSystem, operations: u64) -> Result<Point, String> {
    let used = system.used();
    system.mount_again()?;
    let scores = system.scores();
    let readings = system.read_all()?;
    let size = |(blocks, score): (u32, Score)| {
        let readings = readings.get(&blocks).copied().unwrap_or_default();
        (blocks, Size { files: readings.files, score, read_ms: readings.ms })
    };
    Ok(Point { operations, used, sizes: scores.into_iter().map(size).collect() })
}

impl Writes {
    fn add(&mut self, bytes: u64, ms: f64) {
        self.bytes += bytes;
        self.ms += ms;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::age::recipes::dfs::Points;

    fn fireball() -> DiskModel {
        DiskModel::named("fireball-ex").unwrap()
    }

    /// A small one, from its beginning to its end: nothing is lost (each read looks at what lies there), the operations
    /// are the same for all, and putting files in order pays.
    #[test]
    fn small_files_gain_and_nothing_is_lost() {
        let amount = Amount { seed: 1, scale: 0.02, steps: Some(u32::MAX), image_bytes: 40 << 20 };
        let points = Points::of(Recipe::DfsSmall.ops(&amount), amount.image_bytes).unwrap();
        let outcomes = [Variant::Ffs, Variant::Dfs16, Variant::Around16].map(|variant| {
            measure(Recipe::DfsSmall, &amount, variant, &fireball(), points, &Interrupt::default()).unwrap()
        });
        let small = |outcome: &Outcome| outcome.second.score(2..=12).share();
        let [ffs, dfs, around] = &outcomes;
        assert_eq!(ffs.second.operations, points.second);
        assert_eq!(ffs.second.files(1..=u32::MAX), dfs.second.files(1..=u32::MAX));
        assert_eq!((ffs.flush.regions, ffs.flush.moved), (0, 0));
        assert!(dfs.flush.regions > 0 && dfs.flush.moved > 0 && dfs.flush.region_dirty >= dfs.flush.regions);
        assert!(
            small(dfs) > small(ffs) && small(around) > small(ffs),
            "{} {} {}",
            small(ffs),
            small(dfs),
            small(around)
        );
        assert!(dfs.second.speed(2..=12) > ffs.second.speed(2..=12));
        assert_eq!((dfs.curve[0].0, dfs.curve[20].0), (points.reached, points.second));
    }

    #[test]
    fn a_run_that_is_told_to_end_ends() {
        let amount = Amount { seed: 1, scale: 0.02, steps: Some(u32::MAX), image_bytes: 40 << 20 };
        let points = Points::of(Recipe::DfsSmall.ops(&amount), amount.image_bytes).unwrap();
        let interrupt = Interrupt::default();
        interrupt.tell();
        assert!(measure(Recipe::DfsSmall, &amount, Variant::Ffs, &fireball(), points, &interrupt).is_err());
    }
}
