//! Figures as the dataclasses of `python/onesweep/_records.py`, which have the same names.

use onesweep::{Estimate, LaidFigures, LaidSide, Summary};
use onesweep_layout::LayoutScore;
use onesweep_summary::service::protocol::Figures;
use pyo3::{prelude::*, types::PyDict};

/// Makes a record of the class of that name.
pub(crate) fn make<'py>(py: Python<'py>, class: &str, fields: &Bound<'py, PyDict>) -> PyResult<Bound<'py, PyAny>> {
    py.import("onesweep._records")?.getattr(class)?.call((), Some(fields))
}

/// A dictionary of fields: those of `$from`, and others with their values.
macro_rules! fields {
    ($py:expr, $from:expr => { $($field:ident),* $(,)? } $(, $name:literal => $value:expr)* $(,)?) => {{
        let fields = pyo3::types::PyDict::new($py);
        $(fields.set_item(stringify!($field), &$from.$field)?;)*
        $(fields.set_item($name, $value)?;)*
        fields
    }};
}
pub(crate) use fields;

pub(crate) fn estimate<'py>(py: Python<'py>, cost: &Estimate) -> PyResult<Bound<'py, PyAny>> {
    let fields = fields!(py, cost => {
        disk, files, fragments, without_address, requests, seeks, useful, read, wasted, copied, passes, bins, clean_ups,
        peak_memory, peak_unlimited, seconds,
    });
    make(py, "Estimate", &fields)
}

pub(crate) fn summary<'py>(py: Python<'py>, summary: &Summary) -> PyResult<Bound<'py, PyAny>> {
    let fields = fields!(py, summary => {
        files, others, bytes, errors, cached_files, cached_bytes, streamed_files, streamed_bytes, reread_files, reread_bytes,
        through_files, through_bytes, unmapped_files, dirty_files, encrypted_files, requests, bytes_read, peak_budget,
        taken_over_bytes, windows, cancelled,
    });
    make(py, "Summary", &fields)
}

fn score<'py>(py: Python<'py>, score: LayoutScore) -> PyResult<Bound<'py, PyAny>> {
    make(py, "Score", &fields!(py, score => { contiguous, pairs }))
}

fn side<'py>(py: Python<'py>, side: &LaidSide) -> PyResult<Bound<'py, PyAny>> {
    let fields = fields!(py, side => { fragments, seeks, seconds },
        "layout" => score(py, side.layout)?, "dynamic" => score(py, side.dynamic)?);
    make(py, "LayoutSide", &fields)
}

pub(crate) fn layout<'py>(py: Python<'py>, figures: &LaidFigures) -> PyResult<Bound<'py, PyAny>> {
    let fields = fields!(py, figures => {
        files, placed_files, fragmented_files, compressed_files, unknown_files, blocks, bytes,
    }, "before" => side(py, &figures.before)?, "packed" => side(py, &figures.after)?);
    make(py, "Layout", &fields)
}

pub(crate) fn totals<'py>(py: Python<'py>, figures: &Figures) -> PyResult<Bound<'py, PyAny>> {
    let fields = fields!(py, figures => { bytes, directory_bytes, allocated, freed, files, directories, others });
    make(py, "Totals", &fields)
}
