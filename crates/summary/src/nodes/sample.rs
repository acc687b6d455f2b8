//! A small tree to try things on.

use super::{Nodes, slots::Slot};
use crate::identity::NodeId;

pub(super) fn id(ino: u64) -> NodeId {
    NodeId { subvolume: 0, ino, generation: 7 }
}

/// root(1) ┬ a(2) ─ b(3)
///         └ c(4)
pub(super) fn small() -> (Nodes, [Slot; 4]) {
    let mut nodes = Nodes::new();
    let root = nodes.add(id(1), None).unwrap();
    let a = nodes.add(id(2), Some(root)).unwrap();
    let b = nodes.add(id(3), Some(a)).unwrap();
    let c = nodes.add(id(4), Some(root)).unwrap();
    (nodes, [root, a, b, c])
}
