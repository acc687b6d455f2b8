//! Doing a recipe's operations to a mounted file system.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::recipe::Op;

/// What was done.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) operations: u64,
    /// SHA-256 of the operations' text.
    pub(crate) hash: String,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// Does all operations below `root`.
pub(crate) fn apply(ops: impl Iterator<Item = Op>, root: &Path) -> Result<Done, String> {
    let mut sizes: HashMap<String, u64> = HashMap::new();
    let mut hash = Sha256::new();
    let mut operations = 0;
    for op in ops {
        one(&op, root, operations, &sizes).map_err(|error| format!("operation {operations}, {op}: {error}"))?;
        hash.update(format!("{op}\n"));
        operations += 1;
        match op {
            Op::Create(path, size) | Op::Rewrite(path, size) => {
                sizes.insert(path, size);
            }
            Op::Append(path, more) => *sizes.entry(path).or_default() += more,
            Op::Remove(path) => {
                sizes.remove(&path);
            }
            Op::Dir(_) | Op::Overwrite(..) | Op::Read(_) | Op::SyncFile(_) | Op::Sync => {}
        }
    }
    sync(root).map_err(|error| error.to_string())?;
    let hash = hex(&hash.finalize());
    Ok(Done { operations, hash, files: sizes.len() as u64, bytes: sizes.values().sum() })
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn one(op: &Op, root: &Path, number: u64, sizes: &HashMap<String, u64>) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true);
    match op {
        Op::Dir(path) => fs::create_dir(root.join(path)),
        Op::Create(path, size) => fill(&options.create_new(true).open(root.join(path))?, path, number, 0, *size),
        Op::Rewrite(path, size) => fill(&options.truncate(true).open(root.join(path))?, path, number, 0, *size),
        Op::Overwrite(path, size) => fill(&options.open(root.join(path))?, path, number, 0, *size),
        Op::Append(path, more) => {
            let from = sizes.get(path).copied().unwrap_or_default();
            fill(&options.append(true).open(root.join(path))?, path, number, from, *more)
        }
        Op::Read(_) => Ok(()), // moves nothing on the disk
        Op::Remove(path) => fs::remove_file(root.join(path)),
        Op::SyncFile(path) => File::open(root.join(path))?.sync_all(),
        Op::Sync => sync(root),
    }
}

/// Brings the file system below `root` to its image.
fn sync(root: &Path) -> io::Result<()> {
    crate::mount::run("sync", ["--file-system".as_ref(), root.as_os_str()]).map(drop).map_err(io::Error::other)
}

/// Writes `len` bytes that say which file, operation and place they belong to: easy to check, and to compress.
fn fill(file: &File, path: &str, number: u64, from: u64, len: u64) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let mut at = from;
    while at < from + len {
        let line = format!("{path} {number} {at}\n");
        let line = &line.as_bytes()[..line.len().min((from + len - at) as usize)];
        // One line is repeated for a block's rest: the place need not be exact to the byte.
        let until = (at / 4096 + 1) * 4096;
        while at < until.min(from + len) {
            let part = line.len().min((from + len - at) as usize);
            out.write_all(&line[..part])?;
            at += part as u64;
        }
    }
    out.flush()
}
