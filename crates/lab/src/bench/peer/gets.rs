//! The client library alone: blocks of a server, many in flight.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use onesweep_peer::client::{Failure, Peers, Settings};
use onesweep_peer::id::{Hash, TrustDomain};
use onesweep_peer::tls::Identity;
use onesweep_peer::wire::Priority;
use serde::{Deserialize, Serialize};

use super::contents;
use super::network::Host;
use super::site::Site;

const PATIENCE: Duration = Duration::from_secs(60);

/// What is asked for, and how.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Order {
    server: String,
    key: String,
    /// The certificate; none on the loopback.
    identity: Option<String>,
    /// The first blocks of that seed.
    seed: u64,
    blocks: u64,
    /// How many are asked for; after the last block comes the first again.
    reads: u64,
    in_flight: u64,
}

/// What came of it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Got {
    pub(super) seconds: f64,
}

impl Order {
    /// All of them once, as many in flight as a program has that reads ahead.
    pub(super) fn new(site: &Site, server: String, seed: u64, blocks: u64) -> Self {
        let identity = Some(site.identity(Host::Client));
        Self { server, key: site.key(), identity, seed, blocks, reads: blocks, in_flight: 64 }
    }

    pub(super) fn plain(self, reads: u64, in_flight: u64) -> Self {
        Self { identity: None, reads, in_flight, ..self }
    }

    /// On the client's host.
    pub(super) fn run(&self, site: &Site) -> Result<Got, String> {
        self.run_under(site, &[])
    }

    /// With words before the program's.
    pub(super) fn run_under(&self, site: &Site, before: &[&str]) -> Result<Got, String> {
        let order = serde_json::to_string(self).map_err(|error| error.to_string())?;
        let program = site.programs.lab.display().to_string();
        let words: Vec<String> =
            before.iter().map(|&word| word.to_owned()).chain([program, "peer-gets".into(), order]).collect();
        let told = site.run_words(Host::Client, &words)?;
        serde_json::from_str(&told).map_err(|error| format!("{told}: {error}"))
    }
}

/// What requests in flight share: each answer asks for the next block.
struct Chain {
    peers: Peers,
    hashes: Vec<Hash>,
    reads: u64,
    next: AtomicU64,
    failed: AtomicU64,
    left: AtomicU64,
    ended: mpsc::Sender<()>,
}

impl Chain {
    fn ask(self: &Arc<Self>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.reads {
            return;
        }
        let hash = self.hashes[(number % self.hashes.len() as u64) as usize];
        let chain = Arc::clone(self);
        let done = move |got: Result<&[u8], Failure>| chain.came(got.is_ok());
        if self.peers.get(&hash, Priority::Waiting, PATIENCE, done).is_err() {
            self.came(false);
        }
    }

    fn came(self: &Arc<Self>, is_right: bool) {
        if !is_right {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let _ = self.ended.send(());
        } else {
            self.ask();
        }
    }
}

/// The hidden command: prints what came of it.
pub(crate) fn run(order: &str) -> Result<u8, String> {
    let order: Order = serde_json::from_str(order).map_err(|error| error.to_string())?;
    let domain = TrustDomain::read(Path::new(&order.key)).map_err(|error| format!("{}: {error}", order.key))?;
    let hashes = (0..order.blocks).map(|number| domain.hash(&contents::block(order.seed, number))).collect();
    let settings = match &order.identity {
        None => Settings::plain(domain),
        Some(stem) => {
            let tls = Identity::read(Path::new(stem)).and_then(Identity::into_client);
            Settings::encrypted(domain, tls.map_err(|error| error.to_string())?)
        }
    };
    let peers = Peers::connect([order.server.clone()], settings).map_err(|error| error.to_string())?;
    if !peers.wait_until_usable(PATIENCE) {
        return Err(format!("{}: not reached", order.server));
    }
    let (ended, end) = mpsc::channel();
    let (next, failed, left) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(order.reads));
    let chain = Arc::new(Chain { peers, hashes, reads: order.reads, next, failed, left, ended });
    let began = Instant::now();
    for _ in 0..order.in_flight.min(order.reads) {
        chain.ask();
    }
    end.recv().map_err(|error| error.to_string())?;
    let seconds = began.elapsed().as_secs_f64();
    match chain.failed.load(Ordering::Relaxed) {
        0 => println!("{}", serde_json::to_string(&Got { seconds }).map_err(|error| error.to_string())?),
        failed => return Err(format!("{failed} of {} blocks didn't come", order.reads)),
    }
    Ok(0)
}
