//! Giving up what root may do.
#![allow(unsafe_code)]

use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets};

/// What root may do beside others, as far as somebody keeps it.
#[doc(alias = "capabilities")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// `CAP_SYS_ADMIN`.
    SysAdmin,
    /// `CAP_DAC_READ_SEARCH`.
    DacReadSearch,
    /// `CAP_DAC_OVERRIDE`.
    DacOverride,
    /// `CAP_LEASE`.
    Lease,
    /// `CAP_FOWNER`.
    Fowner,
    /// `CAP_SYS_PTRACE`.
    SysPtrace,
    /// `CAP_SETUID`.
    Setuid,
    /// `CAP_SETGID`.
    Setgid,
    /// `CAP_KILL`.
    Kill,
}

impl Right {
    fn bit(self) -> CapabilitySet {
        match self {
            Right::SysAdmin => CapabilitySet::SYS_ADMIN,
            Right::DacOverride => CapabilitySet::DAC_OVERRIDE,
            Right::DacReadSearch => CapabilitySet::DAC_READ_SEARCH,
            Right::Lease => CapabilitySet::LEASE,
            Right::Fowner => CapabilitySet::FOWNER,
            Right::SysPtrace => CapabilitySet::SYS_PTRACE,
            Right::Setuid => CapabilitySet::SETUID,
            Right::Setgid => CapabilitySet::SETGID,
            Right::Kill => CapabilitySet::KILL,
        }
    }
}

/// Gives up all rights but these for good, of this thread and of those that it makes later: whatever program is run, none
/// comes back. Before other threads are made.
#[doc(alias = "capset")]
#[doc(alias = "PR_SET_NO_NEW_PRIVS")]
pub fn keep_only(kept: &[Right]) -> io::Result<()> {
    bound_to(kept);
    let kept = bits(kept);
    rustix::thread::set_no_new_privs(true)?;
    // Linux 4.3 has it; where it is missing there is nothing in it.
    let _ = rustix::thread::clear_ambient_capability_set();
    let permitted = rustix::thread::capabilities(None)?.permitted & kept;
    let sets = CapabilitySets { effective: permitted, permitted, inheritable: CapabilitySet::empty() };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

fn bits(rights: &[Right]) -> CapabilitySet {
    rights.iter().fold(CapabilitySet::empty(), |all, right| all | right.bit())
}

/// Programs that this thread runs get these at most. As far as it may say so: `CAP_SETPCAP`.
fn bound_to(kept: &[Right]) {
    let kept = bits(kept);
    for bit in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        if !kept.contains(one) {
            // Without `CAP_SETPCAP`, or of a right that this kernel doesn't know. No new ones come by it either way.
            let _ = rustix::thread::remove_capability_from_bounding_set(one);
        }
    }
}

/// Becomes another user, in that group alone, and can't go back. With that goes every right. Before other threads are made.
#[doc(alias = "setresuid")]
pub fn become_user(uid: u32, gid: u32) -> io::Result<()> {
    bound_to(&[]);
    let check = |status: libc::c_int| if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: no groups, so the pointer isn't looked at.
    check(unsafe { libc::setgroups(0, std::ptr::null()) })?;
    // SAFETY: three numbers.
    check(unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: three numbers.
    check(unsafe { libc::setresuid(uid, uid, uid) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_up_is_gone() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        // In a thread of its own: the other tests keep theirs.
        std::thread::spawn(|| {
            keep_only(&[Right::Lease]).unwrap();
            let left = rustix::thread::capabilities(None).unwrap();
            assert_eq!((left.permitted, left.effective), (CapabilitySet::LEASE, CapabilitySet::LEASE));
            assert!(rustix::thread::no_new_privs().unwrap());
            keep_only(&[Right::Lease, Right::SysAdmin]).unwrap();
            assert_eq!(rustix::thread::capabilities(None).unwrap().permitted, CapabilitySet::LEASE);
        })
        .join()
        .unwrap();
    }
}
