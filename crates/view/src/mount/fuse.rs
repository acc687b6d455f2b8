//! The face of the view: requests of the kernel in, answers out.

use std::{
    ffi::OsStr,
    io,
    os::{fd::AsFd, unix::ffi::OsStringExt},
    path::Path,
    sync::{Arc, atomic::Ordering},
    time::SystemTime,
};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use onesweep_sys::{
    awake::Awake,
    files::{read_link_at, space},
};

use super::{
    opened::Asks,
    shown::Shown,
    writes::{self, Changed, How},
};

/// Requests that the kernel may have in flight by itself.
const IN_FLIGHT: u16 = 256;
/// Bytes of a request, at most.
const REQUEST_BYTES: u32 = 1 << 20;

fn answer(reply: ReplyEmpty, done: io::Result<()>) {
    match done {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error.into()),
    }
}

fn answer_bytes(reply: ReplyXattr, size: u32, found: io::Result<Vec<u8>>) {
    match found {
        Ok(bytes) if size == 0 => reply.size(bytes.len() as u32),
        Ok(bytes) if bytes.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(bytes) => reply.data(&bytes),
        Err(error) => reply.error(error.into()),
    }
}

/// What the kernel talks to.
pub(super) struct Face {
    pub(super) shown: Arc<Shown>,
    pub(super) awake: Option<Awake>,
}

impl Face {
    /// For a request that a program waits for, and that is answered in less time than a processor takes to wake up.
    fn asked(&self) -> &Arc<Shown> {
        if let Some(awake) = &self.awake {
            awake.asked();
        }
        &self.shown
    }
}

impl Filesystem for Face {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let refused = || io::Error::other("the kernel refused a FUSE setting");
        config.set_max_background(IN_FLIGHT).map_err(|_| refused())?;
        config.set_congestion_threshold(IN_FLIGHT).map_err(|_| refused())?;
        config.set_max_write(REQUEST_BYTES).map_err(|_| refused())?;
        for wanted in [
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_AUTO_INVAL_DATA,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_POSIX_ACL,
            InitFlags::FUSE_DONT_MASK,
        ] {
            // An old kernel does without.
            let _ = config.add_capabilities(wanted);
        }
        // The kernel lets root alone hand over files.
        let has_passthrough = self.shown.wants_passthrough
            && onesweep_sys::user::effective_uid() == 0
            && config.capabilities().contains(InitFlags::FUSE_PASSTHROUGH)
            && config.set_max_stack_depth(1).is_ok()
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok();
        let without_open =
            self.shown.read_only && !has_passthrough && config.capabilities().contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        self.shown.has_passthrough.store(has_passthrough, Ordering::SeqCst);
        self.shown.is_without_open.store(without_open, Ordering::SeqCst);
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.asked().answer_entry(parent.0, name, reply, |name| self.shown.entry(parent.0, name));
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.shown.source.forget(ino.0, nlookup);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, fh: Option<FileHandle>, reply: ReplyAttr) {
        self.asked().answer_attributes(ino.0, reply, || self.shown.stat(ino.0, fh));
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.asked().source.handle(ino.0).and_then(|handle| read_link_at(handle.as_fd(), "")) {
            Ok(target) => reply.data(&target.into_vec()),
            Err(error) => reply.error(error.into()),
        }
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.asked().open(writes::who(req, 0), ino.0, flags, reply);
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
        self.asked().read(ino.0, fh, offset, size, reply);
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let open = self.shown.opened.remove_file(fh.0);
        reply.ok();
        if let Some(open) = open.filter(|_| flags.0 & libc::O_ACCMODE != libc::O_RDONLY) {
            self.shown.closed(&open);
        }
    }

    fn opendir(&self, req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        // Before anything of it is told: a change from now on is seen.
        if let Err(error) = self.asked().directory(ino.0) {
            return reply.error(error.into());
        }
        let asks = if self.shown.forerun.asks(req.pid()) { Asks::Forerun } else { Asks::Program };
        if asks == Asks::Program {
            self.shown.opened_directory(ino.0);
        }
        let number = FileHandle(self.shown.opened.add_directory(ino.0, asks));
        match self.shown.changes.is_seen(ino.0) && !self.shown.is_foreign(ino.0) {
            true => reply.opened(number, FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE),
            false => reply.opened(number, FopenFlags::empty()),
        }
    }

    fn releasedir(&self, _req: &Request, ino: INodeNo, fh: FileHandle, _flags: OpenFlags, reply: ReplyEmpty) {
        let open = self.shown.opened.remove_directory(fh.0);
        if open.is_some_and(|open| open.asks == Asks::Program) {
            self.shown.guide.closed(ino.0);
        }
        reply.ok();
    }

    fn readdir(&self, _req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, reply: ReplyDirectory) {
        let this = Arc::clone(self.asked());
        let Some(open) = this.opened.directory(fh.0) else { return reply.error(Errno::EBADF) };
        let job = move || this.read_directory(&open, offset, reply);
        self.shown.guide.before_listing(|| self.shown.source.nodes().chain(ino.0), Box::new(job));
    }

    fn readdirplus(&self, _req: &Request, ino: INodeNo, fh: FileHandle, offset: u64, reply: ReplyDirectoryPlus) {
        let this = Arc::clone(self.asked());
        let Some(open) = this.opened.directory(fh.0) else { return reply.error(Errno::EBADF) };
        let asks = open.asks;
        let job = move || this.read_directory_and_attributes(&open, offset, reply);
        if asks == Asks::Forerun {
            return job();
        }
        self.shown.guide.before_listing(|| self.shown.source.nodes().chain(ino.0), Box::new(job));
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        match space(self.shown.source.root()) {
            Ok(space) => reply.statfs(
                space.blocks,
                space.free,
                space.available,
                space.files,
                space.files_free,
                space.block_bytes as u32,
                space.name_bytes as u32,
                space.fragment_bytes as u32,
            ),
            Err(error) => reply.error(error.into()),
        }
    }

    fn getxattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        answer_bytes(reply, size, self.asked().xattr(ino.0, name));
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        answer_bytes(reply, size, self.asked().xattr_names(ino.0, req.uid() == 0));
    }

    fn lseek(&self, _req: &Request, ino: INodeNo, fh: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        match self.asked().seek(ino.0, fh, offset, whence) {
            Ok(at) => reply.offset(at),
            Err(error) => reply.error(error.into()),
        }
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let who = writes::who(req, 0);
        let changed = Changed { mode, uid, gid, size, atime, mtime };
        self.shown.answer_attributes(ino.0, reply, || self.shown.change(who, ino.0, fh, &changed));
    }

    fn mknod(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, rdev: u32, reply: ReplyEntry) {
        let who = writes::who(req, umask);
        self.shown.answer_entry(parent.0, name, reply, |name| self.shown.make_node(who, parent.0, name, mode, rdev));
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let who = writes::who(req, umask);
        self.shown.answer_entry(parent.0, name, reply, |name| self.shown.make_directory(who, parent.0, name, mode));
    }

    fn symlink(&self, req: &Request, parent: INodeNo, link_name: &OsStr, target: &Path, reply: ReplyEntry) {
        let who = writes::who(req, 0);
        self.shown.answer_entry(parent.0, link_name, reply, |name| self.shown.make_link(who, parent.0, name, target));
    }

    fn link(&self, req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let who = writes::who(req, 0);
        self.shown.answer_entry(newparent.0, newname, reply, |name| self.shown.link(who, ino.0, newparent.0, name));
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, self.shown.remove(writes::who(req, 0), parent.0, name, false));
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, self.shown.remove(writes::who(req, 0), parent.0, name, true));
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        answer(reply, self.shown.rename(writes::who(req, 0), (parent.0, name), (newparent.0, newname), flags.bits()));
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        self.shown.create(writes::who(req, umask), parent.0, name, mode, flags, reply);
    }

    fn write(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let how = match write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
            true => How::Page,
            false if flags.0 & libc::O_APPEND != 0 => How::Append,
            false => How::Plain,
        };
        match self.shown.write(writes::who(req, 0), fh, offset, data, how) {
            Ok(written) => reply.written(written as u32),
            Err(error) => reply.error(error.into()),
        }
    }

    fn fsync(&self, _req: &Request, ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        answer(reply, self.shown.sync(ino.0, fh, datasync));
    }

    fn fsyncdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        answer(reply, self.shown.sync_directory(ino.0));
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        answer(reply, self.shown.set_xattr(writes::who(req, 0), ino.0, name, value, flags));
    }

    fn removexattr(&self, _req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        answer(reply, self.shown.remove_xattr(ino.0, name));
    }

    fn fallocate(
        &self,
        req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        answer(reply, self.shown.allocate(writes::who(req, 0), fh, mode, offset, length));
    }

    fn copy_file_range(
        &self,
        req: &Request,
        ino_in: INodeNo,
        fh_in: FileHandle,
        offset_in: u64,
        _ino_out: INodeNo,
        fh_out: FileHandle,
        offset_out: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        match self.shown.copy(writes::who(req, 0), (ino_in.0, fh_in, offset_in), (fh_out, offset_out), len) {
            Ok(copied) => reply.written(copied),
            Err(error) => reply.error(error.into()),
        }
    }
}
