//! Which files come to lie side by side, in the order in which somebody reads them.
//!
//! A reader that comes from one block to the next pays a seek for each that lies elsewhere than behind the last one: a
//! *break*, inside a file or between two. Here files are packed into regions, one behind the other, wherever that saves more
//! breaks than it costs. Numbers in, a plan out; nothing is read or written.
//!
//! ```
//! use onesweep_relocate::pack::{Item, Rules, plan};
//! use onesweep_relocate::places::{Places, Run};
//!
//! let files: Vec<Places> =
//!     (0..8).map(|number| Places::of([Run { logical: 0, place: number * 100, blocks: 2 }]).unwrap()).collect();
//! let items: Vec<Item> = files.iter().map(|places| Item { places, may_move: true }).collect();
//! let plan = plan(&items, &Rules::for_regions(17));
//! assert_eq!((plan.regions.len(), plan.before.breaks(), plan.after.breaks()), (1, 7, 0));
//! ```

mod check;
mod fit;
mod free;
mod plan;
mod score;

pub use self::{
    check::{Flaw, check},
    fit::{Fitted, fit, fit_into},
    free::{Free, Piece},
    plan::{MAX_FILES, Plan, Region, plan},
    score::{Score, score},
};
use crate::places::Places;

/// A file, at its turn in the order of reading.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// Where its blocks lie. A file without any is as if it was not there.
    pub places: &'a Places,
    /// Whether it can be moved.
    pub may_move: bool,
}

/// What a plan may cost.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rules {
    /// The most blocks of a region, with what stays free of it.
    pub region: u64,
    /// Blocks that stay free behind the files of a region, for what grows.
    pub slack: u64,
    /// The most blocks that may be written for each break that a region saves, on average.
    pub budget: u64,
    /// The most blocks that may be written for the last breaks of a region, as long as it keeps to its budget: what a file in the middle may
    /// take for the two that it makes. No less than the budget.
    pub dearest: u64,
    /// Breaks that a region has to save beyond those that pay for its blocks. A new file between others that lie side by
    /// side adds two, so with 2 or more it moves none of them.
    pub margin: u64,
}

impl Rules {
    /// Regions of so many blocks, of which a sixteenth stays free; 32 blocks may be written for each break, and two breaks
    /// more must be saved than that.
    #[must_use]
    pub fn for_regions(blocks: u64) -> Rules {
        Rules { region: blocks, slack: blocks / 16, budget: 32, dearest: 32, margin: 2 }
    }

    /// Blocks of files that fit into a region.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.region.saturating_sub(self.slack)
    }

    /// Whether so many breaks are worth it that so many blocks are written.
    #[must_use]
    pub fn is_worth(&self, saved: u64, blocks: u64) -> bool {
        saved.saturating_sub(self.margin).saturating_mul(self.budget) >= blocks && saved > self.margin
    }
}
