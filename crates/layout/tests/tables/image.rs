//! Images of real file systems, filled through the kernel.
//!
//! These need root and loop devices, and are skipped with a reason elsewhere.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
    time::Duration,
};

/// An image file and a place to mount it. Unmounted and removed when dropped, also when a test fails.
pub(crate) struct Image {
    folder: Option<tempfile::TempDir>,
    mounted: bool,
}

impl Image {
    /// Makes a file system by a program such as `["mkfs.ext4", "-q", …]`, which gets the image as its last argument. `None`,
    /// with a line that says so, where nothing can be mounted.
    pub(crate) fn new(bytes: u64, mkfs: &[&str]) -> Option<Image> {
        Image::new_in(&std::env::temp_dir(), bytes, mkfs)
    }

    /// The same in a folder below another one.
    pub(crate) fn new_in(folder: &Path, bytes: u64, mkfs: &[&str]) -> Option<Image> {
        if !rustix::process::geteuid().is_root() {
            skipped("only root can mount");
            return None;
        }
        let folder = tempfile::tempdir_in(folder).expect("a folder");
        let image = Image { folder: Some(folder), mounted: false };
        File::create(image.path()).and_then(|file| file.set_len(bytes)).expect("a sparse file");
        run(Command::new(mkfs[0]).args(&mkfs[1..]).arg(image.path()));
        fs::create_dir(image.root()).expect("a mount point");
        Some(image)
    }

    fn folder(&self) -> &Path {
        self.folder.as_ref().expect("kept until it is dropped").path()
    }

    /// The image file.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder().join("image")
    }

    /// Where it is mounted.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder().join("mounted")
    }

    /// Mounts it: options as for `mount -o`; `noatime` is added.
    pub(crate) fn mount(&mut self, arguments: &[&str], options: &str) {
        let options = format!("loop,noatime,{options}").trim_end_matches(',').to_owned();
        run(Command::new("mount").args(arguments).args(["-o", &options]).arg(self.path()).arg(self.root()));
        self.mounted = true;
    }

    /// Mounts an image of NTFS through ntfs-3g.
    #[allow(dead_code, reason = "for the tests of NTFS")]
    pub(crate) fn mount_ntfs(&mut self, options: &str) {
        run(Command::new("ntfs-3g").args(["-o", options]).arg(self.path()).arg(self.root()));
        self.mounted = true;
    }

    /// Unmounts it.
    pub(crate) fn unmount(&mut self) {
        unmount(&self.root());
        self.mounted = false;
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if self.mounted && !try_to_unmount(&self.root()) {
            let is_lazily = run_quietly(Command::new("umount").arg("--lazy").arg(self.root()));
            if !is_lazily {
                // Removing the folder would remove what is mounted there.
                let kept = self.folder.take().map(tempfile::TempDir::keep);
                eprintln!("left mounted: {kept:?}");
            }
        }
    }
}

/// Unmounts what was mounted there.
pub(crate) fn unmount(root: &Path) {
    assert!(try_to_unmount(root), "{} stays busy", root.display());
}

/// Tries again for a while: a process that another test is starting has our files open until its exec.
fn try_to_unmount(root: &Path) -> bool {
    (0..500).any(|_| {
        let is_done = run_quietly(Command::new("umount").arg(root));
        if !is_done {
            thread::sleep(Duration::from_millis(20));
        }
        is_done
    })
}

fn run_quietly(command: &mut Command) -> bool {
    command.output().is_ok_and(|out| out.status.success())
}

/// Runs a tool that has to succeed.
pub(crate) fn run(command: &mut Command) -> Output {
    let out = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    out
}

/// Says that this kernel, or these tools, lack what the running test is about: no fault of who runs it.
pub(crate) fn not_here(reason: &str) {
    let thread = thread::current();
    let _ = writeln!(std::io::stderr(), "not here: {}: {reason}", thread.name().unwrap_or("a test"));
}

/// Says that the running test is left out, or a part of it, and why.
pub(crate) fn skipped(reason: &str) {
    let thread = thread::current();
    // Past the test harness, which would keep it back: a run as root must not leave tests out unseen.
    let _ = writeln!(std::io::stderr(), "skipped: {}: {reason}", thread.name().unwrap_or("a test"));
}
