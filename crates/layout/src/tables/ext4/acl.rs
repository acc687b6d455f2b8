//! POSIX ACLs: ext4 keeps them shorter than the kernel shows them.

use super::fields::{le16, le32};

/// Entries of named users and groups alone have a number.
const USER: u16 = 0x02;
const GROUP: u16 = 0x08;

/// The value of `system.posix_acl_access` or `…_default` for what ext4 keeps: version 2 and entries of 8 bytes instead of
/// version 1 and entries of 4 or 8. `None` for what is no ACL.
pub(super) fn kernel_form(kept: &[u8]) -> Option<Vec<u8>> {
    if kept.len() < 4 || le32(kept, 0) != 1 {
        return None;
    }
    let mut shown = 2_u32.to_le_bytes().to_vec();
    let mut rest = &kept[4..];
    while !rest.is_empty() {
        let named = matches!(le16(rest, 0), USER | GROUP);
        let (entry, behind) = rest.split_at_checked(if named { 8 } else { 4 })?;
        shown.extend_from_slice(entry);
        if !named {
            shown.extend_from_slice(&[0xFF; 4]);
        }
        rest = behind;
    }
    Some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_named_entries_keep_a_number() {
        let kept = [1, 0, 0, 0, 1, 0, 7, 0, 2, 0, 5, 0, 232, 3, 0, 0, 32, 0, 4, 0];
        let shown = [
            [2, 0, 0, 0].as_slice(),
            &[1, 0, 7, 0, 255, 255, 255, 255],
            &[2, 0, 5, 0, 232, 3, 0, 0],
            &[32, 0, 4, 0, 255, 255, 255, 255],
        ];
        assert_eq!(kernel_form(&kept), Some(shown.concat()));
        assert_eq!(kernel_form(&kept[..14]), None);
        assert_eq!(kernel_form(&[2, 0, 0, 0]), None);
    }
}
