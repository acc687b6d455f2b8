//! NTFS: images filled through ntfs-3g, and what it shows of them.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsStr,
    fs::{self, File},
    io::Read,
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::Path,
    sync::Arc,
};

use onesweep_layout::{
    BlockRead, ExtentFlags, ImageFile,
    tables::{
        Inode, InodeFlags, Tables, Timestamp,
        ntfs::{Decompressor, Ntfs, Options},
    },
};
use onesweep_sys::files::xattr_path;

use crate::{
    conformance::{self, Kept, Tree},
    image::Image,
    ntfs_runs::compare_runs,
    ntfs_tree::{Random, fill, fill_with_options},
};

pub(crate) const CLOSED: Options = Options { force_dirty: false };

pub(crate) fn make(cluster_bytes: u64, sector_bytes: u64, options: &[&str]) -> Option<Image> {
    let (cluster, sector) = (cluster_bytes.to_string(), sector_bytes.to_string());
    let arguments = ["-Q", "-F", "-s", &sector, "-p", "0", "-H", "0", "-S", "0", "-c", &cluster, "-L", "Größe", "-q"];
    Image::new(192 << 20, &[&["mkntfs"], &arguments[..], options].concat())
}

/// FNV-1a of a file, holes and all.
fn digest(path: &Path) -> u64 {
    let mut file = File::open(path).unwrap();
    let mut buffer = vec![0; 1 << 20];
    let mut digest = 0xcbf2_9ce4_8422_2325_u64;
    loop {
        let length = file.read(&mut buffer).unwrap();
        if length == 0 {
            return digest;
        }
        for word in buffer[..length].chunks(8) {
            let mut whole = [0; 8];
            whole[..word.len()].copy_from_slice(word);
            digest = (digest ^ u64::from_le_bytes(whole)).wrapping_mul(0x100_0000_01b3);
        }
    }
}

/// The content of a file by what tables say of it.
fn content(device: &impl BlockRead, inode: &Inode, unit_bytes: u32) -> Vec<u8> {
    if let Some(inline) = &inode.inline {
        return inline.clone();
    }
    let mut content = vec![0; inode.size as usize];
    if inode.flags.contains(InodeFlags::COMPRESSED) {
        assert!(inode.extents.iter().all(|extent| extent.flags.contains(ExtentFlags::ENCODED)));
        let mut decompressor = Decompressor::new(device, &inode.extents, inode.size, unit_bytes);
        decompressor.read(0, &mut content).unwrap();
        return content;
    }
    let mut end = 0;
    for extent in &inode.extents {
        assert!(extent.logical >= end && extent.length > 0, "extents of {}", inode.number);
        end = extent.logical_end();
        assert!(end <= inode.size.next_multiple_of(4096), "an extent of {} beyond its size", inode.number);
        if extent.is_zeros() {
            continue;
        }
        assert!(extent.is_plain(), "{extent:?} of {}", inode.number);
        let to = &mut content[extent.logical as usize..inode.size.min(end) as usize];
        device.read_at(to, extent.physical.unwrap()).unwrap();
    }
    content
}

/// What ntfs-3g shows, without what it can't tell: where the content lies.
fn shown(root: &Path) -> Tree {
    let mut tree = conformance::by_kernel(root, &[]);
    for (path, facts) in &mut tree {
        facts.btime = Some(birth(&root.join(OsStr::from_bytes(path))));
    }
    comparable(&mut tree);
    tree
}

/// When a file was made, which ntfs-3g tells by an attribute alone, in intervals of 100 ns since 1601.
fn birth(path: &Path) -> Timestamp {
    let value = xattr_path(path, c"system.ntfs_crtime_be").unwrap().expect("a time of birth");
    let since_1601 = i64::from_be_bytes(value.try_into().unwrap());
    let nanoseconds = (since_1601.rem_euclid(10_000_000) * 100) as u32;
    Timestamp { seconds: since_1601.div_euclid(10_000_000) - 11_644_473_600, nanoseconds }
}

/// Without places, which ntfs-3g doesn't tell, and sizes of directories, which it makes up.
fn comparable(tree: &mut Tree) {
    for facts in tree.values_mut() {
        facts.extents = None;
        if facts.mode & 0o170_000 == 0o040_000 {
            facts.size = 0;
        }
    }
}

fn told(image: &Path) -> Tree {
    let mut ntfs = Ntfs::open(ImageFile::open(image).unwrap(), CLOSED).unwrap();
    assert_eq!(ntfs.facts().label, "Größe");
    let mut tree = conformance::by_tables(&mut ntfs, &[]);
    comparable(&mut tree);
    tree
}

fn conforms(cluster_bytes: u64, sector_bytes: u64) {
    conforms_made(cluster_bytes, sector_bytes, &[]);
}

fn conforms_made(cluster_bytes: u64, sector_bytes: u64, options: &[&str]) {
    let Some(mut image) = make(cluster_bytes, sector_bytes, options) else { return };
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ cluster_bytes);
    image.mount_ntfs("compression");
    fill(&image.root(), cluster_bytes, &mut random);
    image.unmount();
    fill_with_options(&mut image, &mut random);

    let before = digest(&image.path());
    let tables = told(&image.path());
    let device = Arc::new(ImageFile::open(&image.path()).unwrap());
    let mut ntfs = Ntfs::open(Arc::clone(&device), CLOSED).unwrap();
    assert_eq!(u64::from(ntfs.facts().block_bytes), cluster_bytes);
    let kept = conformance::scan(&mut ntfs);
    let unit_bytes = ntfs.facts().compression_unit_bytes;
    let contents: HashMap<u64, Vec<u8>> = kept
        .inodes
        .values()
        .filter(|inode| inode.mode & 0o170_000 == 0o100_000)
        .map(|inode| (inode.number, content(&device, inode, unit_bytes)))
        .collect();
    assert_eq!(digest(&image.path()), before, "the image was changed");
    let regular = kept.inodes.values().filter(|inode| inode.mode & 0o170_000 == 0o100_000);
    let outside = regular.filter(|inode| inode.size > 0 && inode.inline.is_none());
    let in_pieces = outside.map(|inode| compare_runs(&image.path(), inode, cluster_bytes, unit_bytes.into()));
    let in_pieces = in_pieces.fold((0, 0), |(files, runs), more| (files + 1, runs + more));
    // In compressed files, holes smaller than a unit are none.
    let is_compressed = options.contains(&"-C");
    let least = if is_compressed { 300 } else { 1000 };
    assert!(in_pieces.0 > 25 && in_pieces.1 > least, "files and runs: {in_pieces:?}");

    image.mount_ntfs("ro");
    conformance::compare(&shown(&image.root()), &tables);
    let mut files = 0;
    for (path, facts) in tables.iter().filter(|(_, facts)| facts.mode & 0o170_000 == 0o100_000) {
        let path = image.root().join(OsStr::from_bytes(path));
        assert!(fs::read(&path).unwrap() == contents[&facts.inode], "the content of {}", path.display());
        files += 1;
    }
    assert!(files > 5900, "{files}");
    seen(&kept, cluster_bytes, is_compressed);
}

/// Verifies that the image has what it was made for.
fn seen(kept: &Kept, cluster_bytes: u64, is_compressed: bool) {
    let inodes = || kept.inodes.values();
    let extents = inodes().map(|inode| inode.extents.len()).max().unwrap();
    assert!(extents > if is_compressed { 80 } else { 500 }, "no file has more than {extents} extents");
    // Of compressed files, all that has a place was written.
    assert!(is_compressed || inodes().any(|inode| inode.extents.iter().any(|extent| extent.is_zeros())));
    let compressed = inodes().filter(|inode| inode.flags.contains(InodeFlags::COMPRESSED));
    let encoded = compressed.filter(|inode| !inode.extents.is_empty()).count();
    assert_eq!(encoded > 15, cluster_bytes <= 4096, "{encoded} compressed files");
    let streams: BTreeMap<_, _> = inodes().flat_map(|inode| inode.streams.iter().cloned()).collect();
    let expected = [("empty", 0), ("first", 3), ("größe", 3000), ("large", 100_000), ("of a directory", 3)];
    for (name, size) in expected {
        assert_eq!(streams.get(name.as_bytes()), Some(&size), "{name}");
    }
}

#[test]
fn clusters_of_512_bytes() {
    conforms(512, 512);
}

#[test]
fn clusters_of_1024_bytes() {
    conforms(1024, 512);
}

#[test]
fn clusters_of_2048_bytes() {
    conforms(2048, 512);
}

#[test]
fn clusters_of_4096_bytes() {
    conforms(4096, 512);
}

#[test]
fn clusters_of_8192_bytes() {
    conforms(8192, 512);
}

#[test]
fn clusters_of_16384_bytes() {
    conforms(16_384, 512);
}

#[test]
fn clusters_of_32768_bytes() {
    conforms(32_768, 512);
}

#[test]
fn clusters_of_65536_bytes() {
    conforms(65_536, 512);
}

/// As Windows 10 makes them: few files, since each takes much.
#[test]
fn clusters_of_128_kib_and_2_mib() {
    for cluster_bytes in [128 << 10, 2 << 20] {
        let cluster = cluster_bytes.to_string();
        let mkfs = ["mkntfs", "-QFq", "-s512", "-p0", "-H0", "-S0", "-L", "Größe", "-c", &cluster];
        let Some(mut image) = Image::new(2 << 30, &mkfs) else { return };
        image.mount_ntfs("");
        let mut random = Random(cluster_bytes);
        for size in [0, 1, 700, 5000, cluster_bytes - 1, cluster_bytes, cluster_bytes + 1, 3 * cluster_bytes + 5] {
            fs::write(image.root().join(size.to_string()), random.bytes(size as usize)).unwrap();
        }
        let sparse = File::create(image.root().join("sparse")).unwrap();
        for at in [0, 5, 9] {
            sparse.write_all_at(b"some bytes", at * cluster_bytes + 100).unwrap();
        }
        drop(sparse);
        fs::create_dir(image.root().join("many")).unwrap();
        (0..600).for_each(|number| fs::write(image.root().join(format!("many/name {number}")), "x").unwrap());
        image.unmount();

        let tables = told(&image.path());
        let device = Arc::new(ImageFile::open(&image.path()).unwrap());
        let mut ntfs = Ntfs::open(Arc::clone(&device), CLOSED).unwrap();
        assert_eq!(u64::from(ntfs.facts().block_bytes), cluster_bytes);
        let kept = conformance::scan(&mut ntfs);
        let outside = || kept.inodes.values().filter(|inode| inode.inline.is_none() && !inode.extents.is_empty());
        let regular = outside().filter(|inode| inode.mode & 0o170_000 == 0o100_000);
        let runs: usize = regular.map(|inode| compare_runs(&image.path(), inode, cluster_bytes, 0)).sum();
        assert!(runs >= 8, "{runs}");
        image.mount_ntfs("ro");
        conformance::compare(&shown(&image.root()), &tables);
        for (path, facts) in tables.iter().filter(|(_, facts)| facts.mode & 0o170_000 == 0o100_000) {
            let path = image.root().join(OsStr::from_bytes(path));
            let content = content(&device, &kept.inodes[&facts.inode], 0);
            assert!(fs::read(&path).unwrap() == content, "the content of {}", path.display());
        }
        assert!(tables.len() > 609, "{}", tables.len());
    }
}

#[test]
fn sectors_of_256_bytes() {
    conforms(4096, 256);
}

#[test]
fn sectors_of_1024_bytes() {
    conforms(4096, 1024);
}

#[test]
fn sectors_of_2048_bytes() {
    conforms(2048, 2048);
}

#[test]
fn records_of_4096_bytes() {
    conforms(4096, 4096);
}

/// Everything is compressed, unless it says otherwise.
#[test]
fn a_volume_that_is_compressed_from_its_root() {
    conforms_made(4096, 512, &["-C"]);
}

#[test]
fn a_volume_that_windows_is_not_to_index() {
    conforms_made(4096, 512, &["-I"]);
}

/// A volume whose $MFT has so many runs that it needs an attribute list itself.
#[test]
fn an_mft_in_many_pieces() {
    let Some(mut image) = Image::new(48 << 20, &["mkntfs", "-QFq", "-s512", "-p0", "-H0", "-S0", "-c512"]) else {
        return;
    };
    image.mount_ntfs("");
    let path = |i: usize| image.root().join(format!("file {i}"));
    // Files and their records take turns, until nothing is free. Then records take what every eighth file leaves.
    let mut files = 0;
    while fs::write(path(files), [b'x'; 1100]).is_ok() {
        files += 1;
    }
    for file in (0..files).step_by(8) {
        let _ = File::options().write(true).open(path(file)).and_then(|file| file.set_len(0));
    }
    while File::create(path(files)).is_ok() {
        files += 1;
    }
    image.unmount();
    let bytes = fs::read(image.path()).unwrap();
    let mft = number(&bytes, 48, 8) * 512;
    let first = mft + number(&bytes, mft + 20, 2);
    let second = first + number(&bytes, first + 4, 4);
    assert_eq!(number(&bytes, second, 4), 0x20, "the $MFT has no attribute list");
    let mut ntfs = Ntfs::open(bytes, CLOSED).unwrap();
    let kept = conformance::scan(&mut ntfs);
    let files = kept.inodes.values().filter(|inode| inode.number % 50 == 0 && inode.mode & 0o170_000 == 0o100_000);
    files
        .filter(|inode| inode.size > 0)
        .for_each(|inode| assert!(compare_runs(&image.path(), inode, 512, 512 << 4) < 50));
    let mut tables = conformance::by_tables(&mut ntfs, &[]);
    comparable(&mut tables);
    image.mount_ntfs("ro");
    conformance::compare(&shown(&image.root()), &tables);
    assert!(tables.len() > 10_000);
}

pub(crate) fn number(bytes: &[u8], at: usize, length: usize) -> usize {
    bytes[at..at + length].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}
