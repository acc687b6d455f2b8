//! The fields of a body, one after the other.

use super::FrameError;

/// What of a body was not taken yet.
pub(super) struct Fields<'a> {
    kind: u8,
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(kind: u8, body: &'a [u8]) -> Self {
        Self { kind, rest: body }
    }

    pub(super) fn wrong(&self, what: &'static str) -> FrameError {
        FrameError::Body { kind: self.kind, what }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or_else(|| self.wrong("too few bytes"))?;
        self.rest = rest;
        Ok(*array)
    }

    pub(super) fn byte(&mut self) -> Result<u8, FrameError> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, FrameError> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, FrameError> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<&'a [u8], FrameError> {
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or_else(|| self.wrong("too few bytes"))?;
        self.rest = rest;
        Ok(bytes)
    }

    /// All that is left, which stays there.
    pub(super) fn all(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Nothing may be left.
    pub(super) fn end<T>(self, value: T) -> Result<T, FrameError> {
        if self.rest.is_empty() { Ok(value) } else { Err(self.wrong("too many bytes")) }
    }
}
