//! What stands on a device that is shown: a loop device, and a mount of it.
//!
//! Taking down keeps no state: what is to go is found in `/sys` and in `mountinfo`. So it works for a run that was killed, and
//! may be done twice.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use onesweep_layout::mounts::{Mount, MountTable};
use onesweep_peer::mount::{BLOCK_FILE, SHOWN};

use crate::message;

/// How long a busy mount is waited for before it is detached in any case.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs a program; what it printed, or what it complained of.
fn run<S: AsRef<OsStr>>(program: &str, args: impl IntoIterator<Item = S>) -> Result<Output, String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("cannot run {program}: {error}"))?;
    if output.status.success() {
        return Ok(output);
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(message::one_line(&format!("{program}: {}: {}", output.status, complaint.trim())))
}

/// Puts a loop device on a file. It reads and writes past the page cache: pages of the file would be held twice, and dirty ones
/// could wait for each other. Linux reads further ahead, and programs sort what they read, where something turns below: the device
/// has to say so, since the kernel sees a file of FUSE and takes it for what has no disk.
pub(super) fn attach(file: &Path, read_only: bool, turns: bool) -> Result<PathBuf, String> {
    let mut args = ["--find", "--show", "--direct-io=on"].map(OsStr::new).to_vec();
    args.extend(read_only.then_some(OsStr::new("--read-only")));
    args.push(file.as_os_str());
    let output = run("losetup", args)?;
    let device = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let queue = Path::new("/sys/block").join(device.file_name().unwrap_or_default()).join("queue/rotational");
    if let Err(error) = fs::write(&queue, if turns { "1" } else { "0" }) {
        tracing::debug!("{}: {error}", queue.display());
    }
    Ok(device)
}

pub(super) fn mount(device: &Path, mnt: &Path, fs_type: Option<&str>, options: Option<&str>) -> Result<(), String> {
    let mut args: Vec<&OsStr> = Vec::new();
    if let Some(fs_type) = fs_type {
        args.extend(["-t", fs_type].map(OsStr::new));
    }
    if let Some(options) = options {
        args.extend(["-o", options].map(OsStr::new));
    }
    args.extend([device.as_os_str(), mnt.as_os_str()]);
    run("mount", args).map(drop)
}

/// The absolute path, without a look at its last part: that may be a mount whose server is gone.
pub(super) fn absolute(path: &Path) -> io::Result<PathBuf> {
    let whole = std::path::absolute(path)?;
    match (whole.parent(), whole.file_name()) {
        (Some(parent), Some(name)) => Ok(parent.canonicalize()?.join(name)),
        _ => Ok(whole),
    }
}

/// All mounts, the last one first.
fn mounts() -> Vec<Mount> {
    MountTable::read().unwrap_or_default().iter().rev().cloned().collect()
}

fn is_mounted(target: &Path) -> bool {
    mounts().iter().any(|mount| mount.mount_point == target)
}

/// Unmounts, waiting a while for what is busy; then lazily. Says when it had to.
fn unmount(target: &Path) -> Result<(), String> {
    let until = Instant::now() + PATIENCE;
    loop {
        let Err(complaint) = run("umount", [target]) else { return Ok(()) };
        if !is_mounted(target) {
            return Ok(());
        }
        if Instant::now() > until {
            run("umount", [OsStr::new("--lazy"), target.as_os_str()])?;
            return Err(format!("{complaint}; it goes when nobody uses it any more"));
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// The loop devices on a file.
pub(super) fn loops_on(file: &Path) -> Vec<PathBuf> {
    let Ok(devices) = fs::read_dir("/sys/block") else { return Vec::new() };
    let on_file = |device: &fs::DirEntry| {
        let backing = fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default();
        Path::new(backing.trim_end_matches('\n').trim_end_matches(" (deleted)")) == file
    };
    devices.flatten().filter(on_file).map(|device| Path::new("/dev").join(device.file_name())).collect()
}

/// Whether a device is shown at `dir`, by a server that may be gone.
pub(super) fn is_shown(dir: &Path) -> bool {
    let top = mounts().into_iter().find(|mount| mount.mount_point == dir);
    top.is_some_and(|mount| mount.fs_type.starts_with("fuse") && mount.source == SHOWN)
}

/// Takes down a device shown at `dir` with everything on it, and nothing of others. Returns what didn't go smoothly.
pub(super) fn take_down(dir: &Path) -> Vec<String> {
    let mut complaints = Vec::new();
    while is_shown(dir) {
        let file = dir.join(BLOCK_FILE);
        for device in loops_on(&file) {
            for mount in mounts().iter().filter(|mount| Path::new(&mount.source) == device) {
                complaints.extend(unmount(&mount.mount_point).err());
            }
            // Some go with their mount, and some only when a daemon that serves a file system has written all.
            if loops_on(&file).contains(&device) {
                complaints.extend(run("losetup", [OsStr::new("--detach"), device.as_os_str()]).err());
            }
        }
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
    fn taking_down_nothing_is_fine() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(take_down(dir.path()), Vec::<String>::new());
    }
}
