//! Where on its devices an address of btrfs lies.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::BorrowedFd;

use onesweep_sys::btrfs::{self, Key, SearchBuffer};
use thiserror::Error;

use super::fields::Fields;
use super::items::ItemError;
use super::{FIRST_CHUNK_TREE, kind, tree};
use crate::tables::cast::to_usize;

/// Chunks that a map holds at most: a pebibyte of chunks of a gibibyte.
const CHUNKS_MAX: usize = 1 << 20;

/// How the bytes of a chunk are spread over its stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// One after the other on one device.
    Single,
    /// The same on each stripe, all on one device (`DUP`) or each on another (RAID 1, 1c3, 1c4).
    Mirrored,
    /// In turns on all stripes (RAID 0).
    Striped,
    /// In turns on groups of stripes that hold the same (RAID 10).
    StripedMirrors,
    /// In turns on all stripes but the last so many of each row, which hold parity and move on by one with each row
    /// (RAID 5: 1, RAID 6: 2).
    Parity(u16),
}

/// One of the places that a chunk is kept at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// The number of the device.
    pub device: u64,
    /// The byte of it where the stripe begins.
    pub offset: u64,
}

/// A run of addresses with one profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The address of its first byte.
    pub address: u64,
    /// Its bytes, each of them counted once.
    pub length: u64,
    /// It holds content of files.
    pub is_data: bool,
    /// How it is spread.
    pub profile: Profile,
    /// Bytes that lie in a row on one stripe.
    pub stripe_bytes: u64,
    /// Stripes that hold the same, in RAID 10.
    pub sub_stripes: u16,
    /// Where it lies; at least one.
    pub stripes: Vec<Stripe>,
}

/// Which of several copies of the same bytes is meant: the first, or the last of the numbers that there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mirror(pub u16);

/// Bytes of a chunk that are read of one copy before it is the turn of the next, where copies take turns: enough that a
/// head streams for most of its time, and few beside what is swept.
pub const COPY_TURN: u64 = 16 << 20;

/// Copies on several devices that can take turns; btrfs has no profile with more.
const COPIES_MAX: u16 = 4;

/// A byte of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The number of the device.
    pub device: u64,
    /// The byte of it.
    pub byte: u64,
    /// Bytes from there on that lie in a row, and belong to addresses in a row.
    pub run: u64,
}

const TYPE_DATA: u64 = 1;
const RAID0: u64 = 1 << 3;
const RAID1: u64 = 1 << 4;
const DUP: u64 = 1 << 5;
const RAID10: u64 = 1 << 6;
const RAID5: u64 = 1 << 7;
const RAID6: u64 = 1 << 8;
const RAID1C3: u64 = 1 << 9;
const RAID1C4: u64 = 1 << 10;
const PROFILES: u64 = RAID0 | RAID1 | DUP | RAID10 | RAID5 | RAID6 | RAID1C3 | RAID1C4;

impl Chunk {
    /// From the bytes of a `CHUNK_ITEM`, of which the key's offset is the address.
    pub fn parse(address: u64, bytes: &[u8]) -> Result<Chunk, ItemError> {
        let mut fields = Fields::new("chunk", bytes);
        let length = fields.u64()?;
        if length == 0 || address.checked_add(length).is_none() {
            return Err(fields.odd("length", length, "some bytes within 64 bits"));
        }
        fields.skip(8)?; // its owner
        let stripe_bytes = fields.u64()?;
        let flags = fields.u64()?;
        fields.skip(12)?; // sizes of blocks
        let (count, sub_stripes) = (fields.u16()?, fields.u16()?);
        if count == 0 {
            return Err(fields.odd("number of stripes", count.into(), "one at least"));
        }
        let profile = match flags & PROFILES {
            0 => Profile::Single,
            RAID1 | RAID1C3 | RAID1C4 | DUP => Profile::Mirrored,
            RAID0 => Profile::Striped,
            RAID10 => Profile::StripedMirrors,
            RAID5 => Profile::Parity(1),
            RAID6 => Profile::Parity(2),
            profile => return Err(fields.odd("profile", profile, "one that is known")),
        };
        let is_in_turns = !matches!(profile, Profile::Single | Profile::Mirrored);
        if is_in_turns && !(stripe_bytes.is_power_of_two() && (512..=1 << 30).contains(&stripe_bytes)) {
            return Err(fields.odd("stripe length", stripe_bytes, "a power of two"));
        }
        let fits = match profile {
            Profile::StripedMirrors => sub_stripes > 0 && count.is_multiple_of(sub_stripes),
            Profile::Parity(parity) => count > parity,
            _ => true,
        };
        if !fits {
            return Err(fields.odd("number of stripes", count.into(), "what its profile needs"));
        }
        let mut stripes = Vec::new();
        for _ in 0..count {
            let stripe = Stripe { device: fields.u64()?, offset: fields.u64()? };
            fields.skip(16)?; // the device's name
            if stripe.offset.checked_add(length).is_none() {
                return Err(fields.odd("offset of a stripe", stripe.offset, "one that leaves it within 64 bits"));
            }
            stripes.push(stripe);
        }
        let is_data = flags & TYPE_DATA != 0;
        Ok(Chunk { address, length, is_data, profile, stripe_bytes, sub_stripes, stripes })
    }

    /// The address behind its last byte.
    pub fn end(&self) -> u64 {
        self.address + self.length
    }

    /// Devices that hold different parts of it.
    pub fn columns(&self) -> u64 {
        let stripes = self.stripes.len() as u64;
        match self.profile {
            Profile::Single | Profile::Mirrored => 1,
            Profile::Striped => stripes,
            Profile::StripedMirrors => stripes / u64::from(self.sub_stripes.max(1)),
            Profile::Parity(parity) => stripes - u64::from(parity),
        }
    }

    /// How many copies of each byte there are on as many devices; one where that are none or more than btrfs has names for.
    pub fn copies(&self) -> u16 {
        match self.profile {
            Profile::Mirrored => {
                let stripes = &self.stripes[..];
                let is_known = |at: usize| stripes[..at].iter().any(|other| other.device == stripes[at].device);
                let count = u16::try_from(stripes.len()).ok().filter(|&count| count <= COPIES_MAX);
                count.filter(|_| !(0..stripes.len()).any(is_known)).unwrap_or(1)
            }
            Profile::StripedMirrors if self.sub_stripes <= COPIES_MAX => self.sub_stripes,
            _ => 1,
        }
    }

    /// Where the byte with so many before it in the chunk lies.
    pub(super) fn place(&self, offset: u64, mirror: Mirror) -> Place {
        let at = |stripe: usize, byte: u64, run: u64| {
            let Stripe { device, offset } = self.stripes[stripe];
            Place { device, byte: offset + byte, run: run.min(self.length) }
        };
        let copy = |copies: usize| usize::from(mirror.0).min(copies - 1);
        let left = self.length - offset;
        // Striped over one device alone, too.
        if self.columns() == 1 && !matches!(self.profile, Profile::Parity(_)) {
            return at(copy(self.stripes.len()), offset, left);
        }
        let (element, within) = (offset / self.stripe_bytes, offset % self.stripe_bytes);
        let (row, column) = (element / self.columns(), element % self.columns());
        let stripes = self.stripes.len() as u64;
        let stripe = match self.profile {
            Profile::StripedMirrors => {
                let copies = usize::from(self.sub_stripes);
                to_usize(column) * copies + copy(copies)
            }
            Profile::Parity(_) => to_usize((row % stripes + column) % stripes),
            _ => to_usize(column),
        };
        at(stripe, row * self.stripe_bytes + within, (self.stripe_bytes - within).min(left))
    }
}

/// Why there is no map.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ChunkError {
    /// The kernel refused: not root, or another file system.
    #[error("the chunk tree cannot be read")]
    Io(#[from] io::Error),
    /// A chunk makes no sense.
    #[error("the chunk at address {address}")]
    Item {
        /// Where it begins.
        address: u64,
        /// What is wrong.
        #[source]
        cause: ItemError,
    },
    /// Two chunks have an address in common, or there are too many.
    #[error("the chunk at address {address} does not go with the others")]
    Odd {
        /// Where it begins.
        address: u64,
    },
}

/// All chunks of a btrfs. It is true for as long as none is moved; addresses of chunks that were made since are not known.
#[derive(Clone, Debug, Default)]
pub struct ChunkMap {
    by_address: BTreeMap<u64, Chunk>,
    mirror: Mirror,
    /// How many copies take turns; one where `mirror` alone counts.
    copies: u16,
}

impl ChunkMap {
    /// Asks for the chunks of the btrfs that `fd` lies on; needs root.
    ///
    /// Of several copies, `mirror` is the one that is told of. Which one the kernel reads nobody can tell for sure: unless
    /// the `read_policy` of the file system says otherwise, it goes by the number of the thread that reads.
    pub fn read(fd: BorrowedFd<'_>, mirror: Mirror) -> Result<ChunkMap, ChunkError> {
        let key = |offset| Key { objectid: FIRST_CHUNK_TREE, kind: kind::CHUNK_ITEM, offset };
        let mut chunks = Vec::new();
        let mut wrong = None;
        btrfs::search(fd, &mut SearchBuffer::default(), tree::CHUNKS, (key(0), key(u64::MAX)), &mut |item| {
            let address = item.key.offset;
            let chunk = Chunk::parse(address, item.data).map_err(|cause| ChunkError::Item { address, cause });
            match chunk {
                Ok(_) if chunks.len() == CHUNKS_MAX => wrong = Some(ChunkError::Odd { address }),
                Ok(chunk) => chunks.push(chunk),
                Err(error) => wrong = Some(error),
            }
            wrong.is_none()
        })?;
        wrong.map_or_else(|| ChunkMap::new(chunks, mirror), Err)
    }

    /// The map of these chunks, of which no two may have an address in common.
    pub fn new(chunks: Vec<Chunk>, mirror: Mirror) -> Result<ChunkMap, ChunkError> {
        let mut map = ChunkMap { by_address: BTreeMap::new(), mirror, copies: 1 };
        for chunk in chunks {
            let address = chunk.address;
            if chunk.stripes.is_empty() || map.by_address.insert(address, chunk).is_some() {
                return Err(ChunkError::Odd { address });
            }
        }
        let mut end = 0;
        for chunk in map.by_address.values() {
            if chunk.address < end {
                return Err(ChunkError::Odd { address: chunk.address });
            }
            end = chunk.end();
        }
        Ok(map)
    }

    /// The same map where copies on several devices take turns, [`COPY_TURN`] of a chunk each, for who can choose which copy
    /// the kernel reads. They don't where data has different numbers of copies.
    #[must_use]
    pub fn in_turns(self) -> ChunkMap {
        let data = self.by_address.values().filter(|chunk| chunk.is_data);
        let counts: BTreeSet<u16> = data.map(Chunk::copies).filter(|&copies| copies > 1).collect();
        let copies = counts.first().copied().filter(|_| counts.len() == 1);
        ChunkMap { copies: copies.unwrap_or(1), ..self }
    }

    /// How many copies of data take turns: one where they don't.
    pub fn copies(&self) -> u16 {
        self.copies.max(1)
    }

    /// How many copies of a chunk take turns.
    pub(super) fn turns_of(&self, chunk: &Chunk) -> u16 {
        if chunk.is_data && chunk.copies() == self.copies { self.copies } else { 1 }
    }

    /// The chunks by rising address.
    pub fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.by_address.values()
    }

    /// The chunk that has an address.
    pub fn chunk(&self, address: u64) -> Option<&Chunk> {
        self.by_address.range(..=address).next_back().map(|(_, chunk)| chunk).filter(|chunk| address < chunk.end())
    }

    /// Where an address lies; `None` when no chunk has it.
    pub fn place(&self, address: u64) -> Option<Place> {
        let chunk = self.chunk(address)?;
        let offset = address - chunk.address;
        Some(match self.turns_of(chunk) {
            0 | 1 => chunk.place(offset, self.mirror),
            copies => {
                let copy = u16::try_from(offset / COPY_TURN % u64::from(copies)).ok()?;
                let Place { device, byte, run } = chunk.place(offset, Mirror(copy));
                Place { device, byte, run: run.min(COPY_TURN - offset % COPY_TURN) }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRIPE: u64 = 64 << 10;

    fn item(length: u64, flags: u64, sub_stripes: u16, stripes: &[(u64, u64)]) -> Vec<u8> {
        let mut bytes = [length, 2, STRIPE, flags].map(u64::to_le_bytes).concat();
        bytes.extend([0; 12]);
        bytes.extend((stripes.len() as u16).to_le_bytes());
        bytes.extend(sub_stripes.to_le_bytes());
        for (device, offset) in stripes {
            bytes.extend([device, offset].map(|number| number.to_le_bytes()).concat());
            bytes.extend([0xaa; 16]);
        }
        bytes
    }

    fn place(flags: u64, sub_stripes: u16, stripes: &[(u64, u64)], offset: u64, mirror: u16) -> (u64, u64, u64) {
        let chunk = Chunk::parse(1 << 30, &item(1 << 20, flags, sub_stripes, stripes)).unwrap();
        let map = ChunkMap::new(vec![chunk], Mirror(mirror)).unwrap();
        let Place { device, byte, run } = map.place((1 << 30) + offset).unwrap();
        (device, byte, run)
    }

    #[test]
    fn profiles_are_laid_out_as_btrfs_does() {
        let two = &[(1, 100 << 20), (2, 200 << 20)][..];
        let four = &[(1, 100 << 20), (2, 200 << 20), (3, 300 << 20), (4, 400 << 20)][..];
        assert_eq!(place(TYPE_DATA, 0, &two[..1], 5000, 0), (1, (100 << 20) + 5000, (1 << 20) - 5000));
        assert_eq!(place(TYPE_DATA | DUP, 0, two, 5000, 0).0, 1);
        assert_eq!(place(TYPE_DATA | RAID1, 0, two, 5000, 1), (2, (200 << 20) + 5000, (1 << 20) - 5000));
        assert_eq!(place(TYPE_DATA | RAID1C3, 0, &four[..3], 0, 9), (3, 300 << 20, 1 << 20), "the last there is");
        // The third element of two columns is the second row of the first.
        assert_eq!(place(TYPE_DATA | RAID0, 0, two, 2 * STRIPE + 1, 0), (1, (100 << 20) + STRIPE + 1, STRIPE - 1));
        assert_eq!(place(TYPE_DATA | RAID0, 0, two, 3 * STRIPE, 1), (2, (200 << 20) + STRIPE, STRIPE));
        assert_eq!(place(TYPE_DATA | RAID0, 0, &two[..1], 5 * STRIPE, 0), (1, (100 << 20) + 5 * STRIPE, 11 * STRIPE));
        assert_eq!(place(TYPE_DATA | RAID10, 2, two, 5 * STRIPE, 1), (2, (200 << 20) + 5 * STRIPE, 11 * STRIPE));
        assert_eq!(place(TYPE_DATA | RAID10, 2, four, STRIPE, 0), (3, 300 << 20, STRIPE));
        assert_eq!(place(TYPE_DATA | RAID10, 2, four, STRIPE, 1), (4, 400 << 20, STRIPE));
        // Three columns in a row of four; parity moves on.
        assert_eq!(place(TYPE_DATA | RAID5, 0, four, 2 * STRIPE, 0), (3, 300 << 20, STRIPE));
        assert_eq!(place(TYPE_DATA | RAID5, 0, four, 3 * STRIPE, 0), (2, (200 << 20) + STRIPE, STRIPE));
        assert_eq!(place(TYPE_DATA | RAID5, 0, four, 5 * STRIPE, 0), (4, (400 << 20) + STRIPE, STRIPE));
        assert_eq!(place(TYPE_DATA | RAID6, 0, four, 3 * STRIPE, 0), (3, (300 << 20) + STRIPE, STRIPE));
    }

    #[test]
    fn chunks_that_cannot_be_are_refused() {
        let two = &[(1, 0), (2, 0)][..];
        let said = |bytes: Vec<u8>| Chunk::parse(1 << 30, &bytes).unwrap_err().to_string();
        assert!(said(item(0, 0, 0, two)).contains("length is 0"));
        assert!(said(item(u64::MAX, 0, 0, two)).contains("length"));
        assert!(said(item(1, 0, 0, &[])).contains("number of stripes is 0"));
        assert!(said(item(1, RAID0 | RAID1, 0, two)).contains("profile"));
        assert!(said(item(1, RAID10, 0, two)).contains("number of stripes is 2"));
        assert!(said(item(1, RAID6, 0, two)).contains("number of stripes is 2"));
        assert!(said(item(2, 0, 0, &[(1, u64::MAX - 1)])).contains("offset of a stripe"));
        assert!(said(item(1, 0, 0, two)[..100].to_vec()).contains("needs"));
        let mut odd = item(1, RAID0, 0, two);
        odd[16] = 1;
        assert!(said(odd).contains("stripe length"));
    }

    #[test]
    fn copies_take_turns_where_they_are_on_several_devices() {
        const TURN: u64 = COPY_TURN;
        let chunk = |address: u64, flags, sub_stripes, stripes: &[(u64, u64)]| {
            Chunk::parse(address * TURN, &item(8 * TURN, flags, sub_stripes, stripes)).unwrap()
        };
        let map = |chunks: &[Chunk]| ChunkMap::new(chunks.to_vec(), Mirror(0)).unwrap().in_turns();
        let (two, dup) = (&[(1, 0), (2, 5 * TURN)][..], &[(1, 9 * TURN), (1, 30 * TURN)][..]);
        let four = &[(1, 0), (2, 0), (3, 0), (4, 0)][..];
        let mirrored = map(&[chunk(0, TYPE_DATA | RAID1, 0, two), chunk(8, TYPE_DATA | DUP, 0, dup)]);
        assert_eq!(mirrored.copies(), 2);
        let place = |map: &ChunkMap, address| map.place(address).map(|place| (place.device, place.byte, place.run));
        assert_eq!(place(&mirrored, TURN - 7), Some((1, TURN - 7, 7)));
        assert_eq!(place(&mirrored, TURN), Some((2, 6 * TURN, TURN)));
        assert_eq!(place(&mirrored, 2 * TURN), Some((1, 2 * TURN, TURN)));
        assert_eq!(place(&mirrored, 9 * TURN), Some((1, 10 * TURN, 7 * TURN)), "one device has both");
        let striped = map(&[chunk(0, TYPE_DATA | RAID10, 2, four)]);
        assert_eq!([0, STRIPE].map(|address| place(&striped, address).unwrap().0), [1, 3]);
        assert_eq!([TURN, TURN + STRIPE].map(|address| place(&striped, address).unwrap().0), [2, 4]);
        // Which thread reads which copy depends on how many there are.
        let mixed = [chunk(0, TYPE_DATA | RAID1, 0, two), chunk(8, TYPE_DATA | RAID1C3, 0, &four[..3])];
        assert_eq!(map(&mixed).copies(), 1);
        assert_eq!(map(&[chunk(0, RAID1, 0, two)]).copies(), 1, "metadata");
    }

    #[test]
    fn a_map_has_no_address_twice() {
        let chunk = |address| Chunk::parse(address, &item(1 << 20, 0, 0, &[(1, 0)])).unwrap();
        assert!(ChunkMap::new(vec![chunk(0), chunk(1 << 20)], Mirror(0)).is_ok());
        for other in [0, 1, (1 << 20) - 1] {
            assert!(ChunkMap::new(vec![chunk(0), chunk(other)], Mirror(0)).is_err());
        }
        let map = ChunkMap::new(vec![chunk(1 << 20)], Mirror(0)).unwrap();
        assert_eq!([0, (1 << 20) - 1, 2 << 20].map(|address| map.place(address)), [None; 3]);
    }
}
