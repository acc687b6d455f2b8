//! The trees of a mounted btrfs: what their items say, and where on its devices its addresses lie.
//!
//! btrfs has addresses of its own, one space for all its devices, which its chunk tree maps to places on them. Everything
//! here parses bytes that others have read, but for [`ChunkMap::read`] and [`ItemExtents`], which ask
//! for items by [`search`](onesweep_sys::btrfs::search), as root.
//!
//! | module | subject |
//! |---|---|
//! | [`items`] | inodes, names, extents, roots |
//! | [`extents`] | [`ItemExtents`]: the extents of a file |
//! | [`chunks`] | [`ChunkMap`]: from an address of btrfs to a device and a byte of it |
//! | [`lanes`] | [`Lanes`]: addresses of several devices in one order, in which all of them are at work |
//! | [`nodes`] | [`leaves`]: where the leaves of trees lie |

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

pub mod chunks;
pub mod extents;
mod fields;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
pub mod items;
pub mod lanes;
pub mod nodes;

pub use chunks::{COPY_TURN, Chunk, ChunkMap, Mirror, Place, Profile, Stripe};
pub use extents::ItemExtents;
pub use items::{Attribute, DirItem, FileExtent, InodeItem, ItemError, NameRef, RootItem};
pub use lanes::{Lanes, UNIT};
pub use nodes::{Leaf, ReadNodes, Tree, leaves};

/// The numbers of trees.
pub mod tree {
    /// Roots of all others.
    pub const ROOTS: u64 = 1;
    /// Extents, and who refers to them.
    pub const EXTENTS: u64 = 2;
    /// Chunks and devices.
    pub const CHUNKS: u64 = 3;
    /// The topmost subvolume.
    pub const TOP_SUBVOLUME: u64 = 5;
    /// Checksums of data.
    pub const CHECKSUMS: u64 = 7;
}

/// The kinds of items.
pub mod kind {
    /// An inode.
    pub const INODE_ITEM: u8 = 1;
    /// A name of an inode, by the directory that has it.
    pub const INODE_REF: u8 = 12;
    /// The same for names that found no room there.
    pub const INODE_EXTREF: u8 = 13;
    /// An extended attribute.
    pub const XATTR_ITEM: u8 = 24;
    /// Names of a directory, by their hashes.
    pub const DIR_ITEM: u8 = 84;
    /// A name of a directory, by the order of making.
    pub const DIR_INDEX: u8 = 96;
    /// A part of a file.
    pub const EXTENT_DATA: u8 = 108;
    /// Checksums of a run of data.
    pub const EXTENT_CSUM: u8 = 128;
    /// The root of a tree.
    pub const ROOT_ITEM: u8 = 132;
    /// A subvolume below another.
    pub const ROOT_REF: u8 = 156;
    /// A chunk.
    pub const CHUNK_ITEM: u8 = 228;
}

/// The object that all chunks belong to.
pub const FIRST_CHUNK_TREE: u64 = 256;
/// The object that all checksums belong to.
pub const CHECKSUM_OBJECT: u64 = 10_u64.wrapping_neg();

#[cfg(test)]
mod tests {
    use super::*;
    use onesweep_sys::btrfs::Key;

    /// Rounds of each parser: a part of a second.
    const ROUNDS: usize = 50_000;

    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0
        }

        /// Some bytes; often small numbers, or the largest, where numbers may be.
        fn bytes(&mut self, into: &mut Vec<u8>) {
            into.clear();
            let len = self.next() % 300;
            while (into.len() as u64) < len {
                let word = match self.next() % 4 {
                    0 => self.next(),
                    1 => u64::MAX,
                    _ => self.next() % 512,
                };
                into.extend(word.to_le_bytes());
            }
            into.truncate(len as usize);
        }

        /// Makes it likelier that bytes are those of a chunk: stripes, profile, numbers of stripes.
        fn shape_chunk(&mut self, bytes: &mut [u8]) {
            if let Some(head) = bytes.get_mut(16..48) {
                head[..8].copy_from_slice(&65536_u64.to_le_bytes());
                head[8..16].copy_from_slice(&(1_u64 | 8 << (self.next() % 9)).to_le_bytes());
                head[28..].copy_from_slice(&[(self.next() % 6) as u8, 0, (self.next() % 3) as u8, 0]);
            }
        }
    }

    /// Whatever the bytes, parsers end with an item or an error, and what they give can be worked with.
    #[test]
    fn any_bytes_are_an_item_or_an_error() {
        let (mut random, mut bytes) = (Random(88_172_645_463_325_252), Vec::new());
        let (mut chunks, mut extents, mut names) = (0, 0, 0);
        for _ in 0..ROUNDS {
            random.bytes(&mut bytes);
            let address = random.next() >> (random.next() % 64);
            let _ = (InodeItem::parse(&bytes), RootItem::parse(&bytes), DirItem::parse(&bytes));
            let mut visit = |name: NameRef<'_>| names += usize::from(name.name.len() <= 255);
            let _ = (NameRef::parse(&bytes, 1, &mut visit), NameRef::parse_extended(&bytes, &mut visit));
            if let Ok(extent) = FileExtent::parse(&bytes) {
                extents += 1;
                if let FileExtent::Regular { address, length, .. } = extent {
                    assert!(address.checked_add(length).is_some());
                }
            }
            random.shape_chunk(&mut bytes);
            if let Ok(chunk) = Chunk::parse(address, &bytes) {
                chunks += 1;
                places(chunk, &mut random);
            }
        }
        assert!(chunks > 100 && extents > 100 && names > 100, "{chunks} {extents} {names}");
    }

    /// Each address of a chunk has a place with bytes behind it, in the order too where there is one.
    fn places(chunk: Chunk, random: &mut Random) {
        let map = ChunkMap::new(vec![chunk.clone()], Mirror((random.next() % 3) as u16)).unwrap();
        let lanes = Lanes::new(map.clone());
        for offset in [0, chunk.length - 1, random.next() % chunk.length] {
            let place = map.place(chunk.address + offset).unwrap();
            assert!(place.run > 0 && place.run <= chunk.length - offset);
            assert!(chunk.stripes.iter().any(|stripe| stripe.device == place.device && stripe.offset <= place.byte));
            if let Some(place) = lanes.as_ref().and_then(|lanes| lanes.place(chunk.address + offset)) {
                assert_eq!(lanes.as_ref().unwrap().on_device(place), map.place(chunk.address + offset));
            }
        }
    }

    /// Nodes of noise, under which everything is noise.
    #[test]
    fn trees_of_noise_end() {
        struct Noise(Random, usize);
        impl ReadNodes for Noise {
            fn read(&mut self, places: &[Place], visit: &mut dyn FnMut(usize, &[u8])) {
                for (number, place) in places.iter().enumerate() {
                    let mut bytes: Vec<u8> = (0..512).flat_map(|_| (self.0.next() % 4096).to_le_bytes()).collect();
                    // The head is right, so that the rest is looked at.
                    bytes[48..56].copy_from_slice(&place.byte.to_le_bytes());
                    bytes[80..88].copy_from_slice(&7_u64.to_le_bytes());
                    bytes[96..100].copy_from_slice(&120_u32.to_le_bytes());
                    bytes[100] = 7 - (self.1 as u8 % 7);
                    visit(number, &bytes);
                }
                self.1 += 1;
            }
        }
        let stripes = vec![Stripe { device: 1, offset: 0 }];
        let chunk = Chunk {
            address: 0,
            length: u64::MAX,
            is_data: false,
            profile: Profile::Single,
            stripe_bytes: 65536,
            sub_stripes: 0,
            stripes,
        };
        let map = ChunkMap::new(vec![chunk], Mirror(0)).unwrap();
        let root = RootItem { address: 4096, level: 7, generation: 7 };
        let all = Key::default()..Key { objectid: u64::MAX, kind: u8::MAX, offset: u64::MAX };
        for seed in 1..40 {
            let mut noise = Noise(Random(seed), 0);
            let found = leaves(&[Tree { id: 5, root }], &all, &map, 1000, &mut noise);
            assert!(found.len() <= 1000);
        }
    }
}
