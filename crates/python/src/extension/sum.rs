//! Checksums, computed on several threads.

use std::{io, sync::mpsc::SyncSender, thread};

use onesweep::{FileError, Files};
use onesweep_deliver::sum::{Algorithm, Summed, Summer};
use pyo3::{
    exceptions::PyValueError,
    gc::PyVisit,
    prelude::*,
    types::{PyDict, PyTuple},
};

use super::{
    fault,
    options::{self, Options},
    paths::Style,
    reader::{checked, complain},
    record,
    stream::{Produced, Stream, drop_aside},
    wait,
};

type Item = Result<Summed, FileError>;

/// Names and the digests of their content, as hashing ends.
#[pyclass(frozen, generic, module = "onesweep", weakref)]
pub(crate) struct Sums {
    stream: Stream<Produced<Item>>,
    style: Style,
    onerror: Option<Py<PyAny>>,
}

#[pymethods]
impl Sums {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        loop {
            match self.stream.next(py)? {
                None => return Ok(None),
                Some(Err(error)) => complain(py, &error, self.style, self.onerror.as_ref())?,
                Some(Ok((path, digest))) => {
                    let fields = PyDict::new(py);
                    fields.set_item("path", self.style.path(py, &path)?)?;
                    fields.set_item("digest", digest.to_string())?;
                    return record::make(py, "Sum", &fields).map(Some);
                }
            }
        }
    }

    fn close(&self, py: Python<'_>) {
        if let Some(produced) = self.stream.close(py) {
            drop_aside(produced);
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), pyo3::gc::PyTraverseError> {
        self.onerror.iter().try_for_each(|onerror| visit.call(onerror))
    }
}

/// Threads that hash, at most.
const THREADS_MAX: usize = 1024;

#[pyfunction]
#[pyo3(signature = (paths, algorithm = None, *, threads = None, onerror = None, **options))]
pub(crate) fn sum(
    py: Python<'_>,
    paths: &Bound<'_, PyAny>,
    algorithm: Option<&Bound<'_, PyAny>>,
    threads: Option<usize>,
    onerror: Option<Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Sums> {
    let onerror = checked(onerror)?;
    let algorithm: Algorithm = algorithm.map(options::parsed).transpose()?.unwrap_or_default();
    let threads = threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from));
    if threads == 0 || threads > THREADS_MAX {
        return Err(PyValueError::new_err(format!("{threads} threads are out of range; give 1 to {THREADS_MAX}")));
    }
    let Options { read, style, cancel, .. } = Options::of(paths, options)?;
    let stop = cancel.clone();
    let started = wait::interruptible(py, move || stop.cancel(), || read.start())?;
    let files = started.map_err(|error| fault::of_sweep(py, &error, style))?;
    let produced = Produced::by(move |sender| sum_up(files, algorithm, threads, sender))?;
    Ok(Sums { stream: Stream::new(produced, cancel), style, onerror })
}

fn sum_up(files: Files, algorithm: Algorithm, threads: usize, sender: &SyncSender<Item>) {
    let summer = Summer::new(algorithm);
    let summary = files.run_parallel(threads, |item| match item.and_then(|file| summer.sum(file)) {
        Ok(names) => names.into_iter().all(|name| sender.send(Ok(name)).is_ok()),
        Err(error) => sender.send(Err(error)).is_ok(),
    });
    if summary.cancelled {
        return;
    }
    for path in summer.left_over() {
        let source = io::Error::other("another name of the file failed");
        if sender.send(Err(FileError::Io { path, step: "read".into(), source })).is_err() {
            return;
        }
    }
}
