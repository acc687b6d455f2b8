//! What a sweep hands over: one [`SweptFile`] for each entry of the tree.

use std::{
    io::{self, Cursor, Read, Seek, SeekFrom},
    ops::Range,
    path::{Path, PathBuf},
};

use crate::{budget::Loan, stream::FileStream};

/// What sort of entry it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A regular file; the only kind with content.
    File,
    /// A directory.
    Directory,
    /// A symbolic link; [`SweptFile::link_target`] says where it points.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl Kind {
    /// The kind that the file-type bits of a mode stand for; `None` for bits that mean nothing.
    pub fn of_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o100_000 => Self::File,
            0o040_000 => Self::Directory,
            0o120_000 => Self::Symlink,
            0o010_000 => Self::Fifo,
            0o140_000 => Self::Socket,
            0o020_000 => Self::CharDevice,
            0o060_000 => Self::BlockDevice,
            _ => return None,
        })
    }
}

/// A point in time as the file system keeps it: seconds since 1970 and nanoseconds within the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 00:00 UTC; negative before.
    pub seconds: i64,
    /// 0 to 999,999,999, counted forward from `seconds`.
    pub nanoseconds: u32,
}

/// The attributes of an entry at the time it was surveyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata {
    /// What sort of entry it is.
    pub kind: Kind,
    /// Type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes, as `stat` shows them.
    pub size: u64,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Last read before the sweep. File systems keep it loosely, if at all.
    pub atime: Timestamp,
    /// Names that the inode has in its file system.
    pub nlink: u32,
    /// Inode number.
    pub ino: u64,
    /// Device number of the file system, as in `st_dev`.
    pub dev: u64,
    /// Device number of a device node, as in `st_rdev`; 0 for all else.
    pub rdev: u64,
}

impl Metadata {
    /// What `statx` says.
    pub fn of(kind: Kind, stat: &onesweep_sys::files::Stat) -> Self {
        let time = |time: onesweep_sys::files::Time| Timestamp { seconds: time.secs, nanoseconds: time.nanos };
        Self {
            kind,
            mode: stat.mode,
            uid: stat.uid,
            gid: stat.gid,
            size: stat.size,
            mtime: time(stat.mtime),
            ctime: time(stat.ctime),
            atime: time(stat.atime),
            nlink: stat.nlink,
            ino: stat.ino,
            dev: stat.dev,
            rdev: stat.rdev,
        }
    }
}

/// By which way the content of a file came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// There is no content to read from a disk: not a regular file, an empty one, one hole, or one that the kernel makes
    /// up when it is read (`/proc`, `/sys`).
    NoRead,
    /// It lay in the page cache and was served first.
    Cached,
    /// Its fragments were read in the order of the disk.
    Swept,
    /// It changed, or what came first could not be trusted: it was read again through the file system.
    Reread,
    /// Too large for reassembly, or not readable from the device: streamed after the sweep (DAFT II.D).
    Streamed,
}

/// What is to be known of a file before it is believed. Never set but for files of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks {
    /// Its file system was not closed: what was written last may be missing, or half there.
    pub dirty: bool,
    /// The content is encrypted, and comes as it lies on the disk.
    pub encrypted: bool,
}

/// An extended attribute: its name with namespace, and its value.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// Where the content of a file is.
#[derive(Debug)]
pub enum Content {
    /// No content: not a regular file.
    None,
    /// The whole content, in memory.
    Bytes(FileBytes),
    /// To be read through [`SweptFile::reader`].
    Stream(FileStream),
}

/// The bytes of one file. While the loan lives they count against the budget.
#[derive(Debug)]
pub struct FileBytes {
    bytes: onesweep_sys::buffer::Bytes,
    loan: Option<Loan>,
}

impl FileBytes {
    pub(crate) fn lent(bytes: onesweep_sys::buffer::Bytes, loan: Loan) -> Self {
        Self { bytes, loan: Some(loan) }
    }
}

impl std::ops::Deref for FileBytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The content of a file, from wherever it is.
#[derive(Debug)]
pub enum ContentReader<'a> {
    /// In memory.
    Bytes(Cursor<&'a [u8]>),
    /// To be read from the file.
    Stream(&'a mut FileStream),
}

impl Read for ContentReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Bytes(bytes) => bytes.read(buffer),
            Self::Stream(stream) => stream.read(buffer),
        }
    }
}

impl Seek for ContentReader<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Self::Bytes(bytes) => bytes.seek(to),
            Self::Stream(stream) => stream.seek(to),
        }
    }
}

/// One entry of a swept tree: a file with its whole content, a directory, a link, a special file.
#[derive(Debug)]
pub struct SweptFile {
    pub(crate) path: PathBuf,
    pub(crate) links: Vec<PathBuf>,
    pub(crate) linked_to: Option<PathBuf>,
    pub(crate) metadata: Metadata,
    pub(crate) content: Content,
    pub(crate) data: Vec<Range<u64>>,
    pub(crate) link_target: Option<PathBuf>,
    pub(crate) xattrs: Vec<Xattr>,
    pub(crate) route: Route,
    pub(crate) was_cached: Option<bool>,
    pub(crate) marks: Marks,
    pub(crate) closing: bool,
    /// Where it can be opened, if not at its path.
    pub(crate) opened: Option<PathBuf>,
}

impl SweptFile {
    /// An entry without content, for consumers' tests and for producers of other kinds.
    pub fn new(path: PathBuf, metadata: Metadata) -> Self {
        Self {
            path,
            links: Vec::new(),
            linked_to: None,
            metadata,
            content: Content::None,
            data: Vec::new(),
            link_target: None,
            xattrs: Vec::new(),
            route: Route::NoRead,
            was_cached: None,
            marks: Marks::default(),
            closing: false,
            opened: None,
        }
    }

    /// Gives the entry content that was read elsewhere. `data` are the ranges that are no holes.
    pub fn with_bytes(mut self, bytes: &[u8], data: Vec<Range<u64>>) -> Self {
        let bytes = onesweep_sys::buffer::Bytes::copy_of(bytes);
        self.content = Content::Bytes(FileBytes { bytes, loan: None });
        self.data = data;
        self.route = Route::Swept;
        self
    }

    /// Says by which way the content came, where another process has read it.
    pub fn with_route(mut self, route: Route) -> Self {
        self.route = route;
        self
    }

    /// Gives the entry further names (hard links).
    pub fn with_links(mut self, links: Vec<PathBuf>) -> Self {
        self.links = links;
        self
    }

    /// Makes the entry a further name of a file that was delivered before.
    pub fn with_linked_to(mut self, first: PathBuf) -> Self {
        self.linked_to = Some(first);
        self
    }

    /// Gives a symbolic link its target.
    pub fn with_link_target(mut self, target: PathBuf) -> Self {
        self.link_target = Some(target);
        self
    }

    /// Gives the entry extended attributes.
    pub fn with_xattrs(mut self, xattrs: Vec<Xattr>) -> Self {
        self.xattrs = xattrs;
        self
    }

    /// Marks a directory as complete.
    pub fn with_closing(mut self) -> Self {
        self.closing = true;
        self
    }

    /// The path: the root as it was named, and the way from there. Bytes, not always UTF-8.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the entry can be opened: its path, or its place in the snapshot that is swept, as long as that is there.
    pub fn open_path(&self) -> &Path {
        self.opened.as_deref().unwrap_or(&self.path)
    }

    /// Whether the entry is that of a snapshot: then its device number is that of the original, not the one that opening
    /// it shows.
    pub fn is_in_snapshot(&self) -> bool {
        self.opened.is_some()
    }

    /// Takes what a file is now. Its device is the one that was told before.
    pub(crate) fn learn(&mut self, stat: &onesweep_sys::files::Stat) {
        self.metadata = Metadata { dev: self.metadata.dev, ..Metadata::of(self.metadata.kind, stat) };
    }

    /// Further names of the same inode (hard links) that the sweep met.
    pub fn links(&self) -> &[PathBuf] {
        &self.links
    }

    /// The name under which this inode was delivered before. Set only on a hard link that was met
    /// after its inode had been delivered in an earlier window; such an item has no content.
    pub fn linked_to(&self) -> Option<&Path> {
        self.linked_to.as_deref()
    }

    /// The attributes.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The whole content, when it is in memory: every regular file but the streamed ones.
    pub fn bytes(&self) -> Option<&[u8]> {
        match &self.content {
            Content::Bytes(bytes) => Some(bytes),
            Content::None | Content::Stream(_) => None,
        }
    }

    /// Reads the content from the start, for files in memory and for streamed ones.
    ///
    /// A streamed file is read through the file system; its errors come from here. Seeking is free, so a consumer that
    /// leaves holes out goes from one [range](Self::data_ranges) to the next.
    pub fn reader(&mut self) -> ContentReader<'_> {
        match &mut self.content {
            Content::None => ContentReader::Bytes(Cursor::new(&[])),
            Content::Bytes(bytes) => ContentReader::Bytes(Cursor::new(bytes)),
            Content::Stream(stream) => {
                stream.rewind();
                ContentReader::Stream(stream)
            }
        }
    }

    /// The ranges of the content that are no holes, in rising order, in bytes. Where holes are not known, all of it.
    pub fn data_ranges(&self) -> &[Range<u64>] {
        &self.data
    }

    /// Where a symbolic link points.
    pub fn link_target(&self) -> Option<&Path> {
        self.link_target.as_deref()
    }

    /// The extended attributes (POSIX ACLs among them), when the sweep was asked for them.
    pub fn xattrs(&self) -> &[Xattr] {
        &self.xattrs
    }

    /// By which way the content came.
    pub fn route(&self) -> Route {
        self.route
    }

    /// Whether all of its content lay in the page cache before it was read, where that [is noted](crate::BulkRead::notes_cached) and can be told. Of a
    /// streamed file it isn't: that is read by who asks.
    pub fn was_cached(&self) -> Option<bool> {
        if self.route == Route::Cached { Some(true) } else { self.was_cached }
    }

    /// What is to be known before it is believed.
    pub fn marks(&self) -> Marks {
        self.marks
    }

    /// The same under other names: each path of it goes through `rename`.
    pub fn with_paths(mut self, rename: impl Fn(&Path) -> PathBuf) -> Self {
        self.path = rename(&self.path);
        self.links.iter_mut().for_each(|link| *link = rename(link));
        self.linked_to = self.linked_to.map(|first| rename(&first));
        self
    }

    /// True for the second delivery of a directory, after everything in it.
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    /// Takes the content over: it leaves the budget and is the caller's. `None` without content in memory.
    pub fn take(mut self) -> Option<onesweep_sys::buffer::Bytes> {
        self.take_bytes()
    }

    /// The same where the rest is needed on: afterwards it has no content.
    pub fn take_bytes(&mut self) -> Option<onesweep_sys::buffer::Bytes> {
        match std::mem::replace(&mut self.content, Content::None) {
            Content::Bytes(FileBytes { bytes, loan }) => {
                if let Some(loan) = loan {
                    loan.hand_over();
                }
                Some(bytes)
            }
            other => {
                self.content = other;
                None
            }
        }
    }

    /// Gives the content up, and its bytes back to the budget: afterwards it has none.
    pub fn release(&mut self) {
        self.content = Content::None;
    }

    /// Whether there is content to be had, in memory or by [`SweptFile::reader`]; an empty file has some.
    pub fn has_content(&self) -> bool {
        !matches!(self.content, Content::None)
    }
}
