//! Reading many directories in the order of the disk, several at a time.

use std::{
    collections::BTreeSet,
    io,
    sync::{Mutex, mpsc},
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
const SHARE_MAX: usize = 64;

/// Directories that wait to be read, by C-SCAN: the next at or above where the last one was, then around again.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    left: BTreeSet<(NodeId, Slot)>,
    last: NodeId,
}

impl Waiting {
    pub(crate) fn add(&mut self, id: NodeId, slot: Slot) {
        self.left.insert((id, slot));
    }

    pub(crate) fn len(&self) -> usize {
        self.left.len()
    }

    fn take(&mut self) -> Option<(NodeId, Slot)> {
        let next = self.left.range((self.last, Slot(0))..).next().or_else(|| self.left.first()).copied()?;
        self.left.remove(&next);
        self.last = next.0;
        Some(next)
    }
}

/// Reads all that waits, and what `merge` adds to it, by at most `readers` threads. What changes in a directory after it was
/// read is told by the tracker. `merge` ends it by an error.
pub(crate) fn harvest<D: Directories, T: Tracker, E>(
    waiting: &mut Waiting,
    (directories, tracker): (&D, &T),
    readers: usize,
    mut merge: impl FnMut(Slot, io::Result<Reading>, &mut Waiting) -> Result<(), E>,
) -> Result<(), E> {
    let read = |id: NodeId| {
        // Before it is read: what happens then is told.
        tracker.heed(id);
        directories.read(id)
    };
    // Threads cost more than a few directories that are in memory.
    while waiting.len() < 3 {
        let Some((id, slot)) = waiting.take() else { return Ok(()) };
        merge(slot, read(id), waiting)?;
    }
    let (jobs, taken) = mpsc::channel::<Vec<(NodeId, Slot)>>();
    let taken = Mutex::new(taken);
    let (taken, read) = (&taken, &read);
    thread::scope(move |scope| {
        let (jobs, (done, results)) = (jobs, mpsc::channel::<Done>());
        let work = move |done: mpsc::Sender<Done>| {
            loop {
                let job = taken.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).recv();
                let Ok(job) = job else { break };
                let (began, count) = (Instant::now(), job.len() as u32);
                let readings = job.into_iter().map(|(id, slot)| (slot, read(id))).collect();
                if done.send(Done { readings, each_took: began.elapsed() / count.max(1) }).is_err() {
                    break;
                }
            }
        };
        let (mut threads, mut in_flight, mut share) = (0, 0, 1);
        loop {
            while in_flight < readers {
                let job: Vec<_> = std::iter::from_fn(|| waiting.take()).take(share).collect();
                if job.is_empty() {
                    break;
                }
                if threads <= in_flight && threads < readers {
                    threads += 1;
                    let done = done.clone();
                    scope.spawn(move || work(done));
                }
                jobs.send(job).expect("the readers wait for it");
                in_flight += 1;
            }
            if in_flight == 0 {
                return Ok(());
            }
            let Done { readings, each_took } = results.recv().expect("a reader answers");
            in_flight -= 1;
            share = if each_took < IN_MEMORY { (share * 2).min(SHARE_MAX) } else { 1 };
            for (slot, reading) in readings {
                merge(slot, reading, waiting)?;
            }
        }
    })
}

/// What a reader has read.
struct Done {
    readings: Vec<(Slot, io::Result<Reading>)>,
    each_took: Duration,
}
