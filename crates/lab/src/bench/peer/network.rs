//! Two hosts in network namespaces of their own, and a link between them whose rate is limited.
//!
//! Each namespace belongs to a process that waits for its standard input to end. So nothing is left behind when this
//! process is killed.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::mount;

/// The device of the link, on either host.
const DEVICE: &str = "wire";
const PATIENCE: Duration = Duration::from_secs(10);

/// Who.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Host {
    Client,
    Server,
}

impl Host {
    pub(super) fn address(self) -> &'static str {
        match self {
            Self::Client => "10.0.0.1",
            Self::Server => "10.0.0.2",
        }
    }

    /// The name of its certificate.
    pub(super) fn identity(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// The hosts. They go when this goes.
pub(super) struct Network {
    client: Child,
    server: Child,
}

impl Network {
    pub(super) fn new() -> Result<Self, String> {
        let network = Self { client: namespace()?, server: namespace()? };
        let other = network.server.id().to_string();
        let ends = ["link", "add", DEVICE, "type", "veth", "peer", "name", DEVICE, "netns", &other];
        network.run(Host::Client, "ip", &ends)?;
        for host in [Host::Client, Host::Server] {
            let address = format!("{}/24", host.address());
            network.run(host, "ip", &["address", "add", &address, "dev", DEVICE])?;
            network.run(host, "ip", &["link", "set", "lo", "up"])?;
            network.run(host, "ip", &["link", "set", DEVICE, "up"])?;
        }
        Ok(network)
    }

    /// From then on the link carries so much in each direction.
    pub(super) fn limit(&self, mbit: u64) -> Result<(), String> {
        // Some frames, or what is sent within a millisecond.
        let (rate, burst) = (format!("{mbit}mbit"), format!("{}", (mbit * 125).max(3100)));
        let limit =
            ["qdisc", "replace", "dev", DEVICE, "root", "tbf", "rate", &rate, "burst", &burst, "latency", "200ms"];
        self.run(Host::Client, "tc", &limit)?;
        self.run(Host::Server, "tc", &limit)
    }

    pub(super) fn set_up(&self, is_up: bool) -> Result<(), String> {
        self.run(Host::Client, "ip", &["link", "set", DEVICE, if is_up { "up" } else { "down" }])
    }

    /// What runs a program on that host: words to stand before its own.
    pub(super) fn on(&self, host: Host) -> Vec<String> {
        let process = match host {
            Host::Client => &self.client,
            Host::Server => &self.server,
        };
        ["nsenter", "--net", "--target", &process.id().to_string()].map(str::to_owned).into()
    }

    /// A program of ours on that host, not started yet.
    pub(super) fn command(&self, host: Host, words: &[String]) -> Command {
        let all = [self.on(host), words.to_vec()].concat();
        let mut command = Command::new(&all[0]);
        command.args(&all[1..]);
        command
    }

    fn run(&self, host: Host, program: &str, words: &[&str]) -> Result<(), String> {
        let before = self.on(host);
        let all = before.iter().map(String::as_str).skip(1).chain([program]).chain(words.iter().copied());
        mount::run("nsenter", all).map(drop)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for process in [&mut self.client, &mut self.server] {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A process in a network namespace of its own, which ends when this one does.
fn namespace() -> Result<Child, String> {
    let mut child = Command::new("unshare")
        .args(["--net", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|error| format!("can't run unshare: {error}"))?;
    let ours = fs::read_link("/proc/self/ns/net").map_err(|error| format!("network namespaces: {error}"))?;
    let path = format!("/proc/{}/ns/net", child.id());
    let until = Instant::now() + PATIENCE;
    while fs::read_link(&path).is_ok_and(|theirs| theirs == ours) {
        if Instant::now() > until || !matches!(child.try_wait(), Ok(None)) {
            let _ = child.kill();
            let _ = child.wait();
            return Err("no network namespace of its own".into());
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(child)
}
