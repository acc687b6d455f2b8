//! The checksums of ext4: CRC-32C, and CRC-16 where only group descriptors have one.

pub(super) use crate::tables::crc32c::crc32c;

/// Adds bytes to a CRC-16 (polynomial 0x8005, reflected).
pub(super) fn crc16(mut crc: u16, bytes: &[u8]) -> u16 {
    for &byte in bytes {
        crc = crc >> 8 ^ CRC16[usize::from(crc.to_le_bytes()[0] ^ byte)];
    }
    crc
}

static CRC16: [u16; 256] = {
    let mut table = [0; 256];
    let (mut byte, mut number) = (0, 0_u16);
    while byte < 256 {
        let mut crc = number;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xA001 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        (byte, number) = (byte + 1, number + 1);
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_crc_16() {
        assert_eq!(crc16(0, b"123456789"), 0xBB3D);
    }
}
