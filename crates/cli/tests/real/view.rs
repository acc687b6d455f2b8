//! A tree shown once more: the same to every program, also after it has changed, and gone when it is to go.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader, Read, Seek, SeekFrom, Write},
    os::unix::{
        fs::{FileExt, MetadataExt, PermissionsExt, symlink},
        net::UnixListener,
    },
    panic::{self, AssertUnwindSafe},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::{
    fs::{AtFlags, CWD, FallocateFlags, FlockOperation, Mode, OFlags, RenameFlags, SeekFrom as Place, XattrFlags},
    io::Errno,
};

use crate::{
    cache::pages,
    held_back::{self, in_memory},
    image::{Folder, Fs, Image},
    peer_tree::has_passthrough,
    run::{finish, onesweep, output, root_test, run, text},
    run_program::FIRST,
    tree::{self, Rng, Varied},
};

/// A view that is shown until this is dropped.
pub(crate) struct View {
    pub(crate) running: Option<Child>,
    dir: PathBuf,
    /// What is said later comes here.
    said: Option<BufReader<std::process::ChildStderr>>,
}

impl View {
    /// By FUSE.
    pub(crate) fn show(source: &Path, dir: &Path, options: &[&str]) -> Self {
        Self::by(&["--fuse"], source, dir, options)
    }

    /// As root has it shown where nothing is said: by the kernel.
    pub(crate) fn by_kernel(source: &Path, dir: &Path, options: &[&str]) -> Self {
        Self::by(&[], source, dir, options)
    }

    pub(crate) fn by(way: &[&str], source: &Path, dir: &Path, options: &[&str]) -> Self {
        Self::on(THIS_KERNEL, way, source, dir, options)
    }

    /// As on a kernel that lacks what is hidden.
    pub(crate) fn on(hidden: &str, way: &[&str], source: &Path, dir: &Path, options: &[&str]) -> Self {
        let mut command = Command::new("env");
        command.env("ONESWEEP_HIDE", hidden).arg("--default-signal=INT");
        command.arg(crate::run::program()).arg("view").args(way).args(options);
        command.arg(source).arg(dir);
        Self::started(&mut command, dir)
    }

    /// By a command that shows it at `dir`.
    pub(crate) fn started(command: &mut Command, dir: &Path) -> Self {
        fs::create_dir_all(dir).expect("a place");
        let mut running = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let mut said = BufReader::new(running.stderr.take().expect("a pipe"));
        let mut line = String::new();
        said.read_line(&mut line).expect("it says something");
        assert!(line.contains("is shown at"), "{line}");
        Self { running: Some(running), dir: dir.to_owned(), said: Some(said) }
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let running = self.running.as_ref().expect("it runs");
        rustix::process::kill_process(rustix::process::Pid::from_child(running), signal).expect("it is ours");
    }

    /// Waits for its end, and gives what it said.
    pub(crate) fn end(mut self, code: Option<i32>) -> String {
        let mut said = String::new();
        self.said.take().expect("a pipe").read_to_string(&mut said).expect("what it says");
        let status = self.running.take().expect("it runs").wait().expect("it ends");
        assert_eq!(status.code(), code, "{said}");
        said
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if let Some(mut running) = self.running.take() {
            let _ = running.kill();
            let _ = running.wait();
        }
        // What it left, if anything.
        let _ = Command::new("umount").arg("--lazy").arg(&self.dir).stderr(Stdio::null()).status();
    }
}

/// Nothing of the kernel is hidden.
pub(crate) const THIS_KERNEL: &str = "";
/// Linux 6.1 to 6.4, as far as a view by the kernel knows the difference.
pub(crate) const OLDER_KERNEL: &str = "cachestat,mountids";

/// How root may have a tree shown: by FUSE, and by the kernel.
pub(crate) const WAYS: [&[&str]; 2] = [&["--fuse"], &[]];

/// Sources may be unmounted when nothing of a view holds them any more.
pub(crate) fn place(image: &Image) -> (PathBuf, PathBuf) {
    (image.root().join("tree"), image.beside("shown"))
}

pub(crate) fn inodes(root: &Path) -> BTreeMap<PathBuf, (u64, u64, u64, u64, i64)> {
    let listed = output(Command::new("find").arg(root).args(["-printf", "%P\\0"]));
    let names = listed.split(|byte| *byte == 0).map(crate::run::path_of);
    names
        .map(|name| {
            let facts = fs::symlink_metadata(root.join(&name)).expect("an entry");
            (name, (facts.ino(), facts.nlink(), facts.size(), facts.blocks(), facts.ctime_nsec()))
        })
        .collect()
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..12_000 {
        if is_so() {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("{what}");
}

#[test]
fn a_view_is_the_same_tree() {
    root_test!();
    for fs in Fs::MAIN {
        let image = Image::new(fs, 300 << 20);
        let (root, dir) = place(&image);
        tree::varied(&root, fs, &Varied { files: 160, sparse: 40 << 20 }, 8);
        fs::write(root.join("large"), Rng::new(3).bytes((3 << 20) + 123)).expect("a file");
        let accessed = || fs::metadata(root.join("large")).expect("a file").atime_nsec();
        let before = accessed();
        for option in [None, Some("--passthrough")] {
            let options: Vec<&str> = ["--verbose"].into_iter().chain(option).collect();
            let view = View::show(&root, &dir, &options);
            same_tree(fs, &dir, &root);
            assert_eq!(accessed(), before, "reading through the view leaves the access time");
            view.signal(rustix::process::Signal::INT);
            let said = view.end(Some(0));
            if matches!(fs, Fs::Ext4 | Fs::Xfs) {
                assert!(said.contains("changes are seen at once"), "{}: {said}", fs.name());
            }
            let by_kernel = said.contains("files of 1 MiB and more are read by the kernel");
            assert_eq!(by_kernel, option.is_some() && has_passthrough(), "{}: {said}", fs.name());
            assert!(by_kernel || said.contains("files are read without being opened"), "{said}");
            assert!(fs::read_dir(&dir).expect("a folder").next().is_none());
        }
    }
}

fn same_tree(fs: Fs, dir: &Path, root: &Path) {
    assert!(inodes(dir) == inodes(root), "{}: inodes differ", fs.name());
    let (shown, there) = (tree::manifest(dir), tree::manifest(root));
    for (name, entry) in &there {
        assert_eq!(shown.get(name), Some(entry), "{}: {}", fs.name(), name.display());
    }
    assert_eq!(shown.len(), there.len());
    let tar = |from: &Path| {
        output(
            Command::new("tar").args(["--format=gnu", "--sparse", "--sort=name", "-cf", "-", "-C"]).arg(from).arg("."),
        )
    };
    assert!(tar(dir) == tar(root), "{}: archives differ", fs.name());
}

#[test]
fn nothing_is_written_through_a_view_that_is_only_to_be_read() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    let (root, dir) = place(&image);
    fs::create_dir_all(root.join("a")).expect("a folder");
    fs::write(root.join("a/file"), "bytes").expect("a file");
    let _view = View::show(&root, &dir, &[]);
    let refused = |done: std::io::Result<()>| {
        assert_eq!(done.expect_err("it is refused").raw_os_error(), Some(rustix::io::Errno::ROFS.raw_os_error()));
    };
    refused(fs::write(dir.join("a/file"), "others"));
    refused(fs::write(dir.join("a/new"), "others"));
    refused(fs::remove_file(dir.join("a/file")));
    refused(fs::set_permissions(dir.join("a"), fs::Permissions::from_mode(0o700)));
    assert_eq!(fs::read(root.join("a/file")).expect("a file"), b"bytes");
}

/// As root by fanotify, and by inotify as another user.
#[test]
fn what_changes_in_the_source_shows() {
    root_test!();
    let image = Image::new(Fs::Ext4, 128 << 20);
    let (root, dir) = place(&image);
    fs::create_dir_all(root.join("a/b")).expect("a folder");
    for number in 0..50 {
        fs::write(root.join(format!("a/b/file{number}")), "old").expect("a file");
    }
    fs::write(root.join("a/large"), vec![1; 2 << 20]).expect("a file");
    fs::hard_link(root.join("a/b/file0"), root.join("second name")).expect("a link");
    let view = View::show(&root, &dir, &[]);
    // What is listed may be gone until the view has heard of it: then the walk itself fails.
    let compare = || tree::manifest(&dir) == tree::manifest(&root) && inodes(&dir) == inodes(&root);
    let same = || panic::catch_unwind(AssertUnwindSafe(&compare)).unwrap_or(false);
    // Once to have it in the kernel's memory.
    assert!(same() && same());
    let mut rng = Rng::new(11);
    for turn in 0..40_u64 {
        let file = root.join(format!("a/b/file{}", rng.below(50)));
        match turn % 10 {
            0 => fs::write(&file, format!("of turn {turn}, and longer")).expect("a file"),
            1 => drop(fs::remove_file(&file)),
            2 => fs::rename(root.join("a/b"), root.join("a/moved"))
                .and_then(|()| fs::rename(root.join("a/moved"), root.join("a/b")))
                .expect("a name"),
            3 => fs::write(root.join(format!("a/b/new{turn}")), "new").expect("a file"),
            4 => drop(fs::set_permissions(&file, fs::Permissions::from_mode(0o600 + turn as u32 % 8))),
            5 => fs::write(root.join("second name"), format!("by the other name {turn}")).expect("a file"),
            6 => {
                let large = File::options().write(true).open(root.join("a/large")).expect("a file");
                large.write_all_at(&[turn as u8; 100], 1 << 20).expect("bytes");
            }
            7 => {
                // The same name, and as many bytes.
                fs::write(root.join("beside"), "old").expect("a file");
                fs::rename(root.join("beside"), &file).expect("a name");
            }
            8 => fs::create_dir_all(root.join(format!("a/dir{turn}/deeper"))).expect("a folder"),
            _ => drop(rustix::fs::lsetxattr(&file, "user.turn", turn.to_string().as_bytes(), XattrFlags::empty())),
        }
        until(&format!("turn {turn} doesn't show"), same);
    }
    // Everything goes and comes.
    fs::remove_dir_all(root.join("a")).expect("it goes");
    until("what is gone is still there", same);
    tree::varied(&root.join("a"), Fs::Ext4, &Varied { files: 40, sparse: 1 << 20 }, 5);
    until("what is new isn't there", same);
    view.signal(rustix::process::Signal::TERM);
    view.end(Some(0));
}

/// What the program reads comes by sweeps, of which each fits.
#[test]
fn walks_over_a_view_are_swept() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 400 << 20);
    let (root, dir) = place(&image);
    let mut rng = Rng::new(5);
    let mut files = Vec::new();
    for number in 0..300 {
        let path = root.join(format!("d{:02}/f{number:03}", rng.below(12)));
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, rng.bytes(4096 + number * 100)).expect("a file");
        files.push(path);
    }
    tree::sync(&root);
    let bytes: u64 = files.iter().map(|file| fs::metadata(file).expect("a file").len().next_multiple_of(4096)).sum();
    let archive = |from: &Path| -> Vec<String> {
        vec![
            "tar".into(),
            "--format=gnu".into(),
            "--sort=name".into(),
            "-cf".into(),
            "-".into(),
            "-C".into(),
            from.display().to_string(),
            ".".into(),
        ]
    };
    let alone = output(Command::new("tar").args(&archive(&root)[1..]));
    let next = tree::files(&root.join("d01"));
    let by_fuse = ["--order", "name"];
    for (way, limit, sweeps) in [
        (&by_fuse[..], None, 1..=1),
        (&by_fuse[..], Some(bytes / 5), 5..=9),
        (&[], None, 1..=1),
        (&[], Some(bytes / 5), 3..=9),
    ] {
        fs::create_dir_all(&dir).expect("a place");
        image.cold();
        let mut command = onesweep(["view", "--verbose"]);
        command.args(way);
        if let Some(limit) = limit {
            command.args(["--limit", &limit.to_string()]);
        }
        // It has read of the first directory alone until the next one comes.
        let is_ahead = || in_memory(&next) > 0;
        let out = held_back::until(is_ahead, command.args([&root, &dir]).arg("--").args(archive(&dir)));
        assert!(out.stdout == alone, "the archive is another one");
        let (brought, swept) = brought_in(&out.stderr);
        assert!(brought >= files.len() * 3 / 4, "{way:?}: {}", text(&out.stderr));
        assert!(sweeps.contains(&swept), "{way:?}: {}", text(&out.stderr));
        let cached: u64 = pages(&files).values().sum::<u64>() * 4096;
        match limit {
            Some(limit) => assert!(cached <= limit + limit / 4, "{cached} bytes of {limit} are in memory"),
            None => assert!(cached >= bytes / 2),
        }
    }
    // A file alone is no walk.
    let one = dir.join(files[7].strip_prefix(&root).expect("below"));
    for way in WAYS {
        image.cold();
        let mut command = onesweep(["view", "--verbose"]);
        let out = finish(command.args(way).args([&root, &dir]).args(["--", "cat"]).arg(&one), 0);
        assert_eq!(brought_in(&out.stderr), (0, 0), "{}", text(&out.stderr));
    }
}

/// Walks over the tree by C's own library alone, and writes what it reads.
const READER: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <ftw.h>
#include <unistd.h>
static char buffer[1 << 16];
static int look(const char *path, const struct stat *facts, int kind, struct FTW *place)
{
    (void)facts, (void)place;
    int file = kind == FTW_F ? open(path, O_RDONLY) : -1;
    for (long got; file >= 0 && (got = read(file, buffer, sizeof buffer)) > 0;)
        if (write(1, buffer, got) != got)
            return 1;
    return file >= 0 ? close(file) : 0;
}
int main(int count, char **words)
{
    return count != 2 || nftw(words[1], look, 20, FTW_PHYS);
}
"#;

/// Small files, cold.
pub(crate) fn cold_tree(image: &mut Image, root: &Path) {
    let mut rng = Rng::new(6);
    for number in 0..600 {
        let path = root.join(format!("d{}/f{number}", rng.below(5)));
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, rng.bytes(3000 + number * 50)).expect("a file");
    }
    tree::sync(root);
    image.cold();
}

/// They load no library, so `run` can't help them.
#[test]
fn static_programs_are_swept_ahead_of() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 100 << 20);
    let (root, dir) = place(&image);
    fs::create_dir_all(&dir).expect("a place");
    let (source, reader) = (image.beside("reader.c"), image.beside("reader"));
    fs::write(&source, READER).expect("a file");
    output(Command::new("cc").args(["-static", "-Wall", "-o"]).arg(&reader).arg(&source));
    cold_tree(&mut image, &root);
    let files = tree::files(&root);
    let mut by_run = onesweep(["run", "--verbose", "--tree"]);
    let alone = finish(by_run.arg(&root).arg("--").args([&reader, &root]), 0);
    assert_eq!(brought_in(&alone.stderr), (0, 0));
    for way in WAYS {
        image.cold();
        let mut command = onesweep(["view", "--verbose"]);
        command.args(way).args([&root, &dir]).arg("--").args([&reader, &dir]);
        let out = held_back::until(|| in_memory(&files) > files.len() / 2, &mut command);
        // FUSE lists directories in another order.
        assert_eq!(out.stdout.len(), alone.stdout.len(), "{way:?}");
        let (brought, sweeps) = brought_in(&out.stderr);
        assert!(brought >= files.len() * 3 / 4 && sweeps == 1, "{way:?}: {}", text(&out.stderr));
    }
}

/// Of files that are to be brought in, how many are at least, but for those that are read before it is known how the program goes on. Where the kernel shows the tree, nobody is held up before it is told that something isn't in
/// memory, and on the machine's own disk many files are read until then.
pub(crate) fn at_least(way: &[&str], by_fuse: usize) -> usize {
    if way.is_empty() { by_fuse / 3 } else { by_fuse - FIRST }
}

/// Files and sweeps, as `--verbose` tells them.
pub(crate) fn brought_in(said: &[u8]) -> (usize, usize) {
    let said = text(said);
    let line = said.lines().find(|line| line.contains("brought in by")).unwrap_or_else(|| panic!("{said}"));
    let number = |before: &str| -> usize {
        let at = line.find(before).unwrap_or_else(|| panic!("{line}")) + before.len();
        line[at..].split_whitespace().next().expect("a number").parse().unwrap_or_else(|_| panic!("{line}"))
    };
    (number("onesweep: "), number("brought in by "))
}

/// A place that can't be read is an error of the file that has it, and of no other one.
#[test]
fn a_bad_place_is_the_error_of_its_file() {
    root_test!();
    let mut image = Image::new(Fs::Btrfs, 200 << 20);
    let (root, dir) = place(&image);
    fs::create_dir_all(&root).expect("a folder");
    let mut rng = Rng::new(9);
    let contents: Vec<Vec<u8>> = (0..30).map(|_| rng.bytes(20_000)).collect();
    let name = |number: usize| format!("file{number:02}");
    for (number, content) in contents.iter().enumerate() {
        fs::write(root.join(name(number)), content).expect("a file");
    }
    tree::sync(&root);
    image.unmount();
    // Its sums tell that the bytes are others.
    let all = fs::read(image.file()).expect("the image");
    let sought = &contents[13][4096..4096 + 64];
    let places: Vec<usize> =
        (0..all.len() / 64).map(|at| at * 64).filter(|at| all[*at..].starts_with(sought)).collect();
    drop(all);
    assert!(!places.is_empty(), "the bytes of the file");
    // Small file systems keep data twice.
    let disk = File::options().write(true).open(image.file()).expect("the image");
    for place in places {
        disk.write_all_at(&[0; 64], place as u64).expect("bytes");
    }
    image.mount();
    let _view = View::show(&root, &dir, &[]);
    // As a walk, and one by one.
    let listed: Vec<_> = fs::read_dir(&dir).expect("a folder").flatten().collect();
    assert_eq!(listed.len(), contents.len());
    for (number, content) in contents.iter().enumerate() {
        let read = fs::read(dir.join(name(number)));
        match number {
            13 => assert_eq!(
                read.map(|_| ()).expect_err("it is bad").raw_os_error(),
                Some(rustix::io::Errno::IO.raw_os_error())
            ),
            _ => assert!(read.expect("a file") == *content, "{}", name(number)),
        }
    }
}

#[test]
fn what_is_mounted_below_is_shown_empty() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    let (root, dir) = place(&image);
    fs::create_dir_all(root.join("below")).expect("a folder");
    fs::write(root.join("file"), "bytes").expect("a file");
    run(Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(root.join("below")));
    let made = fs::write(root.join("below/other"), "others");
    let view = View::show(&root, &dir, &[]);
    let listed = fs::read_dir(dir.join("below")).map(Iterator::count);
    let file = fs::read(dir.join("file"));
    drop(view);
    run(Command::new("umount").arg(root.join("below")));
    made.expect("a file");
    assert_eq!((listed.expect("a folder"), file.expect("a file")), (0, b"bytes".to_vec()));
}

#[test]
fn a_view_that_may_be_written_writes_to_the_source() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let image = Image::new(fs, 400 << 20);
        let (root, dir) = place(&image);
        fs::create_dir_all(&root).expect("a folder");
        let view = View::show(&root, &dir, &["--read-write"]);
        // All that a tree can hold, made through the view.
        tree::varied(&dir.join("made"), Fs::Ext4, &Varied { files: 60, sparse: 2 << 20 }, 4);
        assert!(inodes(&dir) == inodes(&root), "{}", fs.name());
        let (shown, there) = (tree::manifest(&dir), tree::manifest(&root));
        for (name, entry) in &there {
            assert_eq!(shown.get(name), Some(entry), "{}: {}", fs.name(), name.display());
        }
        operations(&dir, &root);
        view.signal(rustix::process::Signal::INT);
        view.end(Some(0));
    }
}

/// Locks of ranges (fcntl), which belong to processes. Another process tries; by the source's own name it sees none.
const RECORD_LOCKS: &str = r#"
import fcntl, os, sys
shown, there = sys.argv[1:]
def gets(path, how, length, start):
    child = os.fork()
    if child == 0:
        with open(path, "r+b") as file:
            try:
                fcntl.lockf(file, how | fcntl.LOCK_NB, length, start)
            except BlockingIOError:
                os._exit(1)
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
EX, SH = fcntl.LOCK_EX, fcntl.LOCK_SH
with open(shown, "r+b") as file:
    fcntl.lockf(file, EX, 10, 100)
    assert not gets(shown, EX, 1, 105) and not gets(shown, SH, 1, 105)
    assert gets(shown, EX, 10, 110) and gets(shown, EX, 100, 0)
    assert gets(there, EX, 1, 105), "the source knows of it"
    fcntl.lockf(file, SH, 10, 100)
    assert gets(shown, SH, 1, 105) and not gets(shown, EX, 1, 105)
    fcntl.lockf(file, fcntl.LOCK_UN, 5, 100)
    assert gets(shown, EX, 5, 100) and not gets(shown, EX, 6, 100)
    # Who waits gets it when it is free.
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with open(shown, "r+b") as other:
            os.write(write, b"x")
            fcntl.lockf(other, EX, 1, 107)
            os._exit(0)
    os.read(read, 1)
    assert os.waitpid(child, os.WNOHANG) == (0, 0), "it doesn't wait"
    fcntl.lockf(file, fcntl.LOCK_UN)
    assert os.waitpid(child, 0)[1] == 0
assert gets(shown, EX, 0, 0), "closing frees all"
"#;

fn operations(dir: &Path, root: &Path) {
    let (file, there) = (dir.join("file"), root.join("file"));
    // A file that has lost its last name.
    let mut open = File::options().create_new(true).read(true).write(true).open(&file).expect("a file");
    open.write_all(b"0123456789").expect("bytes");
    fs::hard_link(&file, dir.join("link")).expect("a link");
    assert_eq!(fs::metadata(&there).expect("a file").nlink(), 2);
    fs::remove_file(&file).expect("it goes");
    fs::remove_file(dir.join("link")).expect("it goes");
    assert!(!there.exists());
    open.set_len(5).expect("a size");
    open.set_permissions(fs::Permissions::from_mode(0o640)).expect("a mode");
    let facts = open.metadata().expect("facts");
    assert_eq!((facts.len(), facts.mode() & 0o777, facts.nlink()), (5, 0o640, 0));
    open.seek(SeekFrom::Start(0)).expect("a place");
    let mut read = String::new();
    open.read_to_string(&mut read).expect("bytes");
    assert_eq!(read, "01234");
    drop(open);
    // Places: reserved, given back, copied, found.
    let open = File::create(&file).expect("a file");
    rustix::fs::fallocate(&open, FallocateFlags::empty(), 0, 1 << 20).expect("room");
    open.write_all_at(&[7; 1 << 20], 0).expect("bytes");
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&open, hole, 65536, 131_072).expect("a hole");
    assert_eq!(rustix::fs::seek(&open, Place::Hole(0)).expect("a hole"), 65536);
    assert_eq!(rustix::fs::seek(&open, Place::Data(65536)).expect("data"), 65536 + 131_072);
    open.sync_all().expect("it is written");
    let target =
        File::options().create(true).truncate(true).read(true).write(true).open(dir.join("copy")).expect("a file");
    let source = File::open(&file).expect("a file");
    let copied = rustix::fs::copy_file_range(&source, Some(&mut 0), &target, Some(&mut 100), 4096).expect("a copy");
    assert!(copied > 0 && fs::metadata(root.join("copy")).expect("a file").len() == 100 + copied as u64);
    assert!(fs::read(&file).expect("a file") == fs::read(&there).expect("a file"));
    // Large files, which the kernel reads and writes by itself when they are opened again.
    let large = File::options().read(true).write(true).open(&file).expect("a file");
    large.write_all_at(b"by the kernel", 500_000).expect("bytes");
    let mut bytes = [0; 13];
    source.read_exact_at(&mut bytes, 500_000).expect("bytes");
    assert_eq!(&bytes, b"by the kernel");
    assert!(fs::read(&there).expect("a file")[500_000..].starts_with(b"by the kernel"));
    drop((open, target, source, large));
    // Names.
    let exchange =
        |one: &str, other: &str, flags| rustix::fs::renameat_with(CWD, dir.join(one), CWD, dir.join(other), flags);
    exchange("file", "copy", RenameFlags::EXCHANGE).expect("they change");
    assert_eq!(fs::metadata(root.join("copy")).expect("a file").len(), 1 << 20);
    exchange("file", "copy", RenameFlags::NOREPLACE).expect_err("it is there");
    fs::create_dir_all(dir.join("one/two")).expect("a folder");
    fs::write(dir.join("one/two/three"), "deep").expect("a file");
    let kept = File::open(dir.join("one/two/three")).expect("a file");
    fs::rename(dir.join("one"), dir.join("other")).expect("a name");
    assert_eq!(fs::read(dir.join("other/two/three")).expect("a file"), b"deep");
    assert_eq!(
        kept.metadata().expect("facts").ino(),
        fs::metadata(root.join("other/two/three")).expect("a file").ino()
    );
    fs::rename(dir.join("copy"), dir.join("file")).expect("it replaces");
    symlink("nowhere", dir.join("symbolic")).expect("a link");
    assert_eq!(fs::read_link(root.join("symbolic")).expect("a link"), Path::new("nowhere"));
    // Special ones.
    drop(UnixListener::bind(dir.join("socket")).expect("a socket"));
    run(Command::new("mknod").arg(dir.join("null")).args(["c", "1", "3"]));
    assert_eq!(fs::metadata(root.join("null")).expect("a device").rdev(), rustix::fs::makedev(1, 3));
    // Locks of programs that use the view.
    let (one, other) = (File::open(&file).expect("a file"), File::open(&file).expect("a file"));
    rustix::fs::flock(&one, FlockOperation::LockExclusive).expect("a lock");
    rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive).expect_err("it is locked");
    // Closing it would not do while another test forks, whose child has it open until it runs its program.
    rustix::fs::flock(&one, FlockOperation::Unlock).expect("it is unlocked");
    rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive).expect("a lock");
    run(Command::new("python3").args(["-c", RECORD_LOCKS]).args([&file, &there]));
    // What somebody else makes is his, and as the default ACL has it.
    fs::create_dir(dir.join("theirs")).expect("a folder");
    run(Command::new("setfacl").args(["-m", "u:65534:rwx,d:u:65534:rwx,d:g::r-x,d:o::---"]).arg(dir.join("theirs")));
    let script = "cd \"$1\" && umask 022 && echo x > theirs/file && mkdir theirs/dir && ! echo x > denied 2> /dev/null";
    let mut nobody = Command::new("setpriv");
    nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script, "sh"]).arg(dir);
    run(&mut nobody);
    let facts = fs::metadata(root.join("theirs/file")).expect("a file");
    assert_eq!((facts.uid(), facts.gid()), (65534, 65534));
    let lists = |at: &Path| {
        output(Command::new("getfacl").args(["--omit-header", ".", "dir", "file"]).current_dir(at.join("theirs")))
    };
    assert_eq!(text(&lists(dir)), text(&lists(root)));
    // Times.
    let times = rustix::fs::Timestamps {
        last_access: rustix::fs::Timespec { tv_sec: -5, tv_nsec: 6 },
        last_modification: rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
    };
    let modified = fs::metadata(&there).expect("a file").mtime_nsec();
    rustix::fs::utimensat(CWD, &file, &times, AtFlags::empty()).expect("times");
    let facts = fs::metadata(&there).expect("a file");
    assert_eq!((facts.atime(), facts.atime_nsec(), facts.mtime_nsec()), (-5, 6, modified));
}

/// Programs are told at once, and don't get something else.
#[test]
fn what_a_view_lacks_is_refused() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    let (root, dir) = place(&image);
    fs::create_dir_all(&root).expect("a folder");
    fs::write(root.join("file"), "bytes").expect("a file");
    crate::run::copy_program(Path::new("/usr/bin/id"), &root.join("id"));
    fs::set_permissions(root.join("id"), fs::Permissions::from_mode(0o4755)).expect("a mode");
    run(Command::new("mknod").arg(root.join("null")).args(["c", "1", "3"]));
    let view = View::show(&root, &dir, &["--read-write"]);
    let unnamed = rustix::fs::open(&dir, OFlags::TMPFILE | OFlags::WRONLY, Mode::RUSR | Mode::WUSR);
    assert_eq!(unnamed.map(drop), Err(Errno::OPNOTSUPP));
    let file = File::open(dir.join("file")).expect("a file");
    assert_eq!(rustix::fs::ioctl_getflags(&file).map(drop), Err(Errno::NOTTY));
    assert!(file.metadata().expect("its facts").created().is_err());
    assert!(File::open(root.join("file")).expect("a file").metadata().expect("its facts").created().is_ok());
    let device = File::open(dir.join("null")).expect_err("a device");
    assert_eq!(device.raw_os_error(), Some(Errno::ACCESS.raw_os_error()));
    let mut as_nobody = Command::new("setpriv");
    as_nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    assert_eq!(text(&output(as_nobody.arg(dir.join("id")).arg("-u"))), "65534\n");
    drop(file);
    drop(view);
}

#[test]
fn places_that_cannot_be_are_refused() {
    let folder = Folder::new();
    fs::create_dir_all(folder.join("tree/below")).expect("folders");
    fs::create_dir_all(folder.join("place/full")).expect("folders");
    let said = |source: &str, dir: &str| {
        text(&finish(onesweep(["view"]).args([folder.join(source), folder.join(dir)]), 2).stderr)
    };
    for (source, dir, why) in [
        ("tree", "tree/below", "it lies in the tree; choose a directory outside of it"),
        ("tree/below", "tree", "the tree lies in it; choose a directory beside the tree"),
        ("tree", "place", "it is not empty; choose an empty directory"),
        ("tree", "none", "No such file or directory"),
        ("none", "place/full", "No such file or directory"),
    ] {
        let said = said(source, dir);
        assert!(said.contains(why), "{said}");
    }
}
