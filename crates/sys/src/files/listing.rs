//! The names of a directory.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use super::EntryType;

/// One name of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirEntry<'a> {
    /// The name, without the directory.
    pub name: &'a CStr,
    /// The inode; for a mount point, the one below the mount.
    pub ino: u64,
    /// The type, where the directory keeps it.
    pub kind: EntryType,
}

/// Reads directories with one buffer for all of them.
#[doc(alias = "getdents64")]
pub struct DirReader {
    buffer: Vec<MaybeUninit<u8>>,
}

impl Default for DirReader {
    /// 64 KiB: some 2000 names for each call.
    fn default() -> DirReader {
        DirReader::with_buffer(64 << 10)
    }
}

impl DirReader {
    /// A reader with a buffer of `len` bytes (at least 1024).
    pub fn with_buffer(len: usize) -> DirReader {
        DirReader { buffer: vec![MaybeUninit::uninit(); len.max(1024)] }
    }

    /// Calls `visit` for each name of the directory but `.` and `..`, in the order of the file system.
    ///
    /// Goes on from where the descriptor stands, which is the beginning after opening. An error ends the listing;
    /// names that were visited before it are good.
    pub fn read(&mut self, dir: BorrowedFd<'_>, mut visit: impl FnMut(DirEntry<'_>)) -> io::Result<()> {
        let always = |entry: DirEntry<'_>| {
            visit(entry);
            true
        };
        self.read_while(dir, always).map(drop)
    }

    /// The same until `visit` says no; true when it never did.
    pub fn read_while(&mut self, dir: BorrowedFd<'_>, visit: impl FnMut(DirEntry<'_>) -> bool) -> io::Result<bool> {
        self.read_up_to(dir, None, visit)
    }

    /// The same where the file system is known to tell `end` as the place behind the last name of most directories, and of no other
    /// name: who is there doesn't ask for more. How full the buffer is says nothing, since a call may be interrupted.
    pub fn read_up_to(
        &mut self,
        dir: BorrowedFd<'_>,
        end: Option<u64>,
        mut visit: impl FnMut(DirEntry<'_>) -> bool,
    ) -> io::Result<bool> {
        let mut entries = rustix::fs::RawDir::new(dir, &mut self.buffer);
        let mut is_at_end = false;
        while !(is_at_end && entries.is_buffer_empty()) {
            let Some(entry) = entries.next() else { break };
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            is_at_end = end == Some(entry.next_entry_cookie());
            let name = entry.file_name();
            let is_name = !matches!(name.to_bytes(), b"." | b"..");
            if is_name && !visit(DirEntry { name, ino: entry.ino(), kind: entry.file_type().into() }) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl std::fmt::Debug for DirReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DirReader({})", self.buffer.len())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::fd::AsFd;

    use super::*;
    use crate::files::{CURRENT_DIR, open_dir_at, statx_at};

    #[test]
    fn a_name_in_the_midst_ends_nothing() {
        let tree = tempfile::tempdir().unwrap();
        for number in 0..100 {
            fs::write(tree.path().join(format!("file-{number}")), b"").unwrap();
        }
        let open = || open_dir_at(CURRENT_DIR, tree.path()).unwrap();
        let (dir, mut buffer, mut places) = (open(), vec![MaybeUninit::uninit(); 1 << 20], Vec::new());
        let mut entries = rustix::fs::RawDir::new(&dir, &mut buffer);
        while let Some(entry) = entries.next() {
            places.push(entry.unwrap().next_entry_cookie());
        }
        let middle = places[places.len() / 2];
        for end in [places.last().copied(), Some(middle), None] {
            let mut names = 0;
            let count = |_: DirEntry<'_>| {
                names += 1;
                true
            };
            assert!(DirReader::default().read_up_to(open().as_fd(), end, count).unwrap());
            assert_eq!(names, 100, "{end:?}");
        }
    }

    #[test]
    fn names_are_listed_with_any_buffer() {
        let tree = tempfile::tempdir().unwrap();
        for number in 0..300 {
            fs::write(tree.path().join(format!("file-{number}")), b"").unwrap();
        }
        fs::create_dir(tree.path().join("dir")).unwrap();
        for mut reader in [DirReader::with_buffer(0), DirReader::default()] {
            let mut seen = BTreeMap::new();
            let dir = open_dir_at(CURRENT_DIR, tree.path()).unwrap();
            reader
                .read(dir.as_fd(), |entry| {
                    seen.insert(entry.name.to_owned(), (entry.ino, entry.kind));
                })
                .unwrap();
            assert_eq!(seen.len(), 301);
            for (name, (ino, kind)) in seen {
                let stat = statx_at(dir.as_fd(), name.as_c_str(), true).unwrap();
                assert_eq!(ino, stat.ino);
                assert!(kind == stat.file_type() || kind == EntryType::Unknown);
            }
        }
    }
}
