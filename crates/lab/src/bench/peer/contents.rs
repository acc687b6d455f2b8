//! Bytes that are known without being read: each block by its number and a seed.

pub(super) const BLOCK: usize = 4096;

/// No two blocks are alike, and none is of zeros.
pub(super) fn block(seed: u64, number: u64) -> [u8; BLOCK] {
    let mut bytes = [0; BLOCK];
    let first = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number.wrapping_mul(512));
    for (word, at) in bytes.chunks_exact_mut(8).zip(0_u64..) {
        word.copy_from_slice(&(first.wrapping_add(at).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1).to_le_bytes());
    }
    bytes
}

/// Whether bytes that lie at `at` are those of the seed.
pub(super) fn are_right(seed: u64, at: u64, bytes: &[u8]) -> bool {
    let first = at / BLOCK as u64;
    bytes.chunks(BLOCK).zip(first..).all(|(bytes, number)| bytes == &block(seed, number)[..bytes.len()])
}

/// Writes blocks from the first on.
pub(super) fn write(to: &mut impl std::io::Write, seed: u64, bytes: u64) -> std::io::Result<()> {
    (0..bytes / BLOCK as u64).try_for_each(|number| to.write_all(&block(seed, number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_told_apart() {
        let mut bytes = Vec::new();
        write(&mut bytes, 7, 3 * BLOCK as u64).unwrap();
        assert!(are_right(7, 0, &bytes) && are_right(7, 2 * BLOCK as u64, &bytes[2 * BLOCK..]));
        assert!(!are_right(8, 0, &bytes) && !are_right(7, BLOCK as u64, &bytes));
        assert_ne!(block(7, 1), block(7, 2));
    }
}
