//! A file that is written beside its place, and takes it when it is whole.

use std::fs;
use std::path::{Path, PathBuf};

/// What stands behind the name of a file that isn't whole.
const SUFFIX: &str = ".partial";

/// A file on its way. It goes when this goes before the end.
#[derive(Debug)]
pub(crate) struct Partial {
    path: PathBuf,
    place: PathBuf,
    finished: bool,
}

/// The path with more behind its name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

impl Partial {
    /// Where a file on its way to `place` is.
    pub(crate) fn path_of(place: &Path) -> PathBuf {
        with_suffix(place, SUFFIX)
    }

    /// For a file that will be at `place`. Nothing is made yet; what a killed run has left there goes.
    pub(crate) fn new(place: &Path) -> Result<Self, String> {
        let path = Self::path_of(place);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {error}", path.display())),
            _ => Ok(Self { path, place: place.to_owned(), finished: false }),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// It is whole: it takes its place.
    pub(crate) fn finish(mut self) -> Result<(), String> {
        fs::rename(&self.path, &self.place).map_err(|error| format!("{}: {error}", self.place.display()))?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if !self.finished {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_whole_takes_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("image");
        fs::write(&place, "old").unwrap();
        fs::write(Partial::path_of(&place), "left by a killed run").unwrap();
        let half = Partial::new(&place).unwrap();
        assert!(!half.path().exists());
        fs::write(half.path(), "half").unwrap();
        drop(half);
        assert_eq!(fs::read_to_string(&place).unwrap(), "old");
        let whole = Partial::new(&place).unwrap();
        fs::write(whole.path(), "whole").unwrap();
        whole.finish().unwrap();
        assert_eq!(fs::read_to_string(&place).unwrap(), "whole");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
