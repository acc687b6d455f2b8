//! What was changed is committed to the journal, and stays out of its place as long as the kernel likes.

use std::fs::{File, read_to_string};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use onesweep_sys::files::{open_dir, open_unnamed};

/// Waits until the journal has all that was done before: a file made now belongs to the transaction that is open, and to make it durable
/// that transaction has to be committed.
pub(super) fn commit_journal(directory: &Path) -> io::Result<()> {
    File::from(open_unnamed(open_dir(directory)?.as_fd())?).sync_all()
}

/// Whether a file may be made durable without a commit of the transaction it belongs to, after which nothing is free yet (`fast_commit`);
/// also when the kernel doesn't tell.
pub(super) fn has_fast_commits(name: &str) -> bool {
    let told = read_to_string(Path::new("/proc/fs/ext4").join(name).join("fc_info"));
    !told.is_ok_and(|told| is_without(&told))
}

/// Whether the kernel counts fast commits, and has made none.
fn is_without(told: &str) -> bool {
    told.lines().any(|line| line.trim() == "0 commits")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_commits_are_told_by_their_count() {
        let told = |commits: u32| {
            format!("fc stats:\n{commits} commits\n0 ineligible\n0 numblks\n0us avg_commit_time\nIneligible reasons:\n")
        };
        assert!(is_without(&told(0)));
        assert!(!is_without(&told(10)) && !is_without(&told(1)));
        assert!(!is_without("") && has_fast_commits("no-such-device"), "unknown");
    }
}
