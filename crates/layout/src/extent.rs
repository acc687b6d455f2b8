//! One contiguous run of a file on the device.

#![cfg_attr(not(test), deny(clippy::cast_possible_truncation))]

use bitflags::bitflags;
use onesweep_sys::fiemap;

/// One contiguous run of a file on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Byte of the file where it begins.
    pub logical: u64,
    /// Byte of the device where it begins; `None` when there is no such place, or not yet.
    pub physical: Option<u64>,
    /// Bytes; never 0. The last extent may reach beyond the end of the file, up to a multiple of 4096.
    pub length: u64,
    /// What is special about it.
    pub flags: ExtentFlags,
}

impl Extent {
    /// The first byte of the file behind it.
    pub fn logical_end(&self) -> u64 {
        self.logical + self.length
    }

    /// The first byte of the device behind it.
    pub fn physical_end(&self) -> Option<u64> {
        self.physical.map(|start| start + self.length)
    }

    /// Whether it reads as zeros without asking the device.
    pub fn is_zeros(&self) -> bool {
        self.flags.contains(ExtentFlags::UNWRITTEN)
    }

    /// Whether the bytes at its address are those of the file, so that the device itself can be read.
    pub fn is_plain(&self) -> bool {
        self.physical.is_some() && !self.flags.intersects(ExtentFlags::NOT_PLAIN)
    }
}

bitflags! {
    /// What is special about an extent. The values are those of FIEMAP.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ExtentFlags: u32 {
        /// The address is not known.
        const UNKNOWN = fiemap::FIEMAP_EXTENT_UNKNOWN;
        /// Space is promised but not yet chosen: the bytes are only in memory.
        const DELALLOC = fiemap::FIEMAP_EXTENT_DELALLOC;
        /// The bytes on the device are not those of the file (compressed).
        const ENCODED = fiemap::FIEMAP_EXTENT_ENCODED;
        /// The bytes on the device are encrypted.
        const ENCRYPTED = fiemap::FIEMAP_EXTENT_DATA_ENCRYPTED;
        /// It does not begin or end at block borders.
        const NOT_ALIGNED = fiemap::FIEMAP_EXTENT_NOT_ALIGNED;
        /// The bytes sit among metadata, such as in the inode.
        const INLINE = fiemap::FIEMAP_EXTENT_DATA_INLINE;
        /// The bytes share a block with those of other files.
        const TAIL = fiemap::FIEMAP_EXTENT_DATA_TAIL;
        /// Allocated, but reads as zeros: there is nothing to read.
        const UNWRITTEN = fiemap::FIEMAP_EXTENT_UNWRITTEN;
        /// Joined from single blocks, since the file system has no extents.
        const MERGED = fiemap::FIEMAP_EXTENT_MERGED;
        /// Other files have the same bytes at the same place.
        const SHARED = fiemap::FIEMAP_EXTENT_SHARED;

        /// Any of the reasons why the bytes at the address are not simply those of the file.
        const NOT_PLAIN = Self::UNKNOWN.bits() | Self::DELALLOC.bits() | Self::ENCODED.bits()
            | Self::ENCRYPTED.bits() | Self::NOT_ALIGNED.bits() | Self::INLINE.bits() | Self::TAIL.bits()
            | Self::UNWRITTEN.bits();
    }
}
