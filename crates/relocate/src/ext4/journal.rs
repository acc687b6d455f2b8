//! What was changed is committed to the journal, and stays out of its place as long as the kernel likes.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use onesweep_sys::files::{open_dir, open_unnamed};

/// Waits until the journal has all that was done before: a file made now belongs to the transaction that is open, and to make it durable
/// that transaction has to be committed, where there are no [fast commits](super::fast_commit).
pub(super) fn commit_journal(directory: &Path) -> io::Result<()> {
    File::from(open_unnamed(open_dir(directory)?.as_fd())?).sync_all()
}
