//! The thread that talks to one server: connects, sends what waits, tells who asked, and connects again.

use std::{
    hash::{BuildHasher, RandomState},
    io,
    net::{SocketAddr, TcpStream},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use onesweep_sys::ready;

use super::{
    Failure,
    counters::add,
    link::{Link, Reply},
};
use crate::{
    id::Hash,
    line::Line,
    scan::Statement,
    tls,
    transport::Transport,
    wire::{Answer, Closing, Found, Greeting, HEAD_BYTES, Refusal, VERSION, Welcome, answer},
};

/// The first pause between two tries to connect, and the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_LAST: Duration = Duration::from_secs(10);

/// After a change of the network a server that is there answers within this time. TCP alone would wait for a second and more
/// until it tries again what was lost meanwhile; a new connection costs little.
const DOUBT: Duration = Duration::from_millis(300);

/// Right after a change it is tried so often, with so little patience each time. The first question for the server's address on
/// the link may be lost while that comes up; the kernel would repeat it after a second, and asks anew when it is told to forget it.
const QUICK_TRIES: u32 = 5;
const QUICK: Duration = Duration::from_millis(100);

/// Why a connection came to its end.
#[derive(Debug, thiserror::Error)]
enum Over {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("the server has closed the connection")]
    Closed,
    #[error("{0}")]
    Told(Closing),
    #[error("what the server said can't be understood: {0}")]
    Frame(#[from] crate::wire::FrameError),
    #[error("the server said what nobody had asked for")]
    Unasked,
    #[error("the server did not answer within {} ms", .0.as_millis())]
    Silent(Duration),
    #[error("the server speaks version {0} of the protocol")]
    Version(u16),
    #[error("nobody asks any more")]
    Ended,
}

/// Talks until nobody will ask any more.
pub(super) fn talk(link: &Arc<Link>) {
    let (mut pause, mut patience, mut quick_tries) = (PAUSE_FIRST, DOUBT, 0);
    loop {
        let mut was_answered = false;
        let (is_quick, began) = (quick_tries > 0, Instant::now());
        // A little more each time, for a server that is far away.
        let quick = QUICK + QUICK / 2 * QUICK_TRIES.saturating_sub(quick_tries);
        let over = match connect(link, if is_quick { quick } else { patience }) {
            Ok(transport) => Conversation::new(link, transport).run(&mut was_answered, &mut quick_tries),
            Err(error) => Err(error),
        };
        let over = over.err().unwrap_or(Over::Closed);
        if was_answered {
            // A server that takes connections and lets them go is not worth a quick try.
            (pause, patience) = (PAUSE_FIRST, DOUBT);
        }
        if !finish(link, &over) {
            return;
        }
        if quick_tries > 0 {
            quick_tries -= 1;
            if is_quick {
                forget_neighbours(link);
                // One that was refused at once waits a little.
                if !rest(link, QUICK.saturating_sub(began.elapsed())) {
                    quick_tries = QUICK_TRIES;
                }
            }
            continue;
        }
        if !rest(link, pause) {
            (pause, patience, quick_tries) = (PAUSE_FIRST, DOUBT, QUICK_TRIES);
            continue;
        }
        pause = (2 * pause).min(PAUSE_LAST);
        patience = (2 * patience).min(link.settings.connect);
    }
}

/// Tells all who wait. False where nobody will ask any more.
fn finish(link: &Link, over: &Over) -> bool {
    let mut state = link.state();
    let counter = if state.welcome.is_some() { &link.counters.broken } else { &link.counters.refused };
    let goes_on = !state.is_ended && !matches!(over, Over::Ended);
    if goes_on {
        add(counter, 1);
        state.last_error = Some(over.to_string().into());
        state.closing = if let Over::Told(why) = over { Some(*why) } else { None };
    }
    let lost = state.take_all();
    drop(state);
    link.changed.notify_all();
    add(&link.counters.lost, lost.iter().filter(|reply| !matches!(reply, Reply::Ping { .. })).count() as u64);
    lost.into_iter().for_each(|reply| reply.fail(Failure::Disconnected));
    goes_on
}

/// Waits before the next try. False where it was woken to try at once.
fn rest(link: &Link, pause: Duration) -> bool {
    // Clients that lost the same server don't come back in step.
    let spread = pause.mul_f64(f64::from(RandomState::new().hash_one(0) as u16) / f64::from(u16::MAX) / 4.0);
    let until = Instant::now() + pause + spread;
    loop {
        let mut state = link.state();
        if state.is_ended {
            return false;
        }
        if std::mem::take(&mut state.is_nudged) {
            add(&link.counters.nudges, 1);
            return false;
        }
        drop(state);
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return true;
        }
        if ready::wait_for_bell(&link.bell, Some(left)).is_err() {
            return true;
        }
    }
}

/// Has the kernel ask anew where the server is on the link. Without privilege it does so in its own time.
fn forget_neighbours(link: &Link) {
    for address in link.name.known() {
        let _ = onesweep_sys::links::forget_unanswered(address.ip());
    }
}

fn connect(link: &Link, patience: Duration) -> Result<Transport, Over> {
    if link.state().is_ended {
        return Err(Over::Ended);
    }
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in link.name.addresses(patience.min(link.settings.connect))? {
        match connect_to(link, address, patience) {
            Ok(transport) => return Ok(transport),
            Err(error) => last = error,
        }
    }
    Err(last.into())
}

fn connect_to(link: &Link, address: SocketAddr, patience: Duration) -> io::Result<Transport> {
    let settings = &link.settings;
    let encryption = match &settings.tls {
        Some(tls) => Some(tls.connection().map_err(io::Error::other)?),
        None if tls::is_loopback(address.ip()) => None,
        None => {
            let what = format!("{address} is not a loopback address: without TLS nobody is asked there");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
    };
    Transport::new(TcpStream::connect_timeout(&address, patience.min(settings.connect))?, encryption)
}

/// A connection.
struct Conversation<'a> {
    link: &'a Arc<Link>,
    line: Line,
    began: Instant,
    /// When the last frame came.
    heard: Instant,
    /// Since then something is waited for, and no frame came.
    waits_since: Option<Instant>,
    /// A ping has no answer yet.
    is_pinging: bool,
    /// The network has changed since the last frame: one ping without an answer is enough.
    is_doubted: bool,
}

impl<'a> Conversation<'a> {
    fn new(link: &'a Arc<Link>, transport: Transport) -> Self {
        let now = Instant::now();
        let mut line = Line::new(transport, 4);
        Greeting { lowest: VERSION, highest: VERSION, domain: link.settings.domain.name() }.encode(line.outgoing.end());
        Self { link, line, began: now, heard: now, waits_since: None, is_pinging: false, is_doubted: false }
    }

    /// `quick_tries`: how often it is tried at once when the network has cut it.
    fn run(mut self, was_answered: &mut bool, quick_tries: &mut u32) -> Result<(), Over> {
        let over = self.converse(was_answered);
        *quick_tries = if self.is_doubted { QUICK_TRIES } else { 0 };
        over
    }

    fn converse(&mut self, was_answered: &mut bool) -> Result<(), Over> {
        self.greet()?;
        self.link.ping(self.link.settings.ping);
        self.is_pinging = true;
        loop {
            self.tell_late()?;
            self.watch()?;
            {
                let mut state = self.link.state();
                if state.is_ended {
                    drop(state);
                    self.line.transport.close();
                    return Err(Over::Ended);
                }
                let unsent = self.line.outgoing.len();
                state.write(self.line.outgoing.end(), unsent);
            }
            let mut did_something = self.write()?;
            did_something |= self.hear()?;
            while let Some((answer, used)) = answer(self.line.incoming.bytes())? {
                self.heard = Instant::now();
                (self.waits_since, self.is_doubted) = (None, false);
                *was_answered = true;
                take(self.link, &answer, &mut self.is_pinging)?;
                self.line.incoming.consume(used);
            }
            if !did_something {
                self.wait()?;
            }
        }
    }

    /// Up to the welcome.
    fn greet(&mut self) -> Result<(), Over> {
        let limit = self.link.settings.connect;
        let welcome = loop {
            let did_something = self.write()? | self.hear()?;
            match answer(self.line.incoming.bytes())? {
                Some((Answer::Welcome(welcome), used)) => {
                    self.line.incoming.consume(used);
                    break welcome;
                }
                Some((Answer::Closing(why), _)) => return Err(Over::Told(why)),
                Some(_) => return Err(Over::Unasked),
                None => {}
            }
            let left = (self.began + limit).saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Over::Silent(limit));
            }
            if self.link.state().is_ended {
                return Err(Over::Ended);
            }
            if !did_something {
                let wanted = self.line.wanted(true);
                ready::wait(self.line.transport.socket(), wanted, &self.link.bell, Some(left))?;
            }
        };
        if welcome.version != VERSION {
            return Err(Over::Version(welcome.version));
        }
        self.heard = Instant::now();
        self.up(welcome);
        Ok(())
    }

    fn up(&self, welcome: Welcome) {
        let mut state = self.link.state();
        state.welcome = Some(welcome);
        state.last_error = None;
        state.closing = None;
        drop(state);
        add(&self.link.counters.connections, 1);
        self.link.changed.notify_all();
    }

    fn write(&mut self) -> Result<bool, Over> {
        self.line.write()?.ok_or(Over::Closed)
    }

    fn hear(&mut self) -> Result<bool, Over> {
        self.line.hear()?.ok_or(Over::Closed)
    }

    /// Tells those whose time is over.
    fn tell_late(&mut self) -> Result<(), Over> {
        let now = Instant::now();
        let mut state = self.link.state();
        if state.next_due().is_none_or(|due| due > now) {
            return Ok(());
        }
        let late = state.take_late(now);
        let mut is_dead = false;
        for reply in &late {
            match reply {
                Reply::Ping { .. } => {
                    self.is_pinging = false;
                    is_dead = self.is_doubted;
                    state.breaker.probe_failed(now);
                    state.breaker.failure(now);
                }
                _ => state.breaker.failure(now),
            }
        }
        drop(state);
        add(&self.link.counters.late, late.iter().filter(|reply| matches!(reply, Reply::Get { .. })).count() as u64);
        late.into_iter().for_each(|reply| reply.fail(Failure::Late));
        if is_dead { Err(Over::Silent(self.link.settings.ping.min(DOUBT))) } else { Ok(()) }
    }

    /// Sends probes, and finds out that a connection is dead.
    fn watch(&mut self) -> Result<(), Over> {
        let (now, settings) = (Instant::now(), &self.link.settings);
        let mut state = self.link.state();
        if state.flights.is_empty() {
            self.waits_since = None;
        } else {
            self.waits_since.get_or_insert(now);
        }
        let is_probe_due = state.breaker.probe_at().is_some_and(|at| at <= now);
        let is_nudged = std::mem::take(&mut state.is_nudged);
        drop(state);
        if self.waits_since.is_some_and(|since| now - since > settings.silence) {
            return Err(Over::Silent(settings.silence));
        }
        self.is_doubted |= is_nudged;
        let is_quiet = now - self.heard >= settings.quiet;
        if is_nudged {
            // One from before the change may have been lost.
            add(&self.link.counters.nudges, 1);
            self.is_pinging = true;
            self.link.ping(settings.ping.min(DOUBT));
        } else if !self.is_pinging && (is_probe_due || is_quiet) {
            self.is_pinging = true;
            self.link.ping(settings.ping);
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Over> {
        let settings = &self.link.settings;
        let now = Instant::now();
        let mut state = self.link.state();
        if state.is_ended || state.is_nudged || (state.has_work() && self.line.outgoing.is_empty()) {
            return Ok(());
        }
        let mut until = self.waits_since.unwrap_or(now) + settings.silence;
        if !self.is_pinging {
            until = until.min(self.heard + settings.quiet);
            until = state.breaker.probe_at().map_or(until, |at| at.min(until));
        }
        until = state.next_due().map_or(until, |due| due.min(until));
        state.is_asleep = true;
        drop(state);
        let left = until.saturating_duration_since(now);
        let waited = ready::wait(self.line.transport.socket(), self.line.wanted(true), &self.link.bell, Some(left));
        self.link.state().is_asleep = false;
        waited?;
        Ok(())
    }
}

/// What is said of each content that was asked about; none where something is said of another.
fn by_content(hashes: &[Hash], found: Found<'_>) -> Option<Vec<Vec<Statement>>> {
    let mut sorted = vec![Vec::new(); hashes.len()];
    for (place, record) in found.iter() {
        let place = usize::from(u16::from_le_bytes(place));
        sorted.get_mut(place)?.push(Statement::of_wire(*hashes.get(place)?, &record));
    }
    Some(sorted)
}

/// Takes an answer to where it is waited for.
fn take(link: &Link, answer: &Answer<'_>, is_pinging: &mut bool) -> Result<(), Over> {
    let (id, counters) = match *answer {
        Answer::Welcome(_) => return Err(Over::Unasked),
        Answer::Closing(why) => return Err(Over::Told(why)),
        Answer::Block { id, .. }
        | Answer::Has { id, .. }
        | Answer::Stored { id, .. }
        | Answer::Failed { id, .. }
        | Answer::Stat { id, .. }
        | Answer::Pong { id }
        | Answer::Verdicts { id, .. }
        | Answer::Told { id, .. } => (id, &link.counters),
    };
    // Each number has one answer.
    let reply = link.state().land(id).ok_or(Over::Unasked)?.reply;
    match (reply, *answer) {
        // Nobody waits for it any more.
        (None, Answer::Block { bytes, .. }) => add(&counters.late_bytes, (HEAD_BYTES + 4 + bytes.len()) as u64),
        (None, _) => {}
        (Some(Reply::Get { hash, done }), Answer::Block { bytes, .. }) => {
            if link.settings.domain.is_hash_of(&hash, bytes) {
                link.state().breaker.success();
                add(&counters.hits, 1);
                add(&counters.hit_bytes, bytes.len() as u64);
                done(Ok(bytes));
            } else {
                link.state().breaker.wrong(Instant::now());
                add(&counters.wrong, 1);
                done(Err(Failure::WrongBytes));
            }
        }
        (Some(Reply::Put { done }), Answer::Stored { was_known, .. }) => {
            link.state().breaker.success();
            done(Ok(was_known));
        }
        (Some(Reply::Has { count, done }), Answer::Has { bits, .. }) if bits.len() == count => {
            link.state().breaker.success();
            done(Ok(bits.iter().collect()));
        }
        (Some(Reply::Stat { done }), Answer::Stat { text, .. }) => done(Ok(text.to_owned())),
        (Some(Reply::Ping { sent }), Answer::Pong { .. }) => {
            *is_pinging = false;
            let us = sent.elapsed().as_micros().try_into().unwrap_or(u64::MAX);
            let mut state = link.state();
            // One from before a change tells of another network.
            if state.nudged_at.is_none_or(|nudged_at| sent >= nudged_at) {
                counters.ping_us.store(us, Ordering::Relaxed);
            }
            state.breaker.probe_answered();
            drop(state);
            link.changed.notify_all();
        }
        (Some(Reply::Verdicts { hashes, done }), Answer::Verdicts { found, .. }) => {
            let Some(sorted) = by_content(&hashes, found) else {
                done(Err(Failure::Disconnected));
                return Err(Over::Unasked);
            };
            link.state().breaker.success();
            done(Ok(sorted));
        }
        (Some(Reply::Tell { done }), Answer::Told { new, .. }) => {
            link.state().breaker.success();
            done(Ok(new.into()));
        }
        (Some(reply), Answer::Failed { why, .. }) => {
            let is_absent = why == Refusal::Absent;
            let mut state = link.state();
            match why {
                // That it isn't there is an answer as good as any.
                Refusal::Absent => state.breaker.success(),
                Refusal::Cancelled => {}
                _ => state.breaker.failure(Instant::now()),
            }
            drop(state);
            add(if is_absent { &counters.absent } else { &counters.failed }, 1);
            reply.fail(if is_absent { Failure::Absent } else { Failure::Refused(why) });
        }
        (Some(reply), _) => {
            reply.fail(Failure::Disconnected);
            return Err(Over::Unasked);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{client::Settings, id::TrustDomain};

    #[test]
    fn how_long_a_ping_took_is_of_the_network_as_it_is() {
        let link = Link::new("127.0.0.1:1".into(), Settings::plain(TrustDomain::from_key([7; 32]))).unwrap();
        let took = || link.counters.ping_us.load(Ordering::Relaxed);
        let ping = || {
            link.ping(Duration::from_secs(60));
            // An answer within a microsecond would look like none.
            std::thread::sleep(Duration::from_millis(2));
        };
        let pong = |id| take(&link, &Answer::Pong { id }, &mut true).unwrap();
        ping();
        pong(0);
        assert!(took() > 0);
        ping();
        link.nudge();
        assert_eq!(took(), 0);
        pong(1);
        assert_eq!(took(), 0, "that ping was sent before");
        ping();
        pong(2);
        assert!(took() > 0);
    }
}
