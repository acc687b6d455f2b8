//! File systems without snapshots: writers are held while walk, survey and plan are made.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use onesweep_sys::{
    files,
    freeze::{self, Frozen},
};

use super::{Live, directory_of, failed, ground::written_with, place_of, refused, refused_by};
use crate::error::{FileError, SweepError};

/// A file system that is frozen.
pub(super) struct Freeze {
    shown: PathBuf,
    limit: Duration,
    frozen: Frozen,
}

impl Freeze {
    /// Freezes the file system of a root.
    pub(super) fn begin(root: &Live<'_>, limit: Duration) -> Result<Self, SweepError> {
        let place = place_of(root)?;
        let fd = directory_of(root, &place)?;
        // What is written here need not be written while others wait.
        let _ = files::sync_file_system(std::os::fd::AsFd::as_fd(&fd));
        let frozen = freeze::freeze(fd, limit).map_err(|error| explain(root, error))?;
        Ok(Self { shown: root.shown.to_owned(), limit, frozen })
    }

    /// Thaws; gives the error to tell when not everything was planned in its time.
    pub(super) fn end(self, whole: bool) -> Option<FileError> {
        let reason = match self.frozen.thaw() {
            Ok(true) if whole => return None,
            Ok(true) => "not all of it fits in the catalogue at once; raise --catalog-limit".to_owned(),
            Ok(false) => {
                let seconds = self.limit.as_secs_f64();
                format!("the plan took longer than {seconds} s, the longest that writers are held; name parts of it")
            }
            Err(error) => format!("somebody else let its writers go on ({error}); run again"),
        };
        Some(FileError::NotOneMoment { path: self.shown, reason })
    }
}

/// Why a file system can't be frozen.
fn explain(root: &Live<'_>, error: io::Error) -> SweepError {
    const EBUSY: i32 = 16;
    let fs_type = &root.placement.fs_type;
    match error.raw_os_error() {
        Some(EBUSY) => {
            let reason = "its file system is frozen already; thaw it (fsfreeze --unfreeze), then run again";
            refused_by(root.shown, error, reason)
        }
        _ if error.kind() == io::ErrorKind::Unsupported => refused_by(
            root.shown,
            error,
            format!("{fs_type} has no snapshots and can't be frozen; leave out --snapshot"),
        ),
        _ => failed(root.shown, "cannot freeze its file system", error),
    }
}

/// Refuses what would wait for itself: a result that is written to the file system that is frozen.
pub(super) fn check_outputs(root: &Live<'_>, outputs: &[PathBuf]) -> Result<(), SweepError> {
    let dev = root.placement.volume.dev;
    let waits = |output: &&PathBuf| device_of(output).filter(|at| written_with(*at).contains(&dev));
    match outputs.iter().find_map(|output| Some((output, waits(&output)?))) {
        None => Ok(()),
        Some((output, at)) => {
            let output = output.display();
            let fs_type = &root.placement.fs_type;
            let place = if at == dev { "on the same file system" } else { "in a file of the same file system" };
            let what = format!("{output} lies {place}, which is frozen while the plan is made");
            Err(refused(
                root.shown,
                format!("{what} ({fs_type} has no snapshots); write elsewhere, or leave out --snapshot"),
            ))
        }
    }
}

/// How many symbolic links the kernel follows for one path.
const LINKS_MOST: usize = 40;

/// The device that something is written to, or would be: that of the nearest directory that is there. A symbolic link whose
/// target isn't there yet leads to where that would be made.
fn device_of(output: &Path) -> Option<u64> {
    let mut path = std::env::current_dir().ok()?.join(output);
    let dev = |path: &Path| files::statx_at(files::CURRENT_DIR, path, false).ok().map(|stat| stat.dev);
    for _ in 0..LINKS_MOST {
        if let Some(dev) = dev(&path) {
            return Some(dev);
        }
        let Ok(target) = path.read_link() else { break };
        path.pop();
        path.push(target);
    }
    path.ancestors().find_map(dev)
}
