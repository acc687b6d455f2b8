//! NTFS with bytes that are others than they were.

use std::{
    collections::{HashMap, HashSet},
    fs,
    time::{Duration, Instant},
};

use onesweep_layout::{
    BlockRead,
    tables::{Inode, TableError, Tables, Wanted, ntfs::Ntfs},
};

use crate::{
    conformance::{self, Kept},
    image::Image,
    ntfs::{CLOSED, number},
    ntfs_tree::{Random, compressed, fragments, kinds, names},
};

/// A small image with some of everything, in memory.
pub(crate) fn small_image() -> Option<Vec<u8>> {
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
