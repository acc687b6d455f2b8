//! Digests of all names of a sweep, computed on many threads.

use std::{
    collections::HashMap,
    mem,
    path::PathBuf,
    sync::{Mutex, MutexGuard},
};

use onesweep::{FileError, Kind, SweptFile};

use super::{Algorithm, Digest};

/// A name and the digest of its content.
pub type Summed = (PathBuf, Digest);

/// Hashes swept files. Shared by the threads that hash; names come out in the order in which hashing ends, which is
/// the order of the disk but for files that were hashed at the same time.
#[derive(Debug)]
pub struct Summer {
    algorithm: Algorithm,
    links: Mutex<Links>,
}

/// Files with several names, of which later windows may bring more.
#[derive(Debug, Default)]
struct Links {
    digests: HashMap<PathBuf, Digest>,
    /// Names whose first name is still being hashed by another thread.
    waiting: HashMap<PathBuf, Vec<PathBuf>>,
}

impl Summer {
    /// A summer that uses `algorithm`.
    pub fn new(algorithm: Algorithm) -> Self {
        Self { algorithm, links: Mutex::default() }
    }

    /// Hashes one item and gives each of its names with the digest; nothing for what is no regular file.
    pub fn sum(&self, mut file: SweptFile) -> Result<Vec<Summed>, FileError> {
        if file.metadata().kind != Kind::File {
            return Ok(Vec::new());
        }
        if let Some(first) = file.linked_to() {
            return Ok(self.further_name(first.to_owned(), file.path().to_owned()));
        }
        let path = file.path().to_owned();
        let digest = match content_digest(&mut file, self.algorithm) {
            Ok(digest) => digest,
            Err(error) => {
                self.links().waiting.entry(path).or_default().extend(file.links().iter().cloned());
                return Err(error);
            }
        };
        let mut names: Vec<Summed> = vec![(path.clone(), digest)];
        names.extend(file.links().iter().map(|link| (link.clone(), digest)));
        if file.metadata().nlink > 1 {
            let mut links = self.links();
            let waited = links.waiting.remove(&path).unwrap_or_default();
            names.extend(waited.into_iter().map(|name| (name, digest)));
            links.digests.insert(path, digest);
        }
        Ok(names)
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn further_name(&self, first: PathBuf, name: PathBuf) -> Vec<Summed> {
        let mut links = self.links();
        match links.digests.get(&first) {
            Some(&digest) => vec![(name, digest)],
            None => {
                links.waiting.entry(first).or_default().push(name);
                Vec::new()
            }
        }
    }

    /// Names that got no digest because another name of their inode failed. To be asked when the sweep has ended.
    pub fn left_over(&self) -> Vec<PathBuf> {
        let mut names: Vec<_> = mem::take(&mut self.links().waiting).into_values().flatten().collect();
        names.sort();
        names
    }
}

fn content_digest(file: &mut SweptFile, algorithm: Algorithm) -> Result<Digest, FileError> {
    if let Some(bytes) = file.bytes() {
        return Ok(algorithm.digest(bytes));
    }
    let path = file.path().to_owned();
    let read = algorithm.digest_reader(&mut file.reader());
    read.map_err(|source| FileError::Io { path, step: "read".into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sum::manifest::write_line;
    use crate::testing::{entry, regular};
    use std::{fs, process::Command};

    #[test]
    fn every_name_of_an_inode_gets_a_line() {
        let summer = Summer::new(Algorithm::Sha256);
        let digest = Algorithm::Sha256.digest(b"hi");
        let mut file = regular("a", b"hi");
        file = file.with_links(vec!["b".into()]);
        let linked = |name: &str| entry(name, Kind::File).with_linked_to("a".into());
        assert_eq!(summer.sum(linked("early")).unwrap(), []);
        let names = summer.sum(file).unwrap();
        assert_eq!(names, [("a".into(), digest), ("b".into(), digest), ("early".into(), digest)]);
        assert_eq!(summer.sum(linked("late")).unwrap(), [("late".into(), digest)]);
        assert_eq!(summer.sum(entry("dir", Kind::Directory)).unwrap(), []);
        assert!(summer.left_over().is_empty());
    }

    #[test]
    fn a_link_to_a_failed_file_is_left_over() {
        let summer = Summer::new(Algorithm::Md5);
        summer.sum(entry("b", Kind::File).with_linked_to("gone".into())).unwrap();
        assert_eq!(summer.left_over(), [PathBuf::from("b")]);
    }

    /// A stream that fails in the middle has all names of its file with it.
    #[test]
    fn further_names_of_a_file_that_fails_are_left_over() {
        let summer = Summer::new(Algorithm::Md5);
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), vec![1; 3 << 20]).unwrap();
        fs::hard_link(dir.path().join("a"), dir.path().join("b")).unwrap();
        let mut items = onesweep::BulkRead::new([dir.path()]).large(1 << 20).start().unwrap();
        let file = items.next().unwrap().unwrap();
        assert_eq!((file.route(), file.links().len()), (onesweep::Route::Streamed, 1));
        let other = file.links()[0].clone();
        fs::write(dir.path().join("a"), vec![1; 1 << 20]).unwrap();
        assert!(summer.sum(file).is_err());
        assert_eq!(summer.left_over(), [other]);
    }

    /// The manifest is judged by the tools that have to read it.
    #[test]
    fn coreutils_accept_the_manifest() {
        for (algorithm, tool) in [(Algorithm::Sha256, "sha256sum"), (Algorithm::Md5, "md5sum")] {
            let dir = tempfile::tempdir().unwrap();
            let summer = Summer::new(algorithm);
            let mut manifest = Vec::new();
            for (name, content) in
                [("plain", &b"one"[..]), ("a b", b""), ("back\\slash", b"three"), ("line\nfeed", b"4"), (" *x", b"5")]
            {
                fs::write(dir.path().join(name), content).unwrap();
                for (path, digest) in summer.sum(regular(name, content)).unwrap() {
                    write_line(&mut manifest, &digest, &path).unwrap();
                }
            }
            fs::write(dir.path().join("manifest"), &manifest).unwrap();
            let checked = Command::new(tool).args(["--check", "--strict", "manifest"]).current_dir(&dir).output();
            let checked = checked.unwrap();
            assert!(checked.status.success(), "{tool}: {checked:?}");
            assert_eq!(checked.stdout.iter().filter(|&&byte| byte == b'\n').count(), 5, "{checked:?}");
        }
    }
}
