//! File systems in image files: made, attached to a loop device, mounted, and taken down again whatever happens.
//!
//! Everything an image owns lies in one folder `onesweep-test-<pid>-<n>` below `ONESWEEP_TEST_DIR` (or the system's
//! temporary folder). A test that panics takes its image down by unwinding; a test process that was killed leaves its
//! folders behind, and the next one clears away those whose process is gone.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Once,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use crate::run::{output, run, text};

/// A file system that images can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Fs {
    /// ext4 with 4 KiB blocks.
    Ext4,
    /// ext4 with 1 KiB blocks.
    Ext4Small,
    /// ext4 that keeps the smallest files in their inodes.
    Ext4Inline,
    /// ext2, by the driver of ext4 where the kernel has no other: without a journal, without extents, and with times of whole seconds.
    Ext2,
    /// The same of ext3: without extents.
    Ext3,
    Xfs,
    Btrfs,
    /// NTFS, shown by ntfs-3g.
    Ntfs,
}

impl Fs {
    /// The file systems that every general test runs on.
    pub(crate) const MAIN: [Self; 4] = [Self::Ext4, Self::Ext4Small, Self::Xfs, Self::Btrfs];
    pub(crate) const ALL: [Self; 5] = [Self::Ext4, Self::Ext4Small, Self::Ext4Inline, Self::Xfs, Self::Btrfs];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Ext4Small => "ext4-1k",
            Self::Ext4Inline => "ext4-inline",
            Self::Ext2 => "ext2",
            Self::Ext3 => "ext3",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Ntfs => "ntfs",
        }
    }

    /// The name that `mount -t` knows.
    pub(crate) fn kernel_name(self) -> &'static str {
        match self {
            Self::Ext4 | Self::Ext4Small | Self::Ext4Inline => "ext4",
            Self::Ext2 => "ext2",
            Self::Ext3 => "ext3",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Ntfs => "ntfs-3g",
        }
    }

    pub(crate) fn has_reflinks(self) -> bool {
        matches!(self, Self::Xfs | Self::Btrfs)
    }

    /// True where the addresses of the mapping are those of the device, so that device mode is possible.
    pub(crate) fn has_device_mode(self) -> bool {
        !matches!(self, Self::Btrfs | Self::Ntfs)
    }

    pub(crate) fn mkfs(self, target: &Path) -> Command {
        let (program, arguments): (_, &[&str]) = match self {
            // The block size is always named: mkfs takes 1 KiB for small images by itself.
            Self::Ext4 => ("mkfs.ext4", &["-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"]),
            Self::Ext4Small => {
                ("mkfs.ext4", &["-q", "-F", "-b", "1024", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
            }
            Self::Ext4Inline => ("mkfs.ext4", &["-q", "-F", "-b", "4096", "-I", "512", "-O", "inline_data"]),
            Self::Ext2 => ("mkfs.ext2", &["-q", "-F", "-b", "4096", "-I", "128"]),
            Self::Ext3 => ("mkfs.ext3", &["-q", "-F", "-b", "4096"]),
            Self::Xfs => ("mkfs.xfs", &["-q", "-f"]),
            Self::Btrfs => ("mkfs.btrfs", &["-q", "-f"]),
            // A file has no sectors and no place on a disk that it could take these from.
            Self::Ntfs => ("mkntfs", &["-Q", "-F", "-q", "-s", "512", "-p", "0", "-H", "0", "-S", "0"]),
        };
        let mut command = Command::new(program);
        command.args(arguments).arg(target);
        command
    }

    /// What `mkfs` calls itself: part of the key of a kept image.
    pub(crate) fn mkfs_version(self) -> String {
        let program = match self.kernel_name() {
            "ext2" | "ext3" | "ext4" => "mkfs.ext4",
            "xfs" => "mkfs.xfs",
            "ntfs-3g" => "mkntfs",
            _ => "mkfs.btrfs",
        };
        let out = Command::new(program).arg("-V").output().expect("mkfs runs; try `make deps`");
        let said = [out.stdout, out.stderr].concat();
        text(&said).lines().next().unwrap_or_default().to_owned()
    }
}

/// A mounted image. Dropping it unmounts, detaches and deletes.
pub(crate) struct Image {
    pub(crate) fs: Fs,
    folder: PathBuf,
    file: PathBuf,
    device: PathBuf,
    /// Further devices of the same file system.
    others: Vec<PathBuf>,
    options: String,
    mounted: bool,
}

impl Image {
    /// A fresh file system in a sparse file of so many bytes.
    pub(crate) fn new(fs: Fs, bytes: u64) -> Self {
        Self::with(fs, bytes, &[])
    }

    /// The same with further options of mkfs.
    pub(crate) fn with(fs: Fs, bytes: u64, options: &[&str]) -> Self {
        let folder = own_folder();
        let file = folder.join("disk.img");
        sparse_file(&file, bytes);
        run(fs.mkfs(&file).args(options));
        Self::attach(fs, folder, file)
    }

    /// A fresh file system in a file that is in memory: on another disk than those of all other images.
    pub(crate) fn in_memory(fs: Fs, bytes: u64) -> Self {
        let folder = own_folder();
        let memory = folder.join("memory");
        fs::create_dir(&memory).expect("a mount point");
        run(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&memory));
        let file = memory.join("disk.img");
        sparse_file(&file, bytes);
        run(&mut fs.mkfs(&file));
        Self::attach(fs, folder, file)
    }

    /// btrfs over some devices of so many bytes each, with this profile for data.
    pub(crate) fn btrfs_on_devices(devices: usize, data: &str, bytes: u64) -> Self {
        let folder = own_folder();
        let file = folder.join("disk.img");
        let others: Vec<PathBuf> = (1..devices).map(|number| folder.join(format!("other-{number}.img"))).collect();
        for file in [&file].into_iter().chain(&others) {
            sparse_file(file, bytes);
        }
        let mut mkfs = Fs::Btrfs.mkfs(&file);
        let metadata = if devices == 1 { "dup" } else { "raid1" };
        run(mkfs.args(["-d", data, "-m", metadata]).args(&others));
        let others: Vec<PathBuf> = others.iter().map(|file| attach_loop(file)).collect();
        let named: String = others.iter().map(|device| format!(",device={}", device.display())).collect();
        Self::attach_with(Fs::Btrfs, folder, file, others, format!("noatime{named}"))
    }

    /// A file system in a copy of an image file.
    pub(crate) fn copy_of(fs: Fs, kept: &Path) -> Self {
        let folder = own_folder();
        run(Command::new("cp").args(["--sparse=always", "--reflink=auto"]).arg(kept).arg(folder.join("disk.img")));
        let file = folder.join("disk.img");
        Self::attach(fs, folder, file)
    }

    fn attach(fs: Fs, folder: PathBuf, file: PathBuf) -> Self {
        Self::attach_with(fs, folder, file, Vec::new(), "noatime".into())
    }

    fn attach_with(fs: Fs, folder: PathBuf, file: PathBuf, others: Vec<PathBuf>, options: String) -> Self {
        let device = attach_loop(&file);
        let mut image = Self { fs, folder, file, device, others, options, mounted: false };
        fs::create_dir(image.root()).expect("a mount point");
        image.mount();
        image
    }

    /// Where it is mounted.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.join("mnt")
    }

    /// Room beside the mount point, on the machine's own disk, deleted with the image.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The loop device.
    pub(crate) fn device(&self) -> &Path {
        &self.device
    }

    /// The image file below the loop device.
    pub(crate) fn file(&self) -> PathBuf {
        self.file.clone()
    }

    /// Major and minor numbers of its loop devices, the first one first.
    pub(crate) fn device_numbers(&self) -> Vec<(u32, u32)> {
        let numbers = |device: &PathBuf| {
            let number = fs::metadata(device).expect("the loop device is there").rdev();
            (rustix::fs::major(number), rustix::fs::minor(number))
        };
        [&self.device].into_iter().chain(&self.others).map(numbers).collect()
    }

    pub(crate) fn mount(&mut self) {
        run(Command::new("mount")
            .args(["-t", self.fs.kernel_name(), "-o", &self.options])
            .arg(&self.device)
            .arg(self.root()));
        self.mounted = true;
    }

    /// Sets further mount options, from the next mounting on.
    pub(crate) fn set_options(&mut self, options: &str) {
        self.options = format!("noatime,{options}");
    }

    pub(crate) fn unmount(&mut self) {
        unmount(&self.root());
        self.mounted = false;
    }

    /// Leaves nothing of the file system in memory: neither pages, nor inodes, nor the device's own pages.
    ///
    /// Unmounting does this for this file system alone; dropping all caches of the machine would disturb tests beside.
    pub(crate) fn cold(&mut self) {
        self.unmount();
        for device in [&self.device].into_iter().chain(&self.others) {
            run(Command::new("blockdev").arg("--flushbufs").arg(device));
        }
        self.mount();
    }

    /// A copy of what the disk holds now, which is all that a power cut would leave of it. Nobody may write meanwhile.
    pub(crate) fn on_disk(&self) -> PathBuf {
        let kept = self.beside("on-disk.img");
        run(Command::new("cp").args(["--sparse=always", "--reflink=auto"]).arg(&self.file).arg(&kept));
        kept
    }

    /// Mounted anew with what the disk held then: all that came after is lost.
    pub(crate) fn power_cut(&mut self, kept: &Path) {
        self.unmount();
        run(Command::new("losetup").arg("--detach").arg(&self.device));
        fs::rename(kept, &self.file).expect("the copy takes its place");
        self.device = attach_loop(&self.file);
        self.mount();
    }

    /// Writes everything out and keeps a sparse copy of the image file under `kept`.
    pub(crate) fn keep_as(mut self, kept: &Path) {
        self.unmount();
        run(Command::new("blockdev").arg("--flushbufs").arg(&self.device));
        let unfinished = kept.with_extension(format!("{}.part", std::process::id()));
        run(Command::new("cp").args(["--sparse=always", "--reflink=auto"]).arg(self.file()).arg(&unfinished));
        fs::rename(&unfinished, kept).expect("the kept image gets its name");
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        if self.mounted {
            unmount_below(&self.root());
        }
        for device in [&self.device].into_iter().chain(&self.others) {
            let _ = Command::new("losetup").arg("--detach").arg(device).output();
        }
        // What the image file lies on goes after the device.
        unmount_below(&self.folder);
        remove_own_folder(&self.folder);
        // A program that another thread is just starting may hold our files for a moment.
        let mut left = leftovers(&self.folder);
        for _ in 0..600 {
            if left.is_empty() {
                break;
            }
            thread::sleep(Duration::from_millis(100));
            left = leftovers(&self.folder);
        }
        if !left.is_empty() && !thread::panicking() {
            panic!("an image left something behind: {left:?}");
        }
    }
}

/// A folder of a test's own that holds no image, deleted at the end. Mounts below it are taken down first.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(own_folder())
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        unmount_below(&self.0);
        remove_own_folder(&self.0);
    }
}

/// What is still there of a folder: the folder itself, mounts below it, loop devices on its files.
pub(crate) fn leftovers(folder: &Path) -> Vec<String> {
    let mut left: Vec<String> =
        mounts_below(folder).into_iter().map(|mount| format!("mount {}", mount.display())).collect();
    if folder.exists() {
        left.push(format!("folder {}", folder.display()));
    }
    let loops = Command::new("losetup").args(["--list", "--noheadings", "--output", "NAME,BACK-FILE"]).output();
    for line in text(&loops.expect("losetup runs").stdout).lines() {
        if line.contains(&*folder.to_string_lossy()) {
            left.push(format!("loop {line}"));
        }
    }
    left
}

/// Mount points at or below a folder, the innermost first.
pub(crate) fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the mount table");
    let mut mounts: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|point| PathBuf::from(point.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n")))
        .filter(|point| point.starts_with(folder))
        .collect();
    mounts.reverse();
    mounts
}

/// Unmounts what is mounted at `root`, and waits until nobody has it any more.
pub(crate) fn unmount(root: &Path) {
    let found = Command::new("findmnt").args(["-no", "SOURCE", "--mountpoint"]).arg(root).output();
    let device = PathBuf::from(String::from_utf8_lossy(&found.expect("findmnt runs").stdout).trim());
    let file = backing_file(&device);
    // A process that has just ended may still be letting go of its last file.
    for _ in 0..600 {
        if Command::new("umount").arg(root).output().expect("umount runs").status.success() {
            return file.map_or((), |file| wait_until_let_go(&device, &file));
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("{} stays busy", root.display());
}

/// The file below a loop device.
fn backing_file(device: &Path) -> Option<String> {
    let name = device.file_name()?.to_str()?;
    fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).ok()
}

/// A program in another mount namespace, as tests beside start some, has all that was mounted when it began: until it ends, not all of a
/// file system is written, and who mounts it again gets what is in memory.
fn wait_until_let_go(device: &Path, file: &str) {
    let is_held = || {
        let opened = fs::File::options().read(true).custom_flags(rustix::fs::OFlags::EXCL.bits() as i32).open(device);
        opened.is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy)
    };
    for _ in 0..600 {
        if backing_file(device).as_deref() != Some(file) || !is_held() {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("{} stays in use", device.display());
}

fn unmount_below(folder: &Path) {
    for lazy in [false, false, false, true] {
        for mount in mounts_below(folder) {
            let mut command = Command::new("umount");
            if lazy {
                command.arg("--lazy");
            }
            let _ = command.arg(&mount).output();
        }
        if mounts_below(folder).is_empty() {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Deletes a folder, unless something is mounted in it: a deletion must never reach into a mount.
fn remove_own_folder(folder: &Path) {
    if !mounts_below(folder).is_empty() {
        return;
    }
    // Paths longer than the kernel takes at once are no obstacle to `rm`.
    let _ = Command::new("rm").args(["-rf", "--one-file-system"]).arg(folder).output();
}

fn sparse_file(path: &Path, bytes: u64) {
    fs::File::create(path).and_then(|file| file.set_len(bytes)).expect("a sparse file");
}

fn base_folder() -> PathBuf {
    let base = std::env::var_os("ONESWEEP_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    fs::create_dir_all(&base).expect("the folder for tests");
    base.canonicalize().expect("the folder for tests")
}

fn own_folder() -> PathBuf {
    static SWEPT: Once = Once::new();
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let base = base_folder();
    SWEPT.call_once(|| clear_the_dead(&base));
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let folder = base.join(format!("onesweep-test-{}-{number}", std::process::id()));
    fs::create_dir(&folder).expect("a folder of its own");
    folder
}

/// Takes down what a killed test process left: folders whose number is that of no process.
fn clear_the_dead(base: &Path) {
    for entry in fs::read_dir(base).expect("the folder for tests").flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix("onesweep-test-")) else { continue };
        let Some(process) = rest.split('-').next().and_then(|number| number.parse::<u32>().ok()) else { continue };
        if Path::new("/proc").join(process.to_string()).exists() {
            continue;
        }
        let folder = entry.path();
        unmount_below(&folder);
        let loops = output(Command::new("losetup").args(["--list", "--noheadings", "--output", "NAME,BACK-FILE"]));
        for line in text(&loops).lines().filter(|line| line.contains(&*folder.to_string_lossy())) {
            if let Some(device) = line.split_whitespace().next() {
                let _ = Command::new("losetup").arg("--detach").arg(device).output();
            }
        }
        remove_own_folder(&folder);
    }
}

/// Attaches a file to a free loop device. Others may take the free one between finding and taking it: so again.
pub(crate) fn attach_loop(file: &Path) -> PathBuf {
    attach_loop_as(file, &[])
}

/// The same with further options of losetup.
pub(crate) fn attach_loop_as(file: &Path, options: &[&str]) -> PathBuf {
    let mut said = String::new();
    for attempt in 0..60 {
        // Direct I/O keeps the image's pages out of the machine's page cache; not every disk below can do it.
        let direct = if attempt < 40 { "--direct-io=on" } else { "--direct-io=off" };
        let mut losetup = Command::new("losetup");
        let out = losetup.args(["--find", "--show", direct]).args(options).arg(file).output().expect("losetup runs");
        if out.status.success() {
            return PathBuf::from(text(&out.stdout).trim());
        }
        said = text(&out.stderr);
        thread::sleep(Duration::from_millis(50));
    }
    panic!("no loop device for {}: {said}", file.display());
}

/// True when this process may make loop devices and mount.
pub(crate) fn may_mount() -> io::Result<()> {
    if fs::metadata("/proc/self")?.uid() != 0 {
        return Err(io::Error::other("needs root"));
    }
    let free = Command::new("losetup").arg("--find").output()?;
    if !free.status.success() {
        return Err(io::Error::other(format!("needs loop devices: {}", text(&free.stderr).trim())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::run::root_test;

    /// Every file system comes up, goes down, and leaves nothing, also when the test panics in between.
    #[test]
    fn leaves_nothing_behind() {
        root_test!();
        for fs in Fs::ALL {
            let mut folder = PathBuf::new();
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                let mut image = Image::new(fs, 320 << 20);
                folder.clone_from(&image.folder);
                fs::write(image.root().join("a"), b"a").expect("a file");
                image.cold();
                assert_eq!(fs::read(image.root().join("a")).expect("the file again"), b"a");
                assert!(!leftovers(&folder).is_empty());
                std::panic::resume_unwind(Box::new("on purpose"));
            }));
            assert!(panicked.is_err());
            assert_eq!(leftovers(&folder), Vec::<String>::new(), "{}", fs.name());
        }
    }
}
