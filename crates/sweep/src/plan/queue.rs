//! The time that a drive with a queue takes for requests, those to come chosen by what is near in time.
//!
//! A drive that holds several requests doesn't serve them as they came: it takes the one that passes below the head next.
//! What is asked for in the order of the disk is so served with fewer lost turns, at the price of a few stragglers.

use super::{
    DiskModel,
    geometry::{Geometry, Place, Span},
};

/// A request that has waited for so long goes first. An assumption: drives don't tell theirs.
const PATIENCE_MS: f64 = 1000.0;

#[derive(Debug, Clone, Copy)]
struct Waiting {
    start: u64,
    end: u64,
    place: Place,
    since_ms: f64,
}

/// A drive of a [`DiskModel`] that is kept busy with a number of requests.
#[derive(Debug, Clone)]
pub struct DriveQueue {
    geometry: Geometry,
    overhead_ms: f64,
    depth: usize,
    /// In order of arrival.
    waiting: Vec<Waiting>,
    head: Place,
    now_ms: f64,
}

impl DriveQueue {
    /// The drive holds `depth` requests, at least one; the head is at address 0.
    #[must_use]
    pub fn new(disk: &DiskModel, depth: usize) -> Self {
        let geometry = Geometry::new(disk, disk.capacity, Span::WHOLE);
        Self {
            head: geometry.place(0),
            geometry,
            overhead_ms: disk.overhead_ms,
            depth: depth.max(1),
            waiting: Vec::with_capacity(depth),
            now_ms: 0.0,
        }
    }

    /// Asks for `length` bytes at `address`, once there is room in the queue.
    pub fn push(&mut self, address: u64, length: u64) {
        if self.waiting.len() == self.depth {
            self.serve_one();
        }
        let (end, place) = (address.saturating_add(length), self.geometry.place(address));
        self.waiting.push(Waiting { start: address, end, place, since_ms: self.now_ms });
    }

    /// Lets time pass in which the drive does something else.
    pub fn pass(&mut self, ms: f64) {
        self.now_ms += ms;
    }

    /// Milliseconds until everything asked for is served.
    #[must_use]
    pub fn finish(mut self) -> f64 {
        while !self.waiting.is_empty() {
            self.serve_one();
        }
        self.now_ms
    }

    fn serve_one(&mut self) {
        let request = self.waiting.remove(self.choose());
        let positioning_ms = self.geometry.position_at(self.head, 0.0, request.place).ms();
        let transfer_ms = self.geometry.transfer_ms(request.start, request.end);
        self.now_ms += (positioning_ms + transfer_ms).max(self.overhead_ms);
        self.head = self.geometry.place(request.end);
    }

    /// The nearest in time; before it what ends where it begins, so that a stream is served from its front.
    fn choose(&self) -> usize {
        if self.waiting.first().is_some_and(|oldest| self.now_ms - oldest.since_ms > PATIENCE_MS) {
            return 0;
        }
        let mut best = (0, f64::INFINITY);
        for (index, request) in self.waiting.iter().enumerate() {
            let ms = self.geometry.position_at(self.head, 0.0, request.place).ms();
            if ms < best.1 {
                best = (index, ms);
            }
        }
        let mut best = best.0;
        for _ in 0..self.waiting.len() {
            let leads = |request: &Waiting| request.end == self.waiting[best].start && request.start < request.end;
            match self.waiting.iter().position(leads) {
                Some(index) => best = index,
                None => break,
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::round;

    #[track_caller]
    fn takes(depth: usize, requests: &[(u64, u64)], ms: f64) {
        let mut drive = DriveQueue::new(&round(), depth);
        for &(address, length) in requests {
            drive.push(address, length);
        }
        let took = drive.finish();
        assert!((took - ms).abs() < 1e-6, "{took} is not {ms}");
    }

    #[test]
    fn one_at_a_time_is_served_in_order() {
        // 1 ms; 0.5 ms of gap and 0.5 ms.
        takes(1, &[(0, 100_000), (150_000, 50_000)], 1.0 + 0.5 + 0.5);
        // A twelfth of the stroke in 5 ms, by when the place has passed at 2 ms: it comes by at 12 ms.
        takes(1, &[(0, 100_000), (100_300_000, 100_000)], 1.0 + 12.0 + 1.0);
    }

    /// In order, the second is just missed and costs a turn; a drive that may choose takes the third before it.
    #[test]
    fn a_queue_makes_use_of_a_turn() {
        let requests = [(0, 100_000), (1_150_000, 50_000), (1_600_000, 50_000)];
        takes(1, &requests, 1.0 + 10.5 + 0.5 + 4.0 + 0.5);
        takes(3, &requests, 1.0 + 5.0 + 0.5 + 5.0 + 0.5);
    }

    #[test]
    fn a_stream_is_served_from_its_front() {
        takes(4, &[(300_000, 100_000), (200_000, 100_000), (100_000, 100_000)], 1.0 + 3.0);
    }

    #[test]
    fn every_request_takes_the_overhead_at_least() {
        takes(8, &[(0, 1000), (1000, 1000), (2000, 100_000)], 0.1 + 0.1 + 1.0);
    }

    /// Near requests keep the head busy; the far one waits for a second, no longer.
    #[test]
    fn patience_ends() {
        let far = (600_000_000, 4096);
        let near = (0..3000).map(|number| (number * 100_000, 100_000));
        let mut drive = DriveQueue::new(&round(), 2);
        drive.push(far.0, far.1);
        let mut served_far_at = None;
        for (address, length) in near {
            drive.push(address, length);
            if !drive.waiting.iter().any(|request| request.start == far.0) {
                served_far_at.get_or_insert(drive.now_ms);
            }
        }
        let at = served_far_at.expect("it is served before the near ones end");
        assert!((1000.0..1030.0).contains(&at), "{at}");
    }
}
