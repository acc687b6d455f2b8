//! Makes the items of the stream from what the catalogue knows and what the file system says at delivery.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::{OsStrExt, OsStringExt},
    },
};

use onesweep_sys::files;

use crate::{
    catalogue::{Catalogue, EntryId},
    error::FileError,
    item::{Content, Kind, Route, SweptFile, Xattr},
    opener::Opener,
    spindle::whole,
    stream::{FileStream, State, StreamRules},
};

/// Names by which a stream tries to open its file, when the first is gone.
const NAMES_TRIED: usize = 8;

/// An item without content: its path, names and attributes. The target of a symbolic link is read here, and the
/// extended attributes when `xattrs` asks for them (from `fd`, where the entry is open already).
pub(crate) fn item(
    catalogue: &Catalogue,
    opener: &mut Opener,
    id: EntryId,
    xattrs: bool,
    fd: Option<BorrowedFd<'_>>,
) -> Result<SweptFile, FileError> {
    let entry = catalogue.get(id);
    let path = catalogue.path(id);
    let Some(kind) = entry.kind() else {
        let source = io::Error::other(format!("the file system gives it the unknown type {:#o}", entry.mode));
        return Err(FileError::io(path, "tell what it is", source));
    };
    let volume = catalogue.volume(entry.device);
    let mut item = SweptFile::new(path, entry.metadata(kind, volume.shown_dev));
    if volume.shown_dev != volume.dev && !volume.is_beside_image() {
        item.opened = Some(catalogue.opened_path(id));
    }
    if entry.next_link != EntryId::NONE {
        // Roots that overlap show a name twice.
        let mut seen = HashSet::from([item.path.clone()]);
        let names = catalogue.links(id).skip(1).map(|link| catalogue.path(link));
        item.links = names.filter(|name| seen.insert(name.clone())).collect();
    }
    if catalogue.volume(entry.device).image.is_some() {
        item.marks = catalogue.marks(id);
        if let Some(extra) = catalogue.extra(id) {
            let target = extra.inline.as_ref().filter(|_| kind == Kind::Symlink);
            item.link_target = target.map(|target| OsString::from_vec(target.clone()).into());
            if xattrs {
                item.xattrs.clone_from(&extra.xattrs);
            }
        }
        return Ok(item);
    }
    if kind == Kind::Symlink {
        let target = read_link(catalogue, opener, id)
            .map_err(|error| FileError::io(item.path.clone(), "read the link", error))?;
        item.link_target = Some(target.into());
    }
    if xattrs {
        item.xattrs = read_xattrs(catalogue, opener, id, kind, fd)
            .map_err(|error| FileError::io(item.path.clone(), "read the extended attributes", error))?;
    }
    Ok(item)
}

/// Gives an item content that its consumer reads from the file, as long as that is in `state`.
pub(crate) fn stream(
    catalogue: &Catalogue,
    opener: &mut Opener,
    id: EntryId,
    item: &mut SweptFile,
    state: State,
    rules: StreamRules,
) -> Result<(), FileError> {
    let names = catalogue.links(id).take(NAMES_TRIED);
    let ways: io::Result<Vec<_>> = names.map(|name| opener.way(catalogue, name)).collect();
    let ways = ways.map_err(|error| FileError::io(catalogue.path(id), "open its directory", error))?;
    item.content = Content::Stream(FileStream::new(ways, state, item.data.clone(), rules));
    item.route = Route::Streamed;
    Ok(())
}

/// The same for a file that has changed since it was surveyed.
pub(crate) fn stream_as_it_is_now(
    catalogue: &Catalogue,
    opener: &mut Opener,
    id: EntryId,
    item: &mut SweptFile,
    fd: BorrowedFd<'_>,
    rules: StreamRules,
) -> Result<(), FileError> {
    let stat = files::statx_fd(fd).map_err(|error| FileError::io(catalogue.path(id), "stat", error))?;
    item.learn(&stat);
    item.data = whole(stat.size);
    stream(catalogue, opener, id, item, State::of(&stat), rules)
}

fn read_link(catalogue: &Catalogue, opener: &mut Opener, id: EntryId) -> io::Result<std::ffi::OsString> {
    match opener.parent(catalogue, id)? {
        Some(parent) => files::read_link_at(parent.as_fd(), catalogue.name(id)),
        None => files::read_link_at(files::CURRENT_DIR, catalogue.root(id)),
    }
}

fn read_xattrs(
    catalogue: &Catalogue,
    opener: &mut Opener,
    id: EntryId,
    kind: Kind,
    fd: Option<BorrowedFd<'_>>,
) -> io::Result<Vec<Xattr>> {
    if let Some(fd) = fd {
        return collect(files::list_xattrs_fd(fd)?, |name| files::xattr_fd(fd, name));
    }
    if kind == Kind::Directory {
        let fd = opener.directory(catalogue, id)?;
        return collect(files::list_xattrs_fd(fd.as_fd())?, |name| files::xattr_fd(fd.as_fd(), name));
    }
    let Some(parent) = opener.parent(catalogue, id)? else {
        let handle = files::open_handle_at(files::CURRENT_DIR, catalogue.root(id))?;
        return collect(files::list_xattrs_handle(handle.as_fd())?, |name| files::xattr_handle(handle.as_fd(), name));
    };
    let path = files::through_proc(parent.as_fd()).join(OsStr::from_bytes(catalogue.name(id)));
    collect(files::list_xattrs_path(path.as_path())?, |name| files::xattr_path(path.as_path(), name))
}

fn collect(
    names: Vec<std::ffi::CString>,
    value: impl Fn(&std::ffi::CStr) -> io::Result<Option<Vec<u8>>>,
) -> io::Result<Vec<Xattr>> {
    let mut found = Vec::with_capacity(names.len());
    for name in names {
        // An attribute that went between the two calls is simply not there.
        if let Some(value) = value(&name)? {
            found.push((name.into_bytes(), value));
        }
    }
    Ok(found)
}
