//! A server that has every block, and never the right bytes.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use onesweep_peer::id::{Hash, TrustDomain};
use onesweep_peer::serve::{Server, Settings};
use onesweep_peer::store::{BlockStore, Put, StoreError};
use onesweep_peer::tls::Identity;

use super::contents;

/// What it says when it listens.
pub(super) const READY: &str = "lying";

struct Liar;

impl BlockStore for Liar {
    fn get(&self, hash: &Hash, into: &mut Vec<u8>) -> Result<bool, StoreError> {
        into.extend_from_slice(&contents::block(u64::MAX, hash.prefix()));
        Ok(true)
    }

    fn put(&self, _hash: &Hash, _bytes: &[u8]) -> Result<Put, StoreError> {
        Ok(Put::Known)
    }

    fn has(&self, _hash: &Hash) -> bool {
        true
    }

    fn blocks(&self) -> u64 {
        1
    }

    fn bytes(&self) -> u64 {
        contents::BLOCK as u64
    }
}

/// The hidden command: until its standard input ends.
pub(crate) fn run(listen: &str, key: &Path, identity: &Path) -> Result<u8, String> {
    let listener = TcpListener::bind(listen).map_err(|error| format!("{listen}: {error}"))?;
    let domain = TrustDomain::read(key).map_err(|error| format!("{}: {error}", key.display()))?;
    let tls = Identity::read(identity).and_then(Identity::into_server).map_err(|error| error.to_string())?;
    let server =
        Server::start(listener, Arc::new(Liar), Settings::encrypted(domain, tls)).map_err(|error| error.to_string())?;
    println!("{READY}");
    let _ = std::io::stdout().flush();
    let _ = std::io::stdin().read(&mut [0]);
    server.stop();
    Ok(0)
}
