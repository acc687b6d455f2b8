//! The index of a directory: hashes for each file, under what its inode says.
//!
//! A file is found by inode number, generation, size, mtime and ctime, all of them. So one that was changed behind the
//! index's back is not found, and never taken for what it was. Times tick coarsely, though: a file that was changed just
//! before it was read may be changed again within the same tick, so such a file gets no hashes ([`FileKey::is_settled`]). Nor
//! does one that somebody has open for writing: a long write, and one through a mapping, change times only where they begin.

use std::{
    fs::OpenOptions,
    ops::RangeInclusive,
    os::{fd::BorrowedFd, unix::fs::OpenOptionsExt},
    path::Path,
    time::SystemTime,
};

use onesweep_sys::{files::Stat, lease};
use redb::{
    AccessGuard, Database, ReadableDatabase, ReadableTable, ReadableTableMetadata, Table, TableDefinition,
    backends::FileBackend,
};

use super::{
    IndexError,
    parts::{Leaf, parts},
};
use crate::id::{Hash, TrustDomain};

const HEADER: TableDefinition<&str, &[u8]> = TableDefinition::new("header");
/// By the number of the inode, and of the first block whose hash is in a part of its record.
const FILES: TableDefinition<(u64, u32), &[u8]> = TableDefinition::new("files");
const VERSION: u32 = 2;
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

    /// The facts, as a record begins with them: short ones, and none is the beginning of another.
    fn encode(&self) -> Vec<u8> {
        let mut bytes = self.generation.to_le_bytes().to_vec();
        push_number(&mut bytes, self.size);
        // Most files have not been touched since they were written.
        let since = self.ctime.0.wrapping_sub(self.mtime.0);
        for (seconds, nanoseconds) in [(self.mtime.0, self.mtime.1), (since, self.ctime.1)] {
            push_number(&mut bytes, (seconds << 1 ^ seconds >> 63) as u64);
            bytes.extend(nanoseconds.to_le_bytes());
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

/// Seven bits a byte, the lowest ones first, and the highest bit of each byte but the last one.
fn push_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// How many bytes of a record are facts.
fn facts_bytes(record: &[u8]) -> Option<usize> {
    let number = |at: usize| Some(at + 1 + record.get(at..)?.iter().position(|byte| byte & 0x80 == 0)?);
    let size = number(4)?;
    let mtime = number(size)? + 4;
    let ctime = number(mtime)? + 4;
    (ctime <= record.len()).then_some(ctime)
}

/// Whether the part that begins with this block goes on where a record ends.
fn follows(record: &[u8], facts: usize, block: u32) -> bool {
    record.len() == facts + block as usize * Hash::BYTES
}

/// Keys of all parts of a file.
const fn parts_of(inode: u64) -> RangeInclusive<(u64, u32)> {
    (inode, 0)..=(inode, u32::MAX)
}

/// Makes the file, of which there is none; nobody else may read which blocks are equal.
fn make(path: &Path) -> Result<Database, redb::Error> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
    Ok(Database::builder().create_with_backend(FileBackend::new(file)?)?)
}

/// Writes a record that begins with so many bytes of facts, and of which no part is there.
fn write(
    table: &mut Table<'_, (u64, u32), &'static [u8]>,
    (inode, record, facts): (u64, &[u8], usize),
    leaf: &mut Leaf,
) -> Result<(), redb::Error> {
    for (block, part) in parts(record, facts, leaf) {
        table.insert((inode, block), part)?;
    }
    Ok(())
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
        Self::begin(make(path).map_err(io_error)?, block_bytes, file_system, domain)
    }

    fn begin(
        database: Database,
        block_bytes: u32,
        file_system: u64,
        domain: &TrustDomain,
    ) -> Result<TreeIndex, IndexError> {
        let fill = || -> Result<(), redb::Error> {
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
        fill().map_err(io_error)?;
        Ok(TreeIndex { database, block_bytes })
    }

    /// Writes it anew, of which there is no file yet, in the order of the inodes and with no room between: a database that was filled in
    /// another order has pages that are half empty, and doubles its file when it grows.
    pub fn pack_into(&self, path: &Path) -> Result<(), IndexError> {
        let pack = || -> Result<(), redb::Error> {
            let mut packed = make(path)?;
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
            let (mut entries, mut leaf) = (files.iter()?.peekable(), Leaf::new());
            while entries.peek().is_some() {
                // What a transaction has changed is in memory until its end.
                let transaction = packed.begin_write()?;
                {
                    let (mut table, mut bytes) = (transaction.open_table(FILES)?, 0);
                    while bytes < PACK_BYTES
                        && let Some(first) = entries.next()
                    {
                        let (key, part) = first?;
                        let ((inode, begin), mut record) = (key.value(), part.value().to_vec());
                        let facts = facts_bytes(&record).filter(|_| begin == 0);
                        let mut is_whole = facts.is_some();
                        let is_of_it = |more: &Result<(AccessGuard<'_, (u64, u32)>, _), _>| {
                            more.as_ref().map_or(true, |(key, _)| key.value().0 == inode)
                        };
                        while let Some(more) = entries.next_if(is_of_it) {
                            let (key, part) = more?;
                            is_whole &= facts.is_some_and(|facts| follows(&record, facts, key.value().1));
                            record.extend(part.value());
                        }
                        let Some(facts) = facts.filter(|_| is_whole) else { continue };
                        write(&mut table, (inode, &record, facts), &mut leaf)?;
                        bytes += record.len();
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
                    let mut record = key.encode();
                    let facts = record.len();
                    hashes.iter().for_each(|hash| record.extend(hash.as_bytes()));
                    // The one before may have had other parts.
                    table.retain_in(parts_of(key.inode), |_, _| false)?;
                    write(&mut table, (key.inode, &record, facts), &mut Leaf::new())?;
                }
            }
            Ok(transaction.commit()?)
        };
        keep().map_err(io_error)
    }

    /// Forgets a file, durably. Whether anything was known of it.
    pub fn forget(&self, inode: u64) -> Result<bool, IndexError> {
        let is_known = || -> Result<bool, redb::Error> {
            Ok(self.database.begin_read()?.open_table(FILES)?.range(parts_of(inode))?.next().transpose()?.is_some())
        };
        if !is_known().map_err(io_error)? {
            return Ok(false);
        }
        let forget = || -> Result<(), redb::Error> {
            let transaction = self.database.begin_write()?;
            transaction.open_table(FILES)?.retain_in(parts_of(inode), |_, _| false)?;
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
        let look = || -> Result<Option<Vec<Hash>>, redb::Error> {
            let table = self.database.begin_read()?.open_table(FILES)?;
            let (facts, mut record) = (key.encode(), Vec::new());
            for entry in table.range(parts_of(key.inode))? {
                let (at, part) = entry?;
                let is_next = match at.value().1 {
                    0 => part.value().starts_with(&facts),
                    block => follows(&record, facts.len(), block),
                };
                if !is_next {
                    return Ok(None);
                }
                record.extend(part.value());
            }
            let Some((hashes, [])) = record.strip_prefix(&facts[..]).map(<[u8]>::as_chunks) else { return Ok(None) };
            Ok(Some(hashes.iter().map(|hash| Hash::from_bytes(*hash)).collect()))
        };
        // Each block has one, or the record isn't whole.
        let is_whole = |hashes: &Vec<Hash>| hashes.len() as u64 == key.size.div_ceil(self.block_bytes.into());
        Ok(look().map_err(io_error)?.filter(is_whole))
    }

    /// How many files it has; all of it is looked at.
    pub fn len(&self) -> Result<u64, IndexError> {
        let count = || -> Result<u64, redb::Error> {
            let (table, mut files) = (self.database.begin_read()?.open_table(FILES)?, 0);
            for entry in table.iter()? {
                files += u64::from(entry?.0.value().1 == 0);
            }
            Ok(files)
        };
        count().map_err(io_error)
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> Result<bool, IndexError> {
        let look = || -> Result<bool, redb::Error> { Ok(self.database.begin_read()?.open_table(FILES)?.is_empty()?) };
        look().map_err(io_error)
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
mod tests;
