//! Extended attributes: of most files there are none, which is kept in mind as long as each change of them is seen.
//!
//! No kernel keeps that a file of FUSE has none, so who lists or copies a tree asks for those of each file anew, several times.

use std::{ffi::OsStr, io, os::fd::AsFd, os::unix::ffi::OsStrExt as _};

use onesweep_sys::{
    acting,
    files::{list_xattrs_handle, remove_xattr_handle, set_xattr_with, xattr_handle},
    user::groups_of_process,
};

use super::{
    nodes::{Attributes, NodeId, ROOT},
    shown::Shown,
    writes::Who,
};

/// Whether what lists no names has no such attribute either: some drivers make up values that they don't list.
fn is_listed(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let spaces: [&[u8]; 4] = [b"security.", b"trusted.", b"user.", b"system.posix_acl_"];
    spaces.iter().any(|space| name.starts_with(space))
}

impl Shown {
    /// What is in mind of whether a node has any, if nothing has happened since.
    fn attributes_in_mind(&self, id: NodeId) -> Attributes {
        // In this order: a change that is over has been noted, or is seen here to be about to be.
        match self.changes.are_noted() {
            true => self.source.nodes().attributes(id),
            false => Attributes::Unknown,
        }
    }

    /// Looks which there are, and keeps in mind whether there are any.
    fn look_at_names(&self, id: NodeId) -> io::Result<Vec<u8>> {
        let since = self.changes.now();
        let life = self.source.life(id)?;
        let names = list_xattrs_handle(self.source.handle(id)?.as_fd())?;
        let found = if names.is_empty() { Attributes::None } else { Attributes::Some };
        let mut nodes = self.source.nodes();
        if self.changes.sees_everything() && self.changes.is_unchanged(since) {
            nodes.note_attributes(life, found);
        }
        drop(nodes);
        Ok(names.iter().flat_map(|name| name.as_bytes_with_nul()).copied().collect())
    }

    pub(super) fn xattr(&self, id: NodeId, name: &OsStr) -> io::Result<Vec<u8>> {
        let none = || io::Error::from_raw_os_error(libc::ENODATA);
        if id == ROOT
            && let Some(value) = self.contents.attribute(name)
        {
            return Ok(value);
        }
        if self.changes.sees_everything() && is_listed(name) {
            match self.attributes_in_mind(id) {
                Attributes::None => return Err(none()),
                Attributes::Unknown if self.look_at_names(id)?.is_empty() => return Err(none()),
                Attributes::Unknown | Attributes::Some => {}
            }
        }
        xattr_handle(self.source.handle(id)?.as_fd(), name)?.ok_or_else(none)
    }

    /// The names of extended attributes. Those of root (`trusted.*`) are listed to nobody else, as in the source.
    pub(super) fn xattr_names(&self, id: NodeId, is_root: bool) -> io::Result<Vec<u8>> {
        if self.attributes_in_mind(id) == Attributes::None {
            return Ok(Vec::new());
        }
        let names = self.look_at_names(id)?;
        let names = names.split_inclusive(|byte| *byte == 0);
        Ok(names.filter(|name| is_root || !name.starts_with(b"trusted.")).flatten().copied().collect())
    }

    pub(super) fn set_xattr(&self, who: Who, id: NodeId, name: &OsStr, value: &[u8], flags: i32) -> io::Result<()> {
        let handle = self.source.handle(id)?;
        let set = || set_xattr_with(handle.as_fd(), name, value, flags);
        let done = match name == "system.posix_acl_access" {
            // It takes the set-group-ID bit away from the files of groups that he isn't in.
            true => acting::as_member(who.uid, who.gid, &groups_of_process(who.pid), set),
            false => who.does(set),
        };
        self.attributes_changed(id);
        done
    }

    pub(super) fn remove_xattr(&self, id: NodeId, name: &OsStr) -> io::Result<()> {
        let done = remove_xattr_handle(self.source.handle(id)?.as_fd(), name);
        self.attributes_changed(id);
        done
    }

    /// Whoever looks meanwhile sees that something has changed before he notes what he found, or what he noted is forgotten here.
    fn attributes_changed(&self, id: NodeId) {
        let mut nodes = self.source.nodes();
        self.changes.changed_by_itself(id);
        nodes.forget_attributes(id);
    }
}
