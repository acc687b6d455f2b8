//! `onesweep peer`: blocks on another machine.

mod index;
mod keys;
mod marks;
mod mount;
mod push;
mod serve;
mod stat;

use std::{path::Path, time::Duration};

pub(super) use self::index::default_index;
use onesweep_peer::{
    client::{Peers, Settings},
    id::TrustDomain,
    tls::Identity,
};

use crate::{
    args::{PeerArgs, PeerCommand, PeerServers},
    message,
    report::Failure,
};

/// A server has to be there within this time.
const PATIENCE: Duration = Duration::from_secs(5);

pub(super) fn run(args: PeerArgs) -> Result<u8, Failure> {
    match args.command {
        PeerCommand::Index(args) => index::run(*args),
        PeerCommand::Mount(args) => mount::run(&args),
        PeerCommand::Serve(args) => serve::run(&args),
        PeerCommand::Push(args) => push::run(&args),
        PeerCommand::Keys(args) => keys::run(&args),
        PeerCommand::Stat(args) => stat::run(&args),
    }
}

fn domain(key: &Path) -> Result<TrustDomain, Failure> {
    TrustDomain::read(key).map_err(|error| {
        let advice = match error.kind() {
            std::io::ErrorKind::NotFound => "; make one with onesweep peer keys, or name it with --key",
            _ => "",
        };
        Failure::could_not_run(key, "read the key", format!("{}{advice}", message::why(&error)))
    })
}

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::told(message::of_error(&error))
}

/// Begins to connect to the servers; whether one is there is another question.
fn begin_to_connect(args: &PeerServers) -> Result<(Peers, TrustDomain), Failure> {
    let domain = domain(&args.membership.key)?;
    let settings = match &args.membership.tls {
        None => Settings::plain(domain.clone()),
        Some(stem) => {
            let tls = Identity::read(stem).and_then(Identity::into_client).map_err(failure)?;
            Settings::encrypted(domain.clone(), tls)
        }
    };
    let peers = Peers::connect(args.servers.iter().cloned(), settings)
        .map_err(|error| Failure::told(format!("cannot start: {}", message::why(&error))))?;
    Ok((peers, domain))
}

/// Connects to the servers; at least one is there.
fn connect(args: &PeerServers) -> Result<(Peers, TrustDomain), Failure> {
    let (peers, domain) = begin_to_connect(args)?;
    if peers.wait_until_usable(PATIENCE) {
        return Ok((peers, domain));
    }
    let why = |health: onesweep_peer::client::Health| {
        let why = health.last_error.unwrap_or_else(|| "no answer".to_owned());
        format!("{}: cannot connect: {}", message::one_line(&health.address), message::of_error(&why))
    };
    Err(Failure::Told(peers.health().into_iter().map(why).collect()))
}
