//! Files that are given to the kernel before a program asks for them: each would else cost a round trip.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use fuser::{INodeNo, Notifier};
use onesweep_sys::{
    cache,
    files::{EntryType, open_file_at, read_at},
    usage::blocks_read,
};

use super::{
    births::Found,
    changes::Told,
    following::Following,
    nodes::{Life, NodeId},
    shown::Shown,
};
use crate::{guide::Inode, lock, order::Listed};

/// The largest file that is given. A larger one is worth its round trip.
const FILE_MAX: u64 = 128 << 10;
/// Bytes that are given at a time, at most.
const BYTES_MAX: u64 = 4 << 20;
/// Threads that give at a time, at most: the kernel may have one wait, and others have to take requests.
const GIVERS_MAX: usize = 2;

/// What is given, and how.
#[derive(Default)]
pub(super) struct Given {
    notifier: OnceLock<Notifier>,
    following: Mutex<Following>,
    givers: AtomicUsize,
    count: AtomicU64,
}

impl Given {
    /// Files that were given.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// From now on files are given.
    pub(super) fn start(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }

    /// What programs are foreseen to read, where files are given.
    pub(super) fn following(&self) -> Option<&Mutex<Following>> {
        self.notifier.get().map(|_| &self.following)
    }
}

/// The content of a file, at the begin of a buffer.
struct Taken {
    node: Life,
    /// How many the file has.
    names: u32,
    bytes: usize,
}

struct Turn<'a>(&'a AtomicUsize);

impl<'a> Turn<'a> {
    fn take(givers: &'a AtomicUsize) -> Option<Self> {
        let turn = Self(givers);
        (givers.fetch_add(1, Ordering::SeqCst) < GIVERS_MAX).then_some(turn)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shown {
    /// A program has asked for a file: those that it will read next are given to the kernel, if they are in memory. What fails
    /// here is asked for.
    pub(super) fn give_next(&self, id: NodeId) {
        let Some(notifier) = self.given.notifier.get() else { return };
        let Some(_turn) = Turn::take(&self.given.givers) else { return };
        let (inode, parent) = {
            let nodes = self.source.nodes();
            (nodes.inode(id), nodes.names(id).first().map(|name| name.directory))
        };
        let (Some(inode), Some(parent)) = (inode, parent) else { return };
        let lacks = lock(&self.given.following).lacks(parent);
        if lacks && let Ok(listed) = self.list(parent) {
            lock(&self.given.following).listed(parent, &Arc::new(listed));
        }
        let asked = lock(&self.given.following).asked(parent, inode.ino);
        if let Some((listed, next)) = asked {
            self.forerun.call();
            self.give(notifier, parent, &listed, &next);
        }
    }

    /// Files of a directory are given to which a program hasn't come yet.
    pub(super) fn give_ahead(&self, directory: NodeId, listed: &[Listed], next: &[u32]) {
        let Some(notifier) = self.given.notifier.get() else { return };
        if self.give(notifier, directory, listed, next) < next.len().div_ceil(2) {
            lock(&self.given.following).not_given(directory);
        }
    }

    /// Tells how many were.
    fn give(&self, notifier: &Notifier, parent: NodeId, listed: &[Listed], next: &[u32]) -> usize {
        let mut given = 0;
        let Some(dev) = self.source.nodes().inode(parent).map(|inode| inode.dev) else { return given };
        let Ok(directory) = self.directory(parent) else { return given };
        let (mut left, before) = (BYTES_MAX, blocks_read());
        let mut buffer = Vec::new();
        for entry in next {
            let listed = &listed[*entry as usize];
            let inode = Inode { dev, ino: listed.ino };
            // What the kernel doesn't know can't be given.
            if self.source.nodes().all_of(inode).next().is_none() {
                continue;
            }
            let since = self.changes.now();
            if !self.has_quick_disks && blocks_read() != before {
                break;
            }
            let taken = self.take(directory.as_fd(), &listed.name, inode, left, &mut buffer);
            let Ok(Some(Taken { node, names, bytes })) = taken else { continue };
            // Bytes that are given may be older than a change; where that isn't seen, nobody would have them forgotten.
            if !self.changes.are_seen(parent, names) || !self.guide.may_be_given(inode) {
                continue;
            }
            left -= bytes as u64;
            if notifier.store(INodeNo(node.id), 0, &buffer[..bytes]).is_ok() {
                given += 1;
            }
            if self.source.nodes().life(node.id) != Some(node) {
                // It was forgotten meanwhile, and another one may have got its number.
                self.changes.misjudged(node.id);
            }
            let told = Told { directory: parent, name: listed.name.clone(), node: node.id };
            self.changes.answered(since, [told]);
        }
        self.given.count.fetch_add(given as u64, Ordering::Relaxed);
        given
    }

    /// Takes the content of a file that is small, in memory, and still the one that is meant.
    fn take(
        &self,
        directory: BorrowedFd<'_>,
        name: &CStr,
        inode: Inode,
        at_most: u64,
        buffer: &mut Vec<u8>,
    ) -> io::Result<Option<Taken>> {
        let file = open_file_at(directory, name)?;
        let Found { stat, birth } = self.source.look(file.as_fd())?;
        let is_meant = (stat.dev, stat.ino) == (inode.dev, inode.ino) && stat.file_type() == EntryType::File;
        if !is_meant || stat.size == 0 || stat.size > FILE_MAX.min(at_most) {
            return Ok(None);
        }
        let node = {
            let nodes = self.source.nodes();
            nodes.known(inode, &birth).and_then(|id| nodes.life(id))
        };
        let Some(node) = node else { return Ok(None) };
        if !cache::residency(file.as_fd(), 0, stat.size)?.has_all_of(stat.size) {
            return Ok(None);
        }
        let bytes = stat.size as usize;
        if buffer.len() < bytes {
            buffer.resize(bytes, 0);
        }
        // One that was cut meanwhile is asked for.
        let is_whole = read_at(file.as_fd(), &mut buffer[..bytes], 0)? == bytes;
        Ok(is_whole.then_some(Taken { node, names: stat.nlink, bytes }))
    }
}
