//! XFS with bytes that are others than they were, or cut off.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    io::{self, Write},
    ops::ControlFlow,
    path::Path,
    sync::Mutex,
    time::Instant,
};

use onesweep_layout::{
    BlockRead, ImageFile,
    tables::{Found, Inode, Name, TableError, Tables, Wanted, xfs::Xfs},
};

use crate::{
    conformance::{Kept, names_its_place, scan},
    image::Image,
    xfs::{MIB, filled},
    xfs_by_mkfs::version_4,
    xfs_tree::{ATTRIBUTE_MAX, Recipe, Seeded},
};

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
