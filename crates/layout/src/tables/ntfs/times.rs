//! Times and attributes of a file: `$STANDARD_INFORMATION`.

use super::bytes::{u32_at, u64_at};
use crate::tables::Timestamp;

/// Attributes as DOS had them.
pub(super) const HIDDEN: u32 = 0x2;
pub(super) const SYSTEM: u32 = 0x4;
/// There is a reparse point.
pub(super) const REPARSE_POINT: u32 = 0x400;

/// Seconds from 1601 to 1970.
const EPOCH_SECONDS: i64 = 11_644_473_600;
/// Ticks of 100 ns in a second.
const TICKS: i64 = 10_000_000;

/// What `$STANDARD_INFORMATION` tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StandardInformation {
    pub(super) birth: Timestamp,
    pub(super) modified: Timestamp,
    pub(super) changed: Timestamp,
    pub(super) accessed: Timestamp,
    /// The attributes as DOS had them, and further ones.
    pub(super) flags: u32,
}

impl StandardInformation {
    /// Reads the value of the attribute.
    pub(super) fn parse(value: &[u8]) -> Option<StandardInformation> {
        let time = |at| u64_at(value, at).map(timestamp);
        Some(StandardInformation {
            birth: time(0)?,
            modified: time(8)?,
            changed: time(16)?,
            accessed: time(24)?,
            flags: u32_at(value, 32)?,
        })
    }
}

/// Ticks of 100 ns since 1601 as seconds since 1970.
fn timestamp(ticks: u64) -> Timestamp {
    let ticks = ticks.cast_signed();
    let nanoseconds = u32::try_from(ticks.rem_euclid(TICKS) * 100).unwrap_or(0);
    Timestamp { seconds: ticks.div_euclid(TICKS) - EPOCH_SECONDS, nanoseconds }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_and_after_1970() {
        for (ticks, seconds, nanoseconds) in [
            (116_444_736_000_000_000, 0, 0),
            (116_444_736_000_000_001, 0, 100),
            (116_444_735_999_999_999, -1, 999_999_900),
            (0, -EPOCH_SECONDS, 0),
            (u64::MAX, -EPOCH_SECONDS - 1, 999_999_900),
            (i64::MAX as u64, 910_692_730_085, 477_580_700),
        ] {
            assert_eq!(timestamp(ticks), Timestamp { seconds, nanoseconds });
        }
    }
}
