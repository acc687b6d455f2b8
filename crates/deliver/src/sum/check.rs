//! Checking files against a manifest, in whatever order they come.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard},
};

use onesweep::{FileError, Kind, SweptFile};
use onesweep_sys::files;

use super::{Algorithm, Digest, Expected};

/// What became of one file of the manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The file, as the manifest names it.
    pub path: PathBuf,
    /// How it ended.
    pub kind: VerdictKind,
}

/// How checking one file ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerdictKind {
    /// The digest is the one of the manifest.
    Ok,
    /// The digest is another one.
    Mismatch,
    /// The file could not be read.
    Unreadable,
}

/// Compares swept files with a manifest. Shared by the threads that hash.
#[derive(Debug)]
pub struct Check {
    open: Mutex<HashMap<PathBuf, Vec<Expected>>>,
}

impl Check {
    /// Takes the lines of a manifest. A file may be in several.
    pub fn new(expected: impl IntoIterator<Item = Expected>) -> Self {
        let mut open: HashMap<PathBuf, Vec<Expected>> = HashMap::new();
        for line in expected {
            open.entry(line.path.clone()).or_default().push(line);
        }
        Self { open: Mutex::new(open) }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<PathBuf, Vec<Expected>>> {
        self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The files that still wait for their verdict: at the start, all of them, sorted.
    pub fn paths(&self) -> Vec<PathBuf> {
        let mut paths: Vec<_> = self.open().keys().cloned().collect();
        paths.sort();
        paths
    }

    /// Checks one swept file under all its names. An error belongs to the whole file; its verdicts come by
    /// [`Check::unreadable`].
    pub fn check(&self, mut file: SweptFile) -> Result<Vec<Verdict>, FileError> {
        if file.metadata().kind != Kind::File {
            return Ok(self.unreadable(file.path()));
        }
        let wanted = self.algorithms_of(&file);
        if file.linked_to().is_some() {
            return self.read_and_compare(file.path(), file.open_path(), &wanted);
        }
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let digests = digests(&mut file, &wanted)?;
        let names = || std::iter::once(file.path()).chain(file.links().iter().map(PathBuf::as_path));
        Ok(wanted
            .iter()
            .zip(digests)
            .flat_map(|(&algorithm, digest)| self.compare(algorithm, names(), digest))
            .collect())
    }

    fn algorithms_of(&self, file: &SweptFile) -> Vec<Algorithm> {
        let open = self.open();
        let names = || std::iter::once(file.path()).chain(file.links().iter().map(PathBuf::as_path));
        let mut wanted: Vec<Algorithm> = Vec::new();
        for line in names().filter_map(|name| open.get(name)).flatten() {
            if !wanted.contains(&line.algorithm) {
                wanted.push(line.algorithm);
            }
        }
        wanted
    }

    /// A further name of a file of an earlier window. Its digest may not have been asked for then, and it is rare, so
    /// it is simply read.
    fn read_and_compare(
        &self,
        path: &Path,
        opened: &Path,
        algorithms: &[Algorithm],
    ) -> Result<Vec<Verdict>, FileError> {
        let digests = files::open_file(opened)
            .and_then(|file| Algorithm::digests_reader(algorithms, &mut std::fs::File::from(file)));
        let digests = digests.map_err(|source| unread(path, source))?;
        let one = || std::iter::once(path);
        Ok(algorithms
            .iter()
            .zip(digests)
            .flat_map(|(&algorithm, digest)| self.compare(algorithm, one(), digest))
            .collect())
    }

    fn compare<'a>(&self, algorithm: Algorithm, names: impl Iterator<Item = &'a Path>, digest: Digest) -> Vec<Verdict> {
        let mut open = self.open();
        let mut verdicts = Vec::new();
        for path in names {
            let Some(lines) = open.get_mut(path) else { continue };
            for line in lines.extract_if(.., |line| line.algorithm == algorithm) {
                let kind = if line.digest == digest { VerdictKind::Ok } else { VerdictKind::Mismatch };
                verdicts.push(Verdict { path: path.to_owned(), kind });
            }
            if lines.is_empty() {
                open.remove(path);
            }
        }
        verdicts
    }

    /// Gives the file up: it could not be read.
    pub fn unreadable(&self, path: &Path) -> Vec<Verdict> {
        let lines = self.open().remove(path).unwrap_or_default();
        lines.into_iter().map(|line| Verdict { path: line.path, kind: VerdictKind::Unreadable }).collect()
    }

    /// Gives up all that got no verdict, when the sweep has ended.
    pub fn finish(&self) -> Vec<Verdict> {
        self.paths().iter().flat_map(|path| self.unreadable(path)).collect()
    }
}

/// The content is read once, whatever it is to be compared with: a streamed file may be larger than memory.
fn digests(file: &mut SweptFile, algorithms: &[Algorithm]) -> Result<Vec<Digest>, FileError> {
    if let Some(bytes) = file.bytes() {
        return Ok(algorithms.iter().map(|algorithm| algorithm.digest(bytes)).collect());
    }
    let read = Algorithm::digests_reader(algorithms, &mut file.reader());
    read.map_err(|source| unread(file.path(), source))
}

fn unread(path: &Path, source: std::io::Error) -> FileError {
    FileError::Io { path: path.to_owned(), step: "read".into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{entry, regular};

    fn expected(path: &str, algorithm: Algorithm, content: &[u8]) -> Expected {
        Expected { path: path.into(), algorithm, digest: algorithm.digest(content) }
    }

    fn verdict(path: &str, kind: VerdictKind) -> Verdict {
        Verdict { path: path.into(), kind }
    }

    #[test]
    fn each_line_gets_one_verdict() {
        let check = Check::new([
            expected("good", Algorithm::Blake3, b"g"),
            expected("bad", Algorithm::Blake3, b"b"),
            expected("gone", Algorithm::Sha256, b""),
            expected("dir", Algorithm::Sha256, b""),
            expected("two", Algorithm::Sha256, b"2"),
            expected("two", Algorithm::Md5, b"3"),
        ]);
        assert_eq!(check.paths().len(), 5);
        assert_eq!(check.check(regular("bad", b"x")).unwrap(), [verdict("bad", VerdictKind::Mismatch)]);
        assert_eq!(check.check(regular("good", b"g")).unwrap(), [verdict("good", VerdictKind::Ok)]);
        assert_eq!(check.check(entry("dir", Kind::Directory)).unwrap(), [verdict("dir", VerdictKind::Unreadable)]);
        let two = check.check(regular("two", b"2")).unwrap();
        assert_eq!(two, [verdict("two", VerdictKind::Ok), verdict("two", VerdictKind::Mismatch)]);
        assert_eq!(check.check(regular("stranger", b"")).unwrap(), []);
        assert_eq!(check.finish(), [verdict("gone", VerdictKind::Unreadable)]);
        assert_eq!(check.finish(), []);
    }

    #[test]
    fn hard_links_are_checked_under_each_name() {
        let check = Check::new([expected("a", Algorithm::Md5, b"x"), expected("b", Algorithm::Md5, b"y")]);
        let verdicts = check.check(regular("a", b"x").with_links(vec!["b".into()])).unwrap();
        assert_eq!(verdicts, [verdict("a", VerdictKind::Ok), verdict("b", VerdictKind::Mismatch)]);
    }

    #[test]
    fn a_link_of_a_later_window_is_checked() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("b").to_str().unwrap().to_owned();
        std::fs::write(&name, b"x").unwrap();
        let check = Check::new([expected(&name, Algorithm::Md5, b"x")]);
        let verdicts = check.check(entry(&name, Kind::File).with_linked_to("a".into())).unwrap();
        assert_eq!(verdicts, [verdict(&name, VerdictKind::Ok)]);
    }
}
