//! Clients and servers over real sockets of the loopback, honest and hostile.

mod hostile_clients;
mod hostile_servers;
mod limits;
mod losing;
mod networks;
mod sharing;
mod support;
mod tls;
mod together;
mod verdicts;
