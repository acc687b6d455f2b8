//! Directories that come to lie in another one.
//!
//! Their totals go along as they are, so that nothing below them is looked at: but for inodes with several names, which may meet
//! elsewhere by that. Where one has come from elsewhere, what these add is put down once, with all totals, and only for names that lie
//! below it.

use std::collections::BTreeSet;

use super::Ledger;
use crate::{
    links::LinkKey,
    nodes::{Slot, SlotMap},
    reading::EntryName,
    store::StoreError,
};

impl Ledger {
    /// A directory isn't any more in the one that it was in. It stays whole, for it may be found elsewhere.
    pub(super) fn take_out(&mut self, child: Slot) -> Result<(), StoreError> {
        if self.part(child)? && self.record(child)?.subtree.sums.shared_names > 0 {
            self.displaced.insert(child);
        }
        Ok(())
    }

    /// A directory was found in another one.
    pub(super) fn take_in(&mut self, child: Slot, parent: Slot, name: EntryName) -> Result<(), StoreError> {
        self.charge_changed()?;
        let stay_below = self.stay_below(child, parent)?;
        self.part(child)?;
        self.pay_owed()?;
        self.nodes.set_name(child, &name);
        self.nodes.attach(child, parent);
        let record = self.edit(child)?;
        (record.name, record.parent) = (name, Some(parent));
        let subtree = record.subtree;
        let owed = self.owed.entry(parent).or_default();
        owed.sums += subtree.sums;
        owed.raised = owed.raised.or(subtree.extremes);
        if let Some(books) = &mut self.books {
            books.moved(&self.store, child, parent, true)?;
        }
        if !stay_below && subtree.sums.shared_names > 0 {
            self.displaced.insert(child);
        }
        Ok(())
    }

    /// Takes a directory out of the one that it is in; false where it is in none.
    fn part(&mut self, child: Slot) -> Result<bool, StoreError> {
        let Some(parent) = self.nodes.parent(child) else { return Ok(false) };
        self.pay_owed()?;
        let record = self.edit(child)?;
        record.parent = None;
        let subtree = record.subtree;
        let owed = self.owed.entry(parent).or_default();
        owed.sums -= subtree.sums;
        owed.sunk = owed.sunk.or(subtree.extremes);
        if let Some(books) = &mut self.books {
            books.moved(&self.store, child, parent, false)?;
        }
        self.nodes.detach(child);
        Ok(true)
    }

    /// Whether all names of the inodes that are named below a directory lie below it, as far as the tree goes that both it and the
    /// directory into which it goes are in. Then these meet below it, wherever it lies. False where that takes more to be known than a
    /// look at those above.
    ///
    /// Where names of an inode are in several of the directories in another one, which has none itself, it is taken off there as often
    /// as is too much. So one that has no names of such inodes itself, and where none is taken off, is the place where none meet.
    /// (That removing a directory would free all its blocks says less: an inode may have none.)
    fn stay_below(&self, child: Slot, parent: Slot) -> Result<bool, StoreError> {
        let nodes = &self.nodes;
        // What was put down is of where these were before.
        let is_settled = self.displaced.is_empty();
        if !is_settled || nodes.parent(child).is_none() || nodes.upwards(child).last() != nodes.upwards(parent).last() {
            return Ok(false);
        }
        for above in nodes.upwards(child).skip(1) {
            if nodes.has_links(above) {
                return Ok(false);
            }
            let charged = self.record(above)?.charged;
            if charged.files + charged.others != 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Puts down what all inodes with several names below some directories add where, since these have been moved.
    pub(super) fn charge_below(&mut self, displaced: &BTreeSet<Slot>) -> Result<(), StoreError> {
        let keys = self.linked_below(displaced)?;
        for &key in &keys {
            let Some(linked) = self.linked(key)? else { continue };
            let due = linked.due(&self.nodes);
            if due != linked.charges {
                self.charge_due(key, linked, due)?;
            }
        }
        match &mut self.books {
            Some(books) => books.charge_again((&self.nodes, &*self.store), keys),
            None => Ok(()),
        }
    }

    /// The inodes with several names that are named below some directories: only those are looked at below which there are such names.
    fn linked_below(&self, displaced: &BTreeSet<Slot>) -> Result<BTreeSet<LinkKey>, StoreError> {
        let mut keys = BTreeSet::new();
        let mut left = self.topmost(displaced);
        while let Some(at) = left.pop() {
            if !self.nodes.has_links(at) && self.nodes.children(at).next().is_none() {
                continue;
            }
            let record = self.record(at)?;
            let subvolume = self.nodes.id(at).subvolume;
            keys.extend(record.links.into_iter().map(|ino| LinkKey { subvolume, ino }));
            if record.subtree.sums.shared_names > 0 {
                left.extend(self.nodes.children(at));
            }
        }
        Ok(keys)
    }

    /// Those of some directories that lie in none of the others: who goes through these comes to all, and to each once.
    fn topmost(&self, directories: &BTreeSet<Slot>) -> Vec<Slot> {
        // Whether one of them is above, of each directory that was passed on the way up: so that no way is gone twice.
        let mut known: SlotMap<bool> = SlotMap::default();
        let mut topmost = Vec::new();
        for &slot in directories.iter().filter(|&&slot| self.nodes.is_used(slot)) {
            let (mut way, mut lies_in_one) = (Vec::new(), false);
            for at in self.nodes.upwards(slot).skip(1) {
                lies_in_one = directories.contains(&at) || known.get(&at).copied().unwrap_or(false);
                if lies_in_one || known.contains_key(&at) {
                    break;
                }
                way.push(at);
            }
            way.into_iter().for_each(|at| _ = known.insert(at, lies_in_one));
            if !lies_in_one {
                topmost.push(slot);
            }
        }
        topmost
    }
}

#[cfg(test)]
mod tests {
    use std::{
        cell::Cell,
        collections::{BTreeMap, HashMap},
    };

    use proptest::prelude::*;

    use super::*;
    use crate::{
        identity::NodeId,
        ledger::Merged,
        links::Linked,
        nodes::Count,
        reading::{LinkedName, Reading},
        store::{Facts, Store},
        totals::{Sums, Totals},
    };

    const ROOT: u64 = 1;

    fn id(ino: u64) -> NodeId {
        NodeId { subvolume: 0, ino, generation: 1 }
    }

    fn key(ino: u64) -> LinkKey {
        LinkKey { subvolume: 0, ino }
    }

    /// Some files have no blocks.
    fn weight(ino: u64) -> Sums {
        Sums { bytes: 100 + ino as i64, blocks: ino as i64 % 3 * 8, files: 1, ..Sums::default() }
    }

    /// What is there: the directory that each lies in, and where an inode with several names has them.
    #[derive(Debug, Default)]
    struct Tree {
        parents: BTreeMap<u64, u64>,
        names: BTreeMap<u64, Vec<u64>>,
        /// Directories that were read.
        readings: Cell<Count>,
    }

    impl Tree {
        fn contains(&self, above: u64, mut at: u64) -> bool {
            while at != above && at != ROOT {
                at = self.parents[&at];
            }
            at == above
        }

        fn reading(&self, directory: u64) -> Reading {
            let children = self.parents.iter().filter(|(_, parent)| **parent == directory);
            let directories = children.map(|(&ino, _)| (id(ino), ino.to_string().into_bytes().into())).collect();
            let of = |(&ino, places): (&u64, &Vec<u64>)| {
                let name = LinkedName { id: id(ino), weight: weight(ino), links: places.len().max(2) as u32, facts: 0 };
                places.iter().filter(|&&place| place == directory).map(move |_| name).collect::<Vec<_>>()
            };
            let linked: Vec<LinkedName> = self.names.iter().flat_map(of).collect();
            let shared_names = linked.len() as i64;
            let sums = Sums { directories: 1, blocks: 1, freed_blocks: 1, shared_names, ..Sums::default() };
            Reading { own: Totals { sums, ..Totals::default() }, directories, linked, ..Reading::default() }
        }

        /// All directories are read, from the top down.
        fn read_whole(&self) -> Ledger {
            let mut ledger = Ledger::open(Store::in_memory().expect("a store")).expect("it reads");
            let mut left = vec![ledger.add(None, id(ROOT), EntryName::new()).expect("there is room")];
            while let Some(slot) = left.pop() {
                left.extend(self.read(&mut ledger, slot).new);
            }
            settle(&mut ledger);
            ledger
        }

        fn read(&self, ledger: &mut Ledger, slot: Slot) -> Merged {
            let reading = self.reading(ledger.nodes.id(slot).ino);
            self.readings.set(self.readings.get() + 1);
            ledger.merge(slot, reading, self.readings.get(), 0).expect("it is put down")
        }
    }

    /// Nothing is on the way any more.
    fn settle(ledger: &mut Ledger) {
        ledger.commit(&Facts::default(), true).expect("it is written");
    }

    fn slot(ledger: &Ledger, ino: u64) -> Slot {
        ledger.nodes.find(id(ino)).expect("it is known")
    }

    /// Every directory comes to what is known of all below it, each inode once; and where all below is as it was read, it frees those that
    /// have all of their names there.
    fn check(ledger: &mut Ledger) {
        ledger.pay().expect("it is paid");
        let nodes = &ledger.nodes;
        let mut links: HashMap<LinkKey, Linked> = HashMap::new();
        for at in nodes.all() {
            for ino in ledger.record(at).expect("it reads").links {
                links.insert(key(ino), ledger.linked(key(ino)).expect("it reads").expect("it is known"));
            }
        }
        let is_clean = |top: Slot| nodes.subtree(top).into_iter().all(|at| !nodes.is_dirty(at));
        let clean: BTreeSet<Slot> = nodes.all().filter(|&top| is_clean(top)).collect();
        let within =
            |top: Slot, linked: &Linked| linked.places.iter().filter(|&&place| nodes.contains(top, place)).count();
        for (key, linked) in &links {
            let (charges, due) = (&linked.charges, linked.due(nodes));
            assert_eq!((charges.weight, &charges.times), (due.weight, &due.times), "{key:?} {:?}", linked.places);
            if linked.clean_places(nodes) > linked.links as usize {
                assert_eq!(charges, &due, "{key:?} {:?}", linked.places);
                continue;
            }
            for &top in &clean {
                let is_freed = charges.freed_at.is_some_and(|at| nodes.contains(top, at));
                let are_all = within(top, linked) >= linked.links as usize;
                assert_eq!(is_freed, are_all, "{:?} frees {key:?} {:?}", nodes.id(top), linked.places);
            }
        }
        for top in nodes.all() {
            let mut sums = Sums::default();
            nodes.subtree(top).into_iter().for_each(|at| sums += ledger.record(at).expect("it reads").own.sums);
            for linked in links.values() {
                if within(top, linked) > 0 {
                    sums += linked.weight;
                }
                if linked.charges.freed_at.is_some_and(|at| nodes.contains(top, at)) {
                    sums.freed_blocks += linked.weight.blocks;
                }
            }
            assert_eq!(ledger.record(top).expect("it reads").subtree.sums, sums, "{:?}", nodes.id(top));
        }
    }

    /// 1 ┬ 2 ┬ 3 ┬ a hundred more, of which each two next to each other name an inode
    ///   │   │   └ 4 (names 901, 902)
    ///   │   └ 5 (names 902)
    ///   └ 6 ─ 7 (names 901 where `leads_out`, else it has its names in 4)
    fn tree(leads_out: bool) -> Tree {
        let mut tree = Tree::default();
        tree.parents.extend([(2, ROOT), (3, 2), (4, 3), (5, 2), (6, ROOT), (7, 6)]);
        tree.parents.extend((100..200).map(|ino| (ino, 3)));
        tree.names.extend((100..199).map(|ino| (ino + 1000, vec![ino, ino + 1])));
        tree.names.extend([(901, vec![4, if leads_out { 7 } else { 4 }]), (902, vec![4, 5])]);
        tree
    }

    /// The directory that it left is read first, or the one that it came to.
    #[test]
    fn only_links_that_lead_out_of_what_is_moved_are_charged_anew() {
        for (leads_out, moved, is_left_first) in [false, true]
            .into_iter()
            .flat_map(|out| [2, 3].map(|moved| (out, moved)))
            .flat_map(|(out, moved)| [false, true].map(|is_left_first| (out, moved, is_left_first)))
        {
            let mut tree = tree(leads_out);
            let mut ledger = tree.read_whole();
            check(&mut ledger);
            let left = tree.parents.insert(moved, 6).expect("it was in another");
            let mut read = [slot(&ledger, left), slot(&ledger, 6)];
            if !is_left_first {
                read.reverse();
            }
            read.into_iter().for_each(|slot| drop(tree.read(&mut ledger, slot)));
            ledger.pay().expect("it is paid");
            let of_files: BTreeSet<u64> = ledger.batch.linked.keys().map(|key| key.ino).collect();
            // 901 leads from 2 and 3 to 7, and 902 from 3 to 5.
            let outer = [(leads_out, 901), (moved == 3, 902)].into_iter().filter(|(is_outer, _)| *is_outer);
            assert_eq!(of_files, outer.map(|(_, ino)| ino).collect(), "{leads_out} {moved} {is_left_first}");
            assert!(ledger.batch.records.len() < 10, "none of the hundred");
            check(&mut ledger);
        }
    }

    /// What a directory that is gone was charged for what has been moved out of it isn't paid back to the next one of its number.
    #[test]
    fn what_was_in_a_directory_that_is_gone_is_charged_before_its_number_is_anothers() {
        let mut tree = Tree::default();
        tree.parents.extend([(2, ROOT), (3, ROOT), (4, 3), (5, 3)]);
        tree.names.insert(900, vec![4, 5]);
        let mut ledger = tree.read_whole();
        let ([root, to, gone], two) = ([ROOT, 2, 3].map(|ino| slot(&ledger, ino)), [4, 5]);
        two.into_iter().for_each(|ino| _ = tree.parents.insert(ino, 2));
        tree.read(&mut ledger, to);
        tree.parents.remove(&3);
        tree.read(&mut ledger, root);
        ledger.forget(gone).expect("it is forgotten");
        tree.parents.insert(6, ROOT);
        tree.read(&mut ledger, root);
        assert_eq!(slot(&ledger, 6), gone);
        check(&mut ledger);
    }

    /// Read where a name has come to, before it is told where it went from.
    #[test]
    fn what_is_freed_where_goes_by_who_is_told_to_have_lost_a_name() {
        let mut tree = Tree::default();
        tree.parents.extend([(2, ROOT), (3, ROOT), (4, 2), (5, 2)]);
        tree.names.insert(901, vec![3, 4]);
        let mut ledger = tree.read_whole();
        tree.names.insert(901, vec![4, 5]);
        let [left, to] = [3, 5].map(|ino| slot(&ledger, ino));
        tree.read(&mut ledger, to);
        check(&mut ledger);
        ledger.mark_changed(left, tree.readings.get());
        check(&mut ledger);
        tree.read(&mut ledger, left);
        check(&mut ledger);
    }

    #[test]
    fn only_what_has_links_is_looked_at_for_them() {
        let ledger = tree(true).read_whole();
        let below = |ino: u64| ledger.linked_below(&[slot(&ledger, ino)].into()).expect("it reads").len();
        assert_eq!([2, 3, 5, 6, 7, 100, 101].map(below), [101, 101, 1, 1, 1, 1, 2]);
        let stay = |ino: u64, leads_out: bool| {
            let ledger = tree(leads_out).read_whole();
            ledger.stay_below(slot(&ledger, ino), slot(&ledger, ROOT)).expect("it reads")
        };
        assert_eq!([2, 3, 5, 6].map(|ino| stay(ino, false)), [true, false, false, true]);
        assert_eq!([2, 3, 5, 6].map(|ino| stay(ino, true)), [false; 4]);
    }

    /// Else what lies in many of them would be gone through as often.
    #[test]
    fn what_lies_in_another_one_that_was_moved_is_not_gone_through_again() {
        let ledger = tree(true).read_whole();
        let topmost = |inos: &[u64]| -> BTreeSet<u64> {
            let displaced = inos.iter().map(|&ino| slot(&ledger, ino)).collect();
            let found = ledger.topmost(&displaced);
            assert!(found.len() <= inos.len());
            found.into_iter().map(|at| ledger.nodes.id(at).ino).collect()
        };
        assert_eq!(topmost(&[2, 3, 4, 5, 100, 101]), [2].into());
        assert_eq!(topmost(&[4, 5, 7, 100, 101]), [4, 5, 7, 100, 101].into());
        assert_eq!(topmost(&[3, 4, 6, 150]), [3, 6].into());
    }

    /// Else its totals would be taken for paid.
    #[test]
    fn what_was_moved_is_kept_in_mind_where_the_store_fails() {
        let mut tree = tree(true);
        let mut ledger = tree.read_whole();
        ledger.store().damage_linked(key(901));
        tree.parents.insert(3, 6);
        let (two, six) = (slot(&ledger, 2), slot(&ledger, 6));
        [two, six].into_iter().for_each(|slot| drop(tree.read(&mut ledger, slot)));
        ledger.pay_owed().expect("it is paid");
        let displaced = ledger.displaced.clone();
        assert!(!displaced.is_empty());
        ledger.pay().expect_err("a link can't be read");
        assert!(ledger.displaced == displaced && !ledger.is_paid());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Move(usize, usize),
        Link(u64, usize),
        Unlink(u64),
        Change(usize),
        Read(usize),
        ReadAll,
        Pay,
        Forget(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (any::<usize>(), any::<usize>()).prop_map(|(which, to)| Step::Move(which, to)),
            2 => (500..508_u64, any::<usize>()).prop_map(|(ino, to)| Step::Link(ino, to)),
            1 => (500..508_u64).prop_map(Step::Unlink),
            3 => any::<usize>().prop_map(Step::Change),
            8 => any::<usize>().prop_map(Step::Read),
            1 => Just(Step::ReadAll),
            3 => Just(Step::Pay),
            1 => any::<usize>().prop_map(Step::Forget),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// Whatever is moved and linked, and whichever directories are told of and read after that: totals follow what is known.
        #[test]
        fn totals_follow_what_is_moved(
            parents in proptest::collection::vec(any::<usize>(), 3..12),
            names in proptest::collection::vec((500..508_u64, any::<usize>()), 0..16),
            steps in proptest::collection::vec(step(), 1..60),
        ) {
            let mut tree = Tree::default();
            let last = ROOT + parents.len() as u64;
            let directory = |which: usize| ROOT + which as u64 % (last - ROOT + 1);
            for (ino, parent) in (ROOT + 1..).zip(parents) {
                tree.parents.insert(ino, ROOT + parent as u64 % (ino - ROOT));
            }
            names.into_iter().for_each(|(ino, place)| tree.names.entry(ino).or_default().push(directory(place)));
            let mut ledger = tree.read_whole();
            check(&mut ledger);
            for step in steps {
                match step {
                    Step::Move(which, to) => {
                        let (which, to) = (directory(which), directory(to));
                        if which != ROOT && !tree.contains(which, to) {
                            tree.parents.insert(which, to);
                        }
                    }
                    Step::Link(ino, to) => tree.names.entry(ino).or_default().push(directory(to)),
                    Step::Unlink(ino) => _ = tree.names.get_mut(&ino).and_then(Vec::pop),
                    Step::Change(which) => {
                        if let Some(slot) = ledger.nodes.find(id(directory(which))) {
                            ledger.mark_changed(slot, tree.readings.get());
                        }
                    }
                    Step::Read(which) => {
                        if let Some(slot) = ledger.nodes.find(id(directory(which))) {
                            tree.read(&mut ledger, slot);
                        }
                    }
                    Step::ReadAll => {
                        let all: Vec<Slot> = ledger.nodes.all().collect();
                        all.into_iter().for_each(|slot| drop(tree.read(&mut ledger, slot)));
                    }
                    Step::Pay => check(&mut ledger),
                    Step::Forget(which) => {
                        let strays = ledger.nodes.all().filter(|&at| ledger.nodes.parent(at).is_none());
                        let strays: Vec<Slot> = strays.filter(|&at| ledger.nodes.id(at) != id(ROOT)).collect();
                        if !strays.is_empty() {
                            ledger.forget(strays[which % strays.len()]).expect("it is forgotten");
                        }
                    }
                }
            }
            check(&mut ledger);
        }
    }
}
