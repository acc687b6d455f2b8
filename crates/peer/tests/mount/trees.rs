//! Files of a tree while servers fail in each of many ways, come back, and are owed more than is remembered.

use std::{
    fs::{self, File},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use onesweep_peer::{
    client::{Peers, Settings},
    id::TrustDomain,
    index::tree::{FileKey, TreeIndex, hashes},
    mount::{Tree, TreeSettings},
    race::Policy,
    serve::Server,
};
use onesweep_sys::{
    cache::drop_cached,
    files::{file_system, statx_fd},
    inode,
};

use crate::{
    faults::{PATIENCE, pairs},
    figure,
    relay::{Relay, Treatment},
    start_server,
};

const BLOCK: usize = 4096;
/// Whole blocks, and a part of one.
const SIZES: [usize; 5] = [1, BLOCK, 3 * BLOCK + 7, 9 * BLOCK, 20 * BLOCK + 100];
/// Files that are remembered where no server is there, as the documentation has it.
const REMEMBERED: usize = 256;

fn domain() -> TrustDomain {
    TrustDomain::from_key([7; 32])
}

struct Shown {
    tree: Tree,
    relay: Relay,
    /// Each file with what it holds.
    files: Vec<(PathBuf, Vec<u8>)>,
    direct: Peers,
    _server: Server,
    _dir: tempfile::TempDir,
}

impl Shown {
    fn counted(&self, name: &str) -> u64 {
        figure(&self.tree.metrics(), &format!("{name}_total "))
    }

    fn waiting(&self) -> u64 {
        figure(&self.tree.metrics(), "offers_waiting ")
    }

    /// Each file as a whole, none of which is in memory, is what the file system has.
    fn reads_are_right(&self, what: &str) {
        for (path, content) in &self.files {
            let file = Arc::new(OwnedFd::from(File::open(path).unwrap()));
            drop_cached(file.as_fd(), 0, 0).unwrap();
            let read = self.tree.file(file, None).unwrap().read_and_wait(0, content.len() + BLOCK);
            assert!(read.unwrap() == *content, "{what}: {} has other bytes than the disk", path.display());
        }
        assert_eq!(self.counted("reads_failed"), 0, "{what}");
    }

    /// Reads until a server answers again, by a policy that waits for it.
    fn comes_back(&self, what: &str) {
        let (before, until) = (self.counted("reads_remote"), Instant::now() + PATIENCE);
        while self.counted("reads_remote") == before {
            assert!(Instant::now() < until, "{what}: no server is asked any more: {}", self.tree.metrics());
            self.reads_are_right(what);
        }
    }
}

fn key_of(path: &Path) -> FileKey {
    let file = File::open(path).unwrap();
    FileKey::new(&statx_fd(file.as_fd()).unwrap(), inode::generation(file.as_fd()).unwrap())
}

/// A tree of files of these sizes, which an index and a server know.
fn shown(sizes: &[usize], settings: TreeSettings) -> Shown {
    // Beside what is built, since nothing of a file system in memory could be read from elsewhere.
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let root = dir.path().join("tree");
    fs::create_dir(&root).unwrap();
    let server = start_server();
    let relay = Relay::before(server.address().to_string());
    let direct = Peers::connect([server.address().to_string()], Settings::plain(domain())).unwrap();
    let peers = Peers::connect([relay.address.clone()], Settings::plain(domain())).unwrap();
    assert!(direct.wait_until_usable(PATIENCE) && peers.wait_until_usable(PATIENCE));
    let (mut files, mut known) = (Vec::new(), Vec::new());
    for (number, size) in sizes.iter().enumerate() {
        let content: Vec<u8> = (0..*size).map(|at| (at / BLOCK * 3 + number * 11 + at % 253) as u8 | 1).collect();
        let path = root.join(format!("file{number}"));
        fs::write(&path, &content).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        content.chunks(BLOCK).for_each(|block| _ = direct.put_and_wait(&domain().hash(block), block).unwrap());
        known.push((key_of(&path), hashes(&domain(), BLOCK as u32, &content)));
        files.push((path, content));
    }
    let of = file_system(File::open(&root).unwrap().as_fd()).unwrap().id;
    let index = TreeIndex::create(&dir.path().join("index"), BLOCK as u32, of, &domain()).unwrap();
    index.keep(&known).unwrap();
    let tree = Tree::start(File::open(&root).unwrap().into(), index, peers, domain(), settings).unwrap();
    Shown { tree, relay, files, direct, _server: server, _dir: dir }
}

#[test]
fn whatever_becomes_of_a_server_files_are_the_file_systems_and_it_is_asked_again() {
    for (policy, treatment) in pairs() {
        let what = format!("{policy:?} {treatment:?}");
        let shown = shown(&SIZES, TreeSettings::new(policy));
        let waits = matches!(policy, Policy::RemoteFirst | Policy::QuietDisk);
        if waits {
            shown.comes_back(&what);
        }
        shown.relay.treat(treatment);
        shown.reads_are_right(&what);
        shown.relay.treat(Treatment::Pass);
        // As when a link comes back; else it would be probed some time later.
        shown.tree.network_changed();
        if waits {
            shown.comes_back(&what);
        }
        shown.reads_are_right(&what);
        shown.tree.end().unwrap();
    }
}

/// What is owed of files has a bound. What it loses is counted, no byte of before is read of it, and all else is sent.
#[test]
fn files_that_are_owed_and_too_many_are_counted_and_cost_no_byte() {
    const TOO_MANY: usize = 20;
    let settings = TreeSettings { write_through: true, ..TreeSettings::new(Policy::RemoteFirst) };
    let mut shown = shown(&[100; REMEMBERED + TOO_MANY], settings);
    shown.relay.treat(Treatment::Cut);
    for (number, (path, content)) in shown.files.iter_mut().enumerate() {
        let file = File::options().read(true).write(true).open(&*path).unwrap();
        let key = key_of(path);
        shown.tree.before_change(key.inode);
        // As long as it was: what a server has of before would fit.
        *content = format!("{number:0100}").into_bytes();
        file.write_all_at(content, 0).unwrap();
        file.sync_all().unwrap();
        shown.tree.changed(key.inode, &file.into(), 0..100);
        shown.tree.closed(key.inode);
    }
    let until = Instant::now() + PATIENCE;
    let let_go = || shown.counted("offers_let_go");
    while shown.waiting() > REMEMBERED as u64 {
        assert!(Instant::now() < until, "{}", shown.tree.metrics());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!((shown.waiting(), let_go()), (REMEMBERED as u64, TOO_MANY as u64));
    shown.reads_are_right("no server");

    shown.relay.treat(Treatment::Pass);
    shown.tree.network_changed();
    while shown.waiting() > 0 {
        assert!(Instant::now() < until, "{}", shown.tree.metrics());
        std::thread::sleep(Duration::from_millis(5));
    }
    let hashes: Vec<_> = shown.files.iter().map(|(_, content)| domain().hash(content)).collect();
    let there = shown.direct.has_and_wait(&hashes).unwrap().into_iter().filter(|is_there| *is_there).count();
    assert_eq!((there, let_go()), (REMEMBERED, TOO_MANY as u64), "all that is remembered, and no more");
    shown.reads_are_right("a server that lacks some");
}
