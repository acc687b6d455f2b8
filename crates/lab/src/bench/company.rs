//! Someone else on the disk: a second reader, or a writer, at a rate of modelled time.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use onesweep_sys::files;

use crate::random::Random;

/// What each of them does in a second that the disk is at work.
const A_SECOND: f64 = 8.0;
/// Bytes of one read of the reader.
const READ: usize = 4096;
/// Bytes of one file of the writer.
const WRITTEN: usize = 16 << 10;
/// Files after which the writer waits for the disk.
const SYNC: u64 = 8;

/// The part of what is due that has to be done. Each waits for the disk before it acts again, so beside a program that keeps
/// the disk's queue full it comes to half of it; who comes to less was gone.
const LEAST: f64 = 0.25;
/// So many times may always be missing: a second of work.
const LATE: u64 = A_SECOND as u64;

/// A thread that uses the disk until this goes.
pub(crate) struct Companion {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Acted>>,
}

/// What it did, and why it didn't go on.
#[derive(Debug, Default)]
struct Acted {
    times: u64,
    error: Option<String>,
}

impl Acted {
    /// How often it acted. Who was alone on the disk for a part of a run had no company.
    fn held_against(self, busy_ms: f64) -> Result<u64, String> {
        let due = due(busy_ms);
        match self.error {
            Some(error) => Err(format!("the companion: {error}")),
            None if ((self.times + LATE) as f64) < due as f64 * LEAST => {
                Err(format!("the companion acted {} times, and {due} were due", self.times))
            }
            None => Ok(self.times),
        }
    }
}

impl Companion {
    /// Reads 4 KiB at random places of the device, eight times a second.
    pub(crate) fn reader(stats: PathBuf, device: &Path, bytes: u64) -> Result<Self, String> {
        let said = |error| format!("{}: {error}", device.display());
        let device = File::from(files::open_direct_at(files::CURRENT_DIR, device).map_err(said)?);
        let mut random = Random::new(8);
        let mut buffer = vec![0; 2 * READ];
        let aligned = buffer.as_ptr().align_offset(READ);
        Ok(Self::start(stats, move |_| {
            let address = random.below(bytes / READ as u64) * READ as u64;
            device.read_exact_at(&mut buffer[aligned..aligned + READ], address)
        }))
    }

    /// Writes eight files of 16 KiB a second into `dir`, and waits once a second until they are on the disk.
    pub(crate) fn writer(stats: PathBuf, dir: &Path) -> Result<Self, String> {
        let dir = dir.join("companion");
        fs::create_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        Ok(Self::start(stats, move |done| {
            let mut file = File::create(dir.join(done.to_string()))?;
            file.write_all(&[done as u8; WRITTEN])?;
            if (done + 1).is_multiple_of(SYNC) { file.sync_all() } else { Ok(()) }
        }))
    }

    fn start(stats: PathBuf, mut act: impl FnMut(u64) -> std::io::Result<()> + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut acted = Acted::default();
            while !stopped.load(Ordering::Relaxed) && acted.error.is_none() {
                if acted.times < due(busy_ms(&stats)) {
                    match act(acted.times) {
                        Ok(()) => acted.times += 1,
                        Err(error) => acted.error = Some(error.to_string()),
                    }
                } else {
                    thread::sleep(Duration::from_micros(500));
                }
            }
            acted
        });
        Self { stop, thread: Some(thread) }
    }

    /// Ends it after so many milliseconds of the disk's work, and says how often it acted; or that it was no company.
    pub(crate) fn end(mut self, busy_ms: f64) -> Result<u64, String> {
        self.stop.store(true, Ordering::Relaxed);
        let acted = self.thread.take().and_then(|thread| thread.join().ok());
        acted.ok_or("the companion panicked")?.held_against(busy_ms)
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// How often it should have acted by then.
pub(crate) fn due(busy_ms: f64) -> u64 {
    (busy_ms / 1000.0 * A_SECOND) as u64
}

fn busy_ms(stats: &Path) -> f64 {
    let text = fs::read_to_string(stats).unwrap_or_default();
    let stats: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    stats["busy_ms"].as_f64().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_acts_by_the_books_alone() {
        assert_eq!([0.0, 124.0, 125.0, 1000.0, 2600.0].map(due), [0, 0, 1, 8, 20]);
        let dir = tempfile::tempdir().unwrap();
        let stats = dir.path().join("stats");
        fs::write(&stats, r#"{"busy_ms": 1000.0}"#).unwrap();
        let writer = Companion::writer(stats, dir.path()).unwrap();
        let last = dir.path().join("companion/7");
        while !last.exists() {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(writer.end(1000.0), Ok(8));
    }

    #[test]
    fn who_acts_too_seldom_is_no_company() {
        let acted = |times, error: Option<&str>| Acted { times, error: error.map(String::from) };
        assert_eq!(acted(0, None).held_against(1000.0), Ok(0), "a second of work may be missing");
        assert_eq!(acted(192, None).held_against(100_000.0), Ok(192));
        let late = acted(191, None).held_against(100_000.0).unwrap_err();
        assert_eq!(late, "the companion acted 191 times, and 800 were due");
        let failed = acted(800, Some("no space")).held_against(100_000.0).unwrap_err();
        assert_eq!(failed, "the companion: no space");
    }

    /// A run beside a companion that is gone would count as one beside it.
    #[test]
    fn a_companion_that_fails_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let stats = dir.path().join("stats");
        fs::write(&stats, r#"{"busy_ms": 1000.0}"#).unwrap();
        let writer = Companion::writer(stats.clone(), dir.path()).unwrap();
        while !dir.path().join("companion/7").exists() {
            thread::sleep(Duration::from_millis(1));
        }
        fs::remove_dir_all(dir.path().join("companion")).unwrap();
        fs::write(&stats, r#"{"busy_ms": 2000.0}"#).unwrap();
        let thread = writer.thread.as_ref().unwrap();
        while !thread.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(writer.end(2000.0).unwrap_err().starts_with("the companion: No such file"));
    }
}
