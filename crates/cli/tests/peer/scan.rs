//! `onesweep scan` as it is typed, with a real clamd, and with servers that lie.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    os::unix::net::UnixListener,
    path::Path,
    process::Stdio,
    sync::{
        Arc,
        mpsc::{self, Receiver},
    },
    time::{Duration, SystemTime},
};

use onesweep_peer::{
    id::{BlockSize, TrustDomain},
    scan::{EngineId, Signer, Statement, Verdict, Verdicts, content},
    serve::{self, Server},
    store::Memory,
    tls::Identity,
};
use serde_json::Value;

use crate::{
    clamd::{Clamd, NAME, eicar},
    finish, onesweep, path,
    schema::faults_of_sarif,
    with_keys,
};

/// Keys for a server, a scanner, another scanner and a notebook; a tree with bad files and good ones.
pub(crate) fn place() -> tempfile::TempDir {
    let dir = with_keys();
    let keys = path(dir.path(), "keys");
    for (name, role) in [("box", "server"), ("scan1", "scanner"), ("scan2", "scanner"), ("note", "client")] {
        finish(&mut onesweep(&["peer", "keys", &keys, "--add", name, "--role", role]), 0);
    }
    tree(dir.path(), "tree");
    dir
}

/// 20 good files, an empty one, one bad one with two names, and a bad one that is too large for `--large 64K`.
fn tree(dir: &Path, name: &str) {
    let tree = dir.join(name);
    fs::create_dir_all(tree.join("sub")).unwrap();
    for n in 0..20 {
        fs::write(tree.join(format!("good{n}")), format!("good {n} ").repeat(100 * n + 1)).unwrap();
    }
    fs::write(tree.join("empty"), "").unwrap();
    fs::write(tree.join("bad"), eicar()).unwrap();
    fs::hard_link(tree.join("bad"), tree.join("sub/other name")).unwrap();
    fs::write(tree.join("sub/large"), [vec![b'.'; 200_000], eicar(), vec![b'.'; 100_000]].concat()).unwrap();
}

pub(crate) const NAMES: u64 = 24;
/// Of them, of which no engine is asked.
pub(crate) const EMPTY: u64 = 1;
pub(crate) const BAD: [&str; 3] = ["bad", "sub/large", "sub/other name"];

/// The words for a machine: its own store of verdicts, its own certificate.
pub(crate) fn machine(dir: &Path, name: &str) -> Vec<String> {
    let (key, tls) = (path(dir, "keys/domain.key"), path(dir, &format!("keys/{name}")));
    let store = path(dir, &format!("{name}.verdicts"));
    ["scan", "--large", "64K", "--key", &key, "--tls", &tls, "--verdicts", &store].map(str::to_owned).to_vec()
}

pub(crate) fn scan(words: &[String], more: &[&str], code: i32) -> Value {
    let words: Vec<&str> = words.iter().map(String::as_str).chain(["--json"]).chain(more.iter().copied()).collect();
    let (out, _) = finish(&mut onesweep(&words), code);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

pub(crate) fn details(summary: &Value) -> [u64; 4] {
    ["scanned", "kept", "peer", "infected"].map(|name| summary["details"][name].as_u64().unwrap())
}

fn found(summary: &Value, root: &str) -> Vec<String> {
    let all = summary["details"]["findings"].as_array().unwrap();
    let mut paths: Vec<String> = all
        .iter()
        .map(|found| {
            assert_eq!(found["name"], NAME);
            found["path"].as_str().unwrap().strip_prefix(root).unwrap().trim_start_matches('/').to_owned()
        })
        .collect();
    paths.sort();
    paths
}

#[test]
fn each_content_is_scanned_once() {
    let dir = place();
    let dir = dir.path();
    let clamd = Clamd::start(dir, "");
    let (socket, root) = (path(dir, "clamd/socket"), path(dir, "tree"));
    let socket = socket.as_str();
    let words = machine(dir, "note");
    let first = scan(&words, &["--clamd", socket, &root], 1);
    assert_eq!(
        (details(&first), found(&first, &root)),
        ([NAMES - EMPTY, EMPTY, 0, 3], BAD.map(str::to_owned).to_vec())
    );
    assert!(first["details"]["epoch"].as_str().unwrap().starts_with("ClamAV "), "{first}");
    assert_eq!(first["streamed"]["files"], 1, "the large one is handed over as it lies");
    // The empty one needs no engine.
    let again = scan(&words, &["--clamd", socket, &root], 1);
    assert_eq!((details(&again), found(&again, &root)), ([0, NAMES, 0, 3], BAD.map(str::to_owned).to_vec()));
    let other_epoch = scan(&words, &["--clamd", socket, "--epoch", "2", &root], 1);
    assert_eq!(details(&other_epoch), [NAMES - EMPTY, EMPTY, 0, 3]);
    assert_eq!(details(&scan(&words, &["--clamd", socket, "--rescan", &root], 1)), [NAMES - EMPTY, EMPTY, 0, 3]);

    // A content that is known by another name, and one that differs by a byte.
    tree(dir, "copy");
    fs::write(dir.join("copy/good3"), [&b"x"[..], &eicar()].concat()).unwrap();
    let copy = path(dir, "copy");
    let copied = scan(&words, &["--clamd", socket, &copy], 1);
    assert_eq!(details(&copied), [1, NAMES - 1, 0, 4]);

    drop(clamd);
    // Nobody is called clean by an engine that isn't there.
    let words: Vec<&str> = words.iter().map(String::as_str).chain(["--clamd", socket, &root]).collect();
    let (_, why) = finish(&mut onesweep(&words), 2);
    assert!(why.contains("clamd at ") && why.contains("cannot connect"), "{why}");
}

#[test]
fn results_are_told_as_clamscan_does_and_as_sarif() {
    let dir = place();
    let dir = dir.path();
    let clamd = Clamd::start(dir, "StreamMaxLength 100K\n");
    let (socket, root) = (clamd.socket.to_str().unwrap(), path(dir, "tree"));
    let key = path(dir, "keys/domain.key");
    let store = path(dir, "verdicts");
    let words = ["scan", "--key", &key, "--verdicts", &store, "--clamd", socket];
    let (out, _) = finish(&mut onesweep(&[&words[..], &[&root]].concat()), 1);
    let mut lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines.pop(), Some("3 of 24 files infected; 23 scanned, 1 known here, 0 to others"));
    lines.sort_unstable();
    assert_eq!(lines, BAD.map(|name| format!("{root}/{name}: {NAME} FOUND")));
    let (out, _) = finish(&mut onesweep(&[&words[..], &[&format!("{root}/good1"), "-q"]].concat()), 0);
    assert_eq!(out, "");
    let (out, _) = finish(&mut onesweep(&[&words[..], &["--sarif", &root]].concat()), 1);
    let run = sarif(&out);
    let uris: Vec<&Value> = run["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|result| &result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])
        .collect();
    assert_eq!(uris.len(), 3);
    assert!(uris.contains(&&Value::from(format!("file://{root}/sub/other%20name"))), "{uris:?}");
    // A remote one gets the bytes; what it doesn't want to look at is an error, and never clean.
    let remote = ["scan", "--key", &key, "--verdicts", &store, "--rescan", "--clamd", &clamd.address];
    let (out, why) = finish(&mut onesweep(&[&remote[..], &[&root]].concat()), 1);
    assert!(out.contains("/bad: ") && out.contains("\n2 of 23 files infected"), "{out}");
    assert!(why.contains("sub/large: cannot scan it: clamd: INSTREAM size limit exceeded."), "{why}");
    let large = format!("{root}/sub/large");
    finish(&mut onesweep(&[&remote[..], &[&large]].concat()), 2);
    let (_, why) = finish(&mut onesweep(&[&remote[..], &["/no/such/file"]].concat()), 2);
    assert!(why.contains("/no/such/file"), "{why}");
}

#[test]
fn any_command_is_an_engine() {
    let dir = place();
    let dir = dir.path();
    let root = path(dir, "tree");
    let words = machine(dir, "note");
    let line = "grep -q EICAR-STANDARD && echo Test.Eicar.UNOFFICIAL && exit 1; exit 0";
    let first = scan(&words, &["--command", line, &root], 1);
    assert_eq!(
        (details(&first), found(&first, &root)),
        ([NAMES - EMPTY, EMPTY, 0, 3], BAD.map(str::to_owned).to_vec())
    );
    assert_eq!(details(&scan(&words, &["--command", line, &root], 1)), [0, NAMES, 0, 3]);
    // Another line is another engine; one that fails has no verdict.
    let failing = scan(&words, &["--command", "exit 3", &root], 2);
    assert_eq!(details(&failing), [0, EMPTY, 0, 0]);
    let late = scan(&words, &["--command", "sleep 1000; exit 0", "--scan-time", "1s", &path(dir, "tree/good1")], 2);
    assert_eq!((details(&late), &late["errors"]), ([0; 4], &1.into()));
    // Each of its names is told, however many of them were known when the file failed.
    assert_eq!(failing["errors"], NAMES - EMPTY);
}

/// A server whose store was filled with what it should say.
pub(crate) fn server(dir: &Path, verdicts: Verdicts) -> Server {
    let tls = Identity::read(&dir.join("keys/box")).unwrap().into_server().unwrap();
    let mut settings = serve::Settings::encrypted(domain(dir), tls);
    settings.verdicts = Some(Arc::new(verdicts));
    Server::start(TcpListener::bind("127.0.0.1:0").unwrap(), Arc::new(Memory::new(1 << 20)), settings).unwrap()
}

pub(crate) fn domain(dir: &Path) -> TrustDomain {
    TrustDomain::read(&dir.join("keys/domain.key")).unwrap()
}

/// Files changed within two seconds before they are indexed get no hashes.
pub(crate) fn settle() {
    let until = SystemTime::now() + Duration::from_millis(3100);
    while let Ok(left) = until.duration_since(SystemTime::now()) {
        std::thread::sleep(left);
    }
}

#[test]
fn a_second_machine_reads_nothing_of_what_it_has_indexed_and_another_has_scanned() {
    let dir = place();
    let dir = dir.path();
    tree(dir, "second");
    settle();
    let clamd = Clamd::start(dir, "");
    let socket = clamd.socket.to_str().unwrap();
    let server = server(dir, Verdicts::in_memory(&domain(dir), 1000).unwrap());
    let address = server.address().to_string();
    let [root, second] = ["tree", "second"].map(|name| path(dir, name));
    let [key, index, trusted] = ["keys/domain.key", "index", "keys/scan1.pem"].map(|name| path(dir, name));

    let first = scan(&machine(dir, "scan1"), &["--server", &address, "--clamd", socket, &root], 1);
    assert_eq!(details(&first), [NAMES - EMPTY, EMPTY, 0, 3]);
    assert_eq!(first["details"]["verdicts_told"], 22, "each content once");

    finish(&mut onesweep(&["peer", "index", "--key", &key, "--index", &index, &second]), 0);
    let known = ["--server", &address, "--clamd", socket, "--index", &index];
    let words = machine(dir, "note");
    let trusting = [&known[..], &["--trust", &trusted, &second]].concat();
    let read = scan(&words, &trusting, 1);
    // The empty one is indexed, too, and has no verdict since nobody needs one.
    assert_eq!(
        (details(&read), found(&read, &second)),
        ([0, EMPTY, NAMES - EMPTY, 3], BAD.map(str::to_owned).to_vec())
    );
    assert_eq!((&read["bytes"], &read["bytes_read"]), (&0.into(), &0.into()), "no byte of any file: {read}");

    // What has changed since it was indexed is read, and it alone.
    fs::write(dir.join("second/good7"), [&b"changed"[..], &eicar()].concat()).unwrap();
    let changed = scan(&words, &trusting, 1);
    assert_eq!(details(&changed), [1, NAMES - 1, 0, 4]);
    assert_eq!(changed["bytes"], 7 + 68);

    // Without the server, what was heard is known; on a machine that trusts nobody, nothing of it is.
    drop(server);
    assert_eq!(
        details(&scan(&words, &["--trust", &trusted, "--clamd", socket, "--index", &index, &second], 1))[..2],
        [0, NAMES]
    );
    assert_eq!(details(&scan(&machine(dir, "scan2"), &["--clamd", socket, &second], 1)), [NAMES - EMPTY, EMPTY, 0, 4]);
}

/// An index of blocks of another size has other names for contents. So they are read, and known by the names of the scanner's size:
/// no content is scanned twice but what is too large for memory.
#[test]
fn a_machine_with_other_blocks_scans_nothing_of_what_another_has_scanned() {
    let dir = place();
    let dir = dir.path();
    tree(dir, "second");
    settle();
    let server = server(dir, Verdicts::in_memory(&domain(dir), 1000).unwrap());
    let address = server.address().to_string();
    let [root, second] = ["tree", "second"].map(|name| path(dir, name));
    let [key, index, trusted] = ["keys/domain.key", "index", "keys/scan1.pem"].map(|name| path(dir, name));
    let engine =
        ["--server", &address, "--command", "if grep -q EICAR-STANDARD; then echo Test.Eicar.UNOFFICIAL; exit 1; fi"];
    let first = scan(&machine(dir, "scan1"), &[&engine[..], &[&root]].concat(), 1);
    assert_eq!(details(&first), [NAMES - EMPTY, EMPTY, 0, 3]);

    let sized = ["peer", "index", "--key", &key, "--block-size", "16K", "--index", &index, &second];
    finish(&mut onesweep(&sized), 0);
    let more = [&engine[..], &["--index", &index, "--trust", &trusted, &second]].concat();
    let words = machine(dir, "note");
    let known = scan(&words, &more, 1);
    let large = 1;
    assert_eq!(
        (details(&known), found(&known, &second)),
        ([large, EMPTY, NAMES - EMPTY - large, 3], BAD.map(str::to_owned).to_vec())
    );
    assert!(known["bytes"].as_u64().unwrap() > 0, "{known}");
    // What was heard is kept under the names by which it was heard, and counts without the server.
    drop(server);
    assert_eq!(details(&scan(&words, &more[2..], 1)), [0, NAMES, 0, 3]);
}

/// What a server may say of EICAR that is no word to count on, and what is; and the epoch that clamd has, with one from before.
pub(crate) fn lies(dir: &Path, socket: &str) -> ([EngineId; 2], Vec<(&'static str, Statement, bool)>) {
    // Which engine it is, it says itself.
    let asked = scan(&machine(dir, "scan2"), &["--clamd", socket, &path(dir, "tree/bad")], 1);
    let text = |name: &str| asked["details"][name].as_str().unwrap().to_owned();
    let engine = EngineId::new(&text("engine"), &text("epoch")).unwrap();
    let before = EngineId::new(&text("engine"), "ClamAV 1.0.0/1/Thu Jan  1 00:00:00 1970").unwrap();

    let hash = content::of_bytes(&domain(dir), BlockSize::default(), &eicar());
    let signer = |name: &str| {
        Signer::new(&Identity::read(&dir.join("keys").join(name)).unwrap(), &domain(dir)).unwrap().unwrap()
    };
    let sign = |name: &str, engine: &EngineId| signer(name).sign(engine, hash, Verdict::Clean, 1_800_000_000).unwrap();
    let right = sign("scan1", &engine);
    let bad = signer("scan1").sign(&engine, hash, Verdict::infected("x"), 1_800_000_000).unwrap();
    let lies = vec![
        ("unsigned", Statement::unsigned(hash, Verdict::Clean, 1_800_000_000), false),
        ("of a name that counts, unsigned", Statement { signature: Vec::new(), ..right.clone() }, false),
        ("wrongly signed", Statement { verdict: Verdict::Clean, ..bad }, false),
        ("signed by another", sign("scan2", &engine), false),
        ("of an old epoch", sign("scan1", &before), false),
        ("of another time", Statement { time: 1_900_000_000, ..right.clone() }, false),
        // That a scanner doesn't lie is what it is trusted for; and so these lies do come to where they are judged.
        ("rightly signed", right, true),
    ];
    ([engine, before], lies)
}

#[test]
fn a_server_that_lies_makes_nothing_clean() {
    let dir = place();
    let dir = dir.path();
    let clamd = Clamd::start(dir, "");
    let socket = clamd.socket.to_str().unwrap();
    let (root, trusted) = (path(dir, "tree/bad"), path(dir, "keys/scan1.pem"));
    let (epochs, lies) = lies(dir, socket);
    for (what, lie, is_believed) in lies {
        let verdicts = Verdicts::in_memory(&domain(dir), 1000).unwrap();
        for epoch in &epochs {
            verdicts.keep(epoch, std::slice::from_ref(&lie)).unwrap();
        }
        let server = server(dir, verdicts);
        let address = server.address().to_string();
        let _ = fs::remove_file(dir.join("note.verdicts"));
        let more = ["--server", &address, "--trust", &trusted, "--clamd", socket, &root];
        let found = scan(&machine(dir, "note"), &more, if is_believed { 0 } else { 1 });
        assert_eq!(details(&found), if is_believed { [0, 0, 1, 0] } else { [1, 0, 0, 1] }, "{what}");
        assert!(server.exposition().contains("\nonesweep_peer_verdicts_known_total 1\n"), "{what}: nobody asked");
    }
}

#[test]
fn who_can_not_be_trusted_is_not_asked_in_the_first_place() {
    let dir = place();
    let dir = dir.path();
    let (root, key) = (path(dir, "tree"), path(dir, "keys/domain.key"));
    for (words, why) in [
        (&["--server", "127.0.0.1:1"][..], "without --tls no server's word counts"),
        (&["--tls", &path(dir, "keys/note"), "--trust", &path(dir, "keys/note.pem")], "its role is not scanner"),
        (&["--tls", &path(dir, "keys/note"), "--trust", &path(dir, "keys/none.pem")], "cannot read the certificate"),
        (&["--verdicts", &path(dir, "keys/domain.key")], "it holds no verdicts"),
    ] {
        let first = ["scan", "--command", "exit 0", "--key", &key];
        let store = path(dir, "v");
        let store = if words[0] == "--verdicts" { vec![] } else { vec!["--verdicts", &store] };
        let (_, told) = finish(&mut onesweep(&[&first[..], words, &store, &[&root]].concat()), 2);
        assert!(told.contains(why), "{told}");
    }
    // A server that isn't there is told of, and all is scanned here.
    let words = machine(dir, "note");
    let gone = scan(&words, &["--server", "127.0.0.1:1", "--command", "exit 0", &root], 0);
    assert_eq!(details(&gone), [NAMES - EMPTY, EMPTY, 0, 0]);
}

/// The only run of a log of SARIF, which is as its schema has it.
fn sarif(text: &str) -> Value {
    let mut log: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(faults_of_sarif(&log), [""; 0], "{text}");
    log["runs"][0].take()
}

/// An empty file is none that who reads SARIF understands.
#[test]
fn a_scan_that_can_not_be_is_told_in_sarif_too() {
    let dir = place();
    let dir = dir.path();
    let (root, nobody, key) = (path(dir, "tree"), path(dir, "no-socket"), path(dir, "keys/none.key"));
    for (words, why) in [
        (&["--clamd", &nobody, &root][..], "cannot connect"),
        (&["--clamd", &nobody, "/no/such/file"], "/no/such/file"),
        (&["--command", "exit 0", "--key", &key, &root], "cannot read the key"),
    ] {
        let (out, told) = finish(&mut onesweep(&[&["scan", "--sarif"], words].concat()), 2);
        let run = sarif(&out);
        let invocation = &run["invocations"][0];
        assert_eq!((&invocation["executionSuccessful"], &invocation["exitCode"]), (&false.into(), &2.into()), "{run}");
        let [notification] = invocation["toolExecutionNotifications"].as_array().unwrap().as_slice() else {
            panic!("{run}")
        };
        let said = notification["message"]["text"].as_str().unwrap();
        assert!(notification["level"] == "error" && said.contains(why), "{run}");
        assert!(told.contains(said), "the same as on standard error: {told}");
        assert_eq!(run["results"], Value::Array(Vec::new()));
        let (out, _) = finish(&mut onesweep(&[&["scan", "--json"], words].concat()), 2);
        assert_eq!(out, "", "as of all commands that could not begin");
    }
    // Files that fail are told as one, and what is found beside them stays.
    let line = "case $(cat) in *EICAR*) echo Bad; exit 1;; 'good 7 '*) exit 3;; esac";
    let words = machine(dir, "note");
    let words: Vec<&str> = words.iter().map(String::as_str).chain(["--sarif", "--command", line, &root]).collect();
    let run = sarif(&finish(&mut onesweep(&words), 1).0);
    let invocation = &run["invocations"][0];
    assert_eq!(run["results"].as_array().unwrap().len(), 3);
    assert_eq!((&invocation["executionSuccessful"], &invocation["exitCode"]), (&false.into(), &1.into()), "{run}");
    assert_eq!(invocation["toolExecutionNotifications"][0]["message"]["text"], "errors: 1, told on standard error");
}

/// A command that writes without end is as quick to go as one that waits.
#[test]
fn an_interrupt_ends_the_command_too() {
    let dir = place();
    for line in ["yes", "sleep 1000"] {
        let marked = format!("echo $$ >> {}; exec {line}", path(dir.path(), "started"));
        let mut scan = onesweep(&["scan", "--scan-time", "1000s", "--command", &marked, &path(dir.path(), "tree")]);
        let running = scan.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let started = loop {
            let started = fs::read_to_string(dir.path().join("started")).unwrap_or_default();
            if started.ends_with('\n') {
                break started;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        rustix::process::kill_process(rustix::process::Pid::from_child(&running), rustix::process::Signal::TERM)
            .unwrap();
        let out = running.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(130), "{line}: {}", String::from_utf8_lossy(&out.stderr));
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(said.contains("interrupted") && !said.contains("cannot scan it"), "{line}: {said}");
        for command in started.lines() {
            assert!(!Path::new("/proc").join(command).join("exe").exists(), "{line} goes on");
        }
        fs::remove_file(dir.path().join("started")).unwrap();
    }
}

/// Also what it has started, which nobody asks to end.
#[test]
fn a_kill_ends_the_command_with_all_of_its_group() {
    let dir = place();
    let started = path(dir.path(), "started");
    for line in ["sleep 1000 & echo $! $$", "sh -c 'echo $$; exec sleep 1000' | cat & echo $!"] {
        let marked = format!("{{ {line}; }} >> {started}; echo end >> {started}; wait");
        let mut scan =
            onesweep(&["scan", "--scan-time", "1000s", "--command", &marked, &path(dir.path(), "tree/good1")]);
        let mut running = scan.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let processes = loop {
            let said = fs::read_to_string(&started).unwrap_or_default();
            // What comes through the pipe comes at any time, also behind the end.
            if said.contains("end\n") && said.ends_with('\n') && said.split_whitespace().count() == 3 {
                break said;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        running.kill().unwrap();
        running.wait().unwrap();
        let until = SystemTime::now() + Duration::from_secs(60);
        for process in processes.split_whitespace().filter(|word| *word != "end") {
            while Path::new("/proc").join(process).join("exe").exists() {
                assert!(SystemTime::now() < until, "{line}: {process} goes on");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        fs::remove_file(&started).unwrap();
    }
}

/// Says which it is, if it does, calls the first content clean, and nothing more. Each question that it leaves open is told.
fn hanging(says_which: bool, listener: UnixListener) -> Receiver<()> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let mut has_looked = false;
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut asked = Vec::new();
            // A file comes behind its command, with a byte of its own.
            let ends = |asked: &[u8]| 1 + usize::from(asked.starts_with(b"zFILDES"));
            while asked.iter().filter(|byte| **byte == 0).count() < ends(&asked) {
                let mut some = [0; 64];
                match stream.read(&mut some).unwrap() {
                    // It was ended before it had asked.
                    0 => break,
                    count => asked.extend_from_slice(&some[..count]),
                }
            }
            match asked.starts_with(b"zVERSION") {
                true if says_which => stream.write_all(b"ClamAV 1.4.3/27700/Mon\0").unwrap(),
                false if !has_looked => {
                    has_looked = true;
                    stream.write_all(b"fd[9]: OK\0").unwrap();
                }
                _ => {
                    open.push(stream);
                    // Who doesn't listen has seen enough.
                    let _ = tell.send(());
                }
            }
        }
    });
    told
}

#[test]
fn an_interrupt_does_not_wait_for_a_clamd_that_hangs() {
    let dir = place();
    let root = path(dir.path(), "tree");
    for (says_which, verdicts_kept) in [(false, 0), (true, 1)] {
        for format in ["--json", "--sarif"] {
            let socket = path(dir.path(), &format!("hanging-{says_which}{format}"));
            let held = hanging(says_which, UnixListener::bind(&socket).unwrap());
            let mut words = machine(dir.path(), "note");
            words.extend(["--clamd", &socket, "--scan-time", "1000s", "--rescan", format, &root].map(str::to_owned));
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let running = onesweep(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            held.recv().unwrap();
            let pid = rustix::process::Pid::from_child(&running);
            rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
            let out = running.wait_with_output().unwrap();
            let (said, why) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
            assert_eq!((out.status.code(), why.as_str()), (Some(130), "onesweep: interrupted\n"), "{said}");
            if format == "--sarif" {
                let invocation = &sarif(&said)["invocations"][0];
                assert_eq!((&invocation["executionSuccessful"], &invocation["exitCode"]), (&false.into(), &130.into()));
                assert_eq!(invocation["toolExecutionNotifications"][0]["message"]["text"], "interrupted");
            } else {
                let summary: Value = serde_json::from_str(&said).unwrap();
                assert_eq!(summary["details"]["verdicts_kept"], verdicts_kept, "what was found stays: {summary}");
            }
        }
    }
}
