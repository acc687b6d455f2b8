//! File systems read from their own tables, without a walk (DAFT, section II.B).
//!
//! A file system that isn't mounted, or lies in an image file, is read here without the kernel: its inodes in large reads over
//! the tables, its directories in the order of the disk. Of one that is mounted, ext4 is read from the device below it, and the
//! kernel is asked for the tables of XFS and btrfs. What is found is told piece by piece, inodes and names in whatever order they come,
//! so that nothing but what the caller keeps takes memory. Whoever wants paths joins the names by inode number.
//!
//! Whatever the bytes are: nothing here panics, loops without end, or allocates beyond the bound that each reader states.
//! Numbers from the disk go through checked conversions, and what is damaged is told with its place.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

mod beginning;
mod bits;
pub mod btrfs;
pub(crate) mod cast;
pub mod change_marks;
mod checks;
mod crc32c;
pub mod ext4;
pub mod lost;
pub mod ntfs;
mod open;
mod problems;
pub mod spans;
mod strangers;
mod tree;
pub mod xfs;

use std::{fmt, io, ops::ControlFlow};

use bitflags::bitflags;
use thiserror::Error;

pub use self::beginning::{Beginning, beginning};
pub use self::open::{Options, open};
pub use self::tree::{Entry, NoSuchPath, Part, Tree, Whole};
use crate::extent::Extent;

/// A point in time: seconds since 1970, and nanoseconds below 1,000,000,000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since 1970, negative before.
    pub seconds: i64,
    /// Nanoseconds to add.
    pub nanoseconds: u32,
}

bitflags! {
    /// What is special about an inode.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct InodeFlags: u32 {
        /// The content on the device is compressed.
        const COMPRESSED = 1;
        /// The content on the device is encrypted; what can be read is what lies there.
        const ENCRYPTED = 1 << 1;
        /// The content goes through the journal, so the device may hold older bytes.
        const JOURNALED = 1 << 2;
        /// The content lies on another device (the realtime device of XFS), and so do the addresses of its extents.
        const ELSEWHERE = 1 << 3;
        /// The names in this directory are encrypted.
        const ENCRYPTED_NAMES = 1 << 4;
        /// Names in this directory are told apart without regard to case.
        const CASEFOLD = 1 << 5;
        /// Its file system was not closed: what was written last may be missing, or half there.
        const DIRTY = 1 << 6;
        /// A driver that isn't known here makes something else of it (compressed by Windows for itself, deduplicated, in a
        /// cloud). It's told as a symbolic link to a text that names the tag of the driver.
        const UNKNOWN_REPARSE = 1 << 7;
    }
}

/// An inode that is in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inode {
    /// Its number; of NTFS, that of its file record.
    pub number: u64,
    /// Tells it from another file that had the number before.
    pub generation: u32,
    /// Type and permissions, as in `st_mode`.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Bytes of content.
    pub size: u64,
    /// Bytes that are allocated.
    pub allocated: u64,
    /// Its names, as it counts them itself.
    pub links: u32,
    /// For a device node: its device, as `makedev` packs it.
    pub rdev: u64,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Last read.
    pub atime: Timestamp,
    /// Birth, where it is kept.
    pub btime: Option<Timestamp>,
    /// What is special about it.
    pub flags: InodeFlags,
    /// Where its content lies, in the order of the file; holes are left out. Empty where `inline` has it.
    pub extents: Vec<Extent>,
    /// Content that lies among the metadata, such as in the inode: of a file, or the target of a symbolic link.
    pub inline: Option<Vec<u8>>,
    /// Extended attributes with their full names (`user.…`), where they were asked for.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Further contents under names of their own (the alternate data streams of NTFS): name and bytes.
    pub streams: Vec<(Vec<u8>, u64)>,
}

/// A name in a directory. `.` and `..` are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a> {
    /// The inode of the directory.
    pub directory: u64,
    /// The inode that it names.
    pub inode: u64,
    /// Its bytes; of NTFS, as UTF-8.
    pub name: &'a [u8],
}

/// Where what is found goes. Each call may end the scan.
pub trait Found {
    /// An inode in use; those that no directory names (orphans) too.
    fn inode(&mut self, inode: Inode) -> ControlFlow<()>;

    /// A name.
    fn name(&mut self, name: Name<'_>) -> ControlFlow<()>;

    /// Names of this directory may be missing: a problem with a part of it was or will be told. `None` where nobody can tell of
    /// which directories they are.
    fn incomplete(&mut self, directory: Option<u64>);

    /// Something is damaged or can't be read; the scan goes on without it.
    fn problem(&mut self, problem: TableError) -> ControlFlow<()>;
}

/// Whether names are held against those that directories tell once more, in blocks that nothing else needs: the indexes of an NTFS
/// that isn't mounted. They are read in one more rising pass. What costs no read is compared in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Indexes {
    /// No such block is read.
    #[default]
    Left,
    /// They are read where that takes a disk a twentieth of what the content of all files takes, at most: for whoever reads that.
    WhereCheap,
    /// All of them are read.
    All,
}

/// What is asked for beside names and inodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Extended attributes: on some file systems each costs a read.
    pub xattrs: bool,
    /// Where files lie, where that is no part of what is read in any case: a mounted XFS has to be asked for it.
    pub extents: bool,
    /// What directories tell of names that were told already, held against those.
    pub indexes: Indexes,
}

/// What a file system says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeFacts {
    /// Its type, as mount(8) takes it.
    pub fs_type: &'static str,
    /// Its label, as far as it is text.
    pub label: String,
    /// Bytes of a block or cluster.
    pub block_bytes: u32,
    /// Bytes of the file system.
    pub bytes: u64,
    /// The inode of the root directory.
    pub root: u64,
    /// Inodes in use, where it says so.
    pub inodes_used: Option<u64>,
    /// It was not closed, and what its journal holds is told as if it had been written to its place: content on the device
    /// may be older, see [`Tables::moved`].
    pub is_replayed: bool,
    /// It was not closed, and is read all the same: what was written last may be missing, or half there.
    pub is_dirty: bool,
    /// Bytes of the units that compressed files are divided into; 0 where there are no such files.
    pub compression_unit_bytes: u32,
}

/// Bytes of content that lie elsewhere than their extents say, since a journal was replayed in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Where extents have them.
    pub from: u64,
    /// Where they are.
    pub to: u64,
    /// How many.
    pub length: u64,
    /// What the first bytes are, where they are others than on the device.
    pub first_bytes: Option<[u8; 4]>,
}

/// A file system that is read from its own tables, mounted or not.
pub trait Tables {
    /// What it says of itself.
    fn facts(&self) -> &VolumeFacts;

    /// Visits what is free, by rising address: where each run begins and how long it is, in bytes from the start of the file
    /// system. Neighbours may come one by one. Ends at the first thing that is damaged.
    fn free(&self, _each: &mut dyn FnMut(u64, u64)) -> Result<(), TableError> {
        let feature = "no table of free space that is read here".to_owned();
        Err(TableError::Unsupported { feature, sign: None, advice: "ask the kernel that has it mounted" })
    }

    /// Content that is not where extents say, by rising `from`: they tell where it lies once the journal was replayed on the
    /// device, too.
    fn moved(&self) -> Vec<Moved> {
        Vec::new()
    }

    /// The byte where an inode has its place, whether it is in use or not; `None` where nobody can tell.
    fn inode_at(&self, _number: u64) -> Option<u64> {
        None
    }

    /// Tells every inode in use and every name. The order is that of the disk: the tables of inodes first, then directories by
    /// the addresses of their blocks.
    ///
    /// Errors are what ends all reading; what is damaged here and there goes to [`Found::problem`].
    fn scan(&mut self, wanted: Wanted, found: &mut dyn Found) -> Result<(), TableError>;
}

/// Why tables, or a part of them, can't be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TableError {
    /// There is no such file system here.
    #[error("no {fs_type} file system begins here: byte {at} has no {what}, found {found}")]
    NotHere {
        /// The type that was looked for.
        fs_type: &'static str,
        /// What would be there.
        what: &'static str,
        /// Where it would be, in bytes.
        at: u64,
        /// What is there.
        found: String,
    },
    /// Something else is here.
    #[error("it is {what}; {advice}")]
    Stranger {
        /// What it is.
        what: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// Bytes can't be read.
    #[error("cannot read {length} bytes at byte {at}: {source}")]
    Io {
        /// Where, in bytes from the start of the file system.
        at: u64,
        /// How many bytes.
        length: u64,
        /// Why.
        source: io::Error,
    },
    /// The kernel, which has the file system mounted, doesn't tell something.
    #[error("the kernel doesn't tell {what}: {source}")]
    Kernel {
        /// What was asked for.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// More problems were met than are told one by one.
    #[error("{problems} further problems aren't told one by one")]
    Further {
        /// How many.
        problems: u64,
    },
    /// Something isn't what it must be.
    #[error("{what} at byte {at} is damaged: expected {expected}, found {found}")]
    Damaged {
        /// What.
        what: String,
        /// Where, in bytes from the start of the file system.
        at: u64,
        /// What would be right.
        expected: String,
        /// What is there.
        found: String,
    },
    /// The file system has a feature that isn't known here, so nothing can be believed.
    #[error("the file system uses {feature}, which is not supported{}; {advice}", in_parentheses(.sign))]
    Unsupported {
        /// Its name, as the file system's own tools have it.
        feature: String,
        /// Where the file system says so; `None` where that is no matter of a single place.
        sign: Option<Sign>,
        /// What to do.
        advice: &'static str,
    },
    /// Whether what was written last is in the log still only another device can tell.
    #[error("its log is on another device ({sign}); name that device by --logdev")]
    LogElsewhere {
        /// Where the file system says so.
        sign: Sign,
    },
    /// What was named as the log of a file system is not that.
    #[error("it is not the log of this file system ({sign}); name the device that `mkfs.xfs -l logdev=` was given")]
    NotTheLog {
        /// Where that shows, in bytes of what was named.
        sign: Sign,
    },
    /// What was named as the realtime device of a file system is not that.
    #[error(
        "it has {bytes} bytes, and the realtime device of this file system {least}; name the device that `mkfs.xfs -r rtdev=` was given"
    )]
    NotTheRealtimeDevice {
        /// What it has at least.
        least: u64,
        /// What is there.
        bytes: u64,
    },
    /// What was written last is in the journal still.
    #[error("{journal} has to be recovered first ({sign}); {advice}")]
    Dirty {
        /// What has to be recovered.
        journal: &'static str,
        /// Where that shows.
        sign: Sign,
        /// What to do.
        advice: &'static str,
    },
}

/// Where something shows that makes a file system unreadable here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sign {
    /// Where, in bytes from the start of the file system.
    pub at: u64,
    /// What could be read.
    pub expected: String,
    /// What is there.
    pub found: String,
}

impl Sign {
    pub(crate) fn new(at: u64, expected: impl ToString, found: impl ToString) -> Sign {
        Sign { at, expected: expected.to_string(), found: found.to_string() }
    }
}

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: expected {}, found {}", self.at, self.expected, self.found)
    }
}

fn in_parentheses(sign: &Option<Sign>) -> String {
    sign.as_ref().map(|sign| format!(" ({sign})")).unwrap_or_default()
}

/// What is behind a size that is more than there is.
const CUT_SHORT: &str = ": the image is cut short, or this number is damaged";

/// A name as it is shown in messages, so that an empty one shows, too.
fn quoted(name: &[u8]) -> String {
    format!("\"{}\"", name.escape_ascii())
}

/// Bytes as they are shown in messages.
fn hexadecimal(bytes: &[u8]) -> String {
    match bytes {
        [] => "the end of the device".to_owned(),
        _ => bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "),
    }
}

impl TableError {
    /// Something at `at` isn't what it must be.
    pub fn damaged(what: impl Into<String>, at: u64, expected: impl ToString, found: impl ToString) -> TableError {
        TableError::Damaged { what: what.into(), at, expected: expected.to_string(), found: found.to_string() }
    }

    /// An inode isn't what a name of it in a directory says. Told where the inode has its place, or the directory where it can have
    /// none.
    pub fn of_name(
        tables: &(impl Tables + ?Sized),
        (directory, inode): (u64, u64),
        expected: &str,
        found: &str,
    ) -> TableError {
        let at = [inode, directory].into_iter().find_map(|number| tables.inode_at(number)).unwrap_or_default();
        let what = format!("inode {inode}, which directory {directory} names,");
        TableError::damaged(what, at, expected, found)
    }

    /// There is no root directory.
    pub fn without_root(tables: &(impl Tables + ?Sized)) -> TableError {
        let root = tables.facts().root;
        let at = tables.inode_at(root).unwrap_or_default();
        TableError::damaged(format!("inode {root}, the root directory,"), at, "a directory in use", "none")
    }

    /// The byte of the file system where it shows, if there is one.
    pub fn at(&self) -> Option<u64> {
        match self {
            TableError::NotHere { at, .. } | TableError::Io { at, .. } | TableError::Damaged { at, .. } => Some(*at),
            TableError::Unsupported { sign, .. } => sign.as_ref().map(|sign| sign.at),
            TableError::Dirty { sign, .. } | TableError::LogElsewhere { sign } => Some(sign.at),
            TableError::NotTheLog { .. }
            | TableError::NotTheRealtimeDevice { .. }
            | TableError::Stranger { .. }
            | TableError::Kernel { .. }
            | TableError::Further { .. } => None,
        }
    }
}
