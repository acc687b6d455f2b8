//! Asking over a Unix socket: what is said, who answers, who asks.

pub mod client;
pub mod protocol;
pub mod server;
