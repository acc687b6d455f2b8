//! The hash algorithms.

use std::{
    fmt,
    io::{self, Read},
    str::FromStr,
};

use sha2::Digest as _;

/// Bytes that a streamed file is hashed in.
const STREAM_BUFFER_BYTES: usize = 1 << 20;

/// A hash algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Algorithm {
    /// BLAKE3, 256 bits; `b3sum`.
    #[default]
    Blake3,
    /// SHA-256; `sha256sum`.
    Sha256,
    /// MD5, which protects against accidents only; `md5sum`.
    Md5,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Self; 3] = [Self::Blake3, Self::Sha256, Self::Md5];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Blake3 => "blake3",
            Self::Sha256 => "sha256",
            Self::Md5 => "md5",
        }
    }

    /// The name in a tagged manifest line (`SHA256 (path) = …`).
    pub fn tag(self) -> &'static str {
        match self {
            Self::Blake3 => "BLAKE3",
            Self::Sha256 => "SHA256",
            Self::Md5 => "MD5",
        }
    }

    /// Bytes of a digest.
    pub fn digest_len_bytes(self) -> usize {
        match self {
            Self::Blake3 | Self::Sha256 => 32,
            Self::Md5 => 16,
        }
    }

    /// The digest of bytes in memory.
    pub fn digest(self, bytes: &[u8]) -> Digest {
        let mut hasher = Hasher::new(self);
        hasher.update(bytes);
        hasher.finish()
    }

    /// The digest of all that `reader` gives.
    pub fn digest_reader(self, reader: &mut dyn Read) -> io::Result<Digest> {
        let mut hasher = [Hasher::new(self)];
        read_into(&mut hasher, reader)?;
        let [hasher] = hasher;
        Ok(hasher.finish())
    }

    /// The digest by each of `algorithms` of all that `reader` gives, in one pass.
    pub fn digests_reader(algorithms: &[Self], reader: &mut dyn Read) -> io::Result<Vec<Digest>> {
        let mut hashers: Vec<_> = algorithms.iter().map(|&algorithm| Hasher::new(algorithm)).collect();
        read_into(&mut hashers, reader)?;
        Ok(hashers.into_iter().map(Hasher::finish).collect())
    }
}

fn read_into(hashers: &mut [Hasher], reader: &mut dyn Read) -> io::Result<()> {
    let mut buffer = vec![0; STREAM_BUFFER_BYTES];
    loop {
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => hashers.iter_mut().for_each(|hasher| hasher.update(&buffer[..read])),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == text)
            .ok_or_else(|| format!("unknown algorithm '{text}'; use blake3, sha256 or md5"))
    }
}

/// A digest; displayed as lower-case hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest {
    bytes: [u8; 32],
    len: u8,
}

impl Digest {
    fn new(digest: &[u8]) -> Self {
        let mut bytes = [0; 32];
        bytes[..digest.len()].copy_from_slice(digest);
        Self { bytes, len: digest.len() as u8 }
    }

    /// Reads hexadecimal digits of either case; `None` unless there are exactly as many as the algorithm gives.
    pub fn from_hex(text: &[u8], algorithm: Algorithm) -> Option<Self> {
        if text.len() != 2 * algorithm.digest_len_bytes() {
            return None;
        }
        let digit = |byte: u8| (byte as char).to_digit(16);
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Some(Self { bytes, len: algorithm.digest_len_bytes() as u8 })
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

enum Hasher {
    Blake3(Box<blake3::Hasher>),
    Sha256(sha2::Sha256),
    Md5(md5::Md5),
}

impl Hasher {
    fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Blake3 => Self::Blake3(Box::default()),
            Algorithm::Sha256 => Self::Sha256(sha2::Sha256::new()),
            Algorithm::Md5 => Self::Md5(md5::Md5::new()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Blake3(hasher) => {
                hasher.update(bytes);
            }
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Md5(hasher) => hasher.update(bytes),
        }
    }

    fn finish(self) -> Digest {
        match self {
            Self::Blake3(hasher) => Digest::new(hasher.finalize().as_bytes()),
            Self::Sha256(hasher) => Digest::new(&hasher.finalize()),
            Self::Md5(hasher) => Digest::new(&hasher.finalize()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_the_published_ones() {
        for (algorithm, expected) in [
            (Algorithm::Blake3, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"),
            (Algorithm::Sha256, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
            (Algorithm::Md5, "d41d8cd98f00b204e9800998ecf8427e"),
        ] {
            assert_eq!(algorithm.digest(b"").to_string(), expected);
            assert_eq!(algorithm.digest_reader(&mut io::empty()).unwrap().to_string(), expected);
            let upper = expected.to_uppercase();
            assert_eq!(Digest::from_hex(upper.as_bytes(), algorithm), Some(algorithm.digest(b"")));
            assert_eq!(Digest::from_hex(&upper.as_bytes()[1..], algorithm), None);
            assert_eq!(algorithm.name().parse(), Ok(algorithm));
        }
    }

    #[test]
    fn a_stream_and_memory_give_the_same() {
        let bytes: Vec<u8> = (0..STREAM_BUFFER_BYTES * 2 + 17).map(|at| (at % 251) as u8).collect();
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.digest_reader(&mut &bytes[..]).unwrap(), algorithm.digest(&bytes));
        }
        let all = Algorithm::digests_reader(&Algorithm::ALL, &mut &bytes[..]).unwrap();
        assert_eq!(all, Algorithm::ALL.map(|algorithm| algorithm.digest(&bytes)));
    }
}
