//! Directories that were written to, and when each is looked at.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Duration;

/// So much later a directory is looked at again for each file of it, whatever happens there: what looking costs, some 10 µs for each,
/// stays below one part in a hundred.
const PAUSE_FOR_EACH_FILE: Duration = Duration::from_millis(2);
/// So many wait at most; some 100 bytes each. Who comes when it is full is looked at when it is written to once more.
const MOST: usize = 1 << 16;

/// Moments are counted from any one on.
#[derive(Debug)]
pub(super) struct Queue<K> {
    settle: Duration,
    due: BTreeMap<(Duration, u64), K>,
    waiting: HashMap<K, (Duration, u64)>,
    not_before: HashMap<K, Duration>,
    next: u64,
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// Each is looked at so long after it was written to for the first time.
    pub(super) fn new(settle: Duration) -> Self {
        Queue { settle, due: BTreeMap::new(), waiting: HashMap::new(), not_before: HashMap::new(), next: 0 }
    }

    pub(super) fn written(&mut self, directory: K, now: Duration) {
        if self.waiting.contains_key(&directory) || self.waiting.len() >= MOST {
            return;
        }
        let earliest = self.not_before.get(&directory).copied().unwrap_or_default();
        let turn = ((now + self.settle).max(earliest), self.next);
        self.next += 1;
        self.due.insert(turn, directory.clone());
        self.waiting.insert(directory, turn);
    }

    /// The one that has waited longest of those whose time has come.
    pub(super) fn take(&mut self, now: Duration) -> Option<K> {
        let first = self.due.first_entry().filter(|entry| entry.key().0 <= now)?;
        let directory = first.remove();
        self.waiting.remove(&directory);
        Some(directory)
    }

    /// It was looked at, and has so many files.
    pub(super) fn looked(&mut self, directory: K, files: usize, now: Duration) {
        let pause = PAUSE_FOR_EACH_FILE.saturating_mul(u32::try_from(files).unwrap_or(u32::MAX));
        self.not_before.retain(|_, earliest| *earliest > now);
        if pause > self.settle {
            self.not_before.insert(directory, now + pause);
        }
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Duration> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn len(&self) -> usize {
        self.due.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn each_waits_from_its_first_write_on() {
        let mut queue = Queue::new(at(40));
        queue.written("a", at(0));
        queue.written("b", at(10));
        queue.written("a", at(39));
        assert_eq!((queue.next(), queue.len()), (Some(at(40)), 2));
        assert_eq!(queue.take(at(39)), None);
        assert_eq!(queue.take(at(60)), Some("a"));
        assert_eq!((queue.take(at(60)), queue.take(at(60))), (Some("b"), None));
        queue.written("a", at(60));
        assert_eq!(queue.next(), Some(at(100)));
    }

    #[test]
    fn large_ones_are_looked_at_less_often() {
        let mut queue = Queue::new(at(40));
        queue.looked("large", 100_000, at(0));
        queue.looked("small", 100, at(0));
        queue.written("large", at(1));
        queue.written("small", at(1));
        assert_eq!(queue.take(at(41)), Some("small"));
        assert_eq!(queue.next(), Some(at(200)));
        queue.looked("small", 100, at(300));
        assert!(queue.not_before.is_empty(), "what is over is forgotten");
    }

    #[test]
    fn it_is_bounded() {
        let mut queue = Queue::new(at(1));
        for number in 0..MOST + 10 {
            queue.written(number, at(0));
        }
        assert_eq!(queue.len(), MOST);
        assert_eq!(queue.take(at(1)), Some(0));
        queue.written(MOST + 5, at(1));
        assert_eq!(queue.len(), MOST);
    }
}
