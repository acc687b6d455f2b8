//! The index of a directory: hashes for each file, under what its inode says.
//!
//! A file is found by inode number, generation, size, mtime and ctime, all of them. So one that was changed behind the
//! index's back is not found, and never taken for what it was. Times tick coarsely, though: a file that was changed just
//! before it was read may be changed again within the same tick, so such a file gets no hashes ([`FileKey::is_settled`]). Nor
//! does one that somebody has open for writing: a long write, and one through a mapping, change times only where they begin.

use std::{os::fd::BorrowedFd, path::Path, time::SystemTime};

use onesweep_sys::{files::Stat, lease};
use redb::{Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, TableDefinition};

use super::IndexError;
use crate::id::{Hash, TrustDomain};

const HEADER: TableDefinition<&str, &[u8]> = TableDefinition::new("header");
/// By the number of the inode.
const FILES: TableDefinition<u64, &[u8]> = TableDefinition::new("files");
const VERSION: u32 = 1;
/// Bytes of a key before the hashes.
const KEY_BYTES: usize = 36;
/// So much is written at once where an index is packed.
const PACK_BYTES: usize = 32 << 20;
/// No file system's times tick more coarsely, but FAT's, by 2 s.
const TICK_SECONDS: i64 = 2;

/// What names the content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    /// The number of its inode.
    pub inode: u64,
    /// The generation of that number; 0 where the file system keeps none.
    pub generation: u32,
    /// Bytes.
    pub size: u64,
    /// Last change of the content: seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// Last change of the inode.
    pub ctime: (i64, u32),
}

impl FileKey {
    /// Of a file, by its facts and its generation.
    #[must_use]
    pub fn new(stat: &Stat, generation: Option<u32>) -> Self {
        Self {
            inode: stat.ino,
            generation: generation.unwrap_or(0),
            size: stat.size,
            mtime: (stat.mtime.secs, stat.mtime.nanos),
            ctime: (stat.ctime.secs, stat.ctime.nanos),
        }
    }

    fn encode(&self) -> [u8; KEY_BYTES] {
        let mut bytes = [0; KEY_BYTES];
        bytes[..4].copy_from_slice(&self.generation.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.size.to_le_bytes());
        for (at, (seconds, nanoseconds)) in [(12, self.mtime), (24, self.ctime)] {
            bytes[at..at + 8].copy_from_slice(&seconds.to_le_bytes());
            bytes[at + 8..at + 12].copy_from_slice(&nanoseconds.to_le_bytes());
        }
        bytes
    }

    /// Whether a change after `read_at` would give the file another ctime than it has.
    pub fn is_settled(&self, read_at: SystemTime) -> bool {
        let seconds = read_at.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        i64::try_from(seconds)
            .is_ok_and(|seconds| self.ctime.0.max(self.mtime.0).saturating_add(TICK_SECONDS) < seconds)
    }
}

/// Whether the hash of what is read of a file from now on holds as long as the file is found by this key: nobody has it open
/// for writing, and whoever writes later gives it another ctime. Where that can't be told, it doesn't.
pub fn holds(key: &FileKey, fd: BorrowedFd<'_>) -> bool {
    holds_at(key, fd, SystemTime::now())
}

fn holds_at(key: &FileKey, fd: BorrowedFd<'_>, now: SystemTime) -> bool {
    key.is_settled(now) && lease::is_open_for_writing(fd).is_ok_and(|is_open| !is_open)
}

/// The hash of a block of which nothing is known; no content has it.
pub const NOT_KNOWN: Hash = Hash::from_bytes([0; Hash::BYTES]);

/// The hashes of the blocks of a file; the last block may be shorter.
pub fn hashes(domain: &TrustDomain, block_bytes: u32, content: &[u8]) -> Vec<Hash> {
    content.chunks(block_bytes as usize).map(|block| domain.hash(block)).collect()
}

/// The index of a directory.
#[derive(Debug)]
pub struct TreeIndex {
    database: Database,
    block_bytes: u32,
}

impl TreeIndex {
    /// Makes an empty index, of which there is no file yet. `file_system` is the number that `statfs` has for it.
    pub fn create(
        path: &Path,
        block_bytes: u32,
        file_system: u64,
        domain: &TrustDomain,
    ) -> Result<TreeIndex, IndexError> {
        let database = Database::create(path).map_err(|error| io_error(error.into()))?;
        let make = || -> Result<(), redb::Error> {
            let transaction = database.begin_write()?;
            {
                let mut header = transaction.open_table(HEADER)?;
                header.insert("what", &b"onesweep index of a tree"[..])?;
                header.insert("version", &VERSION.to_le_bytes()[..])?;
                header.insert("block_bytes", &block_bytes.to_le_bytes()[..])?;
                header.insert("file_system", &file_system.to_le_bytes()[..])?;
                header.insert("domain", &domain.name().0[..])?;
                transaction.open_table(FILES)?;
            }
            Ok(transaction.commit()?)
        };
        make().map_err(io_error)?;
        Ok(TreeIndex { database, block_bytes })
    }

    /// Writes it anew, of which there is no file yet, in the order of the inodes and with no room between: a database that was filled in
    /// another order has pages that are half empty, and doubles its file when it grows.
    pub fn pack_into(&self, path: &Path) -> Result<(), IndexError> {
        let pack = || -> Result<(), redb::Error> {
            let mut packed = Database::create(path)?;
            let source = self.database.begin_read()?;
            let transaction = packed.begin_write()?;
            {
                let mut header = transaction.open_table(HEADER)?;
                for entry in source.open_table(HEADER)?.iter()? {
                    let (name, value) = entry?;
                    header.insert(name.value(), value.value())?;
                }
                transaction.open_table(FILES)?;
            }
            transaction.commit()?;
            let files = source.open_table(FILES)?;
            let mut entries = files.iter()?.peekable();
            while entries.peek().is_some() {
                // What a transaction has changed is in memory until its end.
                let transaction = packed.begin_write()?;
                {
                    let (mut table, mut bytes) = (transaction.open_table(FILES)?, 0);
                    while bytes < PACK_BYTES
                        && let Some(entry) = entries.next()
                    {
                        let (inode, value) = entry?;
                        table.insert(inode.value(), value.value())?;
                        bytes += value.value().len();
                    }
                }
                transaction.commit()?;
            }
            while packed.compact()? {}
            Ok(())
        };
        pack().map_err(io_error)
    }

    /// Opens an index for a directory of this file system.
    pub fn open(path: &Path, file_system: u64, domain: &TrustDomain) -> Result<TreeIndex, IndexError> {
        let database = Database::open(path).map_err(|error| match error {
            redb::DatabaseError::Storage(redb::StorageError::Io(error)) if !is_content(&error) => IndexError::Io(error),
            redb::DatabaseError::DatabaseAlreadyOpen => IndexError::Io(std::io::Error::other("it is in use")),
            _ => IndexError::NoIndex,
        })?;
        let field = |name: &str| -> Result<Option<Vec<u8>>, redb::Error> {
            let header = database.begin_read()?.open_table(HEADER)?;
            Ok(header.get(name)?.map(|value| value.value().to_vec()))
        };
        let number = |name: &str| -> Result<u64, IndexError> {
            let bytes = field(name).map_err(|_| IndexError::NoIndex)?.ok_or(IndexError::NoIndex)?;
            Ok(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
        };
        let version = number("version")?;
        if version != u64::from(VERSION) {
            return Err(IndexError::Version { found: version as u32, known: VERSION });
        }
        if field("domain").map_err(io_error)?.as_deref() != Some(&domain.name().0[..]) {
            return Err(IndexError::Domain);
        }
        if number("file_system")? != file_system {
            return Err(IndexError::FileSystem);
        }
        let block_bytes = number("block_bytes")? as u32;
        super::Geometry::new(block_bytes, 0).ok_or(IndexError::Damaged { what: "the size of its blocks" })?;
        Ok(TreeIndex { database, block_bytes })
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// Keeps the hashes of files, all or none, durably.
    pub fn keep(&self, files: &[(FileKey, Vec<Hash>)]) -> Result<(), IndexError> {
        let keep = || -> Result<(), redb::Error> {
            let transaction = self.database.begin_write()?;
            {
                let mut table = transaction.open_table(FILES)?;
                for (key, hashes) in files {
                    let mut value = key.encode().to_vec();
                    hashes.iter().for_each(|hash| value.extend(hash.as_bytes()));
                    table.insert(key.inode, &value[..])?;
                }
            }
            Ok(transaction.commit()?)
        };
        keep().map_err(io_error)
    }

    /// Forgets a file, durably. Whether anything was known of it.
    pub fn forget(&self, inode: u64) -> Result<bool, IndexError> {
        let is_known = || -> Result<bool, redb::Error> {
            Ok(self.database.begin_read()?.open_table(FILES)?.get(inode)?.is_some())
        };
        if !is_known().map_err(io_error)? {
            return Ok(false);
        }
        let forget = || -> Result<(), redb::Error> {
            let transaction = self.database.begin_write()?;
            transaction.open_table(FILES)?.remove(inode)?;
            Ok(transaction.commit()?)
        };
        forget().map_err(io_error).map(|()| true)
    }

    /// The hashes of a file that is exactly as it was; `None` also where some of its blocks aren't known.
    pub fn hashes(&self, key: &FileKey) -> Result<Option<Vec<Hash>>, IndexError> {
        Ok(self.known(key)?.filter(|hashes| !hashes.contains(&NOT_KNOWN)))
    }

    /// The same of the blocks that are known, with [`NOT_KNOWN`] for the others.
    pub fn known(&self, key: &FileKey) -> Result<Option<Vec<Hash>>, IndexError> {
        let look = || -> Result<Option<Vec<u8>>, redb::Error> {
            let table = self.database.begin_read()?.open_table(FILES)?;
            Ok(table.get(key.inode)?.map(|value| value.value().to_vec()))
        };
        let Some(value) = look().map_err(io_error)? else { return Ok(None) };
        let Some((kept, hashes)) = value.split_at_checked(KEY_BYTES) else { return Ok(None) };
        if kept != key.encode() {
            return Ok(None);
        }
        let hashes: Vec<Hash> =
            hashes.chunks_exact(32).filter_map(<[u8]>::first_chunk).map(|hash| Hash::from_bytes(*hash)).collect();
        // Each block has one, or the record isn't whole.
        Ok((hashes.len() as u64 == key.size.div_ceil(self.block_bytes.into())).then_some(hashes))
    }

    /// How many files it has.
    pub fn len(&self) -> Result<u64, IndexError> {
        let count = || -> Result<u64, redb::Error> { Ok(self.database.begin_read()?.open_table(FILES)?.len()?) };
        count().map_err(io_error)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> Result<bool, IndexError> {
        Ok(self.len()? == 0)
    }
}

/// Whether an error says that the file is something else.
fn is_content(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof)
}

fn io_error(error: redb::Error) -> IndexError {
    IndexError::Io(match error {
        redb::Error::Io(error) => error,
        error => std::io::Error::other(error.to_string()),
    })
}

#[cfg(test)]
mod tests {
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

    /// Whatever the order in which files came.
    #[test]
    fn a_packed_index_holds_the_same_and_takes_less() {
        let dir = tempfile::tempdir().unwrap();
        let domain = TrustDomain::from_key([1; 32]);
        for (blocks, most) in [(16, 38.0), (40, 36.0), (126, 34.0), (1000, 34.0)] {
            let path = |name: &str| dir.path().join(format!("{name}{blocks}"));
            let index = TreeIndex::create(&path("filled"), 4096, 77, &domain).unwrap();
            let files = 100_000 / blocks;
            let of = |inode: u64| {
                let hashes = (0..blocks).map(|block| Hash::from_bytes([(inode * 7 + block) as u8 | 1; 32]));
                (FileKey { inode, size: 4096 * blocks, ..key() }, hashes.collect::<Vec<_>>())
            };
            let mut inodes: Vec<u64> = (0..files).collect();
            inodes.sort_by_key(|inode| inode.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            for part in inodes.chunks(200) {
                index.keep(&part.iter().map(|inode| of(*inode)).collect::<Vec<_>>()).unwrap();
            }
            index.pack_into(&path("packed")).unwrap();
            let bytes = |name: &str| std::fs::metadata(path(name)).unwrap().len() as f64 / (files * blocks) as f64;
            assert!(bytes("packed") <= most, "{blocks}: {}", bytes("packed"));
            assert!(bytes("packed") < bytes("filled"), "{blocks}");
            let packed = TreeIndex::open(&path("packed"), 77, &domain).unwrap();
            assert_eq!(packed.len().unwrap(), files);
            for inode in 0..files {
                let (key, hashes) = of(inode);
                assert_eq!(packed.known(&key).unwrap(), Some(hashes), "{inode}");
            }
        }
    }

    /// 44 bytes for a file and 32 for each of its blocks: not over 36 a block from 11 blocks on.
    #[test]
    fn a_record_takes_44_bytes_and_32_for_each_block() {
        let dir = tempfile::tempdir().unwrap();
        let domain = TrustDomain::from_key([1; 32]);
        for blocks in [1, 11, 100] {
            let index = TreeIndex::create(&dir.path().join(blocks.to_string()), 4096, 77, &domain).unwrap();
            let hashes = vec![Hash::from_bytes([9; 32]); blocks];
            let key = |inode| FileKey { inode, size: 4096 * blocks as u64, ..key() };
            let files: Vec<_> = (0..100).map(|inode| (key(inode), hashes.clone())).collect();
            index.keep(&files).unwrap();
            let table = index.database.begin_read().unwrap().open_table(FILES).unwrap();
            let stored = table.stats().unwrap().stored_bytes();
            assert_eq!(stored, 100 * (44 + 32 * blocks as u64));
            assert_eq!(stored <= 36 * 100 * blocks as u64, blocks >= 11);
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
}
