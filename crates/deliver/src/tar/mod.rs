//! Tar archives, as GNU tar writes them in its POSIX format, of entries that come in the order of the disk.
//!
//! ```
//! use onesweep_deliver::tar::{TarOptions, TarWriter};
//! # use onesweep::{Kind, Metadata, SweptFile, Timestamp};
//! # let mtime = Timestamp { seconds: 1_000_000_000, nanoseconds: 5 };
//! # let metadata = Metadata { kind: Kind::File, mode: 0o100_644, uid: 0, gid: 0, size: 5, mtime, ctime: mtime, atime: mtime,
//! #     nlink: 1, ino: 1, dev: 1, rdev: 0 };
//! # let items = [SweptFile::new("greeting".into(), metadata).with_bytes(b"hello", vec![0..5])];
//! let mut archive = TarWriter::new(Vec::new(), TarOptions::default())?;
//! for item in items {
//!     for warning in archive.append(item)? {
//!         eprintln!("{warning}");
//!     }
//! }
//! let (bytes, totals) = archive.finish()?;
//! assert_eq!((bytes.len(), totals.members), (10240, 1));
//! # Ok::<(), onesweep_deliver::tar::TarError>(())
//! ```
//!
//! **Why directories come twice.** In the order of the disk, files of different directories are interleaved. GNU tar
//! gives a directory its times and mode when it meets the first member outside, and then the next file inside spoils
//! the times or is refused. So, with [`TarOptions::interleaved`], the first member of a directory only makes it usable
//! (its permission bits and 0700, no ACLs, no extended attributes), and a second one, when all in it was written, has
//! everything. GNU tar and bsdtar restore that exactly, as root and as an ordinary user. Three things follow:
//! - A symbolic link whose target is absolute or has `..` is written just behind the close of its directory: GNU tar
//!   makes such links at its end, and spares the time of the directory only there. (An ordinary user's GNU tar fails
//!   on them where a directory above may not be entered by its owner.)
//! - A directory with a default ACL is written a third time, for bsdtar.
//! - `tar --diff` reports the first member of a directory when the modes differ; and without `-p`, an ordinary user's
//!   bsdtar leaves directories writable.
//!
//! Without `interleaved`, a further name (hard link) in another directory waits until that directory is opened or
//! closed, so that extractors never have to come back.
//!
//! **Names** are bytes. Where one fits the ustar header, it is there, whatever its bytes: GNU tar and bsdtar restore
//! it in every locale. A longer one is a pax record. There bsdtar expects UTF-8 and composes letters with their
//! accents, so names that this would harm carry `hdrcharset=BINARY` (GNU tar says that it ignores this, and
//! restores the same bytes).
//!
//! **Owners' names** are read from `/etc/passwd` and `/etc/group`, not through NSS: names that only LDAP or
//! systemd-homed know are left out, and such members have the number alone.
//!
//! What it doesn't do: append to archives, split them into volumes, write the old GNU format.
//!
//! | module | what it knows |
//! |---|---|
//! | `writer` | which members an entry becomes |
//! | `member` | one member's headers: which attribute goes where |
//! | `header` | the 512-byte block |
//! | `pax` | extended records |
//! | `name` | member names: what is stripped, what bsdtar would change |
//! | `content` | a file's bytes, padded or cut to the size in the header |
//! | `sparse` | the map of a file with holes |
//! | `acl` | POSIX ACLs, from the kernel's bytes to text |
//! | `owner` | numbers and names of users and groups |
//! | `mtime`, `mode` | dates and modes of the command line |
//! | `plain` | members of archives whose every place is known before |
//! | `sink` | blocking and compression |
//! | `output` | the file that the archive becomes |

mod acl;
mod content;
mod error;
mod header;
mod member;
mod mode;
mod mtime;
mod name;
mod output;
mod owner;
mod pax;
mod plain;
mod sink;
mod sparse;
mod writer;

use onesweep::Timestamp;

pub use error::{Severity, TarError, TarWarning};
pub use mode::{ModeChanges, ModeError};
pub use mtime::{MtimeError, parse_mtime};
pub use output::Output;
pub use owner::{Owner, OwnerError};
pub(crate) use plain::{PlainHeaders, archive_len, content_len};
pub use writer::{TarTotals, TarWriter};

/// How the archive is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// gzip, level 0 to 9; `None` is 6.
    Gzip(Option<u32>),
    /// Zstandard, level 1 to 22, or below 0 for speed; `None` is 3. Frames carry a checksum.
    Zstd(Option<i32>),
}

/// What is written, and how. The default is a plain archive of a stream that is not interleaved.
#[derive(Debug, Clone, Default)]
pub struct TarOptions {
    /// Entries of different directories are mixed, so that each directory is written twice (see the module).
    /// Needs the closing delivery of each directory. Without it, closing deliveries are ignored.
    pub interleaved: bool,
    /// Leaves out the names of users and groups, in ACLs too (`--numeric-owner`).
    pub numeric_owner: bool,
    /// Instead of each entry's owner (`--owner`).
    pub owner: Option<Owner>,
    /// Instead of each entry's group (`--group`).
    pub group: Option<Owner>,
    /// Instead of each entry's time (`--mtime`).
    pub mtime: Option<Timestamp>,
    /// Only where the entry's time is later than that (`--clamp-mtime`).
    pub clamp_mtime: bool,
    /// Changes of each entry's mode (`--mode`).
    pub mode: Option<ModeChanges>,
    /// Stores files with holes as a map and their data (GNU sparse format 1.0), where that is shorter (`-S`).
    pub sparse: bool,
    /// Stores extended attributes other than ACLs and the SELinux context (`--xattrs`).
    pub xattrs: bool,
    /// Stores POSIX ACLs (`--acls`).
    pub acls: bool,
    /// Stores the SELinux context (`--selinux`).
    pub selinux: bool,
    /// Keeps a leading `/` and `..` in names (`-P`).
    pub absolute_names: bool,
    /// The compression.
    pub compression: Compression,
}
