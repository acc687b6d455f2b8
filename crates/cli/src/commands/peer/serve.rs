//! `onesweep peer serve`: the server of blocks.

use std::{env, fs, net::TcpListener, sync::Arc};

use onesweep_peer::{
    id::TrustDomain,
    scan::Verdicts,
    serve::{Limits, Server, Settings},
    store::{
        BlockStore, Disk, DiskNews, DiskSettings, Memory, Tiered,
        engine::{self, EngineAddress, Remote, RemoteSettings},
    },
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
/// Bytes of blocks that wait to be written to an engine, at most.
const UNWRITTEN_BYTES: u64 = 64 << 20;

pub(super) fn run(args: &PeerServeArgs) -> Result<u8, Failure> {
    let address = args.engine.as_deref().map(str::parse::<EngineAddress>).transpose().map_err(failure)?;
    let domain = domain(&args.membership.key)?;
    let tls = match &args.membership.tls {
        Some(stem) => Some(Identity::read(stem).and_then(Identity::into_server).map_err(failure)?),
        None => None,
    };
    let limits = Limits { of_address: args.connections_per_address, ..Limits::of(args.connections) };

    let mut signals =
        Signals::new([SIGINT, SIGTERM]).map_err(|error| Failure::told(format!("cannot listen to signals: {error}")))?;
    let _switch = log::start(args.log);
    let listener = TcpListener::bind(args.listen)
        .map_err(|error| Failure::told(format!("{}: cannot listen: {}", args.listen, message::why(&error))))?;
    let memory = Memory::new(args.memory.0);
    let (store, verdicts): (Arc<dyn BlockStore>, _) = if let Some(address) = &address {
        let remote = remote(address, &domain)?;
        fs::create_dir_all(&args.store).map_err(|error| Failure::io(&args.store, "keep verdicts there", &error))?;
        let verdicts = Verdicts::open(&args.store.join(VERDICTS), &domain, args.verdicts);
        (Arc::new(Tiered::new(memory, Box::new(remote))), verdicts)
    } else if args.disk.0 == 0 {
        (Arc::new(memory), Verdicts::in_memory(&domain, args.verdicts))
    } else {
        let settings = DiskSettings { bytes_max: args.disk.0, domain: domain.clone() };
        // The store makes its directory, and holds its lock.
        let disk = Disk::open(&args.store, settings).map_err(failure)?.telling(tell_of_disk);
        let verdicts = Verdicts::open(&args.store.join(VERDICTS), &domain, args.verdicts);
        (Arc::new(Tiered::new(memory, Box::new(disk))), verdicts)
    };
    let verdicts = verdicts.map_err(|error| {
        Failure::could_not_run(&args.store.join(VERDICTS), "keep verdicts there", message::of_error(&error))
    })?;
    let settings = Settings { domain, limits, tls, verdicts: Some(Arc::new(verdicts)) };
    let kept = match &address {
        Some(address) => format!("blocks in {address}"),
        None => format!("{} blocks", store.blocks()),
    };
    let server = Server::start(listener, store, settings)
        .map_err(|error| Failure::told(format!("cannot serve: {}; add --tls DIR/NAME", message::why(&error))))?;
    tracing::info!("listening at {}, {kept}", server.address());
    ready::ready("serving blocks");
    // They don't end but by a signal.
    let _ = signals.forever().next();
    ready::stopping();
    server.stop();
    tracing::info!("ended");
    Ok(0)
}

fn tell_of_disk(news: DiskNews<'_>) {
    match news {
        DiskNews::Failing(error) => {
            tracing::warn!("{}; new blocks are in memory alone until they can be written", message::of_error(error));
        }
        DiskNews::Well => tracing::info!("blocks are written to disk again"),
    }
}

/// An engine below the memory. It need not be there yet.
fn remote(address: &EngineAddress, domain: &TrustDomain) -> Result<Remote, Failure> {
    let name = message::one_line(&address.to_string());
    let failed = |why: String| Failure::told(format!("{name}: cannot keep blocks there: {why}"));
    let engine = engine::open(address, domain.name(), &|variable| env::var(variable).ok())
        .map_err(|error| failed(message::of_error(&error)))?;
    let settings = RemoteSettings {
        domain: domain.clone(),
        name: name.clone(),
        timeout: address.timeout,
        workers: address.workers(),
        unwritten_max: UNWRITTEN_BYTES,
        bytes_max: address.bytes_max(),
        tell: Arc::new(|text| tracing::warn!("{}", message::one_line(text))),
    };
    Remote::start(engine, settings).map_err(|error| failed(message::why(&error)))
}
