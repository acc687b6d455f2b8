//! A store on disk holds what it promises, whatever becomes of its files.

use std::{fs::OpenOptions, os::unix::fs::FileExt};

use super::*;
use crate::store::conformance::{self, block, domain, got};

fn settings(bytes_max: u64) -> DiskSettings {
    DiskSettings { bytes_max, domain: domain() }
}

fn open(dir: &Path) -> Disk {
    Disk::open(dir, settings(64 << 20)).unwrap()
}

fn fill(store: &Disk, blocks: std::ops::Range<u32>) {
    for n in blocks {
        let (hash, bytes) = block(n, 4096);
        store.put(&hash, &bytes).unwrap();
    }
}

/// How many of these are there; each that is has its own bytes.
fn there(store: &Disk, blocks: std::ops::Range<u32>) -> usize {
    let is_there = |n: &u32| {
        let (hash, bytes) = block(*n, 4096);
        let got = got(store, &hash);
        assert!(got.as_ref().is_none_or(|got| *got == bytes), "block {n}");
        got.is_some()
    };
    blocks.filter(is_there).count()
}

fn files(dir: &Path, suffix: &str) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.to_str().unwrap().ends_with(suffix));
    files.sort();
    files
}

#[test]
fn it_is_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let number = AtomicU64::new(0);
    conformance::all(&|| {
        let dir = folder.path().join(number.fetch_add(1, Ordering::Relaxed).to_string());
        Box::new(open(&dir))
    });
}

#[test]
fn all_is_there_after_another_start_and_it_goes_on_growing() {
    let folder = tempfile::tempdir().unwrap();
    // Three segments and a part of one.
    for start in 0..4 {
        let store = open(folder.path());
        assert_eq!(there(&store, 0..start * 200), start as usize * 200);
        fill(&store, start * 200..(start + 1) * 200);
        assert_eq!((store.blocks(), store.bytes()), (u64::from(start + 1) * 200, u64::from(start + 1) * 200 * 4096));
    }
    assert_eq!(files(folder.path(), ".segment").len(), 4);
    // Starts add no files.
    assert_eq!(files(folder.path(), ".index").len(), 3);
    // Without indexes the records are found by looking.
    for index in files(folder.path(), ".index") {
        fs::remove_file(index).unwrap();
    }
    assert_eq!(there(&open(folder.path()), 0..800), 800);
}

#[test]
fn a_second_process_is_refused_and_so_are_other_versions_and_domains() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    fill(&store, 0..1);
    assert!(matches!(Disk::open(folder.path(), settings(1 << 20)), Err(StoreError::InUse(_))));
    drop(store);
    let other = DiskSettings { bytes_max: 1 << 20, domain: TrustDomain::from_key([1; 32]) };
    assert!(matches!(Disk::open(folder.path(), other), Err(StoreError::Domain(_))));
    let segment = OpenOptions::new().write(true).open(&files(folder.path(), ".segment")[0]).unwrap();
    segment.write_all_at(&[2], 8).unwrap();
    assert!(matches!(Disk::open(folder.path(), settings(1 << 20)), Err(StoreError::Version { found: 2, .. })));
}

#[test]
fn the_oldest_go_and_what_was_read_stays() {
    let folder = tempfile::tempdir().unwrap();
    let store = Disk::open(folder.path(), settings(8 << 20)).unwrap();
    for n in 0..6000 {
        fill(&store, n..n + 1);
        // The first hundred are read again and again.
        if n % 500 == 0 {
            assert_eq!(there(&store, 0..100.min(n)), 100.min(n) as usize);
        }
    }
    assert_eq!(there(&store, 0..100), 100);
    assert_eq!(there(&store, 5900..6000), 100);
    assert_eq!(there(&store, 100..3000), 0);
    let bytes: u64 = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes <= 8 << 20, "{bytes}");
    assert!(store.bytes() > 4 << 20, "{}", store.bytes());
    let counted = there(&store, 0..6000);
    assert_eq!(store.blocks(), counted as u64);
    // And after another start with less room.
    drop(store);
    let store = Disk::open(folder.path(), settings(4 << 20)).unwrap();
    assert_eq!(there(&store, 5950..6000), 50);
    let bytes: u64 = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes <= 4 << 20, "{bytes}");
}

#[test]
fn a_changed_byte_is_a_miss_and_the_block_can_be_put_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    fill(&store, 0..10);
    let segment = OpenOptions::new().write(true).read(true).open(&files(folder.path(), ".segment")[0]).unwrap();
    let length = segment.metadata().unwrap().len();
    for at in (HEAD_BYTES as u64..length).step_by(37) {
        let mut byte = [0];
        segment.read_exact_at(&mut byte, at).unwrap();
        segment.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
        let before = there(&store, 0..10);
        assert!((9..=10).contains(&before), "{at}: {before}");
        segment.write_all_at(&byte, at).unwrap();
        fill(&store, 0..10);
        assert_eq!(there(&store, 0..10), 10, "{at}");
    }
    assert!(store.damaged.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_store_that_was_cut_anywhere_opens_and_gives_what_is_whole() {
    let made = tempfile::tempdir().unwrap();
    let store = open(made.path());
    fill(&store, 0..5);
    drop(store);
    let bytes = fs::read(&files(made.path(), ".segment")[0]).unwrap();
    for end in (0..bytes.len()).step_by(61) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("00000000.segment");
        // What a power cut leaves: a file that is shorter, or as long with zeros.
        for is_padded in [false, true] {
            let mut cut = bytes[..end].to_vec();
            if is_padded {
                cut.resize(bytes.len(), 0);
            }
            fs::write(&path, &cut).unwrap();
            let store = open(folder.path());
            let whole = end.saturating_sub(HEAD_BYTES) / (RECORD_HEAD_BYTES + 4096);
            assert_eq!(there(&store, 0..5), whole, "{end}");
            // And it grows on, over another start.
            fill(&store, 0..8);
            assert_eq!(there(&store, 0..8), 8);
            drop(store);
            assert_eq!(there(&open(folder.path()), 0..8), 8, "{end} {is_padded}");
            for file in files(folder.path(), "") {
                fs::remove_file(file).unwrap();
            }
        }
    }
}

#[test]
fn an_index_that_lies_gives_no_wrong_bytes() {
    let folder = tempfile::tempdir().unwrap();
    fill(&open(folder.path()), 0..400);
    let index = files(folder.path(), ".index").remove(0);
    let (end, entries) = decode(&fs::read(&index).unwrap());
    let moved: Vec<_> = entries.iter().map(|entry| Entry { offset: entry.offset + 1, ..*entry }).collect();
    fs::write(&index, format::encode_index(domain().name(), 0, end, &moved)).unwrap();
    let store = open(folder.path());
    assert_eq!(there(&store, 0..400), 400 - entries.len());
    fill(&store, 0..400);
    assert_eq!(there(&store, 0..400), 400);
}

fn decode(bytes: &[u8]) -> (u32, Vec<Entry>) {
    format::decode_index(bytes, domain().name(), 0).unwrap()
}

#[test]
fn a_write_that_fails_half_way_loses_that_block_alone() {
    for fails_at in 0..12 {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        store.writes_left.store(fails_at, Ordering::Relaxed);
        let mut failed = Vec::new();
        for n in 0..12 {
            let (hash, bytes) = block(n, 4096);
            match store.put(&hash, &bytes) {
                Ok(_) => {}
                Err(StoreError::Io { .. }) => {
                    failed.push(n);
                    // There is room again.
                    store.writes_left.store(u64::MAX, Ordering::Relaxed);
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(failed, [fails_at as u32]);
        assert_eq!(there(&store, 0..12), 11);
        drop(store);
        let store = open(folder.path());
        assert_eq!(there(&store, 0..12), 11);
        fill(&store, 0..12);
        assert_eq!(there(&store, 0..12), 12);
    }
}

#[test]
fn blocks_are_read_while_their_segment_goes() {
    let folder = tempfile::tempdir().unwrap();
    let store = Disk::open(folder.path(), settings(4 << 20)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| fill(&store, 0..3000));
        for round in 0..20 {
            there(&store, round * 100..(round + 1) * 100);
        }
    });
    assert_eq!(there(&store, 2900..3000), 100);
}

#[test]
fn a_full_disk_is_told_once_and_once_when_it_is_well_again() {
    let folder = tempfile::tempdir().unwrap();
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = {
        let told = Arc::clone(&told);
        move |news: DiskNews<'_>| told.lock().unwrap().push(format!("{news:?}"))
    };
    let store = open(folder.path()).telling(tell);
    fill(&store, 0..10);
    assert!(told.lock().unwrap().is_empty());
    for n in 10..20 {
        store.writes_left.store(0, Ordering::Relaxed);
        let (hash, bytes) = block(n, 4096);
        assert!(matches!(store.put(&hash, &bytes), Err(StoreError::Io { step: "write a block", .. })));
    }
    assert_eq!(there(&store, 0..20), 10, "what is there is served");
    store.writes_left.store(u64::MAX, Ordering::Relaxed);
    fill(&store, 10..60);
    let told = told.lock().unwrap();
    assert!(matches!(&told[..], [full, well] if full.starts_with("Failing") && well == "Well"), "{told:?}");
    assert_eq!(there(&store, 0..60), 60);
}
