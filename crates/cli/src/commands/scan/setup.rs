//! The engine, and where verdicts come from and go to: what was typed becomes what runs.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use onesweep_peer::{
    client::{Peers, Settings},
    id::TrustDomain,
    scan::{
        Engine, Signer, Trust, Verdicts, VerdictsError,
        clamd::{self, Clamd},
        command::{self, Program},
        judge::Sources,
        yara::{self, RulesError},
    },
    tls::Identity,
};

use crate::{
    args::{EngineArgs, VerdictArgs},
    message,
    report::Failure,
};

/// Where the key is, unless told otherwise.
const KEY: &str = "/etc/onesweep/peer/domain.key";
/// A server is waited for so long, at the start.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);
/// Verdicts that are kept, at most: about 200 bytes each.
const VERDICTS_MAX: u64 = 10_000_000;

/// Nobody waits for it any more when `stop` is set: a program that is the engine is killed then, and rules are no longer matched.
pub(in crate::commands) fn engine(args: &EngineArgs, stop: Arc<AtomicBool>) -> Result<Box<dyn Engine>, Failure> {
    // No time at all is none that a socket can have.
    let patience = Duration::from_secs(args.scan_time.0.unsigned_abs().max(1));
    let epoch = args.epoch.clone();
    if !args.rules.is_empty() {
        let settings = yara::Settings { patience, bytes_max: args.scan_size.0, epoch };
        return yara::open(&args.rules, settings, stop).map_err(|error| unusable(&error));
    }
    Ok(match &args.command {
        Some(line) => Box::new(Program::new(line.clone(), epoch, patience).stopped_by(stop)),
        None => Box::new(Clamd::new(args.clamd.clone(), epoch, patience).stopped_by(stop)),
    })
}

fn unusable(error: &RulesError) -> Failure {
    match error {
        RulesError::NotBuilt => Failure::told(format!("--rules: {error}")),
        RulesError::Io { path, source } => Failure::io(path, "read its rules", source),
        RulesError::NoFiles { path } => {
            Failure::could_not_run(path, "use its rules", "no file below it is called *.yar or *.yara")
        }
        error => Failure::told(message::of_error(error)),
    }
}

/// What that engine is called, whether it can be used or not.
pub(in crate::commands) fn engine_name(args: &EngineArgs) -> &'static str {
    match &args.command {
        _ if !args.rules.is_empty() => yara::NAME,
        Some(_) => command::NAME,
        None => clamd::NAME,
    }
}

/// Whose word is asked and counts. None where there is no key by which contents could be named, and nobody asked for what needs
/// one. `tell` is told what works only in part.
pub(in crate::commands) fn sources(
    args: &VerdictArgs,
    store: &Path,
    patience: Duration,
    tell: &dyn Fn(&str),
) -> Result<Option<Sources>, Failure> {
    let key = args.key.clone().unwrap_or_else(|| KEY.into());
    let domain = match TrustDomain::read(&key) {
        Ok(domain) => domain,
        Err(error) if error.kind() == io::ErrorKind::NotFound && args.key.is_none() && args.servers.is_empty() => {
            tell("verdicts are not kept: there is no key of a trust domain; make one with onesweep peer keys");
            return Ok(None);
        }
        Err(error) => return Err(Failure::io(&key, "read the key", &error)),
    };
    let failure = |error: onesweep_peer::tls::TlsError| Failure::told(message::of_error(&error));
    let identity = args.tls.as_deref().map(Identity::read).transpose().map_err(failure)?;
    let mut trust = Trust::nobody();
    let mut signer = None;
    if let Some(identity) = &identity {
        trust.add_own(identity);
        for file in &args.trust {
            trust.add_file(file, identity).map_err(failure)?;
        }
        signer = Signer::new(identity, &domain).map_err(failure)?;
    }
    let peers = match (args.servers.is_empty(), identity) {
        (true, _) => None,
        (false, None) => return Err(Failure::told("without --tls no server's word counts: add --tls DIR/NAME")),
        (false, Some(identity)) => {
            let tls = identity.into_client().map_err(failure)?;
            let settings = Settings { patience, ..Settings::encrypted(domain.clone(), tls) };
            let peers = Peers::connect(args.servers.iter().cloned(), settings)
                .map_err(|error| Failure::told(format!("cannot start: {}", message::why(&error))))?;
            if !peers.wait_until_usable(CONNECT_PATIENCE) {
                for health in peers.health() {
                    let why = health.last_error.unwrap_or_else(|| "no answer".to_owned());
                    let address = message::one_line(&health.address);
                    tell(&format!(
                        "{address}: cannot connect: {}; what it knows is scanned here",
                        message::of_error(&why)
                    ));
                }
            }
            Some(peers)
        }
    };
    let store = open_store(store, &domain, args.verdicts.is_some(), tell)?;
    Ok(Some(Sources { store, peers, trust, signer, domain }))
}

/// Where verdicts are kept, unless told otherwise.
pub(in crate::commands) fn default_store(name: &str) -> PathBuf {
    Path::new("/var/lib/onesweep").join(name)
}

/// Where nobody named the file, it is no reason not to scan that verdicts can't be kept.
fn open_store(
    path: &Path,
    domain: &TrustDomain,
    is_named: bool,
    tell: &dyn Fn(&str),
) -> Result<Option<Verdicts>, Failure> {
    if let Some(parent) = path.parent().filter(|_| !is_named) {
        // What is wrong, opening tells.
        let _ = fs::create_dir_all(parent);
    }
    match Verdicts::open(path, domain, VERDICTS_MAX) {
        Ok(store) => Ok(Some(store)),
        Err(error @ (VerdictsError::Domain | VerdictsError::Kind)) => {
            Err(Failure::could_not_run(path, "keep verdicts there", format!("{error}; name another with --verdicts")))
        }
        Err(error) => {
            let what =
                format!("{}: cannot keep verdicts there: {}", message::path_text(path), message::of_error(&error));
            if is_named {
                return Err(Failure::told(what));
            }
            tell(&what);
            Ok(None)
        }
    }
}
