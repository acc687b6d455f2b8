//! Servers, clients and blocks for tests.

use std::{
    net::TcpListener,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use onesweep_peer::{
    client::{Counted, Failure, Peers, Settings},
    id::{Hash, TrustDomain},
    serve::{self, Limits, Server},
    store::{BlockStore, Memory},
    wire::Priority,
};

/// Long enough for any machine; a test that waits so long has failed.
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) fn domain() -> TrustDomain {
    TrustDomain::from_key([7; 32])
}

/// The n-th block, and its hash.
pub(crate) fn block(n: u32) -> (Hash, Vec<u8>) {
    let mut block = vec![0; 4096];
    block.chunks_mut(4).enumerate().for_each(|(at, word)| {
        word.copy_from_slice(&n.wrapping_mul(2_654_435_761).wrapping_add(at as u32).to_le_bytes());
    });
    (domain().hash(&block), block)
}

pub(crate) fn listener() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

pub(crate) fn memory() -> Arc<dyn BlockStore> {
    Arc::new(Memory::new(256 << 20))
}

pub(crate) fn server(store: Arc<dyn BlockStore>) -> Server {
    server_with(store, Limits::default())
}

pub(crate) fn server_with(store: Arc<dyn BlockStore>, limits: Limits) -> Server {
    Server::start(listener(), store, serve::Settings { limits, ..serve::Settings::plain(domain()) }).unwrap()
}

/// Settings by which a test doesn't wait long for what never comes.
pub(crate) fn hasty() -> Settings {
    Settings {
        connect: Duration::from_secs(1),
        ping: Duration::from_secs(1),
        quiet: Duration::from_secs(1),
        silence: Duration::from_secs(2),
        patience: Duration::from_secs(10),
        ..Settings::plain(domain())
    }
}

/// A client that is connected.
pub(crate) fn client(address: impl ToString) -> Peers {
    let peers = Peers::connect([address.to_string()], Settings::plain(domain())).unwrap();
    assert!(peers.wait_until_usable(LONG), "{:?}", peers.health());
    peers
}

pub(crate) fn counted(peers: &Peers) -> Counted {
    peers.health().remove(0).counted
}

/// Asks for a block with a deadline, and waits.
pub(crate) fn get(peers: &Peers, hash: &Hash, time: Duration) -> Result<Vec<u8>, Failure> {
    let (tell, told) = mpsc::channel();
    peers.get(hash, Priority::Waiting, time, move |got| tell.send(got.map(<[u8]>::to_vec)).unwrap())?;
    told.recv_timeout(LONG).expect("who asks is told")
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
