//! A file comes to share what was written for it, if it still has the same bytes.

use onesweep_sys::sharing::{Part, share_equal};

use super::donor::Source;
use super::stays_by_error;
use crate::file::MovableFile;
use crate::host::{Failure, Stays, Trouble};

/// Gives the bytes that are shared.
pub(crate) fn share(file: &MovableFile, from: u64, source: &Source<'_>, part: Part) -> Result<u64, Trouble> {
    match share_equal(source.fd(), part, file.fd(), from) {
        Ok(Some(bytes)) => Ok(bytes),
        // Somebody has written to it.
        Ok(None) => Err(Stays::Busy.into()),
        Err(error) => Err(match stays_by_error(&error) {
            Some(stays) => stays.into(),
            None => Failure::new("move it", file.path(), error).into(),
        }),
    }
}
