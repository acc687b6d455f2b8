//! Clocks that are set while all goes on. What is waited for goes by one that nobody sets; when files changed is told by the other.

use std::sync::Arc;

use super::{Summaries, SummaryError};
use crate::{
    clock::{Clock, ahead},
    nodes::{Count, Slot},
    reading::Directories,
    tracker::Tracker,
};

/// By more than so many milliseconds nobody sets a clock little by little.
const STEP: i64 = 1000;

/// What is known of the clock that people set.
#[derive(Debug)]
pub(super) struct Told {
    /// By so much it was ahead of the other one, and the last harvest by then.
    ahead: i64,
    count: Count,
    /// Until then, in milliseconds, files may have changed before it was set: how long ago isn't known.
    pub(super) doubtful_until: i64,
}

impl Told {
    pub(super) fn by(clock: &dyn Clock) -> Told {
        Told { ahead: ahead(clock), count: 0, doubtful_until: i64::MIN }
    }
}

impl<D: Directories, T: Tracker> Summaries<D, T> {
    /// By another clock, from the beginning.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self.begin_times();
        self
    }

    /// Looks whether the clock was set. Then how long files have been as they are can't be told by their times: all that may not
    /// have settled, and all that was read since the last look, gets a whole time for that.
    pub(super) fn mind_the_clock(&mut self) -> Result<(), SummaryError> {
        let (ahead, count) = (ahead(&*self.clock), self.told.count);
        let by = ahead - self.told.ahead;
        (self.told.ahead, self.told.count) = (ahead, self.count);
        if by.abs() <= STEP {
            return Ok(());
        }
        self.shift_looked((by + by.signum() * STEP / 2) / STEP);
        let until = self.now_millis() + self.directories.settling_seconds() * 1000;
        self.told.doubtful_until = until;
        let nodes = &self.ledger.nodes;
        let read: Vec<Slot> = nodes.all().filter(|&slot| nodes.counts(slot).1 > count).collect();
        self.unsettled.extend_all(read, until);
        Ok(())
    }
}
