//! A directory of a run's own for mounts and lists. Nobody else may enter it, so none of its names can be taken by
//! somebody who would lead a program of root's elsewhere.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The directory. It goes when this goes, with what it holds: files and empty directories, but nothing that is mounted.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(what: &str) -> Result<Self, String> {
        let parent = std::env::temp_dir();
        let said = |error: std::io::Error| format!("{}: {error}", parent.display());
        // Made absolute, as the table of mounts shows it.
        let parent = parent.canonicalize().map_err(said)?;
        let (prefix, mine) = (format!("onesweep-lab-{what}-"), fs::Permissions::from_mode(0o700));
        let dir = tempfile::Builder::new().prefix(&prefix).permissions(mine).tempdir_in(&parent).map_err(said)?;
        // Kept: it would be removed with everything below, and that might still be mounted.
        Ok(Self(dir.keep()))
    }

    /// Whoever is told the place of a mount in it may go there.
    pub(crate) fn let_others_through(&self) -> Result<(), String> {
        let said = |error: std::io::Error| format!("{}: {error}", self.0.display());
        fs::set_permissions(&self.0, fs::Permissions::from_mode(0o711)).map_err(said)
    }

    /// Where a file of that name is, or will be.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A new directory of that name.
    pub(crate) fn dir(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.0.join(name);
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            remove(&entry.path());
        }
        remove(&self.0);
    }
}

/// A file, or a directory that is empty and not a mount.
fn remove(path: &Path) {
    if fs::remove_file(path).is_err() {
        let _ = fs::remove_dir(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_else_may_enter_and_nothing_is_left() {
        let [one, two] = ["test", "test"].map(|what| Scratch::new(what).unwrap());
        assert_ne!(one.0, two.0);
        assert_eq!(one.0.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        let dir = one.dir("mount").unwrap();
        fs::write(one.file("list"), "a list").unwrap();
        fs::write(dir.join("what is in use"), "a file").unwrap();
        let path = one.0.clone();
        drop(one);
        assert!(dir.join("what is in use").exists(), "only empty directories go");
        assert!(!path.join("list").exists());
        fs::remove_dir_all(path).unwrap();
        let (path, _) = (two.0.clone(), two.dir("mount").unwrap());
        drop(two);
        assert!(!path.exists());
    }
}
