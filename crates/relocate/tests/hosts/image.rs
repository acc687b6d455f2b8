//! A file system in an image file on a loop device, taken down again whatever happens.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::superblock;

/// What makes, mounts and checks a file system.
pub(crate) struct Tools {
    pub(crate) name: &'static str,
    pub(crate) mkfs: &'static [&'static str],
    pub(crate) check: &'static [&'static str],
    /// Features of XFS that neither of them knows: set when it has been made, hidden while it is checked.
    pub(crate) features: u32,
    /// mkfs makes no smaller ones.
    pub(crate) least_bytes: u64,
}

pub(crate) const EXT4: Tools = Tools {
    name: "ext4",
    mkfs: &["mkfs.ext4", "-q", "-F", "-b", "4096", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
    check: &["e2fsck", "-fn"],
    features: 0,
    least_bytes: 0,
};

pub(crate) const XFS: Tools = Tools {
    name: "xfs",
    mkfs: &["mkfs.xfs", "-q", "-f"],
    check: &["xfs_repair", "-n"],
    features: 0,
    least_bytes: 512 << 20,
};

/// Without reflinks, but with exchange-range.
pub(crate) const XFS_EXCHANGE: Tools =
    Tools { mkfs: &["mkfs.xfs", "-q", "-f", "-m", "reflink=0"], features: superblock::EXCHANGE, ..XFS };

/// Without both.
pub(crate) const XFS_WHOLE: Tools = Tools { mkfs: &["mkfs.xfs", "-q", "-f", "-m", "reflink=0"], ..XFS };

/// The same with a reverse map.
pub(crate) const XFS_WHOLE_MAPPED: Tools = Tools { mkfs: &["mkfs.xfs", "-q", "-f", "-m", "reflink=0,rmapbt=1"], ..XFS };

pub(crate) const BTRFS: Tools = Tools {
    name: "btrfs",
    mkfs: &["mkfs.btrfs", "-q", "-f"],
    check: &["btrfs", "check", "--readonly"],
    features: 0,
    least_bytes: 256 << 20,
};

pub(crate) struct Image {
    tools: &'static Tools,
    folder: PathBuf,
    device: PathBuf,
    options: String,
    is_mounted: bool,
}

/// Runs a tool that has to succeed.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let out = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = [&out.stdout[..], &out.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(out.status.success(), "{program} {arguments:?}: {said}");
    said
}

/// A copy to be run. This process must never have it open for writing: what another test starts just then would, too, until it is
/// a program of its own, and the kernel runs nothing that is being written ("text file busy").
pub(crate) fn copy_program(program: &Path, to: &Path) {
    run("cp", &[text(program), text(to)]);
}

/// Waits for what comes by itself: a program that has just ended may still be letting go of its last file, and one that another test
/// starts has all files of this process open until it is itself.
#[track_caller]
pub(crate) fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !happened() {
        assert!(Instant::now() < until, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a path of our own")
}

/// Whether tests that need root can run; says so where not.
pub(crate) fn is_root() -> bool {
    let is_root = fs::metadata("/proc/self").is_ok_and(|facts| facts.uid() == 0);
    if !is_root {
        let thread = thread::current();
        // Past the test harness, which would keep it back.
        let _ = writeln!(std::io::stderr(), "skipped: {}: needs root", thread.name().unwrap_or("a test"));
    }
    is_root
}

/// Says that this kernel lacks what a part of the running test is about: no fault of who runs it.
pub(crate) fn not_here(reason: &str) {
    let thread = thread::current();
    let _ = writeln!(std::io::stderr(), "not here: {}: {reason}", thread.name().unwrap_or("a test"));
}

/// As many loop devices as the machine has are enough for few tests at a time.
impl Image {
    /// A fresh ext4 with blocks of 4 KiB, unless the options of mkfs say else, and times kept strictly.
    pub(crate) fn new(bytes: u64, mkfs: &[&str], options: &str) -> Image {
        Image::of(&EXT4, bytes, mkfs, options)
    }

    /// The same of any file system.
    pub(crate) fn of(tools: &'static Tools, bytes: u64, mkfs: &[&str], options: &str) -> Image {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let base = std::env::var_os("ONESWEEP_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = base.join(format!("onesweep-test-{}-relocate-{number}", std::process::id()));
        fs::create_dir_all(folder.join("mnt")).expect("a folder of its own");
        let file = folder.join("disk.img");
        fs::File::create(&file).and_then(|file| file.set_len(bytes.max(tools.least_bytes))).expect("a sparse file");
        let all = [&tools.mkfs[1..], mkfs, &[text(&file)]].concat();
        run(tools.mkfs[0], &all);
        if tools.features != 0 {
            superblock::switch(&file, tools.features, true);
        }
        let options = ["strictatime", options].join(",").trim_end_matches(',').to_owned();
        let mut image = Image { tools, folder, device: PathBuf::new(), options, is_mounted: false };
        image.device = attach(&file);
        image.mount();
        image
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.join("mnt")
    }

    pub(crate) fn device(&self) -> &Path {
        &self.device
    }

    /// The file that it lies in.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.join("disk.img")
    }

    /// The kernel's name of the device.
    pub(crate) fn name(&self) -> &str {
        self.device.file_name().and_then(|name| name.to_str()).expect("a loop device")
    }

    pub(crate) fn mount(&mut self) {
        run("mount", &["-t", self.tools.name, "-o", &self.options, text(&self.device), text(&self.root())]);
        self.is_mounted = true;
    }

    pub(crate) fn unmount(&mut self) {
        let root = self.root();
        eventually("it is busy no more", || {
            Command::new("umount").arg(&root).output().expect("umount runs").status.success()
        });
        self.is_mounted = false;
    }

    pub(crate) fn make_read_only(&self) {
        let root = self.root();
        eventually("nothing is open for writing any more", || {
            let mut mount = Command::new("mount");
            mount.args(["-o", "remount,ro"]).arg(&root).output().expect("mount runs").status.success()
        });
    }

    /// Nothing of it in memory.
    pub(crate) fn cold(&mut self) {
        self.unmount();
        run("blockdev", &["--flushbufs", text(&self.device)]);
        self.mount();
    }

    /// The checker finds nothing.
    pub(crate) fn check(&mut self) {
        if self.is_btrfs() {
            // All checksums, which the checker doesn't look at.
            run("btrfs", &["scrub", "start", "-B", "-r", text(&self.root())]);
        }
        self.unmount();
        self.hide_features(true);
        let check = self.tools.check;
        run(check[0], &[&check[1..], &[text(&self.device)]].concat());
        self.hide_features(false);
        self.mount();
    }

    fn hide_features(&self, are_hidden: bool) {
        if self.tools.features != 0 {
            superblock::switch(&self.file(), self.tools.features, !are_hidden);
            run("blockdev", &["--flushbufs", text(&self.device)]);
        }
    }

    /// Stops at once, as a machine does: what is not in the journal is gone, unless the journal is flushed first.
    pub(crate) fn shut_down(&mut self, is_flushed: bool) {
        self.stop(is_flushed);
        self.restart();
    }

    pub(crate) fn is_btrfs(&self) -> bool {
        self.tools.name == "btrfs"
    }

    /// What is on the disk when a machine stops, where nobody writes meanwhile.
    fn stopped(&self) -> PathBuf {
        self.folder.join("stopped.img")
    }

    /// From here on nothing reaches the disk. On btrfs, which can't stop, nobody may use it until it is started again.
    pub(crate) fn stop(&self, is_flushed: bool) {
        if self.is_btrfs() {
            if is_flushed {
                run("sync", &["-f", text(&self.root())]);
            }
            run("cp", &["--sparse=always", text(&self.file()), text(&self.stopped())]);
            return;
        }
        let command = if is_flushed { "shutdown -f" } else { "shutdown" };
        run("xfs_io", &["-x", "-c", command, text(&self.root())]);
    }

    pub(crate) fn restart(&mut self) {
        self.unmount();
        if self.is_btrfs() {
            run("losetup", &["--detach", text(&self.device)]);
            fs::rename(self.stopped(), self.file()).expect("a file in its own folder");
            self.device = attach(&self.file());
        }
        run("blockdev", &["--flushbufs", text(&self.device)]);
        self.mount();
    }

    /// Write requests and 512-byte sectors written so far.
    pub(crate) fn written(&self) -> (u64, u64) {
        (self.count(4), self.count(6))
    }

    /// Sectors read so far.
    pub(crate) fn read(&self) -> u64 {
        self.count(2)
    }

    fn count(&self, field: usize) -> u64 {
        let told = fs::read_to_string(format!("/sys/block/{}/stat", self.name())).expect("the device counts");
        let numbers: Vec<u64> = told.split_whitespace().map(|number| number.parse().expect("a number")).collect();
        numbers[field]
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if self.is_mounted {
            let root = self.root();
            if !Command::new("umount").arg(&root).output().is_ok_and(|out| out.status.success()) {
                let _ = Command::new("umount").arg("--lazy").arg(&root).output();
            }
        }
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).output();
        // The mount point is empty now, or this fails; a deletion must never reach into a mount.
        let _ = fs::remove_dir(self.root());
        let _ = fs::remove_file(self.folder.join("disk.img"));
        let _ = fs::remove_file(self.stopped());
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Others may take the free device between finding and taking it: so again.
fn attach(file: &Path) -> PathBuf {
    let mut said = String::new();
    for _ in 0..60 {
        let out = Command::new("losetup").args(["--find", "--show"]).arg(file).output().expect("losetup runs");
        if out.status.success() {
            return PathBuf::from(String::from_utf8_lossy(&out.stdout).trim());
        }
        said = String::from_utf8_lossy(&out.stderr).into_owned();
        thread::sleep(Duration::from_millis(50));
    }
    panic!("no loop device: {said}");
}
