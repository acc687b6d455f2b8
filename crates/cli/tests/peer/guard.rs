//! `onesweep guard` as it is typed: real file systems, a real clamd, servers that lie, and the guard killed.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use onesweep_peer::scan::Verdicts;

use crate::{
    clamd::{Clamd, NAME, eicar},
    copy_program, finish, onesweep, path,
    scan::{domain, lies, place, server, settle},
    with_keys,
};

fn skipped(reason: &str) {
    let thread = thread::current();
    let _ = writeln!(io::stderr(), "skipped: {}: {reason}", thread.name().unwrap_or("a test"));
}

fn run(program: &str, words: &[&str]) -> Result<(), String> {
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let output =
        Command::new(program).env("PATH", path).args(words).output().map_err(|error| format!("{program}: {error}"))?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    output.status.success().then_some(()).ok_or(format!("{program}: {told}"))
}

/// A file system of its own: what is guarded there holds nobody else up.
struct Mounted {
    _dir: tempfile::TempDir,
    root: PathBuf,
}

impl Mounted {
    fn new(kind: &str) -> Option<Mounted> {
        if !rustix::process::geteuid().is_root() {
            skipped("only root can mount, and guard");
            return None;
        }
        let dir = match std::env::var_os("ONESWEEP_TEST_DIR") {
            Some(parent) => tempfile::tempdir_in(parent).unwrap(),
            None => tempfile::tempdir().unwrap(),
        };
        let (image, root) = (dir.path().join("image"), dir.path().join("mnt"));
        File::create(&image).unwrap().set_len(if kind == "xfs" { 320 << 20 } else { 64 << 20 }).unwrap();
        fs::create_dir(&root).unwrap();
        let quiet: &[&str] = if kind == "xfs" { &["-q"] } else { &["-q", "-F"] };
        let made = run(&format!("mkfs.{kind}"), &[quiet, &[image.to_str().unwrap()]].concat())
            .and_then(|()| run("mount", &["-o", "loop", image.to_str().unwrap(), root.to_str().unwrap()]));
        match made {
            Ok(()) => Some(Mounted { _dir: dir, root }),
            Err(why) => {
                skipped(&why);
                None
            }
        }
    }

    fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // What has ended just now may be seen a moment longer.
        for _ in 0..50 {
            if run("umount", &[self.root.to_str().unwrap()]).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
        let _ = run("umount", &["--lazy", self.root.to_str().unwrap()]);
    }
}

/// A guard, which is killed when this is dropped.
struct Guard {
    child: Child,
    told: Arc<Mutex<String>>,
}

impl Guard {
    fn start(words: &[&str]) -> Guard {
        let mut child = onesweep(&[&["guard"], words].concat()).stderr(Stdio::piped()).spawn().unwrap();
        let told = Arc::new(Mutex::new(String::new()));
        let (stderr, into) = (child.stderr.take().unwrap(), Arc::clone(&told));
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                *into.lock().unwrap() += &(line + "\n");
            }
        });
        let mut guard = Guard { child, told };
        guard.wait_for(" guarding ");
        guard
    }

    fn told(&self) -> String {
        self.told.lock().unwrap().clone()
    }

    fn wait_for(&mut self, what: &str) {
        self.wait_until(|told| told.contains(what));
    }

    /// With `--log debug`: what was found is there for the next one.
    fn wait_until_kept(&mut self, count: u32) {
        let kept = |told: &str| {
            told.lines().filter_map(|line| line.split_once("verdicts kept: ")?.1.parse::<u32>().ok()).sum::<u32>()
        };
        self.wait_until(|told| kept(told) == count);
    }

    fn wait_until(&mut self, is_so: impl Fn(&str) -> bool) {
        let until = Instant::now() + Duration::from_secs(120);
        while !is_so(&self.told()) {
            assert!(Instant::now() < until && self.child.try_wait().unwrap().is_none(), "{}", self.told());
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end; what it told.
    fn end(mut self) -> String {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        // What was told is read by a thread of its own.
        for _ in 0..500 {
            if self.told().contains("ended: ") {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        self.told()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Opens and reads a file as anybody does.
fn read(path: &Path) -> Result<Vec<u8>, i32> {
    let mut bytes = Vec::new();
    let done = File::open(path).and_then(|mut file| file.read_to_end(&mut bytes));
    done.map(|_| bytes).map_err(|error| error.raw_os_error().unwrap_or(0))
}

fn is_refused(path: &Path) -> bool {
    match read(path) {
        Ok(_) => false,
        Err(number) => {
            assert_eq!(number, rustix::io::Errno::PERM.raw_os_error(), "{}", path.display());
            true
        }
    }
}

/// A line that finds EICAR, and counts in a file how often it was asked.
fn counting(dir: &Path) -> String {
    format!("echo x >> {}; grep -q EICAR-STANDARD && echo Bad && exit 1; exit 0", path(dir, "count"))
}

fn count(dir: &Path) -> usize {
    fs::read_to_string(dir.join("count")).map_or(0, |text| text.lines().count())
}

#[test]
fn nobody_opens_what_clamd_finds() {
    for kind in ["ext4", "xfs"] {
        let Some(mounted) = Mounted::new(kind) else { return };
        let dir = with_keys();
        let dir = dir.path();
        let clamd = Clamd::start(dir, "");
        let (good, bad) = (mounted.write("in/good", b"good"), mounted.write("in/sub/bad", &eicar()));
        let large = mounted.write("in/large", &[vec![b'.'; 20 << 20], eicar()].concat());
        let (outside, linked) = (mounted.write("out/bad", &eicar()), mounted.write("out/linked", &eicar()));
        fs::hard_link(&linked, mounted.root.join("in/linked")).unwrap();
        let [key, store, root] = [path(dir, "keys/domain.key"), path(dir, "v"), path(&mounted.root, "in")];
        let socket = clamd.socket.to_str().unwrap();
        let guard = Guard::start(&["--fail-closed", "--clamd", socket, "--key", &key, "--verdicts", &store, &root]);
        assert_eq!(read(&good), Ok(b"good".to_vec()), "{}", guard.told());
        assert!(is_refused(&bad) && is_refused(&large), "{}", guard.told());
        assert_eq!(read(&outside), Ok(eicar()), "it isn't below");
        assert!(is_refused(&linked) && is_refused(&mounted.root.join("in/linked")));
        // Whatever it is opened for, and through whatever mount.
        let program = Command::new(&bad).status().unwrap_err();
        assert!(matches!(program.raw_os_error(), Some(1 | 13)), "{program}");
        OpenOptions::new().append(true).open(&bad).unwrap_err();
        let elsewhere = dir.join("elsewhere");
        fs::create_dir(&elsewhere).unwrap();
        run("mount", &["--bind", &root, elsewhere.to_str().unwrap()]).unwrap();
        let (there, here) = (is_refused(&elsewhere.join("sub/bad")), read(&elsewhere.join("good")));
        run("umount", &[elsewhere.to_str().unwrap()]).unwrap();
        assert!(there && here == Ok(b"good".to_vec()));
        // It can be removed, and what comes in its place is another file.
        fs::remove_file(&bad).unwrap();
        fs::write(&bad, "better").unwrap();
        assert_eq!(read(&bad), Ok(b"better".to_vec()));
        let told = guard.end();
        assert!(told.contains(&format!("/in/sub/bad: {NAME} FOUND; process {} may", std::process::id())), "{told}");
        assert!(!is_refused(&large), "nobody guards any more");
    }
}

#[test]
fn what_was_found_last_is_told_before_the_end() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let dir = with_keys();
    let [key, store, root] = [path(dir.path(), "keys/domain.key"), path(dir.path(), "v"), path(&mounted.root, "")];
    for round in 0..20 {
        let bad = mounted.write(&format!("bad{round}"), format!("bad {round}").as_bytes());
        let guard = Guard::start(&["--fail-closed", "--command", "exit 1", "--key", &key, "--verdicts", &store, &root]);
        assert!(is_refused(&bad), "{}", guard.told());
        let told = guard.end();
        let (found, end) = (told.find(&format!("/bad{round}: ")), told.find("ended: "));
        assert!(found.is_some() && found < end, "{told}");
    }
}

#[cfg(feature = "yara")]
#[test]
fn nobody_opens_what_rules_find() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let dir = with_keys();
    let dir = dir.path();
    let [good, bad] = [("good", &b"good"[..]), ("bad", b"bad")].map(|(name, content)| mounted.write(name, content));
    let large = mounted.write("large", &[&vec![b'.'; 20 << 20][..], b"bad"].concat());
    let [key, store, rules] = ["keys/domain.key", "v", "a.yar"].map(|name| path(dir, name));
    fs::write(&rules, "rule Bad { strings: $a = \"bad\" condition: $a }").unwrap();
    let root = mounted.root.to_str().unwrap();
    let words = ["--fail-closed", "--key", &key, "--verdicts", &store, "--rules", &rules];
    let guard = Guard::start(&[&words[..], &[root]].concat());
    assert_eq!(read(&good), Ok(b"good".to_vec()), "{}", guard.told());
    assert!(is_refused(&bad) && is_refused(&large), "{}", guard.told());
    let told = guard.end();
    assert!(told.contains("/bad: Bad FOUND; process "), "{told}");
    // What is too large for rules has no verdict.
    let guard = Guard::start(&[&words[..], &["--scan-size", "1M", root]].concat());
    assert!(read(&good).is_ok() && is_refused(&large), "{}", guard.told());
    let told = guard.end();
    assert!(told.contains("/large: refused without a verdict: it has 20.0 MiB"), "{told}");
}

#[test]
fn a_file_that_was_changed_is_looked_at_again_and_others_are_not() {
    for kind in ["ext4", "xfs"] {
        let Some(mounted) = Mounted::new(kind) else { return };
        let dir = with_keys();
        let dir = dir.path();
        let files: Vec<PathBuf> =
            (0..5).map(|n| mounted.write(&format!("f{n}"), format!("good {n}").as_bytes())).collect();
        settle();
        let [key, store, root] = [path(dir, "keys/domain.key"), path(dir, "v"), path(&mounted.root, "")];
        let line = counting(dir);
        let words = ["--fail-closed", "--command", &line, "--key", &key, "--verdicts", &store, &root];
        let guard = Guard::start(&words);
        for _ in 0..100 {
            assert!(files.iter().all(|file| !is_refused(file)));
        }
        assert_eq!(count(dir), 5);
        // Through a descriptor that was there before, so that nobody is asked about it.
        let mut open = OpenOptions::new().append(true).open(&files[2]).unwrap();
        open.write_all(&eicar()).unwrap();
        assert!(is_refused(&files[2]), "while it is open for writing");
        drop(open);
        assert!(is_refused(&files[2]) && !is_refused(&files[1]));
        assert_eq!(count(dir), 6, "a content is scanned once");
        // An older content again, with the times that it had.
        let times = fs::metadata(&files[0]).unwrap().modified().unwrap();
        let writer = OpenOptions::new().write(true).open(&files[0]).unwrap();
        { &writer }.write_all(b"GOOD").unwrap();
        writer.set_modified(times).unwrap();
        drop(writer);
        assert!(!is_refused(&files[0]));
        assert_eq!(count(dir), 7);
        let told = guard.end();
        let known = told.split(" openings, ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        assert!(known.parse::<u32>().unwrap() >= 490, "known without being read: {told}");
    }
}

/// A program that maps a file, writes to it at once, and EICAR when it is told to: that write changes none of the file's times.
const MAPPER: &str = "
import mmap, sys
with open(sys.argv[1], 'r+b') as file:
    content = mmap.mmap(file.fileno(), 0)
    content[0:1] = b'm'
    print('mapped', flush=True)
    eicar = sys.stdin.buffer.readline().strip()
    content[:len(eicar)] = eicar
    print('written', flush=True)
    sys.stdin.readline()
";

#[test]
fn a_write_to_a_mapping_that_changes_no_time_is_not_overlooked() {
    for kind in ["ext4", "xfs"] {
        let Some(mounted) = Mounted::new(kind) else { return };
        let dir = with_keys();
        let dir = dir.path();
        let file = mounted.write("file", &[b'.'; 4096]);
        let mut mapper = match Command::new("python3")
            .args(["-c", MAPPER, file.to_str().unwrap()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
        {
            Ok(mapper) => mapper,
            Err(error) => return skipped(&format!("python3: {error}")),
        };
        let (mut to, mut from) = (mapper.stdin.take().unwrap(), BufReader::new(mapper.stdout.take().unwrap()));
        let mut hear = |what: &str| {
            let mut line = String::new();
            from.read_line(&mut line).unwrap();
            assert_eq!(line.trim(), what);
        };
        hear("mapped");
        settle();
        let [key, store, root] = [path(dir, "keys/domain.key"), path(dir, "v"), path(&mounted.root, "")];
        let line = counting(dir);
        let guard = Guard::start(&["--fail-closed", "--command", &line, "--key", &key, "--verdicts", &store, &root]);
        assert!(!is_refused(&file) && !is_refused(&file));
        assert_eq!(count(dir), 1, "its content is known all the same");
        to.write_all(&[eicar(), b"\n".to_vec()].concat()).unwrap();
        hear("written");
        assert!(is_refused(&file), "{}", guard.told());
        drop(to);
        assert!(mapper.wait().unwrap().success());
        assert!(is_refused(&file));
    }
}

/// A clamd elsewhere that finds nothing by its first signatures, and something everywhere by its second.
fn changing_clamd(version: Arc<AtomicU32>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answer = move |mut stream: TcpStream| -> io::Result<()> {
        let mut asked = BufReader::new(stream.try_clone()?);
        let mut word = Vec::new();
        asked.read_until(0, &mut word)?;
        let now = version.load(SeqCst);
        if word == b"zVERSION\0" {
            return write!(stream, "ClamAV 1.0.0/{now}/Mon Nov 23 00:00:00 2026\0");
        }
        loop {
            let mut length = [0; 4];
            asked.read_exact(&mut length)?;
            let length = u32::from_be_bytes(length);
            if length == 0 {
                break;
            }
            io::copy(&mut (&mut asked).take(length.into()), &mut io::sink())?;
        }
        write!(stream, "stream: {}\0", if now == 1 { "OK" } else { "New.Virus FOUND" })
    };
    thread::spawn(move || listener.incoming().for_each(|stream| _ = stream.and_then(&answer)));
    address
}

#[test]
fn with_other_signatures_nothing_is_known_any_more() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let dir = with_keys();
    let dir = dir.path();
    let file = mounted.write("file", b"content");
    settle();
    let version = Arc::new(AtomicU32::new(1));
    let address = changing_clamd(Arc::clone(&version));
    let [key, store, root] = [path(dir, "keys/domain.key"), path(dir, "v"), path(&mounted.root, "")];
    let words = ["--log", "debug", "--fail-closed", "--clamd", &address, "--key", &key, "--verdicts", &store, &root];
    let mut guard = Guard::start(&words);
    assert!(!is_refused(&file) && !is_refused(&file));
    guard.wait_until_kept(1);
    version.store(2, SeqCst);
    guard.wait_for("the engine is clamd ClamAV 1.0.0/2/");
    assert!(is_refused(&file), "{}", guard.told());
    guard.wait_for("New.Virus FOUND");
}

#[test]
fn a_server_that_lies_opens_nothing() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let dir = place();
    let dir = dir.path();
    let clamd = Clamd::start(dir, "");
    let socket = clamd.socket.to_str().unwrap();
    let bad = mounted.write("bad", &eicar());
    let [key, tls, trusted, store] =
        ["keys/domain.key", "keys/note", "keys/scan1.pem", "note.verdicts"].map(|name| path(dir, name));
    let (epochs, lies) = lies(dir, socket);
    for (what, lie, is_believed) in lies {
        let verdicts = Verdicts::in_memory(&domain(dir), 1000).unwrap();
        for epoch in &epochs {
            verdicts.keep(epoch, std::slice::from_ref(&lie)).unwrap();
        }
        let server = server(dir, verdicts);
        let address = server.address().to_string();
        let _ = fs::remove_file(&store);
        let guard = Guard::start(&[
            "--fail-open",
            "--clamd",
            socket,
            "--server",
            &address,
            "--trust",
            &trusted,
            "--key",
            &key,
            "--tls",
            &tls,
            "--verdicts",
            &store,
            mounted.root.to_str().unwrap(),
        ]);
        assert_eq!(is_refused(&bad), !is_believed, "{what}: {}", guard.told());
        assert!(server.exposition().contains("\nonesweep_peer_verdicts_known_total 1\n"), "{what}: nobody asked");
        guard.end();
    }
}

#[test]
fn without_the_engine_what_is_known_is_known_and_the_rest_is_as_was_said() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let dir = with_keys();
    let dir = dir.path();
    let (good, bad) = (mounted.write("good", b"good"), mounted.write("bad", &eicar()));
    let [key, store, root] = [path(dir, "keys/domain.key"), path(dir, "v"), path(&mounted.root, "")];
    let clamd = Clamd::start(dir, "");
    let socket = path(dir, "clamd/socket");
    let words = |how| [how, "--log", "debug", "--clamd", &socket, "--key", &key, "--verdicts", &store, &root];
    let mut guard = Guard::start(&words("--fail-closed"));
    assert!(!is_refused(&good) && is_refused(&bad));
    guard.wait_until_kept(2);
    drop(clamd);
    assert!(!is_refused(&good) && is_refused(&bad), "{}", guard.told());
    let unknown = mounted.write("unknown", b"unknown");
    assert!(is_refused(&unknown));
    guard.end();
    // A guard that is started without it knows what was known.
    for (how, is_closed) in [("--fail-closed", true), ("--fail-open", false)] {
        let mut guard = Guard::start(&words(how));
        assert_eq!((is_refused(&good), is_refused(&bad), is_refused(&unknown)), (false, true, is_closed), "{how}");
        guard.wait_for("clamd at ");
        guard.wait_for("without a verdict");
        guard.end();
    }
    // When it comes back, it is asked again.
    let _clamd = Clamd::start(dir, "");
    let guard = Guard::start(&words("--fail-closed"));
    assert!(!is_refused(&unknown), "{}", guard.told());
}

#[test]
fn when_the_guard_is_killed_everything_opens_and_the_next_one_knows_what_it_knew_without_the_server() {
    for kind in ["ext4", "xfs"] {
        let Some(mounted) = Mounted::new(kind) else { return };
        let dir = place();
        let dir = dir.path();
        let (good, bad) = (mounted.write("good", b"good"), mounted.write("bad", &eicar()));
        let [key, tls, trusted, store] =
            ["keys/domain.key", "keys/note", "keys/scan1.pem", "note.verdicts"].map(|name| path(dir, name));
        let (line, root) = (counting(dir), path(&mounted.root, ""));
        let server = server(dir, Verdicts::in_memory(&domain(dir), 1000).unwrap());
        let address = server.address().to_string();
        // Another machine has scanned them.
        let scanner = ["--key", &key, "--tls", &path(dir, "keys/scan1"), "--verdicts", &path(dir, "scan1.verdicts")];
        let words = ["scan", "--server", &address, "--command", &line, &root];
        finish(&mut onesweep(&[&words[..], &scanner].concat()), 1);
        let scanned = count(dir);
        let words = ["--fail-closed", "--command", &line, "--key", &key, "--tls", &tls, "--trust", &trusted];
        let words = [&words[..], &["--verdicts", &store]].concat();
        let mut guard = Guard::start(&[&words[..], &["--log", "debug", "--server", &address, &root]].concat());
        assert!(!is_refused(&good) && is_refused(&bad), "{}", guard.told());
        assert_eq!(count(dir), scanned, "what the server knew was not scanned");
        guard.wait_until_kept(2);
        let own = mounted.write("own", b"found here");
        assert!(!is_refused(&own));
        guard.wait_until_kept(3);
        guard.kill();
        assert_eq!(read(&bad), Ok(eicar()), "the kernel lets everything through");
        drop(server);
        let guard = Guard::start(&[&words[..], &[&root]].concat());
        assert!(!is_refused(&good) && is_refused(&bad) && !is_refused(&own), "{}", guard.told());
        assert_eq!(count(dir), scanned + 1, "{}", guard.told());
    }
}

#[test]
fn no_descriptor_of_the_guard_is_there_in_the_engine() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let dir = with_keys();
    let dir = dir.path();
    let listing = path(dir, "listing");
    let numbers = |listed: &str| -> Vec<u32> {
        let all = listed.lines().filter_map(|line| line.split_once(" -> ")?.0.rsplit(' ').next()?.parse().ok());
        let mut all: Vec<u32> = all.collect();
        all.sort_unstable();
        all
    };
    // Who runs this test may have left some open to all.
    let listed = Command::new("/bin/ls").args(["-l", "/proc/self/fd"]).stdin(Stdio::null()).output().unwrap().stdout;
    let listed = String::from_utf8(listed).unwrap();
    let inherited = numbers(&listed);
    assert!(inherited.starts_with(&[0, 1, 2, 3]), "3 is the directory that is listed: {listed}");
    let line = format!("ls -l /proc/self/fd > {listing}; exit 0");
    let [key, store, root] = [path(dir, "keys/domain.key"), path(dir, "v"), path(&mounted.root, "")];
    let file = mounted.write("file", b"x");
    let large = mounted.write("large", &vec![1; 17 << 20]);
    let _guard = Guard::start(&["--fail-closed", "--command", &line, "--key", &key, "--verdicts", &store, &root]);
    for file in [file, large] {
        assert!(!is_refused(&file));
        let listed = fs::read_to_string(&listing).unwrap();
        assert!(!listed.contains("fanotify") && listed.contains("/proc/"), "{listed}");
        assert_eq!(numbers(&listed), inherited, "{listed}");
    }
}

#[test]
fn it_does_not_wait_for_itself_when_all_that_it_needs_is_guarded() {
    for kind in ["ext4", "xfs"] {
        let Some(mounted) = Mounted::new(kind) else { return };
        let dir = with_keys();
        let dir = dir.path();
        let root = mounted.root.to_str().unwrap();
        // The program, what it reads, what it writes and reads again, and the store.
        let grep = mounted.root.join("grep");
        copy_program(Path::new("/bin/grep"), &grep);
        mounted.write("patterns", b"EICAR-STANDARD\n");
        let program = mounted.write(
            "program",
            format!("#!/bin/sh\ncat > {root}/tmp.$$\n(sleep 0; {root}/grep -q -f {root}/patterns {root}/tmp.$$)\nfound=$?\nrm {root}/tmp.$$\ntest $found = 0 && exit 1; exit 0\n")
                .as_bytes(),
        );
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let [key, store] = [path(dir, "keys/domain.key"), path(&mounted.root, "store")];
        let bad: Vec<PathBuf> =
            (0..8).map(|n| mounted.write(&format!("bad{n}"), &[&[n][..], &eicar()].concat())).collect();
        let words =
            ["--command", program.to_str().unwrap(), "--key", &key, "--verdicts", &store, "--patience", "1h", root];
        let guard = Guard::start(&[&["--fail-open", "--scanners", "2"][..], &words].concat());
        thread::scope(|scope| {
            let threads: Vec<_> = bad.iter().map(|file| scope.spawn(|| is_refused(file))).collect();
            assert!(threads.into_iter().all(|thread| thread.join().unwrap()), "{}", guard.told());
        });
        // To others the program is a file as any.
        assert!(!is_refused(&grep));
        guard.end();

        // clamd with its signatures, its socket and the place where it unpacks.
        let unpacked = path(&mounted.root, "unpacked");
        fs::create_dir(&unpacked).unwrap();
        let clamd = Clamd::start(&mounted.root, &format!("TemporaryDirectory {unpacked}\nForceToDisk yes\n"));
        let packed = mounted.write("packed", &eicar());
        run("gzip", &[packed.to_str().unwrap()]).unwrap();
        let socket = clamd.socket.to_str().unwrap();
        let store = path(dir, "v");
        let words = ["--clamd", socket, "--key", &key, "--verdicts", &store, "--patience", "1h", root];
        let guard = Guard::start(&[&["--fail-open", "--scanners", "1"][..], &words].concat());
        assert!(is_refused(&mounted.root.join("packed.gz")), "{}", guard.told());
        guard.end();
    }
}

#[test]
fn a_slow_scan_holds_up_nobody_else_and_has_its_time() {
    let Some(mounted) = Mounted::new("ext4") else { return };
    let dir = with_keys();
    let dir = dir.path();
    let [key, store, root, go] =
        [path(dir, "keys/domain.key"), path(dir, "v"), path(&mounted.root, ""), path(dir, "go")];
    let line = format!("grep -q slow && echo $$ > {go}.pid && while ! test -e {go}; do sleep 0.05; done; exit 0");
    let (known, slow) = (mounted.write("known", b"known"), mounted.write("slow", b"slow"));
    let words = ["--command", &line, "--key", &key, "--verdicts", &store, &root];
    let guard = Guard::start(&[&["--fail-closed", "--patience", "1h"][..], &words].concat());
    assert!(!is_refused(&known));
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..20).map(|_| scope.spawn(|| is_refused(&slow))).collect();
        let fast = mounted.write("fast", b"fast");
        assert!(!is_refused(&known) && !is_refused(&fast));
        assert!(waiting.iter().all(|one| !one.is_finished()));
        fs::write(&go, "").unwrap();
        assert!(waiting.into_iter().all(|one| !one.join().unwrap()));
    });
    guard.end();
    fs::remove_file(&go).unwrap();
    fs::remove_file(format!("{go}.pid")).unwrap();
    fs::remove_file(&store).unwrap();
    // Who waits when it is killed waits no more.
    let guard = Guard::start(&[&["--fail-closed", "--patience", "1h"][..], &words].concat());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| is_refused(&slow));
        assert!(!is_refused(&known) && !waiting.is_finished());
        let running = || fs::read_to_string(format!("{go}.pid")).ok().filter(|pid| pid.ends_with('\n'));
        let until = Instant::now() + Duration::from_secs(60);
        while running().is_none() && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
        guard.kill();
        assert!(!waiting.join().unwrap());
        // Nor does the command go on for nobody.
        let command = format!("/proc/{}/stat", running().unwrap().trim());
        while fs::read_to_string(&command).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(Instant::now() < until, "it runs on");
            thread::sleep(Duration::from_millis(10));
        }
    });
    for (how, is_closed) in [("--fail-closed", true), ("--fail-open", false)] {
        let mut guard = Guard::start(&[&[how, "--patience", "1s", "--scan-time", "2s"][..], &words].concat());
        assert_eq!(is_refused(&slow), is_closed);
        guard.wait_for("no verdict in time");
        // As many as there are scanners take their time; others are looked at afterwards.
        assert!(!is_refused(&known));
        guard.end();
    }
}

#[test]
fn many_open_many_files_at_a_time() {
    for kind in ["ext4", "xfs"] {
        let Some(mounted) = Mounted::new(kind) else { return };
        let dir = with_keys();
        let dir = dir.path();
        let clamd = Clamd::start(dir, "");
        let files: Vec<(PathBuf, bool)> = (0..40)
            .map(|n: usize| {
                let is_bad = n.is_multiple_of(4);
                let content = if is_bad {
                    [format!("{n}").into_bytes(), eicar()].concat()
                } else {
                    format!("{n}").repeat(n * 999 + 1).into()
                };
                (mounted.write(&format!("d{}/f{n}", n % 5), &content), is_bad)
            })
            .collect();
        let [key, store, root] = [path(dir, "keys/domain.key"), path(dir, "v"), path(&mounted.root, "")];
        let socket = clamd.socket.to_str().unwrap();
        let guard = Guard::start(&["--fail-closed", "--clamd", socket, "--key", &key, "--verdicts", &store, &root]);
        thread::scope(|scope| {
            for seed in 0..16 {
                let files = &files;
                scope.spawn(move || {
                    for at in 0..200 {
                        let (file, is_bad) = &files[(at * 7 + seed * 11) % files.len()];
                        assert_eq!(is_refused(file), *is_bad, "{}", file.display());
                    }
                });
            }
        });
        let told = guard.end();
        assert!(told.contains(" 0 undecided"), "{told}");
    }
}

#[test]
fn what_cannot_be_guarded_is_told() {
    let dir = with_keys();
    let dir = dir.path();
    let [key, store] = [path(dir, "keys/domain.key"), path(dir, "v")];
    let words = ["guard", "--fail-open", "--command", "exit 0", "--key", &key, "--verdicts", &store];
    let (_, why) = finish(&mut onesweep(&[&words[..], &[&path(dir, "none")]].concat()), 2);
    assert!(why.contains("none: cannot guard it") || why.contains("only root"), "{why}");
    let (_, why) = finish(&mut onesweep(&[&words[..], &["--engine-program", &path(dir, "none"), "/"]].concat()), 2);
    assert!(why.contains("cannot use it as the engine's program"), "{why}");
}

/// The unit that comes along is one that systemd takes.
#[test]
fn the_unit_is_sound() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/onesweep-guard@.service");
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("onesweep-guard@srv.service");
    let text = fs::read_to_string(unit).unwrap().replace("/usr/local/bin/onesweep", env!("CARGO_BIN_EXE_onesweep"));
    fs::write(&copy, &text).unwrap();
    crate::unit::assert_sound(&copy);
    assert!(text.contains("Restart=always") && text.contains("Type=notify"));
}
