//! Files that have no final name yet.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::AsFd,
        unix::fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

use onesweep_sys::files;

use super::CopyError;

/// Makes drafts, and temporary names.
#[derive(Debug, Default)]
pub(super) struct Drafts {
    /// The destination knows no unnamed files (`O_TMPFILE`).
    named_only: bool,
    made: u64,
}

impl Drafts {
    /// An empty file in the directory of `final_name`, readable by its owner alone.
    pub(super) fn create(&mut self, final_name: &Path) -> Result<Draft, CopyError> {
        let failed = |error: io::Error| CopyError::io(final_name, "create", error);
        // Before anything is written, too: a file may be large.
        no_special(final_name, None).map_err(failed)?;
        if !self.named_only {
            match files::open_unnamed(directory_of(final_name)) {
                Ok(file) => return Ok(Draft { file: file.into(), name: None }),
                Err(error) if has_no_unnamed_files(&error) => self.named_only = true,
                Err(error) => return Err(failed(error)),
            }
        }
        let name = self.temporary_name(final_name);
        let file = File::create_new(&name).map_err(failed)?;
        Ok(Draft { file, name: Some(name) })
    }

    /// A name beside `final_name` that nothing has.
    pub(super) fn temporary_name(&mut self, final_name: &Path) -> PathBuf {
        loop {
            self.made += 1;
            let name = format!(".onesweep-{}-{}.part", std::process::id(), self.made);
            let path = directory_of(final_name).join(name);
            if path.symlink_metadata().is_err() {
                return path;
            }
        }
    }

    /// Makes something under `final_name`. What has the name already is replaced in one step, if it may be.
    pub(super) fn replace(&mut self, final_name: &Path, make: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
        match make(final_name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made,
        }
        let temporary = self.temporary_name(final_name);
        make(&temporary)?;
        let made = temporary.symlink_metadata();
        let renamed = made.and_then(|made| no_special(final_name, Some(&made)));
        let renamed = renamed.and_then(|()| fs::rename(&temporary, final_name));
        // Also after success: renaming a name of an inode to another name of it does nothing.
        if renamed.is_err() || temporary.symlink_metadata().is_ok() {
            let _ = fs::remove_file(&temporary);
        }
        renamed
    }
}

/// Fails when a pipe, socket or device has the name: what writes to it must not be led elsewhere. One of the same kind
/// as `by` may be replaced, so that a copy can be made again.
pub(super) fn no_special(name: &Path, by: Option<&fs::Metadata>) -> io::Result<()> {
    let Ok(there) = name.symlink_metadata() else { return Ok(()) };
    let kind = there.file_type();
    let what = match () {
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () if kind.is_char_device() || kind.is_block_device() => "a device",
        () => return Ok(()),
    };
    if by.is_some_and(|by| by.file_type() == kind && by.rdev() == there.rdev()) {
        return Ok(());
    }
    Err(io::Error::other(format!("{what} has this name, and is not replaced; name another destination, or remove it")))
}

fn directory_of(name: &Path) -> &Path {
    match name.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
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
    name: Option<PathBuf>,
}

impl Draft {
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Gives the file its final name.
    pub(super) fn publish(mut self, final_name: &Path, drafts: &mut Drafts) -> Result<(), CopyError> {
        let published = match &self.name {
            Some(name) => no_special(final_name, None).and_then(|()| fs::rename(name, final_name)),
            None => drafts.replace(final_name, |name| files::name_file(self.file.as_fd(), name)),
        };
        published.map_err(|error| CopyError::io(final_name, "give the finished file its name", error))?;
        self.name = None;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            let _ = fs::remove_file(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_name_appears_with_the_whole_file_or_not_at_all() {
        for named_only in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let mut drafts = Drafts { named_only, made: 0 };
            let name = dir.path().join("f");
            drop(drafts.create(&name).unwrap());
            assert!(names(dir.path()).is_empty());
            for content in ["first", "second"] {
                let draft = drafts.create(&name).unwrap();
                draft.file().write_all(content.as_bytes()).unwrap();
                assert_ne!(fs::read_to_string(&name).ok().as_deref(), Some(content));
                draft.publish(&name, &mut drafts).unwrap();
                assert_eq!(fs::read_to_string(&name).unwrap(), content);
            }
            assert_eq!(names(dir.path()), ["f"]);
        }
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("pipe");
        let make_pipe = |name: &Path| files::make_node(name, files::EntryType::of_mode(0o010_600), 0);
        for named_only in [false, true] {
            let mut drafts = Drafts { named_only, made: 0 };
            let early = drafts.create(&name).unwrap();
            make_pipe(&name).unwrap();
            early.publish(&name, &mut drafts).unwrap_err();
            let error = drafts.create(&name).unwrap_err();
            assert!(error.to_string().contains("a pipe has this name"), "{error}");
            drafts.replace(&name, |name| std::os::unix::fs::symlink("x", name)).unwrap_err();
            drafts.replace(&name, make_pipe).unwrap();
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
        for named_only in [false, true] {
            let mut drafts = Drafts { named_only, made: 0 };
            drafts.create(&name).unwrap().publish(&name, &mut drafts).unwrap_err();
            assert_eq!(names(dir.path()), ["d"]);
        }
    }
}
