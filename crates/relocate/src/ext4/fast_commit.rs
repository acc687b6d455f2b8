//! Whether a file system makes fast commits, which leave out what was moved.
//!
//! A fast commit writes what is needed of a transaction to make one file durable (`fast_commit`, Linux 5.10). The kernel tells it nothing of
//! exchanged extents, nor rightly of files without a name: when the machine stops after anybody's fsync and before the next full
//! commit, the journal can't be replayed, and the file system not be mounted. No order of our own commits helps, since others sync when they like.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use onesweep_sys::{
    block::open_device,
    files::{read_at, set_xattr_fd, statx_fd},
};

use super::Refusal;

/// What can be told without making a file. `node` is that of its device, for who may read it.
pub(super) fn makes_fast_commits(name: &str, node: &Path, dev: u64, options: &str) -> io::Result<bool> {
    let Some(told) = counts(name)? else { return Ok(false) };
    // Told by kernels with CONFIG_EXT4_DEBUG wherever it makes any.
    let is_told = options.lines().any(|line| line == "fc_debug_force");
    // While it is mounted, tune2fs can take the feature out of the superblock, and the kernel goes on.
    Ok(is_told || has_counted(&told) || superblock(node, dev).is_ok_and(|bytes| has_feature(&bytes)))
}

/// Makes sure by a new file without a name and blocks: that it gets an attribute makes the transaction one for a full commit, which the
/// kernel counts where it makes others. So this file does no harm there either.
pub(super) fn refuse_fast_commits(name: &str, file: BorrowedFd<'_>) -> Result<(), Refusal> {
    let made = || {
        if counts(name)?.is_none() {
            return Ok(false);
        }
        set_xattr_fd(file, c"user.onesweep", b"")?;
        Ok(counts(name)?.is_some_and(|told| has_counted(&told)))
    };
    match made() {
        Ok(false) => Ok(()),
        Ok(true) => Err(Refusal::FastCommits),
        Err(source) => Err(Refusal::Unknown { what: "find out whether its ext4 makes fast commits", source }),
    }
}

/// `None` where the kernel is too old to make any.
fn counts(name: &str) -> io::Result<Option<String>> {
    match std::fs::read_to_string(PathBuf::from("/proc/fs/ext4").join(name).join("fc_info")) {
        Ok(told) => Ok(Some(told)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether it has made any, or counted a reason not to.
fn has_counted(told: &str) -> bool {
    told.lines().any(|line| {
        let number = match line.split_once(':') {
            Some((_, number)) => number.trim(),
            None => line.split(' ').next().unwrap_or_default(),
        };
        number.parse().is_ok_and(|number: u64| number > 0)
    })
}

const SUPERBLOCK: u64 = 1024;
const SUPERBLOCK_BYTES: usize = 96;

fn superblock(node: &Path, dev: u64) -> io::Result<[u8; SUPERBLOCK_BYTES]> {
    let device = open_device(node)?;
    let mut bytes = [0; SUPERBLOCK_BYTES];
    if statx_fd(device.as_fd())?.rdev != dev || read_at(device.as_fd(), &mut bytes, SUPERBLOCK)? < bytes.len() {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(bytes)
}

fn has_feature(superblock: &[u8; SUPERBLOCK_BYTES]) -> bool {
    const FAST_COMMIT: u8 = 0x04;
    // The second byte of the compatible features.
    superblock[0x38..0x3A] == [0x53, 0xEF] && superblock[0x5D] & FAST_COMMIT != 0
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::Command;

    use onesweep_layout::SysTree;
    use onesweep_sys::files::{open_dir, open_unnamed};

    use super::*;

    fn told(commits: u32, ineligible: u32, attributes: u32) -> String {
        format!(
            "fc stats:\n{commits} commits\n{ineligible} ineligible\n0 numblks\n0us avg_commit_time\nIneligible reasons:\n\
             \"Extended attributes changed\":\t{attributes}\n\"Resize\":\t0\n"
        )
    }

    #[test]
    fn fast_commits_are_told_by_what_is_counted() {
        assert!(!has_counted(&told(0, 0, 0)) && !has_counted(""));
        assert!(has_counted(&told(10, 0, 0)) && has_counted(&told(0, 1, 0)) && has_counted(&told(0, 0, 2)));
    }

    #[test]
    fn fast_commits_are_told_by_the_superblock() {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        bytes[0x5C..0x60].copy_from_slice(&0x43C_u32.to_le_bytes());
        assert!(!has_feature(&bytes), "it is no ext4");
        bytes[0x38..0x3A].copy_from_slice(&[0x53, 0xEF]);
        assert!(has_feature(&bytes));
        bytes[0x5C..0x60].copy_from_slice(&0xFFFF_FBFF_u32.to_le_bytes());
        assert!(!has_feature(&bytes));
    }

    struct Mounted(tempfile::TempDir);

    impl Mounted {
        fn new(features: &[&str]) -> Mounted {
            let mounted = Mounted(tempfile::tempdir().unwrap());
            std::fs::create_dir(mounted.root()).unwrap();
            File::create(mounted.image()).unwrap().set_len(256 << 20).unwrap();
            run(Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096"]).args(features).arg(mounted.image()));
            mounted.mount();
            mounted
        }

        fn mount(&self) {
            run(Command::new("mount").args(["-o", "loop,commit=600"]).args([self.image(), self.root()]));
        }

        fn unmount(&self) -> bool {
            Command::new("umount").arg(self.root()).output().unwrap().status.success()
        }

        fn root(&self) -> PathBuf {
            self.0.path().join("mnt")
        }

        fn image(&self) -> PathBuf {
            self.0.path().join("image")
        }

        fn name(&self) -> String {
            let root = open_dir(self.root()).unwrap();
            SysTree::default().block(statx_fd(root.as_fd()).unwrap().dev).unwrap().name
        }
    }

    impl Drop for Mounted {
        fn drop(&mut self) {
            if !self.unmount() {
                let _ = Command::new("umount").arg("--lazy").arg(self.root()).output();
            }
            // The mount point is empty now, or this fails, and nothing is deleted through a mount.
            let _ = std::fs::remove_dir(self.root());
        }
    }

    fn run(command: &mut Command) {
        let out = command.output().unwrap();
        assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    }

    /// Where nothing else tells it, as an ordinary user finds it. What that takes does no harm when the machine stops, as other files without
    /// a name would.
    #[test]
    fn a_file_finds_out_fast_commits_and_does_no_harm() {
        if onesweep_sys::user::effective_uid() != 0 {
            return eprintln!("skipped: needs root");
        }
        let ask = |mounted: &Mounted| {
            let file = open_unnamed(open_dir(mounted.root()).unwrap().as_fd()).unwrap();
            (refuse_fast_commits(&mounted.name(), file.as_fd()), file)
        };
        let without = Mounted::new(&[]);
        assert!(matches!(ask(&without).0, Ok(())));
        let with = Mounted::new(&["-O", "fast_commit"]);
        let path = with.root().join("file");
        std::fs::write(&path, "old").unwrap();
        run(Command::new("sync").arg("-f").arg(&path));
        let told = counts(&with.name()).unwrap().unwrap();
        assert!(!has_counted(&told), "{told}");
        let (refused, file) = ask(&with);
        assert!(matches!(refused, Err(Refusal::FastCommits)), "{refused:?}");
        let beside = File::create(&path).unwrap();
        std::io::Write::write_all(&mut &beside, b"new").unwrap();
        beside.sync_all().unwrap();
        run(Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(with.root()));
        drop((beside, file));
        assert!(with.unmount());
        with.mount();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    }
}
