//! Device mode: reading the block device, and the check that follows for each file.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::Arc,
};

use onesweep_layout::{AddressTrust, Extent, ExtentFlags, Sources};
use onesweep_sys::{block, cache, features::features, files, inode};

use crate::{
    catalogue::{Catalogue, EntryId, Flags},
    error::SweepError,
    image::ImageDevice,
    placement::Placement,
    plan::Fragment,
};

/// The devices of the volumes, and the means to check what was read from them.
#[derive(Default)]
pub(crate) struct DeviceCheck {
    nodes: HashMap<u16, Arc<OwnedFd>>,
    images: HashMap<u16, Arc<ImageDevice>>,
    sources: Sources,
}

impl DeviceCheck {
    /// The device of a volume. It must be [admitted](Self::admit).
    pub(crate) fn node(&self, volume: u16) -> Arc<OwnedFd> {
        Arc::clone(&self.nodes[&volume])
    }

    /// Takes the device of an image, which is read past the page cache where that is possible.
    pub(crate) fn admit_image(&mut self, volume: u16, image: Arc<ImageDevice>) -> io::Result<()> {
        let node = image.open_direct().or_else(|_| image.open_buffered())?;
        self.nodes.insert(volume, Arc::new(node));
        self.images.insert(volume, image);
        Ok(())
    }

    /// The image that a volume is, if it is one.
    pub(crate) fn image(&self, volume: u16) -> Option<&Arc<ImageDevice>> {
        self.images.get(&volume)
    }

    /// After a read was refused: from now on, an image is read through the page cache. False when it is already, or is no
    /// image.
    pub(crate) fn leave_direct(&mut self, volume: u16) -> bool {
        let Some(buffered) = self.images.get(&volume).and_then(|image| image.open_buffered().ok()) else {
            return false;
        };
        let was_direct = self.nodes.get(&volume).is_some_and(|node| files::is_direct(node.as_fd()));
        self.nodes.insert(volume, Arc::new(buffered));
        was_direct
    }

    /// Opens the device of a volume.
    pub(crate) fn admit(&mut self, volume: u16, placement: &Placement, path: &Path) -> Result<(), SweepError> {
        if self.nodes.contains_key(&volume) {
            return Ok(());
        }
        let fail = |reason: String| SweepError::Device { path: path.to_owned(), reason, source: None };
        if let Some(reason) = refusal(placement) {
            return Err(fail(reason));
        }
        let stack = placement.stack.as_ref().ok_or_else(|| fail("it has no block device".into()))?;
        if !features().direct {
            return Err(fail("direct reads (O_DIRECT) are switched off; leave out --device".into()));
        }
        let node = block::open_device_direct(stack.node.as_path()).map_err(|error| {
            let reason = format!("cannot open {}: {error}; be root, or leave out --device", stack.node.display());
            SweepError::Device { path: path.to_owned(), reason, source: Some(error) }
        })?;
        self.nodes.insert(volume, Arc::new(node));
        Ok(())
    }

    /// True when the bytes that were read at the mapped places are those of the file: nothing of it waits in the page
    /// cache, and it lies where it lay. Size and times are compared by the caller.
    pub(crate) fn holds(&mut self, catalogue: &Catalogue, id: EntryId, fd: BorrowedFd<'_>) -> bool {
        let entry = catalogue.get(id);
        if entry.flags.has(Flags::THROUGH_FILE_SYSTEM) {
            return true;
        }
        let Ok(stat) = files::statx_fd(fd) else { return false };
        let clean = || {
            cache::residency(fd, 0, entry.size).is_ok_and(|pages| pages.dirty == Some(0) && pages.writeback == Some(0))
        };
        entry.generation == inode::generation(fd).ok().flatten().unwrap_or(0)
            && self.lies_where_mapped(catalogue, id, fd, &stat)
            && clean()
    }

    fn lies_where_mapped(
        &mut self,
        catalogue: &Catalogue,
        id: EntryId,
        fd: BorrowedFd<'_>,
        stat: &files::Stat,
    ) -> bool {
        let volume = catalogue.volume(catalogue.get(id).device);
        let mut known = catalogue.fragments(id);
        let mut same = true;
        let mapped = self.sources.map(fd, stat, &mut |extent| {
            if !extent.flags.contains(ExtentFlags::UNWRITTEN) {
                same &= known.next().is_some_and(|fragment| is_same(&fragment, &extent, volume.base, volume.block));
            }
        });
        same && mapped.is_ok() && known.next().is_none()
    }
}

fn is_same(fragment: &Fragment, extent: &Extent, base: u64, block: u32) -> bool {
    let block = u64::from(block);
    extent.physical.is_some_and(|physical| fragment.address() == base + physical)
        && u64::from(fragment.offset()) * block == extent.logical
        && u64::from(fragment.length()) * block >= extent.length
}

/// File systems whose plain extents hold just the bytes of the file. Others may compress without saying so (EROFS), or
/// keep what lies behind the written part of a file (NTFS).
const DEVICE_FILE_SYSTEMS: [&str; 5] = ["ext4", "ext3", "ext2", "xfs", "f2fs"];

/// Why a file system can't be read from its device, if it can't.
fn refusal(placement: &Placement) -> Option<String> {
    match &placement.trust {
        AddressTrust::Physical if !features().cachestat => Some(
            "this kernel has no cachestat (Linux 6.5), without which changes in memory can't be told; \
             leave out --device"
                .into(),
        ),
        AddressTrust::Physical if !DEVICE_FILE_SYSTEMS.contains(&placement.fs_type.as_str()) => Some(format!(
            "what {} keeps on its device need not be what its files hold; leave out --device",
            placement.fs_type
        )),
        AddressTrust::Physical if placement.journals_data => Some(
            "it is mounted with data=journal, so what it was told last may not lie on its device yet; \
             leave out --device"
                .into(),
        ),
        AddressTrust::Physical => None,
        AddressTrust::ByTables => Some(format!(
            "a program answers for the files ({}), and what it holds back isn't on the device; leave out --device",
            placement.fs_type
        )),
        AddressTrust::Logical | AddressTrust::SeveralDevices { .. } => {
            Some(format!("{} tells no addresses of the device; leave out --device", placement.fs_type))
        }
        AddressTrust::Meaningless(why) => Some(format!("{why}; leave out --device")),
    }
}
