//! The entries of a plan, small for keeping and in bytes for working with.

/// The address of a piece whose place on the device is unknown: delayed allocation, inline data, a file system that
/// gives none. Such pieces are sorted behind all others, by file number, which a catalogue hands out in inode order.
pub const NO_ADDRESS: u64 = u64::MAX;

/// One extent of a file as an entry of a plan: 16 bytes (20 in DAFT II.B, where it names its file too).
///
/// A catalogue keeps millions of them. The length and the offset are in file-system blocks, so with 4 KiB blocks a file
/// may have 16 TiB; a file beyond that is a large file and takes no part in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fragment {
    address: u64,
    length: u32,
    offset: u32,
}

const _: () = assert!(size_of::<Fragment>() == 16);

impl Fragment {
    /// A fragment at `address` bytes on the device, `length` blocks long, `offset` blocks into its file.
    #[must_use]
    pub const fn new(address: u64, length: u32, offset: u32) -> Self {
        Self { address, length, offset }
    }

    /// Where it lies on the device, in bytes, or [`NO_ADDRESS`].
    #[must_use]
    pub const fn address(self) -> u64 {
        self.address
    }

    /// How long it is, in file-system blocks.
    #[must_use]
    pub const fn length(self) -> u32 {
        self.length
    }

    /// Where it lies in its file, in file-system blocks.
    #[must_use]
    pub const fn offset(self) -> u32 {
        self.offset
    }

    /// The same in bytes, of file number `file` on a file system with blocks of `block_size` bytes.
    #[must_use]
    pub const fn piece(self, file: u32, block_size: u32, shared: bool) -> Piece {
        let block_size = block_size as u64;
        Piece {
            address: self.address,
            file,
            offset: self.offset as u64 * block_size,
            length: self.length as u64 * block_size,
            shared,
        }
    }
}

/// A run of bytes of one file, at one place on the device.
///
/// The order of pieces is that of a sweep: by address, then by file, then by offset in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Piece {
    /// Where it lies on the device, in bytes, or [`NO_ADDRESS`].
    pub address: u64,
    /// The number of its file.
    pub file: u32,
    /// Where it lies in its file, in bytes.
    pub offset: u64,
    /// How many bytes.
    pub length: u64,
    /// Its blocks may belong to other files or places too (reflinks), *and* each byte of its device range is the byte
    /// of the file at the same distance. A piece that is compressed or encrypted on the device is never shared in this
    /// sense, whatever the file system says: its device range doesn't measure its length.
    pub shared: bool,
}

impl Piece {
    /// True when its place on the device is known.
    #[must_use]
    pub const fn has_address(&self) -> bool {
        self.address != NO_ADDRESS
    }

    /// The device address behind its last byte, or [`NO_ADDRESS`].
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.address.saturating_add(self.length)
    }

    /// The part of it that begins `skip` bytes in and is `length` bytes long.
    #[must_use]
    pub fn part(&self, skip: u64, length: u64) -> Self {
        debug_assert!(length > 0 && skip + length <= self.length, "a part lies within its piece");
        let address = if self.has_address() { self.address + skip } else { NO_ADDRESS };
        Self { address, offset: self.offset + skip, length, ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fragment_in_bytes() {
        let fragment = Fragment::new(0xffff_ffff_f000, 3, u32::MAX);
        let piece = fragment.piece(7, 4096, true);
        assert_eq!((piece.address, piece.length), (0xffff_ffff_f000, 12288));
        assert_eq!((piece.offset, piece.file, piece.shared), (u64::from(u32::MAX) * 4096, 7, true));
        assert_eq!((fragment.length(), fragment.offset()), (3, u32::MAX));
        assert_eq!(piece.end(), fragment.address() + 12288);
    }

    #[test]
    fn a_part_of_a_piece_without_an_address_has_none() {
        let piece = Fragment::new(NO_ADDRESS, 2, 0).piece(0, 512, false);
        assert_eq!(piece.part(512, 512), Piece { offset: 512, length: 512, ..piece });
        assert_eq!(piece.end(), NO_ADDRESS);
    }
}
