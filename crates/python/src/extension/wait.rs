//! Waiting for what takes long: without the lock of Python, and heeding Ctrl-C.

use std::{
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use pyo3::prelude::*;

/// After so long signals are looked at.
pub(crate) const PATIENCE: Duration = Duration::from_millis(50);

/// Does `work` in a thread of its own. When a signal handler of Python raises meanwhile, `stop` is called, work that has come to
/// its end is thrown away, and the exception goes on. Panics go through.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    stop: impl Fn() + Send,
    work: impl FnOnce() -> T + Send,
) -> PyResult<T> {
    py.detach(move || {
        thread::scope(|scope| {
            let (done, waiting) = mpsc::sync_channel(1);
            thread::Builder::new().name("onesweep".into()).spawn_scoped(scope, move || {
                let _ = done.send(work());
            })?;
            let mut raised = None;
            loop {
                match waiting.recv_timeout(PATIENCE) {
                    Ok(result) => return raised.map_or(Ok(result), Err),
                    Err(RecvTimeoutError::Timeout) if raised.is_some() => {}
                    Err(RecvTimeoutError::Timeout) => {
                        raised = Python::attach(|py| py.check_signals()).err();
                        if raised.is_some() {
                            stop();
                        }
                    }
                    // The end of the scope panics as the thread did.
                    Err(RecvTimeoutError::Disconnected) => {
                        return Err(pyo3::exceptions::PyRuntimeError::new_err("a fault"));
                    }
                }
            }
        })
    })
}
