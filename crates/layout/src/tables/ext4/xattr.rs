//! Extended attributes: in the inode behind its fields, in a block of their own, and large values in inodes.

use std::ops::RangeInclusive;

use super::{
    acl,
    checksum::crc32c,
    extents::Mapped,
    fields::{le16, le32},
    inode::{self, RawInode},
    source::{Lack, Source},
    volume::Volume,
};
use crate::{
    block_read::BlockRead,
    tables::{TableError, cast::to_usize},
};

const MAGIC: u32 = 0xEA02_0000;
/// The kernel takes no longer value.
const LONGEST_VALUE: u32 = 64 << 10;
/// Names and values of one inode: entries may all name one inode with a long value.
const ALL_BYTES: usize = 64 << 20;
/// Where an entry has its hash.
const HASH_AT: u64 = 12;
/// Where an entry names the inode of its value.
const VALUE_INODE_AT: u64 = 4;
/// The kinds of names that there are.
const INDEXES: RangeInclusive<u8> = 1..=10;
/// `system.data`, the rest of content that lies in the inode: attribute `data` of this index.
const SYSTEM: u8 = 7;

/// A full name and a value.
pub(super) type Attribute = (Vec<u8>, Vec<u8>);

/// How many inodes a block of attributes belongs to, by its own word, and where it says so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owners {
    pub(super) count: u32,
    pub(super) told_at: u64,
}

/// What is told of the attributes of an inode.
#[derive(Default)]
pub(super) struct Told {
    pub(super) attributes: Vec<Attribute>,
    /// Of the block of attributes, where there is one.
    pub(super) owners: Option<Owners>,
}

/// Where a block of attributes tells how many inodes have it, and how many blocks it is.
const OWNERS_AT: u64 = 4;
const BLOCKS_AT: u64 = 8;

/// An attribute as it lies on the disk.
struct Entry<'a> {
    /// Where it begins in its area.
    at: usize,
    index: u8,
    name: &'a [u8],
    /// The inode that has the value, or 0.
    value_inode: u32,
    value_bytes: u32,
    /// Tells whether name and value are right; 0 where it may be missing.
    hash: u32,
    /// The value where it isn't in an inode.
    value: &'a [u8],
}

impl Entry<'_> {
    /// The hash of name and value; machines whose characters are signed compute another one of names beyond ASCII.
    fn hashed(&self, is_signed: bool) -> u32 {
        let byte = |byte: u8| if is_signed { byte as i8 as u32 } else { byte.into() };
        let of_name = self.name.iter().fold(0_u32, |hash, &next| hash.rotate_left(5) ^ byte(next));
        self.value.chunks(4).fold(of_name, |hash, word| {
            let mut padded = [0; 4];
            padded[..word.len()].copy_from_slice(word);
            hash.rotate_left(16) ^ u32::from_le_bytes(padded)
        })
    }

    /// Whether name and value are what they were hashed as. What lies in an inode of its own isn't looked at.
    fn is_as_hashed(&self) -> bool {
        self.value_inode != 0 || [false, true].iter().any(|&is_signed| self.hashed(is_signed) == self.hash)
    }
}

/// Goes through the entries from `first` on; values are counted from `base`. `Err` with what is wrong.
fn entries<'a>(
    area: &'a [u8],
    first: usize,
    base: usize,
    mut each: impl FnMut(Entry<'a>) -> Result<(), Lack>,
) -> Result<(), EntryError> {
    let mut at = first;
    // Four zero bytes end them, unless they reach to the end of the area.
    while at + 4 <= area.len() && le32(area, at) != 0 {
        let head = area.get(at..at + 16).ok_or(("an entry of 16 bytes", at))?;
        let name = area.get(at + 16..at + 16 + usize::from(head[0])).ok_or(("a name", at))?;
        let (value_inode, value_bytes) = (le32(head, 4), le32(head, 8));
        let value = match (value_inode, value_bytes) {
            // An empty value lies nowhere, whatever is said of its place.
            (0, 0) => &[],
            (0, _) => {
                let start = base + usize::from(le16(head, 2));
                area.get(start..).and_then(|rest| rest.get(..value_bytes as usize)).ok_or(("a value", at))?
            }
            _ => &[],
        };
        let hash = le32(head, 12);
        each(Entry { at, index: head[1], name, value_inode, value_bytes, hash, value }).map_err(EntryError::Lack)?;
        at += (16 + name.len()).next_multiple_of(4);
    }
    Ok(())
}

enum EntryError {
    /// What would be right, and where in the area.
    Wrong(&'static str, usize),
    Lack(Lack),
}

impl From<(&'static str, usize)> for EntryError {
    fn from((expected, at): (&'static str, usize)) -> EntryError {
        EntryError::Wrong(expected, at)
    }
}

impl EntryError {
    /// `at` is where the area begins.
    fn at(self, inode: u32, at: u64) -> Lack {
        match self {
            EntryError::Lack(lack) => lack,
            EntryError::Wrong(expected, offset) => {
                let what = format!("an extended attribute of inode {inode}");
                TableError::damaged(what, at + offset as u64, expected, "less").into()
            }
        }
    }
}

/// The part of an inode that has attributes, and where it begins.
fn in_inode<'a>(raw: &RawInode<'a>, at: u64) -> Option<(&'a [u8], u64)> {
    let start = 128 + raw.extra_bytes();
    let area = raw.bytes.get(start..).filter(|_| raw.bytes.len() > 128)?;
    (area.len() >= 8 && le32(area, 0) == MAGIC).then_some((area, at + start as u64))
}

/// The content behind the first 60 bytes of content that lies in the inode; empty where there is none.
pub(super) fn inline_rest<'a>(raw: &RawInode<'a>, at: u64) -> Result<&'a [u8], Lack> {
    let mut rest: &[u8] = &[];
    let Some((area, area_at)) = in_inode(raw, at) else { return Ok(rest) };
    let found = entries(area, 4, 4, |entry| {
        if entry.index == SYSTEM && entry.name == b"data" {
            rest = entry.value;
        }
        Ok(())
    });
    found.map_err(|error| error.at(raw.number, area_at))?;
    Ok(rest)
}

/// All attributes that are told to users, with their full names.
pub(super) fn all<B: BlockRead>(
    raw: &RawInode<'_>,
    at: u64,
    volume: &Volume<B>,
    source: &mut dyn Source,
) -> Result<Told, Lack> {
    let (mut told, mut all_bytes, mut owners) = (Vec::new(), 0, None);
    let block = raw.xattr_block(&volume.superblock);
    let block_bytes = if block == 0 { None } else { Some(checked_block(block, raw.number, volume, source)?) };
    let mut add = |entry: Entry<'_>, area_at: u64| {
        let at = area_at + entry.at as u64;
        if !volume.superblock.is_checksummed() && !INDEXES.contains(&entry.index) {
            let what = format!("the kind of an extended attribute of inode {}", raw.number);
            let expected = format!("{} to {}", INDEXES.start(), INDEXES.end());
            return Err(TableError::damaged(what, at + 1, expected, entry.index).into());
        }
        let Some((prefix, is_acl)) = prefix(entry.index) else { return Ok(()) };
        if !volume.superblock.is_checksummed() && entry.hash != 0 && !entry.is_as_hashed() {
            let what = format!("the hash of an extended attribute of inode {}", raw.number);
            let (expected, found) = (format!("{:#010x}", entry.hashed(false)), format!("{:#010x}", entry.hash));
            return Err(TableError::damaged(what, at + HASH_AT, expected, found).into());
        }
        let value = match entry.value_inode {
            0 => entry.value.to_vec(),
            inode => value_of_inode((inode, at + VALUE_INODE_AT), entry.value_bytes, raw, volume, source)?,
        };
        let value = if is_acl {
            let wrong =
                || TableError::damaged(format!("an ACL of inode {}", raw.number), at, "whole entries", "others");
            acl::kernel_form(&value).ok_or_else(wrong)?
        } else {
            value
        };
        all_bytes += entry.name.len() + value.len();
        if all_bytes > ALL_BYTES {
            let what = format!("the bytes of all attributes of inode {}", raw.number);
            return Err(TableError::damaged(what, at, format!("at most {ALL_BYTES}"), all_bytes).into());
        }
        told.push(([prefix, entry.name].concat(), value));
        Ok(())
    };
    if let Some((area, area_at)) = in_inode(raw, at) {
        entries(area, 4, 4, |entry| add(entry, area_at)).map_err(|error| error.at(raw.number, area_at))?;
    }
    if let Some(bytes) = block_bytes {
        let area_at = volume.byte_of(block);
        owners = Some(Owners { count: le32(&bytes, to_usize(OWNERS_AT)), told_at: area_at + OWNERS_AT });
        entries(&bytes, 32, 0, |entry| add(entry, area_at)).map_err(|error| error.at(raw.number, area_at))?;
    }
    Ok(Told { attributes: told, owners })
}

/// What stands before a name, and whether the value is an ACL. `None` for what the kernel keeps to itself, such as the
/// policy of encryption.
fn prefix(index: u8) -> Option<(&'static [u8], bool)> {
    Some(match index {
        1 => (b"user.", false),
        2 => (b"system.posix_acl_access", true),
        3 => (b"system.posix_acl_default", true),
        4 => (b"trusted.", false),
        6 => (b"security.", false),
        10 => (b"gnu.", false),
        _ => return None,
    })
}

fn checked_block<B: BlockRead>(
    block: u64,
    inode: u32,
    volume: &Volume<B>,
    source: &mut dyn Source,
) -> Result<std::rc::Rc<[u8]>, Lack> {
    let damaged = |what: &str, expected: String, found: String| {
        let what = format!("{what} of the extended attributes of inode {inode}");
        Lack::from(TableError::damaged(what, volume.byte_of(block), expected, found))
    };
    if !volume.holds(block, 1) {
        return Err(damaged("the block", format!("below {}", volume.superblock.blocks), block.to_string()));
    }
    let bytes = source.block(block)?;
    if le32(&bytes, 0) != MAGIC {
        return Err(damaged("the magic number", format!("{MAGIC:#010x}"), format!("{:#010x}", le32(&bytes, 0))));
    }
    if volume.superblock.is_checksummed() {
        let crc = crc32c(volume.superblock.checksum_seed, &block.to_le_bytes());
        let crc = crc32c(crc32c(crc32c(crc, &bytes[..16]), &[0; 4]), &bytes[20..]);
        if crc != le32(&bytes, 16) {
            return Err(damaged("the checksum", format!("{crc:#010x}"), format!("{:#010x}", le32(&bytes, 16))));
        }
    }
    let blocks = le32(&bytes, to_usize(BLOCKS_AT));
    if blocks != 1 {
        let what = format!("the number of blocks of the extended attributes of inode {inode}");
        return Err(TableError::damaged(what, volume.byte_of(block) + BLOCKS_AT, 1, blocks).into());
    }
    Ok(bytes)
}

/// The value that is the content of an inode, which is named at this byte.
fn value_of_inode<B: BlockRead>(
    (number, named_at): (u32, u64),
    value_bytes: u32,
    owner: &RawInode<'_>,
    volume: &Volume<B>,
    source: &mut dyn Source,
) -> Result<Vec<u8>, Lack> {
    let damaged = |what: &str, at: u64, expected: String, found: String| {
        let what = format!("{what} of the attribute value in inode {number}, of inode {}", owner.number);
        Lack::from(TableError::damaged(what, at, expected, found))
    };
    let place = volume.inode_place(number);
    let (block, byte) = place.ok_or_else(|| damaged("the number", named_at, "an inode".into(), number.to_string()))?;
    let at = volume.byte_of(block) + byte as u64;
    let table = source.block(block)?;
    let raw = RawInode { number, bytes: table.get(byte..byte + volume.superblock.inode_bytes).unwrap_or_default() };
    let size = raw.size(&volume.superblock);
    if raw.flags() & inode::EA_INODE == 0 || size != value_bytes.into() || value_bytes > LONGEST_VALUE {
        let expected = format!("a value of {value_bytes} bytes, at most {LONGEST_VALUE}");
        return Err(damaged("the kind", at, expected, format!("one of {size}")));
    }
    raw.check(volume, at)?;
    let Mapped { runs, lack, .. } = raw.runs(volume, source);
    if let Some(lack) = lack {
        return Err(lack);
    }
    let block_bytes = u64::from(volume.superblock.block_bytes);
    let mut value = vec![0; value_bytes as usize];
    let mut lack = None;
    for run in runs.iter().filter(|run| !run.unwritten) {
        for index in 0..run.count {
            let Some(start) = run.logical.checked_add(index).and_then(|block| block.checked_mul(block_bytes)) else {
                break;
            };
            let Some(into) = usize::try_from(start).ok().and_then(|start| value.get_mut(start..)) else { break };
            if into.is_empty() {
                break;
            }
            match source.block(run.physical + index) {
                Ok(bytes) => {
                    let length = into.len().min(bytes.len());
                    into[..length].copy_from_slice(&bytes[..length]);
                }
                Err(Lack::Blocks) => lack = Some(Lack::Blocks),
                Err(damaged) => return Err(damaged),
            }
        }
    }
    if let Some(lack) = lack {
        return Err(lack);
    }
    // Its hash stands where a file has its time of access. Lustre has none, and names the owner in the time of change.
    let (expected, found) = (crc32c(volume.superblock.checksum_seed, &value), le32(raw.bytes, 8));
    if expected != found && le32(raw.bytes, 0x10) != owner.number {
        return Err(damaged("the hash", at + 8, format!("{expected:#010x}"), format!("{found:#010x}")));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            groups::Group,
            journal::Overlay,
            source::Gathered,
            superblock::{Superblock, tests},
        },
        *,
    };

    fn names(area: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut names = Vec::new();
        let found = entries(area, 4, 4, |entry| {
            names.push((entry.name.to_vec(), entry.value.to_vec()));
            Ok(())
        });
        found.is_ok().then_some(names)
    }

    #[test]
    fn entries_reach_to_four_zeros_or_the_end() {
        let mut area = MAGIC.to_le_bytes().to_vec();
        area.extend_from_slice(&[1, 1, 28, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, b'a', 0, 0, 0, 0, 0, 0, 0]);
        area.resize(34, 7);
        assert_eq!(names(&area), Some(vec![(b"a".to_vec(), vec![7, 7])]));
        assert_eq!(names(&area[..33]), None, "the value is cut off");
        assert_eq!(names(&area[..18]), None, "so is the entry");
        assert_eq!(names(&area[..4]), Some(vec![]));
        let mut empty = area.clone();
        empty[6..8].copy_from_slice(&[0xFF, 0x7F]);
        assert_eq!(names(&empty), None, "the value lies beyond the end");
        empty[12] = 0;
        assert_eq!(names(&empty), Some(vec![(b"a".to_vec(), vec![])]), "an empty one lies nowhere");
        area[4] = 255;
        assert_eq!(names(&area), None, "the name is too long");
    }

    /// Entries of one block that all name one value.
    #[test]
    fn all_attributes_of_an_inode_are_bounded() {
        const BLOCK: usize = 64 << 10;
        let superblock = Superblock::parse(&tests::bytes(&[(0x18, 6), (4, 4), (0x14, 0)]), 4 * BLOCK as u64).unwrap();
        let mut device = vec![7; 4 * BLOCK];
        let owner = 15_u32;
        let set = |bytes: &mut [u8], at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        let value = &mut device[BLOCK + 11 * 128..][..128];
        value.fill(0);
        for (at, word) in [(0, 0o100_600), (4, BLOCK as u32), (0x10, owner), (0x20, inode::EA_INODE), (0x28, 3)] {
            set(value, at, word);
        }
        let mut raw = vec![0; 128];
        [(0, 0o100_600), (0x68, 2)].into_iter().for_each(|(at, word)| set(&mut raw, at, word));
        let told = |device: &[u8], entries: usize| {
            let mut device = device.to_vec();
            let block = &mut device[2 * BLOCK..][..BLOCK];
            block.fill(0);
            set(block, 0, MAGIC);
            set(block, 8, 1);
            for entry in block[32..].chunks_exact_mut(20).take(entries) {
                entry[..2].copy_from_slice(&[1, 1]);
                set(entry, 4, 12);
                set(entry, 8, BLOCK as u32);
                entry[16] = b'x';
            }
            let groups = vec![Group { inode_table: 1, inodes: 64 }];
            let superblock = superblock.clone();
            let volume = Volume { device, superblock, groups, overlay: Overlay::default(), gap_bytes: 0 };
            let mut source = Gathered::new(&volume);
            loop {
                match all(&RawInode { number: owner, bytes: &raw }, 4711, &volume, &mut source) {
                    Err(Lack::Blocks) => assert!(source.read(&volume, |problem| panic!("{problem}"))),
                    Err(Lack::Damaged(error)) => break Err(error.to_string()),
                    Ok(told) => break Ok(told.attributes.iter().map(|(_, value)| value.len()).sum::<usize>()),
                }
            }
        };
        assert_eq!(told(&device, 100), Ok(100 * BLOCK));
        let error = told(&device, 1100).unwrap_err();
        assert!(error.contains("all attributes of inode 15") && error.contains("expected at most 67108864"), "{error}");
    }
}
