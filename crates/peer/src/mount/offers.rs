//! Sends servers blocks that were written or read here, when they lack them. Nobody waits for it.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, SyncSender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use super::counters::{Counters, add};
use crate::{
    client::Peers,
    id::{Hash, TrustDomain, is_zero},
};

/// Bytes that wait to be offered, at most.
const BYTES_MAX: u64 = 64 << 20;
/// Blocks that a server is asked about at once.
const BATCH: usize = 256;
/// A server takes a block within this time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Some bytes of the device that begin and end with a block.
struct Part(Vec<u8>);

/// What waits.
pub(super) struct Offers {
    parts: SyncSender<Part>,
    waiting: Arc<AtomicU64>,
    counters: Arc<Counters>,
    block_bytes: usize,
    thread: JoinHandle<()>,
}

impl Offers {
    pub(super) fn start(
        peers: Arc<Peers>,
        domain: TrustDomain,
        block_bytes: usize,
        counters: Arc<Counters>,
    ) -> std::io::Result<Self> {
        let (parts, offered) = mpsc::sync_channel(1 << 14);
        let waiting = Arc::new(AtomicU64::new(0));
        let (still, counted) = (Arc::clone(&waiting), Arc::clone(&counters));
        let offering = move || offer_all(&offered, &still, &peers, &domain, block_bytes, &counted);
        let thread = thread::Builder::new().name("peer-offer".into()).spawn(offering)?;
        Ok(Self { parts, waiting, counters, block_bytes, thread })
    }

    /// Takes bytes that begin with a block. What there is no room for is counted and let go.
    pub(super) fn offer(&self, bytes: &[u8]) {
        let len = bytes.len() as u64;
        let before = self.waiting.fetch_add(len, Ordering::Relaxed);
        if before + len > BYTES_MAX || self.parts.try_send(Part(bytes.to_vec())).is_err() {
            self.waiting.fetch_sub(len, Ordering::Relaxed);
            add(&self.counters.not_offered, bytes.len().div_ceil(self.block_bytes) as u64);
        }
    }

    /// Waits until all is sent, or is not taken.
    pub(super) fn end(self) {
        drop(self.parts);
        let _ = self.thread.join();
    }
}

fn offer_all(
    parts: &Receiver<Part>,
    waiting: &AtomicU64,
    peers: &Peers,
    domain: &TrustDomain,
    block_bytes: usize,
    counters: &Counters,
) {
    while let Ok(first) = parts.recv() {
        let mut taken = vec![first];
        while taken.iter().map(|part| part.0.len().div_ceil(block_bytes)).sum::<usize>() < BATCH
            && let Ok(part) = parts.try_recv()
        {
            taken.push(part);
        }
        let blocks = taken.iter().flat_map(|part| part.0.chunks(block_bytes)).filter(|block| !is_zero(block));
        let blocks: HashMap<Hash, &[u8]> = blocks.map(|block| (domain.hash(block), block)).collect();
        let sent = send(peers, &blocks);
        add(&counters.offered, sent.unwrap_or(0));
        if sent.is_none() {
            add(&counters.not_offered, blocks.len() as u64);
        }
        waiting.fetch_sub(taken.iter().map(|part| part.0.len() as u64).sum(), Ordering::Relaxed);
    }
}

/// How many were lacking and are there now; `None` where no server takes them.
fn send(peers: &Peers, blocks: &HashMap<Hash, &[u8]>) -> Option<u64> {
    if !peers.is_usable() {
        return None;
    }
    let hashes: Vec<Hash> = blocks.keys().copied().collect();
    let are_there = peers.has_and_wait(&hashes).ok()?;
    let (tell, told) = mpsc::channel();
    let (mut out, mut sent) = (0_usize, 0);
    for hash in hashes.iter().zip(are_there).filter_map(|(hash, is_there)| (!is_there).then_some(hash)) {
        let block = blocks.get(hash)?;
        loop {
            let tell = tell.clone();
            match peers.put(hash, block, PATIENCE, move |put| _ = tell.send(put.is_ok())) {
                Ok(()) => break out += 1,
                // One that is on its way makes room.
                Err(_) if out > 0 => {
                    sent += u64::from(told.recv().ok()?);
                    out -= 1;
                }
                Err(_) => return None,
            }
        }
    }
    while out > 0 {
        sent += u64::from(told.recv().ok()?);
        out -= 1;
    }
    Some(sent)
}
