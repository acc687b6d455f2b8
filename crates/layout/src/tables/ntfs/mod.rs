//! NTFS, read from its $MFT.
//!
//! ```no_run
//! use std::{ops::ControlFlow, path::Path};
//! use onesweep_layout::{
//!     ImageFile,
//!     tables::{Found, Inode, Name, TableError, Tables, Wanted, ntfs::{Ntfs, Options}},
//! };
//!
//! struct Largest(Inode);
//!
//! impl Found for Largest {
//!     fn inode(&mut self, inode: Inode) -> ControlFlow<()> {
//!         if inode.size > self.0.size {
//!             self.0 = inode;
//!         }
//!         ControlFlow::Continue(())
//!     }
//!
//!     fn name(&mut self, _: Name<'_>) -> ControlFlow<()> {
//!         ControlFlow::Continue(())
//!     }
//!
//!     fn incomplete(&mut self, _: Option<u64>) {}
//!
//!     fn problem(&mut self, problem: TableError) -> ControlFlow<()> {
//!         eprintln!("{problem}");
//!         ControlFlow::Continue(())
//!     }
//! }
//!
//! let mut ntfs = Ntfs::open(ImageFile::open(Path::new("disk.img"))?, Options::default())?;
//! let mut largest = Largest(Inode::default());
//! ntfs.scan(Wanted::default(), &mut largest)?;
//! println!("record {} of {} has {} bytes", largest.0.number, ntfs.facts().label, largest.0.size);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The $MFT is a file of records of 1024 or 4096 bytes, one or more for each file, and where it lies its own first record
//! tells. It is read once, in rising order and in reads of 2 MiB; every record tells its inode and its names, so directories
//! aren't read but to compare names. Files that have outgrown their record come after it, many at a time, their further
//! records in rising order.
//!
//! What is told is what `ntfs-3g` shows by default, mounted by root: everybody may do everything, everything belongs to
//! root, devices, sockets and symbolic links of Interix and of Linux on Windows are what they stand for, and reparse points
//! that nothing is known of are symbolic links to a text with their tag. Times have 100 ns. The system's own files are left
//! out. Unlike there, targets of absolute links keep their drive, since there's no mount point to put before them; letters
//! in targets keep their case; and targets are told whether or not they are there.
//!
//! Links count the names for DOS programs, as they do there. Not known: the data of reparse points of other drivers
//! (deduplication, cloud files, files that Windows compressed for itself), mappings of users, what encrypted files say (their
//! keys are an extended attribute), and which extended attributes Linux on Windows keeps beside the numbers of devices.
//!
//! | file | subject |
//! |---|---|
//! | `boot` | the boot sector and its backup |
//! | `record`, `attributes` | file records with their fixups, the attributes in them |
//! | `runlist`, `stream` | where an attribute lies; its content put together from pieces |
//! | `attribute_list`, `listed` | files of several records |
//! | `mft` | the $MFT by its own runs |
//! | `names`, `times`, `special`, `reparse` | what attributes say |
//! | `file`, `scan` | inodes out of attributes; the pass over all records |
//! | `bitmap`, `directories` | what a scan remembers of the records so far |
//! | `free` | clusters that nobody has |
//! | [`MountedNtfs`] | files and metadata of one that is mounted, by its device |
//! | `index`, `clean` | whether the volume was closed |
//! | `indexes`, `index_blocks`, `doubtful` | names that directories tell, too: all of them, blocks of large ones, one that contradicts |
//! | `space` | clusters in use, and whose they are |
//! | `lznt1`, [`Decompressor`] | compressed files |
//!
//! Memory: 2 MiB of the $MFT; 2 bytes and three bits for each record of it, 4 bytes and a bit, and a bit for each cluster, 64 MiB of
//! either at most; up to
//! 16 MiB of files that wait for further records, and one more with all of its own (some 32 MiB at most, for its list has 256
//! KiB at most); up to 64 MiB of names whose directory comes later in the $MFT (further ones are told without looking whether
//! the directory is still the same); and of the inode that is told, 40 bytes for each of up to 4,194,304 extents, and up to 4
//! MiB of extended attributes. Where the blocks of indexes are read, 16 MiB of their places, more of which wait for a pass of their
//! own, and 5 MiB; where names contradict, 16 MiB of file records.

mod attribute_list;
mod attributes;
mod bitmap;
mod boot;
mod bytes;
mod clean;
mod compressed;
mod directories;
mod doubtful;
mod file;
mod free;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod index;
mod index_blocks;
mod indexes;
mod listed;
mod lznt1;
mod mft;
mod mounted;
mod names;
mod record;
mod reparse;
mod runlist;
mod scan;
mod space;
mod special;
mod stream;
mod times;

use std::ops::ControlFlow;

use self::{boot::Geometry, clean::VolumeInformation, mft::Mft, scan::Scan};
use super::{Found, Inode, InodeFlags, Name, Sign, TableError, Tables, VolumeFacts, Wanted, crc32c::crc32c};
use crate::block_read::BlockRead;

pub(super) use self::boot::has_backup_alone;
pub use self::{
    compressed::{BadUnit, Decompressor, unpack_unit},
    mounted::MountedNtfs,
};
pub use super::open::Options;

/// The record of the root directory.
const ROOT: u64 = 5;
/// The record of $Extend, the directory of the system's files that came with later versions.
const EXTEND: u64 = 11;
/// The first record that isn't kept for the system.
const FIRST_FILE: u64 = 24;
/// The name of the index of names.
const INDEX_NAME: &[u8] = b"$I30";

/// An NTFS that is read from its own tables.
#[derive(Debug)]
pub struct Ntfs<B> {
    mft: Mft<B>,
    facts: VolumeFacts,
    /// What was damaged when it was opened, and could be done without. Told by the first scan.
    notes: Vec<TableError>,
}

/// Records whose numbers of writes tell that somebody writes to the volume: $MFT, $Volume, the root directory, $Bitmap.
const WRITTEN_OFTEN: [u64; 4] = [0, 3, ROOT, 6];
/// A larger $MFT isn't read for its sum: such a volume has no marks. It has 262,144 records of 1 KiB.
const SUMMED_BYTES_MAX: u64 = 256 << 20;
/// Read at once for the sum.
const PORTION: usize = 1 << 20;

/// What changes whenever the volume is mounted and written to; see [`change_marks`](super::change_marks).
///
/// ntfs-3g leaves a journal that is closed as it is. All that it writes when the bytes of a file are overwritten is the record of
/// that file, with a new time and a new number of writes. So there is a sum of all records.
pub(super) fn change_marks(device: &impl BlockRead) -> Result<Option<Vec<u64>>, TableError> {
    let (geometry, _) = Geometry::read(&device)?;
    let mft = Mft::open(device, geometry, &mut Vec::new())?;
    let Some(lsn) = clean::restart_lsn(&mft)? else { return Ok(None) };
    let mut marks = vec![lsn];
    for number in WRITTEN_OFTEN {
        let Some(at) = mft.at(number) else { return Ok(None) };
        let mut record = mft.empty_record();
        mft.read_device(&mut record, at)?;
        // The update sequence number, which each write of a record counts up, and the record's own LSN.
        let written = bytes::u16_at(&record, 4).and_then(|array| bytes::u16_at(&record, array.into()));
        marks.extend([u64::from(written.unwrap_or(0)), bytes::u64_at(&record, 8).unwrap_or(0)]);
    }
    let Some(sum) = sum_of_records(&mft)? else { return Ok(None) };
    marks.push(sum);
    Ok(Some(marks))
}

/// A sum of the whole $MFT as it lies there, records that are free too; `None` where it is too large.
fn sum_of_records<B: BlockRead>(mft: &Mft<B>) -> Result<Option<u64>, TableError> {
    if mft.extents.iter().fold(0, |sum: u64, extent| sum.saturating_add(extent.length)) > SUMMED_BYTES_MAX {
        return Ok(None);
    }
    let (mut sum, mut bytes) = (!0, Vec::new());
    for extent in &mft.extents {
        let Some(physical) = extent.physical else { return Ok(None) };
        for within in (0..extent.length).step_by(PORTION) {
            bytes.resize(usize::try_from(extent.length - within).unwrap_or(usize::MAX).min(PORTION), 0);
            mft.read_device(&mut bytes, physical + within)?;
            sum = crc32c(sum, &bytes);
        }
    }
    Ok(Some(sum.into()))
}

impl<B: BlockRead> Ntfs<B> {
    /// Opens the NTFS that begins at the first byte.
    ///
    /// [`TableError::NotHere`] where there is none; [`TableError::Dirty`] where it wasn't closed, unless that is forced;
    /// [`TableError::Unsupported`] for a version that nobody has seen; [`TableError::Damaged`] or [`TableError::Io`] where
    /// neither the boot sector and the first records nor their copies can be read.
    pub fn open(device: B, options: Options) -> Result<Ntfs<B>, TableError> {
        let (geometry, damage) = Geometry::read(&device)?;
        let mut notes: Vec<TableError> = damage.into_iter().collect();
        if device.len() < geometry.bytes {
            let expected = format!("{} bytes", geometry.bytes);
            notes.push(TableError::damaged("the end of the volume", device.len(), expected, "the end of the device"));
        }
        let mft = Mft::open(device, geometry, &mut notes)?;
        let volume = VolumeInformation::read(&mft).map_err(|damage| notes.push(damage)).ok();
        if let Some(volume) = volume.as_ref().filter(|volume| volume.major_version > 3) {
            let version = format!("{}.{}", volume.major_version, volume.minor_version);
            return Err(TableError::Unsupported {
                feature: format!("version {version} of NTFS"),
                sign: Some(Sign::new(volume.at, "a version up to 3", version)),
                advice: "mount it by what made it",
            });
        }
        let is_dirty = match clean::check(&mft, volume.as_ref(), &mut notes) {
            Ok(()) => false,
            Err(_) if options.force_dirty => true,
            Err(dirty) => return Err(dirty),
        };
        let facts = VolumeFacts {
            fs_type: "ntfs",
            label: volume.map(|volume| volume.label).unwrap_or_default(),
            block_bytes: geometry.cluster_bytes,
            bytes: geometry.bytes,
            root: ROOT,
            inodes_used: None,
            is_replayed: false,
            is_dirty,
            compression_unit_bytes: geometry.cluster_bytes << stream::COMPRESSION_UNIT,
        };
        Ok(Ntfs { mft, facts, notes })
    }

    /// The serial number of the volume, as `blkid` shows it in hexadecimal.
    pub fn serial(&self) -> u64 {
        self.mft.geometry.serial
    }

    /// The image or device that it lies on.
    pub fn device(&self) -> &B {
        &self.mft.device
    }
}

impl<B: BlockRead> Tables for Ntfs<B> {
    fn facts(&self) -> &VolumeFacts {
        &self.facts
    }

    fn free(&self, each: &mut dyn FnMut(u64, u64)) -> Result<(), TableError> {
        free::runs(&self.mft, each)
    }

    fn inode_at(&self, number: u64) -> Option<u64> {
        self.mft.at(number)
    }

    fn scan(&mut self, wanted: Wanted, found: &mut dyn Found) -> Result<(), TableError> {
        for note in self.notes.drain(..) {
            if found.problem(note).is_break() {
                return Ok(());
            }
        }
        let flags = if self.facts.is_dirty { InodeFlags::DIRTY } else { InodeFlags::empty() };
        match Scan::new(&self.mft, wanted, !self.facts.is_dirty, &mut Flagged { found, flags }).run() {
            ControlFlow::Continue(()) | ControlFlow::Break(()) => Ok(()),
        }
    }
}

/// Flags every inode as one of a volume that was not closed, if it wasn't. A record that is damaged may have had a name in any
/// directory.
struct Flagged<'a> {
    found: &'a mut dyn Found,
    flags: InodeFlags,
}

impl Found for Flagged<'_> {
    fn inode(&mut self, mut inode: Inode) -> ControlFlow<()> {
        inode.flags |= self.flags;
        self.found.inode(inode)
    }

    fn name(&mut self, name: Name<'_>) -> ControlFlow<()> {
        self.found.name(name)
    }

    fn incomplete(&mut self, directory: Option<u64>) {
        self.found.incomplete(directory);
    }

    fn problem(&mut self, problem: TableError) -> ControlFlow<()> {
        self.found.incomplete(None);
        self.found.problem(problem)
    }
}
