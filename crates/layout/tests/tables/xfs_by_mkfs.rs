//! XFS that this kernel may not mount, of version 4 or with a realtime device: filled by mkfs.xfs itself and by xfs_db, held
//! against what these say.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::Write,
    os::unix::fs::FileExt,
    path::Path,
    process::{Command, Stdio},
};

use onesweep_layout::{
    BlockRead, Extent, ExtentFlags, ImageFile,
    tables::{Inode, InodeFlags, TableError, Tables, xfs::Xfs},
};
use rustix::fs::makedev;

use crate::{
    conformance::{Kept, scan},
    image::{not_here, run, skipped},
    xfs_tree::Seeded,
};

const MIB: u64 = 1 << 20;

/// An image of version 4.
pub(crate) fn version_4(options: &[&str]) -> Option<(tempfile::TempDir, Contents)> {
    by_mkfs(&[&["-m", "crc=0"], options].concat(), 1000)
}

/// Content or target by path.
type Contents = BTreeMap<String, Vec<u8>>;

/// An image as mkfs.xfs fills it, with targets of links up to a length. What it should hold is told beside it.
fn by_mkfs(options: &[&str], longest: usize) -> Option<(tempfile::TempDir, Contents)> {
    let folder = tempfile::tempdir().unwrap();
    let mut expected = BTreeMap::new();
    let mut seeded = Seeded(0x0765_4321);
    let mut prototype = String::from("/\n0 0\nd--755 3 4\n");
    for (number, length) in [1usize, 4096, 5000, 1 << 20].into_iter().enumerate() {
        let (name, content) = (format!("file{number}"), seeded.bytes(length));
        let source = folder.path().join(&name);
        fs::write(&source, &content).unwrap();
        prototype.push_str(&format!("{name} ---640 1000 1001 {}\n", source.display()));
        expected.insert(name, content);
    }
    for length in [1, 155, 156, 157, 400, 1000].into_iter().filter(|length| *length <= longest) {
        let (name, target) = (format!("link{length}"), "t".repeat(length));
        prototype.push_str(&format!("{name} l--777 0 0 {target}\n"));
        expected.insert(name, target.into_bytes());
    }
    prototype.push_str("block b--600 0 0 259 70000\nfifo p--600 0 0\n");
    let empty = folder.path().join("empty");
    fs::write(&empty, b"").unwrap();
    for names in [3, 60, 4000] {
        prototype.push_str(&format!("of{names} d--711 5 6\n"));
        for number in 0..names {
            // A capital letter: without case its hash is another one.
            prototype.push_str(&format!("Name{number} ---600 0 0 {}\n", empty.display()));
            expected.insert(format!("of{names}/Name{number}"), Vec::new());
        }
        prototype.push_str("$\n");
    }
    prototype.push_str("$\n");
    fs::write(folder.path().join("prototype"), prototype).unwrap();
    let image = folder.path().join("image");
    File::create(&image).unwrap().set_len(320 * MIB).unwrap();
    let prototype = folder.path().join("prototype");
    let mkfs = Command::new("mkfs.xfs").args(["-q", "-p"]).arg(prototype).args(options).arg(&image).output();
    match mkfs {
        Ok(out) if out.status.success() => Some((folder, expected)),
        Ok(out) => {
            not_here(String::from_utf8_lossy(&out.stderr).lines().next().unwrap_or_default());
            None
        }
        Err(_) => {
            skipped("there is no mkfs.xfs");
            None
        }
    }
}

#[test]
fn version_4_is_read_as_mkfs_filled_it() {
    for options in [
        &[][..],
        &["-n", "ftype=0"],
        &["-n", "version=ci"],
        &["-i", "size=256", "-b", "size=1024"],
        &["-i", "size=256", "-b", "size=512"],
        &["-n", "size=16384"],
        &["-i", "attr=1,projid32bit=0"],
        &["-l", "version=1,lazy-count=0"],
    ] {
        let Some((folder, mut expected)) = version_4(options) else { return };
        let path = folder.path().join("image");
        scatter(&path, expected.get_mut("file3").unwrap());
        let device = ImageFile::open(&path).unwrap();
        let mut tables = Xfs::open(&device).unwrap();
        let root = tables.facts().root;
        let kept = scan(&mut tables);
        assert!(kept.problems.is_empty(), "{options:?}: {:?}", kept.problems);
        assert_eq!(kept.names.len() + 1, kept.inodes.len());
        let found = contents(&device, &kept, root);
        assert!(found == expected, "{options:?}: {:?}", found.keys().collect::<Vec<_>>());
        let of = |name: &[u8]| &kept.inodes[&kept.names.iter().find(|(.., other)| other == name).unwrap().1];
        let pieces = held_against_xfs_db(&path, &kept);
        assert!(pieces > 200, "no file of many pieces: {pieces}");
        assert_eq!((of(b"file0").mode, of(b"file0").uid, of(b"file0").gid), (0o100_640, 1000, 1001));
        assert_eq!((of(b"block").mode, of(b"block").rdev), (0o060_600, makedev(259, 70_000)));
        assert_eq!((of(b"of3").mode, of(b"of3").links, of(b"file0").btime), (0o040_711, 2, None));
        // xfs_db ends with a fault where attributes are of the first kind.
        if !options.iter().any(|option| option.starts_with("attr=1")) {
            attributes_of_version_4(&path, of(b"file1").number);
            held_against_xfs_db(&path, &scan(&mut Xfs::open(ImageFile::open(&path).unwrap()).unwrap()));
        }
    }
}

/// What files hold and links point to, by path.
fn contents(device: &ImageFile, kept: &Kept, root: u64) -> Contents {
    let parents: HashMap<u64, (u64, &[u8])> =
        kept.names.iter().map(|(directory, inode, name)| (*inode, (*directory, &**name))).collect();
    let mut found = Contents::new();
    for inode in kept.inodes.values().filter(|inode| matches!(inode.mode >> 12, 0o10 | 0o12)) {
        let mut content = inode.inline.clone().unwrap_or_else(|| vec![0; inode.size as usize]);
        let written = |extent: &&Extent| !extent.flags.contains(ExtentFlags::UNWRITTEN);
        for extent in inode.extents.iter().filter(written) {
            let end = content.len().min(extent.logical_end() as usize);
            device.read_at(&mut content[extent.logical as usize..end], extent.physical.unwrap()).unwrap();
        }
        let mut path = String::new();
        let mut number = inode.number;
        while number != root {
            let (parent, name) = parents[&number];
            let below = if path.is_empty() { path } else { format!("/{path}") };
            path = format!("{}{below}", str::from_utf8(name).unwrap());
            number = parent;
        }
        found.insert(path, content);
    }
    found
}

/// Many kernels mount no such file system.
#[test]
fn names_without_case_are_read_as_mkfs_filled_them() {
    let Some((folder, expected)) = by_mkfs(&["-n", "version=ci"], 157) else { return };
    let path = folder.path().join("image");
    let device = ImageFile::open(&path).unwrap();
    let mut tables = Xfs::open(&device).unwrap();
    let root = tables.facts().root;
    let kept = scan(&mut tables);
    assert!(kept.problems.is_empty(), "{:?}", kept.problems);
    assert!(contents(&device, &kept, root) == expected);
    held_against_xfs_db(&path, &kept);
}

/// The data device is read as any other, and of files on the realtime device all but where they lie, unless that is here.
#[test]
fn a_volume_with_a_realtime_device_is_read() {
    let realtime = tempfile::NamedTempFile::new().unwrap();
    realtime.as_file().set_len(64 * MIB).unwrap();
    let device = format!("rtdev={}", realtime.path().display());
    // Targets that don't fit into the inode mkfs.xfs writes without the header that they have in version 5.
    let Some((folder, expected)) = by_mkfs(&["-r", &device], 157) else { return };
    let path = folder.path().join("image");
    let read = || {
        let mut tables = Xfs::open(ImageFile::open(&path).unwrap()).unwrap();
        let kept = scan(&mut tables);
        assert!(kept.problems.is_empty(), "{:?}", kept.problems);
        (tables.facts().root, kept)
    };
    let (root, before) = read();
    assert_eq!(before.names.len() + 1, before.inodes.len(), "neither the bitmap nor the summary of the device is told");
    assert!(contents(&ImageFile::open(&path).unwrap(), &before, root) == expected);
    held_against_xfs_db(&path, &before);

    // mkfs.xfs fills the data device alone.
    let moved = before.names.iter().find(|(.., name)| name == b"file2").unwrap().1;
    let inode = format!("inode {moved}");
    run(Command::new("xfs_db").args(["-x", "-c", &inode, "-c", "write core.realtime 1"]).arg(&path));
    let (_, after) = read();
    held_against_xfs_db(&path, &after);
    assert_eq!((after.inodes.len(), &after.names), (before.inodes.len(), &before.names));
    for (number, inode) in &after.inodes {
        let was = &before.inodes[number];
        if *number != moved {
            assert_eq!(inode, was);
            continue;
        }
        assert_eq!(inode.flags, InodeFlags::ELSEWHERE);
        assert!(inode.extents.iter().all(|extent| extent.physical.is_none() && !extent.is_plain()));
        let without = |inode: &Inode| Inode { flags: InodeFlags::empty(), extents: Vec::new(), ..inode.clone() };
        assert_eq!(without(inode), without(was));
    }

    // Blocks of the first group have the same numbers on the device.
    let with_device = |bytes| Xfs::open(ImageFile::open(&path).unwrap()).unwrap().with_realtime_device(bytes);
    let located = scan(&mut with_device(64 * MIB).unwrap());
    assert!(located.problems.is_empty(), "{:?}", located.problems);
    assert_eq!(located.inodes[&moved].extents, before.inodes[&moved].extents);
    assert!(!located.inodes[&moved].extents.is_empty());
    assert!(
        matches!(with_device(64 * MIB - 1), Err(TableError::NotTheRealtimeDevice { bytes, .. }) if bytes < 64 * MIB)
    );
}

/// Attributes of all sizes, set by xfs_db: it fills their values with one byte.
fn attributes_of_version_4(path: &Path, number: u64) {
    let lengths = [1usize, 5, 200, 900, 3000, 20_000, 65_535];
    let mut expected = BTreeMap::new();
    for count in 0..40 {
        let length = lengths[count % lengths.len()];
        let (option, prefix) = [("-u", "user"), ("-r", "trusted"), ("-s", "security")][count % 3];
        let set = format!("attr_set {option} -v {length} name{count}");
        run(Command::new("xfs_db").arg("-x").args(["-c", &format!("inode {number}"), "-c", &set]).arg(path));
        expected.insert(format!("{prefix}.name{count}").into_bytes(), length);
    }
    let kept = scan(&mut Xfs::open(ImageFile::open(path).unwrap()).unwrap());
    assert!(kept.problems.is_empty(), "{:?}", kept.problems);
    let xattrs = &kept.inodes[&number].xattrs;
    let found: BTreeMap<_, _> = xattrs.iter().map(|(name, value)| (name.clone(), value.len())).collect();
    assert_eq!(found, expected);
    assert!(xattrs.iter().all(|(_, value)| value.windows(2).all(|two| two[0] == two[1])));
}

/// Where the inode of a name lies.
fn place_of(tables: &mut Xfs<ImageFile>, wanted: &str) -> u64 {
    let kept = scan(tables);
    let number = kept.names.iter().find(|(.., name)| name == wanted.as_bytes()).expect("its name").1;
    tables.inode_at(number).expect("its place")
}

fn be<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..][..N].try_into().unwrap()
}

/// Where blocks lie, as their numbers tell it.
struct Geometry {
    block_bytes: u64,
    group_blocks: u64,
    group_log: u32,
}

impl Geometry {
    fn of(device: &File) -> Geometry {
        let mut superblock = [0; 512];
        device.read_exact_at(&mut superblock, 0).unwrap();
        Geometry {
            block_bytes: u32::from_be_bytes(be(&superblock, 4)).into(),
            group_blocks: u32::from_be_bytes(be(&superblock, 84)).into(),
            group_log: superblock[124].into(),
        }
    }

    fn byte(&self, number: u64) -> u64 {
        let (group, block) = (number >> self.group_log, number & ((1 << self.group_log) - 1));
        (group * self.group_blocks + block) * self.block_bytes
    }
}

/// A piece of a file: its first block in the file and on the device, how many there are, and whether they hold data.
#[derive(Clone, Copy)]
struct Piece {
    logical: u64,
    block: u64,
    blocks: u64,
    unwritten: bool,
}

impl Piece {
    fn bytes(&self) -> [u8; 16] {
        let high = u64::from(self.unwritten) << 63 | self.logical << 9 | self.block >> 43;
        let low = (self.block & ((1 << 43) - 1)) << 21 | self.blocks;
        [high.to_be_bytes(), low.to_be_bytes()].concat().try_into().unwrap()
    }
}

/// Keys and pointers, each in their own half of the room for `most`.
fn children(all: &[(u64, u64)], most: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = all.iter().flat_map(|(key, _)| key.to_be_bytes()).collect();
    bytes.resize(8 * most, 0);
    bytes.extend(all.iter().flat_map(|(_, block)| block.to_be_bytes()));
    bytes
}

/// Makes many small pieces of `file3`, which mkfs.xfs has written in one: out of order, with holes, some unwritten, under a B+tree
/// of two or three levels in what were its last blocks. It gets times at both ends of what an inode holds, and `file0`, whose
/// count of links is short, an inode of version 1. `content` becomes what is in it then. xfs_repair finds nothing wrong.
fn scatter(path: &Path, content: &mut Vec<u8>) {
    let mut tables = Xfs::open(ImageFile::open(path).unwrap()).unwrap();
    let [at, small_at] = ["file3", "file0"].map(|name| place_of(&mut tables, name));
    let device = File::options().read(true).write(true).open(path).unwrap();
    let geometry = Geometry::of(&device);
    let block_bytes = geometry.block_bytes as usize;
    // What it has in front of the fork, and the record of its only piece.
    let mut inode = [0; 116];
    device.read_exact_at(&mut inode, at).unwrap();
    assert_eq!((inode[5], u32::from_be_bytes(be(&inode, 76))), (2, 1), "one piece");
    let (high, low) = (u64::from_be_bytes(be(&inode, 100)), u64::from_be_bytes(be(&inode, 108)));
    let (start, blocks) = ((high & 0x1FF) << 43 | low >> 21, low & 0x1F_FFFF);

    // As full as a leaf has to be at least.
    let most = (block_bytes - 24) / 16;
    let per_leaf = most / 2;
    let is_deep = block_bytes == 512;
    let leaves = if is_deep { 2 * per_leaf } else { usize::min(8, blocks as usize / (per_leaf + 1)) };
    let (count, nodes) = ((leaves * per_leaf) as u64, if is_deep { 2 } else { 0 });
    let data = blocks - leaves as u64 - nodes;
    let length = data / count;
    // Has no divisor with any of these counts.
    let step = 251;
    let mut pieces = Vec::new();
    let mut logical = 0;
    for number in 0..count {
        let place = number * step % count;
        logical += u64::from(number % 10 == 9);
        let blocks = if place == count - 1 { data - length * (count - 1) } else { length };
        pieces.push(Piece { logical, block: start + place * length, blocks, unwritten: number % 7 == 3 });
        logical += blocks;
    }
    let before = std::mem::take(content);
    content.resize(logical as usize * block_bytes - 100, 0);
    for piece in pieces.iter().filter(|piece| !piece.unwritten) {
        let from = (piece.block - start) as usize * block_bytes;
        let to = piece.logical as usize * block_bytes;
        let end = content.len().min(to + piece.blocks as usize * block_bytes);
        content[to..end].copy_from_slice(&before[from..][..end - to]);
    }

    // Blocks of one level behind each other; gives the first key and the number of each.
    let write = |level: u16, first: u64, blocks: Vec<(u64, u16, Vec<u8>)>| -> Vec<(u64, u64)> {
        let count = blocks.len() as u64;
        let numbered = (first..).zip(blocks);
        numbered
            .map(|(number, (key, entries, body))| {
                let left = if number > first { number - 1 } else { u64::MAX };
                let right = if number + 1 < first + count { number + 1 } else { u64::MAX };
                let head = [&b"BMAP"[..], &level.to_be_bytes(), &entries.to_be_bytes()].concat();
                let mut block = [head, left.to_be_bytes().into(), right.to_be_bytes().into(), body].concat();
                block.resize(block_bytes, 0);
                device.write_all_at(&block, geometry.byte(number)).unwrap();
                (key, number)
            })
            .collect()
    };
    let records = |group: &[Piece]| -> Vec<u8> { group.iter().flat_map(Piece::bytes).collect() };
    let leaf = |group: &[Piece]| (group[0].logical, group.len() as u16, records(group));
    let mut top = write(0, start + data, pieces.chunks(per_leaf).map(leaf).collect());
    let mut level = 1_u16;
    if is_deep {
        let node = |group: &[(u64, u64)]| (group[0].0, group.len() as u16, children(group, most));
        top = write(1, start + data + leaves as u64, top.chunks(per_leaf).map(node).collect());
        level = 2;
    }

    let mut superblock = [0; 512];
    device.read_exact_at(&mut superblock, 0).unwrap();
    let inode_bytes = usize::from(u16::from_be_bytes(be(&superblock, 104)));
    let fork = if inode[82] == 0 { inode_bytes - 100 } else { usize::from(inode[82]) * 8 };
    let mut root = [level.to_be_bytes(), (top.len() as u16).to_be_bytes()].concat();
    root.extend(children(&top, (fork - 4) / 16));
    assert!(root.len() <= fork);
    root.resize(fork, 0);
    for (field, value) in [
        (5, &[3][..]),
        (32, &i32::MAX.to_be_bytes()),
        (36, &999_999_999_u32.to_be_bytes()),
        (40, &(-1_i32).to_be_bytes()),
        (44, &5_u32.to_be_bytes()),
        (56, &(content.len() as u64).to_be_bytes()),
        (76, &(count as u32).to_be_bytes()),
        (100, &root[..]),
    ] {
        device.write_all_at(value, at + field).unwrap();
    }
    for (field, value) in [(4, &[1][..]), (6, &[0, 1]), (16, &[0; 4])] {
        device.write_all_at(value, small_at + field).unwrap();
    }
    device.sync_all().unwrap();
    run(Command::new("xfs_repair").args(["-n"]).arg(path));
}

/// Every inode as xfs_db prints it, and every piece of every file as it maps it, but for those of a realtime device. Gives the
/// pieces of the file that has most.
fn held_against_xfs_db(path: &Path, kept: &Kept) -> usize {
    let geometry = Geometry::of(&File::open(path).unwrap());
    let mut numbers: Vec<u64> = kept.inodes.keys().copied().collect();
    numbers.sort_unstable();
    let mut xfs_db = Command::new("xfs_db");
    xfs_db.env("TZ", "UTC").env("LC_ALL", "C").arg("-r");
    for number in &numbers {
        xfs_db.args(["-c", &format!("inode {number}"), "-c", "print core"]);
        if kept.inodes[number].mode >> 12 == 0o10 {
            xfs_db.args(["-c", "bmap"]);
        }
    }
    let out = run(xfs_db.arg(path)).stdout;
    let told: Vec<&str> = str::from_utf8(&out).unwrap().split("core.magic = ").skip(1).collect();
    assert_eq!(told.len(), numbers.len());
    let of = |text: &str, field: &str| -> Option<String> {
        let line = text.lines().find_map(|line| line.strip_prefix("core.")?.strip_prefix(field)?.strip_prefix(" = "));
        line.map(str::to_owned)
    };
    let times = ["atime", "mtime", "ctime"];
    let dates: Vec<String> =
        told.iter().flat_map(|&text| times.map(|time| of(text, &format!("{time}.sec")).expect("a time"))).collect();
    let seconds = seconds_of(&dates);
    let mut pieces = 0;
    for (at, (number, &text)) in numbers.iter().zip(&told).enumerate() {
        let inode = &kept.inodes[number];
        let figure = |field: &str| -> u64 {
            let told = of(text, field).unwrap_or_else(|| panic!("inode {number}: no {field}"));
            told.split(' ').next().unwrap().parse().unwrap_or_else(|_| panic!("inode {number}: {field} = {told}"))
        };
        let mode = u32::from_str_radix(&of(text, "mode").unwrap(), 8).unwrap();
        let links = figure(if figure("version") == 1 { "nlinkv1" } else { "nlinkv2" });
        assert_eq!(
            (inode.mode, u64::from(inode.uid), u64::from(inode.gid), u64::from(inode.links), inode.size),
            (mode, figure("uid"), figure("gid"), links, figure("size")),
            "inode {number}"
        );
        assert_eq!(inode.allocated, figure("nblocks") * geometry.block_bytes, "inode {number}");
        assert_eq!(u64::from(inode.generation), figure("gen"), "inode {number}");
        let own = [inode.atime, inode.mtime, inode.ctime];
        for ((time, own), seconds) in times.iter().zip(own).zip(&seconds[3 * at..]) {
            let nanoseconds = figure(&format!("{time}.nsec"));
            assert_eq!((own.seconds, u64::from(own.nanoseconds)), (*seconds, nanoseconds), "inode {number}: {time}");
        }
        if inode.mode >> 12 == 0o10 {
            let mapped: Vec<_> = text.lines().filter(|line| line.starts_with("data offset")).collect();
            assert_eq!(mapped.len() as u64, figure("nextents"), "inode {number}");
            pieces = pieces.max(mapped.len());
            if inode.flags.contains(InodeFlags::ELSEWHERE) {
                continue;
            }
            assert_eq!(places(inode, &geometry), mapped_places(&mapped, &geometry), "inode {number}");
        }
    }
    pieces
}

/// Where each block of a file lies, and whether it is unwritten.
type Places = BTreeMap<u64, (u64, bool)>;

fn places(inode: &Inode, geometry: &Geometry) -> Places {
    let mut places = Places::new();
    for extent in &inode.extents {
        let unwritten = extent.flags.contains(ExtentFlags::UNWRITTEN);
        for byte in (extent.logical..extent.logical_end()).step_by(geometry.block_bytes as usize) {
            let place = extent.physical.expect("a place") + byte - extent.logical;
            assert_eq!(places.insert(byte / geometry.block_bytes, (place, unwritten)), None);
        }
    }
    places
}

/// Of lines as `data offset 3 startblock 33 (0/33) count 1 flag 1`.
fn mapped_places(lines: &[&str], geometry: &Geometry) -> Places {
    let mut places = Places::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let figure = |at: usize| words[at].parse::<u64>().unwrap_or_else(|_| panic!("{line}"));
        let (offset, block, count, flag) = (figure(2), figure(4), figure(7), figure(9));
        for number in 0..count {
            let place = geometry.byte(block) + number * geometry.block_bytes;
            assert_eq!(places.insert(offset + number, (place, flag == 1)), None);
        }
    }
    places
}

/// Seconds since 1970 of lines such as `Tue Jan 19 03:14:07 2038`.
fn seconds_of(dates: &[String]) -> Vec<i64> {
    let mut date = Command::new("date");
    date.args(["-u", "-f", "-", "+%s"]).env("LC_ALL", "C").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = date.spawn().expect("date runs");
    let mut stdin = child.stdin.take().unwrap();
    let text = dates.iter().map(|date| format!("{date}\n")).collect::<String>();
    let writing = std::thread::spawn(move || stdin.write_all(text.as_bytes()));
    let out = child.wait_with_output().unwrap();
    writing.join().unwrap().unwrap();
    let seconds: Vec<i64> = str::from_utf8(&out.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(seconds.len(), dates.len());
    seconds
}
