//! What a user sees of a file system: by rights that are stored, and by looks where these may be others by now.

use std::{cell::Cell, os::fd::AsFd};

use onesweep_sys::files::{self, Stat};

use crate::{
    access::Asker,
    file_system::FileSystem,
    identity::NodeId,
    record::{Access, Record},
    summaries::{Seen, Viewer},
    volume::access_by,
};

/// Directories that are looked at for one answer because they may have been closed since they were read, at most: half a second. Beyond,
/// they count as closed.
const GLANCES_MAX: usize = 10_000;

/// So many directories may still be looked at.
#[derive(Debug)]
pub(super) struct Glances(Cell<usize>);

impl Default for Glances {
    fn default() -> Glances {
        Glances(Cell::new(GLANCES_MAX))
    }
}

impl Glances {
    /// As many as it takes.
    pub(super) fn endless() -> Glances {
        Glances(Cell::new(usize::MAX))
    }

    fn take(&self) -> Option<()> {
        self.0.set(self.0.get().checked_sub(1)?);
        Some(())
    }
}

/// What a user may see of a file system.
#[derive(Debug)]
pub(super) struct Eyes<'a> {
    pub(super) asker: &'a Asker,
    pub(super) volume: &'a dyn FileSystem,
    pub(super) glances: &'a Glances,
}

impl Eyes<'_> {
    /// Who sees all is none.
    pub(super) fn seen(&self) -> Seen<'_> {
        (*self.asker != Asker::Everything).then_some(self as &dyn Viewer)
    }

    fn look(&self, id: NodeId) -> Option<(Stat, Access)> {
        let stat = self.volume.handle_of(id).and_then(|fd| files::statx_fd(fd.as_fd())).ok()?;
        Some((stat, access_by(self.volume.access_list(id).as_deref(), &stat)))
    }
}

impl Viewer for Eyes<'_> {
    fn may_list(&self, id: NodeId, access: &Access) -> bool {
        self.asker.may_list(access, || self.volume.access_list(id))
    }

    fn access_now(&self, id: NodeId) -> Option<Access> {
        self.glances.take().and_then(|()| self.look(id)).map(|(_, access)| access)
    }

    fn parent_now(&self, id: NodeId) -> Option<NodeId> {
        self.glances.take().and_then(|()| self.volume.parent(id).ok())
    }

    fn is_as_stored(&self, id: NodeId, record: &Record) -> bool {
        let Some((stat, access)) = self.look(id) else { return false };
        let stored = record.itself();
        access == record.access && (stat.size as i64, stat.blocks as i64) == (stored.directory_bytes, stored.blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glances_come_to_an_end() {
        let few = Glances(Cell::new(2));
        assert_eq!([few.take(), few.take(), few.take(), few.take()], [Some(()), Some(()), None, None]);
    }
}
