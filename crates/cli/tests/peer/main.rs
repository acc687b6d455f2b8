//! `onesweep peer`, `scan` and `guard` as they are typed: servers that are started, filled, asked, ended and killed. Only `guard` needs
//! privileges, and is left out without them.

mod clamd;
mod guard;
#[path = "../common/openmetrics.rs"]
mod openmetrics;
mod rules;
mod scan;
mod schema;
mod unit;

use std::{
    fs,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, SystemTime},
};

use onesweep_peer::keys::{self, Validity};

fn onesweep(words: &[&str]) -> Command {
    let program = std::env::var_os("ONESWEEP_TEST_BIN");
    let mut command = Command::new(program.map_or_else(|| env!("CARGO_BIN_EXE_onesweep").into(), PathBuf::from));
    command.args(words);
    command
}

fn finish(command: &mut Command, code: i32) -> (String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let (out, err) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert_eq!(status.code(), Some(code), "{command:?}: {out}{err}");
    (out, err)
}

/// A copy to be run. This process must never have it open for writing: what another test starts just then would, too, until it is
/// a program of its own, and the kernel runs nothing that is being written ("text file busy").
fn copy_program(program: &Path, to: &Path) {
    assert!(Command::new("cp").args([program, to]).status().unwrap().success());
}

/// A server, which is killed when this is dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(dir: &Path, more: &[&str]) -> Server {
        let (key, store) = (path(dir, "keys/domain.key"), path(dir, "store"));
        let words = ["peer", "serve", "--listen", "127.0.0.1:0", "--key", &key, "--store", &store, "--disk", "64M"];
        let mut child = onesweep(&[&words, more].concat()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let line = said.next().expect("it says where it listens").unwrap();
        let (_, rest) = line.split_once("listening at ").unwrap_or_else(|| panic!("{line}"));
        let address = rest.split(',').next().unwrap().to_owned();
        // Nobody else reads what it says; it must not stand still for that.
        std::thread::spawn(move || said.for_each(drop));
        Server { child, address }
    }

    /// Asks it to end; its exit code.
    fn end(mut self) -> Option<i32> {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), rustix::process::Signal::TERM)
            .unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn path(dir: &Path, name: &str) -> String {
    dir.join(name).to_str().unwrap().to_owned()
}

fn with_keys() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    finish(&mut onesweep(&["peer", "keys", &path(dir.path(), "keys")]), 0);
    dir
}

/// An image of 500 blocks: every fifth of zeros, the others different ones.
fn image(dir: &Path, name: &str, seed: u32) -> String {
    let block = |n: u32| {
        let fill = if n.is_multiple_of(5) { 0 } else { seed + n };
        (0..1024_u32).flat_map(move |at| if fill == 0 { [0; 4] } else { (fill * 7919 + at).to_le_bytes() })
    };
    fs::write(dir.join(name), (0..500).flat_map(block).collect::<Vec<u8>>()).unwrap();
    path(dir, name)
}

fn push(dir: &Path, server: &Server, words: &[&str], code: i32) -> (String, String) {
    let key = path(dir, "keys/domain.key");
    let first = ["peer", "push", "--json", "--server", &server.address, "--key", &key];
    finish(&mut onesweep(&[&first, words].concat()), code)
}

fn figure(json: &str, name: &str) -> u64 {
    let (_, rest) = json.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{name}: {json}"));
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

/// Nothing of it is told again: the journal keeps what is told.
#[test]
fn an_engine_whose_address_has_a_password_or_makes_no_sense_is_refused() {
    let dir = with_keys();
    let key = path(dir.path(), "keys/domain.key");
    let refused = |address: &str| {
        let words = ["peer", "serve", "--listen", "127.0.0.1:0", "--key", &key, "--engine", address];
        finish(&mut onesweep(&words), 2).1
    };
    let told = refused("redis://user:verysecret@box");
    assert!(told.contains("ONESWEEP_REDIS_PASSWORD") && !told.contains("verysecret"), "{told}");
    assert!(refused("redis://one,two").contains("redis+cluster"), "one clear word");
    assert!(refused("ftp://box").contains("not an engine"), "one clear word");
}

#[test]
fn a_server_is_filled_with_what_it_lacks_and_has_it_after_an_end_and_a_kill() {
    let dir = with_keys();
    let dir = dir.path();
    let image_path = image(dir, "a.img", 1000);
    let server = Server::start(dir, &[]);
    let (first, _) = push(dir, &server, &[&image_path], 0);
    for (name, value) in [("blocks", 500), ("zero_blocks", 100), ("sent_blocks", 400), ("known_blocks", 0)] {
        assert_eq!(figure(&first, name), value, "{name}: {first}");
    }
    let (again, _) = push(dir, &server, &[&image_path], 0);
    assert_eq!((figure(&again, "sent_blocks"), figure(&again, "known_blocks")), (0, 400));
    let key = path(dir, "keys/domain.key");
    let (told, _) = finish(&mut onesweep(&["peer", "stat", "--server", &server.address, "--key", &key]), 0);
    assert!(told.lines().any(|line| line.split_whitespace().eq(["blocks", "400"])), "{told}");
    let metrics = ["peer", "stat", "--metrics", "--server", &server.address, "--key", &key];
    let (told, _) = finish(&mut onesweep(&metrics), 0);
    let samples = openmetrics::parse(&told).unwrap_or_else(|why| panic!("{why}: {told}"));
    assert!(samples.contains(&("onesweep_peer_puts_total".into(), vec![], 400.0)), "{told}");
    assert_eq!(server.end(), Some(0));
    let server = Server::start(dir, &[]);
    assert_eq!(figure(&push(dir, &server, &[&image_path], 0).0, "known_blocks"), 400);
    let other = image(dir, "b.img", 5000);
    assert_eq!(figure(&push(dir, &server, &[&other], 0).0, "sent_blocks"), 400);
    drop(server);
    let server = Server::start(dir, &[]);
    assert_eq!(figure(&push(dir, &server, &[&image_path, &other], 0).0, "known_blocks"), 800);
    // Two servers can't have one store.
    let store = path(dir, "store");
    let second = ["peer", "serve", "--listen", "127.0.0.1:0", "--key", &key, "--store", &store];
    let (_, why) = finish(&mut onesweep(&second), 2);
    assert!(why.contains("another process"), "{why}");
}

#[test]
fn directories_are_pushed_and_what_cannot_be_read_is_told() {
    let dir = with_keys();
    let dir = dir.path();
    fs::create_dir_all(dir.join("tree/below")).unwrap();
    for n in 0..20_u8 {
        fs::write(dir.join(format!("tree/below/{n}")), vec![n + 1; 5000]).unwrap();
    }
    let server = Server::start(dir, &[]);
    let (told, _) = push(dir, &server, &[&path(dir, "tree")], 0);
    assert_eq!((figure(&told, "blocks"), figure(&told, "sent_blocks"), figure(&told, "bytes")), (40, 40, 100_000));
    let (_, why) = push(dir, &server, &[&path(dir, "nothing")], 2);
    assert!(why.contains("nothing: cannot open it"), "{why}");
    let (_, why) = push(dir, &server, &["/dev/null"], 2);
    assert!(why.contains("no file, image, device or directory"), "{why}");
    let (_, why) = push(dir, &server, &["--block-size", "5000", &path(dir, "tree")], 2);
    assert!(why.contains("4K"), "{why}");
}

#[test]
fn nobody_is_served_beyond_the_loopback_without_tls_and_with_it_by_certificates() {
    let dir = with_keys();
    let dir = dir.path();
    let key = path(dir, "keys/domain.key");
    let (_, why) = finish(&mut onesweep(&["peer", "serve", "--listen", "0.0.0.0:0", "--key", &key, "--disk", "0"]), 2);
    assert!(why.contains("without TLS") && why.contains("--tls"), "{why}");
    let keys = path(dir, "keys");
    for (name, role) in [("box", "server"), ("book", "client")] {
        finish(&mut onesweep(&["peer", "keys", &keys, "--add", name, "--role", role]), 0);
    }
    let (_, why) = finish(&mut onesweep(&["peer", "keys", &keys]), 2);
    assert!(why.contains("stays as it is"), "{why}");
    let server = Server::start(dir, &["--tls", &path(dir, "keys/box")]);
    let image = image(dir, "a.img", 1000);
    let book = path(dir, "keys/book");
    assert_eq!(figure(&push(dir, &server, &["--tls", &book, &image], 0).0, "sent_blocks"), 400);
    let (_, why) = push(dir, &server, &["--tls", &path(dir, "keys/box"), &image], 2);
    assert!(why.contains("its role is not client"), "{why}");
    let (_, why) = push(dir, &server, &[&image], 2);
    assert!(why.contains("cannot connect"), "{why}");
}

#[test]
fn what_is_wrong_is_told_with_advice() {
    let dir = with_keys();
    let dir = dir.path();
    let image = image(dir, "a.img", 1000);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let key = path(dir, "keys/domain.key");
    let (_, why) = finish(&mut onesweep(&["peer", "push", "--server", &nobody, "--key", &key, &image]), 2);
    assert!(why.contains("cannot connect") && why.contains("refused"), "{why}");
    let (_, why) = finish(&mut onesweep(&["peer", "stat", "--key", &path(dir, "none")]), 2);
    assert!(why.contains("onesweep peer keys"), "{why}");
    // Another key than the server's.
    let server = Server::start(dir, &[]);
    finish(&mut onesweep(&["peer", "keys", &path(dir, "others")]), 0);
    let other = path(dir, "others/domain.key");
    let (_, why) = finish(&mut onesweep(&["peer", "push", "--server", &server.address, "--key", &other, &image]), 2);
    assert!(why.contains("another trust domain"), "{why}");
}

#[test]
fn an_authority_whose_time_is_over_adds_no_machine_and_tells_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let day = Duration::from_secs(24 * 3600);
    let (from, until) = (SystemTime::now() - 3 * day, SystemTime::now() - day);
    keys::make_authority(dir.path(), Validity { from, until }).unwrap();
    let words = ["peer", "keys", dir.path().to_str().unwrap(), "--add", "box", "--role", "server"];
    let (out, why) = finish(&mut onesweep(&words), 2);
    assert_eq!((out.as_str(), why.lines().count()), ("", 1), "{why}");
    assert!(
        why.contains("ca.pem: this authority has expired") && why.contains("onesweep peer keys OTHER_DIR"),
        "{why}"
    );
    assert!(!dir.path().join("box.pem").exists() && !dir.path().join("box.key").exists());
}

/// A limit on the size of files stands for a full disk: a segment is larger.
#[test]
fn a_server_whose_disk_is_full_says_so_once_and_serves_from_memory() {
    let dir = with_keys();
    let dir = dir.path();
    let first_image = image(dir, "a.img", 1000);
    let (key, store) = (path(dir, "keys/domain.key"), path(dir, "store"));
    // The file of verdicts is as large as it will be before there is a limit.
    let words = ["peer", "serve", "--listen", "127.0.0.1:0", "--key", &key, "--store", &store, "--disk", "64M"];
    let mut child = onesweep(&words).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = said.next().unwrap();
    let address = line.split_once("listening at ").unwrap().1.split(',').next().unwrap().to_owned();
    let server = Server { child, address };
    let limit = |bytes| {
        let (pid, limit) = (
            rustix::process::Pid::from_child(&server.child),
            rustix::process::Rlimit { current: bytes, maximum: None },
        );
        rustix::process::prlimit(Some(pid), rustix::process::Resource::Fsize, limit).unwrap();
    };
    limit(Some(200_000));
    let (first, _) = push(dir, &server, &[&first_image], 0);
    assert_eq!(figure(&first, "sent_blocks"), 400);
    // It has them all the same.
    assert_eq!(figure(&push(dir, &server, &[&first_image], 0).0, "known_blocks"), 400);
    limit(None);
    let other = image(dir, "b.img", 5000);
    assert_eq!(figure(&push(dir, &server, &[&other], 0).0, "sent_blocks"), 400);
    assert_eq!(server.end(), Some(0));
    let told: Vec<String> = said.collect();
    let [full, well, end] = &told[..] else { panic!("each is told once: {told:?}") };
    assert!(full.contains(".segment: cannot write a block: ") && full.contains("in memory alone"), "{full}");
    assert!(well.contains("blocks are written to disk again") && end.ends_with("ended"), "{well} {end}");
}
