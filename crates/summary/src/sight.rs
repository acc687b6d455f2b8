//! What is shown to somebody who doesn't see all: by what is stored of a directory, and by what it is now where that may be otherwise.
//!
//! Else a directory that was closed, or moved into a closed one, would go on showing what happens in it until it is read itself, since
//! what is harvested below it counts in it and in all above.

use crate::{
    nodes::{Nodes, Slot},
    record::Access,
    summaries::Viewer,
};

/// Directories on the way up from one that has moved, at most.
const STEPS_MAX: usize = 256;

/// Whether what is in a directory is shown to who asks for `top`, where that one and all on the way are. Only what may be otherwise than
/// stored is looked at.
pub(crate) fn is_shown(nodes: &Nodes, (top, slot): (Slot, Slot), stored: &Access, viewer: &dyn Viewer) -> bool {
    let id = nodes.id(slot);
    let access = if nodes.is_unsure(slot) { viewer.access_now(id) } else { Some(*stored) };
    let may_list = access.is_some_and(|access| viewer.may_list(id, &access));
    // How one came to the topmost was seen when it was asked for.
    may_list && (slot == top || !nodes.may_be_elsewhere(slot) || is_led_to(nodes, slot, viewer))
}

/// Whether one comes to a directory where it is now, by listing what doesn't lie on the way to where it was.
fn is_led_to(nodes: &Nodes, slot: Slot, viewer: &dyn Viewer) -> bool {
    let mut at = nodes.id(slot);
    for _ in 0..STEPS_MAX {
        let Some(above) = viewer.parent_now(at) else { return false };
        let is_on_the_way = |known: Slot| known != slot && nodes.contains(known, slot);
        if nodes.find(above).is_some_and(is_on_the_way) {
            return true;
        }
        if !viewer.access_now(above).is_some_and(|access| viewer.may_list(above, &access)) {
            return false;
        }
        at = above;
    }
    false
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, collections::HashMap};

    use super::*;
    use crate::{identity::NodeId, record::Record, summaries::Staying};

    /// The mode and the parent of each directory, as they are now; and what was looked at.
    #[derive(Debug, Default)]
    struct Now(HashMap<u64, (u32, u64)>, RefCell<Vec<u64>>);

    impl Viewer for Now {
        fn may_list(&self, _: NodeId, access: &Access) -> bool {
            access.mode & 0o5 == 0o5
        }

        fn access_now(&self, id: NodeId) -> Option<Access> {
            self.1.borrow_mut().push(id.ino);
            self.0.get(&id.ino).map(|&(mode, _)| Access { mode, ..Access::default() })
        }

        fn parent_now(&self, id: NodeId) -> Option<NodeId> {
            self.1.borrow_mut().push(id.ino);
            self.0.get(&id.ino).map(|&(_, ino)| NodeId { ino, ..id })
        }

        fn is_as_stored(&self, _: NodeId, _: &Record) -> bool {
            true
        }

        fn staying(&self) -> Staying {
            unreachable!("nothing is harvested")
        }
    }

    const OPEN: Access = Access { mode: 0o755, uid: 0, gid: 0, acl: 0 };
    const CLOSED: Access = Access { mode: 0o700, ..OPEN };

    /// 1 holds 2 and 4, and 2 holds 3.
    fn tree() -> (Nodes, [Slot; 4]) {
        let mut nodes = Nodes::new();
        let mut add =
            |ino, parent| nodes.add(NodeId { subvolume: 0, ino, generation: 1 }, parent).expect("there is room");
        let root = add(1, None);
        let two = add(2, Some(root));
        let all = [root, two, add(3, Some(two)), add(4, Some(root))];
        (nodes, all)
    }

    #[test]
    fn what_is_sure_goes_by_what_is_stored() {
        let (nodes, [root, two, ..]) = tree();
        let now = Now::default();
        assert!(is_shown(&nodes, (root, two), &OPEN, &now) && !is_shown(&nodes, (root, two), &CLOSED, &now));
        assert!(now.1.borrow().is_empty(), "nothing is looked at");
    }

    #[test]
    fn what_is_unsure_goes_by_what_it_is_now() {
        let (mut nodes, [root, two, ..]) = tree();
        nodes.mark_unsure(two);
        let is_shown_now = |mode| {
            let now = Now([(2, (mode, 1))].into(), RefCell::default());
            [OPEN, CLOSED].map(|stored| is_shown(&nodes, (root, two), &stored, &now))
        };
        assert_eq!((is_shown_now(0o700), is_shown_now(0o755)), ([false; 2], [true; 2]));
        assert!(!is_shown(&nodes, (root, two), &OPEN, &Now::default()), "what is gone may have been closed before");
    }

    #[test]
    fn what_has_moved_is_shown_where_one_comes_to_it() {
        let (mut nodes, [root, two, three, four]) = tree();
        nodes.mark_unsure(two);
        let shows = |all: &[(u64, (u32, u64))], top| {
            is_shown(&nodes, (top, three), &OPEN, &Now(all.iter().copied().collect(), RefCell::default()))
        };
        assert!(shows(&[(3, (0o755, 2))], root), "it is where it was");
        assert!(shows(&[(3, (0o755, 1))], root), "it is on the way to where it was");
        assert!(shows(&[(3, (0o755, 4)), (4, (0o755, 1))], root) && !shows(&[(3, (0o755, 4)), (4, (0o711, 1))], root));
        // In one that isn't known yet.
        assert!(shows(&[(3, (0o755, 9)), (9, (0o755, 4)), (4, (0o755, 1))], root));
        assert!(!shows(&[(3, (0o755, 9)), (9, (0o755, 4)), (4, (0o700, 1))], root));
        assert!(!shows(&[], root), "it is gone");
        assert!(shows(&[], three), "who asked for it came to it");
        assert!(is_shown(&nodes, (root, four), &OPEN, &Now::default()), "it was in another one");
    }
}
