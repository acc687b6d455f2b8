//! Reading many directories in the order of the disk, several at a time.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    io,
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    identity::NodeId,
    nodes::Slot,
    reading::{Directories, Reading},
    tracker::Tracker,
};

/// A directory that is read in less was in memory: handing it over costs as much as reading it, so the next ones are handed
/// over several at a time. Those that the disk is needed for go one by one, so that its queue holds neighbours.
const IN_MEMORY: Duration = Duration::from_micros(500);
/// So were those of which not even one in so many had to wait: they took longer because others had the processors. Else a busy
/// machine would have them read one by one, by as many threads as a disk's queue holds, which keeps it busy.
const WAITS_ONE_IN: u64 = 16;
const SHARE_MAX: usize = 128;
/// What is in them costs, too: so many entries, if they are like the last ones.
const SHARE_ENTRIES: usize = 4096;
/// Beside as many as there are processors, so that there is always one to begin while others are put down.
const SPARE_JOBS: usize = 2;

/// So many entries may have been read and wait for a directory that is read since before them; some 40 bytes each.
const HELD_MAX: usize = 1 << 17;

/// So many directories are read in one order. What is found in them comes before the rest, so that few wait: else all of a level
/// of the tree would be known before the first of the next is read.
const WINDOW: usize = 1 << 15;

/// Directories that wait to be read, by C-SCAN: the next at or above where the last one was, then around again.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Those from the last one on, and those before it.
    ahead: BinaryHeap<Reverse<(NodeId, Slot)>>,
    behind: BinaryHeap<Reverse<(NodeId, Slot)>>,
    last: NodeId,
    window: usize,
    /// Those that come when there is none left, the last ones first.
    later: Vec<Vec<(NodeId, Slot)>>,
}

impl Waiting {
    pub(crate) fn of(directories: impl IntoIterator<Item = (NodeId, Slot)>) -> Waiting {
        let ahead: BinaryHeap<_> = directories.into_iter().map(Reverse).collect();
        let window = WINDOW.max(2 * ahead.len());
        Waiting { ahead, behind: BinaryHeap::new(), last: NodeId::default(), window, later: Vec::new() }
    }

    pub(crate) fn add(&mut self, id: NodeId, slot: Slot) {
        self.put(id, slot);
        if self.ahead.len() + self.behind.len() > self.window {
            self.defer();
        }
    }

    fn put(&mut self, id: NodeId, slot: Slot) {
        let half = if id >= self.last { &mut self.ahead } else { &mut self.behind };
        half.push(Reverse((id, slot)));
    }

    /// Those that were found first wait: numbers are given out as directories are found.
    fn defer(&mut self) {
        let halves = self.ahead.drain().chain(self.behind.drain());
        let mut all: Vec<_> = halves.map(|Reverse(directory)| directory).collect();
        let (first, _, _) = all.select_nth_unstable_by_key(self.window / 2, |(_, slot)| *slot);
        let first = first.len();
        let rest = all.split_off(first);
        self.later.push(all);
        rest.into_iter().for_each(|(id, slot)| self.put(id, slot));
    }

    pub(crate) fn len(&self) -> usize {
        self.ahead.len() + self.behind.len() + self.later.iter().map(Vec::len).sum::<usize>()
    }

    fn clear(&mut self) {
        self.ahead.clear();
        self.behind.clear();
        self.later.clear();
    }

    fn take(&mut self) -> Option<(NodeId, Slot)> {
        if self.ahead.is_empty() && self.behind.is_empty() {
            self.later.pop().unwrap_or_default().into_iter().for_each(|(id, slot)| self.put(id, slot));
        }
        if self.ahead.is_empty() {
            std::mem::swap(&mut self.ahead, &mut self.behind);
        }
        let Reverse(next) = self.ahead.pop()?;
        // One that was put in twice.
        while self.ahead.peek() == Some(&Reverse(next)) {
            self.ahead.pop();
        }
        self.last = next.0;
        Some(next)
    }
}

/// Reads all that waits, and what `merge` adds to it, by as many threads as read side by side. What changes in a directory after it was
/// read is told by the tracker. They are merged in the order in which their changes began to be told: where two readings
/// contradict each other, because something changed between, the last one is the newer, or its directory, or the other one, has
/// told of that change. Those with more entries than `entries_max` aren't read. `merge` ends it by an error; when `gives_way`, what isn't being read by then is left as it is.
pub(crate) fn harvest<D: Directories, T: Tracker, E>(
    waiting: &mut Waiting,
    (directories, tracker, entries_max): (&D, &T, usize),
    gives_way: &dyn Fn() -> bool,
    mut merge: impl FnMut(Slot, io::Result<Reading>, &mut Waiting) -> Result<(), E>,
) -> Result<(), E> {
    let tickets = AtomicU64::new(0);
    let read = |ids: &[NodeId]| {
        // Before they are read: what happens then is told.
        tracker.heed_each(ids);
        let ticket = tickets.fetch_add(1, Ordering::SeqCst);
        (ticket, directories.read_some_up_to(ids, entries_max))
    };
    let readers = directories.readers();
    // Threads cost more than a few directories that are in memory.
    while waiting.len() < 3 || readers == 1 {
        let share = if readers == 1 { SHARE_MAX } else { 1 };
        let (ids, slots): (Vec<NodeId>, Vec<Slot>) = std::iter::from_fn(|| waiting.take()).take(share).unzip();
        if ids.is_empty() {
            return Ok(());
        }
        let mut readings = read(&ids).1.into_iter();
        for slot in slots {
            let reading = readings.next().unwrap_or_else(|| Err(io::ErrorKind::UnexpectedEof.into()));
            merge(slot, reading, waiting)?;
        }
        if readers == 1 && gives_way() {
            waiting.clear();
        }
    }
    // What is in memory takes processors alone.
    let few = readers.min(thread::available_parallelism().map_or(1, usize::from) + SPARE_JOBS);
    let mut next = tickets.load(Ordering::SeqCst);
    let (jobs, taken) = mpsc::channel::<Vec<(NodeId, Slot)>>();
    let taken = Mutex::new(taken);
    let (taken, read) = (&taken, &read);
    thread::scope(move |scope| {
        let (jobs, (done, results)) = (jobs, mpsc::channel::<Done>());
        let read = move |job: Vec<(NodeId, Slot)>| {
            let began = Instant::now();
            let (ids, slots): (Vec<NodeId>, Vec<Slot>) = job.into_iter().unzip();
            let (ticket, readings) = read(&ids);
            let readings = slots.into_iter().zip(readings).collect();
            Done { ticket, readings, took: began.elapsed() }
        };
        let work = move |done: mpsc::Sender<Done>| {
            loop {
                let job = taken.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).recv();
                let Ok(job) = job else { break };
                if done.send(read(job)).is_err() {
                    break;
                }
            }
        };
        let (mut threads, mut threads_max, mut in_flight) = (0, readers, 0);
        let (mut at_once, mut share) = (few, 1);
        let (mut held, mut entries_held) = (BTreeMap::new(), 0);
        loop {
            if gives_way() {
                waiting.clear();
            }
            while in_flight < at_once.min(threads_max.max(1)) && entries_held < HELD_MAX {
                let job: Vec<_> = std::iter::from_fn(|| waiting.take()).take(share).collect();
                if job.is_empty() {
                    break;
                }
                if threads <= in_flight && threads < threads_max {
                    let done = done.clone();
                    match thread::Builder::new().spawn_scoped(scope, move || work(done)) {
                        Ok(_) => threads += 1,
                        // Those that are there go on.
                        Err(_) => threads_max = threads,
                    }
                }
                in_flight += 1;
                if threads == 0 {
                    done.send(read(job)).expect("the results are taken below");
                    break;
                }
                jobs.send(job).expect("the readers wait for it");
            }
            if in_flight == 0 {
                return Ok(());
            }
            let done = results.recv().expect("a reader answers");
            in_flight -= 1;
            let share_max = done.like_these(SHARE_ENTRIES).clamp(1, SHARE_MAX);
            (at_once, share) = match done.was_in_memory() {
                true if share >= share_max / 2 => (few, share_max),
                true => (at_once, share * 2),
                false => (readers, 1),
            };
            entries_held += done.entries();
            held.insert(done.ticket, done);
            while let Some(done) = held.remove(&next) {
                next += 1;
                entries_held -= done.entries();
                for (slot, reading) in done.readings {
                    merge(slot, reading, waiting)?;
                }
            }
        }
    })
}

/// What a reader has read.
struct Done {
    /// Rises with each job, and was taken when all its directories were heeded and none was read.
    ticket: u64,
    readings: Vec<(Slot, io::Result<Reading>)>,
    took: Duration,
}

impl Done {
    fn was_in_memory(&self) -> bool {
        let empty =
            |(_, reading): &(Slot, io::Result<Reading>)| reading.as_ref().map_or(0, |reading| reading.empty.len());
        let count = (self.readings.len() + self.readings.iter().map(empty).sum::<usize>()).max(1) as u64;
        let waits =
            |(_, reading): &(Slot, io::Result<Reading>)| reading.as_ref().map_or(0, |reading| reading.waits.into());
        let waited: u64 = self.readings.iter().map(waits).sum();
        self.took / (count as u32) < IN_MEMORY || waited * WAITS_ONE_IN < count
    }

    /// So many directories have so many entries, if they are like these.
    fn like_these(&self, entries: usize) -> usize {
        entries * self.readings.len() / self.entries().max(1)
    }

    fn entries(&self) -> usize {
        self.readings.iter().map(|(_, reading)| 1 + reading.as_ref().map_or(0, Reading::entries)).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Condvar;

    use super::*;
    use crate::{
        reading::{Empty, LinkedName},
        record::Access,
        totals::Totals,
        tracker::Drained,
    };

    /// The first directory takes until all others have been read, and those aren't heeded before it is being read.
    #[derive(Default)]
    struct Slow {
        /// The first is being read; so many others have been.
        state: Mutex<(bool, u64)>,
        changed: Condvar,
    }

    const FIRST: u64 = 1;
    const LAST: u64 = 4 * 32;

    impl Slow {
        fn wait_until(&self, is_it: impl Fn((bool, u64)) -> bool) {
            let state = self.state.lock().expect("no panic");
            drop(self.changed.wait_while(state, |state| !is_it(*state)).expect("no panic"));
        }

        fn change(&self, change: impl FnOnce(&mut (bool, u64))) {
            change(&mut self.state.lock().expect("no panic"));
            self.changed.notify_all();
        }
    }

    impl Directories for Slow {
        fn read(&self, directory: NodeId) -> io::Result<Reading> {
            if directory.ino == FIRST {
                self.change(|state| state.0 = true);
                self.wait_until(|(_, read)| read == LAST - FIRST);
            } else {
                self.change(|state| state.1 += 1);
            }
            Ok(Reading::default())
        }
        fn look(&self, _: NodeId) -> io::Result<LinkedName> {
            Err(io::ErrorKind::Unsupported.into())
        }
        fn sync(&self) -> io::Result<()> {
            Ok(())
        }
        fn settling_seconds(&self) -> i64 {
            0
        }
        fn parent(&self, _: NodeId) -> io::Result<NodeId> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    impl Tracker for Slow {
        fn drain(&self) -> io::Result<Drained> {
            Ok(Drained::default())
        }
        fn heed(&self, directory: NodeId) {
            if directory.ino != FIRST {
                self.wait_until(|(is_being_read, _)| is_being_read);
            }
        }
        fn keep_heeding(&self, _: NodeId, _: bool) {}
        fn start_anew(&self) {}
    }

    /// Or what it says of an inode that has moved on would replace what was found where that is now.
    #[test]
    fn what_was_read_first_is_merged_first() {
        let slow = Slow::default();
        let mut waiting = Waiting::of((FIRST..=LAST).map(|ino| (id(ino), Slot(ino as u32))));
        let mut merged = Vec::new();
        harvest(&mut waiting, (&slow, &slow, usize::MAX), &|| false, |slot, _, _| {
            merged.push(slot);
            Ok::<_, ()>(())
        })
        .expect("nothing fails");
        assert_eq!(merged[0], Slot(FIRST as u32));
        assert_eq!(merged.len() as u64, LAST);
    }

    /// A busy machine is no disk.
    #[test]
    fn long_ones_were_in_memory_unless_they_waited() {
        const COUNT: u32 = 32;
        let was_in_memory = |each_took: Duration, that_waited: u32| {
            let waits = |number| u32::from(number < that_waited);
            let reading = |number| (Slot(number), Ok(Reading { waits: waits(number), ..Reading::default() }));
            Done { ticket: 0, readings: (0..COUNT).map(reading).collect(), took: each_took * COUNT }.was_in_memory()
        };
        let short = IN_MEMORY - Duration::from_micros(1);
        assert!(was_in_memory(short, 0) && was_in_memory(short, COUNT));
        assert!(was_in_memory(IN_MEMORY * 20, 1) && !was_in_memory(IN_MEMORY, 2));
    }

    /// Those with much in them are handed over a few at a time.
    #[test]
    fn what_is_in_them_counts() {
        let done = |count: u32, inodes| {
            let reading = |number| (Slot(number), Ok(Reading { inodes: vec![7; inodes], ..Reading::default() }));
            Done { ticket: 0, readings: (0..count).map(reading).collect(), took: Duration::ZERO }
        };
        assert_eq!([0, 1, 99, 4095].map(|inodes| done(8, inodes).like_these(4096)), [4096, 2048, 40, 1]);
        assert_eq!(done(1, 1 << 14).like_these(4096), 0);
    }

    /// Those that were told with others took no time of their own.
    #[test]
    fn empty_ones_count_as_read() {
        let empty = Empty { id: id(7), access: Access::default(), blocks: 0, own: Totals::default(), stamp: 0 };
        let reading = |empty| (Slot(0), Ok(Reading { empty, waits: 5, ..Reading::default() }));
        let done = |empty| Done { ticket: 0, readings: vec![reading(empty)], took: IN_MEMORY * 20 };
        assert!(!done(Vec::new()).was_in_memory() && done(vec![empty; 20]).was_in_memory());
    }

    fn id(ino: u64) -> NodeId {
        NodeId { ino, ..NodeId::default() }
    }

    #[test]
    fn they_come_by_c_scan() {
        let mut waiting = Waiting::of([(id(30), Slot(0)), (id(10), Slot(1))]);
        assert_eq!(waiting.take(), Some((id(10), Slot(1))));
        waiting.add(id(5), Slot(2));
        waiting.add(id(20), Slot(3));
        let rest: Vec<u64> = std::iter::from_fn(|| waiting.take()).map(|(id, _)| id.ino).collect();
        assert_eq!(rest, [20, 30, 5]);
    }

    /// A tree whose levels were made one after the other, so that each level's numbers are above those of the one before.
    #[test]
    fn few_wait_however_wide_the_tree_is() {
        const WIDTH: u32 = 100;
        const ALL: u32 = 1 + WIDTH + WIDTH * WIDTH + WIDTH * WIDTH * WIDTH;
        let mut waiting = Waiting::of([(id(0), Slot(0))]);
        let (mut found, mut most, mut read) = (1, 0, vec![false; ALL as usize]);
        while let Some((NodeId { ino, .. }, _)) = waiting.take() {
            assert!(!std::mem::replace(&mut read[ino as usize], true), "{ino} comes twice");
            let first = ino as u32 * WIDTH + 1;
            for below in (first..first + WIDTH).take_while(|&below| below < ALL) {
                waiting.add(id(below.into()), Slot(found));
                found += 1;
            }
            most = most.max(waiting.len());
        }
        assert!(read.into_iter().all(|read| read));
        assert!(most < 2 * WINDOW, "{most}");
    }

    /// What is known to be read is read in one order, however much it is.
    #[test]
    fn what_is_known_is_no_window() {
        let many = 3 * WINDOW as u64;
        let mut waiting = Waiting::of((0..many).map(|ino| (id(ino), Slot(many as u32 - ino as u32))));
        waiting.add(id(many), Slot(many as u32 + 1));
        let all: Vec<u64> = std::iter::from_fn(|| waiting.take()).map(|(id, _)| id.ino).collect();
        assert!(all.is_sorted() && all.len() as u64 == many + 1);
    }
}
