//! Being told to end: what is under way looks here between two steps, so that it can take down what it has set up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// What is said of work that was told to end.
pub(crate) const INTERRUPTED: &str = "interrupted";

/// The exit code then, as shells know it from SIGINT.
pub(crate) const EXIT_CODE: u8 = 130;

/// Whether this process was told to end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// SIGINT, SIGTERM and SIGHUP no longer end this process, but are seen here.
    pub(crate) fn by_signals() -> Result<Self, String> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&interrupt.0)).map_err(|error| error.to_string())?;
        }
        Ok(interrupt)
    }

    pub(crate) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error once it came.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.came() { Err(INTERRUPTED.into()) } else { Ok(()) }
    }

    #[cfg(test)]
    pub(crate) fn tell(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
