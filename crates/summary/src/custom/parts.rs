//! What the store keeps of a directory, and of an inode with several names, for the declared summaries (docs/FORMATS.md).

use super::{
    declare::Declared,
    found::Tallies,
    tally::{Rule, Tally},
};
use crate::{
    code::{Reader, Writer},
    nodes::Slot,
};

/// A directory by one summary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The directory itself.
    pub itself: Tally,
    /// Its entries, but for directories in it; of sums without inodes that have several names.
    pub own: Tally,
    /// What inodes with several names add here and take off, by sums.
    pub charged: Tally,
    /// Everything below, its own among it.
    pub subtree: Tally,
}

impl Part {
    /// What it comes to without the directories in it.
    pub fn alone(&self, rule: Rule) -> Tally {
        let mut alone = self.alone_loose(rule);
        alone.bound(rule);
        alone
    }

    /// The same, whatever the limit.
    pub(crate) fn alone_loose(&self, rule: Rule) -> Tally {
        let mut alone = self.itself.clone();
        alone.gather(&self.own, rule);
        alone.gather(&self.charged, rule);
        alone
    }
}

const ALONE: u64 = 1;
const CHARGED: u64 = 1 << 1;

/// The bytes of a directory's parts. Most have none below them, and no links: then these aren't written.
pub(crate) fn encode(parts: &[Part], declared: &Declared) -> Vec<u8> {
    let mut out = Writer::default();
    for (part, one) in parts.iter().zip(declared.all()) {
        let is_alone = part.subtree == part.alone(one.rule);
        let has_charges = !part.charged.is_empty();
        out.unsigned(if is_alone { ALONE } else { 0 } | if has_charges { CHARGED } else { 0 });
        part.itself.encode(&mut out);
        part.own.encode(&mut out);
        if has_charges {
            part.charged.encode(&mut out);
        }
        if !is_alone {
            part.subtree.encode(&mut out);
        }
    }
    out.0
}

/// A directory's parts from their bytes; `None` when they are none, or of other summaries.
pub(crate) fn decode(bytes: &[u8], declared: &Declared) -> Option<Vec<Part>> {
    let mut from = Reader(bytes);
    let part = |rule: Rule| {
        let marks = from.unsigned()?;
        let mut part = Part { itself: Tally::decode(&mut from)?, own: Tally::decode(&mut from)?, ..Part::default() };
        if marks & CHARGED != 0 {
            part.charged = Tally::decode(&mut from)?;
        }
        part.subtree = if marks & ALONE != 0 { part.alone(rule) } else { Tally::decode(&mut from)? };
        Some(part)
    };
    let mut part = part;
    let parts = declared.all().iter().map(|one| part(one.rule)).collect::<Option<Vec<Part>>>()?;
    from.is_done().then_some(parts)
}

/// An inode with several names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkedParts {
    /// Tells it from another that had the number before.
    pub generation: u32,
    /// Of its last reading: when these differ, its other names have to be read again.
    pub facts: u64,
    /// The directory of each name that is known, and what the inode adds by it.
    pub names: Vec<(Slot, Tallies)>,
    /// What was added at which directory on its account.
    pub charges: Vec<(Slot, Tallies)>,
}

impl LinkedParts {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.unsigned(self.generation.into());
        out.fixed(self.facts);
        for list in [&self.names, &self.charges] {
            out.unsigned(list.len() as u64);
            for (slot, tallies) in list {
                out.unsigned(slot.0.into());
                tallies.iter().for_each(|tally| tally.encode(&mut out));
            }
        }
        out.0
    }

    pub(crate) fn decode(bytes: &[u8], declared: &Declared) -> Option<LinkedParts> {
        let mut from = Reader(bytes);
        let (generation, facts) = (from.small()?, from.fixed()?);
        let mut list = || {
            let count = from.unsigned()?;
            if count > from.0.len() as u64 {
                return None;
            }
            let one = |from: &mut Reader<'_>| {
                let slot = Slot(from.small()?);
                let tallies = declared.all().iter().map(|_| Tally::decode(from)).collect::<Option<_>>()?;
                Some((slot, tallies))
            };
            (0..count).map(|_| one(&mut from)).collect::<Option<Vec<_>>>()
        };
        let (names, charges) = (list()?, list()?);
        from.is_done().then_some(LinkedParts { generation, facts, names, charges })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn declared() -> Declared {
        Declared::parse("[owner]\nby = \"owner\"\n[largest]\nby = \"largest\"\n").expect("it is understood")
    }

    fn tally(keys: &[u8]) -> Tally {
        let mut tally = Tally::default();
        for &key in keys {
            tally.entries.insert(vec![key; 20], [i64::from(key) + 1, 0, -5]);
        }
        tally
    }

    proptest! {
        #[test]
        fn parts_come_back(itself: Vec<u8>, own: Vec<u8>, charged: Vec<u8>, below: Option<Vec<u8>>) {
            let declared = declared();
            let mut parts = Vec::new();
            for one in declared.all() {
                let [itself, own, charged] = [&itself, &own, &charged].map(|keys| tally(keys));
                let mut part = Part { itself, own, charged, ..Part::default() };
                part.subtree = below.as_ref().map_or_else(|| part.alone(one.rule), |keys| tally(keys));
                parts.push(part);
            }
            let bytes = encode(&parts, &declared);
            prop_assert_eq!(decode(&bytes, &declared), Some(parts));
            prop_assert_eq!(decode(&bytes[..bytes.len() - 1], &declared), None);
        }

        #[test]
        fn links_come_back(generation: u32, facts: u64, names: Vec<(u32, Vec<u8>)>, charges: Vec<(u32, Vec<u8>)>) {
            let list = |some: Vec<(u32, Vec<u8>)>| {
                some.into_iter().map(|(slot, keys)| (Slot(slot), vec![tally(&keys), tally(&[])])).collect()
            };
            let linked = LinkedParts { generation, facts, names: list(names), charges: list(charges) };
            let bytes = linked.encode();
            prop_assert_eq!(LinkedParts::decode(&bytes, &declared()), Some(linked));
            prop_assert_eq!(LinkedParts::decode(&bytes[..bytes.len() - 1], &declared()), None);
        }

        #[test]
        fn any_bytes_are_parts_or_none(bytes: Vec<u8>) {
            let _ = decode(&bytes, &declared());
            let _ = LinkedParts::decode(&bytes, &declared());
        }
    }
}
