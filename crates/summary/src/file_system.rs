//! A mounted file system as the daemon needs it, whoever has the rights: this process ([`crate::volume`]) or another one
//! ([`crate::warden`]).

use std::{
    fmt::Debug,
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use onesweep_sys::{fanotify::Group, files::Stat, handle::FileHandle};

use crate::{
    access_lists::AccessLists,
    identity::{Family, NodeId},
    reading::Directories,
};

/// A mounted file system whose directories are known by their numbers.
pub trait FileSystem: Directories + Send + Debug {
    /// Whether an inode of this device number may be one of its own.
    fn may_hold(&self, dev: u64) -> bool;

    /// Whether an open directory is the one of that number here, and not one of another file system with the same numbers.
    fn is_it(&self, stat: &Stat, id: NodeId) -> bool;

    /// The directory at its top.
    fn root(&self) -> NodeId;

    /// The number that the warden has for it, where it is that which opens it.
    fn number(&self) -> Option<u32> {
        None
    }

    /// How its handles are laid out; `None` where inodes are known by what `stat` tells.
    fn family(&self) -> Option<Family>;

    /// The number of an inode of this device, of which these are the facts, and the handle where it has one.
    fn id_of(&self, stat: &Stat, handle: Option<&FileHandle>) -> Option<NodeId> {
        match self.family() {
            Some(family) => family.node(handle?),
            None => Some(NodeId { subvolume: 0, ino: stat.ino, generation: 0 }),
        }
    }

    /// The directory at its top, open.
    fn top(&self) -> BorrowedFd<'_>;

    /// What tells this file system from others on the same machine.
    fn identity(&self) -> io::Result<Vec<u8>>;

    /// The same as stores may have it that were made when less was told; none where it is the same.
    fn identity_before(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    /// A directory, for its facts alone.
    fn handle_of(&self, directory: NodeId) -> io::Result<OwnedFd>;

    /// The access list of a directory, as it is now.
    fn access_list(&self, directory: NodeId) -> Option<Vec<u8>>;

    /// Those that are known, by their hashes.
    fn access_lists(&self) -> &AccessLists;

    /// Has a group that watches this file system ignore what happens in directories; for each whether it does.
    fn ignore(&self, group: &Group, directories: &[NodeId]) -> Vec<bool>;

    /// Ends that, for each.
    fn heed(&self, group: &Group, directories: &[NodeId]) -> Vec<io::Result<()>>;
}
