//! The server: a thread for each connection, and no limit that a client could move.
//!
//! What it learns of its clients are hashes and blocks, never a path. Since it holds the blocks in clear anyway, it has the
//! key of its trust domain, too, and keeps no block under a hash that isn't its own.

mod connection;
#[cfg(any(test, fuzzing))]
pub(crate) mod conversation;
mod counters;
mod guests;
mod session;

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::fd::AsFd,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use onesweep_sys::ready::{self, Bell, Wanted};

pub use self::counters::Counters;
use self::{
    connection::Connection,
    counters::add,
    guests::{Entry, Guests},
    session::Shared,
};
use crate::{
    id::TrustDomain,
    scan::Verdicts,
    store::BlockStore,
    tls::{self, ServerTls},
    transport::Transport,
    wire::{Answer, Closing},
};

/// Bytes of a connection's stack.
const STACK_BYTES: usize = 256 << 10;
/// After an error that will not go by itself at once (no descriptors left), the next connection is waited for so long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What clients may take of a server.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at a time. Each takes a thread and up to about 700 KiB of memory.
    pub connections: usize,
    /// Those of them that were not greeted yet. Where there are more, the oldest is let go, of the address that has most.
    pub strangers: usize,
    /// Those of them that come from one address; for IPv6, from one network of 64 bits. The loopback may have all.
    pub of_address: usize,
    /// Blocks that a connection waits for; more are refused, each for itself.
    pub in_flight: u32,
    /// Bytes that wait to be taken by a client, about: it is exceeded by one answer at most.
    pub queued_bytes: usize,
    /// Bytes of blocks that a client may put before it heard of the first.
    pub put_bytes: u32,
    /// A client shows who it is within this time.
    pub greeting: Duration,
    /// A client that says nothing for so long is let go.
    pub idle: Duration,
    /// A client that takes nothing for so long, though something waits for it, is let go.
    pub stalled: Duration,
    /// A client is given so long to hear why it is let go.
    pub farewell: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            strangers: 64,
            of_address: 64,
            in_flight: 1024,
            queued_bytes: 256 << 10,
            put_bytes: 1 << 20,
            greeting: Duration::from_secs(10),
            idle: Duration::from_secs(300),
            stalled: Duration::from_secs(10),
            farewell: Duration::from_millis(500),
        }
    }
}

impl Limits {
    /// For so many connections at a time. However few there are, most are for those who show who they are.
    #[must_use]
    pub fn of(connections: usize) -> Self {
        let limits = Self::default();
        Self { connections, strangers: (connections / 4).clamp(1, limits.strangers), ..limits }
    }
}

/// How a server is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Whose blocks it keeps.
    pub domain: TrustDomain,
    /// What clients may take.
    pub limits: Limits,
    /// Who may come. Without it, only the loopback is listened on.
    pub tls: Option<ServerTls>,
    /// Where verdicts of scanners are kept. Without it, none are.
    pub verdicts: Option<Arc<Verdicts>>,
}

impl Settings {
    /// For the loopback alone.
    #[must_use]
    pub fn plain(domain: TrustDomain) -> Self {
        Self { domain, limits: Limits::default(), tls: None, verdicts: None }
    }

    /// For anybody with a certificate.
    #[must_use]
    pub fn encrypted(domain: TrustDomain, tls: ServerTls) -> Self {
        Self { domain, limits: Limits::default(), tls: Some(tls), verdicts: None }
    }
}

/// A server that runs, until it is dropped.
pub struct Server {
    address: SocketAddr,
    inner: Arc<Inner>,
    accepting: Option<thread::JoinHandle<()>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

struct Inner {
    shared: Shared,
    tls: Option<ServerTls>,
    is_stopping: AtomicBool,
    /// Wakes the thread that accepts.
    bell: Bell,
    open: Arc<Open>,
}

/// The connections that are open.
#[derive(Default)]
struct Open {
    guests: Mutex<Guests<Seat>>,
    one_has_ended: Condvar,
}

impl Open {
    fn guests(&self) -> MutexGuard<'_, Guests<Seat>> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What ends a connection from outside.
struct Seat {
    bell: Bell,
    /// Another one has it now.
    is_taken: AtomicBool,
}

impl Server {
    /// Serves whoever comes to a listener. Fails where that is no loopback address and there is no TLS.
    pub fn start(listener: TcpListener, store: Arc<dyn BlockStore>, settings: Settings) -> io::Result<Self> {
        let address = listener.local_addr()?;
        if settings.tls.is_none() && !tls::is_loopback(address.ip()) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{address} is not a loopback address: without TLS nobody is served there"),
            ));
        }
        listener.set_nonblocking(true)?;
        let Settings { domain, limits, tls, verdicts } = settings;
        let inner = Arc::new(Inner {
            shared: Shared { store, verdicts, domain, limits, counters: Counters::default() },
            tls,
            is_stopping: AtomicBool::new(false),
            bell: Bell::new()?,
            open: Arc::default(),
        });
        let accepting = {
            let inner = Arc::clone(&inner);
            thread::Builder::new().name("peer-accept".into()).spawn(move || accept(&listener, &inner))?
        };
        Ok(Self { address, inner, accepting: Some(accepting) })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it has counted.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.inner.shared.counters
    }

    /// The same as OpenMetrics, and what the store tells.
    #[must_use]
    pub fn exposition(&self) -> String {
        self.counters().exposition(self.inner.shared.store.as_ref())
    }

    /// Takes no more connections, tells those that are open, and waits until they have ended, some seconds at most.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        let Some(accepting) = self.accepting.take() else { return };
        self.inner.is_stopping.store(true, Ordering::Release);
        self.inner.bell.ring();
        let _ = accepting.join();
        let open = &self.inner.open;
        let mut guests = open.guests();
        guests.all().for_each(|seat| seat.bell.ring());
        let until = Instant::now() + self.inner.shared.limits.farewell + Duration::from_secs(2);
        while !guests.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            guests = open.one_has_ended.wait_timeout(guests, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

fn accept(listener: &TcpListener, inner: &Arc<Inner>) {
    let mut number = 0;
    while !inner.is_stopping.load(Ordering::Acquire) {
        match listener.accept() {
            Ok((stream, from)) => {
                number += 1;
                // A client for whom there is no descriptor or thread comes again.
                let _ = take(inner, number, stream, from.ip());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let wanted = Wanted { read: true, write: false };
                let _ = ready::wait(listener.as_fd(), wanted, &inner.bell, None);
            }
            Err(_) => {
                let _ = ready::wait_for_bell(&inner.bell, Some(ACCEPT_PAUSE));
            }
        }
    }
}

fn take(inner: &Arc<Inner>, number: u64, stream: TcpStream, from: IpAddr) -> io::Result<()> {
    let counters = &inner.shared.counters;
    // Nobody else lets anybody in, so it still holds below.
    let entry = inner.open.guests().entry(from, &inner.shared.limits);
    let Entry::Comes { goes } = entry else {
        add(&counters.refused, 1);
        add(&counters.crowded, (entry == Entry::FullFromThere).into());
        return refuse(inner, stream);
    };
    let encryption = match &inner.tls {
        Some(tls) => Some(tls.connection().map_err(io::Error::other)?),
        None => None,
    };
    let is_encrypted = encryption.is_some();
    let transport = Transport::new(stream, encryption)?;
    let seat = Arc::new(Seat { bell: Bell::new()?, is_taken: AtomicBool::new(false) });
    let mut guests = inner.open.guests();
    guests.come(number, from, Arc::clone(&seat));
    if let Some(gone) = goes.and_then(|goes| guests.send_away(goes)) {
        add(&counters.displaced, 1);
        gone.is_taken.store(true, Ordering::Release);
        gone.bell.ring();
    }
    drop(guests);
    add(&counters.connections, 1);
    add(&counters.open, 1);
    let ends = Ends { inner: Some(Arc::clone(inner)), open: Arc::clone(&inner.open), number };
    let run = move || {
        if let Some(inner) = &ends.inner {
            let has_to_go = || {
                if inner.is_stopping.load(Ordering::Acquire) {
                    return Some(Closing::Stopping);
                }
                seat.is_taken.load(Ordering::Acquire).then_some(Closing::Busy)
            };
            let greeted = || inner.open.guests().greet(number);
            Connection::new(&inner.shared, transport, is_encrypted).run(&seat.bell, has_to_go, greeted);
        }
    };
    // Where no thread can be had, what it was to run is dropped, and the connection with it.
    thread::Builder::new().name("peer-client".into()).stack_size(STACK_BYTES).spawn(run)?;
    Ok(())
}

/// Says that there are too many; to who would encrypt, nothing.
fn refuse(inner: &Inner, stream: TcpStream) -> io::Result<()> {
    if inner.tls.is_none() {
        let mut out = Vec::new();
        Answer::Closing(Closing::Busy).encode(&mut out);
        let mut transport = Transport::new(stream, None)?;
        transport.write(&out)?;
        transport.close();
    }
    Ok(())
}

/// A connection ends with this, also when its thread panics.
struct Ends {
    inner: Option<Arc<Inner>>,
    open: Arc<Open>,
    number: u64,
}

impl Drop for Ends {
    fn drop(&mut self) {
        // Before anybody hears of the end: who waits for it may want the store for himself.
        if let Some(inner) = self.inner.take() {
            inner.shared.counters.open.fetch_sub(1, Ordering::Relaxed);
        }
        self.open.guests().go(self.number);
        self.open.one_has_ended.notify_all();
    }
}
