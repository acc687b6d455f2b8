//! Bitmaps in which a bit that is not set stands for something free.

use crate::tables::cast::to_usize;

/// Visits the runs of bits that are not set: the number of the first, and how many. Bit 0 of each byte comes first; `count`
/// bits count, or as many as there are.
pub(super) fn clear_runs(bytes: &[u8], count: u64, each: &mut dyn FnMut(u64, u64)) {
    let count = count.min(bytes.len() as u64 * 8);
    let mut open = None;
    let mut at = 0;
    while at < count {
        let byte = bytes[to_usize(at / 8)];
        // Whole bytes are most of it.
        let (is_set, step) = match byte {
            0 | 0xff if at.is_multiple_of(8) => (byte != 0, 8),
            _ => (byte >> (at % 8) & 1 == 1, 1),
        };
        match (is_set, open) {
            (true, Some(first)) => {
                each(first, at - first);
                open = None;
            }
            (false, None) => open = Some(at),
            _ => {}
        }
        at += step;
    }
    if let Some(first) = open {
        each(first, count - first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(bytes: &[u8], count: u64) -> Vec<(u64, u64)> {
        let mut runs = Vec::new();
        clear_runs(bytes, count, &mut |first, count| runs.push((first, count)));
        runs
    }

    #[test]
    fn runs_of_clear_bits() {
        assert_eq!(runs(&[0b1110_0101, 0, 0xff, 0b0111_1111], 32), [(1, 1), (3, 2), (8, 8), (31, 1)]);
        assert_eq!(runs(&[0, 0], 11), [(0, 11)]);
        assert_eq!(runs(&[0xff, 0b1111_0000], 12), [(8, 4)]);
        assert_eq!(runs(&[0xff, 0xff], 16), []);
        assert_eq!(runs(&[0], 1000), [(0, 8)]);
        assert_eq!(runs(&[], 8), []);
    }
}
