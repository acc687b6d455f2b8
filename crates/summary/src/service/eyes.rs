//! What a user sees of a file system: by rights that are stored, and by looks where these may be others by now.

use std::{cell::Cell, os::fd::AsFd, sync::Arc};

use onesweep_sys::files::{self, Stat};

use crate::{
    access::Asker,
    access_lists::Owned,
    file_system::FileSystem,
    identity::NodeId,
    record::{Access, Record},
    summaries::{Seen, Staying, Viewer},
    volume::access_by,
};

/// Directories that are looked at for one answer because they may have been closed since they were read, at most: half a second. Beyond,
/// they count as closed.
const GLANCES_MAX: usize = 10_000;

/// So many directories may still be looked at.
#[derive(Debug)]
pub(super) struct Glances(Cell<usize>);

impl Default for Glances {
    fn default() -> Glances {
        Glances(Cell::new(GLANCES_MAX))
    }
}

impl Glances {
    /// As many as it takes.
    pub(super) fn endless() -> Glances {
        Glances(Cell::new(usize::MAX))
    }

    fn take(&self) -> Option<()> {
        self.0.set(self.0.get().checked_sub(1)?);
        Some(())
    }
}

/// What a user may see of a file system.
#[derive(Debug)]
pub(super) struct Eyes<'a> {
    pub(super) asker: &'a Asker,
    pub(super) volume: &'a Arc<dyn FileSystem>,
    pub(super) glances: &'a Glances,
}

impl Eyes<'_> {
    /// Who sees all is none.
    pub(super) fn seen(&self) -> Seen<'_> {
        (*self.asker != Asker::Everything).then_some(self as &dyn Viewer)
    }

    fn look(&self, id: NodeId) -> Option<(Stat, Access)> {
        let stat = self.stat(id)?;
        let list: Option<Arc<[u8]>> = self.volume.access_list(id).map(Into::into);
        let access = access_by(list.as_deref(), &stat);
        if let Some(list) = list
            && self.stat(id).is_some_and(|after| after.uid == stat.uid)
        {
            // Who looks at what it was told by that needs it next.
            self.volume.access_lists().learn(&access, &list);
        }
        Some((stat, access))
    }

    fn stat(&self, id: NodeId) -> Option<Stat> {
        self.volume.handle_of(id).and_then(|fd| files::statx_fd(fd.as_fd())).ok()
    }

    /// The access list of a directory as it is now, and whose that was before it was read and after.
    fn list(&self, id: NodeId) -> Option<Owned> {
        let before = self.stat(id).map(|stat| stat.uid);
        let list = self.volume.access_list(id)?.into();
        let after = self.stat(id).map(|stat| stat.uid);
        Some(Owned { list, owner: before.filter(|_| before == after) })
    }
}

impl Viewer for Eyes<'_> {
    fn may_list(&self, id: NodeId, access: &Access) -> bool {
        let lists = self.volume.access_lists();
        self.asker.may_list(access, || lists.of(access, || self.list(id)))
    }

    fn access_now(&self, id: NodeId) -> Option<Access> {
        self.glances.take().and_then(|()| self.look(id)).map(|(_, access)| access)
    }

    fn parent_now(&self, id: NodeId) -> Option<NodeId> {
        self.glances.take().and_then(|()| self.volume.parent(id).ok())
    }

    fn is_as_stored(&self, id: NodeId, record: &Record) -> bool {
        let Some((stat, access)) = self.look(id) else { return false };
        let stored = record.itself();
        access == record.access && (stat.size as i64, stat.blocks as i64) == (stored.directory_bytes, stored.blocks)
    }

    fn staying(&self) -> Staying {
        let (asker, volume) = (self.asker.clone(), Arc::clone(self.volume));
        let viewer = Box::new(StayingEyes { asker: asker.clone(), volume, glances: Glances::endless() });
        Staying { asker, viewer }
    }
}

/// What a user may see who has gone, perhaps.
#[derive(Debug)]
struct StayingEyes {
    asker: Asker,
    volume: Arc<dyn FileSystem>,
    glances: Glances,
}

impl StayingEyes {
    fn eyes(&self) -> Eyes<'_> {
        Eyes { asker: &self.asker, volume: &self.volume, glances: &self.glances }
    }
}

impl Viewer for StayingEyes {
    fn may_list(&self, id: NodeId, access: &Access) -> bool {
        self.eyes().may_list(id, access)
    }

    fn access_now(&self, id: NodeId) -> Option<Access> {
        self.eyes().access_now(id)
    }

    fn parent_now(&self, id: NodeId) -> Option<NodeId> {
        self.eyes().parent_now(id)
    }

    fn is_as_stored(&self, id: NodeId, record: &Record) -> bool {
        self.eyes().is_as_stored(id, record)
    }

    fn staying(&self) -> Staying {
        self.eyes().staying()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io,
        os::fd::{BorrowedFd, OwnedFd},
        sync::{
            Mutex,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use onesweep_sys::fanotify::Group;

    use super::*;
    use crate::{
        access_lists::AccessLists,
        identity::Family,
        reading::{Directories, LinkedName, Reading},
        volume::hash_of,
    };

    /// All directories are of root, and have the same access list, which lets one user in. How often it was read.
    #[derive(Debug)]
    struct Model {
        top: File,
        lets_in: Mutex<u32>,
        lists: AccessLists,
        read: AtomicUsize,
    }

    impl Model {
        fn new() -> Model {
            let top = File::open("/").expect("a directory");
            Model { top, lets_in: Mutex::new(7), lists: AccessLists::default(), read: AtomicUsize::new(0) }
        }

        fn list(&self) -> Vec<u8> {
            let user = *self.lets_in.lock().expect("no panic");
            let mut bytes = 2_u32.to_le_bytes().to_vec();
            for (kind, rights, id) in [(1_u16, 7_u16, 0), (2, 5, user), (4, 0, 0), (0x10, 5, 0), (0x20, 0, 0)] {
                bytes.extend(kind.to_le_bytes());
                bytes.extend(rights.to_le_bytes());
                bytes.extend(id.to_le_bytes());
            }
            bytes
        }

        /// As a reading finds them.
        fn access(&self) -> Access {
            Access { mode: 0o40_750, uid: 0, gid: 0, acl: hash_of(&self.list()) }
        }

        fn lists_read(&self) -> usize {
            self.read.load(Ordering::SeqCst)
        }
    }

    fn unused<T>() -> io::Result<T> {
        Err(io::ErrorKind::Unsupported.into())
    }

    impl Directories for Model {
        fn read(&self, _: NodeId) -> io::Result<Reading> {
            unused()
        }
        fn look(&self, _: NodeId) -> io::Result<LinkedName> {
            unused()
        }
        fn sync(&self) -> io::Result<()> {
            unused()
        }
        fn settling_seconds(&self) -> i64 {
            0
        }
        fn parent(&self, _: NodeId) -> io::Result<NodeId> {
            unused()
        }
    }

    impl FileSystem for Model {
        fn may_hold(&self, _: u64) -> bool {
            false
        }
        fn is_it(&self, _: &Stat, _: NodeId) -> bool {
            false
        }
        fn root(&self) -> NodeId {
            NodeId::default()
        }
        fn family(&self) -> Option<Family> {
            None
        }
        fn top(&self) -> BorrowedFd<'_> {
            self.top.as_fd()
        }
        fn identity(&self) -> io::Result<Vec<u8>> {
            unused()
        }
        fn handle_of(&self, _: NodeId) -> io::Result<OwnedFd> {
            File::open("/").map(Into::into)
        }
        fn access_list(&self, _: NodeId) -> Option<Vec<u8>> {
            self.read.fetch_add(1, Ordering::SeqCst);
            Some(self.list())
        }
        fn access_lists(&self) -> &AccessLists {
            &self.lists
        }
        fn ignore(&self, _: &Group, _: &[NodeId]) -> Vec<bool> {
            Vec::new()
        }
        fn heed(&self, _: &Group, _: &[NodeId]) -> Vec<io::Result<()>> {
            Vec::new()
        }
    }

    /// Else a question of what is stored would wait for the disk as often as there are directories with one.
    #[test]
    fn an_access_list_that_many_have_is_read_once() {
        let (model, glances) = (Arc::new(Model::new()), Glances::endless());
        let volume: &Arc<dyn FileSystem> = &(Arc::clone(&model) as Arc<dyn FileSystem>);
        let [one, other] = [7, 8].map(|uid| Asker::User { uid, groups: vec![uid] });
        let [one, other] = [&one, &other].map(|asker| Eyes { asker, volume, glances: &glances });
        let ids = || (0..1000).map(|ino| NodeId { subvolume: 0, ino, generation: 1 });
        let stored = model.access();
        assert!(ids().all(|id| one.may_list(id, &stored) && !other.may_list(id, &stored)));
        assert_eq!(model.lists_read(), 1);
        // One that has changed counts as soon as it is stored,
        *model.lets_in.lock().expect("no panic") = 8;
        let changed = model.access();
        assert!(ids().all(|id| !one.may_list(id, &changed) && other.may_list(id, &changed)));
        assert_eq!(model.lists_read(), 2);
        // and before that where it is known to be unsure: then it is looked at itself.
        *model.lets_in.lock().expect("no panic") = 9;
        let now = one.access_now(NodeId::default()).expect("it is there");
        assert_eq!((now.acl, model.lists_read()), (model.access().acl, 3));
        assert!(!one.may_list(NodeId::default(), &now) && !other.may_list(NodeId::default(), &now));
        assert_eq!(model.lists_read(), 3);
    }

    #[test]
    fn glances_come_to_an_end() {
        let few = Glances(Cell::new(2));
        assert_eq!([few.take(), few.take(), few.take(), few.take()], [Some(()), Some(()), None, None]);
    }
}
