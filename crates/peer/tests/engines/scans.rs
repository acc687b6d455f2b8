//! `scan` whose server is above an engine: what one machine has found, another takes from the next server, and reads nothing.

use std::{
    fs,
    os::fd::AsFd as _,
    time::{Duration, SystemTime},
};

use onesweep_sys::cache;

use crate::{
    processes::{Cluster, Process, RedisServer},
    s3,
    site::{Serving, Site, program, told_figure},
};

const FILES: u64 = 30;
/// What the engine of these scans looks for, and how.
const BAD: &str = "a bad word";
const LOOK: &str = "if grep -q 'a bad word'; then echo Bad; exit 1; fi; exit 0";

fn tree(site: &Site, name: &str) {
    fs::create_dir(site.path(name)).unwrap();
    for n in 0..FILES {
        let word = if n == 7 { BAD } else { "a good word" };
        fs::write(site.path(name).join(n.to_string()), format!("{n} {word} ").repeat(500)).unwrap();
    }
}

/// Has the kernel forget them, so that reading one is seen.
fn forget(site: &Site, name: &str) {
    for n in 0..FILES {
        let file = fs::File::open(site.path(name).join(n.to_string())).unwrap();
        file.sync_all().unwrap();
        cache::drop_cached(file.as_fd(), 0, 0).unwrap();
    }
}

/// Files that were scanned, that servers knew, bytes that were read. One of all files is bad, and has to be found.
fn scan(site: &Site, server: &Serving<'_>, identity: &str, store: &str, more: &[&str], of: &str) -> [u64; 3] {
    let mut scan = program();
    scan.args(["scan", "--json", "--command", LOOK, "--epoch", "1", "--server", &server.address]).args(more);
    scan.arg("--key").arg(site.path("keys/domain.key")).arg("--tls").arg(site.path(identity));
    forget(site, of);
    let output = scan.arg("--verdicts").arg(site.path(store)).arg(site.path(of)).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(told_figure(&told, "infected"), 1, "{told}");
    ["scanned", "peer", "bytes_read"].map(|name| told_figure(&told, name))
}

/// With the process of the engine, or one of several, which stands still at the end.
fn is_shared_above(engine: &str, process: &Process) {
    let site = Site::new();
    site.keys("keys", &["--add", "scan1", "--role", "scanner"]);
    tree(&site, "tree");
    tree(&site, "second");
    // Files that were changed just now are not indexed.
    let settled = SystemTime::now() + Duration::from_millis(3100);
    let first = Serving::start(&site, engine);
    let [scanned, peer, read] = scan(&site, &first, "keys/scan1", "scan1.verdicts", &[], "tree");
    assert!(scanned == FILES && peer == 0 && read > 0, "{scanned} {peer} {read}");
    // By a kill.
    drop(first);

    while let Ok(left) = settled.duration_since(SystemTime::now()) {
        std::thread::sleep(left);
    }
    let mut index = program();
    index.args(["peer", "index", "--key"]).arg(site.path("keys/domain.key")).arg("--index").arg(site.path("index"));
    assert!(index.arg(site.path("second")).output().unwrap().status.success());
    let second = Serving::start(&site, engine);
    let (trusted, index) = (site.path("keys/scan1.pem"), site.path("index"));
    let more = ["--trust", trusted.to_str().unwrap(), "--index", index.to_str().unwrap()];
    let known = scan(&site, &second, "keys/notebook", "note.verdicts", &more, "second");
    assert_eq!(known, [0, FILES, 0], "scanned, known to the server, bytes read");
    // Whose word counts is for each machine to say, whatever the server knows.
    let [scanned, peer, read] = scan(&site, &second, "keys/notebook", "others.verdicts", &more[2..], "second");
    assert!(scanned == FILES && peer == 0 && read > 0, "{scanned} {peer} {read}");

    // Verdicts are the server's own: they come without the engine, too.
    process.signal("-STOP");
    let known = scan(&site, &second, "keys/notebook", "late.verdicts", &more, "second");
    process.signal("-CONT");
    assert_eq!(known, [0, FILES, 0], "with an engine that stands still");
}

#[test]
fn verdicts_are_shared_above_a_redis_server() {
    let dir = tempfile::tempdir().unwrap();
    let redis = RedisServer::start(dir.path(), &[]);
    is_shared_above(&format!("redis://127.0.0.1:{}?timeout=2s", redis.port), &redis.process);
}

#[test]
fn verdicts_are_shared_above_a_cluster() {
    let cluster = Cluster::start();
    is_shared_above(&cluster.address(), &cluster.nodes[1].process);
}

#[test]
fn verdicts_are_shared_above_s3() {
    let moto = s3::start();
    is_shared_above(&s3::address(&moto, ""), &moto.process);
}
