//! Which file system begins somewhere.

use super::{
    TableError, Tables,
    ntfs::{self, Ntfs},
};
use crate::block_read::BlockRead;

/// Opens whatever file system is there. `NotHere` when it is none that is known.
pub fn open(device: impl BlockRead + Clone + 'static) -> Result<Box<dyn Tables + Send>, TableError> {
    let known: [fn(_) -> _; 1] = [|device| {
        let opened = Ntfs::open(device, ntfs::Options::default())?;
        Ok(Box::new(opened) as Box<dyn Tables + Send>)
    }];
    for open in known {
        match open(device.clone()) {
            Err(TableError::NotHere { .. }) => {}
            opened => return opened,
        }
    }
    Err(TableError::NotHere { fs_type: "known", what: "magic number", at: 0 })
}
