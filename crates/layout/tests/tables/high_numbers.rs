//! Numbers that need more than 32 bits: inodes of XFS and blocks of ext4, on devices of many TiB of which hardly anything is there.

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
};

use onesweep_layout::{
    ImageFile,
    tables::{ext4::Ext4, xfs::MountedXfs},
};

use crate::{
    conformance::{Tree, by_kernel, by_tables, compare},
    image::Image,
    xfs::open,
    xfs_mounted::{without_content, without_insides},
};

const TIB: u64 = 1 << 40;

/// Directories with files in one and in several pieces, with names in the inode and in a block; each `mkdir` at the top goes elsewhere.
fn fill(root: &Path, number: u32) {
    let folder = root.join(format!("directory {number}"));
    fs::create_dir_all(folder.join("below")).unwrap();
    fs::write(folder.join("small"), [b's'; 5000]).unwrap();
    // Closed before it is on the device, it goes near its inode; smaller ones go where the last ones went.
    fs::write(folder.join("large"), vec![b'l'; 100_000]).unwrap();
    let pieces = fs::File::create(folder.join("pieces")).unwrap();
    (0..30).for_each(|piece| pieces.write_all_at(&[b'p'; 100], piece * 20_000).unwrap());
    fs::hard_link(folder.join("small"), root.join(format!("link {number}"))).unwrap();
    (0..=40 * (number % 3)).for_each(|name| fs::write(folder.join(format!("below/{name:0>60}")), "").unwrap());
    std::os::unix::fs::symlink("t".repeat(100 * (number % 5) as usize + 1), folder.join("link")).unwrap();
}

/// Short forms of directories have numbers of four bytes, or of eight where one needs them.
#[test]
fn inodes_of_xfs_behind_2_to_the_32nd() {
    for mkfs in [&["-m", "rmapbt=1"][..], &["-m", "rmapbt=0", "-i", "size=1024"]] {
        let Some(mut image) = Image::new(8 * TIB, &[&["mkfs.xfs", "-q", "-l", "size=64m"], mkfs].concat()) else {
            return;
        };
        image.mount(&["-t", "xfs"], "inode64");
        (0..30).for_each(|number| fill(&image.root(), number));
        // In a directory of low numbers, one of a high one, and the other way round.
        let inode = |path: &str| fs::metadata(image.root().join(path)).unwrap().ino();
        let is_high = |number: &u32| inode(&format!("directory {number}")) > u32::MAX.into();
        let high = (0..30).find(is_high).expect("a directory in a group behind");
        let low = (0..30).find(|number| !is_high(number)).expect("a directory in a group before");
        for (from, to) in [(low, high), (high, low)] {
            let folder = image.root().join(format!("directory {to}/mixed"));
            fs::create_dir(&folder).unwrap();
            fs::hard_link(image.root().join(format!("directory {from}/small")), folder.join("of elsewhere")).unwrap();
            fs::write(folder.join("of here"), "x").unwrap();
        }
        rustix::fs::sync();
        let mut mounted = MountedXfs::open(&image.root()).unwrap().unwrap();
        let has_map = mounted.has_reverse_map();
        let told = by_tables(&mut mounted, &[]);
        drop(mounted);
        let shown = if has_map { without_insides } else { without_content };
        compare(&shown(by_kernel(&image.root(), &[])), &shown(told));
        image.unmount();
        let tables = by_tables(&mut open(&image), &[]);
        image.mount(&["-t", "xfs"], "ro");
        let kernel = by_kernel(&image.root(), &[]);
        image.unmount();
        compare(&kernel, &tables);
        assert!(kernel.values().filter(|facts| facts.inode > u32::MAX.into()).count() > 100);
        assert!(furthest(&kernel) > 6 * TIB);
    }
}

/// The last byte of the device that belongs to a file.
fn furthest(tree: &Tree) -> u64 {
    let ends = tree.values().flat_map(|facts| facts.extents.iter().flatten()).map(|run| run.1 + run.2);
    ends.max().unwrap_or(0)
}

/// A file of 20 TiB needs another file system below than most have.
#[test]
fn blocks_of_ext4_behind_2_to_the_32nd() {
    for features in ["metadata_csum", "^metadata_csum", "bigalloc"] {
        let Some(mut below) = Image::new(16 << 30, &["mkfs.xfs", "-q", "-l", "size=64m"]) else { return };
        below.mount(&["-t", "xfs"], "");
        let options = format!("64bit,^resize_inode,sparse_super2,^has_journal,{features}");
        let mkfs = ["mkfs.ext4", "-q", "-F", "-b", "4096", "-N", "1400000", "-E", "num_backup_sb=0", "-O", &options];
        let mut image = Image::new_in(&below.root(), 20 * TIB, &mkfs).expect("root");
        image.mount(&["-t", "ext4"], "");
        // The kernel puts each directory into any group, so most often 20 are enough.
        for number in 0..3000 {
            fill(&image.root(), number);
            if number % 20 == 19 {
                rustix::fs::sync();
                if furthest(&by_kernel(&image.root(), &[])) > 16 * TIB {
                    break;
                }
            }
        }
        image.unmount();
        let tables = by_tables(&mut Ext4::open(ImageFile::open(&image.path()).unwrap()).unwrap(), &[]);
        image.mount(&["-t", "ext4"], "ro");
        let kernel = by_kernel(&image.root(), &[]);
        image.unmount();
        compare(&kernel, &tables);
        assert!(furthest(&kernel) > 16 * TIB, "no file lies that far: {}", furthest(&kernel));
        drop(image);
        below.unmount();
    }
}
