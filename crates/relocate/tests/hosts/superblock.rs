//! Features of an XFS that mkfs.xfs and xfs_repair here know nothing of, switched in its superblocks while it isn't mounted.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Files can exchange blocks (`mkfs.xfs -i exchange=1`).
pub(crate) const EXCHANGE: u32 = 1 << 6;

/// Where a superblock has the size of blocks, the blocks of a group, the groups, its incompatible features and its checksum.
const BLOCK_BYTES: usize = 4;
const GROUP_BLOCKS: usize = 84;
const GROUPS: usize = 88;
const INCOMPATIBLE: usize = 216;
const CHECKSUM: usize = 224;
const SECTOR: usize = 512;

/// Sets or clears incompatible features in the superblocks of all groups.
pub(crate) fn switch(image: &Path, features: u32, is_on: bool) {
    let file = File::options().read(true).write(true).open(image).unwrap();
    let mut sector = [0; SECTOR];
    file.read_exact_at(&mut sector, 0).unwrap();
    let number = |sector: &[u8], at: usize| u32::from_be_bytes(*sector[at..].first_chunk().unwrap());
    let group_bytes = u64::from(number(&sector, BLOCK_BYTES)) * u64::from(number(&sector, GROUP_BLOCKS));
    for group in 0..u64::from(number(&sector, GROUPS)) {
        file.read_exact_at(&mut sector, group * group_bytes).unwrap();
        assert_eq!(&sector[..4], b"XFSB");
        let before = number(&sector, INCOMPATIBLE);
        let now = if is_on { before | features } else { before & !features };
        sector[INCOMPATIBLE..][..4].copy_from_slice(&now.to_be_bytes());
        sector[CHECKSUM..][..4].fill(0);
        let sum = crc32c(&sector);
        sector[CHECKSUM..][..4].copy_from_slice(&sum.to_le_bytes());
        file.write_all_at(&sector, group * group_bytes).unwrap();
    }
    file.sync_all().unwrap();
}

fn crc32c(bytes: &[u8]) -> u32 {
    let byte = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| sum >> 1 ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 })
    };
    !bytes.iter().fold(!0, byte)
}
