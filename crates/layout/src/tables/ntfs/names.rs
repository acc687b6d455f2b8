//! Names: UTF-16 on the disk, UTF-8 as ntfs-3g shows them.

use super::{
    bytes::{slice_at, u64_at},
    record::Reference,
};

/// A `$FILE_NAME`: a name, and the directory that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileName<'a> {
    pub(super) directory: Reference,
    /// UTF-16LE.
    pub(super) name: &'a [u8],
    /// Whether this is only what DOS programs see of another name.
    pub(super) is_dos: bool,
}

impl<'a> FileName<'a> {
    /// Reads the value of the attribute, which is the key of an index entry, too.
    pub(super) fn parse(value: &'a [u8]) -> Option<FileName<'a>> {
        let length = 2 * usize::from(*value.get(64)?);
        Some(FileName {
            directory: Reference::new(u64_at(value, 0)?),
            name: slice_at(value, 66, length)?,
            is_dos: *value.get(65)? == 2,
        })
    }
}

/// Appends UTF-16LE as UTF-8. Halves of pairs that stand alone, which Windows allows, become three bytes each (WTF-8), as
/// ntfs-3g shows them: they would not be told apart otherwise.
pub(super) fn append_utf8(name: &[u8], to: &mut Vec<u8>) {
    let units = name.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    for decoded in char::decode_utf16(units) {
        match decoded {
            Ok(decoded) => to.extend_from_slice(decoded.encode_utf8(&mut [0; 4]).as_bytes()),
            Err(alone) => {
                let unit = alone.unpaired_surrogate();
                to.push(0xe0 | (unit >> 12) as u8);
                to.push(0x80 | (unit >> 6 & 0x3f) as u8);
                to.push(0x80 | (unit & 0x3f) as u8);
            }
        }
    }
}

/// UTF-16LE as UTF-8; see [`append_utf8`].
pub(super) fn utf8(name: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.len());
    append_utf8(name, &mut bytes);
    bytes
}

/// Whether a name may stand in a path. A damaged or forged one could lead out of its directory.
pub(super) fn is_file_name(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}

/// Whether UTF-16LE is this ASCII text.
pub(super) fn is_ascii(name: &[u8], text: &[u8]) -> bool {
    name.len() == 2 * text.len() && name.chunks_exact(2).zip(text).all(|(unit, byte)| unit == [*byte, 0])
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The value of a `$FILE_NAME`.
    pub(in super::super) fn on_disk(directory: Reference, name: &str, namespace: u8) -> Vec<u8> {
        let name: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let mut value = vec![0; 66];
        value[..8].copy_from_slice(&(directory.number | u64::from(directory.sequence) << 48).to_le_bytes());
        value[64] = (name.len() / 2) as u8;
        value[65] = namespace;
        value.extend(name);
        value
    }

    #[test]
    fn names_of_every_plane() {
        for name in ["a", "ä\nß", "漢字", "😀 emoji 🂡", "\u{ffff}"] {
            let utf16: Vec<u8> = name.encode_utf16().flat_map(u16::to_le_bytes).collect();
            assert_eq!(utf8(&utf16), name.as_bytes());
        }
        // A half alone, and two in the wrong order.
        assert_eq!(utf8(&[0x3d, 0xd8]), [0xed, 0xa0, 0xbd]);
        assert_eq!(utf8(&[0x00, 0xde, 0x3d, 0xd8, 0x61, 0]), [0xed, 0xb8, 0x80, 0xed, 0xa0, 0xbd, b'a']);
    }

    #[test]
    fn a_file_name_has_its_directory() {
        let directory = Reference { number: 5, sequence: 5 };
        let value = on_disk(directory, "name", 1);
        let name = FileName::parse(&value).unwrap();
        assert_eq!((name.directory, utf8(name.name), name.is_dos), (directory, b"name".to_vec(), false));
        assert!(FileName::parse(&on_disk(directory, "NAME~1", 2)).unwrap().is_dos);
        for length in 0..value.len() {
            assert_eq!(FileName::parse(&value[..length]), None);
        }
    }

    #[test]
    fn no_name_leads_out_of_its_directory() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
            assert!(!is_file_name(bad));
        }
        assert!(is_file_name(b"...") && is_file_name(b"a\nb"));
    }
}
