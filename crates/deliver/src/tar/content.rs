//! A file's bytes on their way into the archive: exactly as many as the header promised.

use std::{
    io::{self, Cursor, Read, Seek, SeekFrom, Write},
    ops::Range,
    path::Path,
};

use super::{error::TarWarning, sparse::Map};

/// Where the bytes come from.
pub(super) enum Source<'a> {
    /// The whole file, in memory.
    Bytes(&'a [u8]),
    /// Read in order; holes are skipped.
    Reader(&'a mut dyn ReadSeek),
    /// One hole.
    Hole,
}

/// What can be read, and skipped.
pub(super) trait ReadSeek: Read + Seek {}

impl<R: Read + Seek> ReadSeek for R {}

/// How the bytes differed from what the header promised.
#[derive(Debug)]
pub(super) enum Mismatch {
    Shrank {
        missing: u64,
    },
    Grew,
    /// Nothing is missing, but what came may be of two moments.
    Changed {
        source: io::Error,
    },
    Read {
        at: u64,
        missing: u64,
        source: io::Error,
    },
}

impl Mismatch {
    pub(super) fn warning(self, path: &Path, size: u64) -> TarWarning {
        let path = path.to_path_buf();
        match self {
            Self::Shrank { missing } => TarWarning::Shrank { path, missing },
            Self::Grew => TarWarning::Grew { path, kept: size },
            Self::Changed { source } => TarWarning::Changed { path, source },
            Self::Read { at, missing, source } => TarWarning::Read { path, at, missing, source },
        }
    }
}

/// Writes `size` bytes of `source`, or the regions of `map`. Errors are the sink's; `scratch` is any buffer.
pub(super) fn copy(
    source: Source<'_>,
    size: u64,
    map: Option<&Map>,
    sink: &mut impl Write,
    scratch: &mut Vec<u8>,
) -> io::Result<Option<Mismatch>> {
    match (source, map) {
        (Source::Bytes(bytes), None) => {
            let whole = usize::try_from(size).unwrap_or(usize::MAX);
            sink.write_all(&bytes[..bytes.len().min(whole)])?;
            let missing = size.saturating_sub(bytes.len() as u64);
            zeros(missing, sink)?;
            Ok(match missing {
                0 => (bytes.len() > whole).then_some(Mismatch::Grew),
                _ => Some(Mismatch::Shrank { missing }),
            })
        }
        (Source::Bytes(bytes), Some(_)) => from_reader(&mut Cursor::new(bytes), size, map, sink, scratch),
        (Source::Hole, None) => zeros(size, sink).map(|()| None),
        (Source::Hole, Some(map)) => zeros(map.data_len(), sink).map(|()| None),
        (Source::Reader(reader), map) => from_reader(reader, size, map, sink, scratch),
    }
}

fn from_reader(
    reader: &mut dyn ReadSeek,
    size: u64,
    map: Option<&Map>,
    sink: &mut impl Write,
    scratch: &mut Vec<u8>,
) -> io::Result<Option<Mismatch>> {
    scratch.resize(256 << 10, 0);
    let mut exact = Exact { reader, size, at: 0, ended: None };
    match map {
        None => exact.piece(0..size, true, sink, scratch)?,
        Some(map) => {
            for (piece, stored) in map.pieces() {
                exact.piece(piece, stored, sink, scratch)?;
            }
        }
    }
    Ok(exact.verdict())
}

/// A reader that gives zeros after its end.
struct Exact<'a> {
    reader: &'a mut dyn ReadSeek,
    size: u64,
    /// Bytes that came.
    at: u64,
    ended: Option<Mismatch>,
}

impl Exact<'_> {
    fn piece(&mut self, piece: Range<u64>, stored: bool, sink: &mut impl Write, scratch: &mut [u8]) -> io::Result<()> {
        let mut left = piece.end - piece.start;
        if !stored {
            return self.skip(left);
        }
        while left > 0 && self.ended.is_none() {
            let wanted = scratch.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let got = self.read(&mut scratch[..wanted]);
            left -= got as u64;
            sink.write_all(&scratch[..got])?;
        }
        zeros(left, sink)
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        self.at += bytes;
        let by = i64::try_from(bytes).map_err(io::Error::other)?;
        self.reader.seek(SeekFrom::Current(by)).map(drop)
    }

    /// Reads what comes at once. After an end or an error, `ended` is set.
    fn read(&mut self, buffer: &mut [u8]) -> usize {
        let missing = self.size - self.at;
        loop {
            match self.reader.read(buffer) {
                Ok(0) => self.ended = Some(Mismatch::Shrank { missing }),
                Ok(got) => {
                    self.at += got as u64;
                    return got;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.ended = Some(Mismatch::Shrank { missing });
                }
                Err(source) => self.ended = Some(Mismatch::Read { at: self.at, missing, source }),
            }
            return 0;
        }
    }

    /// What was met. A byte behind the end is looked for.
    fn verdict(self) -> Option<Mismatch> {
        if self.ended.is_some() {
            return self.ended;
        }
        match self.reader.read(&mut [0]) {
            Ok(0) => None,
            Ok(_) => Some(Mismatch::Grew),
            Err(source) => Some(Mismatch::Changed { source }),
        }
    }
}

/// Writes `count` zeros.
pub(super) fn zeros(mut count: u64, sink: &mut impl Write) -> io::Result<()> {
    const ZEROS: &[u8] = &[0; 16 << 10];
    while count > 0 {
        let step = ZEROS.len().min(usize::try_from(count).unwrap_or(usize::MAX));
        sink.write_all(&ZEROS[..step])?;
        count -= step as u64;
    }
    Ok(())
}

/// True when there is nothing but zeros. Whole chunks are folded, so that the compiler can use vectors.
pub(super) fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(4096).all(|chunk| chunk.iter().fold(0, |all, byte| all | byte) == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its pieces one by one, and then an error if it has one.
    struct Faulty(Vec<&'static [u8]>, Option<io::ErrorKind>);

    impl Read for Faulty {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0.is_empty() {
                return self.1.map_or(Ok(0), |kind| Err(kind.into()));
            }
            let piece = self.0.remove(0);
            if piece.is_empty() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let (now, later) = piece.split_at(piece.len().min(buffer.len()));
            if !later.is_empty() {
                self.0.insert(0, later);
            }
            buffer[..now.len()].copy_from_slice(now);
            Ok(now.len())
        }
    }

    impl Seek for Faulty {
        fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
            let SeekFrom::Current(by) = to else { panic!("only skips are asked for") };
            self.take(by as u64).read_to_end(&mut Vec::new()).map(|read| read as u64)
        }
    }

    fn copied(mut reader: Faulty, size: u64, map: Option<&Map>) -> (Vec<u8>, String) {
        let mut out = Vec::new();
        let outcome = copy(Source::Reader(&mut reader), size, map, &mut out, &mut Vec::new()).unwrap();
        (out, outcome.map_or(String::new(), |mismatch| mismatch.warning(Path::new("f"), size).to_string()))
    }

    #[test]
    fn always_writes_what_the_header_promised() {
        assert_eq!(copied(Faulty(vec![b"ab", b"", b"c"], None), 3, None), (b"abc".to_vec(), String::new()));
        // Streams tell so themselves, which is no failure of the disk.
        for ends in [None, Some(io::ErrorKind::UnexpectedEof)] {
            let (bytes, told) = copied(Faulty(vec![b"ab"], ends), 5, None);
            let expected = "f: File shrank by 3 bytes; padding with zeros; archive it again when nobody writes to it";
            assert_eq!((bytes, &*told), (b"ab\0\0\0".to_vec(), expected));
        }
        let (bytes, told) = copied(Faulty(vec![b"ab", b"cdef"], None), 5, None);
        assert_eq!(bytes, b"abcde");
        assert_eq!(
            told,
            "f: file grew as it was read; the first 5 bytes are in the archive; archive it again when nobody writes to it"
        );
        let (bytes, told) = copied(Faulty(vec![b"ab"], Some(io::ErrorKind::TimedOut)), 4, None);
        assert_eq!(
            (bytes, &*told),
            (b"ab\0\0".to_vec(), "f: Read error at byte 2; padding 2 bytes with zeros: timed out")
        );
    }

    #[test]
    fn bytes_in_memory_follow_the_same_rule() {
        for (size, expected, differs) in [(3, &b"abc"[..], false), (2, b"ab", true), (5, b"abc\0\0", true)] {
            let mut out = Vec::new();
            let outcome = copy(Source::Bytes(b"abc"), size, None, &mut out, &mut Vec::new()).unwrap();
            assert_eq!((out.as_slice(), outcome.is_some()), (expected, differs));
        }
    }

    #[test]
    fn leaves_holes_out() {
        static HOLES: [u8; 20_000] = [0; 20_000];
        let map = Map::new(30_000, &[4096..4608, 20_000..20_480]).unwrap();
        let length = map.data_len() as usize;
        let (bytes, told) = copied(Faulty(vec![&HOLES, &HOLES[..10_000]], None), 30_000, Some(&map));
        assert_eq!((bytes.len(), &*told), (length, ""));
        let (bytes, told) = copied(Faulty(vec![&HOLES], None), 30_000, Some(&map));
        assert_eq!(bytes.len(), length);
        assert!(told.contains("shrank"), "{told}");
    }
}
