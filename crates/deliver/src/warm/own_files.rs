//! What lies in a directory itself.

use std::{
    ffi::OsStr,
    io,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use onesweep_sys::files::{DirReader, EntryType, open_dir, statx_at};

/// The regular files of a directory, not those below, by inode number: in the order in which their inodes lie.
pub fn own_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let open = open_dir(directory)?;
    let mut found = Vec::new();
    DirReader::default().read(open.as_fd(), |entry| {
        if matches!(entry.kind, EntryType::File | EntryType::Unknown) {
            found.push((entry.ino, entry.kind, entry.name.to_owned()));
        }
    })?;
    // One that is gone by now is told of by who reads it.
    found.retain(|(_, kind, name)| {
        let looked = || statx_at(open.as_fd(), name.as_c_str(), true);
        *kind == EntryType::File || looked().map_or(true, |stat| stat.file_type() == EntryType::File)
    });
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, _, name)| directory.join(OsStr::from_bytes(name.to_bytes()))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_below_is_left_out() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir(tree.path().join("below")).unwrap();
        for name in ["a", "b", "below/c"] {
            std::fs::write(tree.path().join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("a", tree.path().join("link")).unwrap();
        let mut found = own_files(tree.path()).unwrap();
        found.sort();
        assert_eq!(found, [tree.path().join("a"), tree.path().join("b")]);
        assert_eq!(own_files(&tree.path().join("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
