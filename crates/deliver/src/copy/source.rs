//! The original of a file that is not read by the sweep.

use std::{
    fs::File,
    io::{self, Seek},
    os::fd::AsFd,
    path::Path,
};

use onesweep::{Metadata, SweptFile};
use onesweep_sys::files;

use super::CopyError;

/// How often a file that changes is copied before it is given up, as in a sweep.
const ATTEMPTS: u32 = 3;

/// An original, open.
#[derive(Debug)]
pub(super) struct Source<'a> {
    file: File,
    path: &'a Path,
    swept: &'a Metadata,
}

impl<'a> Source<'a> {
    /// Opens the original, which must still be the inode that was swept.
    pub(super) fn open(item: &'a SweptFile) -> io::Result<Self> {
        let file = files::open_file(item.open_path())?.into();
        let source = Self { file, path: item.path(), swept: item.metadata() };
        let now = source.metadata()?;
        // Nobody puts another file in a place of a snapshot, and it has a device number of its own.
        let same_device = item.is_in_snapshot() || now.dev == source.swept.dev;
        if !same_device || now.ino != source.swept.ino {
            return Err(io::Error::other("another file took its place"));
        }
        Ok(source)
    }

    /// Copies until nothing changed meanwhile, and gives the attributes that were there all the time. They are those of
    /// the survey unless the file has changed since.
    pub(super) fn while_it_holds_still(
        &mut self,
        mut copy: impl FnMut(&mut File) -> Result<(), CopyError>,
    ) -> Result<Metadata, CopyError> {
        let (path, swept) = (self.path, *self.swept);
        let failed = |step: &str, error| CopyError::io(path, step, error);
        let mut before = self.metadata().map_err(|error| failed("stat", error))?;
        for _ in 0..ATTEMPTS {
            self.file.rewind().map_err(|error| failed("read", error))?;
            copy(&mut self.file)?;
            let after = self.metadata().map_err(|error| failed("stat", error))?;
            if is_unchanged(&before, &after) {
                // The time of access is that before the sweep.
                return Ok(if is_unchanged(&swept, &after) { swept } else { Metadata { atime: swept.atime, ..after } });
            }
            before = after;
        }
        Err(CopyError::Changed { path: path.to_owned(), attempts: ATTEMPTS })
    }

    fn metadata(&self) -> io::Result<Metadata> {
        Ok(Metadata::of(self.swept.kind, &files::statx_fd(self.file.as_fd())?))
    }
}

fn is_unchanged(before: &Metadata, after: &Metadata) -> bool {
    let seen = |metadata: &Metadata| (metadata.size, metadata.mtime, metadata.ctime);
    seen(before) == seen(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::metadata_of;
    use std::{fs, io::Read};

    fn append(path: &Path) {
        use std::io::Write;
        let mut file = fs::File::options().append(true).open(path).unwrap();
        file.write_all(b"more").unwrap();
    }

    #[test]
    fn a_file_that_changes_is_copied_again_and_given_up_in_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for changes in 0..=ATTEMPTS {
            fs::write(&path, "first").unwrap();
            let item = SweptFile::new(path.clone(), metadata_of(&path));
            let mut attempts = 0;
            let mut content = String::new();
            let copied = Source::open(&item).unwrap().while_it_holds_still(|from| {
                content.clear();
                from.read_to_string(&mut content).unwrap();
                if attempts < changes {
                    append(&path);
                }
                attempts += 1;
                Ok(())
            });
            if changes == ATTEMPTS {
                let error = copied.unwrap_err();
                assert!(error.to_string().contains("changed each of 3 times"), "{error}");
                continue;
            }
            let (copied, now) = (copied.unwrap(), metadata_of(&path));
            assert_eq!((copied.size, copied.mtime, attempts), (now.size, now.mtime, changes + 1));
            assert_eq!(content, fs::read_to_string(&path).unwrap());
        }
    }

    #[test]
    fn another_file_is_not_taken_for_the_original() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "first").unwrap();
        let item = SweptFile::new(path.clone(), metadata_of(&path));
        fs::write(dir.path().join("g"), "other").unwrap();
        fs::rename(dir.path().join("g"), &path).unwrap();
        assert!(Source::open(&item).unwrap_err().to_string().contains("another file"));
    }
}
