//! Whether inodes of XFS have an access list, without opening them.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use rustix::ioctl::{Opcode, opcode};

use super::{HandleRequest, XfsHandle, handle_of};
use crate::retry::retry;

/// `XFS_IOC_ATTRMULTI_BY_HANDLE`.
const XFS_IOC_ATTRMULTI_BY_HANDLE: Opcode = opcode::write::<AttributesRequest>(b'X', 123);
/// `ATTR_OP_GET`.
const ATTR_OP_GET: u32 = 1;
/// `XFS_IOC_ATTR_ROOT`: attributes that the kernel keeps for itself.
const XFS_IOC_ATTR_ROOT: u32 = 2;
/// Room for a value. An access list takes more as soon as it says anything, so that none is told: there it is.
const VALUE_BYTES: u32 = 8;

/// `struct xfs_attr_multiop`.
#[repr(C)]
struct Operation {
    code: u32,
    error: i32,
    name: *const libc::c_char,
    value: *mut libc::c_void,
    length: u32,
    flags: u32,
}

/// `struct xfs_fsop_attrmulti_handlereq`.
#[repr(C)]
struct AttributesRequest {
    inode: HandleRequest,
    operations: u32,
    each: *mut Operation,
}

#[cfg(target_pointer_width = "64")]
const _: () = assert!(XFS_IOC_ATTRMULTI_BY_HANDLE == 0x4048_587B && size_of::<Operation>() == 32);

/// Asks whether inodes have an access list.
#[derive(Debug)]
pub struct AccessLists {
    handle: XfsHandle,
}

impl AccessLists {
    /// For the file system of an open file. `ENOTTY` on others.
    pub fn of(fd: BorrowedFd<'_>) -> io::Result<AccessLists> {
        Ok(AccessLists { handle: handle_of(fd)? })
    }

    /// Whether an inode has one, or something that can't be told from it. `mount` is any open directory of the file system.
    ///
    /// `ESTALE` when there is no such inode any more; `EPERM` without `CAP_SYS_ADMIN`. Some 2 µs for an inode in memory, about half of what it
    /// takes to open it, to ask and to close it.
    #[doc(alias = "XFS_IOC_ATTRMULTI_BY_HANDLE")]
    pub fn are_on(&self, mount: BorrowedFd<'_>, ino: u64, generation: u32) -> io::Result<bool> {
        let handle = XfsHandle { ino, generation, ..self.handle };
        let mut value = [0_u8; VALUE_BYTES as usize];
        let mut operation = Operation {
            code: ATTR_OP_GET,
            error: 0,
            name: c"SGI_ACL_FILE".as_ptr(),
            value: value.as_mut_ptr().cast(),
            length: VALUE_BYTES,
            flags: XFS_IOC_ATTR_ROOT,
        };
        let request = AttributesRequest {
            inode: HandleRequest {
                fd: 0,
                path: std::ptr::null(),
                flags: 0,
                given: (&raw const handle).cast(),
                given_length: size_of::<XfsHandle>() as u32,
                told: std::ptr::null_mut(),
                told_length: std::ptr::null_mut(),
            },
            operations: 1,
            each: &raw mut operation,
        };
        // SAFETY: the request names a handle and its size, and one operation, which names an attribute, and room for its value with its size.
        retry(|| unsafe { libc::ioctl(mount.as_raw_fd(), XFS_IOC_ATTRMULTI_BY_HANDLE as _, &raw const request) })?;
        Ok(operation.error != -libc::ENODATA)
    }
}
