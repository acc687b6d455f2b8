//! `onesweep scan`: each content is looked at once (docs/scan.md).

mod known;
mod sarif;
pub(in crate::commands) mod setup;

use std::{
    borrow::Cow,
    collections::HashMap,
    fs::File,
    io::{self, Read, Write},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use onesweep::{FileError, Kind, Summary, SweepError, SweptFile};
use onesweep_peer::{
    id::{BlockSize, Hash},
    scan::{Content, Engine, EngineError, EngineId, Judge, Known, Source, Verdict, content, judge::Flushed},
};
use serde::Serialize;

use self::sarif::Run;
use crate::{
    args::ScanArgs,
    message, named,
    report::{CANNOT_RUN, Failure, INTERRUPTED, SOME_FAILED},
    session::{Session, StandardOutput},
};

/// A server has so long to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// What can't be opened again, since it lies in an image, is handed over from memory up to this size.
const STREAMED_BYTES_MAX: u64 = 256 << 20;

/// Something bad.
#[derive(Debug)]
struct Finding {
    path: PathBuf,
    name: String,
    source: Source,
}

/// One as `--json` shows it.
#[derive(Serialize)]
struct JsonFinding<'a> {
    path: Cow<'a, str>,
    /// The bytes in hexadecimal, when the path is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    name: &'a str,
    source: &'static str,
}

impl<'a> JsonFinding<'a> {
    fn new(found: &'a Finding) -> Self {
        let hex = |path: &Path| path.as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        Self {
            path: found.path.to_string_lossy(),
            path_hex: found.path.to_str().is_none().then(|| hex(&found.path)),
            name: &found.name,
            source: found.source.word(),
        }
    }
}

#[derive(Default, Serialize)]
struct Details<'a> {
    engine: &'a str,
    /// None where the engine didn't say before the run was interrupted.
    epoch: Option<&'a str>,
    /// Files with a verdict, each name for itself.
    judged: u64,
    infected: u64,
    /// Files by who knew.
    scanned: u64,
    kept: u64,
    peer: u64,
    /// Verdicts that this machine and servers keep now.
    verdicts_kept: u64,
    verdicts_told: u64,
    findings: Vec<JsonFinding<'a>>,
}

/// A run.
struct Scan<'a> {
    session: &'a Session,
    engine: &'a dyn Engine,
    judge: Option<&'a Judge>,
    /// Where verdicts are kept, if any are.
    store: Option<&'a Path>,
    size: BlockSize,
    /// Nothing is looked up.
    is_rescan: bool,
    /// Findings are printed as they come.
    prints: bool,
    found: Mutex<Found>,
    scanned: AtomicU64,
    kept: AtomicU64,
    peer: AtomicU64,
}

#[derive(Default)]
struct Found {
    findings: Vec<Finding>,
    /// What was found in files with several names, by the first one.
    linked: HashMap<PathBuf, (Verdict, Source)>,
    /// Further names, by the first one.
    further: Vec<(PathBuf, PathBuf)>,
    flushed: Flushed,
    /// Nothing more can be scanned.
    stopped: Option<EngineError>,
    output: Option<io::Error>,
}

pub(super) fn run(args: ScanArgs) -> Result<u8, Failure> {
    let (is_sarif, engine) = (args.sarif, setup::engine_name(&args.engine));
    let mut log = Log { is_begun: false };
    let ended = scan(args, &mut log);
    if let (Err(failure @ (Failure::Told(_) | Failure::Sweep(_))), true, false) = (&ended, is_sarif, log.is_begun) {
        let (findings, failures) = (&[], &failure.messages());
        // Where that can't be written either, the exit code tells.
        let _ = log.write(&Run { engine, epoch: None, findings, exit_code: failure.exit_code(), failures });
    }
    ended
}

/// The log that `--sarif` asks for: there is one whatever has happened, since who reads it would take an empty file for a fault of its
/// own.
struct Log {
    is_begun: bool,
}

impl Log {
    fn write(&mut self, run: &Run<'_>) -> io::Result<()> {
        self.is_begun = true;
        let mut out = io::stdout().lock();
        serde_json::to_writer_pretty(&mut out, &sarif::log(run))?;
        writeln!(out)
    }
}

fn scan(args: ScanArgs, log: &mut Log) -> Result<u8, Failure> {
    let stdout = if args.common.output.json { StandardOutput::Summary } else { StandardOutput::Data };
    let session = Session::start(args.common, stdout)?;
    session.check_roots(None, &args.paths)?;
    let engine = setup::engine(&args.engine, session.interruption())?;
    let id = match engine.id() {
        Ok(id) => id,
        Err(_) if session.is_interrupted() => return nothing_seen(&session, engine.name(), args.sarif.then_some(log)),
        Err(error) => return Err(Failure::told(message::of_error(&error))),
    };
    let store = args.verdicts.verdicts.clone().unwrap_or_else(|| setup::default_store("verdicts"));
    let tell = |what: &str| {
        if !session.is_quiet() {
            session.tell(what);
        }
    };
    let judge = setup::sources(&args.verdicts, &store, PATIENCE, &tell)?.map(|sources| Judge::new(sources, id.clone()));
    let indexes = match &judge {
        Some(judge) if !args.rescan => known::indexes(&session, &args.paths, args.index.as_deref(), judge.domain())?,
        _ => Vec::new(),
    };
    let scan = Scan {
        session: &session,
        engine: engine.as_ref(),
        judge: judge.as_ref(),
        store: judge.is_some().then_some(store.as_path()),
        size: indexes.first().map_or_else(BlockSize::default, known::Indexed::size),
        is_rescan: args.rescan,
        prints: !args.sarif && !session.is_json(),
        found: Mutex::default(),
        scanned: AtomicU64::new(0),
        kept: AtomicU64::new(0),
        peer: AtomicU64::new(0),
    };
    let left = known::report_known(&session, &scan, &indexes, &args.paths)?;
    // Files of an indexed directory are named one by one; what is named by the user is read as he said.
    let summary = if session.is_interrupted() { Summary::default() } else { scan.sweep(left, &args.paths)? };
    scan.finish(&id, &summary, &args.paths, args.sarif.then_some(log))
}

impl Scan<'_> {
    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Reads and looks at all of these. A file that vanished since it was looked up fails alone.
    fn sweep(&self, mut paths: Vec<PathBuf>, named_roots: &[PathBuf]) -> Result<Summary, Failure> {
        loop {
            let is_there = |path: &PathBuf| named_roots.contains(path) || named::look(path, false).is_ok();
            let missing: Vec<PathBuf> = paths.iter().filter(|path| !is_there(path)).cloned().collect();
            for path in &missing {
                self.session.complain(&message::of_step(path, "read", &io::ErrorKind::NotFound.into()));
            }
            paths.retain(|path| !missing.contains(path));
            if paths.is_empty() {
                return Ok(Summary::default());
            }
            let read = self.session.bulk_read(&paths)?.writes_to(self.store);
            match self.session.run_parallel(read, |item| self.take(item)) {
                Err(Failure::Sweep(SweepError::Root { path, .. }))
                    if !named_roots.contains(&path) && named::look(&path, false).is_err() => {}
                ended => return ended,
            }
        }
    }

    /// False where nothing more can be done.
    fn take(&self, item: Result<SweptFile, FileError>) -> bool {
        let mut file = match item {
            Ok(file) => file,
            Err(error) => {
                self.session.complain_of(&error);
                return true;
            }
        };
        if file.metadata().kind != Kind::File {
            return true;
        }
        self.session.tell_of_dirty(&file);
        if let Some(first) = file.linked_to() {
            self.found().further.push((first.to_owned(), file.path().to_owned()));
            return true;
        }
        match self.verdict(&mut file) {
            Ok((verdict, source)) => {
                let mut paths = vec![file.path().to_owned()];
                paths.extend(file.links().iter().cloned());
                self.report(&paths, &verdict, source);
                if file.metadata().nlink > 1 {
                    self.found().linked.insert(paths.swap_remove(0), (verdict, source));
                }
            }
            // That is told once, for all that was not looked at.
            Err(error) if error.kind() == io::ErrorKind::Interrupted && self.session.is_interrupted() => {}
            Err(error) => {
                self.session.complain(&message::of_other(file.path(), "scan it", &error));
                file.links().iter().for_each(|name| self.complain_of_further(name));
            }
        }
        let found = self.found();
        found.stopped.is_none() && found.output.is_none()
    }

    /// What of a file. The error is of this file alone.
    fn verdict(&self, file: &mut SweptFile) -> io::Result<(Verdict, Source)> {
        // In nothing there is nothing, and no engine is asked.
        if file.metadata().size == 0 {
            return Ok((Verdict::Clean, Source::Kept));
        }
        self.engine.takes(file.metadata().size).map_err(|error| io::Error::other(message::of_error(&error)))?;
        let hash = match self.judge {
            None => None,
            Some(judge) => Some(match file.bytes() {
                Some(bytes) => content::of_bytes(judge.domain(), self.size, bytes),
                None => content::of_reader(judge.domain(), self.size, &mut file.reader())?.0,
            }),
        };
        if let (Some(judge), Some(hash), false) = (self.judge, &hash, self.is_rescan) {
            // What is too large for memory isn't read once more for other names.
            let others = || match file.bytes() {
                Some(bytes) => content::of_bytes_by_others(judge.domain(), self.size, bytes),
                None => Vec::new(),
            };
            if let Some(Known { verdict, source }) = judge.known_by_any(hash, others) {
                return Ok((verdict, source));
            }
        }
        let engine = self.judge.map(Judge::engine);
        let (scanned, is_as_hashed) = self.scan(file)?;
        match scanned {
            Ok(verdict) => {
                if let (Some(judge), Some(engine), Some(hash), true) = (self.judge, engine, hash, is_as_hashed) {
                    self.keep(judge, &engine, hash, &verdict);
                }
                if !is_as_hashed && !verdict.is_infected() {
                    return Err(io::Error::other("it was changed meanwhile; run again when nobody writes to it"));
                }
                Ok((verdict, Source::Scan))
            }
            Err(EngineError::Stopped) => Err(io::ErrorKind::Interrupted.into()),
            Err(EngineError::Failed(why)) => Err(io::Error::other(message::one_line(&why))),
            Err(error) => {
                let why = message::of_error(&error);
                self.found().stopped.get_or_insert(error);
                Err(io::Error::other(why))
            }
        }
    }

    /// Hands a file to the engine. Whether what it saw is what was read before.
    fn scan(&self, file: &mut SweptFile) -> io::Result<(Result<Verdict, EngineError>, bool)> {
        if let Some(bytes) = file.bytes() {
            return Ok((self.engine.scan(Content::Bytes(bytes)), true));
        }
        // What is too large for memory is opened again, where that is possible.
        match File::open(file.open_path()) {
            Ok(opened) if is_same(&opened, file)? => {
                let verdict = self.engine.scan(Content::File(&opened));
                Ok((verdict, is_same(&opened, file)?))
            }
            _ if file.metadata().size <= STREAMED_BYTES_MAX => {
                let mut bytes = Vec::new();
                file.reader().take(STREAMED_BYTES_MAX).read_to_end(&mut bytes)?;
                Ok((self.engine.scan(Content::Bytes(&bytes)), false))
            }
            _ => Err(io::Error::other("it is too large to be scanned where it lies")),
        }
    }

    /// Keeps a verdict, and all from before when they are many.
    fn keep(&self, judge: &Judge, engine: &EngineId, hash: Hash, verdict: &Verdict) {
        if judge.found(engine, hash, verdict.clone()) {
            self.flush(judge);
        }
    }

    fn flush(&self, judge: &Judge) {
        match self.engine.id() {
            Ok(id) => {
                let Flushed { kept, told, dropped, failures } = judge.flush(id);
                let mut found = self.found();
                found.flushed.kept += kept;
                found.flushed.told += told;
                found.flushed.dropped += dropped;
                for failure in failures {
                    if !found.flushed.failures.contains(&failure) {
                        found.flushed.failures.push(failure);
                    }
                }
            }
            // Without its epoch nothing can be kept.
            Err(error) => {
                self.found().stopped.get_or_insert(error);
            }
        }
    }

    /// Counts a verdict of all names of a file, and tells what was found.
    fn report(&self, paths: &[PathBuf], verdict: &Verdict, source: Source) {
        let counter = match source {
            Source::Scan => &self.scanned,
            Source::Kept => &self.kept,
            Source::Peer => &self.peer,
        };
        counter.fetch_add(paths.len() as u64, Relaxed);
        let Some(name) = verdict.infection() else { return };
        let mut found = self.found();
        for path in paths {
            if self.prints && found.output.is_none() {
                let line = format!("{}: {} FOUND", message::path_text(path), message::one_line(name));
                found.output = writeln!(io::stdout().lock(), "{line}").err();
            }
            found.findings.push(Finding { path: path.clone(), name: name.to_owned(), source });
        }
    }

    /// Names of files whose first name was looked at.
    fn report_further(&self) {
        let further = std::mem::take(&mut self.found().further);
        for (first, name) in further {
            let verdict = self.found().linked.get(&first).cloned();
            match verdict {
                Some((verdict, source)) => self.report(&[name], &verdict, source),
                None => self.complain_of_further(&name),
            }
        }
    }

    /// Nobody is to take a name that isn't told of for clean.
    fn complain_of_further(&self, name: &Path) {
        let why = io::Error::other("another name of the file failed");
        self.session.complain(&message::of_other(name, "scan it", &why));
    }

    fn finish(self, id: &EngineId, summary: &Summary, roots: &[PathBuf], log: Option<&mut Log>) -> Result<u8, Failure> {
        self.report_further();
        if let Some(judge) = self.judge {
            self.flush(judge);
        }
        let session = self.session;
        session.unread(roots).iter().for_each(|message| session.complain(message));
        let Found { findings, flushed, stopped, output, .. } =
            self.found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        session.end_progress();
        if let Some(error) = &stopped {
            session.complain(&message::of_error(error));
        }
        if !session.is_quiet() {
            flushed.failures.iter().for_each(|failure| session.tell(&message::one_line(failure)));
            if flushed.dropped > 0 {
                let what = "verdicts are not kept, since the engine got other signatures meanwhile";
                session.tell(&format!("{} {what}", flushed.dropped));
            }
        }
        let (scanned, kept, peer) = (self.scanned.into_inner(), self.kept.into_inner(), self.peer.into_inner());
        let infected = findings.len() as u64;
        let output = output.map_or(Ok(()), Err).and_then(|()| {
            if let Some(log) = log {
                let exit_code = exit_code(session.exit_code(), infected > 0);
                let (engine, epoch, findings) = (id.name(), Some(id.epoch()), &findings);
                let failures = &failures(session, stopped.as_ref());
                return log.write(&Run { engine, epoch, findings, exit_code, failures });
            }
            let mut out = io::stdout().lock();
            if self.prints && !session.is_quiet() {
                writeln!(
                    out,
                    "{infected} of {} files infected; {scanned} scanned, {kept} known here, {peer} to others",
                    scanned + kept + peer
                )?;
            }
            Ok(())
        });
        output.map_err(|error| session.output(&error))?;
        let details = Details {
            engine: id.name(),
            epoch: Some(id.epoch()),
            judged: scanned + kept + peer,
            infected,
            scanned,
            kept,
            peer,
            verdicts_kept: flushed.kept,
            verdicts_told: flushed.told,
            findings: findings.iter().map(JsonFinding::new).collect(),
        };
        let code = session.finish("scan", summary, details)?;
        Ok(exit_code(code, infected > 0))
    }
}

/// The end of a run that was interrupted before the engine had said which it is.
fn nothing_seen(session: &Session, engine: &str, log: Option<&mut Log>) -> Result<u8, Failure> {
    session.end_progress();
    if let Some(log) = log {
        let (exit_code, failures) = (session.exit_code(), &failures(session, None));
        let written = log.write(&Run { engine, epoch: None, findings: &[], exit_code, failures });
        written.map_err(|error| session.output(&error))?;
    }
    let summary = Summary { cancelled: true, ..Summary::default() };
    session.finish("scan", &summary, Details { engine, ..Details::default() })
}

/// Why not everything was looked at, where that is so. Files that failed are many, maybe, and told elsewhere one by one.
fn failures(session: &Session, stopped: Option<&EngineError>) -> Vec<String> {
    let errors = session.errors();
    let failed = (errors > 0).then(|| format!("errors: {errors}, told on standard error"));
    let interrupted = session.is_interrupted().then(|| "interrupted".to_owned());
    stopped.map(message::of_error).into_iter().chain(failed).chain(interrupted).collect()
}

/// As clamscan's: what was found is told before what failed.
fn exit_code(code: u8, has_found: bool) -> u8 {
    match code {
        INTERRUPTED => INTERRUPTED,
        _ if has_found => 1,
        SOME_FAILED => CANNOT_RUN,
        code => code,
    }
}

/// Whether an open file is what was read.
fn is_same(opened: &File, read: &SweptFile) -> io::Result<bool> {
    let (now, then) = (opened.metadata()?, read.metadata());
    let [mtime, ctime] = [then.mtime, then.ctime].map(|time| (time.seconds, i64::from(time.nanoseconds)));
    Ok(now.ino() == then.ino
        && now.size() == then.size
        && (now.mtime(), now.mtime_nsec()) == mtime
        && (now.ctime(), now.ctime_nsec()) == ctime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_clamscan() {
        for (code, has_found, expected) in [
            (0, false, 0),
            (0, true, 1),
            (1, true, 1),
            (1, false, 2),
            (2, false, 2),
            (130, true, 130),
            (130, false, 130),
        ] {
            assert_eq!(exit_code(code, has_found), expected);
        }
    }
}
