//! CRC-32C (Castagnoli), the checksum of the metadata of ext4 and XFS.

/// Adds bytes to a CRC-32C. It begins with all bits set; what the standard calls the sum is inverted at the end,
/// which ext4 leaves out.
///
/// By the processor's instructions for it, where it has them: each block of a directory is summed up when it is read.
pub(in crate::tables) fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
    !crc32c::crc32c_append(!crc, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_values_of_the_standard() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xE306_9283);
        // RFC 3720, B.4.
        assert_eq!(!crc32c(!0, &[0; 32]), 0x8A91_36AA);
        assert_eq!(!crc32c(!0, &[0xFF; 32]), 0x62A8_AB43);
    }

    /// As the standard defines it.
    fn bit_by_bit(crc: u32, bytes: &[u8]) -> u32 {
        let shift = |crc: u32, _| (crc >> 1) ^ if crc & 1 == 1 { 0x82F6_3B78 } else { 0 };
        bytes.iter().fold(crc, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), shift))
    }

    #[test]
    fn all_lengths_and_places_are_summed_as_bit_by_bit() {
        let bytes: Vec<u8> = (0..5000_u32).map(|at| ((at * at) >> 3) as u8).collect();
        for len in (0..300).chain([767, 768, 769, 1024, 4084, 4096, 4999]) {
            for from in 0..(bytes.len() - len).min(9) {
                let part = &bytes[from..from + len];
                assert_eq!(crc32c(7, part), bit_by_bit(7, part), "{len} bytes at {from}");
            }
        }
    }

    #[test]
    fn parts_and_the_whole_have_one_checksum() {
        let bytes: Vec<u8> = (0..=255).collect();
        let whole = crc32c(!0, &bytes);
        for cut in 0..bytes.len() {
            assert_eq!(crc32c(crc32c(!0, &bytes[..cut]), &bytes[cut..]), whole);
        }
    }
}
