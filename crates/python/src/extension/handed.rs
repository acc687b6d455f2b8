//! Files that one process has read for another: what is known of them as values that can be pickled. Their content goes beside that.

use std::{
    ffi::OsString,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use onesweep::{Kind, Metadata, Route, SweptFile, Timestamp};
use pyo3::{exceptions::PyValueError, prelude::*};

use super::{
    file::{File, ROUTES},
    paths::Style,
};

/// Seconds and nanoseconds.
type Time = (i64, u32);

/// Path and further names; mode, uid, gid, nlink; size, ino, dev, rdev; mtime, ctime, atime; ranges that are no holes; extended
/// attributes; the route.
type Parts = (
    (Vec<u8>, Vec<Vec<u8>>),
    (u32, u32, u32, u32),
    (u64, u64, u64, u64),
    (Time, Time, Time),
    Vec<(u64, u64)>,
    Vec<(Vec<u8>, Vec<u8>)>,
    String,
);

fn parts(file: &SweptFile) -> Parts {
    let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
    let time = |time: Timestamp| (time.seconds, time.nanoseconds);
    let Metadata { mode, uid, gid, size, mtime, ctime, atime, nlink, ino, dev, rdev, .. } = *file.metadata();
    let route = ROUTES.iter().find(|&&(_, route)| route == file.route()).map_or("no-read", |&(name, _)| name);
    (
        (bytes(file.path()), file.links().iter().map(|link| bytes(link)).collect()),
        (mode, uid, gid, nlink),
        (size, ino, dev, rdev),
        (time(mtime), time(ctime), time(atime)),
        file.data_ranges().iter().map(|range| (range.start, range.end)).collect(),
        file.xattrs().to_vec(),
        route.into(),
    )
}

/// The file again; `None` for what is no regular file.
fn joined(parts: Parts, content: &[u8]) -> Option<SweptFile> {
    let ((name, links), (mode, uid, gid, nlink), (size, ino, dev, rdev), (mtime, ctime, atime), ranges, xattrs, route) =
        parts;
    let path = |bytes: Vec<u8>| PathBuf::from(OsString::from_vec(bytes));
    let time = |(seconds, nanoseconds): Time| Timestamp { seconds, nanoseconds };
    let (mtime, ctime, atime) = (time(mtime), time(ctime), time(atime));
    let kind = Kind::of_mode(mode).filter(|&kind| kind == Kind::File)?;
    let route: Route = ROUTES.iter().find(|(name, _)| *name == route)?.1;
    let metadata = Metadata { kind, mode, uid, gid, size, mtime, ctime, atime, nlink, ino, dev, rdev };
    Some(
        SweptFile::new(path(name), metadata)
            .with_bytes(content, ranges.into_iter().map(|(start, end)| start..end).collect())
            .with_links(links.into_iter().map(path).collect())
            .with_xattrs(xattrs)
            .with_route(route),
    )
}

/// What is known of a regular file, for `_file_of` in another process.
#[pyfunction]
#[pyo3(name = "_parts_of")]
pub(crate) fn parts_of(py: Python<'_>, file: &Bound<'_, File>) -> Parts {
    file.get().look(py, parts)
}

/// The file that another process has read, with its content, which is copied.
#[pyfunction]
#[pyo3(name = "_file_of")]
pub(crate) fn file_of(parts: Parts, content: &[u8]) -> PyResult<File> {
    let swept = joined(parts, content).ok_or_else(|| PyValueError::new_err("that is no regular file"))?;
    Ok(File::new(swept, Style::Text))
}
