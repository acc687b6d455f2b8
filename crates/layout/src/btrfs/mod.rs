//! The trees of a mounted btrfs: what their items say, and where on its devices its addresses lie.
//!
//! btrfs has addresses of its own, one space for all its devices, which its chunk tree maps to places on them. Everything
//! here parses bytes that others have read, but for [`ChunkMap::read`] and [`Tree::leaves`]: these ask, as root, for items
//! by [`search`](onesweep_sys::btrfs::search) and for nodes from the devices themselves.
//!
//! | module | subject |
//! |---|---|
//! | [`items`] | inodes, names, extents, roots |
//! | [`chunks`] | [`ChunkMap`]: from an address of btrfs to a device and a byte of it |
//! | [`lanes`] | [`Lanes`]: addresses of several devices in one order, in which all of them are at work |
//! | [`nodes`] | [`Tree`]: where the leaves of a tree lie |

pub mod chunks;
mod fields;
pub mod items;
pub mod lanes;
pub mod nodes;

pub use chunks::{Chunk, ChunkMap, Mirror, Place, Profile, Stripe};
pub use items::{DirItem, FileExtent, InodeItem, ItemError, NameRef, RootItem};
pub use lanes::Lanes;
pub use nodes::{Leaf, Tree};

/// The numbers of trees.
pub mod tree {
    /// Roots of all others.
    pub const ROOTS: u64 = 1;
    /// Extents, and who refers to them.
    pub const EXTENTS: u64 = 2;
    /// Chunks and devices.
    pub const CHUNKS: u64 = 3;
    /// The topmost subvolume.
    pub const TOP_SUBVOLUME: u64 = 5;
    /// Checksums of data.
    pub const CHECKSUMS: u64 = 7;
}

/// The kinds of items.
pub mod kind {
    /// An inode.
    pub const INODE_ITEM: u8 = 1;
    /// A name of an inode, by the directory that has it.
    pub const INODE_REF: u8 = 12;
    /// The same for names that found no room there.
    pub const INODE_EXTREF: u8 = 13;
    /// An extended attribute.
    pub const XATTR_ITEM: u8 = 24;
    /// Names of a directory, by their hashes.
    pub const DIR_ITEM: u8 = 84;
    /// A name of a directory, by the order of making.
    pub const DIR_INDEX: u8 = 96;
    /// A part of a file.
    pub const EXTENT_DATA: u8 = 108;
    /// Checksums of a run of data.
    pub const EXTENT_CSUM: u8 = 128;
    /// The root of a tree.
    pub const ROOT_ITEM: u8 = 132;
    /// A subvolume below another.
    pub const ROOT_REF: u8 = 156;
    /// A chunk.
    pub const CHUNK_ITEM: u8 = 228;
}

/// The object that all chunks belong to.
pub const FIRST_CHUNK_TREE: u64 = 256;
/// The object that all checksums belong to.
pub const CHECKSUM_OBJECT: u64 = 10_u64.wrapping_neg();
