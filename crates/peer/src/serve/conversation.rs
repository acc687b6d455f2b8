//! What the fuzzer and the tests hold with a server's session: one conversation, of bytes that nobody has looked at before.

use std::{collections::HashSet, sync::Arc};

use super::{
    Limits,
    counters::Counters,
    session::{Caller, Session, Shared},
};
use crate::{
    id::{Hash, TrustDomain},
    store::{BlockStore, Memory},
    tls::Role,
    wire::{Answer, Greeting, Request, answer, request},
};

/// What the server has before.
pub(crate) const BLOCKS: [&[u8]; 2] = [b"one block", &[2; 4096]];
/// Its memory.
pub(crate) const STORE_BYTES: u64 = 1 << 20;
/// Blocks that may be asked for at a time.
const IN_FLIGHT: u32 = 16;

/// The domain of that server.
pub(crate) fn domain() -> TrustDomain {
    TrustDomain::from_key([7; 32])
}

/// Says all of it to a server. The first byte tells who says it (bits 0 and 1), whether the right greeting comes before the rest (bit
/// 2, since nobody guesses the name of a domain), and whether blocks are served as they are asked for (bit 3) or at the end.
///
/// Panics where a promise is broken: that each request is answered just as often as it has to be, in frames that a client
/// understands; that a block is one that was asked for; that no more of them wait than may; that nothing is answered before the
/// greeting.
pub(crate) fn hold(input: &[u8]) {
    let Some((&way, said)) = input.split_first() else { return };
    let domain = domain();
    let store = Arc::new(Memory::new(STORE_BYTES));
    for block in BLOCKS {
        assert!(store.put(&domain.hash(block), block).is_ok());
    }
    let limits = Limits { in_flight: IN_FLIGHT, ..Limits::default() };
    let shared = Shared { store, verdicts: None, domain, limits, counters: Counters::default() };
    let role = [Some(Role::Client), Some(Role::Scanner), Some(Role::Server), None][usize::from(way & 3)];
    let mut conversation = Conversation { session: Session::new(&shared), owed: 0, asked: HashSet::new(), role };
    let mut greeting = Vec::new();
    if way & 4 == 0 {
        Greeting { lowest: 1, highest: 1, domain: shared.domain.name() }.encode(&mut greeting);
    }
    let serves_at_once = way & 8 == 0;
    if conversation.say(&greeting, serves_at_once, &shared.domain) {
        conversation.say(said, serves_at_once, &shared.domain);
    }
    conversation.end(&shared.domain);
}

struct Conversation<'a> {
    session: Session<'a>,
    /// Answers that are still to come.
    owed: usize,
    asked: HashSet<Hash>,
    role: Option<Role>,
}

impl Conversation<'_> {
    /// Whether the server goes on listening.
    fn say(&mut self, mut said: &[u8], serves_at_once: bool, domain: &TrustDomain) -> bool {
        let mut out = Vec::new();
        loop {
            let (answers, asked) = match request(said) {
                Ok(Some((request, _))) => what_follows(&request),
                _ => (0, Vec::new()),
            };
            let caller = self.role.map(|role| Caller { role, certificate: None });
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
            self.hear(&out, domain);
            out.clear();
            match taken {
                Ok(Some(_)) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn hear(&mut self, mut out: &[u8], domain: &TrustDomain) {
        while !out.is_empty() {
            let (answer, used) = answer(out).expect("a client understands it").expect("it is whole");
            if let Answer::Block { bytes, .. } = answer {
                assert!(self.asked.contains(&domain.hash(bytes)), "a block that nobody has asked for");
            }
            self.owed = self.owed.checked_sub(1).expect("an answer to no request");
            out = &out[used..];
        }
    }

    /// Also who is let go is told all that was asked for before.
    fn end(mut self, domain: &TrustDomain) {
        let mut out = Vec::new();
        while self.session.serve_one(&mut out) {}
        self.hear(&out, domain);
        assert_eq!(self.owed, 0, "requests without an answer");
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
