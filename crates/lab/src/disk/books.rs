//! Sums of what the commands cost.

use serde::Serialize;

use super::drive::{Op, Service};

/// One kind of command.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Account {
    /// Commands served.
    pub(crate) requests: u64,
    /// Bytes asked for.
    pub(crate) bytes: u64,
    /// Modelled milliseconds of service.
    pub(crate) ms: f64,
}

/// The books since the last reset. All times are modelled milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Books {
    pub(crate) reads: Account,
    pub(crate) writes: Account,
    pub(crate) flushes: Account,
    /// The time that the disk was at work: the sum of all commands.
    pub(crate) busy_ms: f64,
    /// The time between a completion and the next arrival, with nothing waiting.
    pub(crate) think_ms: f64,
    /// How often the arm moved.
    pub(crate) seeks: u64,
    pub(crate) seek_ms: f64,
    pub(crate) rotation_ms: f64,
    pub(crate) transfer_ms: f64,
    pub(crate) overhead_ms: f64,
    pub(crate) spin_ups: u64,
    pub(crate) spin_up_ms: f64,
    /// Bytes that the drive's own memory served.
    pub(crate) buffered_bytes: u64,
    /// Commands that failed.
    pub(crate) errors: u64,
    /// The most commands that waited at once, the one chosen included.
    pub(crate) queue_max: u64,
    /// The mean number of commands to choose from.
    pub(crate) queue_mean: f64,
    #[serde(skip)]
    queued: u64,
}

impl Books {
    /// Enters a command of `bytes` that was chosen from `queued`.
    pub(crate) fn enter(&mut self, op: Op, bytes: u64, service: &Service, queued: u64) {
        let account = match op {
            Op::Read => &mut self.reads,
            Op::Write => &mut self.writes,
            Op::Flush => &mut self.flushes,
        };
        account.requests += 1;
        account.bytes += bytes;
        account.ms += service.ms();
        self.busy_ms += service.ms();
        self.seeks += service.seeks;
        self.seek_ms += service.seek_ms;
        self.rotation_ms += service.rotation_ms;
        self.transfer_ms += service.transfer_ms;
        self.overhead_ms += service.overhead_ms;
        self.spin_ups += u64::from(service.spin_up_ms > 0.0);
        self.spin_up_ms += service.spin_up_ms;
        self.buffered_bytes += service.buffered_bytes;
        self.queue_max = self.queue_max.max(queued);
        self.queued += queued;
        let requests = self.reads.requests + self.writes.requests + self.flushes.requests;
        self.queue_mean = self.queued as f64 / requests as f64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_entered_adds_up() {
        let mut books = Books::default();
        let service = Service { seek_ms: 4.0, rotation_ms: 2.0, transfer_ms: 1.0, seeks: 1, ..Service::default() };
        books.enter(Op::Read, 4096, &service, 1);
        books.enter(Op::Write, 512, &Service { overhead_ms: 0.5, buffered_bytes: 512, ..Service::default() }, 3);
        assert_eq!(books.reads, Account { requests: 1, bytes: 4096, ms: 7.0 });
        assert_eq!((books.busy_ms, books.seeks, books.buffered_bytes), (7.5, 1, 512));
        assert_eq!((books.queue_max, books.queue_mean), (3, 2.0));
        let json = serde_json::to_value(&books).unwrap();
        assert_eq!(json["reads"]["bytes"], 4096);
        assert!(json.get("queued").is_none());
    }
}
