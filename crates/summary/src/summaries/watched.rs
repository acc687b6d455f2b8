//! Inodes that change where nothing is told: those that have names in directories that aren't clean, and those that are written
//! through names that they don't have any more, or never had.

use std::io;

use onesweep_sys::fanotify::Happened;

use super::{
    Seen, Summaries, SummaryError,
    aliens::Alien,
    looks::{At, Looks, OpenLeft},
};
use crate::{
    identity::NodeId,
    ledger::Places,
    links::{LinkKey, Linked},
    nodes::Slot,
    order::Set,
    reading::{Directories, LinkedName, is_gone},
    tracker::{Change, Tracker},
};

/// So many inodes are looked at in one go: some milliseconds.
const LOOKS: usize = 256;
/// Of more it isn't looked up where they are.
const WATCHED_MAX: usize = 1024;

/// One that got a name or lost one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Relinked {
    id: NodeId,
    /// How many directories had been read by then.
    readings: u64,
    /// Those that name it aren't marked: most show nothing of how many names it has, and it is looked at first.
    is_to_look_at: bool,
}

impl<D: Directories, T: Tracker> Summaries<D, T> {
    pub(super) fn apply_to_object(&mut self, slot: Slot, object: NodeId, change: &Change) -> Result<(), SummaryError> {
        let key = LinkKey { subvolume: object.subvolume, ino: object.ino };
        let places = self.ledger.places(key)?;
        let is_named = places.named.contains(&slot);
        // A clean directory's names are all known.
        let is_alien = !is_named && (places.all().next().is_some() || !self.ledger.nodes.is_dirty(slot));
        if !is_alien || change.happened.intersects(Happened::CREATE | Happened::MOVED_TO) {
            return self.mark(slot);
        }
        self.meanwhile.note(key);
        let heeded = self.ledger.nodes.id(slot);
        let is_heeded_now = self.aliens.add_through(key, object, heeded);
        self.mark_watched(key)?;
        if is_heeded_now {
            self.tracker.keep_heeding(heeded, true);
            // What happened there since was not told: it was ignored from this change on until now.
            self.mark(slot)?;
        }
        places.all().try_for_each(|place| self.mark(place))
    }

    /// An inode has got a name or lost one, or is another one otherwise.
    pub(super) fn apply_to_inode(&mut self, key: LinkKey, id: NodeId, happened: Happened) -> Result<(), SummaryError> {
        let places = self.ledger.places(key)?;
        // Where one named it before it had several, nobody knows whether it does, or shows it as it is.
        let is_to_look_at =
            happened == Happened::ATTRIB && places.before.is_none() && places.generation == Some(id.generation);
        if !is_to_look_at {
            places.all().try_for_each(|place| self.mark(place))?;
        }
        self.note_relinked(key, Relinked { id, readings: self.readings, is_to_look_at }, &places);
        Ok(())
    }

    /// A name of it may be where nothing is told, and all places that are known learn of that.
    pub(super) fn open_up(&mut self, key: LinkKey) -> Result<(), SummaryError> {
        if self.open.contains(&key) {
            return Ok(());
        }
        let Some(linked) = self.ledger.linked(key)? else { return Ok(()) };
        linked.places.into_iter().for_each(|place| self.ledger.nodes.mark_open(place));
        self.open.insert(key);
        Ok(())
    }

    /// The same of all that the store knows.
    pub(super) fn open_all(&mut self) -> Result<(), SummaryError> {
        let open = self.ledger.all_open()?;
        open.into_iter().try_for_each(|key| self.open_up(key))
    }

    /// Looks at inodes that may have changed below `slot` where nothing is told; true when one has, and `None` when it gave way before the
    /// last. Each is looked at once: whoever goes on passes over those that were.
    pub(super) fn look_at_silent(
        &mut self,
        (slot, seen): (Slot, Seen<'_>),
        looks: &mut Looks,
        gives_way: &dyn Fn() -> bool,
    ) -> Result<Option<bool>, SummaryError> {
        looks.go_on(self.ledger.nodes.id(slot), self.searches);
        loop {
            let looked = match self.look_at_open((slot, seen), looks, gives_way)? {
                Some(false) => self.look_at_aliens(slot, looks, gives_way)?,
                looked => looked,
            };
            match looked {
                None => looks.has_given_way = true,
                // What was moved there meanwhile wasn't among those that were listed.
                Some(false) if looks.has_given_way => {
                    looks.has_given_way = false;
                    continue;
                }
                Some(_) => looks.is_through(),
            }
            return Ok(looked);
        }
    }

    /// Those of which a name that is shown is below `slot`, and another one may be where nothing is told.
    fn look_at_open(
        &mut self,
        (slot, seen): (Slot, Seen<'_>),
        looks: &mut Looks,
        gives_way: &dyn Fn() -> bool,
    ) -> Result<Option<bool>, SummaryError> {
        let mut left = match looks.open.take() {
            Some(left) => self.take_up(left, (slot, seen))?,
            None => {
                let places = self.ledger.nodes.open_below(slot).into_iter().map(|place| self.ledger.nodes.id(place));
                OpenLeft { places: places.filter(|&id| looks.listed.insert(id)).collect(), at: None }
            }
        };
        let watched = if left.is_over() { None } else { self.watched_places()? };
        let (mut has_changed, mut is_closed) = (false, false);
        while !left.is_over() {
            let (due, closed) = self.next_open(&mut left, (slot, seen), &mut looks.open_checked, watched.as_ref())?;
            is_closed |= closed;
            if !due.is_empty() && self.look_at_some(&due)? {
                has_changed = true;
                // What that made dirty may name others that are named here.
                left.at.iter_mut().for_each(|at| at.has_open = true);
            }
            if !left.is_over() && gives_way() {
                looks.open = Some(left);
                return Ok(None);
            }
        }
        if is_closed {
            // Those above need to be looked through no more.
            self.ledger.nodes.open_below(slot);
        }
        Ok(Some(has_changed))
    }

    /// What was left when others had their turn.
    fn take_up(&self, mut left: OpenLeft, (slot, seen): (Slot, Seen<'_>)) -> Result<OpenLeft, SummaryError> {
        if let Some(At { id, left: keys, .. }) = left.at.take()
            && let Some(place) = self.ledger.nodes.find(id)
        {
            let is_shown = self.shows_below(slot, place, seen)?;
            left.at = Some(At { id, slot: place, is_shown, has_open: true, left: keys });
        }
        Ok(left)
    }

    /// The next ones of those that are to be looked at, and whether it was found out on the way that a directory names none any more.
    fn next_open(
        &mut self,
        left: &mut OpenLeft,
        (slot, seen): (Slot, Seen<'_>),
        checked: &mut Set<LinkKey>,
        watched: Option<&Set<Slot>>,
    ) -> Result<(Vec<(LinkKey, Linked)>, bool), SummaryError> {
        let (mut due, mut is_closed) = (Vec::new(), false);
        for _ in 0..LOOKS {
            let key = loop {
                match &mut left.at {
                    Some(at) => {
                        if let Some(key) = at.left.pop() {
                            break Some(key);
                        }
                        if !at.has_open {
                            self.ledger.nodes.close(at.slot);
                            is_closed = true;
                        }
                        left.at = None;
                    }
                    None => match left.places.pop() {
                        Some(id) => left.at = self.open_at(id, (slot, seen), (checked, watched))?,
                        None => break None,
                    },
                }
            };
            let (Some(key), Some(at)) = (key, &mut left.at) else { break };
            match self.ledger.linked(key)?.filter(|linked| self.ledger.is_open(linked)) {
                Some(linked) => {
                    at.has_open = true;
                    if at.is_shown {
                        checked.insert(key);
                        due.push((key, linked));
                    }
                }
                None => _ = self.open.remove(&key),
            }
        }
        Ok((due, is_closed))
    }

    /// Which inodes a directory names that may be open, but for those that were looked at. `None` where it is gone.
    fn open_at(
        &self,
        id: NodeId,
        (slot, seen): (Slot, Seen<'_>),
        (checked, watched): (&Set<LinkKey>, Option<&Set<Slot>>),
    ) -> Result<Option<At>, SummaryError> {
        let nodes = &self.ledger.nodes;
        let Some(place) = nodes.find(id) else { return Ok(None) };
        let links = if nodes.has_links(place) { self.ledger.record(place)?.links } else { Vec::new() };
        let keys = links.into_iter().map(|ino| LinkKey { subvolume: id.subvolume, ino });
        let (known, left): (Vec<LinkKey>, Vec<LinkKey>) =
            keys.filter(|key| self.open.contains(key)).partition(|key| checked.contains(key));
        let has_open = !known.is_empty() || watched.is_none_or(|watched| watched.contains(&place));
        Ok(Some(At { id, slot: place, is_shown: self.shows_below(slot, place, seen)?, has_open, left }))
    }

    fn look_at_some(&mut self, some: &[(LinkKey, Linked)]) -> Result<bool, SummaryError> {
        let id = |(key, linked): &(LinkKey, Linked)| NodeId {
            subvolume: key.subvolume,
            ino: key.ino,
            generation: linked.generation,
        };
        let ids: Vec<NodeId> = some.iter().map(id).collect();
        let mut has_changed = false;
        for ((_, linked), found) in some.iter().zip(self.directories.look_each(&ids)) {
            let is_the_same = match found {
                Ok(LinkedName { weight, links, facts, .. }) => {
                    (weight, links, facts) == (linked.weight, linked.links, linked.facts)
                }
                // A tree that is read once isn't looked at again.
                Err(error) => error.kind() == io::ErrorKind::Unsupported,
            };
            if !is_the_same {
                has_changed = true;
                linked.places.iter().try_for_each(|&place| self.mark(place))?;
            }
        }
        Ok(has_changed)
    }

    /// Those that are written through names that they don't have.
    fn look_at_aliens(
        &mut self,
        slot: Slot,
        looks: &mut Looks,
        gives_way: &dyn Fn() -> bool,
    ) -> Result<Option<bool>, SummaryError> {
        let mut left = match looks.aliens.take() {
            Some(left) => left,
            None => self.aliens_for(slot, &looks.aliens_checked)?,
        };
        let mut has_changed = false;
        while !left.is_empty() {
            let some = left.split_off(left.len().saturating_sub(LOOKS));
            let some: Vec<(LinkKey, Alien)> =
                some.into_iter().filter_map(|key| Some((key, self.aliens.get(key)?.clone()))).collect();
            if some.is_empty() {
                continue;
            }
            let ids: Vec<NodeId> = some.iter().map(|(_, alien)| alien.id).collect();
            // Before they are looked at: what nobody writes any more stays as it is then.
            let written = self.directories.are_written(&ids);
            let found = self.directories.look_each(&ids);
            for (((key, alien), written), found) in some.iter().zip(written).zip(found) {
                has_changed |= self.take_alien(slot, *key, alien, written.unwrap_or(true), found)?;
                looks.aliens_checked.insert(*key);
            }
            if !left.is_empty() && gives_way() {
                looks.aliens = Some(left);
                return Ok(None);
            }
        }
        Ok(Some(has_changed))
    }

    /// Those that may change an answer: all that is shown below `slot` has been read, so that their names there are known, and where these
    /// are, it is marked. With them those for which directories there are heeded. The others are left to who harvests everything.
    fn aliens_for(&self, slot: Slot, checked: &Set<LinkKey>) -> Result<Vec<LinkKey>, SummaryError> {
        let nodes = &self.ledger.nodes;
        let (is_all, may_be_named) = (slot == self.root, nodes.may_have_open(slot));
        let is_below = |place: Slot| nodes.contains(slot, place);
        let mut due = Vec::new();
        for (key, alien) in self.aliens.each().filter(|(key, _)| !checked.contains(key)) {
            let mut heeded = alien.heeded.iter().filter_map(|&heeded| nodes.find(heeded));
            let is_due =
                is_all || heeded.any(is_below) || (may_be_named && self.ledger.places(key)?.all().any(is_below));
            due.extend(is_due.then_some(key));
        }
        Ok(due)
    }

    fn take_alien(
        &mut self,
        slot: Slot,
        key: LinkKey,
        alien: &Alien,
        is_written: bool,
        found: io::Result<LinkedName>,
    ) -> Result<bool, SummaryError> {
        let places = self.ledger.places(key)?;
        let nodes = &self.ledger.nodes;
        let names_it = |heeded| !nodes.is_dirty(heeded) && places.named.contains(&heeded);
        let mut heeded = alien.heeded.iter();
        let is_at_home = heeded.len() > 0 && heeded.all(|&heeded| nodes.find(heeded).is_none_or(names_it));
        let is_written = !is_at_home && is_written;
        let found = match found {
            Ok(found) if !is_at_home => found,
            Err(error) if !is_at_home && !is_gone(&error) => return Ok(false),
            // It is gone, or the directory names it (again), and tells what happens to it.
            _ => {
                self.forget_alien(key);
                return Ok(false);
            }
        };
        let is_below = places.all().any(|place| nodes.contains(slot, place));
        let has_changed = alien.seen != Some(found) && (is_below || !is_written);
        if has_changed {
            self.aliens.note(key, found);
            places.all().try_for_each(|place| self.mark(place))?;
        }
        if !is_written {
            self.forget_alien(key);
        }
        Ok(has_changed && is_below)
    }

    fn forget_alien(&mut self, key: LinkKey) {
        for heeded in self.aliens.remove(key) {
            self.tracker.keep_heeding(heeded, false);
        }
    }

    /// The directories that are known to name inodes that are watched; `None` where these are many.
    fn watched_places(&self) -> Result<Option<Set<Slot>>, SummaryError> {
        if self.aliens.len() + self.relinked.len() > WATCHED_MAX {
            return Ok(None);
        }
        let mut places = Set::default();
        for key in self.aliens.keys().chain(self.relinked.keys().copied()) {
            places.extend(self.ledger.places(key)?.all());
        }
        Ok(Some(places))
    }

    /// Where an inode that is watched is known to have names, questions look at it.
    fn mark_watched(&mut self, key: LinkKey) -> Result<(), SummaryError> {
        self.ledger.places(key)?.all().for_each(|place| self.ledger.nodes.mark_open(place));
        Ok(())
    }

    /// It got a name or lost one.
    fn note_relinked(&mut self, key: LinkKey, relinked: Relinked, places: &Places) {
        let known = self.relinked.entry(key).or_insert(relinked);
        if known.id != relinked.id {
            *known = relinked;
        }
        known.is_to_look_at |= relinked.is_to_look_at;
        places.all().for_each(|place| self.ledger.nodes.mark_open(place));
    }

    /// Who has an inode open under a name that it loses goes on writing through that name, and nobody tells where the directory
    /// of it is ignored. So those that are open for writing when a name came or went are looked at until they are closed. What
    /// is opened later is opened by a name that it has. Some at a time; false when it gave way before the last.
    pub(super) fn watch_relinked(&mut self, gives_way: &dyn Fn() -> bool) -> Result<bool, SummaryError> {
        let mut left = std::mem::take(&mut self.relinked).into_iter();
        loop {
            let some: Vec<(LinkKey, Relinked)> = left.by_ref().take(LOOKS).collect();
            let watched = self.watch_some(some);
            let is_over = left.len() == 0;
            if watched.is_err() || is_over || gives_way() {
                self.relinked.extend(left);
                return watched.map(|()| is_over);
            }
        }
    }

    fn watch_some(&mut self, some: Vec<(LinkKey, Relinked)>) -> Result<(), SummaryError> {
        let ids: Vec<NodeId> = some.iter().map(|(_, relinked)| relinked.id).collect();
        let to_look_at = some.iter().filter(|(_, relinked)| relinked.is_to_look_at).map(|(_, relinked)| relinked.id);
        let written = self.directories.are_written(&ids);
        let mut found = self.directories.look_each(&to_look_at.collect::<Vec<_>>()).into_iter();
        for ((key, Relinked { id, readings, is_to_look_at }), written) in some.into_iter().zip(written) {
            let is_watched = match written {
                Ok(is_written) => is_written,
                Err(error) => !is_gone(&error),
            };
            if is_watched {
                self.aliens.add(key, id);
                self.mark_watched(key)?;
            }
            let found = if is_to_look_at { found.next() } else { None };
            let is_shown = !is_to_look_at || found.map_or(Ok(false), |found| self.takes_over_links(key, found))?;
            // What was read since then may have been written until now.
            if readings != self.readings || !is_shown {
                self.ledger.places(key)?.all().try_for_each(|place| self.mark(place))?;
            }
        }
        Ok(())
    }

    /// Whether an inode that was looked at has another number of names, and is else what directories show that name it, so that these
    /// needn't be read again.
    fn takes_over_links(&mut self, key: LinkKey, found: io::Result<LinkedName>) -> Result<bool, SummaryError> {
        let (Ok(found), Some(linked)) = (found, self.ledger.linked(key)?) else { return Ok(false) };
        // The last one is shown as that of any other file; and where directories that are clean name it more often than it has names, one
        // of them has lost one, and is about to be told of.
        let clean = linked.clean_places(&self.ledger.nodes);
        if found.links < 2 || clean > found.links as usize || !linked.is_shown_as(&found) {
            return Ok(false);
        }
        let is_as_before = linked.links == found.links;
        let linked = Linked { links: found.links, ..linked };
        // Others than those that are known may be where nothing is told.
        if self.ledger.is_open(&linked) {
            self.open_up(key)?;
        }
        if !is_as_before {
            self.ledger.set_links(key, linked);
        }
        Ok(true)
    }

    /// The same of those that were open so before anybody was told.
    pub(super) fn watch_lost_names(&mut self) -> Result<(), SummaryError> {
        for id in self.directories.open_by_lost_names() {
            let relinked = Relinked { id, readings: self.readings, is_to_look_at: false };
            let key = LinkKey { subvolume: id.subvolume, ino: id.ino };
            let places = self.ledger.places(key)?;
            self.note_relinked(key, relinked, &places);
        }
        self.watch_relinked(&|| false).map(drop)
    }
}
