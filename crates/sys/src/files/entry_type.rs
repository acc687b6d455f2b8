//! Types of files.

use rustix::fs::FileType;

/// The type of a directory entry or file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EntryType {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// A fifo.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// The directory does not say; ask [`statx_at`].
    Unknown,
}

impl EntryType {
    /// The type that the bits of an `st_mode` stand for.
    pub fn of_mode(mode: u32) -> EntryType {
        FileType::from_raw_mode(mode).into()
    }
}

impl From<FileType> for EntryType {
    fn from(kind: FileType) -> EntryType {
        match kind {
            FileType::RegularFile => EntryType::File,
            FileType::Directory => EntryType::Dir,
            FileType::Symlink => EntryType::Symlink,
            FileType::Fifo => EntryType::Fifo,
            FileType::Socket => EntryType::Socket,
            FileType::CharacterDevice => EntryType::CharDevice,
            FileType::BlockDevice => EntryType::BlockDevice,
            FileType::Unknown => EntryType::Unknown,
        }
    }
}
