//! A mounted btrfs: what the items of a subvolume say, held against a walk.

use std::{fs, os::unix::ffi::OsStrExt, process::Command};

use onesweep_layout::tables::{
    InodeFlags, Tables, Wanted,
    btrfs::{MountedBtrfs, Subvolume},
};

use crate::{
    conformance::{Until, by_kernel, by_tables, compare, scan},
    image::{Image, run},
    xfs_tree::{Recipe, fill},
};

const MIB: u64 = 1 << 20;

/// What fits into a leaf beside its name.
const ATTRIBUTE_MAX: usize = 3000;

fn mounted(mkfs: &[&str], options: &str) -> Option<Image> {
    let mut image = Image::new(512 * MIB, &[&["mkfs.btrfs", "-q"], mkfs].concat())?;
    image.mount(&["-t", "btrfs"], options);
    Some(image)
}

fn conforms(mkfs: &[&str], options: &str) {
    let Some(mut image) = mounted(mkfs, options) else { return };
    fill(&image.root(), &Recipe { names: 3000, reflink: true, attribute: ATTRIBUTE_MAX });
    // Bytes that can be compressed, in the tree and out of it.
    for length in [10, 1500, 5000, 2 << 20] {
        fs::write(image.root().join(format!("text {length}")), "text ".repeat(length / 5)).unwrap();
    }
    let mut btrfs = MountedBtrfs::open(&image.root()).unwrap().unwrap();
    let tables = by_tables(&mut btrfs, &[]);
    assert!(tables.len() > 3000 && btrfs.subvolumes().is_empty());
    let kept = scan(&mut btrfs);
    let is_packed = kept.inodes.values().any(|inode| inode.flags.contains(InodeFlags::COMPRESSED));
    assert_eq!(is_packed, options.contains("compress"));
    drop(btrfs);
    compare(&by_kernel(&image.root(), &[]), &tables);
    image.unmount();
}

#[test]
fn items_are_what_a_walk_finds() {
    conforms(&[], "");
}

#[test]
fn compressed_files_are_told() {
    conforms(&[], "compress-force=zstd");
}

#[test]
fn small_nodes_hold_the_same() {
    conforms(&["--nodesize", "4096", "-M"], "");
}

#[test]
fn features_of_old_and_new_hold_the_same() {
    conforms(&["-O", "^no-holes,^extref,^skinny-metadata"], "max_inline=0");
    conforms(&["-R", "quota,free-space-tree"], "max_inline=2048,nodatacow");
}

#[test]
fn checksums_of_all_kinds_hold_the_same() {
    for kind in ["xxhash", "sha256", "blake2"] {
        conforms(&["--csum", kind], "");
    }
}

#[test]
fn other_subvolumes_are_named_and_not_read() {
    let Some(mut image) = mounted(&[], "") else { return };
    let below = image.root().join("folder/home");
    fs::create_dir(image.root().join("folder")).unwrap();
    fs::write(image.root().join("folder/file"), "here").unwrap();
    run(Command::new("btrfs").args(["subvolume", "create"]).arg(&below));
    fs::write(below.join("there"), "there").unwrap();
    let mut btrfs = MountedBtrfs::open(&image.root()).unwrap().unwrap();
    let here: Vec<Vec<u8>> = by_tables(&mut btrfs, &[]).into_keys().collect();
    assert_eq!(here, [&b""[..], b"folder", b"folder/file"]);
    let folder = scan(&mut btrfs).names.iter().find(|name| name.2 == b"folder").unwrap().1;
    assert_eq!(btrfs.subvolumes(), [Subvolume { directory: folder, name: b"home".to_vec() }]);
    drop(btrfs);
    let mut btrfs = MountedBtrfs::open(&below).unwrap().unwrap();
    compare(&by_kernel(&below, &[]), &by_tables(&mut btrfs, &[]));
    drop(btrfs);
    image.unmount();
}

/// What was written a moment ago is there, too.
#[test]
fn what_is_in_memory_is_written_first() {
    let Some(mut image) = mounted(&[], "commit=300") else { return };
    let mut btrfs = MountedBtrfs::open(&image.root()).unwrap().unwrap();
    for round in 0..5 {
        let path = image.root().join(format!("file {round}"));
        fs::write(&path, vec![b'x'; 100_000]).unwrap();
        let kept = scan(&mut btrfs);
        let name = path.file_name().unwrap().as_bytes();
        let found = kept.names.iter().find(|told| told.2 == name).expect("its name");
        let inode = &kept.inodes[&found.1];
        assert_eq!((inode.size, inode.extents.iter().map(|extent| extent.length).sum::<u64>()), (100_000, 102_400));
    }
    drop(btrfs);
    image.unmount();
}

#[test]
fn a_scan_ends_when_it_is_told() {
    let Some(mut image) = mounted(&[], "") else { return };
    (0..100).for_each(|file| fs::write(image.root().join(file.to_string()), "").unwrap());
    let mut btrfs = MountedBtrfs::open(&image.root()).unwrap().unwrap();
    for enough in [1, 2, 100, 101, 150] {
        let mut until = Until(enough);
        btrfs.scan(Wanted::default(), &mut until).unwrap();
        assert_eq!(until.0, 0);
    }
    drop(btrfs);
    image.unmount();
}
