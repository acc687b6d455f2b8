//! Another machine answers a read that the local disk would be slow to answer.
//!
//! The system of *An Architecture for Opportunistic Network File System Services* (Meyer, DiBernardo): blocks are kept by a
//! server on the local network, and whoever would wait for a disk asks for them there as well. The local disk is always
//! right: a block is asked for by the hash that the asker's own index has, and what comes is checked against it, so that a
//! slow, dead or lying peer can only fail to help.
//!
//! | module | subject |
//! |---|---|
//! | [`id`] | the hash of a block, and the key that machines which trust each other share |
//! | [`wire`] | what is said between client and server: bytes in, bytes out |
//! | [`store`] | blocks by hash: in memory, on disk, and one above the other |
//! | [`serve`] | the server |
//! | [`client`] | connections that stay, many requests in flight, several servers |
//! | [`push`] | fills servers from what is read |
//! | [`index`] | what each block of a device, or of the files of a directory, holds, as far as it is known |
//! | [`marks`] | whether somebody else has written to the device meanwhile |
//! | [`race`] | who is asked when, and whose answer counts; no threads, no clock |
//! | [`mount`] | a device or a tree that is shown, and whose reads are raced |
//! | [`scan`] | contents are scanned once for all machines |
//! | [`guard`] | nobody opens a file in which something bad was found |
//! | [`tls`] | who may talk to whom, by certificates |
//! | [`keys`] | a small authority that makes them |
//!
//! ```
//! use std::{net::TcpListener, sync::Arc, time::Duration};
//! use onesweep_peer::{client::{Peers, Settings}, id::TrustDomain, serve::{self, Server}, store::Memory};
//!
//! let domain = TrustDomain::generate()?;
//! let store = Arc::new(Memory::new(64 << 20));
//! let server = Server::start(TcpListener::bind("127.0.0.1:0")?, store, serve::Settings::plain(domain.clone()))?;
//!
//! let peers = Peers::connect([server.address().to_string()], Settings::plain(domain.clone()))?;
//! assert!(peers.wait_until_usable(Duration::from_secs(5)));
//! let block = vec![7; 4096];
//! let hash = domain.hash(&block);
//! peers.put_and_wait(&hash, &block)?;
//! assert_eq!(peers.get_and_wait(&hash)?, block);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod aborting;
mod buffers;
pub mod client;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod guard;
pub mod id;
pub mod index;
pub mod keys;
mod line;
pub mod marks;
pub mod mount;
pub mod push;
pub mod race;
pub mod scan;
pub mod serve;
pub mod store;
pub mod tls;
mod transport;
pub mod wire;
