//! A server above an engine, and who asks it.

use std::{
    net::TcpListener,
    sync::Arc,
    time::{Duration, Instant},
};

use onesweep_peer::{
    client::{Failure, Peers, Settings},
    id::{Hash, TrustDomain},
    serve::{self, Server},
    store::{
        Memory, Tiered,
        engine::{self, EngineAddress, Remote, RemoteSettings},
    },
};

/// Long enough for any machine; a test that waits so long has failed.
pub(crate) const LONG: Duration = Duration::from_secs(60);

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

/// The name of a domain, as it is a part of keys.
pub(crate) fn domain_name() -> String {
    domain().name().0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < until, "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A server whose memory holds nothing, so that all comes from the engine, and a client of it.
pub(crate) struct Together {
    server: Server,
    pub(crate) peers: Peers,
}

impl Together {
    pub(crate) fn above(address: &str) -> Self {
        Self::with(address, 0, &|_| None)
    }

    pub(crate) fn with(address: &str, memory: u64, variable: engine::Variable<'_>) -> Self {
        let address: EngineAddress = address.parse().unwrap();
        let engine = engine::open(&address, domain().name(), variable).unwrap();
        let settings = RemoteSettings {
            domain: domain(),
            name: address.to_string(),
            timeout: address.timeout,
            workers: address.workers(),
            unwritten_max: 64 << 20,
            bytes_max: address.bytes_max(),
            tell: Arc::new(|text| eprintln!("{text}")),
        };
        let remote = Remote::start(engine, settings).unwrap();
        let store = Arc::new(Tiered::new(Memory::new(memory), Box::new(remote)));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server::start(listener, store, serve::Settings::plain(domain())).unwrap();
        // The machine may be busy with anything.
        let patient = Settings { silence: LONG, ..Settings::plain(domain()) };
        let peers = Peers::connect([server.address().to_string()], patient).unwrap();
        assert!(peers.wait_until_usable(LONG), "{:?}", peers.health());
        Self { server, peers }
    }

    pub(crate) fn figure(&self, name: &str) -> u64 {
        let text = self.server.exposition();
        let sample = |line: &str| {
            let (sample, value) = line.split_once(' ')?;
            let sample = sample.strip_suffix("_total").unwrap_or(sample);
            (sample.strip_prefix("onesweep_peer_") == Some(name)).then(|| value.parse().unwrap())
        };
        text.lines().find_map(sample).unwrap_or_else(|| panic!("{name}: {text}"))
    }

    /// Puts blocks, and waits until the engine has them.
    pub(crate) fn fill(&self, blocks: std::ops::Range<u32>) {
        let written = self.figure("store_engine_written") + u64::from(blocks.end - blocks.start);
        for n in blocks {
            let (hash, bytes) = block(n);
            assert_eq!(self.peers.put_and_wait(&hash, &bytes), Ok(false), "{n}");
        }
        eventually("all is written", || self.figure("store_engine_written") == written);
    }

    /// Which of these blocks come. Each that comes has its own bytes: the client would refuse another one, and the server must
    /// not have sent any.
    pub(crate) fn there(&self, blocks: std::ops::Range<u32>) -> Vec<u32> {
        let comes = |n: &u32| {
            let (hash, bytes) = block(*n);
            match self.peers.get_and_wait(&hash) {
                Ok(got) => assert!(got == bytes, "{n}"),
                Err(Failure::Absent) => return false,
                Err(why) => panic!("{n}: {why}"),
            }
            true
        };
        let there = blocks.filter(comes).collect();
        assert_eq!(self.peers.health()[0].counted.wrong, 0);
        there
    }
}
