//! Blocking and compression between the members and the output.

use std::io::{self, Write};

use flate2::write::GzEncoder;
use zstd::stream::write::Encoder as ZstdEncoder;

use super::{Compression, content::zeros, error::TarError};

/// Archives are whole records of 20 blocks, as from `tar -b 20`.
const RECORD: usize = 20 * 512;

/// Bytes of one write: as large as pays, and whole records for the sake of tapes.
const WRITE: usize = 52 * RECORD;

/// The end of the archive that takes members' bytes.
pub(super) struct Sink<W: Write> {
    blocks: Blocks<Packer<W>>,
    archive_bytes: u64,
}

enum Packer<W: Write> {
    Plain(Counted<W>),
    Gzip(GzEncoder<Blocks<Counted<W>>>),
    Zstd(ZstdEncoder<'static, Blocks<Counted<W>>>),
}

impl<W: Write> Sink<W> {
    pub(super) fn new(out: W, compression: Compression) -> Result<Self, TarError> {
        let out = Counted { out, written: 0 };
        let packer = match compression {
            Compression::None => Packer::Plain(out),
            Compression::Gzip(level) => {
                let level = level.unwrap_or(6);
                if level > 9 {
                    return Err(TarError::Level { level: level.into(), range: "gzip has 0 to 9" });
                }
                Packer::Gzip(GzEncoder::new(Blocks::new(out), flate2::Compression::new(level)))
            }
            Compression::Zstd(level) => {
                let level = level.unwrap_or(zstd::DEFAULT_COMPRESSION_LEVEL);
                let refused = |_| TarError::Level { level: level.into(), range: "Zstandard has -131072 to 22" };
                if !zstd::compression_level_range().contains(&level) {
                    return Err(refused(io::ErrorKind::InvalidInput.into()));
                }
                let mut encoder = ZstdEncoder::new(Blocks::new(out), level).map_err(refused)?;
                encoder.include_checksum(true).map_err(refused)?;
                Packer::Zstd(encoder)
            }
        };
        Ok(Self { blocks: Blocks::new(packer), archive_bytes: 0 })
    }

    /// Bytes of the archive so far, before compression.
    pub(super) fn archive_bytes(&self) -> u64 {
        self.archive_bytes
    }

    /// Fills the last block of a member.
    pub(super) fn pad_block(&mut self) -> io::Result<()> {
        let last = self.archive_bytes % 512;
        if last > 0 { zeros(512 - last, self) } else { Ok(()) }
    }

    /// Ends the archive. Returns the output, the bytes of the archive, and the bytes that the output got.
    pub(super) fn finish(mut self) -> io::Result<(W, u64, u64)> {
        zeros(1024, &mut self)?;
        let record = RECORD as u64;
        let missing = self.archive_bytes.next_multiple_of(record) - self.archive_bytes;
        zeros(missing, &mut self)?;
        let mut out = match self.blocks.into_inner()? {
            Packer::Plain(out) => out,
            Packer::Gzip(encoder) => encoder.finish()?.into_inner()?,
            Packer::Zstd(encoder) => encoder.finish()?.into_inner()?,
        };
        out.flush()?;
        Ok((out.out, self.archive_bytes, out.written))
    }
}

impl<W: Write> Write for Sink<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.archive_bytes += bytes.len() as u64;
        self.blocks.write_all(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<W: Write> Write for Packer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(out) => out.write(bytes),
            Self::Gzip(encoder) => encoder.write(bytes),
            Self::Zstd(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Counted<W> {
    out: W,
    written: u64,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.written += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// A buffer whose writes all have the same size, but for the last. Large data goes around it.
struct Blocks<W> {
    out: W,
    buffer: Vec<u8>,
}

impl<W: Write> Blocks<W> {
    fn new(out: W) -> Self {
        Self { out, buffer: Vec::with_capacity(WRITE) }
    }

    /// Writes what is left, without a flush of the output.
    fn into_inner(mut self) -> io::Result<W> {
        self.out.write_all(&self.buffer)?;
        Ok(self.out)
    }
}

impl<W: Write> Write for Blocks<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        let room = WRITE - self.buffer.len();
        if bytes.len() < room {
            self.buffer.extend_from_slice(bytes);
            return Ok(());
        }
        if !self.buffer.is_empty() {
            let (now, later) = bytes.split_at(room);
            self.buffer.extend_from_slice(now);
            self.out.write_all(&self.buffer)?;
            self.buffer.clear();
            bytes = later;
        }
        let (whole, rest) = bytes.split_at(bytes.len() - bytes.len() % WRITE);
        self.out.write_all(whole)?;
        self.buffer.extend_from_slice(rest);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps the length of each write.
    #[derive(Default)]
    struct Lengths(Vec<usize>, Vec<u8>);

    impl Write for Lengths {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(bytes.len());
            self.1.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn writes_whole_records() {
        let mut sink = Sink::new(Lengths::default(), Compression::None).unwrap();
        let mut expected = Vec::new();
        for length in [1, 700, WRITE, 3 * WRITE + 5, WRITE - 1, 2, 0, 511] {
            let bytes: Vec<u8> = (0..length).map(|at| (at % 251) as u8).collect();
            sink.write_all(&bytes).unwrap();
            sink.pad_block().unwrap();
            expected.extend_from_slice(&bytes);
            expected.resize(expected.len().next_multiple_of(512), 0);
        }
        let (lengths, total, written) = sink.finish().unwrap();
        expected.resize((expected.len() + 1024).next_multiple_of(RECORD), 0);
        assert!(lengths.0.iter().all(|length| length % RECORD == 0), "{:?}", lengths.0);
        assert!(lengths.1 == expected);
        assert_eq!((total, written), (expected.len() as u64, expected.len() as u64));
    }

    #[test]
    fn refuses_levels_that_do_not_exist() {
        for compression in [Compression::Gzip(Some(10)), Compression::Zstd(Some(23)), Compression::Zstd(Some(i32::MIN))]
        {
            let refused = Sink::new(Vec::new(), compression).err().unwrap();
            assert!(matches!(refused, TarError::Level { .. }), "{refused}");
        }
    }
}
