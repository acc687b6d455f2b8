//! What is to be written in one go.

use std::collections::BTreeMap;

use crate::{
    history::History,
    links::{LinkKey, Linked},
    nodes::{Slot, SlotMap},
    order::Map,
    places::{Block, INODES_PER_BLOCK},
    record::Record,
};

/// What is to be written in one go: all of it, or nothing.
#[derive(Debug, Default)]
pub struct Batch {
    /// Directories, and those that are gone.
    pub records: SlotMap<Option<Record>>,
    finished: Finished,
    /// Inodes with several names, and those that have them no longer.
    pub linked: Map<LinkKey, Option<Linked>>,
    /// Where inodes with one name are.
    pub places: BTreeMap<(u64, u64), Slot>,
    /// Totals over time, as the store holds them: in memory they take six times as much.
    histories: SlotMap<Option<Vec<u8>>>,
    history_bytes: usize,
}

/// What is to be written of a directory.
pub(super) enum Row<'a> {
    Record(&'a Record),
    Bytes(&'a [u8]),
    Gone,
}

impl Batch {
    /// Leaves nothing to write, and room for as much.
    pub(crate) fn clear(&mut self) {
        self.records.clear();
        self.finished.clear();
        self.linked.clear();
        self.places.clear();
        self.histories.clear();
        self.history_bytes = 0;
    }

    /// Puts down the totals of a directory over time, or that there are none any more.
    pub fn put_history(&mut self, slot: Slot, history: Option<&History>) {
        let history = history.map(|history| {
            let mut bytes = history.encode();
            bytes.shrink_to_fit();
            bytes
        });
        let bytes = |history: &Option<Vec<u8>>| history.as_ref().map_or(0, Vec::len);
        self.history_bytes += bytes(&history);
        if let Some(before) = self.histories.insert(slot, history) {
            self.history_bytes -= bytes(&before);
        }
    }

    /// What was put down so: `None` where nothing was.
    pub(crate) fn history(&self, slot: Slot) -> Option<Option<History>> {
        let history = self.histories.get(&slot)?;
        Some(history.as_ref().and_then(|bytes| History::decode(bytes)))
    }

    pub(super) fn histories(&self) -> impl Iterator<Item = (Slot, Option<&[u8]>)> {
        self.histories.iter().map(|(&slot, history)| (slot, history.as_deref()))
    }

    /// Puts down a record that isn't likely to change before it is written: it takes a quarter of the room.
    pub(crate) fn finish(&mut self, slot: Slot, record: &Record) {
        self.records.remove(&slot);
        self.finished.put(slot, record);
    }

    /// What is to be written of a directory: its record, or that it is gone. `None` where it stays as it is.
    pub(crate) fn record(&self, slot: Slot) -> Option<Option<Record>> {
        match self.records.get(&slot) {
            Some(record) => Some(record.clone()),
            None => self.finished.get(slot).map(Record::decode),
        }
    }

    /// The same; it is to be put down again.
    pub(crate) fn take(&mut self, slot: Slot) -> Option<Option<Record>> {
        self.records.remove(&slot).or_else(|| self.finished.take(slot).map(Some))
    }

    pub(crate) fn holds(&self, slot: Slot) -> bool {
        self.records.contains_key(&slot) || self.finished.get(slot).is_some()
    }

    /// A directory is gone.
    pub(crate) fn forget(&mut self, slot: Slot) {
        self.finished.places.remove(&slot);
        self.records.insert(slot, None);
    }

    /// The bytes that records and totals over time take in memory, nearly.
    pub(crate) fn bytes(&self) -> usize {
        self.records.len() * size_of::<(Slot, Option<Record>)>() + self.finished.bytes.len() + self.history_bytes
    }

    /// Those that inodes with several names take, nearly: some have more names than that.
    pub(crate) fn linked_bytes(&self) -> usize {
        const NAMES: usize = 16;
        let names = NAMES * size_of::<Slot>() + NAMES * size_of::<(Slot, i32)>();
        self.linked.len() * (size_of::<(LinkKey, Option<Linked>)>() + names)
    }

    /// The directories that are written, neighbours beside each other: they lie in the same page.
    pub(super) fn rows(&self) -> Vec<(Slot, Row<'_>)> {
        let records = self.records.iter().map(|(slot, record)| (*slot, record.as_ref().map_or(Row::Gone, Row::Record)));
        let finished = self.finished.all().map(|(slot, bytes)| (slot, Row::Bytes(bytes)));
        let mut rows: Vec<_> = records.chain(finished).collect();
        rows.sort_unstable_by_key(|(slot, _)| *slot);
        rows
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.records.keys().chain(self.finished.places.keys())
    }

    /// Puts down where the inodes of one block are, as far as that is here.
    pub(crate) fn put_places(&self, subvolume: u64, ino: u64, block: &mut Block) {
        let first = ino - ino % INODES_PER_BLOCK;
        let all = (subvolume, first)..=(subvolume, first + (INODES_PER_BLOCK - 1));
        self.places.range(all).for_each(|(&(_, ino), &slot)| block.set(ino, slot));
    }

    /// Nothing to write.
    pub fn is_empty(&self) -> bool {
        let has_records = !self.records.is_empty() || !self.finished.places.is_empty();
        !has_records && self.linked.is_empty() && self.places.is_empty() && self.histories.is_empty()
    }
}

/// Records as the store holds them, one behind the other.
#[derive(Debug, Default)]
struct Finished {
    bytes: Vec<u8>,
    /// Where each begins and ends. Numbers mostly rise, so what is put down comes behind the rest.
    places: BTreeMap<Slot, (usize, usize)>,
}

impl Finished {
    fn put(&mut self, slot: Slot, record: &Record) {
        let from = self.bytes.len();
        record.encode_to(&mut self.bytes);
        self.places.insert(slot, (from, self.bytes.len()));
    }

    fn get(&self, slot: Slot) -> Option<&[u8]> {
        self.places.get(&slot).map(|&place| self.at(place))
    }

    fn take(&mut self, slot: Slot) -> Option<Record> {
        let place = self.places.remove(&slot)?;
        Record::decode(self.at(place))
    }

    fn at(&self, (from, to): (usize, usize)) -> &[u8] {
        &self.bytes[from..to]
    }

    fn all(&self) -> impl Iterator<Item = (Slot, &[u8])> {
        self.places.iter().map(|(slot, place)| (*slot, self.at(*place)))
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        history::{Noting, Point},
        links::Charges,
        totals::Sums,
        whole_for::WholeFor,
    };

    fn record(name: &str) -> Record {
        Record { name: name.as_bytes().into(), ..Record::default() }
    }

    #[test]
    fn what_is_finished_is_found_and_may_be_taken_back() {
        let mut batch = Batch::default();
        batch.records.insert(Slot(2), Some(record("open")));
        for (slot, name) in [(2, "two"), (1, "one"), (7, "seven"), (1, "one again")] {
            batch.finish(Slot(slot), &record(name));
        }
        assert!(!batch.is_empty() && batch.records.is_empty());
        let found =
            |batch: &Batch, slot| batch.record(Slot(slot)).map(|record| record.map(|record| record.name.into_vec()));
        let named = |name: &str| Some(Some(name.as_bytes().to_vec()));
        assert_eq!([1, 2, 7].map(|slot| found(&batch, slot)), ["one again", "two", "seven"].map(named));
        assert_eq!(found(&batch, 3), None);
        assert_eq!(batch.take(Slot(7)), Some(Some(record("seven"))));
        assert_eq!((batch.take(Slot(7)), batch.holds(Slot(7))), (None, false));
        batch.forget(Slot(2));
        assert_eq!((found(&batch, 2), batch.holds(Slot(2))), (Some(None), true));
        batch.clear();
        assert!(batch.is_empty() && batch.rows().is_empty());
    }

    #[test]
    fn totals_over_time_take_what_the_store_takes() {
        let mut history = History::default();
        for at in (1_700_000_000..1_700_000_000 + 100 * 600).step_by(600) {
            let noting = Noting { at, old_by: at, asked_at: at, begins: true, ends_future: false };
            let sums = Sums { files: at, bytes: at * 4096, blocks: at * 8, ..Sums::default() };
            assert!(history.add(Point::of(&sums, at, WholeFor::Owner(1000)), noting));
        }
        let (mut batch, stored) = (Batch::default(), history.encode().len());
        assert!(stored * 2 < size_of_val(history.points()), "{stored}");
        for slot in [1, 2, 1, 3] {
            batch.put_history(Slot(slot), Some(&history));
        }
        batch.put_history(Slot(3), None);
        assert_eq!(batch.bytes(), 2 * stored);
        assert_eq!([1, 3, 4].map(|slot| batch.history(Slot(slot))), [Some(Some(history)), Some(None), None]);
        batch.clear();
        assert_eq!(batch.bytes(), 0);
    }

    #[test]
    fn inodes_with_several_names_take_no_more_than_is_said() {
        let mut batch = Batch::default();
        for ino in 0..100 {
            let places: Vec<Slot> = (0..10).map(Slot).collect();
            let times = places.iter().map(|&slot| (slot, 1)).collect();
            let linked = Linked { places, charges: Charges { times, ..Charges::default() }, ..Linked::default() };
            batch.linked.insert(LinkKey { subvolume: 0, ino }, Some(linked));
        }
        let heap = |linked: &Option<Linked>| {
            let Linked { places, charges, .. } = linked.as_ref().expect("one");
            places.capacity() * size_of::<Slot>() + charges.times.capacity() * size_of::<(Slot, i32)>()
        };
        let taken = |(key, linked)| size_of_val::<LinkKey>(key) + size_of_val(linked) + heap(linked);
        let taken: usize = batch.linked.iter().map(taken).sum();
        assert!((taken..2 * taken).contains(&batch.linked_bytes()), "{} for {taken}", batch.linked_bytes());
        batch.clear();
        assert_eq!(batch.linked_bytes(), 0);
    }

    #[test]
    fn rows_are_in_order_and_each_is_there_once() {
        let mut batch = Batch::default();
        batch.finish(Slot(5), &record("five"));
        batch.finish(Slot(3), &record("three"));
        batch.records.insert(Slot(4), Some(record("four")));
        batch.forget(Slot(3));
        let rows = batch.rows();
        let told = rows.iter().map(|(slot, row)| match row {
            Row::Record(record) => (slot.0, record.encode()),
            Row::Bytes(bytes) => (slot.0, bytes.to_vec()),
            Row::Gone => (slot.0, Vec::new()),
        });
        assert_eq!(
            told.collect::<Vec<_>>(),
            [(3, Vec::new()), (4, record("four").encode()), (5, record("five").encode())]
        );
        assert_eq!(batch.slots().count(), rows.len());
    }
}
