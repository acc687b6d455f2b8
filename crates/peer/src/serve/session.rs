//! What is said on one connection, without the connection: frames in, frames out.

use std::collections::VecDeque;

use rustls::pki_types::CertificateDer;

use super::{
    Limits,
    counters::{Counters, add},
};
use crate::{
    id::{BLOCK_BYTES_MAX, Hash, TrustDomain},
    scan::{EngineId, Statement, Verdicts},
    store::{BlockStore, Put},
    tls::Role,
    wire::{
        Answer, BATCH_MAX, Closing, EngineName, Greeting, Hashes, Priority, Refusal, Request, Told,
        VERDICTS_OF_ONE_MAX, VERSION, Welcome, request,
    },
};

/// What all connections share.
pub(super) struct Shared {
    pub(super) store: std::sync::Arc<dyn BlockStore>,
    /// Where none is kept, none is known.
    pub(super) verdicts: Option<std::sync::Arc<Verdicts>>,
    pub(super) domain: TrustDomain,
    pub(super) limits: Limits,
    pub(super) counters: Counters,
}

/// A block that was asked for and not sent yet.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    id: u32,
    hash: Hash,
}

/// Who has shown to be at the other end.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) role: Role,
    /// None on the loopback without TLS.
    pub(super) certificate: Option<CertificateDer<'static>>,
}

/// A connection's state.
pub(super) struct Session<'a> {
    shared: &'a Shared,
    was_greeted: bool,
    /// The certificate of a scanner, by which he signs.
    scanner: Option<CertificateDer<'static>>,
    waiting: VecDeque<Wanted>,
    prefetch: VecDeque<Wanted>,
}

impl<'a> Session<'a> {
    pub(super) fn new(shared: &'a Shared) -> Self {
        Self { shared, was_greeted: false, scanner: None, waiting: VecDeque::new(), prefetch: VecDeque::new() }
    }

    pub(super) fn was_greeted(&self) -> bool {
        self.was_greeted
    }

    /// Blocks that were asked for and not sent yet.
    #[cfg(any(test, fuzzing))]
    pub(super) fn queued(&self) -> usize {
        self.waiting.len() + self.prefetch.len()
    }

    /// Takes one frame, where it is whole: how many bytes it was, or why the connection ends.
    /// `caller` is asked for once: who the client has shown to be.
    pub(super) fn take(
        &mut self,
        input: &[u8],
        caller: impl FnOnce() -> Option<Caller>,
        out: &mut Vec<u8>,
    ) -> Result<Option<usize>, Closing> {
        let Some((request, used)) = request(input).map_err(|_| Closing::Frame)? else { return Ok(None) };
        match request {
            Request::Greeting(greeting) if !self.was_greeted => self.greet(&greeting, caller(), out)?,
            // Once, and first.
            Request::Greeting(_) => return Err(Closing::Frame),
            _ if !self.was_greeted => return Err(Closing::Frame),
            Request::Get { first, priority, hashes } => self.want(first, priority, hashes, out),
            Request::Has { id, hashes } => self.tell_which(id, hashes, out),
            Request::Put { id, hash, bytes } => self.put(id, &hash, bytes, out),
            Request::Cancel { first, count } => self.cancel(first, count, out),
            Request::Stat { id } => {
                let text = self.shared.counters.exposition(self.shared.store.as_ref());
                Answer::Stat { id, text: &text }.encode(out);
            }
            Request::Ping { id } => Answer::Pong { id }.encode(out),
            Request::Verdicts { id, engine, hashes } => self.tell_verdicts(id, engine, hashes, out),
            Request::Tell { id, engine, told } => self.keep_verdicts(id, engine, told, out),
        }
        Ok(Some(used))
    }

    fn greet(&mut self, greeting: &Greeting, caller: Option<Caller>, out: &mut Vec<u8>) -> Result<(), Closing> {
        if !(greeting.lowest..=greeting.highest).contains(&VERSION) {
            return Err(Closing::Version);
        }
        let caller = caller.filter(|caller| caller.role != Role::Server).ok_or(Closing::Role)?;
        if greeting.domain != self.shared.domain.name() {
            return Err(Closing::Domain);
        }
        self.was_greeted = true;
        self.scanner = caller.certificate.filter(|_| caller.role == Role::Scanner);
        let limits = &self.shared.limits;
        Answer::Welcome(Welcome {
            version: VERSION,
            in_flight: limits.in_flight,
            batch: BATCH_MAX as u32,
            block_bytes: BLOCK_BYTES_MAX as u32,
            put_bytes: limits.put_bytes,
        })
        .encode(out);
        Ok(())
    }

    fn want(&mut self, first: u32, priority: Priority, hashes: Hashes<'_>, out: &mut Vec<u8>) {
        add(&self.shared.counters.gets, hashes.len() as u64);
        let is_far = self.shared.store.is_far();
        let mut soon = Vec::new();
        for (id, hash) in (first..=u32::MAX).zip(hashes.iter()) {
            if self.waiting.len() + self.prefetch.len() >= self.shared.limits.in_flight as usize {
                add(&self.shared.counters.busy, 1);
                Answer::Failed { id, why: Refusal::Busy }.encode(out);
                continue;
            }
            if is_far {
                soon.push(hash);
            }
            match priority {
                Priority::Waiting => self.waiting.push_back(Wanted { id, hash }),
                Priority::Prefetch => self.prefetch.push_back(Wanted { id, hash }),
            }
        }
        if is_far {
            self.shared.store.soon(&soon);
        }
    }

    fn cancel(&mut self, first: u32, count: u16, out: &mut Vec<u8>) {
        let range = first..=first.saturating_add(u32::from(count) - 1);
        for queue in [&mut self.waiting, &mut self.prefetch] {
            queue.retain(|wanted| {
                let goes = range.contains(&wanted.id);
                if goes {
                    add(&self.shared.counters.cancelled, 1);
                    Answer::Failed { id: wanted.id, why: Refusal::Cancelled }.encode(out);
                }
                !goes
            });
        }
    }

    fn tell_which(&self, id: u32, hashes: Hashes<'_>, out: &mut Vec<u8>) {
        add(&self.shared.counters.asked, hashes.len() as u64);
        let hashes: Vec<Hash> = hashes.iter().collect();
        let are_there = self.shared.store.has_all(&hashes);
        Answer::has(out, id, &are_there);
    }

    fn put(&self, id: u32, hash: &Hash, bytes: &[u8], out: &mut Vec<u8>) {
        let counters = &self.shared.counters;
        add(&counters.puts, 1);
        add(&counters.put_bytes, bytes.len() as u64);
        if !self.shared.domain.is_hash_of(hash, bytes) {
            add(&counters.wrong, 1);
            return Answer::Failed { id, why: Refusal::WrongHash }.encode(out);
        }
        match self.shared.store.put(hash, bytes) {
            Ok(put) => {
                let was_known = put == Put::Known;
                add(&counters.known, was_known.into());
                Answer::Stored { id, was_known }.encode(out);
            }
            Err(_) => {
                add(&counters.store_failures, 1);
                Answer::Failed { id, why: Refusal::Store }.encode(out);
            }
        }
    }

    /// What is known of contents, and who says so; where much is, what is bad first.
    fn tell_verdicts(&self, id: u32, engine: EngineName<'_>, hashes: Hashes<'_>, out: &mut Vec<u8>) {
        let counters = &self.shared.counters;
        add(&counters.verdicts_asked, hashes.len() as u64);
        let hashes: Vec<Hash> = hashes.iter().collect();
        let engine = EngineId::new(engine.name, engine.epoch);
        let found = match (&self.shared.verdicts, engine) {
            (Some(verdicts), Some(engine)) => verdicts.get(&engine, &hashes),
            _ => Ok(vec![Vec::new(); hashes.len()]),
        };
        let Ok(mut found) = found else {
            add(&counters.store_failures, 1);
            return Answer::Failed { id, why: Refusal::Store }.encode(out);
        };
        found.iter_mut().for_each(|of_one| of_one.sort_by_key(|statement| !statement.verdict.is_infected()));
        add(&counters.verdicts_known, found.iter().filter(|of_one| !of_one.is_empty()).count() as u64);
        let numbered = (0_u16..).zip(&found);
        let records: Vec<_> = numbered
            .flat_map(|(place, of_one)| {
                of_one.iter().take(VERDICTS_OF_ONE_MAX).map(move |statement| (place, statement.on_wire()))
            })
            .collect();
        Answer::verdicts(out, id, &records);
    }

    /// Takes verdicts of a scanner alone, and only those that he has signed: all, or none.
    fn keep_verdicts(&self, id: u32, engine: EngineName<'_>, told: Told<'_>, out: &mut Vec<u8>) {
        let counters = &self.shared.counters;
        add(&counters.verdicts_told, told.len() as u64);
        let mut refuse = |why| {
            add(&counters.verdicts_refused, told.len() as u64);
            Answer::Failed { id, why }.encode(out);
        };
        let Some(scanner) = &self.scanner else { return refuse(Refusal::Role) };
        let Some(engine) = EngineId::new(engine.name, engine.epoch) else { return refuse(Refusal::Signature) };
        let statements: Vec<Statement> =
            told.iter().map(|(hash, record)| Statement::of_wire(Hash::from_bytes(hash), &record)).collect();
        let domain = self.shared.domain.name();
        if !statements.iter().all(|statement| statement.is_signed_by(scanner, domain, &engine)) {
            return refuse(Refusal::Signature);
        }
        match self.shared.verdicts.as_ref().map(|verdicts| verdicts.keep(&engine, &statements)) {
            Some(Ok(new)) => Answer::Told { id, new: new as u16 }.encode(out),
            Some(Err(_)) | None => {
                add(&counters.store_failures, 1);
                Answer::Failed { id, why: Refusal::Store }.encode(out);
            }
        }
    }

    /// Answers for one block that was asked for: those first that somebody waits for. False where there is none.
    pub(super) fn serve_one(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(Wanted { id, hash }) = self.waiting.pop_front().or_else(|| self.prefetch.pop_front()) else {
            return false;
        };
        let counters = &self.shared.counters;
        let before = out.len();
        match Answer::block(out, id, |out| self.shared.store.get(&hash, out)) {
            Ok(true) => {
                add(&counters.hits, 1);
                add(&counters.hit_bytes, (out.len() - before) as u64 - 9);
            }
            Ok(false) => Answer::Failed { id, why: Refusal::Absent }.encode(out),
            Err(_) => {
                add(&counters.store_failures, 1);
                Answer::Failed { id, why: Refusal::Store }.encode(out);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, atomic::Ordering};

    use super::*;
    use crate::{
        store::{
            Memory,
            conformance::{Failing, block, domain},
        },
        wire::answer,
    };

    fn shared(store: Arc<dyn BlockStore>) -> Shared {
        let limits = Limits { in_flight: 4, ..Limits::default() };
        Shared { store, verdicts: None, domain: domain(), limits, counters: Counters::default() }
    }

    fn caller(role: Role) -> Caller {
        Caller { role, certificate: None }
    }

    fn greeted(shared: &Shared) -> Session<'_> {
        let mut session = Session::new(shared);
        let (mut frame, mut out) = (Vec::new(), Vec::new());
        Greeting { lowest: 1, highest: 1, domain: shared.domain.name() }.encode(&mut frame);
        assert_eq!(session.take(&frame, || Some(caller(Role::Client)), &mut out), Ok(Some(frame.len())));
        assert!(matches!(answer(&out), Ok(Some((Answer::Welcome(_), _)))));
        session
    }

    /// What is answered to a frame, at once.
    fn said(session: &mut Session<'_>, write: impl FnOnce(&mut Vec<u8>)) -> Vec<String> {
        let (mut frame, mut out) = (Vec::new(), Vec::new());
        write(&mut frame);
        assert_eq!(session.take(&frame, || panic!("asked once"), &mut out), Ok(Some(frame.len())));
        read(&out)
    }

    fn served(session: &mut Session<'_>) -> Vec<String> {
        let mut out = Vec::new();
        while session.serve_one(&mut out) {}
        read(&out)
    }

    fn read(mut out: &[u8]) -> Vec<String> {
        let mut read = Vec::new();
        while let Some((answer, used)) = answer(out).unwrap() {
            read.push(match answer {
                Answer::Block { id, bytes } => format!("block {id} of {}", bytes.len()),
                Answer::Has { id, bits } => format!("has {id} {:?}", bits.iter().collect::<Vec<_>>()),
                Answer::Stat { id, text } => format!("stat {id} {}", text.lines().last().unwrap()),
                other => format!("{other:?}"),
            });
            out = &out[used..];
        }
        assert!(out.is_empty());
        read
    }

    #[test]
    fn greetings_are_held_against_what_this_server_is() {
        let shared = shared(Arc::new(Memory::new(1 << 20)));
        let right = Greeting { lowest: 0, highest: 9, domain: shared.domain.name() };
        for (greeting, role, refused) in [
            (right, Some(Role::Client), None),
            (right, Some(Role::Scanner), None),
            (right, Some(Role::Server), Some(Closing::Role)),
            (right, None, Some(Closing::Role)),
            (Greeting { lowest: 2, ..right }, Some(Role::Client), Some(Closing::Version)),
            (Greeting { highest: 0, ..right }, Some(Role::Client), Some(Closing::Version)),
            (Greeting { domain: crate::id::DomainName([0; 16]), ..right }, Some(Role::Client), Some(Closing::Domain)),
        ] {
            let mut frame = Vec::new();
            greeting.encode(&mut frame);
            let taken = Session::new(&shared).take(&frame, || role.map(caller), &mut Vec::new());
            assert_eq!(taken.err(), refused, "{greeting:?} {role:?}");
        }
        let mut ping = Vec::new();
        Request::ping(&mut ping, 1);
        assert_eq!(Session::new(&shared).take(&ping, || None, &mut Vec::new()), Err(Closing::Frame));
        let mut again = Vec::new();
        right.encode(&mut again);
        assert_eq!(greeted(&shared).take(&again, || None, &mut Vec::new()), Err(Closing::Frame));
    }

    #[test]
    fn who_waits_comes_first_and_what_is_cancelled_is_not_sent() {
        let store = Arc::new(Memory::new(1 << 20));
        let (one, bytes) = block(1, 4096);
        store.put(&one, &bytes).unwrap();
        let (absent, _) = block(2, 4096);
        let shared = shared(store);
        let mut session = greeted(&shared);
        assert!(said(&mut session, |out| Request::get(out, 10, Priority::Prefetch, &[one, one])).is_empty());
        assert!(said(&mut session, |out| Request::get(out, 20, Priority::Waiting, &[absent, one])).is_empty());
        let cancelled = said(&mut session, |out| Request::cancel(out, 11, 1));
        assert_eq!(cancelled, ["Failed { id: 11, why: Cancelled }"]);
        assert_eq!(served(&mut session), ["Failed { id: 20, why: Absent }", "block 21 of 4096", "block 10 of 4096"]);
        // What was answered can't be cancelled, and has no second answer.
        assert!(said(&mut session, |out| Request::cancel(out, 0, 1000)).is_empty());
        assert_eq!(session.queued(), 0);
    }

    #[test]
    fn more_than_the_limit_is_refused_each_for_itself() {
        let shared = shared(Arc::new(Memory::new(1 << 20)));
        let mut session = greeted(&shared);
        let hashes = vec![block(1, 4096).0; 6];
        let busy = said(&mut session, |out| Request::get(out, 0, Priority::Waiting, &hashes));
        assert_eq!(busy, ["Failed { id: 4, why: Busy }", "Failed { id: 5, why: Busy }"]);
        assert_eq!(served(&mut session).len(), 4);
        assert_eq!(shared.counters.busy.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_block_under_another_hash_is_not_kept() {
        let shared = shared(Arc::new(Memory::new(1 << 20)));
        let mut session = greeted(&shared);
        let ((one, bytes), (other, _)) = (block(1, 4096), block(2, 4096));
        let wrong = said(&mut session, |out| Request::put(out, 1, &other, &bytes));
        assert_eq!(wrong, ["Failed { id: 1, why: WrongHash }"]);
        let stored = said(&mut session, |out| Request::put(out, 2, &one, &bytes));
        assert_eq!(stored, ["Stored { id: 2, was_known: false }"]);
        let known = said(&mut session, |out| Request::put(out, 3, &one, &bytes));
        assert_eq!(known, ["Stored { id: 3, was_known: true }"]);
        let has = said(&mut session, |out| Request::has(out, 4, &[other, one]));
        assert_eq!(has, ["has 4 [false, true]"]);
        assert_eq!(said(&mut session, |out| Request::ping(out, 5)), ["Pong { id: 5 }"]);
        assert_eq!(said(&mut session, |out| Request::stat(out, 6)), ["stat 6 # EOF"]);
    }

    #[test]
    fn a_store_that_fails_is_told_and_nothing_half_of_it_is_sent() {
        let shared = shared(Arc::new(Failing));
        let mut session = greeted(&shared);
        let (hash, bytes) = block(1, 4096);
        let failed = said(&mut session, |out| Request::put(out, 1, &hash, &bytes));
        assert_eq!(failed, ["Failed { id: 1, why: Store }"]);
        said(&mut session, |out| Request::get(out, 2, Priority::Waiting, &[hash]));
        assert_eq!(served(&mut session), ["Failed { id: 2, why: Store }"]);
        assert_eq!(shared.counters.store_failures.load(Ordering::Relaxed), 2);
    }
}
