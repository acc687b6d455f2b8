//! For whom the totals of a directory are all there is, so that they may be told what was noted when something of it isn't closed any
//! more.
//!
//! Most of what is closed are homes: of those it is known whose they are. Nothing else is, and no groups and access lists are: then
//! it was for root alone.

use std::collections::HashMap;

use crate::{
    ledger::Ledger,
    nodes::Slot,
    record::{Access, Record},
    store::StoreError,
};

/// Who may see all of a directory, for all that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WholeFor {
    /// Everybody.
    #[default]
    All,
    /// The user who owns all that is closed.
    Owner(u32),
    /// Nobody but root.
    Root,
}

/// So many records are looked at for one directory, and for all that are noted at a time; beyond that root alone is told.
const LOOKS_MAX: usize = 4096;
const LOOKS_MAX_OF_ALL: usize = 50_000;
const LIST: u32 = 0o5;
const SEARCH: u32 = 0o1;

impl WholeFor {
    /// Whom a directory itself lets do that.
    fn by(access: &Access, wanted: u32) -> WholeFor {
        let (mode, all) = (access.mode, wanted << 6 | wanted << 3 | wanted);
        match () {
            () if mode & all == all && access.acl == 0 => WholeFor::All,
            () if mode >> 6 & wanted == wanted => WholeFor::Owner(access.uid),
            () => WholeFor::Root,
        }
    }

    /// For whom both are.
    fn and(self, other: WholeFor) -> WholeFor {
        match (self, other) {
            (WholeFor::All, one) | (one, WholeFor::All) => one,
            (one, other) if one == other => one,
            _ => WholeFor::Root,
        }
    }

    /// Whether that user is one of them.
    pub fn includes(self, uid: u32) -> bool {
        match self {
            WholeFor::All => true,
            WholeFor::Owner(owner) => uid == owner || uid == 0,
            WholeFor::Root => uid == 0,
        }
    }
}

/// Looks at several directories, one after the other, between which nothing changes.
#[derive(Debug)]
pub struct Looking {
    /// Who comes through a directory and all above it.
    ways: HashMap<Slot, WholeFor>,
    left: usize,
}

impl Default for Looking {
    fn default() -> Looking {
        Looking { ways: HashMap::new(), left: LOOKS_MAX_OF_ALL }
    }
}

impl Looking {
    /// Looks at more of them later, when anything may have changed.
    pub(crate) fn anew(self) -> Looking {
        Looking { ways: HashMap::new(), ..self }
    }

    /// For whom the totals of a directory are all there is now. What lies above its file system isn't looked at.
    /// What may have been closed since it was read is root's.
    pub fn at(&mut self, ledger: &Ledger, slot: Slot) -> Result<WholeFor, StoreError> {
        if !is_sure(ledger, slot)? {
            return Ok(WholeFor::Root);
        }
        let way = match ledger.nodes.parent(slot) {
            Some(parent) => self.way(ledger, parent)?,
            None => WholeFor::All,
        };
        if way == WholeFor::Root {
            return Ok(way);
        }
        let (mut found, mut looks, mut below) = (way, LOOKS_MAX, vec![slot]);
        while let Some(at) = below.pop() {
            if looks == 0 || self.left == 0 {
                return Ok(WholeFor::Root);
            }
            (looks, self.left) = (looks - 1, self.left - 1);
            let record = ledger.record(at)?;
            let closed = record.subtree.sums.closed;
            if closed == 0 {
                continue;
            }
            let itself = is_closed(&record);
            if itself {
                found = found.and(WholeFor::by(&record.access, LIST));
            }
            if found == WholeFor::Root {
                return Ok(found);
            }
            if closed > i64::from(itself) {
                below.extend(ledger.nodes.children(at));
            }
        }
        Ok(found)
    }

    fn way(&mut self, ledger: &Ledger, slot: Slot) -> Result<WholeFor, StoreError> {
        let unknown: Vec<Slot> = ledger.nodes.upwards(slot).take_while(|at| !self.ways.contains_key(at)).collect();
        let known = unknown.last().map_or(Some(slot), |&last| ledger.nodes.parent(last));
        let mut way = known.and_then(|at| self.ways.get(&at)).copied().unwrap_or_default();
        for at in unknown.into_iter().rev() {
            way = way.and(WholeFor::by(&ledger.record(at)?.access, SEARCH));
            self.ways.insert(at, way);
        }
        Ok(way)
    }
}

/// Whether it, all below and all above are as stored, as far as one knows.
fn is_sure(ledger: &Ledger, slot: Slot) -> Result<bool, StoreError> {
    let nodes = &ledger.nodes;
    let (mut is_sure, mut last) = (!nodes.may_be_unsure(slot), slot);
    for at in nodes.upwards(slot) {
        (is_sure, last) = (is_sure && !nodes.is_unsure(at), at);
    }
    // One that is in none and has a name is on the way elsewhere.
    Ok(is_sure && ledger.record(last)?.name.is_empty())
}

fn is_closed(record: &Record) -> bool {
    !record.access.is_open_to_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{identity::NodeId, reading::Reading, store::Store, totals::Sums};

    /// Directories, each after the one that it is in.
    struct Tree(Ledger, Vec<Slot>);

    impl Tree {
        /// By the number of the one that each is in, its owner and its mode.
        fn of(all: &[(Option<usize>, u32, u32)]) -> Tree {
            let mut tree = Tree(Ledger::open(Store::in_memory().expect("a store")).expect("it reads"), Vec::new());
            let id = |number: usize| NodeId { subvolume: 0, ino: 10 + number as u64, generation: 1 };
            for (number, &(parent, uid, mode)) in all.iter().enumerate() {
                let slot = match parent {
                    Some(_) => tree.0.nodes.find(id(number)),
                    None => tree.0.add(None, id(number), crate::reading::EntryName::new()),
                };
                tree.1.push(slot.expect("it is known"));
                let access = Access { mode: 0o40000 | mode, uid, gid: 1, acl: 0 };
                let below = (0..all.len()).filter(|&other| all[other].0 == Some(number));
                let directories = below.map(|other| (id(other), other.to_string().into_bytes().into())).collect();
                let mut reading = Reading { access, directories, ..Reading::default() };
                reading.own.sums = Sums { closed: i64::from(!access.is_open_to_all()), ..Sums::default() };
                tree.0.merge(tree.1[number], reading, 1, 0).expect("it is put down");
            }
            tree.0.pay().expect("it is paid");
            tree
        }

        fn looked(&self) -> Vec<WholeFor> {
            let mut looking = Looking::default();
            self.1.iter().map(|&slot| looking.at(&self.0, slot).expect("it reads")).collect()
        }
    }

    #[test]
    fn a_home_is_whole_for_its_owner() {
        use WholeFor::{All, Owner, Root};
        let home = (Some(0), 7, 0o700);
        assert_eq!(Tree::of(&[(None, 0, 0o755), (Some(0), 7, 0o755)]).looked(), [All, All]);
        let found = Tree::of(&[(None, 0, 0o755), home, (Some(1), 7, 0o755), (Some(2), 7, 0o500)]).looked();
        assert_eq!(found, [Owner(7); 4], "all that is closed is of one");
        let found = Tree::of(&[(None, 0, 0o755), home, (Some(1), 0, 0o750), (Some(1), 7, 0o755)]).looked();
        assert_eq!(found, [Root, Root, Root, Owner(7)], "it holds a closed one of another");
        let found = Tree::of(&[(None, 0, 0o755), home, (Some(0), 8, 0o700)]).looked();
        assert_eq!(found, [Root, Owner(7), Owner(8)]);
        let found = Tree::of(&[(None, 0, 0o755), (Some(0), 0, 0o711), (Some(1), 7, 0o755)]).looked();
        assert_eq!(found, [Owner(0), Owner(0), All], "who knows the name comes through");
        assert_eq!(Tree::of(&[(None, 0, 0o755), (Some(0), 7, 0o300)]).looked(), [Root; 2], "its owner doesn't list it");
        let found = Tree::of(&[(None, 0, 0o755), (Some(0), 0, 0o700), (Some(1), 7, 0o755)]).looked();
        assert_eq!(found[2], Owner(0), "it lies in a closed one");
    }

    #[test]
    fn what_may_be_closed_by_now_is_roots() {
        use WholeFor::{All, Owner, Root};
        let mut tree = Tree::of(&[(None, 0, 0o755), (Some(0), 0, 0o755), (Some(1), 0, 0o755), (Some(0), 7, 0o700)]);
        tree.0.nodes.mark_unsure(tree.1[1]);
        assert_eq!(tree.looked(), [Root, Root, Root, Owner(7)]);
        tree.0.nodes.be_sure(tree.1[1]);
        tree.0.nodes.unsure_below(tree.1[0]);
        assert_eq!(tree.looked(), [Owner(7), All, All, Owner(7)]);
        // Found in none: it may lie in one that is closed.
        let nothing = Reading { own: Default::default(), ..Reading::default() };
        tree.0.merge(tree.1[0], nothing, 2, 0).expect("it is put down");
        assert_eq!(tree.looked()[1..], [Root; 3]);
    }

    #[test]
    fn a_group_and_others_are_not_the_owner() {
        for (whole_for, told) in
            [(WholeFor::All, [1, 1, 1]), (WholeFor::Owner(7), [1, 1, 0]), (WholeFor::Root, [1, 0, 0])]
        {
            assert_eq!([0, 7, 8].map(|uid| u8::from(whole_for.includes(uid))), told, "{whole_for:?}");
        }
    }

    #[test]
    fn who_looks_at_very_much_tells_root_alone() {
        let mut all = vec![(None, 0, 0o755), (Some(0), 7, 0o700)];
        all.extend([(Some(1), 7, 0o700)].repeat(LOOKS_MAX));
        let tree = Tree::of(&all);
        let mut looking = Looking::default();
        assert_eq!(looking.at(&tree.0, tree.1[1]).expect("it reads"), WholeFor::Root);
        assert_eq!(looking.at(&tree.0, tree.1[2]).expect("it reads"), WholeFor::Owner(7));
        looking.left = 0;
        assert_eq!(looking.at(&tree.0, tree.1[2]).expect("it reads"), WholeFor::Root);
    }
}
