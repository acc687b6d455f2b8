//! Entries made from one path, without a sweep: directories that are archived without what is in them.

use std::{io, os::unix::fs::MetadataExt, path::Path};

use onesweep::{FileError, Kind, Metadata, SweptFile, Timestamp};

use crate::attributes;

/// The attributes of a path as a sweep would give them. Does not follow a symbolic link.
pub fn metadata(path: &Path) -> io::Result<Metadata> {
    Ok(of_std(&path.symlink_metadata()?))
}

/// The same attributes in the words of a sweep.
pub fn of_std(stat: &std::fs::Metadata) -> Metadata {
    let time = |seconds, nanoseconds: i64| Timestamp { seconds, nanoseconds: nanoseconds as u32 };
    Metadata {
        kind: Kind::of_mode(stat.mode()).unwrap_or(Kind::File),
        mode: stat.mode(),
        uid: stat.uid(),
        gid: stat.gid(),
        size: stat.size(),
        mtime: time(stat.mtime(), stat.mtime_nsec()),
        ctime: time(stat.ctime(), stat.ctime_nsec()),
        nlink: stat.nlink() as u32,
        ino: stat.ino(),
        dev: stat.dev(),
        rdev: stat.rdev(),
    }
}

/// The directory `path` (looked up in `base`) as an entry of a sweep; `None` when it is no directory.
pub fn directory(base: Option<&Path>, path: &Path, xattrs: bool) -> Result<Option<SweptFile>, FileError> {
    let found = base.map_or_else(|| path.to_owned(), |base| base.join(path));
    let failed = |step: &str, source| FileError::Io { path: path.to_owned(), step: step.into(), source };
    let metadata = metadata(&found).map_err(|error| failed("read the attributes", error))?;
    if metadata.kind != Kind::Directory {
        return Ok(None);
    }
    let mut entry = SweptFile::new(path.to_owned(), metadata);
    if xattrs {
        let values = attributes::xattrs_of(&found).map_err(|error| failed("read extended attributes", error))?;
        entry = entry.with_xattrs(values);
    }
    Ok(Some(entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_become_entries() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("d")).unwrap();
        std::fs::write(dir.path().join("f"), b"x").unwrap();
        let entry = directory(Some(dir.path()), Path::new("d"), true).unwrap().unwrap();
        assert_eq!((entry.path(), entry.metadata().kind), (Path::new("d"), Kind::Directory));
        assert!(directory(Some(dir.path()), Path::new("f"), false).unwrap().is_none());
        assert!(directory(Some(dir.path()), Path::new("gone"), false).is_err());
    }
}
