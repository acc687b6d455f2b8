//! Asking by HTTP, from this machine alone: a page, JSON and metrics (docs/FORMATS.md).
//!
//! Whoever asks shows a token that belongs to one user, and is answered what that user would be on the Unix socket. The page
//! itself holds nothing of anybody, so it comes without one. The token travels in a header, never as a cookie: a cookie of
//! `127.0.0.1` would also go to whatever another user serves on another port.

mod api;
mod breakdown_metrics;
mod connection;
mod limits;
mod metrics;
mod page;
mod request;
mod response;
mod seats;
pub mod tokens;

use std::{
    collections::HashSet,
    io::{self, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use super::{protocol::Name, server::Server};
use limits::Limits;
use request::Request;
use response::Response;
use seats::{OF_ONE_MAX, Seat, Seats};
use tokens::{Guard, ReadTokens};

/// For so long nobody is let in when there is no room for another connection.
const PAUSE: Duration = Duration::from_millis(50);

/// Answers by HTTP.
pub struct Web {
    server: Arc<Server>,
    guard: Guard,
    /// The directories of `/metrics`.
    metrics: RwLock<Vec<Name>>,
    /// So many milliseconds an answer is waited for at most; [`ENDLESS`] for as long as it takes.
    max_ms: AtomicU64,
}

const ENDLESS: u64 = u64::MAX;

/// Listens at an address of this machine alone; any other is refused.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    if !address.ip().is_loopback() {
        let why = "only addresses of this machine alone can be listened at, such as 127.0.0.1 and [::1]";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    TcpListener::bind(address)
}

impl Web {
    /// Answers for what `server` keeps, to those who have a token, and metrics of some directories.
    pub fn new(server: Arc<Server>, tokens: ReadTokens, metrics: &[PathBuf]) -> Web {
        let web =
            Web { server, guard: Guard::new(tokens), metrics: RwLock::default(), max_ms: AtomicU64::new(ENDLESS) };
        web.set_metrics(metrics);
        web
    }

    /// From now on metrics are those of these directories.
    pub fn set_metrics(&self, metrics: &[PathBuf]) {
        let mut metrics: Vec<Name> = metrics.iter().map(|path| Name::of(path.as_os_str().as_bytes())).collect();
        // The same twice would be no metrics.
        let mut known = HashSet::new();
        metrics.retain(|path| known.insert(path.clone().into_bytes()));
        *self.metrics.write().unwrap_or_else(PoisonError::into_inner) = metrics;
    }

    /// From now on an answer is waited for so long at most: then what is stored is told, and that it is late. Until it is known what has changed
    /// on a file system while nobody tracked it, that is two seconds at most.
    pub fn set_max_time(&self, time: Option<Duration>) {
        let max_ms = time.and_then(|time| u64::try_from(time.as_millis()).ok()).unwrap_or(ENDLESS);
        self.max_ms.store(max_ms, Ordering::Relaxed);
    }

    fn max_ms(&self) -> Option<u64> {
        Some(self.max_ms.load(Ordering::Relaxed)).filter(|&max_ms| max_ms != ENDLESS)
    }

    /// Takes connections for ever.
    pub fn serve(self: &Arc<Self>, listener: &TcpListener) {
        let seats = Arc::new(Seats::default());
        for stream in listener.incoming() {
            let Ok(stream) = stream.map(Arc::new) else {
                thread::sleep(PAUSE);
                continue;
            };
            let Some(seat) = seats.take(&stream) else {
                turn_away(&stream);
                continue;
            };
            let web = Arc::clone(self);
            // Where no thread can be had, the connection ends here.
            let _ = thread::Builder::new().name("http".into()).spawn(move || {
                // Who went away wants no answer.
                let _ = connection::converse(&stream, || seat.is_known(), |request| web.answer(request, &seat));
            });
        }
    }

    fn answer(&self, request: &Request, seat: &Seat) -> Response {
        if !request.is_for_this_machine() {
            return Response::refusal(421, "wrong_host", "this server answers to 127.0.0.1, [::1] and localhost alone");
        }
        if request.method != "GET" && request.method != "HEAD" {
            return Response::refusal(405, "wrong_method", "only GET and HEAD are answered");
        }
        if let Some(page) = page::of(&request.path) {
            return page;
        }
        let (uid, asker) = match self.guard.asker(request.token.as_deref(), &self.server) {
            Ok(asker) => asker,
            Err(refusal) => return refusal,
        };
        if !seat.welcome(uid) {
            let why = format!("this user has {OF_ONE_MAX} connections already");
            return Response::refusal(503, "too_many", &why).and_part();
        }
        let limits = Limits::now(self.max_ms());
        match request.path.as_str() {
            "/api/file-systems" => api::file_systems(&self.server),
            "/api/directory" => api::directory(&self.server, &asker, request, limits),
            "/api/summaries" => api::summaries(&self.server),
            "/api/breakdown" => api::breakdown(&self.server, &asker, request, limits),
            "/api/history" => api::history(&self.server, &asker, request, limits),
            "/metrics" => {
                let paths = self.metrics.read().unwrap_or_else(PoisonError::into_inner).clone();
                metrics::answer(&self.server, &asker, &paths, request, limits)
            }
            _ => Response::refusal(404, "not_found", "there is nothing at this address"),
        }
    }
}

/// So little always fits into what the kernel holds for a new connection.
fn turn_away(mut stream: &TcpStream) {
    let _ = stream.set_nonblocking(true);
    let _ = stream.write_all(
        b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    );
}
