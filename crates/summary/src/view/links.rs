//! What inodes with several names add to lines.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::Line;
use crate::{
    ledger::Ledger, links::LinkKey, nodes::Slot, reading::EntryName, record::Record, store::StoreError, totals::Sums,
};

/// A directory without those in it, each inode that it names once.
pub(super) fn own_with_links(ledger: &Ledger, slot: Slot, record: &Record) -> Result<Sums, StoreError> {
    let subvolume = ledger.nodes.id(slot).subvolume;
    let mut own = record.own.sums;
    for &ino in &record.links.iter().copied().collect::<BTreeSet<u64>>() {
        if let Some(linked) = ledger.linked(LinkKey { subvolume, ino })? {
            own += linked.weight;
        }
    }
    Ok(own)
}

/// Whether a directory is one of `hidden`, or lies in one.
fn lies_in(ledger: &Ledger, slot: Slot, hidden: &HashSet<Slot>) -> bool {
    ledger.nodes.upwards(slot).any(|at| hidden.contains(&at))
}

/// The inodes with several names that directories and those below them name, but for what lies in some; how many directories were
/// looked at for that: none below which there are no such names. `None` where there are more than so many inodes.
fn links_below(
    ledger: &Ledger,
    mut left: Vec<Slot>,
    (without, most): (&HashSet<Slot>, usize),
    found: &mut BTreeSet<LinkKey>,
) -> Result<Option<usize>, StoreError> {
    let mut looked_at = 0;
    while let Some(at) = left.pop() {
        if without.contains(&at) {
            continue;
        }
        let record = ledger.record(at)?;
        looked_at += 1;
        if record.subtree.sums.shared_names > 0 {
            let subvolume = ledger.nodes.id(at).subvolume;
            found.extend(record.links.into_iter().map(|ino| LinkKey { subvolume, ino }));
            if found.len() > most {
                return Ok(None);
            }
            left.extend(ledger.nodes.children(at));
        }
    }
    Ok(Some(looked_at))
}

/// The only line has each inode of which a name is seen once, and of all others it is as the store says: only those have to be
/// looked at of which a name is hidden.
pub(super) fn count_links_in_sight(
    ledger: &Ledger,
    line: &mut Line,
    hidden: &[Slot],
    hide_links: Vec<Slot>,
) -> Result<(), StoreError> {
    let (nodes, top) = (&ledger.nodes, line.slot);
    let mut keys = BTreeSet::new();
    links_below(ledger, hide_links, (&HashSet::new(), usize::MAX), &mut keys)?;
    let hidden: HashSet<Slot> = hidden.iter().copied().collect();
    let is_seen = |slot: Slot| nodes.contains(top, slot) && !lies_in(ledger, slot, &hidden);
    for key in keys {
        let Some(linked) = ledger.linked(key)? else { continue };
        let charges = linked.charges.sums().filter(|(slot, _)| is_seen(*slot));
        charges.for_each(|(_, sums)| line.totals.sums -= sums);
        if linked.places.iter().any(|&place| is_seen(place)) {
            line.totals.sums += Sums { freed_blocks: 0, shared_names: 0, ..linked.weight };
        }
    }
    Ok(())
}

/// The store counts an inode with several names once in each directory that is asked for. Lines count it once in all, where its
/// first name is; and names that may not be seen count nowhere. False, and nothing is counted, where more than `most` of them have
/// names that may be seen.
pub(super) fn count_links_once(
    ledger: &Ledger,
    top: Slot,
    (lines, most): (&mut [Line], usize),
    hidden: &[Slot],
) -> Result<bool, StoreError> {
    let nodes = &ledger.nodes;
    let hidden: HashSet<Slot> = hidden.iter().copied().collect();
    let is_hidden = |slot: Slot| lies_in(ledger, slot, &hidden);
    let by_slot: HashMap<Slot, usize> = lines.iter().enumerate().map(|(at, line)| (line.slot, at)).collect();
    let mut keys = BTreeSet::new();
    let Some(_) = links_below(ledger, vec![top], (&hidden, most), &mut keys)? else { return Ok(false) };
    // What was charged to a directory that may be seen may be of these alone.
    links_below(ledger, hidden.iter().copied().collect(), (&HashSet::new(), usize::MAX), &mut keys)?;
    let mut orders = Orders { ledger, top, names: HashMap::new() };
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
        // Where a name is hidden, what is seen isn't all of it.
        let is_cut = linked.places.iter().any(|&place| is_hidden(place));
        let freed = |sums: Sums| if is_cut { sums.freed_blocks } else { 0 };
        // What was added on its account goes, and comes where it counts.
        for (slot, sums) in linked.charges.sums() {
            if nodes.contains(top, slot) && !is_hidden(slot) {
                add(slot, -Sums { freed_blocks: freed(sums), ..sums });
                if let Some(&line) = by_slot.get(&slot) {
                    lines[line].own -= Sums { freed_blocks: 0, ..sums };
                }
            }
        }
        let mut first: Option<Slot> = None;
        for &place in &linked.places {
            if nodes.contains(top, place) && !is_hidden(place) {
                first = match first {
                    Some(before) if !orders.is_before(place, before)? => Some(before),
                    _ => Some(place),
                };
            }
        }
        if let Some(place) = first {
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
    Ok(true)
}

/// Which of two directories comes first among the lines, by their names from the top down. Each comes after those in it.
struct Orders<'a> {
    ledger: &'a Ledger,
    top: Slot,
    names: HashMap<Slot, EntryName>,
}

impl Orders<'_> {
    fn is_before(&mut self, one: Slot, other: Slot) -> Result<bool, StoreError> {
        let way = |slot| -> Vec<Slot> { self.ledger.nodes.upwards(slot).take_while(|&at| at != self.top).collect() };
        let (one, other) = (way(one), way(other));
        let same = one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count();
        match (one.iter().rev().nth(same), other.iter().rev().nth(same)) {
            (Some(&one), Some(&other)) => Ok(self.name(one)? < self.name(other)?),
            (deeper, _) => Ok(deeper.is_some()),
        }
    }

    fn name(&mut self, slot: Slot) -> Result<EntryName, StoreError> {
        if let Some(name) = self.names.get(&slot) {
            return Ok(name.clone());
        }
        let name = self.ledger.record(slot)?.name;
        self.names.insert(slot, name.clone());
        Ok(name)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{
        identity::NodeId,
        links::Linked,
        record::Access,
        store::{Batch, Facts, Store},
        totals::Totals,
        view::{Most, view, view_of_most},
    };

    /// A tree by the directory that each is in and the inodes that each names, all of which have two names. Each directory has a
    /// block, and is said not to be open to all.
    pub(in crate::view) fn ledger(tree: &[(u32, &[u64])]) -> Ledger {
        let (store, mut batch) = (Store::in_memory().unwrap(), Batch::default());
        let id = |slot: u32| NodeId { subvolume: 0, ino: 1000 + u64::from(slot), generation: 1 };
        let mut records: Vec<Record> = Vec::new();
        for (slot, (parent, links)) in (0..).zip(tree) {
            let names = links.len() as i64;
            let own =
                Sums { blocks: 1, freed_blocks: 1, directories: 1, shared_names: names, closed: 1, ..Sums::default() };
            let (parent, own) = ((slot > 0).then_some(Slot(*parent)), Totals { sums: own, ..Totals::default() });
            let name = format!("{slot}").into_bytes().into();
            records.push(Record {
                id: id(slot),
                parent,
                name,
                blocks: 1,
                own,
                links: links.to_vec(),
                ..Record::default()
            });
        }
        let mut nodes = crate::nodes::Nodes::new();
        for (slot, record) in (0..).zip(&records) {
            assert_eq!(nodes.add(id(slot), record.parent), Some(Slot(slot)));
        }
        let inodes: BTreeSet<u64> = tree.iter().flat_map(|(_, links)| links.iter().copied()).collect();
        for ino in inodes {
            let names = (0..).zip(tree).filter(|(_, (_, links))| links.contains(&ino));
            let weight = Sums { bytes: 100, blocks: 8, files: 1, ..Sums::default() };
            let places = names.map(|(slot, _)| Slot(slot)).collect();
            let mut linked = Linked { weight, links: 2, places, ..Linked::default() };
            linked.charges = linked.due(&nodes);
            for (slot, sums) in linked.charges.sums() {
                records[slot.0 as usize].charged += sums;
            }
            batch.linked.insert(LinkKey { subvolume: 0, ino }, Some(linked));
        }
        for slot in (0..records.len()).rev() {
            let alone = records[slot].alone().sums;
            records[slot].subtree.sums += alone;
            if let Some(above) = records[slot].parent {
                let all = records[slot].subtree.sums;
                records[above.0 as usize].subtree.sums += all;
            }
        }
        batch.records.extend((0..).zip(records).map(|(slot, record)| (Slot(slot), Some(record))));
        store.commit(&batch, &Facts::default(), true).unwrap();
        Ledger::open(store).unwrap()
    }

    /// 0 ┬ 1 (names 70, 71) ─ 2 (names 71, 72, 73)
    ///   ├ 3 (names 70, 72) ┬ 4 (names 74)
    ///   │                  └ 5
    ///   ├ 6 (names 73)
    ///   ├ 7 (names 74)
    ///   └ 8 ─ a hundred more
    pub(in crate::view) fn tree() -> Vec<(u32, &'static [u64])> {
        let mut tree: Vec<(u32, &[u64])> =
            vec![(0, &[]), (0, &[70, 71]), (1, &[71, 72, 73]), (0, &[70, 72]), (3, &[74])];
        tree.extend([(3, &[][..]), (0, &[73]), (0, &[74]), (0, &[])]);
        tree.extend((0..100).map(|_| (8, &[][..])));
        tree
    }

    #[test]
    fn only_what_has_links_is_looked_at_for_them() {
        let ledger = ledger(&tree());
        let below = |slot: u32, without: &[u32], most: usize| {
            let (without, mut found) = (without.iter().map(|&slot| Slot(slot)).collect(), BTreeSet::new());
            let looked_at = links_below(&ledger, vec![Slot(slot)], (&without, most), &mut found).unwrap();
            looked_at.map(|looked_at| (looked_at, found.len()))
        };
        assert_eq!(below(0, &[], 5), Some((9, 5)));
        assert_eq!(below(0, &[], 4), None);
        assert_eq!(below(0, &[3, 7], 4), Some((5, 4)));
        assert_eq!(below(1, &[], usize::MAX), Some((2, 4)));
        assert_eq!(below(8, &[], 0), Some((1, 0)));
    }

    #[test]
    fn a_line_alone_counts_what_is_seen_once() {
        let tree = tree();
        let ledger = ledger(&tree);
        for (top, hidden) in (0..8).flat_map(|top| (0..8).map(move |hidden| (top, hidden))) {
            let may_list = |slot: Slot, _: &Access| slot != Slot(hidden);
            let is_in = |above: u32, slot: u32| ledger.nodes.contains(Slot(above), Slot(slot));
            let is_seen = |slot: u32| is_in(top, slot) && !(is_in(hidden, slot) && is_in(top, hidden));
            let seen = (0..).zip(&tree).filter(|(slot, _)| is_seen(*slot));
            let names: Vec<u64> = seen.flat_map(|(_, (_, links))| links.to_vec()).collect();
            let inodes: BTreeSet<u64> = names.iter().copied().collect();
            let leads_out = inodes.iter().any(|ino| names.iter().filter(|name| *name == ino).count() == 1);
            for depth in [0, u32::MAX] {
                let seen = view(&ledger, Slot(top), depth, Some(&may_list)).unwrap();
                let sums = seen.lines.last().unwrap().totals.sums;
                let told = (sums.files, sums.shared_names, seen.leads_out);
                let expected = (inodes.len() as i64, names.len() as i64, leads_out);
                assert_eq!(told, expected, "{top} without {hidden}, {depth}");
            }
        }
    }

    /// So many that each of them is looked at: lines are refused then, and what is hidden has no part in that.
    #[test]
    fn lines_with_more_links_than_may_be_are_refused() {
        let ledger = ledger(&tree());
        let lines = |links: usize, depth: u32, hidden: u32| {
            let may_list = |slot: Slot, _: &Access| slot != Slot(hidden);
            let how = (Most { links, ..Most::ANY }, false);
            view_of_most(&ledger, Slot(0), depth, Some(&may_list), how).unwrap().map(|seen| seen.lines.len())
        };
        assert_eq!(lines(4, 1, u32::MAX), None);
        assert_eq!(lines(5, 1, u32::MAX), Some(6));
        // By one line the store's own figures are told.
        assert_eq!(lines(0, 0, u32::MAX), Some(1));
        // 74 has one name in what is hidden, and one outside; 72 and 73 have one in 2.
        assert_eq!((lines(4, 1, 3), lines(5, 1, 3)), (None, Some(6)));
        assert_eq!((lines(2, 1, 1), lines(4, 1, 1)), (None, Some(6)));
    }
}
