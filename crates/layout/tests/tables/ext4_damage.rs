//! ext4 with bytes that are others than they were, or can't be read.

use std::{env, fs, io, process::Command};

use onesweep_layout::{
    BlockRead,
    tables::{
        Tables, Wanted,
        ext4::{Ext4, Needs},
    },
};

use crate::{
    conformance::{Kept, names_its_place, scan},
    ext4::MIB,
    ext4_journal::{commit, unmount_without_writing},
    ext4_tree::{Amount, Random, fill_small},
    image::{Image, run},
};

/// Bytes of which some can't be read.
struct Faulty<'a> {
    bytes: &'a [u8],
    unreadable: Vec<u64>,
}

impl BlockRead for Faulty<'_> {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        if self.unreadable.iter().any(|bad| (at..at + buffer.len() as u64).contains(bad)) {
            return Err(io::Error::other("a bad sector"));
        }
        self.bytes.read_at(buffer, at)
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }
}

#[test]
fn what_cannot_be_read_is_told_and_the_rest_is_right() {
    let Some(mut image) = Image::new(24 * MIB, &["mkfs.ext4", "-q", "-F", "-b", "1024"]) else { return };
    image.mount(&["-t", "ext4"], "");
    fill_small(&image.root(), 5, 1024, Amount { files: 120, names: 600, pieces: 1500 });
    image.unmount();
    let bytes = fs::read(image.path()).unwrap();
    let sound = scan(&mut Ext4::open(bytes.as_slice()).unwrap());
    let places = metadata(&bytes);
    let mut random = Random::new(5);
    let mut with_problems = 0;
    for round in 0..40 {
        let unreadable = (0..20).map(|_| places[random.below(places.len() as u64) as usize] as u64).collect();
        let Ok(mut tables) = Ext4::open(Faulty { bytes: &bytes, unreadable }) else { continue };
        let mut kept = Kept::default();
        tables.scan(Wanted { xattrs: true, ..Wanted::default() }, &mut kept).unwrap();
        with_problems += u32::from(!kept.problems.is_empty());
        unchanged(&sound, &kept, &format!("round {round}"));
    }
    assert!(with_problems > 10, "{with_problems}");
}

/// How many times as long the tests go, by `ONESWEEP_TEST_LONG`, and what to begin their numbers with.
fn length_and_seed() -> (u64, u64) {
    let seed = env::var("ONESWEEP_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    (if env::var_os("ONESWEEP_TEST_LONG").is_some() { 30 } else { 1 }, seed)
}

fn damaged(mkfs: &[&str], block_bytes: u64, seed: u64, crash: bool) {
    let (length, begin) = length_and_seed();
    let (seed, rounds) = (seed + 1000 * begin, 170 * length);
    let Some(mut image) = Image::new(24 * MIB, mkfs) else { return };
    image.mount(&["-t", "ext4"], if crash { "commit=300" } else { "" });
    fill_small(&image.root(), seed, block_bytes, Amount { files: 120, names: 600, pieces: 1500 });
    if crash {
        commit(&image);
        unmount_without_writing(&mut image);
    } else {
        image.unmount();
    }
    let mut bytes = fs::read(image.path()).unwrap();
    let sound = scan(&mut Ext4::open(bytes.as_slice()).unwrap());
    assert!(sound.problems.is_empty(), "{:?}", sound.problems);
    let checksummed = bytes[1024 + 0x65] & 4 != 0;
    let places = metadata(&bytes);
    let mut random = Random::new(seed);
    let (mut opened, mut with_problems) = (0, 0);
    for round in 0..rounds {
        // Much damage is mostly refused at once, a single byte goes deeper.
        let changes = if round % 2 == 0 { 1 } else { 1 + random.below(8) };
        let changes: Vec<(usize, u8)> = (0..changes)
            .map(|_| {
                let place = places[random.below(places.len() as u64) as usize];
                (place + random.below(64) as usize, random.below(256) as u8)
            })
            .collect();
        let undo: Vec<(usize, u8)> = changes.iter().map(|&(at, _)| (at, bytes[at])).collect();
        changes.iter().for_each(|&(at, byte)| bytes[at] = byte);
        let tables = Ext4::open(bytes.as_slice()).inspect_err(names_its_place);
        if let Ok(mut tables) = tables {
            opened += 1;
            let mut kept = Kept::default();
            tables.scan(Wanted { xattrs: true, ..Wanted::default() }, &mut kept).unwrap();
            with_problems += u32::from(!kept.problems.is_empty());
            kept.problems.iter().for_each(names_its_place);
            let all = Needs { layout: true, xattrs: true };
            Ext4::open_mounted(bytes.as_slice()).map(|tables| tables.bring_in(all, u64::MAX, &|| true)).ok();
            let most = changes.len() * 2000;
            assert!(kept.problems.len() <= most, "round {round}: {} problems", kept.problems.len());
            if checksummed {
                unchanged(&sound, &kept, &format!("round {round} after {changes:?}"));
            }
        }
        undo.iter().rev().for_each(|&(at, byte)| bytes[at] = byte);
    }
    // After a crash most of what may be damaged is the journal, whose checksums refuse it.
    let least = if crash { rounds / 20 } else { rounds / 8 };
    assert!(opened > least && (crash || with_problems > 0), "{opened} opened, {with_problems} with problems");
}

/// With checksums, whatever is told is right, but for targets of long symbolic links, which have none.
fn unchanged(sound: &Kept, kept: &Kept, round: &str) {
    for (number, inode) in &kept.inodes {
        let before = &sound.inodes[number];
        if inode.mode & 0o170_000 == 0o120_000 {
            continue;
        }
        let is_directory = inode.mode & 0o170_000 == 0o040_000;
        let partial = is_directory && !kept.problems.is_empty();
        assert!(inode == before || partial, "{round}:\n{inode:?}\n{before:?}\n{:?}", kept.problems);
    }
    let told = kept.inodes.len() + kept.problems.len() >= sound.inodes.len();
    assert!(told || !kept.problems.is_empty(), "{round}: inodes are missing in silence");
    let names: std::collections::HashSet<_> = sound.names.iter().collect();
    assert!(kept.names.iter().all(|name| names.contains(name)), "{round}");
}

/// Places of 64 bytes that have metadata, or at least something.
fn metadata(bytes: &[u8]) -> Vec<usize> {
    let places = (1024..bytes.len() - 64).step_by(64);
    // Content has one byte again and again.
    places.filter(|&at| bytes[at..at + 64].iter().any(|&byte| byte != bytes[at])).collect()
}

#[test]
fn damage_is_told_or_left_out() {
    damaged(&["mkfs.ext4", "-q", "-F", "-b", "1024", "-O", "ea_inode"], 1024, 1, false);
}

#[test]
fn damage_without_checksums_does_no_harm() {
    damaged(&["mkfs.ext4", "-q", "-F", "-b", "1024", "-O", "^metadata_csum,inline_data"], 1024, 2, false);
}

#[test]
fn damage_to_indirect_blocks_does_no_harm() {
    damaged(&["mkfs.ext2", "-q", "-F", "-b", "1024"], 1024, 3, false);
}

/// The kernel refuses to open such a file, and nobody would see the end of its zeros.
#[test]
fn a_file_that_is_larger_than_any_is_told_and_left_out() {
    for features in ["metadata_csum", "^metadata_csum"] {
        let Some(mut image) = Image::new(24 * MIB, &["mkfs.ext4", "-q", "-F", "-b", "4096", "-O", features]) else {
            return;
        };
        image.mount(&["-t", "ext4"], "");
        for name in ["as large as can be", "larger"] {
            fs::write(image.root().join(name), "hello").unwrap();
        }
        image.unmount();
        for (name, size) in [("as large as can be", 4096_u64 << 32), ("larger", (4096 << 32) + 1)] {
            let set = format!("sif \"/{name}\" size {size}");
            run(Command::new("debugfs").args(["-w", "-R", &set]).arg(image.path()));
        }
        let bytes = fs::read(image.path()).unwrap();
        let kept = scan(&mut Ext4::open(bytes.as_slice()).unwrap());
        let sizes: Vec<u64> = kept.inodes.values().map(|inode| inode.size).filter(|&size| size > 1 << 30).collect();
        assert_eq!(sizes, [4096 << 32], "{features}");
        let told: Vec<String> = kept.problems.iter().map(ToString::to_string).collect();
        let is_told =
            |told: &String| told.contains("the size of inode") && told.contains("expected 0 to 17592186044416");
        assert!(told.iter().any(is_told), "{features}: {told:?}");
    }
}

#[test]
fn damage_to_a_journal_does_no_harm() {
    damaged(&["mkfs.ext4", "-q", "-F", "-b", "1024"], 1024, 4, true);
    damaged(&["mkfs.ext4", "-q", "-F", "-b", "1024", "-O", "^metadata_csum"], 1024, 5, true);
}
