//! Amounts by key, and how two directories' become one.

use std::{borrow::Borrow, cmp::Reverse, collections::BTreeMap};

use crate::code::{Reader, Writer};

/// What stands behind a key: of a sum over entries how many, their bytes, and their allocated bytes; else one number, the first.
pub type Amounts = [i64; 3];

/// How the amounts of one key in two directories become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Merge {
    /// They are added.
    Sum,
    /// The smaller.
    Min,
    /// The larger.
    Max,
    /// The key names a file: an inode, then its name. Each inode counts once.
    Files,
}

/// How tallies of one summary are merged, and how many keys each has at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What becomes of one key.
    pub merge: Merge,
    /// Keys.
    pub limit: usize,
}

/// Bytes of a key that name an inode where it names a file: the subvolume and the number, both with the highest byte first.
pub const INODE_BYTES: usize = 16;
/// Bytes of a key, at most.
pub const KEY_BYTES_MAX: usize = INODE_BYTES + 255;
/// Keys that links may add where their names meet.
const CHARGED_KEYS_MAX: usize = 4096;

/// So many times the limit keys may be in memory while tallies are brought together.
pub(crate) const GATHERED: usize = 64;

/// What a directory, or all below it, comes to by one summary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// By key.
    pub entries: BTreeMap<Vec<u8>, Amounts>,
    /// What belongs to keys that found no room; of sums alone.
    pub other: Amounts,
    /// Keys found no room.
    pub is_cut: bool,
    /// Directories of which it isn't known what they add.
    pub unknown: i64,
}

impl Tally {
    /// Nothing in it.
    pub fn is_empty(&self) -> bool {
        *self == Tally::default()
    }

    /// Takes one amount in, whatever the limit.
    pub fn add(&mut self, key: &[u8], amounts: Amounts, merge: Merge) {
        let key = &key[..key.len().min(KEY_BYTES_MAX)];
        if merge == Merge::Files
            && let Some((same, there)) = self.of_inode(key)
        {
            if rank_of_file(&same, there) <= rank_of_file(key, amounts) {
                return;
            }
            self.entries.remove(&same);
        }
        match self.entries.get_mut(key) {
            None if merge == Merge::Sum && amounts == Amounts::default() => {}
            None => _ = self.entries.insert(key.to_vec(), amounts),
            Some(there) => {
                match merge {
                    Merge::Sum => *there = plus(*there, amounts),
                    Merge::Min => *there = (*there).min(amounts),
                    Merge::Max | Merge::Files => *there = (*there).max(amounts),
                }
                if merge == Merge::Sum && *there == Amounts::default() {
                    self.entries.remove(key);
                }
            }
        }
    }

    /// The file that is known of the inode of `key`.
    fn of_inode(&self, key: &[u8]) -> Option<(Vec<u8>, Amounts)> {
        let inode = key.get(..INODE_BYTES)?;
        let (same, amounts) = self.entries.range(inode.to_vec()..).next()?;
        same.starts_with(inode).then(|| (same.clone(), *amounts))
    }

    /// Takes another one in, whatever the limit.
    fn take_in(&mut self, more: &Tally, merge: Merge) {
        more.entries.iter().for_each(|(key, &amounts)| self.add(key, amounts, merge));
        self.other = plus(self.other, more.other);
        self.is_cut |= more.is_cut;
        self.unknown = self.unknown.wrapping_add(more.unknown);
    }

    /// Both in one: the same whichever comes first, and however many are brought together in whatever order; but for sums of
    /// more keys than there is room for, where only what all keys come to is the same.
    pub fn join(&mut self, more: &Tally, rule: Rule) {
        self.take_in(more, rule.merge);
        self.bound(rule);
    }

    /// All of these in one. Sums of more keys than there is room for keep those that stand out most in the whole.
    pub fn of_all(rule: Rule, all: impl IntoIterator<Item = impl Borrow<Tally>>) -> Tally {
        let mut whole = Tally::default();
        all.into_iter().for_each(|part| whole.gather(part.borrow(), rule));
        whole.bound(rule);
        whole
    }

    /// Takes another one in; to be [bounded](Self::bound) when all are in.
    pub fn gather(&mut self, more: &Tally, rule: Rule) {
        self.take_in(more, rule.merge);
        if self.entries.len() > rule.limit.saturating_mul(GATHERED) {
            self.bound(rule);
        }
    }

    /// Keeps the keys that stand out most. What the others come to is kept of sums.
    pub fn bound(&mut self, rule: Rule) {
        if self.entries.len() <= rule.limit {
            return;
        }
        // Of the largest files there are always more.
        self.is_cut = rule.merge != Merge::Files;
        let mut ranked: Vec<(Vec<u8>, Amounts)> = std::mem::take(&mut self.entries).into_iter().collect();
        // A stable order: of equals the first key stays.
        match rule.merge {
            Merge::Sum => {
                ranked.sort_by_key(|(_, [entries, bytes, allocated])| Reverse([*allocated, *bytes, *entries]))
            }
            Merge::Min => ranked.sort_by_key(|(_, amounts)| *amounts),
            Merge::Max | Merge::Files => ranked.sort_by_key(|(_, [number, ..])| Reverse(*number)),
        }
        for (_, amounts) in ranked.drain(rule.limit..) {
            if rule.merge == Merge::Sum {
                self.other = plus(self.other, amounts);
            }
        }
        self.entries = ranked.into_iter().collect();
    }

    /// Adds what links come to, or takes it off again. What finds no room stays without a key.
    pub fn charge(&mut self, more: &Tally, times: i64) {
        for (key, amounts) in &more.entries {
            let amounts = amounts.map(|amount| amount.wrapping_mul(times));
            if self.entries.contains_key(key) || (!self.is_cut && self.entries.len() < CHARGED_KEYS_MAX) {
                self.add(key, amounts, Merge::Sum);
            } else {
                self.is_cut = true;
                self.other = plus(self.other, amounts);
            }
        }
        self.other = plus(self.other, more.other.map(|amount| amount.wrapping_mul(times)));
        self.is_cut |= more.is_cut;
    }

    /// Files lie in the directory of this number.
    pub fn put_in(&mut self, directory: u32) {
        self.entries.values_mut().for_each(|amounts| amounts[1] = directory.into());
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.unsigned(self.entries.len() as u64);
        for (key, amounts) in &self.entries {
            out.bytes(key);
            out.sparse(amounts);
        }
        out.unsigned(u64::from(self.is_cut) | u64::from(self.unknown != 0) << 1);
        if self.is_cut {
            out.sparse(&self.other);
        }
        if self.unknown != 0 {
            out.signed(self.unknown);
        }
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Option<Tally> {
        let count = from.unsigned()?;
        // Each takes two bytes at least.
        if count > from.0.len() as u64 {
            return None;
        }
        let mut tally = Tally::default();
        for _ in 0..count {
            tally.entries.insert(from.bytes()?.to_vec(), from.sparse()?);
        }
        let marks = from.unsigned()?;
        tally.is_cut = marks & 1 != 0;
        if tally.is_cut {
            tally.other = from.sparse()?;
        }
        if marks & 2 != 0 {
            tally.unknown = from.signed()?;
        }
        Some(tally)
    }
}

fn plus(one: Amounts, other: Amounts) -> Amounts {
    std::array::from_fn(|at| one[at].wrapping_add(other[at]))
}

/// Of two names of an inode the one with the lower rank stays.
fn rank_of_file(key: &[u8], [bytes, directory, allocated]: Amounts) -> (Reverse<i64>, i64, &[u8], i64) {
    (Reverse(bytes), directory, key, allocated)
}

/// What has changed below a directory, by one summary, and isn't in its total yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// What came; of sums the difference.
    gained: Tally,
    /// What went and wasn't pushed out by something that came: a total that stands on it has to be made again. Not of sums.
    lost: Tally,
    /// The total has to be made again in any case.
    again: bool,
}

impl Change {
    /// From one tally to another; `None` when they are the same.
    pub fn between(before: &Tally, after: &Tally, rule: Rule) -> Option<Change> {
        if before == after {
            return None;
        }
        let mut change = Change { again: before.is_cut && !after.is_cut, ..Change::default() };
        if rule.merge == Merge::Sum {
            change.again = before.is_cut || after.is_cut;
            change.gained.charge(after, 1);
            change.gained.charge(before, -1);
            change.again |= change.gained.is_cut;
        } else {
            let new = |(key, amounts): &(&Vec<u8>, &Amounts)| before.entries.get(*key) != Some(*amounts);
            let own = |(key, amounts): (&Vec<u8>, &Amounts)| (key.clone(), *amounts);
            change.gained.entries = after.entries.iter().filter(new).map(own).collect();
            change.gained.is_cut = after.is_cut;
            let mut both = before.clone();
            both.join(after, rule);
            if (&both.entries, both.is_cut) != (&after.entries, after.is_cut) {
                let gone = |(key, amounts): &(&Vec<u8>, &Amounts)| after.entries.get(*key) != Some(*amounts);
                change.lost.entries = before.entries.iter().filter(gone).map(own).collect();
            }
        }
        change.gained.unknown = after.unknown.wrapping_sub(before.unknown);
        Some(change)
    }

    /// Of a sum, by so much; `again`: it has to be made again.
    pub fn by(difference: Tally, again: bool) -> Change {
        Change { again: again || difference.is_cut, gained: difference, ..Change::default() }
    }

    /// Both, one after the other.
    pub fn then(&mut self, next: &Change, rule: Rule) {
        self.again |= next.again;
        match rule.merge {
            Merge::Sum => {
                let unknown = self.gained.unknown.wrapping_add(next.gained.unknown);
                self.gained.charge(&next.gained, 1);
                self.gained.unknown = unknown;
                self.again |= self.gained.is_cut;
            }
            merge => {
                // What came first may have gone next.
                self.again |= next.lost.entries.iter().any(|(key, lost)| self.gained.entries.get(key) == Some(lost));
                self.gained.take_in(&next.gained, merge);
                self.lost.take_in(&next.lost, merge);
            }
        }
    }

    /// Puts it into a total. False when that has to be made again.
    pub fn apply(&self, total: &mut Tally, rule: Rule) -> bool {
        let stands_on = |(key, lost): (&Vec<u8>, &Amounts)| total.entries.get(key) == Some(lost);
        // Of one that was cut, what goes may make room for what was left out.
        let is_undone = match rule.merge {
            Merge::Sum => total.is_cut,
            _ => self.lost.entries.iter().any(stands_on) || (total.is_cut && !self.lost.entries.is_empty()),
        };
        if self.again || is_undone {
            return false;
        }
        total.join(&self.gained, rule);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    const RULES: [Rule; 4] = [
        Rule { merge: Merge::Sum, limit: 1000 },
        Rule { merge: Merge::Min, limit: 4 },
        Rule { merge: Merge::Max, limit: 4 },
        Rule { merge: Merge::Files, limit: 4 },
    ];

    /// Few keys and amounts, so that many meet. Of files the inode says the bytes, as it does on a disk that is at rest.
    fn tally(parts: &[(u8, i64)], rule: Rule) -> Tally {
        let mut tally = Tally::default();
        for &(key, amount) in parts {
            if rule.merge == Merge::Files {
                let mut name = vec![0; INODE_BYTES];
                name[INODE_BYTES - 1] = key / 3;
                name.push(b'a' + key % 3);
                tally.add(&name, [i64::from(key / 3) * 7 % 10, amount, 0], rule.merge);
            } else {
                tally.add(&[key], [amount, 0, 0], rule.merge);
            }
        }
        tally.unknown = parts.len() as i64 % 2;
        tally.bound(rule);
        tally
    }

    fn joined<'a>(all: impl IntoIterator<Item = &'a Tally>, rule: Rule) -> Tally {
        let mut whole = Tally::default();
        all.into_iter().for_each(|part| whole.join(part, rule));
        whole
    }

    fn parts() -> impl Strategy<Value = Vec<(u8, i64)>> {
        vec((0..30_u8, -20..20_i64), 0..12)
    }

    proptest! {
        #[test]
        fn merging_is_associative_and_commutative(one in parts(), two in parts(), three in parts()) {
            for rule in RULES {
                let [one, two, three] = [&one, &two, &three].map(|parts| tally(parts, rule));
                let left = joined([&joined([&one, &two], rule), &three], rule);
                let right = joined([&one, &joined([&two, &three], rule)], rule);
                prop_assert_eq!(&left, &right, "{:?}", rule);
                prop_assert_eq!(&left, &joined([&three, &one, &two], rule), "{:?}", rule);
                if rule.merge != Merge::Sum {
                    let again = joined([&Tally { unknown: 0, ..left.clone() }, &left], rule);
                    prop_assert_eq!(&again, &left, "{:?}", rule);
                }
            }
        }

        #[test]
        fn what_all_keys_come_to_is_kept(some in vec(parts(), 1..6)) {
            let rule = Rule { merge: Merge::Sum, limit: 3 };
            let all: Vec<Tally> = some.iter().map(|parts| tally(parts, rule)).collect();
            let whole = joined(&all, rule);
            let sum: i64 = whole.entries.values().map(|amounts| amounts[0]).sum::<i64>() + whole.other[0];
            prop_assert_eq!(sum, some.iter().flatten().map(|(_, amount)| amount).sum::<i64>());
            prop_assert!(whole.entries.len() <= rule.limit);
        }

        /// Changes of some children, put into the total above them, come to what making it anew comes to.
        #[test]
        fn a_total_follows_its_parts(
            children in vec(parts(), 1..5),
            changes in vec((any::<usize>(), parts()), 1..12),
            at_once in 1..4_usize,
            small: bool,
        ) {
            for mut rule in RULES {
                if rule.merge == Merge::Sum && small {
                    rule.limit = 3;
                }
                let mut tallies: Vec<Tally> = children.iter().map(|parts| tally(parts, rule)).collect();
                let mut total = Tally::of_all(rule, &tallies);
                for some in changes.chunks(at_once) {
                    let mut owed: Option<Change> = None;
                    for (at, parts) in some {
                        let at = at % tallies.len();
                        let after = tally(parts, rule);
                        let before = std::mem::replace(&mut tallies[at], after);
                        if let Some(change) = Change::between(&before, &tallies[at], rule) {
                            match &mut owed {
                                Some(owed) => owed.then(&change, rule),
                                None => owed = Some(change),
                            }
                        }
                    }
                    if !owed.is_none_or(|owed| owed.apply(&mut total, rule)) {
                        total = Tally::of_all(rule, &tallies);
                    }
                    prop_assert_eq!(&total, &Tally::of_all(rule, &tallies), "{:?}", rule);
                }
            }
        }

        #[test]
        fn tallies_come_back(parts in parts(), other: [i64; 3], is_cut: bool) {
            let mut tally = tally(&parts, RULES[0]);
            (tally.is_cut, tally.other) = (is_cut, if is_cut { other } else { [0; 3] });
            let mut out = Writer::default();
            tally.encode(&mut out);
            let mut from = Reader(&out.0);
            prop_assert_eq!(Tally::decode(&mut from), Some(tally));
            prop_assert!(from.is_done());
            prop_assert_eq!(Tally::decode(&mut Reader(&out.0[..out.0.len() - 1])), None);
        }

        #[test]
        fn any_bytes_are_a_tally_or_none(bytes: Vec<u8>) {
            let _ = Tally::decode(&mut Reader(&bytes));
        }
    }
}
