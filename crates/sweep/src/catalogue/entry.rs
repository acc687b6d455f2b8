//! One entry of the catalogue: 112 bytes (qtar, section 4, takes "a couple of hundred").

use super::arena::NameAt;
use crate::{
    item::{Kind, Metadata, Timestamp},
    stream::State,
};

/// An entry's number in its catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct EntryId(pub(crate) u32);

impl EntryId {
    /// Stands for "no entry".
    pub(crate) const NONE: Self = Self(u32::MAX);

    pub(crate) fn some(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
    }
}

/// What is known of an entry, and what is to be done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags(u32);

impl Flags {
    pub(crate) const NONE: Self = Self(0);
    /// The attributes are filled in.
    pub(crate) const SURVEYED: Self = Self(1);
    /// Too large for reassembly, or compressed or encrypted in device mode: streamed after the sweep.
    pub(crate) const STREAMED: Self = Self(1 << 1);
    /// In device mode: read through the file system all the same.
    pub(crate) const THROUGH_FILE_SYSTEM: Self = Self(1 << 2);
    /// Found in the page cache.
    pub(crate) const CACHED: Self = Self(1 << 3);
    /// Nothing is delivered: handed over already, failed, or another name of a delivered inode.
    pub(crate) const DONE: Self = Self(1 << 4);
    /// The file system gave no address for some of it.
    pub(crate) const UNMAPPED: Self = Self(1 << 5);
    /// Its ctime is so young that a further change might not show.
    pub(crate) const RECENT: Self = Self(1 << 6);
    /// Other files may have the same bytes at the same addresses, one to one.
    pub(crate) const SHARED: Self = Self(1 << 7);
    /// Some of its pages lay in the cache when it was surveyed, or it was not told.
    pub(crate) const PARTLY_CACHED: Self = Self(1 << 8);
    /// The file system does not say that direct reads of it go past the cache.
    pub(crate) const DIRECT_DOUBTFUL: Self = Self(1 << 9);
    /// Which of its pages lie in the cache is not told: it is another user's.
    pub(crate) const UNTOLD: Self = Self(1 << 11);
    /// It lies on another file system than its directory: something is mounted over it, or its directory shows several.
    pub(crate) const FOREIGN: Self = Self(1 << 12);
    /// Its content can't be read from an image: it lies elsewhere, or where is not known.
    pub(crate) const UNREADABLE: Self = Self(1 << 14);
    /// It was an error item.
    pub(crate) const FAILED: Self = Self(1 << 13);
    /// In an image: its content is packed unit by unit.
    pub(crate) const PACKED: Self = Self(1 << 15);
    /// In an image: its content is encrypted.
    pub(crate) const ENCRYPTED: Self = Self(1 << 16);
    /// It has other bytes on the device than when it is read: compressed ones.
    pub(crate) const ENCODED: Self = Self(1 << 17);
    /// Its content lies among the metadata.
    pub(crate) const INLINE: Self = Self(1 << 18);
    /// In an image: a symbolic link in the place of something that only a driver of Windows can read.
    pub(crate) const UNKNOWN_REPARSE: Self = Self(1 << 19);
    /// In an image: its content lies on a device of the file system that isn't here.
    pub(crate) const ELSEWHERE: Self = Self(1 << 20);
    /// The kernel makes its content up when it is read, and its size is not true.
    pub(crate) const MADE_UP: Self = Self(1 << 10);

    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(crate) fn set(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

/// One name of a tree. Times are split so that nothing is padded.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct Entry {
    pub(crate) ino: u64,
    pub(crate) size: u64,
    pub(crate) mtime_seconds: i64,
    pub(crate) ctime_seconds: i64,
    pub(crate) atime_seconds: i64,
    /// The device number of a device node.
    pub(crate) rdev: u64,
    pub(crate) mtime_nanoseconds: u32,
    pub(crate) ctime_nanoseconds: u32,
    pub(crate) atime_nanoseconds: u32,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) nlink: u32,
    pub(crate) generation: u32,
    pub(crate) parent: EntryId,
    pub(crate) name: NameAt,
    /// The next name of the same inode.
    pub(crate) next_link: EntryId,
    pub(crate) first_fragment: u32,
    pub(crate) fragments: u32,
    pub(crate) name_len: u16,
    pub(crate) device: u16,
    pub(crate) flags: Flags,
}

const _: () = assert!(size_of::<Entry>() == 112);

impl Entry {
    /// An entry as its directory lists it. `mode` holds the type bits alone until the survey.
    pub(crate) fn listed(parent: EntryId, name: NameAt, name_len: u16, ino: u64, device: u16, mode: u32) -> Self {
        Self {
            ino,
            size: 0,
            mtime_seconds: 0,
            ctime_seconds: 0,
            atime_seconds: 0,
            rdev: 0,
            mtime_nanoseconds: 0,
            ctime_nanoseconds: 0,
            atime_nanoseconds: 0,
            mode,
            uid: 0,
            gid: 0,
            nlink: 0,
            generation: 0,
            parent,
            name,
            next_link: EntryId::NONE,
            first_fragment: 0,
            fragments: 0,
            name_len,
            device,
            flags: Flags::NONE,
        }
    }

    pub(crate) fn kind(&self) -> Option<Kind> {
        Kind::of_mode(self.mode)
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind() == Some(Kind::Directory)
    }

    pub(crate) fn is_file(&self) -> bool {
        self.kind() == Some(Kind::File)
    }

    /// Fills in what `stat` says.
    pub(crate) fn learn(&mut self, stat: &onesweep_sys::files::Stat) {
        self.ino = stat.ino;
        self.size = stat.size;
        (self.mtime_seconds, self.mtime_nanoseconds) = (stat.mtime.secs, stat.mtime.nanos);
        (self.ctime_seconds, self.ctime_nanoseconds) = (stat.ctime.secs, stat.ctime.nanos);
        (self.atime_seconds, self.atime_nanoseconds) = (stat.atime.secs, stat.atime.nanos);
        self.rdev = stat.rdev;
        self.mode = stat.mode;
        self.uid = stat.uid;
        self.gid = stat.gid;
        self.nlink = stat.nlink;
        self.flags.set(Flags::SURVEYED);
    }

    /// Fills in what the tables of an image say.
    pub(crate) fn learn_from_tables(&mut self, inode: &onesweep_layout::tables::Inode) {
        self.size = inode.size;
        (self.mtime_seconds, self.mtime_nanoseconds) = (inode.mtime.seconds, inode.mtime.nanoseconds);
        (self.ctime_seconds, self.ctime_nanoseconds) = (inode.ctime.seconds, inode.ctime.nanoseconds);
        (self.atime_seconds, self.atime_nanoseconds) = (inode.atime.seconds, inode.atime.nanoseconds);
        self.rdev = inode.rdev;
        self.mode = inode.mode;
        self.uid = inode.uid;
        self.gid = inode.gid;
        self.nlink = inode.links;
        self.generation = inode.generation;
    }

    /// By what a change is told.
    pub(crate) fn state(&self) -> State {
        State {
            ino: self.ino,
            size: self.size,
            mtime: (self.mtime_seconds, self.mtime_nanoseconds),
            ctime: (self.ctime_seconds, self.ctime_nanoseconds),
        }
    }

    /// True when `stat` shows the same inode with the same content as far as times and size can tell.
    pub(crate) fn is_unchanged(&self, stat: &onesweep_sys::files::Stat) -> bool {
        self.state() == State::of(stat)
    }

    pub(crate) fn metadata(&self, kind: Kind, dev: u64) -> Metadata {
        Metadata {
            kind,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            size: self.size,
            mtime: Timestamp { seconds: self.mtime_seconds, nanoseconds: self.mtime_nanoseconds },
            ctime: Timestamp { seconds: self.ctime_seconds, nanoseconds: self.ctime_nanoseconds },
            atime: Timestamp { seconds: self.atime_seconds, nanoseconds: self.atime_nanoseconds },
            nlink: self.nlink,
            ino: self.ino,
            dev,
            rdev: self.rdev,
        }
    }
}
