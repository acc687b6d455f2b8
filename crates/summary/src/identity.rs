//! Inodes as the store knows them: by number and generation, never by path.

use onesweep_sys::handle::FileHandle;

/// An inode of one file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId {
    /// The tree of btrfs in which the number counts; 0 on other file systems.
    pub subvolume: u64,
    /// Its number.
    pub ino: u64,
    /// Tells it from another that had the number before.
    pub generation: u32,
}

impl NodeId {
    /// The directory that stands in a snapshot of btrfs for a subvolume of the original: it is empty and can't be written, and
    /// all of them have the same number, of which nobody can make a handle. So it is known by its name; `key` keeps others from
    /// making up two that are alike.
    pub(crate) fn stub(directory: NodeId, name: &[u8], key: u64) -> NodeId {
        let NodeId { subvolume, ino, generation } = directory;
        let parts = [key, subvolume, ino, generation.into()].map(u64::to_le_bytes);
        // FNV-1a: it has to be the same in every run.
        let hash = parts
            .as_flattened()
            .iter()
            .chain(name)
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
        NodeId { subvolume: STUBS, ino: hash, generation: 0 }
    }

    /// Whether it is one of those.
    pub(crate) fn is_stub(&self) -> bool {
        self.subvolume == STUBS
    }
}

/// No subvolume has this number.
const STUBS: u64 = u64::MAX;
/// The number of all such directories in their subvolumes (`BTRFS_EMPTY_SUBVOL_DIR_OBJECTID`); of others they begin with 256.
pub(crate) const STUB_INO: u64 = 2;

/// How a file system lays out its handles, so that a handle can be made again from a [`NodeId`].
///
/// The kernel calls them opaque. So a family is only believed after the handle of a directory whose number is known has
/// been read this way ([`Family::of`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// ext2, ext3, ext4, F2FS, and XFS with small numbers: number and generation of 32 bits.
    Short,
    /// XFS: a number of 64 bits, and the generation.
    Long,
    /// btrfs: number, tree, generation.
    Btrfs,
    /// tmpfs: the generation, and a number of 64 bits.
    Shmem,
}

const INO32_GEN: i32 = 0x1;
const INO32_GEN_PARENT: i32 = 0x2;
const INO64_GEN: i32 = 0x81;
const INO64_GEN_PARENT: i32 = 0x82;
const BTRFS_WITHOUT_PARENT: i32 = 0x4d;
const BTRFS_WITH_PARENT: i32 = 0x4e;
const BTRFS_WITH_PARENT_ROOT: i32 = 0x4f;

impl Family {
    /// The family of a file system, told by the handle of an inode whose number is `ino`; `None` where it isn't known.
    pub fn of(handle: &FileHandle, ino: u64) -> Option<Family> {
        [Family::Short, Family::Long, Family::Btrfs, Family::Shmem]
            .into_iter()
            .find(|family| family.node(handle).is_some_and(|node| node.ino == ino))
    }

    /// The inode that a handle names.
    pub fn node(self, handle: &FileHandle) -> Option<NodeId> {
        let bytes = handle.bytes();
        let short = |at: usize| Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let long = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let plain = |ino, generation| NodeId { subvolume: 0, ino, generation };
        Some(match (self, handle.kind()) {
            (Family::Short, INO32_GEN | INO32_GEN_PARENT) if bytes.len() != 12 => plain(short(0)?.into(), short(4)?),
            (Family::Long, INO64_GEN | INO64_GEN_PARENT) => plain(long(0)?, short(8)?),
            (Family::Btrfs, BTRFS_WITHOUT_PARENT | BTRFS_WITH_PARENT | BTRFS_WITH_PARENT_ROOT) => {
                NodeId { subvolume: long(8)?, ino: long(0)?, generation: short(16)? }
            }
            (Family::Shmem, INO32_GEN) if bytes.len() == 12 => {
                plain(u64::from(short(4)?) | u64::from(short(8)?) << 32, short(0)?)
            }
            _ => return None,
        })
    }

    /// The handle that names an inode.
    pub fn handle(self, node: NodeId) -> FileHandle {
        let mut bytes = Vec::with_capacity(20);
        let generation = node.generation.to_ne_bytes();
        let kind = match self {
            Family::Short => {
                bytes.extend((node.ino as u32).to_ne_bytes());
                bytes.extend(generation);
                INO32_GEN
            }
            Family::Long => {
                bytes.extend(node.ino.to_ne_bytes());
                bytes.extend(generation);
                INO64_GEN
            }
            Family::Btrfs => {
                bytes.extend(node.ino.to_ne_bytes());
                bytes.extend(node.subvolume.to_ne_bytes());
                bytes.extend(generation);
                BTRFS_WITHOUT_PARENT
            }
            Family::Shmem => {
                bytes.extend(generation);
                bytes.extend((node.ino as u32).to_ne_bytes());
                bytes.extend(((node.ino >> 32) as u32).to_ne_bytes());
                INO32_GEN
            }
        };
        FileHandle::new(kind, &bytes).expect("at most 20 bytes")
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use onesweep_sys::{files, handle};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_directory_of_this_machine_is_known() {
        let tree = tempfile::tempdir().expect("a folder");
        let dir = files::open_dir(tree.path()).expect("it opens");
        let ino = files::statx_fd(dir.as_fd()).expect("its facts").ino;
        let told = handle::handle_at(dir.as_fd(), c"").expect("a handle");
        let family = Family::of(&told, ino).expect("a family that is known");
        let node = family.node(&told).expect("an inode");
        assert_eq!(node.ino, ino);
        assert_eq!(family.handle(node), told);
    }

    proptest! {
        #[test]
        fn handles_and_inodes_name_each_other(subvolume: u64, ino: u64, generation: u32) {
            for family in [Family::Short, Family::Long, Family::Btrfs, Family::Shmem] {
                let node = NodeId {
                    subvolume: if family == Family::Btrfs { subvolume } else { 0 },
                    ino: if family == Family::Short { ino & 0xffff_ffff } else { ino },
                    generation,
                };
                let handle = family.handle(node);
                prop_assert_eq!(family.node(&handle), Some(node));
                // A number that could be read in two ways is told by the length.
                prop_assert_eq!(Family::of(&handle, node.ino), Some(family));
            }
        }

        #[test]
        fn nothing_follows_from_other_bytes(kind: i32, bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let handle = FileHandle::new(kind, &bytes).expect("short enough");
            for family in [Family::Short, Family::Long, Family::Btrfs, Family::Shmem] {
                if let Some(node) = family.node(&handle) {
                    prop_assert!(bytes.len() >= 8, "{node:?}");
                }
            }
        }
    }
}
