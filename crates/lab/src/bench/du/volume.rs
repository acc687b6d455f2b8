//! A file system to measure on where its disk doesn't matter.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::ValueEnum as _;

use crate::age::image::{Fs, PlainMount};
use crate::interrupt::Interrupt;
use crate::mount;
use crate::scratch::Scratch;

/// Directories in one.
pub(super) const FAN_OUT: usize = 100;

/// How an image is mounted.
type Mounted = fn(&Path, &Path, &str, &str) -> Result<PlainMount, String>;

/// A mounted image of no disk in particular.
pub(super) struct Volume {
    mounted: PlainMount,
    image: PathBuf,
    /// What the image lies in, if not on a disk.
    memory: Option<Memory>,
    pub(super) tree: PathBuf,
    pub(super) scratch: Scratch,
}

/// A tmpfs. It goes when this goes.
struct Memory(PathBuf);

impl Drop for Memory {
    fn drop(&mut self) {
        if let Err(complaint) = mount::unmount(&self.0) {
            eprintln!("onesweep-lab: {complaint}");
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(self.scratch.file("store"));
    }
}

/// How large one is.
#[derive(Debug, Clone, Copy)]
struct Size {
    bytes: u64,
    inodes: u64,
}

impl Size {
    /// For so many directories, and some files.
    fn of(directories: u64) -> Self {
        Self { bytes: (512 << 20) + directories * 6 * 4096, inodes: directories + directories / 8 + 4096 }
    }

    /// For so many small files more.
    fn and(self, files: u64) -> Self {
        Self { bytes: self.bytes + files * 4096, inodes: self.inodes + files }
    }
}

/// Which directories hold files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Files {
    /// One, in each hundredth directory: what a directory costs by itself.
    Seldom,
    /// So many, in each: what people have.
    Each(u64),
}

impl Files {
    /// In so many directories.
    pub(super) fn in_all(self, directories: u64) -> u64 {
        match self {
            Self::Seldom => directories / FAN_OUT as u64,
            Self::Each(files) => directories * files,
        }
    }
}

impl Volume {
    pub(super) fn new(fs: &str, directories: u64) -> Result<Self, String> {
        Self::beside(fs, Size::of(directories), PlainMount::writable)
    }

    /// The same with room for files.
    pub(super) fn holding(fs: &str, directories: u64, files: Files) -> Result<Self, String> {
        Self::beside(fs, Size::of(directories).and(files.in_all(directories)), PlainMount::writable)
    }

    /// The same with room for content, whose image nobody caches.
    pub(super) fn direct(fs: &str, content_bytes: u64) -> Result<Self, String> {
        let size = Size::of(100);
        Self::beside(fs, Size { bytes: size.bytes + content_bytes, ..size }, PlainMount::direct)
    }

    /// The same, not even on a real disk.
    pub(super) fn in_memory(fs: &str, directories: u64) -> Result<Self, String> {
        Self::of_memory(fs, Size::of(directories))
    }

    /// The same with room for files.
    pub(super) fn holding_in_memory(fs: &str, directories: u64, files: Files) -> Result<Self, String> {
        Self::of_memory(fs, Size::of(directories).and(files.in_all(directories)))
    }

    fn of_memory(fs: &str, size: Size) -> Result<Self, String> {
        let scratch = Scratch::new("du")?;
        let memory = scratch.dir("memory")?;
        mount::mount(Path::new("onesweep-lab"), &memory, Some("tmpfs"), None)?;
        let image = memory.join("image");
        Self::on(scratch, image, Some(Memory(memory)), fs, size, PlainMount::writable)
    }

    fn beside(fs: &str, size: Size, mounted: Mounted) -> Result<Self, String> {
        let scratch = Scratch::new("du")?;
        let image = scratch.file("image");
        Self::on(scratch, image, None, fs, size, mounted)
    }

    fn on(
        scratch: Scratch,
        image: PathBuf,
        memory: Option<Memory>,
        fs: &str,
        size: Size,
        mounted: Mounted,
    ) -> Result<Self, String> {
        let tree = scratch.dir("tree")?;
        let fs = Fs::from_str(fs, false)?;
        let said = |error: std::io::Error| format!("{}: {error}", image.display());
        File::create(&image).and_then(|file| file.set_len(size.bytes)).map_err(said)?;
        fs.make(&image, size.inodes, &[])?;
        let options = if fs == Fs::Ext4 { "barrier=0,noatime,noinit_itable" } else { "noatime" };
        let mounted = mounted(&image, &tree, fs.mount_type(), options)?;
        // Whoever asks has to get there.
        let opened = fs::set_permissions(image.parent().unwrap_or(&image), fs::Permissions::from_mode(0o755));
        opened.map_err(said)?;
        Ok(Self { mounted, image, memory, tree, scratch })
    }

    /// Makes directories in directories, with files in them; all of the directories, the top first.
    pub(super) fn fill(&self, directories: u64, files: Files, interrupt: &Interrupt) -> Result<Vec<PathBuf>, String> {
        fill(&self.tree, directories, files, interrupt)
    }

    /// Its image, no longer mounted. It goes when this goes.
    pub(super) fn unmounted(&mut self) -> Result<&Path, String> {
        self.mounted.end()?;
        Ok(&self.image)
    }

    pub(super) fn end(mut self) -> Result<(), String> {
        self.mounted.end()?;
        fs::remove_file(&self.image).map_err(|error| error.to_string())?;
        drop(self.memory.take());
        Ok(())
    }
}

/// The same below `top`.
pub(super) fn fill(top: &Path, directories: u64, files: Files, interrupt: &Interrupt) -> Result<Vec<PathBuf>, String> {
    let mut made = vec![top.to_owned()];
    let mut next = 0;
    while (made.len() as u64) < directories {
        interrupt.check()?;
        let above = made[next].clone();
        next += 1;
        for number in 0..FAN_OUT {
            let path = above.join(format!("d{number}"));
            fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            let held = match files {
                Files::Seldom => u64::from(number == 0),
                Files::Each(files) => files,
            };
            for file in 0..held {
                let path = path.join(format!("file{file}"));
                fs::write(&path, "x").map_err(|error| format!("{}: {error}", path.display()))?;
            }
            made.push(path);
        }
    }
    Ok(made)
}
