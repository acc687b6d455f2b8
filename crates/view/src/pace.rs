//! How much is brought in ahead of a program, and when: pure.
//!
//! Who reads on along a walk is helped by sweeps: by one of all that there is room for when it begins where a walk does, else by one that
//! is small at first, and larger each time, as long as what it brings in is read. Who picks files out, as a second back-up does, which
//! looks at all and reads what has changed, reads them alone: each sweep would read what nobody wants. Should that go on until a sweep
//! over all that there is would have taken no longer, and there is room for all, that sweep is made: so an order that nobody knows
//! costs twice what it had to, and no more.

use std::{collections::VecDeque, time::Duration};

use crate::course::READ_PART;

/// What a program opens is judged by so many at least, and so many at most.
const FEWEST: usize = 8;
const MOST: usize = 16;

/// Page-cache bytes of the first sweep in the middle of a walk, and how many times as many the next one has.
const FIRST_BYTES: u64 = 8 << 20;
const MORE: u64 = 4;
/// Files that have to be read on at most before a sweep is tried again.
const NEEDED_MOST: usize = 1024;

/// What a file costs that is read alone, from a disk that seeks, and in a sweep, roughly: only their ratio counts. On other disks a file
/// alone costs no more.
const FILE_ALONE: Duration = Duration::from_millis(10);
const FILE_SWEPT: Duration = Duration::from_micros(500);
const BYTES_A_MICROSECOND: u64 = 100;

/// Files, and their page-cache bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

impl Load {
    /// One file more, of so many bytes.
    pub(crate) fn add(&mut self, bytes: u64) {
        (self.files, self.bytes) = (self.files + 1, self.bytes + bytes);
    }

    fn is_most_of(self, all: Load) -> bool {
        self.files * 2 > all.files && self.bytes * 2 > all.bytes
    }

    /// What one sweep over it takes.
    fn swept(self) -> Duration {
        FILE_SWEPT.saturating_mul(u32::try_from(self.files).unwrap_or(u32::MAX)) + transfer(self.bytes)
    }
}

impl FromIterator<u64> for Load {
    /// Of the bytes of each file.
    fn from_iter<I: IntoIterator<Item = u64>>(bytes: I) -> Self {
        let mut load = Self::default();
        bytes.into_iter().for_each(|bytes| load.add(bytes));
        load
    }
}

/// What is done for a file that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// The program reads it itself.
    Alone,
    /// It comes with those that the program comes to next: so many bytes.
    Some(u64),
    /// It comes with all others.
    All,
}

impl Step {
    /// Whether for a batch the sweep is made that is planned already, over all that there is: then all is to come, and that is most of it. A few
    /// small files among large ones, or what is left of many small ones, take less than that.
    pub(crate) fn is_over_everything(self, batch: Load, all: Load) -> bool {
        self == Self::All && batch.is_most_of(all)
    }
}

/// What becomes of somebody who waits for a file while a sweep is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// It comes, or with the next sweep.
    GoesOn,
    /// The program reads it itself.
    Ends,
    /// The same, and the sweep ends: what is coming isn't what the program wants.
    EndsAll,
}

/// How a program opens a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Opens {
    /// It has opened what stands beside it in a walk.
    pub(crate) is_on_the_way: bool,
    /// The file stands at an end of a walk.
    pub(crate) is_at_an_end: bool,
    /// Page-cache bytes of the file.
    pub(crate) bytes: u64,
}

/// How a program goes.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Page-cache bytes that a sweep may bring in.
    limit: u64,
    /// What one sweep over everything takes, where there is room for that.
    all: Option<Duration>,
    /// Of the last files, whether each was on the way.
    recent: VecDeque<bool>,
    /// How many were wanted since a sweep brought in what wasn't read, and how many have to be.
    since: usize,
    needed: usize,
    /// What the next sweep brings in.
    bytes: u64,
    /// It began where a walk does, and nothing was brought in yet.
    began_at_an_end: bool,
    is_new: bool,
    /// What a file costs that is read alone, and what that has come to since the last sweep.
    file_alone: Duration,
    alone: Duration,
    /// The sweep that is under way is made for that alone: it is no surprise that the program goes far.
    is_for_any_order: bool,
}

fn transfer(bytes: u64) -> Duration {
    Duration::from_micros(bytes / BYTES_A_MICROSECOND)
}

impl Pace {
    /// There is that much, of which a sweep may bring in `limit` page-cache bytes, on disks that seek or don't.
    pub(crate) fn new(all: Load, limit: u64, does_seek: bool) -> Self {
        Self {
            limit,
            all: (all.bytes <= limit).then_some(all.swept()),
            recent: VecDeque::with_capacity(MOST),
            since: 0,
            needed: 0,
            bytes: FIRST_BYTES.min(limit),
            began_at_an_end: false,
            is_new: true,
            file_alone: if does_seek { FILE_ALONE } else { FILE_SWEPT },
            alone: Duration::ZERO,
            is_for_any_order: false,
        }
    }

    /// A file is wanted that isn't coming.
    pub(crate) fn wanted(&mut self, opens: Opens) -> Step {
        self.began_at_an_end |= self.is_new && self.since < MOST && opens.is_at_an_end;
        self.note(opens.is_on_the_way);
        if opens.is_on_the_way && self.reads_on() {
            let bytes = if self.is_new && self.began_at_an_end { self.limit } else { self.bytes };
            return self.sweeps(if self.all.is_some() && bytes >= self.limit { Step::All } else { Step::Some(bytes) });
        }
        self.alone += self.file_alone + transfer(opens.bytes);
        if self.all.is_some_and(|all| self.alone >= all) {
            // Who was mistaken once waits for longer.
            self.all = self.all.map(|all| all * 2);
            self.is_for_any_order = true;
            return self.sweeps(Step::All);
        }
        Step::Alone
    }

    fn sweeps(&mut self, step: Step) -> Step {
        (self.is_new, self.alone) = (false, Duration::ZERO);
        self.bytes = match step {
            Step::Some(bytes) => bytes,
            Step::All | Step::Alone => self.limit,
        };
        step
    }

    /// A file is wanted while a sweep is under way: on the way is one that comes with it, and that the program comes to.
    pub(crate) fn waits(&mut self, is_on_the_way: bool) -> Waiting {
        if self.is_for_any_order {
            return Waiting::GoesOn;
        }
        self.note(is_on_the_way);
        match is_on_the_way {
            true => Waiting::GoesOn,
            false if self.is_astray() => Waiting::EndsAll,
            false => Waiting::Ends,
        }
    }

    fn note(&mut self, is_on_the_way: bool) {
        if self.recent.len() == MOST {
            self.recent.pop_front();
        }
        self.recent.push_back(is_on_the_way);
        self.since += 1;
    }

    /// What a sweep has brought in was of use, as far as the program has come: of so many files it opened so many.
    pub(crate) fn swept(&mut self, files: usize, opened: usize) {
        self.is_for_any_order = false;
        if opened * READ_PART >= files {
            self.bytes = self.bytes.saturating_mul(MORE).min(self.limit);
            self.needed = 0;
        } else {
            self.bytes = FIRST_BYTES.min(self.limit);
            self.needed = (self.needed * 2).clamp(FEWEST, NEEDED_MOST);
            (self.since, self.recent) = (0, VecDeque::with_capacity(MOST));
        }
    }

    fn on_the_way(&self) -> usize {
        self.recent.iter().filter(|is_on_the_way| **is_on_the_way).count()
    }

    /// Three quarters of what it opened last were on the way.
    fn reads_on(&self) -> bool {
        let enough = self.recent.len() >= FEWEST && self.since >= self.needed;
        enough && self.on_the_way() * 4 >= self.recent.len() * 3
    }

    /// Less than a quarter was.
    fn is_astray(&self) -> bool {
        self.recent.len() >= FEWEST && self.on_the_way() * 4 < self.recent.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn load(files: u64, bytes: u64) -> Load {
        Load { files, bytes }
    }

    fn opens(is_on_the_way: bool) -> Opens {
        Opens { is_on_the_way, is_at_an_end: false, bytes: 100_000 }
    }

    /// Asks until something is brought in; how many were read alone before, and what is brought in.
    fn until_a_sweep(pace: &mut Pace, opens: Opens) -> (usize, Step) {
        let steps = (0..100_000).map(|alone| (alone, pace.wanted(opens)));
        steps.into_iter().find(|(_, step)| *step != Step::Alone).expect("at some time")
    }

    #[test]
    fn who_begins_where_a_walk_does_and_reads_on_gets_all_that_there_is_room_for() {
        for (limit, all) in [(1000 * MIB, Step::All), (200 * MIB, Step::Some(200 * MIB))] {
            let mut pace = Pace::new(load(1000, 1000 * MIB), limit, true);
            assert_eq!(pace.wanted(Opens { is_at_an_end: true, ..opens(true) }), Step::Alone);
            assert_eq!(until_a_sweep(&mut pace, opens(true)), (FEWEST - 2, all));
            pace.swept(500, 400);
            assert_eq!(pace.wanted(opens(true)), all, "and at once again");
        }
    }

    #[test]
    fn who_begins_elsewhere_gets_more_each_time_as_long_as_it_is_read() {
        let mut pace = Pace::new(load(100_000, 10_000 * MIB), 300 * MIB, true);
        let (alone, first) = until_a_sweep(&mut pace, opens(true));
        assert_eq!((alone, first), (FEWEST - 1, Step::Some(8 * MIB)));
        let mut sizes = Vec::new();
        for _ in 0..4 {
            pace.swept(80, 20);
            sizes.push(pace.wanted(opens(true)));
        }
        assert_eq!(sizes, [32, 128, 300, 300].map(|mib| Step::Some(mib * MIB)));
        pace.swept(80, 19);
        let (alone, again) = until_a_sweep(&mut pace, opens(true));
        assert_eq!((alone, again), (FEWEST - 1, Step::Some(8 * MIB)), "it is tried anew");
        pace.swept(80, 0);
        assert_eq!(until_a_sweep(&mut pace, opens(true)).0, 2 * FEWEST - 1, "and each time later");
    }

    #[test]
    fn who_picks_files_out_reads_them_alone() {
        let mut pace = Pace::new(load(1_000_000, 100_000 * MIB), 20_000 * MIB, true);
        let mixed = [true, true, false, false, false, false, true, false];
        for round in 0..1000 {
            for is_on_the_way in mixed {
                assert_eq!(pace.wanted(opens(is_on_the_way)), Step::Alone, "{round}");
            }
        }
    }

    #[test]
    fn an_unknown_order_costs_twice_what_it_had_to_where_all_fits() {
        let (files, bytes) = (10_000, 1000 * MIB);
        let mut pace = Pace::new(load(files, bytes), bytes, true);
        let swept = FILE_SWEPT * files as u32 + transfer(bytes);
        let (lone, step) = until_a_sweep(&mut pace, opens(false));
        assert_eq!(step, Step::All);
        let paid = (FILE_ALONE + transfer(100_000)) * (lone + 1) as u32;
        assert!(paid >= swept && paid < swept + FILE_ALONE * 2, "{paid:?} for {swept:?}");
        let (again, _) = until_a_sweep(&mut pace, opens(false));
        assert!(again > lone + lone / 2, "{again} after {lone}");
        // Where nothing seeks it is left to the program for as long as there is something left.
        let (lone, _) = until_a_sweep(&mut Pace::new(load(files, bytes), bytes, false), opens(false));
        assert!(lone as u64 > files * 9 / 10, "{lone}");
    }

    /// By number and by bytes: ten images among small files, and small files among images.
    #[test]
    fn the_sweep_over_everything_is_made_where_most_of_it_is_to_come() {
        let all = load(1010, 5000 * MIB);
        assert!(Step::All.is_over_everything(all, all));
        assert!(Step::All.is_over_everything(load(700, 4000 * MIB), all));
        assert!(!Step::All.is_over_everything(load(990, 4 * MIB), all));
        assert!(!Step::All.is_over_everything(load(10, 4990 * MIB), all));
        assert!(!Step::Some(8 * MIB).is_over_everything(load(990, 4 * MIB), all));
        assert!(!Step::Some(4500 * MIB).is_over_everything(load(700, 4000 * MIB), all));
    }

    #[test]
    fn a_sweep_ends_when_the_program_goes_elsewhere() {
        let mut pace = Pace::new(load(1000, 1000 * MIB), 1000 * MIB, true);
        for _ in 0..MOST {
            assert_eq!(pace.waits(true), Waiting::GoesOn);
        }
        let ends: Vec<Waiting> = (0..=MOST * 3 / 4).map(|_| pace.waits(false)).collect();
        let (last, before) = ends.split_last().expect("some");
        assert!(before.iter().all(|one| *one == Waiting::Ends) && *last == Waiting::EndsAll, "{ends:?}");
        // But not the one that is made for who goes anywhere.
        assert_eq!(until_a_sweep(&mut pace, opens(false)).1, Step::All);
        assert!((0..100).all(|_| pace.waits(false) == Waiting::GoesOn));
        pace.swept(100, 0);
        assert_eq!(pace.waits(false), Waiting::Ends);
    }
}
