//! The checksum of XFS metadata: CRC-32C, with the field itself counted as zeros.

/// The polynomial of Castagnoli, bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `TABLES[n][byte]` is what a byte does to the sum when `n` more bytes follow it in the same step.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let (mut byte, mut number) = (0, 0_u32);
    while byte < 256 {
        let mut sum = number;
        let mut bit = 0;
        while bit < 8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ POLYNOMIAL } else { sum >> 1 };
            bit += 1;
        }
        tables[0][byte] = sum;
        (byte, number) = (byte + 1, number + 1);
    }
    let mut further = 1;
    while further < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[further - 1][byte];
            tables[further][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        further += 1;
    }
    tables
}

/// Goes on with a sum over more bytes, eight in a step.
fn update(mut sum: u32, bytes: &[u8]) -> u32 {
    let (steps, rest) = bytes.as_chunks::<8>();
    for step in steps {
        let [a, b, c, d] = (sum ^ u32::from_le_bytes([step[0], step[1], step[2], step[3]])).to_le_bytes();
        sum = TABLES[7][usize::from(a)]
            ^ TABLES[6][usize::from(b)]
            ^ TABLES[5][usize::from(c)]
            ^ TABLES[4][usize::from(d)]
            ^ TABLES[3][usize::from(step[4])]
            ^ TABLES[2][usize::from(step[5])]
            ^ TABLES[1][usize::from(step[6])]
            ^ TABLES[0][usize::from(step[7])];
    }
    rest.iter().fold(sum, |sum, byte| sum >> 8 ^ TABLES[0][usize::from(sum.to_le_bytes()[0] ^ byte)])
}

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
    fn the_check_value_of_the_standard_comes_out() {
        assert_eq!(!update(!0, b"123456789"), 0xe306_9283);
        // RFC 3720, B.4.
        assert_eq!(!update(!0, &[0; 32]), 0x8a91_36aa);
        assert_eq!(!update(!0, &[0xff; 32]), 0x62a8_ab43);
    }

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
