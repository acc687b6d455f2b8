//! A directory with two files: `block`, the device, and `metrics`, what was counted.

use std::{
    collections::HashMap,
    ffi::OsStr,
    io,
    os::fd::OwnedFd,
    path::Path,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fuser::{
    BackgroundSession, BackingId, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenAccMode, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};

use onesweep_sys::awake::{Awake, Busy};

use super::{Device, counters::add, lock};

/// The file that is the device.
pub const BLOCK_FILE: &str = "block";
/// The file with what was counted.
pub const METRICS_FILE: &str = "metrics";
/// How it is called among the mounts.
pub const SHOWN: &str = "onesweep-peer";

const BLOCK: INodeNo = INodeNo(2);
const METRICS: INodeNo = INodeNo(3);
const FOR_EVER: Duration = Duration::from_secs(3600);

/// Requests that the kernel may have in flight.
const IN_FLIGHT: u16 = 32;
/// Bytes of a request, at most. Where memory is short, so many bytes for each request in flight have to be had here before a dirty
/// page becomes clean.
const REQUEST_BYTES: u32 = 512 << 10;
/// Threads that take requests. All but one may wait for a quick disk.
pub(super) const THREADS: usize = 2;

/// How a device is shown.
#[derive(Debug, Default)]
pub struct Showing {
    /// While one read comes after the other no processor sleeps, where that may be asked for (root).
    pub stays_awake: bool,
    /// An image that is only read, and that the kernel is to read by itself: nothing is raced then, learnt, or answered by a server
    /// that the disk can't read. Where the kernel can't (before Linux 6.9; root), it is read as any other.
    pub left_to_kernel: Option<OwnedFd>,
}

/// Shows a device at a directory, to the user who does it and to root alone, until it is unmounted.
pub fn show(device: Arc<Device>, dir: &Path, showing: Showing) -> io::Result<BackgroundSession> {
    let mut config = fuser::Config::default();
    let access = if device.shared.read_only { MountOption::RO } else { MountOption::RW };
    config.mount_options = vec![MountOption::FSName(SHOWN.into()), MountOption::Subtype(SHOWN.into()), access];
    config.n_threads = Some(THREADS);
    let Showing { stays_awake, left_to_kernel } = showing;
    let left_to_kernel = left_to_kernel.filter(|_| device.shared.read_only);
    let shown = DeviceDir {
        device,
        opened: Mutex::default(),
        handles: AtomicU64::new(1),
        awake: stays_awake.then(|| Awake::while_busy(Busy::default()).ok()).flatten(),
        left_to_kernel,
        backing: OnceLock::new(),
    };
    fuser::spawn_mount(shown, dir, &config)
}

struct DeviceDir {
    device: Arc<Device>,
    /// What `metrics` said when it was opened, by handle.
    opened: Mutex<HashMap<u64, String>>,
    handles: AtomicU64,
    awake: Option<Awake>,
    /// None either where the kernel can't.
    left_to_kernel: Option<OwnedFd>,
    /// The kernel refuses to open one file both ways: what the first opening has come to counts for all. Taken back by the kernel with
    /// the mount.
    backing: OnceLock<Option<BackingId>>,
}

impl DeviceDir {
    /// By which number the kernel knows the image, if it is to read it by itself.
    fn backing(&self, reply: &ReplyOpen) -> Option<&BackingId> {
        let image = self.left_to_kernel.as_ref()?;
        self.backing.get_or_init(|| reply.open_backing(image).ok()).as_ref()
    }

    fn attributes(&self, ino: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match ino {
            INodeNo::ROOT => (FileType::Directory, 0o755, 0),
            BLOCK if self.device.shared.read_only => (FileType::RegularFile, 0o400, self.device.len()),
            BLOCK => (FileType::RegularFile, 0o600, self.device.len()),
            METRICS => (FileType::RegularFile, 0o444, 0),
            _ => return None,
        };
        Some(FileAttr {
            ino,
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
}

impl Filesystem for DeviceDir {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without asynchronous direct I/O the loop device would send one request at a time.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let refused = || io::Error::other("the kernel refused a FUSE setting");
        config.set_max_background(IN_FLIGHT).map_err(|_| refused())?;
        config.set_congestion_threshold(IN_FLIGHT).map_err(|_| refused())?;
        config.set_max_write(REQUEST_BYTES).map_err(|_| refused())?;
        // The kernel lets root alone hand over files.
        let has_passthrough = self.left_to_kernel.is_some()
            && onesweep_sys::user::effective_uid() == 0
            && config.capabilities().contains(InitFlags::FUSE_PASSTHROUGH)
            && config.set_max_stack_depth(1).is_ok()
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok();
        if !has_passthrough {
            self.left_to_kernel = None;
        }
        Ok(())
    }

    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let ino = match name.to_str() {
            Some(BLOCK_FILE) => BLOCK,
            Some(METRICS_FILE) => METRICS,
            _ => return reply.error(Errno::ENOENT),
        };
        match self.attributes(ino) {
            Some(attributes) => reply.entry(&FOR_EVER, &attributes, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(ino) {
            Some(attributes) => reply.attr(&FOR_EVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    /// Times may be set, and are not kept. A device has the size that it has.
    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.attributes(ino) {
            Some(attributes) if size.is_none() => reply.attr(&FOR_EVER, &attributes),
            _ => reply.error(Errno::EPERM),
        }
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        // The kernel opens what it reads by itself as whoever asks does. A mount may be made writable by others.
        if self.device.shared.read_only && flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        let handle = self.handles.fetch_add(1, Ordering::Relaxed);
        if ino == METRICS {
            lock(&self.opened).insert(handle, self.device.metrics());
        }
        if ino == BLOCK
            && let Some(backing) = self.backing(&reply)
        {
            add(&self.device.shared.engine.counters.left_to_kernel, 1);
            return reply.opened_passthrough(FileHandle(handle), FopenFlags::empty(), backing);
        }
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(handle), flags);
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        lock(&self.opened).remove(&fh.0);
        reply.ok();
    }

    fn flush(&self, _req: &Request, _ino: INodeNo, _fh: FileHandle, _lock_owner: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn read(
        &self,
        _req: &Request,
        ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        if ino == BLOCK {
            if let Some(awake) = &self.awake {
                awake.asked();
            }
            return self.device.read(offset, size as usize, move |got| match got {
                Ok(bytes) => reply.data(bytes),
                Err(error) => reply.error(error.into()),
            });
        }
        let opened = lock(&self.opened);
        let text = opened.get(&fh.0).map_or(&[][..], |text| text.as_bytes());
        let from = text.len().min(offset as usize);
        reply.data(&text[from..text.len().min(from + size as usize)]);
    }

    fn write(
        &self,
        _req: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if ino != BLOCK {
            return reply.error(Errno::EPERM);
        }
        let count = data.len() as u32;
        self.device.write(offset, data, move |done| match done {
            Ok(()) => reply.written(count),
            Err(error) => reply.error(error.into()),
        });
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        if ino != BLOCK {
            return reply.ok();
        }
        self.device.flush(move |done| match done {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error.into()),
        });
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if ino != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let root = INodeNo::ROOT;
        let entries = [
            (root, FileType::Directory, "."),
            (root, FileType::Directory, ".."),
            (BLOCK, FileType::RegularFile, BLOCK_FILE),
            (METRICS, FileType::RegularFile, METRICS_FILE),
        ];
        for (index, (ino, kind, name)) in entries.into_iter().enumerate().skip(offset as usize) {
            if reply.add(ino, index as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}
