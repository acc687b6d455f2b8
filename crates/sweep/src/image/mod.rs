//! Files of images and unmounted devices: what there is the tables tell, and what is in them comes from the device itself.

mod content;
mod fill;
mod gather;
mod place;
mod spans;

use std::{
    fmt, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use onesweep_layout::{
    ImageFile, Part,
    image::ImageName,
    tables::{self, Options, TableError, Tables},
};
use onesweep_sys::{
    block,
    buffer::{Bytes, FileBuffer},
    cache,
    files::{self, CURRENT_DIR, EntryType, Stat, statx_at},
};

use crate::footprint::Footprint;

pub(crate) use self::{
    content::{ImageContent, unpack},
    fill::{Filling, Wishes},
};

/// Whether [`MetadataSource::Auto`](crate::MetadataSource::Auto) takes a path for that of an image, of a device that isn't
/// mounted, or of something inside of one, where it is one of `named` paths. Reads a few blocks.
///
/// True also where it has to be one, but can't be read.
pub fn is_image(path: &Path, named: usize) -> bool {
    match ImageName::of(path).map(|name| Named::of(path, &name)) {
        None | Some(Named::Link) => false,
        Some(Named::PlainFile) => !matches!(Image::open(path, path, named, Options::default()), Ok(None)),
        Some(Named::Image) => true,
    }
}

/// What a name stands for that could be that of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    /// A file as it is named: an image only when it holds a file system.
    PlainFile,
    /// A symbolic link as it is named, never followed.
    Link,
    /// A device, a partition or a path inside of an image: it must hold a file system.
    Image,
}

impl Named {
    fn of(path: &Path, name: &ImageName) -> Self {
        if name.file != path {
            return Self::Image;
        }
        match statx_at(CURRENT_DIR, path, true).map(|found| found.file_type()) {
            Ok(EntryType::Symlink) => Self::Link,
            Ok(EntryType::File) => Self::PlainFile,
            _ => Self::Image,
        }
    }
}

/// Plain files are looked into only where no more paths than these are named: each costs a read at its own place of the disk,
/// and a list of thousands of files is none of images.
const PLAIN_IMAGES_MAX: usize = 16;

/// So much holds all of them, in whole blocks.
const START_BYTES: usize = 0x1_1000;

/// The start of a file by a direct read; `None` where the file system has none.
fn start_past_the_cache(path: &Path) -> Option<Bytes> {
    let fd = files::open_direct_at(CURRENT_DIR, path).ok()?;
    let buffer = FileBuffer::zeroed(START_BYTES);
    files::read_at(fd.as_fd(), buffer.lend(0..START_BYTES).as_mut_slice(), 0).ok()?;
    buffer.try_into_bytes().ok()
}

/// Looks at the start of a named file, and leaves the page cache as it was: nearly all of them are no images.
fn has_magic(path: &Path) -> bool {
    let Ok(fd) = files::open_file(path) else { return false };
    // Where nobody can tell what is cached, nothing could be put back.
    if cache::residency(fd.as_fd(), 0, START_BYTES as u64).is_err() {
        return false;
    }
    if let Some(start) = start_past_the_cache(path) {
        return tables::has_magic(&*start);
    }
    let Ok(stat) = files::statx_fd(fd.as_fd()) else { return false };
    let _ = cache::random_access(fd.as_fd());
    let mut footprint = Footprint::of_file(fd.as_fd(), stat.size);
    let found = fd.try_clone().and_then(|fd| ImageFile::new(fd.into())).is_ok_and(|file| tables::has_magic(&file));
    footprint.wipe(fd.as_fd());
    found
}

/// A file system in an image or on a device, and the place in it that is swept.
pub(crate) struct Image {
    /// As it was named.
    pub(crate) shown: PathBuf,
    pub(crate) inside: Vec<u8>,
    pub(crate) tables: Box<dyn Tables + Send>,
    pub(crate) device: Arc<ImageDevice>,
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("shown", &self.shown).finish_non_exhaustive()
    }
}

/// Where the bytes of its files are.
#[derive(Debug)]
pub(crate) struct ImageDevice {
    part: Part<Arc<ImageFile>>,
    path: PathBuf,
}

impl ImageDevice {
    /// Its bytes, from the start of the file system on.
    pub(crate) fn bytes(&self) -> &Part<Arc<ImageFile>> {
        &self.part
    }

    /// For reads that leave the page cache alone, where such are possible.
    pub(crate) fn open_direct(&self) -> io::Result<OwnedFd> {
        block::open_device_direct(self.path.as_path())
    }

    /// For reads of any bytes.
    pub(crate) fn open_buffered(&self) -> io::Result<OwnedFd> {
        block::open_device(self.path.as_path())
    }

    /// What the file or device is.
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        statx_at(CURRENT_DIR, self.path.as_path(), false)
    }

    /// Where the file system begins in the image or device.
    pub(crate) fn start(&self) -> u64 {
        self.part.start()
    }
}

impl Image {
    /// Opens what `opened` names; `None` when that is no image: a file as it is, which holds no file system, for one.
    ///
    /// A file that is named as it is counts as an image only when it holds a file system; a device, a partition or a path
    /// inside must.
    pub(crate) fn open(shown: &Path, opened: &Path, named: usize, options: Options) -> io::Result<Option<Self>> {
        let Some(name) = ImageName::of(opened) else { return Ok(None) };
        let named_as = Named::of(opened, &name);
        let is_plain_file = named_as == Named::PlainFile;
        if named_as == Named::Link || (is_plain_file && (named > PLAIN_IMAGES_MAX || !has_magic(opened))) {
            return Ok(None);
        }
        let part = match name.open() {
            Err(_) if is_plain_file => return Ok(None),
            part => part.map_err(io::Error::other)?,
        };
        let tables = match tables::open(part.clone(), options) {
            Err(dirty @ TableError::Dirty { .. }) if is_plain_file => {
                return Err(io::Error::other(format!("{dirty}; --metadata walk takes it as one file")));
            }
            Err(_) if is_plain_file => return Ok(None),
            tables => tables.map_err(io::Error::other)?,
        };
        Ok(Some(Self::of(shown, name, part, tables)))
    }

    /// Opens what `opened` names where that is a file, a device or something inside; `None` for what else there is. Fails
    /// where the tables of a file system can't be read there.
    pub(crate) fn open_named(shown: &Path, opened: &Path, options: Options) -> io::Result<Option<Self>> {
        let Some(name) = ImageName::of(opened) else { return Ok(None) };
        let part = name.open().map_err(io::Error::other)?;
        let tables = tables::open(part.clone(), options).map_err(io::Error::other)?;
        Ok(Some(Self::of(shown, name, part, tables)))
    }

    fn of(shown: &Path, name: ImageName, part: Part<Arc<ImageFile>>, tables: Box<dyn Tables + Send>) -> Self {
        let device = Arc::new(ImageDevice { part, path: name.file });
        let shown = match name.inside.is_empty() {
            true => all_of(shown),
            false => shown.to_owned(),
        };
        Self { shown, inside: name.inside, tables, device }
    }
}

/// The name of all that is in an image: as it was named, and `:/`.
fn all_of(shown: &Path) -> PathBuf {
    let mut name = shown.as_os_str().to_owned();
    if !shown.as_os_str().as_bytes().ends_with(b":/") {
        name.push(":/");
    }
    name.into()
}

/// By which the paths of files begin that come from what [`is_image`]: all of `disk.img` is `disk.img:/`.
pub fn path_of_image(named: &Path) -> PathBuf {
    match ImageName::of(named) {
        Some(name) if name.inside.is_empty() => all_of(named),
        _ => named.to_owned(),
    }
}
