//! `onesweep peer mount --dir` through the kernel: the same tree, read from servers where that is quicker, and never an old byte,
//! whoever writes and whatever becomes of servers.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use onesweep_peer::wire::{Answer, FRAME_BYTES_MAX, Request, Welcome, request};
use rustix::process::Signal;

use crate::{
    image::{Fs, Image, mounts_below},
    peer::{Place, Server, metrics, settle},
    run::{figure, finish, hold, interruptible, long, onesweep, output, root_test, run, seed, skipped, summary, text},
    tree::{self, Rng, Varied},
};

const BLOCK: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(60);
/// From this size on the kernel may read by itself.
const LARGE: usize = 1 << 20;

/// A tree that is shown through the race until this is dropped.
struct Shown {
    child: Child,
    dir: PathBuf,
}

impl Shown {
    fn start(place: &Place, source: &Path, dir: &Path, options: &[&str]) -> Self {
        fs::create_dir_all(dir).expect("a place");
        let mut command = interruptible(["peer", "mount", "--key"]);
        command.arg(place.path("key")).arg("--index").arg(place.path("index")).args(options);
        let mut child = command.arg("--dir").arg(source).arg(dir).stderr(Stdio::piped()).spawn().expect("a mount");
        let mut said = BufReader::new(child.stderr.take().expect("what it says")).lines();
        let mut before = Vec::new();
        loop {
            let line = said.next().unwrap_or_else(|| panic!("it did not come up: {before:?}")).expect("a line");
            if line.contains(" is shown at ") {
                break;
            }
            before.push(line);
        }
        thread::spawn(move || said.for_each(drop));
        Self { child, dir: dir.to_owned() }
    }

    /// The same when a server is reached.
    fn with_server(place: &Place, source: &Path, dir: &Path, server: &str, options: &[&str]) -> Self {
        let shown = Self::start(place, source, dir, &[&["--server", server][..], options].concat());
        wait_until("the server is not reached", || shown.value("server_usable{") == 1);
        shown
    }

    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal).expect("it is ours");
    }

    /// Ended in order, it leaves nothing.
    fn end(mut self, signal: Signal) {
        self.signal(signal);
        assert_eq!(self.child.wait().expect("it ends").code(), Some(0));
        assert!(mounts_below(&self.dir).is_empty());
    }

    fn value(&self, name: &str) -> u64 {
        let told = metrics(&self.dir);
        let name = format!("onesweep_peer_mount_{name}");
        let line = told.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or_else(|| panic!("{name}: {told}"));
        line.rsplit(' ').next().expect("a value").parse().expect("a number")
    }

    fn counted(&self, name: &str) -> u64 {
        self.value(&format!("{name}_total "))
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
        // What it left, if anything.
        let _ = Command::new("umount").arg("--lazy").arg(&self.dir).stderr(Stdio::null()).status();
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn push(place: &Place, tree: &Path, server: &Server) -> u64 {
    let mut command = onesweep(["peer", "push", "--json", "--server", &server.address, "--key"]);
    let told = text(&finish(command.arg(place.path("key")).arg(tree), 0).stdout);
    figure(&serde_json::from_str(&told).expect("JSON"), "sent_blocks")
}

/// Indexed, and on a server; nothing of it is in memory.
fn prepared(place: &Place, image: &mut Image) -> Server {
    let root = image.root().join("tree");
    tree::sync(&root);
    settle();
    let made = place.index(&[], &root, 0);
    assert_eq!(figure(&made, "unsettled_files"), 0, "{made}");
    let server = Server::start(place);
    push(place, &root, &server);
    image.cold();
    server
}

/// Files of some sizes, each with bytes of its own.
fn files(root: &Path, sizes: &[usize], seed: u64) -> BTreeMap<String, Vec<u8>> {
    fs::create_dir_all(root).expect("a folder");
    let mut rng = Rng::new(seed);
    let mut all = BTreeMap::new();
    for (number, size) in sizes.iter().enumerate() {
        let (name, content) = (format!("file{number:02}"), rng.bytes(*size));
        fs::write(root.join(&name), &content).expect("a file");
        all.insert(name, content);
    }
    all
}

const SIZES: [usize; 6] = [1, 100, BLOCK, 3 * BLOCK + 7, 200_000, LARGE + 5 * BLOCK + 123];

#[test]
fn a_tree_through_the_race_is_the_same_and_the_disk_is_spared() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let (place, mut image) = (Place::new(), Image::new(fs, 400 << 20));
        let (root, dir) = (image.root().join("tree"), image.beside("shown"));
        tree::varied(&root, fs, &Varied { files: 120, sparse: 8 << 20 }, 8);
        fs::write(root.join("large"), Rng::new(3).bytes((3 << 20) + 123)).expect("a file");
        let server = prepared(&place, &mut image);
        let trace = place.path("trace");
        let options = ["--policy", "quiet-disk", "--trace", trace.to_str().expect("text")];
        let shown = Shown::with_server(&place, &root, &dir, &server.address, &options);
        let through = tree::manifest(&dir);
        let (remote, local) = (shown.counted("read_bytes_remote"), shown.counted("read_bytes_local"));
        assert!(remote > 0, "{}: {local} bytes came from the disk", fs.name());
        assert_eq!((shown.counted("reads_failed"), shown.counted("answers_wrong")), (0, 0));
        let there = tree::manifest(&root);
        for (name, entry) in &there {
            assert_eq!(through.get(name), Some(entry), "{}: {}", fs.name(), name.display());
        }
        assert_eq!(through.len(), there.len());
        assert!(fs::write(dir.join("new"), "x").is_err(), "it is only to be read");
        let large = fs::metadata(root.join("large")).expect("a file").ino().to_string();
        shown.end(Signal::INT);
        let trace = fs::read_to_string(&trace).expect("the trace");
        let mut lines = trace.lines().map(|line| line.split('\t').collect::<Vec<_>>());
        assert_eq!(lines.next().expect("a head"), ["us", "inode", "at", "bytes", "from", "why", "took_us", "servers"]);
        let of_large: u64 =
            lines.filter(|line| line[1] == large).map(|line| line[3].parse::<u64>().expect("a number")).sum();
        assert!(of_large >= (3 << 20) + 123, "{trace}");
    }
}

#[test]
fn what_changes_behind_the_race_is_read_anew() {
    root_test!();
    let (place, mut image) = (Place::new(), Image::new(Fs::Ext4, 128 << 20));
    let (root, dir) = (image.root().join("tree"), image.beside("shown"));
    let mut expected = files(&root, &SIZES, 5);
    let server = prepared(&place, &mut image);
    // By a policy that waits long enough for the server, however busy the machine is.
    let shown = Shown::with_server(&place, &root, &dir, &server.address, &["--policy", "quiet-disk"]);
    let is_same = |expected: &BTreeMap<String, Vec<u8>>| {
        expected.iter().all(|(name, content)| fs::read(dir.join(name)).expect("it is read") == *content)
    };
    assert!(is_same(&expected));
    let answered = ["remote", "local", "memory"].map(|by| shown.counted(&format!("reads_{by}")));
    assert!(answered[0] > 0, "remote, local, memory: {answered:?}");
    // As many bytes, and the mtime of before: the ctime tells.
    for (number, (name, content)) in expected.iter_mut().enumerate() {
        let path = root.join(name);
        let before = fs::metadata(&path).expect("a file").modified().expect("a time");
        let file = File::options().write(true).open(&path).expect("a file");
        let at = content.len() / 2;
        content[at] ^= 1 + number as u8;
        file.write_all_at(&content[at..=at], at as u64).expect("it is written");
        file.set_modified(before).expect("its time");
    }
    wait_until("old bytes stay", || is_same(&expected));
    // One that is longer, one that is shorter, one that is another.
    expected.get_mut("file03").expect("a file").truncate(BLOCK + 1);
    expected.get_mut("file04").expect("a file").extend([7; 9999]);
    for name in ["file03", "file04"] {
        fs::write(root.join(name), &expected[name]).expect("it is written");
    }
    let other = vec![9; expected["file05"].len()];
    fs::write(root.join("other"), &other).expect("a file");
    fs::rename(root.join("other"), root.join("file05")).expect("a name");
    expected.insert("file05".into(), other);
    wait_until("old bytes stay", || is_same(&expected));
    shown.end(Signal::TERM);
    image.cold();
    let shown = Shown::with_server(&place, &root, &dir, &server.address, &["--policy", "quiet-disk"]);
    assert!(is_same(&expected), "what the server has of before came back");
    shown.end(Signal::TERM);
}

#[test]
fn what_is_written_through_the_race_is_read_and_becomes_known_again() {
    root_test!();
    let (place, mut image) = (Place::new(), Image::new(Fs::Ext4, 128 << 20));
    let (root, dir) = (image.root().join("tree"), image.beside("shown"));
    let mut expected = files(&root, &SIZES, 6);
    // One that is in memory, which the kernel may read and write by itself.
    expected.insert("hot".into(), Rng::new(60).bytes(2 * LARGE));
    fs::write(root.join("hot"), &expected["hot"]).expect("a file");
    let server = prepared(&place, &mut image);
    let writing = ["--policy", "quiet-disk", "--read-write", "--share"];
    let shown = Shown::with_server(&place, &root, &dir, &server.address, &writing);
    assert!(fs::read(root.join("hot")).expect("it is read") == expected["hot"]);
    for (name, content) in &mut expected {
        // In its middle, while it is read.
        let file = File::options().read(true).write(true).open(dir.join(name)).expect("a file");
        let mut read = vec![0; content.len()];
        file.read_exact_at(&mut read, 0).expect("it is read");
        assert!(read == *content, "{name}");
        let at = content.len() / 3;
        let end = content.len().min(at + 5000);
        content[at..end].fill(0x5a);
        file.write_all_at(&content[at..end], at as u64).expect("it is written");
        file.read_exact_at(&mut read, 0).expect("it is read");
        assert!(read == *content, "{name}: old bytes were served");
    }
    assert_eq!(shown.counted("index_forgotten"), expected.len() as u64);
    // Cut, and made anew.
    let file = File::options().write(true).open(dir.join("file04")).expect("a file");
    file.set_len(150_000).expect("it is cut");
    drop(file);
    expected.get_mut("file04").expect("a file").truncate(150_000);
    fs::write(dir.join("file03"), "anew").expect("it is written");
    expected.insert("file03".into(), b"anew".to_vec());
    for (name, content) in &expected {
        assert!(fs::read(dir.join(name)).expect("it is read") == *content, "{name}");
        assert!(fs::read(root.join(name)).expect("it is read") == *content, "{name} is not in the source");
    }
    shown.end(Signal::TERM);
    image.cold();
    let shown = Shown::with_server(&place, &root, &dir, &server.address, &["--policy", "quiet-disk"]);
    for (name, content) in &expected {
        assert!(fs::read(dir.join(name)).expect("it is read") == *content, "{name}: old bytes came back");
    }
    shown.end(Signal::TERM);
    let checked = place.index(&["--check"], &root, 0);
    assert_eq!(figure(&checked, "stale"), 0, "{checked}");
}

/// What is written by the daemon and by the kernel itself, in parts, cut, made longer and made anew goes to the server when it is
/// closed, or when the server is there again.
#[test]
fn what_is_written_through_the_race_goes_to_the_server_when_it_is_to() {
    root_test!();
    let (place, mut image) = (Place::new(), Image::new(Fs::Ext4, 256 << 20));
    let (root, dir) = (image.root().join("tree"), image.beside("shown"));
    let mut expected = files(&root, &SIZES, 16);
    expected.insert("hot".into(), Rng::new(61).bytes(2 * LARGE));
    fs::write(root.join("hot"), &expected["hot"]).expect("a file");
    let server = prepared(&place, &mut image);
    let writing = ["--policy", "quiet-disk", "--read-write", "--write-through"];
    let shown = Shown::with_server(&place, &root, &dir, &server.address, &writing);
    assert!(fs::read(root.join("hot")).expect("it is read") == expected["hot"]);
    let mut rng = Rng::new(62);
    let mut change = || {
        for name in expected.keys() {
            let file = File::options().write(true).open(dir.join(name)).expect("a file");
            let len = file.metadata().expect("a file").len();
            file.write_all_at(&rng.bytes(5000), len / 3).expect("it is written");
        }
        let file = File::options().write(true).open(dir.join("file04")).expect("a file");
        let len = file.metadata().expect("a file").len();
        file.set_len(len - 30_000).expect("it is cut");
        fs::write(dir.join("made"), rng.bytes(50_000)).expect("it is made");
        File::options()
            .append(true)
            .open(dir.join("made"))
            .expect("it is there")
            .write_all(&rng.bytes(777))
            .expect("more");
    };
    let is_all_there = |what: &str| {
        wait_until(what, || shown.value("offers_waiting ") == 0);
        assert_eq!(push(&place, &root, &server), 0, "{what}");
    };
    change();
    is_all_there("something is never sent");
    assert!(shown.counted("opens_kernel") > 0 || !has_passthrough(), "the kernel writes what is in memory by itself");
    let held = hold(&server.child);
    change();
    assert!(shown.value("offers_waiting ") > 0);
    drop(held);
    is_all_there("what was written while it stood still is never sent");
    shown.end(Signal::TERM);
    let mut command = onesweep(["peer", "mount", "--write-through", "--key"]);
    command.arg(place.path("key")).arg("--index").arg(place.path("index")).arg("--dir").arg(&root).arg(&dir);
    let told = text(&finish(&mut command, 2).stderr);
    assert!(told.contains("give --read-write"), "{told}");
}

/// Linux 6.9.
pub(crate) fn has_passthrough() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 9)
}

/// A way to a server on which each word takes its time.
fn far(server: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    let carry = |mut from: TcpStream, mut to: TcpStream| {
        thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                thread::sleep(Duration::from_millis(250));
                if to.write_all(&bytes[..count]).is_err() {
                    return;
                }
            }
        });
    };
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let Ok(far) = TcpStream::connect(&server) else { continue };
            let (near_too, far_too) = (near.try_clone().expect("a socket"), far.try_clone().expect("a socket"));
            carry(near, far);
            carry(far_too, near_too);
        }
    });
    address
}

/// Large files that are in memory, or on a disk that is quicker than the network, are left to the kernel; small ones, and those
/// that a server may answer sooner, are not.
#[test]
fn the_kernel_reads_what_is_large_and_in_memory_or_on_a_quick_disk() {
    root_test!();
    if !has_passthrough() {
        return skipped("the kernel has no passthrough");
    }
    let (place, mut image) = (Place::new(), Image::new(Fs::Ext4, 128 << 20));
    let (root, dir) = (image.root().join("tree"), image.beside("shown"));
    let expected = files(&root, &[100_000, 100_000, LARGE, 2 * LARGE, 3 * LARGE], 17);
    let server = prepared(&place, &mut image);
    let left = |shown: &Shown, name: &str| {
        let before = shown.counted("opens_kernel");
        assert!(fs::read(dir.join(name)).expect("it is read") == expected[name], "{name}");
        shown.counted("opens_kernel") - before
    };
    let warm = |name: &str| assert!(fs::read(root.join(name)).expect("it is read") == expected[name]);
    // A server is asked whatever the disk takes.
    let shown = Shown::with_server(&place, &root, &dir, &server.address, &["--policy", "quiet-disk"]);
    assert_eq!(left(&shown, "file03"), 0, "it is not in memory");
    warm("file02");
    assert_eq!(left(&shown, "file02"), 1, "it is in memory");
    warm("file00");
    assert_eq!(left(&shown, "file00"), 0, "it is small");
    shown.end(Signal::TERM);
    image.cold();
    // The network takes half a second, the disk less.
    let shown = Shown::with_server(&place, &root, &dir, &far(server.address.clone()), &["--policy", "race"]);
    wait_until("nobody knows how far the server is", || shown.value("server_ping_us{") > 100_000);
    for name in ["file00", "file01"] {
        assert_eq!(left(&shown, name), 0, "it is small");
    }
    assert_eq!(left(&shown, "file04"), 1, "the disk is quicker");
    shown.end(Signal::TERM);
    image.cold();
    let shown = Shown::with_server(&place, &root, &dir, &server.address, &["--policy", "remote-first"]);
    assert_eq!(left(&shown, "file04"), 0, "the server is asked first");
    shown.end(Signal::TERM);
}

/// From a place in the middle of its files on the disk can't be read: what a server has of them comes all the same.
#[test]
fn what_the_disk_cannot_read_of_a_tree_comes_from_a_server() {
    root_test!();
    let place = Place::new();
    // All tables lie before the files.
    let mut image = Image::with(Fs::Ext4, 64 << 20, &["-O", "^has_journal"]);
    let (root, dir) = (image.root().join("tree"), image.beside("shown"));
    let expected = files(&root, &[700_000; 12], 18);
    let server = prepared(&place, &mut image);
    let cut = extents_end(&root.join("file06")) + 1 - 300 * 1024 - 512;
    image.unmount();
    let file = File::options().write(true).open(image.file()).expect("the image");
    // A loop device fails where its file has ended.
    file.set_len(cut).expect("it is cut");
    run(Command::new("blockdev").arg("--flushbufs").arg(image.device()));
    image.mount();
    let unreadable = expected.keys().filter(|name| fs::read(root.join(name)).is_err()).count();
    assert!(unreadable > 0, "the disk reads all of it");
    image.cold();
    for policy in ["race", "local-first", "remote-first", "quiet-disk"] {
        let shown = Shown::with_server(&place, &root, &dir, &server.address, &["--policy", policy]);
        for (name, content) in &expected {
            assert!(fs::read(dir.join(name)).expect("it is read") == *content, "{policy}: {name}");
        }
        assert_eq!(shown.counted("reads_failed"), 0, "{policy}");
        assert!(policy != "local-first" || shown.counted("reads_rescued") > 0, "the disk has failed nobody");
        shown.end(Signal::TERM);
        image.cold();
    }
    // Nobody has it: an error, and not other bytes.
    drop(server);
    let shown = Shown::start(&place, &root, &dir, &["--server", "127.0.0.1:9"]);
    let failed = expected.iter().filter(|(name, content)| match fs::read(dir.join(name)) {
        Ok(read) => {
            assert!(read == **content, "{name}");
            false
        }
        Err(_) => true,
    });
    assert_eq!(failed.count(), unreadable);
    shown.end(Signal::TERM);
}

/// Where on the device the last byte of a file is.
fn extents_end(path: &Path) -> u64 {
    let told = text(&output(Command::new("filefrag").args(["-v", "-b1"]).arg(path)));
    let ends = told.lines().filter_map(|line| line.split(':').nth(2)?.split("..").nth(1)?.trim().parse::<u64>().ok());
    ends.max().unwrap_or_else(|| panic!("{told}"))
}

/// Nobody indexed it: what is read is learnt, and given to the server; then the server has it.
#[test]
fn what_is_read_is_learnt_and_shared() {
    root_test!();
    let (place, mut image) = (Place::new(), Image::new(Fs::Ext4, 128 << 20));
    let (root, dir) = (image.root().join("tree"), image.beside("shown"));
    let expected = files(&root, &SIZES, 7);
    tree::sync(&root);
    settle();
    image.cold();
    let server = Server::start(&place);
    let all_is_right = || {
        for (name, content) in &expected {
            assert!(fs::read(dir.join(name)).expect("it is read") == *content, "{name}");
        }
    };
    let learning = ["--policy", "quiet-disk", "--learn", "--share"];
    let shown = Shown::with_server(&place, &root, &dir, &server.address, &learning);
    all_is_right();
    shown.end(Signal::TERM);
    let checked = place.index(&["--check"], &root, 0);
    assert_eq!((figure(&checked, "new"), figure(&checked, "stale")), (0, 0), "{checked}");
    assert_eq!(push(&place, &root, &server), 0, "it was shared");
    image.cold();
    let shown = Shown::with_server(&place, &root, &dir, &server.address, &["--policy", "quiet-disk"]);
    all_is_right();
    assert!(shown.counted("reads_remote") > 0 && shown.counted("index_learned") == 0);
    shown.end(Signal::TERM);
}

#[test]
fn a_server_that_is_killed_is_not_missed() {
    root_test!();
    let (place, mut image) = (Place::new(), Image::new(Fs::Ext4, 200 << 20));
    let (root, dir) = (image.root().join("tree"), image.beside("shown"));
    let expected = files(&root, &[100_000; 200], 9);
    let server = prepared(&place, &mut image);
    let shown = Shown::with_server(&place, &root, &dir, &server.address, &["--policy", "remote-first"]);
    let mut server = Some(server);
    for (number, (name, content)) in expected.iter().enumerate() {
        if number == 100 {
            assert!(shown.counted("reads_remote") > 0);
            drop(server.take());
        }
        assert!(fs::read(dir.join(name)).expect("no error") == *content, "{name}");
    }
    assert_eq!(shown.counted("reads_failed"), 0);
    shown.end(Signal::TERM);
}

/// A server that has all that it is asked for, and gives other bytes.
fn liar() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || lie(stream));
        }
    });
    address
}

fn lie(mut stream: TcpStream) {
    let (mut heard, mut bytes) = (Vec::new(), vec![0; FRAME_BYTES_MAX]);
    loop {
        let mut said = Vec::new();
        while let Ok(Some((request, used))) = request(&heard) {
            match request {
                Request::Greeting(_) => {
                    let welcome =
                        Welcome { version: 1, in_flight: 64, batch: 16, block_bytes: 65536, put_bytes: 1 << 20 };
                    Answer::Welcome(welcome).encode(&mut said);
                }
                Request::Ping { id } => Answer::Pong { id }.encode(&mut said),
                Request::Get { first, hashes, .. } => {
                    for id in (first..).take(hashes.len()) {
                        Answer::Block { id, bytes: &[0x66; BLOCK] }.encode(&mut said);
                    }
                }
                _ => {}
            }
            heard.drain(..used);
        }
        if stream.write_all(&said).is_err() {
            return;
        }
        match stream.read(&mut bytes) {
            Ok(0) | Err(_) => return,
            Ok(count) => heard.extend_from_slice(&bytes[..count]),
        }
    }
}

#[test]
fn a_server_that_lies_changes_no_byte() {
    root_test!();
    let (place, mut image) = (Place::new(), Image::new(Fs::Ext4, 128 << 20));
    let (root, dir) = (image.root().join("tree"), image.beside("shown"));
    let expected = files(&root, &SIZES, 4);
    drop(prepared(&place, &mut image));
    let shown = Shown::with_server(&place, &root, &dir, &liar(), &["--policy", "quiet-disk"]);
    for (name, content) in &expected {
        assert!(fs::read(dir.join(name)).expect("no error") == *content, "{name}");
    }
    assert!(shown.counted("answers_wrong") > 0, "nobody asked it");
    assert_eq!((shown.counted("reads_remote"), shown.counted("reads_failed")), (0, 0));
    shown.end(Signal::TERM);
}

#[test]
fn files_of_a_tree_go_by_the_policy_of_their_pattern() {
    root_test!();
    let (place, mut image) = (Place::new(), Image::new(Fs::Ext4, 128 << 20));
    let (root, dir) = (image.root().join("tree"), image.beside("shown"));
    fs::create_dir_all(root.join("music/deep")).expect("folders");
    let mut rng = Rng::new(2);
    let named = [("music/deep/song", 1), ("film.iso", 2), ("text", 0), ("other.iso.txt", 0)];
    let named = named.map(|(name, policy)| (name, policy, rng.bytes(50_000)));
    for (name, _, content) in &named {
        fs::write(root.join(name), content).expect("a file");
    }
    let server = prepared(&place, &mut image);
    let policies = ["--policy", "local-first", "--policy-of", "music=remote-first", "--policy-of", "*.iso=quiet-disk"];
    let shown = Shown::with_server(&place, &root, &dir, &server.address, &policies);
    let by =
        || ["local_first", "remote_first", "quiet_disk", "race"].map(|name| shown.counted(&format!("reads_by_{name}")));
    for (name, policy, content) in &named {
        let before = by();
        assert!(fs::read(dir.join(name)).expect("it is read") == *content, "{name}");
        let grown: Vec<u64> = by().iter().zip(before).map(|(after, before)| after - before).collect();
        assert!(grown[*policy] > 0 && grown.iter().sum::<u64>() == grown[*policy], "{name}: {grown:?}");
    }
    shown.end(Signal::TERM);
}

/// Bytes that no other block and no other time has.
fn block(time: u64, number: u64) -> Vec<u8> {
    (0..BLOCK as u64 / 8).flat_map(|at| (time << 40 | number << 16 | at << 1 | 1).to_le_bytes()).collect()
}

/// What a block may hold: what was acknowledged last, or what was begun after that.
type Possible = BTreeMap<u64, Vec<u64>>;

fn write_until_gone(files: &[File], possible: &Mutex<Possible>, mut time: u64, blocks: u64, writer: u64) {
    loop {
        time += 2;
        let number = time.wrapping_mul(0x9e37_79b9) % (blocks / 2) * 2 + writer;
        possible.lock().unwrap().entry(number).or_insert_with(|| vec![0]).push(time);
        let (file, at) = (number / 64, number % 64 * BLOCK as u64);
        if files[file as usize].write_all_at(&block(time, number), at).is_err() {
            return;
        }
        possible.lock().unwrap().insert(number, vec![time]);
    }
}

/// The server has all that ever was there when a mount began; none of it comes back.
#[test]
fn a_tree_whose_mount_is_killed_among_writes_serves_no_old_byte() {
    root_test!();
    let (place, mut image) = (Place::new(), Image::new(Fs::Ext4, 128 << 20));
    let (root, dir) = (image.root().join("tree"), image.beside("shown"));
    fs::create_dir_all(&root).expect("a folder");
    let blocks = 256;
    let path = |root: &Path, file: u64| root.join(format!("file{file}"));
    for file in 0..blocks / 64 {
        let content: Vec<u8> = (file * 64..(file + 1) * 64).flat_map(|number| block(0, number)).collect();
        fs::write(path(&root, file), content).expect("a file");
    }
    let server = prepared(&place, &mut image);
    let (possible, turns) = (Mutex::new(Possible::new()), if long() { 200 } else { 3 });
    let mut remote = 0;
    for turn in 0..=turns {
        let options = ["--policy", "quiet-disk", "--read-write", "--share"];
        let mut shown = Shown::with_server(&place, &root, &dir, &server.address, &options);
        let files: Vec<File> = (0..blocks / 64)
            .map(|file| File::options().read(true).write(true).open(path(&dir, file)).expect("a file"))
            .collect();
        let mut bytes = vec![0; BLOCK];
        for number in 0..blocks {
            let (file, at) = (number / 64, number % 64 * BLOCK as u64);
            files[file as usize].read_exact_at(&mut bytes, at).expect("it is read");
            let mut possible = possible.lock().unwrap();
            let times = possible.entry(number).or_insert_with(|| vec![0]);
            let is = times.iter().copied().find(|&time| bytes == block(time, number));
            let is = is.unwrap_or_else(|| panic!("turn {turn}: block {number} is none of {times:?}"));
            *times = vec![is];
        }
        remote += shown.counted("reads_remote");
        if turn == turns {
            drop(files);
            shown.end(Signal::TERM);
            break;
        }
        thread::scope(|scope| {
            for writer in 0..2 {
                let (files, possible) = (&files, &possible);
                scope.spawn(move || write_until_gone(files, possible, (turn + 1) * 1_000_000 + writer, blocks, writer));
            }
            thread::sleep(Duration::from_micros((seed() + turn) * 7919 % 60_000 + 5000));
            shown.child.kill().expect("it is ours");
            shown.child.wait().expect("it ends");
        });
        drop((files, shown));
        tree::sync(&root);
        // Mostly the index is the one that it was killed with.
        if turn % 4 == 1 {
            settle();
            place.index(&[], &root, 0);
            push(&place, &root, &server);
        }
        image.cold();
    }
    assert!(remote > 0, "no server was ever quicker");
    let checked = place.index(&["--check"], &root, 0);
    assert_eq!(figure(&checked, "stale"), 0, "{checked}");
}

#[test]
fn files_that_are_open_for_writing_get_no_hashes() {
    root_test!();
    let (place, image) = (Place::new(), Image::new(Fs::Ext4, 64 << 20));
    let root = image.root().join("tree");
    files(&root, &[BLOCK, BLOCK], 1);
    settle();
    let open = File::options().append(true).open(root.join("file01")).expect("a file");
    let made = place.index(&[], &root, 0);
    assert_eq!(figure(&made, "unsettled_files"), 1, "{made}");
    drop(open);
    let made = place.index(&[], &root, 0);
    assert_eq!(figure(&made, "unsettled_files"), 0, "{made}");
}

/// Who has others' files open is told to nobody without the right to ask: a page that is dirty already may be written again, and no
/// time tells.
#[test]
fn files_of_others_get_no_hashes_by_who_cannot_ask_whether_they_are_written() {
    root_test!();
    let (place, image) = (Place::new(), Image::new(Fs::Ext4, 64 << 20));
    let root = image.root().join("tree");
    files(&root, &[BLOCK, BLOCK], 1);
    run(Command::new("chown").arg("65534").arg(root.join("file00")));
    let own = image.root().join("own");
    fs::create_dir(&own).expect("a folder");
    fs::copy(place.path("key"), own.join("key")).expect("a key");
    run(Command::new("chown").args(["-R", "65534"]).arg(&own));
    settle();
    let index = onesweep(["peer", "index", "--json", "--key"]);
    let mut user = Command::new("setpriv");
    user.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(index.get_program()).args(index.get_args());
    user.arg(own.join("key")).arg("--index").arg(own.join("index")).arg(&root);
    let out = finish(&mut user, 0);
    let made = &summary(&out.stdout)["details"];
    let told = ["unsettled_files", "unknown_writers"].map(|name| figure(made, name));
    assert_eq!(told, [1, 1], "{made}");
    assert!(text(&out.stderr).contains("of 1 files nobody can tell whether they are being written"), "{made}");
}

#[test]
fn trees_that_cannot_be_shown_are_refused() {
    root_test!();
    let (place, image) = (Place::new(), Image::new(Fs::Ext4, 64 << 20));
    let (root, dir) = (image.root().join("tree"), image.beside("shown"));
    fs::create_dir_all(root.join("below")).expect("folders");
    fs::create_dir_all(&dir).expect("a folder");
    let refused = |source: &Path, dir: &Path, options: &[&str], why: &str| {
        let mut command = onesweep(["peer", "mount", "--key"]);
        command.arg(place.path("key")).arg("--index").arg(place.path("index")).args(options);
        let told = text(&finish(command.arg("--dir").arg(source).arg(dir), 2).stderr);
        assert!(told.contains(why), "{told}");
    };
    refused(&root, &dir, &[], "there is none; make one with onesweep peer index, or begin with none by --learn");
    refused(&root, &root.join("below"), &["--learn"], "it lies in the tree; choose a directory outside of it");
    refused(&image.root().join("none"), &dir, &["--learn"], "No such file or directory");
    assert!(!place.path("index").exists());
    fs::write(place.path("index"), vec![3; 9000]).expect("a file");
    refused(&root, &dir, &["--learn"], "it is no index");
    fs::remove_file(place.path("index")).expect("it goes");
    // An index of another file system.
    let other = Image::new(Fs::Ext4, 64 << 20);
    place.index(&["--learn"], &other.root(), 0);
    refused(&root, &dir, &[], "on another file system");
}
