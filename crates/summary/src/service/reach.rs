//! The way to a directory that is named: each directory on it must let the asker through, as the kernel would ask of `du`.

use std::{
    ffi::OsStr,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path},
};

use onesweep_sys::files::{self, Stat};

use super::protocol::{Name, Refusal};
use crate::{
    access::Asker,
    volume::{access, access_list},
};

/// Directories on the way upwards, at most: no path in one piece has more.
const STEPS_MAX: usize = 4096;

/// Who may look everywhere on the file systems that are tracked.
pub trait Reach: Send + Sync {
    /// Opens the directory at an absolute path, where the asker could come to it.
    fn open(&self, asker: &Asker, path: &Name) -> Result<OwnedFd, Refusal>;

    /// Refuses what the asker could not have come to from above.
    fn check_way_to(&self, asker: &Asker, directory: BorrowedFd<'_>) -> Result<(), Refusal>;
}

/// This process itself, which needs `CAP_DAC_READ_SEARCH` for it.
#[derive(Clone, Copy, Debug)]
pub struct Itself;

impl Reach for Itself {
    fn open(&self, asker: &Asker, path: &Name) -> Result<OwnedFd, Refusal> {
        open(asker, path)
    }

    fn check_way_to(&self, asker: &Asker, directory: BorrowedFd<'_>) -> Result<(), Refusal> {
        check_way_to(asker, directory)
    }
}

/// Opens the directory at an absolute path.
///
/// For an ordinary user that is done step by step, so that nothing comes to light of what lies in a directory that the user
/// can't search, not even whether it is there. Symbolic links aren't followed then.
pub(crate) fn open(asker: &Asker, path: &Name) -> Result<OwnedFd, Refusal> {
    let bytes = path.clone().into_bytes();
    let path = Path::new(OsStr::from_bytes(&bytes));
    if !path.is_absolute() {
        return Err(Refusal::Failed("the path isn't absolute".to_owned()));
    }
    if *asker == Asker::Everything {
        return files::open_dir_handle(path).map_err(|_| Refusal::NotTracked);
    }
    let mut at = files::open_dir("/").map_err(|_| Refusal::NotTracked)?;
    for component in path.components() {
        let name = match component {
            Component::Normal(name) => name,
            Component::ParentDir => return Err(Refusal::Failed("the path holds ..".to_owned())),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => continue,
        };
        let (_, is_let) = passage(asker, at.as_fd()).ok_or(Refusal::Denied)?;
        if !is_let {
            return Err(Refusal::Denied);
        }
        at = files::open_dir_at(at.as_fd(), name).map_err(|_| Refusal::NotTracked)?;
    }
    Ok(at)
}

/// Refuses what the asker could not have come to from above.
pub(crate) fn check_way_to(asker: &Asker, directory: BorrowedFd<'_>) -> Result<(), Refusal> {
    if *asker == Asker::Everything {
        return Ok(());
    }
    let mut stat = files::statx_fd(directory).map_err(|_| Refusal::Denied)?;
    let mut below = None::<OwnedFd>;
    for _ in 0..STEPS_MAX {
        let from = below.as_ref().map_or(directory, |below| below.as_fd());
        let above = files::open_dir_at(from, c"..").map_err(|_| Refusal::Denied)?;
        let (next, is_let) = passage(asker, above.as_fd()).ok_or(Refusal::Denied)?;
        if (next.dev, next.ino, next.mnt_id) == (stat.dev, stat.ino, stat.mnt_id) {
            return Ok(());
        }
        if !is_let {
            return Err(Refusal::Denied);
        }
        (stat, below) = (next, Some(above));
    }
    Err(Refusal::Denied)
}

fn passage(asker: &Asker, directory: BorrowedFd<'_>) -> Option<(Stat, bool)> {
    let stat = files::statx_fd(directory).ok()?;
    let is_let = asker.may_search(&access(directory, &stat), || access_list(directory));
    Some((stat, is_let))
}
