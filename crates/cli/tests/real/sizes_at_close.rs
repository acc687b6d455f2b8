//! Sizes that follow at close: no write is told, and every answer says how old it may be.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::{fd::AsFd, unix::fs::FileExt},
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use onesweep_summary::{
    reading::Directories,
    service::{
        client::Client,
        protocol::{Figures, Head, Question},
    },
    store::Store,
    summaries::{Freshness, Summaries, Tended},
    tracker::{Fanotify, SizesFollow},
    volume::Volume,
};

use crate::{
    image::{Fs, Image},
    run::{finish, root_test, run, text},
    serving::Serving,
    summaries::random_operations,
    tracked::{Tracked, agrees_when_synced, as_du, ask, du},
    tree::sync,
};

const SYSTEMS: [Fs; 3] = [Fs::Ext4, Fs::Xfs, Fs::Btrfs];

pub(crate) fn tracked(image: &Image) -> Tracked {
    let volume = Arc::new(Volume::of(&image.root()).expect("a file system").with_sizes(SizesFollow::Close));
    let tracker = Fanotify::start(volume.clone()).expect("it is watched");
    let store = Store::open(&image.beside("store")).expect("a store");
    let root = volume.root();
    Summaries::open(store, (volume, tracker), root, b"test").expect("summaries")
}

/// A directory with some, harvested.
fn harvested(fs: Fs) -> (Image, Tracked) {
    let image = Image::new(fs, 512 << 20);
    for name in ["a", "b"] {
        fs::create_dir(image.root().join(name)).expect("a directory");
        fs::write(image.root().join(name).join("f"), vec![1; 10_000]).expect("a file");
    }
    sync(&image.root());
    let mut tracked = tracked(&image);
    agrees_when_synced(&mut tracked, &image.root(), "the first harvest");
    (image, tracked)
}

fn open(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).expect("a file")
}

fn append(file: &File, bytes: usize) {
    let end = file.metadata().expect("its size").len();
    file.write_all_at(&vec![7; bytes], end).expect("a write");
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as i64
}

/// Looks at files that are open for writing.
fn look(tracked: &mut Tracked, at: i64) {
    let files = tracked.directories().open_for_writing().expect("they are told");
    tracked.take_open_files(at, &files).expect("it is taken in");
}

/// Bytes and inodes are those of GNU du, and the answer claims no more than it knows.
fn equal(tracked: &mut Tracked, directory: &Path, when: &str) -> Option<i64> {
    let answer = ask(tracked, directory, Freshness::Exact);
    assert_eq!(as_du(&answer)[1..], du(directory)[1..], "{} {when}", directory.display());
    assert!(!answer.is_exact, "{when}");
    assert!(answer.checked_at.is_some(), "{when}");
    answer.checked_at
}

/// Another process that has a file open. One of this process is also open in what other tests start, until that runs.
struct Other(Child);

impl Other {
    fn opens(path: &Path) -> Other {
        let mut xfs_io = Command::new("xfs_io");
        Other(xfs_io.arg(path).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("xfs_io"))
    }

    fn told(&mut self, commands: &str) {
        self.0.stdin.as_mut().expect("it was piped").write_all(commands.as_bytes()).expect("it reads");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The same of one that ends at once.
fn other_writes(script: &str, path: &Path) {
    run(Command::new("sh").args(["-c", script, "sh"]).arg(path));
}

/// What is closed counts at once, though the kernel tells of no write.
#[test]
fn what_is_closed_counts_at_once() {
    root_test!();
    for fs in SYSTEMS {
        let (image, mut tracked) = harvested(fs);
        let at = |name: &str| image.root().join(name);
        for round in 0..3 {
            let size = 12_345 + round;
            let mut other = Other::opens(&at("a/f"));
            let told = tracked.tracker().told().0;
            other.told(&format!("pwrite 0 50000\ntruncate {size}\n"));
            while fs::metadata(at("a/f")).expect("its facts").len() != size {
                thread::sleep(Duration::from_millis(5));
            }
            tracked.drain().expect("nothing is wrong");
            assert_eq!(tracked.tracker().told().0, told, "{}: nothing is told of a write", fs.name());
            drop(other);
            equal(&mut tracked, &at("a"), &format!("after close {round}"));
            fs::hard_link(at("a/f"), at(&format!("b/l{round}"))).expect("a link");
            other_writes("head -c 100 /dev/zero >> \"$1\"", &at(&format!("b/l{round}")));
            equal(&mut tracked, &image.root(), &format!("after a close by another name, {round}"));
            fs::rename(at("a"), at("c")).and_then(|()| fs::rename(at("c"), at("a"))).expect("a rename");
            other_writes(&format!("head -c {} /dev/zero > \"$1\"", 777 * (round + 1)), &at("b/new"));
            equal(&mut tracked, &at("b"), &format!("after a new file, {round}"));
        }
        agrees_when_synced(&mut tracked, &image.root(), "all");
    }
}

/// A file that stays open is right after a look, and what has not changed since isn't read for it.
#[test]
fn what_stays_open_is_right_after_a_look() {
    root_test!();
    for fs in SYSTEMS {
        let (image, mut tracked) = harvested(fs);
        let a = image.root().join("a");
        let file = open(&a.join("f"));
        for round in 0..3 {
            append(&file, 50_000);
            look(&mut tracked, 1000 + round);
            assert_eq!(equal(&mut tracked, &a, &format!("after look {round}")), Some(1000 + round), "{}", fs.name());
            append(&file, 1);
            let answer = ask(&mut tracked, &a, Freshness::Exact);
            assert_eq!((answer.is_exact, answer.checked_at), (false, Some(1000 + round)), "no look since");
        }
        // Without a name in `a` it is another one's.
        fs::hard_link(a.join("f"), image.root().join("b/l")).expect("a link");
        fs::remove_file(a.join("f")).expect("it goes");
        append(&file, 3000);
        look(&mut tracked, 2000);
        equal(&mut tracked, &image.root(), "after its name was lost");
        // Until it can be told that it wasn't written since, it counts as changed.
        let is_at_rest = |tracked: &Tracked| {
            let files = tracked.directories().open_for_writing().expect("they are told");
            assert_eq!(files.len(), 1, "{files:?}");
            files[0].stamp != 0
        };
        while !is_at_rest(&tracked) {
            thread::sleep(Duration::from_millis(50));
        }
        look(&mut tracked, 2001);
        equal(&mut tracked, &image.root(), "at rest");
        if fs == Fs::Xfs {
            // Elsewhere blocks settle so soon that it may be read once more for that.
            let readings = tracked.readings();
            look(&mut tracked, 2002);
            assert_eq!(equal(&mut tracked, &image.root(), "still at rest"), Some(2002));
            assert_eq!(tracked.readings(), readings, "nothing is read for nothing");
        }
    }
}

/// The same of one that is written through a mapping.
#[test]
fn what_is_mapped_is_right_after_a_look() {
    root_test!();
    for fs in SYSTEMS {
        let (image, mut tracked) = harvested(fs);
        let path = image.root().join("a/mapped");
        File::create(&path).and_then(|file| file.set_len(400_000)).expect("a hole");
        let mut mapping = Other::opens(&path);
        mapping.told("mmap -rw 0 400000\nclose\n");
        agrees_when_synced(&mut tracked, &image.root(), "the hole");
        let before = du(&image.root());
        mapping.told("mwrite 0 400000\n");
        while {
            sync(&image.root());
            du(&image.root())[0] < before[0] + 300_000
        } {
            thread::sleep(Duration::from_millis(20));
        }
        look(&mut tracked, 1000);
        let answer = ask(&mut tracked, &image.root(), Freshness::Exact);
        assert_eq!((as_du(&answer), answer.checked_at), (du(&image.root()), Some(1000)), "{}", fs.name());
    }
}

/// Who cuts a file by its path closes nothing: that is found when the file system is asked, and so are times that are set alone.
#[test]
fn what_is_cut_by_its_path_is_found_after_the_timeout() {
    root_test!();
    for fs in SYSTEMS {
        let (image, mut tracked) = harvested(fs);
        let cut = |name: &str, bytes: u32| {
            let script = "truncate $ARGV[0], $ARGV[1] or die $!";
            run(Command::new("perl").args(["-e", script]).arg(image.root().join(name)).arg(bytes.to_string()));
        };
        cut("a/f", 7000);
        let answer = ask(&mut tracked, &image.root(), Freshness::Exact);
        assert!(!answer.is_exact && answer.checked_at.is_some());
        while matches!(tracked.tend(0, 100, &|| false).expect("no error"), Tended::Some(_)) {}
        equal(&mut tracked, &image.root(), "after the timeout");
        cut("b/f", 8000);
        agrees_when_synced(&mut tracked, &image.root(), "a cut, when asked for all that is written");
        let newest = UNIX_EPOCH + Duration::from_secs(2_000_000_000);
        File::open(image.root().join("b/f")).and_then(|file| file.set_modified(newest)).expect("a time");
        let answer = ask(&mut tracked, &image.root(), Freshness::Synced);
        assert_eq!(answer.totals.extremes.newest.map(|time| time.secs), Some(2_000_000_000), "{}", fs.name());
    }
}

#[test]
fn ext4_under_random_operations() {
    random_operations(Fs::Ext4, &[tracked]);
}

#[test]
fn xfs_under_random_operations() {
    random_operations(Fs::Xfs, &[tracked]);
}

#[test]
fn btrfs_under_random_operations() {
    random_operations(Fs::Btrfs, &[tracked]);
}

/// The head of an answer, and what all comes to.
fn figures(serving: &Serving, path: &Path, freshness: Freshness) -> (Head, Figures) {
    let mut client = Client::connect(&serving.socket).expect("a connection");
    let directory = File::open(path).expect("a directory");
    let (question, mut figures) = (Question { freshness, ..Question::plain() }, Figures::default());
    let answer = client.ask(directory.as_fd(), &question, |row| figures = row.total);
    (answer.expect("a connection").expect("an answer"), figures)
}

/// The same, and the bytes alone.
fn asked(serving: &Serving, path: &Path, freshness: Freshness) -> (Head, i64) {
    let (head, figures) = figures(serving, path, freshness);
    (head, figures.bytes)
}

/// The server looks by itself, and its answers say when.
#[test]
fn a_server_looks_by_itself() {
    root_test!();
    for fs in SYSTEMS {
        let image = Image::new(fs, 512 << 20);
        fs::create_dir(image.root().join("a")).expect("a directory");
        let file = File::create(image.root().join("a/f")).expect("a file");
        append(&file, 1000);
        let options = ["--sizes-follow", "close", "--check-open-every", "1s", "--harvest-after", "2s"];
        let serving = Serving::start_with(&[&image], &options.map(std::ffi::OsStr::new));
        let waits_for = |bytes: i64| {
            let since = now();
            loop {
                let (head, found) = asked(&serving, &image.root(), Freshness::Exact);
                assert!(!head.exact, "{head:?}");
                let checked_at = head.checked_at.expect("a time");
                assert!(checked_at <= now());
                // A second that has begun may not have seen it.
                if checked_at > since {
                    assert_eq!(found, bytes, "{}: {head:?}", fs.name());
                    break;
                }
                thread::sleep(Duration::from_millis(20));
            }
        };
        waits_for(1000);
        append(&file, 500);
        waits_for(1500);
        append(&file, 500);
        assert_eq!(asked(&serving, &image.root(), Freshness::Synced).1, 2000, "{}", fs.name());
        assert!(asked(&serving, &image.root(), Freshness::Synced).0.exact);
        let stored = asked(&serving, &image.root(), Freshness::Cached).0;
        assert_eq!((stored.exact, stored.checked_at), (false, None));
        let said = text(&finish(serving.du(&["-s"], &image.root()).arg("-v"), 0).stderr);
        assert!(said.contains("files as they were closed, those that stay open or mapped as of "), "{said}");
        let said = text(&finish(serving.du(&["-s", "--sync"], &image.root()).arg("-v"), 0).stderr);
        assert!(said.contains("from the server, up to date"), "{said}");
        drop(file);
        // Cut by its path, and nothing is open.
        let script = "truncate $ARGV[0], 20 or die $!";
        run(Command::new("perl").args(["-e", script]).arg(image.root().join("a/f")));
        while asked(&serving, &image.root(), Freshness::Exact).1 != 20 {
            thread::sleep(Duration::from_millis(20));
        }
        let told = serving.end();
        assert!(!told.contains("cannot") && !told.contains("sizes follow each write"), "{told}");
    }
}

/// A file system that can't be asked what has changed tells each write all the same.
#[test]
fn where_only_a_walk_tells_each_write_is_told() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let memory = image.beside("memory-only");
    fs::create_dir(&memory).expect("a folder");
    run(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&memory));
    let file = File::create(memory.join("f")).expect("a file");
    let options = ["--sizes-follow", "close", memory.to_str().expect("text")];
    let serving = Serving::start_with(&[&image], &options.map(std::ffi::OsStr::new));
    append(&file, 4321);
    let (head, bytes) = asked(&serving, &memory, Freshness::Exact);
    assert_eq!((head.exact, bytes), (true, 4321));
    assert!(!asked(&serving, &image.root(), Freshness::Exact).0.exact);
    let told = serving.end();
    drop(file);
    crate::image::unmount(&memory);
    assert_eq!(told.matches("sizes follow each write there").count(), 1, "{told}");
}

/// A program that writes through one mapping all the time: no event tells of it in either mode, so answers above it say when it
/// was looked at, and are right as of then.
#[test]
fn a_server_looks_at_what_stays_mapped() {
    root_test!();
    const WHOLE: usize = 4 << 20;
    const PART: usize = 1 << 20;
    for (fs, mode) in SYSTEMS.into_iter().flat_map(|fs| ["close", "write"].map(|mode| (fs, mode))) {
        let image = Image::new(fs, 512 << 20);
        let at = |name: &str| image.root().join(name);
        fs::create_dir(at("a")).and_then(|()| fs::create_dir(at("b"))).expect("directories");
        File::create(at("a/mapped")).and_then(|file| file.set_len(WHOLE as u64)).expect("a hole");
        fs::write(at("b/other"), vec![1; 10_000]).expect("a file");
        sync(&image.root());
        let options = ["--sizes-follow", mode, "--check-open-every", "1s"];
        let serving = Serving::start_with(&[&image], &options.map(std::ffi::OsStr::new));
        let ask = |path: &Path| figures(&serving, path, Freshness::Exact);
        let mut program = Other::opens(&at("a/mapped"));
        program.told(&format!("mmap -rw 0 {WHOLE}\nclose\n"));
        for (round, offset) in (0..WHOLE).step_by(PART).enumerate() {
            let before = du(&at("a"))[0];
            program.told(&format!("mwrite {offset} {PART}\n"));
            while {
                sync(&image.root());
                du(&at("a"))[0] < before + PART as i64
            } {
                thread::sleep(Duration::from_millis(20));
            }
            let since = now();
            loop {
                let before = du(&image.root());
                let (head, found) = ask(&image.root());
                assert!(head.checked_at.is_some_and(|at| at <= now()) && (mode == "write" || !head.exact), "{head:?}");
                // A second that has begun may not have seen it, and blocks may go on moving.
                if head.checked_at.is_some_and(|at| at > since) && before == du(&image.root()) {
                    let found = [found.allocated, found.bytes + found.directory_bytes, found.inodes()];
                    assert!(!head.exact, "it is still mapped: {head:?}");
                    assert_eq!(found, before, "{} {mode}, part {round}: {head:?}", fs.name());
                    break;
                }
                thread::sleep(Duration::from_millis(20));
            }
            let said = text(&finish(serving.du(&["-s"], &at("a")).arg("-v"), 0).stderr);
            assert!(said.contains("those that stay open or mapped as of "), "{said}");
        }
        // Beside it nothing is in doubt where each write is told.
        assert_eq!(ask(&at("b")).0.exact, mode == "write", "{}", fs.name());
        assert!(figures(&serving, &image.root(), Freshness::Synced).0.exact);
        drop(program);
        // Nor above it, when a look has found it gone.
        while mode == "write" && !ask(&image.root()).0.exact {
            thread::sleep(Duration::from_millis(20));
        }
        let told = serving.end();
        assert!(!told.contains("cannot"), "{told}");
    }
}
