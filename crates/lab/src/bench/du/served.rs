//! A server of summaries, as long as it is measured.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use onesweep_sys::process;

use crate::bench::calibration;
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;
use crate::mount;
use crate::scratch::Scratch;

/// What is in its log when it is ready.
const HARVESTED: &str = " directories harvested in ";
/// And when all of that is on the disk.
const STORED: &str = ": what was harvested is stored";

/// `onesweep serve` of one file system. It ends when this goes.
pub(super) struct Served {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
    program: PathBuf,
    began: Instant,
    /// From the start until everything was harvested.
    pub(super) started_in: Duration,
    /// Directories that were read for that.
    pub(super) read: u64,
}

impl Served {
    /// Starts it, and waits until everything is harvested. Its store is kept in `scratch`, for the next one too.
    pub(super) fn start(programs: &Programs, scratch: &Scratch, tree: &Path) -> Result<Self, String> {
        Self::start_with(programs, scratch, tree, &[])
    }

    /// The same with further options.
    pub(super) fn start_with(
        programs: &Programs,
        scratch: &Scratch,
        tree: &Path,
        options: &[&str],
    ) -> Result<Self, String> {
        let (socket, store, log) = (scratch.file("socket"), scratch.file("store"), scratch.file("log"));
        let said = |error: std::io::Error| format!("can't start the server: {error}");
        let began = Instant::now();
        let child = Command::new(&programs.onesweep)
            .args(["serve".as_ref(), "--socket".as_ref(), socket.as_os_str(), "--store".as_ref(), store.as_os_str()])
            .args(options)
            .arg(tree)
            .stderr(Stdio::from(File::create(&log).map_err(said)?))
            .spawn()
            .map_err(said)?;
        let mut served =
            Self { child, socket, log, program: programs.onesweep.clone(), began, started_in: Duration::ZERO, read: 0 };
        served.started_in = served.says(HARVESTED)?;
        served.read = read(&served.told()).unwrap_or_default();
        Ok(served)
    }

    /// Waits until all that was harvested is stored; the time since the start.
    pub(super) fn stored(&mut self) -> Result<Duration, String> {
        self.says(STORED)
    }

    /// The time from the start until that is in its log.
    fn says(&mut self, words: &str) -> Result<Duration, String> {
        while !self.said(words) {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return Err(format!("the server ended: {}", self.told().trim()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(self.began.elapsed())
    }

    /// Whether that is in its log.
    pub(super) fn said(&self, words: &str) -> bool {
        self.told().contains(words)
    }

    /// Its log.
    pub(super) fn told(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Both processes stand still until that goes.
    pub(super) fn held(&self) -> Result<Held, String> {
        let held = Held(self.processes()?);
        held.send("-STOP").map(|()| held)
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// What asks it for the total of a tree, in bytes.
    pub(super) fn question(&self, tree: &Path) -> Vec<String> {
        let [program, socket, tree] = [&self.program, &self.socket, tree].map(|path| path.display().to_string());
        let options = ["du", "--socket", &socket, "-s", "-B1"].map(str::to_owned);
        [vec![program], options.to_vec(), vec![tree]].concat()
    }

    /// It, and the warden, which has its rights.
    fn processes(&self) -> Result<Vec<String>, String> {
        let own = self.child.id().to_string();
        let path = format!("/proc/{own}/task/{own}/children");
        let children = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        Ok([own].into_iter().chain(children.split_whitespace().map(str::to_owned)).collect())
    }

    /// Memory that is resident now, in KiB.
    pub(super) fn resident_kib(&self) -> Result<u64, String> {
        self.status("VmRSS:")
    }

    /// The most of it that ever was at a time, of each, since [`forget_peak`](Self::forget_peak).
    pub(super) fn peak_kib(&self) -> Result<u64, String> {
        self.status("VmHWM:")
    }

    /// The peak begins anew.
    pub(super) fn forget_peak(&self) -> Result<(), String> {
        self.processes()?.iter().try_for_each(|pid| {
            let path = format!("/proc/{pid}/clear_refs");
            fs::write(&path, "5").map_err(|error| format!("{path}: {error}"))
        })
    }

    /// What the status of both says, in KiB.
    fn status(&self, key: &str) -> Result<u64, String> {
        self.processes()?.iter().map(|pid| Self::status_of(pid, key)).sum()
    }

    fn status_of(pid: &str, key: &str) -> Result<u64, String> {
        let path = format!("/proc/{pid}/status");
        let status = fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix(key));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        kib.ok_or_else(|| format!("{path}: no {key}"))
    }

    /// Seconds of the processor that both have used so far.
    pub(super) fn processor_s(&self) -> Result<f64, String> {
        self.processes()?.iter().map(|pid| calibration::processor_s(pid)).sum()
    }

    /// Ends it in good order.
    pub(super) fn stop(mut self, interrupt: &Interrupt) -> Result<(), String> {
        self.end();
        let status = self.child.wait().map_err(|error| error.to_string())?;
        interrupt.check()?;
        if status.success() { Ok(()) } else { Err(format!("the server ended with {status}")) }
    }

    /// Ends it without giving it time for anything.
    pub(super) fn kill(mut self) -> Result<(), String> {
        let said = |error: std::io::Error| format!("can't kill the server: {error}");
        self.child.kill().map_err(said)?;
        self.child.wait().map(drop).map_err(said)
    }

    fn end(&self) {
        let _ = process::terminate(self.child.id());
    }
}

/// Processes that stand still. They could not even end.
pub(super) struct Held(Vec<String>);

impl Held {
    fn send(&self, signal: &str) -> Result<(), String> {
        mount::run("kill", [signal].into_iter().chain(self.0.iter().map(String::as_str))).map(drop)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Err(complaint) = self.send("-CONT") {
            eprintln!("onesweep-lab: {complaint}");
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.end();
            let _ = self.child.wait();
        }
    }
}

/// What the last line about a harvest says that it read.
fn read(log: &str) -> Option<u64> {
    let line = log.lines().rfind(|line| line.contains(HARVESTED))?;
    line.split(HARVESTED).next()?.rsplit(": ").next()?.split(" of ").next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_tells_what_was_read() {
        let log = "INFO serving\nINFO /srv/a: b: 17 of 1000 directories harvested in 0.1 s\nINFO ready\n";
        assert_eq!(read(log), Some(17));
        assert_eq!(read("nothing"), None);
    }
}
