//! What the fuzzer and the tests hold with a server's session: one conversation, of bytes that nobody has looked at before.

use std::{
    collections::HashSet,
    sync::{Arc, OnceLock},
};

use rustls::pki_types::CertificateDer;

use super::{
    Limits,
    counters::Counters,
    session::{Caller, Session, Shared},
};
use crate::{
    id::{Hash, TrustDomain},
    keys,
    scan::{EngineId, Signer, Statement, Verdict, Verdicts},
    store::{BlockStore, Memory},
    tls::{Identity, Role},
    wire::{Answer, EngineName, Found, Greeting, Refusal, Request, Told, VERDICTS_OF_ONE_MAX, answer, request},
};

/// What the server has before.
pub(crate) const BLOCKS: [&[u8]; 2] = [b"one block", &[2; 4096]];
/// Its memory.
pub(crate) const STORE_BYTES: u64 = 1 << 20;
/// Blocks that may be asked for at a time.
const IN_FLIGHT: u32 = 16;
/// Verdicts that it keeps. Few, so that there may be too many.
const VERDICTS: u64 = 8;

/// Ways to hold a conversation, as bits of its first byte. The lowest two tell who speaks.
pub(crate) mod way {
    /// He who speaks is a scanner.
    #[cfg(test)]
    pub(crate) const SCANNER: u8 = 1;
    /// The right greeting isn't said before the rest. Nobody guesses the name of a domain.
    pub(crate) const NOT_GREETED: u8 = 4;
    /// Blocks are served at the end, not as they are asked for.
    pub(crate) const SERVED_LATE: u8 = 8;
    /// The server keeps verdicts.
    pub(crate) const KEEPS: u8 = 16;
    /// He who speaks shows a certificate.
    pub(crate) const CERTIFIED: u8 = 32;
    /// What is told of contents is signed by the scanner whose certificate that is. Nobody guesses a signature.
    pub(crate) const SIGNED: u8 = 64;
}

/// What came of a conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Came {
    /// Verdicts that the server took.
    pub(crate) taken: usize,
    /// Verdicts that it told.
    pub(crate) known: usize,
}

/// The domain of that server.
pub(crate) fn domain() -> TrustDomain {
    TrustDomain::from_key([7; 32])
}

/// The scanner, with what he signs by. Another one in each process: what is said to the server depends on it, what the server does with it
/// doesn't.
fn scanner() -> &'static (Identity, Signer) {
    static SCANNER: OnceLock<(Identity, Signer)> = OnceLock::new();
    SCANNER.get_or_init(|| {
        let identity = keys::identity(Role::Scanner);
        let signer = Signer::new(&identity, &domain()).expect("a key of ours").expect("a scanner");
        (identity, signer)
    })
}

/// Says all of it to a server. The first byte tells in which [`way`].
///
/// Panics where a promise is broken: that each request is answered just as often as it has to be, in frames that a client
/// understands; that a block is one that was asked for; that no more of them wait than may; that verdicts are taken of a scanner alone who
/// has signed all of them, and that no other ones are told; that nothing is answered before the greeting.
pub(crate) fn hold(input: &[u8]) -> Came {
    let Some((&how, said)) = input.split_first() else { return Came::default() };
    let domain = domain();
    let store = Arc::new(Memory::new(STORE_BYTES));
    for block in BLOCKS {
        assert!(store.put(&domain.hash(block), block).is_ok());
    }
    let limits = Limits { in_flight: IN_FLIGHT, ..Limits::default() };
    let is = |bit| how & bit != 0;
    let keeps = || Arc::new(Verdicts::in_memory(&domain, VERDICTS).expect("it needs no disk"));
    let verdicts = is(way::KEEPS).then(keeps);
    let shared = Shared { store, verdicts, domain: domain.clone(), limits, counters: Counters::default() };
    let role = [Some(Role::Client), Some(Role::Scanner), Some(Role::Server), None][usize::from(how & 3)];
    let certificate = || scanner().0.certificate().clone();
    let caller = role.map(|role| Caller { role, certificate: is(way::CERTIFIED).then(certificate) });
    let mut conversation = Conversation {
        session: Session::new(&shared),
        domain: &domain,
        owed: 0,
        asked: HashSet::new(),
        caller,
        counts: Vec::new(),
        came: Came::default(),
    };
    let mut greeting = Vec::new();
    if !is(way::NOT_GREETED) {
        Greeting { lowest: 1, highest: 1, domain: domain.name() }.encode(&mut greeting);
    }
    let said = if is(way::SIGNED) { &signed(said) } else { said };
    let serves_at_once = !is(way::SERVED_LATE);
    if conversation.say(&greeting, serves_at_once) {
        conversation.say(said, serves_at_once);
    }
    conversation.end()
}

/// The same, where the scanner has signed what is told.
fn signed(mut said: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(said.len());
    while let Ok(Some((request, used))) = request(said) {
        match request {
            Request::Tell { id, engine, told } => {
                let by = engine_of(engine);
                let sign = |(hash, statement): (Hash, Statement)| {
                    scanner().1.sign(&by, hash, statement.verdict, statement.time).expect("it signs all")
                };
                let statements: Vec<Statement> = statements(told).map(sign).collect();
                let records: Vec<_> =
                    statements.iter().map(|statement| (statement.hash, statement.on_wire())).collect();
                Request::tell(&mut out, id, engine, &records);
            }
            _ => out.extend(&said[..used]),
        }
        said = &said[used..];
    }
    out.extend(said);
    out
}

fn engine_of(engine: EngineName<'_>) -> EngineId {
    EngineId::new(engine.name, engine.epoch).expect("what is no name was refused before")
}

fn statements<'a>(told: Told<'a>) -> impl Iterator<Item = (Hash, Statement)> + use<'a> {
    told.iter().map(|(hash, record)| {
        let hash = Hash::from_bytes(hash);
        (hash, Statement::of_wire(hash, &record))
    })
}

/// What the next answer is held against.
enum Due {
    /// Verdicts of an engine, of these contents.
    Verdicts(EngineId, Vec<Hash>),
    /// Whether statements were taken, that count or do not.
    Told(EngineId, Vec<Statement>, bool),
    Any,
}

struct Conversation<'a> {
    session: Session<'a>,
    domain: &'a TrustDomain,
    /// Answers that are still to come.
    owed: usize,
    asked: HashSet<Hash>,
    caller: Option<Caller>,
    /// What the server was told, and took.
    counts: Vec<(EngineId, Statement)>,
    came: Came,
}

impl Conversation<'_> {
    /// Whether the server goes on listening.
    fn say(&mut self, mut said: &[u8], serves_at_once: bool) -> bool {
        let mut out = Vec::new();
        loop {
            let (answers, asked, due) = match request(said) {
                Ok(Some((request, _))) => {
                    let (answers, asked) = what_follows(&request);
                    (answers, asked, self.due(&request))
                }
                _ => (0, Vec::new(), Due::Any),
            };
            let caller = self.caller.clone();
            let taken = self.session.take(said, || caller, &mut out);
            match &taken {
                Ok(Some(used)) => {
                    self.owed += answers;
                    self.asked.extend(asked);
                    said = &said[*used..];
                }
                Ok(None) | Err(_) => assert!(out.is_empty(), "an answer to no request"),
            }
            assert!(self.session.was_greeted() || out.is_empty(), "an answer before the greeting");
            assert!(self.session.queued() <= IN_FLIGHT as usize, "{} wait", self.session.queued());
            if serves_at_once {
                self.session.serve_one(&mut out);
            }
            self.hear(&out, due);
            out.clear();
            match taken {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn due(&self, request: &Request<'_>) -> Due {
        match *request {
            Request::Verdicts { engine, hashes, .. } => Due::Verdicts(engine_of(engine), hashes.iter().collect()),
            Request::Tell { engine, told, .. } => {
                let engine = engine_of(engine);
                let statements: Vec<Statement> = statements(told).map(|(_, statement)| statement).collect();
                let scanner = self.caller.as_ref().filter(|caller| caller.role == Role::Scanner);
                let is_signed = |certificate: &CertificateDer<'_>| {
                    let domain = self.domain.name();
                    statements.iter().all(|statement| statement.is_signed_by(certificate, domain, &engine))
                };
                let counts = scanner.and_then(|scanner| scanner.certificate.as_ref()).is_some_and(is_signed);
                Due::Told(engine, statements, counts)
            }
            _ => Due::Any,
        }
    }

    /// Verdicts are answered before any block is served, so what is due comes first.
    fn hear(&mut self, mut out: &[u8], mut due: Due) {
        while !out.is_empty() {
            let (answer, used) = answer(out).expect("a client understands it").expect("it is whole");
            if let Answer::Block { bytes, .. } = answer {
                assert!(self.asked.contains(&self.domain.hash(bytes)), "a block that nobody has asked for");
            }
            self.owed = self.owed.checked_sub(1).expect("an answer to no request");
            match (std::mem::replace(&mut due, Due::Any), answer) {
                (Due::Verdicts(engine, hashes), Answer::Verdicts { found, .. }) => self.known(&engine, &hashes, found),
                (Due::Told(engine, statements, counts), Answer::Told { new, .. }) => {
                    assert!(counts, "taken of somebody who has signed none of it: {statements:?}");
                    assert!(usize::from(new) <= statements.len(), "{new} are new of {}", statements.len());
                    self.came.taken += usize::from(new);
                    self.counts.extend(statements.into_iter().map(|statement| (engine.clone(), statement)));
                }
                (Due::Told(_, statements, counts), Answer::Failed { why, .. }) => {
                    let is_right = if counts { why == Refusal::Store } else { why != Refusal::Store };
                    assert!(is_right, "{why:?}: {statements:?}");
                }
                (Due::Verdicts(..) | Due::Told(..), answer) => panic!("{answer:?} is no answer to that"),
                (Due::Any, _) => {}
            }
            out = &out[used..];
        }
    }

    fn known(&mut self, engine: &EngineId, hashes: &[Hash], found: Found<'_>) {
        let mut before: Option<(usize, Verdict)> = None;
        let mut of_one = 0;
        for (place, record) in found.iter() {
            let place = usize::from(u16::from_le_bytes(place));
            let statement = Statement::of_wire(hashes[place], &record);
            let was_told = self.counts.iter().any(|(by, told)| by == engine && *told == statement);
            assert!(was_told, "nobody has said {statement:?}");
            let is_same = before.as_ref().is_some_and(|(last, _)| *last == place);
            of_one = if is_same { of_one + 1 } else { 1 };
            assert!(of_one <= VERDICTS_OF_ONE_MAX, "{of_one} verdicts of one content");
            if let Some((_, last)) = before.filter(|_| is_same) {
                assert!(last.is_infected() || !statement.verdict.is_infected(), "what is bad comes behind");
            }
            before = Some((place, statement.verdict));
            self.came.known += 1;
        }
    }

    /// Also who is let go is told all that was asked for before.
    fn end(mut self) -> Came {
        let mut out = Vec::new();
        while self.session.serve_one(&mut out) {}
        self.hear(&out, Due::Any);
        assert_eq!(self.owed, 0, "requests without an answer");
        self.came
    }
}

/// How many answers a request has, and which blocks may come.
fn what_follows(request: &Request<'_>) -> (usize, Vec<Hash>) {
    match request {
        Request::Get { hashes, .. } => (hashes.len(), hashes.iter().collect()),
        Request::Cancel { .. } => (0, Vec::new()),
        _ => (1, Vec::new()),
    }
}
