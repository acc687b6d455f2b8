//! The daemon's end of the mover, and what the two say to each other.

use std::{
    env,
    ffi::OsString,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use onesweep_summary::tracker::Moves;
use onesweep_sys::handle::FileHandle;

use crate::{message, report::Failure};

/// To the mover: the settings are to be read again. When the pipe ends, it ends.
pub(super) const RELOAD: u8 = b'r';

/// From the mover: files of this directory may take fewer blocks now.
pub(super) fn line(dev: u64, directory: &FileHandle) -> String {
    let identity: String = directory.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{dev} {} {identity}", directory.kind())
}

fn parsed(line: &str) -> Option<(u64, FileHandle)> {
    let mut words = line.split(' ');
    let (dev, kind, identity) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?, words.next()?);
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    let identity: Option<Vec<u8>> = identity.as_bytes().chunks(2).map(byte).collect();
    Some((dev, FileHandle::new(kind, &identity?)?))
}

/// Who has to know of the mover.
#[derive(Debug)]
struct Tracked {
    /// The mover's; 0 when it has ended.
    number: u32,
    /// Of each file system.
    all: Vec<Moves>,
}

impl Tracked {
    fn add(&mut self, moves: Moves) {
        moves.are_by(self.number);
        self.all.push(moves);
    }

    /// Another process may get the number when the mover is waited for, so this comes first. What the mover does after this counts as
    /// what anybody does.
    fn forget_number(&mut self) {
        self.number = 0;
        self.all.iter().for_each(|moves| moves.are_by(0));
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The mover's process.
pub(super) struct Mover {
    process: Arc<Mutex<Child>>,
    control: Option<ChildStdin>,
    is_to_end: Arc<AtomicBool>,
    tracked: Arc<Mutex<Tracked>>,
}

impl Mover {
    /// Starts it: this program once more, with the rights that there are now.
    pub(super) fn start() -> Result<Mover, Failure> {
        let failed = |why: String| Failure::told(format!("cannot start the mover: {why}"));
        let mut words: Vec<OsString> = env::args_os().skip(1).collect();
        // Behind the command, before what may be paths alone.
        let place = words.iter().position(|word| word == "serve").map_or(0, |place| place + 1);
        words.insert(place, "--mover".into());
        let started = Command::new("/proc/self/exe")
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .env_remove("NOTIFY_SOCKET")
            .spawn();
        let mut process = started.map_err(|error| failed(message::why(&error).to_string()))?;
        let (control, told) = (process.stdin.take(), process.stdout.take());
        let told = told.ok_or_else(|| failed("it has no output".into()))?;
        let tracked = Arc::new(Mutex::new(Tracked { number: process.id(), all: Vec::new() }));
        let tell = Arc::clone(&tracked);
        let process = Arc::new(Mutex::new(process));
        let is_to_end = Arc::<AtomicBool>::default();
        let (ended, expected) = (Arc::clone(&process), Arc::clone(&is_to_end));
        let heard = thread::Builder::new().name("moves".into()).spawn(move || {
            for line in BufReader::new(told).lines().map_while(Result::ok) {
                let Some((dev, directory)) = parsed(&line) else { continue };
                lock(&tell).all.retain(|moves| moves.sizes_changed(dev, &directory).is_some());
            }
            let is_expected = expected.load(Ordering::SeqCst);
            // Who ends the server waits until this was told.
            let mut process = lock(&ended);
            lock(&tell).forget_number();
            let how = process.wait();
            if !is_expected {
                let how = how.map_or_else(|error| message::why(&error).to_string(), |how| how.to_string());
                tracing::error!(
                    "the mover has ended ({how}); no more files are moved until the server is started again"
                );
            }
        });
        heard.map_err(|error| failed(message::why(&error).to_string()))?;
        Ok(Mover { process, control, is_to_end, tracked })
    }

    /// What it does on this file system is no change, but for what it says.
    pub(super) fn is_heard_by(&self, moves: Moves) {
        lock(&self.tracked).add(moves);
    }

    pub(super) fn reload(&mut self) {
        // That it has ended was told when it did.
        let _ = self.control.as_mut().map(|control| control.write_all(&[RELOAD]).and_then(|()| control.flush()));
    }

    /// Ends it behind the region that it moves, and waits for that.
    pub(super) fn end(mut self) {
        self.is_to_end.store(true, Ordering::SeqCst);
        self.control = None;
        let mut process = lock(&self.process);
        lock(&self.tracked).forget_number();
        let _ = process.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let directory = FileHandle::new(0x81, &[0, 1, 0xfe, 7, 8, 9, 10, 11]).unwrap();
        assert_eq!(parsed(&line(2049, &directory)), Some((2049, directory)));
        for bad in ["", "1", "1 2", "x 1 00", "1 x 00", "1 1 0g", "1 1 é0", &format!("1 1 {}", "00".repeat(99))] {
            assert_eq!(parsed(bad), None, "{bad}");
        }
    }
}
