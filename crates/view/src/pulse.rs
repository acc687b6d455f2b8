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

fn beat(board: &Board, ended: &AtomicBool, is_warm: &AtomicBool, every: Duration) {
    let mut last = (bytes_read(), Instant::now());
    while !ended.load(Ordering::SeqCst) {
        let is_looking = board.phase() == Phase::Looking;
        thread::park_timeout(if is_looking { every.min(LOOK) } else { every });
        board.beat();
        if !is_looking {
            continue;
        }
        let read = bytes_read();
        if read != last.0 {
            last = (read, Instant::now());
        }
        let idle = if is_warm.load(Ordering::SeqCst) { IDLE_IN_MEMORY } else { IDLE };
        if last.1.elapsed() >= idle {
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
