//! Looks at a directory for who doesn't see all, a piece at a time: others have their turn between two pieces.

use super::{
    protocol::Refusal,
    server::{Reached, refusal},
};
use crate::{
    access::Asker,
    nodes::Slot,
    record::Access,
    summaries::SummaryError,
    view::{
        Line, MayList,
        pieces::{Counted, Counting, Pieces},
    },
};

/// Directories, and inodes with several names, that are looked at before others have their turn: 15 to 60 ms.
pub(super) const LOOKS_MAX: usize = 10_000;

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

    /// Goes on to the end, and lets others have their turn each time when that takes more looks than are left.
    pub(super) fn finish<'a>(
        self,
        reached: Reached<'a>,
        asker: &Asker,
        looks: &mut usize,
    ) -> Result<(Reached<'a>, Look), Refusal> {
        let (reached, looking) = self.go_through(reached, asker, looks)?;
        let look = looking.look(&reached)?;
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

    /// What came out.
    pub(super) fn look(&self, reached: &Reached<'_>) -> Result<Look, Refusal> {
        let line = self.counted.line().ok_or(Refusal::NotTracked)?;
        let is_denied = self.pieces.hides(reached.tracked.ledger().nodes.id(line.slot));
        Ok(Look { line, is_partial: self.pieces.is_partial(), is_denied })
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
        }
        Ok(self)
    }
}
