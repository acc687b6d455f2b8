//! A place for one test: an image, its disk and its mount, taken down again whatever happens.

use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{fs, io, thread};

use tempfile::TempDir;

use crate::shown::eventually;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_onesweep-lab");

/// A place for one test: an image, a directory for the disk, one for its mount.
pub(crate) struct Place {
    pub(crate) image: PathBuf,
    pub(crate) disk: PathBuf,
    pub(crate) mount: PathBuf,
    // Last: what is mounted below it goes first.
    pub(crate) home: TempDir,
}

/// A place, or `None` with a printed reason.
pub(crate) fn place(image_mib: u64) -> Option<Place> {
    let missing = |program: &&&str| Command::new("which").arg(program).output().is_ok_and(|out| !out.status.success());
    let reason = if fs::metadata("/proc/self").map_or(1, |process| process.uid()) != 0 {
        Some("not root".to_owned())
    } else if !Path::new("/dev/fuse").exists() {
        Some("no /dev/fuse".to_owned())
    } else {
        ["mkfs.ext4", "e2fsck", "losetup", "filefrag"].iter().find(missing).map(|program| format!("no {program}"))
    };
    if let Some(reason) = reason {
        skipped(&reason);
        return None;
    }
    let home = tempfile::Builder::new().prefix("onesweep-lab-test-").tempdir().unwrap();
    let [image, disk, mount] = ["image", "disk", "mount"].map(|name| home.path().join(name));
    fs::create_dir(&disk).unwrap();
    fs::create_dir(&mount).unwrap();
    File::create(&image).unwrap().set_len(image_mib << 20).unwrap();
    Some(Place { image, disk, mount, home })
}

/// Says that the running test is left out, and why; past the test harness, which would keep it back.
pub(crate) fn skipped(reason: &str) {
    let thread = thread::current();
    let _ = writeln!(io::stderr(), "skipped: {}: {reason}", thread.name().unwrap_or("a test"));
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Command::new(PROGRAM).arg("down").arg(&self.disk).output();
    }
}

impl Place {
    pub(crate) fn ext4(&self) {
        succeed(Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096"]).arg(&self.image));
    }

    /// `onesweep-lab disk` on this place.
    pub(crate) fn lab(&self, options: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.arg("disk").arg(&self.image).arg(&self.disk).args(options).current_dir(self.home.path());
        command
    }

    pub(crate) fn mounted(&self, options: &[&str]) -> Command {
        let mut command = self.lab(&[]);
        command.arg("--mount").arg(&self.mount).args(options);
        command
    }

    /// Runs a shell script beside the mounted disk, in its mount.
    pub(crate) fn script(&self, options: &[&str], script: &str) -> Output {
        let script = format!("cd mount && {script}");
        self.mounted(options).args(["--", "sh", "-c", &script]).output().unwrap()
    }

    /// Nothing is mounted any more, and every loop device is detached: at once, or as soon as whoever looks at all devices of this
    /// machine has closed it, which the kernel waits for after it was told to detach.
    #[track_caller]
    pub(crate) fn assert_down(&self) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let home = self.home.path().to_str().unwrap();
        assert!(!mounts.contains(home), "still mounted: {mounts}");
        let attached = || {
            let loops = Command::new("losetup")
                .args(["--list", "--noheadings", "--output", "AUTOCLEAR,BACK-FILE"])
                .output()
                .unwrap();
            let loops = String::from_utf8_lossy(&loops.stdout).into_owned();
            loops.lines().map(str::to_owned).filter(|device| device.contains(home)).collect::<Vec<_>>()
        };
        let left = attached();
        assert!(
            left.iter().all(|device| device.trim_start().starts_with('1')),
            "still attached, and nobody has detached: {left:?}"
        );
        eventually("every loop device is detached", || attached().is_empty());
    }

    pub(crate) fn stats(&self) -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(self.disk.join("stats")).unwrap()).unwrap()
    }
}

#[track_caller]
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {complaint}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}
