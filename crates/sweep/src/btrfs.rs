//! A mounted btrfs whose own trees can be asked, which needs root: where its addresses lie, and its metadata brought into
//! memory in the order of the disk.
//!
//! A walk meets the leaves of a subvolume's tree in the order of its keys, while they lie wherever they were written last.
//! Where they lie the nodes above them tell. So these are read first, from the devices; then the leaves are sorted, and the
//! kernel is made to read each of them, by a search for its first key. The walk that follows finds everything in memory.

use std::{
    collections::{BTreeSet, HashMap},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use onesweep_layout::btrfs::{
    CHECKSUM_OBJECT, ChunkMap, Lanes, Leaf, Mirror, Place, ReadNodes, RootItem, Tree, kind, leaves, tree,
};
use onesweep_sys::{
    block,
    btrfs::{self, Key, SearchBuffer},
    buffer::FileBuffer,
    features::features,
    files, memory, priority,
    read_queue::{ReadOp, ReadPart, best_queue},
};

use crate::progress::Cancel;

/// Leaves that are read at a time, for each device: what the queue of a disk holds.
const IN_FLIGHT: usize = 32;

/// Subvolumes below the one that is swept whose metadata is brought into memory.
const SUBVOLUMES_MAX: usize = 10_000;

/// Bytes of data for which it is kept in mind that their checksums will be needed; those of 16 MiB are in one leaf.
const CHECKSUM_GRAIN: u64 = 4 << 20;

const STACK_BYTES: usize = 128 << 10;

/// A file system, known by its chunks.
#[derive(Debug)]
pub(crate) struct Btrfs {
    pub(crate) lanes: Lanes,
    /// Something on it, to ask by.
    fd: OwnedFd,
    node_bytes: u32,
    devices: HashMap<u64, PathBuf>,
}

/// How leaves are read.
#[derive(Debug, Clone)]
pub(crate) struct Manner {
    pub(crate) idle: bool,
    pub(crate) cancel: Cancel,
}

impl Btrfs {
    /// What `fd` lies on; `None` without root, or when nothing is to be learned.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Option<Self> {
        if !features().tree_search {
            return None;
        }
        let fd = files::reopen(fd).ok()?;
        let info = btrfs::fs_info(fd.as_fd()).ok()?;
        let map = ChunkMap::read(fd.as_fd(), Mirror::default()).ok()?;
        let map = if btrfs::copies_go_by_thread(&info.fsid) { map.in_turns() } else { map };
        let stripes = map.chunks().flat_map(|chunk| &chunk.stripes);
        let numbers: BTreeSet<u64> = stripes.map(|stripe| stripe.device).collect();
        let path = |number| Some((number, btrfs::device_info(fd.as_fd(), number).ok()?.path));
        let devices = numbers.into_iter().filter_map(path).collect();
        Some(Self { lanes: Lanes::new(map)?, devices, node_bytes: info.node_bytes, fd })
    }

    /// The name of the device and the byte of it that have a place in the order.
    pub(crate) fn on_device(&self, place: u64) -> Option<(String, u64)> {
        let Place { device, byte, .. } = self.lanes.on_device(place)?;
        let name = self.devices.get(&device).and_then(|path| path.file_name());
        Some((name.map_or_else(|| device.to_string(), |name| name.to_string_lossy().into_owned()), byte))
    }

    /// Brings all metadata of a subvolume, of which `root` is the root directory, into memory; with `nested` that of the
    /// subvolumes below it, too. Nothing below another directory, where much of it might not be wanted.
    pub(crate) fn bring_subvolume(&self, root: BorrowedFd<'_>, nested: bool, manner: &Manner) {
        let is_root = files::statx_fd(root).is_ok_and(|stat| stat.ino == btrfs::SUBVOLUME_ROOT);
        let Some(top) = btrfs::subvolume(root).ok().filter(|_| is_root) else { return };
        let mut subvolumes = vec![top];
        let mut next = 0;
        while let Some(&above) = subvolumes.get(next).filter(|_| nested && next < SUBVOLUMES_MAX) {
            let key = |offset| Key { objectid: above, kind: kind::ROOT_REF, offset };
            let _ = self.search(tree::ROOTS, (key(0), key(u64::MAX)), &mut |key, _| {
                subvolumes.push(key.offset);
                subvolumes.len() < SUBVOLUMES_MAX
            });
            next += 1;
        }
        let trees: Vec<Tree> = subvolumes.into_iter().filter_map(|id| self.tree(id)).collect();
        let all = Key::default()..Key { objectid: u64::MAX, kind: u8::MAX, offset: u64::MAX };
        self.bring(leaves(&trees, &all, self.lanes.map(), self.limit(2), &mut NodeReader::new(self)), manner);
    }

    /// Brings the checksums of data into memory: btrfs needs them with every read, and they lie among the metadata.
    pub(crate) fn bring_checksums(&self, wanted: &Checksums, manner: &Manner) {
        let (Some(first), Some(last)) = (wanted.grains.first(), wanted.grains.last()) else { return };
        let key = |grain: u64| Key {
            objectid: CHECKSUM_OBJECT,
            kind: kind::EXTENT_CSUM,
            offset: grain.saturating_mul(CHECKSUM_GRAIN),
        };
        let range = key(*first)..key(last + 1);
        let trees: Vec<Tree> = self.tree(tree::CHECKSUMS).into_iter().collect();
        let mut found = leaves(&trees, &range, self.lanes.map(), self.limit(4), &mut NodeReader::new(self));
        found.retain(|leaf| wanted.touch(leaf.key, leaf.end));
        self.bring(found, manner);
    }

    /// Leaves that fit in a part of the free memory.
    fn limit(&self, parts: u64) -> usize {
        let bytes = memory::available_bytes().unwrap_or(0) / parts;
        (bytes / u64::from(self.node_bytes.max(1))) as usize
    }

    fn tree(&self, id: u64) -> Option<Tree> {
        let key = |offset| Key { objectid: id, kind: kind::ROOT_ITEM, offset };
        let mut root = None;
        let _ = self.search(tree::ROOTS, (key(0), key(u64::MAX)), &mut |_, data| {
            root = RootItem::parse(data).ok();
            true
        });
        root.map(|root| Tree { id, root })
    }

    fn search(&self, tree: u64, keys: (Key, Key), visit: &mut dyn FnMut(Key, &[u8]) -> bool) -> io::Result<()> {
        let mut buffer = SearchBuffer::default();
        btrfs::search(self.fd.as_fd(), &mut buffer, tree, keys, &mut |item| visit(item.key, item.data))
    }

    /// Has the kernel read leaves, which are in the order of the disk.
    fn bring(&self, leaves: Vec<Leaf>, manner: &Manner) {
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..(IN_FLIGHT * self.lanes.devices()).min(leaves.len()) {
                let builder = thread::Builder::new().name("onesweep-ahead".into()).stack_size(STACK_BYTES);
                // With fewer threads, or none, less is read ahead.
                let _ = builder.spawn_scoped(scope, || {
                    if manner.idle {
                        let _ = priority::set_idle_io();
                    }
                    let mut buffer = SearchBuffer::default();
                    while let Some(leaf) = leaves.get(next.fetch_add(1, Ordering::Relaxed))
                        && !manner.cancel.is_cancelled()
                    {
                        // Whoever needs it asks again, and meets the same error.
                        let _ = btrfs::touch(self.fd.as_fd(), &mut buffer, leaf.tree, leaf.key);
                    }
                });
            }
        });
    }
}

/// Data whose checksums will be needed.
#[derive(Debug, Default)]
pub(crate) struct Checksums {
    grains: BTreeSet<u64>,
}

impl Checksums {
    /// Keeps the addresses of an extent in mind.
    pub(crate) fn note(&mut self, address: u64, length: u64) {
        let end = address.saturating_add(length.max(1) - 1);
        self.grains.extend(address / CHECKSUM_GRAIN..=end / CHECKSUM_GRAIN);
    }

    /// True when any of them may be in a leaf with keys from `first` on, up to that of the next leaf.
    fn touch(&self, first: Key, next: Option<Key>) -> bool {
        let grain = |key: Key| if key.objectid == CHECKSUM_OBJECT { key.offset / CHECKSUM_GRAIN } else { 0 };
        let end = next.filter(|next| next.objectid == CHECKSUM_OBJECT).map_or(u64::MAX, grain);
        self.grains.range(grain(first)..=end).next().is_some()
    }
}

/// Reads nodes from the devices, past all caches.
struct NodeReader<'a> {
    of: &'a Btrfs,
    open: HashMap<u64, Option<Arc<OwnedFd>>>,
}

impl<'a> NodeReader<'a> {
    fn new(of: &'a Btrfs) -> Self {
        Self { of, open: HashMap::new() }
    }

    fn device(&mut self, number: u64) -> Option<Arc<OwnedFd>> {
        let path = self.of.devices.get(&number);
        let open = || path.and_then(|path| block::open_device_direct(path.as_path()).ok()).map(Arc::new);
        self.open.entry(number).or_insert_with(open).clone()
    }
}

impl ReadNodes for NodeReader<'_> {
    fn read(&mut self, places: &[Place], visit: &mut dyn FnMut(usize, &[u8])) {
        let bytes = self.of.node_bytes as usize;
        let mut queue = best_queue(IN_FLIGHT);
        let mut buffers: HashMap<u64, FileBuffer> = HashMap::new();
        let mut coming = (0_u64..).zip(places);
        loop {
            while queue.in_flight() < queue.capacity()
                && let Some((token, place)) = coming.next()
            {
                let (Some(file), Some(buffer)) = (self.device(place.device), FileBuffer::try_zeroed(bytes)) else {
                    continue;
                };
                let parts = vec![ReadPart::Buffer(buffer.lend(0..bytes))];
                if queue.push(ReadOp { token, file, offset: place.byte, parts, dont_cache: false, copy: None }).is_ok()
                {
                    buffers.insert(token, buffer);
                }
            }
            if queue.in_flight() == 0 {
                return;
            }
            let Ok(done) = queue.wait() else { return };
            drop(done.parts);
            let node = buffers.remove(&done.token).and_then(|buffer| buffer.try_into_bytes().ok());
            if let (Ok(read), Some(node)) = (done.result, node)
                && read == bytes
            {
                visit(done.token as usize, &node);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(offset: u64) -> Key {
        Key { objectid: CHECKSUM_OBJECT, kind: kind::EXTENT_CSUM, offset }
    }

    #[test]
    fn only_leaves_with_wanted_checksums_are_read() {
        let mut wanted = Checksums::default();
        wanted.note(100 << 20, 4096);
        wanted.note((200 << 20) - 1, 2);
        let touches = |from: u64, to: Option<u64>| wanted.touch(key(from << 20), to.map(|to| key(to << 20)));
        assert!(touches(96, Some(112)) && touches(100, Some(101)) && touches(192, Some(208)) && touches(200, None));
        assert!(!touches(0, Some(90)) && !touches(112, Some(180)) && !touches(208, None));
        // The first leaf may begin with another key, the last may be followed by one.
        assert!(wanted.touch(Key::default(), Some(key(112 << 20))));
        assert!(wanted.touch(key(0), Some(Key { objectid: u64::MAX, ..key(0) })));
        assert!(!Checksums::default().touch(Key::default(), None));
    }
}
