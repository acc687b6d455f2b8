//! Who is told that files were written: by fanotify, which reports the directory of each file that is closed after writing.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use onesweep_sys::fanotify::{Group, Happened};
use onesweep_sys::files::{open_dir, path_of, statx_fd};
use onesweep_sys::handle::{Access, FileHandle, open_by_handle};

/// Takes some 1,000 events.
const BUFFER_BYTES: usize = 64 << 10;

/// Hears of the directories of one file system in which somebody else has written a file.
#[derive(Debug)]
pub struct Watch {
    group: Group,
    root: OwnedFd,
    buffer: Vec<u8>,
}

impl Watch {
    /// Begins to listen. Needs `CAP_SYS_ADMIN`, and `CAP_DAC_READ_SEARCH` to find the directories; costs each closing of a
    /// written file less than 1 µs.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` without these, `Unsupported` where inodes have no handles.
    pub fn start(directory: &Path) -> io::Result<Watch> {
        let root = open_dir(directory)?;
        let group = Group::of_directories()?;
        group.watch_file_system(root.as_fd(), Happened::CLOSE_WRITE)?;
        Ok(Watch { group, root, buffer: vec![0; BUFFER_BYTES] })
    }

    /// Tells of each directory that was written to since the last time, maybe more than once. True when the kernel's queue was full, so that
    /// some are missing.
    ///
    /// # Errors
    ///
    /// Those of reading from the kernel.
    pub fn hear(&mut self, mut each: impl FnMut(FileHandle)) -> io::Result<bool> {
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        let mut are_missing = false;
        let mut tell = |event: onesweep_sys::fanotify::Event| {
            are_missing |= event.happened.contains(Happened::OVERFLOW);
            // A group that is told of directories alone is told of them as objects.
            if event.pid != own
                && let Some(directory) = event.directory.or(event.object)
            {
                each(directory);
            }
        };
        while self.group.read(&mut self.buffer, &mut tell)? {}
        Ok(are_missing)
    }

    /// Where a directory is now, as this process sees it; `None` when it is gone.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` without `CAP_DAC_READ_SEARCH`.
    pub fn path_of(&self, directory: &FileHandle) -> io::Result<Option<PathBuf>> {
        let open = match open_by_handle(self.root.as_fd(), directory, Access::List) {
            Err(error) if is_gone(&error) => return Ok(None),
            opened => opened?,
        };
        let stat = statx_fd(open.as_fd())?;
        let path = path_of(open.as_fd())?;
        // One that was removed, or lies where this process sees nothing, has no path that leads to it.
        let found = open_dir(path.as_path()).and_then(|found| statx_fd(found.as_fd()));
        Ok(found.is_ok_and(|found| (found.dev, found.ino) == (stat.dev, stat.ino)).then_some(path))
    }
}

fn is_gone(error: &io::Error) -> bool {
    const ESTALE: i32 = 116;
    error.raw_os_error() == Some(ESTALE) || error.kind() == io::ErrorKind::NotADirectory
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_the_kernel_could_not_keep_is_known_to_be_missing() {
        let bound = fs::read_to_string("/proc/sys/fs/fanotify/max_queued_events");
        let Some(bound) = bound.ok().and_then(|bound| bound.trim().parse::<u32>().ok()) else { return };
        // Somebody has raised it: that many directories take too long.
        if onesweep_sys::user::effective_uid() != 0 || bound > 1 << 15 {
            return;
        }
        let tree = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut watch = Watch::start(tree.path()).unwrap();
        let write = |name: u32| {
            let directory = tree.path().join(name.to_string());
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("file"), "x").unwrap();
        };
        write(0);
        assert!(!watch.hear(|_| {}).unwrap());
        (0..=bound).for_each(write);
        assert!(watch.hear(|_| {}).unwrap());
        write(0);
        assert!(!watch.hear(|_| {}).unwrap());
    }
}
