//! The parsers of btrfs with bytes that nobody has looked at before. See [`crate::fuzzing`].

use std::{collections::HashSet, error::Error, ops::Range};

use onesweep_sys::btrfs::Key;

use super::{
    Attribute, Chunk, ChunkMap, DirItem, InodeItem, Lanes, Mirror, NameRef, Place, Profile, ReadNodes, RootItem,
    Stripe, Tree, extents, kind, leaves,
};
use crate::{
    fuzzing::{Target, cut, options},
    source::Checked,
};

pub(crate) const TARGETS: &[Target] = &[
    Target { name: "btrfs_items", run: item, memory: 1 << 20 },
    Target { name: "btrfs_chunks", run: chunks, memory: 4 << 20 },
    Target { name: "btrfs_nodes", run: nodes, memory: 1 << 20 },
];

/// Says what is wrong, all the causes too, in a message that is not too long.
fn told(error: &dyn Error) {
    let mut bytes = 0;
    let mut next = Some(error);
    while let Some(error) = next {
        bytes += error.to_string().len();
        next = error.source();
    }
    assert!(bytes < 4096, "a message of {bytes} bytes");
}

/// The kind of an item, and its bytes; for parts of a file the size of that, and all its items, each behind the byte of
/// the file where it begins.
fn item(input: &[u8]) {
    let (which, bytes) = options(input);
    let mut names = 0;
    let mut name = |name: NameRef<'_>| {
        names += 1;
        assert!((1..=255).contains(&name.name.len()));
    };
    let parsed = match which {
        kind::INODE_ITEM => InodeItem::parse(bytes).map(drop),
        kind::ROOT_ITEM => RootItem::parse(bytes).map(drop),
        kind::DIR_INDEX => DirItem::parse(bytes).map(|item| assert!((1..=255).contains(&item.name.len()))),
        kind::INODE_REF => NameRef::parse(bytes, 256, &mut name),
        kind::INODE_EXTREF => NameRef::parse_extended(bytes, &mut name),
        kind::XATTR_ITEM => Attribute::parse(bytes, &mut |one| {
            names += 1;
            assert!((1..=255).contains(&one.name.len()) && one.value.len() <= bytes.len());
        }),
        _ => return parts(bytes),
    };
    assert!(names <= bytes.len() / 11);
    if let Err(error) = parsed {
        told(&error);
    }
}

/// Bytes of an item that tells of a part of a file.
const PART: usize = 53;

fn parts(bytes: &[u8]) {
    let (size, mut rest) = cut(bytes);
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (logical, behind) = cut(rest);
        let (item, behind) = behind.split_at(behind.len().min(PART));
        rest = behind;
        if let Err(error) = extents::keep(&mut found, u64::from_le_bytes(logical), item) {
            told(&error);
        }
    }
    let mut next = 0;
    let mut visit = |extent: crate::Extent| {
        assert!(extent.length > 0 && extent.logical >= next, "{extent:?} after {next}");
        next = extent.logical.checked_add(extent.length).expect("an end below 2^64");
        assert!(extent.physical.is_none_or(|physical| physical.checked_add(extent.length).is_some()));
    };
    let mut map = Checked::new(u64::from_le_bytes(size), &mut visit);
    if let Err(error) = found.iter().try_for_each(|&extent| map.add(extent)) {
        told(&error);
    }
    assert!(map.mapped.addressed_bytes <= map.mapped.bytes);
}

/// Bytes of the head of a chunk, and of a stripe behind it.
const CHUNK: usize = 48;
const STRIPE: usize = 32;

/// A bit of the first byte of an input: copies take turns.
const IN_TURNS: u8 = 1 << 7;

/// Which copy is meant, and the chunks: address, for how many stripes there are bytes, and the item.
fn chunks(input: &[u8]) {
    let (mirror, mut rest) = options(input);
    let mut all = Vec::new();
    while !rest.is_empty() {
        let (address, behind) = cut(rest);
        let (stripes, behind) = options(behind);
        let (item, behind) = behind.split_at(behind.len().min(CHUNK + usize::from(stripes & 15) * STRIPE));
        rest = behind;
        match Chunk::parse(u64::from_le_bytes(address), item) {
            Ok(chunk) => all.push(chunk),
            Err(error) => told(&error),
        }
    }
    let map = match ChunkMap::new(all.clone(), Mirror((mirror % 4).into())) {
        Ok(map) if mirror & IN_TURNS != 0 => map.in_turns(),
        Ok(map) => map,
        Err(error) => return told(&error),
    };
    let lanes = Lanes::new(map.clone());
    for chunk in &all {
        let stripe = chunk.stripe_bytes.min(chunk.length - 1);
        for offset in [0, 1, stripe, stripe.saturating_mul(7), chunk.length / 2, chunk.length - 1] {
            let offset = offset.min(chunk.length - 1);
            place(&map, chunk, offset);
            if let Some(lanes) = &lanes {
                place_in_order(lanes, chunk, offset);
            }
        }
    }
}

/// Each address of a chunk has a place within one of its stripes, and so have those behind it that are said to.
fn place(map: &ChunkMap, chunk: &Chunk, offset: u64) {
    let place = map.place(chunk.address + offset).expect("a place for each address of a chunk");
    assert!(place.run > 0 && place.run <= chunk.length - offset, "{place:?} at {offset} of {chunk:?}");
    let fits = |stripe: &&Stripe| {
        let within = place.byte.checked_sub(stripe.offset).filter(|_| stripe.device == place.device);
        within.is_some_and(|within| within <= chunk.length - place.run)
    };
    assert!(chunk.stripes.iter().find(fits).is_some(), "{place:?} at {offset} of {chunk:?}");
    let last = map.place(chunk.address + offset + (place.run - 1));
    assert_eq!(last.map(|last| (last.device, last.byte)), Some((place.device, place.byte + (place.run - 1))));
}

/// What has a place in the order comes back from there to its byte.
fn place_in_order(lanes: &Lanes, chunk: &Chunk, offset: u64) {
    let address = chunk.address + offset;
    let told = lanes.place(address);
    assert_eq!(told.is_some(), chunk.is_data);
    let Some(at) = told else { return };
    assert!(at < lanes.span());
    let place = lanes.map().place(address).expect("a place");
    // Nothing says of these bytes that no two chunks lie at the same place of a device.
    let back = lanes.on_device(at).map(|back| (back.device, back.byte));
    assert!(back.is_none_or(|back| back == (place.device, place.byte)), "{back:?} and {place:?}");
    let (length, mut covered) = ((chunk.length - offset).min(16 << 20), 0);
    lanes.runs(address, length, &mut |run| {
        assert!(run.length > 0 && run.skip == covered);
        assert!(run.place.is_some_and(|place| place < lanes.span() && run.length <= lanes.span() - place));
        covered += run.length;
    });
    assert_eq!(covered, length);
}

const NODE: usize = 1024;
/// Leaves that are asked for.
const LIMIT: usize = 64;
const GENERATION: u64 = 7;

/// Bits of the first byte of an input: heads of nodes as found; all keys are wanted; a second tree.
const AS_FOUND: u8 = 1;
const ALL_KEYS: u8 = 1 << 1;
const TWO_TREES: u8 = 1 << 2;

/// Devices of few nodes, each at very many addresses.
struct Nodes<'a> {
    bytes: &'a [u8],
    /// Makes each look as if it lay where it is asked for.
    mends: bool,
    /// The level that was read last.
    level: u8,
}

impl ReadNodes for Nodes<'_> {
    fn read(&mut self, places: &[Place], visit: &mut dyn FnMut(usize, &[u8])) {
        assert!(places.len() <= LIMIT && places.is_sorted_by_key(|place| (place.byte, place.device)));
        self.level = self.level.checked_sub(1).filter(|&level| level > 0).expect("each level is read once");
        for (number, place) in places.iter().enumerate() {
            let chosen = place.byte % self.bytes.len().div_ceil(NODE).max(1) as u64;
            let node = self.bytes.chunks(NODE).nth(chosen as usize).unwrap_or_default();
            let mut node = node.to_vec();
            if self.mends {
                mend(&mut node, place.byte, self.level);
            }
            visit(number, &node);
        }
    }
}

fn mend(node: &mut [u8], address: u64, level: u8) {
    let Some((head, entries)) = node.split_at_mut_checked(101) else { return };
    head[48..56].copy_from_slice(&address.to_le_bytes());
    head[80..88].copy_from_slice(&GENERATION.to_le_bytes());
    head[100] = level;
    for entry in entries.chunks_exact_mut(33) {
        entry[25..].copy_from_slice(&GENERATION.to_le_bytes());
    }
}

/// The first key that is wanted and the one behind the last, one or two roots, and nodes.
fn nodes(input: &[u8]) {
    let (options, rest) = options(input);
    let (keys, mut rest) = cut::<34>(rest);
    let key = |bytes: &[u8]| {
        let word = |at: usize| u64::from_le_bytes(cut(&bytes[at..]).0);
        Key { objectid: word(0), kind: bytes[8], offset: word(9) }
    };
    let last = Key { objectid: u64::MAX, kind: u8::MAX, offset: u64::MAX };
    let wanted = if options & ALL_KEYS != 0 { Key::default()..last } else { key(&keys)..key(&keys[17..]) };
    let mut trees = Vec::new();
    for id in [5, 256].into_iter().take(if options & TWO_TREES != 0 { 2 } else { 1 }) {
        let (address, behind) = cut(rest);
        let (level, behind) = crate::fuzzing::options(behind);
        rest = behind;
        trees.push(Tree { id, root: RootItem { address: u64::from_le_bytes(address), level, generation: GENERATION } });
    }
    let mut nodes = Nodes { bytes: rest, mends: options & AS_FOUND == 0, level: 8 };
    look(&trees, &wanted, &mut nodes);
}

fn look(trees: &[Tree], wanted: &Range<Key>, nodes: &mut Nodes<'_>) {
    // Addresses are bytes of the device.
    let chunk = Chunk {
        address: 0,
        length: u64::MAX,
        is_data: false,
        profile: Profile::Single,
        stripe_bytes: 1 << 16,
        sub_stripes: 0,
        stripes: vec![Stripe { device: 1, offset: 0 }],
    };
    let map = ChunkMap::new(vec![chunk], Mirror(0)).expect("one chunk");
    let found = leaves(trees, wanted, &map, LIMIT, nodes);
    assert!(found.len() <= LIMIT && found.is_sorted_by_key(|leaf| (leaf.place.byte, leaf.place.device)));
    let mut seen = HashSet::new();
    for leaf in &found {
        assert!(seen.insert(leaf.address) && leaf.place.byte == leaf.address, "{leaf:?}");
        let tree = trees.iter().find(|tree| tree.id == leaf.tree).expect("one of the trees");
        // Of a root that is a leaf nobody knows the keys.
        let is_wanted = leaf.key < wanted.end && leaf.end.is_none_or(|end| end > wanted.start);
        assert!(is_wanted || tree.root.level == 0, "{leaf:?}");
    }
}
