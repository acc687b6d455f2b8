//! Damaged images, held against what the checker of each file system says of them.
//!
//! Random bytes of the metadata are changed, 40 times for each file system and 2,000 times in the long set, and one time in eight a
//! whole block of 1 KiB is zeros. Each image must end in facts that are right or in a problem, or be refused; a problem or refusal names its byte, and what was expected and
//! found there. What a checksum protects is never other than it was without a word; of what
//! none protects, the differences are counted by their kind and by what the checker says.

use std::{
    collections::{BTreeMap, HashSet},
    fs::{self, File},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, symlink},
    },
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
};

use onesweep_layout::{
    BlockRead, ImageFile,
    tables::{
        Indexes, Inode, TableError, Tables, Wanted,
        ext4::Ext4,
        ntfs::{Ntfs, Options},
        xfs::Xfs,
    },
};

use crate::{
    conformance::{Kept, names_its_place},
    image::{Image, not_here, run},
};

const MIB: u64 = 1 << 20;

fn is_long() -> bool {
    std::env::var_os("ONESWEEP_TEST_LONG").is_some_and(|value| !value.is_empty() && value != "0")
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Content is one byte again and again, so that it's told from metadata.
fn fill(root: &Path) {
    for number in 1..60_usize {
        let file = root.join(format!("file{number}"));
        fs::write(&file, vec![b'x'; number * 37 % 50 * 100]).expect("a file");
        if number % 5 == 0 {
            let value = vec![b'v'; number * 9];
            let _ = rustix::fs::setxattr(&file, "user.x", &value, rustix::fs::XattrFlags::empty());
        }
    }
    fs::create_dir_all(root.join("below/deeper")).expect("a folder");
    for number in 0..250 {
        fs::write(root.join(format!("below/a name of which there are many {number}")), "").expect("a file");
    }
    fs::hard_link(root.join("file1"), root.join("below/deeper/link")).expect("a link");
    symlink("short", root.join("soft")).expect("a link");
    symlink("t".repeat(200), root.join("long")).expect("a link");
    let pieces = File::create(root.join("pieces")).expect("a file");
    (0..300).for_each(|piece| pieces.write_all_at(b"x", piece * 8192).expect("a piece"));
}

/// Keeps where was read.
struct Recorder {
    image: ImageFile,
    reads: Mutex<Vec<(u64, u64)>>,
}

impl BlockRead for Recorder {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.reads.lock().expect("a lock").push((at, at + buffer.len() as u64));
        self.image.read_at(buffer, at)
    }

    fn len(&self) -> u64 {
        self.image.len()
    }
}

/// Facts and names, in an order of their own.
#[derive(PartialEq)]
struct Facts {
    inodes: BTreeMap<u64, Inode>,
    names: Vec<(u64, u64, Vec<u8>)>,
    incomplete: HashSet<Option<u64>>,
}

type Opened = Result<Box<dyn Tables>, TableError>;

/// What tables say, and which problems they have.
fn scanned(opened: Opened, indexes: Indexes) -> Result<(Facts, Vec<TableError>), TableError> {
    let mut kept = Kept::default();
    let mut tables = opened?;
    tables.scan(Wanted { xattrs: true, indexes, ..Wanted::default() }, &mut kept)?;
    let Kept { inodes, mut names, mut problems, incomplete } = kept;
    // As whoever puts the tree together tells them.
    let is_directory = |inode: &Inode| inode.mode & 0o170_000 == 0o040_000;
    if !inodes.get(&tables.facts().root).is_some_and(is_directory) {
        problems.push(TableError::without_root(&*tables));
    }
    let nothing = names.iter().filter(|(_, inode, _)| !inodes.contains_key(inode));
    problems.extend(
        nothing.map(|(directory, inode, _)| {
            TableError::of_name(&*tables, (*directory, *inode), "an inode in use", "none")
        }),
    );
    names.sort();
    Ok((Facts { inodes: inodes.into_iter().collect(), names, incomplete }, problems))
}

/// A file system, and how it's read and checked.
struct Subject {
    image: PathBuf,
    open: fn(Box<dyn BlockRead>) -> Opened,
    /// What the checker says of damage, if it finds any.
    check: fn(&Path) -> Option<String>,
    has_checksums: bool,
    indexes: Indexes,
    /// Whatever has a checksum lies within so many bytes.
    structure_bytes: u64,
}

/// In what two readings differ.
fn differences(sound: &Facts, found: &Facts) -> HashSet<&'static str> {
    let mut kinds = HashSet::new();
    let mut kind = |name, differs: bool| {
        if differs {
            kinds.insert(name);
        }
    };
    kind("names", sound.names != found.names);
    kind("which inodes there are", sound.inodes.keys().ne(found.inodes.keys()));
    for (number, now) in &found.inodes {
        let Some(was) = sound.inodes.get(number) else { continue };
        kind("times", (was.mtime, was.ctime, was.atime, was.btime) != (now.mtime, now.ctime, now.atime, now.btime));
        kind("owner and mode", (was.uid, was.gid, was.mode) != (now.uid, now.gid, now.mode));
        kind("size and allocation", (was.size, was.allocated) != (now.size, now.allocated));
        kind("links", was.links != now.links);
        kind("place of content", was.extents != now.extents);
        let is_target = now.mode & 0o170_000 == 0o120_000;
        kind("target of a long symbolic link", is_target && was.inline != now.inline);
        kind("content among metadata", !is_target && was.inline != now.inline);
        kind("extended attributes", was.xattrs != now.xattrs);
        let rest = |inode: &Inode| (inode.generation, inode.rdev, inode.flags, inode.streams.clone());
        kind("generation, device, flags, streams", rest(was) != rest(now));
    }
    kinds
}

/// Bytes that are lost together.
const ZEROED: usize = 1024;

/// Changes bytes of the image, and holds what is told then against what was, and against what the checker says.
fn damaged(name: &str, seed: u64, subject: &Subject) {
    let recorder = std::sync::Arc::new(Recorder {
        image: ImageFile::open(&subject.image).expect("an image"),
        reads: Mutex::default(),
    });
    let sound = scanned((subject.open)(Box::new(recorder.clone())), subject.indexes).expect("a sound image");
    assert!(sound.1.is_empty(), "{:?}", sound.1);
    let said = (subject.check)(&subject.image);
    assert!(said.is_none(), "{name}: the checker finds something in a sound image: {said:?}");
    let bytes = fs::read(&subject.image).expect("an image");
    // Most of a large image is zeros, which are passed over a page at a time.
    let pages = (0..bytes.len()).step_by(4096).filter(|&at| bytes[at..at + 4096] != [0; 4096]);
    let places = pages.flat_map(|page| (page..page + 4096).step_by(64));
    let all: Vec<usize> = places.filter(|&at| bytes[at..at + 64].iter().any(|&byte| byte != bytes[at])).collect();
    let reads = std::mem::take(&mut *recorder.reads.lock().expect("a lock"));
    let is_read = |at: usize| reads.iter().any(|&(start, end)| start < at as u64 + 64 && (at as u64) < end);
    let read: Vec<usize> = all.iter().copied().filter(|&at| is_read(at)).collect();
    let file = File::options().write(true).open(&subject.image).expect("an image");
    let rounds = if is_long() { 2000 } else { 40 };
    let mut random = Random(seed << 20 | 0x9e37_79b9);
    // By what we say and what the checker says; and what differs without a word, by kind and checker.
    let mut outcomes: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    let mut silent: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for round in 0..rounds {
        let mut changes = BTreeMap::new();
        if random.below(8) == 0 {
            let start = read[random.below(read.len())] / ZEROED * ZEROED;
            changes.extend((start..start + ZEROED).map(|at| (at, 0)));
        }
        let bytes_changed = if changes.is_empty() { 1 + [0, 0, 1, 3, 7][random.below(5)] } else { 0 };
        for _ in 0..bytes_changed {
            let places = if random.below(2) == 0 { &all } else { &read };
            let at = places[random.below(places.len())] + random.below(64);
            let byte = if random.below(2) == 0 { random.next() as u8 } else { bytes[at] ^ 1 << random.below(8) };
            changes.insert(at, byte);
        }
        changes.iter().for_each(|(&at, &byte)| file.write_all_at(&[byte], at as u64).expect("a byte"));
        let image = Box::new(ImageFile::open(&subject.image).expect("an image"));
        let found = scanned((subject.open)(image), subject.indexes);
        let said = (subject.check)(&subject.image);
        let checker = if said.is_none() { "finds nothing" } else { "finds damage" };
        changes.keys().for_each(|&at| file.write_all_at(&[bytes[at]], at as u64).expect("a byte"));
        let first = match &found {
            Err(error) => Some(error),
            Ok((_, problems)) => problems.first(),
        };
        if let (Some(error), 1) = (first, changes.len()) {
            shows_where(name, error, *changes.keys().next().expect("a change"), subject);
        }
        let told = match &found {
            Err(error) => {
                assert!(error.to_string().len() < 2000, "{error}");
                names_its_place(error);
                "refused"
            }
            Ok((facts, problems)) => {
                let kinds = differences(&sound.0, facts);
                if subject.has_checksums {
                    lacks_are_told(name, &sound.0, facts);
                    what_is_told_is_right(&format!("{name}, round {round}"), &sound.0, facts, &kinds);
                }
                match (problems.is_empty(), kinds.is_empty()) {
                    (false, _) => {
                        problems.iter().for_each(names_its_place);
                        if is_long() && checker == "finds nothing" {
                            println!("{name}, round {round}: the checker finds nothing, but we tell {}", problems[0]);
                        }
                        "damage is told"
                    }
                    (true, true) => "as it was",
                    (true, false) => {
                        kinds.iter().for_each(|kind| *silent.entry((kind, checker)).or_default() += 1);
                        let is_protected = kinds.iter().any(|kind| *kind != "target of a long symbolic link");
                        assert!(
                            !(subject.has_checksums && is_protected),
                            "{name}, round {round}: {kinds:?} after {changes:?}, but nothing is told"
                        );
                        if let Some(said) = &said {
                            println!(
                                "{name}, round {round}: the checker finds damage, but we tell nothing of {kinds:?} after {changes:?}\n{said}"
                            );
                        }
                        "other facts"
                    }
                }
            }
        };
        *outcomes.entry((told, checker)).or_default() += 1;
    }
    println!("{name}, {rounds} images, seed {seed}");
    outcomes.iter().for_each(|((told, checker), count)| println!("  {told}; the checker {checker}: {count}"));
    silent
        .iter()
        .for_each(|((kind, checker), count)| println!("  without a word: {kind}; the checker {checker}: {count}"));
    // What nothing can see is rare: a time or an owner that is as likely as another.
    let unseen = outcomes.get(&("other facts", "finds damage")).copied().unwrap_or_default();
    assert!(unseen * 40 <= rounds, "{unseen} of {rounds} images have other facts, and only the checker sees it");
    let harmless: u32 = outcomes.iter().filter(|((told, _), _)| *told == "as it was").map(|(_, count)| count).sum();
    assert!(harmless < rounds, "the changes do no harm");
    assert_eq!(fs::read(&subject.image).expect("an image"), bytes, "all changes were taken back");
}

/// A directory of which a name is missing is told to be incomplete, if it's told at all.
fn lacks_are_told(name: &str, sound: &Facts, found: &Facts) {
    let there: HashSet<_> = found.names.iter().collect();
    for missing in sound.names.iter().filter(|missing| !there.contains(missing)) {
        let is_told = [None, Some(missing.0)].iter().any(|place| found.incomplete.contains(place));
        let is_there = found.inodes.contains_key(&missing.0);
        assert!(is_told || !is_there, "{name}: {missing:?} is missing, but directory {} seems whole", missing.0);
    }
}

/// Where there are checksums, whatever else is damaged: an inode and a name that are told are those that were there. What lies
/// in blocks of its own, such as places and attributes, may be missing.
fn what_is_told_is_right(image: &str, sound: &Facts, found: &Facts, kinds: &HashSet<&'static str>) {
    let of_inodes = ["times", "owner and mode", "size and allocation", "links", "generation, device, flags, streams"];
    let wrong = of_inodes.iter().find(|kind| kinds.contains(*kind));
    assert_eq!(wrong, None, "{image}: an inode is told that is another than was there");
    let there: HashSet<_> = sound.names.iter().collect();
    let wrong = found.names.iter().find(|name| !there.contains(name));
    assert_eq!(wrong, None, "{image}: a name is told that was not there");
    let wrong = found.inodes.keys().find(|number| !sound.inodes.contains_key(number));
    assert_eq!(wrong, None, "{image}: an inode is told that was not there");
}

/// After one change, what is told lies in the structure that was changed where checksums tell which one that is; else it is
/// the first bytes of the file system at least only where these were changed.
fn shows_where(name: &str, error: &TableError, changed: usize, subject: &Subject) {
    let told = error.at().unwrap_or_else(|| panic!("{name}: no place in {error}"));
    let block = |at: u64| at / subject.structure_bytes;
    let is_there = if subject.has_checksums { block(told) == block(changed as u64) } else { told > 0 || changed < 512 };
    assert!(is_there, "{name}: byte {changed} was changed, but this is told: {error}");
}

fn seed() -> u64 {
    std::env::var("ONESWEEP_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

/// What a checker says that doesn't find all well.
fn complaint(command: &mut Command) -> Option<String> {
    let output = command.output().expect("the checker runs");
    let said = || String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (!output.status.success()).then(said)
}

fn ext4(name: &str, seed_of: u64, options: &[&str], has_checksums: bool, has_indexes: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let (image, tree) = (folder.path().join("image"), folder.path().join("tree"));
    fs::create_dir(&tree).expect("a folder");
    fill(&tree);
    File::create(&image).and_then(|file| file.set_len(8 * MIB)).expect("a sparse file");
    run(Command::new("mkfs.ext4")
        .args(["-q", "-F", "-b", "1024", "-N", "512", "-d"])
        .arg(&tree)
        .args(options)
        .arg(&image));
    if has_indexes {
        // mke2fs makes none. It says that it changed something.
        let indexed = Command::new("e2fsck").args(["-fyD"]).arg(&image).output().expect("e2fsck runs");
        assert!(indexed.status.code() <= Some(1), "{indexed:?}");
    }
    let check = |image: &Path| complaint(Command::new("e2fsck").arg("-fn").arg(image));
    let open = |device| Ext4::open(Device(device)).map(|tables| Box::new(tables) as Box<dyn Tables>);
    let (indexes, structure_bytes) = (Indexes::Left, 1024);
    damaged(name, seed() + seed_of, &Subject { image, open, check, has_checksums, indexes, structure_bytes });
}

/// As a type of its own, so that the readers take it.
struct Device(Box<dyn BlockRead>);

impl BlockRead for Device {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.0.read_at(buffer, at)
    }

    fn len(&self) -> u64 {
        self.0.len()
    }
}

#[test]
fn damaged_ext4_with_checksums() {
    ext4("ext4", 100, &["-J", "size=1"], true, false);
}

#[test]
fn damaged_ext4_without_checksums() {
    ext4("ext4 without checksums", 200, &["-O", "^has_journal,^metadata_csum"], false, false);
}

#[test]
fn damaged_ext4_with_indexes_without_checksums() {
    ext4("ext4 with indexes, without checksums", 250, &["-O", "^has_journal,^metadata_csum"], false, true);
}

fn xfs(name: &str, seed_of: u64, options: &[&str], has_checksums: bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let (image, tree) = (folder.path().join("image"), folder.path().join("tree"));
    fs::create_dir(&tree).expect("a folder");
    fill(&tree);
    let mut prototype = b"/\n0 0\n".to_vec();
    described(&tree, &mut prototype, "");
    let described = folder.path().join("prototype");
    fs::write(&described, prototype).expect("a prototype");
    File::create(&image).and_then(|file| file.set_len(320 * MIB)).expect("a sparse file");
    let made = Command::new("mkfs.xfs").arg("-q").args(options).arg("-p").arg(&described).arg(&image).output();
    let made = made.expect("mkfs.xfs runs");
    if !made.status.success() {
        return not_here(String::from_utf8_lossy(&made.stderr).lines().next().unwrap_or_default());
    }
    for value in [5, 200, 900, 3000] {
        let set = format!("attr_set -u -v {value} name{value}");
        run(Command::new("xfs_db").args(["-x", "-c", "path /file1", "-c", &set]).arg(&image));
    }
    let check = |image: &Path| complaint(Command::new("xfs_repair").args(["-n", "-f"]).arg(image));
    let open = |device| Xfs::open(Device(device)).map(|tables| Box::new(tables) as Box<dyn Tables>);
    let (indexes, structure_bytes) = (Indexes::Left, 4096);
    damaged(name, seed() + seed_of, &Subject { image, open, check, has_checksums, indexes, structure_bytes });
}

/// A folder as a prototype of mkfs.xfs, which knows no names with spaces.
fn described(folder: &Path, prototype: &mut Vec<u8>, indent: &str) {
    prototype.extend_from_slice(b"d--755 0 0\n");
    let mut entries: Vec<_> = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")).collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type().expect("a type"));
        let name = entry.file_name().to_string_lossy().replace(' ', "-");
        prototype.extend_from_slice(format!("{indent} {name} ").as_bytes());
        if kind.is_dir() {
            described(&path, prototype, &format!("{indent} "));
        } else if kind.is_symlink() {
            prototype.extend_from_slice(b"l--777 0 0 ");
            prototype.extend_from_slice(fs::read_link(&path).expect("a target").as_os_str().as_bytes());
            prototype.push(b'\n');
        } else {
            let empty = fs::metadata(&path).expect("a size").len() == 0;
            let source = if empty { Path::new("/dev/null").to_owned() } else { plain(&path) };
            prototype.extend_from_slice(b"---644 0 0 ");
            prototype.extend_from_slice(source.as_os_str().as_bytes());
            prototype.push(b'\n');
        }
    }
    prototype.extend_from_slice(b"$\n");
}

fn plain(path: &Path) -> PathBuf {
    assert!(!path.to_string_lossy().contains(' '), "{}", path.display());
    path.to_owned()
}

#[test]
fn damaged_xfs_of_version_5() {
    xfs("XFS, version 5", 300, &[], true);
}

#[test]
fn damaged_xfs_of_version_4() {
    xfs("XFS, version 4", 400, &["-m", "crc=0"], false);
}

fn ntfs(name: &str, indexes: Indexes) {
    let Some(mut image) = Image::new(8 * MIB, &["mkntfs", "-QFq", "-s512", "-p0", "-H0", "-S0", "-c1024"]) else {
        return;
    };
    image.mount_ntfs("");
    fill(&image.root());
    image.unmount();
    let check = |image: &Path| complaint(Command::new("ntfsfix").arg("-n").arg(image));
    let open =
        |device| Ntfs::open(Device(device), Options::default()).map(|tables| Box::new(tables) as Box<dyn Tables>);
    let (image_path, has_checksums, structure_bytes) = (image.path(), false, 1024);
    let subject = Subject { image: image_path, open, check, has_checksums, indexes, structure_bytes };
    damaged(name, seed() + 500, &subject);
}

#[test]
fn damaged_ntfs() {
    ntfs("NTFS", Indexes::Left);
}

#[test]
fn damaged_ntfs_with_indexes() {
    ntfs("NTFS, names held against indexes", Indexes::All);
}
