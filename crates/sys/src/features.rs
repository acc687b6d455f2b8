//! What this kernel offers, asked once at run time.
//!
//! Every feature has a way round it, and the ways round must be tested on kernels that have the feature. So each can
//! be hidden by the environment variable `ONESWEEP_HIDE`, a list of names: `cachestat,dontcache,io_uring,fiemap,`
//! `direct,openat2,bulkstat,treesearch,tables,copies,mountids,permissions`. It is read once, at the first question.
#![allow(unsafe_code)]

use std::sync::OnceLock;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

/// The environment variable that hides features from [`features`].
pub const HIDE_VARIABLE: &str = "ONESWEEP_HIDE";

/// What can be used. A field is false when the kernel lacks the feature, forbids it, or it is hidden.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// `cachestat` (Linux 6.5); without it, what is dirty in the page cache is unknown.
    pub cachestat: bool,
    /// io_uring; often forbidden in containers (seccomp) or by `kernel.io_uring_disabled`.
    pub io_uring: bool,
    /// Reads that leave the page cache alone (`RWF_DONTCACHE`, Linux 6.14) may be tried. Whether they work depends on
    /// the file system: a read that it cannot do fails with `EOPNOTSUPP`.
    pub dontcache: bool,
    /// `openat2` (Linux 5.6); some seccomp filters forbid it.
    pub openat2: bool,
    /// `FS_IOC_FIEMAP` may be tried; whether it works depends on the file system.
    pub fiemap: bool,
    /// `O_DIRECT` may be tried; whether it works depends on the file system.
    pub direct: bool,
    /// Inodes of XFS may be asked for in bulk.
    pub bulkstat: bool,
    /// Items of the trees of btrfs may be asked for.
    pub tree_search: bool,
    /// The tables of a mounted ext4 may be read from its device.
    pub tables: bool,
    /// Which copy of its data btrfs reads may be chosen.
    pub copies: bool,
    /// The kernel may be asked for numbers of mounts that come once (Linux 6.8).
    pub mount_ids: bool,
    /// The kernel may be asked to ask before something is opened (`CONFIG_FANOTIFY_ACCESS_PERMISSIONS`), on behalf of who helps.
    pub permissions: bool,
}

impl Features {
    /// Asks the kernel, leaving out the features named in `hidden` (separated by commas; unknown names are ignored).
    pub fn probe(hidden: &str) -> Features {
        let shown = |name: &str| !hidden.split(',').any(|entry| entry.trim() == name);
        Features {
            cachestat: shown("cachestat") && has_cachestat(),
            io_uring: shown("io_uring") && io_uring::IoUring::new(2).is_ok(),
            dontcache: shown("dontcache"),
            openat2: shown("openat2") && has_openat2(),
            fiemap: shown("fiemap"),
            direct: shown("direct"),
            bulkstat: shown("bulkstat"),
            tree_search: shown("treesearch"),
            tables: shown("tables"),
            copies: shown("copies"),
            mount_ids: shown("mountids"),
            permissions: shown("permissions"),
        }
    }
}

/// The first two numbers of the kernel's version, for what it can't be asked for; 0 when it has no such numbers.
#[doc(alias = "uname")]
pub fn kernel_version() -> (u32, u32) {
    numbers_of(&rustix::system::uname().release().to_string_lossy())
}

fn numbers_of(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit()).map(|digits| digits.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// What can be used in this process: probed at the first call, with `ONESWEEP_HIDE` applied.
pub fn features() -> &'static Features {
    static FEATURES: OnceLock<Features> = OnceLock::new();
    FEATURES.get_or_init(|| Features::probe(&std::env::var(HIDE_VARIABLE).unwrap_or_default()))
}

fn has_cachestat() -> bool {
    // SAFETY: no descriptor is -1, so the kernel answers before it looks at the pointers.
    let answer = unsafe { libc::syscall(crate::cache::SYS_CACHESTAT, -1, 0, 0, 0) };
    answer == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EBADF)
}

fn has_openat2() -> bool {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat2(CWD, c"/", flags, Mode::empty(), ResolveFlags::NO_SYMLINKS).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_numbers() {
        assert_eq!(numbers_of("6.18.44-fc-v595"), (6, 18));
        assert_eq!(numbers_of("6.1-rc1"), (6, 1));
        assert_eq!(numbers_of("strange"), (0, 0));
        assert!(kernel_version() >= (4, 0));
    }

    #[test]
    fn hidden_features_are_off() {
        let none = Features::probe(
            "cachestat, io_uring,dontcache,openat2,fiemap,direct,bulkstat,treesearch,tables,copies,mountids,permissions",
        );
        let off = Features {
            cachestat: false,
            io_uring: false,
            dontcache: false,
            openat2: false,
            fiemap: false,
            direct: false,
            bulkstat: false,
            tree_search: false,
            tables: false,
            copies: false,
            mount_ids: false,
            permissions: false,
        };
        assert_eq!(none, off);
    }

    #[test]
    fn names_are_whole_words() {
        let features = Features::probe("direct2,fie,");
        assert!(features.direct && features.fiemap && features.dontcache);
    }

    #[test]
    fn answers_are_the_same_twice() {
        assert_eq!(features(), features());
    }
}
