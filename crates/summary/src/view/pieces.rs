//! What one asker sees of a directory, counted a piece at a time: between two pieces others have their turn.
//!
//! Where very much is hidden, or is the asker's alone, each directory on the way to it is looked at. Each is counted as it is at its
//! moment, and only where it still lies in the one by which it was come to, and the asker still comes to that.

use std::collections::{BTreeSet, HashSet};

use super::{Line, MayList};
use crate::{
    identity::NodeId,
    ledger::Ledger,
    links::LinkKey,
    nodes::{Slot, SlotMap},
    record::Record,
    store::StoreError,
    totals::{Sums, Totals},
};

/// How a directory counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// It may not be listed: it alone, without its entries.
    Itself,
    /// Without the directories in it, which count for themselves.
    Alone,
    /// With all below, all of which may be seen.
    Whole,
}

/// What directories come to.
pub(crate) trait Counting {
    /// One more.
    fn directory(&mut self, ledger: &Ledger, slot: Slot, record: &Record, part: Part) -> Result<(), StoreError>;

    /// One of its own inodes with several names, of the directory that was asked for; only where [`Pieces`] is to tell them.
    fn own_link(&mut self, _: &Ledger, _: LinkKey) -> Result<(), StoreError> {
        Ok(())
    }

    /// An inode with several names, of which some may not be seen: where it was charged it has been counted.
    fn hidden_link(&mut self, ledger: &Ledger, key: LinkKey, is_seen: &dyn Fn(Slot) -> bool) -> Result<(), StoreError>;
}

/// How far it is.
#[derive(Debug)]
pub(crate) struct Pieces {
    top: NodeId,
    /// Directories to be looked at, and where each was.
    left: Vec<(NodeId, Option<NodeId>)>,
    hidden: HashSet<NodeId>,
    /// Those that may not be seen below which there may be names of inodes that have several.
    below: Vec<NodeId>,
    own_links: Option<BTreeSet<LinkKey>>,
    links: BTreeSet<LinkKey>,
}

impl Pieces {
    /// Of a directory; with its own inodes that have several names, or without.
    pub(crate) fn of(top: NodeId, with_own_links: bool) -> Pieces {
        let (left, own_links) = (vec![(top, None)], with_own_links.then(BTreeSet::new));
        Pieces { top, left, hidden: HashSet::new(), below: Vec::new(), own_links, links: BTreeSet::new() }
    }

    /// The directory that is counted.
    pub(crate) fn top(&self) -> NodeId {
        self.top
    }

    /// Something was left out.
    pub(crate) fn is_partial(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// The directories that may not be listed, in no order.
    pub(crate) fn hidden(&self) -> impl Iterator<Item = NodeId> {
        self.hidden.iter().copied()
    }

    /// A directory may not be listed.
    pub(crate) fn hides(&self, id: NodeId) -> bool {
        self.hidden.contains(&id)
    }

    /// The asker doesn't come to the directory any more: nothing else is looked at.
    pub(crate) fn close(&mut self) {
        self.hidden.insert(self.top);
        (self.left, self.below) = (Vec::new(), Vec::new());
        (self.own_links, self.links) = (None, BTreeSet::new());
    }

    /// Goes on for at most so many looks, which are taken off. Whether that was the last.
    pub(crate) fn go_on(
        &mut self,
        ledger: &Ledger,
        may_list: Option<MayList<'_>>,
        counting: &mut dyn Counting,
        looks: &mut usize,
    ) -> Result<bool, StoreError> {
        let nodes = &ledger.nodes;
        let mut take = || {
            let has_some = *looks > 0;
            *looks = looks.saturating_sub(1);
            has_some
        };
        // So many are left of those that were come to before others had their turn, and this is known by now of the ways to them.
        let (mut carried, mut ways) = (self.left.len(), SlotMap::default());
        while let Some(&(id, above)) = self.left.last() {
            if !take() {
                return Ok(false);
            }
            self.left.pop();
            let is_carried = self.left.len() < carried;
            carried = carried.min(self.left.len());
            if let (true, Some(above), Some(may_list)) = (is_carried, above, may_list)
                && !self.still_leads_to(ledger, above, may_list, &mut ways)?
            {
                continue;
            }
            let is_there = |slot: &Slot| {
                above.is_none_or(|above| nodes.parent(*slot).is_some_and(|parent| nodes.id(parent) == above))
            };
            if let Some(slot) = nodes.find(id).filter(is_there) {
                self.look(ledger, slot, may_list, counting)?;
            }
        }
        if let Some(own) = &mut self.own_links {
            while let Some(&key) = own.first() {
                if !take() {
                    return Ok(false);
                }
                own.pop_first();
                counting.own_link(ledger, key)?;
            }
        }
        while let Some(&id) = self.below.last() {
            if !take() {
                return Ok(false);
            }
            self.below.pop();
            let Some(slot) = nodes.find(id) else { continue };
            let record = ledger.record(slot)?;
            if record.subtree.sums.shared_names > 0 {
                self.links.extend(keys(ledger, slot, &record));
                self.below.extend(nodes.children(slot).map(|child| nodes.id(child)));
            }
        }
        let Some(top) = nodes.find(self.top) else { return Ok(true) };
        let is_hidden = |slot: Slot| {
            let way = nodes.upwards(slot).take_while(|&at| at != top);
            way.map(|at| nodes.id(at)).any(|id| self.hidden.contains(&id))
        };
        let is_seen = |slot: Slot| nodes.contains(top, slot) && !is_hidden(slot);
        while let Some(&key) = self.links.first() {
            if !take() {
                return Ok(false);
            }
            self.links.pop_first();
            counting.hidden_link(ledger, key, &is_seen)?;
        }
        Ok(true)
    }

    /// Whether the asker still comes to what is in a directory. What was closed on the way is hidden from now on.
    fn still_leads_to(
        &mut self,
        ledger: &Ledger,
        above: NodeId,
        may_list: MayList<'_>,
        known: &mut SlotMap<bool>,
    ) -> Result<bool, StoreError> {
        let nodes = &ledger.nodes;
        let (Some(above), Some(top)) = (nodes.find(above), nodes.find(self.top)) else { return Ok(false) };
        let (mut way, mut is_open) = (Vec::new(), false);
        for at in nodes.upwards(above) {
            if let Some(&is_known) = known.get(&at) {
                is_open = is_known;
                break;
            }
            way.push(at);
            is_open = at == top;
            if is_open {
                break;
            }
        }
        for at in way.into_iter().rev() {
            if is_open && !may_list(at, &ledger.record(at)?.access) {
                self.hidden.insert(nodes.id(at));
                is_open = false;
            }
            known.insert(at, is_open);
        }
        Ok(is_open)
    }

    fn look(
        &mut self,
        ledger: &Ledger,
        slot: Slot,
        may_list: Option<MayList<'_>>,
        counting: &mut dyn Counting,
    ) -> Result<(), StoreError> {
        let (nodes, record) = (&ledger.nodes, ledger.record(slot)?);
        let id = nodes.id(slot);
        let has_links = record.subtree.sums.shared_names > 0;
        if may_list.is_some_and(|may_list| !may_list(slot, &record.access)) {
            self.hidden.insert(id);
            if has_links && id != self.top {
                self.below.push(id);
            }
            return counting.directory(ledger, slot, &record, Part::Itself);
        }
        if let Some(own) = &mut self.own_links
            && id == self.top
        {
            own.extend(keys(ledger, slot, &record));
        }
        if may_list.is_none() || (record.subtree.sums.closed == 0 && !nodes.may_be_unsure(slot)) {
            return counting.directory(ledger, slot, &record, Part::Whole);
        }
        self.left.extend(nodes.children(slot).map(|child| (nodes.id(child), Some(id))));
        counting.directory(ledger, slot, &record, Part::Alone)
    }
}

fn keys<'a>(ledger: &Ledger, slot: Slot, record: &'a Record) -> impl Iterator<Item = LinkKey> + use<'a> {
    let subvolume = ledger.nodes.id(slot).subvolume;
    record.links.iter().map(move |&ino| LinkKey { subvolume, ino })
}

/// Totals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    has_begun: bool,
    totals: Totals,
    own: Sums,
}

impl Counted {
    /// Nothing yet.
    pub(crate) fn nothing() -> Counted {
        Counted { has_begun: false, totals: Totals::default(), own: Sums::default() }
    }

    /// The line that they come to, of the number that the directory has by now; `None` where it was gone before it was looked at.
    pub(crate) fn line(&self, slot: Slot) -> Option<Line> {
        let (totals, own) = (self.totals, self.own);
        self.has_begun.then_some(Line { slot, depth: 0, totals, own })
    }
}

impl Counting for Counted {
    fn directory(&mut self, _: &Ledger, _: Slot, record: &Record, part: Part) -> Result<(), StoreError> {
        let is_top = !std::mem::replace(&mut self.has_begun, true);
        let (sums, extremes, own) = match part {
            Part::Itself => (record.itself(), None, record.itself()),
            Part::Alone => (record.alone().sums, Some(record.own.extremes), record.own.sums),
            Part::Whole => (record.subtree.sums, Some(record.subtree.extremes), record.own.sums),
        };
        self.totals.sums += sums;
        self.totals.extremes = extremes.map_or(self.totals.extremes, |more| self.totals.extremes.or(more));
        if is_top {
            self.own = own;
        }
        Ok(())
    }

    fn own_link(&mut self, ledger: &Ledger, key: LinkKey) -> Result<(), StoreError> {
        if let Some(linked) = ledger.linked(key)? {
            self.own += linked.weight;
        }
        Ok(())
    }

    /// As the only line of an answer counts it.
    fn hidden_link(&mut self, ledger: &Ledger, key: LinkKey, is_seen: &dyn Fn(Slot) -> bool) -> Result<(), StoreError> {
        let Some(linked) = ledger.linked(key)? else { return Ok(()) };
        let charges = linked.charges.sums().filter(|(slot, _)| is_seen(*slot));
        charges.for_each(|(_, sums)| self.totals.sums -= sums);
        if linked.places.iter().any(|&place| is_seen(place)) {
            self.totals.sums += Sums { freed_blocks: 0, shared_names: 0, ..linked.weight };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        record::Access,
        view::{
            links::tests::{ledger, tree},
            view,
        },
    };

    /// Counts how much is counted.
    struct Watched(Counted, usize);

    impl Counting for Watched {
        fn directory(&mut self, ledger: &Ledger, slot: Slot, record: &Record, part: Part) -> Result<(), StoreError> {
            self.1 += 1;
            self.0.directory(ledger, slot, record, part)
        }

        fn own_link(&mut self, ledger: &Ledger, key: LinkKey) -> Result<(), StoreError> {
            self.1 += 1;
            self.0.own_link(ledger, key)
        }

        fn hidden_link(
            &mut self,
            ledger: &Ledger,
            key: LinkKey,
            is_seen: &dyn Fn(Slot) -> bool,
        ) -> Result<(), StoreError> {
            self.1 += 1;
            self.0.hidden_link(ledger, key, is_seen)
        }
    }

    /// The most looks of one piece, how many pieces there are, and all looks.
    fn counted(ledger: &Ledger, top: u32, may_list: MayList<'_>, each: usize) -> (Counted, Pieces, [usize; 3]) {
        let mut pieces = Pieces::of(ledger.nodes.id(Slot(top)), true);
        let (mut watched, mut most, mut count, mut all) = (Watched(Counted::nothing(), 0), 0, 0, 0);
        loop {
            let mut looks = each;
            let before = watched.1;
            let is_over = pieces.go_on(ledger, Some(may_list), &mut watched, &mut looks).unwrap();
            (most, count, all) = (most.max(watched.1 - before), count + 1, all + each - looks);
            if is_over {
                return (watched.0, pieces, [most, count, all]);
            }
        }
    }

    #[test]
    fn pieces_come_to_what_is_told_at_once() {
        let ledger = ledger(&tree());
        for (top, hidden, each) in
            (0..8).flat_map(|top| (0..8).flat_map(move |hidden| [(top, hidden, 1), (top, hidden, 7)]))
        {
            let may_list = |slot: Slot, _: &Access| slot != Slot(hidden);
            let (counted, pieces, [most, ..]) = counted(&ledger, top, &may_list, each);
            let expected = view(&ledger, Slot(top), 0, Some(&may_list)).unwrap();
            assert_eq!(counted.line(Slot(top)).as_ref(), expected.lines.last(), "{top} without {hidden}");
            let left_out: Vec<Slot> = pieces.hidden().filter_map(|id| ledger.nodes.find(id)).collect();
            assert_eq!((left_out, pieces.is_partial()), (expected.hidden, expected.is_partial));
            assert!(most <= each, "{most} looks of {each}");
        }
    }

    /// There are 109 directories; for the sake of links only what is hidden is looked at once more.
    #[test]
    fn only_links_that_are_hidden_are_looked_at() {
        let ledger = ledger(&tree());
        let looks = |hidden: &[u32]| {
            let may_list = |slot: Slot, _: &Access| !hidden.contains(&slot.0);
            counted(&ledger, 0, &may_list, 10).2[2]
        };
        assert_eq!(looks(&[]), 109);
        assert_eq!(looks(&[6]), 109 + 2, "6, and 73");
        assert_eq!(looks(&[3]), 109 - 2 + 3 + 3, "3, 4 and 5; 70, 72 and 74");
    }

    #[test]
    fn who_sees_all_looks_once() {
        let ledger = ledger(&tree());
        let (mut pieces, mut counted, mut looks) = (Pieces::of(ledger.nodes.id(Slot(0)), true), Counted::nothing(), 1);
        assert!(pieces.go_on(&ledger, None, &mut counted, &mut looks).unwrap());
        assert_eq!(counted.line(Slot(0)).as_ref(), view(&ledger, Slot(0), 0, None).unwrap().lines.last());
    }

    /// What isn't where it was is passed over.
    #[test]
    fn what_has_moved_between_pieces_counts_nowhere() {
        let mut ledger = ledger(&tree());
        let (may_list, mut looks) = (|_: Slot, _: &Access| true, 1);
        let (mut pieces, mut counted) = (Pieces::of(ledger.nodes.id(Slot(8)), false), Counted::nothing());
        assert!(!pieces.go_on(&ledger, Some(&may_list), &mut counted, &mut looks).unwrap());
        for slot in 9..19 {
            ledger.nodes.detach(Slot(slot));
            ledger.nodes.attach(Slot(slot), Slot(6));
        }
        looks = 1000;
        assert!(pieces.go_on(&ledger, Some(&may_list), &mut counted, &mut looks).unwrap());
        assert_eq!(counted.line(Slot(8)).map(|line| line.totals.sums.directories), Some(91));
    }
}
