//! Reading many directories in the order of the disk, several at a time.

use std::{
    collections::BTreeSet,
    io,
    sync::{Mutex, mpsc},
    thread,
};

use crate::{
    identity::NodeId,
    nodes::Slot,
    reading::{Directories, Reading},
    tracker::Tracker,
};

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
    let (jobs, taken) = mpsc::channel::<(NodeId, Slot)>();
    let taken = Mutex::new(taken);
    let (taken, read) = (&taken, &read);
    thread::scope(move |scope| {
        let (jobs, (done, results)) = (jobs, mpsc::channel());
        let work = move |done: mpsc::Sender<_>| {
            loop {
                let job = taken.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).recv();
                let Ok((id, slot)) = job else { break };
                if done.send((slot, read(id))).is_err() {
                    break;
                }
            }
        };
        let (mut threads, mut in_flight) = (0, 0);
        loop {
            while in_flight < readers
                && let Some(job) = waiting.take()
            {
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
            let (slot, reading) = results.recv().expect("a reader answers");
            in_flight -= 1;
            merge(slot, reading, waiting)?;
        }
    })
}
