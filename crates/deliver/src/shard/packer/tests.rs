use std::{
    cell::Cell,
    collections::BTreeMap,
    fs,
    io::{self, Read as _},
    rc::Rc,
};

use onesweep::SweptFile;

use super::*;
use crate::{
    shard::{Directory, Planned, Rules, deal},
    testing::{metadata, regular},
};

/// Fails one operation of a store, or all from there on.
struct Faulty {
    inner: Directory,
    left: Rc<Cell<u64>>,
    for_ever: bool,
}

impl Faulty {
    fn step(&self) -> io::Result<()> {
        match self.left.get() {
            0 => {
                if !self.for_ever {
                    self.left.set(u64::MAX);
                }
                Err(io::ErrorKind::StorageFull.into())
            }
            left => {
                self.left.set(left - 1);
                Ok(())
            }
        }
    }
}

impl Store for Faulty {
    fn make(&mut self, name: &str, bytes: u64) -> io::Result<usize> {
        self.step()?;
        self.inner.make(name, bytes)
    }
    fn write(&mut self, file: usize, bytes: &[u8], at: u64) -> io::Result<()> {
        if let Err(error) = self.step() {
            // As a disk that is full in the middle of a write.
            self.inner.write(file, &bytes[..bytes.len() / 2], at)?;
            return Err(error);
        }
        self.inner.write(file, bytes, at)
    }
    fn read(&mut self, file: usize, buffer: &mut [u8], at: u64) -> io::Result<()> {
        self.step()?;
        self.inner.read(file, buffer, at)
    }
    fn shorten(&mut self, file: usize, kept: u64, len: u64) -> io::Result<()> {
        self.step()?;
        self.inner.shorten(file, kept, len)
    }
    fn sync(&mut self) -> io::Result<()> {
        self.step()?;
        self.inner.sync()
    }
    fn publish(&mut self, file: usize, name: &str) -> io::Result<()> {
        self.step()?;
        self.inner.publish(file, name)
    }
    fn remove(&mut self, file: usize) -> io::Result<()> {
        self.step()?;
        self.inner.remove(file)
    }
    fn keep(&mut self) -> io::Result<()> {
        self.step()?;
        self.inner.keep()
    }
}

const RULES: Rules = Rules { max_count: 3, max_bytes: u64::MAX, reach: 3000, seed: 5 };

/// Ten samples of two files, as a plan has them and as they come; some files are larger than a piece.
fn files() -> Vec<(String, Vec<u8>)> {
    let content = |number: usize| vec![number as u8 + 1; if number == 7 { PIECE + 5 } else { number * 300 }];
    let files = |number: usize| {
        [(format!("d/{number}.txt"), content(number)), (format!("d/{number}.json"), vec![b'j'; 5 + number])]
    };
    (0..10).flat_map(files).collect()
}

fn planned(files: &[(String, Vec<u8>)]) -> Vec<Planned> {
    let planned =
        |(name, content): &(String, Vec<u8>)| Planned { name: name.clone().into(), size: content.len() as u64 };
    files.iter().map(planned).collect()
}

fn item(name: &str, content: &[u8]) -> SweptFile {
    regular(&format!("root/{name}"), content)
}

/// What is in the shards of a directory, shard by shard.
fn unpacked(out: &Path) -> Vec<Vec<(String, Vec<u8>)>> {
    let mut shards: BTreeMap<PathBuf, Vec<(String, Vec<u8>)>> = BTreeMap::new();
    for entry in fs::read_dir(out).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|suffix| suffix == "tar") {
            let bytes = fs::read(&path).unwrap();
            assert_eq!(bytes.len() % 10_240, 0, "whole records");
            let mut archive = tar::Archive::new(&bytes[..]);
            let read = |entry: io::Result<tar::Entry<'_, &[u8]>>| {
                let mut entry = entry.unwrap();
                let mut content = Vec::new();
                entry.read_to_end(&mut content).unwrap();
                (entry.path().unwrap().to_string_lossy().into_owned(), content)
            };
            let members = archive.entries().unwrap().map(read).collect();
            shards.insert(path, members);
        }
    }
    shards.into_values().collect()
}

fn sorted(shards: Vec<Vec<(String, Vec<u8>)>>) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = shards.into_iter().flatten().collect();
    all.sort();
    all
}

struct Place {
    _dir: tempfile::TempDir,
    tree: PathBuf,
    out: PathBuf,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (tree, out) = (dir.path().join("tree"), dir.path().join("out"));
        fs::create_dir(&tree).unwrap();
        Self { _dir: dir, tree, out }
    }

    fn packer(&self, files: &[(String, Vec<u8>)]) -> Packer<Directory> {
        let store = Directory::open(&self.out, &self.tree).unwrap();
        Packer::new(deal(planned(files), RULES).0, store, Path::new("root"), &self.out, "set").unwrap()
    }
}

#[test]
fn files_arrive_in_whatever_order_they_come() {
    let files = files();
    let mut first = None;
    for backwards in [false, true] {
        let place = Place::new();
        let mut packer = place.packer(&files);
        let mut coming: Vec<_> = files.iter().collect();
        if backwards {
            coming.reverse();
        }
        for (name, content) in coming {
            assert!(packer.pack(item(name, content)).unwrap().is_empty());
        }
        assert_eq!(packer.vanished().count(), 0);
        let totals = packer.finish().unwrap();
        assert_eq!((totals.shards, totals.samples, totals.members, totals.incomplete_samples), (4, 10, 20, 0));
        let shards = unpacked(&place.out);
        for shard in &shards {
            for sample in shard.chunks(2) {
                let key = |name: &str| name.split('.').next().unwrap().to_owned();
                assert_eq!(key(&sample[0].0), key(&sample[1].0));
            }
        }
        let mut expected = files.clone();
        expected.sort();
        assert_eq!(sorted(shards.clone()), expected);
        assert_eq!(*first.get_or_insert(shards.clone()), shards, "the order of coming changes nothing");
        assert_eq!(fs::read_dir(&place.out).unwrap().count(), 9, "four shards, their lines, and the index");
    }
}

#[test]
fn lines_lead_to_the_content() {
    let files = files();
    let place = Place::new();
    let mut packer = place.packer(&files);
    files.iter().for_each(|(name, content)| drop(packer.pack(item(name, content)).unwrap()));
    packer.finish().unwrap();
    let mut found = 0;
    for shard in 0..4 {
        let name = format!("set-{shard:06}");
        let bytes = fs::read(place.out.join(format!("{name}.tar"))).unwrap();
        let lines = fs::read_to_string(place.out.join(format!("{name}.idx"))).unwrap();
        for line in lines.lines().skip(1) {
            for file in line.split(' ').collect::<Vec<_>>().chunks(4) {
                let [at, size] = [1, 2].map(|part: usize| file[part].parse::<usize>().unwrap());
                let (_, content) = files.iter().find(|(name, _)| name == file[3]).unwrap();
                assert_eq!(&bytes[at..at + size], content);
                found += 1;
            }
        }
    }
    assert_eq!(found, 20);
}

#[test]
fn samples_that_lack_a_file_are_left_out_whole() {
    let files = files();
    for missing in 0..10 {
        let place = Place::new();
        let mut packer = place.packer(&files);
        for (number, (name, content)) in files.iter().enumerate() {
            match (number / 2 == missing && number % 2 == 1, missing % 4) {
                (true, 0) => packer.give_up(&Path::new("root").join(name)),
                (true, 1) => {
                    let warnings = packer.pack(item(name, &content[1..])).unwrap();
                    assert!(matches!(&warnings[..], [ShardWarning::Changed { .. }]), "{warnings:?}");
                }
                (true, 2) => {}
                (true, _) => {
                    // A further name of a file of which no name was packed, and which has gone since.
                    let link = item(name, content).with_linked_to("root/gone".into());
                    let warnings = packer.pack(link).unwrap();
                    assert!(matches!(&warnings[..], [ShardWarning::Vanished { .. }]), "{warnings:?}");
                }
                _ => assert!(packer.pack(item(name, content)).unwrap().is_empty()),
            }
        }
        let vanished: Vec<String> = packer.vanished().map(|warning| warning.to_string()).collect();
        assert_eq!(vanished.len(), usize::from(missing % 4 == 2), "{vanished:?}");
        let totals = packer.finish().unwrap();
        assert_eq!((totals.samples, totals.members, totals.incomplete_samples), (9, 18, 1));
        let mut expected: Vec<_> =
            files.iter().enumerate().filter(|(at, _)| at / 2 != missing).map(|(_, file)| file.clone()).collect();
        expected.sort();
        let shards = unpacked(&place.out);
        assert_eq!(shards.iter().map(Vec::len).sum::<usize>(), 18);
        assert_eq!(sorted(shards), expected);
    }
}

#[test]
fn a_shard_without_samples_takes_no_number() {
    let files = files();
    let place = Place::new();
    let mut packer = place.packer(&files);
    // The last shard has one sample.
    let lost: Vec<String> = {
        let layout = &packer.layout;
        let sample = layout.samples[layout.shards[0].samples.end - 1].clone();
        let first = layout.shards[0].samples.clone();
        first.flat_map(|sample| layout.samples[sample].clone()).chain(sample).collect::<Vec<_>>()
    }
    .into_iter()
    .map(|member| String::from_utf8(packer.layout.name_of(member).to_vec()).unwrap())
    .collect();
    for (name, content) in files.iter().filter(|(name, _)| !lost.contains(name)) {
        packer.pack(item(name, content)).unwrap();
    }
    let totals = packer.finish().unwrap();
    assert_eq!((totals.shards, totals.samples, totals.incomplete_samples), (3, 7, 3));
    let mut names: Vec<_> =
        fs::read_dir(&place.out).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let shard = |number| [format!("set-{number:06}.idx"), format!("set-{number:06}.tar")];
    let expected: Vec<String> = std::iter::once("index.json".to_owned()).chain((0..3).flat_map(shard)).collect();
    assert_eq!(names, expected);
}

#[test]
fn nothing_is_no_data_set() {
    let place = Place::new();
    let packer = place.packer(&files());
    assert!(matches!(packer.finish().unwrap_err(), ShardError::Nothing { .. }));
    assert!(!place.out.exists());
}

#[test]
fn all_names_of_a_file_have_its_content() {
    let files = [("a.x", b"abc"), ("b.x", b"abc"), ("c.x", b"abc"), ("e.x", b"eee")];
    let files: Vec<_> = files.iter().map(|(name, content)| (name.to_string(), content.to_vec())).collect();
    let place = Place::new();
    let mut packer = place.packer(&files);
    let links = ["root/b.x", "root/unplanned.x"].map(PathBuf::from).to_vec();
    packer.pack(item("a.x", b"abc").with_links(links)).unwrap();
    packer.pack(SweptFile::new("root/c.x".into(), metadata(Kind::File, 3)).with_linked_to("root/a.x".into())).unwrap();
    packer.pack(item("e.x", b"eee")).unwrap();
    packer.pack(item("new.x", b"new")).unwrap();
    assert_eq!((packer.strangers(), packer.vanished().count()), (2, 0));
    packer.finish().unwrap();
    assert_eq!(sorted(unpacked(&place.out)), files);
}

/// Names of files that a store of contents has: `objects/…` comes first, and is no sample.
#[test]
fn a_file_is_packed_though_its_first_name_is_no_member() {
    let place = Place::new();
    for folder in ["objects", "train"] {
        fs::create_dir(place.tree.join(folder)).unwrap();
    }
    let at = |name: &str| place.tree.join(name);
    let linked = [("aa", &["1.x", "2.x"][..]), ("bb", &["3.x"]), ("cc", &["4.x"]), ("dd", &["5.x"])];
    let mut planned = Vec::new();
    for (object, names) in linked {
        let content = object.repeat(1000);
        fs::write(at("objects").join(object), &content).unwrap();
        for name in names {
            fs::hard_link(at("objects").join(object), at("train").join(name)).unwrap();
            planned.push((format!("train/{name}"), content.clone().into_bytes()));
        }
    }
    let store = Directory::open(&place.out, &place.tree).unwrap();
    let layout = deal(self::planned(&planned), RULES).0;
    let mut packer = Packer::new(layout, store, &place.tree, &place.out, "set").unwrap();
    let items = crate::testing::walk(&place.tree);
    // Meanwhile one changes, one grows, and one is gone.
    fs::write(at("objects/bb"), "BB".repeat(1000)).unwrap();
    // The clock of file systems may not have gone on.
    let changed = fs::File::options().write(true).open(at("objects/bb")).unwrap();
    changed.set_modified(std::time::UNIX_EPOCH).unwrap();
    fs::write(at("objects/cc"), "cc".repeat(1001)).unwrap();
    fs::remove_file(at("train/5.x")).unwrap();
    let warnings: Vec<ShardWarning> = items.into_iter().flat_map(|item| packer.pack(item).unwrap()).collect();
    let said: Vec<String> = warnings.iter().map(ToString::to_string).collect();
    assert!(
        matches!(
            &warnings[..],
            [ShardWarning::Changed { .. }, ShardWarning::Changed { .. }, ShardWarning::Vanished { .. }]
        ),
        "{said:?}"
    );
    assert_eq!(packer.stand_ins.len(), 1);
    packer.finish().unwrap();
    assert_eq!(sorted(unpacked(&place.out)), planned[..2]);
}

/// A further name that came with the content stands for the first one, too.
#[test]
fn names_that_come_with_the_content_stand_for_the_first() {
    let files = [("b.x", b"abc"), ("c.x", b"abc")].map(|(name, content)| (name.to_owned(), content.to_vec()));
    let place = Place::new();
    let mut packer = place.packer(&files);
    packer.pack(item("objects/aa", b"abc").with_links(vec!["root/b.x".into()])).unwrap();
    let link = SweptFile::new("root/c.x".into(), metadata(Kind::File, 3)).with_linked_to("root/objects/aa".into());
    assert!(packer.pack(link).unwrap().is_empty());
    packer.finish().unwrap();
    assert_eq!(sorted(unpacked(&place.out)), files);
}

#[test]
fn a_further_name_of_a_member_that_failed_fails_with_it() {
    let place = Place::new();
    let mut packer = place.packer(&files());
    packer.give_up(Path::new("root/d/1.txt"));
    let link = item("d/1.json", &[b'j'; 6]).with_linked_to("root/d/1.txt".into());
    let warnings = packer.pack(link).unwrap();
    assert!(matches!(&warnings[..], [ShardWarning::OtherName { .. }]), "{warnings:?}");
}

#[test]
fn a_stream_must_be_as_long_as_it_was_planned() {
    let files = vec![("a.x".to_owned(), vec![7; 2 * PIECE + 9])];
    for (given, is_good) in [(2 * PIECE + 9, true), (2 * PIECE + 8, false), (2 * PIECE + 10, false), (0, false)] {
        let place = Place::new();
        let mut packer = place.packer(&files);
        let mut reader = io::Cursor::new(vec![7; given]);
        assert_eq!(packer.write_stream(0, &mut reader).unwrap().unwrap(), is_good, "{given}");
    }
}

/// Whichever operation fails, and whether the store recovers or not: there is nothing, or all of it.
#[test]
fn no_fault_leaves_a_part() {
    let files = files();
    for for_ever in [false, true] {
        let mut faults = 0;
        for at in 0.. {
            let place = Place::new();
            let left = Rc::new(Cell::new(at));
            let pack = || -> Result<ShardTotals, ShardError> {
                let inner = Directory::open(&place.out, &place.tree)?;
                let store = Faulty { inner, left: Rc::clone(&left), for_ever };
                let layout = deal(planned(&files), RULES).0;
                let mut packer = Packer::new(layout, store, Path::new("root"), &place.out, "set")?;
                // One is missing, so that shards are mended, too.
                for (name, content) in &files[1..] {
                    packer.pack(item(name, content))?;
                }
                packer.finish()
            };
            match pack() {
                Ok(totals) => {
                    assert_eq!(totals.samples, 9);
                    assert!(for_ever || left.get() < u64::MAX / 2, "a fault was overlooked");
                    break;
                }
                Err(error) => {
                    assert!(matches!(error, ShardError::Io { .. }), "{error}");
                    assert!(!place.out.exists(), "{at}: something was left");
                    faults += 1;
                }
            }
        }
        assert!(faults > 40, "{faults}");
    }
}
