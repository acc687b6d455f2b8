//! The files of a tree on the board, and where they are.

use std::{
    collections::HashMap,
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd},
    path::PathBuf,
};

use onesweep_sys::{cache, files::open_file_untouched, memory::page_bytes};

use crate::{
    board::{Board, Slot, State},
    course::ORDERS,
    tree::Tree,
};

/// The files that are guided, by their numbers in the tree.
pub(super) struct Guided<'a> {
    board: &'a Board,
    tree: Tree,
    slots: Vec<Option<Slot>>,
    by_slot: HashMap<Slot, u32>,
    by_inode: HashMap<(u64, u64), u32>,
}

impl<'a> Guided<'a> {
    /// Enters the files of a tree on the board. Fails where there is no memory for that.
    pub(super) fn enter(tree: Tree, board: &'a Board, devices: &[u64]) -> io::Result<Self> {
        board.make_room(tree.files.len())?;
        let mut guided = Self { board, tree, slots: Vec::new(), by_slot: HashMap::new(), by_inode: HashMap::new() };
        for (number, file) in (0..).zip(&guided.tree.files) {
            let device = devices.iter().position(|dev| *dev == file.dev);
            let slot = device.and_then(|device| board.enter(device, file.ino));
            // A further name of a file has its slot.
            let slot = slot.filter(|slot| *guided.by_slot.entry(*slot).or_insert(number) == number);
            guided.slots.push(slot);
            guided.by_inode.entry((file.dev, file.ino)).or_insert(number);
        }
        Ok(guided)
    }

    /// The walks over them, once.
    pub(super) fn take_walks(&mut self) -> [Vec<u32>; ORDERS] {
        std::mem::take(&mut self.tree.walks)
    }

    /// Bytes of the page cache that each takes.
    pub(super) fn page_cache_bytes(&self) -> Vec<u64> {
        self.tree.files.iter().map(|file| file.bytes.next_multiple_of(page_bytes())).collect()
    }

    pub(super) fn bytes(&self, file: u32) -> u64 {
        self.tree.files[file as usize].bytes
    }

    pub(super) fn path(&self, file: u32) -> PathBuf {
        self.tree.path(file)
    }

    /// The file with that device and number.
    pub(super) fn by_inode(&self, inode: (u64, u64)) -> Option<u32> {
        self.by_inode.get(&inode).copied()
    }

    pub(super) fn by_slot(&self, slot: Slot) -> Option<u32> {
        self.by_slot.get(&slot).copied()
    }

    /// Whether programs wait for a file: not for a further name of another one.
    pub(super) fn has_slot(&self, file: u32) -> bool {
        self.slots[file as usize].is_some()
    }

    pub(super) fn is_due(&self, file: u32) -> bool {
        self.slots[file as usize].is_some_and(|slot| self.board.is_due(slot))
    }

    pub(super) fn is_coming(&self, file: u32) -> bool {
        self.slots[file as usize].is_some_and(|slot| self.board.is_coming(slot))
    }

    /// Whether it was brought in.
    pub(super) fn is_in(&self, file: u32) -> bool {
        self.slots[file as usize].is_some_and(|slot| self.board.is_in(slot))
    }

    /// Whether it is told that all of it is in the page cache.
    pub(super) fn is_told_cached(&self, file: u32) -> bool {
        self.ask(file, |open, bytes| Ok(cache::residency(open, 0, bytes)?.has_all_of(bytes))) == Some(true)
    }

    /// Whether all of it is in the page cache. Where that isn't told it is tried, and a page of what isn't there is brought in: for
    /// files that are about to be read. `None` where that can't be, either.
    pub(super) fn is_cached(&self, file: u32) -> Option<bool> {
        self.ask(file, cache::is_cached)
    }

    fn ask(&self, file: u32, question: impl FnOnce(BorrowedFd<'_>, u64) -> io::Result<bool>) -> Option<bool> {
        let open = open_file_untouched(self.path(file).as_path());
        open.and_then(|open| question(open.as_fd(), self.bytes(file))).ok()
    }

    pub(super) fn was_opened(&self, file: u32) -> bool {
        self.slots[file as usize].is_some_and(|slot| self.board.was_opened(slot))
    }

    /// Sets where a file is. Whoever waits for it has to be told.
    pub(super) fn set(&self, file: u32, state: State) {
        if let Some(slot) = self.slots[file as usize] {
            self.board.set(slot, state);
        }
    }

    /// Sets where a file is, and tells.
    pub(super) fn tell(&self, file: u32, state: State) {
        self.set(file, state);
        self.board.tell();
    }

    /// Drops files from the page cache. What nobody has opened may come again.
    pub(super) fn drop_cached(&self, files: impl Iterator<Item = u32>) {
        for file in files {
            if let Ok(open) = open_file_untouched(self.path(file).as_path()).map(File::from) {
                let _ = cache::drop_cached(open.as_fd(), 0, 0);
            }
            if !self.was_opened(file) {
                self.set(file, State::Later);
            }
        }
    }
}
