//! A tree with everything that ext4 keeps in a way of its own.

use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, PermissionsExt, symlink},
    },
    path::Path,
    process::Command,
};

use rustix::fs::{CWD, FallocateFlags, FileType, Mode, Timespec, Timestamps, XattrFlags};

use crate::image::run;

/// Numbers from a seed (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % end
    }
}

/// How much of it.
#[derive(Clone, Copy)]
pub(crate) struct Amount {
    /// Small files.
    pub(crate) files: u64,
    /// Names in one directory.
    pub(crate) names: u64,
    /// Pieces of the file in the most pieces.
    pub(crate) pieces: u64,
}

/// Enough for every kind of block.
pub(crate) const ALL: Amount = Amount { files: 400, names: 20_000, pieces: 3000 };

/// Fills a folder. What a file system doesn't have (`fallocate` on ext2, large attributes) is left out.
pub(crate) fn fill(root: &Path, seed: u64, block_bytes: u64, amount: Amount) {
    let mut random = Random::new(seed);
    many_files(root, &mut random, amount.files);
    many_names(&root.join("many names"), amount.names);
    pieces(root, block_bytes, amount.pieces);
    odd_names(root);
    links(root);
    nodes(root);
    attributes(root);
    times(root);
}

fn many_files(root: &Path, random: &mut Random, count: u64) {
    let mut deleted = Vec::new();
    for index in 0..count {
        let folder = root.join(format!("folder {}", index % 17)).join(format!("{}", index % 5));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("file {index}"));
        let size = match index % 5 {
            0 => 0,
            1 => random.below(60),
            2 => random.below(170),
            3 => random.below(4096),
            _ => random.below(40_000),
        };
        fs::write(&path, vec![index as u8; size as usize]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(random.below(0o10000) as u32)).unwrap();
        let (uid, gid) = (random.below(1 << 31) as u32, random.below(1 << 17) as u32);
        std::os::unix::fs::chown(&path, Some(uid), Some(gid)).unwrap();
        if index % 7 == 0 {
            deleted.push(path);
        }
    }
    let empty = root.join("empty");
    fs::create_dir(&empty).unwrap();
    deleted.iter().for_each(|path| fs::remove_file(path).unwrap());
}

/// One folder with very many names, some of them taken away again.
fn many_names(folder: &Path, count: u64) {
    fs::create_dir(folder).unwrap();
    let first = folder.join("0");
    fs::write(&first, "linked").unwrap();
    for index in 1..count {
        fs::hard_link(&first, folder.join(format!("{index} {}", "x".repeat((index % 50) as usize)))).unwrap();
    }
    for index in (3..count).step_by(11) {
        fs::remove_file(folder.join(format!("{index} {}", "x".repeat((index % 50) as usize)))).unwrap();
    }
}

fn pieces(root: &Path, block_bytes: u64, count: u64) {
    let file = File::create(root.join("in many pieces")).unwrap();
    for index in 0..count {
        file.write_all_at(b"x", index * 2 * block_bytes).unwrap();
    }
    let file = File::create(root.join("beyond 4 GiB")).unwrap();
    for at in [0, 11, 12, 13, 200, 300, 1036, 1040, 66_000, 1_100_000] {
        file.write_all_at(b"x", at * block_bytes).unwrap();
    }
    file.write_all_at(b"x", 5 << 30).unwrap();
    let file = File::create(root.join("a hole")).unwrap();
    file.set_len(123_456_789).unwrap();
    let file = File::create(root.join("unwritten")).unwrap();
    file.write_all_at(&[7; 10_000], 0).unwrap();
    let _ = rustix::fs::fallocate(&file, FallocateFlags::empty(), 100_000, 1 << 20);
    file.write_all_at(&[7; 5000], 300_000).unwrap();
    let file = File::create(root.join("kept behind its end")).unwrap();
    file.write_all_at(&[7; 10_000], 0).unwrap();
    let _ = rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1 << 20);
    fs::write(root.join("large"), vec![3; 5 << 20]).unwrap();
}

fn odd_names(root: &Path) {
    let folder = root.join("odd");
    fs::create_dir(&folder).unwrap();
    for name in [b"a\nb".as_slice(), b"\xFF\xFE", b"-", b"...", b" ", b"\x01", &[b'n'; 255], "n\u{e9}".as_bytes()] {
        fs::write(folder.join(OsStr::from_bytes(name)), name).unwrap();
    }
    let mut deep = folder.join("d");
    for depth in 0..30 {
        fs::create_dir(&deep).unwrap();
        deep.push(format!("d{depth}"));
    }
}

fn links(root: &Path) {
    let folder = root.join("links");
    fs::create_dir(&folder).unwrap();
    for length in [1, 10, 58, 59, 60, 61, 100, 150, 200, 1000] {
        symlink("t".repeat(length), folder.join(format!("to {length}"))).unwrap();
    }
    fs::write(folder.join("one"), "1").unwrap();
    fs::hard_link(folder.join("one"), root.join("other")).unwrap();
    fs::hard_link(folder.join("one"), folder.join("two")).unwrap();
}

fn nodes(root: &Path) {
    let folder = root.join("nodes");
    fs::create_dir(&folder).unwrap();
    for (name, kind, device) in [
        ("fifo", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
        ("old", FileType::BlockDevice, rustix::fs::makedev(8, 17)),
        ("new", FileType::CharacterDevice, rustix::fs::makedev(259, 70_000)),
        ("zero", FileType::CharacterDevice, rustix::fs::makedev(0, 0)),
    ] {
        rustix::fs::mknodat(CWD, folder.join(name), kind, Mode::from_raw_mode(0o644), device).unwrap();
    }
}

fn attributes(root: &Path) {
    let folder = root.join("attributes");
    fs::create_dir(&folder).unwrap();
    let set = |path: &Path, name: &str, value: &[u8]| {
        // The larger ones fit only into inodes of their own.
        let _ = rustix::fs::lsetxattr(path, name, value, XattrFlags::empty());
    };
    for index in 0..40_u8 {
        let path = folder.join(format!("{index}"));
        fs::write(&path, vec![index; usize::from(index) * 20]).unwrap();
        set(&path, "user.small", &[index; 5]);
        set(&path, "user.empty", b"");
        if index % 2 == 0 {
            set(&path, "user.larger", &vec![index; 300]);
            set(&path, "trusted.of root", b"yes");
            set(&path, "security.of nobody", b"no");
        }
        if index % 4 == 0 {
            set(&path, "user.very large", &vec![index / 8; 3000 + usize::from(index) * 1500]);
        }
        if index % 3 == 0 {
            run(Command::new("setfacl").args(["-m", "u:1234:rw,g:99:x,m::rwx"]).arg(&path));
        }
    }
    run(Command::new("setfacl").args(["-d", "-m", "u:5:rwx"]).arg(&folder));
    fs::create_dir(folder.join("below")).unwrap();
    symlink("nowhere", folder.join("link")).unwrap();
    set(&folder.join("link"), "trusted.of a link", b"1");
}

fn times(root: &Path) {
    let folder = root.join("times");
    fs::create_dir(&folder).unwrap();
    for (index, seconds) in
        [-1_i64, -2_000_000_000, 0, 2_000_000_000, 5_000_000_000, 15_000_000_000].into_iter().enumerate()
    {
        let path = folder.join(format!("{index}"));
        fs::write(&path, "x").unwrap();
        let time = Timespec { tv_sec: seconds, tv_nsec: 123_456_789 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, &path, &times, rustix::fs::AtFlags::empty()).unwrap();
    }
}

/// Fills a small image: few files, many names of one, and one in pieces.
pub(crate) fn fill_small(root: &Path, seed: u64, block_bytes: u64, amount: Amount) {
    for index in 0..amount.files {
        fs::write(root.join(format!("file {index}")), vec![7; (index * 37 % 5000) as usize]).unwrap();
        let path = root.join(format!("file {index}"));
        let value = vec![index as u8; (index % 40 * 5) as usize];
        let _ = rustix::fs::setxattr(&path, "user.x", &value, rustix::fs::XattrFlags::empty());
    }
    for index in 0..amount.names {
        fs::hard_link(root.join("file 0"), root.join(format!("name {index} {seed}"))).unwrap();
    }
    let file = fs::File::create(root.join("pieces")).unwrap();
    for index in 0..amount.pieces {
        std::os::unix::fs::FileExt::write_all_at(&file, b"x", index * 2 * block_bytes).unwrap();
    }
    for length in [5, 59, 61, 500] {
        std::os::unix::fs::symlink("t".repeat(length), root.join(format!("link {length}"))).unwrap();
    }
}
