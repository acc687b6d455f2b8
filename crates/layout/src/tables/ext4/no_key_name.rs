//! The names that encrypted directories show while their key is missing.

use sha2::{Digest, Sha256};

/// Bytes of a name that are shown as they are; what follows is hashed, so that any name fits into 255 bytes.
const SHOWN: usize = 149;

/// No encrypted name is shorter.
pub(super) const SHORTEST: usize = 16;

/// Appends what the kernel shows for an encrypted name: its two hashes in the directory (zeros where it has none) and its
/// bytes, in base64 for URLs without padding.
pub(super) fn encode(hash: [u32; 2], name: &[u8], shown: &mut Vec<u8>) {
    let mut bytes = Vec::with_capacity(8 + SHOWN + 32);
    bytes.extend_from_slice(&hash[0].to_le_bytes());
    // A name without a hash has no minor hash either.
    bytes.extend_from_slice(&(if hash[0] == 0 { 0 } else { hash[1] }).to_le_bytes());
    match name.split_at_checked(SHOWN) {
        Some((first, rest)) if !rest.is_empty() => {
            bytes.extend_from_slice(first);
            bytes.extend_from_slice(&Sha256::digest(rest));
        }
        _ => bytes.extend_from_slice(name),
    }
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for group in bytes.chunks(3) {
        let number = group.iter().fold(0, |number, &byte| number << 8 | u32::from(byte)) << (8 * (3 - group.len()));
        for digit in 0..=group.len() {
            shown.push(DIGITS[(number >> (18 - 6 * digit) & 63) as usize]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(hash: [u32; 2], name: &[u8]) -> String {
        let mut shown = Vec::new();
        encode(hash, name, &mut shown);
        String::from_utf8(shown).unwrap()
    }

    #[test]
    fn short_names_are_shown_whole_and_long_ones_hashed() {
        assert_eq!(encoded([0, 7], b""), "AAAAAAAAAAA");
        assert_eq!(encoded([0x0403_0201, 0x0807_0605], &[9]), "AQIDBAUGBwgJ");
        assert_eq!(encoded([1, 0], &[255; 16]).len(), 32);
        assert_eq!(encoded([1, 0], &[255; 149]).len(), 210);
        let long = encoded([1, 0], &[255; 150]);
        assert_eq!((long.len(), encoded([1, 0], &[255; 255]).len()), (252, 252));
        assert!(long.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'));
    }
}
