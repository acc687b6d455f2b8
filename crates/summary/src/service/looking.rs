//! Looks at a directory for who doesn't see all, a piece at a time: others have their turn between two pieces.

use super::{
    protocol::Refusal,
    server::{Reached, refusal},
    ways::Ways,
};
use crate::{
    access::Asker,
    identity::NodeId,
    nodes::Slot,
    record::Access,
    summaries::SummaryError,
    view::{
        Line, MayList,
        pieces::{Counted, Counting, Pieces},
    },
};

/// Directories, and inodes with several names, that are looked at before others have their turn: 15 to 60 ms.
pub(super) const LOOKS_MAX: usize = if cfg!(test) { 2 } else { 10_000 };

/// A directory as if it were asked for alone.
pub(super) struct Look {
    /// What is seen of it.
    pub(super) line: Line,
    /// Something was left out that the asker may not see.
    pub(super) is_partial: bool,
    /// The directory itself may not be listed.
    pub(super) is_denied: bool,
}

/// A look that may not be over.
pub(super) struct Looking {
    pieces: Pieces,
    counted: Counted,
}

impl Looking {
    /// At a directory; with what it comes to without the directories in it, or without.
    pub(super) fn at(reached: &Reached<'_>, slot: Slot, with_own: bool) -> Looking {
        let id = reached.tracked.ledger().nodes.id(slot);
        Looking { pieces: Pieces::of(id, with_own), counted: Counted::nothing() }
    }

    /// Goes on for at most so many looks, which are taken off. Whether that was the last.
    pub(super) fn go_on(&mut self, reached: &Reached<'_>, asker: &Asker, looks: &mut usize) -> Result<bool, Refusal> {
        reached.count(asker, &mut self.pieces, &mut self.counted, looks)
    }

    /// Goes on to the end, and lets others have their turn each time when that takes more looks than are left. What came out: see
    /// [`look`](Self::look).
    pub(super) fn finish<'a>(
        self,
        reached: Reached<'a>,
        asker: &Asker,
        looks: &mut usize,
    ) -> Result<(Reached<'a>, Option<Look>), Refusal> {
        let (reached, looking) = self.go_through(reached, asker, looks)?;
        let look = looking.look(&reached);
        Ok((reached, look))
    }

    /// The same, for who asks what was left out.
    pub(super) fn go_through<'a>(
        mut self,
        reached: Reached<'a>,
        asker: &Asker,
        looks: &mut usize,
    ) -> Result<(Reached<'a>, Self), Refusal> {
        let reached = reached.count_all(asker, &mut self.pieces, &mut self.counted, looks)?;
        Ok((reached, self))
    }

    /// The directories that the asker may not list, in no order.
    pub(super) fn hidden(&self, reached: &Reached<'_>) -> Vec<Slot> {
        self.pieces.hidden().filter_map(|id| reached.tracked.ledger().nodes.find(id)).collect()
    }

    /// What came out, by the number that the directory has by now; `None` where it is gone, and another one may have its number.
    pub(super) fn look(&self, reached: &Reached<'_>) -> Option<Look> {
        let top = self.pieces.top();
        let line = self.counted.line(reached.tracked.ledger().nodes.find(top)?)?;
        Some(Look { line, is_partial: self.pieces.is_partial(), is_denied: self.pieces.hides(top) })
    }
}

impl<'a> Reached<'a> {
    /// Counts on for at most so many looks, which are taken off. Whether that was the last.
    pub(super) fn count(
        &self,
        asker: &Asker,
        pieces: &mut Pieces,
        counting: &mut dyn Counting,
        looks: &mut usize,
    ) -> Result<bool, Refusal> {
        let may_list = |slot: Slot, access: &Access| self.may_list(asker, slot, access);
        let may_list = (*asker != Asker::Everything).then_some(&may_list as MayList<'_>);
        let counted = pieces.go_on(self.tracked.ledger(), may_list, counting, looks);
        counted.map_err(|error| refusal(SummaryError::Store(error)))
    }

    /// Counts to the end; lets others have their turn each time when that takes more looks than are left.
    pub(super) fn count_all(
        mut self,
        asker: &Asker,
        pieces: &mut Pieces,
        counting: &mut dyn Counting,
        looks: &mut usize,
    ) -> Result<Self, Refusal> {
        while !self.count(asker, pieces, counting, looks)? {
            self = self.give_way().ok_or(Refusal::NotTracked)?;
            *looks = LOOKS_MAX;
            if !self.leads_to(asker, pieces.top())? {
                pieces.close();
            }
        }
        Ok(self)
    }

    /// Whether the asker comes to a directory by now. To the one that was asked for, in any case.
    fn leads_to(&self, asker: &Asker, id: NodeId) -> Result<bool, Refusal> {
        let nodes = &self.tracked.ledger().nodes;
        match nodes.find(id) {
            Some(slot) if slot == self.slot => Ok(true),
            Some(slot) => nodes.parent(slot).map_or(Ok(false), |above| Ways::new(self, asker, false).is_open(above)),
            None => Ok(false),
        }
    }
}
