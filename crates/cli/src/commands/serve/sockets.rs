//! Where it listens: made while it still has the rights to.

use std::{
    fs, io,
    net::{SocketAddr, TcpListener},
    os::{
        fd::AsFd,
        unix::{
            fs::PermissionsExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use onesweep_summary::service::{
    http::{self, tokens::Tokens},
    server::Server,
};
use onesweep_sys::{files, peer};

use super::places::Places;
use crate::{args::ServeSettings, message, report::Failure};

/// Who takes so long to read on is gone, for all that is known.
const WRITE_PATIENCE: Duration = Duration::from_secs(300);
/// So long who still has a store is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What HTTP needs, when it is asked for: a bad address or file is told before anything is harvested.
pub(super) fn web(settings: &ServeSettings) -> Result<Option<(TcpListener, SocketAddr)>, Failure> {
    let (Some(address), Some(tokens)) = (settings.http, &settings.http_tokens) else { return Ok(None) };
    Tokens::read(tokens)
        .map_err(|error| Failure::could_not_run(tokens, "use it as a file of tokens", message::why(&error)))?;
    let failed = |error: io::Error| Failure::told(format!("{address}: cannot listen: {}", message::why(&error)));
    let listener = http::listen(address).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    Ok(Some((listener, address)))
}

/// Tries again while that may be because another one hasn't ended yet.
pub(super) fn patiently<T, E>(
    mut attempt: impl FnMut() -> Result<T, E>,
    may_pass: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let until = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Err(error) if may_pass(&error) && Instant::now() < until => thread::sleep(LOOK_EVERY),
            done => return done,
        }
    }
}

pub(super) fn refuse_company(socket: &Path) -> Result<(), Failure> {
    match UnixStream::connect(socket) {
        Ok(_) => Err(Failure::told(format!("{}: another server listens there", message::path_text(socket)))),
        Err(_) => Ok(()),
    }
}

pub(super) fn listen(socket: &Path) -> Result<UnixListener, Failure> {
    let failed = |step: &'static str| move |error: io::Error| Failure::io(socket, step, &error);
    if let Some(folder) = socket.parent() {
        fs::create_dir_all(folder).map_err(failed("make the directory of the socket"))?;
    }
    if socket.symlink_metadata().is_ok() {
        refuse_company(socket)?;
        // Of one that was killed. Anything but a socket is left as it is.
        let handle = files::open_handle_at(files::CURRENT_DIR, socket)
            .and_then(|fd| files::statx_fd(fd.as_fd()).map(|stat| stat.file_type()));
        if matches!(handle, Ok(files::EntryType::Socket)) {
            fs::remove_file(socket).map_err(failed("remove the socket of a server that is gone"))?;
        }
    }
    let listener = UnixListener::bind(socket).map_err(failed("listen"))?;
    // Everybody may ask; who gets what is decided for each question.
    fs::set_permissions(socket, fs::Permissions::from_mode(0o666)).map_err(failed("let others use the socket"))?;
    Ok(listener)
}

/// Before another connection is taken, where one couldn't be.
const PAUSE: Duration = Duration::from_millis(50);

/// Takes connections for ever.
pub(super) fn accept(listener: &UnixListener, server: &Arc<Server>) {
    let places = Arc::new(Places::default());
    for connection in listener.incoming() {
        let Ok(connection) = connection else {
            // No descriptors are left, say.
            thread::sleep(PAUSE);
            continue;
        };
        let place = peer::user_of(connection.as_fd()).ok().and_then(|uid| Places::take(&places, uid));
        let Some(place) = place else { continue };
        // Who doesn't read keeps neither the place nor the answer.
        if connection.set_write_timeout(Some(WRITE_PATIENCE)).is_err() {
            continue;
        }
        let server = Arc::clone(server);
        // Where no thread can be had, the place is given back, too.
        let _ = thread::Builder::new().name("conversation".into()).spawn(move || {
            // Who went away wants no answer.
            let _ = server.converse(&connection);
            drop(place);
        });
    }
}
