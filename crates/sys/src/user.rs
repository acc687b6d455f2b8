//! Who this process is, and which groups users are in.
#![allow(unsafe_code)]

use std::{
    ffi::{CStr, CString},
    io,
    mem::MaybeUninit,
    ptr,
};

/// The user that this process acts as.
#[doc(alias = "geteuid")]
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The group that this process acts as.
#[doc(alias = "getegid")]
pub fn effective_gid() -> u32 {
    rustix::process::getegid().as_raw()
}

/// The number of a user and of its group, by its name; `None` where there is no such user. Asks as [`groups_of`] does.
#[doc(alias = "getpwnam")]
pub fn named(name: &str) -> io::Result<Option<(u32, u32)>> {
    let name = CString::new(name)?;
    // SAFETY: the name has an end, and all other pointers are to memory of ours, which is as long as the call is told.
    let ask = |facts, bytes, length, found| unsafe { libc::getpwnam_r(name.as_ptr(), facts, bytes, length, found) };
    look_up::<libc::passwd, _>(ask, |facts| (facts.pw_uid, facts.pw_gid))
}

/// Bytes that the facts of a user may take.
const FACTS_BYTES_MAX: usize = 1 << 20;
/// The kernel allows as many.
const GROUPS_MAX: usize = 65_536;

/// The groups of a user, as a login would give them; none where the user isn't known. Asks what `/etc/nsswitch.conf`
/// names, so it may take as long as that does.
#[doc(alias = "getgrouplist")]
pub fn groups_of(uid: u32) -> io::Result<Vec<u32>> {
    let Some((name, group)) = user(uid)? else { return Ok(Vec::new()) };
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let mut count = groups.len() as libc::c_int;
        // SAFETY: the name has an end, and the list has room for so many groups as the call is told.
        let status = unsafe { libc::getgrouplist(name.as_ptr(), group, groups.as_mut_ptr(), &raw mut count) };
        if status >= 0 {
            groups.truncate(usize::try_from(count).unwrap_or(0));
            return Ok(groups);
        }
        if groups.len() >= GROUPS_MAX {
            return Err(io::Error::other("the user is in more groups than the kernel allows"));
        }
        groups.resize(groups.len() * 4, 0);
    }
}

/// The groups that a process (or a thread) is in besides its own; none where it can't be seen.
pub fn groups_of_process(pid: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    groups.split_whitespace().filter_map(|group| group.parse().ok()).collect()
}

/// What a user is called; `None` where that isn't known. May take as long as [`groups_of`].
#[doc(alias = "getpwuid_r")]
pub fn name_of(uid: u32) -> Option<String> {
    let (name, _) = user(uid).ok()??;
    name.into_string().ok()
}

/// What a group is called; as [`name_of`].
#[doc(alias = "getgrgid_r")]
pub fn group_name_of(gid: u32) -> Option<String> {
    // SAFETY: all pointers are to memory of ours, which is as long as the call is told.
    let ask = |facts, bytes, length, found| unsafe { libc::getgrgid_r(gid, facts, bytes, length, found) };
    let name = look_up::<libc::group, _>(ask, |facts| {
        // SAFETY: a text with an end, in memory that is there until this returns.
        unsafe { CStr::from_ptr(facts.gr_name) }.to_owned()
    });
    name.ok()??.into_string().ok()
}

/// The name of a user, and the first group.
fn user(uid: u32) -> io::Result<Option<(CString, libc::gid_t)>> {
    // SAFETY: all pointers are to memory of ours, which is as long as the call is told.
    let ask = |facts, bytes, length, found| unsafe { libc::getpwuid_r(uid, facts, bytes, length, found) };
    look_up::<libc::passwd, _>(ask, |facts| {
        // SAFETY: a text with an end, in memory that is there until this returns.
        (unsafe { CStr::from_ptr(facts.pw_name) }.to_owned(), facts.pw_gid)
    })
}

/// Asks until there is room for the answer. `ask` fills what it is given: the facts, room for texts and its bytes, and where it
/// says whether it has.
fn look_up<F, T>(
    ask: impl Fn(*mut F, *mut libc::c_char, usize, *mut *mut F) -> libc::c_int,
    take: impl Fn(&F) -> T,
) -> io::Result<Option<T>> {
    let mut bytes: Vec<libc::c_char> = vec![0; 4096];
    let mut facts = MaybeUninit::<F>::uninit();
    let mut found = ptr::null_mut();
    loop {
        match ask(facts.as_mut_ptr(), bytes.as_mut_ptr(), bytes.len(), &raw mut found) {
            0 => break,
            libc::ERANGE if bytes.len() < FACTS_BYTES_MAX => bytes.resize(bytes.len() * 4, 0),
            libc::EINTR => {}
            // What some systems say of one that isn't known.
            libc::ENOENT | libc::ESRCH => return Ok(None),
            other => return Err(io::Error::from_raw_os_error(other)),
        }
    }
    if found.is_null() {
        return Ok(None);
    }
    // SAFETY: the call has filled it, for `found` isn't null, and texts are in `bytes`, which lives on.
    Ok(Some(take(unsafe { facts.assume_init_ref() })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_that_id_tells() {
        let said = std::process::Command::new("id").args(["-G", "root"]).output().expect("id runs");
        let mut told: Vec<u32> =
            String::from_utf8_lossy(&said.stdout).split_whitespace().map(|group| group.parse().unwrap()).collect();
        let mut found = groups_of(0).expect("groups");
        told.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, told);
        assert_eq!((name_of(0).as_deref(), group_name_of(0).as_deref()), (Some("root"), Some("root")));
        assert_eq!((name_of(4_000_000_001), group_name_of(4_000_000_001)), (None, None));
        assert_eq!(named("root").expect("root"), Some((0, 0)));
        assert_eq!(named("nobody-of-that-name").expect("nobody"), None);
        assert_eq!(groups_of(4_000_000_001).expect("nobody"), []);
    }
}
