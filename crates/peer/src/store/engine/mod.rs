//! Blocks that other programs keep: Redis, one or a cluster, and S3. A site that outgrows one server's disk has those.
//!
//! ```text
//!   server ──► Tiered ──► memory
//!                  └────► Remote ──► desk ──► workers ──► Engine ──► network
//! ```
//! An [`Engine`] does what it is told, on a thread of its own, and may fail, hang or lie. [`Remote`] makes a store of it: nobody
//! waits longer than a time that was set, what comes is held against its hash, what fails isn't asked for a while, and what is
//! put is written behind. So an engine can only fail to help.

mod address;
mod desk;
mod ledger;
#[cfg(feature = "engines")]
mod redis;
mod remote;
#[cfg(feature = "engines")]
mod s3;
mod slot;
#[cfg(feature = "engines")]
mod slots;

pub use self::{
    address::{AddressError, EngineAddress, EngineKind, RedisAddress, S3Address},
    remote::{Remote, RemoteSettings},
};

use super::Put;
use crate::id::{DomainName, Hash};

/// Why an engine did not do what it was told: a text on one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct EngineError(String);

impl EngineError {
    /// With this text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// A block that an engine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its hash.
    pub hash: Hash,
    /// Its bytes.
    pub bytes: u32,
    /// When it was written, in seconds since 1970; 0 where that isn't known.
    pub written: i64,
}

impl EngineAddress {
    /// How many threads are worth while: as many requests as are on their way at a time.
    #[must_use]
    pub fn workers(&self) -> usize {
        match &self.kind {
            EngineKind::Redis(_) => 16,
            EngineKind::S3(_) => 32,
        }
    }

    /// How much it may hold, where that is ours to see to.
    #[must_use]
    pub fn bytes_max(&self) -> Option<u64> {
        match &self.kind {
            EngineKind::Redis(_) => None,
            EngineKind::S3(place) => place.limit,
        }
    }
}

/// What keeps blocks somewhere else. Several threads call it at a time, and each call may take as long as it takes.
pub trait Engine: Send + Sync {
    /// Which part of the engine has this block: what fails together. Told at once, as far as it is known.
    fn part(&self, hash: &Hash) -> u64;
    /// The bytes that are kept under a hash, whatever they are; of more than a block has, one more than that.
    fn get(&self, hash: &Hash) -> Result<Option<Vec<u8>>, EngineError>;
    /// Keeps a block.
    fn put(&self, hash: &Hash, bytes: &[u8]) -> Result<Put, EngineError>;
    /// Which of these blocks of one part are there.
    fn has(&self, hashes: &[Hash]) -> Result<Vec<bool>, EngineError>;
    /// Keeps it no longer.
    fn remove(&self, hash: &Hash) -> Result<(), EngineError>;
    /// Tells all blocks that are there, in any order, until `each` says no. Asked only of an engine whose size is bounded.
    fn list(&self, each: &mut dyn FnMut(Kept) -> bool) -> Result<(), EngineError>;
    /// So many hashes are asked about at a time.
    fn lookup_most(&self) -> usize;
}

/// What a variable of the environment holds: where credentials come from.
pub type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The engine that an address names. Nothing is asked of it yet: one that is down now may be there later.
#[cfg(feature = "engines")]
pub fn open(address: &EngineAddress, domain: DomainName, of: Variable<'_>) -> Result<Box<dyn Engine>, EngineError> {
    let variable = |name: &str| of(name).filter(|value| !value.is_empty());
    Ok(match &address.kind {
        EngineKind::Redis(place) => Box::new(redis::Redis::new(place, address.timeout, domain, &variable)),
        EngineKind::S3(place) => Box::new(s3::S3::new(place, address.timeout, domain, &variable)?),
    })
}

/// None: they were left out when this program was built.
#[cfg(not(feature = "engines"))]
pub fn open(_: &EngineAddress, _: DomainName, _: Variable<'_>) -> Result<Box<dyn Engine>, EngineError> {
    Err(EngineError::new("this program was built without engines; build it with make build FEATURES=engines"))
}

/// The name of a domain, as it is a part of keys.
#[cfg(feature = "engines")]
fn hexadecimal(domain: DomainName) -> String {
    domain.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The text of an error without line breaks, and not endless.
#[cfg(feature = "engines")]
fn short(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(300).collect()
}
