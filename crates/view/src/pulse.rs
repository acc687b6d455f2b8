//! The thread that says that the helper lives.

use std::{
    fs, io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::board::{Board, Phase};

/// Beats without a read of the disk after which nobody waits any more for trees to be looked at that were not in memory.
const IDLE_BEATS: u32 = 10;

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
    let mut read = bytes_read();
    let mut idle = 0;
    while !ended.load(Ordering::SeqCst) {
        thread::park_timeout(every);
        board.beat();
        let now = bytes_read();
        idle = if now == read { idle + 1 } else { 0 };
        read = now;
        if idle >= IDLE_BEATS || (idle > 0 && is_warm.load(Ordering::SeqCst)) {
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
