//! Which file system begins somewhere.

use super::{TableError, Tables};
use crate::block_read::BlockRead;

/// Opens whatever file system is there. `NotHere` when it is none that is known.
pub fn open(_device: impl BlockRead + 'static) -> Result<Box<dyn Tables + Send>, TableError> {
    Err(TableError::NotHere { fs_type: "known", what: "magic number", at: 0 })
}
