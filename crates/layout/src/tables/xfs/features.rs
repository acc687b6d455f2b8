//! The features of a version 5 file system that change how it is read, by the names of its own tools.

use crate::tables::{Sign, TableError};

/// Directory entries tell the type of the file.
pub(super) const FTYPE: u32 = 1;
/// Chunks of inodes may have holes.
pub(super) const SPARSE_INODES: u32 = 1 << 1;
/// Metadata keeps the UUID of the day it was made.
pub(super) const META_UUID: u32 = 1 << 2;
/// Something broke, and xfs_repair has to run before anything else.
const NEEDS_REPAIR: u32 = 1 << 4;

/// What is known: the bits that this reader is right about.
const READ: u32 = FTYPE
    | SPARSE_INODES
    | META_UUID
    | 1 << 3 // bigtime: each inode says so itself
    | 1 << 5 // nrext64: each inode says so itself
    | 1 << 6 // exchange: swaps the content of two files at once
    | 1 << 7 // parent: attributes that name the directories of a file, which the kernel doesn't show
    | 1 << 8; // metadir: inodes that are marked as internal

/// What is known by name only.
const NAMED: [(u32, &str); 2] = [(1 << 9, "zoned"), (1 << 10, "zone_gaps")];

/// Fails when there is a bit of `incompat`, which lies at byte `at`, that would make what is read here wrong.
pub(super) fn check_incompat(incompat: u32, at: u64) -> Result<(), TableError> {
    let unsupported = |feature: String, advice| {
        let sign = Sign::new(at, format!("no bits but {:#x}", READ & !NEEDS_REPAIR), format!("{incompat:#x}"));
        TableError::Unsupported { feature, sign: Some(sign), advice }
    };
    if incompat & NEEDS_REPAIR != 0 {
        return Err(unsupported(
            "needsrepair".to_owned(),
            "run xfs_repair on it, which an interrupted repair left undone",
        ));
    }
    let unknown = incompat & !READ;
    if unknown == 0 {
        return Ok(());
    }
    let bit = 1 << unknown.trailing_zeros();
    let name = NAMED.iter().find(|(named, _)| *named == bit).map(|(_, name)| (*name).to_owned());
    let name = name.unwrap_or_else(|| format!("incompatible feature bit {bit:#x}"));
    Err(unsupported(name, "mount it, and read it through the kernel"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_bits_are_refused_by_name() {
        assert!(check_incompat(FTYPE | SPARSE_INODES | META_UUID | 1 << 3 | 1 << 5, 216).is_ok());
        for (bits, name) in [(1 << 4, "needsrepair"), (1 << 9 | 1, "zoned"), (1 << 31, "bit 0x80000000")] {
            let error = check_incompat(bits, 216).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("byte 216"), "{error}");
        }
    }
}
