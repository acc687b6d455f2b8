//! `onesweep peer serve`: the server of blocks.

use std::{net::TcpListener, sync::Arc};

use onesweep_peer::{
    serve::{Limits, Server, Settings},
    store::{BlockStore, Disk, DiskSettings, Memory, Tiered},
    tls::Identity,
};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use super::{domain, failure};
use crate::{
    args::PeerServeArgs,
    commands::serve::{log, ready},
    message,
    report::Failure,
};

pub(super) fn run(args: &PeerServeArgs) -> Result<u8, Failure> {
    let domain = domain(&args.membership.key)?;
    let tls = match &args.membership.tls {
        Some(stem) => Some(Identity::read(stem).and_then(Identity::into_server).map_err(failure)?),
        None => None,
    };
    let limits = Limits { connections: args.connections, ..Limits::default() };
    let settings = Settings { domain: domain.clone(), limits, tls };
    let mut signals =
        Signals::new([SIGINT, SIGTERM]).map_err(|error| Failure::told(format!("cannot listen to signals: {error}")))?;
    let _switch = log::start(args.log);
    let listener = TcpListener::bind(args.listen)
        .map_err(|error| Failure::told(format!("{}: cannot listen: {}", args.listen, message::why(&error))))?;
    let memory = Memory::new(args.memory.0);
    let store: Arc<dyn BlockStore> = if args.disk.0 == 0 {
        Arc::new(memory)
    } else {
        let settings = DiskSettings { bytes_max: args.disk.0, domain };
        Arc::new(Tiered::new(memory, Box::new(Disk::open(&args.store, settings).map_err(failure)?)))
    };
    let blocks = store.blocks();
    let server = Server::start(listener, store, settings)
        .map_err(|error| Failure::told(format!("cannot serve: {}; add --tls DIR/NAME", message::why(&error))))?;
    tracing::info!("listening at {}, {blocks} blocks", server.address());
    ready::ready("serving blocks");
    // They don't end but by a signal.
    let _ = signals.forever().next();
    ready::stopping();
    server.stop();
    tracing::info!("ended");
    Ok(0)
}
