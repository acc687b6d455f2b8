//! A server of summaries, as long as it is measured.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use onesweep_sys::process;

use crate::bench::calibration;
use crate::bench::work::Programs;
use crate::interrupt::Interrupt;
use crate::scratch::Scratch;

/// `onesweep serve` of one file system. It ends when this goes.
pub(super) struct Served {
    child: Child,
    socket: PathBuf,
    program: PathBuf,
    /// From the start until everything was harvested.
    pub(super) started_in: Duration,
}

impl Served {
    /// Starts it, and waits until everything is harvested. Its store is kept in `scratch`, for the next one too.
    pub(super) fn start(programs: &Programs, scratch: &Scratch, tree: &Path) -> Result<Self, String> {
        let (socket, store, log) = (scratch.file("socket"), scratch.file("store"), scratch.file("log"));
        let said = |error: std::io::Error| format!("can't start the server: {error}");
        let began = Instant::now();
        let child = Command::new(&programs.onesweep)
            .args(["serve".as_ref(), "--socket".as_ref(), socket.as_os_str(), "--store".as_ref(), store.as_os_str()])
            .arg(tree)
            .stderr(Stdio::from(File::create(&log).map_err(said)?))
            .spawn()
            .map_err(said)?;
        let mut served = Self { child, socket, program: programs.onesweep.clone(), started_in: Duration::ZERO };
        while !fs::read_to_string(&log).is_ok_and(|log| log.contains(" directories harvested in ")) {
            if !matches!(served.child.try_wait(), Ok(None)) {
                return Err(format!("the server ended: {}", fs::read_to_string(&log).unwrap_or_default().trim()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        served.started_in = began.elapsed();
        Ok(served)
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

    /// What its status says, in KiB.
    pub(super) fn resident_kib(&self) -> Result<u64, String> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = File::open(&path).map_err(|error| format!("{path}: {error}"))?;
        let lines = BufReader::new(status).lines().map_while(Result::ok);
        let line = lines.filter_map(|line| line.strip_prefix("VmRSS:").map(str::to_owned)).next();
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        kib.ok_or_else(|| format!("{path}: no resident size"))
    }

    /// Seconds of the processor that it has used so far.
    pub(super) fn processor_s(&self) -> Result<f64, String> {
        calibration::processor_s(&self.child.id().to_string())
    }

    /// Ends it in good order.
    pub(super) fn stop(mut self, interrupt: &Interrupt) -> Result<(), String> {
        self.end();
        let status = self.child.wait().map_err(|error| error.to_string())?;
        interrupt.check()?;
        if status.success() { Ok(()) } else { Err(format!("the server ended with {status}")) }
    }

    fn end(&self) {
        let _ = process::terminate(self.child.id());
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
