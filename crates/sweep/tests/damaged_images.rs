//! What is delivered of damaged images, held against what the sound ones hold.
//!
//! Bytes of metadata, of a journal and of content are changed, 40 times for each image and 2,000 times in the long set. A file
//! that comes is as it was unless one of its own bytes was changed: always where metadata has checksums, and elsewhere when
//! nothing but content was changed. What no checksum protects and comes otherwise without a word is counted.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File},
    io::{self, Read, Write},
    ops::{ControlFlow, Range},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
};

use onesweep::{BulkRead, MetadataSource};
use onesweep_layout::{
    BlockRead, ImageFile,
    tables::{self, Found, Inode, Name, Options, TableError, Wanted},
};

#[path = "../../layout/tests/tables/image.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod image;

use self::image::{Image, run};

const MIB: u64 = 1 << 20;

fn rounds() -> u32 {
    let is_long = std::env::var_os("ONESWEEP_TEST_LONG").is_some_and(|value| !value.is_empty() && value != "0");
    if is_long { 2000 } else { 40 }
}

struct Random(u64);

impl Random {
    fn new(of: u64) -> Self {
        let seed = std::env::var("ONESWEEP_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        Self((seed + of) << 20 | 0x9e37_79b9)
    }

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

/// Lines that differ from each other and from those of other files.
fn text(number: usize, bytes: usize) -> Vec<u8> {
    let lines = (0..).flat_map(|line| format!("line {line} of many in file {number}\n").into_bytes());
    lines.take(bytes).collect()
}

/// Most files are one byte again and again, each another one than its neighbours, so that content is told from metadata, and
/// one file from the next.
fn fill(root: &Path) {
    let letter = |number: usize| b'a' + (number % 26) as u8;
    for number in 1..60 {
        fs::write(root.join(format!("file{number}")), vec![letter(number); number * 37 % 50 * 300]).expect("a file");
    }
    fs::create_dir_all(root.join("below/deeper")).expect("a folder");
    for number in 0..150 {
        let name = format!("below/a name of which there are many {number}");
        fs::write(root.join(name), vec![letter(number); number % 3 * 700]).expect("a file");
    }
    for number in 0..6 {
        fs::write(root.join(format!("below/text{number}")), text(number, 1000 + number * 2500)).expect("a file");
    }
    fs::hard_link(root.join("file7"), root.join("below/deeper/link")).expect("a link");
    // In turns, so that both lie in pieces.
    let pieces = ["pieces", "others"].map(|name| File::create(root.join(name)).expect("a file"));
    for piece in 0..120 {
        for (letter, mut file) in (b'p'..).zip(&pieces) {
            file.write_all(&[letter + piece / 12; 4096]).expect("a piece");
            file.sync_data().expect("its place");
        }
    }
    let holes = File::create(root.join("holes")).expect("a file");
    (0..40).for_each(|piece| holes.write_all_at(b"hhhh", piece * 16384).expect("a piece"));
}

/// What came, and what was complained of.
#[derive(Default)]
struct Delivered {
    files: BTreeMap<PathBuf, (u64, Vec<u8>)>,
    complaints: Vec<String>,
}

fn delivered(image: &Path) -> Delivered {
    let mut found = Delivered::default();
    let mut all = image.as_os_str().to_owned();
    all.push(":/");
    let swept = BulkRead::new([PathBuf::from(all)]).metadata(MetadataSource::Tables).run(|item| {
        match item {
            Err(error) => found.complaints.push(error.to_string()),
            Ok(mut file) => {
                let mut content = Vec::new();
                let read = file.reader().read_to_end(&mut content);
                match read {
                    Err(error) => found.complaints.push(format!("{}: {error}", file.path().display())),
                    Ok(_) => {
                        let number = file.metadata().ino;
                        for path in std::iter::once(file.path()).chain(file.links().iter().map(PathBuf::as_path)) {
                            found.files.insert(path.to_owned(), (number, content.clone()));
                        }
                    }
                }
            }
        }
        true
    });
    found.complaints.extend(swept.err().map(|error| error.to_string()));
    found
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

/// Where the content of files lies.
#[derive(Default)]
struct Content(Vec<(Range<u64>, u64)>);

impl Content {
    /// The file that has a byte of the image.
    fn owner(&self, at: u64) -> Option<u64> {
        self.0.iter().find(|(range, _)| range.contains(&at)).map(|(_, inode)| *inode)
    }
}

impl Found for Content {
    fn inode(&mut self, inode: Inode) -> ControlFlow<()> {
        let is_file = inode.mode & 0o170_000 == 0o100_000;
        for extent in inode.extents.iter().filter(|extent| is_file && !extent.is_zeros()) {
            let at = extent.physical.expect("an address");
            self.0.push((at..at + extent.length, inode.number));
        }
        ControlFlow::Continue(())
    }

    fn name(&mut self, _: Name<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn incomplete(&mut self, directory: Option<u64>) {
        panic!("{directory:?} lacks names");
    }

    fn problem(&mut self, problem: TableError) -> ControlFlow<()> {
        panic!("{problem}");
    }
}

/// A sound image, and what is known of it.
struct Sound {
    bytes: Vec<u8>,
    delivered: Delivered,
    content: Content,
    /// Places of 64 bytes that aren't one byte again and again, and those of them that hold metadata.
    places: [Vec<usize>; 2],
    is_replayed: bool,
}

impl Sound {
    fn of(image: &Path) -> Self {
        let recorder = Arc::new(Recorder { image: ImageFile::open(image).expect("an image"), reads: Mutex::default() });
        let mut tables = tables::open(recorder.clone(), Options::default()).expect("a sound image");
        let mut content = Content::default();
        tables.scan(Wanted::default(), &mut content).expect("sound tables");
        let is_replayed = tables.facts().is_replayed;
        let reads = std::mem::take(&mut *recorder.reads.lock().expect("a lock"));
        let bytes = fs::read(image).expect("an image");
        // Most of a large image is zeros, which are passed over a page at a time.
        let pages = (0..bytes.len()).step_by(4096).filter(|&at| bytes[at..at + 4096] != [0; 4096]);
        let places = pages.flat_map(|page| (page..page + 4096).step_by(64));
        let all: Vec<usize> = places.filter(|&at| bytes[at..at + 64].iter().any(|&byte| byte != bytes[at])).collect();
        let is_read = |at: usize| reads.iter().any(|&(start, end)| start < at as u64 + 64 && (at as u64) < end);
        let metadata = all.iter().copied().filter(|&at| content.owner(at as u64).is_none() && is_read(at)).collect();
        let delivered = delivered(image);
        assert!(delivered.complaints.is_empty(), "{:?}", delivered.complaints);
        assert!(delivered.files.len() > 200, "{} files", delivered.files.len());
        Sound { bytes, delivered, content, places: [all, metadata], is_replayed }
    }

    /// Up to eight bytes that become others.
    fn changes(&self, random: &mut Random) -> HashMap<usize, u8> {
        let count = 1 + [0, 0, 1, 3, 7][random.below(5)];
        let change = |_| {
            let places = &self.places[random.below(2)];
            let at = places[random.below(places.len())] + random.below(64);
            let byte = if random.below(2) == 0 { random.next() as u8 } else { self.bytes[at] ^ 1 << random.below(8) };
            (at, byte)
        };
        (0..count).map(change).collect()
    }
}

/// Changes bytes of an image, and holds what comes then against what came before.
fn damaged(name: &str, random: &mut Random, image: &Path, sound: &Sound, has_checksums: bool) {
    let file = File::options().write(true).open(image).expect("an image");
    let mut outcomes: BTreeMap<&str, u32> = BTreeMap::new();
    let rounds = rounds();
    for round in 0..rounds {
        let changes = sound.changes(random);
        changes.iter().for_each(|(&at, &byte)| file.write_all_at(&[byte], at as u64).expect("a byte"));
        let found = delivered(image);
        changes.keys().for_each(|&at| file.write_all_at(&[sound.bytes[at]], at as u64).expect("a byte"));
        let changed = || format!("{name}, round {round}, after {changes:?}; told: {:?}", found.complaints);
        let is_silent = found.complaints.is_empty();
        let owners: Vec<Option<u64>> = changes.keys().map(|&at| sound.content.owner(at as u64)).collect();
        let is_content_alone = !owners.contains(&None);
        let is_own = |inode: u64| owners.contains(&Some(inode));
        let (mut own, mut wrong, mut missing) = (0, 0, 0);
        for (path, (inode, content)) in &sound.delivered.files {
            match found.files.get(path) {
                Some((_, now)) if now == content => {}
                Some(_) if is_own(*inode) => own += 1,
                Some((_, now)) => {
                    let is_bound_to_hold = has_checksums || is_content_alone;
                    assert!(!is_bound_to_hold, "{} is another file: {}", path.display(), changed());
                    if is_silent && rounds > 40 {
                        let (was, is) = (content.len(), now.len());
                        println!("{}: {was} bytes were others, or {is}; {}", path.display(), changed());
                    }
                    wrong += 1;
                }
                None if is_own(*inode) && !is_silent => own += 1,
                None => {
                    let is_bound_to_come = is_content_alone || has_checksums && is_silent;
                    assert!(!is_bound_to_come, "{} doesn't come: {}", path.display(), changed());
                    missing += 1;
                }
            }
        }
        let new = found.files.keys().filter(|path| !sound.delivered.files.contains_key(*path)).count();
        assert!(new == 0 || !has_checksums && !is_content_alone, "{new} new files: {}", changed());
        let outcome = match (is_silent, wrong, missing + new, own) {
            (true, 0, 0, 0) => "all as it was",
            (true, 0, 0, _) => "other content where content was changed",
            (true, 0, ..) => "without a word: other names",
            (true, ..) => "without a word: other content",
            (false, 0, ..) if found.files.is_empty() => "refused",
            (false, 0, ..) => "damage is told, what comes is right",
            (false, ..) => "damage is told, other content comes too",
        };
        *outcomes.entry(outcome).or_default() += 1;
    }
    println!("{name}, {rounds} images");
    outcomes.iter().for_each(|(outcome, count)| println!("  {outcome}: {count}"));
    // Other content where content was changed is rare: forty images may have none.
    let least = if rounds > 40 { 3 } else { 2 };
    assert!(outcomes.len() >= least, "the changes are all alike");
    assert!(fs::read(image).expect("an image") == sound.bytes, "all changes were taken back");
}

#[test]
fn damaged_ext4() {
    let Some(mut image) = Image::new(24 * MIB, &["mkfs.ext4", "-q", "-F", "-b", "1024", "-N", "512"]) else { return };
    image.mount(&["-t", "ext4"], "");
    fill(&image.root());
    image.unmount();
    damaged("ext4", &mut Random::new(100), &image.path(), &Sound::of(&image.path()), true);
}

/// As a crash leaves it: metadata and content of the last transactions are in the journal alone.
#[test]
fn damaged_ext4_after_a_crash() {
    let mkfs = ["mkfs.ext4", "-q", "-F", "-b", "1024", "-N", "512", "-J", "size=4"];
    let Some(mut image) = Image::new(24 * MIB, &mkfs) else { return };
    image.mount(&["-t", "ext4"], "commit=300,data=journal");
    let root = image.root();
    fill(&root);
    let sync = || rustix::fs::syncfs(File::open(&root).expect("the root")).expect("all of it at its place");
    sync();
    for number in 0..4 {
        let path = root.join(format!("below/text{number}"));
        let file = File::options().write(true).open(&path).expect("a file");
        file.write_all_at(&text(number + 100, 900), 50).expect("other bytes");
        file.sync_all().expect("a commit");
        fs::write(root.join(format!("below/new{number}")), text(number + 200, 3000)).expect("a file");
        fs::rename(root.join(format!("file{}", number + 1)), root.join(format!("moved{number}"))).expect("a name");
        sync_directory(&root);
    }
    let copy = image.path().with_extension("copy");
    run(Command::new("cp").arg("--sparse=always").arg(image.path()).arg(&copy));
    image.unmount();
    let sound = Sound::of(&copy);
    assert!(sound.is_replayed, "the journal holds nothing");
    let new = |path: &PathBuf| path.as_os_str().as_encoded_bytes().ends_with(b"below/new3");
    let (_, content) = sound.delivered.files.iter().find(|(path, _)| new(path)).expect("a file of the journal").1;
    assert_eq!(*content, text(203, 3000));
    damaged("ext4 after a crash", &mut Random::new(200), &copy, &sound, true);
}

fn sync_directory(path: &Path) {
    File::open(path).and_then(|directory| directory.sync_all()).expect("a commit");
}

#[test]
fn damaged_xfs() {
    let Some(mut image) = Image::new(320 * MIB, &["mkfs.xfs", "-q"]) else { return };
    image.mount(&["-t", "xfs"], "");
    fill(&image.root());
    image.unmount();
    damaged("XFS", &mut Random::new(300), &image.path(), &Sound::of(&image.path()), true);
}

/// Half of the files are compressed.
#[test]
fn damaged_ntfs() {
    let Some(mut image) = Image::new(16 * MIB, &["mkntfs", "-QFq", "-s512", "-p0", "-H0", "-S0", "-c1024"]) else {
        return;
    };
    image.mount_ntfs("compression");
    let packed = image.root().join("packed");
    fs::create_dir(&packed).expect("a folder");
    rustix::fs::lsetxattr(&packed, "system.ntfs_attrib_be", &[0, 0, 8, 0], rustix::fs::XattrFlags::empty())
        .expect("an attribute");
    fill(&image.root());
    fill(&packed);
    for number in 0..6 {
        fs::write(packed.join(format!("long{number}")), text(number + 300, 60_000)).expect("a file");
    }
    image.unmount();
    let sound = Sound::of(&image.path());
    damaged("NTFS", &mut Random::new(400), &image.path(), &sound, false);
}
