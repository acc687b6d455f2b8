//! File systems of which nobody tells what changes: they are read again from time to time, and no answer claims to be exact.
//! NTFS by `ntfs-3g`, which is one in user space, and ext4 as a stand-in for all others.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{BufRead, BufReader},
    os::{
        fd::AsFd,
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::Path,
    process::Command,
    sync::{Arc, Mutex},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use onesweep_summary::{
    service::{
        client::Client,
        protocol::{Figures, Head, Question},
    },
    store::Store,
    summaries::{Freshness, Summaries},
    tracker::Fanotify,
    volume::Volume,
};
use onesweep_sys::fanotify::Group;

use crate::{
    image::{Fs, Image},
    run::{finish, long, onesweep, root_test, run, say, seed, text, wait_until},
    serving::Serving,
    shuffled::Shuffled,
    tracked::{Tracked, as_du, ask, du},
    tree,
    web_server::Web,
};

const SYSTEMS: [Fs; 2] = [Fs::Ntfs, Fs::Ext4];

fn tracked(image: &Image) -> Tracked {
    tracked_at(&image.root(), &image.beside("store"))
}

pub(crate) fn tracked_at(path: &Path, store: &Path) -> Tracked {
    let volume = Arc::new(Volume::timed(path).expect("a file system"));
    let tracker = Fanotify::take_up(volume.clone(), Group::new(true).expect("a group")).expect("it hears of nothing");
    let store = Store::open(store).expect("a store");
    let root = volume.root();
    Summaries::open(store, (volume, tracker), root, b"timed").expect("summaries")
}

/// Who wants all that is written has it read again, and what is there then is told, but never as exact.
///
/// ntfs-3g tells another size of the same directory once it has looked at it anew, so there only what is in files is compared.
fn agrees(fs: Fs, tracked: &mut Tracked, path: &Path, after: &str) {
    let answer = ask(tracked, path, Freshness::Synced);
    assert!(!answer.is_exact && answer.checked_at.is_some(), "{after}");
    let (told, expected) = (as_du(&answer), du(path));
    if fs == Fs::Ntfs {
        let told = (told[2], answer.totals.sums.bytes);
        let expected = (expected[2], bytes_in_files(path, &mut HashSet::new()));
        assert_eq!(told, expected, "{} after {after}: {answer:?}", path.display());
    } else {
        assert_eq!(told, expected, "{} after {after}: {answer:?}", path.display());
    }
}

/// Of all that is no directory, each inode once.
fn bytes_in_files(directory: &Path, known: &mut HashSet<u64>) -> i64 {
    let entries = fs::read_dir(directory).expect("a directory").flatten();
    let bytes_of = |entry: fs::DirEntry| {
        let facts = entry.metadata().expect("what is said of it");
        if facts.is_dir() {
            return bytes_in_files(&entry.path(), known);
        }
        if known.insert(facts.ino()) { i64::try_from(facts.len()).expect("a size") } else { 0 }
    };
    entries.map(bytes_of).sum()
}

/// Directories that move about, vanish and come back under numbers that others had, with links among their files; stores that are
/// opened again.
#[test]
fn what_is_read_again_is_what_du_says() {
    root_test!();
    for fs in SYSTEMS {
        let image = Image::new(fs, 512 << 20);
        let mut known = tracked(&image);
        let mut tree = Shuffled::new(image.root(), seed(), false);
        let (steps, mut log) = (if long() { 20_000 } else { 600 }, Vec::new());
        for step in 0..steps {
            log.push(tree.step());
            if step % 40 == 39 {
                tree::sync(&image.root());
                let path = tree.directories[step / 40 % tree.directories.len()].clone();
                let recent = log[log.len().saturating_sub(40)..].join("\n");
                agrees(fs, &mut known, &path, &format!("{} step {step} of seed {}:\n{recent}\n", fs.name(), seed()));
            }
            if step % 200 == 150 {
                known.commit(true).expect("it is written");
                drop(known);
                known = tracked(&image);
                log.push("opened again".to_owned());
            }
        }
        drop(tree);
        tree::sync(&image.root());
        agrees(fs, &mut known, &image.root(), "all");
        // Until it is read again it is told as it was, with the time of that.
        let before = ask(&mut known, &image.root(), Freshness::Exact);
        fs::write(image.root().join("new"), [1; 50_000]).expect("a file");
        let after = ask(&mut known, &image.root(), Freshness::Exact);
        assert_eq!((after.totals, after.checked_at, after.is_exact), (before.totals, before.checked_at, false));
        say(&format!("{}: {steps} random operations, {} directories read", fs.name(), known.readings()));
    }
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as i64
}

fn figures(serving: &Serving, path: &Path, freshness: Freshness) -> (Head, Figures) {
    let mut client = Client::connect(&serving.socket).expect("a connection");
    let directory = File::open(path).expect("a directory");
    let (question, mut figures) = (Question { freshness, ..Question::plain() }, Figures::default());
    let answer = client.ask(directory.as_fd(), &question, |row| figures = row.total);
    (answer.expect("a connection").expect("an answer"), figures)
}

#[test]
fn a_server_reads_it_again_and_says_when() {
    root_test!();
    for fs in SYSTEMS {
        let tracked_by_events = Image::new(Fs::Ext4, 256 << 20);
        let image = Image::new(fs, 256 << 20);
        let at = |name: &str| image.root().join(name);
        fs::create_dir_all(at("a/b")).expect("directories");
        fs::write(at("a/b/f"), [1; 10_000]).expect("a file");
        tree::sync(&image.root());
        let root = image.root();
        let start = || {
            let options = [OsStr::new("--harvest-after"), OsStr::new("1s"), OsStr::new("--timed"), root.as_os_str()];
            Serving::start_with(&[&tracked_by_events], &options)
        };
        let mut serving = start();
        for round in 0..4 {
            if round == 2 {
                // What is stored is told again, and read again.
                serving.end();
                serving = start();
            }
            fs::write(at(&format!("a/b/{round}")), vec![2; 20_000 * (round + 1)]).expect("a file");
            fs::create_dir_all(at(&format!("a/{round}/deeper"))).expect("directories");
            if round == 3 {
                fs::rename(at("a/b"), at("a/2/deeper/b")).expect("a rename");
                fs::remove_dir_all(at("a/1")).expect("it goes");
            }
            tree::sync(&root);
            let since = now();
            loop {
                let before = du(&at("a"));
                let (head, found) = figures(&serving, &at("a"), Freshness::Exact);
                assert!(!head.exact && head.timed && head.checked_at.is_some_and(|at| at <= now()), "{head:?}");
                // A second that has begun may not have seen it.
                if head.checked_at.is_some_and(|at| at > since) {
                    let found = [found.allocated, found.bytes + found.directory_bytes, found.inodes()];
                    assert_eq!(found, before, "{} round {round}: {head:?}", fs.name());
                    break;
                }
                thread::sleep(Duration::from_millis(20));
            }
        }
        let out = finish(&mut serving.du(&["-sB1"], &at("a")), 0);
        let said = text(&out.stderr);
        assert!(said.contains(": read as a whole ") && said.contains("nobody tells what changes there"), "{said}");
        fs::write(at("a/last"), [3; 30_000]).expect("a file");
        tree::sync(&root);
        let synced = finish(&mut serving.du(&["-sB1", "--sync"], &at("a")), 0);
        assert!(text(&synced.stdout).starts_with(&format!("{}\t", du(&at("a"))[0])), "{}", text(&synced.stdout));
        // The other one is exact beside it.
        assert!(figures(&serving, &tracked_by_events.root(), Freshness::Exact).0.exact);
        let told = serving.end();
        assert!(told.contains("nobody tells what changes there: it is read again"), "{told}");
        assert!(!told.contains("cannot"), "{told}");
    }
}

/// Whoever doesn't ask for it isn't given it: the advice tells how.
#[test]
fn only_who_is_named_so_is_read_again() {
    root_test!();
    let image = Image::new(Fs::Ntfs, 64 << 20);
    let mut serve = onesweep(["serve", "--socket"]);
    serve.arg(image.beside("socket")).arg("--store").arg(image.beside("stores")).arg(image.root());
    let said = text(&finish(&mut serve, 2).stderr);
    assert!(said.contains("it can't be tracked") && said.contains("--timed"), "{said}");
}

/// The program below a file system in user space, held still until this goes.
struct HeldStill(String);

impl HeldStill {
    fn program_of(root: &Path) -> HeldStill {
        let is_it = |process: &Path| {
            let words = fs::read(process.join("cmdline")).unwrap_or_default();
            let mut words = words.split(|&byte| byte == 0);
            words.next().is_some_and(|name| name.ends_with(b"ntfs-3g"))
                && words.any(|word| word == root.as_os_str().as_bytes())
        };
        let processes = fs::read_dir("/proc").expect("processes").map(|entry| entry.expect("an entry").path());
        let found = processes.into_iter().find(|process| is_it(process)).expect("it runs");
        let held = HeldStill(found.file_name().expect("a number").to_string_lossy().into_owned());
        held.signal("STOP");
        // What the kernel has been told of it holds for a second.
        thread::sleep(Duration::from_millis(1500));
        held
    }

    fn signal(&self, name: &str) {
        run(Command::new("kill").args([&format!("-{name}"), &self.0]));
    }
}

impl Drop for HeldStill {
    fn drop(&mut self) {
        self.signal("CONT");
    }
}

/// What a server comes to tell, while it runs.
struct Log(Arc<Mutex<String>>);

impl Log {
    fn of(serving: &mut Serving) -> Log {
        let log = Log(Arc::default());
        let (lines, told) =
            (BufReader::new(serving.running.stderr.take().expect("a pipe")).lines(), Arc::clone(&log.0));
        // Until the server ends.
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                *told.lock().expect("nobody panics with it") += &(line + "\n");
            }
        });
        log
    }

    fn told(&self) -> String {
        self.0.lock().expect("nobody panics with it").clone()
    }
}

/// The bytes of a directory, where the server knows it.
fn bytes(socket: &Path, path: &Path) -> Option<i64> {
    let (mut client, mut bytes) = (Client::connect(socket).expect("a connection"), None);
    let directory = File::open(path).expect("a directory");
    let answer = client.ask(directory.as_fd(), &Question::plain(), |row| bytes = Some(row.total.bytes));
    answer.expect("a connection").ok().and(bytes)
}

/// Each is read again by itself, and made durable.
#[test]
fn one_that_does_not_answer_keeps_no_other_from_being_read_again() {
    root_test!();
    let (image, silent, other) =
        (Image::new(Fs::Ext4, 256 << 20), Image::new(Fs::Ntfs, 64 << 20), Image::new(Fs::Ntfs, 64 << 20));
    for (image, bytes) in [(&silent, 5_000), (&other, 6_000)] {
        fs::write(image.root().join("f"), vec![1; bytes]).expect("a file");
        tree::sync(&image.root());
    }
    let (silent, other) = (silent.root(), other.root());
    let mut options = vec!["--harvest-after".into(), "1s".into()];
    for path in [&silent, &other] {
        options.extend(["--timed".into(), path.clone().into_os_string()]);
    }
    let options: Vec<&OsStr> = options.iter().map(|option: &OsString| option.as_os_str()).collect();
    let serving = Serving::start_with(&[&image], &options);
    for (path, least) in [(&silent, 5_000), (&other, 6_000)] {
        wait_until("what is there", || bytes(&serving.socket, path).is_some_and(|bytes| bytes >= least));
    }
    let held = HeldStill::program_of(&silent);
    // Twice: the first time it may have been read again just before the other one was asked.
    for round in 1..=2 {
        fs::write(other.join(format!("{round}")), vec![1; 100_000]).expect("a file");
        tree::sync(&other);
        wait_until("what is new", || bytes(&serving.socket, &other).is_some_and(|bytes| bytes >= round * 100_000));
    }
    drop(held);
    serving.end();
}

/// Metrics are told of all that answers, also where some of it did once.
#[test]
fn what_does_not_answer_has_no_metrics() {
    root_test!();
    let (image, silent) = (Image::new(Fs::Ext4, 256 << 20), Image::new(Fs::Ntfs, 64 << 20));
    for image in [&image, &silent] {
        fs::write(image.root().join("f"), [1; 10_000]).expect("a file");
        tree::sync(&image.root());
    }
    let (root, silent) = (image.root(), silent.root());
    let options = [OsStr::new("--harvest-after"), OsStr::new("1s"), OsStr::new("--timed"), silent.as_os_str()];
    let web = Web::start_with(&image, &[&silent, &root], &options);
    let is_told = |path: &Path| {
        let (status, body) = web.get(&web.root, "/metrics");
        assert_eq!(status, 200, "{body}");
        body.contains(&format!("onesweep_directory_files{{path=\"{}\"}} ", path.display()))
    };
    wait_until("both", || is_told(&root) && is_told(&silent));
    let held = HeldStill::program_of(&silent);
    // However often: each would take a place for good.
    for _ in 0..40 {
        assert!(is_told(&root));
    }
    assert!(!is_told(&silent));
    drop(held);
    wait_until("the one that answers again", || is_told(&silent));
    web.end();
}

/// Settings that can't be read just then cost no more than the time until it is asked next.
#[test]
fn one_that_was_silent_is_asked_again_once_the_settings_are_in_order() {
    root_test!();
    let (image, silent) = (Image::new(Fs::Ext4, 256 << 20), Image::new(Fs::Ntfs, 64 << 20));
    fs::write(silent.root().join("f"), [1; 5_000]).expect("a file");
    tree::sync(&silent.root());
    let (root, config) = (silent.root(), image.beside("serve.toml"));
    let settings = format!("paths = [{:?}]\ntimed = [{root:?}]\nharvest-after = \"1s\"\n", image.root());
    fs::write(&config, &settings).expect("settings");
    let held = HeldStill::program_of(&root);
    let mut serving = Serving::start_by(&image, &config);
    fs::write(&config, format!("{settings}nonsense = 1\n")).expect("settings");
    let log = Log::of(&mut serving);
    wait_until("what is wrong", || log.told().contains("the settings stay as they are"));
    fs::write(&config, &settings).expect("settings");
    drop(held);
    wait_until("what was silent", || bytes(&serving.socket, &root).is_some_and(|bytes| bytes >= 5_000));
    serving.end();
}

/// A machine that is gone: the server starts, is told other settings and ends without it, and takes it up when it is back.
#[test]
fn one_that_does_not_answer_keeps_nobody_waiting() {
    root_test!();
    let (image, silent) = (Image::new(Fs::Ext4, 256 << 20), Image::new(Fs::Ntfs, 64 << 20));
    fs::write(image.root().join("f"), [1; 10_000]).expect("a file");
    fs::write(silent.root().join("f"), [1; 5_000]).expect("a file");
    tree::sync(&silent.root());
    let root = silent.root();
    let held = HeldStill::program_of(&root);
    let options = [OsStr::new("--harvest-after"), OsStr::new("1s"), OsStr::new("--timed"), root.as_os_str()];
    let mut serving = Serving::start_with(&[&image], &options);
    assert!(figures(&serving, &image.root(), Freshness::Exact).0.exact);
    drop(held);
    wait_until("what was silent", || bytes(&serving.socket, &root).is_some_and(|bytes| bytes >= 5_000));
    let log = Log::of(&mut serving);
    let held = HeldStill::program_of(&root);
    run(Command::new("kill").args(["-HUP", &serving.running.id().to_string()]));
    fs::write(image.root().join("g"), [1; 10_000]).expect("a file");
    assert!(figures(&serving, &image.root(), Freshness::Exact).0.exact);
    // Or it would end before it has asked all of them again. Each time that this one was left out it was asked once more, and now.
    let left_out = format!("{}: it doesn't answer, and is left out", root.display());
    let times = |text: &str| log.told().matches(text).count();
    wait_until("that it was asked", || times("the settings were read again") > times(&left_out));
    serving.end();
    drop(held);
    let told = log.told();
    assert!(told.contains(&left_out), "{told}");
    assert!(!told.contains("not tracked any more"), "{told}");
}
