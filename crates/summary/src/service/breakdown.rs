//! A directory by a declared summary: pairs of key and value, the largest first.

use std::os::fd::OwnedFd;

use onesweep_sys::user;
use serde::{Deserialize, Serialize};

use super::{
    looking::LOOKS_MAX,
    protocol::{Name, Question, Refusal},
    server::{Reached, Server, refusal},
    ways::Ways,
};
use crate::{
    access::Asker,
    custom::{
        declare::{By, Declaration, Declared, Source},
        keys,
        tally::{Amounts, INODE_BYTES, Merge, Tally},
        view::{Seen, Tallies},
    },
    moment::seconds,
    nodes::Slot,
    summaries::SummaryError,
    view::pieces::Pieces,
};

/// A declared summary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// What it is called.
    pub name: String,
    /// What it is by.
    pub by: By,
}

/// A directory by one of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Breakdown {
    /// What the summary is called.
    pub summary: String,
    /// What it is by.
    pub by: By,
    /// Seconds since 1970: what ages count from.
    pub answered_at: i64,
    /// Something was left out that the asker may not see.
    pub partial: bool,
    /// Nothing is known to have changed since it was counted.
    pub exact: bool,
    /// When files that are written silently were looked for last: as in [`Head`](super::protocol::Head).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_at: Option<i64>,
    /// Nobody tells what changes there: all below was read again at `checked_at`, or later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed: bool,
    /// When the directory was harvested, in seconds since 1970.
    pub harvested_at: i64,
    /// Directories below that could not be read.
    pub unreadable: u64,
    /// Time was up: as in [`Head`](super::protocol::Head).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<u64>,
    /// The largest first; of minima the smallest.
    pub shares: Vec<Share>,
    /// What all keys that found no room come to, of sums.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<Value>,
    /// There are keys that found no room.
    pub more: bool,
    /// Directories of which it isn't known what they add.
    pub unknown: u64,
    /// Where some of these are, below the one that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_in: Vec<Name>,
    /// Why, the last time; for those who get whole totals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_why: Option<String>,
}

/// One pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The key; of the largest files where they are, below the directory that was asked for.
    pub key: Name,
    /// What people call it: the name of an owner or a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Of an age: when it begins, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<i64>,
    /// And when the next one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<i64>,
    /// The value.
    #[serde(flatten)]
    pub value: Value,
}

/// A value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Value {
    /// Everything that has an inode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inodes: Option<i64>,
    /// Bytes as sizes tell them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<i64>,
    /// Bytes that are allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated: Option<i64>,
    /// What a command said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<i64>,
}

impl Value {
    fn of(one: &Declaration, [first, bytes, allocated]: Amounts) -> Value {
        match (one.by, one.rule.merge) {
            (_, Merge::Files) => Value { bytes: Some(first), allocated: Some(allocated), ..Value::default() },
            (By::Command, _) | (_, Merge::Min | Merge::Max) => Value { value: Some(first), ..Value::default() },
            _ => Value { inodes: Some(first), bytes: Some(bytes), allocated: Some(allocated), value: None },
        }
    }
}

impl Server {
    /// The summaries that are declared.
    pub fn declared(&self) -> Vec<Listed> {
        self.summaries().as_deref().map(listed).unwrap_or_default()
    }

    /// The directory of a question by the summary that it names.
    pub fn break_down(&self, asker: &Asker, question: &Question, file: Option<OwnedFd>) -> Result<Breakdown, Refusal> {
        let name = question.by.as_deref().unwrap_or_default();
        let all = self.summaries().unwrap_or_default();
        let at = all.find(name).ok_or_else(|| {
            let known: Vec<&str> = all.all().iter().map(|one| one.name.as_str()).collect();
            Refusal::Failed(match known[..] {
                [] => "no summaries are declared; see `onesweep serve --summaries`".to_owned(),
                _ => format!("no summary is called {name:?}; declared are {}", known.join(", ")),
            })
        })?;
        let one = &all.all()[at];
        let mut breakdown = {
            // Ends before names are looked for: nobody waits for those.
            let volumes = self.volumes();
            let reached = self.reach(&volumes, (asker, question), file)?;
            reached.check_declared(question)?;
            let (reached, seen) = counted(reached, asker, at)?;
            breakdown(&reached, asker, (at, one), seen)?
        };
        breakdown.shares.iter_mut().for_each(|share| name_it(share, one.by));
        if let (Source::Command(command), Asker::Everything, true) = (&one.source, asker, breakdown.unknown > 0) {
            breakdown.unknown_why = command.failed();
        }
        Ok(breakdown)
    }
}

/// The directory that was asked for, as the asker sees it by the summary that stands there.
fn counted<'a>(reached: Reached<'a>, asker: &Asker, summary: usize) -> Result<(Reached<'a>, Seen), Refusal> {
    let ledger = reached.tracked.ledger();
    let mut tallies = Tallies::of_one(ledger, summary).ok_or(Refusal::NotTracked)?;
    let (mut pieces, mut looks) = (Pieces::of(ledger.nodes.id(reached.slot), false), LOOKS_MAX);
    let reached = reached.count_all(asker, &mut pieces, &mut tallies, &mut looks)?;
    let seen = tallies.seen(reached.tracked.ledger(), reached.slot, &pieces);
    let seen = seen.map_err(|error| refusal(SummaryError::Store(error)))?;
    Ok((reached, seen))
}

/// Pairs in the order in which they are told.
pub(super) struct Ranked {
    pub(super) shares: Vec<Share>,
    pub(super) other: Option<Value>,
    is_cut: bool,
}

/// What a directory comes to by the summary that stands there, in that order. Files are named by where they are below it.
pub(super) fn ranked(
    ways: &mut Ways<'_>,
    top: Slot,
    (at, one): (usize, &Declaration),
    tally: Tally,
) -> Result<Ranked, Refusal> {
    let reached = ways.reached;
    let Tally { mut entries, mut other, is_cut, .. } = tally;
    if is_cut && one.by != By::Command && one.rule.merge == Merge::Sum {
        // What of a key was left out below may be less than what is taken off for links above.
        entries.retain(|_, amounts| {
            let is_there = amounts[0] > 0;
            if !is_there {
                other.iter_mut().zip(*amounts).for_each(|(other, amount)| *other += amount);
            }
            is_there
        });
    }
    let mut ranked: Vec<(Vec<u8>, Amounts)> = entries.into_iter().collect();
    // Of equals the first key stays first.
    match one.rule.merge {
        Merge::Sum => ranked.sort_by_key(|(_, amounts)| std::cmp::Reverse([amounts[2], amounts[1], amounts[0]])),
        Merge::Min => ranked.sort_by_key(|(_, amounts)| amounts[0]),
        Merge::Max | Merge::Files => ranked.sort_by_key(|(_, amounts)| std::cmp::Reverse(amounts[0])),
    }
    let mut shares = Vec::with_capacity(ranked.len());
    for (key, amounts) in ranked {
        let key = match one.rule.merge {
            Merge::Files => {
                let directory =
                    u32::try_from(amounts[1]).map_err(|_| Refusal::Failed("the store is damaged".to_owned()))?;
                let directory = Slot(directory);
                // Since it was counted the number may have become another's, or the directory may have been closed.
                if reached.turns > 0 && !holds(ways, (top, directory), at, &key)? {
                    continue;
                }
                let mut path = below(reached, top, directory)?;
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend(key.get(INODE_BYTES..).unwrap_or_default());
                path
            }
            _ => key,
        };
        let value = Value::of(one, amounts);
        shares.push(Share { key: Name::of(&key), label: None, from: None, to: None, value });
    }
    let has_other = is_cut && one.rule.merge == Merge::Sum;
    Ok(Ranked { shares, other: has_other.then(|| Value::of(one, other)), is_cut })
}

/// Whether a file of the summary that stands there still is in a directory below another one, which the asker may list.
fn holds(ways: &mut Ways<'_>, (top, directory): (Slot, Slot), at: usize, file: &[u8]) -> Result<bool, Refusal> {
    let ledger = ways.reached.tracked.ledger();
    let nodes = &ledger.nodes;
    if !nodes.is_used(directory) || !nodes.contains(top, directory) || !ways.is_open(directory)? {
        return Ok(false);
    }
    let parts = ledger.parts(directory).map_err(|error| refusal(SummaryError::Store(error)))?;
    Ok(parts.get(at).is_some_and(|part| part.own.entries.contains_key(file)))
}

fn breakdown(
    reached: &Reached<'_>,
    asker: &Asker,
    (at, one): (usize, &Declaration),
    seen: Seen,
) -> Result<Breakdown, Refusal> {
    let Seen { tally, is_partial, unknown } = seen;
    let mut ways = Ways::new(reached, asker, false);
    let mut unknown_in = Vec::new();
    for slot in unknown {
        // It may have been closed since it was counted.
        if reached.turns == 0 || ways.is_open(slot)? {
            unknown_in.push(Name::of(&below(reached, reached.slot, slot)?));
        }
    }
    let (head, unknown) = (reached.head(0, is_partial), tally.unknown);
    let Ranked { shares, other, is_cut } = ranked(&mut ways, reached.slot, (at, one), tally)?;
    Ok(Breakdown {
        summary: one.name.clone(),
        by: one.by,
        answered_at: seconds(),
        partial: is_partial,
        exact: head.exact,
        checked_at: head.checked_at,
        timed: head.timed,
        harvested_at: head.harvested_at,
        unreadable: head.unreadable,
        late: head.late,
        shares,
        other,
        more: is_cut,
        unknown: unknown.max(0) as u64,
        unknown_in,
        unknown_why: None,
    })
}

/// The path of a directory from another one.
fn below(reached: &Reached<'_>, top: Slot, slot: Slot) -> Result<Vec<u8>, Refusal> {
    let names = reached.tracked.path(top, slot).map_err(|error| Refusal::Failed(error.to_string()))?;
    Ok(names.join(&b'/'))
}

pub(super) fn listed(all: &Declared) -> Vec<Listed> {
    all.all().iter().map(|one| Listed { name: one.name.clone(), by: one.by }).collect()
}

/// What people call an owner or a group, by the key.
pub fn label(key: &str, by: By) -> Option<String> {
    match by {
        By::Owner => key.parse().ok().and_then(user::name_of),
        By::Group => key.parse().ok().and_then(user::group_name_of),
        _ => None,
    }
}

/// What people call it.
fn name_it(share: &mut Share, by: By) {
    let Name::Text(key) = &share.key else { return };
    share.label = label(key, by);
    if by == By::Age {
        (share.from, share.to) = keys::bounds(key).unzip();
    }
}
