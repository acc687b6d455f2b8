//! A tree with everything that NTFS keeps in a way of its own.

use std::{
    fs::{self, File, FileTimes, OpenOptions},
    io::{Seek, SeekFrom, Write},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use rustix::fs::{FileType, Mode, XattrFlags, mknodat};

use crate::image::Image;

/// Pseudo-random numbers that are the same in every run.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }

    /// Bytes that get smaller when they are compressed.
    pub(crate) fn text(&mut self, length: usize) -> Vec<u8> {
        let words = ["sector ", "cluster ", "head ", "track ", "the ", "seek\n"];
        let mut text = Vec::with_capacity(length + 8);
        while text.len() < length {
            text.extend(words[self.below(words.len() as u64) as usize].as_bytes());
        }
        text.truncate(length);
        text
    }
}

pub(crate) fn set_xattr(path: &Path, name: &str, value: &[u8]) {
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
pub(crate) fn fill(root: &Path, cluster_bytes: u64, random: &mut Random) {
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

pub(crate) fn names(folder: &Path, random: &mut Random) {
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

pub(crate) fn kinds(folder: &Path) {
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
pub(crate) fn fragments(folder: &Path, cluster_bytes: u64, random: &mut Random) {
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

pub(crate) fn compressed(folder: &Path, random: &mut Random) {
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

pub(crate) fn times(folder: &Path) {
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
pub(crate) fn fill_with_options(image: &mut Image, random: &mut Random) {
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
