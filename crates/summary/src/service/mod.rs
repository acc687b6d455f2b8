//! Asking over a Unix socket or by HTTP: what is said, who answers, who asks.

pub mod breakdown;
pub mod budget;
pub mod client;
mod each_alone;
mod eyes;
mod gate;
pub mod growth;
pub mod http;
mod left_out;
pub mod listing;
mod looking;
mod openings;
pub mod pages;
pub mod patience;
pub mod portions;
pub mod protocol;
pub mod reach;
pub mod server;
pub mod shared;
#[cfg(test)]
mod tests;
pub(crate) mod ways;

use std::path::PathBuf;

/// Where a server listens, unless told otherwise.
const SOCKET: &str = "/run/onesweep/summaries.sock";

/// Where a server is asked that nobody has named: at `$ONESWEEP_SOCKET`, else at `/run/onesweep/summaries.sock`.
pub fn default_socket() -> PathBuf {
    std::env::var_os("ONESWEEP_SOCKET").map_or_else(|| SOCKET.into(), PathBuf::from)
}
