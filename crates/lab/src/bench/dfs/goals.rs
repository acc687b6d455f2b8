//! The paper's figures, and what has to be reached.

use super::outcomes::{Outcome, Point, Recipes};
use crate::bench::page::{Table, number};

/// What a figure has to be.
#[derive(Debug, Clone, Copy)]
enum Aim {
    AtLeast,
    /// No more is lost.
    AtMostLost,
    /// Within three tenths of it.
    About,
    /// No gain: nothing above this.
    AtMost,
    /// Shown beside the paper's, which may mean something else.
    Shown,
}

/// A figure of a variant beside FFS.
struct Goal {
    what: &'static str,
    /// In the order of [`VARIANTS`].
    paper: [f64; 2],
    aim: Aim,
    value: fn(&Outcome, &Outcome) -> f64,
    /// What it would be over this FFS if all small files lay in one piece each, and nothing else were better.
    most: Option<fn(&Outcome) -> f64>,
}

/// The paper's variants, and ours beside each.
pub(super) const VARIANTS: [(&str, usize); 4] = [("dfs-16", 0), ("dfs-24", 1), ("around-16", 0), ("around-24", 1)];

/// Files that are small to the paper.
const SMALL: std::ops::RangeInclusive<u32> = 2..=12;

const LARGE: std::ops::RangeInclusive<u32> = 13..=u32::MAX;

/// Per cent by which one is above the other.
pub(super) fn gain(of: f64, over: f64) -> f64 {
    100.0 * (of / over - 1.0)
}

/// The greatest gain among the sizes of small files.
fn best(point: &Point, over: &Point) -> f64 {
    let gains = SMALL.map(|blocks| gain(point.score(blocks..=blocks).share(), over.score(blocks..=blocks).share()));
    gains.filter(|gain| gain.is_finite()).fold(f64::NEG_INFINITY, f64::max)
}

const GOALS: [Goal; 14] = [
    Goal {
        what: "aggregate layout score at the end, %",
        paper: [13.0, 29.0],
        aim: Aim::AtLeast,
        value: |it, ffs| gain(it.second.score(2..=u32::MAX).share(), ffs.second.score(2..=u32::MAX).share()),
        most: Some(|ffs| {
            let (small, all) = (ffs.second.score(SMALL), ffs.second.score(2..=u32::MAX));
            gain((all.adjoining + small.pairs - small.adjoining) as f64, all.adjoining as f64)
        }),
    },
    Goal {
        what: "reading files of 2 to 12 blocks at point 2, %",
        paper: [47.0, 78.0],
        aim: Aim::AtLeast,
        value: |it, ffs| gain(it.second.speed(SMALL), ffs.second.speed(SMALL)),
        most: None,
    },
    Goal {
        what: "their layout score at point 2, in the best size, %",
        paper: [150.0, 260.0],
        aim: Aim::AtLeast,
        value: |it, ffs| best(&it.second, &ffs.second),
        most: Some(|ffs| SMALL.map(|blocks| gain(1.0, ffs.second.score(blocks..=blocks).share())).fold(0.0, f64::max)),
    },
    Goal {
        what: "flush throughput, %",
        paper: [-11.0, -17.0],
        aim: Aim::AtMostLost,
        value: |it, ffs| gain(it.flush_speed(), ffs.flush_speed()),
        most: None,
    },
    Goal {
        what: "write throughput, %",
        paper: [7.0, 12.0],
        aim: Aim::AtLeast,
        value: |it, ffs| gain(it.write_speed(), ffs.write_speed()),
        most: None,
    },
    Goal {
        what: "reading files of 2 to 12 blocks at point 1, %",
        paper: [5.0, 8.0],
        aim: Aim::AtLeast,
        value: |it, ffs| gain(it.first.speed(SMALL), ffs.first.speed(SMALL)),
        most: None,
    },
    Goal {
        what: "their layout score at point 1, %",
        paper: [23.0, 30.0],
        aim: Aim::AtLeast,
        value: |it, ffs| gain(it.first.score(SMALL).share(), ffs.first.score(SMALL).share()),
        most: Some(|ffs| gain(1.0, ffs.first.score(SMALL).share())),
    },
    Goal {
        what: "reading files of 2 and 3 blocks at point 2, %",
        paper: [14.0, 25.0],
        aim: Aim::AtLeast,
        value: |it, ffs| gain(it.second.speed(2..=3), ffs.second.speed(2..=3)),
        most: None,
    },
    Goal {
        what: "table 3, where a region is written: blocks beside the flushed one",
        paper: [9.2, 15.4],
        aim: Aim::About,
        value: |it, _| it.relocated(),
        most: None,
    },
    Goal {
        what: "table 3, where a region is written: blocks of inodes that it changes",
        paper: [1.3, 2.4],
        aim: Aim::About,
        value: |it, _| it.inode_writes(),
        most: None,
    },
    Goal {
        what: "where a region is written: blocks that get another place",
        paper: [9.2, 15.4],
        aim: Aim::Shown,
        value: |it, _| it.moved(),
        most: None,
    },
    Goal {
        what: "over all requests that flush: blocks written beside the flushed one",
        paper: [9.2, 15.4],
        aim: Aim::Shown,
        value: |it, _| it.relocated() * it.region_share(),
        most: None,
    },
    Goal {
        what: "over all requests that flush: blocks of inodes that regions change",
        paper: [1.3, 2.4],
        aim: Aim::Shown,
        value: |it, _| it.inode_writes() * it.region_share(),
        most: None,
    },
    Goal {
        what: "reading files above 12 blocks at point 2, %",
        paper: [0.0, 0.0],
        aim: Aim::AtMost,
        value: |it, ffs| gain(it.second.speed(LARGE), ffs.second.speed(LARGE)),
        most: None,
    },
];

impl Aim {
    fn is_met(self, value: f64, paper: f64) -> bool {
        match self {
            Self::AtLeast | Self::AtMostLost => value >= paper,
            Self::About => (value / paper - 1.0).abs() <= 0.3,
            Self::AtMost => value <= paper,
            Self::Shown => true,
        }
    }

    fn text(self, [first, second]: [f64; 2]) -> String {
        match self {
            Self::AtLeast => format!("{first:+}, {second:+} or more"),
            Self::AtMostLost => format!("{first}, {second} or less lost"),
            Self::About => format!("{first}, {second}, within 30 %"),
            Self::AtMost => "no gain".into(),
            Self::Shown => format!("{first}, {second}, if it means this"),
        }
    }

    /// It is of a gain, or else of a number of blocks.
    fn is_of_a_gain(self) -> bool {
        !matches!(self, Self::About | Self::Shown)
    }
}

/// What came out with each seed.
struct Spread(Vec<f64>);

impl Spread {
    fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    fn text(&self, has_sign: bool) -> String {
        let one = |value: f64| format!("{}{}", if value > 0.0 && has_sign { "+" } else { "" }, number(value));
        let (least, greatest) = self
            .0
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(*value), high.max(*value)));
        if self.0.len() < 2 {
            return one(self.mean());
        }
        format!("{} ({} to {})", one(self.mean()), one(least), one(greatest))
    }
}

/// A row for each goal: what has to be reached, and each variant's figure, the mean where there are several seeds; bold where it
/// isn't reached.
pub(super) fn table(seeds: &[&Recipes]) -> Table {
    let heads = ["over FFS", "the paper, to reach (16, 24)", "if all small files were whole"]
        .into_iter()
        .chain(VARIANTS.map(|variant| variant.0));
    let mut table = Table::new(&heads.collect::<Vec<_>>());
    let beside_ffs = |name: &str| -> Vec<(&Outcome, &Outcome)> {
        seeds.iter().filter_map(|seed| Some((seed.variants.get(name)?, seed.variants.get("ffs")?))).collect()
    };
    for goal in &GOALS {
        let cell = |(name, column): (&str, usize)| {
            let values =
                Spread(beside_ffs(name).into_iter().map(|(outcome, ffs)| (goal.value)(outcome, ffs)).collect());
            if values.0.is_empty() {
                return "–".to_owned();
            }
            let text = values.text(goal.aim.is_of_a_gain());
            if goal.aim.is_met(values.mean(), goal.paper[column]) { text } else { format!("**{text}**") }
        };
        let most_of = |most: fn(&Outcome) -> f64| {
            let values = Spread(beside_ffs("ffs").into_iter().map(|(ffs, _)| most(ffs)).collect());
            format!("{:+.1}", values.mean())
        };
        let most = goal.most.map_or(String::new(), most_of);
        let cells = [goal.what.to_owned(), goal.aim.text(goal.paper), most].into_iter().chain(VARIANTS.map(cell));
        table.row(cells.collect());
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::age::recipes::dfs::Points;
    use crate::bench::dfs::outcomes::Size;
    use crate::ffs::books::Books;
    use crate::ffs::score::Score;

    fn outcome(adjoining: u64, read_ms: f64, flush_ms: f64) -> Outcome {
        let score = |adjoining| Score { pairs: 100, adjoining };
        let small = Size { files: 100, score: score(adjoining), read_ms };
        let large = Size { files: 10, score: score(50), read_ms: 100.0 };
        let point = Point { sizes: [(2, small), (20, large)].into(), ..Point::default() };
        let flush = Books {
            flushed: 100,
            requests: 50,
            regions: 10,
            region_blocks: 102,
            moved: 61,
            inode_blocks: 13,
            flush_ms,
            ..Books::default()
        };
        Outcome { first: point.clone(), second: point, flush, ..Outcome::default() }
    }

    #[test]
    fn what_is_not_reached_is_bold() {
        let points = Points { reached: 10, first: 11, second: 30 };
        let variants = [("ffs".into(), outcome(20, 100.0, 100.0)), ("dfs-16".into(), outcome(51, 70.0, 120.0))].into();
        let recipe = Recipes { points, variants };
        let text = table(&[&recipe]).to_string();
        let row = |what: &str| text.lines().find(|line| line.contains(what)).unwrap().to_owned();
        assert!(row("aggregate").ends_with("| +114.3 | +44.3 | – | – | – |"), "{text}");
        assert!(row("at point 2, in the best size").contains("| +155 |"), "{text}");
        assert!(row("2 to 12 blocks at point 2").contains("| **+42.9** |"), "{text}");
        assert!(row("flush").contains("| -11, -17 or less lost |  | **-16.7** |"), "{text}");
        assert!(row("is written: blocks beside the").contains("| 9.2, 15.4, within 30 % |  | 9.20 |"), "{text}");
        assert!(row("is written: blocks of inodes").contains("| 1.3, 2.4, within 30 % |  | 1.30 |"), "{text}");
        // Of 50 requests 10 are regions. What has no goal is never bold.
        assert!(row("another place").contains("| 9.2, 15.4, if it means this |  | 6.10 |"), "{text}");
        assert!(row("flush: blocks written").contains("| 1.84 |"), "{text}");
        assert!(row("flush: blocks of inodes").contains("| 0.26 |"), "{text}");
        assert!(row("above 12").contains("| no gain |  | 0.00 |"), "{text}");

        // With a second seed the mean counts.
        let variants = [("ffs".into(), outcome(20, 100.0, 100.0)), ("dfs-16".into(), outcome(51, 60.0, 120.0))].into();
        let text = table(&[&recipe, &Recipes { points, variants }]).to_string();
        assert!(text.contains("| +54.8 (+42.9 to +66.7) |"), "{text}");
    }
}
