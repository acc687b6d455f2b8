//! What is in the files of an image, and where each lies: found without any code of what moves them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use onesweep_layout::{Fiemap, LayoutSource as _};
use sha2::{Digest as _, Sha256};

use crate::address_runs::{self, AddressRun};
use crate::age::apply::hex;
use crate::age::image::{PlainMount, sha256};
use crate::bench::measure::mount_options;
use crate::interrupt::Interrupt;
use crate::scratch::Scratch;

/// A file.
#[derive(Debug, Clone, PartialEq)]
struct Known {
    sha256: String,
    /// Its places in the order of its bytes, neighbours joined.
    runs: Vec<AddressRun>,
}

/// All files of an image, by path.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Contents(BTreeMap<PathBuf, Known>);

/// Files that lie elsewhere than before.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Moved {
    pub(super) files: u64,
    /// Bytes in their blocks.
    pub(super) bytes: u64,
    /// Where they lie now.
    pub(super) places: Vec<AddressRun>,
}

impl Contents {
    /// Reads everything, past the emulated disk.
    pub(super) fn of(image: &Path, fs: &str, interrupt: &Interrupt) -> Result<Self, String> {
        let scratch = Scratch::new("defrag-look")?;
        let target = scratch.dir("tree")?;
        let mut mounted = PlainMount::read_only(image, &target, fs, &mount_options(fs, false))?;
        let found = Self::below(&target, interrupt);
        mounted.end()?;
        found
    }

    fn below(root: &Path, interrupt: &Interrupt) -> Result<Self, String> {
        let (mut files, mut dirs, mut fiemap) = (BTreeMap::new(), vec![root.to_owned()], Fiemap::default());
        while let Some(dir) = dirs.pop() {
            let said = |error: io::Error| format!("{}: {error}", dir.display());
            for entry in fs::read_dir(&dir).map_err(said)? {
                let path = entry.map_err(said)?.path();
                let kind = path.symlink_metadata().map_err(said)?.file_type();
                if kind.is_dir() {
                    dirs.push(path);
                } else if kind.is_file() {
                    let known = look(&path, &mut fiemap, interrupt)?;
                    files.insert(path.strip_prefix(root).unwrap_or(&path).to_owned(), known);
                }
            }
        }
        Ok(Self(files))
    }

    /// All places.
    pub(super) fn places(&self) -> Vec<AddressRun> {
        self.0.values().flat_map(|known| known.runs.iter().copied()).collect()
    }

    /// SHA-256 of the names and bytes of all files, wherever they lie.
    pub(super) fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        for (path, known) in &self.0 {
            hash.update(path.as_os_str().as_bytes());
            hash.update([0]);
            hash.update(known.sha256.as_bytes());
        }
        hex(&hash.finalize())
    }

    /// What lies elsewhere than `before`; an error when the files aren't the same, to the byte.
    pub(super) fn since(&self, before: &Self) -> Result<Moved, String> {
        if let Some(path) = before.0.keys().find(|path| !self.0.contains_key(*path)) {
            return Err(format!("{} is gone", path.display()));
        }
        let mut moved = Moved::default();
        for (path, known) in &self.0 {
            let former = before.0.get(path).ok_or_else(|| format!("{} wasn't there before", path.display()))?;
            if known.sha256 != former.sha256 {
                return Err(format!("{} has other bytes than before", path.display()));
            }
            if known.runs != former.runs {
                moved.files += 1;
                moved.bytes += address_runs::bytes(&known.runs);
                moved.places.extend(&known.runs);
            }
        }
        Ok(moved)
    }
}

fn look(path: &Path, fiemap: &mut Fiemap, interrupt: &Interrupt) -> Result<Known, String> {
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let size = file.metadata().map_err(|error| format!("{}: {error}", path.display()))?.len();
    let mut runs: Vec<AddressRun> = Vec::new();
    let mapped = fiemap.map(file.as_fd(), size, &mut |extent| {
        let Some(start) = extent.physical else { return };
        match runs.last_mut() {
            Some(last) if last.end == start => last.end += extent.length,
            _ => runs.push(AddressRun { start, end: start + extent.length }),
        }
    });
    mapped.map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(Known { sha256: sha256(path, interrupt)?, runs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address_runs::tests::run;

    fn contents(files: &[(&str, &str, &[AddressRun])]) -> Contents {
        let known = |sha256: &str, runs: &[AddressRun]| Known { sha256: sha256.into(), runs: runs.to_vec() };
        Contents(files.iter().map(|(path, sha256, runs)| (path.into(), known(sha256, runs))).collect())
    }

    #[test]
    fn what_moved_is_told_and_what_was_lost_fails() {
        let before = contents(&[("a", "1", &[run(0, 8192)]), ("b", "2", &[run(8192, 4096), run(40_960, 4096)])]);
        let after = contents(&[("a", "1", &[run(0, 8192)]), ("b", "2", &[run(81_920, 8192)])]);
        let moved = after.since(&before).unwrap();
        assert_eq!(moved, Moved { files: 1, bytes: 8192, places: vec![run(81_920, 8192)] });
        assert_eq!(before.since(&before).unwrap(), Moved::default());
        assert_eq!(after.sha256(), before.sha256(), "places don't count");
        let damaged = contents(&[("a", "1", &[]), ("b", "3", &[])]);
        let renamed = contents(&[("a", "1", &[]), ("c", "2", &[])]);
        assert!([&damaged, &renamed].iter().all(|other| other.sha256() != before.sha256()));
        assert_eq!(damaged.since(&before).unwrap_err(), "b has other bytes than before");
        let lacking = contents(&[("a", "1", &[])]);
        assert_eq!(lacking.since(&before).unwrap_err(), "b is gone");
        assert_eq!(before.since(&lacking).unwrap_err(), "b wasn't there before");
    }

    #[test]
    fn files_below_are_read() {
        // Not in /tmp, which may be a tmpfs, and that tells no places.
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(dir.path().join("d/file"), "abc").unwrap();
        fs::write(dir.path().join("empty"), "").unwrap();
        let found = Contents::below(dir.path(), &Interrupt::default()).unwrap();
        assert_eq!(found.0.len(), 2);
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(found.0[Path::new("d/file")].sha256, abc);
        assert_eq!(found.0[Path::new("empty")].runs, []);
    }
}
