//! Who may look into a directory: the kernel's rule for reading and searching, applied to what the store keeps.

use crate::record::Access;

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asker {
    /// Somebody who gets whole totals: root, and whom the configuration names.
    Everything,
    /// A user, who gets what `du` run by that user would print.
    User {
        /// The user.
        uid: u32,
        /// All groups of the user.
        groups: Vec<u32>,
    },
}

/// Reading and searching.
const LIST: u32 = 0o5;
/// Searching alone.
const SEARCH: u32 = 0o1;

impl Asker {
    /// A user who doesn't see all.
    pub(crate) fn user(&self) -> Option<u32> {
        match self {
            Asker::Everything => None,
            Asker::User { uid, .. } => Some(*uid),
        }
    }

    /// Whether a directory can be listed and its entries looked at. `list` gives the directory's access list where it has one;
    /// what can't be read allows nothing.
    pub fn may_list<L: AsRef<[u8]>>(&self, access: &Access, list: impl FnOnce() -> Option<L>) -> bool {
        self.may(LIST, access, list)
    }

    /// Whether a directory lets the asker through to what it holds and who knows its name. `list` as for
    /// [`may_list`](Self::may_list).
    pub fn may_search<L: AsRef<[u8]>>(&self, access: &Access, list: impl FnOnce() -> Option<L>) -> bool {
        self.may(SEARCH, access, list)
    }

    fn may<L: AsRef<[u8]>>(&self, wanted: u32, access: &Access, list: impl FnOnce() -> Option<L>) -> bool {
        let Asker::User { uid, groups } = self else { return true };
        if *uid == 0 {
            return true;
        }
        if *uid == access.uid {
            return access.mode >> 6 & wanted == wanted;
        }
        if access.acl == 0 {
            let shift = if groups.contains(&access.gid) { 3 } else { 0 };
            return access.mode >> shift & wanted == wanted;
        }
        list()
            .and_then(|list| AccessList::parse(list.as_ref()))
            .is_some_and(|list| list.allows(*uid, groups, access.gid, wanted))
    }
}

/// What an entry of an access list is about, in the numbers of the kernel's `posix_acl_xattr.h`.
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// The value of `system.posix_acl_access`.
struct AccessList(Vec<(u16, u32, u32)>);

impl AccessList {
    fn parse(bytes: &[u8]) -> Option<AccessList> {
        let (version, entries) = bytes.split_first_chunk()?;
        if u32::from_le_bytes(*version) != 2 || !entries.len().is_multiple_of(8) {
            return None;
        }
        let entry = |entry: &[u8]| {
            let short = |at: usize| Some(u16::from_le_bytes(*entry.get(at..)?.first_chunk()?));
            let id = u32::from_le_bytes(*entry.get(4..)?.first_chunk()?);
            Some((short(0)?, u32::from(short(2)?), id))
        };
        entries.chunks_exact(8).map(entry).collect::<Option<_>>().map(AccessList)
    }

    /// The rule of acl(5), of somebody who isn't the owner.
    fn allows(&self, uid: u32, groups: &[u32], owning: u32, wanted: u32) -> bool {
        let rights = |kind| self.0.iter().find(|entry| entry.0 == kind).map(|entry| entry.1);
        let mask = rights(MASK).unwrap_or(0o7);
        if let Some(named) = self.0.iter().find(|entry| entry.0 == USER && entry.2 == uid) {
            return named.1 & mask & wanted == wanted;
        }
        let mut of_groups = self.0.iter().filter(|(kind, _, id)| match *kind {
            GROUP_OBJ => groups.contains(&owning),
            GROUP => groups.contains(id),
            _ => false,
        });
        let mut is_member = false;
        let is_allowed = of_groups.any(|entry| {
            is_member = true;
            entry.1 & mask & wanted == wanted
        });
        is_allowed || (!is_member && rights(OTHER).is_some_and(|rights| rights & wanted == wanted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(mode: u32, acl: u64) -> Access {
        Access { mode, uid: 1, gid: 10, acl }
    }

    fn user(uid: u32, groups: &[u32]) -> Asker {
        Asker::User { uid, groups: groups.into() }
    }

    fn no_list() -> Option<Vec<u8>> {
        panic!("it has none")
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        // The owner is kept out though all others may look.
        assert!(!user(1, &[10]).may_list(&access(0o055, 0), no_list));
        assert!(!user(2, &[10]).may_list(&access(0o705, 0), no_list));
        assert!(user(2, &[11]).may_list(&access(0o705, 0), no_list));
        assert!(user(2, &[11, 10]).may_list(&access(0o750, 0), no_list));
        for unsearchable in [0o744, 0o711] {
            assert!(!user(2, &[11]).may_list(&access(unsearchable, 0), no_list), "{unsearchable:o}");
        }
        let passage = access(0o711, 0);
        assert!(user(2, &[]).may_search(&passage, no_list) && !user(2, &[10]).may_search(&access(0o701, 0), no_list));
        assert!(user(0, &[]).may_list(&access(0, 0), no_list));
        assert!(Asker::Everything.may_list(&access(0, 0), no_list));
    }

    #[test]
    fn an_access_list_names_users_and_groups() {
        let list = |entries: &[(u16, u16, u32)]| {
            let mut bytes = 2_u32.to_le_bytes().to_vec();
            for (kind, rights, id) in entries {
                bytes.extend(kind.to_le_bytes());
                bytes.extend(rights.to_le_bytes());
                bytes.extend(id.to_le_bytes());
            }
            Some(bytes)
        };
        let some = || {
            list(&[
                (0x01, 7, 0),
                (USER, 5, 7),
                (USER, 0, 8),
                (GROUP_OBJ, 5, 0),
                (GROUP, 0, 20),
                (MASK, 7, 0),
                (OTHER, 5, 0),
            ])
        };
        let may = |uid, groups: &[u32]| user(uid, groups).may_list(&access(0o40_750, 9), some);
        assert!(may(7, &[]), "named");
        assert!(!may(8, &[10]), "named, and kept out, though the group may");
        assert!(may(9, &[10]), "of the owning group");
        assert!(!may(9, &[20]), "of a group that is kept out, though others may");
        assert!(may(9, &[20, 10]), "one of the groups may");
        assert!(may(9, &[30]), "others may");
        let masked = || list(&[(0x01, 7, 0), (USER, 7, 7), (GROUP_OBJ, 7, 0), (MASK, 1, 0), (OTHER, 0, 0)]);
        assert!(!user(7, &[]).may_list(&access(0o40_710, 9), masked), "the mask takes it away");
        for odd in [None, Some(vec![2, 0, 0]), Some(vec![3, 0, 0, 0]), Some(vec![2, 0, 0, 0, 1])] {
            assert!(!user(7, &[]).may_list(&access(0o777, 9), || odd), "what can't be read allows nothing");
        }
    }
}
