//! Copies that share their blocks with the original (reflinks).

use std::{
    fs::File,
    io::{self, Write},
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::Path,
    str::FromStr,
};

use onesweep_sys::files;

use super::{CopyError, destination::Mapping};

/// When to clone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reflink {
    /// Where the destination can; what can't be cloned is copied.
    #[default]
    Auto,
    /// Always; a file that can't be cloned fails.
    Always,
    /// Never.
    Never,
}

impl FromStr for Reflink {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            _ => Err(format!("unknown value '{text}'; use auto, always or never")),
        }
    }
}

/// What was found out before the copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cloning {
    /// Not wanted, or not possible.
    No,
    /// Possible as far as known; what can't be cloned is read.
    Likely,
    /// Demanded.
    Must,
}

impl Cloning {
    pub(super) fn new(reflink: Reflink, mapping: &Mapping) -> Result<Self, CopyError> {
        match reflink {
            Reflink::Never => Ok(Self::No),
            Reflink::Auto if mapping.has_images() => Ok(Self::No),
            Reflink::Always => Ok(Self::Must),
            Reflink::Auto if one_file_system(mapping) && can_clone(mapping.existing()).is_ok() => Ok(Self::Likely),
            Reflink::Auto => Ok(Self::No),
        }
    }

    /// True when files are to be cloned and need not be read.
    pub(super) fn expected(self) -> bool {
        self != Self::No
    }
}

fn one_file_system(mapping: &Mapping) -> bool {
    let dev = |path: &Path| path.symlink_metadata().map(|stat| stat.dev()).ok();
    let here = dev(mapping.existing());
    here.is_some() && mapping.sources().all(|source| dev(source) == here)
}

/// Clones one unnamed file into another in `directory`.
fn can_clone(directory: &Path) -> io::Result<()> {
    let directory = files::open_dir_handle(directory)?;
    let unnamed = || files::open_unnamed(directory.as_fd());
    let (mut from, to) = (File::from(unnamed()?), unnamed()?);
    from.write_all(&[1; 4096])?;
    files::clone_file(from.as_fd(), to.as_fd())
}

/// Makes `to` share the blocks of `from`. False when the bytes have to be copied instead.
pub(super) fn clone_file(from: &File, to: &File, cloning: Cloning, path: &Path) -> Result<bool, CopyError> {
    match files::clone_file(from.as_fd(), to.as_fd()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Err(CopyError::io(path, "clone", error)),
        Err(source) if cloning == Cloning::Must => Err(CopyError::Clone { path: path.to_owned(), source }),
        Err(_) => Ok(false),
    }
}
