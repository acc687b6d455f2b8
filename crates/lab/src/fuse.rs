//! A directory with two files: `disk`, the image behind the model, and `stats`, its books.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    WriteFlags,
};

use crate::disk::drive::Command;
use crate::server::{Reply, Server};

const DISK: INodeNo = INodeNo(2);
const STATS: INodeNo = INodeNo(3);
const FOR_EVER: Duration = Duration::from_secs(3600);

/// Requests that the kernel may have in flight: enough for the drive's queue and what waits before it.
const IN_FLIGHT: u16 = 256;

/// The file system that shows a disk.
pub(crate) struct DiskDir {
    server: Arc<Server>,
    /// What `stats` said when it was opened, by handle.
    opened: Mutex<HashMap<u64, String>>,
    handles: AtomicU64,
}

impl DiskDir {
    pub(crate) fn new(server: Arc<Server>) -> Self {
        Self { server, opened: Mutex::default(), handles: AtomicU64::new(1) }
    }

    fn attributes(&self, ino: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match ino {
            INodeNo::ROOT => (FileType::Directory, 0o755, 0),
            DISK => (FileType::RegularFile, 0o600, self.server.image_bytes()),
            STATS => (FileType::RegularFile, 0o644, 0),
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

    fn said(&self) -> std::sync::MutexGuard<'_, HashMap<u64, String>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Filesystem for DiskDir {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Without asynchronous direct I/O the loop device would send one request at a time.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let refused = || io::Error::other("the kernel refused a FUSE setting");
        config.set_max_background(IN_FLIGHT).map_err(|_| refused())?;
        config.set_congestion_threshold(IN_FLIGHT).map_err(|_| refused())?;
        config.set_max_write(1 << 20).map_err(|_| refused())?;
        Ok(())
    }

    fn lookup(&self, _req: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let ino = match name.to_str() {
            Some("disk") => DISK,
            Some("stats") => STATS,
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

    /// A shell that writes to `stats` truncates it first; nothing changes.
    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<fuser::TimeOrNow>,
        _mtime: Option<fuser::TimeOrNow>,
        _ctime: Option<std::time::SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<std::time::SystemTime>,
        _chgtime: Option<std::time::SystemTime>,
        _bkuptime: Option<std::time::SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.attributes(ino) {
            Some(attributes) if ino == STATS || size.is_none() => reply.attr(&FOR_EVER, &attributes),
            _ => reply.error(Errno::EPERM),
        }
    }

    fn open(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let handle = self.handles.fetch_add(1, Ordering::Relaxed);
        if ino == STATS {
            self.said().insert(handle, self.server.stats());
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
        self.said().remove(&fh.0);
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
        if ino == DISK {
            let len = u64::from(size).min(self.server.image_bytes().saturating_sub(offset));
            if len == 0 {
                return reply.data(&[]);
            }
            return self.server.submit(Command::read(offset, len), Reply::Read(reply));
        }
        let said = self.said();
        let text = said.get(&fh.0).map_or(&[][..], |text| text.as_bytes());
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
        if ino == DISK {
            let command = Command::write(offset, data.len() as u64);
            return self.server.submit(command, Reply::Write(reply, data.to_vec()));
        }
        match std::str::from_utf8(data).map_err(|error| error.to_string()).and_then(|text| self.server.control(text)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(complaint) => {
                // Whoever writes only sees a number.
                eprintln!("onesweep-lab: {complaint}");
                reply.error(Errno::EINVAL);
            }
        }
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        if ino == DISK {
            self.server.submit(Command::FLUSH, Reply::Flush(reply));
        } else {
            reply.ok();
        }
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        if ino != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let root = INodeNo::ROOT;
        let entries = [
            (root, FileType::Directory, "."),
            (root, FileType::Directory, ".."),
            (DISK, FileType::RegularFile, "disk"),
            (STATS, FileType::RegularFile, "stats"),
        ];
        for (index, (ino, kind, name)) in entries.into_iter().enumerate().skip(offset as usize) {
            if reply.add(ino, index as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }
}
