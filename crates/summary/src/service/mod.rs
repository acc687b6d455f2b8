//! Asking over a Unix socket or by HTTP: what is said, who answers, who asks.

pub mod breakdown;
pub mod budget;
pub mod client;
pub mod growth;
pub mod http;
pub mod listing;
pub mod pages;
pub mod protocol;
pub mod reach;
pub mod server;
pub mod shared;
