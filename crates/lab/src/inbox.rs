//! The commands that have arrived and wait, each with the virtual time of its arrival.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::disk::drive::Command;
use crate::disk::queue::Waiting;

/// A command, with where its answer goes.
pub(crate) struct Job<R> {
    pub(crate) command: Command,
    pub(crate) reply: R,
    arrived: Instant,
    /// The virtual time of its arrival.
    arrived_ms: f64,
}

/// In order of arrival.
pub(crate) struct Inbox<R> {
    jobs: VecDeque<Job<R>>,
    /// The disk's virtual time, as far as it is known here.
    now_ms: f64,
}

impl<R> Default for Inbox<R> {
    fn default() -> Self {
        Self { jobs: VecDeque::new(), now_ms: 0.0 }
    }
}

impl<R> Inbox<R> {
    pub(crate) fn arrive(&mut self, command: Command, reply: R, arrived: Instant) {
        self.jobs.push_back(Job { command, reply, arrived, arrived_ms: self.now_ms });
    }

    pub(crate) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// How long nothing had come since `done` when the oldest command that waits did.
    pub(crate) fn idle_since(&self, done: Instant) -> Duration {
        self.jobs.front().map_or(Duration::ZERO, |oldest| oldest.arrived.saturating_duration_since(done))
    }

    /// The disk was at work until then. What came meanwhile waits since the work began.
    pub(crate) fn worked_until(&mut self, now_ms: f64) {
        self.now_ms = now_ms;
    }

    /// The disk was idle until then, which is when the oldest command came: none of them has waited for longer.
    pub(crate) fn idle_until(&mut self, now_ms: f64) {
        self.now_ms = now_ms;
        for job in &mut self.jobs {
            job.arrived_ms = now_ms;
        }
    }

    /// The first commands, at most `depth` of them, as the drive sees them.
    pub(crate) fn waiting(&self, depth: usize) -> Vec<Waiting> {
        let waiting = |job: &Job<R>| Waiting { command: job.command, waited_ms: self.now_ms - job.arrived_ms };
        self.jobs.iter().take(depth).map(waiting).collect()
    }

    pub(crate) fn take(&mut self, index: usize) -> Option<Job<R>> {
        self.jobs.remove(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::drive::Drive;
    use crate::disk::geometry::Span;
    use crate::disk::model::DiskModel;
    use crate::disk::queue;

    fn waited_ms(inbox: &Inbox<()>) -> Vec<f64> {
        inbox.waiting(32).iter().map(|waiting| waiting.waited_ms).collect()
    }

    #[test]
    fn only_time_at_work_is_waited_for() {
        let (mut inbox, done) = (Inbox::default(), Instant::now());
        inbox.worked_until(10.0);
        for late in [2000, 2001] {
            inbox.arrive(Command::read(0, 4096), (), done + Duration::from_millis(late));
        }
        assert_eq!(inbox.idle_since(done), Duration::from_secs(2));
        inbox.idle_until(2010.0);
        inbox.arrive(Command::read(0, 4096), (), done + Duration::from_millis(2002));
        assert_eq!(waited_ms(&inbox), [0.0; 3]);
        inbox.take(0);
        inbox.worked_until(2015.0);
        inbox.arrive(Command::read(0, 4096), (), done + Duration::from_millis(2003));
        assert_eq!(waited_ms(&inbox), [5.0, 5.0, 0.0]);
        assert_eq!(inbox.idle_since(done + Duration::from_secs(3)), Duration::ZERO);
    }

    /// Idleness beyond the drive's patience must not make it serve first come, first served.
    #[test]
    fn after_idleness_the_nearest_still_comes_first() {
        let model = DiskModel::named("barracuda-7200.11").unwrap();
        let idle_ms = 1.5 * model.patience_ms;
        let drive = Drive::new(model, 1 << 33, Span::WHOLE);
        let (mut inbox, done) = (Inbox::default(), Instant::now());
        for start in [7 << 30, 0] {
            inbox.arrive(Command::read(start, 4096), (), done + Duration::from_secs_f64(idle_ms / 1000.0));
        }
        inbox.idle_until(idle_ms);
        assert_eq!(queue::choose(&inbox.waiting(32), &drive), Some(1));
    }
}
