//! What Python names: paths as text, bytes or objects that have one, and open descriptors.

use std::{
    ffi::OsStr,
    os::{
        fd::{OwnedFd, RawFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use onesweep::BulkRead;
use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    intern,
    prelude::*,
    types::{PyBool, PyBytes, PyInt, PyString},
};

use super::{fault, ffi};

/// How paths are told: as they were named, like `os.scandir` does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Style {
    /// As `str`; bytes that are no UTF-8 as lone surrogates (`os.fsdecode`).
    #[default]
    Text,
    /// As `bytes`.
    Bytes,
}

impl Style {
    pub(crate) fn path<'py>(self, py: Python<'py>, path: &Path) -> PyResult<Bound<'py, PyAny>> {
        let name = path.as_os_str();
        match (self, name.to_str()) {
            (Self::Bytes, _) => Ok(PyBytes::new(py, name.as_bytes()).into_any()),
            (Self::Text, Some(name)) => Ok(PyString::new(py, name).into_any()),
            (Self::Text, None) => Ok(name.into_pyobject(py)?.into_any()),
        }
    }
}

/// What is to be swept.
pub(crate) struct Named {
    pub(crate) style: Style,
    paths: Vec<PathBuf>,
    open: Vec<(PathBuf, OwnedFd)>,
}

impl Named {
    /// Of one path or descriptor, or of several.
    pub(crate) fn of(named: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut all = Self { style: Style::Text, paths: Vec::new(), open: Vec::new() };
        let mut styles = Vec::new();
        if is_single(named)? {
            all.add(named, &mut styles)?;
        } else {
            for one in named.try_iter()? {
                all.add(&one?, &mut styles)?;
            }
        }
        all.style = styles.first().copied().unwrap_or_default();
        if styles.iter().any(|&style| style != all.style) {
            return Err(PyTypeError::new_err("name paths as str or as bytes, not both in one call"));
        }
        Ok(all)
    }

    fn add(&mut self, named: &Bound<'_, PyAny>, styles: &mut Vec<Style>) -> PyResult<()> {
        if named.is_instance_of::<PyInt>() && !named.is_instance_of::<PyBool>() {
            let fd: RawFd = named.extract()?;
            let shown = PathBuf::from(format!("/proc/self/fd/{fd}"));
            let own = ffi::descriptor(fd).map_err(|error| fault::of_descriptor(named.py(), fd, &error))?;
            self.open.push((shown, own));
            return Ok(());
        }
        let (path, style) = path(named)?;
        self.paths.push(path);
        styles.push(style);
        Ok(())
    }

    /// Names it to a read.
    pub(crate) fn of_read(self, read: BulkRead) -> BulkRead {
        read.roots(self.paths).open_roots(self.open)
    }
}

fn is_single(named: &Bound<'_, PyAny>) -> PyResult<bool> {
    let is_plain = named.is_instance_of::<PyString>() || named.is_instance_of::<PyBytes>();
    Ok(is_plain || named.is_instance_of::<PyInt>() || named.hasattr(intern!(named.py(), "__fspath__"))?)
}

/// A path, and how it was named.
pub(crate) fn path(named: &Bound<'_, PyAny>) -> PyResult<(PathBuf, Style)> {
    let py = named.py();
    let named = py.import(intern!(py, "os"))?.call_method1(intern!(py, "fspath"), (named,))?;
    let (path, style) = match named.cast::<PyBytes>() {
        Ok(bytes) => (PathBuf::from(OsStr::from_bytes(bytes.as_bytes())), Style::Bytes),
        Err(_) => (named.extract::<PathBuf>()?, Style::Text),
    };
    if path.as_os_str().as_bytes().contains(&0) {
        return Err(PyValueError::new_err("a path has a null byte in it"));
    }
    Ok((path, style))
}
