//! Files that have no final name yet.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::fd::AsFd,
};

use onesweep_sys::files::{self, EntryType, Stat};

use super::{CopyError, place::Place};
use crate::temporary::Temporary;

/// Makes drafts, and temporary names.
#[derive(Debug, Default)]
pub(super) struct Drafts {
    /// The destination knows no unnamed files (`O_TMPFILE`).
    named_only: bool,
    made: u64,
}

impl Drafts {
    /// An empty file in the directory of `to`, readable by its owner alone.
    pub(super) fn create(&mut self, to: &Place) -> Result<Draft, CopyError> {
        let failed = |error: io::Error| CopyError::io(to.path(), "create", error);
        // Before anything is written, too: a file may be large.
        no_special(to.stat(), None).map_err(failed)?;
        if !self.named_only {
            match files::open_unnamed(to.directory()) {
                Ok(file) => return Ok(Draft { file: file.into(), named: None }),
                Err(error) if has_no_unnamed_files(&error) => self.named_only = true,
                Err(error) => return Err(failed(error)),
            }
        }
        let name = self.temporary_name(to);
        let make = || files::create_file_at(to.directory(), &name);
        let (temporary, file) = Temporary::make(to.shared_directory(), &name, make).map_err(failed)?;
        Ok(Draft { file: file.into(), named: Some(temporary) })
    }

    /// A name beside `to` that nothing has.
    fn temporary_name(&mut self, to: &Place) -> OsString {
        loop {
            self.made += 1;
            let name = OsString::from(format!(".onesweep-{}-{}.part", std::process::id(), self.made));
            if to.stat_beside(&name).is_err() {
                return name;
            }
        }
    }

    /// Makes something at `to`, by a function that is given the name in the directory. What has the name already is
    /// replaced in one step, if it may be.
    pub(super) fn replace(&mut self, to: &Place, make: impl Fn(&OsStr) -> io::Result<()>) -> io::Result<()> {
        match make(to.name()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made,
        }
        let name = self.temporary_name(to);
        let (temporary, ()) = Temporary::make(to.shared_directory(), &name, || make(&name))?;
        let made = to.stat_beside(&name);
        let renamed = made.and_then(|made| no_special(to.stat(), Some((made.file_type(), made.rdev))));
        let renamed = renamed.and_then(|()| temporary.rename(to.name()));
        // Also after success: renaming a name of an inode to another name of it does nothing.
        if renamed.is_err() || to.stat_beside(&name).is_ok() {
            let _ = temporary.remove();
        }
        renamed
    }
}

/// Fails when `there` is a pipe, socket or device: what writes to it must not be led elsewhere. One of the same type
/// and device as `by` may be replaced, so that a copy can be made again.
pub(super) fn no_special(there: io::Result<Stat>, by: Option<(EntryType, u64)>) -> io::Result<()> {
    let Ok(there) = there else { return Ok(()) };
    let what = match there.file_type() {
        EntryType::Fifo => "a pipe",
        EntryType::Socket => "a socket",
        EntryType::CharDevice | EntryType::BlockDevice => "a device",
        _ => return Ok(()),
    };
    if by == Some((there.file_type(), there.rdev)) {
        return Ok(());
    }
    Err(io::Error::other(format!("{what} has this name, and is not replaced; name another destination, or remove it")))
}

/// What a file system says that knows no unnamed files; `EISDIR` is the way of old kernels.
fn has_no_unnamed_files(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::IsADirectory | io::ErrorKind::InvalidInput)
}

/// A file under construction; gone when dropped unpublished.
#[derive(Debug)]
pub(super) struct Draft {
    file: File,
    /// `None` for an unnamed file.
    named: Option<Temporary>,
}

impl Draft {
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its final name, in the directory that it was made in.
    pub(super) fn publish(mut self, to: &Place, drafts: &mut Drafts) -> Result<(), CopyError> {
        let published = match &self.named {
            Some(temporary) => no_special(to.stat(), None).and_then(|()| temporary.rename(to.name())),
            None => drafts.replace(to, |name| files::name_file(self.file.as_fd(), to.directory(), name)),
        };
        published.map_err(|error| CopyError::io(to.path(), "give the finished file its name", error))?;
        self.named = None;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(temporary) = &self.named {
            let _ = temporary.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{copy::directories::Directories, temporary::is_known};
    use std::{fs, io::Write, os::unix::fs::FileTypeExt, os::unix::fs::PermissionsExt, path::Path};

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn place(name: &Path) -> Place {
        Directories::below(name.parent().unwrap()).place(Path::new(name.file_name().unwrap())).unwrap()
    }

    #[test]
    fn a_name_appears_with_the_whole_file_or_not_at_all() {
        for named_only in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let mut drafts = Drafts { named_only, made: 0 };
            let name = dir.path().join("f");
            let place = place(&name);
            drop(drafts.create(&place).unwrap());
            assert!(names(dir.path()).is_empty());
            for content in ["first", "second"] {
                let draft = drafts.create(&place).unwrap();
                draft.file().write_all(content.as_bytes()).unwrap();
                assert_ne!(fs::read_to_string(&name).ok().as_deref(), Some(content));
                draft.publish(&place, &mut drafts).unwrap();
                assert_eq!(fs::read_to_string(&name).unwrap(), content);
            }
            assert_eq!(names(dir.path()), ["f"]);
        }
    }

    /// Secrets are copied before their mode is.
    #[test]
    fn a_draft_is_its_owners_alone() {
        for named_only in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let mut drafts = Drafts { named_only, made: 0 };
            let draft = drafts.create(&place(&dir.path().join("f"))).unwrap();
            assert_eq!(draft.file().metadata().unwrap().permissions().mode() & 0o7777, 0o600, "{named_only}");
        }
    }

    #[test]
    fn temporary_names_are_known_as_long_as_there_is_something() {
        let dir = tempfile::tempdir().unwrap();
        let place = place(&dir.path().join("f"));
        let mut drafts = Drafts { named_only: true, made: 0 };
        let draft = drafts.create(&place).unwrap();
        let name = OsString::from(names(dir.path()).remove(0));
        assert!(is_known(place.directory(), &name));
        draft.publish(&place, &mut drafts).unwrap();
        assert!(!is_known(place.directory(), &name));
        drafts.replace(&place, |new| files::make_symlink_at(new, place.directory(), new)).unwrap();
        let name = dir.path().join("f").read_link().unwrap();
        assert!(name.to_str().unwrap().ends_with(".part") && !is_known(place.directory(), name.as_os_str()));
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("pipe");
        let place = place(&name);
        let make_pipe = |name: &OsStr| files::make_node_at(place.directory(), name, EntryType::Fifo, 0);
        for named_only in [false, true] {
            let mut drafts = Drafts { named_only, made: 0 };
            let early = drafts.create(&place).unwrap();
            make_pipe(place.name()).unwrap();
            early.publish(&place, &mut drafts).unwrap_err();
            let error = drafts.create(&place).unwrap_err();
            assert!(error.to_string().contains("a pipe has this name"), "{error}");
            drafts.replace(&place, |name| files::make_symlink_at("x", place.directory(), name)).unwrap_err();
            drafts.replace(&place, make_pipe).unwrap();
            assert!(name.symlink_metadata().unwrap().file_type().is_fifo());
            assert_eq!(names(dir.path()), ["pipe"]);
            fs::remove_file(&name).unwrap();
        }
    }

    #[test]
    fn a_directory_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("d");
        fs::create_dir(&name).unwrap();
        let place = place(&name);
        for named_only in [false, true] {
            let mut drafts = Drafts { named_only, made: 0 };
            drafts.create(&place).unwrap().publish(&place, &mut drafts).unwrap_err();
            assert_eq!(names(dir.path()), ["d"]);
        }
    }
}
