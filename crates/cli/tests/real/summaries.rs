//! Summaries of a real file system under random operations, against GNU du.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io::{self, Seek, SeekFrom, Write},
    os::unix::{
        fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use onesweep_summary::{
    identity::NodeId,
    reading::Directories,
    store::Store,
    summaries::{Answer, Freshness, Summaries},
    tracker::Fanotify,
    volume::Volume,
};

use crate::{
    image::{Fs, Image},
    run::{finish, long, onesweep, output, root_test, run, say, seed, text},
    storms::scarce,
    tree::{Rng, until_another_second},
};

pub(crate) type Tracked = Summaries<Arc<Volume>, Fanotify>;

pub(crate) fn tracked(image: &Image) -> Tracked {
    let volume = Arc::new(Volume::of(&image.root()).expect("a file system with handles"));
    let tracker = Fanotify::start(volume.clone()).expect("it is watched");
    let store = Store::open(&image.beside("store")).expect("a store");
    let root = volume.root();
    Summaries::open(store, (volume, tracker), root, b"test").expect("summaries")
}

pub(crate) fn node(tracked: &Tracked, path: &Path) -> NodeId {
    let fd = File::open(path).expect("a directory");
    tracked.directories().node_of(std::os::fd::AsFd::as_fd(&fd)).expect("its handle")
}

pub(crate) fn ask(tracked: &mut Tracked, path: &Path, freshness: Freshness) -> Answer {
    let node = node(tracked, path);
    tracked.query(node, freshness).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What GNU du says: allocated bytes, bytes, inodes.
pub(crate) fn du(path: &Path) -> [i64; 3] {
    [&["-sB1"][..], &["-sb"], &["-s", "--inodes"]].map(|options| {
        let said = text(&output(Command::new("du").args(options).arg(path)));
        said.split_whitespace().next().and_then(|figure| figure.parse().ok()).expect("a figure")
    })
}

/// The same of an answer. The du of this machine counts the sizes of directories.
pub(crate) fn as_du(answer: &Answer) -> [i64; 3] {
    let sums = answer.totals.sums;
    [sums.blocks * 512, sums.bytes + sums.directory_bytes, sums.inodes()]
}

pub(crate) fn agrees(tracked: &mut Tracked, path: &Path, after: &str) {
    let asked = node(tracked, path);
    let answered = tracked.query(asked, Freshness::Synced);
    let mut answer = answered.unwrap_or_else(|error| panic!("{} after {after}: {error}", path.display()));
    let mut told = du(path);
    // XFS gives back what it has allocated ahead when it forgets an inode, which may be between the two.
    if told[0] < as_du(&answer)[0] {
        answer = ask(tracked, path, Freshness::Synced);
        told = du(path);
    }
    assert!(answer.is_exact, "{after}: nobody writes");
    assert_eq!(as_du(&answer), told, "{} after {after}: {answer:?}", path.display());
}

const O_NOFOLLOW: i32 = 0o400_000;

/// A tree that changes by chance.
pub(crate) struct Shuffled {
    root: PathBuf,
    pub(crate) directories: Vec<PathBuf>,
    files: Vec<PathBuf>,
    open: Vec<File>,
    rng: Rng,
    number: u64,
    has_reflinks: bool,
}

impl Shuffled {
    pub(crate) fn new(root: PathBuf, seed: u64, has_reflinks: bool) -> Self {
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
        let extension = ["", ".txt", ".Jpg", ".tar.gz", ".17"][self.number as usize % 5];
        let name = format!("n{}{extension}", self.number);
        self.directory().join(name)
    }

    /// One operation by chance; says what it was. Whatever can't be done just then isn't.
    pub(crate) fn step(&mut self) -> String {
        let what = self.rng.below(24);
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

/// Makes a file so long, of holes, and writes all of it through a mapping.
pub(crate) fn write_mapped(path: &Path, length: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(0)?;
    file.set_len(length)?;
    let mut io = Command::new("xfs_io");
    io.args(["-c", &format!("mmap -rw 0 {length}"), "-c", &format!("mwrite 0 {length}"), "-c", "munmap"]).arg(path);
    run(&mut io);
    Ok(())
}

/// How a killed server leaves the store, for the next one: what has been written to the file by now, and nothing of its end.
pub(crate) fn kill(tracked: Tracked, image: &Image) {
    let (store, left) = (image.beside("store"), image.beside("store-left"));
    fs::copy(&store, &left).expect("a copy");
    drop(tracked);
    fs::rename(left, store).expect("it takes the other's place");
}

/// `starts`: the ways to begin to track, one of which by chance after each kill.
pub(crate) fn random_operations(fs: Fs, starts: &[fn(&Image) -> Tracked]) {
    root_test!();
    let image = Image::new(fs, 1 << 30);
    let mut tracked = starts[0](&image);
    let steps = if long() { 100_000 } else { 1500 };
    let mut tree = Shuffled::new(image.root(), seed(), fs.has_reflinks());
    let (mut log, mut kills, mut commits, mut losses) = (Vec::new(), 0, 0, 0);
    for step in 0..steps {
        log.push(tree.step());
        match tree.rng.below(400) {
            0..=2 => {
                tracked.commit(true).expect("it is written");
                commits += 1;
                log.push("commit".to_owned());
            }
            3 => {
                losses += tracked.losses();
                kill(tracked, &image);
                let start = tree.rng.below(starts.len() as u64) as usize;
                // Some of what happens is told to nobody.
                log.extend((0..tree.rng.below(30)).map(|_| tree.step()));
                tracked = starts[start](&image);
                kills += 1;
                log.push(format!("kill, start {start}"));
            }
            _ => {}
        }
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
    losses += tracked.losses();
    say(&format!(
        "{}: {steps} random operations, {commits} commits, {kills} kills, {losses} times events lost: {kinds:?}",
        fs.name()
    ));
    assert!(kills > 0 && commits > 0, "nothing was killed, so no start was tested");
}

/// With a queue that loses events, too.
const STARTS: [fn(&Image) -> Tracked; 2] = [tracked, scarce];

#[test]
fn ext4_under_random_operations() {
    random_operations(Fs::Ext4, &STARTS);
}

#[test]
fn xfs_under_random_operations() {
    random_operations(Fs::Xfs, &STARTS);
}

#[test]
fn btrfs_under_random_operations() {
    random_operations(Fs::Btrfs, &STARTS);
}

/// A server over an image; ended and waited for when it is dropped.
pub(crate) struct Serving {
    pub(crate) running: Child,
    pub(crate) socket: PathBuf,
}

impl Serving {
    pub(crate) fn start(image: &Image) -> Self {
        Self::start_on(&[image])
    }

    /// One server over several; what it keeps lies beside the first.
    pub(crate) fn start_on(images: &[&Image]) -> Self {
        Self::start_with(images, &[])
    }

    /// The same with further options.
    pub(crate) fn start_with(images: &[&Image], options: &[&OsStr]) -> Self {
        let mut serve = onesweep(["serve", "--store"]);
        serve.arg(images[0].beside("stores")).args(options).args(images.iter().map(|image| image.root()));
        Self::run(serve, images[0])
    }

    /// The same with a folder for what it keeps.
    pub(crate) fn start_keeping(images: &[&Image], stores: &Path, options: &[&str]) -> Self {
        let mut serve = onesweep(["serve", "--store"]);
        serve.arg(stores).args(options).args(images.iter().map(|image| image.root()));
        Self::run(serve, images[0])
    }

    /// By a file of settings that names the file systems.
    pub(crate) fn start_by(image: &Image, settings: &Path) -> Self {
        let mut serve = onesweep(["serve", "--config"]);
        serve.arg(settings).arg("--store").arg(image.beside("stores"));
        Self::run(serve, image)
    }

    /// The same by a command that lacks but the socket, which lies beside the image.
    pub(crate) fn run(mut serve: Command, image: &Image) -> Self {
        let socket = image.beside("socket");
        serve.arg("--socket").arg(&socket);
        let mut running = serve.stderr(Stdio::piped()).spawn().expect("it starts");
        while UnixStream::connect(&socket).is_err() {
            assert!(running.try_wait().expect("its state").is_none(), "the server ended");
            thread::sleep(Duration::from_millis(5));
        }
        Self { running, socket }
    }

    pub(crate) fn du(&self, options: &[&str], path: &Path) -> Command {
        let mut du = onesweep(["du", "--socket"]);
        du.arg(&self.socket).args(options).arg(path);
        du
    }

    /// Ends it in good order, and gives what it said.
    pub(crate) fn end(mut self) -> String {
        run(Command::new("kill").args(["-TERM", &self.running.id().to_string()]));
        assert!(self.running.wait().expect("it ends").success());
        assert!(!self.socket.exists());
        self.said()
    }

    /// Kills it, and gives what it said.
    pub(crate) fn kill(mut self) -> String {
        self.running.kill().expect("it is killed");
        self.running.wait().expect("it is gone");
        self.said()
    }

    fn said(&mut self) -> String {
        let mut said = String::new();
        let mut from = self.running.stderr.take().expect("it was piped");
        io::Read::read_to_string(&mut from, &mut said).expect("it ends");
        said
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.running.kill();
        let _ = self.running.wait();
    }
}

fn sorted_lines(said: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = text(said).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Options in which both must print the same lines, in whatever order.
const OPTIONS: [&[&str]; 10] = [
    &[],
    &["-s"],
    &["-sS"],
    &["-sh"],
    &["-b", "-d1"],
    &["--inodes"],
    &["-S"],
    &["-c", "-d2"],
    &["-B", "4K"],
    &["-t", "20K"],
];

fn tree_without_links(root: &Path) {
    for (number, name) in ["a", "a/b", "a/b/c", "d", "d/e f", "private", "private/inside"].into_iter().enumerate() {
        fs::create_dir(root.join(name)).expect("a folder");
        for file in 0..5 {
            let content = Rng::new((number * 10 + file) as u64).bytes(number * 7000 + file * 100);
            fs::write(root.join(name).join(format!("f{file}")), content).expect("a file");
        }
    }
    symlink("f0", root.join("a/link")).expect("a link");
    crate::tree::sync(root);
}

#[test]
fn du_prints_what_gnu_du_prints() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let image = Image::new(fs, 512 << 20);
        tree_without_links(&image.root());
        let serving = Serving::start(&image);
        for path in ["", "a", "d/e f"].map(|below| image.root().join(below)) {
            for options in OPTIONS {
                let expected = sorted_lines(&output(Command::new("du").args(options).arg(&path)));
                let asked = finish(serving.du(options, &path).arg("-v"), 0);
                assert_eq!(sorted_lines(&asked.stdout), expected, "{options:?} {} of a server", path.display());
                assert!(text(&asked.stderr).contains("from the server, up to date"), "{}", text(&asked.stderr));
                let walked = finish(onesweep(["du", "--socket", "/nowhere"]).args(options).arg(&path), 0);
                assert_eq!(sorted_lines(&walked.stdout), expected, "{options:?} {} walked", path.display());
            }
        }
        // What has been closed is counted at once.
        fs::write(image.root().join("a/b/c/new"), vec![1; 100_000]).expect("a file");
        let asked = output(&mut serving.du(&["-sb"], &image.root()));
        assert_eq!(text(&asked), text(&output(Command::new("du").arg("-sb").arg(image.root()))));
        serving.end();
    }
}

/// What has grown since it was asked for, and nothing of it for whom not all may be shown.
#[test]
fn growth_is_told() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    tree_without_links(&image.root());
    let serving = Serving::start(&image);
    let top = |options: &[&str]| {
        let mut top = onesweep(["top"]);
        top.args(options).arg("--socket").arg(image.beside("socket")).arg(image.root());
        top
    };
    let line = |said: &[u8], name: &str| {
        let path = if name.is_empty() { image.root() } else { image.root().join(name) }.display().to_string();
        let said = text(said);
        let line = said.lines().find(|line| line.ends_with(&path)).unwrap_or_else(|| panic!("no {path} in {said}"));
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(line(&output(&mut top(&[])), "a")[1], "+0");
    // Of each second the last total is kept, and the server notes them from time to time.
    until_another_second();
    fs::write(image.root().join("a/grown"), vec![1; 1 << 20]).expect("a file");
    fs::remove_file(image.root().join("d/f4")).expect("it goes");
    crate::tree::sync(&image.root());
    let grown = output(&mut top(&["--by", "grew", "--since", "4w"]));
    assert_eq!((&*line(&grown, "a")[1], &*line(&grown, "")[1]), ("+1.0M", "+1000K"), "{}", text(&grown));
    let first = text(&grown).lines().nth(1).map(str::to_owned).unwrap_or_default();
    assert!(first.ends_with("/a"), "{first}");
    assert_eq!(text(&output(&mut top(&["-n", "1"]))).lines().count(), 3);
    let told = |options: &[&str]| {
        let said = output(top(&["--json", "--by", "grew", "--since", "4w"]).args(options));
        serde_json::from_slice::<serde_json::Value>(&said).expect("an object")
    };
    let value = told(&[]);
    assert_eq!(value["exact"].as_bool(), Some(true), "{value}");
    assert_eq!(value["directories"][0]["path"].as_str(), image.root().join("a").to_str(), "{value}");
    assert!(value["directories"][0]["grew"].as_i64().is_some_and(|grew| grew >= 1 << 20), "{value}");
    let before = told(&["--cached"]);
    fs::write(image.root().join("a/more"), vec![1; 1 << 20]).expect("a file");
    let (stored, exact) = (told(&["--cached"]), told(&["--sync"]));
    assert_eq!(stored["exact"].as_bool(), Some(false), "{stored}");
    let grown = exact["total"]["bytes"].as_i64().zip(before["total"]["bytes"].as_i64());
    assert!(grown.is_some_and(|(now, before)| now >= before + (1 << 20)), "{exact}");
    fs::remove_file(image.root().join("a/more")).expect("it goes");
    crate::tree::sync(&image.root());
    output(&mut top(&["--sync"]));
    serving.end();
    let found = finish(&mut top(&[]), 2);
    assert!(text(&found.stderr).contains("start `onesweep serve`"), "{}", text(&found.stderr));
    // A server that is started again knows it still.
    let again = Serving::start(&image);
    assert_eq!(line(&output(&mut top(&["--since", "4w"])), "a")[1], "+1.0M");
    again.end();
}

/// Links across directories: once in all, whatever is asked for.
#[test]
fn links_are_counted_once() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    tree_without_links(&image.root());
    let at = |name: &str| image.root().join(name);
    for (from, to) in [("a/f4", "a/b/l"), ("a/f4", "d/l"), ("a/b/f4", "a/b/l2"), ("d/f4", "private/l")] {
        fs::hard_link(at(from), at(to)).expect("a link");
    }
    crate::tree::sync(&image.root());
    let serving = Serving::start(&image);
    for below in ["", "a", "a/b", "d", "private"] {
        for options in [&["-s"][..], &["-sb"], &["-s", "--inodes"]] {
            let expected = text(&output(Command::new("du").args(options).arg(at(below))));
            assert_eq!(text(&output(&mut serving.du(options, &at(below)))), expected, "{options:?} {below:?}");
        }
    }
    // The lines of all directories come to what the topmost says.
    let lines = text(&output(&mut serving.du(&["-S", "-b"], &image.root())));
    let sum: u64 = lines.lines().filter_map(|line| line.split('\t').next()?.parse::<u64>().ok()).sum();
    let whole = text(&output(Command::new("du").arg("-sb").arg(image.root())));
    assert_eq!(Some(sum), whole.split('\t').next().and_then(|figure| figure.parse().ok()), "{lines}");
}

/// The directories that can't be read, as du and we name them. In one that can be listed, and not searched, du names the entries.
fn named(said: &[u8]) -> Vec<String> {
    let path = |line: &str| {
        let rest = line.split_once("/mnt/").map(|(_, rest)| rest.split(['\'', ':']).next().unwrap_or_default());
        let rest = rest.unwrap_or_else(|| panic!("no path in {line}"));
        if line.contains("cannot access") { rest.rsplit_once('/').map_or(rest, |(above, _)| above) } else { rest }
            .to_owned()
    };
    let mut named: Vec<String> = text(said).lines().map(path).collect();
    named.sort();
    named.dedup();
    named
}

/// Another user sees no more than du run by that user does, and nothing of it changes with what is hidden.
#[test]
fn a_user_sees_what_du_would_show() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    tree_without_links(&image.root());
    let private = image.root().join("private");
    // Seen, and hidden: the same inode.
    fs::hard_link(private.join("inside/f3"), image.root().join("d/shared")).expect("a link");
    fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).expect("a mode");
    fs::set_permissions(image.root().join("d/e f"), fs::Permissions::from_mode(0o744)).expect("a mode");
    crate::tree::sync(&image.root());
    let serving = Serving::start(&image);
    let as_user = |command: &Command| {
        let mut user = Command::new("setpriv");
        user.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(command.get_program());
        user.args(command.get_args());
        user
    };
    let mut before = Vec::new();
    for options in [&["-s"][..], &["-sb"], &["-s", "--inodes"], &["-d1"], &["-b"]] {
        let mut plain = Command::new("du");
        let expected = as_user(plain.args(options).arg(image.root())).output().expect("du runs");
        let shown = as_user(&serving.du(options, &image.root())).output().expect("it runs");
        assert_eq!(sorted_lines(&shown.stdout), sorted_lines(&expected.stdout), "{options:?}");
        assert_eq!(shown.status.code(), Some(1), "something is left out: {}", text(&shown.stderr));
        assert_eq!(named(&shown.stderr), named(&expected.stderr), "{options:?}: {}", text(&shown.stderr));
        before.push(shown.stdout);
    }
    let whole_answer = |options: &[&str]| {
        let out = as_user(&serving.du(options, &image.root())).output().expect("it runs");
        (text(&out.stdout), text(&out.stderr), out.status.code())
    };
    let told = [&["-sv"][..], &["-sv", "--within", "0s"], &["-sv", "--cached"]].map(whole_answer);
    fs::write(private.join("inside/grown"), vec![1; 1 << 20]).expect("a file");
    for number in 0..300 {
        fs::create_dir(private.join(format!("inside/{number}"))).expect("a directory");
    }
    let late = whole_answer(&["-sv", "--within", "0s"]);
    assert_eq!(late, told[1], "what is hidden delays nothing");
    assert_eq!([&["-sv"][..], &["-sv", "--within", "0s"], &["-sv", "--cached"]].map(whole_answer), told);
    let mut again = Vec::new();
    for options in [&["-s"][..], &["-sb"], &["-s", "--inodes"], &["-d1"], &["-b"]] {
        again.push(as_user(&serving.du(options, &image.root())).output().expect("it runs").stdout);
    }
    assert_eq!(again, before);
    let whole = text(&output(&mut serving.du(&["-sb"], &image.root())));
    assert_eq!(whole, text(&output(Command::new("du").arg("-sb").arg(image.root()))), "root sees all");
}

/// A server that was killed leaves a store that the next one takes up, whatever has changed meanwhile.
#[test]
fn a_killed_server_is_followed_by_another() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    tree_without_links(&image.root());
    let mut serving = Serving::start(&image);
    serving.running.kill().expect("it is killed");
    serving.running.wait().expect("it is gone");
    fs::rename(image.root().join("a/b"), image.root().join("d/b")).expect("a rename");
    fs::write(image.root().join("d/b/c/f0"), vec![2; 70_000]).expect("a file");
    fs::remove_dir_all(image.root().join("private")).expect("it goes");
    crate::tree::sync(&image.root());
    let serving = Serving::start(&image);
    for below in ["", "a", "d", "d/b"] {
        let path = image.root().join(below);
        let expected = text(&output(Command::new("du").arg("-sb").arg(&path)));
        assert_eq!(text(&output(&mut serving.du(&["-sb"], &path))), expected);
    }
    let out = finish(onesweep(["serve", "--socket"]).arg(&serving.socket).arg(image.root()), 2);
    assert!(text(&out.stderr).contains("another server listens there"), "{}", text(&out.stderr));
    serving.end();
}

/// What removing a directory frees is told before, and is what it does free.
#[test]
fn what_is_freed_is_told() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    tree_without_links(&image.root());
    let at = |name: &str| image.root().join(name);
    // Two names in one directory; one elsewhere; two below it.
    for (from, to) in [("a/f4", "a/other"), ("a/f3", "d/l"), ("a/b/f4", "a/b/c/l")] {
        fs::hard_link(at(from), at(to)).expect("a link");
    }
    crate::tree::sync(&image.root());
    let serving = Serving::start(&image);
    for below in ["a/b/c", "a", "d"] {
        let freed = |mut du: Command| {
            let said = text(&output(du.args(["--freed", "-sB1"]).arg(at(below))));
            said.split('\t').next().and_then(|figure| figure.parse::<i64>().ok()).expect("a figure")
        };
        let mut asked = onesweep(["du", "--socket"]);
        asked.arg(&serving.socket);
        let (asked, walked) = (freed(asked), freed(onesweep(["du", "--socket", "/nowhere"])));
        let before = du(&image.root())[0];
        fs::remove_dir_all(at(below)).expect("it goes");
        crate::tree::sync(&image.root());
        let does_free = before - du(&image.root())[0];
        assert_eq!((asked, walked), (does_free, does_free), "{below}");
    }
    // Who may not see all of it is told nothing.
    fs::set_permissions(at("private/inside"), fs::Permissions::from_mode(0o700)).expect("a mode");
    for socket in [&serving.socket, Path::new("/nowhere")] {
        let mut user = Command::new("setpriv");
        user.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(crate::run::program());
        let shown = finish(user.args(["du", "--freed", "--socket"]).arg(socket).arg(at("private")), 1);
        assert_eq!(text(&shown.stdout), "");
        assert!(text(&shown.stderr).contains("cannot tell what removing it would free"), "{}", text(&shown.stderr));
    }
    serving.end();
}

/// What is read of many inodes at a time is what each directory says itself.
#[test]
fn readings_in_bulk_are_those_of_each_directory() {
    root_test!();
    let image = Image::new(Fs::Ext4, 512 << 20);
    let root = image.root();
    fs::create_dir_all(root.join("a/b/empty")).expect("folders");
    for number in 0..3000 {
        fs::write(root.join(format!("a/file with a longer name {number}")), vec![7; number]).expect("a file");
    }
    for number in 0..200 {
        fs::create_dir(root.join(format!("a/b/{number}"))).expect("a folder");
    }
    fs::hard_link(root.join("a/file with a longer name 9"), root.join("a/b/link")).expect("a link");
    symlink("x".repeat(100), root.join("a/b/0/symlink")).expect("a link");
    let sparse = File::create(root.join("a/b/0/sparse")).expect("a file");
    sparse.write_all_at(b"x", 1 << 30).expect("it is written");
    fs::set_permissions(root.join("a/b/1"), fs::Permissions::from_mode(0o700)).expect("a mode");
    run(Command::new("mkfifo").arg(root.join("a/b/1/fifo")));
    run(Command::new("setfattr").args(["-n", "user.a", "-v", "b"]).arg(root.join("a/b/2")));
    run(Command::new("chown").args(["70000:80000"]).arg(root.join("a/b/3")));
    fs::create_dir(root.join("a/b/3/covered")).expect("a folder");
    // What has changed just now has no stamp.
    (0..3).for_each(|_| until_another_second());
    let volume = Volume::of(&root).expect("a file system");
    let (mut all, mut at) = (vec![volume.root()], 0);
    while let Some(&directory) = all.get(at) {
        all.extend(volume.read(directory).expect("it is read").directories.into_iter().map(|(id, _)| id));
        at += 1;
    }
    assert!(all.len() >= 205, "{}", all.len());
    all.sort_unstable();
    volume.sync().expect("it is written");
    let read = |up_to| volume.read_some_up_to(&all, up_to).into_iter().map(|reading| format!("{reading:?}"));
    let (each, few): (Vec<_>, Vec<_>) = (read(usize::MAX).collect(), read(100).collect());
    assert!(volume.begin_bulk(), "it can be read in bulk");
    read(usize::MAX).zip(each).for_each(|(bulk, each)| assert_eq!(bulk, each));
    read(100).zip(few).for_each(|(bulk, few)| assert_eq!(bulk, few));
    volume.end_bulk();
}
