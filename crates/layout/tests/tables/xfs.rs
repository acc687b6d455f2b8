//! XFS of every kind that mkfs.xfs makes, filled with all that a tree can hold.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ffi::OsStr,
    fs::{self, File},
    io::{self, Read, Write},
    ops::ControlFlow,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, symlink},
    },
    path::Path,
    process::Command,
    sync::Mutex,
    time::Instant,
};

use onesweep_layout::{
    BlockRead, ImageFile,
    tables::{Found, Inode, InodeFlags, Name, TableError, Tables, Wanted, xfs::Xfs},
};
use rustix::fs::{CWD, FileType, Mode, XattrFlags, makedev, mknodat, setxattr};

use crate::{
    conformance::{Kept, Tree, by_kernel, by_tables, compare, names_its_place, scan},
    image::{Image, not_here, run, skipped},
    noting::Noting,
    xfs_by_mkfs::version_4,
};

const MIB: u64 = 1 << 20;

/// Numbers that look random, the same in each run (xorshift64*).
pub(crate) struct Seeded(pub(crate) u64);

impl Seeded {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: u64) -> u64 {
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

/// Makes and fills an image; unmounted. `None` where it can't be made, which was said then.
fn filled(bytes: u64, mkfs: &[&str], recipe: &Recipe) -> Option<Image> {
    let refused = |what: &str, message: &[u8]| {
        let message = String::from_utf8_lossy(message);
        not_here(&format!("{what} refuses {mkfs:?}: {}", message.lines().next().unwrap_or_default()));
        None
    };
    let folder = tempfile::tempdir().unwrap();
    let trial = folder.path().join("trial");
    File::create(&trial).unwrap().set_len(bytes).unwrap();
    let Ok(made) = Command::new("mkfs.xfs").arg("-q").args(mkfs).arg(&trial).output() else {
        skipped("there is no mkfs.xfs");
        return None;
    };
    if !made.status.success() {
        return refused("mkfs.xfs", &made.stderr);
    }
    let mut image = Image::new(bytes, &[&["mkfs.xfs", "-q"], mkfs].concat())?;
    let mounted = Command::new("mount").args(["-o", "loop,ro"]).arg(&trial).arg(image.root()).output().unwrap();
    if !mounted.status.success() {
        return refused("the kernel", &mounted.stderr);
    }
    run(Command::new("umount").arg(image.root()));
    image.mount(&["-t", "xfs"], "");
    fill(&image.root(), recipe);
    image.unmount();
    Some(image)
}

/// A number that changes with the bytes of a file (FNV-1a, of 8 bytes at once).
fn hash(path: &Path) -> u64 {
    let mut file = File::open(path).unwrap();
    let mut buffer = vec![0; 1 << 20];
    let mut sum = 0xcbf2_9ce4_8422_2325u64;
    loop {
        let length = file.read(&mut buffer).unwrap();
        if length == 0 {
            return sum;
        }
        for word in buffer[..length].as_chunks::<8>().0 {
            sum = (sum ^ u64::from_le_bytes(*word)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

pub(crate) fn open(image: &Image) -> Xfs<ImageFile> {
    Xfs::open(ImageFile::open(&image.path()).unwrap()).unwrap()
}

fn different_inodes(tree: &Tree) -> usize {
    tree.values().map(|facts| facts.inode).collect::<HashSet<_>>().len()
}

/// Holds the tables of an image against the kernel.
fn conforms_to(mkfs: &[&str], names: u32, reflink: bool) {
    let Some(mut image) = filled(320 * MIB, mkfs, &Recipe { names, reflink, attribute: ATTRIBUTE_MAX }) else { return };
    let before = hash(&image.path());
    let begin = Instant::now();
    let tables = by_tables(&mut open(&image), &[]);
    let took = begin.elapsed();
    assert_eq!(hash(&image.path()), before, "reading changed the image");
    image.mount(&["-t", "xfs"], "ro,nouuid");
    let kernel = by_kernel(&image.root(), &[]);
    image.unmount();
    assert!(kernel.len() > names as usize);
    assert_eq!(scan(&mut open(&image)).inodes.len(), different_inodes(&kernel), "some have no name");
    compare(&kernel, &tables);
    println!("{mkfs:?}: {} names in {took:?}", tables.len());
}

macro_rules! conformance {
    ($($name:ident: $mkfs:expr, $names:expr, $reflink:expr;)*) => {
        $(#[test]
        fn $name() {
            conforms_to(&$mkfs, $names, $reflink);
        })*
    };
}

conformance! {
    defaults_conform: [], 20_000, true;
    version_4_conforms: ["-m", "crc=0"], 20_000, false;
    version_4_without_types_conforms: ["-m", "crc=0", "-n", "ftype=0"], 500, false;
    version_4_with_old_attributes_conforms: ["-m", "crc=0", "-i", "attr=1"], 500, false;
    without_reflink_conforms: ["-m", "reflink=0"], 500, false;
    with_reflink_conforms: ["-m", "reflink=1"], 500, true;
    with_reverse_mapping_conforms: ["-m", "rmapbt=1"], 500, true;
    with_big_times_conforms: ["-m", "bigtime=1"], 500, true;
    without_big_times_conforms: ["-m", "bigtime=0"], 500, true;
    with_inode_counts_conforms: ["-m", "inobtcount=1"], 500, true;
    without_free_inode_trees_conforms: ["-m", "finobt=0,inobtcount=0,rmapbt=0,reflink=0"], 500, false;
    without_sparse_inodes_conforms: ["-i", "sparse=0"], 500, true;
    with_sparse_inodes_conforms: ["-i", "sparse=1"], 20_000, true;
    with_large_counters_conforms: ["-i", "nrext64=1"], 500, true;
    without_large_counters_conforms: ["-i", "nrext64=0"], 500, true;
    inodes_of_1024_conform: ["-i", "size=1024"], 500, true;
    inodes_of_2048_conform: ["-i", "size=2048"], 500, true;
    blocks_of_1024_conform: ["-b", "size=1024"], 20_000, true;
    blocks_of_4096_conform: ["-b", "size=4096"], 500, true;
    directory_blocks_of_8192_conform: ["-n", "size=8192"], 20_000, true;
    directory_blocks_of_65536_conform: ["-n", "size=65536"], 20_000, true;
    directory_blocks_of_many_blocks_conform: ["-b", "size=1024", "-n", "size=65536"], 20_000, true;
    names_without_case_conform: ["-n", "version=ci"], 500, true;
    blocks_of_8192_conform: ["-b", "size=8192"], 500, true;
    blocks_of_32768_conform: ["-b", "size=32768"], 500, true;
    sectors_of_1024_conform: ["-s", "size=1024"], 500, true;
    sectors_of_2048_conform: ["-s", "size=2048"], 500, true;
    sectors_of_8192_conform: ["-s", "size=8192", "-b", "size=8192"], 500, true;
    extent_sizes_that_are_inherited_conform: ["-d", "extszinherit=16"], 500, true;
    extent_sizes_of_copies_that_are_inherited_conform: ["-d", "cowextsize=16"], 500, true;
    direct_access_that_is_inherited_conforms: ["-m", "reflink=0", "-d", "daxinherit=1"], 500, false;
    projects_that_are_inherited_conform: ["-d", "projinherit=7"], 500, true;
    sectors_of_4096_conform: ["-s", "size=4096"], 500, true;
    two_groups_conform: ["-d", "agcount=2"], 500, true;
    stripes_conform: ["-d", "su=64k,sw=4,agcount=2", "-l", "size=64m"], 500, true;
    unaligned_data_conforms: ["-d", "noalign"], 500, true;
    a_log_in_the_first_group_conforms: ["-l", "agnum=0"], 500, true;
    a_log_with_stripes_conforms: ["-l", "su=64k"], 500, true;
    two_inodes_in_a_block_conform: ["-i", "perblock=2"], 500, true;
    few_inodes_conform: ["-i", "maxpct=1"], 500, true;
    without_a_free_inode_tree_conforms: ["-m", "finobt=0,inobtcount=0"], 500, true;
    everything_new_conforms:
        ["-m", "rmapbt=1,reflink=1,bigtime=1,inobtcount=1,finobt=1", "-i", "nrext64=1,sparse=1"], 500, true;
    blocks_of_2048_conform: ["-b", "size=2048"], 500, true;
    blocks_of_16384_conform: ["-b", "size=16384"], 500, true;
    blocks_of_65536_conform: ["-b", "size=65536"], 500, true;
}

/// Another UUID leaves that of the metadata as it is.
#[test]
fn a_changed_uuid_conforms() {
    let Some(mut image) = filled(320 * MIB, &[], &Recipe { names: 500, reflink: true, attribute: ATTRIBUTE_MAX })
    else {
        return;
    };
    run(Command::new("xfs_admin").args(["-U", "generate"]).arg(image.path()));
    let tables = by_tables(&mut open(&image), &[]);
    image.mount(&["-t", "xfs"], "ro");
    let kernel = by_kernel(&image.root(), &[]);
    image.unmount();
    compare(&kernel, &tables);
}

/// The inodes of quotas belong to the file system itself.
#[test]
fn quotas_are_not_told() {
    let Some(mut image) = filled(320 * MIB, &[], &Recipe { names: 100, reflink: true, attribute: ATTRIBUTE_MAX })
    else {
        return;
    };
    let options = ["-o", "loop,noatime,uquota,gquota,pquota"];
    let mounted = Command::new("mount").args(options).arg(image.path()).arg(image.root()).output().unwrap();
    if !mounted.status.success() {
        return not_here("the kernel has no quotas for XFS");
    }
    run(Command::new("umount").arg(image.root()));
    let (before, tables) = (open(&image).facts().inodes_used.unwrap(), by_tables(&mut open(&image), &[]));
    image.mount(&["-t", "xfs"], "ro");
    let kernel = by_kernel(&image.root(), &[]);
    image.unmount();
    compare(&kernel, &tables);
    let told = scan(&mut open(&image)).inodes.len();
    assert_eq!(told, different_inodes(&kernel));
    // The bitmap and the summary of a realtime device, three kinds of quotas.
    assert!(before >= told as u64 + 3, "{before}, {told}");
}

/// What the kernel leaves behind only by accident is written by xfs_db.
#[test]
fn orphans_and_files_of_a_realtime_device_are_told() {
    let Some(mut image) = Image::new(320 * MIB, &["mkfs.xfs", "-q"]) else { return };
    image.mount(&["-t", "xfs"], "");
    let number = |name: &str| {
        fs::write(image.root().join(name), [1; 5000]).unwrap();
        std::os::unix::fs::MetadataExt::ino(&fs::metadata(image.root().join(name)).unwrap())
    };
    let (orphan, elsewhere) = (number("orphan"), number("elsewhere"));
    image.unmount();
    for (inode, write) in [(orphan, "write core.nlinkv2 0"), (elsewhere, "write core.realtime 1")] {
        let at = format!("inode {inode}");
        run(Command::new("xfs_db").args(["-x", "-c", &at, "-c", write]).arg(image.path()));
    }
    let kept = scan(&mut open(&image));
    assert!(kept.problems.is_empty(), "{:?}", kept.problems);
    assert_eq!((kept.inodes[&orphan].links, kept.inodes[&orphan].flags), (0, InodeFlags::empty()));
    assert_eq!((kept.inodes[&elsewhere].links, kept.inodes[&elsewhere].flags), (1, InodeFlags::ELSEWHERE));
    assert_eq!(kept.inodes[&orphan].extents.len(), 1);
    assert!(kept.inodes[&elsewhere].extents.iter().all(|extent| extent.physical.is_none() && !extent.is_plain()));
    assert_eq!(kept.inodes[&elsewhere].extents.len(), 1);
}

#[test]
fn the_volume_tells_its_label_and_numbers() {
    let Some(mut image) =
        filled(320 * MIB, &["-L", "twelve bytes"], &Recipe { names: 10, reflink: true, attribute: ATTRIBUTE_MAX })
    else {
        return;
    };
    let facts = open(&image).facts().clone();
    image.mount(&["-t", "xfs"], "ro");
    let of_kernel = rustix::fs::statvfs(image.root()).unwrap();
    let root = std::os::unix::fs::MetadataExt::ino(&fs::metadata(image.root()).unwrap());
    image.unmount();
    assert_eq!((facts.fs_type, &*facts.label, facts.root), ("xfs", "twelve bytes", root));
    assert_eq!(u64::from(facts.block_bytes), of_kernel.f_bsize);
    assert_eq!(facts.inodes_used, Some(of_kernel.f_files - of_kernel.f_ffree));
    assert_eq!(facts.bytes, 320 * MIB);
}

/// Fails unless an image is refused since its log is dirty.
fn refused_as_dirty(path: &Path) {
    match Xfs::open(ImageFile::open(path).unwrap()) {
        Err(error @ TableError::Dirty { .. }) => assert!(error.to_string().contains("xfs_repair -L"), "{error}"),
        other => panic!("{:?}", other.map(|xfs| xfs.facts().clone())),
    }
}

#[test]
fn a_dirty_log_is_refused_and_a_recovered_one_is_read() {
    for mkfs in [&["mkfs.xfs", "-q"][..], &["mkfs.xfs", "-q", "-l", "su=32k"], &["mkfs.xfs", "-q", "-l", "su=256k"]] {
        let Some(mut image) = Image::new(320 * MIB, mkfs) else { return };
        assert!(scan(&mut open(&image)).problems.is_empty(), "fresh from mkfs.xfs");
        image.mount(&["-t", "xfs"], "");
        for round in 0..4 {
            for number in 0..300 {
                fs::write(image.root().join(format!("file {round} {number}")), b"content").unwrap();
            }
            run(Command::new("sync").arg("-f").arg(image.root()));
            let copy = image.path().with_extension("copy");
            run(Command::new("cp").arg("--sparse=always").arg(image.path()).arg(&copy));
            refused_as_dirty(&copy);
        }
        run(Command::new("xfs_io").args(["-x", "-c", "shutdown -f"]).arg(image.root()));
        image.unmount();
        refused_as_dirty(&image.path());
        image.mount(&["-t", "xfs"], "");
        image.unmount();
        let tables = by_tables(&mut open(&image), &[]);
        image.mount(&["-t", "xfs"], "ro");
        let kernel = by_kernel(&image.root(), &[]);
        image.unmount();
        compare(&kernel, &tables);
    }
}

/// A disk chooses among what it knows of. Only headers and trees of groups are read without being announced.
#[test]
fn a_scan_announces_inodes_and_directories() {
    let Some(image) = filled(320 * MIB, &[], &Recipe { names: 20_000, reflink: false, attribute: ATTRIBUTE_MAX })
    else {
        return;
    };
    let device = Noting::new(ImageFile::open(&image.path()).unwrap());
    let mut tables = Xfs::open(&device).unwrap();
    device.read.lock().unwrap().clear();
    tables.scan(Wanted { xattrs: false, ..Wanted::default() }, &mut Kept::default()).unwrap();
    let (read, announced) = (device.read.lock().unwrap(), device.announced.lock().unwrap());
    let alone = read.difference(&announced).count();
    assert!(announced.is_subset(&read), "announced in vain");
    assert!(announced.len() > 20 * alone, "{} KiB were announced, {alone} were not", announced.len());
}

#[test]
fn the_caller_ends_a_scan() {
    struct Few(u32);
    impl Few {
        fn one_more(&mut self) -> ControlFlow<()> {
            assert!(self.0 > 0, "called again after the end");
            self.0 -= 1;
            if self.0 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    impl Found for Few {
        fn inode(&mut self, _: Inode) -> ControlFlow<()> {
            self.one_more()
        }
        fn name(&mut self, _: Name<'_>) -> ControlFlow<()> {
            self.one_more()
        }
        fn incomplete(&mut self, _: Option<u64>) {}

        fn problem(&mut self, problem: TableError) -> ControlFlow<()> {
            panic!("{problem}")
        }
    }
    let Some(image) = filled(320 * MIB, &[], &Recipe { names: 100, reflink: true, attribute: ATTRIBUTE_MAX }) else {
        return;
    };
    let mut tables = open(&image);
    for calls in 1..1200 {
        tables.scan(Wanted { xattrs: calls % 2 == 0, ..Wanted::default() }, &mut Few(calls)).unwrap();
    }
}

/// An image with other bytes here and there, which keeps what was read.
struct Changed<'a> {
    image: &'a ImageFile,
    changes: BTreeMap<u64, u8>,
    reads: Mutex<Vec<(u64, u64)>>,
}

impl<'a> Changed<'a> {
    fn new(image: &'a ImageFile, changes: BTreeMap<u64, u8>) -> Changed<'a> {
        Changed { image, changes, reads: Mutex::default() }
    }
}

impl BlockRead for Changed<'_> {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.image.read_at(buffer, at)?;
        self.reads.lock().unwrap().push((at, buffer.len() as u64));
        for (place, byte) in self.changes.range(at..at + buffer.len() as u64) {
            buffer[(place - at) as usize] = *byte;
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.image.len()
    }
}

/// Changes bytes of metadata 500 times. Whatever is told must be right where metadata has checksums, and what is missing
/// must have been a problem.
fn survives_damage(path: &Path, has_checksums: bool) {
    let image = ImageFile::open(path).unwrap();
    let whole = Changed::new(&image, BTreeMap::new());
    let mut tables = Xfs::open(&whole).unwrap();
    let mut of_opening = std::mem::take(&mut *whole.reads.lock().unwrap());
    let sound = scan(&mut tables);
    assert!(sound.problems.is_empty());
    let mut sound_names = sound.names.clone();
    sound_names.sort();
    drop(tables);
    let mut of_scan = whole.reads.into_inner().unwrap();
    for regions in [&mut of_opening, &mut of_scan] {
        regions.sort();
        regions.dedup();
    }
    let mut seeded = Seeded(0xdeca_fbad);
    let mut outcomes = [0; 4];
    let begin = Instant::now();
    for round in 0..500 {
        // The superblock and the log refuse nearly every change.
        let regions = if round % 8 == 0 { &of_opening } else { &of_scan };
        let mut changes = BTreeMap::new();
        for _ in 0..=seeded.below(if round % 2 == 0 { 3 } else { 200 }) {
            let (at, length) = regions[seeded.below(regions.len() as u64) as usize];
            // Now and then in a header.
            let length = if seeded.below(2) == 0 { length.min(64) } else { length };
            changes.insert(at + seeded.below(length), seeded.next() as u8);
        }
        let changed = Changed::new(&image, changes);
        let mut tables = match Xfs::open(&changed) {
            Ok(tables) => tables,
            Err(refused) => {
                names_its_place(&refused);
                outcomes[0] += 1;
                continue;
            }
        };
        let mut kept = Damaged::default();
        tables.scan(Wanted { xattrs: true, ..Wanted::default() }, &mut kept).unwrap();
        let Damaged(mut kept) = kept;
        kept.problems.iter().for_each(names_its_place);
        let is_whole = kept.inodes == sound.inodes && {
            kept.names.sort();
            kept.names == sound_names
        };
        outcomes[if !kept.problems.is_empty() { 1 } else { 2 + usize::from(is_whole) }] += 1;
        if !has_checksums {
            continue;
        }
        assert!(is_whole || !kept.problems.is_empty(), "round {round}: something is missing, but nothing was told");
        for (number, inode) in &kept.inodes {
            let expected = &sound.inodes[number];
            let same = Inode { xattrs: expected.xattrs.clone(), ..inode.clone() };
            assert_eq!(&same, expected, "round {round}");
            assert!(inode.xattrs.iter().all(|xattr| expected.xattrs.contains(xattr)), "round {round}");
        }
        assert!(kept.names.iter().all(|name| sound_names.binary_search(name).is_ok()), "round {round}");
    }
    let [refused, told, wrong, whole] = outcomes;
    let took = begin.elapsed();
    println!("{refused} refused, {told} with problems, {wrong} other facts, {whole} unharmed, in {took:?}");
    assert!(told > 100, "the changes do no harm");
}

/// As [`Kept`], but without a claim that inodes come once.
#[derive(Default)]
struct Damaged(Kept);

impl Found for Damaged {
    fn inode(&mut self, inode: Inode) -> ControlFlow<()> {
        self.0.inodes.insert(inode.number, inode);
        ControlFlow::Continue(())
    }

    fn name(&mut self, name: Name<'_>) -> ControlFlow<()> {
        self.0.name(name)
    }

    fn incomplete(&mut self, _: Option<u64>) {}

    fn problem(&mut self, problem: TableError) -> ControlFlow<()> {
        let shown = problem.to_string();
        assert!(shown.contains("byte ") && shown.len() < 600, "{shown}");
        self.0.problem(problem)
    }
}

#[test]
fn damage_is_told_with_checksums() {
    let Some(image) = filled(320 * MIB, &[], &Recipe { names: 300, reflink: false, attribute: ATTRIBUTE_MAX }) else {
        return;
    };
    survives_damage(&image.path(), true);
    survives_consistent_damage(&image.path());
}

/// CRC-32C of a block whose own four bytes at `field` count as zeros, bit by bit.
fn crc32c(block: &[u8], field: usize) -> u32 {
    let bytes = block.iter().enumerate().map(|(at, byte)| if (field..field + 4).contains(&at) { 0 } else { *byte });
    !bytes.fold(!0u32, |sum, byte| {
        let bit = |sum: u32, _| if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 };
        (0..8).fold(sum ^ u32::from(byte), bit)
    })
}

/// Where a block of metadata has its checksum, by its magic number.
fn checksum_field(block: &[u8]) -> Option<usize> {
    Some(match &block[..4] {
        [b'I', b'N', ..] => 100,
        b"XAGI" => 312,
        b"IAB3" => 52,
        b"BMA3" => 64,
        b"XDB3" | b"XDD3" => 4,
        b"XARM" | b"XSLM" => 12,
        _ if matches!(block[8..10], [0x3b, 0xee] | [0x3e, 0xbe]) => 12,
        _ => return None,
    })
}

/// Changes metadata 500 times and makes its checksums right again, so that nothing but the facts themselves can be seen to
/// be wrong. Reading must end, and in time.
fn survives_consistent_damage(path: &Path) {
    let image = ImageFile::open(path).unwrap();
    let whole = Changed::new(&image, BTreeMap::new());
    assert!(scan(&mut Xfs::open(&whole).unwrap()).problems.is_empty());
    // Whatever the reads were, they were of inodes, sectors, and blocks.
    let mut pieces: HashMap<[u8; 2], Vec<(u64, Vec<u8>)>> = HashMap::new();
    for (at, length) in whole.reads.into_inner().unwrap() {
        let mut bytes = vec![0; length as usize];
        image.read_at(&mut bytes, at).unwrap();
        let mut from = 0;
        while from + 512 <= bytes.len() {
            let length = if matches!(&bytes[from..from + 2], b"IN" | b"XA") { 512 } else { 4096 };
            let Some(block) = bytes.get(from..from + length) else { break };
            if checksum_field(block).is_some_and(|field| crc32c(block, field).to_le_bytes() == block[field..field + 4])
            {
                let kind = if block[0] == 0 { [block[8], block[9]] } else { [block[2], block[3]] };
                let kind = if block.starts_with(b"IN") { *b"IN" } else { kind };
                pieces.entry(kind).or_default().push((at + from as u64, block.to_vec()));
                from += length;
            } else {
                from += 512;
            }
        }
    }
    let mut kinds: Vec<_> = pieces.into_iter().collect();
    kinds.sort();
    assert!(kinds.len() >= 8, "{:?}", kinds.iter().map(|(kind, _)| kind).collect::<Vec<_>>());
    let mut seeded = Seeded(0x5eed);
    let (begin, mut unharmed) = (Instant::now(), 0);
    for _ in 0..500 {
        let mut changes = BTreeMap::new();
        for _ in 0..=seeded.below(3) {
            let of_kind = &kinds[seeded.below(kinds.len() as u64) as usize].1;
            let (at, block) = &of_kind[seeded.below(of_kind.len() as u64) as usize];
            let mut block = block.clone();
            for _ in 0..=seeded.below(4) {
                // Counts, pointers and flags are near the start; the own number and address mostly stay.
                let end = if seeded.below(4) == 0 { block.len() } else { 200.min(block.len()) };
                let place = seeded.below(end as u64) as usize;
                block[place] = match seeded.below(4) {
                    0 => 0,
                    1 => 0xff,
                    2 => block[place] ^ 1 << seeded.below(8),
                    _ => seeded.next() as u8,
                };
            }
            if let Some(field) = checksum_field(&block) {
                let sum = crc32c(&block, field).to_le_bytes();
                block[field..field + 4].copy_from_slice(&sum);
            }
            changes.extend(block.iter().enumerate().map(|(index, byte)| (at + index as u64, *byte)));
        }
        let changed = Changed::new(&image, changes);
        let mut kept = Damaged::default();
        Xfs::open(&changed).unwrap().scan(Wanted { xattrs: true, ..Wanted::default() }, &mut kept).unwrap();
        kept.0.problems.iter().for_each(names_its_place);
        unharmed += u32::from(kept.0.problems.is_empty());
    }
    let took = begin.elapsed();
    println!("consistent damage: {unharmed} of 500 without a problem, in {took:?}");
    assert!(unharmed < 400, "the changes do no harm");
}

#[test]
fn damage_is_survived_without_checksums() {
    let Some((folder, _)) = version_4(&[]) else { return };
    survives_damage(&folder.path().join("image"), false);
}

#[test]
fn an_image_that_was_cut_off_is_refused() {
    let Some(image) = Image::new(320 * MIB, &["mkfs.xfs", "-q"]) else { return };
    let file = File::options().write(true).open(image.path()).unwrap();
    file.set_len(300 * MIB).unwrap();
    (&file).flush().unwrap();
    let error = Xfs::open(ImageFile::open(&image.path()).unwrap()).err().map(|error| error.to_string());
    assert!(
        error.as_ref().is_some_and(|error| error.contains("no more than the 314572800 that are here")),
        "{error:?}"
    );
    for length in [0, 1, 511, 512, 4096] {
        file.set_len(length).unwrap();
        names_its_place(&Xfs::open(ImageFile::open(&image.path()).unwrap()).expect_err("a refusal"));
    }
}
