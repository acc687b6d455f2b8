//! Verdicts: only scanners tell them, only what they have signed is taken, and what is taken comes back.

use std::{path::Path, sync::Arc};

use onesweep_peer::{
    client::{Failure, Peers, Settings},
    keys::{self, Validity},
    scan::{EngineId, Judge, Known, Signer, Source, Statement, Trust, Verdict, Verdicts, judge::Sources},
    serve::{self, Server},
    tls::{Identity, Role},
    wire::Refusal,
};

use crate::support::{LONG, block, domain, hasty, listener, memory};

fn engine(epoch: &str) -> EngineId {
    EngineId::new("clamd", epoch).unwrap()
}

fn identity(dir: &Path, name: &str) -> Identity {
    Identity::read(&dir.join(name)).unwrap()
}

fn authority() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    keys::make_authority(dir.path(), Validity::days(10)).unwrap();
    for (name, role) in [("box", Role::Server), ("note", Role::Client), ("one", Role::Scanner), ("two", Role::Scanner)]
    {
        keys::add(dir.path(), name, role, Validity::days(10)).unwrap();
    }
    dir
}

fn server(dir: &Path, verdicts: Option<Arc<Verdicts>>) -> Server {
    let tls = identity(dir, "box").into_server().unwrap();
    let settings = serve::Settings { verdicts, ..serve::Settings::encrypted(domain(), tls) };
    Server::start(listener(), memory(), settings).unwrap()
}

fn client(server: &Server, dir: &Path, name: &str) -> Peers {
    let tls = identity(dir, name).into_client().unwrap();
    let peers = Peers::connect([server.address().to_string()], Settings { tls: Some(tls), ..hasty() }).unwrap();
    assert!(peers.wait_until_usable(LONG), "{:?}", peers.health());
    peers
}

fn signed(dir: &Path, name: &str, n: u32, verdict: Verdict) -> Statement {
    let signer = Signer::new(&identity(dir, name), &domain()).unwrap().unwrap();
    signer.sign(&engine("1"), block(n).0, verdict, 1_800_000_000).unwrap()
}

fn verdicts() -> Arc<Verdicts> {
    Arc::new(Verdicts::in_memory(&domain(), 1000).unwrap())
}

#[test]
fn what_a_scanner_tells_comes_back_to_all() {
    let dir = authority();
    let dir = dir.path();
    let server = server(dir, Some(verdicts()));
    // More than one frame takes.
    let told: Vec<Statement> = (0..150)
        .map(|n| signed(dir, "one", n, if n % 50 == 0 { Verdict::infected("Bad") } else { Verdict::Clean }))
        .collect();
    let scanner = client(&server, dir, "one");
    assert_eq!(scanner.tell_and_wait(&engine("1"), &told), Ok(150));
    assert_eq!(scanner.tell_and_wait(&engine("1"), &told), Ok(0));
    let note = client(&server, dir, "note");
    let hashes: Vec<_> = (0..151).map(|n| block(n).0).collect();
    let found = note.verdicts_and_wait(&engine("1"), &hashes).unwrap();
    assert!(found[..150].iter().zip(&told).all(|(found, told)| found == std::slice::from_ref(told)));
    assert!(found[150].is_empty());
    assert!(note.verdicts_and_wait(&engine("2"), &hashes).unwrap().iter().all(Vec::is_empty));
    let metrics = server.exposition();
    assert!(metrics.contains("\nonesweep_peer_verdicts_told_total 300\n"), "{metrics}");
}

#[test]
fn who_is_no_scanner_or_has_not_signed_is_refused() {
    let dir = authority();
    let dir = dir.path();
    let kept = verdicts();
    let server = server(dir, Some(Arc::clone(&kept)));
    let right = signed(dir, "one", 1, Verdict::Clean);
    let refused = |name: &str, epoch: &str, told: &[Statement]| {
        client(&server, dir, name).tell_and_wait(&engine(epoch), told).unwrap_err()
    };
    let refusal = |why| Failure::Refused(why);
    assert_eq!(refused("note", "1", std::slice::from_ref(&right)), refusal(Refusal::Role));
    // What another scanner has signed he has to tell himself.
    assert_eq!(refused("two", "1", std::slice::from_ref(&right)), refusal(Refusal::Signature));
    let changed = Statement { verdict: Verdict::infected("x"), ..right.clone() };
    let unsigned = Statement::unsigned(right.hash, Verdict::Clean, 1);
    for told in [changed, unsigned] {
        assert_eq!(refused("one", "1", &[right.clone(), told]), refusal(Refusal::Signature));
    }
    assert_eq!(refused("one", "2", std::slice::from_ref(&right)), refusal(Refusal::Signature), "of another epoch");
    assert!(kept.is_empty().unwrap());
}

#[test]
fn on_the_loopback_nobody_is_a_scanner() {
    let settings = serve::Settings { verdicts: Some(verdicts()), ..serve::Settings::plain(domain()) };
    let server = Server::start(listener(), memory(), settings).unwrap();
    let dir = authority();
    let told = [signed(dir.path(), "one", 1, Verdict::Clean)];
    let peers = crate::support::client(server.address());
    assert_eq!(peers.tell_and_wait(&engine("1"), &told), Err(Failure::Refused(Refusal::Role)));
}

#[test]
fn what_one_machine_found_another_knows_by_its_word() {
    let dir = authority();
    let dir = dir.path();
    let server = server(dir, Some(verdicts()));
    let judge = |name: &str, trusted: &[&str]| {
        let own = identity(dir, name);
        let mut trust = Trust::nobody();
        trust.add_own(&own);
        trusted.iter().for_each(|name| trust.add_file(&dir.join(name), &own).unwrap());
        let signer = Signer::new(&own, &domain()).unwrap();
        let store = Some(Verdicts::in_memory(&domain(), 1000).unwrap());
        let peers = Some(client(&server, dir, name));
        Judge::new(Sources { store, peers, trust, signer, domain: domain() }, engine("1"))
    };
    let (bad, good) = (block(1).0, block(2).0);
    let one = judge("one", &[]);
    one.found(&engine("1"), bad, Verdict::infected("Bad"));
    one.found(&engine("1"), good, Verdict::Clean);
    let flushed = one.flush(engine("1"));
    assert_eq!((flushed.kept, flushed.told, flushed.failures), (2, 2, vec![]));

    let note = judge("note", &["one.pem"]);
    let known = |verdict, source| Some(Known { verdict, source });
    let expected = [known(Verdict::infected("Bad"), Source::Peer), known(Verdict::Clean, Source::Peer), None];
    assert_eq!(note.known(&[bad, good, block(3).0]), expected);
    // A client has no word of its own, and keeps what it heard: it is known without the server.
    note.found(&engine("1"), block(3).0, Verdict::Clean);
    let flushed = note.flush(engine("1"));
    assert_eq!((flushed.kept, flushed.told), (3, 0));
    drop(server);
    assert_eq!(note.known_here(&bad), known(Verdict::infected("Bad"), Source::Kept));

    // Who is trusted by nobody is heard by nobody.
    let server = self::server(dir, Some(verdicts()));
    client(&server, dir, "one").tell_and_wait(&engine("1"), &[signed(dir, "one", 1, Verdict::Clean)]).unwrap();
    let own = identity(dir, "two");
    let mut trust = Trust::nobody();
    trust.add_own(&own);
    let peers = Some(client(&server, dir, "two"));
    let two = Judge::new(Sources { store: None, peers, trust, signer: None, domain: domain() }, engine("1"));
    assert_eq!(two.known(&[bad]), [None]);
}
