//! A directory, file by file, in one sweep.

use std::{
    fs,
    io::{self, Read, Write},
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::Path,
    sync::Mutex,
    time::SystemTime,
};

use onesweep::{FileError, Kind, MetadataSource, SweptFile};
use onesweep_peer::{
    id::{Hash, TrustDomain},
    index::{
        IndexError,
        tree::{FileKey, TreeIndex, hashes},
    },
};
use onesweep_sys::{files, inode, lease};

use super::{Details, draft, index_failure, put_in_place};
use crate::{args::PeerIndexArgs, message, report::Failure, session::Session, size::Size};

/// A file of more blocks is left out: its hashes would fill the memory. 64 GiB by blocks of 4 KiB.
const BLOCKS_MAX: u64 = 1 << 24;
/// Hashes that are kept at once.
const BATCH: usize = 1 << 18;

#[derive(Default)]
struct Found {
    batch: Vec<(FileKey, Vec<Hash>)>,
    batch_hashes: usize,
    details: Details,
    failed: Option<IndexError>,
}

pub(super) fn run(
    session: &Session,
    args: &PeerIndexArgs,
    domain: &TrustDomain,
    index_path: &Path,
) -> Result<u8, Failure> {
    let roots = std::slice::from_ref(&args.path);
    session.check_roots(None, roots)?;
    let look = |error| Failure::io(&args.path, "look at it", &error);
    let file_system = files::file_system(fs::File::open(&args.path).map_err(look)?.as_fd()).map_err(look)?.id;
    let draft = draft(index_path);
    let failed = |error: &IndexError| index_failure(index_path, "use the index", error);
    let index = if args.check {
        TreeIndex::open(index_path, file_system, domain)
    } else {
        match fs::remove_file(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Failure::io(&draft, "remove", &error)),
            _ => TreeIndex::create(&draft, args.block_size, file_system, domain),
        }
    };
    let index = index.map_err(|error| failed(&error))?;
    let (found, begun) = (Mutex::new(Found::default()), SystemTime::now());
    // A power cut must not bring back bytes of before under times of now.
    let synced = fs::File::open(&args.path).and_then(|root| files::sync_file_system(root.as_fd()));
    synced.map_err(|error| Failure::io(&args.path, "make durable what was written before", &error))?;
    let mut summary = onesweep::Summary::default();
    if !args.learn {
        let read = session.bulk_read(roots)?.one_file_system(true).metadata(MetadataSource::Walk);
        let take = |item: Result<SweptFile, FileError>| match item {
            Ok(file) => take(session, &Taking { args, domain, index: &index, begun }, &found, file),
            Err(error) => {
                session.complain_of(&error);
                true
            }
        };
        summary = session.run_parallel(read, take)?;
    }
    let mut found = found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    if found.failed.is_none() {
        found.failed = index.keep(&found.batch).err();
    }
    if let Some(error) = &found.failed {
        return Err(failed(error));
    }
    let block_bytes = index.block_bytes();
    if session.is_interrupted() && !args.check {
        let _ = fs::remove_file(&draft);
    } else if !args.check {
        let packed = super::draft(&draft);
        match fs::remove_file(&packed) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Failure::io(&packed, "remove", &error));
            }
            _ => index.pack_into(&packed).map_err(|error| failed(&error))?,
        }
        put_in_place(&packed, index_path)?;
        let _ = fs::remove_file(&draft);
    }
    drop(index);
    let mut details = found.details;
    details.kind = "directory";
    details.index = index_path.to_string_lossy().into_owned();
    details.index_bytes = fs::metadata(index_path).map_or(0, |metadata| metadata.blocks() * 512);
    details.block_bytes = block_bytes;
    details.has_marks = true;
    session.end_progress();
    if details.unknown_writers > 0 {
        let (name, count) = (message::path_text(&args.path), details.unknown_writers);
        session.tell(&format!(
            "{name}: of {count} files nobody can tell whether they are being written; index one's own, or as root (CAP_LEASE)"
        ));
    }
    if details.stale > 0 {
        let name = message::path_text(&args.path);
        session.count_errors(details.stale);
        session.tell(&format!("{name}: {} files changed though their inodes say nothing of it", details.stale));
    }
    if !session.is_json() && !session.is_quiet() && !session.is_interrupted() {
        let told = writeln!(
            io::stdout(),
            "{}: {} blocks of {}, {} in the index; {} files left out: changed too recently, or perhaps being written",
            message::path_text(index_path),
            details.blocks,
            Size(details.block_bytes.into()),
            Size(details.index_bytes),
            details.unsettled_files,
        );
        told.map_err(|error| session.output(&error))?;
    }
    session.finish("peer index", &summary, details)
}

/// What all files have in common.
#[derive(Clone, Copy)]
struct Taking<'a> {
    args: &'a PeerIndexArgs,
    domain: &'a TrustDomain,
    index: &'a TreeIndex,
    /// Before anything was read.
    begun: SystemTime,
}

/// Hashes one file, and keeps the hashes or compares them. False when the index can't be written.
fn take(session: &Session, taking: &Taking<'_>, found: &Mutex<Found>, mut file: SweptFile) -> bool {
    let Taking { args, domain, index, begun } = *taking;
    // Another name of a file that came already has the same inode.
    if file.metadata().kind != Kind::File || file.linked_to().is_some() {
        return true;
    }
    let (key, writers) = match key(&file) {
        Ok(found) => found,
        Err(error) => {
            session.complain(&message::of_other(file.path(), "look at it", &error));
            return true;
        }
    };
    if key.size.div_ceil(index.block_bytes().into()) > BLOCKS_MAX {
        let name = message::path_text(file.path());
        session.tell(&format!(
            "{name}: left out of the index, since it has more than {BLOCKS_MAX} blocks; see --block-size"
        ));
        return true;
    }
    // It was read at some time after that.
    let is_settled = key.is_settled(begun) && writers == Writers::None;
    let hashed = match file.bytes() {
        Some(bytes) => Ok(hashes(domain, index.block_bytes(), bytes)),
        None => stream(domain, index.block_bytes(), &mut file),
    };
    let hashed = match hashed {
        Ok(hashed) => hashed,
        Err(error) => {
            session.complain(&message::of_other(file.path(), "read", &error));
            return true;
        }
    };
    let mut found = found.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    found.details.blocks += hashed.len() as u64;
    found.details.bytes += key.size;
    if args.check {
        match index.hashes(&key) {
            Ok(Some(kept)) if kept == hashed => return true,
            Ok(Some(_)) => {
                found.details.differing += 1;
                found.details.stale += 1;
                session.tell(&format!("{}: differs", message::path_text(file.path())));
            }
            Ok(None) => found.details.new += 1,
            Err(error) => {
                found.failed = Some(error);
                return false;
            }
        }
    } else {
        found.details.new += 1;
    }
    if !is_settled {
        found.details.unsettled_files += 1;
        found.details.unknown_writers += u64::from(writers == Writers::Unknown);
        return true;
    }
    found.batch_hashes += hashed.len() + 1;
    found.batch.push((key, hashed));
    if found.batch_hashes < BATCH {
        return true;
    }
    let batch = std::mem::take(&mut found.batch);
    found.batch_hashes = 0;
    found.failed = index.keep(&batch).err();
    found.failed.is_none()
}

/// Who has a file open for writing, and may go on to write it without another ctime.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writers {
    None,
    Some,
    /// It is told of one's own files, or with CAP_LEASE, and not by every file system.
    Unknown,
}

/// What names the content: as the sweep saw it, and the generation of the same inode. And who writes it.
fn key(file: &SweptFile) -> io::Result<(FileKey, Writers)> {
    let metadata = file.metadata();
    let fd = files::open_file_untouched(file.open_path())?;
    let now = files::statx_fd(fd.as_fd())?;
    if (now.ino, now.dev) != (metadata.ino, metadata.dev) {
        return Err(io::Error::other("another file has its name now"));
    }
    let writers = match lease::is_open_for_writing(fd.as_fd()) {
        Ok(false) => Writers::None,
        Ok(true) => Writers::Some,
        Err(_) => Writers::Unknown,
    };
    let key = FileKey {
        inode: metadata.ino,
        generation: inode::generation(fd.as_fd())?.unwrap_or(0),
        size: metadata.size,
        mtime: (metadata.mtime.seconds, metadata.mtime.nanoseconds),
        ctime: (metadata.ctime.seconds, metadata.ctime.nanoseconds),
    };
    Ok((key, writers))
}

fn stream(domain: &TrustDomain, block_bytes: u32, file: &mut SweptFile) -> io::Result<Vec<Hash>> {
    let mut reader = file.reader();
    let mut all = Vec::new();
    let mut block = Vec::with_capacity(block_bytes as usize);
    loop {
        block.clear();
        if reader.by_ref().take(block_bytes.into()).read_to_end(&mut block)? == 0 {
            return Ok(all);
        }
        all.push(domain.hash(&block));
    }
}
