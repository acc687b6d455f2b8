//! The metadata of a tree as a table, by Arrow's PyCapsule interface: pyarrow, polars and DuckDB take it as it is.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{
    ArrayRef, RecordBatch, RecordBatchIterator,
    builder::{
        BinaryBuilder, StringBuilder, StringDictionaryBuilder, TimestampNanosecondBuilder, UInt32Builder, UInt64Builder,
    },
    ffi::FFI_ArrowSchema,
    ffi_stream::FFI_ArrowArrayStream,
    types::Int8Type,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use onesweep::{FileError, SweepError, SweptFile, Timestamp};
use pyo3::{
    prelude::*,
    types::{PyCapsule, PyDict, PyList},
};

use super::{
    fault,
    file::kind,
    options::Options,
    reader::{checked, complain},
    wait,
};

/// Rows of a batch.
const BATCH_ROWS: usize = 65_536;

fn schema() -> SchemaRef {
    let text = |name: &str, nullable| Field::new(name, DataType::Utf8, nullable);
    let number = |name: &str, of| Field::new(name, of, false);
    let time = |name: &str| Field::new(name, DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())), true);
    let kind = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    Arc::new(Schema::new(vec![
        text("path", false),
        Field::new("path_bytes", DataType::Binary, true),
        Field::new("kind", kind, false),
        number("size", DataType::UInt64),
        number("mode", DataType::UInt32),
        number("uid", DataType::UInt32),
        number("gid", DataType::UInt32),
        number("nlink", DataType::UInt32),
        number("ino", DataType::UInt64),
        number("dev", DataType::UInt64),
        number("rdev", DataType::UInt64),
        time("mtime"),
        time("ctime"),
        time("atime"),
        text("link_target", true),
        text("linked_to", true),
    ]))
}

/// Rows of a batch that is being made.
struct Rows {
    count: usize,
    path: StringBuilder,
    path_bytes: BinaryBuilder,
    kind: StringDictionaryBuilder<Int8Type>,
    numbers: [UInt64Builder; 4],
    small: [UInt32Builder; 4],
    times: [TimestampNanosecondBuilder; 3],
    link_target: StringBuilder,
    linked_to: StringBuilder,
}

impl Rows {
    fn new() -> Self {
        Self {
            count: 0,
            path: StringBuilder::new(),
            path_bytes: BinaryBuilder::new(),
            kind: StringDictionaryBuilder::new(),
            numbers: Default::default(),
            small: Default::default(),
            times: Default::default(),
            link_target: StringBuilder::new(),
            linked_to: StringBuilder::new(),
        }
    }

    /// A row for each name.
    fn add(&mut self, file: &SweptFile) {
        let first = file.linked_to();
        self.add_name(file, file.path(), first);
        for link in file.links() {
            self.add_name(file, link, Some(file.path()));
        }
    }

    fn add_name(&mut self, file: &SweptFile, path: &std::path::Path, first: Option<&std::path::Path>) {
        let metadata = file.metadata();
        self.count += 1;
        match path.to_str() {
            Some(text) => {
                self.path.append_value(text);
                self.path_bytes.append_null();
            }
            None => {
                self.path.append_value(path.to_string_lossy());
                self.path_bytes.append_value(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()));
            }
        }
        self.kind.append_value(kind(metadata.kind));
        for (builder, value) in self.numbers.iter_mut().zip([metadata.size, metadata.ino, metadata.dev, metadata.rdev])
        {
            builder.append_value(value);
        }
        for (builder, value) in self.small.iter_mut().zip([metadata.mode, metadata.uid, metadata.gid, metadata.nlink]) {
            builder.append_value(value);
        }
        for (builder, time) in self.times.iter_mut().zip([metadata.mtime, metadata.ctime, metadata.atime]) {
            builder.append_option(nanoseconds(time));
        }
        self.link_target.append_option(file.link_target().map(|target| target.to_string_lossy()));
        self.linked_to.append_option(first.map(|first| first.to_string_lossy()));
    }

    fn finish(mut self) -> Result<RecordBatch, ArrowError> {
        let [size, ino, dev, rdev] = self.numbers.map(|mut builder| Arc::new(builder.finish()) as ArrayRef);
        let [mode, uid, gid, nlink] = self.small.map(|mut builder| Arc::new(builder.finish()) as ArrayRef);
        let [mtime, ctime, atime] =
            self.times.map(|mut builder| Arc::new(builder.finish().with_timezone("UTC")) as ArrayRef);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.path.finish()),
            Arc::new(self.path_bytes.finish()),
            Arc::new(self.kind.finish()),
            size,
            mode,
            uid,
            gid,
            nlink,
            ino,
            dev,
            rdev,
            mtime,
            ctime,
            atime,
            Arc::new(self.link_target.finish()),
            Arc::new(self.linked_to.finish()),
        ];
        RecordBatch::try_new(schema(), columns)
    }
}

/// Nothing for what 64 bits don't hold, before 1677 and after 2262.
fn nanoseconds(time: Timestamp) -> Option<i64> {
    time.seconds.checked_mul(1_000_000_000)?.checked_add(i64::from(time.nanoseconds))
}

/// A table in memory.
#[pyclass(frozen, module = "onesweep")]
pub(crate) struct Table {
    batches: Vec<RecordBatch>,
}

#[pymethods]
impl Table {
    #[getter]
    fn num_rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    #[getter]
    fn column_names<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, schema().fields().iter().map(|field| field.name().clone()))
    }

    #[getter]
    fn nbytes(&self) -> usize {
        self.batches.iter().map(RecordBatch::get_array_memory_size).sum()
    }

    fn __len__(&self) -> usize {
        self.num_rows()
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&*schema()).map_err(not_made)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // Another schema is a wish that need not be met.
        let _ = requested_schema;
        let batches: Vec<Result<RecordBatch, ArrowError>> = self.batches.iter().cloned().map(Ok).collect();
        let reader = RecordBatchIterator::new(batches, schema());
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), c"arrow_array_stream")
    }

    fn __repr__(&self) -> String {
        format!("<onesweep.Table: {} rows>", self.num_rows())
    }
}

fn not_made(error: ArrowError) -> PyErr {
    pyo3::exceptions::PyRuntimeError::new_err(error.to_string())
}

#[pyfunction]
#[pyo3(signature = (paths, *, onerror = None, **options))]
pub(crate) fn table(
    py: Python<'_>,
    paths: &Bound<'_, PyAny>,
    onerror: Option<Bound<'_, PyAny>>,
    options: Option<&Bound<'_, PyDict>>,
) -> PyResult<Table> {
    let onerror = checked(onerror)?;
    let Options { read, style, cancel, .. } = Options::of(paths, options)?;
    let errors: Mutex<Vec<FileError>> = Mutex::default();
    let stop = cancel.clone();
    let fill = || -> Result<Result<Vec<RecordBatch>, ArrowError>, SweepError> {
        let (mut batches, mut rows) = (Vec::new(), Rows::new());
        for item in read.content(false).start()? {
            match item {
                // The second coming of a directory is no row.
                Ok(file) if file.is_closing() => {}
                Ok(file) => rows.add(&file),
                Err(error) => errors.lock().unwrap_or_else(PoisonError::into_inner).push(error),
            }
            if rows.count >= BATCH_ROWS {
                match std::mem::replace(&mut rows, Rows::new()).finish() {
                    Ok(batch) => batches.push(batch),
                    Err(error) => return Ok(Err(error)),
                }
            }
        }
        Ok(rows.finish().map(|last| {
            batches.push(last);
            batches
        }))
    };
    let filled = wait::interruptible(py, move || stop.cancel(), fill)?;
    let batches = filled.map_err(|error| fault::of_sweep(py, &error, style))?.map_err(not_made)?;
    for error in errors.into_inner().unwrap_or_else(PoisonError::into_inner) {
        complain(py, &error, style, onerror.as_ref())?;
    }
    Ok(Table { batches })
}
