//! One connection, on a thread of its own: bytes come, frames are answered, bytes go.
//!
//! ```text
//!   socket ──► incoming ──► session ──► waiting, prefetch ──► store ──► outgoing ──► socket
//! ```
//! A block is taken from the store only when there is room for it in `outgoing`. So a client that doesn't read costs that
//! room and no more; nothing more is read from it meanwhile, and after a while it is let go.

use std::{
    io,
    time::{Duration, Instant},
};

use onesweep_sys::ready::{self, Bell, Wanted};

use super::{
    counters::add,
    session::{Caller, Session, Shared},
};
use crate::{
    line::Line,
    tls::{self, Role},
    transport::Transport,
    wire::{Answer, Closing},
};

/// What is answered goes after so long at the latest, though more could be: who hears nothing for long gives up.
const ANSWERS_AT_A_TIME: Duration = Duration::from_millis(100);

/// How a connection came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The client has gone.
    Gone,
    /// The client is told why.
    Told(Closing),
    /// The client takes nothing any more, so it can't be told.
    Stalled,
}

/// A connection.
pub(super) struct Connection<'a> {
    shared: &'a Shared,
    session: Session<'a>,
    line: Line,
    began: Instant,
    /// When something was last heard, and when something last went or nothing had to.
    heard: Instant,
    went: Instant,
    is_encrypted: bool,
}

impl<'a> Connection<'a> {
    pub(super) fn new(shared: &'a Shared, transport: Transport, is_encrypted: bool) -> Self {
        let now = Instant::now();
        Self {
            shared,
            session: Session::new(shared),
            line: Line::new(transport, 2),
            began: now,
            heard: now,
            went: now,
            is_encrypted,
        }
    }

    /// Serves until one of both ends it. `has_to_go` is asked each time when the bell was rung: why, if so; `greeted` once, when
    /// the client has shown who it is: whether it may stay.
    pub(super) fn run(mut self, bell: &Bell, has_to_go: impl Fn() -> Option<Closing>, greeted: impl Fn() -> bool) {
        let end = loop {
            match has_to_go() {
                // In the middle of a handshake nothing can be said, and its thread is wanted.
                Some(Closing::Busy) if self.is_encrypted => break End::Gone,
                Some(why) => break End::Told(why),
                None => {}
            }
            if let Err(end) = self.turn(bell, &greeted) {
                break end;
            }
        };
        let counters = &self.shared.counters;
        match end {
            End::Told(Closing::Frame | Closing::Idle) | End::Stalled => add(&counters.broken, 1),
            End::Told(Closing::Version | Closing::Domain | Closing::Role) => add(&counters.refused, 1),
            End::Told(_) | End::Gone => {}
        }
        if let End::Told(why) = end {
            Answer::Closing(why).encode(self.line.outgoing.end());
            self.flush_for(self.shared.limits.farewell, bell);
        }
        self.line.transport.close();
    }

    /// Does what can be done, and waits where nothing can.
    fn turn(&mut self, bell: &Bell, greeted: &impl Fn() -> bool) -> Result<(), End> {
        let was_greeted = self.session.was_greeted();
        let mut did_something = self.hear()?;
        did_something |= self.answer()?;
        // Before the client hears of it.
        if self.session.was_greeted() && !was_greeted && !greeted() {
            return Err(End::Told(Closing::Busy));
        }
        did_something |= self.write()?;
        if did_something { Ok(()) } else { self.wait(bell) }
    }

    fn has_room(&self) -> bool {
        self.line.outgoing.len() < self.shared.limits.queued_bytes
    }

    fn hear(&mut self) -> Result<bool, End> {
        if !self.has_room() || self.line.incoming.is_full() {
            return Ok(false);
        }
        let has_come = self.line.hear().map_err(|error| {
            if error.kind() == io::ErrorKind::InvalidData {
                // No certificate, a wrong one, or no TLS at all.
                add(&self.shared.counters.refused, 1);
            }
            End::Gone
        })?;
        let has_come = has_come.ok_or(End::Gone)?;
        if has_come {
            self.heard = Instant::now();
        }
        Ok(has_come)
    }

    /// Takes the frames that came, and serves what they ask for, as far as there is room.
    fn answer(&mut self) -> Result<bool, End> {
        let mut did_something = false;
        let until = Instant::now() + ANSWERS_AT_A_TIME;
        while self.has_room() && !(did_something && Instant::now() >= until) {
            let (transport, is_encrypted) = (&self.line.transport, self.is_encrypted);
            // On the loopback, who comes is not asked for his role: he has to know the key for his hashes.
            let caller = || match (is_encrypted, transport.certificate()) {
                (true, certificate) => {
                    let certificate = certificate?;
                    Some(Caller { role: tls::role_of(certificate)?, certificate: Some(certificate.clone()) })
                }
                (false, _) => Some(Caller { role: Role::Client, certificate: None }),
            };
            let (incoming, outgoing) = (&mut self.line.incoming, self.line.outgoing.end());
            match self.session.take(incoming.bytes(), caller, outgoing).map_err(End::Told)? {
                None => break,
                Some(used) => incoming.consume(used),
            }
            did_something = true;
        }
        // A store that is far away may take long for each.
        while self.has_room()
            && !(did_something && Instant::now() >= until)
            && self.session.serve_one(self.line.outgoing.end())
        {
            did_something = true;
        }
        Ok(did_something)
    }

    fn write(&mut self) -> Result<bool, End> {
        let had_any = !self.line.outgoing.is_empty();
        let went = self.line.write().map_err(|_| End::Gone)?.ok_or(End::Gone)?;
        if went || !had_any {
            self.went = Instant::now();
        }
        Ok(went)
    }

    fn wait(&mut self, bell: &Bell) -> Result<(), End> {
        let limits = &self.shared.limits;
        let now = Instant::now();
        let (since, most, end) = if !self.line.outgoing.is_empty() {
            (self.went, limits.stalled, End::Stalled)
        } else if self.session.was_greeted() {
            (self.heard, limits.idle, End::Told(Closing::Idle))
        } else {
            // Bytes that come one by one don't make it longer.
            (self.began, limits.greeting, End::Told(Closing::Idle))
        };
        let left = (since + most).saturating_duration_since(now);
        if left.is_zero() {
            return Err(end);
        }
        let wanted = self.line.wanted(self.has_room());
        let ready = ready::wait(self.line.transport.socket(), wanted, bell, Some(left)).map_err(|_| End::Gone)?;
        // While it isn't read, a connection that is over would be ready at once again and again.
        if ready.is_over && !wanted.read { Err(End::Gone) } else { Ok(()) }
    }

    /// Lets go what is to go, for so long at most.
    fn flush_for(&mut self, time: Duration, bell: &Bell) {
        let until = Instant::now() + time;
        while !self.line.outgoing.is_empty() && Instant::now() < until {
            match self.write() {
                Ok(true) => continue,
                Ok(false) => {}
                Err(_) => return,
            }
            let left = until.saturating_duration_since(Instant::now());
            let wanted = Wanted { read: false, write: true };
            match ready::wait(self.line.transport.socket(), wanted, bell, Some(left)) {
                Ok(ready) if !ready.is_over => {}
                _ => return,
            }
        }
    }
}
