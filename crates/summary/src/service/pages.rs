//! All directories below one, a page at a time: for who takes the whole store along (`onesweep export`).
//!
//! A page costs what it holds, whatever lies below: directories come in the order of their numbers in the store, which stay
//! what they are while others come and go. Each comes once, as it is when its page is asked for.

use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    breakdown::{Listed, Ranked, Share, Value, ranked},
    looking::{LOOKS_MAX, Look, Looking},
    protocol::{Name, Question, Refusal, Row},
    server::{Reached, Server},
    ways::Ways,
};
use crate::{access::Asker, custom::view::Tallies, identity::NodeId, nodes::Slot, view::pieces::Pieces};

/// Directories of a page, at most.
pub const PAGE_MAX: u32 = 1000;
/// Numbers that are looked at for a page, at most: others wait meanwhile.
const SCAN_MAX: usize = 200_000;
/// And where so many directories, and inodes with several names, were looked at for it: some 100 ms. A directory that takes more by itself is
/// told alone, and others have their turn meanwhile.
const PAGE_LOOKS_MAX: usize = 20_000;
/// A page ends when it has so many keys of declared summaries: that many take some MiB.
const KEYS_MAX: usize = 20_000;
/// A path that is longer can't be opened in one go, and isn't told.
const PATH_BYTES_MAX: usize = 4096;

/// Which directories a page holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Page {
    /// Those from this number on; 0 at first, then [`PageHead::next`].
    pub from: u32,
    /// So many, [`PAGE_MAX`] at most; fewer where keys are many.
    pub limit: u32,
    /// With what each comes to by the declared summaries.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keys: bool,
    /// Those so far below the directory that was asked for, at most; all of them without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<u32>,
}

/// How a page begins.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageHead {
    /// Directories that follow, which may be none though there is a next page.
    pub lines: u64,
    /// Where the next page begins; none after the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
    /// Tells the file system from all others.
    pub file_system: String,
    /// Time was up: as in [`Head`](super::protocol::Head).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<u64>,
    /// The declared summaries, where keys were asked for: [`Keys::summary`] counts in them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub summaries: Vec<Listed>,
}

/// One directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Tells the directory from all others of the file system, also from those that are long gone:
    /// `subvolume.inode.generation`, the first 0 but on btrfs.
    pub id: String,
    /// The directory that it is in; none of the one that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The names that lead to it from the one that was asked for; none where that is longer than a path can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Name>,
    /// What it comes to if it is asked for alone; `depth` counts from the one that was asked for.
    pub row: Row,
    /// Something in it was left out that the asker may not see.
    pub partial: bool,
    /// It could not be read itself.
    pub unreadable: bool,
    /// When it was last read, in seconds since 1970.
    pub harvested_at: i64,
    /// By declared summaries, where that was asked for; those by which it comes to nothing are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<Keys>,
}

/// A directory of a page by a declared summary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    /// Where the summary stands in [`PageHead::summaries`].
    pub summary: usize,
    /// The largest first; of minima the smallest. Without the names of owners and groups, and the times of ages.
    pub shares: Vec<Share>,
    /// What all keys that found no room come to, of sums.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<Value>,
    /// Directories of which it isn't known what they add.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unknown: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Server {
    /// A page of the directories at and below the one of a question, of which the asker would see lines in `du`.
    pub(super) fn page(
        &self,
        asker: &Asker,
        question: &Question,
        file: Option<OwnedFd>,
        page: Page,
    ) -> Result<(PageHead, Vec<Entry>), Refusal> {
        let volumes = self.volumes();
        let reached = self.reach(&volumes, (asker, question), file)?;
        if page.keys {
            reached.check_declared(question)?;
        }
        let nodes = &reached.tracked.ledger().nodes;
        let mut sight = Sight::of(&reached, asker);
        let limit = page.limit.clamp(1, PAGE_MAX) as usize;
        let (mut entries, mut keys, mut looks) = (Vec::new(), 0, PAGE_LOOKS_MAX);
        let (mut at, bound) = (page.from as usize, nodes.bound());
        let end = bound.min(at.saturating_add(SCAN_MAX));
        let mut large = None;
        while at < end && entries.len() < limit && keys < KEYS_MAX {
            // There are no more than 4 billion.
            let slot = Slot(at as u32);
            let is_meant = nodes.is_used(slot) && page.depth.is_none_or(|depth| is_within(&reached, slot, depth));
            let way = if is_meant { sight.way_to(slot)? } else { None };
            if let Some(above) = way {
                let mut counting = CountingEntry::of(&reached, slot, page.keys);
                if !counting.go_on(&reached, asker, &mut looks)? {
                    // It begins the next page, or is the only one of this.
                    large = entries.is_empty().then_some((slot, counting));
                    break;
                }
                let entry = sight.entry(slot, above, counting, question.since)?;
                keys += entry.keys.iter().map(|keys| keys.shares.len()).sum::<usize>();
                entries.push(entry);
            }
            at += 1;
        }
        let reached = match large {
            None => reached,
            Some((slot, counting)) => {
                at += 1;
                let id = nodes.id(slot);
                let (reached, counting) = counting.finish(reached, asker)?;
                // It may be gone, or closed, by now.
                let mut sight = Sight::of(&reached, asker);
                if let Some(slot) = reached.tracked.ledger().nodes.find(id)
                    && let Some(above) = sight.way_to(slot)?
                {
                    entries.push(sight.entry(slot, above, counting, question.since)?);
                }
                reached
            }
        };
        let next = (at < bound).then_some(at as u32);
        let identity = reached.identity().map_err(|error| Refusal::Failed(error.to_string()))?;
        let file_system = Sha256::digest(identity).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let summaries = if page.keys { reached.listed() } else { Vec::new() };
        Ok((
            PageHead { lines: entries.len() as u64, next, file_system, late: reached.head(0, false).late, summaries },
            entries,
        ))
    }
}

/// A directory that is being counted.
struct CountingEntry {
    looking: Looking,
    /// By all declared summaries, where that was asked for.
    keys: Option<(Pieces, Tallies)>,
}

impl CountingEntry {
    fn of(reached: &Reached<'_>, slot: Slot, with_keys: bool) -> CountingEntry {
        let ledger = reached.tracked.ledger();
        let keys = || (Pieces::of(ledger.nodes.id(slot), false), Tallies::of_all(ledger));
        CountingEntry { looking: Looking::at(reached, slot, true), keys: with_keys.then(keys) }
    }

    fn go_on(&mut self, reached: &Reached<'_>, asker: &Asker, looks: &mut usize) -> Result<bool, Refusal> {
        if !self.looking.go_on(reached, asker, looks)? {
            return Ok(false);
        }
        match &mut self.keys {
            Some((pieces, tallies)) => reached.count(asker, pieces, tallies, looks),
            None => Ok(true),
        }
    }

    /// Goes on to the end; others have their turn first, and then between any two pieces.
    fn finish<'a>(mut self, mut reached: Reached<'a>, asker: &Asker) -> Result<(Reached<'a>, Self), Refusal> {
        loop {
            reached = reached.give_way().ok_or(Refusal::NotTracked)?;
            if self.go_on(&reached, asker, &mut { LOOKS_MAX })? {
                return Ok((reached, self));
            }
        }
    }
}

/// What the asker sees below the directory that was asked for.
struct Sight<'a> {
    reached: &'a Reached<'a>,
    asker: &'a Asker,
    ways: Ways<'a>,
    /// The directory of the one before, and its path: neighbours by number often lie side by side.
    last: Option<(Slot, Option<Vec<u8>>)>,
}

impl<'a> Sight<'a> {
    fn of(reached: &'a Reached<'a>, asker: &'a Asker) -> Sight<'a> {
        Sight { reached, asker, ways: Ways::new(reached, asker, false), last: None }
    }

    /// The directory that one is in, which the one that was asked for has none; `None` when it lies elsewhere, or the asker may not
    /// know of it.
    fn way_to(&mut self, slot: Slot) -> Result<Option<Option<Slot>>, Refusal> {
        Ok(match self.reached.tracked.ledger().nodes.parent(slot) {
            _ if slot == self.reached.slot => Some(None),
            Some(above) if self.ways.is_open(above)? => Some(Some(above)),
            _ => None,
        })
    }

    /// A directory that was counted.
    fn entry(
        &mut self,
        slot: Slot,
        above: Option<Slot>,
        counted: CountingEntry,
        since: Option<i64>,
    ) -> Result<Entry, Refusal> {
        let nodes = &self.reached.tracked.ledger().nodes;
        let top = self.reached.slot;
        let record = self.reached.record(slot)?;
        let Look { line, is_partial, .. } = counted.looking.look(self.reached).ok_or(Refusal::NotTracked)?;
        let keys = match counted.keys {
            Some((_, tallies)) => self.keys(slot, tallies)?,
            None => Vec::new(),
        };
        let name: &[u8] = if slot == top { b"" } else { &record.name };
        let mut row = Row::of(&line, name, is_partial);
        row.depth = nodes.upwards(slot).take_while(|&at| at != top).count() as u32;
        // What was left out then can't be told from what is left out now.
        if let Some(since) = since.filter(|_| !is_partial) {
            row.past = self.reached.past(slot, since)?;
        }
        let path = match above {
            None => Some(Vec::new()),
            Some(above) => self.path(above)?.map(|above| match &above[..] {
                [] => record.name.to_vec(),
                above => [above, b"/", &record.name].concat(),
            }),
        };
        let path = path.filter(|path| path.len() <= PATH_BYTES_MAX);
        // When what is hidden was read, and whether it could be, tells of what happens there.
        let is_shown = *self.asker == Asker::Everything || self.reached.may_list(self.asker, slot, &record.access);
        Ok(Entry {
            id: id_text(record.id),
            parent: above.map(|above| id_text(nodes.id(above))),
            path: path.map(|path| Name::of(&path)),
            row,
            partial: is_partial,
            unreadable: is_shown && self.reached.tracked.is_unreadable(slot),
            harvested_at: if is_shown { record.harvested_at } else { 0 },
            keys,
        })
    }

    /// A directory by all declared summaries.
    fn keys(&mut self, slot: Slot, tallies: Tallies) -> Result<Vec<Keys>, Refusal> {
        let declared = self.reached.tracked.ledger().declared();
        let declared = declared.iter().flat_map(|declared| declared.all());
        let mut all = Vec::new();
        for (summary, (one, tally)) in declared.zip(tallies.bounded()).enumerate() {
            if !tally.is_empty() {
                let unknown = u64::try_from(tally.unknown).unwrap_or(0);
                let Ranked { shares, other, .. } = ranked(&mut self.ways, slot, (summary, one), tally)?;
                all.push(Keys { summary, shares, other, unknown });
            }
        }
        Ok(all)
    }

    fn path(&mut self, slot: Slot) -> Result<Option<Vec<u8>>, Refusal> {
        if let Some((last, path)) = &self.last
            && *last == slot
        {
            return Ok(path.clone());
        }
        let nodes = &self.reached.tracked.ledger().nodes;
        let (mut names, mut length) = (Vec::new(), 0);
        for at in nodes.upwards(slot).take_while(|&at| at != self.reached.slot) {
            let name = self.reached.record(at)?.name;
            length += name.len() + 1;
            if length > PATH_BYTES_MAX {
                break;
            }
            names.push(name);
        }
        names.reverse();
        let path = (length <= PATH_BYTES_MAX).then(|| names.join(&b'/'));
        self.last = Some((slot, path.clone()));
        Ok(path)
    }
}

/// Whether a directory is the one that was asked for, or lies so far below it at most.
fn is_within(reached: &Reached<'_>, slot: Slot, depth: u32) -> bool {
    let ways = reached.tracked.ledger().nodes.upwards(slot);
    ways.take(depth as usize + 1).any(|at| at == reached.slot)
}

fn id_text(id: NodeId) -> String {
    format!("{}.{}.{}", id.subvolume, id.ino, id.generation)
}
