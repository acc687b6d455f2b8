//! `onesweep guard`: nobody opens what something bad was found in (docs/guard.md).

use std::{
    fs, io, mem,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::{
        Arc,
        mpsc::{self, Receiver},
    },
    thread,
    time::{Duration, Instant},
};

use onesweep_peer::{
    guard::{Figures, Guard, News, Settings, Undecided, kin::EngineProgram},
    scan::{Engine, EngineId, Judge, clamd::Address},
};
use onesweep_sys::{limits, user};
use signal_hook::iterator::Signals;

use super::{
    scan::setup,
    serve::{log, ready},
};
use crate::{args::GuardArgs, message, report::Failure, session::heeded_signals};

/// A server has so long to answer: somebody waits.
const PATIENCE: Duration = Duration::from_secs(1);
/// News that wait to be told.
const NEWS_MAX: usize = 1024;
/// When it ends, what was found last is told within this time: who reads it may read nothing more.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Lines about files in a second, at most.
const LINES_MAX: u32 = 20;
/// What this process needs itself.
const FILES_KEPT: u64 = 200;
/// An epoch that no engine has: nothing is known under it.
const NO_EPOCH: &str = "none yet";

pub(super) fn run(args: GuardArgs) -> Result<u8, Failure> {
    let mut signals =
        Signals::new(heeded_signals()).map_err(|error| Failure::told(format!("cannot listen to signals: {error}")))?;
    let _switch = log::start(args.log);
    let store = args.verdicts.verdicts.clone().unwrap_or_else(|| setup::default_store("guard.verdicts"));
    let sources = setup::sources(&args.verdicts, &store, PATIENCE, &|what| tracing::warn!("{what}"))?;
    let engine = setup::engine(&args.engine, Arc::default())?;
    let latest = sources.as_ref().and_then(|sources| sources.store.as_ref()).map(|store| store.latest(engine.name()));
    let engine_id = match (engine.id(), latest) {
        (Ok(id), _) => id,
        // It tells itself that the engine is gone. What was known when it was there last is known.
        (Err(_), Some(Ok(Some(id)))) => id,
        (Err(error), _) => {
            EngineId::new(engine.name(), NO_EPOCH).ok_or_else(|| Failure::told(message::of_error(&error)))?
        }
    };
    let judge = sources.map(|sources| Judge::new(sources, engine_id.clone()));
    let settings = settings(&args, engine.as_ref())?;
    let (tell, told) = mpsc::sync_channel(NEWS_MAX);
    let is_open = settings.undecided == Undecided::FailOpen;
    let (tell_end, all_told) = mpsc::channel();
    // Nobody else writes to where somebody may hold it up: who reads what is told may be waiting for an answer of ours.
    let teller = thread::Builder::new().spawn(move || {
        tell_all(&told, is_open);
        let _ = tell_end.send(());
    });
    teller.map_err(|error| Failure::told(message::no_thread(&error)))?;
    let guard = Guard::start(&args.dir, engine, engine_id, judge, settings, tell)
        .map_err(|error| refused(&args.dir, &error))?;
    tracing::info!("guarding {}", message::path_text(&args.dir));
    ready::ready("guarding");
    let _ = signals.forever().next();
    ready::stopping();
    let figures = guard.stop();
    // It may not have heard of the end.
    if all_told.recv_timeout(LAST_WORDS).is_err() {
        tell_figures(&figures);
    }
    Ok(0)
}

fn settings(args: &GuardArgs, engine: &dyn Engine) -> Result<Settings, Failure> {
    let program = args.engine_program.clone().map(|path| engine_program(args, path)).transpose()?;
    if program.is_none() && args.engine.command.is_none() && engine.process() == Some(1) {
        let what = "systemd listens at clamd's socket, so what clamd itself opens below this directory can't be told from what others";
        tracing::warn!("{what} open; name its program with --engine-program");
    }
    // Each who waits has a descriptor, and one more where its file is looked at.
    let files = limits::open_files().soft.unwrap_or(u64::MAX);
    let waiting_max = u64::from(args.waiting).min(files.saturating_sub(FILES_KEPT) / 2).max(1);
    if waiting_max < args.waiting.into() {
        tracing::warn!(
            "{waiting_max} may wait for verdicts, since this process may have {files} files open (LimitNOFILE=)"
        );
    }
    Ok(Settings {
        undecided: if args.fail_open { Undecided::FailOpen } else { Undecided::FailClosed },
        patience: Duration::from_secs(args.patience.0.unsigned_abs()),
        hash_time: Duration::from_secs(args.engine.scan_time.0.unsigned_abs().max(1)),
        scanners: args.scanners.into(),
        waiting_max: usize::try_from(waiting_max).unwrap_or(usize::MAX),
        known_max: args.known as usize,
        program,
    })
}

/// It is one only where it runs as who may listen at the socket.
fn engine_program(args: &GuardArgs, path: std::path::PathBuf) -> Result<EngineProgram, Failure> {
    fs::metadata(&path).map_err(|error| Failure::io(&path, "use it as the engine's program", &error))?;
    let mut users = vec![0];
    if let Address::Unix(socket) = &args.engine.clamd {
        users.extend(fs::metadata(socket).map(|found| found.uid()));
    }
    Ok(EngineProgram { path, users })
}

fn refused(dir: &Path, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::PermissionDenied && user::effective_uid() != 0 {
        return Failure::could_not_run(dir, "guard it", "only root may; run as root");
    }
    match error.kind() {
        io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported => Failure::could_not_run(
            dir,
            "guard it",
            "this kernel has no permission events (CONFIG_FANOTIFY_ACCESS_PERMISSIONS)",
        ),
        _ => Failure::io(dir, "guard it", error),
    }
}

fn tell_all(news: &Receiver<News>, is_open: bool) {
    let mut throttle = Throttle::new(Instant::now());
    for one in news {
        let is_of_a_file = matches!(one, News::Refused { .. } | News::Undecided { .. } | News::Failed(_));
        if is_of_a_file {
            match throttle.admit(Instant::now()) {
                None => continue,
                Some(0) => {}
                Some(held) => tracing::warn!("{held} more were not told"),
            }
        }
        match one {
            News::Refused { path, name, pid } => {
                let (path, name) = (message::path_text(&path), message::one_line(&name));
                tracing::warn!("{path}: {name} FOUND; process {pid} may not open it");
            }
            News::Undecided { path, why } => {
                let (path, why) = (message::path_text(&path), message::of_error(&why));
                tracing::warn!("{path}: {} without a verdict: {why}", undecided(is_open));
            }
            News::EngineGone(why) => {
                tracing::error!("{}; what is not known is {} meanwhile", message::of_error(&why), undecided(is_open));
            }
            News::EngineIs(id) => tracing::info!("the engine is {}", message::one_line(&id.to_string())),
            News::Kept(count) => tracing::debug!("verdicts kept: {count}"),
            News::Failed(what) => tracing::warn!("{}", message::of_error(&what)),
            News::Ended(figures) => return tell_figures(&figures),
        }
    }
}

/// Keeps the log short where one cause holds for every file.
#[derive(Debug)]
struct Throttle {
    since: Instant,
    told: u32,
    held: u64,
}

impl Throttle {
    fn new(now: Instant) -> Self {
        Self { since: now, told: 0, held: 0 }
    }

    /// Whether one more is told; then with how many that were not, before it.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if now.saturating_duration_since(self.since) >= Duration::from_secs(1) {
            (self.since, self.told) = (now, 0);
        }
        if self.told >= LINES_MAX {
            self.held += 1;
            return None;
        }
        self.told += 1;
        Some(mem::take(&mut self.held))
    }
}

fn undecided(is_open: bool) -> &'static str {
    if is_open { "let through" } else { "refused" }
}

fn tell_figures(figures: &Figures) {
    let Figures { opened, known, kept, peer, scanned, refused, undecided, unheard } = figures;
    tracing::info!(
        "ended: {opened} openings, {known} of known files; {kept} contents known here, {peer} to others, {scanned} scanned; \
         {refused} refused, {undecided} undecided, {unheard} messages lost"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_not_filled_and_tells_what_is_missing() {
        let start = Instant::now();
        let mut throttle = Throttle::new(start);
        let told = (0..100).filter(|_| throttle.admit(start) == Some(0)).count();
        assert_eq!(told, LINES_MAX as usize);
        let later = start + Duration::from_secs(1);
        assert_eq!(throttle.admit(later), Some(100 - u64::from(LINES_MAX)));
        assert_eq!(throttle.admit(later), Some(0));
    }
}
