//! A thread that goes ahead of a program that walks over a view: it has the kernel list the directories to which the program comes next,
//! and gives their first files, so that another processor does what the program would wait for.
//!
//! The kernel makes an inode of each entry that it is told of, and puts each byte that it is given into its memory. Both take longer than
//! to answer for them (`docs/BENCHMARKS.md`, "What a view can't save").

use std::{
    collections::VecDeque,
    ffi::CString,
    io,
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

use onesweep_sys::{lists_apart::ListsApart, usage::blocks_read};

use super::{
    following::DIRECTORIES_AHEAD,
    nodes::{NodeId, ROOT},
    shown::Shown,
};
use crate::lock;

/// Directories that wait to be listed.
const WAITING_MAX: usize = 1 << 12;
/// How many directories programs open before somebody tries anew to go ahead, at first and at most.
const PAUSE_MIN: usize = 8;
const PAUSE_MAX: usize = 1 << 10;

/// Where a program is expected to come: pure.
#[derive(Debug, Default)]
struct Way {
    /// Directories that the kernel was told of, the next one first.
    waiting: VecDeque<NodeId>,
    /// Those that were listed ahead, and that no program has opened yet.
    listed: VecDeque<NodeId>,
    /// How many there may be of those. It grows while programs come to them.
    depth: usize,
    /// How many directories programs open before the next one is listed, and how many they did the last time.
    pause: usize,
    last_pause: usize,
}

impl Way {
    /// A listing has told of directories, in the order in which programs come to them: behind `after`, the last one that it has told
    /// of, or before all others.
    fn told(&mut self, after: Option<NodeId>, directories: impl Iterator<Item = NodeId>) {
        insert_behind(&mut self.waiting, after, directories);
        self.waiting.truncate(WAITING_MAX);
    }

    /// A program has opened a directory.
    fn opened(&mut self, directory: NodeId) {
        self.pause = self.pause.saturating_sub(1);
        if let Some(at) = self.listed.iter().position(|id| *id == directory) {
            self.listed.drain(..=at);
            let is_next = at == 0;
            self.depth = if is_next { (2 * self.depth).clamp(1, DIRECTORIES_AHEAD) } else { self.depth / 2 };
        } else if let Some(at) = self.waiting.iter().position(|id| *id == directory) {
            // It goes another way, or more quickly: what is before it is behind it.
            self.waiting.drain(..=at);
            if !self.listed.is_empty() {
                self.listed.clear();
                self.depth /= 2;
            }
        }
    }

    /// The next directory to be listed, if a program is near; not one that `is_known`, since it was listed.
    fn next(&mut self, is_known: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        if self.pause > 0 || self.listed.len() >= self.depth.max(1) {
            return None;
        }
        while let Some(id) = self.waiting.pop_front() {
            if !is_known(id) {
                self.listed.push_back(id);
                return Some(id);
            }
        }
        None
    }

    /// It was listed.
    fn found(&mut self) {
        self.last_pause = 0;
    }

    /// It couldn't be, since not all of it is in memory, or something has changed: programs are let go by themselves for a while.
    fn lost(&mut self) {
        self.listed.clear();
        self.last_pause = (2 * self.last_pause).clamp(PAUSE_MIN, PAUSE_MAX);
        self.pause = self.last_pause;
    }
}

/// Puts directories behind one that waits; before all others if it doesn't wait any more.
pub(super) fn insert_behind(
    waiting: &mut VecDeque<NodeId>,
    after: Option<NodeId>,
    directories: impl Iterator<Item = NodeId>,
) {
    let at = after.and_then(|after| waiting.iter().position(|id| *id == after)).map_or(0, |at| at + 1);
    let behind = waiting.split_off(at);
    waiting.extend(directories);
    waiting.extend(behind);
}

#[derive(Default)]
struct State {
    way: Way,
    /// Something has happened since the thread has looked last.
    is_called: bool,
    is_ending: bool,
}

/// Goes ahead of programs.
#[derive(Default)]
pub(super) struct Forerun {
    state: Mutex<State>,
    bell: Condvar,
    lists: OnceLock<ListsApart>,
    thread: Mutex<Option<JoinHandle<()>>>,
    count: AtomicU64,
}

impl Forerun {
    /// Directories that were listed ahead.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether it is this that asks.
    pub(super) fn asks(&self, thread: u32) -> bool {
        self.lists.get().is_some_and(|lists| lists.thread() == thread)
    }

    /// A listing has told of directories.
    pub(super) fn told(&self, after: Option<NodeId>, directories: impl Iterator<Item = NodeId>) {
        lock(&self.state).way.told(after, directories);
    }

    /// A program has opened a directory. Tells whether others wait to be listed.
    pub(super) fn opened(&self, directory: NodeId) -> bool {
        let way = &mut lock(&self.state).way;
        way.opened(directory);
        !way.waiting.is_empty()
    }

    /// It may be time to go on.
    pub(super) fn call(&self) {
        lock(&self.state).is_called = true;
        self.bell.notify_one();
    }

    /// Waits until something has happened. False at the end.
    fn is_called(&self) -> bool {
        let state = lock(&self.state);
        let waits = |state: &mut State| !state.is_called && !state.is_ending;
        let mut state = self.bell.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        state.is_called = false;
        !state.is_ending
    }

    fn is_ending(&self) -> bool {
        lock(&self.state).is_ending
    }

    /// Ends it.
    pub(super) fn end(&self) {
        lock(&self.state).is_ending = true;
        self.bell.notify_one();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl Shown {
    /// Begins to go ahead of who walks over the view, which is mounted at `dir`.
    pub(super) fn start_forerun(self: &Arc<Self>, dir: PathBuf) -> io::Result<()> {
        // Where directories can't be listed so, files are given ahead in those that programs have listed.
        if let Ok(lists) = ListsApart::start("view-lists", dir) {
            let _ = self.forerun.lists.set(lists);
        }
        let this = Arc::clone(self);
        let thread = thread::Builder::new().name("view-ahead".into()).spawn(move || this.go_ahead())?;
        *lock(&self.forerun.thread) = Some(thread);
        Ok(())
    }

    fn go_ahead(&self) {
        let Some(following) = self.given.following() else { return };
        while self.forerun.is_called() {
            while !self.forerun.is_ending() && lock(following).is_followed() {
                let next = lock(following).next_directory();
                match next {
                    Some((directory, listed, files)) => self.give_ahead(directory, &listed, &files),
                    None if self.list_next() => {}
                    None => break,
                }
            }
        }
    }

    /// Has the kernel list the next directory, if all of it is in memory.
    fn list_next(&self) -> bool {
        let (Some(lists), Some(following)) = (self.forerun.lists.get(), self.given.following()) else { return false };
        let next = {
            let following = lock(following);
            lock(&self.forerun.state).way.next(|id| following.knows(id) || self.is_foreign(id))
        };
        let Some(id) = next else { return false };
        let is_listed = self.is_seen_ahead(id) && self.way_to(id).is_some_and(|way| lists.list(way).is_ok());
        // The kernel may have kept an older listing, and not have asked.
        lock(&self.ahead.prepared).drop_seen(id);
        let way = &mut lock(&self.forerun.state).way;
        if is_listed {
            way.found();
            self.forerun.count.fetch_add(1, Ordering::Relaxed);
        } else {
            way.lost();
        }
        is_listed
    }

    /// Looks at what is in a directory, if nobody has.
    fn is_seen_ahead(&self, id: NodeId) -> bool {
        let since = self.changes.now();
        let (has, is_full) = {
            let prepared = lock(&self.ahead.prepared);
            (prepared.has(id, since), prepared.is_full())
        };
        if has || is_full {
            return has;
        }
        let seen = self.see(id, since, blocks_read());
        seen.map(|entries| lock(&self.ahead.prepared).keep(id, entries)).is_some()
    }

    /// The names from the root to a directory.
    fn way_to(&self, id: NodeId) -> Option<CString> {
        if id == ROOT {
            return Some(c".".to_owned());
        }
        let names = self.source.nodes().path(id)?;
        let names: Vec<&[u8]> = names.iter().map(|name| name.to_bytes()).collect();
        CString::new(names.join(&b'/')).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(way: &mut Way) -> Option<NodeId> {
        way.next(|_| false)
    }

    #[test]
    fn directories_come_in_the_order_of_a_walk() {
        let mut way = Way::default();
        way.told(None, [1].into_iter());
        way.told(Some(1), [2, 3].into_iter());
        assert_eq!(next(&mut way), Some(1));
        way.told(None, [11, 12].into_iter());
        assert_eq!(next(&mut way), None, "nobody has come to the first one");
        way.opened(1);
        assert_eq!(next(&mut way), Some(11));
        way.opened(11);
        assert_eq!([next(&mut way), next(&mut way), next(&mut way)], [Some(12), Some(2), None]);
        way.opened(2);
        assert_eq!(next(&mut way), Some(3), "what was passed over isn't waited for");
    }

    #[test]
    fn it_goes_as_far_ahead_as_programs_come_after_it() {
        let mut way = Way::default();
        way.told(None, 0..100);
        let mut most = 0;
        for id in 0..50 {
            while next(&mut way).is_some() {}
            most = most.max(way.listed.len());
            way.opened(id);
        }
        assert_eq!(most, DIRECTORIES_AHEAD);
    }

    #[test]
    fn who_goes_another_way_is_followed_at_a_small_distance() {
        let mut way = Way { depth: DIRECTORIES_AHEAD, ..Way::default() };
        let mut in_vain = 0;
        for id in 0..100 {
            // Five, of which it comes to the last one alone.
            way.told(None, (5 * id..5 * id + 5).rev());
            while next(&mut way).is_some() {
                in_vain += 1;
            }
            way.opened(5 * id);
        }
        assert!(in_vain < 100 + 2 * DIRECTORIES_AHEAD, "{in_vain}");
    }

    #[test]
    fn who_is_quicker_is_not_followed() {
        let mut way = Way::default();
        way.told(None, 0..100);
        assert_eq!(next(&mut way), Some(0));
        way.opened(40);
        assert_eq!(next(&mut way), Some(41));
        assert_eq!(way.listed, [41]);
        way.opened(41);
        assert_eq!(way.next(|id| id < 90), Some(90), "those that were listed aren't listed once more");
        way.told(Some(7), 0..2 * WAITING_MAX as u64);
        assert_eq!(way.waiting.len(), WAITING_MAX);
    }
    #[test]
    fn who_finds_nothing_in_memory_tries_ever_more_seldom() {
        let mut way = Way::default();
        let mut tries = 0;
        for id in 0..3000 {
            way.told(None, [2 * id, 2 * id + 1].into_iter());
            if next(&mut way).is_some() {
                tries += 1;
                way.lost();
                assert_eq!(next(&mut way), None);
            }
            way.opened(2 * id);
        }
        assert!((6..12).contains(&tries), "{tries}");
        while next(&mut way).is_none() {
            way.opened(0);
        }
        way.found();
        way.lost();
        assert_eq!(way.pause, PAUSE_MIN, "it was for a while");
    }
}
