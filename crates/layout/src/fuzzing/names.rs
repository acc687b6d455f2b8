//! Partition tables and the names of images.

use std::path::Path;

use super::{Counted, Target, options};
use crate::{
    image::ImageName,
    partitions::{crc32, partitions},
};

pub(super) const TARGETS: &[Target] = &[
    Target { name: "partitions", run: of_a_disk, memory: 4 << 20 },
    Target { name: "image_name", run: image_name, memory: 1 << 20 },
];

/// By sectors of both lengths, the tables of an MBR, and in each of 132 partitions some looks at what begins there.
const READS_MAX: u64 = 2 * (129 + 132 * 15);

/// A disk with the bytes of the input; checksums of a GPT are made right where the first byte says so.
fn of_a_disk(input: &[u8]) {
    let (options, disk) = options(input);
    let mut disk = disk[..disk.len().min(1 << 16)].to_vec();
    if options & 1 != 0 {
        seal(&mut disk);
    }
    let device = Counted::new(disk, READS_MAX);
    match partitions(&device) {
        Ok(found) => {
            assert!(found.len() <= 8192, "{} partitions", found.len());
            for partition in found {
                assert!(partition.number > 0 && partition.len > 0, "{partition:?}");
                let part = crate::Part::new(&device, partition.start, partition.len);
                assert!(part.start() + crate::BlockRead::len(&part) <= crate::BlockRead::len(&device));
            }
        }
        Err(error) => assert!(error.to_string().len() < 1024),
    }
}

fn seal(disk: &mut [u8]) {
    let Some(header) = disk.get(512..1024).filter(|header| header.starts_with(b"EFI PART")) else { return };
    let field = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().expect("four bytes")) as usize;
    let (length, first, entries) = (field(12), field(72), field(80).saturating_mul(field(84)));
    let start = first.saturating_mul(512);
    let sum = disk.get(start..).and_then(|rest| rest.get(..entries)).map(crc32);
    if let Some(sum) = sum {
        disk[512 + 88..][..4].copy_from_slice(&sum.to_le_bytes());
    }
    disk[512 + 16..][..4].fill(0);
    if let Some(sum) = disk.get(512..).and_then(|header| header.get(..length)).map(crc32) {
        disk[512 + 16..][..4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// A name of which the file is there up to some byte.
fn image_name(input: &[u8]) {
    let (there, name) = options(input);
    let file = &name[..name.len().min(there.into())];
    let is_image = |path: &Path| path.as_os_str().as_encoded_bytes() == file;
    let Some(found) = ImageName::find(name, &is_image) else { return };
    assert_eq!(found.file.as_os_str().as_encoded_bytes(), file);
    assert!(!found.inside.starts_with(b"/") && name.ends_with(&found.inside));
    let behind = &name[file.len()..];
    assert_eq!(found.partition.is_some(), behind.starts_with(b"@"), "{}", name.escape_ascii());
}
