//! Directories that were written to, and when each is looked at.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Duration;

/// So much later a directory is looked at again for each file of it, whatever happens there: what looking costs, some 10 µs for each,
/// stays below one part in a hundred.
const PAUSE_FOR_EACH_FILE: Duration = Duration::from_millis(2);
/// So many wait at most; some 100 bytes each. Who comes when it is full is looked at when it is written to once more.
const MOST: usize = 1 << 16;

/// A directory waits for quiet at most so many times as long as it has to be quiet: some is never.
const LONGEST: u32 = 15;

/// Moments are counted from any one on.
#[derive(Debug)]
pub(super) struct Queue<K> {
    settle: Duration,
    due: BTreeMap<(Duration, u64), K>,
    waiting: HashMap<K, Waiting>,
    not_before: HashMap<K, Duration>,
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    turn: (Duration, u64),
    /// It has waited since.
    since: Duration,
}

impl<K: Clone + Eq + Hash> Queue<K> {
    /// Each is looked at when nobody has written to it for so long.
    pub(super) fn new(settle: Duration) -> Self {
        Queue { settle, due: BTreeMap::new(), waiting: HashMap::new(), not_before: HashMap::new(), next: 0 }
    }

    pub(super) fn settle(&self) -> Duration {
        self.settle
    }

    pub(super) fn written(&mut self, directory: K, now: Duration) {
        let known = self.waiting.get(&directory).copied();
        if known.is_none() && self.waiting.len() >= MOST {
            return;
        }
        let since = known.map_or(now, |known| known.since);
        let quiet = (now + self.settle).min(since + self.settle * LONGEST);
        self.enter(directory, quiet, since);
    }

    /// There is no hurry about one that was looked at just now: it is looked at again when nobody has written to it for the longest time.
    pub(super) fn put_off(&mut self, directory: K, now: Duration) {
        if self.waiting.len() < MOST {
            self.enter(directory, now + self.settle * LONGEST, now);
        }
    }

    fn enter(&mut self, directory: K, at: Duration, since: Duration) {
        let earliest = self.not_before.get(&directory).copied().unwrap_or_default();
        let turn = (at.max(earliest), self.next);
        if let Some(known) = self.waiting.get(&directory) {
            self.due.remove(&known.turn);
        }
        self.next += 1;
        self.due.insert(turn, directory.clone());
        self.waiting.insert(directory, Waiting { turn, since });
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
    fn each_waits_until_it_is_quiet() {
        let mut queue = Queue::new(at(40));
        queue.written("a", at(0));
        queue.written("b", at(10));
        queue.written("a", at(39));
        assert_eq!((queue.next(), queue.len()), (Some(at(50)), 2));
        assert_eq!(queue.take(at(49)), None);
        assert_eq!(queue.take(at(80)), Some("b"));
        assert_eq!((queue.take(at(80)), queue.take(at(80))), (Some("a"), None));
        queue.written("a", at(80));
        assert_eq!((queue.next(), queue.len()), (Some(at(120)), 1));
    }

    #[test]
    fn what_is_never_quiet_has_its_turn() {
        let mut queue = Queue::new(at(2));
        for second in 0..30 {
            queue.written("a", at(second));
            assert_eq!(queue.take(at(second)), None);
        }
        assert_eq!(queue.take(at(30)), Some("a"));
        queue.written("a", at(30));
        assert_eq!(queue.next(), Some(at(32)), "it waits anew");
    }

    #[test]
    fn what_is_put_off_comes_late_unless_it_is_written_to() {
        let mut queue = Queue::new(at(2));
        queue.put_off("a", at(10));
        queue.put_off("b", at(10));
        assert_eq!((queue.next(), queue.len()), (Some(at(40)), 2));
        queue.written("b", at(15));
        assert_eq!((queue.take(at(17)), queue.take(at(39))), (Some("b"), None));
        assert_eq!((queue.take(at(40)), queue.len()), (Some("a"), 0));
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
