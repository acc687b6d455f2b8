//! The first sector of an index, and where the rest lies.

use crate::{
    id::{DomainName, Hash, TrustDomain},
    marks::Marks,
};

use super::IndexError;

const MAGIC: [u8; 16] = *b"onesweep index\r\n";
const VERSION: u32 = 1;
/// One sector: it is written whole or not at all.
pub(super) const BYTES: usize = 512;
/// The last bytes are a hash of those before.
const SUMMED: usize = BYTES - 32;
const MARKS_AT: usize = 96;
/// How many bytes marks may have.
const MARKS_MOST: usize = SUMMED - MARKS_AT - 2;
const SUM_CONTEXT: [u8; 32] = *b"onesweep index: sum of a header.";

/// Bytes that are marked at once while they are written.
pub const REGION_BYTES: u64 = 1 << 20;
/// The smallest and the largest block.
pub const BLOCK_BYTES_LEAST: u32 = 4 << 10;
/// The largest block.
pub const BLOCK_BYTES_MOST: u32 = 64 << 10;

/// What an index is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// A power of two from 4 KiB to 64 KiB.
    pub block_bytes: u32,
    /// The device or image. Its last block may be shorter.
    pub device_bytes: u64,
}

impl Geometry {
    /// `None` where the size of a block is no power of two from 4 KiB to 64 KiB.
    pub fn new(block_bytes: u32, device_bytes: u64) -> Option<Geometry> {
        let fits = block_bytes.is_power_of_two() && (BLOCK_BYTES_LEAST..=BLOCK_BYTES_MOST).contains(&block_bytes);
        fits.then_some(Geometry { block_bytes, device_bytes })
    }

    /// How many blocks.
    pub fn blocks(&self) -> u64 {
        self.device_bytes.div_ceil(u64::from(self.block_bytes))
    }

    /// Where a block begins, and how many bytes it has.
    pub fn place(&self, block: u64) -> (u64, usize) {
        let at = block * u64::from(self.block_bytes);
        (at, self.device_bytes.saturating_sub(at).min(u64::from(self.block_bytes)) as usize)
    }

    pub(super) fn regions(&self) -> u64 {
        self.device_bytes.div_ceil(REGION_BYTES)
    }

    pub(super) fn blocks_per_region(&self) -> u64 {
        REGION_BYTES / u64::from(self.block_bytes)
    }

    /// The bitmap of regions.
    pub(super) fn bitmap_at(&self) -> u64 {
        BYTES as u64
    }

    /// Two bits for each block.
    pub(super) fn states_at(&self) -> u64 {
        self.bitmap_at() + self.regions().div_ceil(8).next_multiple_of(BYTES as u64)
    }

    pub(super) fn hashes_at(&self) -> u64 {
        self.states_at() + self.blocks().div_ceil(4).next_multiple_of(BYTES as u64)
    }

    /// How many bytes an index has.
    pub fn index_bytes(&self) -> u64 {
        self.hashes_at() + 32 * self.blocks()
    }
}

/// The header.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Header {
    pub(super) geometry: Geometry,
    pub(super) domain: DomainName,
    /// The marks of the device when the index was closed; `None` while it is open, and where nobody could tell.
    pub(super) closed: Option<Marks>,
}

impl Header {
    pub(super) fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..16].copy_from_slice(&MAGIC);
        bytes[16..20].copy_from_slice(&VERSION.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.geometry.block_bytes.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.geometry.device_bytes.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.domain.0);
        let marks = self.closed.as_ref().map(Marks::encode).filter(|marks| marks.len() <= MARKS_MOST);
        if let Some(marks) = marks {
            bytes[64] = 1;
            bytes[MARKS_AT..MARKS_AT + 2].copy_from_slice(&(marks.len() as u16).to_le_bytes());
            bytes[MARKS_AT + 2..MARKS_AT + 2 + marks.len()].copy_from_slice(&marks);
        }
        let sum = sum(&bytes[..SUMMED]);
        bytes[SUMMED..].copy_from_slice(sum.as_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; BYTES]) -> Result<Header, IndexError> {
        if bytes[..16] != MAGIC {
            return Err(IndexError::NoIndex);
        }
        let version = u32_at(bytes, 16);
        if version != VERSION {
            return Err(IndexError::Version { found: version, known: VERSION });
        }
        if sum(&bytes[..SUMMED]).as_bytes()[..] != bytes[SUMMED..] {
            return Err(IndexError::Damaged { what: "the sum of its header" });
        }
        let device_bytes = u64::from(u32_at(bytes, 24)) | u64::from(u32_at(bytes, 28)) << 32;
        let geometry = Geometry::new(u32_at(bytes, 20), device_bytes);
        let geometry = geometry.ok_or(IndexError::Damaged { what: "the size of its blocks" })?;
        let mut domain = DomainName([0; DomainName::BYTES]);
        domain.0.copy_from_slice(&bytes[32..48]);
        let length = usize::from(u16::from_le_bytes([bytes[MARKS_AT], bytes[MARKS_AT + 1]]));
        let marks = bytes[..SUMMED].get(MARKS_AT + 2..MARKS_AT + 2 + length);
        // Marks of another kind than is known now are those of another device.
        let closed = marks.filter(|_| bytes[64] == 1).and_then(Marks::decode);
        Ok(Header { geometry, domain, closed })
    }
}

fn sum(bytes: &[u8]) -> Hash {
    TrustDomain::from_key(SUM_CONTEXT).hash(bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        let closed = Some(Marks::of_file(7, (1, 2), (3, 4)));
        Header {
            geometry: Geometry::new(4096, 10_000_000).unwrap(),
            domain: DomainName([3; DomainName::BYTES]),
            closed,
        }
    }

    #[test]
    fn a_header_comes_back() {
        for header in [header(), Header { closed: None, ..header() }] {
            assert_eq!(Header::decode(&header.encode()).unwrap(), header);
        }
    }

    #[test]
    fn any_other_bit_is_refused() {
        let bytes = header().encode();
        for bit in 0..BYTES * 8 {
            let mut other = bytes;
            other[bit / 8] ^= 1 << (bit % 8);
            Header::decode(&other).unwrap_err();
        }
        let mut newer = bytes;
        newer[16] = 2;
        assert!(matches!(Header::decode(&newer), Err(IndexError::Version { found: 2, known: 1 })));
    }

    #[test]
    fn a_block_takes_at_most_36_bytes() {
        for (block_bytes, device_bytes) in [(4096, 4 << 20), (4096, 1 << 40), (65536, 32 << 20), (65536, 1 << 40)] {
            let geometry = Geometry::new(block_bytes, device_bytes).unwrap();
            assert!(geometry.index_bytes() <= 36 * geometry.blocks(), "{geometry:?}");
        }
        assert_eq!(Geometry::new(4096, 4097).unwrap().place(1), (4096, 1));
        assert_eq!(Geometry::new(2048, 4096), None);
        assert_eq!(Geometry::new(12288, 4096), None);
    }
}
