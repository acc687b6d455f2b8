//! Numbers out of an item, each only when it is there.

use super::items::ItemError;

/// The bytes of an item, taken from its beginning.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a> {
    what: &'static str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    pub(super) fn new(what: &'static str, bytes: &'a [u8]) -> Fields<'a> {
        Fields { what, bytes, at: 0 }
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], ItemError> {
        let needs = self.at.saturating_add(len);
        let short = ItemError::Short { what: self.what, needs, has: self.bytes.len() };
        let bytes = self.bytes.get(self.at..needs).ok_or(short)?;
        self.at = needs;
        Ok(bytes)
    }

    pub(super) fn skip(&mut self, len: usize) -> Result<(), ItemError> {
        self.take(len).map(drop)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], ItemError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(super) fn u8(&mut self) -> Result<u8, ItemError> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, ItemError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, ItemError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, ItemError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// What is wrong with the field that was read last.
    pub(super) fn odd(&self, field: &'static str, found: u64, expected: &'static str) -> ItemError {
        ItemError::Odd { what: self.what, field, found, expected }
    }
}
