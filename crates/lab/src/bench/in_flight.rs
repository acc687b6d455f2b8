//! A reader in directory order with many files in flight: what asynchronous reads alone would give.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Reads every file below `root`, each as a whole, by that many threads. Returns the files and their bytes.
pub(crate) fn read(root: &Path, threads: usize) -> Result<(u64, u64), String> {
    let (sender, receiver) = sync_channel(threads);
    let receiver = Arc::new(Mutex::new(receiver));
    let readers: Vec<_> = (0..threads)
        .map(|_| {
            let receiver = Arc::clone(&receiver);
            thread::Builder::new().stack_size(64 << 10).spawn(move || read_what_comes(&receiver))
        })
        .collect::<Result<_, _>>()
        .map_err(|error| format!("a reading thread: {error}"))?;
    let walked = walk(root, &sender).map_err(|error| format!("{}: {error}", root.display()));
    drop(sender);
    let mut total = (0, 0);
    for reader in readers {
        let (files, bytes) = reader.join().map_err(|_| "a reading thread panicked")??;
        total = (total.0 + files, total.1 + bytes);
    }
    walked.map(|()| total)
}

/// Sends the files of a directory in the order in which it lists them, then those below it.
fn walk(dir: &Path, files: &SyncSender<PathBuf>) -> std::io::Result<()> {
    let mut dirs = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            dirs.push(entry.path());
        } else if kind.is_file() {
            files.send(entry.path()).map_err(std::io::Error::other)?;
        }
    }
    dirs.iter().try_for_each(|dir| walk(dir, files))
}

fn read_what_comes(files: &Mutex<Receiver<PathBuf>>) -> Result<(u64, u64), String> {
    let (mut count, mut bytes, mut content) = (0, 0, Vec::new());
    loop {
        let next = files.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(path) = next else {
            return Ok((count, bytes));
        };
        let said = |error| format!("{}: {error}", path.display());
        content.clear();
        File::open(&path).and_then(|mut file| file.read_to_end(&mut content)).map_err(said)?;
        count += 1;
        bytes += content.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_read_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/b")).unwrap();
        for (name, len) in [("one", 10), ("a/two", 0), ("a/b/three", 100_000)] {
            fs::write(dir.path().join(name), vec![1; len]).unwrap();
        }
        assert_eq!(read(dir.path(), 3), Ok((3, 100_010)));
        assert!(read(&dir.path().join("missing"), 2).is_err());
    }
}
