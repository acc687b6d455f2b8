//! What comes before a question for which all is to be written. The disk may take long for that, as may a look through the open files
//! of all processes: so others are answered meanwhile, and only then what is stored is held.

use std::io;

use super::{Asking, SummaryError};
use crate::{
    clock::{self, Clock},
    reading::{Directories, OpenFile},
    tracker::SizesFollow,
};

/// All that was written before this was made is on the disk, and these files were open for writing.
#[derive(Debug)]
pub(crate) struct Written {
    /// With when the look began, in seconds since 1970; `None` where nobody can look, and where sizes follow at
    /// close: there the file system is asked what has changed.
    pub(super) open: Option<(i64, Vec<OpenFile>)>,
}

impl Written {
    /// Has all written, however long that takes.
    pub(crate) fn by_now(directories: &impl Directories, clock: &dyn Clock) -> Result<Self, SummaryError> {
        directories.sync().map_err(SummaryError::Sync)?;
        let looks = directories.sizes_follow() == SizesFollow::Write;
        let began = clock::whole(clock.time());
        let open = match looks.then(|| directories.open_for_writing()) {
            Some(Ok(files)) => Some((began, files)),
            Some(Err(error)) if error.kind() != io::ErrorKind::Unsupported => {
                return Err(SummaryError::OpenFiles(error));
            }
            Some(Err(_)) | None => None,
        };
        Ok(Written { open })
    }
}

impl Asking<'_> {
    /// All that is to be written was written before the question.
    pub(crate) fn after(self, written: Option<Written>) -> Self {
        Self { written, ..self }
    }

    /// From its beginning.
    pub(crate) fn again(self) -> Self {
        Asking::by(self.seen).after(self.written)
    }
}
