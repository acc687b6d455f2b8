//! Which file system begins somewhere.

use std::sync::Arc;

use super::{
    Sign, TableError, Tables,
    beginning::{BTRFS_MAGIC, Kind, is_btrfs},
    ext4::Ext4,
    hexadecimal,
    ntfs::{self, Ntfs},
    strangers,
    xfs::Xfs,
};
use crate::block_read::BlockRead;

/// How a file system is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether to read an NTFS that wasn't closed: what was written last may be missing or half there.
    pub force_dirty: bool,
}

type Device = Arc<dyn BlockRead>;
type Opened = Result<Box<dyn Tables + Send>, TableError>;

/// Opens whatever file system is there. `NotHere` when it is none that is known, `Stranger` when it is known and not read.
///
/// Each is looked for by the copies of its superblock too, which lie far apart; the one whose magic is at the start comes
/// before that.
pub fn open(device: impl BlockRead + 'static, options: Options) -> Result<Box<dyn Tables + Send>, TableError> {
    if is_btrfs(&device) {
        let advice = "its trees are not read without the kernel: mount it for reading alone";
        let sign = Sign::new(BTRFS_MAGIC.0, "ext2, ext3, ext4, XFS or NTFS", "the magic number of btrfs");
        return Err(TableError::Unsupported { feature: "btrfs".into(), sign: Some(sign), advice });
    }
    let device: Device = Arc::new(device);
    let (shown, hidden): (Vec<_>, Vec<_>) = Kind::ALL.into_iter().partition(|kind| kind.has_magic(&*device));
    for kind in shown.into_iter().chain(hidden) {
        match open_as(kind, device.clone(), options) {
            Err(TableError::NotHere { .. }) => {}
            opened => return opened,
        }
    }
    if let Some(refusal) = strangers::refusal(&*device) {
        return Err(refusal);
    }
    let mut first = vec![0; 4.min(usize::try_from(device.len()).unwrap_or(4))];
    device.read_at(&mut first, 0).map_err(|source| TableError::Io { at: 0, length: first.len() as u64, source })?;
    let fs_type = "ext2, ext3, ext4, XFS or NTFS";
    Err(TableError::NotHere { fs_type, what: "superblock", at: 0, found: hexadecimal(&first) })
}

fn open_as(kind: Kind, device: Device, Options { force_dirty }: Options) -> Opened {
    match kind {
        Kind::Ext4 => boxed(Ext4::open(device)),
        Kind::Xfs => boxed(Xfs::open(device)),
        Kind::Ntfs => boxed(Ntfs::open(device, ntfs::Options { force_dirty })),
    }
}

fn boxed(opened: Result<impl Tables + Send + 'static, TableError>) -> Opened {
    opened.map(|tables| Box::new(tables) as Box<dyn Tables + Send>)
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Mutex};

    use super::*;

    #[test]
    fn what_is_not_known_is_told() {
        let mut bytes = vec![0; 1 << 20];
        let error =
            |bytes: &Vec<u8>| open(Arc::new(bytes.clone()), Options::default()).err().map(|error| error.to_string());
        assert!(error(&bytes).is_some_and(|error| error.contains("no ext2, ext3, ext4, XFS or NTFS file system")));
        bytes[0x1_0040..0x1_0048].copy_from_slice(b"_BHRfS_M");
        assert!(error(&bytes).is_some_and(|error| error.contains("btrfs") && error.contains("mount it")));
        assert!(error(&Vec::new()).is_some());
        bytes[0x1_0040] = 0;
        bytes[512..520].copy_from_slice(b"LABELONE");
        assert_eq!(error(&bytes).unwrap(), "it is a physical volume of LVM; name one of its logical volumes (lvs)");
    }

    #[test]
    fn nothing_is_looked_for_far_away_where_the_start_tells() {
        struct Seen(Vec<u8>, Mutex<Vec<u64>>);
        impl BlockRead for Seen {
            fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
                self.1.lock().unwrap().push(at);
                self.0.read_at(buffer, at)
            }

            fn len(&self) -> u64 {
                256 << 20
            }
        }
        let first_far = |start: &[u8]| {
            let mut bytes = vec![0; 1 << 20];
            bytes[..start.len()].copy_from_slice(start);
            let seen = Arc::new(Seen(bytes, Mutex::default()));
            let _ = open(Arc::clone(&seen), Options::default());
            seen.1.lock().unwrap().iter().copied().find(|&at| at >= 1 << 20)
        };
        let copy_of_ext4 = (8 << 20) + 1024;
        let copy_of_ntfs = (256 << 20) - 512;
        assert_eq!(first_far(b""), Some(copy_of_ext4));
        assert_eq!(first_far(b"\xeb\x52\x90NTFS    "), Some(copy_of_ntfs));
    }
}
