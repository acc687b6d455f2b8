//! `onesweep peer serve`: the server of blocks.

use std::{net::TcpListener, sync::Arc};

use onesweep_peer::{
    scan::Verdicts,
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

/// The file of verdicts in the directory of the store.
const VERDICTS: &str = "verdicts";

pub(super) fn run(args: &PeerServeArgs) -> Result<u8, Failure> {
    let domain = domain(&args.membership.key)?;
    let tls = match &args.membership.tls {
        Some(stem) => Some(Identity::read(stem).and_then(Identity::into_server).map_err(failure)?),
        None => None,
    };
    let limits = Limits { connections: args.connections, ..Limits::default() };

    let mut signals =
        Signals::new([SIGINT, SIGTERM]).map_err(|error| Failure::told(format!("cannot listen to signals: {error}")))?;
    let _switch = log::start(args.log);
    let listener = TcpListener::bind(args.listen)
        .map_err(|error| Failure::told(format!("{}: cannot listen: {}", args.listen, message::why(&error))))?;
    let memory = Memory::new(args.memory.0);
    let (store, verdicts): (Arc<dyn BlockStore>, _) = if args.disk.0 == 0 {
        (Arc::new(memory), Verdicts::in_memory(&domain, args.verdicts))
    } else {
        let settings = DiskSettings { bytes_max: args.disk.0, domain: domain.clone() };
        // The store makes its directory, and holds its lock.
        let disk = Disk::open(&args.store, settings).map_err(failure)?;
        let verdicts = Verdicts::open(&args.store.join(VERDICTS), &domain, args.verdicts);
        (Arc::new(Tiered::new(memory, Box::new(disk))), verdicts)
    };
    let verdicts = verdicts.map_err(|error| {
        Failure::could_not_run(&args.store.join(VERDICTS), "keep verdicts there", message::of_error(&error))
    })?;
    let settings = Settings { domain, limits, tls, verdicts: Some(Arc::new(verdicts)) };
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
