//! What is taken from a store: at the start, and again when it has failed.

use std::{
    hash::{BuildHasher, RandomState},
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::{
    Summaries, SummaryError,
    aliens::Aliens,
    looks::Looks,
    remembered::Remembered,
    synced::{CaughtUpTo, written_generation},
    unsettled::Unsettled,
};
use crate::{
    custom::declare::Declared,
    identity::NodeId,
    ledger::Ledger,
    moment::Moment,
    nodes::Slot,
    order::{Map, Set},
    reading::{Directories, EntryName},
    store::{Facts, SetAside, Store, StoreError},
    tracker::Tracker,
};

/// So long after a store was opened again it isn't tried once more, and twice as long each time after that.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// Which file system, and where its store is.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) root: NodeId,
    pub(super) identity: Vec<u8>,
    pub(super) path: PathBuf,
}

/// A store that has failed, and when it may be opened again.
#[derive(Debug, Default)]
pub(super) struct Reopening {
    pause: Duration,
    not_before: Option<Instant>,
    /// It isn't open.
    is_closed: bool,
}

/// What a store says of a file system.
pub(super) struct Opened {
    pub(super) ledger: Ledger,
    pub(super) root: Slot,
    /// It is about this file system.
    pub(super) is_known: bool,
    pub(super) facts: Facts,
    pub(super) are_declared_anew: bool,
    pub(super) caught_up_to: CaughtUpTo,
    pub(super) remembered: Remembered,
}

impl Opened {
    /// What a store says; of an empty one, where it is damaged, with what became of that.
    pub(super) fn or_anew(
        store: Store,
        directories: &impl Directories,
        place: &Place,
    ) -> Result<(Opened, Option<SetAside>), SummaryError> {
        match Opened::of(store, directories, place) {
            Err(SummaryError::Store(error)) => {
                let (store, aside) = Store::begin_anew(&place.path, error)?;
                Ok((Opened::of(store, directories, place)?, Some(aside)))
            }
            opened => Ok((opened?, None)),
        }
    }

    fn of(store: Store, directories: &impl Directories, place: &Place) -> Result<Opened, SummaryError> {
        let (root, identity) = (place.root, &place.identity[..]);
        let facts = store.facts()?;
        let mut ledger = Ledger::open(store)?;
        let known = ledger.nodes.find(root).filter(|_| facts.file_system == identity);
        let facts = match known {
            Some(_) => facts,
            None => Facts {
                count: facts.count,
                file_system: identity.to_owned(),
                key: RandomState::new().hash_one(identity),
                generation: 0,
                moment: Moment::now(),
                declared: 0,
                is_partial: false,
                tidied: 0,
                synced: 0,
            },
        };
        // Before anything is forgotten, which they have to hear of, too.
        let declared = directories.declared().filter(|declared| !declared.all().is_empty());
        let hash = declared.as_ref().map_or(0, |declared| declared.hash());
        let are_others = facts.declared != hash;
        ledger.keep(declared, are_others)?;
        let facts = Facts { declared: if are_others { 0 } else { facts.declared }, ..facts };
        if known.is_none() {
            let tops: Vec<Slot> = ledger.nodes.all().filter(|&slot| ledger.nodes.parent(slot).is_none()).collect();
            for top in tops {
                ledger.forget(top)?;
            }
        }
        let slot = match known {
            Some(slot) => slot,
            None => ledger.add(None, root, EntryName::new()).ok_or(SummaryError::Unknown)?,
        };
        let strays: Vec<Slot> =
            ledger.nodes.all().filter(|&at| at != slot && ledger.nodes.parent(at).is_none()).collect();
        for stray in strays {
            ledger.forget(stray)?;
        }
        directories.set_key(facts.key);
        // One that is known is caught up with first.
        let generation = if known.is_some() { 0 } else { written_generation(directories) };
        let with_history = ledger.store().with_history()?;
        let remembered = Remembered::of(with_history.into_iter().filter(|(slot, _)| ledger.nodes.is_used(*slot)));
        Ok(Opened {
            ledger,
            root: slot,
            is_known: known.is_some(),
            facts,
            are_declared_anew: are_others && hash != 0,
            caught_up_to: CaughtUpTo { generation, synced: 0 },
            remembered,
        })
    }
}

impl Opened {
    /// What is stored was all there was at some time: not what a first harvest left that didn't come to its end.
    pub(super) fn was_whole(&self) -> bool {
        self.is_known && self.facts.tidied != 0
    }

    /// What is stored by the declared summaries isn't of all directories.
    pub(super) fn is_declared_in_part(&self) -> bool {
        self.facts.declared != self.ledger.declared().map_or(0, Declared::hash)
    }
}

impl<D: Directories, T: Tracker> Summaries<D, T> {
    /// The store has failed: nothing can be answered before it is opened again, which the next exact question does.
    pub fn is_broken(&self) -> bool {
        self.reopening.is_closed || self.ledger.store().is_broken()
    }

    /// A damaged store that was set aside since this was asked last.
    pub fn take_set_aside(&self) -> Option<SetAside> {
        self.set_aside.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Begins again with what a store holds that has failed, as after a kill: no more can be known of it. A full disk may have
    /// room again; while it hasn't, who asks is told so, and the store is left alone for longer and longer.
    pub(super) fn reopen_if_broken(&mut self) -> Result<(), SummaryError> {
        if !self.is_broken() {
            return Ok(());
        }
        let (now, Reopening { pause, not_before, .. }) = (Instant::now(), &self.reopening);
        if not_before.is_some_and(|not_before| now < not_before) {
            return Err(StoreError::Waiting { path: self.place.path.clone() }.into());
        }
        let pause = (*pause * 2).clamp(PAUSE, PAUSE_MAX);
        self.reopening = Reopening { pause, not_before: Some(now + pause), is_closed: true };
        // Only one can have it open, so the old one goes first.
        self.ledger = Ledger::open(Store::in_memory()?)?;
        (self.nowhere, self.unheard) = (Vec::new(), Vec::new());
        (self.large, self.doubted, self.due_aside) = (Set::default(), Set::default(), None);
        self.searches += 1;
        self.remembered = Remembered::default();
        (self.open, self.aliens, self.relinked) = (Set::default(), Aliens::default(), Map::default());
        self.vanished = Map::default();
        (self.unreadable, self.unsettled) = (Map::default(), Unsettled::default());
        // What is ignored was known to be dirty, and isn't now.
        self.tracker.start_anew();
        let (store, aside) = Store::open_or_begin_anew(&self.place.path)?;
        let (opened, also) = Opened::or_anew(store, &self.directories, &self.place)?;
        if let Some(aside) = aside.or(also) {
            self.set_aside = Mutex::new(Some(aside));
        }
        self.is_declared_in_part = opened.is_declared_in_part();
        let was_whole = opened.was_whole();
        self.set_counted(was_whole);
        (self.ledger, self.root, self.remembered) = (opened.ledger, opened.root, opened.remembered);
        (self.facts, self.count) = (opened.facts.clone(), self.count.max(opened.facts.count) + 1);
        (self.is_behind, self.are_declared_anew) = (false, opened.are_declared_anew);
        // It isn't by now, but what was found for that at the start may not have been read yet.
        self.may_be_set_back = opened.is_known;
        if opened.is_known {
            self.fall_behind();
            // Which directories may have been closed isn't stored.
            self.heard = 0;
            self.doubt_ways_to_what_was_read();
        }
        // Of one that was begun anew all is due at once: until it is read, only who waits for that is told anything.
        (self.caught_up_to, self.is_tending) = (Some(opened.caught_up_to), !was_whole);
        (self.tended_aside, self.to_tend, self.tended_looks) = (Set::default(), Vec::new(), Looks::default());
        self.open_all()?;
        self.watch_lost_names()?;
        self.reopening.is_closed = false;
        Ok(())
    }
}
