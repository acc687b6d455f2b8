//! Fills servers from what is read: block after block, zeros left out, and only what a server lacks is sent.

use std::{
    collections::HashSet,
    io::{self, Read},
    sync::mpsc::{self, Receiver, Sender},
    time::Duration,
};

use crate::{
    client::{Failure, Peers, Refused},
    id::{BlockSize, Hash, TrustDomain, is_zero},
};

/// Bytes that are read before servers are asked what of them they lack.
const BATCH_BYTES: usize = 4 << 20;
/// A block that was sent is acknowledged within this time.
const PATIENCE: Duration = Duration::from_secs(30);

/// What was pushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pushed {
    /// Blocks that were read.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Blocks of zeros, which nobody needs to be sent.
    pub zero: u64,
    /// Blocks that the servers had, or that came more than once.
    pub known: u64,
    /// Blocks that were sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
}

/// Why no more can be pushed, or not this.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// The source can't be read; others can still be pushed.
    #[error("cannot read: {0}")]
    Read(#[source] io::Error),
    /// The servers can't take more.
    #[error("the server took no more: {0}")]
    Peer(Failure),
}

impl From<Failure> for PushError {
    fn from(why: Failure) -> Self {
        Self::Peer(why)
    }
}

/// Sends what servers lack.
#[derive(Debug)]
pub struct Pusher<'a> {
    peers: &'a Peers,
    domain: TrustDomain,
    size: BlockSize,
    buffer: Vec<u8>,
    pushed: Pushed,
    in_flight: usize,
    tell: Sender<Result<bool, Failure>>,
    told: Receiver<Result<bool, Failure>>,
}

impl<'a> Pusher<'a> {
    /// To these servers, in blocks of a size; the domain is that of the servers.
    #[must_use]
    pub fn new(peers: &'a Peers, domain: TrustDomain, size: BlockSize) -> Self {
        let (tell, told) = mpsc::channel();
        let pushed = Pushed::default();
        Self { peers, domain, size, buffer: Vec::new(), pushed, in_flight: 0, tell, told }
    }

    /// Pushes all that comes, cut into blocks from its start; the last may be shorter. Between two parts it looks whether
    /// `goes_on`. 4 MiB of memory, and as much as servers allow to be on its way.
    pub fn push(&mut self, from: &mut dyn Read, mut goes_on: impl FnMut() -> bool) -> Result<(), PushError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.resize(BATCH_BYTES, 0);
        let pushed = loop {
            if !goes_on() {
                break Ok(());
            }
            let count = match fill(from, &mut buffer) {
                Ok(0) => break Ok(()),
                Ok(count) => count,
                Err(error) => break Err(PushError::Read(error)),
            };
            if let Err(error) = self.push_part(&buffer[..count]) {
                break Err(error.into());
            }
            if count < buffer.len() {
                break Ok(());
            }
        };
        self.buffer = buffer;
        pushed
    }

    fn push_part(&mut self, part: &[u8]) -> Result<(), Failure> {
        let (mut hashes, mut blocks) = (Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for block in part.chunks(self.size.bytes()) {
            self.pushed.blocks += 1;
            self.pushed.bytes += block.len() as u64;
            if is_zero(block) {
                self.pushed.zero += 1;
                continue;
            }
            let hash = self.domain.hash(block);
            if seen.insert(hash) {
                hashes.push(hash);
                blocks.push(block);
            } else {
                self.pushed.known += 1;
            }
        }
        let are_there = self.peers.has_and_wait(&hashes)?;
        for ((hash, block), is_there) in hashes.iter().zip(blocks).zip(are_there) {
            if is_there {
                self.pushed.known += 1;
            } else {
                self.send(hash, block)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, hash: &Hash, block: &[u8]) -> Result<(), Failure> {
        loop {
            let tell = self.tell.clone();
            match self.peers.put(hash, block, PATIENCE, move |put| _ = tell.send(put)) {
                Ok(()) => break,
                // One that is on its way makes room.
                Err(Refused::Full) if self.in_flight > 0 => self.wait_for_one()?,
                Err(why) => return Err(why.into()),
            }
        }
        self.in_flight += 1;
        self.pushed.sent += 1;
        self.pushed.sent_bytes += block.len() as u64;
        Ok(())
    }

    fn wait_for_one(&mut self) -> Result<(), Failure> {
        let put = self.told.recv().unwrap_or(Err(Failure::Disconnected));
        self.in_flight -= 1;
        put.map(drop)
    }

    /// What was pushed so far.
    #[must_use]
    pub fn pushed(&self) -> Pushed {
        self.pushed
    }

    /// Waits until all that was sent is kept.
    pub fn finish(mut self) -> Result<Pushed, PushError> {
        while self.in_flight > 0 {
            self.wait_for_one()?;
        }
        Ok(self.pushed)
    }
}

/// Reads until the buffer is full, or nothing more comes.
fn fill(from: &mut dyn Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut count = 0;
    while count < buffer.len() {
        match from.read(&mut buffer[count..]) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}
