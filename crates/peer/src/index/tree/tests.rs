use std::sync::{Arc, Mutex};

use super::*;

fn key() -> FileKey {
    FileKey { inode: 12, generation: 7, size: 10_000, mtime: (100, 5), ctime: (101, 6) }
}

#[test]
fn a_file_is_found_only_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("index");
    let domain = TrustDomain::from_key([1; 32]);
    let content = vec![9; 10_000];
    let kept = hashes(&domain, 4096, &content);
    assert_eq!(kept.len(), 3);
    let index = TreeIndex::create(&path, 4096, 77, &domain).unwrap();
    index.keep(&[(key(), kept.clone())]).unwrap();
    drop(index);

    let index = TreeIndex::open(&path, 77, &domain).unwrap();
    assert_eq!((index.hashes(&key()).unwrap(), index.len().unwrap()), (Some(kept.clone()), 1));
    for other in [
        FileKey { inode: 13, ..key() },
        FileKey { generation: 8, ..key() },
        FileKey { size: 9999, ..key() },
        FileKey { mtime: (100, 6), ..key() },
        FileKey { ctime: (102, 6), ..key() },
    ] {
        assert_eq!(index.hashes(&other).unwrap(), None, "{other:?}");
    }
    let part = vec![kept[0], NOT_KNOWN, kept[2]];
    index.keep(&[(key(), part.clone())]).unwrap();
    assert_eq!((index.known(&key()).unwrap(), index.hashes(&key()).unwrap()), (Some(part), None));
    assert!(index.forget(12).unwrap() && !index.forget(12).unwrap());
    assert_eq!(index.known(&key()).unwrap(), None);
    drop(index);
    assert!(matches!(TreeIndex::open(&path, 78, &domain), Err(IndexError::FileSystem)));
    let stranger = TrustDomain::from_key([2; 32]);
    assert!(matches!(TreeIndex::open(&path, 77, &stranger), Err(IndexError::Domain)));
    std::fs::write(&path, vec![3; 9000]).unwrap();
    assert!(matches!(TreeIndex::open(&path, 77, &domain), Err(IndexError::NoIndex)));
}

/// A file of so many blocks, as files of an unpacked archive are: no two times are alike.
fn file(inode: u64, blocks: u64) -> (FileKey, Vec<Hash>) {
    let mixed = inode.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (seconds, nanoseconds) = (1_790_000_000 + (inode / 100) as i64, (mixed >> 35) as u32);
    let key = FileKey {
        inode: inode + (1 << 33),
        generation: mixed as u32,
        size: 4096 * blocks - 1,
        mtime: (seconds - (mixed >> 40) as i64 * 20, nanoseconds / 2),
        ctime: (seconds, nanoseconds),
    };
    let hash = |block: u64| Hash::from_bytes(std::array::from_fn(|at| (mixed >> (at % 8)) as u8 ^ block as u8 | 1));
    (key, (0..blocks).map(hash).collect())
}

/// Whatever the order in which files came, by the bytes of its file.
#[test]
fn a_packed_index_takes_at_most_36_bytes_a_block() {
    let dir = tempfile::tempdir().unwrap();
    let domain = TrustDomain::from_key([1; 32]);
    let shapes =
        [("16", 16, 1), ("40", 40, 1), ("100", 100, 1), ("126", 126, 1), ("mixed", 16, 50), ("large", 3000, 7001)];
    for (shape, least, range) in shapes {
        let path = |name: &str| dir.path().join(format!("{name}-{shape}"));
        let index = TreeIndex::create(&path("filled"), 4096, 77, &domain).unwrap();
        let blocks_of = |inode: u64| least + inode.wrapping_mul(0x9e37_79b9_7f4a_7c15) % range;
        let mut blocks = 0;
        let mut files: Vec<u64> = (0..)
            .take_while(|file| {
                blocks += blocks_of(*file);
                blocks < 120_000
            })
            .collect();
        let blocks: u64 = files.iter().map(|file| blocks_of(*file)).sum();
        files.sort_by_key(|inode| inode.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for some in files.chunks(200) {
            index.keep(&some.iter().map(|inode| file(*inode, blocks_of(*inode))).collect::<Vec<_>>()).unwrap();
        }
        index.pack_into(&path("packed")).unwrap();
        let bytes = |name: &str| std::fs::metadata(path(name)).unwrap().len();
        assert!(bytes("packed") <= 36 * blocks, "{shape}: {} for {blocks} blocks", bytes("packed"));
        assert!(bytes("packed") < bytes("filled"), "{shape}");
        let packed = TreeIndex::open(&path("packed"), 77, &domain).unwrap();
        assert_eq!(packed.len().unwrap(), files.len() as u64);
        for inode in files {
            let (key, hashes) = file(inode, blocks_of(inode));
            assert_eq!(packed.known(&key).unwrap(), Some(hashes), "{shape} {inode}");
        }
    }
}

#[test]
fn a_file_changed_just_now_is_not_settled() {
    let at = |seconds| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    assert!(!key().is_settled(at(101)) && !key().is_settled(at(103)) && key().is_settled(at(104)));
    assert!(!FileKey { mtime: (1 << 40, 0), ..key() }.is_settled(at(104)), "from the future");
    assert!(!key().is_settled(SystemTime::UNIX_EPOCH - std::time::Duration::from_secs(1)), "a clock before 1970");
}

/// A file is written, the clock is moved, it is read, the clock is moved again, and it is written again: with any of
/// these four times, forth and back, what was read is found again only where the last write has the very time of the first.
#[test]
fn a_clock_that_moves_makes_no_old_hash_count() {
    let at = |seconds: i64| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds.unsigned_abs());
    let written = |seconds| FileKey { mtime: (seconds, 0), ctime: (seconds, 0), ..key() };
    let times = [0, 1, 2, 3, 4, 5, 6, 3600, 3601, 3602, 3603, 3604];
    let mut kept = 0;
    for first in times {
        for read in times {
            // A clock that is behind keeps nothing, and one that is ahead keeps what it would keep later.
            assert_eq!(written(first).is_settled(at(read)), read > first + TICK_SECONDS, "{first} {read}");
            if !written(first).is_settled(at(read)) {
                continue;
            }
            for last in times {
                kept += 1;
                assert_eq!(written(last) == written(first), last == first, "{first} {read} {last}");
                // Whoever reads within the tick of the last write learns nothing of it, whatever was there before.
                assert!(!written(last).is_settled(at(last)) && !written(last).is_settled(at(last + TICK_SECONDS)));
            }
        }
    }
    assert!(kept > 500, "{kept}");
}

#[test]
fn what_is_read_holds_by_a_clock_that_is_later_and_while_nobody_writes() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, b"content").unwrap();
    let path = file.into_temp_path();
    let reader = std::fs::File::open(&path).unwrap();
    let fd = std::os::fd::AsFd::as_fd(&reader);
    let key = FileKey::new(&onesweep_sys::files::statx_fd(fd).unwrap(), None);
    let now = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(key.ctime.0.unsigned_abs());
    let hour = std::time::Duration::from_secs(3600);
    assert!(!holds(&key, fd), "it was written just now");
    assert!(!holds_at(&key, fd, now - hour) && holds_at(&key, fd, now + hour));
    let writer = std::fs::File::options().write(true).open(&path).unwrap();
    assert!(!holds_at(&key, fd, now + hour), "somebody may write");
    drop(writer);
    assert!(holds_at(&key, fd, now + hour));
}

#[test]
fn nobody_else_may_read_it_and_nothing_is_written_over() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let domain = TrustDomain::from_key([1; 32]);
    let [made, packed] = ["made", "packed"].map(|name| dir.path().join(name));
    let index = TreeIndex::create(&made, 4096, 77, &domain).unwrap();
    index.pack_into(&packed).unwrap();
    for path in [&made, &packed] {
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
        assert!(matches!(TreeIndex::create(path, 4096, 77, &domain), Err(IndexError::Io(_))), "{path:?}");
    }
    assert!(index.pack_into(&packed).is_err());
}

#[test]
fn another_version_is_refused_before_its_records_are_looked_at() {
    let dir = tempfile::tempdir().unwrap();
    let domain = TrustDomain::from_key([1; 32]);
    for version in [1, 3] {
        let path = dir.path().join(version.to_string());
        let index = TreeIndex::create(&path, 4096, 77, &domain).unwrap();
        let transaction = index.database.begin_write().unwrap();
        transaction.open_table(HEADER).unwrap().insert("version", &u32::to_le_bytes(version)[..]).unwrap();
        // As version 1 had them, by inode alone.
        transaction.delete_table(FILES).unwrap();
        let files: TableDefinition<u64, &[u8]> = TableDefinition::new("files");
        transaction.open_table(files).unwrap().insert(12, &[7; 36 + 32][..]).unwrap();
        transaction.commit().unwrap();
        drop(index);
        let error = TreeIndex::open(&path, 77, &domain).unwrap_err();
        assert!(matches!(error, IndexError::Version { found, known: 2 } if found == version));
        assert!(error.to_string().contains("make it anew"), "{error}");
    }
}

/// Files grow and shrink, and have other parts then; whoever has no more blocks, or none, leaves no part behind.
#[test]
fn a_file_that_is_kept_again_leaves_no_part_behind() {
    let dir = tempfile::tempdir().unwrap();
    let domain = TrustDomain::from_key([1; 32]);
    let index = TreeIndex::create(&dir.path().join("index"), 4096, 77, &domain).unwrap();
    let neighbours = [file(11, 300), file(13, 300)];
    index.keep(&neighbours).unwrap();
    for (round, blocks) in [1000, 126, 127, 1, 500, 130, 0, 253].into_iter().enumerate() {
        let (mut key, hashes) = file(12, blocks.max(1));
        let hashes = hashes[..blocks as usize].to_vec();
        (key.size, key.generation) = (4096 * blocks, round as u32);
        let before = index.known(&FileKey { generation: (round as u32).wrapping_sub(1), ..key });
        assert_eq!(before.unwrap(), None);
        index.keep(&[(key, hashes.clone())]).unwrap();
        assert_eq!((index.known(&key).unwrap(), index.len().unwrap()), (Some(hashes), 3), "{blocks}");
        let table = index.database.begin_read().unwrap().open_table(FILES).unwrap();
        let count = table.range(parts_of(key.inode)).unwrap().count() as u64;
        assert_eq!(count, (blocks + 1).div_ceil(127).max(1), "{blocks}");
        if round % 2 == 1 {
            assert!(index.forget(key.inode).unwrap() && !index.forget(key.inode).unwrap());
            assert_eq!((index.known(&key).unwrap(), index.len().unwrap()), (None, 2), "{blocks}");
        }
    }
    for (key, hashes) in neighbours {
        assert_eq!(index.hashes(&key).unwrap(), Some(hashes));
    }
}

#[test]
fn facts_are_told_apart_and_from_hashes() {
    let times = [i64::MIN, -1, 0, 1, 63, 64, 1_790_000_000, i64::MAX];
    let mut all = std::collections::HashSet::new();
    for size in [0, 127, 128, u64::MAX] {
        for (mtime, ctime) in times.iter().flat_map(|mtime| times.map(|ctime| (*mtime, ctime))) {
            for (generation, nanoseconds) in [(0, 0), (u32::MAX, 999_999_999), (0x8080_8080, 0x8080_8080)] {
                let (mtime, ctime) = ((mtime, nanoseconds), (ctime, nanoseconds / 3));
                let mut record = FileKey { inode: 12, generation, size, mtime, ctime }.encode();
                let facts = record.len();
                assert!((15..=42).contains(&facts));
                record.extend([0x83; 64]);
                assert_eq!(facts_bytes(&record), Some(facts));
                assert!((0..facts).all(|cut| facts_bytes(&record[..cut]).is_none()));
                record.truncate(facts);
                all.insert(record);
            }
        }
    }
    assert_eq!(all.len(), 4 * 64 * 3);
    // None is the beginning of another: sorted, it would stand just before it.
    let mut all: Vec<_> = all.into_iter().collect();
    all.sort();
    assert!(all.windows(2).all(|two| !two[1].starts_with(&two[0])));
}

/// Whatever is in the table: what isn't whole is not known, here and packed.
#[test]
fn a_damaged_record_is_not_known() {
    let dir = tempfile::tempdir().unwrap();
    let domain = TrustDomain::from_key([1; 32]);
    let (key, hashes) = file(12, 300);
    type Damage = fn(&mut Vec<((u64, u32), Vec<u8>)>);
    let damages: [Damage; 10] = [
        |parts| _ = parts.remove(0),
        |parts| _ = parts.remove(1),
        |parts| _ = parts.pop(),
        |parts| parts[1].0.1 += 1,
        |parts| parts[0].0.1 += 1,
        |parts| parts[0].1[0] ^= 1,
        |parts| parts[0].1.truncate(3),
        |parts| parts[1].1.truncate(33),
        |parts| _ = parts[2].1.pop(),
        |parts| parts.iter_mut().for_each(|part| part.1.clear()),
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let path = |name: &str| dir.path().join(format!("{name}{number}"));
        let index = TreeIndex::create(&path("index"), 4096, 77, &domain).unwrap();
        index.keep(&[(key, hashes.clone()), file(13, 20)]).unwrap();
        assert!(index.known(&key).unwrap().is_some());
        let transaction = index.database.begin_write().unwrap();
        {
            let mut table = transaction.open_table(FILES).unwrap();
            let entries = table.extract_from_if(parts_of(key.inode), |_, _| true).unwrap().map(Result::unwrap);
            let mut parts: Vec<_> = entries.map(|(at, part)| (at.value(), part.value().to_vec())).collect();
            damage(&mut parts);
            parts.iter().for_each(|(at, part)| _ = table.insert(at, &part[..]).unwrap());
        }
        transaction.commit().unwrap();
        assert!(index.known(&key).unwrap().is_none(), "{number}");
        index.pack_into(&path("packed")).unwrap();
        let packed = TreeIndex::open(&path("packed"), 77, &domain).unwrap();
        assert!(packed.known(&key).unwrap().is_none(), "{number}");
        for index in [index, packed] {
            assert_eq!(index.known(&file(13, 20).0).unwrap(), Some(file(13, 20).1), "{number}");
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, Vec<u8>),
    Length(u64),
    Sync,
}

impl Step {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Step::Write(at, data) => bytes[*at as usize..][..data.len()].copy_from_slice(data),
            Step::Length(length) => bytes.resize(*length as usize, 0),
            Step::Sync => {}
        }
    }
}

/// A disk that remembers what was done to it.
#[derive(Clone, Debug, Default)]
struct Disk(Arc<Mutex<(Vec<u8>, Vec<Step>)>>);

impl Disk {
    fn take(&self, step: Step) {
        let (bytes, steps) = &mut *self.0.lock().unwrap();
        step.apply(bytes);
        steps.push(step);
    }
}

impl redb::StorageBackend for Disk {
    fn len(&self) -> std::io::Result<u64> {
        Ok(self.0.lock().unwrap().0.len() as u64)
    }

    fn read(&self, at: u64, out: &mut [u8]) -> std::io::Result<()> {
        out.copy_from_slice(&self.0.lock().unwrap().0[at as usize..][..out.len()]);
        Ok(())
    }

    fn set_len(&self, length: u64) -> std::io::Result<()> {
        self.take(Step::Length(length));
        Ok(())
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.take(Step::Sync);
        Ok(())
    }

    fn write(&self, at: u64, data: &[u8]) -> std::io::Result<()> {
        self.take(Step::Write(at, data.to_vec()));
        Ok(())
    }
}

/// Power fails after each step of a change, and of what was not synced all is there, nothing, or some of it: the file is known
/// as it was or as it is, with all its parts, and as it is once the change has returned.
#[test]
fn a_change_of_a_file_of_many_parts_is_whole_or_not_there() {
    let domain = TrustDomain::from_key([1; 32]);
    let (old, new) = (file(12, 700), file(12, 420));
    assert_ne!(old.0, new.0);
    type Change = fn(&TreeIndex);
    let changes: [(Change, bool); 2] = [
        (|index| index.keep(&[file(12, 420)]).unwrap(), true),
        (|index| assert!(index.forget(file(12, 1).0.inode).unwrap()), false),
    ];
    for (change, is_kept) in changes {
        let disk = Disk::default();
        let database = Database::builder().create_with_backend(disk.clone()).unwrap();
        let index = TreeIndex::begin(database, 4096, 77, &domain).unwrap();
        index.keep(&[file(11, 300), old.clone(), file(13, 300)]).unwrap();
        let (before, begun) = {
            let state = disk.0.lock().unwrap();
            (state.0.clone(), state.1.len())
        };
        change(&index);
        let steps = disk.0.lock().unwrap().1[begun..].to_vec();
        drop(index);
        assert!(steps.len() > 5 && steps.iter().any(|step| matches!(step, Step::Sync)));
        let mut seen = [0, 0];
        for cut in 0..=steps.len() {
            let synced = steps[..cut].iter().rposition(|step| matches!(step, Step::Sync)).unwrap_or(0);
            for some in 0..4 {
                let mut bytes = before.clone();
                for (number, step) in steps[..cut].iter().enumerate() {
                    let is_there = match some {
                        0 => true,
                        1 => false,
                        some => (number + cut).wrapping_mul(0x9e37_79b9) >> (16 + some) & 1 == 0,
                    };
                    if is_there || number < synced || matches!(step, Step::Length(_)) {
                        step.apply(&mut bytes);
                    }
                }
                let found = Disk(Arc::new(Mutex::new((bytes, vec![]))));
                let database = Database::builder().create_with_backend(found).unwrap();
                let index = TreeIndex { database, block_bytes: 4096 };
                let (was, is) = (index.known(&old.0).unwrap(), index.known(&new.0).unwrap());
                let is_old = was.as_ref() == Some(&old.1) && is.is_none();
                let is_new = was.is_none() && is == is_kept.then(|| new.1.clone());
                assert!(is_old || is_new, "{cut} of {}, {some}", steps.len());
                assert!(is_new || cut < steps.len(), "it has returned, {some}");
                seen[usize::from(is_new)] += 1;
                for (key, hashes) in [file(11, 300), file(13, 300)] {
                    assert_eq!(index.known(&key).unwrap(), Some(hashes), "{cut} {some}");
                }
            }
        }
        assert!(seen.iter().all(|seen| *seen > 3), "{seen:?}");
    }
}
