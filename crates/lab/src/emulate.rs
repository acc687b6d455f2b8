//! `onesweep-lab disk`: two processes that guard each other.
//!
//! The first sets up and waits; the second serves the disk. Whichever ends first, the other takes everything down: the
//! first sees that its child is gone, the second that its standard input is closed. If both are killed at once, the
//! next run on the same directory takes down what it finds there.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::disk::drive::Drive;
use crate::disk::faults::Fault;
use crate::disk::geometry::Span;
use crate::disk::model::DiskModel;
use crate::fuse::DiskDir;
use crate::interrupt::{self, Interrupt};
use crate::mount::{self, Loop};
use crate::server::{Facts, Server};

/// What the serving process has to know.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Spec {
    pub(crate) image: PathBuf,
    pub(crate) dir: PathBuf,
    pub(crate) model: DiskModel,
    pub(crate) span: (f64, f64),
    pub(crate) real: Option<f64>,
    pub(crate) trace: Option<PathBuf>,
    pub(crate) faults: Vec<String>,
    pub(crate) read_only: bool,
}

/// What the loop device and its mount shall be.
#[derive(Debug, Clone, Default)]
pub(crate) struct MountSpec {
    pub(crate) target: PathBuf,
    pub(crate) fs: Option<String>,
    pub(crate) options: Option<String>,
    pub(crate) rotational: Option<bool>,
    pub(crate) scheduler: Option<String>,
    pub(crate) read_ahead_kb: Option<u32>,
}

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

    fn mount(&self, spec: &Spec, mount: &MountSpec) -> Result<(), String> {
        let mut options = vec!["--direct-io=on"];
        options.extend(spec.read_only.then_some("--read-only"));
        let device = Loop::attach(&self.dir.join("disk"), &options)?;
        let rotational = mount.rotational.unwrap_or(spec.model.has_head());
        device.set("rotational", if rotational { "1" } else { "0" })?;
        if let Some(scheduler) = &mount.scheduler {
            device.set("scheduler", scheduler)?;
        }
        if let Some(kilobytes) = mount.read_ahead_kb {
            device.set("read_ahead_kb", &kilobytes.to_string())?;
        }
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

    fn server_is_gone(&mut self) -> bool {
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

/// Shows a disk until a signal comes, the server ends, or the command is done.
pub(crate) fn run(spec: &Spec, mount: Option<&MountSpec>, command: &[String]) -> Result<u8, String> {
    let interrupt = Interrupt::by_signals()?;
    let mut emulation = Emulation::start(spec, mount)?;
    let code = match command {
        [] => watch(&mut emulation, &interrupt, spec, mount),
        [program, args @ ..] => accompany(&mut emulation, &interrupt, program, args),
    };
    let complaints = emulation.stop();
    let code = code?;
    if complaints.is_empty() { Ok(code) } else { Err(complaints.join("\n")) }
}

/// Waits for a signal or the server's end.
fn watch(
    emulation: &mut Emulation,
    interrupt: &Interrupt,
    spec: &Spec,
    mount: Option<&MountSpec>,
) -> Result<u8, String> {
    let shown = mount.map_or_else(|| spec.dir.join("disk"), |mount| mount.target.clone());
    println!("{} is ready as {}; end with Ctrl-C", spec.model.name, shown.display());
    let _ = std::io::stdout().flush();
    while !interrupt.came() {
        if emulation.server_is_gone() {
            // Unmounting the directory by hand is a way to end, too.
            return if mount::is_mounted(&spec.dir) { Err("the server ended".into()) } else { Ok(0) };
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(interrupt::EXIT_CODE)
}

/// Runs a command beside the disk and prints the books after it.
fn accompany(emulation: &mut Emulation, interrupt: &Interrupt, program: &str, args: &[String]) -> Result<u8, String> {
    emulation.reset()?;
    let mut child =
        Command::new(program).args(args).spawn().map_err(|error| format!("can't run {program}: {error}"))?;
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            eprint!("{}", emulation.stats()?);
            return Ok(status.code().map_or(1, |code| code as u8));
        }
        if interrupt.came() || emulation.server_is_gone() {
            let _ = child.kill();
            let _ = child.wait();
            return if interrupt.came() { Ok(interrupt::EXIT_CODE) } else { Err("the server ended".into()) };
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The second process: serves the disk until its directory is unmounted.
pub(crate) fn serve(json: &str) -> Result<u8, String> {
    let spec: Spec = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let session = match present(&spec) {
        Ok(session) => session,
        Err(complaint) => {
            println!("{complaint}");
            return Ok(1);
        }
    };
    println!("ready");
    let _ = std::io::stdout().flush();
    let dir = spec.dir.clone();
    thread::spawn(move || {
        // The first process never writes: this returns when it is gone.
        let _ = std::io::stdin().read(&mut [0]);
        mount::take_down(&dir);
    });
    session.0.join().map_err(|error| error.to_string())?;
    session.1.close();
    Ok(0)
}

/// Mounts the directory and starts the server's thread.
fn present(spec: &Spec) -> Result<(fuser::BackgroundSession, Arc<Server>), String> {
    let said = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| format!("{path}: {error}")
    };
    let image = OpenOptions::new().read(true).write(!spec.read_only).open(&spec.image).map_err(said(&spec.image))?;
    let image_bytes = image.metadata().map_err(said(&spec.image))?.len();
    let trace = spec.trace.as_ref().map(|path| File::create(path).map_err(said(path))).transpose()?;
    let facts = Facts {
        model: spec.model.name.clone(),
        image_bytes,
        span: spec.span,
        track_buffer: spec.model.buffer_segments > 0,
        real: spec.real,
    };
    let drive = Drive::new(spec.model.clone(), image_bytes, Span { from: spec.span.0, to: spec.span.1 });
    let server = Server::new(image, drive, facts, trace).map_err(|error| error.to_string())?;
    for fault in &spec.faults {
        server.add_fault(fault.parse::<Fault>()?);
    }
    let mut config = fuser::Config::default();
    config.mount_options = vec![fuser::MountOption::FSName("onesweep-lab".into())];
    let session = fuser::spawn_mount(DiskDir::new(Arc::clone(&server)), &spec.dir, &config).map_err(said(&spec.dir))?;
    let thread = Arc::clone(&server);
    thread::Builder::new()
        .name("disk".into())
        .spawn(move || {
            // A disk that stops answering would hang whatever stands on it: better no process at all.
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| thread.run())).is_err() {
                std::process::abort();
            }
        })
        .map_err(|error| error.to_string())?;
    Ok((session, server))
}
