//! Declared summaries where the rights are the warden's.

use std::{
    fs::{self, File},
    os::{
        fd::AsFd,
        unix::{
            fs::PermissionsExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use onesweep_summary::{
    custom::declare::Declared,
    file_system::FileSystem,
    service::{
        breakdown::Breakdown,
        client::Client,
        listing::Largest,
        pages::Page,
        protocol::Question,
        reach::Itself,
        server::{Served, Server},
    },
    store::Store,
    summaries::Summaries,
    tracker::Fanotify,
    volume::Volume,
};

use super::{Daemon, KEPT, USER, of_threads};
use crate::{
    image::{Fs, Image},
    run::root_test,
};

/// Who commands run as.
const RUNS: u32 = 54_322;
/// What the warden keeps besides where commands are declared: `CAP_KILL`, `CAP_SETGID`, `CAP_SETUID`.
const KEPT_FOR_COMMANDS: u64 = 1 << 5 | 1 << 6 | 1 << 7;

fn by(name: &str) -> Question {
    Question { by: Some(name.to_owned()), ..Question::plain() }
}

fn declare(image: &Image, text: &str) -> PathBuf {
    let path = image.beside("summaries.toml");
    fs::write(&path, text).expect("a file");
    // The daemon needs not read it: the warden does.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
    fs::set_permissions(image.beside(""), fs::Permissions::from_mode(0o755)).expect("a mode");
    path
}

impl Daemon {
    fn by(&self, path: &Path, name: &str) -> Result<Breakdown, String> {
        let directory = File::open(path).expect("a directory");
        let mut client = Client::connect(&self.socket).expect("a connection");
        let answer = client.break_down(directory.as_fd(), &by(name)).expect("a connection");
        answer.map_err(|refusal| format!("{refusal:?}"))
    }

    /// What an answer says of a key.
    fn says(&self, path: &Path, name: &str, key: &str) -> Option<i64> {
        let breakdown = self.by(path, name).expect("an answer");
        let share = breakdown.shares.iter().find(|share| share.key.clone().into_bytes() == key.as_bytes())?;
        share.value.inodes.or(share.value.value)
    }
}

/// Commands run as who is named, projects of others' files are read, and the daemon has no rights by that.
#[test]
fn the_warden_runs_commands_and_the_daemon_stays_without_rights() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let hidden = image.root().join("hidden");
    fs::create_dir(&hidden).expect("a folder");
    fs::write(hidden.join("f"), [1; 1000]).expect("a file");
    fs::set_permissions(hidden.join("f"), fs::Permissions::from_mode(0o600)).expect("a mode");
    fs::set_permissions(&hidden, fs::Permissions::from_mode(0o700)).expect("a mode");
    let program = image.beside("who");
    let script = "#!/bin/sh\nall=$(cat); case $all in *bad*) exit 3;; esac\necho \"{\\\"$(id -u)\\\": 1}\"\n";
    fs::write(&program, script).expect("a file");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("a mode");
    let owner = "[owner]\nby = \"owner\"\n[project]\nby = \"project\"\n";
    let who = format!("[who]\nby = \"command\"\ncommand = [{program:?}]\nuser = {RUNS}\nmerge = \"sum\"\n");
    for has_commands in [false, true] {
        let file = declare(&image, &if has_commands { format!("{owner}{who}") } else { owner.to_owned() });
        let settings = format!("paths = [{:?}]\nuser = {USER}\nsummaries = {file:?}\n", image.root());
        let daemon = Daemon::start(&image, &settings, &[]);
        let [serving, warden] = daemon.processes()[..] else { panic!("two processes: {:?}", daemon.processes()) };
        let kept = format!("{:016x}", if has_commands { KEPT | KEPT_FOR_COMMANDS } else { KEPT });
        for name in ["CapEff", "CapPrm", "CapBnd"] {
            let found = of_threads(warden, name);
            assert!(found.iter().all(|caps| *caps == kept), "{name} of the warden: {found:?}");
            assert!(of_threads(serving, name).iter().all(|caps| *caps == format!("{:016x}", 0)), "{name}");
        }
        // The directory and the file.
        assert_eq!(daemon.says(&hidden, "owner", "0"), Some(2));
        assert_eq!(daemon.says(&hidden, "project", "0"), Some(2), "it isn't unknown");
        if has_commands {
            assert_eq!(daemon.says(&hidden, "who", &RUNS.to_string()), Some(1));
            fs::write(hidden.join("bad"), "").expect("a file");
            let breakdown = daemon.by(&hidden, "who").expect("an answer");
            assert_eq!((breakdown.unknown, breakdown.shares.len()), (1, 0), "{breakdown:?}");
            assert_eq!(breakdown.unknown_why.as_deref(), Some("it ended with exit status: 3"), "{breakdown:?}");
            fs::remove_file(hidden.join("bad")).expect("it goes");
            assert_eq!(daemon.says(&hidden, "who", &RUNS.to_string()), Some(1));
        }
        daemon.end();
    }
}

/// Other summaries are kept from a reload on; commands that are new take a restart, for the rights to run them are gone.
#[test]
fn summaries_are_declared_again() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let (root, owner, size) = (image.root(), "[owner]\nby = \"owner\"\n", "[size]\nby = \"size\"\n");
    fs::write(root.join("f"), [1; 1000]).expect("a file");
    let file = declare(&image, owner);
    let settings = format!("paths = [{root:?}]\nuser = {USER}\nsummaries = {file:?}\n");
    let mut daemon = Daemon::start(&image, &settings, &[]);
    assert!(daemon.by(&root, "size").is_err());
    let again = daemon.reload(&settings, "the settings were read again");
    assert!(!again.contains("tracked"), "{again}");
    declare(&image, &format!("{owner}{size}"));
    let told = daemon.reload(&settings, " directories harvested in ");
    assert!(told.contains("harvested anew: other summaries are declared"), "{told}");
    assert_eq!(daemon.says(&root, "size", "1k"), Some(1));
    fs::write(root.join("g"), [1; 2000]).expect("a file");
    assert_eq!(daemon.says(&root, "size", "1k"), Some(2));
    let command = "[c]\nby = \"command\"\ncommand = [\"/bin/true\"]\nuser = 7\nmerge = \"sum\"\n";
    for (text, why) in [
        ("[owner]\nby = \"colour\"\n", "[owner]: unknown variant `colour`"),
        (command, "a summary by a command is declared now: that takes a restart"),
    ] {
        declare(&image, text);
        let told = daemon.reload(&settings, "the settings stay as they are");
        assert!(told.contains(why), "{told}");
        assert_eq!(daemon.says(&root, "size", "1k"), Some(2));
    }
    // Without any, all else goes on.
    declare(&image, "");
    daemon.reload(&settings, " directories harvested in ");
    assert!(daemon.by(&root, "owner").unwrap_err().contains("no summaries are declared"));
    assert_eq!(daemon.asks(&root), Ok(3000));
    daemon.end();
}

/// Where nothing has changed, all kinds of questions are answered while others look at the same.
#[test]
fn clean_questions_of_all_kinds_share() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    fs::create_dir(image.root().join("d")).expect("a folder");
    fs::write(image.root().join("d/f"), [1; 1000]).expect("a file");
    let declared = Arc::new(Declared::parse("[owner]\nby = \"owner\"\n").expect("it is understood"));
    let volume = Volume::of(&image.root()).expect("a volume").with_summaries(Some(declared));
    let volume: Arc<dyn FileSystem> = Arc::new(volume);
    let tracker = Fanotify::start(Arc::clone(&volume)).expect("it is watched");
    let (store, top) = (Store::open(&image.beside("store")).expect("a store"), volume.root());
    let served = Served::new(image.root(), Summaries::open(store, (volume, tracker), top, b"x").expect("summaries"));
    served.catch_up(|_, done| done.expect("it is known")).expect("it is written");
    let server = Arc::new(Server::new(vec![Arc::clone(&served)], Box::new(Itself), Vec::new()));
    let socket = image.beside("own-socket");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let ended = Arc::new(AtomicBool::new(false));
    let has_ended = Arc::clone(&ended);
    let serving = thread::spawn(move || {
        thread::scope(|scope| {
            for connection in listener.incoming().flatten().take_while(|_| !has_ended.load(Ordering::SeqCst)) {
                let server = &server;
                scope.spawn(move || server.converse(&connection));
            }
        });
    });
    let ask_all = {
        let (socket, root) = (socket.clone(), image.root());
        move || {
            let directory = File::open(&root).expect("a directory");
            let mut client = Client::connect(&socket).expect("a connection");
            let (fd, plain) = (directory.as_fd(), Question::plain());
            let kinds = [
                client.ask(fd, &plain, |_| {}).expect("a connection").map(|head| head.exact),
                client.break_down(fd, &by("owner")).expect("a connection").map(|one| one.exact),
                client.list(fd, &plain, Largest { limit: 5, ..Largest::default() }).expect("one").map(|one| one.exact),
                client
                    .page(fd, &plain, Page { limit: 9, ..Page::default() }, |_| {})
                    .expect("one")
                    .map(|head| head.lines == 3),
            ];
            kinds.map(|answer| answer.expect("an answer"))
        }
    };
    // Mounts of others, and blocks that have settled, are looked at by one alone; so more than once.
    let mut answers = Vec::new();
    while answers.len() < 10 && !answers.contains(&Ok([true; 4])) {
        // The first question has the directory noted.
        assert_eq!(ask_all(), [true; 4]);
        let looked_at = served.summaries().shared();
        let ((tell, told), ask_all) = (mpsc::channel(), ask_all.clone());
        let asking = thread::spawn(move || tell.send(ask_all()));
        // Who has to wait waits until `looked_at` goes.
        answers.push(told.recv_timeout(Duration::from_secs(10)));
        drop(looked_at);
        let _ = asking.join();
    }
    // Nothing of the file system stays open.
    ended.store(true, Ordering::SeqCst);
    drop(UnixStream::connect(&socket));
    serving.join().expect("no panic");
    drop(served);
    assert!(answers.contains(&Ok([true; 4])), "{answers:?}");
}
