//! Stores of the versions before, brought to this one.

use redb::{ReadableTable, WriteTransaction};

use super::{FACTS, LINKED, VERSION};
use crate::{
    code::Reader,
    links::{Charges, Linked},
    nodes::Slot,
    totals::Sums,
};

/// Those that are taken over. 3 has less of inodes with several names, and all of them tell at length what these add where. It and 4 count
/// directories as open to all that shut out their owner or their group, so that all has to be read again. 5 has less of histories.
pub(super) const VERSIONS_BEFORE: std::ops::RangeInclusive<u32> = 3..=6;
/// Up to this one.
pub(super) const LAST_MISTAKEN: u32 = 4;
/// So many inodes are held at a time.
const AT_ONCE: usize = 4096;

/// From then on it is none for who knows that version alone.
pub(super) fn take_over(transaction: &WriteTransaction, version: u32) -> Result<(), redb::Error> {
    let mut linked = transaction.open_table(LINKED)?;
    let mut from = Some((0, 0));
    while let Some(first) = from {
        let some = linked.range(first..)?.take(AT_ONCE).map(|row| {
            let (key, bytes) = row?;
            // What can't be read can't be read later on.
            let bytes = decode(bytes.value()).map_or_else(Vec::new, |linked| linked.encode());
            Ok::<_, redb::StorageError>((key.value(), bytes))
        });
        let some = some.collect::<Result<Vec<_>, _>>()?;
        for (key, bytes) in &some {
            linked.insert(key, bytes.as_slice())?;
        }
        from = some.last().filter(|_| some.len() == AT_ONCE).and_then(|((subvolume, ino), _)| behind(*subvolume, *ino));
    }
    let mut facts = transaction.open_table(FACTS)?;
    facts.insert("version", VERSION.to_le_bytes().as_slice())?;
    if version <= LAST_MISTAKEN {
        facts.insert("partial", [1].as_slice())?;
    }
    Ok(())
}

fn behind(subvolume: u64, ino: u64) -> Option<(u64, u64)> {
    ino.checked_add(1).map(|next| (subvolume, next)).or_else(|| subvolume.checked_add(1).map(|next| (next, 0)))
}

/// An inode with several names, as they had it: with the sums of each charge.
fn decode(bytes: &[u8]) -> Option<Linked> {
    let mut from = Reader(bytes);
    let mut linked = Linked::decode_names(&mut from)?;
    let mut charges = Charges { weight: linked.weight, ..Charges::default() };
    for _ in 0..from.unsigned()? {
        let (slot, sums) = (Slot(from.small()?), Sums::of_fields(from.sparse()?));
        if sums.freed_blocks != 0 {
            charges.freed_at = Some(slot);
        }
        let times = sums.inodes().checked_div(linked.weight.inodes())?;
        if times != 0 {
            charges.times.push((slot, times.try_into().ok()?));
        }
    }
    linked.charges = charges;
    // Version 3 had none.
    linked.facts = if from.is_done() { 0 } else { from.fixed()? };
    from.is_done().then_some(linked)
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use proptest::{collection::btree_map, prelude::*};

    use super::*;
    use crate::code::Writer;

    /// As version 6 wrote it.
    pub(in crate::store) fn encode(linked: &Linked) -> Vec<u8> {
        let mut out = Writer::default();
        linked.encode_names(&mut out);
        let mut charges: BTreeMap<Slot, Sums> = BTreeMap::new();
        linked.charges.sums().for_each(|(slot, sums)| *charges.entry(slot).or_default() += sums);
        out.unsigned(charges.len() as u64);
        for (slot, sums) in charges {
            out.unsigned(slot.0.into());
            out.sparse(&sums.fields());
        }
        out.fixed(linked.facts);
        out.0
    }

    fn any_linked() -> impl Strategy<Value = Linked> {
        let times = btree_map(any::<u32>(), -1000..1000_i32, 0..5);
        let places = proptest::collection::vec(any::<u32>(), 0..5);
        let facts = (0..1_i64 << 40, any::<bool>(), any::<u64>());
        (facts, places, times, any::<Option<u32>>()).prop_map(|((bytes, is_file, facts), mut places, times, freed)| {
            places.sort_unstable();
            let (files, others) = (is_file.into(), (!is_file).into());
            let weight = Sums { bytes, blocks: bytes / 512 + 1, files, others, ..Sums::default() };
            let times = times.into_iter().filter(|(_, times)| *times != 0).map(|(slot, times)| (Slot(slot), times));
            let charges = Charges { weight, times: times.collect(), freed_at: freed.map(Slot) };
            let places = places.into_iter().map(Slot).collect();
            Linked { generation: 7, weight, links: 3, facts, places, charges }
        })
    }

    proptest! {
        #[test]
        fn linked_inodes_of_versions_before_come_back(linked in any_linked()) {
            let bytes = encode(&linked);
            prop_assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
            let first = decode(&bytes[..bytes.len() - 8]);
            prop_assert_eq!(first, Some(Linked { facts: 0, ..linked.clone() }), "as version 3 had it");
            prop_assert_eq!(decode(&bytes), Some(linked));
        }

        #[test]
        fn any_bytes_are_one_or_none(bytes: Vec<u8>) {
            let _ = decode(&bytes);
        }
    }
}
