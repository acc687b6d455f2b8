//! Images and unmounted devices as they are named on a command line: `FILE`, `FILE@2`, `FILE:/path`, `FILE@2:/path`.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod writers;

use std::{
    ffi::OsStr,
    fmt, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use onesweep_sys::files::{CURRENT_DIR, EntryType, statx_at};
use thiserror::Error;

use crate::{
    block_read::{BlockRead, ImageFile, Part},
    partitions::{Partition, PartitionError, partitions},
    tables::{self, Beginning, Options, TableError, Tables, xfs::Xfs},
};
use writers::writable_mount;

/// The bytes of an image, or of the partition of it that is named.
pub type ImagePart = Part<Arc<ImageFile>>;

/// How the tables of an image or device are opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageOptions {
    /// See [`Options::force_dirty`].
    pub force_dirty: bool,
    /// The image, device or partition that has the log of an XFS which has it elsewhere (`mkfs.xfs -l logdev=`), as it is named
    /// on a command line. File systems that have all of it are read without.
    pub logdev: Option<PathBuf>,
    /// The same for the realtime device of an XFS which has one (`mkfs.xfs -r rtdev=`). Without it the files there have no
    /// content that could be read; those of file systems without one are read as they are.
    pub rtdev: Option<PathBuf>,
}

/// What is in an image.
pub struct OpenImage {
    /// Its bytes.
    pub part: ImagePart,
    /// The realtime device of its file system, which has one and for which one was named: where the content of
    /// [files that lie elsewhere](crate::tables::InodeFlags::ELSEWHERE) is.
    pub realtime: Option<(PathBuf, ImagePart)>,
    /// Its file system.
    pub tables: Box<dyn Tables + Send>,
}

/// An image or device, and a place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageName {
    /// The image file or device.
    pub file: PathBuf,
    /// The partition, where one was named.
    pub partition: Option<u32>,
    /// The path inside, without a slash at the front; empty for all of it.
    pub inside: Vec<u8>,
}

impl ImageName {
    /// Takes a name apart. What is a file as it stands is one; else the last `:/` begins the path inside, and an `@` with a
    /// number names a partition. `None` when nothing of that is there.
    pub fn of(name: &Path) -> Option<ImageName> {
        ImageName::find(name.as_os_str().as_bytes(), &|path| {
            let kind = statx_at(CURRENT_DIR, path, false).map(|stat| stat.file_type());
            kind.is_ok_and(|kind| matches!(kind, EntryType::File | EntryType::BlockDevice))
        })
    }

    pub(crate) fn find(name: &[u8], is_image: &dyn Fn(&Path) -> bool) -> Option<ImageName> {
        let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
        let at = |file: &[u8], inside: &[u8]| {
            let whole = ImageName { file: path(file), partition: None, inside: inside.to_vec() };
            if is_image(&whole.file) {
                return Some(whole);
            }
            let split = file.iter().rposition(|&byte| byte == b'@')?;
            let number = std::str::from_utf8(&file[split + 1..]).ok()?.parse().ok()?;
            let part = ImageName { file: path(&file[..split]), partition: Some(number), ..whole };
            is_image(&part.file).then_some(part)
        };
        let inside = name.windows(2).rposition(|pair| pair == b":/");
        at(name, b"").or_else(|| {
            let split = inside?;
            let below = &name[split + 1..];
            let first = below.iter().position(|&byte| byte != b'/').unwrap_or(below.len());
            at(&name[..split], &below[first..])
        })
    }

    /// Opens the image, or the partition that is named. Not while it is mounted for writing: what is written then reaches the
    /// tables whenever the kernel likes.
    pub fn open(&self) -> Result<ImagePart, ImageError> {
        let file = Arc::new(self.open_file()?);
        let part = match self.partition {
            None => {
                let len = file.len();
                Part::new(file, 0, len)
            }
            Some(number) => {
                let found = partitions(&*file).map_err(|source| self.error(WhyNot::Partitions(source)))?;
                let partition = found.iter().find(|partition| partition.number == number);
                let there = || Numbers(found.iter().map(|partition| partition.number).collect());
                let partition = partition.ok_or_else(|| self.error(WhyNot::NoPartition { number, there: there() }))?;
                Part::new(file, partition.start, partition.len)
            }
        };
        match writable_mount(&self.file, part.start()) {
            Some(at) => Err(self.error(WhyNot::Mounted { at })),
            None => Ok(part),
        }
    }

    /// Opens it, and the file system in it.
    pub fn open_tables(&self, options: &ImageOptions) -> Result<OpenImage, ImageError> {
        let part = self.open()?;
        let why = match tables::open(part.clone(), Options { force_dirty: options.force_dirty }) {
            Ok(tables) if tables.facts().fs_type == "xfs" && options.rtdev.is_some() => {
                return self.open_xfs(part, None, options.rtdev.as_deref());
            }
            Ok(tables) => return Ok(OpenImage { part, realtime: None, tables }),
            Err(why) => why,
        };
        if let (TableError::LogElsewhere { .. }, Some(logdev)) = (&why, &options.logdev) {
            return self.open_xfs(part, Some(logdev), options.rtdev.as_deref());
        }
        let found = tables::beginning(&part);
        if found == Beginning::Qcow2 {
            return Err(self.error(WhyNot::Qcow2));
        }
        let is_whole = self.partition.is_none() && found != Beginning::FileSystem;
        let there = if is_whole { partitions(&part).unwrap_or_default() } else { Vec::new() };
        Err(self.error(match there.is_empty() {
            true => WhyNot::Tables(why),
            false => WhyNot::Divided(there.iter().map(|partition| self.name_of(partition)).collect()),
        }))
    }

    /// Opens an XFS that has its log elsewhere, or that may have a realtime device.
    fn open_xfs(&self, part: ImagePart, logdev: Option<&Path>, rtdev: Option<&Path>) -> Result<OpenImage, ImageError> {
        let xfs = match logdev {
            Some(logdev) => with_log(part.clone(), logdev).map_err(|error| self.error(WhyNot::Log(Box::new(error))))?,
            None => Xfs::open(part.clone()).map_err(|why| self.error(WhyNot::Tables(why)))?,
        };
        let Some(rtdev) = rtdev.filter(|_| xfs.has_realtime_device()) else {
            return Ok(OpenImage { part, realtime: None, tables: Box::new(xfs) });
        };
        let failed = |error| self.error(WhyNot::Realtime(Box::new(error)));
        let name = other_device(rtdev);
        let realtime = name.open().map_err(failed)?;
        let xfs = xfs.with_realtime_device(realtime.len());
        let xfs = xfs.map_err(|why| failed(ImageError { path: rtdev.to_owned(), why: WhyNot::Tables(why) }))?;
        Ok(OpenImage { part, realtime: Some((name.file, realtime)), tables: Box::new(xfs) })
    }

    /// Whether all of a regular file is named.
    pub fn is_plain_file(&self) -> bool {
        let is_whole = self.partition.is_none() && self.inside.is_empty();
        is_whole && statx_at(CURRENT_DIR, &self.file, false).is_ok_and(|found| found.file_type() == EntryType::File)
    }

    /// How a partition is named.
    fn name_of(&self, partition: &Partition) -> String {
        format!("{}@{}", self.file.display(), partition.number)
    }

    /// The image, or the partition of it that is named.
    fn without_inside(&self) -> PathBuf {
        let mut name = self.file.clone().into_os_string();
        if let Some(number) = self.partition {
            name.push(format!("@{number}"));
        }
        name.into()
    }

    fn open_file(&self) -> Result<ImageFile, ImageError> {
        ImageFile::open(&self.file).map_err(|source| self.error(WhyNot::Open(source)))
    }

    fn error(&self, why: WhyNot) -> ImageError {
        ImageError { path: self.without_inside(), why }
    }
}

/// Opens an XFS whose log is elsewhere.
fn with_log(part: ImagePart, logdev: &Path) -> Result<Xfs<ImagePart>, ImageError> {
    let log = other_device(logdev).open()?;
    Xfs::open_with_log(part, &log).map_err(|why| ImageError { path: logdev.to_owned(), why: WhyNot::Tables(why) })
}

/// A device beside that of a file system, as it is named on a command line.
fn other_device(named: &Path) -> ImageName {
    let as_it_is = || ImageName { file: named.to_owned(), partition: None, inside: Vec::new() };
    ImageName::of(named).filter(|name| name.inside.is_empty()).unwrap_or_else(as_it_is)
}

/// An image can't be read.
#[derive(Debug, Error)]
#[error("{}: {why}", path.display())]
pub struct ImageError {
    /// Which.
    pub path: PathBuf,
    /// Why.
    pub why: WhyNot,
}

/// Why an image can't be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WhyNot {
    /// The file or device.
    #[error("cannot open: {0}")]
    Open(io::Error),
    /// Somebody may be writing to it.
    #[error("it is mounted at {}; unmount it, or mount it for reading alone", at.display())]
    Mounted {
        /// Where.
        at: PathBuf,
    },
    /// Its partitions.
    #[error(transparent)]
    Partitions(PartitionError),
    /// There is none with the number.
    #[error("no partition {number}; there {there}")]
    NoPartition {
        /// The number.
        number: u32,
        /// Those that are there.
        there: Numbers,
    },
    /// Its partitions hold the file systems.
    #[error("it is divided into partitions; name one of {}", .0.join(", "))]
    Divided(Vec<String>),
    /// Its bytes are those of a disk in another order.
    #[error("a qcow2 image: attach it by qemu-nbd (qemu-nbd -r -c /dev/nbd0 IMAGE), and name the device")]
    Qcow2,
    /// Its file system.
    #[error(transparent)]
    Tables(TableError),
    /// The log of its file system, which is elsewhere.
    #[error("its log {0}")]
    Log(Box<ImageError>),
    /// The realtime device of its file system.
    #[error("its realtime device {0}")]
    Realtime(Box<ImageError>),
}

/// Numbers of partitions, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers(Vec<u32>);

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = self.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match self.0.len() {
            0 => f.write_str("is none"),
            1 => write!(f, "is {list}"),
            _ => write!(f, "are {list}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn names_are_taken_apart() {
        let there = |path: &Path| ["disk.img", "/dev/sdb", "odd@3", "a:/b"].map(Path::new).contains(&path);
        let image = |file: &str, partition, inside: &str| {
            Some(ImageName { file: file.into(), partition, inside: inside.as_bytes().to_vec() })
        };
        for (name, expected) in [
            ("disk.img", image("disk.img", None, "")),
            ("disk.img:/", image("disk.img", None, "")),
            ("disk.img://home/x", image("disk.img", None, "home/x")),
            ("disk.img@2", image("disk.img", Some(2), "")),
            ("/dev/sdb@12:/a b", image("/dev/sdb", Some(12), "a b")),
            ("odd@3", image("odd@3", None, "")),
            ("odd@3@1:/x", image("odd@3", Some(1), "x")),
            ("a:/b", image("a:/b", None, "")),
            ("a:/b:/c", image("a:/b", None, "c")),
            ("disk.img@x", None),
            ("disk.img@2x:/", None),
            ("none", None),
            ("none:/x", None),
            ("", None),
        ] {
            assert_eq!(ImageName::find(name.as_bytes(), &there), expected, "{name}");
        }
    }

    #[test]
    fn a_partition_that_is_not_there_is_told_with_those_that_are() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let name = |partition| ImageName { file: file.path().to_owned(), partition, inside: Vec::new() };
        fs::write(file.path(), vec![0; 1 << 20]).unwrap();
        assert_eq!(name(None).open().unwrap().len(), 1 << 20);
        let error = name(Some(1)).open().unwrap_err().to_string();
        assert!(error.contains("no partition table"), "{error}");
        let mut disk = vec![0; 1 << 20];
        disk[450] = 0x83;
        disk[454..458].copy_from_slice(&8_u32.to_le_bytes());
        disk[458..462].copy_from_slice(&100_u32.to_le_bytes());
        disk[510..512].copy_from_slice(&[0x55, 0xaa]);
        fs::write(file.path(), disk).unwrap();
        let part = name(Some(1)).open().unwrap();
        assert_eq!((part.start(), part.len()), (8 * 512, 100 * 512));
        let error = name(Some(2)).open().unwrap_err().to_string();
        assert!(error.ends_with("no partition 2; there is 1"), "{error}");
    }
}
