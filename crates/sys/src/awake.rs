//! Processors that stay awake while requests come in quick succession.
//!
//! Whoever is asked for something small by a program, and is woken for it, costs the program two processors that have to be woken:
//! its own and the other. In a virtual machine that takes about as long as the answer itself; elsewhere it depends on how deeply
//! they sleep (`/sys/devices/system/cpu/cpu*/cpuidle/state*/latency`). Linux lets them wait without sleep for as long as
//! `/dev/cpu_dma_latency` is held at 0 µs (PM QoS), which costs power, and time of other machines on the same host; so it is held
//! only while somebody would wait.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

const DEVICE: &str = "/dev/cpu_dma_latency";
/// As long as an idle processor may take to wake up, in µs.
const AT_ONCE: i32 = 0;
/// The kernel's own default: 2,000 s.
const WHENEVER: i32 = 2_000_000_000;

/// When requests come in quick succession.
#[derive(Debug, Clone, Copy)]
pub struct Busy {
    /// So many, at least.
    pub requests: u64,
    /// In such a time. With less than a quarter of them in it, it is over.
    pub within: Duration,
}

impl Default for Busy {
    /// One request after the other, of which a program does nothing else with most of its time: 1,600 a second.
    fn default() -> Self {
        Self { requests: 32, within: Duration::from_millis(20) }
    }
}

/// Keeps all processors of this machine awake while it is told of many requests. Dropped, or when this process ends however it
/// does, they may sleep.
#[derive(Debug)]
pub struct Awake {
    shared: Arc<Shared>,
    keeper: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    busy: Busy,
    began: Instant,
    requests: AtomicU64,
    /// When the last round number of them was reached, in µs since the beginning.
    reached: AtomicU64,
    is_held: AtomicBool,
    is_over: AtomicBool,
}

impl Awake {
    /// Needs the right to write to the device, which root has. `NotFound` where there is none, as in containers.
    #[doc(alias = "/dev/cpu_dma_latency")]
    pub fn while_busy(busy: Busy) -> io::Result<Self> {
        Self::by(Path::new(DEVICE), busy)
    }

    fn by(device: &Path, busy: Busy) -> io::Result<Self> {
        let device = OpenOptions::new().write(true).open(device)?;
        hold(&device, WHENEVER)?;
        let shared = Arc::new(Shared {
            busy,
            began: Instant::now(),
            requests: AtomicU64::new(0),
            reached: AtomicU64::new(0),
            is_held: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let kept = Arc::clone(&shared);
        let keeper = thread::Builder::new().name("awake".into()).spawn(move || kept.keep(&device))?;
        Ok(Self { shared, keeper: Some(keeper) })
    }

    /// A request has come, for which a program waits. Costs some nanoseconds.
    pub fn asked(&self) {
        let Some(keeper) = &self.keeper else { return };
        if self.shared.asked() {
            keeper.thread().unpark();
        }
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        if let Some(keeper) = self.keeper.take() {
            keeper.thread().unpark();
            let _ = keeper.join();
        }
    }
}

impl Shared {
    /// Whether it has just become busy.
    fn asked(&self) -> bool {
        let count = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        if !count.is_multiple_of(self.busy.requests.max(1)) || self.is_held.load(Ordering::Relaxed) {
            return false;
        }
        let now = self.began.elapsed().as_micros() as u64;
        let before = self.reached.swap(now, Ordering::Relaxed);
        let is_busy = u128::from(now.saturating_sub(before)) <= self.busy.within.as_micros();
        is_busy && !self.is_held.swap(true, Ordering::SeqCst)
    }

    fn keep(&self, device: &File) {
        while !self.is_over.load(Ordering::SeqCst) {
            if !self.is_held.load(Ordering::SeqCst) {
                thread::park();
                continue;
            }
            // What can't be held isn't: everything works as well without.
            let _ = hold(device, AT_ONCE);
            let mut since = self.requests.load(Ordering::Relaxed);
            loop {
                thread::sleep(self.busy.within);
                let now = self.requests.load(Ordering::Relaxed);
                if now - since < self.busy.requests.div_ceil(4) || self.is_over.load(Ordering::SeqCst) {
                    break;
                }
                since = now;
            }
            let _ = hold(device, WHENEVER);
            self.is_held.store(false, Ordering::SeqCst);
        }
    }
}

fn hold(device: &File, micros: i32) -> io::Result<()> {
    device.write_all_at(&micros.to_ne_bytes(), 0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn held(device: &Path) -> i32 {
        i32::from_ne_bytes(fs::read(device).unwrap().try_into().unwrap())
    }

    // A plain file takes what the device takes.
    #[test]
    fn processors_are_awake_while_many_requests_come_and_not_longer() {
        let device = tempfile::NamedTempFile::new().unwrap();
        let busy = Busy { requests: 8, within: Duration::from_secs(3600) };
        let awake = Awake::by(device.path(), busy).unwrap();
        assert_eq!(held(device.path()), WHENEVER);
        for _ in 0..7 {
            awake.asked();
        }
        assert!(!awake.shared.is_held.load(Ordering::SeqCst), "seven are few");
        drop(awake);

        let busy = Busy { within: Duration::from_millis(20), ..busy };
        let awake = Awake::by(device.path(), busy).unwrap();
        while held(device.path()) != AT_ONCE {
            awake.asked();
        }
        while held(device.path()) != WHENEVER {
            thread::yield_now();
        }
        while held(device.path()) != AT_ONCE {
            awake.asked();
        }
        drop(awake);
        assert_eq!(held(device.path()), WHENEVER, "it ends with who has asked for it");
    }

    #[test]
    fn requests_now_and_then_wake_nobody() {
        let shared = Shared {
            busy: Busy { requests: 4, within: Duration::from_micros(1) },
            began: Instant::now(),
            requests: AtomicU64::new(0),
            reached: AtomicU64::new(0),
            is_held: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        };
        for _ in 0..40 {
            thread::sleep(Duration::from_micros(50));
            assert!(!shared.asked());
        }
    }
}
