//! A tree with everything that XFS keeps in a way of its own.

use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, symlink},
    },
    path::Path,
    process::Command,
};

use rustix::fs::{CWD, FileType, Mode, XattrFlags, makedev, mknodat, setxattr};

use crate::image::run;

/// Numbers that look random, the same in each run (xorshift64*).
pub(crate) struct Seeded(pub(crate) u64);

impl Seeded {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

/// What a tree is to have.
pub(crate) struct Recipe {
    /// Names in the largest directory.
    pub(crate) names: u32,
    /// Whether the file system can share extents.
    pub(crate) reflink: bool,
    /// Bytes of the largest extended attribute.
    pub(crate) attribute: usize,
}

/// What XFS takes as one attribute.
pub(crate) const ATTRIBUTE_MAX: usize = 65_536;

/// Fills a mounted file system.
pub(crate) fn fill(root: &Path, recipe: &Recipe) {
    let mut seeded = Seeded(0x0dd_ba11);
    files(root, &mut seeded, recipe);
    attributes(root, &mut seeded, recipe.attribute);
    names(root, &mut seeded, recipe.names);
    special(root);
    // Deleted ones leave holes in chunks of inodes, and in directories.
    let gone = root.join("gone");
    fs::create_dir(&gone).unwrap();
    for number in 0..200 {
        fs::write(gone.join(format!("file {number}")), seeded.bytes(number)).unwrap();
    }
    for number in (0..200).filter(|number| number % 7 != 0) {
        fs::remove_file(gone.join(format!("file {number}"))).unwrap();
    }
    rustix::fs::sync();
}

fn files(root: &Path, seeded: &mut Seeded, recipe: &Recipe) {
    for (number, length) in [0, 1, 511, 4096, 65_537, 3 << 20].into_iter().enumerate() {
        fs::write(root.join(format!("plain {number}")), seeded.bytes(length)).unwrap();
    }
    let sparse = File::create(root.join("sparse")).unwrap();
    for block in [3, 90, 100_000, 1 << 30] {
        sparse.write_all_at(&seeded.bytes(5000), block * 4096).unwrap();
    }
    // More than one level of a tree of extents, where blocks are small.
    let many = File::create(root.join("many extents")).unwrap();
    for block in 0..900 {
        many.write_all_at(&seeded.bytes(100), block * 131_072).unwrap();
    }
    let few = File::create(root.join("some extents")).unwrap();
    for block in 0..60 {
        few.write_all_at(&seeded.bytes(100), block * 200_000).unwrap();
    }
    let xfs_io = |name: &str, commands: &[&str]| {
        let commands = commands.iter().flat_map(|command| ["-c", command]);
        run(Command::new("xfs_io").arg("-f").args(commands).arg(root.join(name)));
    };
    xfs_io("unwritten", &["falloc 0 8m", "pwrite -q 1m 100k", "pwrite -q 5m 1", "truncate 7000001"]);
    xfs_io("behind the end", &["pwrite -q 0 10000", "falloc -k 0 2m"]);
    xfs_io("punched", &["pwrite -q 0 2m", "fsync", "fpunch 256k 128k", "fzero 1m 64k"]);
    if recipe.reflink {
        for (name, of) in [("clone", "plain 5"), ("clone of extents", "many extents")] {
            run(Command::new("cp").arg("--reflink=always").arg(root.join(of)).arg(root.join(name)));
        }
        xfs_io("clone", &["pwrite -q 1m 64k"]);
    }
}

fn attributes(root: &Path, seeded: &mut Seeded, most: usize) {
    let folder = root.join("attributes");
    fs::create_dir(&folder).unwrap();
    let set = |path: &Path, name: &str, value: &[u8]| {
        setxattr(path, name, value, XattrFlags::empty()).unwrap_or_else(|error| panic!("{name}: {error}"));
    };
    for (number, length) in [0, 1, 60, 255, 256, 1000, 3000, 5000, 30_000, 65_536].into_iter().enumerate() {
        let path = folder.join(format!("one {number}"));
        fs::write(&path, b"content").unwrap();
        set(&path, "user.value", &seeded.bytes(length.min(most)));
        set(&path, "trusted.other", b"seen by root alone");
        set(&path, "security.label", &seeded.bytes(10));
    }
    let path = folder.join("many");
    fs::write(&path, b"").unwrap();
    for number in 0..400 {
        let length = seeded.below(120) as usize;
        set(&path, &format!("user.name {number} {}", "x".repeat(length / 2)), &seeded.bytes(length));
    }
    set(&path, "user.large", &seeded.bytes(most.min(40_000)));
    let emptied = folder.join("emptied");
    fs::write(&emptied, b"").unwrap();
    set(&emptied, "user.a", &seeded.bytes(most.min(9000)));
    rustix::fs::removexattr(&emptied, "user.a").unwrap();
    let below = folder.join("default");
    fs::create_dir(&below).unwrap();
    let setfacl = |options: &[&str], path: &Path| run(Command::new("setfacl").args(options).arg(path));
    setfacl(&["-m", "u:1000:rw,g:1001:r,u:77:-"], &folder.join("one 2"));
    setfacl(&["-d", "-m", "u:1000:rwx,g:5:rx"], &below);
    fs::write(below.join("inherits"), b"").unwrap();
    symlink("nowhere", folder.join("link")).unwrap();
    rustix::fs::lsetxattr(folder.join("link"), "trusted.of link", b"value", XattrFlags::empty()).unwrap();
}

fn names(root: &Path, seeded: &mut Seeded, count: u32) {
    let large = root.join("large");
    fs::create_dir(&large).unwrap();
    let mut last = large.join("0");
    for number in 0..count {
        let path = large.join(format!("{number} {}", "n".repeat(seeded.below(40) as usize)));
        if number % 10 == 0 {
            File::create(&path).unwrap();
            last = path;
        } else {
            fs::hard_link(&last, &path).unwrap();
        }
    }
    let odd = root.join("odd");
    fs::create_dir(&odd).unwrap();
    let longest = [b'l'; 255];
    for name in [&b"new\nline"[..], b"not \xff\xfe UTF-8", b"\x01", b"...", b" ", &longest] {
        fs::write(odd.join(OsStr::from_bytes(name)), name).unwrap();
    }
    // One block, several blocks, and a depth.
    for names in [3, 40, 300] {
        let folder = root.join(format!("of {names}"));
        fs::create_dir(&folder).unwrap();
        for number in 0..names {
            fs::create_dir(folder.join(format!("directory {number}"))).unwrap();
        }
    }
    let mut deep = root.to_path_buf();
    for level in 0..60 {
        deep.push(format!("level {level}"));
        fs::create_dir(&deep).unwrap();
    }
}

fn special(root: &Path) {
    for (number, length) in [1, 59, 300, 336, 337, 500, 600, 968, 969, 1023].into_iter().enumerate() {
        symlink("t".repeat(length), root.join(format!("link {number}"))).unwrap();
    }
    let mode = Mode::from_raw_mode(0o640);
    for (name, kind, device) in [
        ("character", FileType::CharacterDevice, makedev(4, 64)),
        ("block", FileType::BlockDevice, makedev(259, 70_000)),
        ("pipe", FileType::Fifo, 0),
        ("socket", FileType::Socket, 0),
    ] {
        mknodat(CWD, root.join(name), kind, mode, device).unwrap();
    }
    let touch = |time: &str, name: &str| run(Command::new("touch").args(["-d", time]).arg(root.join(name)));
    touch("1903-04-05 06:07:08.123456789", "plain 1");
    touch("2037-12-31 23:59:59.999999999", "plain 2");
    // Cut to 2038 without bigtime.
    touch("2400-01-01 00:00:00.5", "plain 3");
    rustix::fs::chown(
        root.join("plain 4"),
        Some(rustix::fs::Uid::from_raw(70_000)),
        Some(rustix::fs::Gid::from_raw(9)),
    )
    .unwrap();
}
