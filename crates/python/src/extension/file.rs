//! A file that was swept, and its content.

use std::{
    ffi::c_int,
    io::{self, Read, Seek, SeekFrom},
    ops::RangeInclusive,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use onesweep::{Bytes, Kind, Metadata, Route, SweptFile};
use pyo3::{
    exceptions::{PyBufferError, PyMemoryError, PyValueError},
    ffi as c, intern,
    prelude::*,
    sync::{MutexExt, PyOnceLock},
    types::{PyBytes, PyDict, PyMemoryView, PyTuple},
};

use super::{fault, ffi, fork::Birth, paths::Style, wait::PATIENCE};

/// What Python calls the ways by which content comes.
pub(crate) const ROUTES: [(&str, Route); 5] = [
    ("no-read", Route::NoRead),
    ("cached", Route::Cached),
    ("swept", Route::Swept),
    ("reread", Route::Reread),
    ("streamed", Route::Streamed),
];

/// Bytes of a stream that are read between two looks at signals: at least, and at most.
const PART_BYTES: RangeInclusive<usize> = 4 << 10..=8 << 20;

/// With so many it begins, until it is seen how quickly they come.
const FIRST_PART_BYTES: usize = 256 << 10;

/// How many bytes to read next: more when the last ones came soon, fewer over a slow line or below a limit of the rate.
fn next_part(part: usize, took: Duration) -> usize {
    let next = if took < PATIENCE { part.saturating_mul(2) } else { part / 2 };
    next.clamp(*PART_BYTES.start(), *PART_BYTES.end())
}

/// What is lent to Python. While it lives, its content counts against the budget, unless it is taken over.
pub(crate) struct Lent(Mutex<Held>);

struct Held {
    swept: SweptFile,
    /// The content once it has left the budget. Its bytes are where they were.
    taken: Option<Bytes>,
}

impl Held {
    fn bytes(&self) -> Option<&[u8]> {
        self.taken.as_deref().or_else(|| self.swept.bytes())
    }

    fn take_over(&mut self) {
        if let Some(bytes) = self.swept.take_bytes() {
            self.taken = Some(bytes);
        }
    }

    fn release(&mut self) {
        self.swept.release();
        self.taken = None;
    }

    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(taken) = &self.taken {
            let from = usize::try_from(offset).unwrap_or(usize::MAX).min(taken.len());
            let len = buffer.len().min(taken.len() - from);
            buffer[..len].copy_from_slice(&taken[from..from + len]);
            return Ok(len);
        }
        let mut reader = self.swept.reader();
        reader.seek(SeekFrom::Start(offset))?;
        let mut filled = 0;
        while filled < buffer.len() {
            match reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn has_content(&self) -> bool {
        self.taken.is_some() || self.swept.has_content()
    }
}

impl Lent {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the content Python's own: it leaves the budget.
    pub(crate) fn take_over(&self) {
        self.held().take_over();
    }
}

/// One entry of a swept tree: its path, its attributes, and its content as long as anybody looks at it.
#[pyclass(frozen, generic, module = "onesweep")]
pub(crate) struct File {
    lent: Arc<Lent>,
    style: Style,
    stat: PyOnceLock<Py<PyAny>>,
    /// Views that look at the content.
    views: AtomicUsize,
    birth: Birth,
}

impl Drop for File {
    fn drop(&mut self) {
        if !self.birth.is_here() {
            // In a child of a fork the lock of the budget may be held for ever, so nothing is given back.
            std::mem::forget(Arc::clone(&self.lent));
        }
    }
}

impl File {
    pub(crate) fn new(swept: SweptFile, style: Style) -> Self {
        let lent = Arc::new(Lent(Mutex::new(Held { swept, taken: None })));
        Self { lent, style, stat: PyOnceLock::new(), views: AtomicUsize::new(0), birth: Birth::now() }
    }

    /// What of it counts against the budget, if anything does.
    pub(crate) fn lent(&self) -> Option<Weak<Lent>> {
        let has_bytes = self.lent.held().swept.bytes().is_some_and(|bytes| !bytes.is_empty());
        has_bytes.then(|| Arc::downgrade(&self.lent))
    }

    /// Looks at what was swept.
    pub(crate) fn look<T>(&self, py: Python<'_>, look: impl FnOnce(&SweptFile) -> T) -> T {
        look(&self.held(py).swept)
    }

    fn held(&self, py: Python<'_>) -> MutexGuard<'_, Held> {
        self.lent.0.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }

    fn paths<'py, 'a>(&self, py: Python<'py>, paths: impl Iterator<Item = &'a Path>) -> PyResult<Bound<'py, PyTuple>> {
        let all: PyResult<Vec<_>> = paths.map(|path| self.style.path(py, path)).collect();
        PyTuple::new(py, all?)
    }

    fn not_read(&self, py: Python<'_>, error: &io::Error) -> PyErr {
        let path = self.held(py).swept.path().to_owned();
        fault::of_content(py, &path, self.style, error)
    }

    /// Reads what was there when it was looked at, in parts and without the lock of Python. Who finds less meets a change.
    fn fill_all(&self, py: Python<'_>, offset: u64, buffer: &mut [u8]) -> PyResult<()> {
        let (mut filled, mut part) = (0, FIRST_PART_BYTES);
        while filled < buffer.len() {
            let wanted = part.min(buffer.len() - filled);
            let (at, here) = (offset + filled as u64, &mut buffer[filled..filled + wanted]);
            let began = Instant::now();
            let read = py.detach(|| self.lent.held().read_at(at, here));
            let read =
                read.and_then(|read| if read == wanted { Ok(read) } else { Err(io::ErrorKind::UnexpectedEof.into()) });
            filled += read.map_err(|error| self.not_read(py, &error))?;
            part = next_part(part, began.elapsed());
            py.check_signals()?;
        }
        Ok(())
    }

    /// What is in memory is there in a child of a fork, too.
    fn check_content(&self, py: Python<'_>) -> PyResult<()> {
        if self.held_bytes(py) {
            return Ok(());
        }
        self.birth.check()?;
        // An exception is made by code of Python, in which a signal handler may look at this file.
        let none_of = {
            let held = self.held(py);
            (!held.has_content()).then(|| held.swept.path().to_owned())
        };
        none_of.map_or(Ok(()), |path| Err(fault::no_content(py, &path, self.style)))
    }

    fn held_bytes(&self, py: Python<'_>) -> bool {
        self.held(py).bytes().is_some()
    }

    /// All of a stream, in memory of Python's.
    fn read_stream<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        let size = self.held(py).swept.metadata().size;
        let len = usize::try_from(size).map_err(|_| PyMemoryError::new_err(format!("{size} bytes are too many")))?;
        let bytes = PyBytes::new_with(py, len, |buffer| self.fill_all(py, 0, buffer))?;
        PyMemoryView::from(&bytes)
    }
}

#[pymethods]
impl File {
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.style.path(py, self.held(py).swept.path())
    }

    fn __fspath__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.style.path(py, self.held(py).swept.open_path())
    }

    #[getter]
    fn open_path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.__fspath__(py)
    }

    #[getter]
    fn links<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        self.paths(py, self.held(py).swept.links().iter().map(|link| &**link))
    }

    #[getter]
    fn linked_to<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.held(py).swept.linked_to().map(|first| self.style.path(py, first)).transpose()
    }

    #[getter]
    fn link_target<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.held(py).swept.link_target().map(|target| self.style.path(py, target)).transpose()
    }

    #[getter]
    fn stat<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let metadata = *self.held(py).swept.metadata();
        Ok(self.stat.get_or_try_init(py, || stat_result(py, &metadata).map(Bound::unbind))?.bind(py).clone())
    }

    #[getter]
    fn size(&self, py: Python<'_>) -> u64 {
        self.held(py).swept.metadata().size
    }

    #[getter]
    fn kind(&self, py: Python<'_>) -> &'static str {
        kind(self.held(py).swept.metadata().kind)
    }

    #[getter]
    fn route(&self, py: Python<'_>) -> &'static str {
        let route = self.held(py).swept.route();
        ROUTES.iter().find(|&&(_, known)| known == route).map_or("no-read", |&(name, _)| name)
    }

    #[getter]
    fn is_closing(&self, py: Python<'_>) -> bool {
        self.held(py).swept.is_closing()
    }

    #[getter]
    fn is_in_snapshot(&self, py: Python<'_>) -> bool {
        self.held(py).swept.is_in_snapshot()
    }

    #[getter]
    fn is_dirty(&self, py: Python<'_>) -> bool {
        self.held(py).swept.marks().dirty
    }

    #[getter]
    fn is_encrypted(&self, py: Python<'_>) -> bool {
        self.held(py).swept.marks().encrypted
    }

    /// Whether the content is in memory, so that `data` costs nothing.
    #[getter]
    fn is_in_memory(&self, py: Python<'_>) -> bool {
        self.held_bytes(py)
    }

    #[getter]
    fn ranges(&self, py: Python<'_>) -> Vec<(u64, u64)> {
        self.held(py).swept.data_ranges().iter().map(|range| (range.start, range.end)).collect()
    }

    #[getter]
    fn xattrs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let xattrs = PyDict::new(py);
        for (name, value) in self.held(py).swept.xattrs() {
            let name =
                Style::Text.path(py, Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(name)))?;
            xattrs.set_item(name, PyBytes::new(py, value))?;
        }
        Ok(xattrs)
    }

    #[getter]
    fn data<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyMemoryView>> {
        let (py, file) = (slf.py(), slf.get());
        if file.held_bytes(py) {
            return PyMemoryView::from(slf.as_any());
        }
        file.check_content(py)?;
        file.read_stream(py)
    }

    #[pyo3(signature = (size, offset = 0))]
    fn pread<'py>(&self, py: Python<'py>, size: usize, offset: u64) -> PyResult<Bound<'py, PyBytes>> {
        self.check_content(py)?;
        let there = self.held(py).swept.metadata().size.saturating_sub(offset);
        let size = size.min(usize::try_from(there).unwrap_or(usize::MAX));
        PyBytes::new_with(py, size, |buffer| self.fill_all(py, offset, buffer))
    }

    #[pyo3(signature = (size = 1 << 20))]
    fn chunks(slf: Bound<'_, Self>, size: usize) -> PyResult<Chunks> {
        if size == 0 {
            return Err(PyValueError::new_err("chunks of 0 bytes would never end"));
        }
        slf.get().check_content(slf.py())?;
        Ok(Chunks { file: slf.unbind(), size, at: Mutex::new(0) })
    }

    fn take(slf: &Bound<'_, Self>) -> PyResult<()> {
        let file = slf.get();
        file.birth.check()?;
        file.check_content(slf.py())?;
        file.held(slf.py()).take_over();
        Ok(())
    }

    fn release(&self, py: Python<'_>) -> PyResult<()> {
        if !self.birth.is_here() {
            return Ok(());
        }
        let mut held = self.held(py);
        if self.views.load(Ordering::Acquire) > 0 {
            return Err(PyBufferError::new_err("a memoryview still looks at the content; release it first"));
        }
        held.release();
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.release(py)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let path = self.path(py)?.repr()?;
        Ok(format!("<onesweep.File {path}: {}, {} bytes>", self.kind(py), self.size(py)))
    }

    #[allow(unsafe_code)]
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut c::Py_buffer, flags: c_int) -> PyResult<()> {
        let (py, file) = (slf.py(), slf.get());
        let held = file.held(py);
        let bytes: *const [u8] = match held.bytes() {
            Some(bytes) => bytes,
            None => return Err(PyBufferError::new_err("the content is not in memory")),
        };
        // SAFETY: Python wants the view to be filled. Bytes never move: what is taken over stays where it is, and nothing is
        // released while a view is counted.
        unsafe { ffi::show(slf.as_any(), bytes, view, flags) }?;
        file.views.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    #[allow(unsafe_code)]
    unsafe fn __releasebuffer__(&self, _view: *mut c::Py_buffer) {
        self.views.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The content of a file, part by part.
#[pyclass(frozen, module = "onesweep")]
pub(crate) struct Chunks {
    file: Py<File>,
    size: usize,
    /// Where the next one begins.
    at: Mutex<u64>,
}

impl Chunks {
    /// Goes to another place; gives the one before.
    fn move_to(&self, py: Python<'_>, place: impl FnOnce(u64) -> u64) -> u64 {
        let mut at = self.at.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        let next = place(*at);
        std::mem::replace(&mut *at, next)
    }
}

#[pymethods]
impl Chunks {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        // Without the lock while it reads, since a signal handler may ask for the next one then.
        let at = self.move_to(py, |at| at.saturating_add(self.size as u64));
        let chunk = self.file.get().pread(py, self.size, at).inspect_err(|_| {
            // It is read by who asks again, unless somebody has the one behind it.
            self.move_to(py, |next| if next == at.saturating_add(self.size as u64) { at } else { next });
        })?;
        Ok((!chunk.as_bytes().is_empty()).then_some(chunk))
    }
}

pub(crate) fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Directory => "directory",
        Kind::Symlink => "symlink",
        Kind::Fifo => "fifo",
        Kind::Socket => "socket",
        Kind::CharDevice => "char-device",
        Kind::BlockDevice => "block-device",
    }
}

/// An `os.stat_result`, without blocks.
fn stat_result<'py>(py: Python<'py>, metadata: &Metadata) -> PyResult<Bound<'py, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let Metadata { mode, uid, gid, size, mtime, ctime, atime, nlink, ino, dev, rdev, .. } = *metadata;
    let plain = (mode, ino, dev, nlink, uid, gid, size, atime.seconds, mtime.seconds, ctime.seconds);
    let more = PyDict::new(py);
    more.set_item(intern!(py, "st_rdev"), rdev)?;
    let times = [
        (atime, intern!(py, "st_atime"), intern!(py, "st_atime_ns")),
        (mtime, intern!(py, "st_mtime"), intern!(py, "st_mtime_ns")),
        (ctime, intern!(py, "st_ctime"), intern!(py, "st_ctime_ns")),
    ];
    for (time, whole, exact) in times {
        more.set_item(whole, time.seconds as f64 + 1e-9 * f64::from(time.nanoseconds))?;
        more.set_item(exact, i128::from(time.seconds) * 1_000_000_000 + i128::from(time.nanoseconds))?;
    }
    CLASS.import(py, "os", "stat_result")?.call1((plain, more))
}
