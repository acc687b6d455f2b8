//! The daemon as its administrator and many at once know it.

mod declared;
mod moving;

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::{
        fd::AsFd,
        unix::{
            fs::{MetadataExt, PermissionsExt},
            net::{UnixDatagram, UnixStream},
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use onesweep_summary::{
    access::Asker,
    file_system::FileSystem,
    reading::Directories,
    service::{
        client::{Client, Directory},
        protocol::{Name, Question, Refusal},
        reach::Reach,
    },
    summaries::Freshness,
    warden::{
        guarded::Warden,
        keeper::{self, Named},
    },
};

use crate::{
    image::{Fs, Image},
    run::{ended, finish, long, onesweep, output, root_test, run, text, wait_until},
    serving::Serving,
};

/// Who the daemon becomes in these tests.
const USER: u32 = 54_321;

/// Bytes of a directory with all below, its own and theirs left out.
fn bytes_of(client: &mut Client, path: &Path) -> i64 {
    let directory = File::open(path).expect("a directory");
    let mut bytes = None;
    let answer = client.ask(directory.as_fd(), &Question::plain(), |row| bytes = Some(row.total.bytes));
    let head = answer.expect("a connection").expect("an answer");
    assert!(head.exact, "{head:?}");
    bytes.expect("one line")
}

/// What is closed before a question is in its answer, however many ask at the same time where nothing has changed.
#[test]
fn a_question_after_a_close_is_exact() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let directories: Vec<_> = (0..4).map(|number| image.root().join(format!("d{number}/below"))).collect();
    for directory in &directories {
        fs::create_dir_all(directory).expect("a folder");
    }
    let serving = Serving::start(&image);
    let (ended, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    let written: Vec<AtomicU64> = directories.iter().map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut client = Client::connect(&serving.socket).expect("a connection");
                while !ended.load(Ordering::SeqCst) {
                    // All that was closed by now; and a little of what comes may be there, too.
                    let least: u64 = written.iter().map(|bytes| bytes.load(Ordering::SeqCst)).sum();
                    let found = bytes_of(&mut client, &image.root());
                    assert!(found >= least as i64, "{found} of {least}");
                    asked.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let writers: Vec<_> = directories
            .iter()
            .zip(&written)
            .map(|(directory, written)| {
                let serving = &serving;
                scope.spawn(move || {
                    let mut client = Client::connect(&serving.socket).expect("a connection");
                    for round in 1..=if long() { 2000 } else { 100_u64 } {
                        fs::write(directory.join(format!("f{}", round % 7)), vec![1; round as usize]).expect("a file");
                        // Of each name the last length counts.
                        let sum: u64 = (1..=round).rev().take(7).sum();
                        assert_eq!(bytes_of(&mut client, directory), sum as i64, "{} {round}", directory.display());
                        // Where nothing has changed since.
                        assert_eq!(bytes_of(&mut client, directory), sum as i64, "{} {round}", directory.display());
                        written.fetch_max(sum - (1..=round).rev().take(7).max().unwrap_or(0), Ordering::SeqCst);
                    }
                })
            })
            .collect();
        let ends: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        ended.store(true, Ordering::SeqCst);
        assert!(ends.iter().all(Result::is_ok));
    });
    assert!(asked.load(Ordering::SeqCst) > 0);
    serving.end();
}

/// A daemon with a file of settings, and what it tells.
struct Daemon {
    running: Child,
    socket: PathBuf,
    config: PathBuf,
    told: PathBuf,
}

impl Daemon {
    fn start(image: &Image, settings: &str, words: &[&str]) -> Daemon {
        let (socket, config, told) = (image.beside("socket"), image.beside("serve.toml"), image.beside("told"));
        fs::write(&config, settings).expect("settings");
        let mut serve = onesweep(["serve", "--config"]);
        serve.arg(&config).arg("--socket").arg(&socket).arg("--store").arg(image.beside("stores")).args(words);
        let stderr = File::create(&told).expect("a file");
        let running = serve.stderr(Stdio::from(stderr)).spawn().expect("it starts");
        let mut daemon = Daemon { running, socket, config, told };
        // Before, what is tracked stays as it is.
        daemon.wait_for("what was harvested is stored");
        daemon
    }

    fn told(&self) -> String {
        fs::read_to_string(&self.told).expect("what was told")
    }

    /// Waits until something is told that wasn't before.
    fn wait_for(&mut self, text: &str) {
        self.wait_behind(0, text);
    }

    /// Has it read new settings; what it tells of that, up to `text`.
    fn reload(&mut self, settings: &str, text: &str) -> String {
        let before = self.told().len();
        fs::write(&self.config, settings).expect("settings");
        self.signal("HUP");
        self.wait_behind(before, text);
        self.told()[before..].to_owned()
    }

    /// Waits until something is told behind so many bytes.
    fn wait_behind(&mut self, before: usize, text: &str) {
        wait_until(text, || {
            let has_ended = self.running.try_wait().expect("its state").is_some();
            let told = self.told();
            assert!(!has_ended, "it ended: {told}");
            told[before..].contains(text)
        });
    }

    fn signal(&self, name: &str) {
        run(Command::new("kill").args([&format!("-{name}"), &self.running.id().to_string()]));
    }

    /// All processes of it, the first of which has the sockets.
    fn processes(&self) -> Vec<u32> {
        let daemon = self.running.id();
        let children = format!("/proc/{daemon}/task/{daemon}/children");
        let children = fs::read_to_string(children).expect("its children");
        [daemon].into_iter().chain(children.split_whitespace().map(|pid| pid.parse().expect("a number"))).collect()
    }

    fn asks(&self, path: &Path) -> Result<i64, String> {
        let directory = File::open(path).expect("a directory");
        let mut bytes = 0;
        let mut client = Client::connect(&self.socket).expect("a connection");
        let answer = client.ask(directory.as_fd(), &Question::plain(), |row| bytes = row.total.bytes);
        answer.expect("a connection").map(|_| bytes).map_err(|refusal| format!("{refusal:?}"))
    }

    /// How often threads of that name had nothing to do so far.
    fn sleeps_of(&self, thread: &str) -> u64 {
        let tasks = self
            .processes()
            .into_iter()
            .flat_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).expect("its threads"));
        // A thread may end between being listed and being read.
        let states = tasks.filter_map(|task| fs::read_to_string(task.expect("a thread").path().join("status")).ok());
        let named = states.filter(|state| state.lines().any(|line| line == format!("Name:\t{thread}")));
        let sleeps = named.map(|state| {
            let count = state.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:\t"));
            count.expect("a count").parse::<u64>().expect("a number")
        });
        sleeps.reduce(|all, one| all + one).expect("a thread of that name")
    }

    fn end(mut self) -> String {
        self.signal("TERM");
        assert!(ended(&mut self.running).success(), "{}", self.told());
        assert!(!self.socket.exists());
        self.told()
    }
}

#[test]
fn nothing_wakes_the_tracker_where_nothing_happens() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    let settings = format!("paths = [{:?}]\n", image.root());
    let daemon = Daemon::start(&image, &settings, &[]);
    // What was written before may still be told.
    let sleeps_through = |_| {
        let before = daemon.sleeps_of("tracker");
        thread::sleep(Duration::from_millis(500));
        daemon.sleeps_of("tracker") == before
    };
    assert!((0..60).any(sleeps_through));
    fs::write(image.root().join("file"), "bytes").expect("a file");
    assert_eq!(daemon.asks(&image.root()), Ok(5));
    daemon.end();
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.running.kill();
        let _ = self.running.wait();
    }
}

/// A line of `/proc/PID/task/TID/status` of each thread.
fn of_threads(pid: u32, name: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("its threads");
    let line = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the line");
        line.trim_start_matches(':').split_whitespace().collect::<Vec<_>>().join(" ")
    };
    // One may have ended meanwhile.
    threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("status")).ok()).map(line).collect()
}

/// What the warden keeps: `CAP_DAC_READ_SEARCH`, `CAP_FOWNER`, `CAP_SYS_PTRACE`, `CAP_SYS_ADMIN`, `CAP_LEASE`.
const KEPT: u64 = 1 << 2 | 1 << 3 | 1 << 19 | 1 << 21 | 1 << 28;

/// The part that hears clients has no rights, as a user of its own and as root without such a user; and all works still.
#[test]
fn rights_are_where_they_are_needed() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let hidden = image.root().join("hidden");
    fs::create_dir(&hidden).expect("a folder");
    fs::write(hidden.join("f"), [1; 1000]).expect("a file");
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o700)).expect("a mode");
    let secret = image.beside("secret");
    fs::write(&secret, "secret").expect("a file");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("a mode");
    // The daemon has to come to its own files.
    fs::set_permissions(image.beside(""), fs::Permissions::from_mode(0o755)).expect("a mode");
    let settings = format!("paths = [{:?}]\n", image.root());
    for user in [USER, 0] {
        let user_text = user.to_string();
        let daemon = Daemon::start(&image, &settings, &["--user", &user_text]);
        for bytes in [2000, 3000] {
            fs::write(hidden.join("f"), vec![1; bytes]).expect("a file");
            assert_eq!(daemon.asks(&image.root()), Ok(bytes as i64), "as {user}");
        }
        let [serving, warden] = daemon.processes()[..] else { panic!("two processes: {:?}", daemon.processes()) };
        for name in ["CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"] {
            let zero = format!("{:016x}", 0);
            assert!(of_threads(serving, name).iter().all(|caps| *caps == zero), "{name} of the daemon");
        }
        assert_eq!(fs::read_to_string(format!("/proc/{warden}/comm")).expect("its name").trim(), "onesweep-warden");
        let kept = format!("{KEPT:016x}");
        for name in ["CapEff", "CapPrm", "CapBnd"] {
            let found = of_threads(warden, name);
            assert!(found.iter().all(|caps| *caps == kept), "{name} of the warden: {found:?}");
        }
        let ids = [user; 4].map(|user| user.to_string()).join(" ");
        assert!(of_threads(serving, "Uid").iter().all(|found| *found == ids), "{:?}", of_threads(serving, "Uid"));
        for pid in [serving, warden] {
            assert!(of_threads(pid, "NoNewPrivs").iter().all(|set| set == "1"));
        }
        if user == USER {
            // With just what the daemon has, nobody comes to root's file.
            let as_daemon = ["--reuid", &user_text, "--regid", &user_text, "--clear-groups", "--no-new-privs"];
            let tried = Command::new("setpriv").args(as_daemon).arg("cat").arg(&secret).output().expect("it runs");
            assert!(!tried.status.success() && tried.stdout.is_empty());
            let store = fs::read_dir(image.beside("stores")).expect("stores").next().expect("one").expect("one");
            assert_eq!(store.metadata().expect("its facts").uid(), USER);
        }
        // The one that hears clients has no file open but its own.
        let open = fs::read_dir(format!("/proc/{serving}/fd")).expect("its files");
        let open: Vec<_> = open.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok()).collect();
        assert!(open.iter().all(|path| !path.starts_with("/dev/") || path.starts_with("/dev/null")), "{open:?}");
        daemon.end();
        assert!(!Path::new(&format!("/proc/{warden}")).exists(), "the warden has ended");
    }
}

/// Whoever takes over the daemon gets from the warden only what the settings name.
#[test]
fn the_warden_gives_no_more_than_the_settings_name() {
    root_test!();
    let (image, other) = (Image::new(Fs::Ext4, 256 << 20), Image::new(Fs::Ext4, 256 << 20));
    fs::create_dir(image.root().join("d")).expect("a folder");
    fs::write(image.root().join("f"), "content").expect("a file");
    let (ours, its) = UnixStream::pair().expect("a socket");
    let named = Named { paths: vec![image.root()], ..Named::default() };
    let keeping = thread::spawn(move || keeper::run(&its, false, move || Ok(named.clone())));
    let raw = ours.try_clone().expect("the same socket");
    let warden = Warden::new(ours, |error| panic!("the warden is gone: {error}"));
    let [(path, Ok((guarded, _)))] = &warden.file_systems().expect("they are told")[..] else { panic!("one is named") };
    assert_eq!(path, &image.root());
    let name = |path: PathBuf| Name::of(path.as_os_str().as_encoded_bytes());
    let open = |path: PathBuf| warden.open(&Asker::Everything, &name(path));
    let directory = open(image.root().join("d")).expect("it is tracked");
    // For its facts alone: the kernel lists nothing through it.
    assert!(onesweep_sys::files::DirReader::with_buffer(4096).read(directory.as_fd(), |_| {}).is_err());
    for path in [other.root(), "/etc".into(), image.root().join("f"), image.root().join("none")] {
        assert_eq!(open(path.clone()).map(drop), Err(Refusal::NotTracked), "{}", path.display());
    }
    let elsewhere = File::open(other.root()).expect("a directory");
    assert_eq!(warden.check_way_to(&Asker::Everything, elsewhere.as_fd()), Err(Refusal::NotTracked));
    let file = File::open(image.root().join("f")).expect("a file");
    assert_eq!(warden.check_way_to(&Asker::Everything, file.as_fd()), Err(Refusal::NotTracked));
    assert!(warden.tokens().is_err());
    let root = guarded.read(guarded.root()).expect("the topmost directory");
    assert!(root.directories.iter().any(|(_, name)| name[..] == *b"d"));
    // What is no request ends its connection, and no other one.
    for bytes in [&[0xff; 4][..], &[3, 0, 0, 0, 99, 1, 1], &[1, 0, 0, 0, 4]] {
        let (mut asking, answering) = UnixStream::pair().expect("a socket");
        onesweep_sys::peer::send_with_file(raw.as_fd(), b"c", answering.as_fd()).expect("it is sent");
        drop(answering);
        asking.write_all(bytes).expect("it is sent");
        let mut said = Vec::new();
        // What it left unread the kernel may tell.
        let _ = asking.read_to_end(&mut said);
        assert_eq!(said, b"", "{bytes:?}");
    }
    guarded.read(guarded.root()).expect("it goes on");
    warden.end();
    assert!(keeping.join().expect("no panic").expect("no error"));
}

/// Whichever of the two is killed, the other one doesn't stay.
#[test]
fn neither_part_outlives_the_other() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let settings = format!("paths = [{:?}]\n", image.root());
    for kills_warden in [false, true] {
        let mut daemon = Daemon::start(&image, &settings, &[]);
        let [serving, warden] = daemon.processes()[..] else { panic!("two processes") };
        let victim = if kills_warden { warden } else { serving };
        run(Command::new("kill").args(["-KILL", &victim.to_string()]));
        if kills_warden {
            // It notices when it needs the warden next.
            let _ = fs::write(image.root().join("f"), [1; 10]);
            let directory = File::open(image.root()).expect("a directory");
            let mut client = Client::connect(&daemon.socket).expect("a connection");
            let _ = client.ask(directory.as_fd(), &Question::plain(), |_| {});
        }
        let ended = daemon.running.wait().expect("it ends");
        assert_eq!(ended.code(), kills_warden.then_some(2));
        assert_eq!(daemon.told().contains("cannot go on without the warden"), kills_warden, "{}", daemon.told());
        while Path::new(&format!("/proc/{warden}/exe")).exists() {
            thread::sleep(Duration::from_millis(5));
        }
    }
    Daemon::start(&image, &settings, &[]).end();
}

/// What can change while it runs does, what can't is named, and a broken file changes nothing.
#[test]
fn settings_are_read_again() {
    root_test!();
    let (image, other) = (Image::new(Fs::Ext4, 256 << 20), Image::new(Fs::Xfs, 512 << 20));
    for (image, bytes) in [(&image, 100), (&other, 200)] {
        fs::write(image.root().join("f"), vec![1; bytes]).expect("a file");
    }
    let first = format!("paths = [{:?}]\nuser = {USER}\n", image.root());
    fs::set_permissions(image.beside(""), fs::Permissions::from_mode(0o755)).expect("a mode");
    let mut daemon = Daemon::start(&image, &first, &[]);
    assert_eq!((daemon.asks(&image.root()), daemon.asks(&other.root()).is_err()), (Ok(100), true));
    for (broken, why) in [
        (format!("{first}nonsense = 1\n"), "line 3: unknown field `nonsense`"),
        ("paths = [".to_owned(), "line 1: "),
        (format!("{first}metrics = [\"/x\"]\n"), "add --http ADDRESS:PORT"),
    ] {
        let told = daemon.reload(&broken, "the settings stay as they are");
        assert!(told.contains(why), "{told}");
        assert_eq!(daemon.asks(&image.root()), Ok(100));
    }
    let both = format!("paths = [{:?}, {:?}]\nuser = \"root\"\nlog = \"debug\"\n", image.root(), other.root());
    let told = daemon.reload(&both, " directories harvested in ");
    assert!(told.contains("user is another one now: that takes a restart"), "{told}");
    assert!(told.contains("the settings were read again"), "{told}");
    assert_eq!((daemon.asks(&image.root()), daemon.asks(&other.root())), (Ok(100), Ok(200)));
    // What is tracked already isn't harvested again; what is taken out is let go.
    let told = daemon.reload(&format!("paths = [{:?}]\nlog = \"info\"\n", other.root()), "not tracked any more");
    assert_eq!(told.matches(" directories harvested in ").count(), 0, "{told}");
    assert!(daemon.asks(&image.root()).is_err());
    fs::write(other.root().join("g"), vec![1; 50]).expect("a file");
    assert_eq!(daemon.asks(&other.root()), Ok(250));
    // And back: by what was stored, though it has changed meanwhile.
    fs::write(image.root().join("g"), vec![1; 11]).expect("a file");
    let told = daemon.reload(&both, " directories harvested in ");
    assert!(told.contains(&format!("{}: ", image.root().display())), "{told}");
    assert_eq!((daemon.asks(&image.root()), daemon.asks(&other.root())), (Ok(111), Ok(250)));
    daemon.end();
}

/// When sizes are told can change while it runs: the file system is tracked anew then, by what is stored.
#[test]
fn when_sizes_are_told_can_change() {
    root_test!();
    let image = Image::new(Fs::Xfs, 512 << 20);
    fs::create_dir(image.root().join("a")).expect("a folder");
    let file = File::create(image.root().join("a/f")).expect("a file");
    let write = |bytes: usize| (&file).write_all(&vec![1; bytes]).expect("a write");
    let first = format!("paths = [{:?}]\n", image.root());
    let mut daemon = Daemon::start(&image, &first, &[]);
    let exact = |daemon: &Daemon| {
        let directory = File::open(image.root()).expect("a directory");
        let mut client = Client::connect(&daemon.socket).expect("a connection");
        client.ask(directory.as_fd(), &Question::plain(), |_| {}).expect("a connection").map(|head| head.exact)
    };
    write(100);
    assert_eq!((daemon.asks(&image.root()), exact(&daemon)), (Ok(100), Ok(true)));
    let at_close = format!("{first}sizes-follow = \"close\"\ncheck-open-every = \"1s\"\n");
    let told = daemon.reload(&at_close, " directories harvested in ");
    assert!(told.contains("tracked anew"), "{told}");
    assert_eq!((daemon.asks(&image.root()), exact(&daemon)), (Ok(100), Ok(false)));
    write(11);
    while daemon.asks(&image.root()) != Ok(111) {
        thread::sleep(Duration::from_millis(20));
    }
    // What doesn't change tracks nothing anew.
    let told = daemon.reload(&at_close.replace("1s", "1h"), "the settings were read again");
    assert!(!told.contains("tracked anew"), "{told}");
    write(5);
    let told = daemon.reload(&first, " directories harvested in ");
    assert!(told.contains("tracked anew"), "{told}");
    assert_eq!((daemon.asks(&image.root()), exact(&daemon)), (Ok(116), Ok(true)));
    write(1);
    assert_eq!((daemon.asks(&image.root()), exact(&daemon)), (Ok(117), Ok(true)));
    daemon.end();
}

/// The command line wins over the file, and what is wrong with either is told before anything is made.
#[test]
fn settings_are_checked_first() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let config = image.beside("serve.toml");
    let said = |settings: &str, words: &[&str]| {
        fs::write(&config, settings).expect("settings");
        let mut serve = onesweep(["serve", "--config"]);
        serve
            .arg(&config)
            .arg("--store")
            .arg(image.beside("stores"))
            .arg("--socket")
            .arg(image.beside("s"))
            .args(words);
        let said = text(&finish(&mut serve, 2).stderr);
        assert!(!image.beside("stores").exists() && !image.beside("s").exists(), "{said}");
        said
    };
    assert!(said("", &[]).contains("no file system is named"));
    assert!(
        said("harvest-after = \"soon\"", &[]).contains("serve.toml: cannot read the settings: line 1: 'soon' is no")
    );
    assert!(said("paths = [\"/nowhere/at/all\"]", &[]).contains("/nowhere/at/all: cannot track its file system"));
    let user = "no-such-user-at-all";
    assert!(said(&format!("paths = [\"/\"]\nuser = {user:?}"), &[]).contains("there is no such user"));
    assert!(said("paths = [\"/\"]", &["/proc"]).contains("/proc: cannot track its file system"), "what is typed wins");
    let mut missing = onesweep(["serve", "--config", "/nowhere/serve.toml"]);
    assert!(text(&finish(&mut missing, 2).stderr).contains("/nowhere/serve.toml: cannot read the settings"));
}

/// systemd is told when it answers and when it ends, and the journal gets levels instead of times.
#[test]
fn systemd_and_the_journal_are_told() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let notify = UnixDatagram::bind(image.beside("notify")).expect("a socket");
    let told = File::create(image.beside("told")).expect("a file");
    let facts = told.metadata().expect("its facts");
    let mut serve = onesweep(["serve", "--store"]);
    serve.arg(image.beside("stores")).arg("--socket").arg(image.beside("socket")).arg(image.root());
    serve
        .env("NOTIFY_SOCKET", image.beside("notify"))
        .env("JOURNAL_STREAM", format!("{}:{}", facts.dev(), facts.ino()));
    let mut running = serve.stderr(Stdio::from(told)).spawn().expect("it starts");
    let heard = || {
        let mut bytes = [0; 200];
        let length = notify.recv(&mut bytes).expect("it is told");
        text(&bytes[..length])
    };
    assert!(heard().starts_with("READY=1\n"));
    assert!(heard().contains("STATUS=all is known"));
    run(Command::new("kill").args(["-TERM", &running.id().to_string()]));
    assert_eq!(heard(), "STOPPING=1");
    assert!(running.wait().expect("it ends").success());
    let said = fs::read_to_string(image.beside("told")).expect("what was told");
    assert!(said.lines().all(|line| line.starts_with("<6>")) && said.contains("<6>listening at "), "{said}");
}

/// What nobody asks for is harvested by itself, by threads that step back behind other readers of the disk.
#[test]
fn the_background_steps_back() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    for number in 0..60 {
        fs::create_dir(image.root().join(format!("d{number}"))).expect("a folder");
    }
    let settings = format!("paths = [{:?}]\nharvest-after = \"0s\"\nbackground-budget = 0\n", image.root());
    let mut daemon = Daemon::start(&image, &settings, &[]);
    let [serving, warden] = daemon.processes()[..] else { panic!("two processes") };
    fs::write(image.root().join("d7/f"), [1; 10]).expect("a file");
    daemon.wait_for("harvested in the background");
    let is_idle = |pid: u32, thread: &str| {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("threads").flatten();
        let named: Vec<_> = threads
            .filter(|entry| fs::read_to_string(entry.path().join("comm")).is_ok_and(|name| name.trim() == thread))
            .collect();
        named.iter().any(|entry| {
            let said = output(Command::new("ionice").arg("-p").arg(entry.file_name()));
            text(&said).trim() == "idle"
        })
    };
    assert!(is_idle(serving, "background"));
    assert!(is_idle(warden, "request"));
    daemon.end();
}

/// After a question that had to harvest many, as after a start: by the thread that has nothing else to do, so that nobody waits for it.
#[test]
fn what_a_large_question_has_taken_is_given_back() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let settings = format!("paths = [{:?}]\nlog = \"debug\"\n", image.root());
    let mut daemon = Daemon::start(&image, &settings, &[]);
    let given_back = "memory is given back";
    for number in 0..10_100 {
        fs::create_dir(image.root().join(format!("d{number}"))).expect("a folder");
    }
    fs::write(image.root().join("d7/f"), [1; 10]).expect("a file");
    assert!(!daemon.told().contains(given_back), "{}", daemon.told());
    assert_eq!(daemon.asks(&image.root()), Ok(10));
    daemon.wait_for(given_back);
    // Two connections for who waits, two for the background, each a thread of the warden.
    let warden = daemon.processes()[1];
    let at_rest = || of_threads(warden, "Name").iter().filter(|name| *name == "request").count() <= 4;
    wait_until("connections of the harvest end", at_rest);
    daemon.end();
}

/// In a mount namespace of its own, such as systemd makes, it still counts what everybody sees.
#[test]
fn mounts_are_those_of_everybody() {
    // Its namespace keeps mounted what others unmount meanwhile.
    root_test!(alone);
    let image = Image::new(Fs::Ext4, 256 << 20);
    for name in ["a", "b"] {
        fs::create_dir(image.root().join(name)).expect("a folder");
        fs::write(image.root().join(name).join("f"), [1; 1000]).expect("a file");
    }
    let (socket, told) = (image.beside("socket"), image.beside("told"));
    let root = image.root().display().to_string();
    let script = format!("mount --bind {root}/a {root}/a; exec \"$@\"");
    let mut serve = Command::new("unshare");
    serve.args(["--mount", "--propagation", "private", "sh", "-c", &script, "sh"]).arg(crate::run::program());
    serve.args(["serve", "--mount-namespace"]).arg(format!("/proc/{}/ns/mnt", std::process::id()));
    serve.arg("--socket").arg(&socket).arg("--store").arg(image.beside("stores")).arg(image.root());
    let running = serve.stderr(Stdio::from(File::create(&told).expect("a file"))).spawn().expect("it starts");
    let mut daemon = Daemon { running, socket, config: PathBuf::new(), told };
    daemon.wait_for(" directories harvested in ");
    assert_eq!(daemon.asks(&image.root()), Ok(2000));
    // What is mounted for everybody is seen, too, though not in the daemon's own namespace.
    run(Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(image.root().join("b")));
    let hidden = daemon.asks(&image.root());
    run(Command::new("umount").arg(image.root().join("b")));
    assert_eq!((hidden, daemon.asks(&image.root())), (Ok(1000), Ok(2000)));
    daemon.end();
}

/// The unit that comes along is one that systemd takes.
#[test]
fn the_unit_is_sound() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/onesweep-serve.service");
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("onesweep-serve.service");
    // It isn't installed while it is tested.
    let program = crate::run::program().display().to_string();
    let text_of = fs::read_to_string(unit).expect("the unit").replace("/usr/local/bin/onesweep", &program);
    fs::write(&copy, &text_of).expect("a file");
    let verified = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy).output();
    let verified = verified.expect("systemd-analyze; try `make deps`");
    let said = [text(&verified.stdout), text(&verified.stderr)].concat();
    assert!(verified.status.success() && !said.contains("onesweep"), "{said}");
    let scored =
        output(Command::new("systemd-analyze").args(["security", "--offline=yes", "--threshold=40"]).arg(&copy));
    let line = text(&scored).lines().find(|line| line.contains("Overall exposure level")).map(str::to_owned);
    crate::run::say(&line.expect("a level"));
    // Nobody keeps a right that the unit doesn't give, and words of the command line are those that there are.
    let kept = ["SYS_ADMIN", "DAC_READ_SEARCH", "LEASE", "FOWNER", "SYS_PTRACE", "SETUID", "SETGID", "KILL"];
    for right in kept {
        assert!(text_of.contains(&format!("CAP_{right}")), "{right}");
    }
    assert!(text(&output(onesweep(["serve", "--help"]).arg("--help"))).contains("--mount-namespace"));
}

/// The paper's `QueryDirStatistics(path, <dev, ino>)`, of the library.
#[test]
fn a_directory_is_asked_for_by_its_path_or_its_numbers() {
    root_test!();
    let (image, other) = (Image::new(Fs::Ext4, 256 << 20), Image::new(Fs::Ext4, 256 << 20));
    for image in [&image, &other] {
        fs::create_dir_all(image.root().join("a/b")).expect("folders");
        fs::write(image.root().join("a/b/f"), [1; 1000]).expect("a file");
    }
    let serving = Serving::start_on(&[&image, &other]);
    let mut client = Client::connect(&serving.socket).expect("a connection");
    let mut ask = |directory: Directory<'_>, freshness| {
        client.query(&directory, freshness).expect("a connection").map(|(head, row)| (head.exact, row.total.bytes))
    };
    let (path, top) = (image.root().join("a"), other.root());
    assert_eq!(ask(Directory::Path(&path), Freshness::Exact), Ok((true, 1000)));
    // One that is known, one that is new, and one that nobody has.
    let numbers = |path: &Path| {
        let facts = path.metadata().expect("its facts");
        (facts.dev(), facts.ino())
    };
    let (dev, ino) = numbers(&path);
    assert_eq!(ask(Directory::Inode { dev, ino }, Freshness::Exact), Ok((true, 1000)));
    assert_eq!(ask(Directory::Path(&top), Freshness::Exact), Ok((true, 1000)));
    fs::create_dir(image.root().join("a/new")).expect("a folder");
    fs::write(image.root().join("a/new/f"), [1; 50]).expect("a file");
    fs::write(other.root().join("a/f"), [1; 70]).expect("a file");
    let (dev, ino) = numbers(&image.root().join("a/new"));
    assert_eq!(ask(Directory::Inode { dev, ino }, Freshness::Cached), Err(Refusal::NotTracked));
    assert_eq!(ask(Directory::Inode { dev, ino }, Freshness::Exact), Ok((true, 50)));
    assert_eq!(ask(Directory::Inode { dev, ino: 4_000_000 }, Freshness::Exact), Err(Refusal::NotTracked));
    assert_eq!(ask(Directory::Path(&image.root().join("none")), Freshness::Exact), Err(Refusal::NotTracked));
    // For that the other one was left as it was.
    assert_eq!(ask(Directory::Path(&top), Freshness::Cached), Ok((false, 1000)));
    assert_eq!(ask(Directory::Path(&top), Freshness::Exact), Ok((true, 1070)));
    serving.end();
}

/// Where nothing can be told of what changes, that is said, and what can be done.
#[test]
fn an_overlay_is_refused_with_advice() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    for name in ["lower", "upper", "work", "over"] {
        fs::create_dir(image.root().join(name)).expect("a folder");
    }
    let at = |name: &str| image.root().join(name).display().to_string();
    let options = format!("lowerdir={},upperdir={},workdir={}", at("lower"), at("upper"), at("work"));
    run(Command::new("mount").args(["-t", "overlay", "overlay", "-o", &options, &at("over")]));
    let mut serve = onesweep(["serve", "--socket"]);
    serve.arg(image.beside("socket")).arg("--store").arg(image.beside("stores")).arg(at("over"));
    let refused = serve.output().expect("it runs");
    run(Command::new("umount").arg(at("over")));
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("name a path on ext2, ext3, ext4, XFS, btrfs, F2FS or tmpfs"), "{said}");
}

/// They have one store between them.
#[test]
fn a_file_system_beside_its_copy_is_refused_with_advice() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 64 << 20);
    image.unmount();
    let copy = Image::copy_of(Fs::Ext4, &image.file());
    image.mount();
    let mut serve = onesweep(["serve", "--socket"]);
    serve.arg(image.beside("socket")).arg("--store").arg(image.beside("stores"));
    let refused = serve.arg(image.root()).arg(copy.root()).output().expect("it runs");
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    let which = format!("{}: ", copy.root().display());
    assert!(said.lines().any(|line| line.contains(&which) && line.contains("by the same UUID")), "{said}");
}

/// A snapshot of a volume is one. What was made in the same second, under the same number, is told apart by that alone.
#[test]
fn an_xfs_beside_a_copy_with_another_uuid_is_tracked() {
    root_test!();
    let mut image = Image::new(Fs::Xfs, 512 << 20);
    fs::write(image.root().join("f"), [1; 100]).expect("a file");
    image.unmount();
    let mut copy = Image::copy_of(Fs::Xfs, &image.file());
    copy.unmount();
    run(Command::new("xfs_admin").args(["-U", "generate"]).arg(copy.device()));
    copy.mount();
    image.mount();
    fs::write(copy.root().join("g"), [1; 50]).expect("a file");
    let settings = format!("paths = [{:?}, {:?}]\n", image.root(), copy.root());
    let daemon = Daemon::start(&image, &settings, &[]);
    assert_eq!((daemon.asks(&image.root()), daemon.asks(&copy.root())), (Ok(100), Ok(150)));
    daemon.end();
}

/// Else it would be watched, and nobody would hear of it what is told.
#[test]
fn what_cannot_be_tracked_after_all_is_not_held() {
    root_test!();
    let (image, mut other) = (Image::new(Fs::Ext4, 64 << 20), Image::new(Fs::Ext4, 64 << 20));
    let (one, both) =
        (format!("paths = [{:?}]\n", image.root()), format!("paths = [{:?}, {:?}]\n", image.root(), other.root()));
    let mut daemon = Daemon::start(&image, &one, &[]);
    let stores = || -> Vec<PathBuf> {
        let entries = fs::read_dir(image.beside("stores")).expect("a folder");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    };
    let before = stores();
    daemon.reload(&both, " directories harvested in ");
    let store = stores().into_iter().find(|store| !before.contains(store)).expect("there is one more");
    daemon.reload(&one, "not tracked any more");
    fs::remove_file(&store).expect("it goes");
    fs::create_dir(&store).expect("a folder");
    // Why not.
    let told = daemon.reload(&both, &format!("{}: ", other.root().display()));
    assert!(told.contains(&store.display().to_string()), "{told}");
    other.unmount();
    fs::write(image.root().join("f"), [1; 100]).expect("a file");
    assert_eq!(daemon.asks(&image.root()), Ok(100));
    daemon.end();
}
