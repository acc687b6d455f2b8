//! Writing content so that holes stay holes.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    ops::Range,
    os::unix::fs::FileExt,
    path::Path,
};

use onesweep::{ContentReader, Route, SweptFile};

use super::CopyError;

/// Bytes that a streamed file is copied in.
const STREAM_BUFFER_BYTES: usize = 1 << 20;
/// Bytes that are looked at together when zeros may be left out.
const BLOCK_BYTES: usize = 4096;

/// Which side of the copy failed.
#[derive(Debug)]
pub(super) enum Failed {
    Read(io::Error),
    Write(io::Error),
}

impl Failed {
    pub(super) fn about(self, from: &Path, to: &Path) -> CopyError {
        match self {
            Self::Read(error) => CopyError::io(from, "read", error),
            Self::Write(error) => CopyError::io(to, "write", error),
        }
    }
}

/// Writes the content of `item` to the empty file `to` and gives its length. Without ranges of data, every block of
/// zeros becomes a hole.
pub(super) fn write(to: &File, item: &mut SweptFile) -> Result<u64, Failed> {
    let size = item.metadata().size;
    let data = item.data_ranges().to_vec();
    if let Some(bytes) = item.bytes() {
        let length = bytes.len() as u64;
        write_at(to, bytes, 0, &data).map_err(Failed::Write)?;
        return end_at(to, length);
    }
    if item.route() == Route::NoRead {
        return end_at(to, size);
    }
    stream_ranges(to, &mut item.reader(), &data, size)
}

/// Copies the ranges of data; what lies between them is never read.
fn stream_ranges(to: &File, from: &mut ContentReader<'_>, data: &[Range<u64>], size: u64) -> Result<u64, Failed> {
    let mut buffer = vec![0; STREAM_BUFFER_BYTES];
    for range in data {
        from.seek(SeekFrom::Start(range.start)).map_err(Failed::Read)?;
        let mut at = range.start;
        while at < range.end {
            let wanted = buffer.len().min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
            match from.read(&mut buffer[..wanted]) {
                // Shorter than it was, which the look at its end will tell.
                Ok(0) => break,
                Ok(read) => {
                    to.write_all_at(&buffer[..read], at).map_err(Failed::Write)?;
                    at += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Failed::Read(error)),
            }
        }
    }
    from.seek(SeekFrom::Start(size)).map_err(Failed::Read)?;
    from.read(&mut buffer[..1]).map_err(Failed::Read)?;
    end_at(to, size)
}

/// Copies an open file over whatever an earlier attempt has left in `to`, leaving blocks of zeros out.
pub(super) fn write_from(to: &File, from: &mut File) -> Result<u64, Failed> {
    to.set_len(0).map_err(Failed::Write)?;
    stream(to, from, &[])
}

fn stream(to: &File, from: &mut dyn Read, data: &[Range<u64>]) -> Result<u64, Failed> {
    let mut buffer = vec![0; STREAM_BUFFER_BYTES];
    let mut at = 0;
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return end_at(to, at),
            Ok(read) => {
                write_at(to, &buffer[..read], at, data).map_err(Failed::Write)?;
                at += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Failed::Read(error)),
        }
    }
}

/// Sets the length, which a hole at the end needs.
fn end_at(to: &File, length: u64) -> Result<u64, Failed> {
    let short = |to: &File| Ok::<_, io::Error>(to.metadata()?.len() != length);
    if length > 0 && short(to).map_err(Failed::Write)? {
        to.set_len(length).map_err(Failed::Write)?;
    }
    Ok(length)
}

/// Writes the bytes that belong at `at`: all within `data`, and outside of it what is not zero after all, since the
/// file may have changed after its holes were looked up.
fn write_at(to: &File, bytes: &[u8], at: u64, data: &[Range<u64>]) -> io::Result<()> {
    let end = at + bytes.len() as u64;
    let piece = |range: Range<u64>| &bytes[(range.start - at) as usize..(range.end - at) as usize];
    let mut done = at;
    for range in data {
        let (start, stop) = (range.start.clamp(done, end), range.end.clamp(done, end));
        if start < stop {
            write_nonzero(to, piece(done..start), done)?;
            to.write_all_at(piece(start..stop), start)?;
            done = stop;
        }
    }
    write_nonzero(to, piece(done..end), done)
}

fn write_nonzero(to: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    let mut from = at;
    for block in bytes.chunks(BLOCK_BYTES) {
        if block.iter().any(|&byte| byte != 0) {
            to.write_all_at(block, from)?;
        }
        from += block.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{metadata, regular};
    use onesweep::Kind;
    use std::{io::Seek, os::unix::fs::MetadataExt};

    fn read_back(mut file: &File) -> Vec<u8> {
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[test]
    fn bytes_outside_the_ranges_survive() {
        let mut bytes = vec![0; 1 << 20];
        bytes[10] = 1;
        bytes[900_000] = 2;
        let item = SweptFile::new("f".into(), metadata(Kind::File, bytes.len() as u64));
        let mut item = item.with_bytes(&bytes, vec![0..4096, 500_000..500_100]);
        let file = tempfile::tempfile().unwrap();
        assert_eq!(write(&file, &mut item).unwrap(), 1 << 20);
        assert_eq!(read_back(&file), bytes);
        assert!(file.metadata().unwrap().blocks() * 512 < 100_000, "the rest is a hole");
    }

    #[test]
    fn ranges_may_be_missing_or_too_long() {
        for ranges in [vec![], vec![0..3, 3..1 << 40], vec![2..3, 3..4]] {
            let mut item = regular("f", b"").with_bytes(b"hello", ranges);
            let file = tempfile::tempfile().unwrap();
            assert_eq!(write(&file, &mut item).unwrap(), 5);
            assert_eq!(read_back(&file), b"hello");
        }
    }

    #[test]
    fn one_hole_is_one_hole() {
        let mut item = SweptFile::new("f".into(), metadata(Kind::File, 1 << 30));
        let file = tempfile::tempfile().unwrap();
        assert_eq!(write(&file, &mut item).unwrap(), 1 << 30);
        assert_eq!((file.metadata().unwrap().len(), file.metadata().unwrap().blocks()), (1 << 30, 0));
    }

    #[test]
    fn a_stream_keeps_its_zeros_out() {
        let mut from = tempfile::tempfile().unwrap();
        from.write_all_at(b"end", 5 << 20).unwrap();
        let to = tempfile::tempfile().unwrap();
        assert_eq!(write_from(&to, &mut from).unwrap(), (5 << 20) + 3);
        assert_eq!(read_back(&to), read_back(&from));
        assert!(to.metadata().unwrap().blocks() <= 16);
    }
}
