//! LZNT1, the compression of NTFS: chunks of up to 4096 bytes, each a row of bytes and of references back.

use super::bytes::u16_at;

/// Bytes of content of a chunk.
const CHUNK_BYTES: usize = 4096;

/// What is wrong with compressed bytes, and at which byte of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadChunk {
    pub(super) offset: usize,
    pub(super) what: &'static str,
}

/// Decompresses into all of `to`; what the compressed bytes don't tell becomes zeros, as they may end early.
pub(super) fn decompress(from: &[u8], to: &mut [u8]) -> Result<(), BadChunk> {
    let mut offset = 0;
    for chunk in to.chunks_mut(CHUNK_BYTES) {
        let header = u16_at(from, offset).unwrap_or(0);
        if header == 0 {
            chunk.fill(0);
            continue;
        }
        let length = usize::from(header & 0x0fff) + 1;
        let bad = |what| BadChunk { offset, what };
        let body = from.get(offset + 2..offset + 2 + length).ok_or(bad("a chunk within the unit"))?;
        match header & 0x8000 {
            0 => copy(body, chunk),
            _ => decompress_chunk(body, chunk).map_err(|bad| BadChunk { offset: offset + 2 + bad.offset, ..bad })?,
        }
        offset += 2 + length;
    }
    Ok(())
}

/// A chunk that didn't get smaller.
fn copy(from: &[u8], to: &mut [u8]) {
    let length = from.len().min(to.len());
    to[..length].copy_from_slice(&from[..length]);
    to[length..].fill(0);
}

/// One chunk. Groups of eight elements, each after a byte that tells which of them are references.
fn decompress_chunk(from: &[u8], to: &mut [u8]) -> Result<(), BadChunk> {
    let (mut read, mut written) = (0, 0);
    'chunk: while let Some(tags) = from.get(read) {
        read += 1;
        for element in 0..8 {
            let Some(byte) = from.get(read) else {
                break 'chunk;
            };
            if written >= to.len() {
                break 'chunk;
            }
            if tags >> element & 1 == 0 {
                to[written] = *byte;
                (read, written) = (read + 1, written + 1);
                continue;
            }
            let bad = |what| BadChunk { offset: read, what };
            let reference = u16_at(from, read).ok_or(bad("a reference of two bytes"))?;
            // The further into the chunk, the more bits say how far back, and the fewer how long.
            let back_bits = (written.max(1) - 1).checked_ilog2().map_or(4, |log| (log + 1).max(4));
            let length_bits = 16_u32.saturating_sub(back_bits);
            let back = usize::from(reference >> length_bits) + 1;
            let length = usize::from(reference & ((1 << length_bits) - 1)) + 3;
            if back > written {
                return Err(bad("a reference to bytes of the chunk"));
            }
            // Byte by byte, since a reference may reach into what it makes.
            for _ in 0..length.min(to.len() - written) {
                to[written] = to[written - back];
                written += 1;
            }
            read += 2;
        }
    }
    to[written..].fill(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decompressed(from: &[u8], length: usize) -> Result<Vec<u8>, BadChunk> {
        let mut to = vec![0xaa; length];
        decompress(from, &mut to).map(|()| to)
    }

    /// The example of Microsoft's description, [MS-XCA] 3.3.
    #[test]
    fn the_example_of_the_description() {
        let compressed = [
            0x38, 0xb0, 0x88, 0x46, 0x23, 0x20, 0x00, 0x20, 0x47, 0x20, 0x41, 0x00, 0x10, 0xa2, 0x47, 0x01, 0xa0, 0x45,
            0x20, 0x44, 0x00, 0x08, 0x45, 0x01, 0x50, 0x79, 0x00, 0xc0, 0x45, 0x20, 0x05, 0x24, 0x13, 0x88, 0x05, 0xb4,
            0x02, 0x4a, 0x44, 0xef, 0x03, 0x58, 0x02, 0x8c, 0x09, 0x16, 0x01, 0x48, 0x45, 0x00, 0xbe, 0x00, 0x9e, 0x00,
            0x04, 0x01, 0x18, 0x90, 0x00,
        ];
        let text =
            b"F# F# G A A G F# E D D E F# F# E E F# F# G A A G F# E D D E F# E D D E E F# D E F# G F# D E F# G F# E D \
            E A F# F# G A A G F# E D D E F# E D D\0";
        assert_eq!(decompressed(&compressed, text.len()).unwrap(), text);
    }

    #[test]
    fn a_reference_may_reach_into_what_it_makes() {
        // 'a', then 4095 bytes from one byte back.
        let mut expected = vec![b'a'; 4096];
        assert_eq!(decompressed(&[0x03, 0xb0, 0x02, b'a', 0xfc, 0x0f], 4096).unwrap(), expected);
        // What is told beyond the chunk is cut off, what isn't told is zeros.
        assert_eq!(decompressed(&[0x03, 0xb0, 0x02, b'a', 0xff, 0x0f], 4096).unwrap(), expected);
        expected.extend([0; 4096]);
        assert_eq!(decompressed(&[0x03, 0xb0, 0x02, b'a', 0xfc, 0x0f, 0, 0], 8192).unwrap(), expected);
    }

    #[test]
    fn a_chunk_that_did_not_get_smaller() {
        let content: Vec<u8> = (0..4096_u32).map(|i| ((i * i) >> 3) as u8).collect();
        let compressed = [&[0xff, 0x3f], &content[..]].concat();
        assert_eq!(decompressed(&compressed, 4096).unwrap(), content);
        assert_eq!(decompressed(&compressed[..4000], 4096).unwrap_err().offset, 0);
    }

    #[test]
    fn references_before_the_chunk_are_damage() {
        assert_eq!(decompressed(&[0x02, 0xb0, 0x01, 0x00, 0x00], 64).unwrap_err().offset, 3);
        assert_eq!(decompressed(&[0x03, 0xb0, 0x02, b'a', 0x00, 0x10], 64).unwrap_err().offset, 4);
        assert_eq!(decompressed(&[0x01, 0xb0, 0x01, 0x00], 64).unwrap_err().offset, 3);
    }

    #[test]
    fn no_bytes_panic() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for round in 0..20_000 {
            let mut from: Vec<u8> = Vec::new();
            for _ in 0..round % 97 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                from.push((random >> 56) as u8);
            }
            if let Some(second) = from.get_mut(1) {
                *second |= 0x80;
            }
            let _ = decompressed(&from, 8192 + round % 5000);
        }
    }
}
