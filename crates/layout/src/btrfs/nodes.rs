//! Where the leaves of a tree lie.
//!
//! The kernel tells items, not where they are. The nodes above the leaves do: one of 16 KiB has the keys and addresses of
//! up to 493 others. So they are read from the devices, past all caches. btrfs never writes to a place that the last
//! transaction refers to, and what was read all the same while it was given up is known by its checks; nothing follows from
//! it but an order.

use std::collections::HashSet;
use std::ops::Range;

use onesweep_sys::btrfs::Key;

use super::chunks::{ChunkMap, Place};
use super::fields::Fields;
use super::items::{ItemError, RootItem, key};

/// Levels that a tree can have.
const LEVELS: u8 = 8;

/// Bytes of the head of a node, and of an entry behind it.
const HEADER: usize = 101;
const ENTRY: usize = 33;

/// A tree to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    /// Its number.
    pub id: u64,
    /// Where it begins.
    pub root: RootItem,
}

/// A leaf of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// The number of the tree.
    pub tree: u64,
    /// Its first key, or one before it that belongs to no other leaf.
    pub key: Key,
    /// The first key of the leaf behind it under the same node, if there is one.
    pub end: Option<Key>,
    /// btrfs's address of it.
    pub address: u64,
    /// Where that is.
    pub place: Place,
}

/// An entry of a node: what lies below it.
#[derive(Clone, Copy, Debug)]
struct Below {
    tree: u64,
    key: Key,
    end: Option<Key>,
    address: u64,
    generation: u64,
}

/// What is wrong with a node.
fn check<'a>(bytes: &'a [u8], below: &Below, level: u8) -> Result<(Fields<'a>, usize), ItemError> {
    let mut fields = Fields::new("node", bytes);
    fields.skip(32 + 16)?; // a checksum, and the name of the file system
    let address = fields.u64()?;
    if address != below.address {
        return Err(fields.odd("address", address, "where it lies"));
    }
    fields.skip(8 + 16)?; // flags, and the name of the chunk tree
    let generation = fields.u64()?;
    if generation != below.generation {
        return Err(fields.odd("generation", generation, "that of the node above"));
    }
    fields.skip(8)?; // the tree that it was made for
    let (entries, found) = (fields.u32()?, fields.u8()?);
    if found != level {
        return Err(fields.odd("level", found.into(), "one below the node above"));
    }
    let room = bytes.len().saturating_sub(HEADER) / ENTRY;
    match usize::try_from(entries) {
        Ok(entries) if entries <= room => Ok((fields, entries)),
        _ => Err(fields.odd("number of entries", entries.into(), "as many as there is room for")),
    }
}

/// What lies below a node, of the keys that are wanted.
fn below(bytes: &[u8], node: &Below, level: u8, wanted: &Range<Key>) -> Result<Vec<Below>, ItemError> {
    let (mut fields, entries) = check(bytes, node, level)?;
    let mut all: Vec<Below> = Vec::with_capacity(entries);
    for _ in 0..entries {
        let key = key(&mut fields)?;
        let (address, generation) = (fields.u64()?, fields.u64()?);
        if let Some(last) = all.last_mut() {
            last.end = Some(key);
        }
        all.push(Below { tree: node.tree, key, end: node.end, address, generation });
    }
    all.retain(|entry| entry.key < wanted.end && entry.end.is_none_or(|end| end > wanted.start));
    Ok(all)
}

/// Reads nodes: gives to `visit` the bytes of each place that could be read, and its number in the list.
pub trait ReadNodes {
    /// `places` are in the order in which they are best read.
    fn read(&mut self, places: &[Place], visit: &mut dyn FnMut(usize, &[u8]));
}

/// The leaves of some trees that may hold keys of `wanted`, each once, though several trees share it; at most `limit`.
///
/// Nodes that can't be read, or are not what they should be, are left out with all below them.
pub fn leaves(
    trees: &[Tree],
    wanted: &Range<Key>,
    map: &ChunkMap,
    limit: usize,
    nodes: &mut dyn ReadNodes,
) -> Vec<Leaf> {
    let mut known: HashSet<u64> = HashSet::new();
    let mut found = Vec::new();
    // By level, so that each level is read in one go.
    let mut waiting: Vec<Vec<Below>> = vec![Vec::new(); usize::from(LEVELS)];
    for Tree { id, root } in trees {
        let all =
            Below { tree: *id, key: Key::default(), end: None, address: root.address, generation: root.generation };
        if let Some(level) = waiting.get_mut(usize::from(root.level)) {
            level.push(all);
        }
    }
    for level in (1..LEVELS).rev() {
        let mut here: Vec<(Place, Below)> = std::mem::take(&mut waiting[usize::from(level)])
            .into_iter()
            .filter(|node| known.insert(node.address))
            .filter_map(|node| Some((map.place(node.address)?, node)))
            .collect();
        here.sort_by_key(|(place, _)| (place.byte, place.device));
        // Each has a leaf at least.
        here.truncate(limit);
        let places: Vec<Place> = here.iter().map(|(place, _)| *place).collect();
        let next = &mut waiting[usize::from(level) - 1];
        nodes.read(&places, &mut |number, bytes| {
            if next.len() <= limit
                && let Some((_, node)) = here.get(number)
                && let Ok(entries) = below(bytes, node, level, wanted)
            {
                next.extend(entries);
            }
        });
    }
    for Below { tree, key, end, address, .. } in waiting.swap_remove(0) {
        if found.len() < limit
            && known.insert(address)
            && let Some(place) = map.place(address)
        {
            found.push(Leaf { tree, key, end, address, place });
        }
    }
    found.sort_by_key(|leaf| (leaf.place.byte, leaf.place.device));
    found
}

#[cfg(test)]
mod tests {
    use super::super::chunks::{Chunk, Mirror, Profile, Stripe};
    use super::*;

    const NODE: usize = 4096;
    const ALL: Range<Key> = Key { objectid: 0, kind: 0, offset: 0 }..Key { objectid: u64::MAX, kind: 255, offset: 0 };

    fn key_of(objectid: u64) -> Key {
        Key { objectid, kind: 1, offset: 0 }
    }

    fn node(address: u64, generation: u64, level: u8, entries: &[(u64, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; 48];
        bytes.extend(address.to_le_bytes());
        bytes.extend([0; 24]);
        bytes.extend(generation.to_le_bytes());
        bytes.extend([0; 8]);
        bytes.extend((entries.len() as u32).to_le_bytes());
        bytes.push(level);
        for (objectid, below) in entries {
            bytes.extend(objectid.to_le_bytes());
            bytes.push(1);
            bytes.extend([0_u64, *below, generation].map(u64::to_le_bytes).concat());
        }
        bytes.resize(NODE, 0);
        bytes
    }

    /// Addresses are bytes of the device.
    struct Device(Vec<u8>, usize);

    impl ReadNodes for Device {
        fn read(&mut self, places: &[Place], visit: &mut dyn FnMut(usize, &[u8])) {
            assert!(places.is_sorted_by_key(|place| place.byte));
            for (number, place) in places.iter().enumerate() {
                self.1 += 1;
                if let Some(bytes) = self.0.get(place.byte as usize..place.byte as usize + NODE) {
                    visit(number, bytes);
                }
            }
        }
    }

    /// Address, level, and the entries: objectid and address.
    type Node<'a> = (u64, u8, &'a [(u64, u64)]);

    fn device(nodes: &[Node<'_>]) -> Device {
        let mut bytes = vec![0; 1 << 20];
        for (address, level, entries) in nodes {
            bytes[*address as usize..][..NODE].copy_from_slice(&node(*address, 7, *level, entries));
        }
        Device(bytes, 0)
    }

    fn map() -> ChunkMap {
        let chunk = Chunk {
            address: 0,
            length: 1 << 20,
            is_data: false,
            profile: Profile::Single,
            stripe_bytes: 65536,
            sub_stripes: 0,
            stripes: vec![Stripe { device: 1, offset: 0 }],
        };
        ChunkMap::new(vec![chunk], Mirror(0)).unwrap()
    }

    fn tree(id: u64, address: u64, level: u8) -> Tree {
        Tree { id, root: RootItem { address, level, generation: 7 } }
    }

    fn found(trees: &[Tree], wanted: &Range<Key>, limit: usize, device: &mut Device) -> Vec<(u64, u64, u64)> {
        let leaves = leaves(trees, wanted, &map(), limit, device);
        leaves.iter().map(|leaf| (leaf.address, leaf.tree, leaf.key.objectid)).collect()
    }

    #[test]
    fn leaves_come_once_and_by_their_places() {
        let mut disk = device(&[
            (0x10000, 2, &[(1, 0x30000), (50, 0x20000)]),
            (0x30000, 1, &[(1, 0x90000), (20, 0x40000)]),
            (0x20000, 1, &[(50, 0x50000), (70, 0x41000)]),
            // Another tree has changed one node and shares the other.
            (0x11000, 2, &[(1, 0x30000), (50, 0x21000)]),
            (0x21000, 1, &[(50, 0x50000), (70, 0x42000)]),
        ]);
        let trees = [tree(256, 0x10000, 2), tree(257, 0x11000, 2)];
        let all = [(0x40000, 256, 20), (0x41000, 256, 70), (0x42000, 257, 70), (0x50000, 256, 50), (0x90000, 256, 1)];
        assert_eq!(found(&trees, &ALL, 99, &mut disk), all);
        assert_eq!(disk.1, 5, "shared nodes are read once");
        assert_eq!(found(&trees, &ALL, 2, &mut disk).len(), 2);
        let some = found(&trees[..1], &(key_of(55)..key_of(60)), 99, &mut disk);
        assert_eq!(some, [(0x50000, 256, 50)]);
        assert_eq!(found(&[tree(5, 0x60000, 0)], &ALL, 99, &mut disk), [(0x60000, 5, 0)], "a root may be a leaf");
    }

    #[test]
    fn nodes_that_are_not_what_they_should_be_are_left_out() {
        let sound = |disk: &mut Device| found(&[tree(5, 0x10000, 1)], &ALL, 99, disk).len();
        let of = || device(&[(0x10000, 1, &[(1, 0x30000), (50, 0x20000)])]);
        assert_eq!(sound(&mut of()), 2);
        // Its address, generation, level, and the number of its entries.
        for at in [48, 80, 100, 98] {
            let mut disk = of();
            disk.0[0x10000 + at] ^= 0x80;
            assert_eq!(sound(&mut disk), 0, "{at}");
        }
        assert_eq!(found(&[tree(5, 0x10000, 200), tree(5, 1 << 40, 1)], &ALL, 99, &mut of()), []);
    }

    /// A node that names itself, or one above it.
    #[test]
    fn circles_end() {
        let mut disk = device(&[(0x10000, 1, &[(1, 0x10000), (50, 0x10000)])]);
        assert_eq!(found(&[tree(5, 0x10000, 1)], &ALL, 99, &mut disk), []);
    }
}
