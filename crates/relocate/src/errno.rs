//! Errors of the kernel that have no name in `std`, the same on all machines but for old ones.

use std::io;

pub(crate) const EPERM: i32 = 1;
pub(crate) const EAGAIN: i32 = 11;
pub(crate) const EACCES: i32 = 13;
pub(crate) const EFAULT: i32 = 14;
pub(crate) const EBUSY: i32 = 16;
pub(crate) const EXDEV: i32 = 18;
pub(crate) const EINVAL: i32 = 22;
pub(crate) const ENOTTY: i32 = 25;
pub(crate) const ETXTBSY: i32 = 26;
pub(crate) const ENODATA: i32 = 61;
pub(crate) const EOPNOTSUPP: i32 = 95;
pub(crate) const ESTALE: i32 = 116;
pub(crate) const ENOKEY: i32 = 126;

/// No more space, quota or open files, a limit on the size of files, or a directory of somebody else's: what there is may do.
pub(crate) fn is_short(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, QuotaExceeded, StorageFull};
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    const EFBIG: i32 = 27;
    matches!(error.kind(), StorageFull | QuotaExceeded | PermissionDenied)
        || matches!(error.raw_os_error(), Some(ENFILE | EMFILE | EFBIG))
}
