//! Files of Unix on NTFS: what Interix put into system files, and ntfs-3g still does.

use super::{bytes::u64_at, names::utf8};

/// The longest target of a symbolic link, in UTF-16 units.
const TARGET_UNITS_MAX: u64 = 4096;
/// Bytes of the mark before what it tells.
const MARK_BYTES: u64 = 8;
/// The most that such a file has.
pub(super) const SPECIAL_BYTES_MAX: u64 = MARK_BYTES + 2 * TARGET_UNITS_MAX;

/// What a system file stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Special {
    Fifo,
    Socket,
    /// A device and its number, as `makedev` packs it.
    CharacterDevice(u64),
    BlockDevice(u64),
    /// A symbolic link with its target.
    Link(Vec<u8>),
}

impl Special {
    /// Reads the content of a file with the system attribute; `None` when it's a plain file.
    pub(super) fn parse(content: &[u8], is_hidden: bool) -> Option<Special> {
        match content.len() {
            0 if !is_hidden => return Some(Special::Fifo),
            1 if !is_hidden => return Some(Special::Socket),
            _ => {}
        }
        let (mark, rest) = content.split_first_chunk::<8>().filter(|(_, rest)| !rest.is_empty())?;
        let device = || Some(makedev(u64_at(rest, 0)?, u64_at(rest, 8)?)).filter(|_| rest.len() == 16);
        match mark {
            b"IntxCHR\0" => device().map(Special::CharacterDevice),
            b"IntxBLK\0" => device().map(Special::BlockDevice),
            b"IntxLNK\x01" => Some(Special::Link(utf8(rest))),
            _ => None,
        }
    }
}

/// Packs the number of a device as glibc does.
pub(super) fn makedev(major: u64, minor: u64) -> u64 {
    let (major, minor) = (major & 0xffff_ffff, minor & 0xffff_ffff);
    (major & 0xffff_f000) << 32 | (major & 0xfff) << 8 | (minor & 0xffff_ff00) << 12 | (minor & 0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_files_are_what_they_stand_for() {
        let device = |mark: &[u8], major: u64, minor: u64| [mark, &major.to_le_bytes(), &minor.to_le_bytes()].concat();
        assert_eq!(Special::parse(b"", false), Some(Special::Fifo));
        assert_eq!(Special::parse(b"x", false), Some(Special::Socket));
        assert_eq!(Special::parse(b"", true), None);
        let packed = rustix::fs::makedev(5, 300);
        assert_eq!(Special::parse(&device(b"IntxCHR\0", 5, 300), false), Some(Special::CharacterDevice(packed)));
        assert_eq!(Special::parse(&device(b"IntxBLK\0", 5, 300), true), Some(Special::BlockDevice(packed)));
        assert_eq!(Special::parse(&device(b"IntxBLK\0", 5, 300)[..20], true), None);
        assert_eq!(Special::parse(b"IntxLNK\x01a\0/\0b\0", false), Some(Special::Link(b"a/b".to_vec())));
        for plain in [&b"IntxLNK\x01"[..], b"IntxLNK\0a\0", b"pagefile", b"ab"] {
            assert_eq!(Special::parse(plain, false), None);
        }
    }

    #[test]
    fn numbers_are_packed_as_glibc_does() {
        for (major, minor) in [(0, 0), (5, 300), (4095, 1 << 20), (0x12_3456, 0xffff_ffff)] {
            assert_eq!(makedev(major, minor), rustix::fs::makedev(major as u32, minor as u32));
        }
    }
}
