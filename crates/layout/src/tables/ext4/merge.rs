//! Pieces on the disk, joined into large reads.

use crate::tables::cast::to_u32;

/// Blocks read through between two pieces, in bytes: a track or less, which costs a disk no more than to seek over it.
pub(super) const GAP_BYTES: u64 = 256 << 10;
/// Bytes of the largest read.
const REQUEST_BYTES: u64 = 4 << 20;

/// Blocks that lie together, and whose they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The first block.
    pub(super) block: u64,
    /// How many.
    pub(super) count: u32,
    /// Whose they are: an index of the caller's.
    pub(super) tag: u32,
    /// Blocks of the same caller's run before it, beginning with what the caller says.
    pub(super) offset: u32,
}

/// One read: its pieces lie within it, in the order of their blocks.
pub(super) struct Request<'a> {
    pub(super) block: u64,
    pub(super) count: u32,
    pub(super) pieces: &'a [Piece],
}

/// Joins pieces that are sorted by their blocks, as long as `each` gives true. Long ones are cut. A read has at most 4 MiB,
/// and gaps of up to `gap_bytes` are read through.
pub(super) fn merged(
    pieces: impl IntoIterator<Item = Piece>,
    gap_bytes: u64,
    block_bytes: u32,
    mut each: impl FnMut(Request<'_>) -> bool,
) -> bool {
    let most = (REQUEST_BYTES / u64::from(block_bytes)).max(1);
    let gap = gap_bytes / u64::from(block_bytes);
    let mut joined: Vec<Piece> = Vec::new();
    let (mut start, mut end) = (0, 0);
    for mut piece in pieces {
        while piece.count > 0 {
            let far = piece.block > end + gap || piece.block < start || piece.block >= start + most;
            if !joined.is_empty() && far {
                if !each(Request { block: start, count: to_u32(end - start), pieces: &joined }) {
                    return false;
                }
                joined.clear();
            }
            if joined.is_empty() {
                (start, end) = (piece.block, piece.block);
            }
            let count = to_u32(u64::from(piece.count).min(start + most - piece.block));
            joined.push(Piece { count, ..piece });
            end = end.max(piece.block + u64::from(count));
            piece.block += u64::from(count);
            // Behind the last block that a file can have there is no number left, nor anything to read.
            piece.offset = piece.offset.wrapping_add(count);
            piece.count -= count;
        }
    }
    joined.is_empty() || each(Request { block: start, count: to_u32(end - start), pieces: &joined })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(pieces: &[(u64, u32)]) -> Vec<(u64, u32, usize)> {
        let mut requests = Vec::new();
        let pieces = pieces.iter().map(|&(block, count)| Piece { block, count, tag: 0, offset: 0 });
        merged(pieces, GAP_BYTES, 4096, |request| {
            requests.push((request.block, request.count, request.pieces.len()));
            true
        });
        requests
    }

    #[test]
    fn near_pieces_are_one_read_and_long_ones_several() {
        assert_eq!(requests(&[]), []);
        assert_eq!(requests(&[(10, 2), (12, 1), (77, 1)]), [(10, 68, 3)]);
        assert_eq!(requests(&[(10, 1), (76, 1)]), [(10, 1, 1), (76, 1, 1)]);
        assert_eq!(requests(&[(5, 2500)]), [(5, 1024, 1), (1029, 1024, 1), (2053, 452, 1)]);
        assert_eq!(requests(&[(0, 1000), (1010, 100)]), [(0, 1024, 2), (1024, 86, 1)]);
        assert_eq!(requests(&[(7, 3), (7, 3)]), [(7, 3, 2)]);
    }
}
