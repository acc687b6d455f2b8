//! A mounted btrfs: what the tree of a subvolume says of its inodes, without a walk.

use std::{
    io,
    ops::ControlFlow,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use onesweep_sys::{
    btrfs::{self, Item, Key, SUBVOLUME_ROOT, SearchBuffer},
    fiemap::RawExtent,
    files,
};

use crate::{
    btrfs::{
        DirItem, FileExtent, InodeItem, ItemError,
        extents::keep,
        items::{Attribute, Time},
        kind,
    },
    source::Checked,
    tables::{Found, Inode, InodeFlags, Name, TableError, Tables, Timestamp, VolumeFacts, Wanted, cast::to_u32},
};

/// As in `statfs`.
const BTRFS_MAGIC: u32 = 0x9123_683e;

/// The subvolume of the directory that is asked.
const OWN_TREE: u64 = 0;

/// Numbers of inodes end below; above are objects that are none.
const LAST_INODE: u64 = 256_u64.wrapping_neg();

/// Bytes of items that are asked for at a time.
const ANSWER: usize = 1 << 20;

const SYMLINK: u32 = 0o120_000;
const TYPE_BITS: u32 = 0o170_000;

/// One subvolume of a mounted btrfs: its items by `BTRFS_IOC_TREE_SEARCH_V2`, in the order of the inodes' numbers, so that
/// each inode comes with its names, attributes and extents in one pass.
///
/// What is dirty is written first. Then each answer of the kernel is as the tree is at that moment: what changes meanwhile may
/// come as it was before or as it is after, and a name that goes from one directory to another may come twice or not at all.
/// Addresses of extents are btrfs's own; [`ChunkMap`](crate::btrfs::ChunkMap) and [`Lanes`](crate::btrfs::Lanes) lead from
/// there to the devices. Names of other subvolumes, whose inodes are in trees of their own, are not told but
/// [counted](MountedBtrfs::subvolumes). Needs root. It takes 1 MiB, and one inode with its extents (32
/// bytes each) at a time.
#[derive(Debug)]
pub struct MountedBtrfs {
    directory: OwnedFd,
    facts: VolumeFacts,
    subvolumes: Vec<Subvolume>,
}

/// A name by which a directory leads to another subvolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subvolume {
    /// The inode of the directory.
    pub directory: u64,
    /// The name.
    pub name: Vec<u8>,
}

impl MountedBtrfs {
    /// The subvolume that a directory lies in; `None` where that is on no btrfs. Without root, [`scan`](Tables::scan) fails by
    /// `EPERM`.
    pub fn open(directory: &Path) -> io::Result<Option<MountedBtrfs>> {
        let directory = files::open_dir(directory)?;
        let kind = files::file_system(directory.as_fd())?;
        if kind.magic != BTRFS_MAGIC {
            return Ok(None);
        }
        let facts = VolumeFacts {
            fs_type: "btrfs",
            block_bytes: u32::try_from(kind.block_size).unwrap_or(4096),
            bytes: kind.blocks.saturating_mul(kind.block_size),
            root: SUBVOLUME_ROOT,
            ..VolumeFacts::default()
        };
        Ok(Some(MountedBtrfs { directory, facts, subvolumes: Vec::new() }))
    }

    /// The subvolumes that the last scan met, which it has not read.
    pub fn subvolumes(&self) -> &[Subvolume] {
        &self.subvolumes
    }
}

impl Tables for MountedBtrfs {
    fn facts(&self) -> &VolumeFacts {
        &self.facts
    }

    fn scan(&mut self, wanted: Wanted, found: &mut dyn Found) -> Result<(), TableError> {
        // Items come behind the last write to the device. A failure leaves some as they were.
        let _ = files::sync_file_system(self.directory.as_fd());
        self.subvolumes.clear();
        let first = Key { objectid: SUBVOLUME_ROOT, ..Key::default() };
        let last = Key { objectid: LAST_INODE, kind: u8::MAX, offset: u64::MAX };
        let mut buffer = SearchBuffer::new(ANSWER);
        let block_bytes = self.facts.block_bytes.into();
        let mut told = Told { wanted, found, block_bytes, subvolumes: &mut self.subvolumes, inode: None };
        let mut goes_on = ControlFlow::Continue(());
        btrfs::search(self.directory.as_fd(), &mut buffer, OWN_TREE, (first, last), &mut |item| {
            goes_on = told.item(&item);
            goes_on.is_continue()
        })
        .map_err(|source| TableError::Kernel { what: "the tree of a subvolume".to_owned(), source })?;
        if goes_on.is_continue() {
            let _ = told.end_inode();
        }
        Ok(())
    }
}

/// The inode that items are told of.
struct Pending {
    inode: Inode,
    extents: Vec<RawExtent>,
    content: Option<Vec<u8>>,
}

/// Items on their way to what is found.
struct Told<'a> {
    wanted: Wanted,
    found: &'a mut dyn Found,
    block_bytes: u64,
    subvolumes: &'a mut Vec<Subvolume>,
    inode: Option<Pending>,
}

impl Told<'_> {
    fn item(&mut self, item: &Item<'_>) -> ControlFlow<()> {
        if self.inode.as_ref().is_some_and(|pending| pending.inode.number != item.key.objectid) {
            self.end_inode()?;
        }
        match self.take(item) {
            Ok(goes_on) => goes_on,
            Err(error) => self.problem(item.key, error),
        }
    }

    fn take(&mut self, item: &Item<'_>) -> Result<ControlFlow<()>, io::Error> {
        let odd = |error: ItemError| io::Error::new(io::ErrorKind::InvalidData, error);
        let Key { objectid, kind, offset } = item.key;
        match (kind, &mut self.inode) {
            (kind::INODE_ITEM, _) => {
                let inode = told_inode(objectid, &InodeItem::parse(item.data).map_err(odd)?, self.block_bytes);
                self.inode = Some(Pending { inode, extents: Vec::new(), content: None });
            }
            (kind::DIR_INDEX, _) => return Ok(self.name(objectid, &DirItem::parse(item.data).map_err(odd)?)),
            (kind::XATTR_ITEM, Some(pending)) if self.wanted.xattrs => {
                let mut keep = |one: Attribute<'_>| pending.inode.xattrs.push((one.name.to_vec(), one.value.to_vec()));
                Attribute::parse(item.data, &mut keep).map_err(odd)?;
            }
            (kind::EXTENT_DATA, Some(pending)) => {
                keep(&mut pending.extents, offset, item.data).map_err(odd)?;
                match FileExtent::parse(item.data).map_err(odd)? {
                    FileExtent::Inline { compressed: false, .. } if offset == 0 => {
                        pending.content = FileExtent::content(item.data).map(<[u8]>::to_vec);
                    }
                    FileExtent::Inline { compressed: true, .. } | FileExtent::Regular { encoded: true, .. } => {
                        pending.inode.flags |= InodeFlags::COMPRESSED;
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        Ok(ControlFlow::Continue(()))
    }

    fn name(&mut self, directory: u64, item: &DirItem<'_>) -> ControlFlow<()> {
        if item.location.kind == kind::ROOT_ITEM {
            self.subvolumes.push(Subvolume { directory, name: item.name.to_vec() });
            return ControlFlow::Continue(());
        }
        self.found.name(Name { directory, inode: item.location.objectid, name: item.name })
    }

    /// Tells the inode whose items have all come.
    fn end_inode(&mut self) -> ControlFlow<()> {
        let Some(Pending { mut inode, extents, content }) = self.inode.take() else { return ControlFlow::Continue(()) };
        let is_whole = |content: &Vec<u8>| content.len() as u64 == inode.size && extents.len() == 1;
        let is_link = inode.mode & TYPE_BITS == SYMLINK;
        inode.inline = content.filter(is_whole);
        if inode.inline.is_none() && !is_link {
            let mut visit = |extent| inode.extents.push(extent);
            let mut map = Checked::new(inode.size, &mut visit);
            if let Err(error) = extents.iter().try_for_each(|&extent| map.add(extent)) {
                let key = Key { objectid: inode.number, kind: kind::EXTENT_DATA, offset: 0 };
                inode.extents.clear();
                self.problem(key, io::Error::other(error))?;
            }
        }
        self.found.inode(inode)
    }

    fn problem(&mut self, key: Key, error: io::Error) -> ControlFlow<()> {
        let Key { objectid, kind, offset } = key;
        if kind == kind::DIR_INDEX {
            self.found.incomplete(Some(objectid));
        }
        let what = format!("the item ({objectid} {kind} {offset}) as it should be");
        self.found.problem(TableError::Kernel { what, source: error })
    }
}

fn told_inode(number: u64, item: &InodeItem, block_bytes: u64) -> Inode {
    Inode {
        number,
        // As FS_IOC_GETVERSION and handles of files cut it.
        generation: to_u32(item.generation & u64::from(u32::MAX)),
        mode: item.mode,
        uid: item.uid,
        gid: item.gid,
        size: item.size,
        // As `stat` tells it, also of content that lies among the items.
        allocated: item.bytes.checked_next_multiple_of(block_bytes).unwrap_or(item.bytes),
        links: item.nlink,
        rdev: kept_device(item.rdev),
        mtime: moment(item.mtime),
        ctime: moment(item.ctime),
        atime: moment(item.atime),
        btime: Some(moment(item.otime)),
        ..Inode::default()
    }
}

/// The kernel's own form of a device, of which the lowest 20 bits are the minor number.
fn kept_device(rdev: u64) -> u64 {
    const MINOR_BITS: u32 = 20;
    let minor = rdev & ((1 << MINOR_BITS) - 1);
    match (u32::try_from(rdev >> MINOR_BITS), u32::try_from(minor)) {
        (Ok(major), Ok(minor)) => files::makedev(major, minor),
        _ => 0,
    }
}

fn moment(time: Time) -> Timestamp {
    Timestamp { seconds: time.secs, nanoseconds: time.nanos }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_packed_anew() {
        assert_eq!(kept_device(8 << 20 | 0x12), files::makedev(8, 0x12));
        assert_eq!(kept_device(259 << 20 | 70_000), files::makedev(259, 70_000));
        assert_eq!(kept_device(u64::MAX), 0, "no device has such a number");
    }

    #[test]
    fn other_file_systems_are_none() {
        assert!(MountedBtrfs::open(Path::new("/proc")).unwrap().is_none());
        let gone = MountedBtrfs::open(Path::new("/no-such-folder")).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }
}
