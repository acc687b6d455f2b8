//! Plans: made, looked at, carried out.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    vec,
};

use onesweep::{Cancel, Order, Strategy, Sweep};
use pyo3::{
    exceptions::PyValueError,
    gc::PyVisit,
    prelude::*,
    sync::MutexExt,
    types::{PyDict, PyList, PyTuple},
};

use super::{
    fault,
    fork::Birth,
    options::{self, Options},
    paths::Style,
    reader::{Reader, checked},
    record::{self, fields},
    stream::drop_aside,
    wait,
};

/// A planned sweep: looked at, then carried out.
#[pyclass(frozen, generic, module = "onesweep")]
pub(crate) struct Plan {
    /// Nothing once it was carried out or closed. Left alone in a child of a fork.
    sweep: Mutex<Option<Sweep>>,
    cancel: Cancel,
    style: Style,
    onerror: Option<Py<PyAny>>,
    birth: Birth,
}

impl Drop for Plan {
    fn drop(&mut self) {
        let sweep = self.sweep.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if self.birth.is_here() { drop_aside(sweep) } else { std::mem::forget(sweep) }
    }
}

impl Plan {
    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Option<Sweep>>> {
        self.birth.check()?;
        Ok(self.sweep.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks at the plan without the lock of Python.
    fn look<T: Send>(&self, py: Python<'_>, look: impl FnOnce(&Sweep) -> T + Send) -> PyResult<T> {
        let mut sweep = self.lock(py)?;
        let sweep = sweep.as_mut().ok_or_else(used)?;
        Ok(py.detach(move || look(sweep)))
    }
}

fn used() -> PyErr {
    PyValueError::new_err("the plan was carried out or closed already")
}

#[pymethods]
impl Plan {
    #[getter]
    fn estimate<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        record::estimate(py, &self.look(py, Sweep::estimate)?)
    }

    #[pyo3(signature = (order, strategy = None))]
    fn estimate_with<'py>(
        &self,
        py: Python<'py>,
        order: &Bound<'py, PyAny>,
        strategy: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let order: Order = options::parsed(order)?;
        let strategy: Strategy = strategy.map(options::parsed).transpose()?.unwrap_or_default();
        record::estimate(py, &self.look(py, |sweep| sweep.estimate_with(order, strategy))?)
    }

    #[getter]
    fn disks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let all = PyList::empty(py);
        for disk in self.look(py, Sweep::disks)? {
            let fields = fields!(py, disk => { disk, remark },
                "order" => disk.order.name(), "estimate" => record::estimate(py, &disk.estimate)?);
            all.append(record::make(py, "DiskPlan", &fields)?)?;
        }
        Ok(all)
    }

    fn files(&self, py: Python<'_>) -> PyResult<PlannedFiles> {
        let files: Vec<_> = self.look(py, |sweep| sweep.files().collect())?;
        Ok(PlannedFiles { files: Mutex::new(files.into_iter()), style: self.style })
    }

    #[getter]
    fn errors<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        // Exceptions are made by code of Python, in which a signal handler may come to this plan.
        let errors: Vec<_> = self.look(py, |sweep| sweep.errors().map(fault::copy_of).collect())?;
        PyList::new(py, errors.iter().map(|error| fault::of_file(py, error, self.style).into_value(py)))
    }

    #[getter]
    fn is_partial(&self, py: Python<'_>) -> PyResult<bool> {
        self.look(py, |sweep| sweep.is_partial())
    }

    fn run(&self, py: Python<'_>) -> PyResult<Reader> {
        let sweep = self.lock(py)?.take().ok_or_else(used)?;
        let files = py.detach(|| sweep.run()).map_err(|error| fault::of_sweep(py, &error, self.style))?;
        let onerror = self.onerror.as_ref().map(|onerror| onerror.clone_ref(py));
        Ok(Reader::new(files, self.cancel.clone(), self.style, onerror))
    }

    fn close(&self, py: Python<'_>) {
        if let Ok(mut sweep) = self.lock(py)
            && let Some(sweep) = sweep.take()
        {
            drop_aside(sweep);
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

/// The files of a plan, in the order of reading.
#[pyclass(frozen, generic, module = "onesweep")]
pub(crate) struct PlannedFiles {
    files: Mutex<vec::IntoIter<onesweep::PlannedFile>>,
    style: Style,
}

#[pymethods]
impl PlannedFiles {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let next = self.files.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner).next();
        let Some(file) = next else { return Ok(None) };
        let fields = fields!(py, file => { disk, address, fragments, size },
            "path" => self.style.path(py, &file.path)?,
            "is_dirty" => file.marks.dirty, "is_encrypted" => file.marks.encrypted);
        record::make(py, "PlannedFile", &fields).map(Some)
    }
}

#[pyfunction]
#[pyo3(signature = (paths, *, onerror = None, **options))]
pub(crate) fn plan(
    py: Python<'_>,
    paths: &Bound<'_, PyAny>,
    onerror: Option<Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Plan> {
    let onerror = checked(onerror)?;
    let Options { read, style, cancel, .. } = Options::of(paths, options)?;
    let stop = cancel.clone();
    let planned = wait::interruptible(py, move || stop.cancel(), || read.plan())?;
    let sweep = planned.map_err(|error| fault::of_sweep(py, &error, style))?;
    Ok(Plan { sweep: Mutex::new(Some(sweep)), cancel, style, onerror, birth: Birth::now() })
}
