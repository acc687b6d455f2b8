//! Files of images and unmounted devices: what there is the tables tell, and what is in them comes from the device itself.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod content;
mod fill;
mod gather;
mod look;
mod place;

use std::{
    fmt, io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use onesweep_layout::{
    BlockRead, ImageFile, Part,
    image::{ImageName, ImageOptions, OpenImage},
    partitions::partitions,
    tables::{self, Beginning, Tables},
};
use onesweep_sys::{
    block,
    files::{CURRENT_DIR, EntryType, Stat, statx_at},
};

pub(crate) use self::{
    content::{ImageContent, unpack},
    fill::{FillError, Filling, Wishes},
};

/// Whether [`MetadataSource::Auto`](crate::MetadataSource::Auto) takes a path for that of an image, of a device that isn't
/// mounted, or of something inside of one, where it is one of `named` paths, and named links to devices are followed or not.
/// Reads a few blocks.
///
/// True also where it has to be one, but can't be read.
pub fn is_image(path: &Path, named: usize, follow: bool) -> bool {
    match ImageName::of(path).map(|name| Named::of(path, &name, follow)) {
        None | Some(Named::Link | Named::DeviceLink) => false,
        Some(Named::PlainFile) => !matches!(Image::open(path, path, named, follow, &ImageOptions::default()), Ok(None)),
        Some(Named::Image) => true,
    }
}

/// What somebody who names a path might not expect of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathRemark {
    /// A plain file is taken for an image: the files in it are read.
    Image,
    /// A disk with these partitions is taken as one file.
    Divided(Vec<u32>),
    /// An image of a btrfs is taken as one file.
    Btrfs,
    /// An image of QEMU is taken as one file.
    Qcow2,
    /// A symbolic link to a device is taken as the link.
    DeviceLink,
}

/// What is to be said of a path before it is read with [`MetadataSource::Auto`](crate::MetadataSource::Auto) as one of
/// `named` paths. Nothing of one that can't be read: that is an error then. Reads a few blocks.
pub fn remark_on(path: &Path, named: usize, follow: bool, options: &ImageOptions) -> Option<PathRemark> {
    let name = ImageName::of(path)?;
    match Named::of(path, &name, follow) {
        Named::DeviceLink => Some(PathRemark::DeviceLink),
        Named::PlainFile if named <= PLAIN_IMAGES_MAX => match look::into_file(path, one_file_in_all)? {
            None => Image::open(path, path, named, follow, options).ok()?.map(|_| PathRemark::Image),
            remark => remark,
        },
        _ => None,
    }
}

/// What a file is that holds files but isn't taken for an image.
fn one_file_in_all(file: &dyn BlockRead) -> Option<PathRemark> {
    match tables::beginning(file) {
        Beginning::Btrfs => Some(PathRemark::Btrfs),
        Beginning::Qcow2 => Some(PathRemark::Qcow2),
        Beginning::Unknown => {
            let found = partitions(file).ok().filter(|found| !found.is_empty())?;
            Some(PathRemark::Divided(found.iter().map(|partition| partition.number).collect()))
        }
        _ => None,
    }
}

/// What a name stands for that could be that of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    /// A file as it is named: an image only when it holds a file system.
    PlainFile,
    /// A symbolic link as it is named, which is not followed.
    Link,
    /// The same, to a device.
    DeviceLink,
    /// A device, a partition or a path inside of an image: it must hold a file system.
    Image,
}

impl Named {
    fn of(path: &Path, name: &ImageName, follow: bool) -> Self {
        if name.file != path {
            return Self::Image;
        }
        let kind = |follow: bool| statx_at(CURRENT_DIR, path, !follow).map(|found| found.file_type());
        match kind(false) {
            Ok(EntryType::Symlink) => match kind(true) {
                Ok(EntryType::BlockDevice) if follow => Self::Image,
                Ok(EntryType::BlockDevice) => Self::DeviceLink,
                _ => Self::Link,
            },
            Ok(EntryType::File) => Self::PlainFile,
            _ => Self::Image,
        }
    }
}

/// Plain files are looked into only where no more paths than these are named: each costs a read at its own place of the disk,
/// and a list of thousands of files is none of images.
const PLAIN_IMAGES_MAX: usize = 16;

/// A file system in an image or on a device, and the place in it that is swept.
pub(crate) struct Image {
    /// As it was named.
    pub(crate) shown: PathBuf,
    pub(crate) inside: Vec<u8>,
    pub(crate) tables: Box<dyn Tables + Send>,
    pub(crate) device: Arc<ImageDevice>,
    /// The realtime device of an XFS, where that was named.
    pub(crate) realtime: Option<Arc<ImageDevice>>,
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
    /// A file that is named as it is counts as an image only when it holds a file system, and then fails where that can't be
    /// read; a device, a partition or a path inside must hold one. A link to a device counts where `follow`.
    pub(crate) fn open(
        shown: &Path,
        opened: &Path,
        named: usize,
        follow: bool,
        options: &ImageOptions,
    ) -> io::Result<Option<Self>> {
        let Some(name) = ImageName::of(opened) else { return Ok(None) };
        match Named::of(opened, &name, follow) {
            Named::Link | Named::DeviceLink => Ok(None),
            Named::Image => Self::open_as(shown, name, options).map(Some),
            Named::PlainFile if named > PLAIN_IMAGES_MAX => Ok(None),
            Named::PlainFile => match look::into_file(opened, |file| tables::beginning(file)) {
                Some(Beginning::FileSystem) => Self::open_as(shown, name, options)
                    .map(Some)
                    .map_err(|why| io::Error::other(format!("{why}; --metadata walk takes it as one file"))),
                // Whatever stands there by chance, the file is a file.
                Some(Beginning::Doubtful) => Ok(Self::open_as(shown, name, options).ok()),
                _ => Ok(None),
            },
        }
    }

    /// Opens what `opened` names where that is a file, a device or something inside; `None` for what else there is. Fails
    /// where the tables of a file system can't be read there.
    pub(crate) fn open_named(shown: &Path, opened: &Path, options: &ImageOptions) -> io::Result<Option<Self>> {
        ImageName::of(opened).map(|name| Self::open_as(shown, name, options)).transpose()
    }

    fn open_as(shown: &Path, name: ImageName, options: &ImageOptions) -> io::Result<Self> {
        // The path goes before all messages as it is.
        let OpenImage { part, realtime, tables } =
            name.open_tables(options).map_err(|error| io::Error::other(error.why))?;
        let device = Arc::new(ImageDevice { part, path: name.file });
        let realtime = realtime.map(|(path, part)| Arc::new(ImageDevice { part, path }));
        let shown = match name.inside.is_empty() {
            true => all_of(shown),
            false => shown.to_owned(),
        };
        Ok(Self { shown, inside: name.inside, tables, device, realtime })
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
