//! Errors of the kernel that have no name in `std`, the same on all machines but for old ones.

pub(crate) const EPERM: i32 = 1;
pub(crate) const EAGAIN: i32 = 11;
pub(crate) const EACCES: i32 = 13;
pub(crate) const EBUSY: i32 = 16;
pub(crate) const EXDEV: i32 = 18;
pub(crate) const EINVAL: i32 = 22;
pub(crate) const ENOTTY: i32 = 25;
pub(crate) const ETXTBSY: i32 = 26;
pub(crate) const ENODATA: i32 = 61;
pub(crate) const EOPNOTSUPP: i32 = 95;
pub(crate) const ESTALE: i32 = 116;
