//! Hard links: an inode with several names is counted once, whichever directory is asked about.
//!
//! Its weight is added at the directory of each name and taken off again at the lowest common ancestor of each two names that
//! are neighbours in the order of the tree. Whatever subtree is summed up then has it once, or not at all. What removing a
//! directory would free has it where the last of its names would go: at the lowest directory that holds all of them.

use crate::{
    nodes::{Nodes, Slot, SlotMap},
    reading::LinkedName,
    totals::Sums,
};

/// An inode that has, or had, several names. Numbers of btrfs count in their subvolume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkKey {
    /// The subvolume.
    pub subvolume: u64,
    /// The number.
    pub ino: u64,
}

/// Room for so many names is kept at first, at most.
const ROOM_MAX: usize = 16;

/// What is known of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Linked {
    /// Tells it from another that had the number before.
    pub generation: u32,
    /// What one inode adds: its bytes and blocks, and one file or other entry.
    pub weight: Sums,
    /// How many names it has, as the inode says.
    pub links: u32,
    /// What else summaries show of it, as it was last read: see [`crate::reading::LinkedName`].
    pub facts: u64,
    /// The directories in which it was found, one for each name, in rising order.
    pub places: Vec<Slot>,
    /// What was added on its account.
    pub charges: Charges,
}

/// What was added where on account of an inode: at some directories all that it weighs, so many times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Charges {
    /// What the inode weighed then.
    pub weight: Sums,
    /// How many times at which directory, in rising order. Less than none where names in several of the directories in it meet.
    pub times: Vec<(Slot, i32)>,
    /// The directory by whose removal its blocks would be freed.
    pub freed_at: Option<Slot>,
}

impl Charges {
    /// The sums of which these are made. A directory may be among them twice.
    pub fn sums(&self) -> impl Iterator<Item = (Slot, Sums)> + '_ {
        let one = Sums { freed_blocks: 0, ..self.weight };
        let freed = Sums { freed_blocks: self.weight.blocks, ..Sums::default() };
        let times = self.times.iter().map(move |&(slot, times)| (slot, scaled(one, times.into())));
        times.chain(self.freed_at.map(|slot| (slot, freed)))
    }
}

impl Linked {
    /// Takes over by which names a directory has it now, none of which may be there; whether that changes anything. Directories that show
    /// of it what isn't so any more become `outdated`.
    pub(crate) fn find_in(&mut self, slot: Slot, names: &[LinkedName], outdated: &mut Vec<Slot>) -> bool {
        let before = (self.generation, self.facts, self.weight, self.links);
        if let Some(name) = names.last() {
            if self.generation != name.id.generation {
                // Another inode has got the number: what named the old one names nothing.
                self.places.clear();
            }
            // Who sees two in one directory has read it while it changed: whatever is found next is another one.
            let is_one = names.iter().all(|other| other.facts == name.facts);
            let facts = if is_one { name.facts } else { 0 };
            if self.facts != facts {
                outdated.extend(self.places.iter().filter(|&&place| place != slot));
            }
            (self.generation, self.facts) = (name.id.generation, facts);
            (self.weight, self.links) = (name.weight, name.links);
        }
        let known = self.places.iter().filter(|&&place| place == slot).count();
        if known != names.len() {
            self.places.retain(|&place| place != slot);
            if self.places.is_empty() && !names.is_empty() {
                self.places.reserve_exact((self.links as usize).min(ROOM_MAX));
            }
            self.places.extend(names.iter().map(|_| slot));
            self.places.sort_unstable();
        }
        known != names.len() || before != (self.generation, self.facts, self.weight, self.links)
    }

    /// What has to be added at which directory, so that every subtree counts it once.
    pub fn due(&self, nodes: &Nodes) -> Charges {
        let branches = Branches::of(nodes, &self.places);
        let freed_at = if self.has_lost_names() && self.clean_places(nodes) >= self.links as usize {
            // Those in clean directories are all that there are: what dirty ones showed has gone.
            let mut there = self.places.clone();
            there.retain(|&place| is_clean(nodes, place));
            Branches::of(nodes, &there).meet(&there)
        } else if self.places.len() >= self.links as usize {
            branches.meet(&self.places)
        } else {
            None
        };
        // Where nothing branches, what is added below does for all above.
        let times =
            branches.ways.into_iter().map(|(slot, (count, _))| (slot, 1 - count)).filter(|(_, times)| *times != 0);
        let mut times: Vec<(Slot, i32)> = times.collect();
        times.sort_unstable();
        Charges { weight: self.weight, times, freed_at }
    }

    /// Whether more names are known than there are: directories that have lost some weren't read since.
    pub(crate) fn has_lost_names(&self) -> bool {
        self.places.len() > self.links as usize
    }

    /// Whether directories that name it show it as it was found now, however many names it has.
    pub(crate) fn is_shown_as(&self, found: &LinkedName) -> bool {
        let is_known = self.facts != 0 && self.generation == found.id.generation;
        is_known && (self.weight, self.facts) == (found.weight, found.facts)
    }

    /// How many of its names are in directories that haven't changed since they were read.
    pub fn clean_places(&self, nodes: &Nodes) -> usize {
        self.places.iter().filter(|&&place| is_clean(nodes, place)).count()
    }
}

fn is_clean(nodes: &Nodes, place: Slot) -> bool {
    nodes.is_used(place) && !nodes.is_dirty(place)
}

/// The directories of some names and all above them, each once.
struct Branches {
    /// In how many of the directories in it there are names, and in which last.
    ways: SlotMap<(i32, Option<Slot>)>,
    /// Those that are in none.
    tops: Vec<Slot>,
}

impl Branches {
    fn of(nodes: &Nodes, places: &[Slot]) -> Branches {
        let (mut ways, mut tops) = (SlotMap::<(i32, Option<Slot>)>::default(), Vec::new());
        for &place in places {
            let mut at = (!ways.contains_key(&place)).then_some(place);
            ways.entry(place).or_default();
            while let Some(below) = at {
                let Some(above) = nodes.parent(below) else {
                    tops.push(below);
                    break;
                };
                let is_known = ways.contains_key(&above);
                let (count, last) = ways.entry(above).or_default();
                (*count, *last) = (*count + 1, Some(below));
                at = (!is_known).then_some(above);
            }
        }
        Branches { ways, tops }
    }

    /// The lowest directory that holds all of the names, which are given in rising order; `None` where there is none.
    fn meet(&self, places: &[Slot]) -> Option<Slot> {
        let [mut all] = self.tops[..] else { return None };
        while let Some(&(1, Some(below))) = self.ways.get(&all).filter(|_| places.binary_search(&all).is_err()) {
            all = below;
        }
        Some(all)
    }
}

/// From the root down.
pub(crate) fn path(nodes: &Nodes, slot: Slot) -> Vec<Slot> {
    let mut path: Vec<Slot> = nodes.upwards(slot).collect();
    path.reverse();
    path
}

pub(crate) fn common(one: &[Slot], other: &[Slot]) -> Option<Slot> {
    one.iter().zip(other).take_while(|(one, other)| one == other).last().map(|(slot, _)| *slot)
}

fn scaled(sums: Sums, times: i64) -> Sums {
    Sums::of_fields(sums.fields().map(|field| field.wrapping_mul(times)))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;
    use crate::identity::NodeId;

    fn tree(parents: &[usize]) -> (Nodes, Vec<Slot>) {
        let mut nodes = Nodes::new();
        let id = |ino| NodeId { subvolume: 0, ino, generation: 1 };
        let mut slots = vec![nodes.add(id(1), None).unwrap()];
        for (number, parent) in parents.iter().enumerate() {
            let parent = slots[parent % slots.len()];
            slots.push(nodes.add(id(number as u64 + 2), Some(parent)).unwrap());
        }
        (nodes, slots)
    }

    fn name(generation: u32, links: u32, facts: u64) -> LinkedName {
        let weight = Sums { bytes: 100, blocks: 8, files: 1, ..Sums::default() };
        LinkedName { id: NodeId { subvolume: 0, ino: 9, generation }, weight, links, facts }
    }

    #[test]
    fn only_what_differs_changes_an_inode() {
        let (mut linked, mut outdated) = (Linked::default(), Vec::new());
        let mut find = |slot, names: &[LinkedName]| {
            let is_changed = linked.find_in(Slot(slot), names, &mut outdated);
            let places: Vec<u32> = linked.places.iter().map(|place| place.0).collect();
            (is_changed, places, std::mem::take(&mut outdated))
        };
        let (one, two) = (name(1, 3, 7), [name(1, 3, 7); 2]);
        assert_eq!(find(5, &[one]), (true, vec![5], vec![]));
        assert_eq!(find(5, &[one]), (false, vec![5], vec![]));
        assert_eq!(find(2, &two), (true, vec![2, 2, 5], vec![]));
        assert_eq!(find(2, &two), (false, vec![2, 2, 5], vec![]));
        assert_eq!(find(4, &[]), (false, vec![2, 2, 5], vec![]));
        assert_eq!(find(2, &[one]), (true, vec![2, 5], vec![]));
        assert_eq!(find(5, &[name(1, 2, 7)]), (true, vec![2, 5], vec![]), "one has gone elsewhere");
        assert_eq!(find(2, &[name(1, 2, 8)]), (true, vec![2, 5], vec![Slot(5)]));
        assert_eq!(find(2, &[name(1, 2, 8)]), (false, vec![2, 5], vec![]));
        assert_eq!(
            find(5, &[name(1, 2, 8), name(1, 2, 9)]),
            (true, vec![2, 5, 5], vec![Slot(2)]),
            "it changes meanwhile"
        );
        assert_eq!(find(2, &[name(3, 2, 8)]), (true, vec![2], vec![]), "another one with its number");
        assert_eq!(find(2, &[]), (true, vec![], vec![]));
    }

    /// By directories, each once.
    fn by_slot(due: &Charges) -> HashMap<Slot, Sums> {
        let mut all: HashMap<Slot, Sums> = HashMap::new();
        due.sums().for_each(|(slot, sums)| *all.entry(slot).or_default() += sums);
        all
    }

    #[test]
    fn other_names_show_nowhere() {
        let known = Linked { generation: 1, weight: name(1, 3, 7).weight, links: 3, facts: 7, ..Linked::default() };
        assert!(known.is_shown_as(&name(1, 3, 7)) && known.is_shown_as(&name(1, 2, 7)));
        let heavier = LinkedName { weight: Sums { blocks: 16, ..known.weight }, ..name(1, 3, 7) };
        for other in [name(2, 3, 7), name(1, 3, 8), heavier] {
            assert!(!known.is_shown_as(&other), "{other:?}");
        }
        let unknown = Linked { facts: 0, ..known };
        assert!(!unknown.is_shown_as(&name(1, 3, 0)), "nobody knows what is shown");
    }

    fn linked(mut places: Vec<Slot>, links: u32) -> Linked {
        places.sort_unstable();
        let weight = Sums { bytes: 100, blocks: 8, files: 1, ..Sums::default() };
        Linked { generation: 1, weight, links, places, ..Linked::default() }
    }

    #[test]
    fn two_names_in_two_directories_meet_above() {
        // 0 ┬ 1 ─ 2
        //   └ 3
        let (nodes, slots) = tree(&[0, 1, 0]);
        let due = by_slot(&linked(vec![slots[2], slots[3]], 2).due(&nodes));
        assert_eq!(due[&slots[2]].bytes, 100);
        assert_eq!(due[&slots[3]].bytes, 100);
        assert_eq!((due[&slots[0]].bytes, due[&slots[0]].freed_blocks), (-100, 8));
        assert!(!due.contains_key(&slots[1]));
    }

    #[test]
    fn names_in_one_directory_count_once() {
        let (nodes, slots) = tree(&[0]);
        let due = linked(vec![slots[1]; 3], 3).due(&nodes);
        let one = Sums { bytes: 100, blocks: 8, files: 1, freed_blocks: 8, ..Sums::default() };
        assert_eq!(by_slot(&due), HashMap::from([(slots[1], one)]));
    }

    /// As many as there are, are elsewhere: what one that has changed showed is gone.
    #[test]
    fn a_name_that_went_from_a_directory_that_has_changed_keeps_nothing() {
        // 0 ┬ 1 ┬ 2
        //   │   └ 3
        //   └ 4
        let (mut nodes, slots) = tree(&[0, 1, 1, 0]);
        slots.iter().for_each(|&slot| nodes.mark_harvested(slot, 1));
        let inode = |links: u32| linked(vec![slots[2], slots[3], slots[4]], links);
        let freed_at = |nodes: &Nodes, links: u32| inode(links).due(nodes).freed_at;
        assert_eq!([3, 2].map(|links| freed_at(&nodes, links)), [Some(slots[0]); 2], "nobody knows which has gone");
        nodes.mark_changed(slots[4], 1);
        assert_eq!([4, 3, 2].map(|links| freed_at(&nodes, links)), [None, Some(slots[0]), Some(slots[1])]);
        nodes.mark_changed(slots[2], 1);
        assert_eq!([2, 1].map(|links| freed_at(&nodes, links)), [Some(slots[0]), Some(slots[3])]);
    }

    #[test]
    fn nothing_is_freed_while_a_name_is_elsewhere() {
        let (nodes, slots) = tree(&[0]);
        let due = linked(vec![slots[1]], 2).due(&nodes);
        let one = Sums { bytes: 100, blocks: 8, files: 1, ..Sums::default() };
        assert_eq!(by_slot(&due), HashMap::from([(slots[1], one)]));
    }

    /// Anybody can make as many names so far down: each directory above is looked at once.
    #[test]
    fn many_names_far_down_are_charged() {
        let depth = 5000;
        let chain: Vec<usize> = (0..depth).collect();
        let parents: Vec<usize> = chain.into_iter().chain((0..20_000).map(|_| depth)).collect();
        let (nodes, slots) = tree(&parents);
        let due = by_slot(&linked(slots[depth + 1..].to_vec(), 20_000).due(&nodes));
        assert_eq!(due.len(), 20_001);
        assert_eq!((due[&slots[depth]].bytes, due[&slots[depth]].freed_blocks), (-100 * 19_999, 8));
    }

    proptest! {
        #[test]
        fn every_subtree_has_it_once_or_not_at_all(
            parents in proptest::collection::vec(0..50_usize, 0..50),
            names in proptest::collection::vec(any::<usize>(), 1..12),
            missing in 0..2_u32,
        ) {
            let (nodes, slots) = tree(&parents);
            let places: Vec<Slot> = names.iter().map(|name| slots[name % slots.len()]).collect();
            let inode = linked(places.clone(), places.len() as u32 + missing);
            let due = by_slot(&inode.due(&nodes));
            for &slot in &slots {
                let mut sums = Sums::default();
                for (&at, &charge) in &due {
                    if nodes.contains(slot, at) {
                        sums += charge;
                    }
                }
                let within = places.iter().filter(|&&place| nodes.contains(slot, place)).count();
                let mut expected = Sums::default();
                if within > 0 {
                    expected = inode.weight;
                }
                if missing == 0 && within == places.len() {
                    expected.freed_blocks = inode.weight.blocks;
                }
                prop_assert_eq!(sums, expected);
            }
        }
    }
}
