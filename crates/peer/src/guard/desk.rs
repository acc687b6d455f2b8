//! Who waits for which file: questions of one file become one job, each has its time, and there is room for so many. Of one file
//! at most one job is under way, so that a slow one takes one scanner, however many open it while it changes. No threads, no clock.
//!
//! ```text
//!   ask ──► job queued ──► begin ──► looked at ──► end: who still waits gets the verdict
//!            ▲ others may join      ▲ may join as long as its content can't change unseen (see `seal`)
//!            └── late: who has waited too long is given back, the job goes on if it has begun
//! ```

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Instant,
};

use super::memory::FileId;

/// A file that is to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct JobId(u64);

#[derive(Debug)]
pub(super) struct Desk<W> {
    most: usize,
    waiting: usize,
    last: u64,
    jobs: HashMap<JobId, Job<W>>,
    queue: VecDeque<JobId>,
    /// Jobs that questions of the same file may join.
    open: HashMap<FileId, JobId>,
    /// Files that are looked at, by file system and inode.
    busy: HashSet<(u64, u64)>,
}

#[derive(Debug)]
struct Job<W> {
    file: FileId,
    has_begun: bool,
    waiters: Vec<(Instant, W)>,
}

impl<W> Desk<W> {
    /// With room for so many who wait.
    pub(super) fn new(most: usize) -> Self {
        let (jobs, queue, open) = (HashMap::new(), VecDeque::new(), HashMap::new());
        Self { most, waiting: 0, last: 0, jobs, queue, open, busy: HashSet::new() }
    }

    /// Somebody waits until then; given back where there is no room. True where there is a job more.
    pub(super) fn ask(&mut self, file: FileId, waiter: W, until: Instant) -> Result<bool, W> {
        if self.waiting >= self.most {
            return Err(waiter);
        }
        self.waiting += 1;
        if let Some(job) = self.open.get(&file).and_then(|id| self.jobs.get_mut(id)) {
            job.waiters.push((until, waiter));
            return Ok(false);
        }
        self.last += 1;
        let id = JobId(self.last);
        self.jobs.insert(id, Job { file, has_begun: false, waiters: vec![(until, waiter)] });
        self.queue.push_back(id);
        self.open.insert(file, id);
        Ok(true)
    }

    /// The next job of a file that is not looked at yet, with one of those who wait for it. One for which nobody waits any more is
    /// left out.
    pub(super) fn begin(&mut self) -> Option<(JobId, FileId, &W)> {
        let mut at = 0;
        while let Some(id) = self.queue.get(at).copied() {
            let Some(job) = self.jobs.get(&id) else {
                self.queue.remove(at);
                continue;
            };
            if job.waiters.is_empty() {
                self.queue.remove(at);
                self.remove(id);
                continue;
            }
            if !self.busy.insert(place(&job.file)) {
                at += 1;
                continue;
            }
            self.queue.remove(at);
            let job = self.jobs.get_mut(&id)?;
            job.has_begun = true;
            return job.waiters.first().map(|(_, waiter)| (id, job.file, waiter));
        }
        None
    }

    /// What is read now may be changed without its inode saying so: who comes later has to be told what it holds then.
    pub(super) fn seal(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get(&id)
            && self.open.get(&job.file) == Some(&id)
        {
            self.open.remove(&job.file);
        }
    }

    /// It was looked at; those who still wait. Another job of its file may begin then.
    pub(super) fn end(&mut self, id: JobId) -> Vec<W> {
        if let Some(job) = self.jobs.get(&id).filter(|job| job.has_begun) {
            self.busy.remove(&place(&job.file));
        }
        let waiters = self.remove(id);
        self.waiting -= waiters.len();
        waiters
    }

    fn remove(&mut self, id: JobId) -> Vec<W> {
        self.seal(id);
        self.jobs.remove(&id).map_or_else(Vec::new, |job| job.waiters.into_iter().map(|(_, waiter)| waiter).collect())
    }

    /// Those who have waited until `now`.
    pub(super) fn late(&mut self, now: Instant) -> Vec<W> {
        let mut late = Vec::new();
        for job in self.jobs.values_mut() {
            late.extend(job.waiters.extract_if(.., |(until, _)| *until <= now).map(|(_, waiter)| waiter));
        }
        self.waiting -= late.len();
        late
    }

    /// All who wait.
    pub(super) fn all(&mut self) -> Vec<W> {
        self.waiting = 0;
        self.jobs.values_mut().flat_map(|job| job.waiters.drain(..)).map(|(_, waiter)| waiter).collect()
    }

    /// When the next has waited too long.
    pub(super) fn next_late(&self) -> Option<Instant> {
        self.jobs.values().flat_map(|job| &job.waiters).map(|(until, _)| *until).min()
    }
}

fn place(file: &FileId) -> (u64, u64) {
    (file.dev, file.key.inode)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::memory::tests::file, *};

    fn at(seconds: u64) -> Instant {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now) + Duration::from_secs(seconds)
    }

    #[test]
    fn questions_of_one_file_are_one_job() {
        let mut desk = Desk::new(10);
        assert_eq!(desk.ask(file(1, 0), "a", at(1)), Ok(true));
        assert_eq!(desk.ask(file(1, 0), "b", at(1)), Ok(false));
        assert_eq!(desk.ask(file(1, 1), "changed", at(1)), Ok(true));
        let (first, id, waiter) = desk.begin().map(|(job, id, waiter)| (job, id, *waiter)).unwrap();
        assert_eq!((id, waiter), (file(1, 0), "a"));
        // As long as it can't change unseen, what is read is the answer to who comes later.
        assert_eq!(desk.ask(file(1, 0), "c", at(1)), Ok(false));
        desk.seal(first);
        assert_eq!(desk.ask(file(1, 0), "d", at(1)), Ok(true));
        // The same file is not looked at twice at a time, others are.
        desk.ask(file(2, 0), "other", at(1)).unwrap();
        let (other, ..) = desk.begin().unwrap();
        assert!(desk.begin().is_none());
        assert_eq!(desk.end(other), ["other"]);
        assert!(desk.begin().is_none());
        assert_eq!(desk.end(first), ["a", "b", "c"]);
        // The later one is still open.
        assert_eq!(desk.ask(file(1, 0), "e", at(1)), Ok(false));
        let (second, ..) = desk.begin().unwrap();
        assert_eq!(desk.end(second), ["changed"]);
        let (third, ..) = desk.begin().unwrap();
        assert_eq!(desk.end(third), ["d", "e"]);
        assert!(desk.begin().is_none() && desk.jobs.is_empty() && desk.open.is_empty() && desk.busy.is_empty());
    }

    #[test]
    fn who_waits_too_long_is_given_back() {
        let mut desk = Desk::new(10);
        for (n, until) in [(1, 5), (1, 9), (2, 6), (3, 7)] {
            desk.ask(file(n, 0), (n, until), at(until)).unwrap();
        }
        let (begun, ..) = desk.begin().unwrap();
        assert_eq!(desk.next_late(), Some(at(5)));
        let mut late = desk.late(at(6));
        late.sort_unstable();
        assert_eq!((late, desk.next_late()), (vec![(1, 5), (2, 6)], Some(at(7))));
        // Nobody waits for the second file any more; the first goes on.
        assert_eq!(desk.begin().unwrap().1, file(3, 0));
        assert_eq!(desk.late(at(100)).len(), 2);
        assert_eq!((desk.end(begun), desk.waiting, desk.next_late()), (vec![], 0, None));
    }

    #[test]
    fn there_is_room_for_so_many() {
        let mut desk = Desk::new(2);
        desk.ask(file(1, 0), "a", at(1)).unwrap();
        desk.ask(file(1, 0), "b", at(1)).unwrap();
        assert_eq!(desk.ask(file(1, 0), "c", at(1)), Err("c"));
        assert_eq!(desk.all(), ["a", "b"]);
        assert_eq!(desk.ask(file(2, 0), "d", at(1)), Ok(true));
    }
}
