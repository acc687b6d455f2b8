//! What a block is called: the hash of its bytes, keyed by the trust domain.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    str::FromStr,
};

/// Bytes of a block, at most.
pub const BLOCK_BYTES_MAX: usize = 64 << 10;
/// Bytes of a block of a device, at least.
pub const BLOCK_BYTES_MIN: usize = 4 << 10;

const KEY_BYTES: usize = 32;
/// The first words of a file with a key: what it is, and its version.
const KEY_FILE: &str = "onesweep-peer-key 1 ";
/// Bytes of such a file, at most.
const KEY_FILE_BYTES_MAX: u64 = 1024;
/// What the name of a domain is derived for; never to be changed.
const NAME_CONTEXT: &str = "onesweep peer 2026-11 name of a trust domain";

/// The keyed BLAKE3 hash of a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; Hash::BYTES]);

impl Hash {
    /// Bytes of a hash.
    pub const BYTES: usize = 32;

    /// A hash as it was stored or sent.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// The first eight bytes as a number: as good as drawn by chance.
    #[must_use]
    pub fn prefix(&self) -> u64 {
        let mut first = [0; 8];
        first.copy_from_slice(&self.0[..8]);
        u64::from_le_bytes(first)
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What tells two trust domains apart without telling their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DomainName(pub [u8; DomainName::BYTES]);

impl DomainName {
    /// Bytes of a name.
    pub const BYTES: usize = 16;
}

/// Machines that trust each other with their blocks: they share a key, by which hashes are made.
///
/// Who doesn't have the key can't tell from a hash whether somebody holds a block that he knows himself, and can't find
/// equal blocks of two domains.
#[derive(Clone, PartialEq, Eq)]
pub struct TrustDomain {
    key: [u8; KEY_BYTES],
}

impl fmt::Debug for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrustDomain {{ name: {:?} }}", self.name())
    }
}

impl TrustDomain {
    /// The domain of a key.
    #[must_use]
    pub const fn from_key(key: [u8; KEY_BYTES]) -> Self {
        Self { key }
    }

    /// A new domain; the kernel draws its key.
    pub fn generate() -> io::Result<Self> {
        let mut key = [0; KEY_BYTES];
        File::open("/dev/urandom")?.read_exact(&mut key)?;
        Ok(Self { key })
    }

    /// Reads a file with a key. Refused are other versions, and files that all may read.
    pub fn read(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::PermissionsExt;
        let file = File::open(path)?;
        if file.metadata()?.permissions().mode() & 0o007 != 0 {
            let what = "others may read this key; take their rights away (chmod o= FILE)";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        let mut text = String::new();
        file.take(KEY_FILE_BYTES_MAX).read_to_string(&mut text)?;
        text.parse().map_err(|why: KeyError| io::Error::new(io::ErrorKind::InvalidData, why))
    }

    /// Writes the key into a new file that nobody else may read. Fails where there is one.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let hex: String = self.key.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(file, "{KEY_FILE}{hex}")?;
        file.sync_all()
    }

    /// The hash of a block. 4 KiB take about 2 µs.
    #[must_use]
    pub fn hash(&self, block: &[u8]) -> Hash {
        Hash(*blake3::keyed_hash(&self.key, block).as_bytes())
    }

    /// Whether these are the bytes of that hash.
    #[must_use]
    pub fn is_hash_of(&self, hash: &Hash, block: &[u8]) -> bool {
        self.hash(block) == *hash
    }

    /// A key for another use, which tells nothing of this one.
    pub(crate) fn derived(&self, context: &str) -> [u8; KEY_BYTES] {
        blake3::derive_key(context, &self.key)
    }

    /// Its name, which may be told to anybody.
    #[must_use]
    pub fn name(&self) -> DomainName {
        let derived = self.derived(NAME_CONTEXT);
        let mut name = [0; DomainName::BYTES];
        name.copy_from_slice(&derived[..DomainName::BYTES]);
        DomainName(name)
    }
}

/// Why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It begins otherwise.
    #[error("this is no key of onesweep, or one of another version")]
    Kind,
    /// The digits are wrong.
    #[error("a key has 64 hexadecimal digits")]
    Digits,
}

impl FromStr for TrustDomain {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let digits = text.strip_prefix(KEY_FILE).ok_or(KeyError::Kind)?.trim_end();
        if digits.len() != 2 * KEY_BYTES || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(KeyError::Digits);
        }
        let mut key = [0; KEY_BYTES];
        for (at, byte) in key.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).map_err(|_| KeyError::Digits)?;
        }
        Ok(Self { key })
    }
}

/// Bytes of the blocks that a device or a file is cut into: a power of two from 4 KiB to 64 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize(u32);

impl BlockSize {
    /// None where it is no such size.
    #[must_use]
    pub fn new(bytes: u64) -> Option<Self> {
        let is_one = bytes.is_power_of_two() && (BLOCK_BYTES_MIN as u64..=BLOCK_BYTES_MAX as u64).contains(&bytes);
        is_one.then_some(Self(bytes as u32))
    }

    /// In bytes.
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.0 as usize
    }

    /// All there are, the smallest first.
    pub fn all() -> impl Iterator<Item = Self> {
        (BLOCK_BYTES_MIN.ilog2()..=BLOCK_BYTES_MAX.ilog2()).map(|power| Self(1 << power))
    }
}

impl Default for BlockSize {
    fn default() -> Self {
        Self(BLOCK_BYTES_MIN as u32)
    }
}

/// Whether a block is all zeros: such a one is never sent, since its owner knows it.
#[must_use]
pub fn is_zero(block: &[u8]) -> bool {
    // In words, which the compiler makes wide ones of.
    let (words, rest) = block.as_chunks::<16>();
    words.iter().all(|word| u128::from_ne_bytes(*word) == 0) && rest.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_differ_between_domains_and_stay_the_same_for_ever() {
        let (one, other) = (TrustDomain::from_key([1; 32]), TrustDomain::from_key([2; 32]));
        assert_ne!(one.hash(b"block"), other.hash(b"block"));
        assert_ne!(one.name(), other.name());
        // A change here would make every index and every store useless.
        assert_eq!(one.hash(b"block").to_string(), "8f613cd7e55c6b5c33b301a7f95dd4cfb2eb22843a8a4c57fc6af1f46101fb29");
        assert!(one.is_hash_of(&one.hash(b"block"), b"block"));
        assert!(!one.is_hash_of(&one.hash(b"block"), b"blocK"));
    }

    #[test]
    fn no_message_tells_the_key() {
        let domain = TrustDomain::from_key([0xab; 32]);
        assert!(!format!("{domain:?}").contains("171, 171") && !format!("{domain:?}").contains("abab"));
    }

    #[test]
    fn a_key_comes_back_from_its_file_and_nobody_else_may_read_it() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let domain = TrustDomain::generate().unwrap();
        domain.write(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(TrustDomain::read(&path).unwrap(), domain);
        assert_eq!(domain.write(&path).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(TrustDomain::read(&path).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn texts_that_are_no_keys_are_refused() {
        let digits = "0".repeat(64);
        assert!(format!("onesweep-peer-key 1 {digits}\n").parse::<TrustDomain>().is_ok());
        let short = &digits[1..];
        assert_eq!(format!("onesweep-peer-key 2 {digits}").parse::<TrustDomain>(), Err(KeyError::Kind));
        assert_eq!(format!("onesweep-peer-key 1 {short}").parse::<TrustDomain>(), Err(KeyError::Digits));
        assert_eq!(format!("onesweep-peer-key 1 {short}é").parse::<TrustDomain>(), Err(KeyError::Digits));
        assert_eq!("".parse::<TrustDomain>(), Err(KeyError::Kind));
    }

    #[test]
    fn sizes_of_blocks_are_powers_of_two_in_their_range() {
        for (bytes, is_one) in
            [(0, false), (2048, false), (4096, true), (5000, false), (65536, true), (131_072, false), (u64::MAX, false)]
        {
            assert_eq!(BlockSize::new(bytes).is_some(), is_one, "{bytes}");
        }
        let all: Vec<usize> = BlockSize::all().map(BlockSize::bytes).collect();
        assert_eq!(all, [4096, 8192, 16_384, 32_768, 65_536]);
    }

    #[test]
    fn zeros_are_seen_at_each_place() {
        let mut block = vec![0; 4099];
        assert!(is_zero(&block) && is_zero(&[]));
        for at in [0, 15, 16, 2000, 4095, 4096, 4098] {
            block[at] = 1;
            assert!(!is_zero(&block), "{at}");
            block[at] = 0;
        }
    }
}
