//! The inodes that the kernel knows of: their numbers, and the names that lead to them. Pure.
//!
//! A node has the inode number of the source, so that programs see the same numbers; the root is number 1, as FUSE wants it. What
//! can't have its own number (of another device, or 1) gets one from above 2⁶³.

use std::{
    collections::{HashMap, hash_map::Entry},
    ffi::{CStr, CString},
};

/// The number of a node.
pub(super) type NodeId = u64;

/// The number of the root.
pub(super) const ROOT: NodeId = 1;

/// The first number of nodes that can't have their own.
const STRANGE: NodeId = 1 << 63;

/// Names of a node that are kept.
const NAMES_MAX: usize = 8;

/// An inode of the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Inode {
    pub(super) dev: u64,
    pub(super) ino: u64,
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) directory: NodeId,
    pub(super) name: CString,
}

/// Whether something has extended attributes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Attributes {
    #[default]
    Unknown,
    None,
    Some,
}

#[derive(Debug)]
struct Node {
    inode: Inode,
    attributes: Attributes,
    /// How often the kernel was told of it.
    lookups: u64,
    /// The last one is the one that was seen last.
    names: Vec<Name>,
}

/// The nodes.
#[derive(Debug)]
pub(super) struct Nodes {
    root: Inode,
    nodes: HashMap<NodeId, Node>,
    strange: HashMap<Inode, NodeId>,
    next_strange: NodeId,
}

impl Nodes {
    /// With the root alone, which is never forgotten.
    pub(super) fn new(root: Inode) -> Self {
        let node = Node { inode: root, attributes: Attributes::Unknown, lookups: 1, names: Vec::new() };
        Self { root, nodes: HashMap::from([(ROOT, node)]), strange: HashMap::new(), next_strange: STRANGE }
    }

    /// The number of an inode; one that has none of its own has it as long as its node is known.
    pub(super) fn id_of(&mut self, inode: Inode) -> NodeId {
        if inode == self.root {
            return ROOT;
        }
        if inode.dev == self.root.dev && inode.ino > ROOT && inode.ino < STRANGE {
            return inode.ino;
        }
        *self.strange.entry(inode).or_insert_with(|| {
            self.next_strange += 1;
            self.next_strange - 1
        })
    }

    /// The number of an inode that the kernel may know.
    pub(super) fn known(&self, inode: Inode) -> Option<NodeId> {
        let id = if inode == self.root { ROOT } else { self.strange.get(&inode).copied().unwrap_or(inode.ino) };
        self.nodes.get(&id).is_some_and(|node| node.inode == inode).then_some(id)
    }

    /// The kernel is told of an inode by this name.
    pub(super) fn told(&mut self, inode: Inode, directory: NodeId, name: &CStr) -> NodeId {
        let id = self.id_of(inode);
        if id == ROOT {
            return ROOT;
        }
        let node = self.nodes.entry(id).or_insert_with(|| Node {
            inode,
            attributes: Attributes::Unknown,
            lookups: 0,
            names: Vec::new(),
        });
        node.lookups += 1;
        node.call(directory, name);
        id
    }

    /// The kernel forgets that it was told so many times. True when it doesn't know it any more.
    pub(super) fn forget(&mut self, id: NodeId, times: u64) -> bool {
        if id == ROOT {
            return false;
        }
        let Entry::Occupied(mut node) = self.nodes.entry(id) else { return false };
        node.get_mut().lookups = node.get().lookups.saturating_sub(times);
        if node.get().lookups > 0 {
            return false;
        }
        let node = node.remove();
        if id >= STRANGE {
            self.strange.remove(&node.inode);
        }
        true
    }

    /// The inode of a node.
    pub(super) fn inode(&self, id: NodeId) -> Option<Inode> {
        self.nodes.get(&id).map(|node| node.inode)
    }

    /// Whether a node has extended attributes, as far as it was noted.
    pub(super) fn attributes(&self, id: NodeId) -> Attributes {
        self.nodes.get(&id).map_or(Attributes::Unknown, |node| node.attributes)
    }

    /// Notes whether it has.
    pub(super) fn note_attributes(&mut self, id: NodeId, attributes: Attributes) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.attributes = attributes;
        }
    }

    /// The names of a node, the one that was seen last first.
    pub(super) fn names(&self, id: NodeId) -> Vec<Name> {
        self.nodes.get(&id).map_or_else(Vec::new, |node| node.names.iter().rev().cloned().collect())
    }

    /// All nodes with their names.
    pub(super) fn all(&self) -> Vec<(NodeId, Vec<Name>)> {
        self.nodes.iter().map(|(id, node)| (*id, node.names.clone())).collect()
    }

    /// A node got another name.
    pub(super) fn named(&mut self, id: NodeId, directory: NodeId, name: &CStr) {
        if let Some(node) = self.nodes.get_mut(&id).filter(|_| id != ROOT) {
            node.call(directory, name);
        }
    }

    /// A name of a node went.
    pub(super) fn unnamed(&mut self, id: NodeId, directory: NodeId, name: &CStr) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.names.retain(|known| known.directory != directory || known.name.as_c_str() != name);
        }
    }

    /// From a directory up to the root: both, and all between. Not to the root where one of them is unknown.
    pub(super) fn chain(&self, directory: NodeId) -> Vec<NodeId> {
        let mut chain = vec![directory];
        while let Some(above) = self.above(*chain.last().unwrap_or(&ROOT)) {
            // What moves meanwhile may lead in circles.
            if chain.contains(&above) {
                break;
            }
            chain.push(above);
        }
        chain
    }

    /// The names from the root to a directory.
    pub(super) fn path(&self, directory: NodeId) -> Option<Vec<CString>> {
        let chain = self.chain(directory);
        if chain.last() != Some(&ROOT) {
            return None;
        }
        chain.iter().rev().skip(1).map(|id| self.nodes.get(id)?.names.last().map(|name| name.name.clone())).collect()
    }

    fn above(&self, id: NodeId) -> Option<NodeId> {
        self.nodes.get(&id)?.names.last().map(|name| name.directory)
    }
}

impl Node {
    fn call(&mut self, directory: NodeId, name: &CStr) {
        let is_it = |known: &Name| known.directory == directory && known.name.as_c_str() == name;
        if self.names.last().is_some_and(is_it) {
            return;
        }
        self.names.retain(|known| !is_it(known));
        if self.names.len() == NAMES_MAX {
            self.names.remove(0);
        }
        self.names.push(Name { directory, name: name.to_owned() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inode(ino: u64) -> Inode {
        Inode { dev: 5, ino }
    }

    #[test]
    fn numbers_are_those_of_the_source_where_they_can_be() {
        let mut nodes = Nodes::new(inode(2));
        assert_eq!(nodes.told(inode(12), ROOT, c"a"), 12);
        assert_eq!(nodes.told(inode(2), 12, c"loop"), ROOT);
        let one = nodes.told(inode(1), ROOT, c"one");
        let other = nodes.told(Inode { dev: 6, ino: 12 }, ROOT, c"other");
        assert!(one >= STRANGE && other >= STRANGE && one != other);
        assert_eq!(nodes.told(inode(1), ROOT, c"one again"), one);
        assert_eq!(nodes.known(Inode { dev: 6, ino: 12 }), Some(other));
        assert_eq!(
            (nodes.known(inode(12)), nodes.known(inode(13)), nodes.known(inode(2))),
            (Some(12), None, Some(ROOT))
        );
        assert!(nodes.forget(other, 1));
        assert_eq!(nodes.known(Inode { dev: 6, ino: 12 }), None);
    }

    #[test]
    fn a_node_lives_until_all_is_forgotten() {
        let mut nodes = Nodes::new(inode(2));
        nodes.told(inode(12), ROOT, c"a");
        nodes.told(inode(12), ROOT, c"b");
        assert!(!nodes.forget(12, 1));
        assert_eq!(nodes.inode(12), Some(inode(12)));
        assert!(nodes.forget(12, 1));
        assert_eq!(nodes.inode(12), None);
        assert!(!nodes.forget(12, 1) && !nodes.forget(ROOT, 99));
        assert_eq!(nodes.inode(ROOT), Some(inode(2)));
    }

    #[test]
    fn attributes_are_forgotten_with_their_node() {
        let mut nodes = Nodes::new(inode(2));
        nodes.note_attributes(12, Attributes::None);
        assert_eq!(nodes.attributes(12), Attributes::Unknown, "nobody was told of it");
        nodes.told(inode(12), ROOT, c"a");
        nodes.note_attributes(12, Attributes::None);
        nodes.told(inode(12), ROOT, c"b");
        assert_eq!(nodes.attributes(12), Attributes::None);
        nodes.forget(12, 2);
        nodes.told(inode(12), ROOT, c"a");
        assert_eq!(nodes.attributes(12), Attributes::Unknown);
    }

    #[test]
    fn names_come_and_go() {
        let mut nodes = Nodes::new(inode(2));
        nodes.told(inode(10), ROOT, c"dir");
        nodes.told(inode(11), 10, c"below");
        nodes.told(inode(12), 11, c"file");
        assert_eq!(nodes.path(11), Some(vec![c"dir".to_owned(), c"below".to_owned()]));
        assert_eq!(nodes.chain(11), [11, 10, ROOT]);
        nodes.named(12, 10, c"link");
        let names: Vec<_> = nodes.names(12).into_iter().map(|name| (name.directory, name.name)).collect();
        assert_eq!(names, [(10, c"link".to_owned()), (11, c"file".to_owned())]);
        nodes.unnamed(12, 10, c"link");
        assert_eq!(nodes.names(12).len(), 1);
        for number in 0..20 {
            nodes.named(12, 10, &CString::new(format!("n{number}")).unwrap());
        }
        assert_eq!(nodes.names(12).len(), NAMES_MAX);
        // A directory that went into itself, as far as is known here.
        nodes.named(10, 11, c"circle");
        assert_eq!(nodes.path(11), None);
        nodes.forget(11, 1);
        assert_eq!(nodes.path(11), None);
    }
}
