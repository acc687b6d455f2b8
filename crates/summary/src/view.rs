//! What one asker sees of a directory: the lines that GNU du, run by that user, would print.
//!
//! Only directories of which a line is wanted are descended into, and those that hold one that is not open to all; what lies
//! below all others is taken whole from the store.

mod links;
pub(crate) mod pieces;

use std::collections::HashSet;

use self::links::{count_links_in_sight, count_links_once, own_with_links};
use crate::{
    ledger::Ledger,
    nodes::Slot,
    record::{Access, Record},
    store::StoreError,
    totals::{Extremes, Sums, Totals},
};

/// Whether the asker may list a directory.
pub type MayList<'a> = &'a dyn Fn(Slot, &Access) -> bool;

/// One directory of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The directory.
    pub slot: Slot,
    /// How far below the one that was asked for.
    pub depth: u32,
    /// All that is in it, and may be seen. An inode with several names counts where its first name is, by the order of the lines.
    pub totals: Totals,
    /// The same without the directories in it.
    pub own: Sums,
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Each directory after those in it, these in the order of their names; the one that was asked for comes last.
    pub lines: Vec<Line>,
    /// Something was left out that the asker may not see.
    pub is_partial: bool,
    /// The directories that the asker may not list, in no order.
    pub hidden: Vec<Slot>,
    /// Blocks are told of an inode that has other names outside, or where they may not be seen.
    pub leads_out: bool,
}

/// How much is looked at for one answer, all of which is held while nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Most {
    /// Lines.
    pub lines: usize,
    /// Directories that are looked at for the sake of those below that may not be seen.
    pub looks: usize,
    /// Inodes with several names that are looked at where there are several lines. Those that have no name that may be seen aren't bounded.
    pub links: usize,
}

impl Most {
    /// Whatever it takes.
    pub const ANY: Most = Most { lines: usize::MAX, looks: usize::MAX, links: usize::MAX };
}

/// The lines of `top` and of the directories at most `depth` below it, as they are stored. Without `may_list` all may be seen.
pub fn view(ledger: &Ledger, top: Slot, depth: u32, may_list: Option<MayList<'_>>) -> Result<View, StoreError> {
    let seen = view_of_most(ledger, top, depth, may_list, (Most::ANY, false))?;
    Ok(seen.unwrap_or_default())
}

/// The same; `None` where that takes more. What may not be seen has no part in that. With `one_subvolume` without others, which have
/// device numbers of their own: where there are several in all, that looks at each directory below `top` in memory.
pub fn view_of_most(
    ledger: &Ledger,
    top: Slot,
    depth: u32,
    may_list: Option<MayList<'_>>,
    (most, one_subvolume): (Most, bool),
) -> Result<Option<View>, StoreError> {
    let nodes = &ledger.nodes;
    let mut others = HashSet::new();
    if one_subvolume && nodes.subvolumes().len() > 1 {
        let subvolume = nodes.id(top).subvolume;
        let mut left = vec![top];
        while let Some(at) = left.pop() {
            let (ours, its): (Vec<Slot>, Vec<Slot>) =
                nodes.children(at).partition(|&child| nodes.id(child).subvolume == subvolume);
            left.extend(ours);
            others.extend(its);
        }
    }
    view_without(ledger, (top, depth), may_list, others, most)
}

/// The same as if `outside` weren't there: directories between which and others there are no hard links.
fn view_without(
    ledger: &Ledger,
    (top, depth): (Slot, u32),
    may_list: Option<MayList<'_>>,
    outside: HashSet<Slot>,
    most: Most,
) -> Result<Option<View>, StoreError> {
    let mut above = HashSet::new();
    for &slot in &outside {
        // Up to what is known to lead to one; nothing above `top` is looked at.
        let _ = ledger.nodes.upwards(slot).skip(1).find(|&at| !above.insert(at) || at == top);
    }
    let (lines, hidden, hide_links) = (Vec::new(), Vec::new(), Vec::new());
    let mut gathering = Gathering { ledger, may_list, outside, above, lines, hidden, hide_links, left: most };
    let record = ledger.record(top)?;
    if gathering.gather(top, &record, depth)?.is_none() {
        return Ok(None);
    }
    let Gathering { mut lines, mut hidden, hide_links, outside, .. } = gathering;
    let is_partial = !hidden.is_empty();
    let may_not_be_listed = hidden.clone();
    hidden.extend(outside);
    if record.subtree.sums.shared_names > 0 {
        match lines.as_mut_slice() {
            _ if may_not_be_listed.contains(&top) => {}
            // As the store counts them: once, for the directory that is asked for; but for those of which names are hidden.
            [line] => {
                line.own = own_with_links(ledger, top, &record)?;
                count_links_in_sight(ledger, line, &hidden, hide_links)?;
            }
            lines => {
                if !count_links_once(ledger, top, (lines, most.links), &hidden)? {
                    return Ok(None);
                }
            }
        }
    }
    let leads_out = lines.last().is_some_and(|line| line.totals.sums.freed_blocks < line.totals.sums.blocks);
    Ok(Some(View { lines, is_partial, hidden: may_not_be_listed, leads_out }))
}

struct Gathering<'a> {
    ledger: &'a Ledger,
    may_list: Option<MayList<'a>>,
    /// Directories that are left out as if they weren't there, and those that lead to them.
    outside: HashSet<Slot>,
    above: HashSet<Slot>,
    lines: Vec<Line>,
    hidden: Vec<Slot>,
    /// Those of them below which there are names of inodes that have several.
    hide_links: Vec<Slot>,
    /// What may still be looked at.
    left: Most,
}

impl<'a> Gathering<'a> {
    /// All lines; `None` where there are too many. Users make trees of any depth, so each directory on the way is kept here, not on
    /// the stack.
    fn gather(&mut self, top: Slot, record: &Record, depth: u32) -> Result<Option<()>, StoreError> {
        let Some(entered) = self.enter(top, record, Some((0, depth)))? else { return Ok(None) };
        let mut way = vec![entered];
        while let Some(at) = way.last_mut() {
            if let Some(child) = at.children.next(self.ledger) {
                let (child, record) = child?;
                if self.outside.contains(&child) {
                    at.line.totals.sums -= record.subtree.sums;
                    continue;
                }
                let wanted = at.wanted.and_then(|(depth, left)| Some((depth + 1, left.checked_sub(1)?)));
                let may_be_elsewhere = self.may_list.is_some() && self.ledger.nodes.may_be_elsewhere(child);
                if wanted.is_some() || may_be_elsewhere || self.hides(child, &record) {
                    let Some(entered) = self.enter(child, &record, wanted)? else { return Ok(None) };
                    way.push(entered);
                } else {
                    at.line.totals.extremes = at.line.totals.extremes.or(record.subtree.extremes);
                }
                continue;
            }
            let Some(Entered { line, wanted, stored, .. }) = way.pop() else { break };
            if let Some(above) = way.last_mut() {
                let totals = &mut above.line.totals;
                totals.sums -= stored;
                totals.sums += line.totals.sums;
                totals.extremes = totals.extremes.or(line.totals.extremes);
            }
            if wanted.is_some() {
                self.lines.push(line);
            }
        }
        Ok(Some(()))
    }

    fn enter(
        &mut self,
        slot: Slot,
        record: &Record,
        wanted: Option<(u32, u32)>,
    ) -> Result<Option<Entered<'a>>, StoreError> {
        let (depth, left) = wanted.unwrap_or_default();
        let mut line = Line { slot, depth, totals: record.subtree, own: record.alone().sums };
        let mut children = Children::Named(Vec::new().into_iter());
        if self.may_list.is_some_and(|may_list| !may_list(slot, &record.access)) {
            self.hidden.push(slot);
            if record.subtree.sums.shared_names > 0 {
                self.hide_links.push(slot);
            }
            line.totals = Totals { sums: record.itself(), extremes: Extremes::default() };
            line.own = record.itself();
        } else if left > 0 || self.hides(slot, record) {
            let ledger = self.ledger;
            let may_be = if left > 0 { &mut self.left.lines } else { &mut self.left.looks };
            let count = ledger.nodes.children(slot).take(may_be.saturating_add(1)).count();
            let Some(rest) = may_be.checked_sub(count) else { return Ok(None) };
            *may_be = rest;
            children = if left > 0 {
                let named = ledger.nodes.children(slot).map(|child| Ok((child, ledger.record(child)?)));
                let mut named = named.collect::<Result<Vec<_>, StoreError>>()?;
                named.sort_by(|one, other| one.1.name.cmp(&other.1.name));
                Children::Named(named.into_iter())
            } else {
                Children::AsTheyCome(Box::new(ledger.nodes.children(slot)))
            };
            line.totals.extremes = record.own.extremes;
        }
        Ok(Some(Entered { line, wanted, stored: record.subtree.sums, children }))
    }

    /// Whether something below may not be seen, or is left out.
    fn hides(&self, slot: Slot, record: &Record) -> bool {
        let may_be_closed = record.subtree.sums.closed > 0 || self.ledger.nodes.may_be_unsure(slot);
        self.may_list.is_some() && may_be_closed || self.above.contains(&slot)
    }
}

/// A directory on the way down.
struct Entered<'a> {
    line: Line,
    /// How far below the topmost it is, and how far further down lines are wanted; `None` when none is wanted of it.
    wanted: Option<(u32, u32)>,
    /// What the store says.
    stored: Sums,
    /// Those in it that aren't done.
    children: Children<'a>,
}

/// Some of the directories in one.
enum Children<'a> {
    /// In the order of their names, for lines.
    Named(std::vec::IntoIter<(Slot, Record)>),
    /// One may have a million in it of which no line is wanted: their records are read one by one.
    AsTheyCome(Box<dyn Iterator<Item = Slot> + 'a>),
}

impl Children<'_> {
    fn next(&mut self, ledger: &Ledger) -> Option<Result<(Slot, Record), StoreError>> {
        match self {
            Children::Named(named) => named.next().map(Ok),
            Children::AsTheyCome(slots) => slots.next().map(|slot| Ok((slot, ledger.record(slot)?))),
        }
    }
}
