//! Little-endian fields of what lies on the disk.
//!
//! A field outside of the bytes reads as 0, so no length that was read from a disk can cause a panic here; whoever needs the
//! field to be there looks at the length first.

/// The 2 bytes at `at`.
#[inline]
pub(super) fn le16(bytes: &[u8], at: usize) -> u16 {
    field(bytes, at).map_or(0, u16::from_le_bytes)
}

/// The 4 bytes at `at`.
#[inline]
pub(super) fn le32(bytes: &[u8], at: usize) -> u32 {
    field(bytes, at).map_or(0, u32::from_le_bytes)
}

/// The 8 bytes of which the lower 4 lie at `low` and the upper at `high`.
#[inline]
pub(super) fn split64(bytes: &[u8], low: usize, high: usize) -> u64 {
    u64::from(le32(bytes, low)) | u64::from(le32(bytes, high)) << 32
}

/// The 4 bytes at `at`, as the journal has them: big-endian.
pub(super) fn be32(bytes: &[u8], at: usize) -> u32 {
    field(bytes, at).map_or(0, u32::from_be_bytes)
}

/// The 8 bytes at `at`, big-endian.
pub(super) fn be64(bytes: &[u8], at: usize) -> u64 {
    field(bytes, at).map_or(0, u64::from_be_bytes)
}

/// The 2 bytes at `at`, big-endian.
pub(super) fn be16(bytes: &[u8], at: usize) -> u16 {
    field(bytes, at).map_or(0, u16::from_be_bytes)
}

#[inline]
fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}
