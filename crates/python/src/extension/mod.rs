//! The module `_onesweep` and what is in it.

mod du;
mod fault;
mod ffi;
mod file;
mod fork;
mod handed;
mod layout;
mod options;
mod paths;
mod plan;
mod reader;
mod record;
mod stream;
mod sum;
mod table;
mod wait;

use pyo3::prelude::*;

/// What `python/onesweep/__init__.py` shows. No state of it is shared without a lock, so a free-threaded Python needs none either.
#[pymodule(gil_used = false)]
mod _onesweep {
    use super::*;
    #[pymodule_export]
    use super::{
        du::du,
        file::{Chunks, File},
        handed::{file_of, parts_of},
        layout::{Directories, layout},
        options::bytes_of,
        plan::{Plan, PlannedFiles, plan},
        reader::{Reader, read, walk},
        sum::{Sums, sum},
        table::{Table, table},
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        fork::watch(module.py())
    }
}
