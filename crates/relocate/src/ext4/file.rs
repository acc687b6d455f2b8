//! Files of ext4: what keeps one from being moved, and how it gets ready.

use std::path::Path;

use onesweep_sys::{
    cache::{drop_cached, prefetch, residency},
    inode,
    memory::page_bytes,
};

use super::Ext4;
use crate::file::{MovableFile, clean_in_memory, stays_by_flags, trouble};
use crate::host::{Opened, Stays, Trouble};

pub(super) fn open(host: &mut Ext4, path: &Path, inode: u64) -> Result<Opened<MovableFile>, Trouble> {
    let (file, stat) = host.asked.open(path, inode, by_flags)?;
    let read_back = ready(host, &file, stat.size)?;
    let (places, stays) = host.asked.places(file.fd(), path)?;
    match stays {
        Some(stays) => Err(stays.into()),
        None => Ok(Opened { file, places, read_back }),
    }
}

/// Bytes in memory that are also on the disk, in small pages; true when they had to be read again.
fn ready(host: &Ext4, file: &MovableFile, size: u64) -> Result<bool, Trouble> {
    clean_in_memory(file, size, host.reading.uncached)?;
    if !host.has_slow_folios || size <= page_bytes() {
        return Ok(false);
    }
    let failed = |doing| move |error| trouble(doing, file.path(), error);
    let Ok(bytes) = usize::try_from(size) else { return Err(Stays::LargePages.into()) };
    let told = host.folios.as_ref().map(|folios| folios.any_large(file.fd(), bytes)).transpose();
    if told.map_err(failed("ask for its pages in memory"))?.flatten() == Some(false) {
        return Ok(false);
    }
    if !host.reading.large_pages {
        return Err(Stays::LargePages.into());
    }
    drop_cached(file.fd(), 0, 0).map_err(failed("drop it from memory"))?;
    let told = residency(file.fd(), 0, 0).map_err(failed("ask what of it is in memory"))?;
    if told.cached > 0 {
        return Err(Stays::Busy.into());
    }
    // Announced pages are small ones, whatever the size of the file.
    prefetch(file.fd(), 0, size).map_err(failed("read it"))?;
    Ok(true)
}

pub(super) fn by_flags(flags: u32) -> Option<Stays> {
    stays_by_flags(flags).or((flags & inode::FLAG_EXTENTS == 0).then_some(Stays::NoExtents))
}
