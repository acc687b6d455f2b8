//! What need not be read: files whose hashes an index has, and of whose contents somebody knows the verdict.

use std::{
    fs, io,
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::Mutex,
};

use onesweep::{FileError, Kind, MetadataSource, SweptFile};
use onesweep_peer::{
    id::{BlockSize, Hash, TrustDomain},
    index::{
        IndexError,
        tree::{FileKey, TreeIndex},
    },
    scan::{Known, content},
};
use onesweep_sys::{files, inode};

use super::Scan;
use crate::{commands::peer::default_index, message, report::Failure, session::Session};

/// Contents that servers are asked about at once.
const BATCH: usize = 1024;

/// The index of a directory that is named.
pub(super) struct Indexed {
    root: PathBuf,
    index: TreeIndex,
    size: BlockSize,
}

impl Indexed {
    /// Bytes of a block.
    pub(super) fn size(&self) -> BlockSize {
        self.size
    }
}

/// The index of each directory, where there is one. Of a named one it is an error that it can't be used, of others a message.
pub(super) fn indexes(
    session: &Session,
    roots: &[PathBuf],
    named: Option<&Path>,
    domain: &TrustDomain,
) -> Result<Vec<Indexed>, Failure> {
    if let Some(index) = named {
        let [root] = roots else { return Err(Failure::told("--index goes with one directory")) };
        let open = open(root, index, domain);
        let opened = open.map_err(|error| Failure::could_not_run(index, "use the index", message::of_error(&error)))?;
        return Ok(vec![opened]);
    }
    let mut all: Vec<Indexed> = Vec::new();
    for root in roots {
        let Ok(index) = default_index(root) else { continue };
        if !root.is_dir() || !index.exists() {
            continue;
        }
        match open(root, &index, domain) {
            Ok(one) if all.first().is_none_or(|first| first.size == one.size) => all.push(one),
            Ok(_) => session.tell(&format!(
                "{}: not used, since it has blocks of another size than the index before",
                message::path_text(&index)
            )),
            Err(error) => {
                let why = message::of_error(&error);
                session.tell(&format!("{}: cannot use the index, so all is read: {why}", message::path_text(&index)));
            }
        }
    }
    Ok(all)
}

fn open(root: &Path, index: &Path, domain: &TrustDomain) -> Result<Indexed, IndexError> {
    let file_system = files::file_system(fs::File::open(root)?.as_fd())?.id;
    let index = TreeIndex::open(index, file_system, domain)?;
    let size =
        BlockSize::new(index.block_bytes().into()).ok_or(IndexError::Damaged { what: "the size of its blocks" })?;
    Ok(Indexed { root: root.to_owned(), index, size })
}

/// What names the content of an open file.
fn key_of(file: impl AsFd) -> io::Result<FileKey> {
    Ok(FileKey::new(&files::statx_fd(file.as_fd())?, inode::generation(file.as_fd())?))
}

/// A file that an index knows.
struct Named {
    paths: Vec<PathBuf>,
    hash: Hash,
}

#[derive(Default)]
struct Found {
    named: Vec<Named>,
    /// Files that have to be read, all their names.
    unknown: Vec<PathBuf>,
    failed: Option<IndexError>,
}

/// Reports what is known of the files below the indexed directories, without reading them; gives the paths that are left, of
/// them and of all other roots.
pub(super) fn report_known(
    session: &Session,
    scan: &Scan<'_>,
    indexes: &[Indexed],
    roots: &[PathBuf],
) -> Result<Vec<PathBuf>, Failure> {
    let Some(judge) = scan.judge else { return Ok(roots.to_vec()) };
    let is_indexed = |root: &&PathBuf| indexes.iter().any(|one| one.root == **root);
    let mut left: Vec<PathBuf> = roots.iter().filter(|root| !is_indexed(root)).cloned().collect();
    for one in indexes {
        let found = Mutex::new(Found::default());
        let read = session.bulk_read(std::slice::from_ref(&one.root))?;
        let read = read.one_file_system(true).metadata(MetadataSource::Walk).content(false);
        session.run_parallel(read, |item: Result<SweptFile, FileError>| match item {
            Ok(file) => take(session, judge.domain(), one, &found, &file),
            Err(error) => {
                session.complain_of(&error);
                true
            }
        })?;
        let mut found = found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(error) = found.failed {
            return Err(Failure::could_not_run(&one.root, "use its index", message::of_error(&error)));
        }
        left.append(&mut found.unknown);
        for batch in found.named.chunks(BATCH) {
            let hashes: Vec<Hash> = batch.iter().map(|file| file.hash).collect();
            for (file, known) in batch.iter().zip(judge.known(&hashes)) {
                match known {
                    Some(Known { verdict, source }) => scan.report(&file.paths, &verdict, source),
                    None => left.extend(file.paths.iter().cloned()),
                }
            }
        }
    }
    Ok(left)
}

fn take(session: &Session, domain: &TrustDomain, one: &Indexed, found: &Mutex<Found>, file: &SweptFile) -> bool {
    if file.metadata().kind != Kind::File {
        return true;
    }
    let looked = files::open_file_untouched(file.open_path()).and_then(|fd| key_of(fd.as_fd()));
    let hashes = match looked {
        Ok(key) => one.index.hashes(&key).map(|hashes| hashes.map(|hashes| (key.size, hashes))),
        Err(error) => {
            session.complain(&message::of_other(file.path(), "look at it", &error));
            return true;
        }
    };
    let mut found = found.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut paths = vec![file.path().to_owned()];
    paths.extend(file.links().iter().cloned());
    match hashes {
        Ok(Some((size, hashes))) => {
            let hash = content::of_blocks(domain, one.size, size, &hashes);
            found.named.push(Named { paths, hash });
        }
        Ok(None) => found.unknown.append(&mut paths),
        Err(error) => {
            found.failed = Some(error);
            return false;
        }
    }
    true
}
