//! POSIX ACLs: from the bytes of `system.posix_acl_access` and `system.posix_acl_default` to text.
//!
//! The kernel's form is a version (2) in four bytes, then eight bytes for each entry: tag, permissions, id, all little
//! endian.

use super::owner::Accounts;

const VERSION: u32 = 2;

/// Writes the ACL to `text` as `user::rwx,user:name:r-x,…`, with numbers for ids without a name.
///
/// Fails with what is wrong with the bytes; `text` is then of no use.
pub(super) fn to_text(
    value: &[u8],
    mut accounts: Option<&mut Accounts>,
    text: &mut Vec<u8>,
) -> Result<(), &'static str> {
    text.clear();
    let (version, entries) = value.split_first_chunk().ok_or("it is too short")?;
    if u32::from_le_bytes(*version) != VERSION {
        return Err("its version is unknown");
    }
    if entries.is_empty() || entries.len() % 8 != 0 {
        return Err("it is cut off");
    }
    for entry in entries.chunks_exact(8) {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        let permissions = u16::from_le_bytes([entry[2], entry[3]]);
        let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        if !text.is_empty() {
            text.push(b',');
        }
        match tag {
            0x01 => text.extend_from_slice(b"user::"),
            0x02 => qualified(text, b"user:", accounts.as_mut().map(|known| known.user(id)), id),
            0x04 => text.extend_from_slice(b"group::"),
            0x08 => qualified(text, b"group:", accounts.as_mut().map(|known| known.group(id)), id),
            0x10 => text.extend_from_slice(b"mask::"),
            0x20 => text.extend_from_slice(b"other::"),
            _ => return Err("it has an entry of an unknown sort"),
        }
        for (bit, letter) in [(4, b'r'), (2, b'w'), (1, b'x')] {
            text.push(if permissions & bit == 0 { b'-' } else { letter });
        }
    }
    Ok(())
}

fn qualified(text: &mut Vec<u8>, sort: &[u8], name: Option<&[u8]>, id: u32) {
    text.extend_from_slice(sort);
    match name {
        Some(name) if is_plain(name) => text.extend_from_slice(name),
        _ => text.extend_from_slice(id.to_string().as_bytes()),
    }
    text.push(b':');
}

/// A name that can't be taken for something else: not for a number, nor for the end of the field.
fn is_plain(name: &[u8]) -> bool {
    name.first().is_some_and(|first| !first.is_ascii_digit())
        && !name.iter().any(|&byte| byte <= b' ' || matches!(byte, b':' | b',' | b'#' | b'\\'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            value.extend_from_slice(&tag.to_le_bytes());
            value.extend_from_slice(&permissions.to_le_bytes());
            value.extend_from_slice(&id.to_le_bytes());
        }
        value
    }

    fn text(value: &[u8], accounts: Option<&mut Accounts>) -> Result<String, &'static str> {
        let mut text = Vec::new();
        to_text(value, accounts, &mut text).map(|()| String::from_utf8(text).unwrap())
    }

    #[test]
    fn writes_entries_in_their_order() {
        let value = binary(&[
            (1, 7, u32::MAX),
            (2, 5, 1000),
            (2, 1, 70_000),
            (4, 4, u32::MAX),
            (8, 6, 50),
            (0x10, 7, u32::MAX),
            (0x20, 0, u32::MAX),
        ]);
        let mut accounts = Accounts::parse(b"me:x:1000:1000::/:/bin/sh\n", b"a b:x:50:\n");
        assert_eq!(
            text(&value, Some(&mut accounts)).unwrap(),
            "user::rwx,user:me:r-x,user:70000:--x,group::r--,group:50:rw-,mask::rwx,other::---"
        );
        assert!(text(&value, None).unwrap().contains("user:1000:r-x"));
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        let good = binary(&[(1, 7, 0), (4, 7, 0), (0x20, 7, 0)]);
        assert!(text(&good, None).is_ok());
        for cut in 0..good.len() {
            // Whole entries can be missing unnoticed; nothing else can.
            assert_eq!(text(&good[..cut], None).is_ok(), cut > 4 && cut % 8 == 4, "{cut}");
        }
        assert!(text(&binary(&[(3, 7, 0)]), None).is_err());
        assert!(text(&[&[3, 0, 0, 0], &good[4..]].concat(), None).is_err());
    }
}
