//! What was asked for and is not wanted any more is taken back from the server, and does not use the link.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use onesweep_peer::{
    id::Hash,
    store::{BlockStore, Memory, Put, StoreError},
    wire::Priority,
};

use crate::support::{LONG, block, client, counted, eventually, server};

/// A store that takes long for each block.
struct Slow {
    store: Memory,
    takes: Duration,
    begun: AtomicU64,
}

impl BlockStore for Slow {
    fn get(&self, hash: &Hash, into: &mut Vec<u8>) -> Result<bool, StoreError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        thread::sleep(self.takes);
        self.store.get(hash, into)
    }

    fn put(&self, hash: &Hash, bytes: &[u8]) -> Result<Put, StoreError> {
        self.store.put(hash, bytes)
    }

    fn has(&self, hash: &Hash) -> bool {
        self.store.has(hash)
    }

    fn blocks(&self) -> u64 {
        self.store.blocks()
    }

    fn bytes(&self) -> u64 {
        self.store.bytes()
    }
}

#[test]
fn what_lost_its_race_is_cancelled_on_the_wire_and_not_sent() {
    const ASKED: u64 = 100;
    // Longer than a server answers before it listens again, so that it hears of it between two blocks.
    let store = Slow { store: Memory::new(16 << 20), takes: Duration::from_millis(150), begun: AtomicU64::new(0) };
    let blocks: Vec<_> = (0..ASKED as u32 + 1).map(block).collect();
    for (hash, bytes) in &blocks {
        store.put(hash, bytes).unwrap();
    }
    let store = Arc::new(store);
    let server = server(store.clone());
    let peers = client(server.address());
    let told = Arc::new(AtomicU64::new(0));
    let get = |(hash, _): &(Hash, Vec<u8>)| {
        let told = told.clone();
        peers.get(hash, Priority::Waiting, LONG, move |_| _ = told.fetch_add(1, Ordering::SeqCst)).unwrap()
    };
    let tickets: Vec<_> = blocks[1..].iter().map(get).collect();
    let of_server = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let counters = server.counters();
    // What is cancelled before it went out never comes to the server, and those that went first may be answered by then.
    eventually("the server knows of all", || of_server(&counters.gets) == ASKED);
    // The disk was quicker.
    let in_time = tickets.into_iter().map(|ticket| u64::from(ticket.cancel())).sum::<u64>();
    eventually("who was being told is told", || told.load(Ordering::SeqCst) + in_time == ASKED);
    eventually("all is over", || of_server(&counters.cancelled) + of_server(&counters.hits) == ASKED);
    let (cancelled, sent) = (of_server(&counters.cancelled), of_server(&counters.hits));
    assert!(cancelled >= ASKED / 2, "{cancelled} cancelled, {sent} sent");
    assert_eq!(store.begun.load(Ordering::SeqCst), sent, "nothing is read for nobody");
    assert_eq!(of_server(&counters.hit_bytes), sent * 4096);
    // One that is wanted comes after all of that; what was sent before it came late, and nothing else did.
    let (hash, bytes) = &blocks[0];
    assert_eq!(peers.get_and_wait(hash).as_ref(), Ok(bytes));
    let (counted, hits) = (counted(&peers), ASKED - in_time + 1);
    assert_eq!((counted.cancelled, counted.hits, counted.hit_bytes), (in_time, hits, hits * 4096));
    let late = sent + 1 - hits;
    assert_eq!(counted.late_bytes, late * (4096 + onesweep_peer::wire::HEAD_BYTES as u64 + 4));
    assert_eq!(told.load(Ordering::SeqCst) + in_time, ASKED, "nobody waits for what was cancelled");
}
