//! What is kept between two writes, so that a question that was asked before costs no search: the open tables, and records.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{Database, ReadOnlyTable, ReadableDatabase, TableError};

use super::{
    DIRECTORIES, HISTORIES, LINKED, PLACES,
    custom::{CUSTOM, CUSTOM_LINKED},
};
use crate::{
    nodes::{Slot, SlotMap},
    record::Record,
};

/// Bytes of records in memory, at most: some 4,000 of them.
const RECORDS_BYTES_MAX: usize = 2 << 20;
/// What a record takes beside its name and its links.
const RECORD_BYTES: usize = size_of::<Record>() + 64;

/// The tables as they stood at one moment. While they are held the file can't give their pages to others, so they are let go before a write, or
/// behind the one that others are answered beside.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) directories: ReadOnlyTable<u32, &'static [u8]>,
    pub(super) linked: ReadOnlyTable<(u64, u64), &'static [u8]>,
    pub(super) places: ReadOnlyTable<(u64, u64), &'static [u8]>,
    pub(super) histories: ReadOnlyTable<u32, &'static [u8]>,
    /// Of declared summaries, where some are kept.
    pub(super) custom: Option<ReadOnlyTable<u32, &'static [u8]>>,
    pub(super) custom_linked: Option<ReadOnlyTable<(u64, u64), &'static [u8]>>,
}

fn if_there<T>(table: Result<T, TableError>) -> Result<Option<T>, redb::Error> {
    match table {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What is held.
#[derive(Debug, Default)]
pub(super) struct Held(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    snapshot: Option<Arc<Snapshot>>,
    records: SlotMap<Arc<Record>>,
    bytes: usize,
}

impl Held {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tables as they are.
    pub(super) fn snapshot(&self, database: &Database) -> Result<Arc<Snapshot>, redb::Error> {
        let mut state = self.lock();
        if let Some(snapshot) = &state.snapshot {
            return Ok(Arc::clone(snapshot));
        }
        let now = database.begin_read()?;
        let snapshot = Arc::new(Snapshot {
            directories: now.open_table(DIRECTORIES)?,
            linked: now.open_table(LINKED)?,
            places: now.open_table(PLACES)?,
            histories: now.open_table(HISTORIES)?,
            custom: if_there(now.open_table(CUSTOM))?,
            custom_linked: if_there(now.open_table(CUSTOM_LINKED))?,
        });
        state.snapshot = Some(Arc::clone(&snapshot));
        Ok(snapshot)
    }

    /// A record that was read before, and hasn't been written since.
    pub(super) fn record(&self, slot: Slot) -> Option<Arc<Record>> {
        self.lock().records.get(&slot).cloned()
    }

    /// Keeps a record. When there is no room all others go: who asks for more than fits asks for each once.
    pub(super) fn keep(&self, slot: Slot, record: &Arc<Record>) {
        let bytes = RECORD_BYTES + record.name.len() + size_of_val(&record.links[..]);
        let mut state = self.lock();
        if bytes > RECORDS_BYTES_MAX || state.records.contains_key(&slot) {
            return;
        }
        if state.bytes + bytes > RECORDS_BYTES_MAX {
            (state.records, state.bytes) = (SlotMap::default(), 0);
        }
        state.records.insert(slot, Arc::clone(record));
        state.bytes += bytes;
    }

    /// Before something is written: the tables as they were are let go, and the records of these directories.
    pub(super) fn let_go<'a>(&self, slots: impl Iterator<Item = &'a Slot>) {
        let mut state = self.lock();
        state.snapshot = None;
        for slot in slots {
            if let Some(record) = state.records.remove(slot) {
                state.bytes -= RECORD_BYTES + record.name.len() + size_of_val(&record.links[..]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded() {
        let held = Held::default();
        let large = Arc::new(Record { links: vec![7; RECORDS_BYTES_MAX / 8], ..Record::default() });
        held.keep(Slot(1), &large);
        assert!(held.record(Slot(1)).is_none());
        let half =
            Arc::new(Record { name: vec![b'x'; RECORDS_BYTES_MAX / 2 - 2 * RECORD_BYTES].into(), ..Record::default() });
        (1..=2).for_each(|slot| held.keep(Slot(slot), &half));
        held.keep(Slot(2), &half);
        assert!((1..=2).all(|slot| held.record(Slot(slot)).is_some()));
        held.let_go([Slot(1)].iter());
        held.keep(Slot(3), &half);
        assert_eq!([1, 2, 3].map(|slot| held.record(Slot(slot)).is_some()), [false, true, true]);
        held.keep(Slot(4), &half);
        assert_eq!([2, 3, 4].map(|slot| held.record(Slot(slot)).is_some()), [false, false, true]);
    }
}
