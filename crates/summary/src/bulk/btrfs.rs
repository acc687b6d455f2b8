//! btrfs: in the tree of a subvolume lie, one behind the other, an inode, its attributes, and the names in it.

use std::{
    io,
    ops::Range,
    os::fd::BorrowedFd,
    sync::{Mutex, PoisonError},
};

use onesweep_layout::btrfs::{Attribute, DirItem, InodeItem, kind};
use onesweep_sys::btrfs::{self, Item, Key, SearchBuffer};

use super::{Names, Told, by_number};
use crate::{
    identity::NodeId,
    volume::{ACCESS_LIST, Volume},
};

/// Inodes whose numbers are no further apart are read in one go, with those between: to ask once more takes longer.
const NEAR: u64 = 12;
/// Half of it for some hundred inodes, and half so that the end of an answer is known as one.
const ROOM: usize = 128 << 10;

pub(super) struct Trees {
    sector_bytes: u64,
    /// Of sessions that are over.
    buffers: Mutex<Vec<SearchBuffer>>,
}

impl Trees {
    pub(super) fn of(volume: &Volume) -> io::Result<Trees> {
        let sector_bytes = btrfs::fs_info(volume.top())?.sector_bytes.max(512).into();
        let trees = Trees { sector_bytes, buffers: Mutex::default() };
        // Who may not ask is told so now.
        let root = volume.root();
        let key = Key { objectid: root.ino, kind: kind::INODE_ITEM, offset: 0 };
        let mut buffer = SearchBuffer::new(ROOM);
        btrfs::search_some(volume.top(), &mut buffer, root.subvolume, (key, key), &mut |_| {})?;
        trees.give_back(buffer);
        Ok(trees)
    }

    pub(super) fn session<'a>(&'a self, volume: &'a Volume) -> Session<'a> {
        let spare = self.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let buffer = spare.unwrap_or_else(|| SearchBuffer::new(ROOM));
        let (listed, names, between) = (Vec::new(), Names::default(), Vec::new());
        Session { trees: self, top: volume.top(), buffer: Some(buffer), listed, names, between }
    }

    fn give_back(&self, buffer: SearchBuffer) {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }

    fn told(&self, item: &Item<'_>) -> Option<Told> {
        let inode = InodeItem::parse(item.data).ok()?;
        let time = |time: onesweep_layout::btrfs::items::Time| (time.secs, time.nanos);
        Some(Told {
            ino: item.key.objectid,
            generation: inode.generation as u32,
            mode: inode.mode,
            links: inode.nlink,
            owner: (inode.uid, inode.gid),
            size: inode.size,
            // As `stat` rounds them.
            blocks: inode.bytes.checked_next_multiple_of(self.sector_bytes)? / 512,
            mtime: time(inode.mtime),
            ctime: time(inode.ctime),
            has_xattrs: false,
        })
    }
}

/// A directory that was read with its names.
struct Listed {
    ino: u64,
    /// Where they are among [`Session::names`]; `None` where they don't all lie in one answer.
    names: Option<Range<usize>>,
    /// It has an access list, or names the top of another tree.
    is_special: bool,
}

pub(super) struct Session<'a> {
    trees: &'a Trees,
    top: BorrowedFd<'a>,
    /// It is there as long as this is.
    buffer: Option<SearchBuffer>,
    listed: Vec<Listed>,
    names: Names,
    /// Other inodes that lay between those directories, by rising numbers: files were made right after the directory that they are in.
    between: Vec<Told>,
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.buffer.take().into_iter().for_each(|buffer| self.trees.give_back(buffer));
    }
}

impl Session<'_> {
    /// Tells inodes of a tree with these numbers, which rise, those that can be told; names in them are kept.
    pub(super) fn look_into(&mut self, tree: u64, inodes: &[u64], found: &mut dyn FnMut(Told)) {
        let Self { trees, top, buffer: Some(buffer), listed, names, between } = self else { return };
        listed.clear();
        names.clear();
        between.clear();
        let scanned = scan(*top, buffer, (tree, kind::DIR_INDEX), inodes, &mut |part| match part {
            _ if note_attributes(&part, between) => {}
            Part::Item(item) if item.key.kind == kind::INODE_ITEM => {
                let Some(told) = trees.told(&item) else { return };
                if inodes.binary_search(&told.ino).is_ok() {
                    found(told);
                    let at = names.all.len();
                    listed.push(Listed { ino: told.ino, names: Some(at..at), is_special: false });
                } else {
                    between.push(told);
                }
            }
            Part::Item(item) => {
                let last = listed.last_mut().filter(|last| last.ino == item.key.objectid);
                if let Some(Listed { names: Some(range), is_special, .. }) = last {
                    *is_special |= is_it_special(&item, names);
                    range.end = names.all.len();
                }
            }
            Part::Cut(ino) => {
                if let Some(last) = listed.last_mut().filter(|last| last.ino == ino) {
                    last.names = None;
                }
            }
        });
        // What isn't told is read in the ordinary way, which says why: of the last one all that is behind its inode may be missing.
        if scanned.is_err() {
            listed.last_mut().into_iter().for_each(|last| last.is_special = true);
            between.last_mut().into_iter().for_each(|last| last.has_xattrs = true);
        }
    }

    /// Tells inodes of a tree with these numbers, which rise, those that can be told.
    pub(super) fn look(&mut self, tree: u64, inodes: &[u64], found: &mut dyn FnMut(Told)) {
        let Self { trees, top, buffer: Some(buffer), between, .. } = self else { return };
        let (mut told, mut others) = (Vec::with_capacity(inodes.len()), Vec::new());
        for &ino in inodes {
            match by_number(between, ino) {
                Some(inode) => told.push(*inode),
                None => others.push(ino),
            }
        }
        let scanned = scan(*top, buffer, (tree, kind::XATTR_ITEM), &others, &mut |part| match part {
            _ if note_attributes(&part, &mut told) => {}
            Part::Item(item) if item.key.kind == kind::INODE_ITEM => told.extend(trees.told(&item)),
            _ => {}
        });
        if scanned.is_err() {
            told.last_mut().into_iter().for_each(|last| last.has_xattrs = true);
        }
        told.sort_unstable_by_key(|inode| inode.ino);
        told.into_iter().for_each(found);
    }

    /// Whether nothing is in a directory, and it has no access list: a directory is as large as its names, taken twice.
    pub(super) fn is_known_empty(told: &Told) -> bool {
        told.size == 0 && !told.has_xattrs
    }

    /// Adds the names of a directory that was looked into. `None` where they can't all be told, or are more than `most`, or it has an
    /// access list.
    pub(super) fn list(&mut self, directory: NodeId, most: usize, names: &mut Names) -> Option<()> {
        let at = self.listed.binary_search_by_key(&directory.ino, |listed| listed.ino).ok()?;
        let listed = self.listed.get(at).filter(|listed| !listed.is_special)?;
        if let Some(range) = &listed.names {
            names.append(&self.names, range.clone());
            return Some(());
        }
        let key = |offset| Key { objectid: directory.ino, kind: kind::DIR_INDEX, offset };
        let (mut count, mut is_special) = (0, false);
        let all = (key(0), key(u64::MAX));
        btrfs::search(self.top, self.buffer.as_mut()?, directory.subvolume, all, &mut |item| {
            count += 1;
            is_special = is_it_special(&item, names);
            !is_special && count <= most
        })
        .ok()?;
        (!is_special).then_some(())
    }
}

/// Whether a directory is special by an item of it; a name is added.
fn is_it_special(item: &Item<'_>, names: &mut Names) -> bool {
    match item.key.kind {
        kind::XATTR_ITEM => is_access_list(item),
        kind::DIR_INDEX => match DirItem::parse(item.data) {
            Ok(DirItem { location, name, .. }) if location.kind == kind::INODE_ITEM => {
                names.add(location.objectid, name);
                false
            }
            _ => true,
        },
        _ => false,
    }
}

/// Notes that an inode has an access list, or may have one, if it is the last that was told; whether that is all that a part tells.
fn note_attributes(part: &Part<'_>, told: &mut [Told]) -> bool {
    let Some(last) = told.last_mut() else { return false };
    match part {
        Part::Item(item) if item.key.objectid == last.ino && item.key.kind == kind::XATTR_ITEM => {
            last.has_xattrs |= is_access_list(item);
            true
        }
        Part::Cut(ino) if *ino == last.ino => {
            last.has_xattrs = true;
            true
        }
        _ => false,
    }
}

fn is_access_list(item: &Item<'_>) -> bool {
    let mut is_one = false;
    let parsed = Attribute::parse(item.data, &mut |attribute| is_one |= attribute.name == ACCESS_LIST.to_bytes());
    is_one || parsed.is_err()
}

/// What a scan comes across.
enum Part<'a> {
    Item(Item<'a>),
    /// All further items of that inode are passed over, if there are any.
    Cut(u64),
}

/// Visits items, up to those of a kind, of inodes whose numbers rise, and of others between them.
fn scan(
    top: BorrowedFd<'_>,
    buffer: &mut SearchBuffer,
    (tree, up_to): (u64, u8),
    inodes: &[u64],
    visit: &mut dyn FnMut(Part<'_>),
) -> io::Result<()> {
    let (mut left, mut goes_on) = (inodes, None);
    while let Some(&first) = left.first() {
        let near = left.windows(2).take_while(|pair| pair[1] - pair[0] <= NEAR).count();
        let from = goes_on.take().unwrap_or(Key { objectid: first, kind: kind::INODE_ITEM, offset: 0 });
        let to = Key { objectid: left[near], kind: up_to, offset: u64::MAX };
        match btrfs::search_some(top, buffer, tree, (from, to), &mut |item| visit(Part::Item(item)))? {
            None => left = &left[near + 1..],
            Some(next) => {
                let passed = left.partition_point(|&ino| ino < next.objectid);
                left = &left[passed..];
                let is_wanted = left.first() == Some(&next.objectid);
                // Behind its attributes come its names, twice.
                if is_wanted && next.kind <= up_to.min(kind::XATTR_ITEM) {
                    goes_on = Some(next);
                } else {
                    visit(Part::Cut(next.objectid));
                    left = &left[usize::from(is_wanted)..];
                }
            }
        }
    }
    Ok(())
}
