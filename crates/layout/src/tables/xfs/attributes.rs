//! Extended attributes: in the inode (short form), in leaves, and with values in blocks of their own.

use super::{
    acl,
    block::{Block, Number},
    directory,
    extents::{self, Mapping},
    inode::{Dinode, Fork, Format},
    volume::Volume,
};
use crate::{block_read::BlockRead, tables::TableError};

/// Names and values of one inode, beyond which the rest is left out with a problem. The kernel lists no more than 64 KiB
/// of names, and a value has at most 64 KiB.
const MAX_BYTES: usize = 64 << 20;
const MAX_VALUE_BYTES: u32 = 64 << 10;
/// Leaves of one inode: far more than what [`MAX_BYTES`] fill. Fewer where the fuzzer would spend its time in chains that this
/// alone ends.
const MAX_LEAVES: u32 = if cfg!(fuzzing) { 1 << 10 } else { 1 << 16 };
/// The kernel builds no index of more levels.
const MAX_LEVELS: u16 = 5;

/// Bits of the flags of an attribute.
const LOCAL: u8 = 1;
const ROOT: u8 = 1 << 1;
const SECURE: u8 = 1 << 2;
const PARENT: u8 = 1 << 3;
const INCOMPLETE: u8 = 1 << 7;

const LEAF_V4: u16 = 0xfbee;
const LEAF_V5: u16 = 0x3bee;
const NODE_V4: u16 = 0xfebe;
const NODE_V5: u16 = 0x3ebe;
const REMOTE: u32 = 0x5841_524d; // XARM
const REMOTE_HEADER_BYTES: usize = 56;

/// The attributes that were read, as the kernel shows them.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    pub(super) list: Vec<(Vec<u8>, Vec<u8>)>,
    bytes: usize,
}

impl Attributes {
    /// Keeps an attribute, and for an ACL what it is shown as, too. Its flags stand at `flags_at` of a block.
    fn keep(&mut self, block: &Block<'_>, flags_at: usize, name: &[u8], value: Vec<u8>) -> Result<(), TableError> {
        let flags = block.u8(flags_at)?;
        if flags & (PARENT | INCOMPLETE) != 0 {
            return Ok(());
        }
        self.bytes += name.len() + value.len();
        if self.bytes > MAX_BYTES {
            let (what, expected) = ("the bytes of all attributes up to one", format!("at most {MAX_BYTES}"));
            return Err(block.damaged(flags_at, what, expected, self.bytes));
        }
        let prefix: &[u8] = match flags & (ROOT | SECURE) {
            0 => b"user.",
            ROOT => b"trusted.",
            SECURE => b"security.",
            both => return Err(block.damaged(flags_at, "the flags of an attribute", "one namespace", both)),
        };
        let acl = acl::NAMES.iter().find(|(on_disk, _)| flags & ROOT != 0 && *on_disk == name);
        if let Some((acl, value)) = acl.and_then(|(_, acl)| Some((*acl, acl::shown(&value)?))) {
            self.list.push((acl.to_vec(), value));
        }
        self.list.push(([prefix, name].concat(), value));
        Ok(())
    }
}

/// Reads the attributes of an inode into `kept`. What is there after an error is right, but not all.
pub(super) fn read<B: BlockRead>(
    volume: &Volume<B>,
    inode: &Dinode<'_>,
    kept: &mut Attributes,
) -> Result<(), TableError> {
    let Some(fork) = &inode.attributes else { return Ok(()) };
    match fork.format {
        Format::Local => short_form(&fork.block, kept),
        // A fork whose last attribute was removed.
        Format::Extents if fork.extents == 0 => Ok(()),
        _ => Blocks { volume, fork, mappings: extents::list(volume, fork)? }.read(kept),
    }
}

fn short_form(block: &Block<'_>, kept: &mut Attributes) -> Result<(), TableError> {
    let (size, count) = (usize::from(block.u16(0)?), block.u8(2)?);
    let block = block.part("attributes in an inode", 0, size)?;
    let mut offset = 4;
    for _ in 0..count {
        let (name_length, value_length) = (usize::from(block.u8(offset)?), usize::from(block.u8(offset + 1)?));
        let name = block.slice(offset + 3, name_length)?;
        let value = block.slice(offset + 3 + name_length, value_length)?.to_vec();
        kept.keep(&block, offset + 2, name, value)?;
        offset += 3 + name_length + value_length;
    }
    block.check(0, "the bytes", offset, size)
}

/// Attributes in blocks, which are numbered as the blocks of a file are.
struct Blocks<'a, B> {
    volume: &'a Volume<B>,
    fork: &'a Fork<'a>,
    mappings: Vec<Mapping>,
}

impl<B: BlockRead> Blocks<'_, B> {
    fn read(&self, kept: &mut Attributes) -> Result<(), TableError> {
        let mut next = self.first_leaf()?;
        for _ in 0..MAX_LEAVES {
            next = self.leaf(next, kept)?;
            if next.number == 0 {
                return Ok(());
            }
        }
        let what = self.what("the next of the attribute leaves");
        Err(TableError::damaged(what, next.told_at, format!("an end after {MAX_LEAVES}"), next.number))
    }

    fn what(&self, what: &str) -> String {
        format!("{what} of inode {}", self.fork.owner)
    }

    fn address(&self, Number { number, told_at }: Number) -> Result<u64, TableError> {
        let number = u64::from(number);
        let index = self.mappings.partition_point(|mapping| mapping.offset + mapping.blocks <= number);
        let mapping = self.mappings.get(index).filter(|mapping| mapping.offset <= number && !mapping.is_unwritten);
        let address = mapping.and_then(|mapping| {
            let before = (number - mapping.offset) * self.volume.superblock.block_bytes() as u64;
            mapping.at.map(|at| at + before)
        });
        address.ok_or_else(|| {
            TableError::damaged(self.what("a block of the attributes"), told_at, "one that an extent has", number)
        })
    }

    /// Reads a block of the index or a leaf, and checks what all of them have; its magic number and the bytes of its header.
    fn check(&self, block: &Block<'_>) -> Result<(u16, usize), TableError> {
        let magic = block.u16(8)?;
        let (leaf, node, header) = match &self.volume.superblock.uuid {
            Some(uuid) => {
                block.check_crc(12)?;
                block.check_address(16)?;
                block.check_uuid(32, uuid)?;
                block.check(48, "the owner", self.fork.owner, block.u64(48)?)?;
                (LEAF_V5, NODE_V5, 56)
            }
            None => (LEAF_V4, NODE_V4, 12),
        };
        if magic != leaf && magic != node {
            let expected = format!("{leaf:#x} or {node:#x}");
            return Err(block.damaged(8, "the magic number", expected, format!("{magic:#x}")));
        }
        Ok((magic, header))
    }

    /// Goes down from block 0, always to the first child.
    fn first_leaf(&self) -> Result<Number, TableError> {
        // That there is a block 0 the extents must say.
        let mut first = Number { number: 0, told_at: self.fork.block.at };
        for _ in 0..=MAX_LEVELS {
            let at = self.address(first)?;
            let bytes = self.volume.read(at, self.volume.superblock.block_bytes())?;
            let block = Block { what: "an attribute block", at, bytes: &bytes };
            let (magic, header) = self.check(&block)?;
            if matches!(magic, LEAF_V4 | LEAF_V5) {
                return Ok(first);
            }
            first = Number::of(&block, if header == 56 { 68 } else { 20 })?;
        }
        let what = self.what("the child of a block in the index of the attributes");
        Err(TableError::damaged(what, first.told_at, format!("a leaf below {MAX_LEVELS} levels"), first.number))
    }

    /// Reads a leaf; the number of the next one, 0 behind the last.
    fn leaf(&self, leaf: Number, kept: &mut Attributes) -> Result<Number, TableError> {
        let at = self.address(leaf)?;
        let bytes = self.volume.read(at, self.volume.superblock.block_bytes())?;
        let block = Block { what: "an attribute leaf", at, bytes: &bytes };
        let (magic, header) = self.check(&block)?;
        if !matches!(magic, LEAF_V4 | LEAF_V5) {
            return Err(block.damaged(8, "the magic number", "that of a leaf", format!("{magic:#x}")));
        }
        let count = usize::from(block.u16(header)?);
        let entries = if header == 56 { 80 } else { 32 };
        for index in 0..count {
            let entry = entries + index * 8;
            let (offset, flags) = (usize::from(block.u16(entry + 4)?), block.u8(entry + 6)?);
            if flags & (INCOMPLETE | PARENT) != 0 {
                continue;
            }
            if flags & LOCAL != 0 {
                let (value, name) = (usize::from(block.u16(offset)?), usize::from(block.u8(offset + 2)?));
                let name_bytes = block.slice(offset + 3, name)?;
                self.check_hash(&block, entry, name_bytes)?;
                kept.keep(&block, entry + 6, name_bytes, block.slice(offset + 3 + name, value)?.to_vec())?;
            } else {
                let (first, length, name) =
                    (Number::of(&block, offset)?, block.u32(offset + 4)?, block.u8(offset + 8)?);
                let name_bytes = block.slice(offset + 9, usize::from(name))?;
                self.check_hash(&block, entry, name_bytes)?;
                if length > MAX_VALUE_BYTES {
                    let expected = format!("at most {MAX_VALUE_BYTES}");
                    return Err(block.damaged(offset + 4, "the length of a value", expected, length));
                }
                kept.keep(&block, entry + 6, name_bytes, self.remote(first, length as usize)?)?;
            }
        }
        Number::of(&block, 0)
    }

    /// Fails where no checksum protects a name and its entry has the hash of another.
    fn check_hash(&self, block: &Block<'_>, entry: usize, name: &[u8]) -> Result<(), TableError> {
        let (expected, found) = (directory::hash(name), block.u32(entry)?);
        if self.volume.superblock.uuid.is_some() || expected == found {
            return Ok(());
        }
        let (expected, found) = (format!("{expected:#010x}"), format!("{found:#010x}"));
        Err(block.damaged(entry, "the hash of the name of an attribute", expected, found))
    }

    /// Reads a value that lies in blocks of its own, each with a header in version 5.
    fn remote(&self, first: Number, length: usize) -> Result<Vec<u8>, TableError> {
        let mut value = Vec::with_capacity(length);
        let mut next = first;
        // Each block holds at least one byte of a value that has at most 64 KiB.
        while value.len() < length {
            let at = self.address(next)?;
            let bytes = self.volume.read(at, self.volume.superblock.block_bytes())?;
            let block = Block { what: "an attribute value", at, bytes: &bytes };
            let header = match &self.volume.superblock.uuid {
                Some(uuid) => {
                    block.check_magic(0, REMOTE)?;
                    block.check_crc(12)?;
                    block.check_uuid(16, uuid)?;
                    block.check(32, "the owner", self.fork.owner, block.u64(32)?)?;
                    block.check_address(40)?;
                    block.check(4, "the offset", value.len() as u64, u64::from(block.u32(4)?))?;
                    REMOTE_HEADER_BYTES
                }
                None => 0,
            };
            let take = (bytes.len() - header).min(length - value.len());
            if header != 0 {
                block.check(8, "the bytes", take as u64, u64::from(block.u32(8)?))?;
            }
            value.extend_from_slice(block.slice(header, take)?);
            // There is no block behind the last number, so that it isn't found.
            next.number = next.number.saturating_add(1);
        }
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, String> {
        let mut kept = Attributes::default();
        let block = Block { what: "a fork", at: 0, bytes };
        short_form(&block, &mut kept).map_err(|error| error.to_string())?;
        let shown = kept.list.into_iter().map(|(name, value)| (String::from_utf8(name).unwrap(), value));
        Ok(shown.collect())
    }

    #[test]
    fn namespaces_become_prefixes() {
        let bytes = *b"\0\x1a\x05\0\x01\x01\0aA\x01\0\x02b\x01\x01\x04cC\x01\x01\x80dD\x01\0\x08e";
        let mut bytes = bytes.to_vec();
        bytes[1] = bytes.len() as u8;
        let expected = [("user.a", &b"A"[..]), ("trusted.b", b""), ("security.c", b"C")];
        assert_eq!(read(&bytes).unwrap(), expected.map(|(name, value)| (name.to_owned(), value.to_vec())));
        bytes[6] = 6;
        assert!(read(&bytes).unwrap_err().contains("at byte 6 is damaged: expected one namespace"));
    }

    #[test]
    fn an_entry_beyond_the_end_is_damage() {
        assert!(read(b"\0\x07\x01\0\x01\xff\0a").is_err());
        assert!(read(b"\0\x0a\x01\0\x01\x01\0aAB").unwrap_err().contains("the bytes"));
        assert!(read(b"\xff\xff\x01\0").is_err());
        assert!(read(b"").is_err());
    }
}
