//! What the items of a subvolume's tree say, and those of the tree of roots.

use onesweep_sys::btrfs::Key;
use thiserror::Error;

use super::fields::Fields;

/// Names have at most so many bytes.
const NAME_MAX: u16 = 255;

/// Why an item can't be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ItemError {
    /// It ends too early.
    #[error("{what}: needs {needs} bytes, has {has}")]
    Short {
        /// The kind of item.
        what: &'static str,
        /// Bytes that it must have.
        needs: usize,
        /// Bytes that it has.
        has: usize,
    },
    /// It holds what can't be.
    #[error("{what}: {field} is {found}, expected {expected}")]
    Odd {
        /// The kind of item.
        what: &'static str,
        /// The part of it.
        field: &'static str,
        /// What is there.
        found: u64,
        /// What should be.
        expected: &'static str,
    },
}

/// A moment, as in `struct timespec`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// Seconds since 1970.
    pub secs: i64,
    /// And so many nanoseconds.
    pub nanos: u32,
}

/// An inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeItem {
    /// The transaction that made it.
    pub generation: u64,
    /// The transaction that changed it last.
    pub changed_in: u64,
    /// Its bytes.
    pub size: u64,
    /// Bytes that its extents take.
    pub bytes: u64,
    /// Its names.
    pub nlink: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// The device that it is.
    pub rdev: u64,
    /// `BTRFS_INODE_*`.
    pub flags: u64,
    /// When it was read.
    pub atime: Time,
    /// When anything of it changed.
    pub ctime: Time,
    /// When its content changed.
    pub mtime: Time,
    /// When it was made.
    pub otime: Time,
}

impl InodeItem {
    /// From the bytes of an `INODE_ITEM`.
    pub fn parse(bytes: &[u8]) -> Result<InodeItem, ItemError> {
        let mut fields = Fields::new("inode", bytes);
        let (generation, changed_in) = (fields.u64()?, fields.u64()?);
        let (size, bytes) = (fields.u64()?, fields.u64()?);
        fields.skip(8)?; // a block group, unused
        let (nlink, uid, gid, mode) = (fields.u32()?, fields.u32()?, fields.u32()?, fields.u32()?);
        let (rdev, flags) = (fields.u64()?, fields.u64()?);
        fields.skip(8 + 32)?; // a counter of changes, and room
        let [atime, ctime, mtime, otime] =
            [time(&mut fields)?, time(&mut fields)?, time(&mut fields)?, time(&mut fields)?];
        Ok(InodeItem {
            generation,
            changed_in,
            size,
            bytes,
            nlink,
            uid,
            gid,
            mode,
            rdev,
            flags,
            atime,
            ctime,
            mtime,
            otime,
        })
    }
}

fn time(fields: &mut Fields<'_>) -> Result<Time, ItemError> {
    Ok(Time { secs: fields.u64()?.cast_signed(), nanos: fields.u32()? })
}

/// A name in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirItem<'a> {
    /// What it names: an inode of the same tree, or the root of another.
    pub location: Key,
    /// `BTRFS_FT_*`: 1 a file, 2 a directory, 7 a symbolic link.
    pub kind: u8,
    /// The name.
    pub name: &'a [u8],
}

impl<'a> DirItem<'a> {
    /// From the bytes of a `DIR_INDEX`.
    pub fn parse(bytes: &'a [u8]) -> Result<DirItem<'a>, ItemError> {
        let mut fields = Fields::new("name of a directory", bytes);
        let location = key(&mut fields)?;
        fields.skip(8)?; // the transaction
        fields.skip(2)?; // the length of an attribute's value
        let len = fields.u16()?;
        let kind = fields.u8()?;
        Ok(DirItem { location, kind, name: name(&mut fields, len)? })
    }
}

pub(super) fn key(fields: &mut Fields<'_>) -> Result<Key, ItemError> {
    Ok(Key { objectid: fields.u64()?, kind: fields.u8()?, offset: fields.u64()? })
}

fn name<'a>(fields: &mut Fields<'a>, len: u16) -> Result<&'a [u8], ItemError> {
    if len == 0 || len > NAME_MAX {
        return Err(fields.odd("length of the name", len.into(), "1 to 255"));
    }
    fields.take(len.into())
}

/// A name of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameRef<'a> {
    /// The inode of the directory that has it.
    pub parent: u64,
    /// Its number there.
    pub index: u64,
    /// The name.
    pub name: &'a [u8],
}

impl<'a> NameRef<'a> {
    /// Visits the names in an `INODE_REF`, of which the key's offset is the parent.
    pub fn parse(bytes: &'a [u8], parent: u64, visit: &mut dyn FnMut(NameRef<'a>)) -> Result<(), ItemError> {
        let mut fields = Fields::new("names of an inode", bytes);
        while !fields.is_at_end() {
            let (index, len) = (fields.u64()?, fields.u16()?);
            visit(NameRef { parent, index, name: name(&mut fields, len)? });
        }
        Ok(())
    }

    /// Visits the names in an `INODE_EXTREF`.
    pub fn parse_extended(bytes: &'a [u8], visit: &mut dyn FnMut(NameRef<'a>)) -> Result<(), ItemError> {
        let mut fields = Fields::new("further names of an inode", bytes);
        while !fields.is_at_end() {
            let (parent, index, len) = (fields.u64()?, fields.u64()?, fields.u16()?);
            visit(NameRef { parent, index, name: name(&mut fields, len)? });
        }
        Ok(())
    }
}

/// An extended attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Its full name.
    pub name: &'a [u8],
    /// What it holds.
    pub value: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// Visits the attributes in an `XATTR_ITEM`: those whose names have the same hash are in one.
    pub fn parse(bytes: &'a [u8], visit: &mut dyn FnMut(Attribute<'a>)) -> Result<(), ItemError> {
        let mut fields = Fields::new("extended attributes", bytes);
        while !fields.is_at_end() {
            fields.skip(17 + 8)?; // a key, unused, and the transaction
            let (value_len, name_len) = (fields.u16()?, fields.u16()?);
            fields.skip(1)?; // the type
            let name = name(&mut fields, name_len)?;
            visit(Attribute { name, value: fields.take(value_len.into())? });
        }
        Ok(())
    }
}

/// A part of a file. Where it begins in the file, the offset of its key tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileExtent {
    /// Its bytes are in the item.
    Inline {
        /// Bytes of the file.
        length: u64,
        /// They are compressed.
        compressed: bool,
    },
    /// Nothing: it reads as zeros.
    Hole {
        /// Bytes of the file.
        length: u64,
    },
    /// Bytes on the devices.
    Regular {
        /// btrfs's address of them; of all of a compressed extent, of which the file may have a part.
        address: u64,
        /// Bytes of the file.
        length: u64,
        /// They are compressed or encrypted.
        encoded: bool,
        /// Allocated, but not written: it reads as zeros.
        unwritten: bool,
    },
}

impl FileExtent {
    /// The bytes that an `EXTENT_DATA` of the inline kind holds itself, as they lie there.
    pub fn content(item: &[u8]) -> Option<&[u8]> {
        const HEAD: usize = 21;
        item.get(HEAD..)
    }

    /// From the bytes of an `EXTENT_DATA`.
    pub fn parse(bytes: &[u8]) -> Result<FileExtent, ItemError> {
        const INLINE: u8 = 0;
        const REGULAR: u8 = 1;
        const PREALLOCATED: u8 = 2;
        let mut fields = Fields::new("extent of a file", bytes);
        fields.skip(8)?; // the transaction
        let in_memory = fields.u64()?;
        let (compression, encryption, other) = (fields.u8()?, fields.u8()?, fields.u16()?);
        let encoded = compression != 0 || encryption != 0 || other != 0;
        let kind = fields.u8()?;
        if kind == INLINE {
            return Ok(FileExtent::Inline { length: in_memory, compressed: encoded });
        }
        if !matches!(kind, REGULAR | PREALLOCATED) {
            return Err(fields.odd("type", kind.into(), "0 to 2"));
        }
        let (address, _, offset, length) = (fields.u64()?, fields.u64()?, fields.u64()?, fields.u64()?);
        if length == 0 {
            return Err(fields.odd("length", length, "one byte at least"));
        }
        if address == 0 {
            return Ok(FileExtent::Hole { length });
        }
        let offset = if encoded { 0 } else { offset };
        let Some(begin) = address.checked_add(offset).filter(|begin| begin.checked_add(length).is_some()) else {
            return Err(fields.odd("offset", offset, "one that leaves the extent within 64 bits"));
        };
        Ok(FileExtent::Regular { address: begin, length, encoded, unwritten: kind == PREALLOCATED })
    }

    /// Bytes of the file.
    pub fn length(&self) -> u64 {
        match *self {
            FileExtent::Inline { length, .. } | FileExtent::Hole { length } | FileExtent::Regular { length, .. } => {
                length
            }
        }
    }
}

/// Where a tree begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootItem {
    /// btrfs's address of its topmost node.
    pub address: u64,
    /// How far the node is above the leaves.
    pub level: u8,
    /// The transaction that wrote the node.
    pub generation: u64,
}

impl RootItem {
    /// From the bytes of a `ROOT_ITEM`.
    pub fn parse(bytes: &[u8]) -> Result<RootItem, ItemError> {
        let mut fields = Fields::new("root of a tree", bytes);
        fields.skip(160)?; // an inode
        let generation = fields.u64()?;
        fields.skip(8)?; // the inode of the root directory
        let address = fields.u64()?;
        fields.skip(4 * 8 + 4 + 17 + 1)?; // limits, flags, references, and how far its deletion has come
        Ok(RootItem { address, level: fields.u8()?, generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(kind: u8, compression: u8, [address, offset, length]: [u64; 3]) -> Vec<u8> {
        let head = [1_u64.to_le_bytes(), 4096_u64.to_le_bytes()].concat();
        let tail = [address, 8192, offset, length].map(u64::to_le_bytes).concat();
        [head, vec![compression, 0, 0, 0, kind], tail].concat()
    }

    #[test]
    fn extents_are_told_apart() {
        let parse = |kind, compression, numbers| FileExtent::parse(&extent(kind, compression, numbers));
        let regular = |address, encoded, unwritten| FileExtent::Regular { address, length: 4096, encoded, unwritten };
        assert_eq!(parse(1, 0, [1 << 20, 8192, 4096]), Ok(regular((1 << 20) + 8192, false, false)));
        assert_eq!(parse(1, 3, [1 << 20, 8192, 4096]), Ok(regular(1 << 20, true, false)), "a part of what is packed");
        assert_eq!(parse(2, 0, [1 << 20, 0, 4096]), Ok(regular(1 << 20, false, true)));
        assert_eq!(parse(1, 0, [0, 0, 4096]), Ok(FileExtent::Hole { length: 4096 }));
        let inline = FileExtent::parse(&extent(0, 1, [0; 3])[..30]);
        assert_eq!(inline, Ok(FileExtent::Inline { length: 4096, compressed: true }));
        assert_eq!(inline.unwrap().length(), 4096);
    }

    #[test]
    fn extents_that_cannot_be_are_refused_with_what_is_wrong() {
        let said = |bytes: &[u8]| FileExtent::parse(bytes).unwrap_err().to_string();
        assert_eq!(said(&extent(3, 0, [1, 1, 1])), "extent of a file: type is 3, expected 0 to 2");
        assert_eq!(said(&extent(1, 0, [1 << 20, 0, 0])), "extent of a file: length is 0, expected one byte at least");
        assert!(said(&extent(1, 0, [u64::MAX, 1, 1])).contains("offset is 1"));
        assert!(said(&extent(1, 0, [u64::MAX - 1, 0, 2])).contains("64 bits"));
        assert_eq!(said(&extent(1, 0, [1; 3])[..52]), "extent of a file: needs 53 bytes, has 52");
    }

    #[test]
    fn several_attributes_are_in_one_item() {
        let one = |name: &[u8], value: &[u8]| {
            let lens = [value.len() as u16, name.len() as u16].map(u16::to_le_bytes).concat();
            [&[0; 25][..], &lens, &[8], name, value].concat()
        };
        let bytes = [one(b"user.a", b"first"), one(b"user.b", b"")].concat();
        let mut found = Vec::new();
        Attribute::parse(&bytes, &mut |one| found.push((one.name, one.value))).unwrap();
        assert_eq!(found, [(&b"user.a"[..], &b"first"[..]), (b"user.b", b"")]);
        let cut = Attribute::parse(&bytes[..bytes.len() - 1], &mut |_| ()).unwrap_err();
        assert_eq!(cut.to_string(), "extended attributes: needs 77 bytes, has 76");
    }

    #[test]
    fn several_names_are_in_one_item() {
        let one =
            |index: u64, name: &[u8]| [&index.to_le_bytes()[..], &(name.len() as u16).to_le_bytes()[..], name].concat();
        let bytes = [one(2, b"first"), one(9, b"second")].concat();
        let mut found = Vec::new();
        NameRef::parse(&bytes, 300, &mut |name| found.push(name)).unwrap();
        let expected =
            [NameRef { parent: 300, index: 2, name: b"first" }, NameRef { parent: 300, index: 9, name: b"second" }];
        assert_eq!(found, expected);
        assert!(NameRef::parse(&bytes[..bytes.len() - 1], 300, &mut |_| ()).is_err());
        assert!(NameRef::parse(&one(2, b""), 300, &mut |_| ()).is_err(), "no name is empty");
        assert!(NameRef::parse(&one(2, &[b'x'; 256]), 300, &mut |_| ()).is_err());
    }
}
