//! Places of connections. Whoever has no token can't keep those out who have one.
//!
//! Any process of this machine can connect, and whose it is shows with the first request that has a good token. Until then a connection is
//! a stranger: some places no stranger takes, and where theirs are taken, who has been one for longest goes, whatever it has said: what
//! needs no token anybody can ask for. Who asks at once is known long before that, unless as many come in between as strangers have places.
//!
//! Nor can one user who has a token keep out others.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
    net::{Shutdown, TcpStream},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

/// Connections at the same time.
const SEATS: usize = 64;
/// Those of them that strangers may have.
const STRANGERS_MAX: usize = 48;
/// Those of them that one user may have.
pub(super) const OF_ONE_MAX: usize = 32;
/// Connections with those that have lost their places, and whose threads are about to end.
const OPEN_MAX: usize = 128;

/// All places.
#[derive(Debug, Default)]
pub(super) struct Seats(Mutex<Taken>);

#[derive(Debug, Default)]
struct Taken {
    known: usize,
    /// Of each user who has some.
    known_of: HashMap<u32, usize>,
    /// By their numbers, and so by age.
    strangers: VecDeque<(u64, Arc<TcpStream>)>,
    open: usize,
    next: u64,
}

impl Seats {
    /// A place for a new connection, which may end that of another stranger. `None` where there is none.
    pub(super) fn take(self: &Arc<Self>, stream: &Arc<TcpStream>) -> Option<Seat> {
        let mut taken = self.taken();
        let room = SEATS.saturating_sub(taken.known).min(STRANGERS_MAX);
        if room == 0 || taken.open >= OPEN_MAX {
            return None;
        }
        while taken.strangers.len() >= room {
            let oldest = taken.strangers.pop_front();
            // One that has ended by itself needn't be told.
            oldest.into_iter().for_each(|(_, stream)| _ = stream.shutdown(Shutdown::Both));
        }
        let number = taken.next;
        taken.strangers.push_back((number, Arc::clone(stream)));
        (taken.next, taken.open) = (number + 1, taken.open + 1);
        Some(Seat { seats: Arc::clone(self), number, user: OnceLock::new() })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// False where the stranger of that number has lost its place.
    fn see_off(&mut self, number: u64) -> bool {
        let at = self.strangers.binary_search_by_key(&number, |(number, _)| *number);
        at.is_ok_and(|at| self.strangers.remove(at).is_some())
    }
}

/// The place of one connection, given back however it ends.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Arc<Seats>,
    number: u64,
    /// Who has shown a good token.
    user: OnceLock<u32>,
}

impl Seat {
    /// A user has shown a good token. False where that one has as many places as one user may have.
    pub(super) fn welcome(&self, uid: u32) -> bool {
        let mut taken = self.seats.taken();
        if self.is_known() {
            return true;
        }
        if taken.known_of.get(&uid).is_some_and(|&known| known >= OF_ONE_MAX) {
            return false;
        }
        if taken.see_off(self.number) {
            taken.known += 1;
            *taken.known_of.entry(uid).or_default() += 1;
            let _ = self.user.set(uid);
        }
        true
    }

    /// Whether one has.
    pub(super) fn is_known(&self) -> bool {
        self.user.get().is_some()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken();
        taken.open -= 1;
        if let Some(uid) = self.user.get() {
            taken.known -= 1;
            if let Entry::Occupied(mut known) = taken.known_of.entry(*uid) {
                *known.get_mut() -= 1;
                if *known.get() == 0 {
                    known.remove();
                }
            }
        } else {
            taken.see_off(self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read, net::TcpListener};

    use super::*;

    /// Both ends of a connection.
    fn connected(listener: &TcpListener) -> (TcpStream, Arc<TcpStream>) {
        let its = TcpStream::connect(listener.local_addr().expect("an address")).expect("it connects");
        (its, Arc::new(listener.accept().expect("a connection").0))
    }

    fn has_ended(mut its: &TcpStream) -> bool {
        its.set_nonblocking(true).expect("it is set");
        matches!(its.read(&mut [0]), Ok(0))
    }

    #[test]
    fn strangers_keep_nobody_out() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let seats = Arc::new(Seats::default());
        let take = || {
            let (its, ours) = connected(&listener);
            seats.take(&ours).map(|seat| (seat, its, ours))
        };
        let mut strangers: Vec<_> = (0..STRANGERS_MAX).map(|_| take().expect("there is room")).collect();
        assert!(strangers.iter().all(|(_, its, _)| !has_ended(its)));
        // One who asks is let in, and stays, whoever else comes. The oldest strangers go.
        let known: Vec<_> = (0..SEATS - STRANGERS_MAX)
            .map(|_| {
                let one = take().expect("the oldest goes");
                assert!(one.0.welcome(1) && one.0.welcome(1));
                strangers.push(take().expect("the place of who is known is free"));
                one
            })
            .collect();
        let ended = strangers.iter().take_while(|(_, its, _)| has_ended(its)).count();
        assert_eq!((ended, strangers.len() - ended), (SEATS - STRANGERS_MAX, STRANGERS_MAX));
        assert!(strangers[ended..].iter().all(|(_, its, _)| !has_ended(its)));
        assert!(known.iter().all(|(seat, its, _)| seat.is_known() && !has_ended(its)));
        // Who has lost its place isn't let in any more.
        assert!(strangers[0].0.welcome(1));
        assert!(!strangers[0].0.is_known());
        drop(strangers);
        let taken = seats.taken();
        assert_eq!((taken.known, taken.strangers.len(), taken.open), (known.len(), 0, known.len()));
        assert_eq!(taken.known_of, [(1, known.len())].into());
    }

    #[test]
    fn who_is_known_is_ended_for_nobody() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let seats = Arc::new(Seats::default());
        let mut take = || {
            let (its, ours) = connected(&listener);
            seats.take(&ours).map(|seat| (seat, its, ours))
        };
        let mut known: Vec<_> = Vec::new();
        for number in 0..SEATS {
            let one = take().expect("there is room");
            assert!(one.0.welcome((number / OF_ONE_MAX) as u32));
            known.push(one);
        }
        assert!(take().is_none() && known.iter().all(|(_, its, _)| !has_ended(its)));
        known.pop();
        let one = take().expect("there is room");
        let other = take().expect("the stranger before goes");
        assert!(has_ended(&one.1) && !has_ended(&other.1));
        // Threads that don't end have an end, too.
        let more: Vec<_> = std::iter::from_fn(&mut take).collect();
        assert_eq!(known.len() + 2 + more.len(), OPEN_MAX);
    }
    #[test]
    fn one_user_leaves_places_to_others() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let seats = Arc::new(Seats::default());
        let take = || seats.take(&connected(&listener).1).expect("there is room");
        let mut many: Vec<Seat> = (0..OF_ONE_MAX).map(|_| take()).collect();
        assert!(many.iter().all(|seat| seat.welcome(7)));
        let one_more = take();
        assert!(!one_more.welcome(7) && !one_more.is_known());
        let other = take();
        assert!(other.welcome(8) && other.is_known());
        // Who is known stays so, whatever token comes next.
        assert!(other.welcome(7));
        many.pop();
        assert!(one_more.welcome(7) && one_more.is_known());
        drop((many, one_more, other));
        let taken = seats.taken();
        assert_eq!((taken.known, taken.known_of.len(), taken.open), (0, 0, 0));
    }
}
