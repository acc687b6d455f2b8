//! POSIX ACLs: from the form on the disk to the one that the kernel shows.

/// The attributes of the root namespace that are ACLs, and the names under which they are shown.
pub(super) const NAMES: [(&[u8], &[u8]); 2] =
    [(b"SGI_ACL_FILE", b"system.posix_acl_access"), (b"SGI_ACL_DEFAULT", b"system.posix_acl_default")];

/// Tags of entries that are for a certain user or group.
const USER: u16 = 0x02;
const GROUP: u16 = 0x08;
/// Bytes of an entry on the disk.
const ENTRY_BYTES: usize = 12;

/// The value of `system.posix_acl_*`; `None` when the one on the disk is no ACL, or an empty one.
pub(super) fn shown(value: &[u8]) -> Option<Vec<u8>> {
    let (count, entries) = value.split_first_chunk::<4>()?;
    let count = usize::try_from(u32::from_be_bytes(*count)).ok()?;
    if count == 0 || entries.len() != count.checked_mul(ENTRY_BYTES)? {
        return None;
    }
    let mut shown = 2u32.to_le_bytes().to_vec();
    for entry in entries.as_chunks::<ENTRY_BYTES>().0 {
        let [t0, t1, t2, t3, i0, i1, i2, i3, p0, p1, ..] = *entry;
        let tag = u16::try_from(u32::from_be_bytes([t0, t1, t2, t3])).ok()?;
        let id = if matches!(tag, USER | GROUP) { u32::from_be_bytes([i0, i1, i2, i3]) } else { u32::MAX };
        shown.extend_from_slice(&tag.to_le_bytes());
        shown.extend_from_slice(&u16::from_be_bytes([p0, p1]).to_le_bytes());
        shown.extend_from_slice(&id.to_le_bytes());
    }
    Some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_shown_of_users_and_groups_alone() {
        let disk =
            [[0, 0, 0, 2], [0, 0, 0, 1], [0, 0, 3, 0xe8], [0, 6, 0, 0], [0, 0, 0, 4], [0; 4], [0, 5, 0, 0]].concat();
        let expected = [&[2, 0, 0, 0][..], &[1, 0, 6, 0, 255, 255, 255, 255], &[4, 0, 5, 0, 255, 255, 255, 255]];
        let mut changed = disk.clone();
        assert_eq!(shown(&disk), Some(expected.concat()));
        changed[7] = 2;
        assert_eq!(shown(&changed).unwrap()[4..12], [2, 0, 6, 0, 0xe8, 3, 0, 0]);
        assert_eq!(shown(&disk[..27]), None);
        assert_eq!(shown(&[0; 4]), None);
        assert_eq!(shown(&[0xff; 4]), None);
    }
}
