//! How a question is answered, or why it isn't.

use std::io;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{store::StoreError, totals::Totals};

/// Why a question has no answer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SummaryError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The tracker.
    #[error("cannot tell what has changed: {0}")]
    Tracker(#[source] io::Error),
    /// What waits in memory can't be written.
    #[error("cannot have everything written: {0}")]
    Sync(#[source] io::Error),
    /// Files of which nobody tells what is written can't be looked at.
    #[error("cannot look at files that are open for writing: {0}")]
    OpenFiles(#[source] io::Error),
    /// What was harvested for who waits for so long failed, for this reason.
    #[error("{0}")]
    Harvest(String),
    /// Time was up, and nothing is stored of it.
    #[error("nothing is stored of it yet, and the time is up")]
    Late,
    /// It isn't known, nor found.
    #[error("no such directory below what is tracked")]
    Unknown,
}

/// How a question is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Freshness {
    /// What has changed is harvested first.
    #[default]
    Exact,
    /// What the store holds, without any reading.
    Cached,
    /// What waits in memory is written before, so that blocks are what they will be, too.
    Synced,
}

/// The answer to a question for a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What it comes to.
    pub totals: Totals,
    /// When it was harvested itself, in seconds since 1970.
    pub harvested_at: i64,
    /// Nothing is known to have changed since; else files are written just now faster than they can be counted, or only what
    /// is stored was asked for, or some are written and nobody tells of it, or it can't be found out just now where something is mounted.
    pub is_exact: bool,
    /// When files were looked for of which nobody tells what is written, in seconds since 1970: those that are mapped, written by
    /// `io_submit` or through a loop device, and those that are open where sizes follow at close. What was written so since may not be
    /// counted, also where there was none then and all else is exact. `None` where they were looked at for this answer, or nothing was.
    pub checked_at: Option<i64>,
    /// Directories below that could not be read.
    pub unreadable: usize,
    /// Who asked didn't wait any longer: it is what was stored by then, and at least so many directories below have changed that
    /// it doesn't count yet.
    pub late: Option<usize>,
    /// So many seconds ago it was right: since then something has changed that it doesn't count, or may have; 0 where nothing has.
    pub age: i64,
}
