//! Reading and walking: a sweep that is iterated.

use std::sync::{Mutex, PoisonError, Weak};

use onesweep::{Cancel, FileError, Files, SweepError, Tally};
use pyo3::{
    gc::PyVisit,
    prelude::*,
    types::{PyDict, PyTuple},
};

use super::{
    fault,
    file::{File, Lent},
    options::Options,
    paths::Style,
    record,
    stream::{Stream, drop_aside},
    wait,
};

/// A running sweep, which gives its files as they come.
#[pyclass(frozen, generic, module = "onesweep", weakref)]
pub(crate) struct Reader {
    stream: Stream<Files>,
    style: Style,
    onerror: Option<Py<PyAny>>,
    lent: Mutex<Register>,
    /// What is done so far, beside the stream, which is somebody's for as long as that one waits.
    tally: Tally,
}

/// Files that Python may still have, whose content counts against the budget.
#[derive(Default)]
struct Register {
    files: Vec<Weak<Lent>>,
    /// When there are so many, those that are gone are struck off.
    full: usize,
}

impl Register {
    fn add(&mut self, file: Weak<Lent>) {
        if self.files.len() >= self.full {
            self.files.retain(|file| file.strong_count() > 0);
            self.full = 2 * self.files.len() + 64;
        }
        self.files.push(file);
    }
}

impl Reader {
    pub(crate) fn new(files: Files, cancel: Cancel, style: Style, onerror: Option<Py<PyAny>>) -> Self {
        let tally = files.tally();
        Self { stream: Stream::new(files, cancel), style, onerror, lent: Mutex::default(), tally }
    }

    /// What Python keeps is Python's own once the sweep can't go on without its memory. A loop keeps the last file while it asks
    /// for the next, a list keeps all.
    fn take_over(&self) {
        let lent = std::mem::take(&mut self.lent.lock().unwrap_or_else(PoisonError::into_inner).files);
        lent.iter().filter_map(Weak::upgrade).for_each(|file| file.take_over());
    }
}

#[pymethods]
impl Reader {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<File>> {
        loop {
            match self.stream.next(py)? {
                None => return Ok(None),
                Some(Ok(swept)) => {
                    let file = File::new(swept, self.style);
                    if let Some(lent) = file.lent() {
                        self.lent.lock().unwrap_or_else(PoisonError::into_inner).add(lent);
                    }
                    return Ok(Some(file));
                }
                Some(Err(FileError::BudgetLent { .. })) => self.take_over(),
                Some(Err(error)) => complain(py, &error, self.style, self.onerror.as_ref())?,
            }
        }
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    fn close(&self, py: Python<'_>) {
        if let Some(files) = self.stream.close(py) {
            drop_aside(files);
        }
    }

    #[getter]
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.stream.check()?;
        record::summary(py, &self.tally.summary())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), pyo3::gc::PyTraverseError> {
        self.onerror.iter().try_for_each(|onerror| visit.call(onerror))
    }
}

/// Tells of a failure: to `onerror` when it is that of one file and there is one, else it is raised.
pub(crate) fn complain(py: Python<'_>, error: &FileError, style: Style, onerror: Option<&Py<PyAny>>) -> PyResult<()> {
    let raised = fault::of_file(py, error, style);
    match onerror.filter(|_| error.path().is_some()) {
        Some(onerror) => onerror.call1(py, (raised.into_value(py),)).map(drop),
        None => Err(raised),
    }
}

/// A callable, or nothing.
pub(crate) fn checked(onerror: Option<Bound<'_, PyAny>>) -> PyResult<Option<Py<PyAny>>> {
    match onerror {
        Some(onerror) if !onerror.is_callable() => {
            Err(pyo3::exceptions::PyTypeError::new_err("onerror must be callable, or None"))
        }
        onerror => Ok(onerror.map(Bound::unbind)),
    }
}

fn sweep(
    py: Python<'_>,
    paths: &Bound<'_, PyAny>,
    onerror: Option<Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
    content: bool,
) -> PyResult<Reader> {
    let onerror = checked(onerror)?;
    let Options { read, style, cancel, .. } = Options::of(paths, options)?;
    let stop = cancel.clone();
    let started = wait::interruptible(py, move || stop.cancel(), || read.content(content).start())?;
    let files = started.map_err(|error: SweepError| fault::of_sweep(py, &error, style))?;
    Ok(Reader::new(files, cancel, style, onerror))
}

#[pyfunction]
#[pyo3(signature = (paths, *, onerror = None, **options))]
pub(crate) fn read(
    py: Python<'_>,
    paths: &Bound<'_, PyAny>,
    onerror: Option<Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Reader> {
    sweep(py, paths, onerror, options, true)
}

#[pyfunction]
#[pyo3(signature = (paths, *, onerror = None, **options))]
pub(crate) fn walk(
    py: Python<'_>,
    paths: &Bound<'_, PyAny>,
    onerror: Option<Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Reader> {
    sweep(py, paths, onerror, options, false)
}
