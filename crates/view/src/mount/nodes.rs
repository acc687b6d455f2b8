//! The inodes that the kernel knows of: their numbers, and the names that lead to them. Pure.
//!
//! A node has the inode number of the source, so that programs see the same numbers; the root is number 1, as FUSE wants it. What
//! can't have its own number (of another device, or 1, or that of an inode which is gone, while the kernel still knows it) gets one
//! from above 2⁶³. So a node is one inode from its begin to its end, whoever gets the number.

use std::{
    collections::{HashMap, hash_map::Entry},
    ffi::{CStr, CString},
};

use onesweep_sys::handle::FileHandle;

use super::births::Birth;
use crate::guide::Inode;

/// The number of a node.
pub(super) type NodeId = u64;

/// The number of the root.
pub(super) const ROOT: NodeId = 1;

/// The first number of nodes that can't have their own.
const STRANGE: NodeId = 1 << 63;

/// Names of a node that are kept.
const NAMES_MAX: usize = 8;

/// A node from when the kernel is told of it until it forgets it: the number of one that is forgotten may be given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Life {
    pub(super) id: NodeId,
    pub(super) began: u64,
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
    birth: Birth,
    /// How many nodes were before it.
    began: u64,
    attributes: Attributes,
    /// What leads to it when its names don't: of those that somebody reads.
    handle: Option<Box<FileHandle>>,
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
    /// Nodes of numbers that aren't their own.
    strange: HashMap<Inode, Vec<NodeId>>,
    next_strange: NodeId,
    begun: u64,
}

impl Nodes {
    /// With the root alone, which is never forgotten, and stays open.
    pub(super) fn new(root: Inode) -> Self {
        let node = Node { lookups: 1, ..Node::begin(root, &Birth::default(), 0) };
        Self { root, nodes: HashMap::from([(ROOT, node)]), strange: HashMap::new(), next_strange: STRANGE, begun: 1 }
    }

    /// The nodes that have had the number of an inode, of whatever birth.
    pub(super) fn all_of(&self, inode: Inode) -> impl Iterator<Item = NodeId> {
        let own = if inode == self.root { ROOT } else { inode.ino };
        let own = Some(own).filter(|id| self.nodes.get(id).is_some_and(|node| node.inode == inode));
        own.into_iter().chain(self.strange.get(&inode).into_iter().flatten().copied())
    }

    /// The number of an inode that the kernel may know.
    pub(super) fn known(&self, inode: Inode, birth: &Birth) -> Option<NodeId> {
        self.all_of(inode).find(|id| *id == ROOT || self.nodes.get(id).is_some_and(|node| node.birth.is(birth)))
    }

    /// Whether the time of its birth isn't enough to tell an inode from others.
    pub(super) fn is_told_by_handle(&self, inode: Inode) -> bool {
        self.all_of(inode).any(|id| self.nodes.get(&id).is_some_and(|node| node.birth.handle.is_some()))
    }

    /// The kernel is told of an inode by this name.
    pub(super) fn told(&mut self, inode: Inode, birth: &Birth, directory: NodeId, name: &CStr) -> Life {
        let id = self.known(inode, birth).unwrap_or_else(|| self.free_number(inode));
        let node = self.nodes.entry(id).or_insert_with(|| {
            self.begun += 1;
            Node::begin(inode, birth, self.begun)
        });
        let life = Life { id, began: node.began };
        if id == ROOT {
            return life;
        }
        node.lookups += 1;
        node.call(directory, name);
        if birth.is_over {
            // From now on the time tells it.
            node.birth.handle = None;
        }
        life
    }

    /// A number for an inode of which no node is known.
    fn free_number(&mut self, inode: Inode) -> NodeId {
        let is_own = inode.dev == self.root.dev && inode.ino > ROOT && inode.ino < STRANGE;
        if is_own && !self.nodes.contains_key(&inode.ino) {
            return inode.ino;
        }
        let id = self.next_strange;
        self.next_strange += 1;
        self.strange.entry(inode).or_default().push(id);
        id
    }

    /// The kernel forgets that it was told so many times. Tells which node has ended by that.
    pub(super) fn forget(&mut self, id: NodeId, times: u64) -> Option<Life> {
        if id == ROOT {
            return None;
        }
        let Entry::Occupied(mut node) = self.nodes.entry(id) else { return None };
        node.get_mut().lookups = node.get().lookups.saturating_sub(times);
        if node.get().lookups > 0 {
            return None;
        }
        let node = node.remove();
        if let Entry::Occupied(mut strange) = self.strange.entry(node.inode) {
            strange.get_mut().retain(|of_inode| *of_inode != id);
            if strange.get().is_empty() {
                strange.remove();
            }
        }
        Some(Life { id, began: node.began })
    }

    /// The node that has a number now.
    pub(super) fn life(&self, id: NodeId) -> Option<Life> {
        self.nodes.get(&id).map(|node| Life { id, began: node.began })
    }

    /// Whether a node has just begun.
    pub(super) fn is_told_once(&self, id: NodeId) -> bool {
        self.nodes.get(&id).is_some_and(|node| node.lookups == 1)
    }

    /// The inode of a node.
    pub(super) fn inode(&self, id: NodeId) -> Option<Inode> {
        self.nodes.get(&id).map(|node| node.inode)
    }

    /// The same, and its birth.
    pub(super) fn inode_and_birth(&self, id: NodeId) -> Option<(Inode, Birth)> {
        self.nodes.get(&id).map(|node| (node.inode, node.birth.clone()))
    }

    /// The number that programs see.
    pub(super) fn shown_number(&self, id: NodeId) -> u64 {
        let own = self.inode(id).filter(|inode| inode.dev == self.root.dev);
        own.map_or(id, |inode| inode.ino)
    }

    /// Whether a node has extended attributes, as far as it was noted.
    pub(super) fn attributes(&self, id: NodeId) -> Attributes {
        self.nodes.get(&id).map_or(Attributes::Unknown, |node| node.attributes)
    }

    /// Notes whether it has.
    pub(super) fn note_attributes(&mut self, of: Life, attributes: Attributes) {
        if let Some(node) = self.nodes.get_mut(&of.id).filter(|node| node.began == of.began) {
            node.attributes = attributes;
        }
    }

    /// What leads to a node without a name, as far as it was noted.
    pub(super) fn handle(&self, id: NodeId) -> Option<FileHandle> {
        self.nodes.get(&id)?.handle.as_deref().copied()
    }

    /// Notes what does.
    pub(super) fn note_handle(&mut self, of: Life, handle: FileHandle) {
        if let Some(node) = self.nodes.get_mut(&of.id).filter(|node| node.began == of.began) {
            node.handle = Some(Box::new(handle));
        }
    }

    /// They may have changed.
    pub(super) fn forget_attributes(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.attributes = Attributes::Unknown;
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
    /// One of which nobody was told yet.
    fn begin(inode: Inode, birth: &Birth, began: u64) -> Self {
        Self {
            inode,
            birth: birth.clone(),
            began,
            attributes: Attributes::Unknown,
            handle: None,
            lookups: 0,
            names: Vec::new(),
        }
    }

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
    use onesweep_sys::files::Time;

    use super::*;

    fn inode(ino: u64) -> Inode {
        Inode { dev: 5, ino }
    }

    fn told(nodes: &mut Nodes, inode: Inode, directory: NodeId, name: &CStr) -> NodeId {
        nodes.told(inode, &Birth::default(), directory, name).id
    }

    fn known(nodes: &Nodes, inode: Inode) -> Option<NodeId> {
        nodes.known(inode, &Birth::default())
    }

    fn born(secs: i64, handle: Option<&[u8]>) -> Birth {
        Birth { time: Some(Time { secs, nanos: 0 }), handle: handle.map(Into::into), is_over: handle.is_none() }
    }

    #[test]
    fn another_inode_of_the_same_number_is_another_node() {
        let mut nodes = Nodes::new(inode(2));
        let first = nodes.told(inode(12), &born(100, None), ROOT, c"a");
        nodes.note_attributes(first, Attributes::None);
        let second = nodes.told(inode(12), &born(101, None), ROOT, c"a");
        assert_eq!((first.id, second.id), (12, STRANGE));
        assert_eq!(nodes.attributes(second.id), Attributes::Unknown);
        assert_eq!(nodes.shown_number(second.id), 12);
        assert_eq!(nodes.told(inode(12), &born(101, None), ROOT, c"b"), second);
        assert_eq!(nodes.told(inode(12), &born(100, None), ROOT, c"b"), first);
        assert_eq!(nodes.all_of(inode(12)).collect::<Vec<_>>(), [12, STRANGE]);
        assert_eq!(nodes.known(inode(12), &born(99, None)), None);
        // The first one is forgotten: its number is free, but whoever has another keeps it.
        assert_eq!(nodes.forget(first.id, 2), Some(first));
        assert_eq!(nodes.told(inode(12), &born(101, None), ROOT, c"a"), second);
        assert_eq!(nodes.forget(second.id, 3), Some(second));
        let third = nodes.told(inode(12), &born(101, None), ROOT, c"a");
        assert!(third.id == 12 && third != first);
        assert_eq!(nodes.life(12), Some(third));
        nodes.note_attributes(first, Attributes::None);
        assert_eq!(nodes.attributes(12), Attributes::Unknown, "it is noted of what was before");
    }

    #[test]
    fn inodes_of_one_moment_are_told_apart_by_their_handles() {
        let mut nodes = Nodes::new(inode(2));
        let first = nodes.told(inode(12), &born(100, Some(b"a")), ROOT, c"a");
        assert!(nodes.is_told_by_handle(inode(12)) && !nodes.is_told_by_handle(inode(13)));
        let second = nodes.told(inode(12), &born(100, Some(b"b")), ROOT, c"a");
        assert_ne!(first.id, second.id);
        assert_eq!(nodes.known(inode(12), &born(100, Some(b"b"))), Some(second.id));
        nodes.forget(first.id, 1);
        let later = Birth { is_over: true, ..born(100, Some(b"b")) };
        assert_eq!(nodes.told(inode(12), &later, ROOT, c"a"), second);
        assert!(!nodes.is_told_by_handle(inode(12)), "its time is enough now");
    }

    #[test]
    fn numbers_are_those_of_the_source_where_they_can_be() {
        let mut nodes = Nodes::new(inode(2));
        assert_eq!(told(&mut nodes, inode(12), ROOT, c"a"), 12);
        assert_eq!(told(&mut nodes, inode(2), 12, c"loop"), ROOT);
        let one = told(&mut nodes, inode(1), ROOT, c"one");
        let other = told(&mut nodes, Inode { dev: 6, ino: 12 }, ROOT, c"other");
        assert!(one >= STRANGE && other >= STRANGE && one != other);
        assert_eq!(told(&mut nodes, inode(1), ROOT, c"one again"), one);
        assert_eq!(known(&nodes, Inode { dev: 6, ino: 12 }), Some(other));
        assert_eq!(
            (known(&nodes, inode(12)), known(&nodes, inode(13)), known(&nodes, inode(2))),
            (Some(12), None, Some(ROOT))
        );
        assert!(nodes.forget(other, 1).is_some());
        assert_eq!(known(&nodes, Inode { dev: 6, ino: 12 }), None);
    }

    #[test]
    fn a_node_lives_until_all_is_forgotten() {
        let mut nodes = Nodes::new(inode(2));
        told(&mut nodes, inode(12), ROOT, c"a");
        told(&mut nodes, inode(12), ROOT, c"b");
        assert!(nodes.forget(12, 1).is_none());
        assert_eq!(nodes.inode(12), Some(inode(12)));
        assert!(nodes.forget(12, 1).is_some());
        assert_eq!(nodes.inode(12), None);
        assert!(nodes.forget(12, 1).is_none() && nodes.forget(ROOT, 99).is_none());
        assert_eq!(nodes.inode(ROOT), Some(inode(2)));
    }

    #[test]
    fn attributes_are_forgotten_with_their_node() {
        let mut nodes = Nodes::new(inode(2));
        let tell = |nodes: &mut Nodes, name| nodes.told(inode(12), &Birth::default(), ROOT, name);
        let first = tell(&mut nodes, c"a");
        nodes.note_attributes(first, Attributes::None);
        tell(&mut nodes, c"b");
        assert_eq!(nodes.attributes(12), Attributes::None);
        nodes.forget_attributes(12);
        assert_eq!(nodes.attributes(12), Attributes::Unknown);
        nodes.note_attributes(first, Attributes::None);
        nodes.forget(12, 2);
        assert_eq!(nodes.attributes(12), Attributes::Unknown);
        tell(&mut nodes, c"a");
        assert_eq!(nodes.attributes(12), Attributes::Unknown);
    }

    #[test]
    fn names_come_and_go() {
        let mut nodes = Nodes::new(inode(2));
        told(&mut nodes, inode(10), ROOT, c"dir");
        told(&mut nodes, inode(11), 10, c"below");
        told(&mut nodes, inode(12), 11, c"file");
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
