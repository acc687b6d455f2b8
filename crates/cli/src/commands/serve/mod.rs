//! `onesweep serve`: the daemon that keeps summaries true.
//!
//! | module | what it does |
//! |---|---|
//! | [`settings`] | what was typed, and the file |
//! | [`rights`] | starts the warden, which has the rights, and gives up those of the daemon |
//! | [`moves`], [`mover`] | the process that moves files, where that is switched on, and its end here |
//! | [`sockets`] | where it listens |
//! | [`catching_up`] | what has changed while nobody tracked it |
//! | [`background`], [`turns`] | what is harvested by itself, of each file system by a thread, and whose turn it is |
//! | [`log`], [`ready`] | what people and systemd are told |

mod background;
mod catching_up;
pub(super) mod log;
mod mover;
mod moves;
mod places;
pub(super) mod ready;
mod rights;
mod settings;
mod sockets;
mod standstill;
mod turns;

use std::{
    fs,
    io::{self, Write},
    mem,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver, Sender},
    },
    thread::{self, JoinHandle},
};

use onesweep_summary::{
    file_system::FileSystem,
    reading::Directories,
    service::{
        http::{Web, tokens},
        server::{Served, Server},
    },
    store::{self, Store, StoreError},
    summaries::{Summaries, SummaryError},
    tracker::{Fanotify, SizesFollow},
    warden::guarded::{Found, Guarded, Warden},
};
use onesweep_sys::{fanotify::Group, memory};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use self::{
    background::{LookedAfter, Schedule},
    catching_up::Done,
    moves::Mover,
    rights::Running,
    turns::Turns,
};
use super::summaries;
use crate::{
    args::{ServeArgs, ServeSettings},
    message,
    report::Failure,
};

/// What the daemon waits for.
enum Event {
    End,
    Reload,
    CaughtUp(Done),
    /// File systems that didn't answer may do so by now.
    AskAgain,
}

pub(crate) fn run(args: ServeArgs) -> Result<u8, Failure> {
    memory::keep_little();
    if args.warden {
        return rights::run_warden(args);
    }
    if args.mover {
        return mover::run(&args);
    }
    let settings = settings::read(&args)?;
    if let (Some(file), Some(uid)) = (&settings.http_tokens, args.new_token) {
        return new_token(file, uid);
    }
    let socket = settings.socket();
    sockets::refuse_company(&socket)?;
    let web = sockets::web(&settings)?;
    // The warden reads it; what is wrong with it is told before anything is made.
    summaries::declared(settings.summaries.as_deref())?;
    let user = rights::user(&settings)?;
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|error| Failure::told(format!("cannot listen to signals: {error}")))?;
    let log = log::start(settings.log.unwrap_or_default());
    let running = Running::start(settings.relocates())?;
    // What can't be tracked is told before anything is made.
    let (found, is_one_silent) = match found(&running) {
        Ok(found) => found,
        Err(failure) => {
            running.end();
            return Err(failure);
        }
    };
    let began = || {
        let store = settings::store(&settings);
        rights::own_store(&store, user)?;
        let listener = sockets::listen(&socket)?;
        rights::give_up(user)?;
        if user.is_none() && onesweep_sys::user::effective_uid() == 0 {
            tracing::info!("there is no user onesweep: it runs as root, without root's rights");
        }
        let tracked = found.into_iter().map(|one| track(one, &store, settings.sizes_follow(), running.mover.as_ref()));
        Ok((listener, tracked.collect::<Result<Vec<_>, _>>()?))
    };
    let (listener, volumes) = match began() {
        Ok(began) => began,
        Err(failure) => {
            running.end();
            return Err(failure);
        }
    };
    let reach = Box::new(Arc::clone(&running.warden));
    let server = Arc::new(Server::new(volumes.clone(), reach, settings.full_totals.clone()));
    {
        let server = Arc::clone(&server);
        spawn("listener", move || sockets::accept(&listener, &server))?;
    }
    tracing::info!("listening at {}", message::path_text(&socket));
    ready::ready("harvesting what has changed");
    let (tell, events) = mpsc::channel();
    forward(signals, tell.clone())?;
    let web = web.map(|listening| serve_web(listening, &server, &running.warden, &settings)).transpose()?;
    let schedule = Schedule::new(&settings);
    let mut daemon = Daemon {
        args,
        settings,
        log,
        running,
        server,
        web,
        schedule,
        tell,
        catching_up: 0,
        is_reload_due: false,
        is_one_silent,
        is_asking_again: false,
        turns: Arc::default(),
        looked_after: Vec::new(),
    };
    if is_one_silent {
        daemon.ask_again_later();
    }
    daemon.catch_up(volumes);
    daemon.run(&events)
}

/// Answers by HTTP, also while nothing is known yet.
fn serve_web(
    (listener, address): (TcpListener, SocketAddr),
    server: &Arc<Server>,
    warden: &Arc<Warden>,
    settings: &ServeSettings,
) -> Result<Arc<Web>, Failure> {
    let warden = Arc::clone(warden);
    let web = Arc::new(Web::new(Arc::clone(server), Box::new(move || warden.tokens()), &settings.metrics));
    web.set_max_time(settings.http_max_time());
    let serving = Arc::clone(&web);
    spawn("web", move || serving.serve(&listener))?;
    tracing::info!("listening at http://{address}/");
    Ok(web)
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let spawned = thread::Builder::new().name(name.into()).spawn(run);
    spawned.map(drop).map_err(|error| Failure::told(format!("cannot start a thread: {error}")))
}

/// Signals as events.
fn forward(mut signals: Signals, tell: Sender<Event>) -> Result<(), Failure> {
    spawn("signals", move || {
        for signal in signals.forever() {
            let event = if signal == SIGHUP { Event::Reload } else { Event::End };
            if tell.send(event).is_err() {
                return;
            }
        }
    })
}

fn new_token(file: &Path, uid: u32) -> Result<u8, Failure> {
    let token =
        tokens::add(file, uid).map_err(|error| Failure::could_not_run(file, "add a token", message::why(&error)))?;
    writeln!(io::stdout(), "{token}").map_err(|error| Failure::output(&error, 0))?;
    Ok(0)
}

/// What `fanotify_mark` says of a file system without a number.
const ENODEV: i32 = 19;
const NOT_SUPPORTED: &str = "; it can't be tracked: name a path on ext2, ext3, ext4, XFS, btrfs, F2FS or tmpfs, such as \
    the one below an overlay; or name it by --timed, to have it read again from time to time. `onesweep du` walks all others";

type ToTrack = (PathBuf, Arc<Guarded>, Group);

/// The file systems that the settings name, each once; all of them can be tracked, or none is. Those that don't answer are told, and left
/// out; true where there is one.
fn found(running: &Running) -> Result<(Vec<ToTrack>, bool), Failure> {
    let told = running.warden.file_systems();
    let told = told.map_err(|error| Failure::told(format!("cannot ask the warden: {}", message::why(&error))))?;
    let (mut found, mut is_one_silent): (Vec<ToTrack>, bool) = (Vec::new(), false);
    for one in told {
        if is_silent(&one) {
            tell_of_silent(&one.0);
            is_one_silent = true;
            continue;
        }
        let (path, guarded, group) = opened(one).map_err(Failure::told)?;
        if found.iter().all(|(_, other, _)| other.number() != guarded.number()) {
            found.push((path, guarded, group));
        }
    }
    Ok((found, is_one_silent))
}

/// It doesn't answer.
fn is_silent((_, found): &Found) -> bool {
    matches!(found, Err((_, error)) if error.kind() == io::ErrorKind::TimedOut)
}

fn tell_of_silent(path: &Path) {
    let path = message::path_text(path);
    tracing::error!(
        "{path}: it doesn't answer, and is left out; it is asked again each harvest-after, and by a reload"
    );
}

fn opened((path, found): Found) -> Result<ToTrack, String> {
    let (guarded, group) = found.map_err(|(step, error)| {
        let advice = match error.kind() {
            io::ErrorKind::PermissionDenied => "; it needs root",
            io::ErrorKind::CrossesDevices => {
                "; mount its topmost subvolume somewhere (mount -o subvolid=5) and name a path there"
            }
            io::ErrorKind::NotFound => "; check the name",
            // Overlays, network file systems and those in user space, whose inodes have no handles, or are told of by nobody.
            io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput => NOT_SUPPORTED,
            _ if error.raw_os_error() == Some(ENODEV) => NOT_SUPPORTED,
            _ => "",
        };
        format!("{}: cannot {step}: {}{advice}", message::path_text(&path), message::why(&error))
    })?;
    Ok((path, guarded, group))
}

/// The summaries of a file system.
fn track(
    (path, guarded, group): ToTrack,
    stores: &Path,
    wanted: SizesFollow,
    mover: Option<&Mover>,
) -> Result<Arc<Served>, Failure> {
    let path = path.as_path();
    let identity = guarded.identity().map_err(|error| Failure::io(path, "tell its file system", &error))?;
    let before = guarded.identity_before().map_err(|error| Failure::io(path, "tell its file system", &error))?;
    let place = store::place(stores, &identity, before.as_deref());
    let place = place.map_err(|error| Failure::io(stores, "name a store", &error))?;
    let guarded: Arc<dyn FileSystem> = guarded;
    if !guarded.changes_are_told() {
        let path = message::path_text(path);
        tracing::info!(
            "{path}: nobody tells what changes there: it is read again from time to time, and answers say how old they are"
        );
    } else if guarded.sizes_follow() != wanted {
        let path = message::path_text(path);
        tracing::warn!("{path}: sizes follow each write there, for this file system tells its inodes by a walk alone");
    }
    let tracker = Fanotify::take_up(Arc::clone(&guarded), group)
        .map_err(|error| Failure::could_not_run(path, "watch its file system", message::why(&error)))?;
    if let Some(mover) = mover {
        mover.is_heard_by(tracker.moves());
    }
    let store = sockets::patiently(|| Store::open_or_begin_anew(&place), StoreError::is_in_use);
    let (store, set_aside) = store.map_err(|error| {
        let advice = match error.is_in_use() {
            true => {
                "; another server tracks this file system, or it is a copy of one that is tracked here, a snapshot of its device \
                 say, by the same UUID: leave one of them out, or give it another UUID"
            }
            false => "",
        };
        Failure::told(format!("{}: {error}{advice}", message::path_text(path)))
    })?;
    if let Some(before) = before {
        store.rename_file_system(&before, &identity).map_err(|error| Failure::told(error.to_string()))?;
    }
    let root = guarded.root();
    let summaries = Summaries::open(store, (guarded, tracker), root, &identity);
    let summaries = summaries.map_err(|error| Failure::could_not_run(path, "track its file system", error))?;
    if let Some(set_aside) = set_aside.or(summaries.take_set_aside()) {
        tracing::warn!("{set_aside}");
    }
    Ok(Served::new(path.to_owned(), summaries))
}

/// A server that runs.
struct Daemon {
    args: ServeArgs,
    settings: ServeSettings,
    log: log::Switch,
    running: Running,
    server: Arc<Server>,
    web: Option<Arc<Web>>,
    schedule: Arc<Schedule>,
    tell: Sender<Event>,
    /// So many are being caught up with, of those of which changes are told.
    catching_up: usize,
    is_reload_due: bool,
    /// Not all file systems have answered when they were asked last,
    is_one_silent: bool,
    /// and are asked again in a while.
    is_asking_again: bool,
    /// Of which changes are told: what is harvested of them by itself, and when.
    turns: Arc<Turns>,
    looked_after: Vec<LookedAfter>,
}

impl Daemon {
    fn run(mut self, events: &Receiver<Event>) -> Result<u8, Failure> {
        let ended = loop {
            match events.recv() {
                Ok(Event::End) | Err(_) => break Ok(0),
                Ok(Event::Reload) => self.reload(),
                Ok(Event::AskAgain) => {
                    self.is_asking_again = false;
                    self.reload();
                }
                Ok(Event::CaughtUp(done)) => {
                    if let Err(failure) = self.caught_up(done) {
                        break Err(failure);
                    }
                }
            }
        };
        self.end();
        ended
    }

    /// One that failed is let go. Without any other there is nothing to go on for.
    fn caught_up(&mut self, Done { of, ended }: Done) -> Result<(), Failure> {
        let are_told = of.file_system().changes_are_told();
        match ended {
            Err(error) => self.let_go_of_failed(&of, &error)?,
            Ok(()) => self.look_after(&of)?,
        }
        self.catching_up -= usize::from(are_told);
        if self.catching_up > 0 {
            return Ok(());
        }
        ready::ready("all is known");
        if mem::take(&mut self.is_reload_due) {
            self.reload();
        }
        Ok(())
    }

    fn end(self) {
        ready::stopping();
        let volumes = self.server.volumes();
        let mut looked_after = self.looked_after;
        let ending: Vec<Ending<'_>> = volumes
            .iter()
            .map(|served| {
                let is_of = |one: &mut LookedAfter| one.is_of(served);
                // Nobody waits for what may not answer.
                let thread = looked_after.extract_if(.., is_of).next().map(LookedAfter::end);
                (&**served, Mutex::new(thread.filter(|_| served.file_system().changes_are_told())))
            })
            .collect();
        // One whose disk holds still is waited for, and keeps no other from its end.
        thread::scope(|scope| {
            for one in &ending {
                let end = || end_in_good_order(one);
                if thread::Builder::new().name("end".into()).spawn_scoped(scope, end).is_err() {
                    end_in_good_order(one);
                }
            }
        });
        if !self.running.end() {
            // It does so as the first it does, unless it has no time for anything.
            let _ = fs::remove_file(self.settings.socket());
        }
    }

    /// Harvests of it by itself from now on.
    fn look_after(&mut self, of: &Arc<Served>) -> Result<(), Failure> {
        self.looked_after.retain(|one| !one.has_ended());
        let by = (&self.server, &self.running.warden);
        self.looked_after.push(LookedAfter::start(of, by, (&self.schedule, &self.turns))?);
        Ok(())
    }

    /// Finds out what has changed on these while nobody tracked them, and harvests that.
    fn catch_up(&mut self, volumes: Vec<Arc<Served>>) {
        let begun = catching_up::begin(volumes, &mut self.catching_up, &self.running.warden, &self.tell);
        if let Err(failure) = begun {
            failure.messages().iter().for_each(|message| tracing::error!("{message}"));
            let _ = self.tell.send(Event::End);
        }
    }

    /// Tracks no longer what could not be caught up with. The error says why, where there is nothing else.
    fn let_go_of_failed(&self, failed: &Arc<Served>, error: &SummaryError) -> Result<(), Failure> {
        let before = self.server.volumes();
        let others: Vec<_> = before.iter().filter(|other| !Arc::ptr_eq(other, failed)).cloned().collect();
        if others.len() == before.len() {
            // It was let go meanwhile.
            return Ok(());
        }
        let is_last = others.is_empty();
        self.server.set_volumes(others);
        if let Some(number) = failed.file_system().number() {
            self.running.warden.forget(number);
        }
        let path = message::path_text(failed.path());
        let failure = Failure::told(format!("{path}: cannot harvest its file system: {}", message::of_error(error)));
        if is_last {
            return Err(failure);
        }
        failure.messages().iter().for_each(|message| tracing::error!("{message}"));
        Ok(())
    }

    /// Those that didn't answer are asked once more after a while.
    fn ask_again_later(&mut self) {
        if mem::replace(&mut self.is_asking_again, true) {
            return;
        }
        let (tell, after) = (self.tell.clone(), self.schedule.harvest_after());
        let asking = spawn("asking-again", move || {
            thread::sleep(after);
            let _ = tell.send(Event::AskAgain);
        });
        if let Err(failure) = asking {
            self.is_asking_again = false;
            failure.messages().iter().for_each(|message| tracing::error!("{message}"));
        }
    }

    /// Takes over what the settings say now; where they can't be used, nothing of it.
    fn reload(&mut self) {
        ready::reloading();
        match self.try_reload() {
            Ok(()) => tracing::info!("the settings were read again"),
            Err(failure) => {
                for message in failure.messages() {
                    tracing::error!("the settings stay as they are: {message}");
                }
                if self.is_one_silent {
                    // Nobody was asked: they may be in order by the next time.
                    self.ask_again_later();
                }
            }
        }
        ready::ready("the settings were read again");
    }

    fn try_reload(&mut self) -> Result<(), Failure> {
        let now = settings::read(&self.args)?;
        // Nothing is let go of in the middle of a harvest.
        self.is_reload_due = self.catching_up > 0;
        let told = (!self.is_reload_due).then(|| self.running.warden.file_systems());
        let told = told.transpose().map_err(|error| Failure::told(message::why(&error)))?;
        for name in settings::fixed(&self.settings, &now) {
            tracing::warn!("{name} is another one now: that takes a restart");
        }
        let ServeSettings { socket, store, user, mount_namespace, http, .. } = self.settings.clone();
        self.settings = ServeSettings { socket, store, user, mount_namespace, http, ..now };
        self.log.set(self.settings.log.unwrap_or_default());
        self.server.set_full_totals(self.settings.full_totals.clone());
        self.schedule.set(&self.settings);
        if let Some(web) = &self.web {
            web.set_metrics(&self.settings.metrics);
            web.set_max_time(self.settings.http_max_time());
            if let Err(error) = self.running.warden.tokens() {
                tracing::warn!("the file of tokens can't be used: {}", message::why(&error));
            }
        }
        if let Some(mover) = &mut self.running.mover {
            mover.reload();
        }
        match told {
            Some(told) => self.track_others(told),
            None => tracing::info!("which file systems are tracked stays as it is until all are caught up with"),
        }
        Ok(())
    }

    /// Tracks these, and no others any more.
    fn track_others(&mut self, told: Vec<Found>) {
        let before = self.server.volumes();
        self.is_one_silent = false;
        let (mut kept, mut new): (Vec<Arc<Served>>, Vec<ToTrack>) = (Vec::new(), Vec::new());
        for one in told {
            if is_silent(&one) {
                tell_of_silent(&one.0);
                self.is_one_silent = true;
                self.ask_again_later();
                continue;
            }
            match opened(one) {
                Ok((path, guarded, group)) => {
                    let is_it = |served: &&Arc<Served>| served.file_system().number() == Some(guarded.number());
                    if let Some(served) = before.iter().find(is_it) {
                        if kept.iter().all(|other| !Arc::ptr_eq(other, served)) {
                            kept.push(Arc::clone(served));
                        }
                    } else if new.iter().all(|(_, other, _)| other.number() != guarded.number()) {
                        new.push((path, guarded, group));
                    }
                }
                Err(why) => tracing::error!("{why}"),
            }
        }
        self.server.set_volumes(kept.clone());
        let told_anew: Vec<u32> = new.iter().map(|(_, guarded, _)| guarded.number()).collect();
        for served in before.iter().filter(|served| kept.iter().all(|other| !Arc::ptr_eq(other, served))) {
            let path = message::path_text(served.path());
            let is_tracked_anew = new.iter().any(|(path, ..)| path == served.path());
            match served.close() {
                Ok(false) if is_tracked_anew => {
                    new.retain(|(path, ..)| path != served.path());
                    tracing::error!(
                        "{path}: it is being read, and can't be tracked anew meanwhile: reload the settings again"
                    );
                }
                Ok(true) if is_tracked_anew => tracing::info!("{path}: tracked anew"),
                Ok(_) => tracing::info!("{path}: not tracked any more"),
                Err(error) => tracing::error!("{path}: cannot end in good order: {}", message::of_error(&error)),
            }
        }
        // With the last of those goes its store, which a new one may want.
        drop(before);
        let store = settings::store(&self.settings);
        let mut added: Vec<Arc<Served>> = Vec::new();
        for one in new {
            match track(one, &store, self.settings.sizes_follow(), self.running.mover.as_ref()) {
                Ok(served) => added.push(served),
                Err(failure) => failure.messages().iter().for_each(|message| tracing::error!("{message}")),
            }
        }
        // Or it would be watched, and nobody would hear what is told.
        let is_added = |number: &u32| added.iter().any(|served| served.file_system().number() == Some(*number));
        told_anew.iter().filter(|number| !is_added(number)).for_each(|&number| self.running.warden.forget(number));
        if !added.is_empty() {
            kept.extend(added.iter().cloned());
            self.server.set_volumes(kept);
            self.catch_up(added);
        }
    }
}

/// A file system, and the thread that looks after it, where that is waited for.
type Ending<'a> = (&'a Served, Mutex<Option<JoinHandle<()>>>);

fn end_in_good_order((served, thread): &Ending<'_>) {
    let thread = thread.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(thread) = thread {
        let _ = thread.join();
    }
    // Nobody waits for a first harvest that is under way: what is in the store is whole at any moment.
    if let Err(error) = served.close() {
        let path = message::path_text(served.path());
        tracing::error!("{path}: cannot end in good order: {}", message::of_error(&error));
    }
}
