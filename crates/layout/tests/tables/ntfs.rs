//! NTFS: images filled through ntfs-3g, and what it shows of them.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ffi::OsStr,
    fs::{self, File, FileTimes, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use onesweep_layout::{
    BlockRead, ExtentFlags, ImageFile,
    tables::{
        Inode, InodeFlags, TableError, Tables, Timestamp, Wanted,
        ntfs::{Decompressor, Ntfs, Options},
    },
};
use onesweep_sys::files::xattr_path;
use rustix::fs::{FileType, Mode, XattrFlags, mknodat};

use crate::{
    conformance::{self, Kept, Tree},
    image::{self, Image},
    ntfs_runs::compare_runs,
};

const CLOSED: Options = Options { force_dirty: false };

/// Pseudo-random numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }

    /// Bytes that get smaller when they are compressed.
    fn text(&mut self, length: usize) -> Vec<u8> {
        let words = ["sector ", "cluster ", "head ", "track ", "the ", "seek\n"];
        let mut text = Vec::with_capacity(length + 8);
        while text.len() < length {
            text.extend(words[self.below(words.len() as u64) as usize].as_bytes());
        }
        text.truncate(length);
        text
    }
}

fn make(cluster_bytes: u64, sector_bytes: u64, options: &[&str]) -> Option<Image> {
    let (cluster, sector) = (cluster_bytes.to_string(), sector_bytes.to_string());
    let arguments = ["-Q", "-F", "-s", &sector, "-p", "0", "-H", "0", "-S", "0", "-c", &cluster, "-L", "Größe", "-q"];
    Image::new(192 << 20, &[&["mkntfs"], &arguments[..], options].concat())
}

fn set_xattr(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()).unwrap_or_else(|error| panic!("{name}: {error}"));
}

/// A reparse point for a symbolic link that Windows made.
fn windows_link(target: &str) -> Vec<u8> {
    let target: Vec<u8> = target.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let length = target.len() as u16;
    let mut data: Vec<u8> = [0, length, length, length, 1, 0].iter().flat_map(|n: &u16| n.to_le_bytes()).collect();
    data.extend([&target[..], &target].concat());
    reparse_point(0xa000_000c, &data)
}

fn reparse_point(tag: u32, data: &[u8]) -> Vec<u8> {
    [&tag.to_le_bytes()[..], &(data.len() as u16).to_le_bytes(), &[0, 0], data].concat()
}

/// Everything that ntfs-3g can make with its default options, and compressed files where it can.
fn fill(root: &Path, cluster_bytes: u64, random: &mut Random) {
    let sub = |name: &str| {
        let path = root.join(name);
        fs::create_dir(&path).unwrap();
        path
    };
    let small = sub("small");
    for size in 0..=700 {
        fs::write(small.join(size.to_string()), random.bytes(size)).unwrap();
    }
    let many = sub("many");
    for i in 0..5400 {
        File::create(many.join(format!("a name of the directory {}", i * 7919 % 5400))).unwrap();
    }
    // Some are deleted, and some of their records are used again.
    for i in (0..5400).step_by(11) {
        fs::remove_file(many.join(format!("a name of the directory {i}"))).unwrap();
    }
    for i in 0..300 {
        fs::write(many.join(format!("again {i}")), random.bytes(i)).unwrap();
    }

    let holes = sub("holes");
    for i in 0..20 {
        let file = File::create(holes.join(i.to_string())).unwrap();
        file.set_len(random.below(8 << 20)).unwrap();
        for _ in 0..i {
            let length = 1 + random.below(40_000) as usize;
            file.write_all_at(&random.bytes(length), random.below(4 << 20)).unwrap();
        }
        if i % 3 == 0 {
            file.set_len(random.below(9 << 20)).unwrap();
        }
    }
    let file = File::create(holes.join("grown")).unwrap();
    file.write_all_at(&random.bytes(10_000), 0).unwrap();
    file.set_len(200_000).unwrap();

    names(&sub("names"), random);
    kinds(&sub("kinds"));
    fragments(&sub("fragments"), cluster_bytes, random);
    // Compression is for clusters of up to 4096 bytes.
    if cluster_bytes <= 4096 {
        compressed(&sub("compressed"), random);
    }
    times(&sub("times"));
}

fn names(folder: &Path, random: &mut Random) {
    for name in ["new\nline", "😀 emoji 🂡", "漢字", "trailing.", " ", "a\\b", "c:d*?\"<>|", "é", "\u{ffff}"] {
        fs::write(folder.join(name), name).unwrap();
    }
    fs::write(folder.join("x".repeat(255)), "long").unwrap();
    fs::write(folder.join("漢".repeat(85)), "long").unwrap();
    // Half of a pair of UTF-16, which Windows allows.
    fs::write(folder.join(Path::new(std::ffi::OsStr::from_bytes(b"half \xed\xa0\xbd"))), "half").unwrap();
    let mut deep = folder.to_path_buf();
    for i in 0..40 {
        deep.push(format!("level {i}"));
        fs::create_dir(&deep).unwrap();
    }
    fs::write(deep.join("bottom"), "bottom").unwrap();
    // Hard links: some in other directories, and so many that they need further records.
    let file = folder.join("linked");
    fs::write(&file, random.bytes(3000)).unwrap();
    for i in 0..3 {
        fs::hard_link(&file, deep.join(format!("link {i}"))).unwrap();
    }
    let file = folder.join("often linked");
    fs::write(&file, random.bytes(300)).unwrap();
    for i in 0..100 {
        fs::hard_link(&file, folder.join(format!("one of very many links to a file, number {i}"))).unwrap();
    }
    let file = folder.join("A long name for DOS.text");
    fs::write(&file, "short").unwrap();
    set_xattr(&file, "system.ntfs_dos_name", b"ALONGN~1.TEX");
}

fn kinds(folder: &Path) {
    symlink("target", folder.join("link")).unwrap();
    symlink("../ä/😀".repeat(100), folder.join("long link")).unwrap();
    let devices = [("pipe", FileType::Fifo, 0, 0), ("null", FileType::CharacterDevice, 1, 3)];
    let more = [("tty", FileType::CharacterDevice, 5, 300), ("disk", FileType::BlockDevice, 4095, 1 << 19)];
    for (name, kind, major, minor) in devices.into_iter().chain(more) {
        let device = rustix::fs::makedev(major, minor);
        mknodat(rustix::fs::CWD, folder.join(name), kind, Mode::RWXU, device).unwrap();
    }
    drop(UnixListener::bind(folder.join("socket")).unwrap());
    fs::create_dir(folder.join("below")).unwrap();
    fs::write(folder.join("below/File"), "x").unwrap();
    for (name, point) in [
        ("windows link", windows_link(r"below\File")),
        ("windows link to a directory", windows_link("below")),
        ("unknown", reparse_point(0x8000_0013, b"dedup")),
    ] {
        let path = folder.join(name);
        match name.contains("directory") {
            true => fs::create_dir(&path).unwrap(),
            false => fs::write(&path, "").unwrap(),
        }
        set_xattr(&path, "system.ntfs_reparse_data", &point);
    }
    let path = folder.join("with streams");
    fs::write(&path, "main").unwrap();
    set_xattr(&path, "user.first", b"one");
    set_xattr(&path, "user.größe", &[7; 3000]);
    set_xattr(&path, "user.empty", b"");
    set_xattr(&folder.join("below"), "user.of a directory", b"two");
    // System files that stand for nothing else.
    for (name, content) in [("system", &b"IntxLNK, or not"[..]), ("system of two bytes", b"ab")] {
        let path = folder.join(name);
        fs::write(&path, content).unwrap();
        set_xattr(&path, "system.ntfs_attrib_be", &[0, 0, 0, 4]);
    }
}

/// Files in so many pieces that their runlists need several records.
fn fragments(folder: &Path, cluster_bytes: u64, random: &mut Random) {
    let parts: Vec<PathBuf> = (0..4).map(|i| folder.join(format!("part {i}"))).collect();
    for _ in 0..150 {
        for part in &parts {
            let mut file = OpenOptions::new().append(true).create(true).open(part).unwrap();
            let some = random.below(2 * cluster_bytes) as usize + 1;
            file.write_all(&random.bytes(some)).unwrap();
        }
    }
    // Every second cluster, in no order, so that neighbors in the file aren't neighbors on the disk.
    for (name, clusters) in [("comb", 700), ("small comb", 120)] {
        let file = File::create(folder.join(name)).unwrap();
        file.set_len(2 * clusters * cluster_bytes).unwrap();
        let content = random.bytes(cluster_bytes as usize - 200);
        let mut order: Vec<u64> = (0..clusters).collect();
        for i in 1..clusters {
            order.swap(i as usize, random.below(i + 1) as usize);
        }
        for i in order {
            file.write_all_at(&content, 2 * i * cluster_bytes + i % 200).unwrap();
        }
    }
}

fn compressed(folder: &Path, random: &mut Random) {
    set_xattr(folder, "system.ntfs_attrib_be", &[0, 0, 8, 0]);
    for (i, size) in [1, 600, 4096, 5000, 65_535, 65_536, 65_537, 300_000, 1_000_000].into_iter().enumerate() {
        fs::write(folder.join(format!("text {i}")), random.text(size)).unwrap();
        fs::write(folder.join(format!("noise {i}")), random.bytes(size)).unwrap();
        fs::write(folder.join(format!("zeros {i}")), vec![0; size]).unwrap();
        let mut mixed = Vec::new();
        while mixed.len() < size {
            let length = random.below(90_000) as usize;
            mixed.extend(match random.below(3) {
                0 => random.text(length),
                1 => random.bytes(length),
                _ => vec![random.next() as u8; length],
            });
        }
        mixed.truncate(size);
        fs::write(folder.join(format!("mixed {i}")), mixed).unwrap();
    }
    let mut file = File::create(folder.join("with a hole")).unwrap();
    file.write_all(&random.text(100_000)).unwrap();
    file.seek(SeekFrom::Start(400_000)).unwrap();
    file.write_all(&random.text(100_000)).unwrap();
    file.set_len(800_000).unwrap();
}

fn times(folder: &Path) {
    for (i, (seconds, nanoseconds)) in
        [(0, 0), (1, 100), (1_700_000_000, 123_456_700), (9_000_000_000, 999_999_900)].into_iter().enumerate()
    {
        let file = File::create(folder.join(format!("after {i}"))).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        file.set_times(FileTimes::new().set_modified(time).set_accessed(time + Duration::from_secs(5))).unwrap();
    }
    let file = File::create(folder.join("before")).unwrap();
    let time = SystemTime::UNIX_EPOCH - Duration::from_secs(86_400 * 365);
    file.set_times(FileTimes::new().set_modified(time).set_accessed(time)).unwrap();
}

/// What needs other options of the mount: larger streams, and files of Linux on Windows.
fn fill_with_options(image: &mut Image, random: &mut Random) {
    image.mount_ntfs("streams_interface=windows");
    let path = image.root().join("kinds/with streams:large");
    fs::write(path, random.bytes(100_000)).unwrap();
    image.unmount();
    image.mount_ntfs("special_files=wsl");
    let folder = image.root().join("linux");
    fs::create_dir(&folder).unwrap();
    symlink("target/ä", folder.join("link")).unwrap();
    for (name, kind) in [("pipe", FileType::Fifo), ("tty", FileType::CharacterDevice), ("disk", FileType::BlockDevice)]
    {
        let device = if kind == FileType::Fifo { 0 } else { rustix::fs::makedev(5, 300) };
        mknodat(rustix::fs::CWD, folder.join(name), kind, Mode::RWXU, device).unwrap();
    }
    image.unmount();
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
        let path = image.root().join(std::ffi::OsStr::from_bytes(path));
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
            let path = image.root().join(std::ffi::OsStr::from_bytes(path));
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

/// A small image with some of everything, in memory.
fn small_image() -> Option<Vec<u8>> {
    let mut image = Image::new(24 << 20, &["mkntfs", "-QFq", "-s512", "-p0", "-H0", "-S0", "-c1024"])?;
    let mut random = Random(7);
    image.mount_ntfs("compression");
    let folder = |name: &str| {
        fs::create_dir(image.root().join(name)).unwrap();
        image.root().join(name)
    };
    names(&folder("names"), &mut random);
    kinds(&folder("kinds"));
    fragments(&folder("fragments"), 1024, &mut random);
    compressed(&folder("compressed"), &mut random);
    for i in 0..100 {
        fs::write(image.root().join(format!("file {i}")), random.bytes(i * 20)).unwrap();
    }
    for i in 0..20 {
        fs::remove_file(image.root().join(format!("file {}", i * 5))).unwrap();
    }
    image.unmount();
    Some(fs::read(image.path()).unwrap())
}

fn number(bytes: &[u8], at: usize, length: usize) -> usize {
    bytes[at..at + length].iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

/// Where the records of an image with clusters of 1024 bytes begin, and which files they belong to. Copies come twice.
fn records(bytes: &[u8]) -> Vec<(usize, u64)> {
    let starts = (0..bytes.len()).step_by(1024).filter(|at| bytes[*at..].starts_with(b"FILE"));
    let file = |at| match number(bytes, at + 32, 6) {
        0 => number(bytes, at + 44, 4),
        base => base,
    };
    starts.map(|at| (at, file(at) as u64)).collect()
}

fn scanned(bytes: &(impl BlockRead + ?Sized)) -> Result<Kept, TableError> {
    Ntfs::open(bytes, CLOSED).map(|mut ntfs| conformance::scan(&mut ntfs))
}

/// Some bytes are others.
struct Changed<'a> {
    sound: &'a [u8],
    bytes: HashMap<u64, u8>,
}

impl BlockRead for Changed<'_> {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> std::io::Result<()> {
        self.sound.read_at(buffer, at)?;
        for (place, byte) in &self.bytes {
            if let Some(old) = place.checked_sub(at).and_then(|offset| buffer.get_mut(offset as usize)) {
                *old = *byte;
            }
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.sound.len() as u64
    }
}

/// How often something is tried: twenty times as often in a long run.
fn rounds(short: u64) -> u64 {
    let long = std::env::var_os("ONESWEEP_TEST_LONG").is_some_and(|value| !value.is_empty() && value != "0");
    if long { 20 * short } else { short }
}

/// Random changes of the file records, 500 times. Files whose records are as they were are told as they were; when one isn't
/// told at all, a problem is.
#[test]
fn damage_is_told_and_spares_the_rest() {
    let Some(sound) = small_image() else { return };
    let right = scanned(&sound).unwrap();
    assert!(right.problems.is_empty() && right.inodes.len() > 150, "{:?}", right.problems);
    let records = records(&sound);
    let began = Instant::now();
    let (mut opened, mut told) = (0, 0);
    let rounds = rounds(500);
    for seed in 1..=rounds {
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ seed << 32);
        let mut damaged = Changed { sound: &sound, bytes: HashMap::new() };
        let mut hit = HashSet::new();
        for _ in 0..1 + random.below(24) {
            let (at, file) = records[random.below(records.len() as u64) as usize];
            // The most that is of interest is in the first bytes.
            let offset = if random.below(2) == 0 { random.below(256) } else { random.below(1024) };
            let place = at as u64 + offset;
            let byte = match random.below(3) {
                0 => random.next() as u8,
                1 => [0, 1, 0x7f, 0x80, 0xff][random.below(5) as usize],
                _ => sound[place as usize] ^ 1 << random.below(8),
            };
            if byte != sound[place as usize] {
                damaged.bytes.insert(place, byte);
                hit.insert(file);
            }
        }
        let kept = match scanned(&damaged) {
            Ok(kept) => kept,
            Err(refused) => {
                conformance::names_its_place(&refused);
                continue;
            }
        };
        kept.problems.iter().for_each(conformance::names_its_place);
        opened += 1;
        told += u64::from(!kept.problems.is_empty());
        // What is wrong with the $MFT itself is wrong with all.
        if !kept.problems.is_empty() && hit.contains(&0) {
            continue;
        }
        for (number, inode) in &right.inodes {
            match kept.inodes.get(number) {
                Some(other) => assert!(other == inode || hit.contains(number), "seed {seed}: {inode:?}, {other:?}"),
                None => assert!(hit.contains(number) && !kept.problems.is_empty(), "seed {seed}: {inode:?} is missing"),
            }
        }
        let unhurt = |name: &&(u64, u64, Vec<u8>)| !hit.contains(&name.0) && !hit.contains(&name.1);
        for name in right.names.iter().filter(unhurt) {
            assert!(kept.names.contains(name), "seed {seed}: {name:?} is missing");
        }
    }
    assert!(opened > rounds / 2 && told > rounds / 3, "{opened} of {rounds} were read, {told} with problems");
    assert!(began.elapsed() < Duration::from_secs(rounds / 4), "{:?}", began.elapsed());
}

/// Bytes of every kind of table become others, also whole blocks, 300 times: nothing panics or hangs.
#[test]
fn no_damage_stops_it() {
    let Some(sound) = small_image() else { return };
    let blocks: Vec<usize> =
        (0..sound.len()).step_by(512).filter(|at| sound[*at..at + 512].iter().any(|byte| *byte != 0)).collect();
    let files: Vec<usize> = records(&sound).into_iter().map(|(at, _)| at).collect();
    let began = Instant::now();
    for seed in 1..=rounds(300) {
        let mut random = Random(0x2545_f491_4f6c_dd1d ^ seed << 32);
        let mut damaged = Changed { sound: &sound, bytes: HashMap::new() };
        for _ in 0..1 + random.below(8) {
            let mut pick = |from: &[usize]| from[random.below(from.len() as u64) as usize];
            // A record over another one, a block over another one, or a few bytes.
            let (from, to, length) = match seed % 3 {
                0 => (pick(&files), pick(&files), 1024),
                1 => (pick(&blocks), pick(&blocks), 512),
                _ => (pick(&blocks), pick(&blocks) + pick(&[0, 8, 16, 40, 200]), 8),
            };
            for i in 0..length {
                damaged.bytes.insert((to + i) as u64, sound[from + i]);
            }
        }
        match scanned(&damaged) {
            Ok(kept) => kept.problems.iter().for_each(conformance::names_its_place),
            Err(refused) => conformance::names_its_place(&refused),
        }
    }
    assert!(began.elapsed() < Duration::from_secs(rounds(300) / 2), "{:?}", began.elapsed());
}

/// A place of the disk can't be read: the records there are told as problems, all others as ever.
#[test]
fn a_bad_place_costs_only_its_records() {
    struct Bad<'a>(&'a [u8], u64);
    impl BlockRead for Bad<'_> {
        fn read_at(&self, buffer: &mut [u8], at: u64) -> std::io::Result<()> {
            match self.1 < at + buffer.len() as u64 && at < self.1 + 512 {
                true => Err(std::io::Error::other("bad sector")),
                false => self.0.read_at(buffer, at),
            }
        }

        fn len(&self) -> u64 {
            self.0.len() as u64
        }
    }
    let Some(sound) = small_image() else { return };
    let right = scanned(&sound).unwrap();
    for (at, file) in records(&sound).into_iter().filter(|(_, file)| *file >= 24) {
        let kept = scanned(&Bad(&sound, at as u64 + 512)).unwrap();
        let others = |inodes: &HashMap<u64, Inode>| {
            inodes.iter().filter(|(number, _)| **number != file).map(|(_, inode)| inode.clone()).collect::<Vec<_>>()
        };
        let count = right.inodes.len() - usize::from(right.inodes.contains_key(&file));
        assert!(others(&kept.inodes).iter().all(|inode| right.inodes[&inode.number] == *inode));
        assert_eq!(others(&kept.inodes).len(), count, "beside {file}");
        let unreadable = kept.problems.iter().any(|problem| matches!(problem, TableError::Io { .. }));
        assert!(unreadable, "{file}: {:?}", kept.problems);
    }
}

/// Without extended attributes, everything else is the same.
#[test]
fn what_is_not_asked_for_costs_nothing_else() {
    let Some(sound) = small_image() else { return };
    let mut right = scanned(&sound).unwrap();
    assert!(right.inodes.values().any(|inode| !inode.xattrs.is_empty()));
    right.inodes.values_mut().for_each(|inode| inode.xattrs.clear());
    let mut kept = Kept::default();
    Ntfs::open(&sound, CLOSED).unwrap().scan(Wanted { xattrs: false, ..Wanted::default() }, &mut kept).unwrap();
    assert_eq!(kept.inodes, right.inodes);
    assert_eq!(kept.names, right.names);
}

/// The first records and the boot sector have copies.
#[test]
fn copies_serve_when_the_first_is_damaged() {
    let Some(sound) = small_image() else { return };
    let right = scanned(&sound).unwrap();
    let mft = number(&sound, 48, 8) * 1024;
    for places in [vec![0], vec![0x1fe], vec![mft], vec![mft + 510], vec![mft + 3 * 1024], vec![3, mft + 1023]] {
        let mut damaged = Changed { sound: &sound, bytes: HashMap::new() };
        for place in &places {
            damaged.bytes.insert(*place as u64, !sound[*place]);
        }
        let kept = scanned(&damaged).unwrap_or_else(|error| panic!("{places:?}: {error}"));
        assert_eq!(kept.inodes, right.inodes, "{places:?}");
        assert_eq!(kept.names, right.names, "{places:?}");
        // The first byte of all is part of a jump that nobody needs here.
        let told = if places == [0] { 0 } else { places.len() };
        assert_eq!(kept.problems.len(), told, "{:?}", kept.problems);
    }
}

/// Where an attribute of a record has its value.
fn value_at(bytes: &[u8], record: usize, kind: usize) -> usize {
    let mut at = record + number(bytes, record + 20, 2);
    while number(bytes, at, 4) != kind {
        at += number(bytes, at + 4, 4);
    }
    at + number(bytes, at + 20, 2)
}

#[test]
fn a_volume_that_was_not_closed_is_refused() {
    let Some(sound) = small_image() else { return };
    let mft = number(&sound, 48, 8) * 1024;
    let dirty = |bytes: &[u8]| {
        let error = Ntfs::open(bytes, CLOSED).map(|_| ()).unwrap_err();
        assert!(matches!(error, TableError::Dirty { .. }), "{error}");
        assert!(error.to_string().contains("--force-dirty"));
        let mut forced = Ntfs::open(bytes, Options { force_dirty: true }).unwrap();
        let kept = conformance::scan(&mut forced);
        assert!(kept.inodes.len() > 150 && kept.problems.is_empty(), "{:?}", kept.problems);
    };
    let mut bytes = sound.clone();
    bytes[value_at(&sound, mft + 3 * 1024, 0x70) + 10] |= 1;
    dirty(&bytes);

    // A journal that somebody has open.
    let journal = mft + 2 * 1024;
    let mut at = journal + number(&sound, journal + 20, 2);
    while number(&sound, at, 4) != 0x80 {
        at += number(&sound, at + 4, 4);
    }
    let runs = at + number(&sound, at + 32, 2);
    let (length, place) = (usize::from(sound[runs] & 15), usize::from(sound[runs] >> 4));
    let log = 1024 * number(&sound, runs + 1 + length, place);
    let mut bytes = sound.clone();
    let page = &mut bytes[log..log + 4096];
    page.fill(0);
    page[..8].copy_from_slice(&[b'R', b'S', b'T', b'R', 30, 0, 9, 0]);
    page[16..20].copy_from_slice(&4096_u32.to_le_bytes());
    page[24] = 48;
    dirty(&bytes);

    // A torn record of the root hides whether there is a hiberfil.sys, and no other sign.
    let root = mft + 5 * 1024 + 510;
    for (bytes, expected) in [(&bytes, "$LogFile"), (&sound, "nobody can tell whether it was closed")] {
        let mut torn = bytes.clone();
        torn[root] = !torn[root];
        let error = Ntfs::open(&torn, CLOSED).map(|_| ()).unwrap_err();
        assert!(matches!(error, TableError::Dirty { .. }) && error.to_string().contains(expected), "{error}");
        let forced = Ntfs::open(&torn, Options { force_dirty: true }).unwrap();
        assert!(forced.facts().is_dirty);
    }
}

#[test]
fn a_volume_that_hibernates_is_refused() {
    let Some(mut image) = make(4096, 512, &[]) else { return };
    let mut with = |content: &[u8]| {
        image.mount_ntfs("");
        fs::write(image.root().join("HiberFil.sys"), content).unwrap();
        for i in 0..100 {
            fs::write(image.root().join(format!("{i} beside it, so that the index has blocks")), "").unwrap();
        }
        image.unmount();
        Ntfs::open(ImageFile::open(&image.path()).unwrap(), CLOSED).map(|_| ())
    };
    assert!(matches!(with(&[b"HIBR", &[0; 8188][..]].concat()), Err(TableError::Dirty { .. })));
    assert!(matches!(with(b"short"), Err(TableError::Dirty { .. })));
    with(&[0; 8192]).unwrap();
    with(&[b"wake", &[0; 8188][..]].concat()).unwrap();
}

#[test]
fn what_is_no_ntfs_is_told() {
    for bytes in [vec![0; 1 << 20], vec![0x5a; 1 << 20], b"XFSB".repeat(1000)] {
        let error = Ntfs::open(&bytes, CLOSED).map(|_| ()).unwrap_err();
        assert!(matches!(error, TableError::NotHere { fs_type: "ntfs", .. }), "{error}");
    }
}

/// The backup of the boot sector stays at the end of a device when another file system is made on it.
#[test]
fn what_was_an_ntfs_is_told() {
    for mkfs in [&["mkfs.ext4", "-qF"][..], &["mkfs.xfs", "-qf"], &["mkfs.btrfs", "-qf"]] {
        let Some(mut image) = Image::new(320 << 20, &["mkntfs", "-QFq", "-s512", "-p0", "-H0", "-S0"]) else { return };
        image::run(Command::new(mkfs[0]).args(&mkfs[1..]).arg(image.path()));
        image.mount(&[], "");
        fs::write(image.root().join("file"), "content").unwrap();
        image.unmount();
        let error = Ntfs::open(ImageFile::open(&image.path()).unwrap(), CLOSED).map(|_| ()).unwrap_err();
        assert!(matches!(error, TableError::NotHere { .. }), "{mkfs:?}: {error}");
    }
}
