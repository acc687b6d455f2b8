//! What somebody may see who doesn't see all: neither what an answer counts nor what it says of itself depends on the rest.

use std::fmt::Debug;

use super::{Summaries, SummaryError};
use crate::{
    access::Asker,
    identity::NodeId,
    nodes::Slot,
    reading::Directories,
    record::{Access, Record},
    sight::is_shown,
    tracker::Tracker,
};

/// Who asks, and doesn't see all.
pub trait Viewer: Debug {
    /// Whether a directory can be listed and its entries looked at.
    fn may_list(&self, id: NodeId, access: &Access) -> bool;

    /// Who may look into a directory now; `None` where that can't be told.
    fn access_now(&self, id: NodeId) -> Option<Access>;

    /// The directory that one is in now; `None` where that can't be told.
    fn parent_now(&self, id: NodeId) -> Option<NodeId>;

    /// Whether a directory that can't be listed is itself still as it is stored: its size, its blocks, and who may look into it.
    fn is_as_stored(&self, id: NodeId, record: &Record) -> bool;

    /// The same for a harvest that goes on when who asks has gone.
    fn staying(&self) -> Staying;
}

/// Who asks, as a harvest needs it that goes on by itself: it reads what that one sees, and no more.
#[derive(Debug)]
pub struct Staying {
    /// Those of whom this is the same see the same, and share a harvest.
    pub asker: Asker,
    /// What that one sees.
    pub viewer: Box<dyn Viewer + Send>,
}

impl Staying {
    pub(crate) fn seen(&self) -> Seen<'_> {
        Some(&*self.viewer)
    }
}

/// Who sees all is none.
pub type Seen<'a> = Option<&'a dyn Viewer>;

impl<D: Directories, T: Tracker> Summaries<D, T> {
    /// Whether what is in a directory is shown to who asks for `top`. One that was never read hides nothing yet.
    fn shows(&self, top: Slot, slot: Slot, seen: Seen<'_>) -> Result<bool, SummaryError> {
        let Some(viewer) = seen else { return Ok(true) };
        let record = self.ledger.record(slot)?;
        Ok(record.harvested == 0 || is_shown(&self.ledger.nodes, (top, slot), &record.access, viewer))
    }

    /// Whether what is in a directory below `top` is shown to who asks for that: neither it nor any on the way hides it.
    pub(super) fn shows_below(&self, top: Slot, slot: Slot, seen: Seen<'_>) -> Result<bool, SummaryError> {
        if seen.is_none() {
            return Ok(self.ledger.nodes.contains(top, slot));
        }
        for at in self.ledger.nodes.upwards(slot) {
            if !self.shows(top, at, seen)? {
                return Ok(false);
            }
            if at == top {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The dirty directories, it and those below, that have to be read for an answer. Those below hidden ones don't change it, and
    /// a hidden one does by its own size alone.
    pub(super) fn dirty_for(&mut self, slot: Slot, seen: Seen<'_>) -> Result<Vec<Slot>, SummaryError> {
        if seen.is_none() {
            return Ok(self.ledger.nodes.dirty_below(slot));
        }
        let mut dirty = Vec::new();
        self.each_dirty(slot, seen, true, &mut |slot| dirty.push(slot))?;
        Ok(dirty)
    }

    /// How many of these there are.
    pub fn left_below(&self, directory: NodeId, seen: Seen<'_>) -> Result<usize, SummaryError> {
        let Some(slot) = self.ledger.nodes.find(directory) else { return Ok(0) };
        if seen.is_none() {
            return Ok(self.ledger.nodes.count_dirty_below(slot));
        }
        let mut count = 0;
        self.each_dirty(slot, seen, true, &mut |_| count += 1)?;
        Ok(count)
    }

    /// Without `looks` hidden ones are taken for what is stored.
    pub(super) fn each_dirty(
        &self,
        slot: Slot,
        seen: Seen<'_>,
        looks: bool,
        each: &mut dyn FnMut(Slot),
    ) -> Result<(), SummaryError> {
        let nodes = &self.ledger.nodes;
        let mut left = vec![slot];
        while let Some(at) = left.pop() {
            if !nodes.may_be_outdated(at) {
                continue;
            }
            if let Some(viewer) = seen
                && looks
                && nodes.is_dirty(at)
                && nodes.is_unsure(at)
            {
                // It is read in any case, and then it is known: a look at each would take as long as reading, and nobody could be let in
                // between.
                each(at);
                let record = self.ledger.record(at)?;
                if record.harvested == 0 || viewer.may_list(nodes.id(at), &record.access) {
                    left.extend(nodes.children(at));
                }
                continue;
            }
            if self.shows(slot, at, seen)? {
                if nodes.is_dirty(at) {
                    each(at);
                }
                left.extend(nodes.children(at));
            } else if looks && nodes.is_dirty(at) {
                let record = self.ledger.record(at)?;
                if seen.is_some_and(|viewer| !viewer.is_as_stored(nodes.id(at), &record)) {
                    each(at);
                }
            }
        }
        Ok(())
    }

    /// Whether something is hidden at or below a directory that was stored.
    pub fn hides_below(&self, slot: Slot, seen: Seen<'_>) -> Result<bool, SummaryError> {
        if seen.is_none() {
            return Ok(false);
        }
        let nodes = &self.ledger.nodes;
        let mut left = vec![slot];
        while let Some(at) = left.pop() {
            let is_sure = !nodes.may_be_unsure(at) && !nodes.may_be_elsewhere(at);
            if is_sure && self.ledger.record(at)?.subtree.sums.closed == 0 {
                continue;
            }
            if !self.shows(slot, at, seen)? {
                return Ok(true);
            }
            left.extend(nodes.children(at));
        }
        Ok(false)
    }

    /// Directories at and below `slot` that could not be read as a whole, among those that are shown.
    pub(crate) fn unreadable_for(&self, slot: Slot, seen: Seen<'_>) -> Result<Vec<Slot>, SummaryError> {
        let mut unreadable = Vec::new();
        for (at, _) in self.unreadable(slot) {
            if self.shows_below(slot, at, seen)? {
                unreadable.push(at);
            }
        }
        Ok(unreadable)
    }
}
