//! Threads that match rules against contents. Who doesn't get done in time is left to itself, and ends when it can.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    thread,
    time::{Duration, Instant},
};

use yara_x::{Rules, ScanError, Scanner};

use super::compile::said;

/// So many that were left to themselves may not have ended yet; each holds a content.
const LATE_MAX: usize = 4;
/// How often it is looked whether all is to end.
const LOOK: Duration = Duration::from_millis(50);
/// YARA-X counts whole seconds, and may count one too many. It is to notice after us.
const LATER: Duration = Duration::from_secs(2);
/// Its parsers recur.
const STACK_BYTES: usize = 8 << 20;

/// Why a content was not matched.
#[derive(Debug)]
pub(super) enum Unmatched {
    /// Its time is over.
    Late,
    /// All is to end.
    Stopped,
    /// Too many were late, and have not ended yet.
    Full,
    /// YARA-X failed.
    Failed(String),
    /// There is no thread for it.
    NoThread(io::Error),
}

#[derive(Debug)]
pub(super) struct Workers {
    rules: Shared,
    patience: Duration,
    idle: Mutex<Vec<Worker>>,
    /// Those that were left to themselves.
    late: Mutex<Vec<Weak<()>>>,
}

/// The names of the rules that match.
type Matched = Result<Vec<String>, Unmatched>;

struct Job {
    content: Vec<u8>,
    answer: SyncSender<Matched>,
}

/// A thread, which ends when this is dropped and its last content was matched.
#[derive(Debug)]
struct Worker {
    jobs: SyncSender<Job>,
    /// The other one is the thread's.
    alive: Weak<()>,
}

#[derive(Clone)]
struct Shared(Arc<Rules>);

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} rules", self.0.iter().len())
    }
}

impl Workers {
    /// None yet. Each content has so much time.
    pub(super) fn new(rules: Rules, patience: Duration) -> Self {
        Self { rules: Shared(Arc::new(rules)), patience, idle: Mutex::default(), late: Mutex::default() }
    }

    /// Matches the rules against a content. It is waited for until then, or until `stop` is set.
    pub(super) fn matched(&self, content: Vec<u8>, until: Instant, stop: &AtomicBool) -> Matched {
        let mut late = locked(&self.late);
        late.retain(|one| one.strong_count() > 0);
        if late.len() >= LATE_MAX {
            return Err(Unmatched::Full);
        }
        drop(late);
        let idle = locked(&self.idle).pop();
        let worker = match idle {
            Some(worker) => worker,
            None => Worker::start(self.rules.clone(), self.patience + LATER).map_err(Unmatched::NoThread)?,
        };
        let (answer, answers) = mpsc::sync_channel(1);
        let gone = || Unmatched::Failed("YARA-X: its thread has ended".to_owned());
        worker.jobs.send(Job { content, answer }).map_err(|_| gone())?;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match answers.recv_timeout(left.min(LOOK)) {
                Ok(matched) => {
                    // One that failed has ended.
                    if !matches!(matched, Err(Unmatched::Failed(_))) {
                        locked(&self.idle).push(worker);
                    }
                    return matched;
                }
                Err(RecvTimeoutError::Disconnected) => return Err(gone()),
                Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => return Err(Unmatched::Stopped),
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    locked(&self.late).push(worker.alive);
                    return Err(Unmatched::Late);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Worker {
    fn start(rules: Shared, patience: Duration) -> io::Result<Self> {
        let (jobs, of_others) = mpsc::sync_channel(0);
        let alive = Arc::new(());
        let worker = Self { jobs, alive: Arc::downgrade(&alive) };
        let thread = thread::Builder::new().name("yara".to_owned()).stack_size(STACK_BYTES);
        thread.spawn(move || {
            let _alive = alive;
            work(&rules.0, patience, &of_others);
        })?;
        Ok(worker)
    }
}

/// Until nobody has more. To make a scanner takes a while, so each is used again, but not after a panic.
fn work(rules: &Rules, patience: Duration, jobs: &Receiver<Job>) {
    let mut scanner = Scanner::new(rules);
    // Whether a pattern is there is enough where no rule counts how often.
    scanner.set_timeout(patience).fast_scan(true);
    for Job { content, answer } in jobs {
        let matched = catch_unwind(AssertUnwindSafe(|| match scanner.scan(&content) {
            Ok(results) => Ok(results.matching_rules().map(|rule| rule.identifier().to_owned()).collect()),
            Err(ScanError::Timeout) => Err(Unmatched::Late),
            Err(error) => Err(Unmatched::Failed(format!("YARA-X: {error}"))),
        }));
        let matched = matched.unwrap_or_else(|why| Err(Unmatched::Failed(format!("YARA-X: {}", said(&*why)))));
        let has_failed = matches!(matched, Err(Unmatched::Failed(_)));
        drop(content);
        // Maybe nobody waits any more.
        let _ = answer.send(matched);
        if has_failed {
            return;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::scan::yara::compile::tests::of;

    /// A rule that takes hours, and looks at the clock meanwhile.
    pub(crate) const SLOW: &str = "rule Slow { condition: filesize > 100 and \
        for all i in (0..1000000000) : (for all j in (0..1000000000) : (uint8(i % filesize) + uint8(j % filesize) < 1000)) }";

    #[test]
    fn who_is_late_or_stopped_is_not_waited_for_and_others_go_on() {
        let workers = Workers::new(of(&[("a.yar", SLOW)]).unwrap(), Duration::from_secs(1));
        let stop = AtomicBool::new(false);
        let matched = |bytes: usize, time: u64, stop: &AtomicBool| {
            workers.matched(vec![7; bytes], Instant::now() + Duration::from_millis(time), stop)
        };
        let no = || AtomicBool::new(false);
        assert!(matches!(matched(10, 60_000, &no()), Ok(names) if names.is_empty()));
        assert!(matches!(matched(200, 50, &no()), Err(Unmatched::Late)));
        assert_eq!((locked(&workers.late).len(), locked(&workers.idle).len()), (1, 0));
        assert!(matches!(matched(10, 60_000, &no()), Ok(names) if names.is_empty()));
        stop.store(true, Ordering::Relaxed);
        assert!(matches!(matched(200, 60_000, &stop), Err(Unmatched::Stopped)));
        // No more than so many go on, and they do end.
        let late = locked(&workers.late).len();
        for _ in late..LATE_MAX {
            assert!(matches!(matched(200, 0, &no()), Err(Unmatched::Late)));
        }
        assert!(matches!(matched(10, 60_000, &no()), Err(Unmatched::Full)));
        while matches!(matched(10, 60_000, &no()), Err(Unmatched::Full)) {
            thread::sleep(LOOK);
        }
    }
}
