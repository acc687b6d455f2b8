//! Members that are nothing but a name and content, for archives that have places for them before they are there.

use onesweep::{Kind, Metadata, Timestamp};

use super::{
    TarOptions,
    header::{BLOCK, Type},
    member::{Encoder, Member},
};

/// GNU tar's record: archives are whole ones.
const RECORD: u64 = 20 * BLOCK as u64;
/// The latest time that every header has room for.
const LATEST: i64 = 0o77_777_777_777;

/// Bytes that content of `size` takes: whole blocks.
pub(crate) fn content_len(size: u64) -> u64 {
    size.next_multiple_of(BLOCK as u64)
}

/// Bytes of an archive whose members take `bytes`: two empty blocks follow, and zeros up to a whole record.
pub(crate) fn archive_len(bytes: u64) -> u64 {
    (bytes + 2 * BLOCK as u64).next_multiple_of(RECORD)
}

/// Writes headers of files that are everybody's to read and nobody's in particular. Their length depends on name and size alone.
pub(crate) struct PlainHeaders(Encoder);

impl PlainHeaders {
    pub(crate) fn new() -> Self {
        Self(Encoder::new(&TarOptions { numeric_owner: true, ..TarOptions::default() }))
    }

    /// The header of a file that was changed at `mtime`, in seconds.
    pub(crate) fn of(&mut self, name: &[u8], size: u64, mtime: i64) -> &[u8] {
        let time = Timestamp { seconds: mtime.clamp(0, LATEST), nanoseconds: 0 };
        let metadata = Metadata {
            kind: Kind::File,
            mode: 0o100_644,
            uid: 0,
            gid: 0,
            size,
            mtime: time,
            ctime: time,
            atime: time,
            nlink: 1,
            ino: 0,
            dev: 0,
            rdev: 0,
        };
        let member = Member {
            kind: Type::File,
            name,
            link: &[],
            metadata: &metadata,
            mode: 0o644,
            size,
            map: None,
            xattrs: &[],
            is_dirty: false,
        };
        self.0.encode(&member).0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_depend_on_name_and_size_alone() {
        let mut headers = PlainHeaders::new();
        for name in [&b"a.jpg"[..], &[b'n'; 100], &[b'n'; 300], "gro\u{308}ss.txt".as_bytes(), b"\xff.x"] {
            for size in [0, 1, 8 << 30] {
                let lengths = [i64::MIN, -1, 0, 1_700_000_000, LATEST, LATEST + 1, i64::MAX]
                    .map(|mtime| headers.of(name, size, mtime).len());
                assert!(lengths.iter().all(|length| *length == lengths[0]), "{name:?} {size} {lengths:?}");
                assert_eq!(lengths[0] % BLOCK, 0);
            }
        }
        assert_eq!(headers.of(b"a.jpg", 5, 1).len(), BLOCK);
    }

    #[test]
    fn a_reader_finds_what_was_written() {
        let mut archive = Vec::new();
        let long = "d".repeat(300) + "/a.jpg";
        for name in ["a.jpg", &long] {
            archive.extend_from_slice(PlainHeaders::new().of(name.as_bytes(), 3, 1_700_000_000));
            archive.extend_from_slice(b"abc");
            archive.resize(content_len(archive.len() as u64) as usize, 0);
        }
        archive.resize(archive_len(archive.len() as u64) as usize, 0);
        let mut reader = tar::Archive::new(&archive[..]);
        let entries = reader.entries().unwrap().map(Result::unwrap);
        let found: Vec<_> = entries
            .map(|entry| {
                let header = entry.header();
                assert_eq!((header.mode().unwrap(), header.mtime().unwrap()), (0o644, 1_700_000_000));
                assert_eq!((header.uid().unwrap(), header.username().unwrap()), (0, Some("")));
                entry.path().unwrap().to_string_lossy().into_owned()
            })
            .collect();
        assert_eq!(found, ["a.jpg", &long]);
    }
}
