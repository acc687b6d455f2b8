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

/// A thread that uses the disk until this goes.
pub(crate) struct Companion {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
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
            let mut done = 0;
            while !stopped.load(Ordering::Relaxed) {
                if done < due(busy_ms(&stats)) {
                    if let Err(error) = act(done) {
                        eprintln!("onesweep-lab: the companion: {error}");
                        break;
                    }
                    done += 1;
                } else {
                    thread::sleep(Duration::from_micros(500));
                }
            }
            done
        });
        Self { stop, thread: Some(thread) }
    }

    /// Ends it, and says how often it acted.
    pub(crate) fn end(mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// How often it should have acted by then.
fn due(busy_ms: f64) -> u64 {
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
        assert_eq!(writer.end(), 8);
    }
}
