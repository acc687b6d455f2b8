//! The first process: sets up the disk with what stands on it, and takes all of it down.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{MountSpec, Spec};
use crate::mount::{self, Loop};

/// A disk that is shown, with what stands on it. It is taken down when this goes.
pub(crate) struct Emulation {
    dir: PathBuf,
    server: Child,
    down: bool,
}

impl Emulation {
    /// Shows the disk and, with `mount`, the file system on it.
    pub(crate) fn start(spec: &Spec, mount: Option<&MountSpec>) -> Result<Self, String> {
        if mount::is_mounted(&spec.dir) && fs::read(spec.dir.join("stats")).is_ok() {
            return Err(format!("{} already shows a disk; `onesweep-lab down` ends it", spec.dir.display()));
        }
        for complaint in mount::take_down(&spec.dir) {
            eprintln!("onesweep-lab: left by a former run: {complaint}");
        }
        let said = |error: std::io::Error| format!("{}: {error}", spec.dir.display());
        if fs::read_dir(&spec.dir).map_err(said)?.next().is_some() {
            return Err(format!("{} is not empty: name an empty directory to show the disk at", spec.dir.display()));
        }
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let json = serde_json::to_string(spec).map_err(|error| error.to_string())?;
        let mut server = Command::new(program)
            .args(["serve", &json])
            .process_group(0) // the terminal's Ctrl-C is for the first process
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("can't start the server: {error}"))?;
        let mut line = String::new();
        let answered = server.stdout.take().map(|stdout| BufReader::new(stdout).read_line(&mut line));
        let emulation = Self { dir: spec.dir.clone(), server, down: false };
        if !matches!(answered, Some(Ok(_))) || line.trim() != "ready" {
            return Err(match line.trim() {
                "" => "the server didn't start".into(),
                complaint => complaint.into(),
            });
        }
        if let Some(mount) = mount {
            emulation.mount(spec, mount)?;
        }
        Ok(emulation)
    }

    /// A loop device on the disk. It goes with the disk.
    pub(crate) fn attach(&self, spec: &Spec, mount: &MountSpec) -> Result<Loop, String> {
        let mut options = vec!["--direct-io=on"];
        options.extend(spec.read_only.then_some("--read-only"));
        let device = Loop::attach(&self.dir.join("disk"), &options)?;
        let rotational = mount.rotational.unwrap_or(spec.model.has_head());
        device.set("rotational", if rotational { "1" } else { "0" })?;
        // A loop device keeps what the one before it on the same number was told.
        device.set_scheduler(mount.scheduler.as_deref().unwrap_or("none"))?;
        if let Some(kilobytes) = mount.read_ahead_kb {
            device.set("read_ahead_kb", &kilobytes.to_string())?;
        }
        Ok(device)
    }

    fn mount(&self, spec: &Spec, mount: &MountSpec) -> Result<(), String> {
        let device = self.attach(spec, mount)?;
        let options = match (&mount.options, spec.read_only) {
            (Some(options), true) => Some(format!("ro,{options}")),
            (None, true) => Some("ro".to_owned()),
            (options, false) => options.clone(),
        };
        mount::mount(&device.device, &mount.target, mount.fs.as_deref(), options.as_deref())
    }

    pub(crate) fn stats_path(&self) -> PathBuf {
        self.dir.join("stats")
    }

    pub(crate) fn stats(&self) -> Result<String, String> {
        fs::read_to_string(self.stats_path()).map_err(|error| format!("{}: {error}", self.stats_path().display()))
    }

    pub(crate) fn reset(&self) -> Result<(), String> {
        fs::write(self.stats_path(), "reset\n").map_err(|error| format!("{}: {error}", self.stats_path().display()))
    }

    pub(super) fn server_is_gone(&mut self) -> bool {
        !matches!(self.server.try_wait(), Ok(None))
    }

    /// Takes everything down. Returns what didn't go smoothly.
    pub(crate) fn stop(&mut self) -> Vec<String> {
        if std::mem::replace(&mut self.down, true) {
            return Vec::new();
        }
        let complaints = mount::take_down(&self.dir);
        drop(self.server.stdin.take());
        let until = Instant::now() + Duration::from_secs(20);
        while !self.server_is_gone() && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.server.kill();
        let _ = self.server.wait();
        complaints
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        for complaint in self.stop() {
            eprintln!("onesweep-lab: {complaint}");
        }
    }
}
