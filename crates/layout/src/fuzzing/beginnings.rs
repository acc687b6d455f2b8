//! What begins somewhere, and what changes in it, by its first bytes.

use std::sync::Arc;

use super::{Counted, Target, options};
use crate::tables::{self, Beginning, Options, beginning, change_marks::change_marks};

pub(super) const TARGETS: &[Target] = &[Target { name: "beginning", run: of_a_device, memory: 16 << 20 }];

/// Bytes of the device.
const DEVICE_BYTES: usize = 128 << 10;
/// Reads that finding out may take: each magic number, the fields beside it, and the backup of NTFS.
const READS: u64 = 16;

/// A device with the bytes of the input at its start, where the superblock of ext4 or of btrfs is, or at its end.
fn of_a_device(input: &[u8]) {
    let (options, bytes) = options(input);
    let bytes = &bytes[..bytes.len().min(32 << 10)];
    let mut device = vec![0; DEVICE_BYTES >> (options >> 4 & 7)];
    let start = [0, 1024, 1 << 16, device.len().saturating_sub(bytes.len())][usize::from(options & 3)];
    for (place, byte) in device.iter_mut().skip(start).zip(bytes) {
        *place = *byte;
    }
    let found = beginning(&Counted::new(&device, READS));
    assert_eq!(found, beginning(&Counted::new(&device, READS)));
    let marks = change_marks(&Counted::new(&device, 1 << 13));
    assert!(marks == change_marks(&device), "other marks, though nothing has changed");
    let opened = tables::open(Arc::new(device), Options { force_dirty: true });
    // A file that isn't looked into because of this would be delivered as one file, without a word.
    assert!(opened.is_err() || found != Beginning::Unknown, "what can be read isn't found");
}
