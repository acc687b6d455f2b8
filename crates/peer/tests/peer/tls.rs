//! Who has no certificate of the right kind gets nothing, from either side.

use std::{
    path::Path,
    sync::atomic::Ordering,
    time::{Duration, SystemTime},
};

use onesweep_peer::{
    client::{Peers, Settings},
    keys::{self, Validity},
    serve::{self, Server},
    tls::{Identity, Role},
    wire::Closing,
};

use crate::{
    limits::{Rude, closing},
    support::{LONG, block, domain, eventually, hasty, listener, memory},
};

pub(crate) fn authority(dir: &Path) {
    keys::make_authority(dir, Validity::days(10)).unwrap();
    for (name, role) in [("server", Role::Server), ("client", Role::Client), ("scanner", Role::Scanner)] {
        keys::add(dir, name, role, Validity::days(10)).unwrap();
    }
}

fn server(dir: &Path, name: &str) -> Server {
    let tls = Identity::read(&dir.join(name)).unwrap().into_server().unwrap();
    Server::start(listener(), memory(), serve::Settings::encrypted(domain(), tls)).unwrap()
}

fn client(server: &Server, dir: &Path, name: &str) -> Peers {
    let tls = Identity::read(&dir.join(name)).unwrap().into_client().unwrap();
    Peers::connect([server.address().to_string()], Settings { tls: Some(tls), ..hasty() }).unwrap()
}

/// Never usable; why, in the end.
fn refused(peers: &Peers) -> String {
    eventually("it was tried twice", || peers.health()[0].counted.refused + peers.health()[0].counted.broken >= 2);
    assert!(!peers.is_usable());
    assert_eq!(peers.health()[0].counted.connections, 0);
    peers.health()[0].last_error.clone().unwrap()
}

#[test]
fn clients_and_scanners_are_served_with_blocks_of_any_size() {
    let keys = tempfile::tempdir().unwrap();
    authority(keys.path());
    let server = server(keys.path(), "server");
    for name in ["client", "scanner"] {
        let peers = client(&server, keys.path(), name);
        assert!(peers.wait_until_usable(LONG), "{:?}", peers.health());
        for (n, bytes) in [1, 4096, 65536, 5].into_iter().enumerate() {
            let block = vec![n as u8 + 1; bytes];
            let hash = domain().hash(&block);
            peers.put_and_wait(&hash, &block).unwrap();
            assert_eq!(peers.get_and_wait(&hash), Ok(block));
        }
        for n in 0..500 {
            let (hash, bytes) = block(n);
            peers.put_and_wait(&hash, &bytes).unwrap();
            assert_eq!(peers.get_and_wait(&hash), Ok(bytes));
        }
    }
}

#[test]
fn who_has_no_certificate_or_one_of_another_authority_is_refused() {
    let (keys, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    authority(keys.path());
    authority(others.path());
    let server = server(keys.path(), "server");
    // In clear.
    let mut rude = Rude::connect(&server);
    rude.say(|out| onesweep_peer::wire::Greeting { lowest: 1, highest: 1, domain: domain().name() }.encode(out));
    assert_eq!(read_to_end(&mut rude), 0, "nothing but an alert is said");
    let plain = Peers::connect([server.address().to_string()], hasty()).unwrap();
    refused(&plain);
    // By somebody else's authority: each side refuses the other.
    let why = refused(&client(&server, others.path(), "client"));
    assert!(why.contains("certificate"), "{why}");
    eventually("they are counted", || server.counters().refused.load(Ordering::Relaxed) >= 2);
    assert_eq!(server.counters().gets.load(Ordering::Relaxed) + server.counters().puts.load(Ordering::Relaxed), 0);
}

/// Frames in what is said in the end.
fn read_to_end(rude: &mut Rude) -> usize {
    use std::io::Read;
    let mut bytes = Vec::new();
    let _ = rude.stream.read_to_end(&mut bytes);
    // A TLS alert is no frame.
    usize::from(bytes.len() > 16)
}

#[test]
fn certificates_that_are_over_or_not_yet_count_for_nothing() {
    let keys = tempfile::tempdir().unwrap();
    authority(keys.path());
    let (day, now) = (Duration::from_secs(24 * 3600), SystemTime::now());
    let over = Validity { from: now - 10 * day, until: now - day };
    let early = Validity { from: now + day, until: now + 10 * day };
    keys::add(keys.path(), "old", Role::Client, over).unwrap();
    keys::add(keys.path(), "young", Role::Client, early).unwrap();
    keys::add(keys.path(), "old-server", Role::Server, over).unwrap();
    let right = server(keys.path(), "server");
    for name in ["old", "young"] {
        let why = refused(&client(&right, keys.path(), name));
        assert!(why.contains("ertificate"), "{why}");
    }
    let old = server(keys.path(), "old-server");
    let why = refused(&client(&old, keys.path(), "client"));
    assert!(why.contains("xpired"), "{why}");
}

#[test]
fn a_stolen_role_is_no_role() {
    let keys = tempfile::tempdir().unwrap();
    authority(keys.path());
    // A client's certificate doesn't make a server, and a server's doesn't ask.
    Identity::read(&keys.path().join("client")).unwrap().into_server().unwrap_err();
    Identity::read(&keys.path().join("server")).unwrap().into_client().unwrap_err();
}

#[test]
fn a_plain_server_does_not_understand_tls_and_says_so() {
    let keys = tempfile::tempdir().unwrap();
    authority(keys.path());
    let plain = crate::support::server(memory());
    refused(&client(&plain, keys.path(), "client"));
    let mut rude = Rude::connect(&plain);
    rude.say(|out| out.extend_from_slice(&[0x16, 3, 1, 0, 5, 1, 0, 0]));
    assert_eq!(rude.hear(), closing(Closing::Frame));
}
