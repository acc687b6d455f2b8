//! Who has a file open for writing: between the time that a mapping or a direct write sets and its bytes, nothing else tells of the
//! change.
//!
//! The kernel compares times, not bytes. A page fault sets the time before the write through the mapping comes, and so does a direct
//! write before its bytes are on the disk. So nobody may have the file open for writing after its time was looked at: who opens it
//! later sets another one.

use onesweep_sys::files::reopen_untouched;
use onesweep_sys::lease::is_open_for_writing;

use crate::errno::EINVAL;
use crate::file::{MovableFile, trouble};
use crate::host::{Stays, Trouble};

/// The file, open for reading alone, if nobody has it open for writing.
pub(super) fn open_to_read(file: MovableFile) -> Result<MovableFile, Trouble> {
    let fd = reopen_untouched(file.fd()).map_err(|error| trouble("open it", file.path(), error))?;
    let file = file.opened_as(fd);
    refuse_writers(&file)?;
    Ok(file)
}

pub(super) fn refuse_writers(file: &MovableFile) -> Result<(), Trouble> {
    match is_open_for_writing(file.fd()) {
        Ok(false) => Ok(()),
        Ok(true) => Err(Stays::Busy.into()),
        // There are no leases (`fs.leases-enable=0`), so nobody can tell.
        Err(error) if error.raw_os_error() == Some(EINVAL) => Err(Stays::Unsupported.into()),
        Err(error) => Err(trouble("ask who has it open for writing", file.path(), error)),
    }
}
