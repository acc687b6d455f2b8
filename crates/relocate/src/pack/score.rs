//! How much of an order lies side by side.

use onesweep_layout::LayoutScore;

use super::Item;
use crate::places::Places;

/// The two scores of an order of files.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Score {
    /// Inside the files: what *DFS* and Smith and Seltzer count.
    pub files: LayoutScore,
    /// Over all blocks in the order in which they are read, so between files too: the dynamic score.
    pub order: LayoutScore,
}

impl Score {
    /// Seeks of who reads all in this order, but for the first.
    #[must_use]
    pub fn breaks(&self) -> u64 {
        self.order.pairs - self.order.contiguous
    }
}

/// The scores of files in this order.
#[must_use]
pub fn score(items: &[Item<'_>]) -> Score {
    let mut sum = Score::default();
    let mut previous: Option<&Places> = None;
    for places in items.iter().map(|item| item.places).filter(|places| places.blocks() > 0) {
        let pairs = places.blocks() - 1;
        let inside = LayoutScore { contiguous: pairs - places.breaks(), pairs };
        sum.files += inside;
        sum.order += inside;
        if let Some(previous) = previous {
            sum.order += LayoutScore { contiguous: u64::from(previous.leads_to(places)), pairs: 1 };
        }
        previous = Some(places);
    }
    sum
}
