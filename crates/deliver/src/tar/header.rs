//! The 512-byte ustar block in front of each member.

use std::ops::Range;

/// Bytes of a block; content is padded to a multiple of it.
pub(super) const BLOCK: usize = 512;

const NAME: Range<usize> = 0..100;
const MODE: Range<usize> = 100..108;
const UID: Range<usize> = 108..116;
const GID: Range<usize> = 116..124;
const SIZE: Range<usize> = 124..136;
const MTIME: Range<usize> = 136..148;
const CHECKSUM: Range<usize> = 148..156;
const TYPE: usize = 156;
const LINK: Range<usize> = 157..257;
const MAGIC: Range<usize> = 257..265;
const UNAME: Range<usize> = 265..297;
const GNAME: Range<usize> = 297..329;
const MAJOR: Range<usize> = 329..337;
const MINOR: Range<usize> = 337..345;
const PREFIX: Range<usize> = 345..500;

/// What sort of member follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Type {
    File = b'0',
    Link = b'1',
    Symlink = b'2',
    CharDevice = b'3',
    BlockDevice = b'4',
    Directory = b'5',
    Fifo = b'6',
    Extended = b'x',
}

/// A header under construction. Each setter says whether the value fits; what doesn't becomes a pax record.
pub(super) struct Header([u8; BLOCK]);

impl Header {
    pub(super) fn new(kind: Type) -> Self {
        let mut block = [0; BLOCK];
        block[TYPE] = kind as u8;
        block[MAGIC].copy_from_slice(b"ustar\x0000");
        let mut header = Self(block);
        header.octal(MODE, 0);
        header.octal(UID, 0);
        header.octal(GID, 0);
        header.octal(SIZE, 0);
        header.octal(MTIME, 0);
        header.octal(MAJOR, 0);
        header.octal(MINOR, 0);
        header
    }

    /// A number in octal, with zeros in front and a NUL behind; 0 when it doesn't fit.
    fn octal(&mut self, field: Range<usize>, value: u64) -> bool {
        let digits = field.len() as u32 - 1;
        let fits = value >> (3 * digits) == 0;
        let mut rest = if fits { value } else { 0 };
        for byte in self.0[field].iter_mut().rev().skip(1) {
            *byte = b'0' + (rest & 7) as u8;
            rest >>= 3;
        }
        fits
    }

    fn text(&mut self, field: Range<usize>, text: &[u8]) -> bool {
        let kept = text.len().min(field.len());
        self.0[field][..kept].copy_from_slice(&text[..kept]);
        kept == text.len()
    }

    /// The member's name, split at a `/` when it is long.
    pub(super) fn name(&mut self, name: &[u8]) -> bool {
        match split(name) {
            Some((prefix, rest)) => self.text(PREFIX, prefix) && self.text(NAME, rest),
            None => self.text(NAME, name),
        }
    }

    pub(super) fn link(&mut self, target: &[u8]) -> bool {
        self.text(LINK, target)
    }

    pub(super) fn mode(&mut self, mode: u32) {
        self.octal(MODE, u64::from(mode & 0o7777));
    }

    pub(super) fn uid(&mut self, uid: u32) -> bool {
        self.octal(UID, u64::from(uid))
    }

    pub(super) fn gid(&mut self, gid: u32) -> bool {
        self.octal(GID, u64::from(gid))
    }

    pub(super) fn size(&mut self, size: u64) -> bool {
        self.octal(SIZE, size)
    }

    pub(super) fn mtime(&mut self, seconds: i64) -> bool {
        u64::try_from(seconds).is_ok_and(|seconds| self.octal(MTIME, seconds))
    }

    pub(super) fn uname(&mut self, name: &[u8]) -> bool {
        // A name that fills the field has no NUL behind it, which some readers need.
        name.len() < UNAME.len() && self.text(UNAME, name)
    }

    pub(super) fn gname(&mut self, name: &[u8]) -> bool {
        name.len() < GNAME.len() && self.text(GNAME, name)
    }

    pub(super) fn major(&mut self, major: u32) -> bool {
        self.octal(MAJOR, u64::from(major))
    }

    pub(super) fn minor(&mut self, minor: u32) -> bool {
        self.octal(MINOR, u64::from(minor))
    }

    /// Puts the checksum in; the block is complete.
    pub(super) fn seal(mut self) -> [u8; BLOCK] {
        self.0[CHECKSUM].fill(b' ');
        let sum: u64 = self.0.iter().map(|&byte| u64::from(byte)).sum();
        // Six digits, a NUL and a space, as all writers have it.
        self.octal(CHECKSUM.start..CHECKSUM.end - 1, sum);
        self.0[CHECKSUM.end - 2] = 0;
        self.0
    }
}

/// Where a name of more than 100 bytes can be cut so that both parts fit their fields.
fn split(name: &[u8]) -> Option<(&[u8], &[u8])> {
    if name.len() <= NAME.len() || name.len() > PREFIX.len() + 1 + NAME.len() {
        return None;
    }
    let first = (name.len() - NAME.len() - 1).max(1);
    let last = PREFIX.len().min(name.len() - 2);
    let slash = (first..=last).find(|&at| name[at] == b'/')?;
    Some((&name[..slash], &name[slash + 1..]))
}

/// Major and minor number of a device, as glibc and musl pack them into `dev_t`.
pub(super) fn device_numbers(rdev: u64) -> (u32, u32) {
    let major = (rdev >> 8 & 0xfff) | (rdev >> 32 & 0xffff_f000);
    let minor = (rdev & 0xff) | (rdev >> 12 & 0xffff_ff00);
    (major as u32, minor as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_names_where_both_parts_fit() {
        let long = |prefix: usize, rest: usize| {
            let name = [vec![b'p'; prefix], b"/".to_vec(), vec![b'n'; rest]].concat();
            split(&name).map(|(prefix, rest)| (prefix.len(), rest.len()))
        };
        assert_eq!(long(155, 100), Some((155, 100)));
        assert_eq!(long(156, 100), None);
        assert_eq!(long(155, 101), None);
        assert_eq!(long(1, 100), Some((1, 100)));
        assert_eq!(long(10, 10), None, "short enough for the name field");
        assert_eq!(split(&[vec![b'd'; 100], b"/".to_vec()].concat()), None, "nothing behind the slash");
        assert_eq!(split(&[b"/".to_vec(), vec![b'd'; 100]].concat()), None, "nothing before the slash");
    }

    #[test]
    fn says_which_numbers_fit() {
        let mut header = Header::new(Type::File);
        assert!(header.size((8 << 30) - 1));
        assert!(!header.size(8 << 30));
        assert!(header.uid(0o7_777_777));
        assert!(!header.uid(0o7_777_777 + 1));
        assert!(!header.mtime(-1));
        assert!(header.mtime(1));
        assert_eq!(&header.0[SIZE], b"00000000000\0");
        assert_eq!(&header.0[MTIME], b"00000000001\0");
    }

    #[test]
    fn knows_large_device_numbers() {
        assert_eq!(device_numbers(0x0801), (8, 1));
        assert_eq!(device_numbers(0x0010_3c05), (0x3c, 0x105));
        assert_eq!(device_numbers(0xffff_f000_fff0_0fff), (0xffff_f00f, 0xf_ffff));
    }
}
