//! Access lists that are known, so that who asks for what is stored waits for no disk: the store has the hash of each, and few differ.

use std::sync::{Arc, Mutex, PoisonError};

use crate::{order::Map, record::Access, volume::hash_of};

/// Bytes of all that are known, at most: of 20,000 and more. Beyond, they are learnt anew.
const BYTES_MAX: usize = 4 << 20;
/// Beside the list itself, nearly.
const BYTES_EACH: usize = 64;

/// Access lists of directories of one file system.
#[derive(Debug, Default)]
pub struct AccessLists(Mutex<Known>);

/// By hash and owner. Anybody can make a list with the hash of another one, but only for directories of one's own.
#[derive(Debug, Default)]
struct Known {
    lists: Map<(u64, u32), Arc<[u8]>>,
    bytes: usize,
}

/// A list that was read.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) list: Arc<[u8]>,
    /// Whose directory it was meanwhile; `None` where that isn't known.
    pub(crate) owner: Option<u32>,
}

impl AccessLists {
    /// The list of a directory whose rights are these. `read` gives the one that it has now and whose directory it is, where theirs isn't
    /// known; `None` where that can't be read.
    pub(crate) fn of(&self, access: &Access, read: impl FnOnce() -> Option<Owned>) -> Option<Arc<[u8]>> {
        if let Some(list) = self.known().lists.get(&(access.acl, access.uid)) {
            return Some(Arc::clone(list));
        }
        // Nobody is kept waiting for that here.
        let Owned { list, owner } = read()?;
        if owner == Some(access.uid) {
            self.learn(access, &list);
        }
        Some(list)
    }

    /// A list that was read of a directory of this owner, unless it is another one than that of these rights: it has changed since.
    pub(crate) fn learn(&self, access: &Access, list: &Arc<[u8]>) {
        if hash_of(list) != access.acl {
            return;
        }
        let mut known = self.known();
        let bytes = list.len() + BYTES_EACH;
        if known.bytes + bytes > BYTES_MAX {
            *known = Known::default();
        }
        if known.lists.insert((access.acl, access.uid), Arc::clone(list)).is_none() {
            known.bytes += bytes;
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(list: &[u8], uid: u32) -> Access {
        Access { mode: 0o40_750, uid, gid: uid, acl: hash_of(list) }
    }

    fn owned(list: &[u8], uid: u32) -> Option<Owned> {
        Some(Owned { list: list.into(), owner: Some(uid) })
    }

    #[test]
    fn a_list_is_read_once_for_each_owner() {
        let lists = AccessLists::default();
        let mut read = Vec::new();
        for (list, uid) in [(b"one", 5), (b"one", 5), (b"two", 5), (b"one", 6), (b"two", 5), (b"one", 6)] {
            let found = lists.of(&access(list, uid), || {
                read.push((list, uid));
                owned(list, uid)
            });
            assert_eq!(found.as_deref(), Some(&list[..]));
        }
        // Another owner may have made it so that it looks like the first one's.
        assert_eq!(read, [(b"one", 5), (b"two", 5), (b"one", 6)]);
    }

    #[test]
    fn what_has_changed_or_cannot_be_read_is_not_kept() {
        let lists = AccessLists::default();
        let stored = access(b"one", 5);
        assert_eq!(lists.of(&stored, || owned(b"changed", 5)).as_deref(), Some(&b"changed"[..]));
        assert_eq!(lists.of(&stored, || None), None);
        assert_eq!(lists.of(&stored, || owned(b"one", 5)).as_deref(), Some(&b"one"[..]));
        assert_eq!(lists.of(&stored, || None).as_deref(), Some(&b"one"[..]));
        // Harvested again: by its own hash.
        let changed = access(b"changed", 5);
        assert_eq!(lists.of(&changed, || owned(b"changed", 5)).as_deref(), Some(&b"changed"[..]));
    }

    /// Whoever got it may have made a list with the hash of one of the owner before.
    #[test]
    fn a_list_of_a_directory_that_was_given_away_is_not_kept_as_the_old_owners() {
        let lists = AccessLists::default();
        let stored = access(b"one", 5);
        for owner in [Some(6), None] {
            let read = || Some(Owned { list: b"one"[..].into(), owner });
            assert_eq!(lists.of(&stored, read).as_deref(), Some(&b"one"[..]));
        }
        assert_eq!(lists.of(&stored, || None), None);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let lists = AccessLists::default();
        let large = |byte: u8| vec![byte; 60 << 10];
        for byte in 0..=255 {
            lists.of(&access(&large(byte), 5), || owned(&large(byte), 5));
            let known = lists.known();
            let bytes: usize = known.lists.values().map(|list| list.len() + BYTES_EACH).sum();
            assert!(known.bytes == bytes && bytes <= BYTES_MAX, "{byte}");
        }
        assert!(lists.of(&access(&large(255), 5), || None).is_some(), "the last one");
        assert!(lists.of(&access(&large(0), 5), || None).is_none(), "long ago");
    }
}
