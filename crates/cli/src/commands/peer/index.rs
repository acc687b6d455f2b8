//! `onesweep peer index`: which content each block has (docs/peer.md).

mod device;
mod tree;

use std::{
    fs,
    ops::Range,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use onesweep_peer::index::IndexError;
use serde::Serialize;

use crate::{
    args::PeerIndexArgs,
    report::Failure,
    session::{Session, StandardOutput},
};

/// Where indexes are kept.
const DIRECTORY: &str = "/var/lib/onesweep/index";

/// What `--json` tells.
#[derive(Debug, Default, Serialize)]
struct Details {
    /// `device`, `image` or `directory`.
    kind: &'static str,
    index: String,
    index_bytes: u64,
    block_bytes: u32,
    blocks: u64,
    zero_blocks: u64,
    /// Blocks, or files of a directory, of which nothing was known before.
    new: u64,
    /// Blocks that were suspect.
    suspect: u64,
    /// Blocks, or files, that differ from the index.
    differing: u64,
    /// Of them called valid.
    stale: u64,
    /// Bytes that were read.
    bytes: u64,
    /// Bytes that can't be read.
    unreadable_bytes: u64,
    /// Files without hashes: changed too recently to be told from the next change, open for writing, or perhaps so.
    unsettled_files: u64,
    /// Of them those of which nobody can tell who has them open for writing.
    unknown_writers: u64,
    /// Whether the marks of the device can tell that it was changed elsewhere.
    has_marks: bool,
}

pub(super) fn run(args: PeerIndexArgs) -> Result<u8, Failure> {
    let path = &args.path;
    let metadata = fs::metadata(path).map_err(|error| Failure::io(path, "look at it", &error))?;
    let domain = super::domain(&args.key)?;
    let index = match &args.index {
        Some(index) => index.clone(),
        None => place_of(path)?,
    };
    let session = Session::start(args.common.clone(), StandardOutput::Summary)?;
    if metadata.is_dir() {
        tree::run(&session, &args, &domain, &index)
    } else {
        device::run(&session, &args, &domain, &index)
    }
}

/// Where the index of a path is kept; its directory is made.
pub(super) fn place_of(path: &Path) -> Result<PathBuf, Failure> {
    let place = default_index(path).map_err(|error| Failure::io(path, "look at it", &error))?;
    let parent = Path::new(DIRECTORY);
    let made = fs::DirBuilder::new().recursive(true).create(parent);
    made.map_err(|error| Failure::io(parent, "make the directory; name a file by --index", &error))?;
    Ok(place)
}

/// The path with `-` for `/`, as systemd names units; a `-` in it is doubled.
pub(in crate::commands) fn default_index(path: &Path) -> std::io::Result<PathBuf> {
    let path = path.canonicalize()?;
    let mut name = Vec::new();
    for byte in path.as_os_str().as_bytes().iter().skip(1) {
        match byte {
            b'/' => name.push(b'-'),
            b'-' => name.extend(b"--"),
            byte => name.push(*byte),
        }
    }
    name.extend(b".index");
    Ok(Path::new(DIRECTORY).join(std::ffi::OsStr::from_bytes(&name)))
}

/// The file beside `index` in which a new one is made.
pub(super) fn draft(index: &Path) -> PathBuf {
    let mut name = index.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Opens a file for an index; nobody else may read which blocks are equal.
pub(super) fn open_file(path: &Path, create: bool) -> Result<fs::File, Failure> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(create).truncate(false).mode(0o600);
    let step = if create { "make the index" } else { "open the index" };
    let file = options.open(path).map_err(|error| Failure::io(path, step, &error))?;
    let in_use = || Failure::could_not_run(path, step, "it is in use");
    file.try_lock().map_err(|_| in_use())?;
    if create {
        // Not before it is ours: another process may have filled it, and put it in its place just now.
        let is_there = |there: fs::Metadata| Ok(there.ino() == file.metadata()?.ino());
        if !fs::metadata(path).and_then(is_there).unwrap_or(false) {
            return Err(in_use());
        }
        file.set_len(0).map_err(|error| Failure::io(path, step, &error))?;
    }
    Ok(file)
}

/// Puts a complete index in the place of the one before.
pub(super) fn put_in_place(draft: &Path, index: &Path) -> Result<(), Failure> {
    let parent = index.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let renamed = fs::rename(draft, index).and_then(|()| fs::File::open(parent)?.sync_all());
    renamed.map_err(|error| Failure::io(index, "put the index in its place", &error))
}

pub(super) fn index_failure(path: &Path, step: &str, error: &IndexError) -> Failure {
    match error {
        IndexError::Io(error) => Failure::io(path, step, error),
        error => Failure::could_not_run(path, step, error),
    }
}

fn range_text(range: &Range<u64>) -> String {
    format!("bytes {} to {}", range.start, range.end - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_indexes_are_those_of_paths() {
        assert_eq!(default_index(Path::new("/dev/../dev/null")).unwrap(), Path::new(DIRECTORY).join("dev-null.index"));
        let dir = tempfile::tempdir().unwrap();
        let [one, other] = ["a-b", "a"].map(|name| dir.path().join(name));
        fs::create_dir(&one).unwrap();
        fs::create_dir_all(other.join("b")).unwrap();
        assert_ne!(default_index(&one).unwrap(), default_index(&other.join("b")).unwrap());
    }
}
