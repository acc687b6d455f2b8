//! `cp -a` of swept files, written in the order in which they were read.
//!
//! A regular file gets its final name only when it is complete. A directory is made open to its owner alone, and gets
//! its own attributes when everything in it is there. Everything happens relative to open directories, and no symbolic
//! link below the named destination is followed (`directories`).

mod clone;
mod content;
mod destination;
mod directories;
mod draft;
mod error;
mod names;
mod place;
mod source;

use std::{
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use onesweep::{Kind, Metadata, SweptFile};
use onesweep_sys::files;

pub use clone::Reflink;
pub use destination::Sources;
pub use error::CopyError;

use crate::attributes::{self, Lost, Target};
use clone::Cloning;
use destination::Mapping;
use directories::Directories;
use draft::{Draft, Drafts};
use place::Place;
use source::Source;

/// What was copied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copied {
    /// Regular files.
    pub files: u64,
    /// Bytes of content, holes among them.
    pub bytes: u64,
    /// Files that share their blocks with the original.
    pub cloned_files: u64,
    /// Names beyond the first of a file.
    pub hard_links: u64,
    /// Directories, links and special files.
    pub others: u64,
    /// Entries of which an attribute could not be set.
    pub incomplete: u64,
}

/// Writes swept files to their destination.
#[derive(Debug)]
pub struct Copier {
    mapping: Mapping,
    cloning: Cloning,
    directories: Directories,
    drafts: Drafts,
    copied: Copied,
    first_lost: Option<(PathBuf, Lost)>,
}

impl Copier {
    /// Works out where everything goes, as `cp -a SOURCE… DESTINATION` does; `no_target_directory` is `cp -T`.
    /// Nothing is written yet, but for two unnamed files that tell whether the destination can clone.
    pub fn new(
        sources: Sources<'_>,
        destination: &Path,
        no_target_directory: bool,
        reflink: Reflink,
    ) -> Result<Self, CopyError> {
        let mapping = Mapping::new(sources, destination, no_target_directory)?;
        let cloning = Cloning::new(reflink, &mapping)?;
        let directories = Directories::below(mapping.base());
        let (drafts, copied) = (Drafts::default(), Copied::default());
        Ok(Self { mapping, cloning, directories, drafts, copied, first_lost: None })
    }

    /// The sources, each once, as the sweep should take them.
    pub fn sources(&self) -> Vec<PathBuf> {
        self.mapping.sources().map(Path::to_owned).collect()
    }

    /// False when files will be cloned, so that nobody needs to read them.
    pub fn wants_content(&self) -> bool {
        !self.cloning.expected()
    }

    /// What was copied so far.
    pub fn copied(&self) -> &Copied {
        &self.copied
    }

    /// The first entry that lost an attribute.
    pub fn first_lost(&self) -> Option<&(PathBuf, Lost)> {
        self.first_lost.as_ref()
    }

    /// Copies one item, under all its names.
    pub fn copy(&mut self, mut item: SweptFile) -> Result<(), CopyError> {
        let is_directory = item.metadata().kind == Kind::Directory;
        if is_directory && !item.is_closing() {
            return self.make_directory(&item);
        }
        let to = self.place(item.path())?;
        let is_symlink = item.metadata().kind == Kind::Symlink;
        if is_symlink {
            names::spare_target(item.path(), &to)?;
        }
        if let Some(first) = item.linked_to() {
            let first = self.place(first)?;
            return self.link(&first, &to);
        }
        match item.metadata().kind {
            Kind::Directory => self.close_directory(&item, &to)?,
            Kind::File => self.copy_file(&mut item, &to)?,
            Kind::Symlink => self.copy_symlink(&item, &to)?,
            _ => self.copy_special(&item, &to)?,
        }
        for link in item.links() {
            let name = self.place(link)?;
            if is_symlink {
                names::spare_target(link, &name)?;
            }
            self.link(&to, &name)?;
        }
        Ok(())
    }

    /// Where the entry at `path` goes.
    fn place(&mut self, path: &Path) -> Result<Place, CopyError> {
        let way = self.way(path)?;
        self.directories.place(&way).map_err(|error| CopyError::io(&self.directories.path(&way), "create", error))
    }

    fn way(&self, path: &Path) -> Result<PathBuf, CopyError> {
        self.mapping.map(path).ok_or_else(|| CopyError::Stranger { path: path.to_owned() })
    }

    fn link(&mut self, first: &Place, name: &Place) -> Result<(), CopyError> {
        names::link(&mut self.drafts, first, name)?;
        self.copied.hard_links += 1;
        Ok(())
    }

    fn make_directory(&mut self, item: &SweptFile) -> Result<(), CopyError> {
        let way = self.way(item.path())?;
        let made = self.directories.place(&way).and_then(|to| names::make_directory(&to));
        let made = made.map_err(|error| CopyError::io(&self.directories.path(&way), "make the directory", error));
        made.map_err(|error| match error {
            CopyError::Io { path, source, .. } if self.mapping.is_source(item.path()) => {
                CopyError::Destination { path, source }
            }
            other => other,
        })
    }

    fn copy_file(&mut self, item: &mut SweptFile, to: &Place) -> Result<(), CopyError> {
        let draft = self.drafts.create(to)?;
        let metadata = self.fill(item, &draft, to)?;
        let lost = attributes::apply(Target::Open(draft.file().as_fd()), &metadata, item.xattrs());
        let lost = lost.map_err(|error| CopyError::io(to.path(), "set the attributes", error))?;
        draft.publish(to, &mut self.drafts)?;
        self.note(to.path(), lost);
        self.copied.files += 1;
        self.copied.bytes += metadata.size;
        Ok(())
    }

    /// Gives the attributes that belong to the content.
    fn fill(&mut self, item: &mut SweptFile, draft: &Draft, to: &Place) -> Result<Metadata, CopyError> {
        if self.cloning.expected() {
            return self.fill_from_source(item, draft, to);
        }
        let size = content::write(draft.file(), item).map_err(|failed| failed.about(item.path(), to.path()))?;
        Ok(Metadata { size, ..*item.metadata() })
    }

    /// By a clone, or by reading where that is not possible. The sweep did not read the file, so nobody has seen yet
    /// whether it is still as it was surveyed.
    fn fill_from_source(&mut self, item: &SweptFile, draft: &Draft, to: &Place) -> Result<Metadata, CopyError> {
        let mut source = Source::open(item).map_err(|error| CopyError::io(item.path(), "open", error))?;
        let mut cloned = false;
        let metadata = source.while_it_holds_still(|from| {
            cloned = clone::clone_file(from, draft.file(), self.cloning, to.path())?;
            if cloned {
                return Ok(());
            }
            let written = content::write_from(draft.file(), from);
            written.map(drop).map_err(|failed| failed.about(item.path(), to.path()))
        })?;
        self.copied.cloned_files += u64::from(cloned);
        Ok(metadata)
    }

    fn copy_symlink(&mut self, item: &SweptFile, to: &Place) -> Result<(), CopyError> {
        let target = item.link_target().unwrap_or(Path::new(""));
        let handle = names::symlink(&mut self.drafts, target, to)?;
        self.set(Target::Link(handle.as_fd()), item, to)
    }

    fn copy_special(&mut self, item: &SweptFile, to: &Place) -> Result<(), CopyError> {
        let handle = names::special(&mut self.drafts, item.metadata(), to)?;
        self.set(Target::Special(handle.as_fd()), item, to)
    }

    fn close_directory(&mut self, item: &SweptFile, to: &Place) -> Result<(), CopyError> {
        let directory = files::open_dir_at(to.directory(), to.name());
        let directory = directory.map_err(|error| CopyError::io(to.path(), "open", error))?;
        self.directories.close(&self.way(item.path())?);
        self.set(Target::Open(directory.as_fd()), item, to)
    }

    fn set(&mut self, target: Target<'_>, item: &SweptFile, to: &Place) -> Result<(), CopyError> {
        let lost = attributes::apply(target, item.metadata(), item.xattrs());
        let lost = lost.map_err(|error| CopyError::io(to.path(), "set the attributes", error))?;
        self.note(to.path(), lost);
        self.copied.others += 1;
        Ok(())
    }

    fn note(&mut self, to: &Path, lost: Vec<Lost>) {
        let Some(first) = lost.into_iter().next() else { return };
        self.copied.incomplete += 1;
        self.first_lost.get_or_insert_with(|| (to.to_owned(), first));
    }
}

#[cfg(test)]
mod tests;
