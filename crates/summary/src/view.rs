//! What one asker sees of a directory: the lines that GNU du, run by that user, would print.
//!
//! Only directories of which a line is wanted are descended into, and those that hold one that is not open to all; what lies
//! below all others is taken whole from the store.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use crate::{
    ledger::Ledger,
    links::LinkKey,
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
}

/// The lines of `top` and of the directories at most `depth` below it, as they are stored. Without `may_list` all may be seen.
pub fn view(ledger: &Ledger, top: Slot, depth: u32, may_list: Option<MayList<'_>>) -> Result<View, StoreError> {
    let mut gathering = Gathering { ledger, may_list, lines: Vec::new(), hidden: Vec::new() };
    let record = ledger.record(top)?;
    gathering.gather(top, &record, 0, depth)?;
    let Gathering { mut lines, hidden, .. } = gathering;
    let is_partial = !hidden.is_empty();
    if record.subtree.sums.shared_names > 0 {
        match lines.as_mut_slice() {
            // As the store counts them: once, for the directory that is asked for.
            [line] if !is_partial => line.own = own_with_links(ledger, top, &record)?,
            lines => count_links_once(ledger, top, lines, &hidden)?,
        }
    }
    Ok(View { lines, is_partial })
}

/// A directory without those in it, each inode that it names once.
fn own_with_links(ledger: &Ledger, slot: Slot, record: &Record) -> Result<Sums, StoreError> {
    let subvolume = ledger.nodes.id(slot).subvolume;
    let mut own = record.own.sums;
    for &ino in &record.links.iter().copied().collect::<BTreeSet<u64>>() {
        if let Some(linked) = ledger.linked(LinkKey { subvolume, ino })? {
            own += linked.weight;
        }
    }
    Ok(own)
}

struct Gathering<'a> {
    ledger: &'a Ledger,
    may_list: Option<MayList<'a>>,
    lines: Vec<Line>,
    hidden: Vec<Slot>,
}

impl Gathering<'_> {
    fn gather(&mut self, slot: Slot, record: &Record, depth: u32, left: u32) -> Result<Totals, StoreError> {
        let mut line = Line { slot, depth, totals: record.subtree, own: record.alone().sums };
        if self.may_list.is_some_and(|may_list| !may_list(slot, &record.access)) {
            self.hidden.push(slot);
            line.totals = Totals { sums: record.itself(), extremes: Extremes::default() };
            line.own = record.itself();
        } else if left > 0 || self.hides(record) {
            let mut children: Vec<(Slot, Record)> = Vec::new();
            for child in self.ledger.nodes.children(slot) {
                children.push((child, self.ledger.record(child)?));
            }
            if left > 0 {
                children.sort_by(|one, other| one.1.name.cmp(&other.1.name));
            }
            line.totals.extremes = record.own.extremes;
            for (child, record) in children {
                let mut seen = record.subtree;
                if left > 0 || self.hides(&record) {
                    seen = match left.checked_sub(1) {
                        Some(left) => self.gather(child, &record, depth + 1, left)?,
                        None => self.without_lines(child, &record)?,
                    };
                    line.totals.sums -= record.subtree.sums;
                    line.totals.sums += seen.sums;
                }
                line.totals.extremes = line.totals.extremes.or(seen.extremes);
            }
        }
        let totals = line.totals;
        self.lines.push(line);
        Ok(totals)
    }

    /// Whether something below may not be seen.
    fn hides(&self, record: &Record) -> bool {
        self.may_list.is_some() && record.subtree.sums.closed > 0
    }

    fn without_lines(&mut self, slot: Slot, record: &Record) -> Result<Totals, StoreError> {
        let before = self.lines.len();
        let totals = self.gather(slot, record, 0, 0)?;
        self.lines.truncate(before);
        Ok(totals)
    }
}

/// The store counts an inode with several names once in each directory that is asked for. Lines count it once in all, where its
/// first name is; and names that may not be seen count nowhere.
fn count_links_once(ledger: &Ledger, top: Slot, lines: &mut [Line], hidden: &[Slot]) -> Result<(), StoreError> {
    let nodes = &ledger.nodes;
    let hidden: HashSet<Slot> = hidden.iter().copied().collect();
    let is_hidden = |slot: Slot| nodes.upwards(slot).take_while(|&at| at != top).any(|at| hidden.contains(&at));
    let by_slot: HashMap<Slot, usize> = lines.iter().enumerate().map(|(at, line)| (line.slot, at)).collect();
    let mut keys = BTreeSet::new();
    for slot in nodes.subtree(top) {
        if nodes.has_links(slot) {
            let subvolume = nodes.id(slot).subvolume;
            keys.extend(ledger.record(slot)?.links.into_iter().map(|ino| LinkKey { subvolume, ino }));
        }
    }
    let mut orders = Orders { ledger, top, known: HashMap::new() };
    for key in keys {
        let Some(linked) = ledger.linked(key)? else { continue };
        let mut change: BTreeMap<usize, Sums> = BTreeMap::new();
        let mut add = |slot: Slot, sums: Sums| {
            for at in nodes.upwards(slot) {
                if let Some(&line) = by_slot.get(&at) {
                    *change.entry(line).or_default() += sums;
                }
                if at == top {
                    break;
                }
            }
        };
        // What was added on its account goes, and comes where it counts.
        for &(slot, sums) in &linked.charges {
            if nodes.contains(top, slot) && !is_hidden(slot) {
                add(slot, -Sums { freed_blocks: 0, ..sums });
                if let Some(&line) = by_slot.get(&slot) {
                    lines[line].own -= Sums { freed_blocks: 0, ..sums };
                }
            }
        }
        let mut first: Option<(Order, Slot)> = None;
        for &place in &linked.places {
            if nodes.contains(top, place) && !is_hidden(place) {
                let order = orders.of(place)?;
                if first.as_ref().is_none_or(|(before, _)| order < *before) {
                    first = Some((order, place));
                }
            }
        }
        if let Some((_, place)) = first {
            let one = Sums { freed_blocks: 0, shared_names: 0, ..linked.weight };
            add(place, one);
            if let Some(&line) = by_slot.get(&place) {
                lines[line].own += one;
            }
        }
        for (line, sums) in change {
            lines[line].totals.sums += sums;
        }
    }
    Ok(())
}

/// The place of a directory among the lines: its names from the top down, then an end that comes after all names, since each
/// directory comes after those in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Into(Vec<u8>),
    End,
}

type Order = Vec<Step>;

struct Orders<'a> {
    ledger: &'a Ledger,
    top: Slot,
    known: HashMap<Slot, Vec<Vec<u8>>>,
}

impl Orders<'_> {
    fn of(&mut self, slot: Slot) -> Result<Order, StoreError> {
        let names = self.names(slot)?;
        Ok(names.into_iter().map(Step::Into).chain([Step::End]).collect())
    }

    fn names(&mut self, slot: Slot) -> Result<Vec<Vec<u8>>, StoreError> {
        if slot == self.top {
            return Ok(Vec::new());
        }
        if let Some(known) = self.known.get(&slot) {
            return Ok(known.clone());
        }
        let record = self.ledger.record(slot)?;
        let mut names = match record.parent {
            Some(parent) => self.names(parent)?,
            None => Vec::new(),
        };
        names.push(record.name);
        self.known.insert(slot, names.clone());
        Ok(names)
    }
}
