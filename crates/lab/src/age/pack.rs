//! Keeping images: compressed with Zstandard, and sparse again when unpacked.

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use super::apply::hex;
use crate::partial::Partial;

const CHUNK: usize = 1 << 16;
const LEVEL: i32 = 3;

/// Compresses `image` to `out`.
pub(crate) fn pack(image: &Path, out: &Path) -> Result<(), String> {
    let packed = Partial::new(out)?;
    compress(image, packed.path()).map_err(|error| format!("{} to {}: {error}", image.display(), out.display()))?;
    packed.finish()
}

fn compress(image: &Path, out: &Path) -> io::Result<()> {
    let mut image = File::open(image)?;
    let mut packed = zstd::Encoder::new(File::create(out)?, LEVEL)?;
    packed.include_checksum(true)?;
    io::copy(&mut image, &mut packed)?;
    packed.finish()?.sync_all()
}

/// Unpacks `packed` to `out`, zeros as holes, unless its SHA-256 is another than is `expected`. Returns that.
pub(crate) fn unpack(packed: &Path, out: &Path, expected: Option<&str>) -> Result<String, String> {
    let image = Partial::new(out)?;
    let said = |error| format!("{} to {}: {error}", packed.display(), out.display());
    let hash = decompress(packed, image.path()).map_err(said)?;
    if expected.is_some_and(|expected| expected != hash) {
        return Err(format!("{} is not the image of its label: its SHA-256 is {hash}", packed.display()));
    }
    image.finish()?;
    Ok(hash)
}

fn decompress(packed: &Path, out: &Path) -> io::Result<String> {
    let mut image = zstd::Decoder::new(File::open(packed)?)?;
    let mut out = File::create(out)?;
    let mut hash = Sha256::new();
    let (mut chunk, mut len) = (vec![0; CHUNK], 0);
    loop {
        let filled = fill(&mut image, &mut chunk)?;
        if filled == 0 {
            break;
        }
        hash.update(&chunk[..filled]);
        if chunk[..filled].iter().all(|&byte| byte == 0) {
            out.seek(SeekFrom::Current(filled as i64))?;
        } else {
            out.write_all(&chunk[..filled])?;
        }
        len += filled as u64;
    }
    out.set_len(len)?;
    Ok(hex(&hash.finalize()))
}

/// Reads until `chunk` is full or nothing is left.
fn fill(from: &mut impl Read, chunk: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < chunk.len() {
        match from.read(&mut chunk[filled..])? {
            0 => break,
            len => filled += len,
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};

    use super::*;
    use crate::age::image::sha256;
    use crate::interrupt::Interrupt;

    #[test]
    fn an_image_comes_back_equal_and_sparse() {
        let dir = tempfile::tempdir().unwrap();
        let [image, packed, back] = ["image", "packed", "back"].map(|name| dir.path().join(name));
        let file = File::create(&image).unwrap();
        file.set_len((16 << 20) + 100).unwrap();
        file.write_all_at(b"in the middle", 5 << 20).unwrap();
        file.write_all_at(b"at the end", (16 << 20) + 90).unwrap();
        pack(&image, &packed).unwrap();
        assert!(packed.metadata().unwrap().len() < 1 << 16);
        let hash = unpack(&packed, &back, None).unwrap();
        assert_eq!(hash, sha256(&image, &Interrupt::default()).unwrap());
        assert_eq!(hash, sha256(&back, &Interrupt::default()).unwrap());
        assert!(back.metadata().unwrap().blocks() * 512 < 1 << 20, "not sparse");
    }

    #[test]
    fn what_is_broken_or_another_takes_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let [image, packed, back] = ["image", "packed", "back"].map(|name| dir.path().join(name));
        assert!(pack(&image, &packed).unwrap_err().contains("image"));
        std::fs::write(&image, vec![7; 3 * CHUNK]).unwrap();
        pack(&image, &packed).unwrap();
        std::fs::write(&back, "what was there").unwrap();
        let complaint = unpack(&packed, &back, Some("another")).unwrap_err();
        assert!(complaint.contains("packed is not the image of its label"), "{complaint}");
        let whole = std::fs::read(&packed).unwrap();
        std::fs::write(&packed, &whole[..whole.len() - 6]).unwrap();
        let complaint = unpack(&packed, &back, None).unwrap_err();
        assert!(complaint.contains(packed.to_str().unwrap()), "{complaint}");
        assert_eq!(std::fs::read_to_string(&back).unwrap(), "what was there");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
    }
}
