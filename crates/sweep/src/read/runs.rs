//! Requests that lie directly behind each other, and so begin together.
//!
//! The kernel makes one request of the disk of neighbours that are handed over at once; handed over one by one, each is a request of
//! its own, and takes the time of one. So a request is held back where the next one of the plan goes on where it ends. It waits
//! for nothing but that the next file is opened: when there is anything else to wait for, what is held begins first.

use std::collections::HashMap;

use crate::plan::Request;

/// The longest run, in bytes: what a disk takes as one request.
const RUN_BYTES: u64 = 512 << 10;

/// The most requests of a run.
const RUN_REQUESTS: usize = 32;

/// So many runs of that many find room beside each other, which keeps a disk busy: each read has a file open, and a place in the ring.
const FULL_RUNS: usize = 7;

/// The runs of a plan. Each counts as one request in flight.
#[derive(Debug)]
pub(super) struct Runs {
    depth: usize,
    /// Else each read is a run of its own.
    joins: bool,
    /// Requests and bytes of the run that was begun last.
    requests: usize,
    bytes: u64,
    /// The next read goes on with it.
    goes_on: bool,
    /// It has another request to come.
    holds: bool,
    number: u64,
    /// Reads in flight, by run.
    reads: HashMap<u64, usize>,
}

impl Runs {
    /// At most `depth` runs in flight, of requests that are joined where the queue `joins` them and may hold as many reads as that takes,
    /// `reads_max` at most. Gives as well how many reads it is to hold.
    pub(super) fn new(depth: usize, joins: bool, reads_max: usize) -> (Self, usize) {
        let reads = (depth + FULL_RUNS * RUN_REQUESTS).min(reads_max);
        // Each run that begins needs room for all of it.
        let joins = joins && reads >= depth + RUN_REQUESTS;
        let (requests, bytes, goes_on, holds, number) = (0, 0, false, false, 0);
        let runs = Self { depth, joins, requests, bytes, goes_on, holds, number, reads: HashMap::new() };
        (runs, if joins { reads } else { depth })
    }

    /// Takes note of the request that is to begin, and of the one behind it.
    pub(super) fn meet(&mut self, request: &Request, next: Option<&Request>) {
        self.goes_on = self.holds;
        if !self.goes_on {
            (self.requests, self.bytes) = (0, 0);
        }
        self.requests += 1;
        self.bytes += request.length;
        self.holds = self.joins
            && self.requests < RUN_REQUESTS
            && next.is_some_and(|next| {
                request.has_address() && request.end() == next.address && self.bytes + next.length <= RUN_BYTES
            });
    }

    /// What is read now begins with what is read next.
    pub(super) fn holds(&self) -> bool {
        self.holds
    }

    /// What is read now has to wait until something is over, where so many reads are in flight of so many that may be.
    pub(super) fn is_full(&self, in_flight: usize, capacity: usize) -> bool {
        let room = capacity - in_flight;
        match self.goes_on {
            true => room == 0,
            false => self.reads.len() >= self.depth || room < if self.joins { RUN_REQUESTS } else { 1 },
        }
    }

    /// A read begins; gives its run.
    pub(super) fn begin(&mut self) -> u64 {
        if !std::mem::replace(&mut self.goes_on, self.holds) {
            self.number += 1;
        }
        *self.reads.entry(self.number).or_default() += 1;
        self.number
    }

    /// A read of a run is over.
    pub(super) fn end(&mut self, run: u64) {
        if let Some(reads) = self.reads.get_mut(&run) {
            *reads -= 1;
            if *reads == 0 {
                self.reads.remove(&run);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::NO_ADDRESS;

    fn request((address, length): (u64, u64)) -> Request {
        Request { address, length, ..Request::default() }
    }

    /// The runs of requests at these places, each by its number, and whether each is held.
    fn runs(runs: &mut Runs, places: &[(u64, u64)]) -> Vec<(u64, bool)> {
        let requests: Vec<Request> = places.iter().copied().map(request).collect();
        let each = requests.iter().enumerate().map(|(at, request)| {
            runs.meet(request, requests.get(at + 1));
            (runs.begin(), runs.holds())
        });
        each.collect()
    }

    #[test]
    fn neighbours_are_one_run() {
        let places = [(0, 8192), (8192, 4096), (12_288, 4096), (20_480, 4096), (24_576, 4096)];
        let (mut joining, reads) = Runs::new(16, true, 1000);
        assert_eq!(reads, 16 + FULL_RUNS * RUN_REQUESTS);
        assert_eq!(runs(&mut joining, &places), [(1, true), (1, true), (1, false), (2, true), (2, false)]);
        let (mut single, reads) = Runs::new(16, false, 1000);
        assert_eq!(reads, 16);
        assert_eq!(runs(&mut single, &places), [(1, false), (2, false), (3, false), (4, false), (5, false)]);
        let (mut joining, _) = Runs::new(16, true, 1000);
        let nowhere = [(NO_ADDRESS, 4096), (NO_ADDRESS, 4096), (8192, 4096), (4096, 4096)];
        assert_eq!(runs(&mut joining, &nowhere), [(1, false), (2, false), (3, false), (4, false)]);
    }

    /// What is longer or of more requests would be several requests anyway, and the disk would stand still while files are opened.
    #[test]
    fn a_run_has_an_end() {
        let of = |length: u64, count: u64| {
            let places: Vec<(u64, u64)> = (0..count).map(|at| (at * length, length)).collect();
            let runs = runs(&mut Runs::new(16, true, 1000).0, &places);
            (1..=runs.last().unwrap().0).map(|run| runs.iter().filter(|each| each.0 == run).count()).collect::<Vec<_>>()
        };
        assert_eq!(of(4096, 70), [RUN_REQUESTS, RUN_REQUESTS, 70 - 2 * RUN_REQUESTS]);
        assert_eq!(of(RUN_BYTES / 4, 10), [4, 4, 2]);
        assert_eq!(of(RUN_BYTES, 3), [1, 1, 1]);
    }

    #[test]
    fn a_run_counts_as_one_and_finds_room_for_all_of_it() {
        let (mut two, capacity) = Runs::new(2, true, 2 * RUN_REQUESTS);
        assert_eq!(capacity, 2 * RUN_REQUESTS);
        let places = [(0, 4096), (4096, 4096), (12_288, 4096), (20_480, 4096)];
        let requests: Vec<Request> = places.into_iter().map(request).collect();
        for (at, is_full) in [false, false, false, true].into_iter().enumerate() {
            two.meet(&requests[at], requests.get(at + 1));
            assert_eq!(two.is_full(at, capacity), is_full, "{at}");
            if !is_full {
                two.begin();
            }
        }
        two.end(1);
        assert!(two.is_full(2, capacity), "the other read of it is in flight");
        two.end(1);
        assert!(!two.is_full(1, capacity));
        assert!(two.is_full(RUN_REQUESTS + 1, capacity), "there may come more of the run than the queue holds");
        two.end(2);
        assert!(two.reads.is_empty());
    }

    /// Each read in flight has its file open.
    #[test]
    fn few_descriptors_join_nothing() {
        let (mut runs_of_one, reads) = Runs::new(16, true, 15 + RUN_REQUESTS);
        assert_eq!(reads, 16);
        assert_eq!(runs(&mut runs_of_one, &[(0, 4096), (4096, 4096)]), [(1, false), (2, false)]);
        assert!(!runs_of_one.is_full(15, 16) && runs_of_one.is_full(16, 16));
        assert_eq!(Runs::new(16, true, 16 + RUN_REQUESTS).1, 16 + RUN_REQUESTS);
    }
}
