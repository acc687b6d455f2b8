//! How files lie, directory by directory.

use std::sync::{Mutex, PoisonError};

use onesweep::{FileError, LaidDirectory, LaidFigures, Order, ReaderOrder, Strategy};
use pyo3::{
    gc::PyVisit,
    prelude::*,
    types::{PyDict, PyTuple},
};

use super::{
    fault,
    options::{self, Options},
    paths::Style,
    reader::{checked, complain},
    record::{self, fields},
    stream::{Produced, Stream, drop_aside},
    wait,
};

/// A directory without its files, and its figures; or what failed.
type Item = Result<(LaidDirectory, LaidFigures), FileError>;

/// How directories lie, one after the other.
#[pyclass(frozen, generic, module = "onesweep", weakref)]
pub(crate) struct Directories {
    stream: Stream<Produced<Item>>,
    style: Style,
    onerror: Option<Py<PyAny>>,
    total: Mutex<LaidFigures>,
}

#[pymethods]
impl Directories {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        loop {
            match self.stream.next(py)? {
                None => return Ok(None),
                Some(Err(error)) => complain(py, &error, self.style, self.onerror.as_ref())?,
                Some(Ok((laid, figures))) => {
                    *self.total.lock().unwrap_or_else(PoisonError::into_inner) += &figures;
                    let fields = fields!(py, laid => { disk, device, fs_type, block_bytes },
                        "path" => self.style.path(py, &laid.path)?, "layout" => record::layout(py, &figures)?);
                    return record::make(py, "Directory", &fields).map(Some);
                }
            }
        }
    }

    /// The sum of what was handed over.
    #[getter]
    fn total<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let total = *self.total.lock().unwrap_or_else(PoisonError::into_inner);
        record::layout(py, &total)
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

#[pyfunction]
#[pyo3(signature = (paths, reader = None, *, onerror = None, **options))]
pub(crate) fn layout(
    py: Python<'_>,
    paths: &Bound<'_, PyAny>,
    reader: Option<&Bound<'_, PyAny>>,
    onerror: Option<Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Directories> {
    let onerror = checked(onerror)?;
    let order: ReaderOrder = reader.map(options::parsed).transpose()?.unwrap_or(ReaderOrder::Readdir);
    let Options { read, style, disk, cancel, .. } = Options::of(paths, options)?;
    // What lies in the cache now has its place on the disk all the same. How content would be read doesn't matter.
    let read = read.order(Order::Fragment).strategy(Strategy::Unmerged).device(false);
    let read = read.ignore_cache(true).addresses(true);
    let stop = cancel.clone();
    let planned = wait::interruptible(py, move || stop.cancel(), || read.plan())?;
    let sweep = planned.map_err(|error| fault::of_sweep(py, &error, style))?;
    let thrown = cancel.clone();
    let produced = Produced::by(move |sender| {
        // Errors are of the plan, which stays with the directories; they are told by what they say.
        let errors = sweep.errors().map(fault::copy_of).map(Err);
        let directories = sweep.directories(order).map(|mut laid| {
            let figures = laid.figures(&disk);
            laid.files = Vec::new();
            Ok((laid, figures))
        });
        // Whoever took them may have gone.
        let _ = errors.chain(directories).all(|item| !thrown.is_cancelled() && sender.send(item).is_ok());
    })?;
    Ok(Directories { stream: Stream::new(produced, cancel), style, onerror, total: Mutex::default() })
}
