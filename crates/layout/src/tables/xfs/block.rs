//! A piece of metadata that knows where it lies, so that what is damaged in it can be told with its place.

use std::fmt::Display;

use super::checksum::crc32c;
use crate::tables::TableError;

/// Bytes of metadata. Numbers in them are big-endian; offsets are bytes from the start of the piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<'a> {
    /// What it is, for messages.
    pub(super) what: &'static str,
    /// Where it lies, in bytes from the start of the file system.
    pub(super) at: u64,
    /// Its bytes.
    pub(super) bytes: &'a [u8],
}

/// The number of a block, and the byte that says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) number: u32,
    pub(super) told_at: u64,
}

impl Number {
    /// The number at an offset of a block.
    pub(super) fn of(block: &Block<'_>, offset: usize) -> Result<Number, TableError> {
        Ok(Number { number: block.u32(offset)?, told_at: block.at.saturating_add(offset as u64) })
    }
}

impl<'a> Block<'a> {
    /// Something in it isn't what it must be.
    pub(super) fn damaged(
        &self,
        offset: usize,
        what: &str,
        expected: impl ToString,
        found: impl ToString,
    ) -> TableError {
        TableError::damaged(format!("{what} of {}", self.what), self.at.saturating_add(offset as u64), expected, found)
    }

    /// Some of its bytes.
    pub(super) fn slice(&self, offset: usize, length: usize) -> Result<&'a [u8], TableError> {
        let bytes = self.bytes.get(offset..).and_then(|rest| rest.get(..length));
        bytes.ok_or_else(|| {
            let expected = format!("{length} bytes before the end at {}", self.bytes.len());
            self.damaged(offset, "a field", expected, format!("an offset of {offset}"))
        })
    }

    /// A piece of it, which goes by a name of its own.
    pub(super) fn part(&self, what: &'static str, offset: usize, length: usize) -> Result<Block<'a>, TableError> {
        Ok(Block { what, at: self.at.saturating_add(offset as u64), bytes: self.slice(offset, length)? })
    }

    /// Bytes of a fixed number.
    pub(super) fn array<const N: usize>(&self, offset: usize) -> Result<[u8; N], TableError> {
        let mut array = [0; N];
        array.copy_from_slice(self.slice(offset, N)?);
        Ok(array)
    }

    pub(super) fn u8(&self, offset: usize) -> Result<u8, TableError> {
        self.array(offset).map(u8::from_be_bytes)
    }

    pub(super) fn u16(&self, offset: usize) -> Result<u16, TableError> {
        self.array(offset).map(u16::from_be_bytes)
    }

    pub(super) fn u32(&self, offset: usize) -> Result<u32, TableError> {
        self.array(offset).map(u32::from_be_bytes)
    }

    pub(super) fn u64(&self, offset: usize) -> Result<u64, TableError> {
        self.array(offset).map(u64::from_be_bytes)
    }

    /// Fails unless what was found is what must be there.
    pub(super) fn check<T: PartialEq + Display>(
        &self,
        offset: usize,
        what: &str,
        expected: T,
        found: T,
    ) -> Result<(), TableError> {
        if expected == found { Ok(()) } else { Err(self.damaged(offset, what, expected, found)) }
    }

    /// Fails unless the number at the offset is one of a kind of block.
    pub(super) fn check_magic(&self, offset: usize, expected: u32) -> Result<(), TableError> {
        let found = self.u32(offset)?;
        if found == expected {
            return Ok(());
        }
        Err(self.damaged(offset, "the magic number", format!("{expected:#x}"), format!("{found:#x}")))
    }

    /// Fails unless the CRC-32C of all its bytes is the one at the offset, which alone is little-endian.
    pub(super) fn check_crc(&self, offset: usize) -> Result<(), TableError> {
        let (expected, found) = (crc32c(self.bytes, offset), u32::from_le_bytes(self.array(offset)?));
        if found == expected {
            return Ok(());
        }
        Err(self.damaged(offset, "the checksum", format!("{expected:#x}"), format!("{found:#x}")))
    }

    /// Fails unless the UUID at the offset is that of the file system.
    pub(super) fn check_uuid(&self, offset: usize, expected: &[u8; 16]) -> Result<(), TableError> {
        let found: [u8; 16] = self.array(offset)?;
        let shown = |uuid: &[u8; 16]| format!("{:032x}", u128::from_be_bytes(*uuid));
        if found == *expected { Ok(()) } else { Err(self.damaged(offset, "the UUID", shown(expected), shown(&found))) }
    }

    /// Fails unless it says at the offset that it lies where it lies, which it tells in units of 512 bytes.
    pub(super) fn check_address(&self, offset: usize) -> Result<(), TableError> {
        self.check(offset, "the own address", self.at / 512, self.u64(offset)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_beyond_the_end_is_told_with_its_place() {
        let block = Block { what: "a test", at: 1000, bytes: &[1, 2, 3, 4, 5] };
        assert_eq!(block.u32(1).unwrap(), 0x0203_0405);
        assert_eq!(
            block.u32(2).unwrap_err().to_string(),
            "a field of a test at byte 1002 is damaged: expected 4 bytes before the end at 5, found an offset of 2"
        );
        assert!(block.slice(usize::MAX, usize::MAX).is_err());
        assert!(block.slice(5, 0).unwrap().is_empty());
        assert!(block.slice(6, 0).is_err());
        assert_eq!(block.part("a part", 3, 2).unwrap().u16(0).unwrap(), 0x0405);
    }
}
