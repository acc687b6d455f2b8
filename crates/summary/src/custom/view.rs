//! What one asker sees of a directory by a declared summary: of what `du`, run by that user, would come to.

use super::{
    parts::Part,
    tally::{Merge, Rule, Tally},
};
use crate::{
    ledger::Ledger,
    links::{LinkKey, path},
    nodes::Slot,
    record::Record,
    store::StoreError,
    view::{
        MayList,
        pieces::{Counting, Part as Counts, Pieces},
    },
};

/// Directories of which it isn't known what they add are named up to so many.
const UNKNOWN_NAMED_MAX: usize = 10;
/// And looked for among so many.
const UNKNOWN_LOOKS_MAX: usize = 20_000;

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// By key.
    pub tally: Tally,
    /// Something was left out that the asker may not see.
    pub is_partial: bool,
    /// Directories of which it isn't known what they add, some of them.
    pub unknown: Vec<Slot>,
}

/// A directory by the summary that stands at `summary` among those declared. Without `may_list` all may be seen. `None` when there is
/// none.
pub fn view(
    ledger: &Ledger,
    top: Slot,
    summary: usize,
    may_list: Option<MayList<'_>>,
) -> Result<Option<Seen>, StoreError> {
    let Some(mut tallies) = Tallies::of_one(ledger, summary) else { return Ok(None) };
    let (mut pieces, mut looks) = (Pieces::of(ledger.nodes.id(top), false), usize::MAX);
    pieces.go_on(ledger, may_list, &mut tallies, &mut looks)?;
    tallies.seen(ledger, top, &pieces).map(Some)
}

/// What directories come to by one summary, or by all.
#[derive(Debug)]
pub(crate) struct Tallies {
    /// Where each stands among those that are declared, and its rule.
    wanted: Vec<(usize, Rule)>,
    all: Vec<Tally>,
}

impl Tallies {
    /// By the one that stands there; `None` when there is none.
    pub(crate) fn of_one(ledger: &Ledger, summary: usize) -> Option<Tallies> {
        let one = ledger.declared()?.all().get(summary)?;
        Some(Tallies { wanted: vec![(summary, one.rule)], all: vec![Tally::default()] })
    }

    /// By all that are declared.
    pub(crate) fn of_all(ledger: &Ledger) -> Tallies {
        let rules = ledger.declared().map(|declared| declared.all().iter().map(|one| one.rule).collect::<Vec<_>>());
        let wanted: Vec<(usize, Rule)> = rules.unwrap_or_default().into_iter().enumerate().collect();
        Tallies { all: vec![Tally::default(); wanted.len()], wanted }
    }

    /// What they come to.
    pub(crate) fn bounded(self) -> Vec<Tally> {
        let bound = |(mut tally, (_, rule)): (Tally, (usize, Rule))| {
            tally.bound(rule);
            tally
        };
        self.all.into_iter().zip(self.wanted).map(bound).collect()
    }

    /// What the only one comes to.
    pub(crate) fn seen(self, ledger: &Ledger, top: Slot, pieces: &Pieces) -> Result<Seen, StoreError> {
        let summary = self.wanted.first().map_or(0, |&(summary, _)| summary);
        let tally = self.bounded().pop().unwrap_or_default();
        let unknown = if tally.unknown > 0 { unknown(ledger, top, summary, pieces)? } else { Vec::new() };
        Ok(Seen { tally, is_partial: pieces.is_partial(), unknown })
    }
}

impl Counting for Tallies {
    fn directory(&mut self, ledger: &Ledger, slot: Slot, _: &Record, how: Counts) -> Result<(), StoreError> {
        let parts = ledger.parts(slot)?;
        for (tally, &(summary, rule)) in self.all.iter_mut().zip(&self.wanted) {
            let part: &Part = &parts[summary];
            match how {
                Counts::Itself => tally.gather(&part.itself, rule),
                Counts::Alone => tally.gather(&part.alone_loose(rule), rule),
                Counts::Whole => tally.gather(&part.subtree, rule),
            }
        }
        Ok(())
    }

    /// Names that may not be seen count nowhere: what was added on the account of an inode goes, and comes where its first name is that
    /// may be seen.
    fn hidden_link(&mut self, ledger: &Ledger, key: LinkKey, is_seen: &dyn Fn(Slot) -> bool) -> Result<(), StoreError> {
        let Some(linked) = ledger.linked_parts(key)? else { return Ok(()) };
        let seen = linked.names.iter().filter(|(place, _)| is_seen(*place));
        // Of equals the first, as where they are charged.
        let first = seen.min_by_key(|(place, _)| path(&ledger.nodes, *place));
        for (tally, &(summary, rule)) in self.all.iter_mut().zip(&self.wanted) {
            if rule.merge != Merge::Sum {
                continue;
            }
            for (_, tallies) in linked.charges.iter().filter(|(slot, _)| is_seen(*slot)) {
                tally.charge(&tallies[summary], -1);
            }
            if let Some((_, tallies)) = first {
                tally.charge(&tallies[summary], 1);
            }
        }
        Ok(())
    }
}

fn unknown(ledger: &Ledger, top: Slot, summary: usize, pieces: &Pieces) -> Result<Vec<Slot>, StoreError> {
    let (mut found, mut left, mut looks) = (Vec::new(), vec![top], 0);
    while let Some(slot) = left.pop() {
        looks += 1;
        if looks > UNKNOWN_LOOKS_MAX {
            break;
        }
        if pieces.hides(ledger.nodes.id(slot)) {
            continue;
        }
        let part = ledger.parts(slot)?.swap_remove(summary);
        if part.own.unknown > 0 {
            found.push(slot);
        }
        if found.len() == UNKNOWN_NAMED_MAX {
            break;
        }
        if part.subtree.unknown > part.own.unknown {
            left.extend(ledger.nodes.children(slot));
        }
    }
    Ok(found)
}
