//! Errors as exceptions: the classes of `python/onesweep/_errors.py`, all below `OSError`. Arguments that can't be are
//! `ValueError`s and `TypeError`s, as everywhere in Python.

use std::{ffi::c_int, io, path::Path};

use onesweep::{FileError, SweepError};
use pyo3::{exceptions::PyValueError, prelude::*, sync::PyOnceLock};

use super::paths::Style;

const ENOENT: c_int = 2;
const ECANCELED: c_int = 125;

/// An exception in the making.
struct Fault<'a> {
    class: &'static str,
    number: Option<c_int>,
    /// What the kernel said, or what takes its place.
    cause: Option<String>,
    path: Option<(&'a Path, Style)>,
    message: String,
}

impl Fault<'_> {
    fn raise(self, py: Python<'_>) -> PyErr {
        self.make(py).unwrap_or_else(|error| error)
    }

    fn make(self, py: Python<'_>) -> PyResult<PyErr> {
        static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let make = MAKE.import(py, "onesweep._errors", "make")?;
        let path = self.path.map(|(path, style)| style.path(py, path)).transpose()?;
        let error = make.call1((self.class, self.number, self.cause, path, self.message))?;
        Ok(PyErr::from_value(error))
    }
}

/// Why a sweep could not begin.
pub(crate) fn of_sweep(py: Python<'_>, error: &SweepError, style: Style) -> PyErr {
    let message = error.to_string();
    let plain = |class, path| Fault { class, number: None, cause: None, path, message: message.clone() };
    let io = |class, path, source: &io::Error| of_io(class, path, source, message.clone());
    // What isn't there is a device or a program, and not the tree whose path it tells.
    let perhaps = |class, path, source: Option<&io::Error>| match source
        .filter(|source| source.kind() != io::ErrorKind::NotFound)
    {
        Some(source) => io(class, path, source),
        None => plain(class, path),
    };
    match error {
        SweepError::NoRoots | SweepError::Setting(_) => return PyValueError::new_err(message),
        SweepError::Root { path, source } => io("RootError", Some((&**path, style)), source),
        SweepError::Device { path, source, .. } => perhaps("DeviceError", Some((&**path, style)), source.as_ref()),
        SweepError::Snapshot { path, source, .. } => perhaps("SnapshotError", Some((&**path, style)), source.as_ref()),
        SweepError::System { source, .. } => io("SystemError", None, source),
        _ => plain("SweepError", None),
    }
    .raise(py)
}

/// Why a file failed.
pub(crate) fn of_file(py: Python<'_>, error: &FileError, style: Style) -> PyErr {
    let message = error.to_string();
    let path = error.path().map(|path| (path, style));
    let plain = |class| Fault { class, number: None, cause: None, path, message: message.clone() };
    match error {
        FileError::Vanished { .. } | FileError::NotInside { .. } => {
            Fault { number: Some(ENOENT), ..plain("VanishedError") }
        }
        FileError::Io { source, .. } => of_io("ReadError", path, source, message.clone()),
        FileError::Changed { .. } => plain("ChangedError"),
        FileError::Loop { .. } => plain("LoopError"),
        FileError::NotOneMoment { .. } => plain("NotOneMomentError"),
        FileError::Stopped { source, .. } => of_io("StoppedError", None, source, message.clone()),
        _ => plain("FileError"),
    }
    .raise(py)
}

fn of_io<'a>(class: &'static str, path: Option<(&'a Path, Style)>, source: &io::Error, message: String) -> Fault<'a> {
    let cause = source.raw_os_error().is_none().then(|| source.to_string());
    Fault { class, number: source.raw_os_error(), cause, path, message }
}

/// Why a descriptor can't be used.
pub(crate) fn of_descriptor(py: Python<'_>, fd: c_int, error: &io::Error) -> PyErr {
    of_io("RootError", None, error, format!("descriptor {fd}: {error}")).raise(py)
}

/// Why the content of a file can't be had.
pub(crate) fn of_content(py: Python<'_>, path: &Path, style: Style, error: &io::Error) -> PyErr {
    let has_changed = matches!(error.kind(), io::ErrorKind::Other | io::ErrorKind::UnexpectedEof);
    let class = if error.raw_os_error().is_none() && has_changed { "ChangedError" } else { "ReadError" };
    of_io(class, Some((path, style)), error, format!("{}: cannot read: {error}", path.display())).raise(py)
}

/// There is no content.
pub(crate) fn no_content(py: Python<'_>, path: &Path, style: Style) -> PyErr {
    let message = format!("{}: has no content that could be had", path.display());
    Fault { class: "NoContentError", number: None, cause: None, path: Some((path, style)), message }.raise(py)
}

/// It was closed before everything was handed over.
pub(crate) fn cancelled(py: Python<'_>) -> PyErr {
    let message = "closed before everything was handed over".into();
    Fault { class: "CancelledError", number: Some(ECANCELED), cause: None, path: None, message }.raise(py)
}

/// The server of summaries could not answer, or a directory could not be counted.
pub(crate) fn of_service(
    py: Python<'_>,
    class: &'static str,
    path: Option<(&Path, Style)>,
    source: Option<&io::Error>,
    message: String,
) -> PyErr {
    match source {
        Some(source) => of_io(class, path, source, message),
        None => Fault { class, number: None, cause: None, path, message },
    }
    .raise(py)
}

/// The same error once more.
pub(crate) fn copy_of(error: &FileError) -> FileError {
    let again = |source: &io::Error| {
        source.raw_os_error().map_or_else(|| io::Error::other(source.to_string()), io::Error::from_raw_os_error)
    };
    match error {
        FileError::Vanished { path } => FileError::Vanished { path: path.clone() },
        FileError::Io { path, step, source } => {
            FileError::Io { path: path.clone(), step: step.clone(), source: again(source) }
        }
        FileError::NotInside { path } => FileError::NotInside { path: path.clone() },
        FileError::Changed { path, attempts } => FileError::Changed { path: path.clone(), attempts: *attempts },
        FileError::Loop { path } => FileError::Loop { path: path.clone() },
        FileError::NotOneMoment { path, reason } => {
            FileError::NotOneMoment { path: path.clone(), reason: reason.clone() }
        }
        FileError::Stopped { disk, source } => FileError::Stopped { disk: disk.clone(), source: again(source) },
        other => FileError::Stopped { disk: "a disk".into(), source: io::Error::other(other.to_string()) },
    }
}
