//! Little-endian numbers out of byte slices; `None` where the slice ends before them.

/// Two bytes at `at`.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_le_bytes)
}

/// Four bytes at `at`.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

/// Eight bytes at `at`.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}

/// `length` bytes from `at` on.
pub(super) fn slice_at(bytes: &[u8], at: usize, length: usize) -> Option<&[u8]> {
    bytes.get(at..at.checked_add(length)?)
}

/// The bytes that a magic number should have been, for messages.
pub(super) fn shown(bytes: &[u8]) -> String {
    match bytes.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ') && !bytes.is_empty() {
        true => format!("{:?}", String::from_utf8_lossy(bytes)),
        false => format!("bytes {bytes:02x?}"),
    }
}
