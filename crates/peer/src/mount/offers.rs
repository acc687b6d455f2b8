//! Sends servers blocks that were written or read here, when they lack them. Nobody waits for it.
//!
//! What was read and can't be sent (no server takes it, or too much waits) is let go. What was written is a [`Debt`]: it is
//! remembered by its place, and read from the disk and sent when a server is there again.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::counters::{Counters, add};
use crate::{
    client::Peers,
    id::{Hash, TrustDomain, is_zero},
};

/// Bytes that wait to be offered, at most.
const BYTES_MAX: u64 = 16 << 20;
/// Blocks that a server is asked about at once.
const BATCH: usize = 256;
/// A server takes a block within this time.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often what could not be sent is tried again.
const RETRY_EACH: Duration = Duration::from_secs(1);
/// For so long servers are sent what waits, and what was lost, at the end. A slow one must not hold up whoever unmounts.
const AT_END: Duration = Duration::from_secs(10);

/// Blocks of a batch that were read, by file and number: none is read twice for it.
pub(super) type Seen = HashSet<(u64, u64)>;

/// Something that was written, and that servers may lack.
pub(super) trait Debt: Send {
    /// Reads from the disk those of its blocks that were not handed over with it. What can't be read is left out: nobody can send
    /// it. Ends early when `take` refuses one.
    fn read(&self, seen: &mut Seen, take: &mut dyn FnMut(&[u8]) -> bool);

    /// Servers have all of it.
    fn paid(self: Box<Self>);

    /// They don't; it is to be sent later.
    fn lost(self: Box<Self>);
}

/// What was lost.
pub(super) trait Debts: Send + Sync {
    /// The next that is to be sent.
    fn next(&self) -> Option<Box<dyn Debt>>;
}

struct Part {
    /// They begin and end with a block.
    bytes: Vec<u8>,
    debt: Option<Box<dyn Debt>>,
}

/// What waits.
pub(super) struct Offers {
    parts: SyncSender<Part>,
    waiting: Arc<AtomicU64>,
    counters: Arc<Counters>,
    block_bytes: usize,
    end: Arc<OnceLock<Instant>>,
    thread: JoinHandle<()>,
}

impl Offers {
    /// `debts`: what was written and lost.
    pub(super) fn start(
        peers: Arc<Peers>,
        domain: TrustDomain,
        block_bytes: usize,
        counters: Arc<Counters>,
        debts: Option<Arc<dyn Debts>>,
    ) -> std::io::Result<Self> {
        let (parts, offered) = mpsc::sync_channel(1 << 14);
        let waiting = Arc::new(AtomicU64::new(0));
        let end = Arc::new(OnceLock::new());
        let (still, counted, ends) = (Arc::clone(&waiting), Arc::clone(&counters), Arc::clone(&end));
        let offering = move || {
            let batch = Batch {
                peers: &peers,
                domain: &domain,
                counters: &counted,
                end: &ends,
                blocks: HashMap::new(),
                fails: false,
            };
            offer_all(&offered, &still, block_bytes, debts.as_deref(), batch);
        };
        let thread = thread::Builder::new().name("peer-offer".into()).spawn(offering)?;
        Ok(Self { parts, waiting, counters, block_bytes, end, thread })
    }

    /// Takes bytes that begin with a block, and what was written with them and is to be read.
    pub(super) fn offer(&self, bytes: &[u8], debt: Option<Box<dyn Debt>>) {
        let len = bytes.len() as u64;
        let before = self.waiting.fetch_add(len, Ordering::Relaxed);
        let refused = if before + len > BYTES_MAX {
            Some(debt)
        } else {
            let sent = self.parts.try_send(Part { bytes: bytes.to_vec(), debt });
            sent.err().map(|(mpsc::TrySendError::Full(part) | mpsc::TrySendError::Disconnected(part))| part.debt)
        };
        if let Some(debt) = refused {
            self.waiting.fetch_sub(len, Ordering::Relaxed);
            add(&self.counters.not_offered, bytes.len().div_ceil(self.block_bytes) as u64);
            debt.into_iter().for_each(Debt::lost);
        }
    }

    /// Waits until all is sent, or is not taken, or it has been waited long enough; the rest is lost.
    pub(super) fn end(self) {
        let _ = self.end.set(Instant::now() + AT_END);
        drop(self.parts);
        let _ = self.thread.join();
    }
}

fn offer_all(
    parts: &Receiver<Part>,
    waiting: &AtomicU64,
    block_bytes: usize,
    debts: Option<&dyn Debts>,
    mut batch: Batch<'_>,
) {
    let mut pause = Duration::ZERO;
    loop {
        match parts.recv_timeout(pause) {
            Ok(first) => {
                let mut taken = vec![first];
                let blocks = |part: &Part| part.bytes.len().div_ceil(block_bytes).max(1);
                while taken.iter().map(blocks).sum::<usize>() < BATCH
                    && let Ok(part) = parts.try_recv()
                {
                    taken.push(part);
                }
                let len = taken.iter().map(|part| part.bytes.len() as u64).sum();
                batch.settle(taken, block_bytes);
                waiting.fetch_sub(len, Ordering::Relaxed);
            }
            Err(RecvTimeoutError::Timeout) => {
                let is_paid = debts.is_some_and(|debts| batch.retry(debts));
                pause = if is_paid { Duration::ZERO } else { RETRY_EACH };
            }
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    while debts.is_some_and(|debts| batch.retry(debts)) {}
}

/// Blocks that are about to be sent.
struct Batch<'a> {
    peers: &'a Peers,
    domain: &'a TrustDomain,
    counters: &'a Counters,
    /// When nothing is sent any more, once that is known.
    end: &'a OnceLock<Instant>,
    blocks: HashMap<Hash, Vec<u8>>,
    /// Some were not taken.
    fails: bool,
}

impl Batch<'_> {
    /// Sends all of it.
    fn settle(&mut self, parts: Vec<Part>, block_bytes: usize) {
        for block in parts.iter().flat_map(|part| part.bytes.chunks(block_bytes)) {
            self.take(block);
        }
        let debts: Vec<Box<dyn Debt>> = parts.into_iter().filter_map(|part| part.debt).collect();
        self.settle_debts(debts);
    }

    /// Whether something was lost, and is sent now.
    fn retry(&mut self, debts: &dyn Debts) -> bool {
        self.may_send() && debts.next().is_some_and(|debt| self.settle_debts(vec![debt]))
    }

    /// Whether a server is there, and the end isn't.
    fn may_send(&self) -> bool {
        self.peers.is_usable() && !self.patience().is_zero()
    }

    /// For how long an answer may be waited for.
    fn patience(&self) -> Duration {
        self.end.get().map_or(PATIENCE, |end| end.saturating_duration_since(Instant::now()).min(PATIENCE))
    }

    fn settle_debts(&mut self, debts: Vec<Box<dyn Debt>>) -> bool {
        let mut seen = Seen::new();
        for debt in &debts {
            // Where no server is there, what is lost is not read in vain.
            if self.may_send() {
                debt.read(&mut seen, &mut |block| self.take(block));
            } else {
                self.fails = true;
            }
        }
        self.flush();
        let is_paid = !std::mem::take(&mut self.fails);
        debts.into_iter().for_each(if is_paid { Debt::paid } else { Debt::lost });
        is_paid
    }

    fn take(&mut self, block: &[u8]) -> bool {
        if !is_zero(block) {
            self.blocks.insert(self.domain.hash(block), block.to_vec());
        }
        if self.blocks.len() >= BATCH {
            self.flush();
        }
        !self.fails
    }

    fn flush(&mut self) {
        let blocks = std::mem::take(&mut self.blocks);
        if blocks.is_empty() {
            return;
        }
        let sent = self.send(&blocks);
        add(&self.counters.offered, sent.unwrap_or(0));
        if sent.is_none() {
            self.fails = true;
            add(&self.counters.not_offered, blocks.len() as u64);
        }
    }

    /// How many were lacking and are there now; `None` where not all of them are.
    fn send(&self, blocks: &HashMap<Hash, Vec<u8>>) -> Option<u64> {
        if !self.may_send() {
            return None;
        }
        let hashes: Vec<Hash> = blocks.keys().copied().collect();
        let are_there = self.peers.has_within(&hashes, self.patience()).ok()?;
        let (tell, told) = mpsc::channel();
        let (mut out, mut sent, mut fails) = (0_usize, 0, false);
        // Looked at now and then, since the end may come meanwhile.
        let answer = || loop {
            match told.recv_timeout(RETRY_EACH.min(self.patience())) {
                Ok(is_put) => break Some(is_put),
                Err(RecvTimeoutError::Timeout) if !self.patience().is_zero() => {}
                Err(_) => break None,
            }
        };
        for hash in hashes.iter().zip(are_there).filter_map(|(hash, is_there)| (!is_there).then_some(hash)) {
            let block = blocks.get(hash)?;
            loop {
                let tell = tell.clone();
                match self.peers.put(hash, block, self.patience(), move |put| _ = tell.send(put.is_ok())) {
                    Ok(()) => break out += 1,
                    // One that is on its way makes room.
                    Err(_) if out > 0 => {
                        let is_put = answer()?;
                        (sent, fails, out) = (sent + u64::from(is_put), fails || !is_put, out - 1);
                    }
                    Err(_) => return None,
                }
            }
        }
        while out > 0 {
            let is_put = answer()?;
            (sent, fails, out) = (sent + u64::from(is_put), fails || !is_put, out - 1);
        }
        if fails { None } else { Some(sent) }
    }
}
