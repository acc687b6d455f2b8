//! What is known of a content, from wherever: this run, the own store, servers.
//!
//! ```text
//!   hash ──► own store ──┐
//!        └─► servers ────┴─► whose word counts? ──► infected beats clean ──► verdict, or none: scan
//!   scan ──► pending ──► is the epoch still the one? ──► own store, and signed to servers
//! ```
//! What was found is kept in batches: before one is, the engine is asked for its epoch again. Were its signatures replaced
//! meanwhile, nobody could say by which of them a content of this batch was found clean, so nothing of it is kept.

use std::{
    collections::HashMap,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use super::{
    engine::{EngineId, Verdict},
    statement::{Signer, SignerId, Statement, Trust},
    store::Verdicts,
};
use crate::{
    client::Peers,
    id::{DomainName, Hash, TrustDomain},
};

/// What was found since it was last kept, at most; then it should be kept.
const BATCH: usize = 256;

/// Who knew a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// The engine, just now.
    Scan,
    /// This machine, from before.
    Kept,
    /// A server, by the word of a machine that counts.
    Peer,
}

impl Source {
    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Scan => "scan",
            Self::Kept => "kept",
            Self::Peer => "peer",
        }
    }
}

/// A verdict, and who knew it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// What of the content.
    pub verdict: Verdict,
    /// Who knew.
    pub source: Source,
}

/// What became of a batch.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Flushed {
    /// Verdicts that are kept here.
    pub kept: u64,
    /// Verdicts that servers have now and had not.
    pub told: u64,
    /// Verdicts that are not kept since the engine has other signatures now.
    pub dropped: u64,
    /// What failed, as messages. Nothing of it makes a verdict wrong.
    pub failures: Vec<String>,
}

impl Flushed {
    fn add(&mut self, other: Flushed) {
        self.kept += other.kept;
        self.told += other.told;
        self.dropped += other.dropped;
        self.failures.extend(other.failures);
    }
}

/// Whose word is asked and counts.
#[derive(Debug)]
pub struct Sources {
    /// What this machine has kept.
    pub store: Option<Verdicts>,
    /// Servers.
    pub peers: Option<Peers>,
    /// Whose statements count.
    pub trust: Trust,
    /// Signs what is found here; without it, servers are told nothing.
    pub signer: Option<Signer>,
    /// The names of contents.
    pub domain: TrustDomain,
}

/// Knows verdicts of one engine.
#[derive(Debug)]
pub struct Judge {
    sources: Sources,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    engine: EngineId,
    /// Found here, and not kept yet.
    found: HashMap<Hash, Verdict>,
    /// Said by others who count, and not kept yet.
    said: HashMap<(Hash, SignerId), Statement>,
    failures: Vec<String>,
}

impl Judge {
    /// For an engine as it is now.
    #[must_use]
    pub fn new(sources: Sources, engine: EngineId) -> Self {
        let state = State { engine, found: HashMap::new(), said: HashMap::new(), failures: Vec::new() };
        Self { sources, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine whose verdicts count now.
    #[must_use]
    pub fn engine(&self) -> EngineId {
        self.state().engine.clone()
    }

    /// Whose contents these are.
    #[must_use]
    pub fn domain(&self) -> &TrustDomain {
        &self.sources.domain
    }

    /// What this machine knows of a content by itself.
    #[must_use]
    pub fn known_here(&self, hash: &Hash) -> Option<Known> {
        self.known_of(std::slice::from_ref(hash), false).pop().flatten()
    }

    /// What is known of each of these contents. Servers are asked, too; one that doesn't answer knows nothing.
    #[must_use]
    pub fn known(&self, hashes: &[Hash]) -> Vec<Option<Known>> {
        self.known_of(hashes, true)
    }

    /// What is known of one content: where nothing is by this name, by its other ones, which are made for that.
    #[must_use]
    pub fn known_by_any(&self, hash: &Hash, others: impl FnOnce() -> Vec<Hash>) -> Option<Known> {
        let known = |hashes: &[Hash]| worst(self.known(hashes).into_iter().flatten());
        known(std::slice::from_ref(hash)).or_else(|| known(&others()))
    }

    fn known_of(&self, hashes: &[Hash], asks_peers: bool) -> Vec<Option<Known>> {
        let Sources { store, peers, trust, domain, .. } = &self.sources;
        let domain = domain.name();
        let engine = self.engine();
        let none = || vec![Vec::new(); hashes.len()];
        let kept =
            store.as_ref().map_or_else(|| Ok(none()), |store| store.get(&engine, hashes)).unwrap_or_else(|error| {
                self.fail(format!("cannot look verdicts up: {error}"));
                none()
            });
        let said = match peers.as_ref().filter(|peers| asks_peers && peers.is_usable()) {
            Some(peers) => peers.verdicts_and_wait(&engine, hashes).unwrap_or_else(|error| {
                self.fail(format!("cannot ask for verdicts: {error}"));
                none()
            }),
            None => none(),
        };
        let mut state = self.state();
        let mut all = Vec::with_capacity(hashes.len());
        for ((hash, kept), said) in hashes.iter().zip(kept).zip(said) {
            let said: Vec<Statement> = said.into_iter().filter(|said| trust.counts(said, domain, &engine)).collect();
            let own = state.found.get(hash).map(|verdict| Known { verdict: verdict.clone(), source: Source::Scan });
            let kept = kept.into_iter().filter(|kept| counts_here(kept, trust, domain, &engine));
            let kept = kept.map(|kept| Known { verdict: kept.verdict, source: Source::Kept });
            let heard = said.iter().map(|said| Known { verdict: said.verdict.clone(), source: Source::Peer });
            all.push(worst(own.into_iter().chain(kept).chain(heard)));
            if state.engine == engine {
                state.said.extend(said.into_iter().map(|said| ((said.hash, said.signer), said)));
            }
        }
        all
    }

    fn fail(&self, what: String) {
        let mut state = self.state();
        if !state.failures.contains(&what) {
            state.failures.push(what);
        }
    }

    /// Takes what the engine has found that was asked while it was `engine`; true when it is time to [`Judge::flush`]. Where it
    /// counts as another now, nobody could say by which signatures it was found, so it is not taken.
    pub fn found(&self, engine: &EngineId, hash: Hash, verdict: Verdict) -> bool {
        let mut state = self.state();
        if state.engine != *engine {
            return false;
        }
        let before = state.found.entry(hash).or_insert_with(|| verdict.clone());
        if verdict.is_infected() {
            *before = verdict;
        }
        state.found.len() >= BATCH
    }

    /// Keeps what was found, if the engine still is what it was. From now on it counts as what it is now.
    pub fn flush(&self, engine_now: EngineId) -> Flushed {
        let mut state = self.state();
        let mut flushed = Flushed { failures: mem::take(&mut state.failures), ..Flushed::default() };
        let (found, said) = (mem::take(&mut state.found), mem::take(&mut state.said));
        let before = mem::replace(&mut state.engine, engine_now.clone());
        drop(state);
        if before == engine_now {
            flushed.add(self.keep(&before, found, said));
        } else {
            flushed.dropped = found.len() as u64;
            flushed.add(self.keep(&before, HashMap::new(), said));
        }
        flushed
    }

    fn keep(
        &self,
        engine: &EngineId,
        found: HashMap<Hash, Verdict>,
        said: HashMap<(Hash, SignerId), Statement>,
    ) -> Flushed {
        let Sources { store, peers, signer, .. } = &self.sources;
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let mut flushed = Flushed::default();
        let signed: Vec<Statement> = match signer {
            Some(signer) => {
                found.iter().filter_map(|(hash, verdict)| signer.sign(engine, *hash, verdict.clone(), time)).collect()
            }
            None => Vec::new(),
        };
        if let Some(store) = store {
            let own = found.into_iter().map(|(hash, verdict)| Statement::unsigned(hash, verdict, time));
            let all: Vec<Statement> = own.chain(said.into_values()).collect();
            match store.keep(engine, &all) {
                Ok(kept) => flushed.kept = kept,
                Err(error) => flushed.failures.push(format!("cannot keep verdicts: {error}")),
            }
        }
        if let Some(peers) = peers.as_ref().filter(|_| !signed.is_empty()) {
            match peers.tell_and_wait(engine, &signed) {
                Ok(told) => flushed.told = told,
                Err(error) => flushed.failures.push(format!("cannot tell verdicts: {error}")),
            }
        }
        flushed
    }
}

/// What is in the own store was found here, or is signed: who signed may not count any more.
fn counts_here(kept: &Statement, trust: &Trust, domain: DomainName, engine: &EngineId) -> bool {
    kept.signer == SignerId::NOBODY || trust.counts(kept, domain, engine)
}

/// The verdict of all that count: infected beats clean; else who comes first.
fn worst(all: impl Iterator<Item = Known>) -> Option<Known> {
    all.reduce(|one, other| if other.verdict.is_infected() && !one.verdict.is_infected() { other } else { one })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        scan::statement::tests::{authority, domain, engine, identity},
        tls::Role,
    };

    fn known(verdict: Verdict, source: Source) -> Known {
        Known { verdict, source }
    }

    fn judge(store: Verdicts, trust: Trust) -> Judge {
        let sources = Sources { store: Some(store), peers: None, trust, signer: None, domain: domain() };
        Judge::new(sources, engine())
    }

    fn store() -> Verdicts {
        Verdicts::in_memory(&domain(), 100).unwrap()
    }

    #[test]
    fn infected_beats_clean_whoever_says_so() {
        let (clean, bad) = (known(Verdict::Clean, Source::Scan), known(Verdict::infected("x"), Source::Peer));
        for order in [[clean.clone(), bad.clone()], [bad.clone(), clean.clone()]] {
            assert_eq!(worst(order.into_iter()), Some(bad.clone()));
        }
        assert_eq!(worst([clean.clone(), known(Verdict::Clean, Source::Peer)].into_iter()), Some(clean));
        assert_eq!(worst(std::iter::empty()), None);
    }

    #[test]
    fn a_content_is_known_by_any_of_its_names() {
        let judge = judge(store(), Trust::nobody());
        let [own, clean, bad, none] = [1_u8, 2, 3, 4].map(|n| domain().hash(&[n]));
        judge.found(&engine(), clean, Verdict::Clean);
        judge.found(&engine(), bad, Verdict::infected("Bad"));
        assert_eq!(judge.known_by_any(&own, || vec![none]), None);
        assert_eq!(judge.known_by_any(&own, || vec![none, clean]), Some(known(Verdict::Clean, Source::Scan)));
        let expected = known(Verdict::infected("Bad"), Source::Scan);
        assert_eq!(judge.known_by_any(&own, || vec![clean, bad]), Some(expected));
        let known_by_own = judge.known_by_any(&clean, || panic!("there is no need of others"));
        assert_eq!(known_by_own, Some(known(Verdict::Clean, Source::Scan)));
    }

    #[test]
    fn what_was_found_is_kept_under_its_epoch() {
        let judge = judge(store(), Trust::nobody());
        let hash = domain().hash(b"content");
        assert_eq!(judge.known_here(&hash), None);
        judge.found(&engine(), hash, Verdict::infected("Bad"));
        judge.found(&engine(), hash, Verdict::Clean);
        assert_eq!(judge.known_here(&hash), Some(known(Verdict::infected("Bad"), Source::Scan)));
        assert_eq!(judge.flush(engine()), Flushed { kept: 1, ..Flushed::default() });
        assert_eq!(judge.known_here(&hash), Some(known(Verdict::infected("Bad"), Source::Kept)));
        // Other signatures: nothing is known by them.
        let other = EngineId::new("clamd", "ClamAV 1.4.3/27701/Tue").unwrap();
        judge.flush(other.clone());
        assert_eq!((judge.known_here(&hash), judge.engine()), (None, other));
    }

    #[test]
    fn what_was_found_while_signatures_were_replaced_is_not_kept() {
        let judge = judge(store(), Trust::nobody());
        let hash = domain().hash(b"content");
        let other = EngineId::new("clamd", "ClamAV 1.4.3/27701/Tue").unwrap();
        judge.found(&engine(), hash, Verdict::Clean);
        assert_eq!(judge.flush(other), Flushed { dropped: 1, ..Flushed::default() });
        assert_eq!(judge.known_here(&hash), None);
        // Asked before it was known that they were replaced, answered after.
        judge.found(&engine(), hash, Verdict::Clean);
        assert_eq!(judge.known_here(&hash), None);
        judge.flush(engine());
        assert_eq!(judge.known_here(&hash), None);
    }

    #[test]
    fn what_is_kept_of_others_counts_as_long_as_they_do() {
        let dir = authority(&[("one", Role::Scanner)]);
        let one = identity(&dir, "one");
        let hash = domain().hash(b"content");
        let signer = Signer::new(&one, &domain()).unwrap().unwrap();
        let signed = signer.sign(&engine(), hash, Verdict::Clean, 1).unwrap();
        let forged = Statement { verdict: Verdict::Clean, hash: domain().hash(b"other"), ..signed.clone() };
        for (is_trusted, expected) in [(true, Some(known(Verdict::Clean, Source::Kept))), (false, None)] {
            let store = store();
            store.keep(&engine(), &[signed.clone(), forged.clone()]).unwrap();
            let mut trust = Trust::nobody();
            if is_trusted {
                trust.add_own(&one);
            }
            let judge = judge(store, trust);
            assert_eq!(judge.known_here(&hash), expected);
            assert_eq!(judge.known_here(&forged.hash), None);
        }
    }
}
