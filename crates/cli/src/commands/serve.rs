//! `onesweep serve`: the daemon that keeps summaries true.

use std::{
    fs,
    io::{self, Write},
    net::{SocketAddr, TcpListener},
    os::unix::{
        fs::{DirBuilderExt, PermissionsExt},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use onesweep_summary::{
    custom::declare::Declared,
    service::{
        http::{
            self, Web,
            tokens::{self, Tokens},
        },
        server::{Server, Tracked},
    },
    store::Store,
    summaries::{CaughtUp, Summaries},
    tracker::Fanotify,
    volume::Volume,
};
use onesweep_sys::files;

use super::summaries;
use crate::{args::ServeArgs, message, report::Failure};

/// Connections at the same time.
const CONNECTIONS_MAX: usize = 256;
/// So often it looks after what is due by itself.
const TEND_EVERY: Duration = Duration::from_secs(1);
/// So often it looks for a signal while it starts.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// So often what is known is made durable.
const COMMIT_EVERY: Duration = Duration::from_secs(60);

pub(crate) fn run(args: ServeArgs) -> Result<u8, Failure> {
    if let (Some(file), Some(uid)) = (&args.http_tokens, args.new_token) {
        return new_token(file, uid);
    }
    let socket = args.socket();
    refuse_company(&socket)?;
    let web = web(&args)?;
    let declared = summaries::declared(args.summaries.as_deref())?;
    let mut folder = fs::DirBuilder::new();
    folder
        .recursive(true)
        .mode(0o700)
        .create(&args.store)
        .map_err(|error| Failure::could_not_run(&args.store, "make the directory of stores", error))?;
    let (mut tracked, mut paths, mut known) = (Vec::new(), Vec::new(), Vec::new());
    for path in &args.paths {
        if let Some(new) = track(path, &args.store, declared.clone(), &mut known)? {
            tracked.push(new);
            paths.push(path);
        }
    }
    let listener = listen(&socket)?;
    let server = Arc::new(Server::new(tracked, args.full_totals));
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&ended))
            .map_err(|error| Failure::told(format!("cannot listen to signals: {error}")))?;
    }
    say(&format!("listening at {}", message::path_text(&socket)));
    let accepting = {
        let server = Arc::clone(&server);
        thread::Builder::new().name("listener".into()).spawn(move || accept(&listener, &server))
    };
    let no_thread = |error| Failure::told(format!("cannot start a thread: {error}"));
    accepting.map_err(no_thread)?;
    let caught_up = {
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| end_early(&ended, &is_done, &socket));
            let caught_up = catch_up(&server, &paths);
            is_done.store(true, Ordering::SeqCst);
            caught_up
        })
    };
    if let Err(failure) = caught_up {
        let _ = fs::remove_file(&socket);
        return Err(failure);
    }
    if let Some((listener, address, tokens)) = web {
        let web = Arc::new(Web::new(Arc::clone(&server), tokens, args.metrics));
        thread::Builder::new().name("web".into()).spawn(move || web.serve(&listener)).map_err(no_thread)?;
        say(&format!("listening at http://{address}/"));
    }
    tend(&server, &ended);
    let _ = fs::remove_file(&socket);
    server.each(|tracked| {
        if let Err(error) = tracked.close() {
            say(&format!("cannot end in good order: {error}"));
        }
    });
    Ok(0)
}

/// What HTTP needs, when it is asked for: a bad address or file is told before anything is harvested.
fn web(args: &ServeArgs) -> Result<Option<(TcpListener, SocketAddr, PathBuf)>, Failure> {
    let (Some(address), Some(tokens)) = (args.http, &args.http_tokens) else { return Ok(None) };
    Tokens::read(tokens)
        .map_err(|error| Failure::could_not_run(tokens, "use it as a file of tokens", message::why(&error)))?;
    for path in &args.metrics {
        if !path.is_absolute() {
            return Err(Failure::could_not_run(path, "tell metrics of it", "the path isn't absolute"));
        }
    }
    let failed = |error: io::Error| Failure::told(format!("{address}: cannot listen: {}", message::why(&error)));
    let listener = http::listen(address).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok(Some((listener, address, tokens.clone())))
}

fn new_token(file: &Path, uid: u32) -> Result<u8, Failure> {
    let token =
        tokens::add(file, uid).map_err(|error| Failure::could_not_run(file, "add a token", message::why(&error)))?;
    writeln!(io::stdout(), "{token}").map_err(|error| Failure::output(&error, 0))?;
    Ok(0)
}

/// The summaries of the file system of `path`; `None` when it is tracked already.
fn track(
    path: &Path,
    stores: &Path,
    declared: Option<Arc<Declared>>,
    known: &mut Vec<Vec<u8>>,
) -> Result<Option<Tracked>, Failure> {
    let volume = Volume::of(path).map_err(|error| Failure::io(path, "track its file system", &error))?;
    let volume = volume.with_summaries(declared);
    let identity = volume.identity().map_err(|error| Failure::io(path, "tell its file system", &error))?;
    if known.contains(&identity) {
        return Ok(None);
    }
    let name: String =
        identity.iter().map(|byte| if byte.is_ascii_alphanumeric() { *byte as char } else { '-' }).collect();
    let volume = Arc::new(volume);
    let tracker = Fanotify::start(Arc::clone(&volume)).map_err(|error| {
        let advice = match error.kind() {
            io::ErrorKind::PermissionDenied => "; it needs root",
            io::ErrorKind::CrossesDevices => "; name a path on the topmost subvolume (subvolid=5)",
            _ => "",
        };
        Failure::could_not_run(path, "watch its file system", format!("{}{advice}", message::why(&error)))
    })?;
    let store = Store::open(&stores.join(name)).map_err(|error| Failure::told(error.to_string()))?;
    let root = volume.root();
    let summaries = Summaries::open(store, (volume, tracker), root, &identity);
    known.push(identity);
    let summaries = summaries.map_err(|error| Failure::could_not_run(path, "track its file system", error))?;
    Ok(Some(summaries))
}

/// Finds out what has changed while nobody tracked it, and harvests that.
fn catch_up(server: &Server, paths: &[&PathBuf]) -> Result<(), Failure> {
    let mut failed = None;
    let (mut began, mut paths) = (Instant::now(), paths.iter());
    server.catch_up(|tracked, done| {
        let Some(path) = paths.next() else { return };
        if let Err(error) = done {
            failed.get_or_insert(Failure::could_not_run(path, "harvest its file system", error));
            return;
        }
        if let Some(CaughtUp::All(doubt)) = tracked.caught_up() {
            say(&format!("{}: harvested anew: {doubt}", message::path_text(path)));
        }
        onesweep_sys::memory::give_back();
        let (known, read) = (tracked.ledger().nodes.len(), tracked.readings());
        let seconds = began.elapsed().as_secs_f64();
        say(&format!("{}: {read} of {known} directories harvested in {seconds:.1} s", message::path_text(path)));
        began = Instant::now();
    });
    failed.map_or(Ok(()), Err)
}

/// Ends the program at a signal while the first harvest is under way: what is in the store is whole at any moment.
fn end_early(ended: &AtomicBool, is_done: &AtomicBool, socket: &Path) {
    while !is_done.load(Ordering::SeqCst) {
        if ended.load(Ordering::SeqCst) {
            let _ = fs::remove_file(socket);
            std::process::exit(0);
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn refuse_company(socket: &Path) -> Result<(), Failure> {
    match UnixStream::connect(socket) {
        Ok(_) => Err(Failure::told(format!("{}: another server listens there", message::path_text(socket)))),
        Err(_) => Ok(()),
    }
}

fn listen(socket: &Path) -> Result<UnixListener, Failure> {
    let failed = |step: &'static str| move |error: io::Error| Failure::io(socket, step, &error);
    if let Some(folder) = socket.parent() {
        fs::create_dir_all(folder).map_err(failed("make the directory of the socket"))?;
    }
    if socket.symlink_metadata().is_ok() {
        refuse_company(socket)?;
        // Of one that was killed. Anything but a socket is left as it is.
        let handle = files::open_handle_at(files::CURRENT_DIR, socket)
            .and_then(|fd| files::statx_fd(std::os::fd::AsFd::as_fd(&fd)).map(|stat| stat.file_type()));
        if matches!(handle, Ok(files::EntryType::Socket)) {
            fs::remove_file(socket).map_err(failed("remove the socket of a server that is gone"))?;
        }
    }
    let listener = UnixListener::bind(socket).map_err(failed("listen"))?;
    // Everybody may ask; who gets what is decided for each question.
    fs::set_permissions(socket, fs::Permissions::from_mode(0o666)).map_err(failed("let others use the socket"))?;
    Ok(listener)
}

fn accept(listener: &UnixListener, server: &Arc<Server>) {
    let open = Arc::new(AtomicUsize::new(0));
    for connection in listener.incoming() {
        let Ok(connection) = connection else { continue };
        if open.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let (server, open_then) = (Arc::clone(server), Arc::clone(&open));
        let conversation = thread::Builder::new().name("conversation".into()).spawn(move || {
            // Who went away wants no answer.
            let _ = server.converse(&connection);
            open_then.fetch_sub(1, Ordering::SeqCst);
        });
        if conversation.is_err() {
            open.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

fn tend(server: &Server, ended: &AtomicBool) {
    let mut committed = Instant::now();
    while !ended.load(Ordering::SeqCst) {
        // A signal is met when this is over, a second later at most.
        thread::sleep(TEND_EVERY);
        let is_time = committed.elapsed() >= COMMIT_EVERY;
        server.each(|tracked| {
            let tended = tracked.tend().and_then(|_| if is_time { tracked.commit(true) } else { Ok(()) });
            if let Err(error) = tended {
                say(&error.to_string());
            }
        });
        if is_time {
            committed = Instant::now();
        }
    }
}

fn say(text: &str) {
    eprintln!("onesweep: {text}");
}
