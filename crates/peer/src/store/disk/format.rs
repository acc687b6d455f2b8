//! The bytes of segments and of their indexes (docs/FORMATS.md). Pure.

use crate::id::{BLOCK_BYTES_MAX, DomainName, Hash};

const SEGMENT_MAGIC: [u8; 8] = *b"1SWPSEG\n";
const INDEX_MAGIC: [u8; 8] = *b"1SWPIDX\n";
const VERSION: u32 = 1;

/// Bytes of the head of both files.
pub(super) const HEAD_BYTES: usize = 48;
/// Bytes before those of a block.
pub(super) const RECORD_HEAD_BYTES: usize = Hash::BYTES + 4 + 4;
/// Bytes of the longest record.
pub(super) const RECORD_BYTES_MAX: usize = RECORD_HEAD_BYTES + BLOCK_BYTES_MAX;
/// Bytes of an entry of an index.
pub(super) const ENTRY_BYTES: usize = 16;
/// Bytes of the checksum at the end of an index.
const CHECKSUM_BYTES: usize = 32;

/// Why a file is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// Torn, or something else: nothing is lost but blocks.
    Damaged,
    /// Another version made it.
    Version(u32),
    /// It belongs to another trust domain.
    Domain,
}

/// Which file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Segment,
    Index,
}

impl Kind {
    const fn magic(self) -> [u8; 8] {
        match self {
            Self::Segment => SEGMENT_MAGIC,
            Self::Index => INDEX_MAGIC,
        }
    }
}

fn checksum<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut first = [0; N];
    first.copy_from_slice(&blake3::hash(bytes).as_bytes()[..N]);
    first
}

/// The head of the file with this number.
pub(super) fn head(kind: Kind, domain: DomainName, number: u32) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&kind.magic());
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    head[16..32].copy_from_slice(&domain.0);
    head[32..36].copy_from_slice(&number.to_le_bytes());
    let sum = checksum::<8>(&head[..40]);
    head[40..].copy_from_slice(&sum);
    head
}

/// Whether this is the head of the file with this number.
pub(super) fn check_head(bytes: &[u8], kind: Kind, domain: DomainName, number: u32) -> Result<(), Unusable> {
    let head: &[u8; HEAD_BYTES] = bytes.first_chunk().ok_or(Unusable::Damaged)?;
    if head[..8] != kind.magic() {
        return Err(Unusable::Damaged);
    }
    // Before all else: what follows may have another shape.
    let version = u32_at(head, 8);
    if version != VERSION {
        return Err(Unusable::Version(version));
    }
    if checksum::<8>(&head[..40]) != head[40..] || u32_at(head, 32) != number {
        return Err(Unusable::Damaged);
    }
    if head[16..32] == domain.0 { Ok(()) } else { Err(Unusable::Domain) }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(four)
}

/// The head of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHead {
    pub(super) hash: Hash,
    pub(super) length: u32,
}

impl RecordHead {
    /// The check covers where it lies, so that no old bytes pass for a record.
    fn check(&self, number: u32, offset: u32) -> [u8; 4] {
        let mut bytes = [0; 12 + Hash::BYTES];
        bytes[..4].copy_from_slice(&number.to_le_bytes());
        bytes[4..8].copy_from_slice(&offset.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.length.to_le_bytes());
        bytes[12..].copy_from_slice(self.hash.as_bytes());
        checksum(&bytes)
    }

    /// Appends it, as it lies in a segment at an offset.
    pub(super) fn encode(&self, number: u32, offset: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(self.hash.as_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out.extend_from_slice(&self.check(number, offset));
    }

    /// None where no record begins.
    pub(super) fn decode(bytes: &[u8], number: u32, offset: u32) -> Option<Self> {
        let bytes: &[u8; RECORD_HEAD_BYTES] = bytes.first_chunk()?;
        let hash = Hash::from_bytes(*bytes.first_chunk()?);
        let head = Self { hash, length: u32_at(bytes, Hash::BYTES) };
        let is_block = (1..=BLOCK_BYTES_MAX as u32).contains(&head.length);
        (is_block && head.check(number, offset) == bytes[Hash::BYTES + 4..]).then_some(head)
    }
}

/// Where a block lies, in the index of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The first bytes of the hash ([`Hash::prefix`]).
    pub(super) prefix: u64,
    /// Where the record begins.
    pub(super) offset: u32,
    /// Bytes of the block.
    pub(super) length: u32,
}

/// The index of a segment whose records end at `end`.
pub(super) fn encode_index(domain: DomainName, number: u32, end: u32, entries: &[Entry]) -> Vec<u8> {
    let mut out = head(Kind::Index, domain, number).to_vec();
    out.extend_from_slice(&end.to_le_bytes());
    out.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    for entry in entries {
        out.extend_from_slice(&entry.prefix.to_le_bytes());
        out.extend_from_slice(&entry.offset.to_le_bytes());
        out.extend_from_slice(&entry.length.to_le_bytes());
    }
    let sum = checksum::<CHECKSUM_BYTES>(&out);
    out.extend_from_slice(&sum);
    out
}

/// Reads an index: where the records end, and what there is.
pub(super) fn decode_index(bytes: &[u8], domain: DomainName, number: u32) -> Result<(u32, Vec<Entry>), Unusable> {
    check_head(bytes, Kind::Index, domain, number)?;
    let (body, sum) = bytes.split_last_chunk::<CHECKSUM_BYTES>().ok_or(Unusable::Damaged)?;
    let rest = body.get(HEAD_BYTES + 8..).ok_or(Unusable::Damaged)?;
    if checksum::<CHECKSUM_BYTES>(body) != *sum {
        return Err(Unusable::Damaged);
    }
    let (end, count) = (u32_at(body, HEAD_BYTES), u32_at(body, HEAD_BYTES + 4));
    let (entries, beyond) = rest.as_chunks::<ENTRY_BYTES>();
    if entries.len() != count as usize || !beyond.is_empty() {
        return Err(Unusable::Damaged);
    }
    let entry = |bytes: &[u8; ENTRY_BYTES]| {
        let prefix = u64::from(u32_at(bytes, 0)) | u64::from(u32_at(bytes, 4)) << 32;
        Entry { prefix, offset: u32_at(bytes, 8), length: u32_at(bytes, 12) }
    };
    Ok((end, entries.iter().map(entry).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOMAIN: DomainName = DomainName([9; 16]);

    #[test]
    fn each_changed_byte_of_a_head_or_an_index_is_seen() {
        let entries =
            [Entry { prefix: u64::MAX - 5, offset: 48, length: 4096 }, Entry { prefix: 1, offset: 4184, length: 7 }];
        let index = encode_index(DOMAIN, 3, 4231, &entries);
        assert_eq!(decode_index(&index, DOMAIN, 3), Ok((4231, entries.to_vec())));
        for at in 0..index.len() {
            let mut changed = index.clone();
            changed[at] ^= 0x10;
            decode_index(&changed, DOMAIN, 3).unwrap_err();
            decode_index(&index[..at], DOMAIN, 3).unwrap_err();
        }
        assert_eq!(decode_index(&index, DOMAIN, 4), Err(Unusable::Damaged));
        assert_eq!(decode_index(&index, DomainName([8; 16]), 3), Err(Unusable::Domain));
        let mut newer = index;
        newer[8] = 2;
        assert_eq!(decode_index(&newer, DOMAIN, 3), Err(Unusable::Version(2)));
    }

    #[test]
    fn a_record_is_one_only_where_it_was_written() {
        let head = RecordHead { hash: Hash::from_bytes([5; 32]), length: 4096 };
        let mut bytes = Vec::new();
        head.encode(7, 48, &mut bytes);
        assert_eq!(RecordHead::decode(&bytes, 7, 48), Some(head));
        assert_eq!(RecordHead::decode(&bytes, 8, 48), None);
        assert_eq!(RecordHead::decode(&bytes, 7, 49), None);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(RecordHead::decode(&changed, 7, 48), None);
            assert_eq!(RecordHead::decode(&bytes[..at], 7, 48), None);
        }
        assert_eq!(RecordHead::decode(&[0; RECORD_HEAD_BYTES], 7, 48), None);
    }
}
