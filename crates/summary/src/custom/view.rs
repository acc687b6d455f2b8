//! What one asker sees of a directory by a declared summary: of what `du`, run by that user, would come to.

use std::collections::{BTreeSet, HashSet};

use super::{
    declare::Declaration,
    parts::Part,
    tally::{Merge, Tally},
};
use crate::{
    ledger::Ledger,
    links::{LinkKey, path},
    nodes::Slot,
    store::StoreError,
    view::MayList,
};

/// Directories of which it isn't known what they add are named up to so many.
const UNKNOWN_NAMED_MAX: usize = 10;

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
    let Some(one) = ledger.declared().and_then(|declared| declared.all().get(summary)) else { return Ok(None) };
    let mut gathering = Gathering { ledger, summary, rule: one.rule, may_list, hidden: HashSet::new() };
    let record = ledger.record(top)?;
    let mut tally = gathering.gather(top)?;
    let hidden = gathering.hidden;
    let has_links = one.rule.merge == Merge::Sum && record.subtree.sums.shared_names > 0;
    if !hidden.is_empty() && has_links {
        count_links_once((ledger, top), summary, &mut tally, &hidden)?;
    }
    tally.bound(one.rule);
    let mut seen = Seen { is_partial: !hidden.is_empty(), ..Seen::default() };
    if tally.unknown > 0 {
        seen.unknown = unknown(ledger, top, summary, &hidden)?;
    }
    seen.tally = tally;
    Ok(Some(seen))
}

/// The same by all that are declared, for who doesn't ask where it is that something isn't known.
pub fn view_all(ledger: &Ledger, top: Slot, may_list: Option<MayList<'_>>) -> Result<Vec<Tally>, StoreError> {
    let Some(declared) = ledger.declared() else { return Ok(Vec::new()) };
    let is_open = match may_list {
        None => true,
        Some(may_list) => {
            let record = ledger.record(top)?;
            record.subtree.sums.closed == 0 && !ledger.nodes.may_be_unsure(top) && may_list(top, &record.access)
        }
    };
    if is_open {
        // As the totals are kept: one reading for all of them.
        let bounded = |(part, one): (Part, &Declaration)| {
            let mut tally = part.subtree;
            tally.bound(one.rule);
            tally
        };
        return Ok(ledger.parts(top)?.into_iter().zip(declared.all()).map(bounded).collect());
    }
    let seen = (0..declared.all().len()).map(|summary| view(ledger, top, summary, may_list));
    seen.map(|seen| Ok(seen?.unwrap_or_default().tally)).collect()
}

struct Gathering<'a> {
    ledger: &'a Ledger,
    summary: usize,
    rule: super::tally::Rule,
    may_list: Option<MayList<'a>>,
    hidden: HashSet<Slot>,
}

impl Gathering<'_> {
    fn part(&self, slot: Slot) -> Result<Part, StoreError> {
        Ok(self.ledger.parts(slot)?.swap_remove(self.summary))
    }

    /// Users make trees of any depth, so what is left is kept here, not on the stack.
    fn gather(&mut self, top: Slot) -> Result<Tally, StoreError> {
        let Some(may_list) = self.may_list else { return Ok(self.part(top)?.subtree) };
        let (mut seen, mut left) = (Tally::default(), vec![top]);
        while let Some(slot) = left.pop() {
            let (part, record) = (self.part(slot)?, self.ledger.record(slot)?);
            if !may_list(slot, &record.access) {
                self.hidden.insert(slot);
                seen.gather(&part.itself, self.rule);
            } else if record.subtree.sums.closed == 0 && !self.ledger.nodes.may_be_unsure(slot) {
                seen.gather(&part.subtree, self.rule);
            } else {
                seen.gather(&part.alone_loose(self.rule), self.rule);
                left.extend(self.ledger.nodes.children(slot));
            }
        }
        Ok(seen)
    }
}

/// Names that may not be seen count nowhere: what was added on the account of an inode goes, and comes where its first name is that
/// may be seen.
fn count_links_once(
    (ledger, top): (&Ledger, Slot),
    summary: usize,
    tally: &mut Tally,
    hidden: &HashSet<Slot>,
) -> Result<(), StoreError> {
    let nodes = &ledger.nodes;
    let is_hidden = |slot: Slot| nodes.upwards(slot).take_while(|&at| at != top).any(|at| hidden.contains(&at));
    let is_seen = |slot: Slot| nodes.contains(top, slot) && !hidden.contains(&top) && !is_hidden(slot);
    let mut keys = BTreeSet::new();
    for slot in nodes.subtree(top) {
        if nodes.has_links(slot) {
            let subvolume = nodes.id(slot).subvolume;
            keys.extend(ledger.record(slot)?.links.into_iter().map(|ino| LinkKey { subvolume, ino }));
        }
    }
    for key in keys {
        let Some(linked) = ledger.linked_parts(key)? else { continue };
        for (slot, tallies) in &linked.charges {
            if is_seen(*slot) {
                tally.charge(&tallies[summary], -1);
            }
        }
        let seen = linked.names.iter().filter(|(place, _)| is_seen(*place));
        // Of equals the first, as where they are charged.
        if let Some((_, tallies)) = seen.min_by_key(|(place, _)| path(nodes, *place)) {
            tally.charge(&tallies[summary], 1);
        }
    }
    Ok(())
}

fn unknown(ledger: &Ledger, top: Slot, summary: usize, hidden: &HashSet<Slot>) -> Result<Vec<Slot>, StoreError> {
    let (mut found, mut left) = (Vec::new(), vec![top]);
    while let Some(slot) = left.pop() {
        if hidden.contains(&slot) {
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
