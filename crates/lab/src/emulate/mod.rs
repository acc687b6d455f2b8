//! `onesweep-lab disk`: two processes that guard each other.
//!
//! The first sets up and waits ([`guard`]); the second serves the disk ([`mod@serve`]). Whichever ends first, the other takes
//! everything down: the first sees that its child is gone, the second that its standard input is closed. If both are
//! killed at once, the next run on the same directory takes down what it finds there. Meanwhile [`command`] waits for a
//! signal, or for the end of a program beside the disk.

mod command;
mod guard;
mod serve;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub(crate) use command::run;
pub(crate) use guard::Emulation;
pub(crate) use serve::serve;

use crate::disk::model::DiskModel;

/// What the serving process has to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) image: PathBuf,
    pub(crate) dir: PathBuf,
    pub(crate) model: DiskModel,
    pub(crate) span: (f64, f64),
    pub(crate) real: Option<f64>,
    pub(crate) trace: Option<PathBuf>,
    pub(crate) faults: Vec<String>,
    pub(crate) read_only: bool,
}

/// What the loop device and its mount shall be.
#[derive(Debug, Clone, Default)]
pub(crate) struct MountSpec {
    pub(crate) target: PathBuf,
    pub(crate) fs: Option<String>,
    pub(crate) options: Option<String>,
    pub(crate) rotational: Option<bool>,
    pub(crate) scheduler: Option<String>,
    pub(crate) read_ahead_kb: Option<u32>,
}
