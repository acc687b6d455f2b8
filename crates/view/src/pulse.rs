//! The thread that says that the helper lives.

use std::{
    fs, io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::board::{Board, Phase};

/// How long the disk isn't read before nobody waits any more for trees to be looked at: such that were not in memory, and such that
/// seem to be.
const IDLE: Duration = Duration::from_secs(1);
const IDLE_IN_MEMORY: Duration = Duration::from_millis(20);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// What of the time between two looks counts: this process was stopped meanwhile, or got no processor, and so didn't read.
const GAP_MAX: Duration = Duration::from_millis(100);

/// Lets programs know that somebody brings in what they wait for; and lets them go on when looking at the trees is left to
/// memory, or to a disk that says nothing.
#[derive(Debug)]
pub(crate) struct Pulse {
    ended: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Pulse {
    /// A beat `every` so often. `is_warm` says that the trees seem to be in memory.
    pub(crate) fn start(board: Arc<Board>, is_warm: Arc<AtomicBool>, every: Duration) -> io::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&ended);
        let thread =
            thread::Builder::new().name("pulse".into()).spawn(move || beat(&board, &until, &is_warm, every))?;
        Ok(Self { ended, thread })
    }

    /// At once, not at the next beat: the program has ended, and somebody waits.
    pub(crate) fn end(self) {
        self.ended.store(true, Ordering::SeqCst);
        self.thread.thread().unpark();
        let _ = self.thread.join();
    }
}

/// For how long the disk wasn't read.
struct Silence {
    read: Option<u64>,
    looked: Instant,
    lasts: Duration,
}

impl Silence {
    fn new(read: Option<u64>, now: Instant) -> Self {
        Self { read, looked: now, lasts: Duration::ZERO }
    }

    fn look(&mut self, read: Option<u64>, now: Instant) -> Duration {
        let gap = now.saturating_duration_since(self.looked).min(GAP_MAX);
        self.lasts = if read == self.read { self.lasts + gap } else { Duration::ZERO };
        (self.read, self.looked) = (read, now);
        self.lasts
    }
}

fn beat(board: &Board, ended: &AtomicBool, is_warm: &AtomicBool, every: Duration) {
    let mut silence = Silence::new(bytes_read(), Instant::now());
    while !ended.load(Ordering::SeqCst) {
        let is_looking = board.phase() == Phase::Looking;
        thread::park_timeout(if is_looking { every.min(LOOK) } else { every });
        board.beat();
        if !is_looking {
            continue;
        }
        let lasts = silence.look(bytes_read(), Instant::now());
        let idle = if is_warm.load(Ordering::SeqCst) { IDLE_IN_MEMORY } else { IDLE };
        if lasts >= idle {
            board.pass(Phase::Looking, Phase::Aside);
        }
    }
}

/// Bytes that this process has read from disks.
fn bytes_read() -> Option<u64> {
    let text = fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes: ")?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that slept until its next beat would hold this test up for a day.
    #[test]
    fn the_end_is_not_put_off_until_the_next_beat() {
        let board = Arc::new(Board::new(&[7], None).unwrap());
        let pulse = Pulse::start(board, Arc::default(), Duration::from_secs(86_400)).unwrap();
        pulse.end();
    }

    #[test]
    fn a_disk_is_silent_as_long_as_somebody_could_read_it() {
        let begin = Instant::now();
        let at = |millis: u64| begin + Duration::from_millis(millis);
        let mut silence = Silence::new(Some(5), begin);
        assert_eq!(silence.look(Some(5), at(10)), Duration::from_millis(10));
        assert_eq!(silence.look(Some(5), at(30)), Duration::from_millis(30));
        // It was stopped for seven seconds.
        assert_eq!(silence.look(Some(5), at(7030)), Duration::from_millis(30) + GAP_MAX);
        assert_eq!(silence.look(Some(6), at(7040)), Duration::ZERO);
        assert_eq!(silence.look(Some(6), at(7050)), Duration::from_millis(10));
    }

    #[test]
    fn nobody_waits_for_trees_that_are_looked_at_in_memory() {
        let board = Arc::new(Board::new(&[7], None).unwrap());
        let pulse = Pulse::start(Arc::clone(&board), Arc::new(true.into()), Duration::from_millis(1)).unwrap();
        while board.phase() == Phase::Looking {
            thread::yield_now();
        }
        assert_eq!(board.phase(), Phase::Aside);
        pulse.end();
    }
}
