//! A tree that changes by chance.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
    },
    path::PathBuf,
    process::Command,
    time::Duration,
};

use rustix::fs::{AtFlags, CWD, FallocateFlags, RenameFlags, fallocate, linkat, renameat_with};

use crate::{tracked::write_mapped, tree::Rng};

const O_NOFOLLOW: i32 = 0o400_000;
const O_TMPFILE: i32 = 0o20_200_000;

/// A tree that changes by chance.
pub(crate) struct Shuffled {
    root: PathBuf,
    pub(crate) directories: Vec<PathBuf>,
    pub(crate) files: Vec<PathBuf>,
    open: Vec<File>,
    pub(crate) rng: Rng,
    number: u64,
    has_reflinks: bool,
}

impl Shuffled {
    pub(crate) fn new(root: PathBuf, seed: u64, has_reflinks: bool) -> Self {
        let directories = vec![root.clone()];
        Self { root, directories, files: Vec::new(), open: Vec::new(), rng: Rng::new(seed), number: 0, has_reflinks }
    }

    pub(crate) fn directory(&mut self) -> PathBuf {
        self.rng.pick(&self.directories).clone()
    }

    fn file(&mut self) -> Option<PathBuf> {
        (!self.files.is_empty()).then(|| self.rng.pick(&self.files).clone())
    }

    fn fresh(&mut self) -> PathBuf {
        self.number += 1;
        let extension = ["", ".txt", ".Jpg", ".tar.gz", ".17"][self.number as usize % 5];
        let name = format!("n{}{extension}", self.number);
        self.directory().join(name)
    }

    /// One operation by chance; says what it was. Whatever can't be done just then isn't.
    pub(crate) fn step(&mut self) -> String {
        let what = self.rng.below(30);
        match self.attempt(what) {
            Ok(said) => said,
            Err(error) => format!("{what} refused: {error}"),
        }
    }

    /// Gives something another owner and group, or another time.
    pub(crate) fn mark(&mut self) -> String {
        let any = if self.rng.below(3) == 0 { Some(self.directory()) } else { self.file() };
        let Some(path) = any.filter(|path| path.symlink_metadata().is_ok()) else { return "nothing".to_owned() };
        let (number, seconds) = (self.rng.below(4) as u32, 1_500_000_000 + self.rng.below(300_000_000));
        match self.rng.below(2) {
            0 => {
                std::os::unix::fs::lchown(&path, Some(1000 + number), Some(2000 + number)).expect("an owner");
                format!("chown {number} {}", path.display())
            }
            _ => {
                let time = std::time::UNIX_EPOCH + Duration::from_secs(seconds);
                let opened = OpenOptions::new().read(true).custom_flags(O_NOFOLLOW).open(&path);
                let _ = opened.and_then(|file| file.set_modified(time));
                format!("touch {}", path.display())
            }
        }
    }

    fn attempt(&mut self, what: u64) -> io::Result<String> {
        let none = || io::Error::other("no file");
        Ok(match what {
            0..=3 => {
                let path = self.fresh();
                let size = self.rng.below(40_000) as usize;
                fs::write(&path, self.rng.bytes(size))?;
                self.files.push(path.clone());
                format!("create {}", path.display())
            }
            4 => {
                let path = self.file().ok_or_else(none)?;
                let size = self.rng.below(20_000) as usize;
                OpenOptions::new().append(true).open(&path)?.write_all(&self.rng.bytes(size))?;
                format!("append {}", path.display())
            }
            5 => {
                let path = self.file().ok_or_else(none)?;
                let size = self.rng.below(50_000);
                OpenOptions::new().write(true).open(&path)?.set_len(size)?;
                format!("truncate {} to {size}", path.display())
            }
            6 => {
                let path = self.file().ok_or_else(none)?;
                let mut file = OpenOptions::new().write(true).open(&path)?;
                file.seek(SeekFrom::Start(self.rng.below(1 << 20)))?;
                file.write_all(b"behind a hole")?;
                format!("hole {}", path.display())
            }
            7 | 8 => {
                let path = self.fresh();
                fs::create_dir(&path)?;
                self.directories.push(path.clone());
                format!("mkdir {}", path.display())
            }
            9 | 10 => {
                let (from, to) = (self.file().ok_or_else(none)?, self.fresh());
                fs::hard_link(&from, &to)?;
                self.files.push(to.clone());
                format!("link {} {}", from.display(), to.display())
            }
            11 | 12 => {
                let path = self.file().ok_or_else(none)?;
                fs::remove_file(&path)?;
                self.files.retain(|file| *file != path);
                format!("unlink {}", path.display())
            }
            13 => {
                let (from, to) = (self.file().ok_or_else(none)?, self.fresh());
                fs::rename(&from, &to)?;
                self.files.retain(|file| *file != from);
                self.files.push(to.clone());
                format!("rename {} {}", from.display(), to.display())
            }
            14 => {
                let (from, over) = (self.file().ok_or_else(none)?, self.file().ok_or_else(none)?);
                fs::rename(&from, &over)?;
                if !from.exists() {
                    self.files.retain(|file| *file != from);
                }
                format!("rename {} over {}", from.display(), over.display())
            }
            15 => {
                let (from, to) = (self.directory(), self.fresh());
                if from == self.root || to.starts_with(&from) {
                    return Err(io::Error::other("into itself"));
                }
                fs::rename(&from, &to)?;
                for path in self.directories.iter_mut().chain(&mut self.files) {
                    if let Ok(below) = path.strip_prefix(&from) {
                        *path = if below.as_os_str().is_empty() { to.clone() } else { to.join(below) };
                    }
                }
                format!("rename directory {} {}", from.display(), to.display())
            }
            16 => {
                let path = self.directory();
                if path == self.root || self.rng.below(4) > 0 {
                    return Err(io::Error::other("spared"));
                }
                if let Err(error) = fs::remove_dir_all(&path) {
                    // A file system in user space keeps files that are open under other names, and what they are in, but nothing else.
                    self.directories.retain(|directory| directory.is_dir());
                    self.files.retain(|file| file.symlink_metadata().is_ok());
                    return Err(error);
                }
                self.directories.retain(|directory| !directory.starts_with(&path));
                self.files.retain(|file| !file.starts_with(&path));
                format!("remove {}", path.display())
            }
            17 => {
                let path = self.fresh();
                symlink("nowhere", &path)?;
                self.files.push(path.clone());
                format!("symlink {}", path.display())
            }
            // Files that stay open under names that they may lose.
            18 => {
                let path = self.file().ok_or_else(none)?;
                self.open.push(OpenOptions::new().write(true).open(&path)?);
                if self.open.len() > 6 {
                    let at = self.rng.below(6) as usize;
                    drop(self.open.swap_remove(at));
                }
                format!("open {}", path.display())
            }
            19 | 20 => {
                let at = self.rng.below(self.open.len().max(1) as u64) as usize;
                let size = self.rng.below(20_000) as usize;
                let bytes = self.rng.bytes(size);
                let file = self.open.get(at).ok_or_else(none)?;
                file.write_all_at(&bytes, file.metadata()?.size())?;
                format!("write to open inode {}", file.metadata()?.ino())
            }
            21 => {
                let (path, mode) = (self.file().ok_or_else(none)?, self.rng.below(0o1000) as u32);
                let directory = self.directory();
                fs::set_permissions(&path, fs::Permissions::from_mode(mode | 0o600))?;
                fs::set_permissions(&directory, fs::Permissions::from_mode(mode | 0o700))?;
                format!("chmod {} and {}", path.display(), directory.display())
            }
            22 => {
                let path = self.file().ok_or_else(none)?;
                write_mapped(&path, self.rng.below(30_000) + 1)?;
                format!("mmap {}", path.display())
            }
            23 => {
                let (from, to) = (self.file().ok_or_else(none)?, self.fresh());
                if !self.has_reflinks {
                    return Err(io::Error::other("no reflinks"));
                }
                let mut clone = Command::new("cp");
                if !clone.arg("--reflink=always").arg(&from).arg(&to).output()?.status.success() {
                    return Err(io::Error::other("a symbolic link"));
                }
                self.files.push(to.clone());
                format!("clone {} {}", from.display(), to.display())
            }
            24..=26 => {
                let path = self.file().ok_or_else(none)?;
                let flags = [
                    FallocateFlags::empty(),
                    FallocateFlags::KEEP_SIZE,
                    FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE,
                    FallocateFlags::ZERO_RANGE,
                    FallocateFlags::COLLAPSE_RANGE,
                    FallocateFlags::INSERT_RANGE,
                ];
                let (flags, block) = (flags[self.rng.below(6) as usize], 4096);
                let (from, length) = (self.rng.below(12) * block, (self.rng.below(12) + 1) * block);
                fallocate(OpenOptions::new().write(true).open(&path)?, flags, from, length)?;
                format!("fallocate {flags:?} {from} {length} {}", path.display())
            }
            27 => {
                let (one, other) = (self.file().ok_or_else(none)?, self.file().ok_or_else(none)?);
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE)?;
                format!("exchange {} {}", one.display(), other.display())
            }
            28 => {
                let (one, other) = (self.directory(), self.directory());
                if one.starts_with(&other) || other.starts_with(&one) {
                    return Err(io::Error::other("into itself"));
                }
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE)?;
                for path in self.directories.iter_mut().chain(&mut self.files) {
                    let moved = [(&one, &other), (&other, &one)]
                        .map(|(from, to)| path.strip_prefix(from).map(|below| to.join(below)));
                    if let Some(to) = moved.into_iter().find_map(Result::ok) {
                        // What is joined to nothing ends with a slash.
                        *path = to.components().collect();
                    }
                }
                format!("exchange directories {} {}", one.display(), other.display())
            }
            _ => {
                let (directory, path) = (self.directory(), self.fresh());
                let mut file = OpenOptions::new().write(true).custom_flags(O_TMPFILE).open(&directory)?;
                let size = self.rng.below(20_000) as usize;
                file.write_all(&self.rng.bytes(size))?;
                linkat(CWD, format!("/proc/self/fd/{}", file.as_raw_fd()), CWD, &path, AtFlags::SYMLINK_FOLLOW)?;
                file.write_all(b"behind its name")?;
                self.files.push(path.clone());
                format!("tmpfile {} {}", directory.display(), path.display())
            }
        })
    }
}
