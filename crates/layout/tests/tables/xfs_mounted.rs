//! A mounted XFS, held against a walk; with parent pointers too, which mkfs.xfs makes from 6.10 on only.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    os::{
        fd::AsFd,
        unix::{
            ffi::OsStrExt,
            fs::{FileExt, MetadataExt},
        },
    },
    path::{Path, PathBuf},
    process::Command,
};

use onesweep_layout::{
    ExtentFlags,
    tables::{
        Tables, Wanted,
        xfs::{DirectoryPlaces, MountedXfs},
    },
};
use onesweep_sys::cache;

use crate::{
    conformance::{Kept, Tree, Until, by_kernel, by_tables, compare, scan},
    image::{Image, not_here, run, unmount},
    xfs::open,
    xfs_tree::{ATTRIBUTE_MAX, Recipe, fill},
};

const MIB: u64 = 1 << 20;

/// Where the superblock has its incompatible features and its checksum, and how much of it is summed.
const INCOMPAT: usize = 216;
const CHECKSUM: usize = 224;
const SECTOR: usize = 512;
const PARENT: u32 = 1 << 7;

fn crc32c(bytes: &[u8]) -> u32 {
    let byte = |sum: u32, byte: &u8| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| sum >> 1 ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 })
    };
    !bytes.iter().fold(!0, byte)
}

/// Switches parent pointers on in a file system that was just made: no inode but the root is there, which needs none.
fn switch_parent_pointers_on(image: &Path) {
    let file = File::options().read(true).write(true).open(image).unwrap();
    let mut sector = [0; SECTOR];
    file.read_exact_at(&mut sector, 0).unwrap();
    let features = u32::from_be_bytes(*sector[INCOMPAT..].first_chunk().unwrap());
    sector[INCOMPAT..][..4].copy_from_slice(&(features | PARENT).to_be_bytes());
    sector[CHECKSUM..][..4].fill(0);
    let sum = crc32c(&sector);
    sector[CHECKSUM..][..4].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&sector, 0).unwrap();
}

/// An image that is mounted; `None` where that can't be.
fn mounted(mkfs: &[&str], parents: bool) -> Option<Image> {
    let mut image = Image::new(320 * MIB, &[&["mkfs.xfs", "-q"], mkfs].concat())?;
    if parents {
        switch_parent_pointers_on(&image.path());
        let trial = Command::new("mount").args(["-o", "loop,ro"]).arg(image.path()).arg(image.root()).output().unwrap();
        if !trial.status.success() {
            not_here("this kernel knows no parent pointers");
            return None;
        }
        unmount(&image.root());
    }
    image.mount(&["-t", "xfs"], "");
    Some(image)
}

/// What is told by both sides.
pub(crate) fn without_content(mut tree: Tree) -> Tree {
    for facts in tree.values_mut() {
        (facts.link_target, facts.extents) = (None, None);
        facts.xattrs.clear();
    }
    tree
}

/// Without what only the file itself tells.
pub(crate) fn without_insides(mut tree: Tree) -> Tree {
    for facts in tree.values_mut() {
        facts.link_target = None;
        facts.xattrs.clear();
    }
    tree
}

/// The reverse map tells every hole, unwritten range and extent that FIEMAP does, of files that share them too.
fn places_conform(mkfs: &[&str], reflink: bool) {
    let mkfs = [&["-m", if reflink { "rmapbt=1,reflink=1" } else { "rmapbt=1,reflink=0" }], mkfs].concat();
    let Some(image) = mounted(&mkfs, false) else { return };
    fill(&image.root(), &Recipe { names: 500, reflink, attribute: ATTRIBUTE_MAX });
    if reflink {
        // A clone that has come to its own blocks in the midst of shared ones, and one within its own file.
        let xfs_io = |name: &str, commands: &[&str]| {
            let commands = commands.iter().flat_map(|command| ["-c", command]);
            run(Command::new("xfs_io").arg("-f").args(commands).arg(image.root().join(name)));
        };
        xfs_io("clone of extents", &["pwrite -q 0 4k", "pwrite -q 13107200 100k", "fpunch 26214400 256k"]);
        let source = image.root().join("clone").display().to_string();
        xfs_io("twice the same", &[&format!("reflink {source} 0 0 1m"), &format!("reflink {source} 0 2m 1m")]);
    }
    rustix::fs::sync();
    let mut xfs = MountedXfs::open(&image.root()).unwrap().unwrap();
    assert!(xfs.has_reverse_map());
    for groups in [1, 4] {
        xfs.ask_groups_at_a_time(groups);
        let kept = scan(&mut xfs);
        let extents = || kept.inodes.values().flat_map(|inode| &inode.extents);
        assert_eq!(extents().any(|extent| extent.flags.contains(ExtentFlags::SHARED)), reflink);
        assert!(extents().any(|extent| extent.is_zeros()) && extents().count() > 900);
        let tables = by_tables(&mut xfs, &[]);
        compare(&without_insides(by_kernel(&image.root(), &[])), &without_insides(tables));
    }
}

#[test]
fn places_come_from_the_reverse_map() {
    places_conform(&[], false);
}

#[test]
fn places_of_shared_blocks_come_from_the_reverse_map() {
    places_conform(&["-d", "agcount=3"], true);
}

#[test]
fn places_of_small_blocks_come_from_the_reverse_map() {
    places_conform(&["-b", "size=1024", "-i", "size=512"], true);
}

/// Without a reverse map, or where nobody wants them, no places are told.
#[test]
fn no_places_are_told_without_a_reverse_map() {
    for (mkfs, extents) in [("rmapbt=0", true), ("rmapbt=1", false)] {
        let Some(image) = mounted(&["-m", mkfs], false) else { return };
        fs::write(image.root().join("file"), [7; 9000]).unwrap();
        let mut xfs = MountedXfs::open(&image.root()).unwrap().unwrap();
        assert_eq!(xfs.has_reverse_map(), mkfs == "rmapbt=1");
        let mut kept = Kept::default();
        xfs.scan(Wanted { extents, ..Wanted::default() }, &mut kept).unwrap();
        assert!(kept.problems.is_empty() && kept.inodes.values().any(|inode| inode.size == 9000));
        assert!(kept.inodes.values().all(|inode| inode.extents.is_empty()));
    }
}

fn conforms(mkfs: &[&str], parents: bool, names: u32) {
    let Some(mut image) = mounted(mkfs, parents) else { return };
    fill(&image.root(), &Recipe { names, reflink: true, attribute: ATTRIBUTE_MAX });
    // Names that come and go leave their marks in the attributes.
    let folder = image.root().join("links");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("first"), "x").unwrap();
    (0..300).for_each(|number| fs::hard_link(folder.join("first"), folder.join(format!("{number:0>200}"))).unwrap());
    fs::rename(folder.join("first"), image.root().join("elsewhere")).unwrap();
    fs::remove_file(folder.join(format!("{:0>200}", 7))).unwrap();
    let mut xfs = MountedXfs::open(&image.root()).unwrap().unwrap();
    assert_eq!(xfs.has_parent_pointers(), parents);
    let tables = by_tables(&mut xfs, &[]);
    drop(xfs);
    assert!(tables.len() > names as usize);
    compare(&without_content(by_kernel(&image.root(), &[])), &without_content(tables));
    image.unmount();
    // Such a file system is read from its own tables, too.
    let tables = by_tables(&mut open(&image), &[]);
    image.mount(&["-t", "xfs"], "ro");
    let kernel = by_kernel(&image.root(), &[]);
    image.unmount();
    compare(&kernel, &tables);
}

#[test]
fn names_come_from_directories() {
    conforms(&[], false, 20_000);
}

#[test]
fn names_come_from_parent_pointers() {
    conforms(&[], true, 20_000);
}

#[test]
fn names_of_small_blocks_come_from_parent_pointers() {
    conforms(&["-b", "size=1024", "-i", "size=512", "-d", "agcount=3"], true, 500);
}

/// Whoever wants no more gets no more, in the midst of inodes and of names.
#[test]
fn a_scan_ends_when_it_is_told() {
    for parents in [false, true] {
        let Some(image) = mounted(&[], parents) else { return };
        for folder in 0..10 {
            let folder = image.root().join(folder.to_string());
            fs::create_dir(&folder).unwrap();
            (0..50).for_each(|file| fs::write(folder.join(file.to_string()), "").unwrap());
        }
        let mut xfs = MountedXfs::open(&image.root()).unwrap().unwrap();
        for enough in [1, 2, 100, 520, 800] {
            let mut until = Until(enough);
            xfs.scan(Wanted::default(), &mut until).unwrap();
            assert_eq!(until.0, 0);
        }
        drop(xfs);
    }
}

/// One group after the other, or several at a time: the same is told, in another order.
#[test]
fn groups_at_a_time_tell_the_same() {
    for parents in [false, true] {
        let Some(image) = mounted(&["-d", "agcount=4"], parents) else { return };
        fill(&image.root(), &Recipe { names: 3000, reflink: true, attribute: 100 });
        // A new directory goes to the next group.
        (0..40).for_each(|number| fs::create_dir_all(image.root().join(format!("{number}/below"))).unwrap());
        let mut xfs = MountedXfs::open(&image.root()).unwrap().unwrap();
        let mut told = |groups| {
            xfs.ask_groups_at_a_time(groups);
            let mut kept = scan(&mut xfs);
            assert!(kept.problems.is_empty() && kept.incomplete.is_empty(), "{:?}", kept.problems);
            kept.names.sort();
            (kept.inodes, kept.names)
        };
        let expected = told(1);
        assert!(expected.0.len() > 100 && expected.1.len() > 3000);
        for groups in [2, 3, 8] {
            assert!(told(groups) == expected, "{groups} groups at a time");
            xfs_ends_when_told(&image.root(), groups);
        }
    }
}

fn xfs_ends_when_told(root: &Path, groups: usize) {
    let mut xfs = MountedXfs::open(root).unwrap().unwrap();
    xfs.ask_groups_at_a_time(groups);
    for enough in [1, 100, 2000] {
        let mut until = Until(enough);
        xfs.scan(Wanted::default(), &mut until).unwrap();
        assert_eq!(until.0, 0);
    }
}

/// The node of the device with a number.
pub(crate) fn node(dev: u64) -> PathBuf {
    let (major, minor) = (rustix::fs::major(dev), rustix::fs::minor(dev));
    let device = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).unwrap();
    Path::new("/dev").join(device.file_name().unwrap())
}

/// Where the kernel says that an open directory begins, and in how many pieces it lies: `0: [0..7]: 88..95`, in units of
/// 512 bytes.
fn first_extent(directory: &Path) -> (Option<u64>, usize) {
    let out = run(Command::new("xfs_io").args(["-r", "-c", "bmap"]).arg(directory));
    let told = String::from_utf8(out.stdout).unwrap();
    let pieces: Vec<_> = told.lines().filter_map(|line| line.split_once("]: ")).collect();
    let first = pieces.first().and_then(|(_, sectors)| sectors.split("..").next()?.parse::<u64>().ok());
    (first.map(|sectors| sectors * 512), pieces.len())
}

/// So many at least fit into the inode, and those of the large directory don't.
const PIECES_IN_INODE: usize = 9;

#[test]
fn directories_have_the_places_that_the_kernel_tells() {
    for (mkfs, names) in [(&[][..], 20_000), (&["-b", "size=1024", "-i", "size=512", "-d", "agcount=3"], 500)] {
        let Some(mut image) = mounted(mkfs, false) else { return };
        fill(&image.root(), &Recipe { names, reflink: true, attribute: 100 });
        for number in 0..100 {
            let folder = image.root().join(format!("folder {number}"));
            fs::create_dir(&folder).unwrap();
            // Every other one fits into its inode.
            (0..1 + number % 2 * 20).for_each(|file| fs::write(folder.join(format!("{file:0>50}")), "").unwrap());
        }
        // Inodes are on the device for certain when nothing is mounted.
        image.unmount();
        image.mount(&["-t", "xfs"], "");
        let dev = fs::metadata(image.root()).unwrap().dev();
        let places = DirectoryPlaces::of_mounted(&node(dev), dev).unwrap();
        let (mut in_blocks, mut in_inodes) = (0, 0);
        for (path, facts) in by_kernel(&image.root(), &[]) {
            let path = image.root().join(OsStr::from_bytes(&path));
            let told = places.first_block(facts.inode);
            if !fs::symlink_metadata(&path).unwrap().is_dir() {
                assert_eq!(told, None, "{}", path.display());
                continue;
            }
            let (first, pieces) = first_extent(&path);
            if pieces > PIECES_IN_INODE {
                assert!(told.is_some() && told != first, "the tree that tells of them: {}", path.display());
            } else {
                assert_eq!(told, first, "{}", path.display());
            }
            *if told.is_some() { &mut in_blocks } else { &mut in_inodes } += 1;
        }
        assert!(in_blocks > 50 && in_inodes >= 50, "{in_blocks} and {in_inodes}");
        let device = File::open(node(dev)).unwrap();
        let cached = || cache::residency(device.as_fd(), 0, 320 * MIB).unwrap().cached;
        let meanwhile = cached();
        drop(places);
        assert!(cached() < meanwhile, "{meanwhile} pages of the device were cached, {} are", cached());
        assert!(DirectoryPlaces::of_mounted(&node(dev), dev + 1).is_err(), "another device");
    }
}

#[test]
fn other_file_systems_are_none() {
    assert!(MountedXfs::open(Path::new("/proc")).unwrap().is_none());
    let gone = MountedXfs::open(Path::new("/no-such-folder")).unwrap_err();
    assert_eq!(gone.kind(), io::ErrorKind::NotFound);
}
