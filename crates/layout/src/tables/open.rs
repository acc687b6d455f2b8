//! Which file system begins somewhere.

use super::{
    TableError, Tables,
    ext4::Ext4,
    ntfs::{self, Ntfs},
    xfs::Xfs,
};
use crate::block_read::BlockRead;

/// How a file system is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether to read an NTFS that wasn't closed: what was written last may be missing or half there.
    pub force_dirty: bool,
}

/// Where btrfs keeps its magic.
const BTRFS_MAGIC: (u64, &[u8; 8]) = (0x1_0040, b"_BHRfS_M");

/// Opens whatever file system is there. `NotHere` when it is none that is known.
pub fn open(device: impl BlockRead + Clone + 'static, options: Options) -> Result<Box<dyn Tables + Send>, TableError> {
    if is_btrfs(&device) {
        let advice = "its trees are not read without the kernel: mount it for reading alone";
        return Err(TableError::Unsupported { feature: "btrfs".into(), advice });
    }
    let known: [fn(_, Options) -> Opened; 3] = [
        |device, _| boxed(Ext4::open(device)),
        |device, _| boxed(Xfs::open(device)),
        |device, Options { force_dirty }| boxed(Ntfs::open(device, ntfs::Options { force_dirty })),
    ];
    for open in known {
        match open(device.clone(), options) {
            Err(TableError::NotHere { .. }) => {}
            opened => return opened,
        }
    }
    Err(TableError::NotHere { fs_type: "ext2, ext3, ext4, XFS or NTFS", what: "superblock", at: 0 })
}

type Opened = Result<Box<dyn Tables + Send>, TableError>;

fn boxed(opened: Result<impl Tables + Send + 'static, TableError>) -> Opened {
    opened.map(|tables| Box::new(tables) as Box<dyn Tables + Send>)
}

fn is_btrfs(device: &impl BlockRead) -> bool {
    let (at, magic) = BTRFS_MAGIC;
    let mut found = [0; 8];
    device.read_at(&mut found, at).is_ok() && found == *magic
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

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
    }
}
