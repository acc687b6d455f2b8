//! Files that are open, or mapped, under names that they have lost: nobody may tell what is written through those.

use std::{
    fs, io,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::{Path, PathBuf},
};

use onesweep_sys::files::open_handle_of_link;

/// How the kernel marks them in `/proc`.
const MARK: &[u8] = b" (deleted)";

/// All regular files of this machine that a process has open so, and that have another name; `is_wanted` is asked for their
/// devices. They are handles alone. Processes that may not be looked at, or that end meanwhile, are left out. Costs a microsecond for each open file.
pub(crate) fn files(is_wanted: impl Fn(u64) -> bool) -> Vec<OwnedFd> {
    let mut found = Vec::new();
    for process in processes(Path::new("/proc")).into_iter().flatten() {
        for link in ["fd", "map_files"].into_iter().flat_map(|folder| entries(&process.join(folder))) {
            let is_lost = fs::read_link(&link).is_ok_and(|target| target.as_os_str().as_bytes().ends_with(MARK));
            let is_one = || fs::metadata(&link).is_ok_and(|of| of.is_file() && of.nlink() > 0 && is_wanted(of.dev()));
            if is_lost && is_one() {
                found.extend(open_handle_of_link(link.as_path()));
            }
        }
    }
    found
}

/// The folders of all processes.
pub(crate) fn processes(proc: &Path) -> io::Result<impl Iterator<Item = PathBuf> + use<>> {
    let is_process =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.as_bytes().iter().all(u8::is_ascii_digit));
    Ok(fs::read_dir(proc)?.flatten().map(|entry| entry.path()).filter(is_process))
}

/// What is in a folder; nothing of one that can't be read.
pub(crate) fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsFd};

    use onesweep_sys::files::statx_fd;

    use super::*;

    #[test]
    fn an_open_file_whose_name_is_lost_is_found_by_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let kept = File::create(at("kept")).expect("a file");
        let gone = File::create(at("gone")).expect("a file");
        let lost = File::create(at("lost")).expect("a file");
        fs::hard_link(at("lost"), at("other")).expect("a link");
        for name in ["gone", "lost"] {
            fs::remove_file(at(name)).expect("it goes");
        }
        let stat = |file: &dyn AsFd| statx_fd(file.as_fd()).expect("its facts");
        let dev = stat(&lost).dev;
        let found: Vec<u64> = files(|of| of == dev).iter().map(|file| stat(file).ino).collect();
        assert!(found.contains(&stat(&lost).ino));
        assert!(!found.contains(&stat(&kept).ino) && !found.contains(&stat(&gone).ino));
    }
}
