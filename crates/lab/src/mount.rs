//! Loop devices and mounts: setting them up, and finding and taking down what stands on a disk.
//!
//! Taking down keeps no state: what is to go is found in `/sys` and in `mountinfo`. So it works for a run that was
//! killed, and may be done twice.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use onesweep_layout::mounts::{Mount, MountTable};

use crate::partial::Partial;

/// How long a busy mount is waited for before it is detached in any case.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs a program; what it printed, or what it complained of.
pub(crate) fn run<S: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> Result<Output, String> {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("can't run {program}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program}: {}: {}", output.status, complaint.trim()))
}

/// A loop device on `file`.
#[derive(Debug, PartialEq)]
pub(crate) struct Loop {
    pub(crate) device: PathBuf,
}

impl Loop {
    pub(crate) fn attach(file: &Path, options: &[&str]) -> Result<Self, String> {
        let args = ["--find", "--show"].iter().chain(options).map(OsStr::new).chain([file.as_os_str()]);
        let output = run("losetup", args)?;
        let device = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        Ok(Self { device })
    }

    /// Sets a file below `queue/`.
    pub(crate) fn set(&self, name: &str, value: &str) -> Result<(), String> {
        let path = self.queue(name);
        fs::write(&path, value).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Sets the scheduler; names those that there are when it isn't one of them.
    pub(crate) fn set_scheduler(&self, name: &str) -> Result<(), String> {
        self.set("scheduler", name).map_err(|complaint| match fs::read_to_string(self.queue("scheduler")) {
            Ok(known) => format!("no scheduler {name:?}; this kernel has {}", known.trim().replace(['[', ']'], "")),
            Err(_) => complaint,
        })
    }

    fn queue(&self, name: &str) -> PathBuf {
        let device = self.device.file_name().unwrap_or_default();
        Path::new("/sys/block").join(device).join("queue").join(name)
    }

    pub(crate) fn detach(&self) -> Result<(), String> {
        run("losetup", [OsStr::new("--detach"), self.device.as_os_str()]).map(drop)
    }
}

/// Mounts `device` at `target`.
pub(crate) fn mount(device: &Path, target: &Path, fs: Option<&str>, options: Option<&str>) -> Result<(), String> {
    let mut args: Vec<&OsStr> = Vec::new();
    if let Some(fs) = fs {
        args.extend(["-t", fs].map(OsStr::new));
    }
    if let Some(options) = options {
        args.extend(["-o", options].map(OsStr::new));
    }
    args.extend([device.as_os_str(), target.as_os_str()]);
    run("mount", args).map(drop)
}

/// Unmounts, waiting a while for what is busy; then lazily. Says when it had to.
pub(crate) fn unmount(target: &Path) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    loop {
        let Err(complaint) = run("umount", [target]) else {
            return Ok(());
        };
        if !is_mounted(target) {
            return Ok(());
        }
        if Instant::now() > until {
            run("umount", [OsStr::new("--lazy"), target.as_os_str()])?;
            return Err(format!("{complaint}; unmounted lazily"));
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// The absolute path, without a look at its last part: that may be a mount whose server is gone.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf, String> {
    let said = |error| format!("{}: {error}", path.display());
    let whole = std::path::absolute(path).map_err(said)?;
    let (Some(parent), Some(name)) = (whole.parent(), whole.file_name()) else {
        return Ok(whole);
    };
    Ok(parent.canonicalize().map_err(said)?.join(name))
}

/// All mounts, the last one first.
fn mounts() -> Vec<Mount> {
    MountTable::read().unwrap_or_default().iter().rev().cloned().collect()
}

pub(crate) fn is_mounted(target: &Path) -> bool {
    fs_of(target).is_some()
}

/// The type of what is mounted there.
pub(crate) fn fs_of(target: &Path) -> Option<String> {
    mounts().into_iter().find(|mount| mount.mount_point == target).map(|mount| mount.fs_type)
}

/// The device that is mounted there.
pub(crate) fn source_of(target: &Path) -> Option<PathBuf> {
    mounts().into_iter().find(|mount| mount.mount_point == target).map(|mount| mount.source.into())
}

/// The loop devices on that file.
fn loops_on(file: &Path) -> Vec<Loop> {
    let Ok(devices) = fs::read_dir("/sys/block") else {
        return Vec::new();
    };
    let on_file = |device: &fs::DirEntry| {
        let backing = fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        Path::new(backing.trim_end_matches('\n').trim_end_matches(" (deleted)")) == file
    };
    let device = |device: fs::DirEntry| Loop { device: Path::new("/dev").join(device.file_name()) };
    devices.flatten().filter(on_file).map(device).collect()
}

/// Takes down what stands on `file`: mounts of loop devices on it, then these. Returns what didn't go smoothly.
pub(crate) fn clear(file: &Path) -> Vec<String> {
    let mut complaints = Vec::new();
    for device in loops_on(file) {
        for mount in mounts().iter().filter(|mount| Path::new(&mount.source) == device.device) {
            complaints.extend(unmount(&mount.mount_point).err());
        }
        // Some go with their mount.
        if loops_on(file).contains(&device) {
            complaints.extend(device.detach().err());
        }
    }
    complaints
}

/// Takes down what a killed run has left of an image at `place`: mounts of it, and of what was on its way there.
pub(crate) fn clear_image(place: &Path) -> Vec<String> {
    [clear(&Partial::path_of(place)), clear(place)].concat()
}

/// How a disk that is shown is called among the mounts.
pub(crate) const SHOWN: &str = "onesweep-lab";

/// Whether a disk is shown at `dir`, by a server that may be gone.
pub(crate) fn is_shown(dir: &Path) -> bool {
    let top = mounts().into_iter().find(|mount| mount.mount_point == dir);
    top.is_some_and(|mount| mount.fs_type.starts_with("fuse") && mount.source == SHOWN)
}

/// Takes down a disk shown at `dir` with everything on it, and nothing of others. Returns what didn't go smoothly.
pub(crate) fn take_down(dir: &Path) -> Vec<String> {
    let mut complaints = Vec::new();
    while is_shown(dir) {
        complaints.extend(clear(&dir.join("disk")));
        if let Err(complaint) = unmount(dir) {
            complaints.push(complaint);
            break;
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found() {
        assert_eq!(fs_of(Path::new("/proc")).as_deref(), Some("proc"));
        assert!(!is_mounted(Path::new("/proc/self")));
    }

    #[test]
    fn taking_down_nothing_is_fine() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(take_down(dir.path()), Vec::<String>::new());
    }
}
