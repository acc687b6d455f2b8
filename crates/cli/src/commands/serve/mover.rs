//! The part that moves files: a process of its own that listens for writes, and puts directories in order when they have settled.

use std::{
    io::{self, Read, Write},
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use onesweep_layout::Devices;
use onesweep_relocate::{
    carry::Ended,
    ext4::Ext4,
    follow::{Follower, Moment, PERCENT, Policy, Told, watch::Watch},
    host::{Failure as Failed, Uncached},
    mounted::{Chosen, Mounted, host_of},
    xfs::Xfs,
};
use onesweep_sys::{
    block,
    files::{open_dir, statx_fd},
    handle::FileHandle,
    mounting, pressure, priority, process,
    rights::{self, Right},
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::{log, moves, settings, standstill::Standstill};
use crate::{
    args::{Relocate, ServeArgs, ServeSettings},
    message,
    report::Failure,
};

/// What it keeps: fanotify and the pages of files, directories by their handles, writing to files, and their access times.
const KEPT: [Right; 4] = [Right::SysAdmin, Right::DacReadSearch, Right::DacOverride, Right::Fowner];
/// So often it hears what was written; what the kernel can't keep until then is lost.
const HEAR_EVERY: Duration = Duration::from_secs(1);
/// While somebody waits for a disk for more of the time, in percent, nothing is moved.
const PRESSURE: u8 = 20;

/// What the daemon says.
struct Control {
    /// The settings are to be read again. It ends when the daemon wants all to end, or is gone.
    reload: Receiver<()>,
    has_ended: Arc<AtomicBool>,
}

/// A file system whose files are moved.
struct Moving<H> {
    path: PathBuf,
    dev: u64,
    block_bytes: u64,
    watch: Watch,
    host: H,
    follower: Follower<FileHandle>,
    /// That writes were missed.
    has_told_of_missing: bool,
}

enum Volume {
    Ext4(Box<Moving<Ext4>>),
    Xfs(Box<Moving<Xfs>>),
}

impl Volume {
    /// Directories.
    fn waiting(&self) -> usize {
        match self {
            Volume::Ext4(moving) => moving.follower.waiting(),
            Volume::Xfs(moving) => moving.follower.waiting(),
        }
    }
}

/// Is the mover, until the daemon is gone.
pub(super) fn run(args: &ServeArgs) -> Result<u8, Failure> {
    let failed = |error: io::Error| Failure::told(format!("the mover cannot go on: {}", message::why(&error)));
    // What is meant for all comes to the daemon, which ends the mover.
    let heeded = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&heeded)).map_err(failed)?;
    }
    // For people alone.
    let _ = process::set_name(c"onesweep-mover");
    let mut settings = settings::read(args)?;
    if let Some(namespace) = &settings.mount_namespace {
        mounting::see_mounts_of(namespace)
            .map_err(|error| Failure::io(namespace, "see file systems as they are mounted there", &error))?;
    }
    rights::keep_only(&KEPT).map_err(failed)?;
    let log = log::start(settings.log.unwrap_or_default());
    // Where that can't be had it waits for nobody but those who read and write.
    let _ = priority::set_idle_io();
    let control = listen().map_err(failed)?;
    let began = Instant::now();
    let mut volumes = volumes(&settings);
    let mut standstill = Standstill::default();
    loop {
        match control.reload.recv_timeout(HEAR_EVERY) {
            Err(RecvTimeoutError::Disconnected) => return Ok(0),
            // Where they can't be used all stays as it is, and the daemon tells why.
            Ok(()) => {
                if let Ok(now) = settings::read(args) {
                    settings = now;
                    log.set(settings.log.unwrap_or_default());
                    volumes = self::volumes(&settings);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let most = settings.relocate_pressure.unwrap_or(PRESSURE);
        let may_move = || !control.has_ended.load(Ordering::Relaxed) && !is_busy(pressure::of_disks(), most);
        volumes.retain_mut(|volume| match volume {
            Volume::Ext4(moving) => moving.go_on(began.elapsed(), &may_move),
            Volume::Xfs(moving) => moving.go_on(began.elapsed(), &may_move),
        });
        let waiting: usize = volumes.iter().map(Volume::waiting).sum();
        let part = pressure::of_disks().ok().filter(|&part| is_busy(Ok(part), most) && waiting > 0);
        if standstill.is_to_be_told(began.elapsed(), part.is_some()) {
            let part = part.unwrap_or_default() * 100.0;
            tracing::warn!(
                "nothing has been moved for ten minutes or more, and {waiting} directories wait: programs wait for disks for \
                 {part:.0} % of the time, and relocate-pressure is {most}"
            );
        }
    }
}

/// Whether programs wait for disks for more of the time than so many percent; where nobody can tell, they don't.
fn is_busy(part: io::Result<f64>, most: u8) -> bool {
    part.is_ok_and(|part| part > f64::from(most) / 100.0)
}

/// What comes on standard input.
fn listen() -> io::Result<Control> {
    let (tell, reload) = mpsc::channel();
    let has_ended = Arc::<AtomicBool>::default();
    let ended = Arc::clone(&has_ended);
    thread::Builder::new().name("control".into()).spawn(move || {
        let mut byte = [0];
        while io::stdin().read(&mut byte).is_ok_and(|read| read > 0) && byte == [moves::RELOAD] {
            if tell.send(()).is_err() {
                break;
            }
        }
        ended.store(true, Ordering::Relaxed);
    })?;
    Ok(Control { reload, has_ended })
}

/// The file systems that are named, each once, whose files may be moved.
fn volumes(settings: &ServeSettings) -> Vec<Volume> {
    let (mut devices, mut volumes) = (Vec::new(), Vec::new());
    if !settings.relocates() {
        return volumes;
    }
    for path in &settings.paths {
        match volume(path, settings, &mut devices) {
            Ok(volume) => volumes.extend(volume),
            Err(why) => tracing::warn!("{}: nothing is moved there: {why}", message::path_text(path)),
        }
    }
    volumes
}

fn volume(path: &Path, settings: &ServeSettings, devices: &mut Vec<u64>) -> Result<Option<Volume>, String> {
    let why = |error: io::Error| message::why(&error).to_string();
    let root = open_dir(path).map_err(why)?;
    let dev = statx_fd(root.as_fd()).map_err(why)?.dev;
    if devices.contains(&dev) {
        return Ok(None);
    }
    devices.push(dev);
    let stack = Devices::of_system().ok().and_then(|devices| devices.by_fd(root.as_fd()).ok());
    let is_seekless = stack.is_some_and(|stack| !stack.disks.is_empty() && stack.is_seekless());
    if is_seekless && settings.relocate != Some(Relocate::Always) {
        return Err("its disk does not seek; relocate = \"always\" moves all the same".into());
    }
    let chosen = host_of(path, Uncached::Stays).map_err(|refusal| refusal.to_string())?;
    let watch = Watch::start(path).map_err(why)?;
    let percent = match settings.relocate_budget.unwrap_or(PERCENT) {
        0 => None,
        percent => Some(percent),
    };
    let mut policy = Policy::usual(percent);
    if let Some(after) = settings.relocate_after {
        policy.settle = Duration::from_secs(after.0.unsigned_abs());
    }
    let follower = Follower::new(policy);
    let path = path.to_owned();
    tracing::info!("{}: directories are put in order when files in them were written", message::path_text(&path));
    match chosen {
        Chosen::Ext4(host) => {
            let block_bytes = host.block_bytes();
            let moving = Moving { path, dev, block_bytes, watch, host: *host, follower, has_told_of_missing: false };
            Ok(Some(Volume::Ext4(Box::new(moving))))
        }
        Chosen::Xfs(host) => {
            let block_bytes = host.block_bytes();
            let moving = Moving { path, dev, block_bytes, watch, host, follower, has_told_of_missing: false };
            Ok(Some(Volume::Xfs(Box::new(moving))))
        }
        Chosen::Shown(_, refusal) => Err(refusal.to_string()),
    }
}

impl<H: Mounted> Moving<H> {
    /// False when nothing more can be done there.
    fn go_on(&mut self, now: Duration, may_move: &dyn Fn() -> bool) -> bool {
        let path = message::path_text(&self.path);
        match self.watch.hear(|directory| self.follower.written(directory, now)) {
            Err(error) => {
                tracing::error!("{path}: cannot hear of writes: {}", message::why(&error));
                return false;
            }
            Ok(true) if !self.has_told_of_missing => {
                self.has_told_of_missing = true;
                tracing::warn!(
                    "{path}: more was written at a time than the kernel tells of; some directories are put in order when files \
                     in them are written again"
                );
            }
            Ok(_) => {}
        }
        // What is moved keeps the disk busy, too: so it is asked before each directory, and each region.
        while may_move()
            && let Some(directory) = self.follower.take(now)
        {
            match self.put_in_order(directory, now, may_move) {
                Ok(Some((path, told))) => self.tell(&path, &told),
                Ok(None) => {}
                Err(failed) if failed.source.kind() == io::ErrorKind::NotFound => {}
                Err(failed) => return self.give_up(&failed),
            }
        }
        true
    }

    /// `None` when the directory is gone.
    fn put_in_order(
        &mut self,
        directory: FileHandle,
        now: Duration,
        may_move: &dyn Fn() -> bool,
    ) -> Result<Option<(PathBuf, Told)>, Failed> {
        let at = &self.path;
        let found = self.watch.path_of(&directory).map_err(|error| Failed::new("find what was written", at, error))?;
        let Some(path) = found else { return Ok(None) };
        let written = block::written_bytes(self.dev);
        let written = written.map_err(|error| Failed::new("ask what its device has written", at, error))?;
        let moment = Moment { now, written: written / self.block_bytes };
        let mut goes_on = may_move;
        let told = self.follower.put_in_order(&mut self.host, (directory, &path), moment, &mut goes_on)?;
        if told.sizes_may_differ {
            // Nobody hears it when the daemon is gone.
            let _ = writeln!(io::stdout(), "{}", moves::line(self.dev, &directory));
        }
        Ok(Some((path, told)))
    }

    fn tell(&self, path: &Path, told: &Told) {
        let report = &told.report;
        if let Some(Ended::Failed(failed)) = &report.ended {
            tracing::error!("{failed}; what was moved before is whole");
        } else if report.files > 0 {
            let (path, files, blocks) = (message::path_text(path), report.files, report.blocks);
            tracing::debug!("{path}: {files} of {} files moved side by side, {blocks} blocks", told.files);
        }
    }

    fn give_up(&self, failed: &Failed) -> bool {
        tracing::error!("{failed}; nothing more is moved there until the settings are read again");
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_its_part_is_busy_and_what_is_not_known_is_not() {
        assert!(is_busy(Ok(0.21), 20));
        assert!(!is_busy(Ok(0.2), 20));
        assert!(is_busy(Ok(0.001), 0));
        assert!(!is_busy(Ok(1.0), 100));
        assert!(!is_busy(Err(io::ErrorKind::NotFound.into()), 0));
    }
}
