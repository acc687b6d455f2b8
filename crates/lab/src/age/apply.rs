//! Doing a recipe's operations to a mounted file system.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use sha2::{Digest as _, Sha256};

use super::apart::Apart;
use super::recipe::Op;
use super::tree::Tree;
use crate::interrupt::Interrupt;

/// What was done.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) operations: u64,
    /// SHA-256 of the operations' text.
    pub(crate) hash: String,
}

/// Does all operations below `root`, where `tree` is, and lets `tree` follow.
pub(crate) fn apply(
    ops: impl Iterator<Item = Op>,
    root: &Path,
    tree: &mut Tree,
    interrupt: &Interrupt,
) -> Result<Done, String> {
    apply_with(ops, root, tree, interrupt, &mut |_| Ok(()))
}

/// The same with something `beside` it, after each operation.
pub(crate) fn apply_with(
    ops: impl Iterator<Item = Op>,
    root: &Path,
    tree: &mut Tree,
    interrupt: &Interrupt,
    beside: &mut dyn FnMut(&Op) -> io::Result<()>,
) -> Result<Done, String> {
    let mut apart = Apart::default();
    let mut hash = Sha256::new();
    let before = tree.operations;
    for op in ops {
        interrupt.check()?;
        let number = tree.operations;
        let done = one(&op, root, tree, &mut apart).and_then(|()| beside(&op));
        done.map_err(|error| format!("operation {number}, {op}: {error}"))?;
        hash.update(format!("{op}\n"));
        tree.follow(&op);
    }
    sync(root).map_err(|error| error.to_string())?;
    Ok(Done { operations: tree.operations - before, hash: hex(&hash.finalize()) })
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn one(op: &Op, root: &Path, tree: &Tree, apart: &mut Apart) -> io::Result<()> {
    let number = tree.operations;
    let mut options = OpenOptions::new();
    options.write(true);
    match op {
        Op::Dir(path) => fs::create_dir(root.join(path)),
        Op::Create(path, size) => fill(&options.create_new(true).open(root.join(path))?, path, number, 0, *size),
        Op::Rewrite(path, size) => fill(&options.truncate(true).open(root.join(path))?, path, number, 0, *size),
        Op::Overwrite(path, size) => fill(&options.open(root.join(path))?, path, number, 0, *size),
        Op::Append(path, more) => {
            let from = tree.size(path).unwrap_or_default();
            fill(&options.append(true).open(root.join(path))?, path, number, from, *more)
        }
        Op::AppendApart(path, more) => {
            let from = tree.size(path).unwrap_or_default();
            apart.append(&root.join(path), from, |file| fill(file, path, number, from, *more))
        }
        Op::Resize(path, size) => options.open(root.join(path))?.set_len(*size),
        Op::Time(path, seconds) => {
            options.open(root.join(path))?.set_modified(UNIX_EPOCH + Duration::from_secs(*seconds))
        }
        Op::Read(_) | Op::Day(_) => Ok(()), // moves nothing on the disk
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
