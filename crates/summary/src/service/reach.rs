//! The way to a directory that is asked for: each directory on it must let the asker through, as the kernel would ask of `du`.

use std::{
    ffi::OsStr,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path},
};

use onesweep_sys::files;

use super::protocol::{Name, Refusal};
use crate::{
    access::Asker,
    record::Access,
    volume::{access, access_list},
};

/// Directories on the way upwards, at most: no path in one piece has more.
const STEPS_MAX: usize = 4096;

/// Who may look everywhere on the file systems that are tracked.
pub trait Reach: Send + Sync {
    /// Opens the directory at an absolute path, where the asker could come to it.
    fn open(&self, asker: &Asker, path: &Name) -> Result<OwnedFd, Refusal>;

    /// Refuses what the asker could not have come to from above, knowing no name but what everybody is told.
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
        let stat = files::statx_fd(at.as_fd()).map_err(|_| Refusal::Denied)?;
        if !leads_on(asker, (&access(at.as_fd(), &stat), || access_list(at.as_fd())), true) {
            return Err(Refusal::Denied);
        }
        at = files::open_dir_at(at.as_fd(), name).map_err(|_| Refusal::NotTracked)?;
    }
    Ok(at)
}

/// Refuses what the asker could not have come to from above, knowing no name but what everybody is told.
///
/// Names that nobody may list are the only lock of what lies below some directories (`~/public_html/UNGUESSABLE`). Who has a number alone
/// knows none of them, and anybody can count.
pub(crate) fn check_way_to(asker: &Asker, directory: BorrowedFd<'_>) -> Result<(), Refusal> {
    if *asker == Asker::Everything {
        return Ok(());
    }
    let mut stat = files::statx_fd(directory).map_err(|_| Refusal::Denied)?;
    let mut below = None::<OwnedFd>;
    let mut is_above_a_mount = false;
    for _ in 0..STEPS_MAX {
        let from = below.as_ref().map_or(directory, |below| below.as_fd());
        let above = files::open_dir_at(from, c"..").map_err(|_| Refusal::Denied)?;
        let next = files::statx_fd(above.as_fd()).map_err(|_| Refusal::Denied)?;
        if (next.dev, next.ino, next.mnt_id) == (stat.dev, stat.ino, stat.mnt_id) {
            return Ok(());
        }
        // Everybody is told where something is mounted.
        is_above_a_mount |= next.mnt_id != stat.mnt_id;
        let is_name_known = is_above_a_mount || asker.user() == Some(stat.uid);
        if !leads_on(asker, (&access(above.as_fd(), &next), || access_list(above.as_fd())), is_name_known) {
            return Err(Refusal::Denied);
        }
        (stat, below) = (next, Some(above));
    }
    Err(Refusal::Denied)
}

/// Whether a directory leads to one in it who knows its name, or doesn't.
fn leads_on(asker: &Asker, (access, list): (&Access, impl FnOnce() -> Option<Vec<u8>>), is_name_known: bool) -> bool {
    match is_name_known {
        true => asker.may_search(access, list),
        false => asker.may_list(access, list),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_knows_no_name_has_to_list() {
        let leads = |uid, mode: u32, is_name_known| {
            let access = Access { mode: 0o40000 | mode, uid: 1, gid: 1, acl: 0 };
            leads_on(&Asker::User { uid, groups: vec![] }, (&access, || None), is_name_known)
        };
        assert!(leads(2, 0o755, false) && leads(2, 0o711, true) && leads(1, 0o711, false));
        assert!(!leads(2, 0o711, false), "numbers would tell the names in it");
        assert!(!leads(2, 0o744, true) && !leads(2, 0o744, false) && !leads(1, 0o311, false));
    }
}
