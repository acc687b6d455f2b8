//! Reparse points: symbolic links, junctions, special files of Linux on Windows, and what other drivers take care of.

use super::{
    bytes::{slice_at, u16_at, u32_at},
    names::append_utf8,
};

mod tag {
    pub(super) const MOUNT_POINT: u32 = 0xa000_0003;
    pub(super) const SYMLINK: u32 = 0xa000_000c;
    pub(super) const LX_SYMLINK: u32 = 0xa000_001d;
    pub(super) const AF_UNIX: u32 = 0x8000_0023;
    pub(super) const LX_FIFO: u32 = 0x8000_0024;
    pub(super) const LX_CHR: u32 = 0x8000_0025;
    pub(super) const LX_BLK: u32 = 0x8000_0026;
}

/// The longest reparse point that Windows makes.
pub(super) const REPARSE_BYTES_MAX: u64 = 16 << 10;

/// What a reparse point makes of its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reparse {
    /// A symbolic link with this target.
    Link(Vec<u8>),
    /// What no driver is known for: a symbolic link with a text that names its tag, as ntfs-3g shows it.
    Unknown(Vec<u8>),
    Socket,
    Fifo,
    /// A device, whose numbers are in the extended attribute `$LXDEV`.
    CharacterDevice,
    BlockDevice,
}

impl Reparse {
    /// Reads the value of the attribute.
    pub(super) fn parse(value: &[u8]) -> Reparse {
        let tag = u32_at(value, 0).unwrap_or(0);
        let length = u16_at(value, 4).map_or(0, usize::from);
        let data = slice_at(value, 8, length).unwrap_or_default();
        let target = match tag {
            tag::AF_UNIX => return Reparse::Socket,
            tag::LX_FIFO => return Reparse::Fifo,
            tag::LX_CHR => return Reparse::CharacterDevice,
            tag::LX_BLK => return Reparse::BlockDevice,
            tag::MOUNT_POINT => windows_target(data, 8),
            tag::SYMLINK => windows_target(data, 12),
            // A version, and then the bytes of the path.
            tag::LX_SYMLINK if u32_at(data, 0) == Some(2) => data.get(4..).map(<[u8]>::to_vec),
            _ => None,
        };
        let target = target.filter(|target| !target.is_empty() && !target.contains(&0));
        match target {
            Some(target) => Reparse::Link(target),
            None => Reparse::Unknown(format!("unsupported reparse tag {tag:#010x}").into_bytes()),
        }
    }
}

/// The target with slashes. ntfs-3g also puts the mount point before absolute targets and takes the letters' case from the
/// directories; without a mount there's nothing to put before, so the drive stays.
fn windows_target(data: &[u8], names_at: usize) -> Option<Vec<u8>> {
    let (offset, length) = (usize::from(u16_at(data, 0)?), usize::from(u16_at(data, 2)?));
    let mut target = Vec::new();
    append_utf8(slice_at(data, names_at.checked_add(offset)?, length)?, &mut target);
    // The way to say that no name is to be looked at further: `\??\`, or `\\?\`.
    if target.starts_with(br"\??\") || target.starts_with(br"\\?\") {
        target.drain(..4);
    }
    for byte in target.iter_mut().filter(|byte| **byte == b'\\') {
        *byte = b'/';
    }
    Some(target)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A reparse point with this target, as Windows makes it.
    fn on_disk(tag: u32, target: &str) -> Vec<u8> {
        let target: Vec<u8> = target.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let length = target.len() as u16;
        let mut data: Vec<u8> = [0, length, length, length].iter().flat_map(|n| n.to_le_bytes()).collect();
        if tag == tag::SYMLINK {
            data.extend([1, 0, 0, 0]);
        }
        data.extend([&target[..], &target].concat());
        [&tag.to_le_bytes()[..], &(data.len() as u16).to_le_bytes(), &[0, 0], &data].concat()
    }

    #[test]
    fn targets_have_slashes() {
        for (tag, stored, shown) in [
            (tag::SYMLINK, r"sub\File.txt", "sub/File.txt"),
            (tag::SYMLINK, r"..\x\y", "../x/y"),
            (tag::SYMLINK, r"\??\C:\Users", "C:/Users"),
            (tag::MOUNT_POINT, r"\??\C:\Users\All", "C:/Users/All"),
            (tag::MOUNT_POINT, r"\??\Volume{12-34}\", "Volume{12-34}/"),
        ] {
            assert_eq!(Reparse::parse(&on_disk(tag, stored)), Reparse::Link(shown.into()));
        }
        for (tag, stored, shown) in [
            (0x9000_001a, "cloud", "unsupported reparse tag 0x9000001a"),
            (tag::SYMLINK, "", "unsupported reparse tag 0xa000000c"),
        ] {
            assert_eq!(Reparse::parse(&on_disk(tag, stored)), Reparse::Unknown(shown.into()));
        }
    }

    #[test]
    fn no_bytes_panic() {
        let sound = on_disk(tag::SYMLINK, r"sub\File.txt");
        for length in 0..sound.len() {
            Reparse::parse(&sound[..length]);
        }
        for byte in 0..20 {
            for value in 0..=255 {
                let mut bytes = sound.clone();
                bytes[byte] = value;
                Reparse::parse(&bytes);
            }
        }
    }
}
