//! The journal of an NTFS as Windows leaves it. Nothing of Linux writes one.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::Path,
};

/// Leaves two restart pages with this LSN in $LogFile: as at a clean end, its client gone, or as when the power went.
pub(crate) fn leave(image: &Path, lsn: u64, is_closed: bool) {
    let mut page = vec![0_u8; 4096];
    let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
    let (log, log_bytes) = log_file(&fs::read(image).unwrap());
    // Its update sequence, which is 0, as the ends of all sectors are; pages of 4 KiB; version 1.1.
    put(0, b"RSTR");
    for (at, value) in [(4, 30_u16), (6, 9), (24, 48), (26, 1), (28, 1)] {
        put(at, &value.to_le_bytes());
    }
    for at in [16, 20] {
        put(at, &4096_u32.to_le_bytes());
    }
    // The restart area: one client, free or in use; how many bits of an LSN count rounds, its length, the clients behind it.
    put(48, &lsn.to_le_bytes());
    let round_bits = 67 - (u64::BITS - log_bytes.leading_zeros());
    let (free, in_use, flags) = if is_closed { (0, 0xffff, 2) } else { (0xffff, 0, 0) };
    for (at, value) in [(56, 1_u16), (58, free), (60, in_use), (62, flags)] {
        put(at, &value.to_le_bytes());
    }
    put(64, &round_bits.to_le_bytes());
    for (at, value) in [(68, 64 + 160_u16), (70, 64)] {
        put(at, &value.to_le_bytes());
    }
    put(72, &log_bytes.to_le_bytes());
    for (at, value) in [(84, 48_u16), (86, 64)] {
        put(at, &value.to_le_bytes());
    }
    // The client: no others before and behind it.
    for (at, value) in [(112 + 16, 0xffff_u16), (112 + 18, 0xffff)] {
        put(at, &value.to_le_bytes());
    }
    put(112 + 28, &8_u32.to_le_bytes());
    put(112 + 32, b"N\0T\0F\0S\0");
    let file = File::options().write(true).open(image).unwrap();
    for at in [0, 4096] {
        file.write_all_at(&page, log + at).unwrap();
    }
    file.sync_all().unwrap();
}

/// Where $LogFile begins, the one run of the unnamed data attribute of record 2, and its bytes.
fn log_file(bytes: &[u8]) -> (u64, u64) {
    let word =
        |at: usize, len: usize| (0..len).fold(0_u64, |sum, index| sum | u64::from(bytes[at + index]) << (8 * index));
    let cluster = word(11, 2) * word(13, 1);
    let record = (word(48, 8) * cluster + 2 * 1024) as usize;
    let mut attribute = record + word(record + 20, 2) as usize;
    while word(attribute, 4) != 0x80 {
        attribute += word(attribute + 4, 4) as usize;
    }
    let run = attribute + word(attribute + 32, 2) as usize;
    let (length, offset) = ((bytes[run] & 15) as usize, (bytes[run] >> 4) as usize);
    (word(run + 1 + length, offset) * cluster, word(attribute + 48, 8))
}
