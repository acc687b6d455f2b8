//! Chunks of inodes that are not whole: what XFS makes where free space lies in pieces that no whole chunk fits into.

use std::{
    fs::{self, File},
    path::Path,
    process::Command,
};

use rustix::fs::FallocateFlags;

use crate::{
    conformance::{by_kernel, by_tables, compare, scan},
    image::{Image, run},
    xfs::open,
};

const MIB: u64 = 1 << 20;
/// Less than a chunk of inodes of 512 bytes takes, which is 32 KiB.
const HOLE: u64 = 20 << 10;
const STEP: u64 = 64 << 10;

/// Records of chunks that aren't whole, by xfs_db: `2:[163776,0xff00,32,0,0xffffffff00000000]`.
fn records_with_holes(image: &Path) -> usize {
    let mut xfs_db = Command::new("xfs_db");
    xfs_db.arg("-r");
    for group in 0..4 {
        let root = [format!("agi {group}"), "addr root".to_owned(), "print".to_owned()];
        root.iter().for_each(|command| _ = xfs_db.args(["-c", command]));
        // What lies below, where there is a level more; else that is refused in words that no record has.
        for child in 1..=20 {
            let below = [&root[..2], &[format!("addr ptrs[{child}]"), "print".to_owned()]].concat();
            below.iter().for_each(|command| _ = xfs_db.args(["-c", command]));
        }
    }
    let told = String::from_utf8(run(xfs_db.arg(image)).stdout).unwrap();
    let masks = told.lines().filter_map(|line| line.split_once(":[")?.1.split(',').nth(1));
    masks.filter(|mask| mask.starts_with("0x")).count()
}

#[test]
fn chunks_with_holes_conform() {
    for mkfs in [&[][..], &["-m", "rmapbt=1"], &["-b", "size=1024"], &["-m", "finobt=0,inobtcount=0"]] {
        let Some(mut image) = Image::new(320 * MIB, &[&["mkfs.xfs", "-q", "-i", "sparse=1"], mkfs].concat()) else {
            return;
        };
        image.mount(&["-t", "xfs"], "");
        let root = image.root();
        let filler = File::create(root.join("filler")).unwrap();
        let free = rustix::fs::statvfs(&root).map(|told| told.f_bavail * told.f_frsize).unwrap();
        // All but what the kernel holds back, as close as it lets us.
        let mut size = free;
        while rustix::fs::fallocate(&filler, FallocateFlags::empty(), 0, size).is_err() {
            size -= 64 << 10;
        }
        for at in (0..size).step_by(STEP as usize) {
            rustix::fs::fallocate(&filler, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, HOLE).unwrap();
        }
        drop(filler);
        // Each directory is in a group of its own.
        let folders: Vec<_> = (0..4).map(|number| root.join(format!("folder {number}"))).collect();
        folders.iter().for_each(|folder| fs::create_dir(folder).unwrap());
        let create = |number: usize| File::create(folders[number % 4].join(format!("file {number}")));
        let created = (0..60_000).find(|&number| create(number).is_err()).unwrap_or(60_000);
        for number in (0..created).step_by(7) {
            fs::remove_file(folders[number % 4].join(format!("file {number}"))).unwrap();
        }
        image.unmount();
        let with_holes = records_with_holes(&image.path());
        assert!(with_holes > 0, "{mkfs:?}: all chunks are whole, of {created} files");
        let inodes = scan(&mut open(&image)).inodes.len();
        let tables = by_tables(&mut open(&image), &[]);
        image.mount(&["-t", "xfs"], "ro");
        let kernel = by_kernel(&image.root(), &[]);
        image.unmount();
        compare(&kernel, &tables);
        assert_eq!(inodes, kernel.len(), "{mkfs:?}: {with_holes} chunks with holes");
    }
}
