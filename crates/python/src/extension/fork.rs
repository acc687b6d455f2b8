//! Processes that Python forks off: threads and locks of a sweep stay behind in the parent.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::{exceptions::PyRuntimeError, intern, prelude::*, types::PyDict};

/// How many forks lie between the first process and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

#[pyfunction]
fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Has Python tell of forks.
pub(crate) fn watch(py: Python<'_>) -> PyResult<()> {
    let os = py.import(intern!(py, "os"))?;
    let hooks = PyDict::new(py);
    hooks.set_item(intern!(py, "after_in_child"), wrap_pyfunction!(forked, py)?)?;
    os.call_method(intern!(py, "register_at_fork"), (), Some(&hooks))?;
    Ok(())
}

/// The process in which something was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Birth(u64);

impl Birth {
    pub(crate) fn now() -> Self {
        Self(FORKS.load(Ordering::Relaxed))
    }

    /// False in a child that was forked off since: what was made must be left alone there, since locks may be held by threads
    /// that the child doesn't have.
    pub(crate) fn is_here(self) -> bool {
        self.0 == FORKS.load(Ordering::Relaxed)
    }

    pub(crate) fn check(self) -> PyResult<()> {
        if self.is_here() {
            return Ok(());
        }
        Err(PyRuntimeError::new_err("a sweep that began before a fork stays with the parent; begin another one"))
    }
}
