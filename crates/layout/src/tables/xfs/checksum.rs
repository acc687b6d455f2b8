//! The checksum of XFS metadata: CRC-32C, with the field itself counted as zeros.

use crate::tables::crc32c::crc32c as update;

/// The CRC-32C of a structure whose four bytes at `field` hold it; a field beyond the end counts as not there.
pub(super) fn crc32c(bytes: &[u8], field: usize) -> u32 {
    let (before, rest) = bytes.split_at(field.min(bytes.len()));
    let sum = update(update(!0, before), &[0; 4][..rest.len().min(4)]);
    !update(sum, rest.get(4..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_counts_as_zeros() {
        let mut bytes: Vec<u8> = (0..=99).collect();
        let sum = crc32c(&bytes, 13);
        bytes[13..17].fill(0);
        assert_eq!(sum, !update(!0, &bytes));
        bytes[13..17].fill(7);
        assert_eq!(sum, crc32c(&bytes, 13));
        bytes[17] ^= 1;
        assert_ne!(sum, crc32c(&bytes, 13));
        // Nothing that a caller does, but nothing that may panic.
        crc32c(&bytes, 98);
        crc32c(&bytes, 1000);
    }
}
