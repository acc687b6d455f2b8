//! A server that is started again finds out what has changed meanwhile, without a crawl.

use std::{
    fs,
    os::{fd::AsFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use onesweep_summary::{
    file_system::FileSystem,
    service::{
        client::Client,
        protocol::{Head, Question, Row},
        reach::Itself,
        server::{Served, Server},
    },
    store::{Batch, Store},
    summaries::{Freshness, Summaries},
    tracker::Fanotify,
    volume::Volume,
};

use crate::{
    image::{Fs, Image},
    run::{long, root_test, say, seed},
    serving::Serving,
    shuffled::Shuffled,
    tracked::du,
    tree::{Rng, sync},
};

/// Some hundred directories of a few files, some of which have names in several.
pub(crate) fn forest(root: &Path) -> Vec<PathBuf> {
    let (mut directories, mut rng) = (vec![root.to_owned()], Rng::new(seed()));
    for one in 0..20 {
        for two in 0..20 {
            let directory = root.join(format!("a{one}/b{two}"));
            fs::create_dir_all(&directory).expect("a directory");
            for file in 0..3 {
                let size = rng.below(30_000) as usize;
                fs::write(directory.join(format!("f{file}")), rng.bytes(size)).expect("a file");
            }
            directories.push(directory);
        }
        directories.push(root.join(format!("a{one}")));
        let linked = root.join(format!("a{one}/b3/f1"));
        fs::hard_link(linked, root.join(format!("a{}/l", one / 2)))
            .or_else(|_| fs::create_dir(root.join("spare")))
            .ok();
    }
    directories
}

/// Waits until what was changed just now is so old that its time says something, and until btrfs counts a further transaction.
pub(crate) fn wait_until_old(image: &Image) {
    sync(&image.root());
    let seconds = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let now = seconds();
    while seconds() < now + 3 {
        thread::sleep(Duration::from_millis(50));
    }
    fs::write(image.root().join("mark"), b"").expect("a file");
    sync(&image.root());
}

/// What a server answers for a directory: allocated bytes, bytes, inodes, as [`du`] tells them.
fn asked(socket: &Path, directory: &Path, freshness: Freshness) -> (Head, [i64; 3]) {
    let mut client = Client::connect(socket).expect("a server");
    ask(&mut client, directory, freshness)
}

fn ask(client: &mut Client, directory: &Path, freshness: Freshness) -> (Head, [i64; 3]) {
    let opened = fs::File::open(directory).expect("a directory");
    let mut rows: Vec<Row> = Vec::new();
    let question = Question { freshness, ..Question::plain() };
    let head = client.ask(opened.as_fd(), &question, |row| rows.push(row)).expect("an answer").expect("no refusal");
    let total = rows.last().expect("a line").total;
    (head, [total.allocated, total.bytes + total.directory_bytes, total.inodes()])
}

/// How many directories it read to catch up, and how many there were, as it says.
pub(crate) fn read_of(said: &str) -> (u64, u64) {
    let line = said.lines().find(|line| line.contains("directories harvested")).unwrap_or_else(|| panic!("{said}"));
    let mut numbers = line.split(' ').filter_map(|word| word.parse().ok());
    (numbers.next().expect("a number"), numbers.next().expect("a number"))
}

fn all_agree(serving: &Serving, directories: &[PathBuf], when: &str) {
    let mut client = Client::connect(&serving.socket).expect("a server");
    for directory in directories.iter().filter(|directory| directory.exists()) {
        // By what was told alone; blocks may not have settled.
        let (head, answer) = ask(&mut client, directory, Freshness::Exact);
        assert!(head.exact, "{when}: nobody writes");
        assert_eq!(answer[1..], du(directory)[1..], "{} by what was told {when}", directory.display());
    }
    for directory in directories.iter().filter(|directory| directory.exists()) {
        let (head, answer) = ask(&mut client, directory, Freshness::Synced);
        assert!(head.exact, "{when}: nobody writes");
        assert_eq!(answer, du(directory), "{} {when}", directory.display());
    }
}

fn stopped_and_started(fs: Fs) {
    root_test!();
    let image = Image::new(fs, 1 << 30);
    let mut directories = forest(&image.root());
    wait_until_old(&image);
    let serving = Serving::start(&image);
    let (head, answer) = asked(&serving.socket, &image.root(), Freshness::Exact);
    assert!(head.exact);
    assert_eq!(answer, du(&image.root()));
    let all = directories.len() as u64;
    let (first, _) = read_of(&serving.end());
    assert!(first >= all, "{first} of {all}");
    // One of them with a kill.
    let rounds = if long() { 20 } else { 2 };
    for round in 0..rounds {
        let serving = Serving::start(&image);
        asked(&serving.socket, &image.root(), Freshness::Exact);
        let mut tree = Shuffled::new(image.root(), seed() + round, fs.has_reflinks());
        tree.directories.extend(directories.iter().filter(|directory| directory.exists()).cloned());
        let mut log = Vec::new();
        // Some of it is told, and never harvested; what comes after is told to nobody.
        log.extend((0..20).map(|_| tree.step()));
        let is_killed = round % 2 == 1;
        if is_killed {
            serving.kill_when_stored()
        } else {
            serving.end()
        };
        log.extend((0..20).map(|_| tree.step()));
        directories = tree.directories.clone();
        drop(tree);
        let serving = Serving::start(&image);
        // The first question waits until it is known.
        let (_, answer) = asked(&serving.socket, &image.root(), Freshness::Exact);
        let when = format!("in round {round}, killed: {is_killed}, after\n{}", log.join("\n"));
        assert_eq!(answer[1..], du(&image.root())[1..], "{when}");
        let (head, answer) = asked(&serving.socket, &image.root(), Freshness::Synced);
        assert_eq!((head.exact, answer), (true, du(&image.root())), "{when}");
        all_agree(&serving, &directories, &when);
        wait_until_old(&image);
        let said = serving.end();
        let (read, known) = read_of(&said);
        assert!(!said.contains("anew"), "{said}");
        assert!(read > 0 && read * 3 < known, "{read} of {known} {when}\n{said}");
        say(&format!("{}: {read} of {known} directories read after 40 changes, killed: {is_killed}", fs.name()));
    }
}

#[test]
fn ext4_catches_up() {
    stopped_and_started(Fs::Ext4);
}

#[test]
fn ext4_with_data_in_inodes_catches_up() {
    stopped_and_started(Fs::Ext4Inline);
}

/// Its inodes tell whole seconds.
#[test]
fn ext2_catches_up() {
    stopped_and_started(Fs::Ext2);
}

#[test]
fn xfs_catches_up() {
    stopped_and_started(Fs::Xfs);
}

#[test]
fn btrfs_catches_up() {
    stopped_and_started(Fs::Btrfs);
}

/// The file system was somewhere else meanwhile: nothing of it is in memory.
#[test]
fn a_file_system_that_was_unmounted_is_caught_up_with() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let said = caught_up_after_being_away(fs);
        let (read, known) = read_of(&said);
        assert!(read <= 40 && known > 350, "{}: {said}", fs.name());
    }
}

/// What the server says in the end.
fn caught_up_after_being_away(kind: Fs) -> String {
    let mut image = Image::new(kind, 1 << 30);
    let directories = forest(&image.root());
    wait_until_old(&image);
    let serving = Serving::start(&image);
    asked(&serving.socket, &image.root(), Freshness::Exact);
    serving.end();
    image.cold();
    fs::write(image.root().join("a3/b4/f1"), vec![1; 100_000]).expect("a file");
    fs::rename(image.root().join("a5/b1"), image.root().join("a6/moved")).expect("a rename");
    fs::remove_dir_all(image.root().join("a7")).expect("it goes");
    image.cold();
    let serving = Serving::start(&image);
    all_agree(&serving, &directories, "after it was away");
    serving.end()
}

#[test]
fn a_clock_that_was_set_back_leads_to_a_full_harvest() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let image = Image::new(fs, 512 << 20);
        forest(&image.root());
        wait_until_old(&image);
        let serving = Serving::start(&image);
        asked(&serving.socket, &image.root(), Freshness::Exact);
        serving.end();
        // As if the clock had stood an hour later then.
        let stores: Vec<PathBuf> =
            fs::read_dir(image.beside("stores")).expect("stores").map(|entry| entry.expect("one").path()).collect();
        let store = Store::open(&stores[0]).expect("the store");
        let mut facts = store.facts().expect("its facts");
        facts.moment.seconds += 3600;
        store.commit(&Batch::default(), &facts, true).expect("a commit");
        drop(store);
        let serving = Serving::start(&image);
        let (head, answer) = asked(&serving.socket, &image.root(), Freshness::Exact);
        assert_eq!((head.exact, answer), (true, du(&image.root())));
        let said = serving.end();
        let (read, known) = read_of(&said);
        assert!(said.contains("harvested anew: the clock was set back") && read >= known, "{said}");
    }
}

/// While it finds out what has changed, what is stored can be asked, and all other questions wait.
#[test]
fn questions_wait_until_it_is_known() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    fs::write(image.root().join("f"), vec![1; 50_000]).expect("a file");
    sync(&image.root());
    let opened = || {
        let volume: Arc<dyn FileSystem> = Arc::new(Volume::of(&image.root()).expect("a file system"));
        let tracker = Fanotify::start(volume.clone()).expect("it is watched");
        let store = Store::open(&image.beside("store")).expect("a store");
        let root = volume.root();
        Summaries::open(store, (volume, tracker), root, b"test").expect("summaries")
    };
    let mut before = opened();
    before.settle(before.root()).expect("a harvest");
    before.close().expect("an end");
    drop(before);
    let then = du(&image.root());
    fs::write(image.root().join("g"), vec![1; 500_000]).expect("a file");
    sync(&image.root());
    let served = Served::new(image.root(), opened());
    let server = Arc::new(Server::new(vec![Arc::clone(&served)], Box::new(Itself), Vec::new()));
    let socket = image.beside("own");
    let listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    {
        let server = Arc::clone(&server);
        thread::spawn(move || {
            for connection in listener.incoming().take(2) {
                let (server, connection): (_, UnixStream) = (Arc::clone(&server), connection.expect("one"));
                thread::spawn(move || server.converse(&connection));
            }
        });
    }
    let (tell, told) = mpsc::channel();
    let (root, at) = (image.root(), socket.clone());
    let waiting = thread::spawn(move || {
        tell.send(None).expect("somebody listens");
        tell.send(Some(asked(&at, &root, Freshness::Exact))).expect("somebody listens");
    });
    assert_eq!(told.recv().expect("it begins"), None);
    let (head, answer) = asked(&socket, &image.root(), Freshness::Cached);
    assert_eq!((head.exact, answer), (false, then));
    assert!(told.try_recv().is_err(), "it waits");
    served.catch_up(|_, done| done.expect("it is known")).expect("it is written");
    let (head, answer) = told.recv().expect("an answer").expect("it is one");
    assert_eq!((head.exact, answer), (true, du(&image.root())));
    waiting.join().expect("it ends");
}
