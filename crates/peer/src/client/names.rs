//! The addresses of a server. A resolver may take seconds to tell them, above all by a network that has just gone, and can't be
//! interrupted: it is asked on a thread of its own, and meanwhile those of before are as good.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

/// For so long an answer is waited for where earlier addresses are known.
const FRESH: Duration = Duration::from_millis(50);

type Found = io::Result<Vec<SocketAddr>>;

/// A server's name, or its address.
pub(super) struct Name {
    /// Where it is an address already.
    plain: Option<SocketAddr>,
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    look_up: fn(&str) -> Found,
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Default)]
struct State {
    known: Vec<SocketAddr>,
    /// Why the last question had no answer.
    error: Option<(io::ErrorKind, String)>,
    is_asking: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ask(&self) {
        let found = (self.look_up)(&self.name);
        let mut state = self.state();
        state.is_asking = false;
        match found {
            Ok(known) => (state.known, state.error) = (known, None),
            Err(error) => state.error = Some((error.kind(), error.to_string())),
        }
        drop(state);
        self.answered.notify_all();
    }
}

impl Name {
    /// `name` has a port.
    pub(super) fn new(name: &str) -> Self {
        Self::asked_by(name, |name| Ok(name.to_socket_addrs()?.collect()))
    }

    fn asked_by(name: &str, look_up: fn(&str) -> Found) -> Self {
        let shared = Shared { name: name.to_owned(), look_up, state: Mutex::default(), answered: Condvar::new() };
        Self { plain: name.parse().ok(), shared: Arc::new(shared) }
    }

    /// Its addresses. Waits no longer than this, and less where earlier ones are known.
    pub(super) fn addresses(&self, patience: Duration) -> Found {
        if let Some(plain) = self.plain {
            return Ok(vec![plain]);
        }
        let mut state = self.shared.state();
        if !state.is_asking {
            state.is_asking = true;
            let asking = Arc::clone(&self.shared);
            let spawned = thread::Builder::new().name("peer-name".into()).spawn(move || asking.ask());
            if let Err(error) = spawned {
                state.is_asking = false;
                return Err(error);
            }
        }
        let patience = if state.known.is_empty() { patience } else { patience.min(FRESH) };
        let waited = self.shared.answered.wait_timeout_while(state, patience, |state| state.is_asking);
        let state = waited.unwrap_or_else(PoisonError::into_inner).0;
        match &state.error {
            _ if !state.known.is_empty() => Ok(state.known.clone()),
            Some((kind, what)) if !state.is_asking => Err(io::Error::new(*kind, what.clone())),
            _ if !state.is_asking => Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address")),
            _ => Err(io::Error::new(io::ErrorKind::TimedOut, "the name's address is not told")),
        }
    }

    /// The addresses that were told last, without asking.
    pub(super) fn known(&self) -> Vec<SocketAddr> {
        self.plain.map_or_else(|| self.shared.state().known.clone(), |plain| vec![plain])
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Barrier,
            atomic::{AtomicU32, Ordering},
        },
        time::Instant,
    };

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn an_address_is_no_question() {
        let name = Name::asked_by("127.0.0.1:7", |_| panic!("nobody is asked"));
        let plain: SocketAddr = ([127, 0, 0, 1], 7).into();
        assert_eq!((name.addresses(Duration::ZERO).unwrap(), name.known()), (vec![plain], vec![plain]));
    }

    #[test]
    fn addresses_of_before_do_while_a_resolver_is_silent() {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        static SILENT: Barrier = Barrier::new(2);
        let name = Name::asked_by("box:7", |_| {
            let number = ASKED.fetch_add(1, Ordering::SeqCst);
            if number == 1 {
                SILENT.wait();
            }
            Ok(vec![([10, 0, 0, number as u8], 7).into()])
        });
        let nth = |number: u8| vec![SocketAddr::from(([10, 0, 0, number], 7))];
        assert_eq!(name.addresses(LONG).unwrap(), nth(0));
        let began = Instant::now();
        assert_eq!((name.addresses(LONG).unwrap(), name.addresses(LONG).unwrap()), (nth(0), nth(0)));
        assert!(began.elapsed() < LONG / 2, "it didn't wait for the resolver");
        assert_eq!(ASKED.load(Ordering::SeqCst), 2, "it is asked once at a time");
        SILENT.wait();
        while name.known() == nth(0) {
            thread::yield_now();
        }
        assert_eq!(name.known(), nth(1));
    }

    #[test]
    fn who_has_never_been_told_hears_why() {
        let name = Name::asked_by("box:7", |_| Err(io::Error::new(io::ErrorKind::NotFound, "no such name")));
        assert_eq!(name.addresses(LONG).unwrap_err().to_string(), "no such name");
        static SILENT: Barrier = Barrier::new(2);
        let name = Name::asked_by("box:7", |_| {
            SILENT.wait();
            Ok(Vec::new())
        });
        assert_eq!(name.addresses(Duration::ZERO).unwrap_err().kind(), io::ErrorKind::TimedOut);
        SILENT.wait();
    }
}
