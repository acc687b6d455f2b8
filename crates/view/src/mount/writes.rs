//! Requests that change the source. A view that is read-only gets none: the kernel refuses them before.
//!
//! Whether somebody may do it the kernel has judged (`default_permissions`, ACLs), by what it has in mind. Where somebody else may have
//! made a file by the same name since, it is asked to judge once more, or the source judges. What is made belongs to who asked, with the
//! default ACLs and the umask applied by the file system of the source. The room it takes is that of who asked: reserved blocks and
//! quotas hold for him.

use std::{
    ffi::{CString, OsStr},
    fs::File,
    io,
    ops::Range,
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use fuser::{FileHandle, FopenFlags, ReplyCreate, Request, TimeOrNow};
use onesweep_sys::{
    acting,
    files::{
        EntryType, Moment, Place, Stat, Time, change_size, copy_range, create_with, fallocate, make_directory_with,
        make_node_with, make_symlink_at, makedev, name_file, open_again_with, open_handle_at, remove_at,
        remove_directory_at, rename_with, set_mode_handle, set_moments_handle, set_owner_handle, statx_fd, write_some,
    },
};

use super::{
    changes::Told,
    nodes::{Life, NodeId},
    opened::OpenFile,
    shown::{Entry, Shown, name_of},
};

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Who {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// Zero is somebody who can't be seen from here.
    pub(super) pid: u32,
    umask: u32,
}

pub(super) fn who(request: &Request, umask: u32) -> Who {
    Who { uid: request.uid(), gid: request.gid(), pid: request.pid(), umask }
}

impl Who {
    pub(super) fn does<T>(self, act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        acting::on_behalf_of(self.uid, self.gid, self.umask, act)
    }

    /// The source judges whether the name may go: by now it may be that of a file which the kernel hasn't heard of.
    fn moves<T>(self, act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        acting::moving_names(self.uid, self.gid, act)
    }
}

/// What is to change of an inode.
#[derive(Debug, Clone, Copy)]
pub(super) struct Changed {
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) size: Option<u64>,
    pub(super) atime: Option<TimeOrNow>,
    pub(super) mtime: Option<TimeOrNow>,
}

/// What a write is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    /// At its offset.
    Plain,
    /// Where the file ends: the kernel knows only where it has ended when that was asked last.
    Append,
    /// Pages of a mapping, at their place however the file was opened.
    Page,
}

/// Opens something that was asked for with these flags, with more flags for open(2): what may only grow (chattr +a) is opened by nobody
/// but who appends. Tells whether it is such a file.
pub(super) fn opening<T>(asked: i32, open: impl Fn(i32) -> io::Result<T>) -> io::Result<(T, bool)> {
    match open(0) {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) && asked & libc::O_APPEND != 0 => {
            Ok((open(libc::O_APPEND)?, true))
        }
        opened => Ok((opened?, false)),
    }
}

/// The flags of open(2) as the daemon uses them: offsets come with each write, and of any length.
pub(super) fn flags_of(flags: i32) -> i32 {
    let meant = flags & (libc::O_ACCMODE | libc::O_SYNC | libc::O_DSYNC | libc::O_TRUNC);
    meant | libc::O_NONBLOCK
}

fn moment(time: Option<TimeOrNow>) -> Moment {
    match time {
        None => Moment::Same,
        Some(TimeOrNow::Now) => Moment::Now,
        Some(TimeOrNow::SpecificTime(time)) => Moment::At(time_of(time)),
    }
}

fn time_of(time: SystemTime) -> Time {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Time { secs: since.as_secs() as i64, nanos: since.subsec_nanos() },
        // The library counts the nanoseconds of such a time backwards as well, so that they are what the kernel has said.
        Err(before) => Time { secs: -(before.duration().as_secs() as i64), nanos: before.duration().subsec_nanos() },
    }
}

impl Shown {
    /// Changes an inode, and looks at it.
    pub(super) fn change(&self, who: Who, id: NodeId, fh: Option<FileHandle>, changed: &Changed) -> io::Result<Stat> {
        let open = fh.and_then(|fh| self.opened.file(fh.0));
        let handle = self.source.handle(id).or_else(|error| match &open {
            Some(open) => open.file.try_clone().map(Arc::new),
            None => Err(error),
        })?;
        if let Some(size) = changed.size {
            // It is open for writing, as who is told of a change wants it.
            let file = match &open {
                Some(open) => Arc::clone(&open.file),
                None => Arc::new(open_again_with(handle.as_fd(), libc::O_WRONLY)?),
            };
            let inode = self.source.nodes().inode(id);
            if let Some(inode) = inode {
                self.contents.before_change(inode.ino);
            }
            let before = statx_fd(file.as_fd())?.size;
            acting::in_room_of(who.uid, file.as_fd(), 0, || change_size(file.as_fd(), size))?;
            if let Some(inode) = inode {
                // The last blocks of before and of now have other ends; what is between them is zeros.
                for at in [before.min(size), size].map(|end| end.saturating_sub(1)) {
                    self.contents.changed(inode.ino, &file, at..at + 1);
                }
                if open.is_none() {
                    self.contents.closed(inode.ino);
                }
            }
        }
        if changed.uid.is_some() || changed.gid.is_some() {
            // Another one's quota has to have room for it.
            who.does(|| set_owner_handle(handle.as_fd(), changed.uid, changed.gid))?;
        }
        // After the owner, whose change takes away the bits that lend his rights.
        if let Some(mode) = changed.mode {
            set_mode_handle(handle.as_fd(), mode & 0o7777)?;
        }
        if changed.atime.is_some() || changed.mtime.is_some() {
            set_moments_handle(handle.as_fd(), moment(changed.atime), moment(changed.mtime))?;
        }
        statx_fd(handle.as_fd())
    }

    pub(super) fn make_node(
        &self,
        who: Who,
        parent: NodeId,
        name: &CString,
        mode: u32,
        rdev: u32,
    ) -> io::Result<Entry> {
        let directory = self.directory(parent)?;
        let rdev = makedev((rdev >> 8) & 0xfff, (rdev & 0xff) | (rdev >> 12 & 0xfff00));
        who.does(|| make_node_with(directory.as_fd(), name.as_c_str(), mode, rdev))?;
        self.entry(parent, name)
    }

    pub(super) fn make_directory(&self, who: Who, parent: NodeId, name: &CString, mode: u32) -> io::Result<Entry> {
        let directory = self.directory(parent)?;
        who.does(|| make_directory_with(directory.as_fd(), name.as_c_str(), mode))?;
        self.entry(parent, name)
    }

    pub(super) fn make_link(&self, who: Who, parent: NodeId, name: &CString, target: &Path) -> io::Result<Entry> {
        let directory = self.directory(parent)?;
        let target = target.as_os_str().as_bytes();
        who.does(|| make_symlink_at(target, directory.as_fd(), name.as_c_str()))?;
        self.entry(parent, name)
    }

    pub(super) fn link(&self, who: Who, id: NodeId, parent: NodeId, name: &CString) -> io::Result<Entry> {
        let handle = self.source.handle(id)?;
        let directory = self.directory(parent)?;
        who.does(|| name_file(handle.as_fd(), directory.as_fd(), name.as_c_str()))?;
        self.entry(parent, name)
    }

    /// Before a name goes: what it leads to stays within reach of those who have it open.
    fn let_go(&self, parent: NodeId, directory: &OwnedFd, name: &CString) -> Option<Life> {
        let handle = open_handle_at(directory.as_fd(), name.as_c_str()).ok()?;
        let stat = statx_fd(handle.as_fd()).ok()?;
        let node = self.source.life(self.source.known(handle.as_fd())?).ok()?;
        if stat.nlink <= 1 || stat.file_type() == EntryType::Dir {
            self.source.keep(node, &Arc::new(handle));
        }
        self.source.nodes().unnamed(node.id, parent, name);
        Some(node)
    }

    /// The name didn't go, after all.
    fn took_back(&self, node: Option<Life>, parent: NodeId, name: &CString) {
        if let Some(node) = node {
            self.source.nodes().named(node.id, parent, name);
            self.source.keep_no_more(node);
        }
    }

    pub(super) fn remove(&self, who: Who, parent: NodeId, name: &OsStr, is_directory: bool) -> io::Result<()> {
        let name = name_of(name)?;
        let directory = self.directory(parent)?;
        let id = self.let_go(parent, &directory, &name);
        let done = who.moves(|| match is_directory {
            true => remove_directory_at(directory.as_fd(), name.as_c_str()),
            false => remove_at(directory.as_fd(), name.as_c_str()),
        });
        if done.is_err() {
            self.took_back(id, parent, &name);
        }
        done
    }

    pub(super) fn rename(&self, who: Who, from: (NodeId, &OsStr), to: (NodeId, &OsStr), flags: u32) -> io::Result<()> {
        let (from_name, to_name) = (name_of(from.1)?, name_of(to.1)?);
        let (from_directory, to_directory) = (self.directory(from.0)?, self.directory(to.0)?);
        let known = |directory: &OwnedFd, name: &CString| {
            let handle = open_handle_at(directory.as_fd(), name.as_c_str()).ok()?;
            self.source.life(self.source.known(handle.as_fd())?).ok()
        };
        let moved = known(&from_directory, &from_name);
        let is_exchange = flags & libc::RENAME_EXCHANGE != 0;
        let replaced = match is_exchange {
            true => known(&to_directory, &to_name),
            // Two names of one inode: both stay.
            false if known(&to_directory, &to_name) == moved && moved.is_some() => None,
            false => self.let_go(to.0, &to_directory, &to_name),
        };
        let (from_fd, to_fd) = (from_directory.as_fd(), to_directory.as_fd());
        let done = who.moves(|| rename_with(from_fd, from_name.as_c_str(), to_fd, to_name.as_c_str(), flags));
        if done.is_err() {
            if !is_exchange {
                self.took_back(replaced, to.0, &to_name);
            }
            return done;
        }
        let mut nodes = self.source.nodes();
        if let Some(moved) = moved {
            nodes.unnamed(moved.id, from.0, &from_name);
            nodes.named(moved.id, to.0, &to_name);
        }
        if let Some(replaced) = replaced.filter(|_| is_exchange) {
            nodes.unnamed(replaced.id, to.0, &to_name);
            nodes.named(replaced.id, from.0, &from_name);
        }
        Ok(())
    }

    pub(super) fn create(&self, who: Who, parent: NodeId, name: &OsStr, mode: u32, flags: i32, reply: ReplyCreate) {
        let since = self.changes.now();
        let made = name_of(name).and_then(|name| {
            let directory = self.directory(parent)?;
            let is_to_be_new = flags & libc::O_EXCL != 0;
            let flags = flags_of(flags) & !libc::O_TRUNC | libc::O_EXCL;
            let made = who.does(|| create_with(directory.as_fd(), name.as_c_str(), flags, mode));
            let file = made.map_err(|error| match error.kind() {
                // Whether he may open it nobody has judged: the kernel looks for the name once more.
                io::ErrorKind::AlreadyExists if !is_to_be_new => io::Error::from_raw_os_error(libc::ESTALE),
                _ => error,
            })?;
            let found = self.source.look(file.as_fd())?;
            let entry = self.told(parent, &name, &found);
            let fresh = self.with_content(entry.node.id, file, &found.stat, (false, who.uid))?;
            Ok((fresh, entry, name))
        });
        let (fresh, entry, name) = match made {
            Ok(made) => made,
            Err(error) => return reply.error(error.into()),
        };
        // Somebody else may have made it large meanwhile, so that the kernel writes it for him, and then does for this one, too.
        let (number, open) = self.opened.add_file(entry.node, fresh, None);
        self.before_kernel(&open, flags);
        let number = FileHandle(number);
        let (ttl, attributes, generation) = (&entry.ttl, &entry.attributes, entry.generation);
        match &open.backing {
            Some(backing) => {
                let flags = FopenFlags::FOPEN_NOFLUSH;
                reply.created_passthrough(ttl, attributes, generation, number, flags, backing);
            }
            None => reply.created(ttl, attributes, generation, number, self.flags_of_open(entry.node.id)),
        }
        self.changes.answered(since, [Told { directory: parent, name, node: entry.node.id }]);
    }

    fn open_to_write(&self, fh: FileHandle) -> io::Result<Arc<OpenFile>> {
        self.opened.file(fh.0).ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }

    /// Writes, and tells how many bytes are there.
    pub(super) fn write(&self, who: Who, fh: FileHandle, offset: u64, bytes: &[u8], how: How) -> io::Result<usize> {
        let open = self.open_to_write(fh)?;
        // It would be appended.
        if open.only_grows && how != How::Append {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        self.contents.before_change(open.ino);
        // Nobody is there who would write pages.
        let uid = if how == How::Page { open.uid } else { who.uid };
        let (mut done, from) = (0, (how != How::Append).then_some(offset));
        let written = acting::in_room_of(uid, open.file.as_fd(), bytes.len() as u64, || {
            write_all(&open.file, bytes, from, &mut done)
        });
        let changed = match how {
            How::Append => self.appended(&open, offset, done as u64),
            How::Plain | How::Page => offset..offset.saturating_add(bytes.len() as u64),
        };
        self.contents.changed(open.ino, &open.file, changed);
        // Who is told of less asks for the rest, and hears then why it doesn't come.
        if done > 0 { Ok(done) } else { written.map(|()| 0) }
    }

    /// Where so many bytes are, at least, which were appended when the kernel believed that the file ends at `expected`. Others may
    /// append to it in the source at the same time.
    fn appended(&self, open: &OpenFile, expected: u64, bytes: u64) -> Range<u64> {
        let end = statx_fd(open.file.as_fd()).map_or(u64::MAX, |stat| stat.size);
        if end != expected.saturating_add(bytes) {
            self.changes.misjudged(open.node.id);
        }
        expected.min(end.saturating_sub(bytes))..end
    }

    pub(super) fn sync(&self, id: NodeId, fh: FileHandle, is_data_alone: bool) -> io::Result<()> {
        let file = File::from(self.open_file(id, fh)?.file.try_clone()?);
        if is_data_alone { file.sync_data() } else { file.sync_all() }
    }

    pub(super) fn sync_directory(&self, id: NodeId) -> io::Result<()> {
        let handle = self.source.directory(id)?;
        File::from(open_again_with(handle.as_fd(), libc::O_RDONLY | libc::O_DIRECTORY)?).sync_all()
    }

    pub(super) fn allocate(&self, who: Who, fh: FileHandle, mode: i32, offset: u64, bytes: u64) -> io::Result<()> {
        let open = self.open_to_write(fh)?;
        self.contents.before_change(open.ino);
        acting::in_room_of(who.uid, open.file.as_fd(), bytes, || fallocate(open.file.as_fd(), mode, offset, bytes))?;
        let end = offset.saturating_add(bytes);
        let moves = mode & (libc::FALLOC_FL_COLLAPSE_RANGE | libc::FALLOC_FL_INSERT_RANGE) != 0;
        // Between its ends are zeros, or what was there before.
        for at in [offset, end.saturating_sub(1)] {
            self.contents.changed(open.ino, &open.file, at..if moves { u64::MAX } else { at + 1 });
        }
        Ok(())
    }

    pub(super) fn copy(
        &self,
        who: Who,
        (from, from_fh, from_offset): (NodeId, FileHandle, u64),
        (to_fh, to_offset): (FileHandle, u64),
        bytes: u64,
    ) -> io::Result<u32> {
        let (source, target) = (self.open_file(from, from_fh)?, self.open_to_write(to_fh)?);
        // The answer has room for so many.
        let bytes = usize::try_from(bytes.min(1 << 30)).unwrap_or(0);
        self.contents.before_change(target.ino);
        let copied = acting::in_room_of(who.uid, target.file.as_fd(), bytes as u64, || {
            copy_range(source.file.as_fd(), from_offset, target.file.as_fd(), to_offset, bytes)
        })?;
        self.contents.changed(target.ino, &target.file, to_offset..to_offset.saturating_add(copied as u64));
        Ok(copied as u32)
    }
}

/// Writes all of it from an offset on, or behind what is there, and counts the bytes that are.
fn write_all(file: &OwnedFd, bytes: &[u8], offset: Option<u64>, done: &mut usize) -> io::Result<()> {
    while *done < bytes.len() {
        let place = offset.map_or(Place::End, |offset| Place::At(offset + *done as u64));
        *done += write_some(file.as_fd(), &bytes[*done..], place)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_before_1970_are_times() {
        let at = |time| moment(Some(TimeOrNow::SpecificTime(time)));
        assert_eq!(at(UNIX_EPOCH + Duration::new(5, 6)), Moment::At(Time { secs: 5, nanos: 6 }));
        assert_eq!(at(UNIX_EPOCH - Duration::new(1, 500)), Moment::At(Time { secs: -1, nanos: 500 }));
        assert_eq!(at(UNIX_EPOCH - Duration::from_secs(2)), Moment::At(Time { secs: -2, nanos: 0 }));
        assert_eq!(moment(None), Moment::Same);
    }
}
