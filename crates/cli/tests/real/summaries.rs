//! Summaries of a real file system under random operations, against GNU du.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    os::unix::fs::{FileExt, MetadataExt, symlink},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use onesweep_summary::{
    identity::NodeId,
    store::Store,
    summaries::{Answer, Freshness, Summaries},
    tracker::Fanotify,
    volume::Volume,
};

use crate::{
    image::{Fs, Image},
    run::{long, output, root_test, say, seed, text},
    tree::Rng,
};

type Tracked = Summaries<Arc<Volume>, Fanotify>;

fn tracked(image: &Image) -> Tracked {
    let volume = Arc::new(Volume::of(&image.root()).expect("a file system with handles"));
    let tracker = Fanotify::start(Arc::clone(&volume)).expect("it is watched");
    let store = Store::open(&image.beside("store")).expect("a store");
    let root = volume.root();
    Summaries::open(store, (volume, tracker), root, b"test").expect("summaries")
}

fn node(tracked: &Tracked, path: &Path) -> NodeId {
    let fd = File::open(path).expect("a directory");
    tracked.directories().node_of(std::os::fd::AsFd::as_fd(&fd)).expect("its handle")
}

fn ask(tracked: &mut Tracked, path: &Path, freshness: Freshness) -> Answer {
    let node = node(tracked, path);
    tracked.query(node, freshness).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What GNU du says: allocated bytes, bytes, inodes.
fn du(path: &Path) -> [i64; 3] {
    [&["-sB1"][..], &["-sb"], &["-s", "--inodes"]].map(|options| {
        let said = text(&output(Command::new("du").args(options).arg(path)));
        said.split_whitespace().next().and_then(|figure| figure.parse().ok()).expect("a figure")
    })
}

/// The same of an answer. The du of this machine counts the sizes of directories.
fn as_du(answer: &Answer) -> [i64; 3] {
    let sums = answer.totals.sums;
    [sums.blocks * 512, sums.bytes + sums.directory_bytes, sums.inodes()]
}

fn agrees(tracked: &mut Tracked, path: &Path, after: &str) {
    let answer = ask(tracked, path, Freshness::Synced);
    assert!(answer.is_exact, "{after}: nobody writes");
    assert_eq!(as_du(&answer), du(path), "{} after {after}: {answer:?}", path.display());
}

/// A tree that changes by chance.
struct Shuffled {
    root: PathBuf,
    directories: Vec<PathBuf>,
    files: Vec<PathBuf>,
    open: Vec<File>,
    rng: Rng,
    number: u64,
    has_reflinks: bool,
}

impl Shuffled {
    fn new(root: PathBuf, seed: u64, has_reflinks: bool) -> Self {
        let directories = vec![root.clone()];
        Self { root, directories, files: Vec::new(), open: Vec::new(), rng: Rng::new(seed), number: 0, has_reflinks }
    }

    fn directory(&mut self) -> PathBuf {
        self.rng.pick(&self.directories).clone()
    }

    fn file(&mut self) -> Option<PathBuf> {
        (!self.files.is_empty()).then(|| self.rng.pick(&self.files).clone())
    }

    fn fresh(&mut self) -> PathBuf {
        self.number += 1;
        let name = format!("n{}", self.number);
        self.directory().join(name)
    }

    /// One operation by chance; says what it was. Whatever can't be done just then isn't.
    fn step(&mut self) -> String {
        let what = self.rng.below(22);
        match self.attempt(what) {
            Ok(said) => said,
            Err(error) => format!("{what} refused: {error}"),
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
                fs::remove_dir_all(&path)?;
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
            _ => {
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
        })
    }
}

fn random_operations(fs: Fs) {
    root_test!();
    let image = Image::new(fs, 1 << 30);
    let mut tracked = tracked(&image);
    let steps = if long() { 100_000 } else { 1500 };
    let mut tree = Shuffled::new(image.root(), seed(), fs.has_reflinks());
    let mut log = Vec::new();
    for step in 0..steps {
        log.push(tree.step());
        if tree.rng.below(10) == 0 {
            let path = tree.directory();
            // The last ones say most.
            let recent = log[log.len().saturating_sub(30)..].join("\n");
            agrees(&mut tracked, &path, &format!("step {step} of seed {}:\n{recent}\n", seed()));
        }
        // So that not all of a long run is about one tree that only grows.
        if tree.files.len() > 2000 {
            for path in tree.files.split_off(200) {
                let _ = fs::remove_file(path);
            }
        }
    }
    for path in tree.directories.clone() {
        agrees(&mut tracked, &path, "all");
    }
    let mut kinds: BTreeMap<String, u32> = BTreeMap::new();
    for line in &log {
        let kind = line.split(' ').next().unwrap_or_default();
        *kinds.entry(kind.to_owned()).or_default() += 1;
    }
    say(&format!("{}: {steps} random operations: {kinds:?}", fs.name()));
}

#[test]
fn ext4_under_random_operations() {
    random_operations(Fs::Ext4);
}

#[test]
fn xfs_under_random_operations() {
    random_operations(Fs::Xfs);
}

#[test]
fn btrfs_under_random_operations() {
    random_operations(Fs::Btrfs);
}
