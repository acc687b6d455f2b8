//! The tree of directories is made again of a store.

use std::{sync::mpsc, thread};

use crate::{
    nodes::{Known, Nodes, Slot, Unfit},
    store::{Store, StoreError},
};

/// Records that are handed over at a time when a store is opened, and how often that may be ahead.
const BATCH: usize = 1024;
const BATCHES_READ: usize = 4;

/// The directories of a store. One thread reads while another one puts together; where there is no other, it does both.
pub(super) fn tree_of(store: &Store, reader: thread::Builder) -> Result<Nodes, StoreError> {
    let mut nodes = Nodes::with_room(store.directories()?);
    let names = nodes.name_hash().clone();
    let unfit = |unfit: Unfit| {
        store.damaged(&match unfit {
            Unfit::Twice(slot) => format!("directory {} is there twice", slot.0),
            Unfit::Nowhere(slot) => format!("directory {} is in none", slot.0),
        })
    };
    let (read, others) = mpsc::sync_channel::<Vec<(Slot, Known)>>(BATCHES_READ);
    let hash = names.clone();
    thread::scope(|scope| {
        let reading = reader.spawn_scoped(scope, move || {
            let mut batch = Vec::with_capacity(BATCH);
            store.each_known(&hash, |slot, known| {
                batch.push((slot, known));
                // Where nobody takes it, it is known to be damaged.
                batch.len() < BATCH || read.send(std::mem::replace(&mut batch, Vec::with_capacity(BATCH))).is_ok()
            })?;
            let _ = read.send(batch);
            Ok(())
        });
        let Ok(reading) = reading else {
            let mut restored = Ok(());
            store.each_known(&names, |slot, known| {
                restored = nodes.restore(slot, &known);
                restored.is_ok()
            })?;
            return restored.map_err(unfit);
        };
        for (slot, known) in others.into_iter().flatten() {
            nodes.restore(slot, &known).map_err(unfit)?;
        }
        reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    nodes.restored().map_err(unfit)?;
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        identity::NodeId,
        record::Record,
        store::{Batch, Facts},
    };

    /// No machine has room for such a stack.
    const REFUSED: usize = 1 << 50;

    #[test]
    fn a_store_is_read_without_another_thread() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(&folder.path().join("store")).expect("a store");
        let record = |slot: u32, parent: Option<u32>| {
            let id = NodeId { subvolume: 0, ino: 100 + u64::from(slot), generation: 1 };
            Record { id, parent: parent.map(Slot), name: format!("{slot}").into_bytes().into(), ..Record::default() }
        };
        let last = 3 * BATCH as u32;
        let mut batch = Batch::default();
        for slot in 0..=last {
            batch.records.insert(Slot(slot), Some(record(slot, slot.checked_sub(1).map(|before| before / 2))));
        }
        store.commit(&batch, &Facts::default(), true).expect("a commit");
        let read = |reader| {
            let nodes = tree_of(&store, reader).expect("it reads");
            let told: Vec<_> = (0..=last).map(|slot| (nodes.id(Slot(slot)), nodes.parent(Slot(slot)))).collect();
            (nodes.len(), told)
        };
        let alone = read(thread::Builder::new().stack_size(REFUSED));
        assert_eq!((alone.0, alone.1[5].1), (last as usize + 1, Some(Slot(2))));
        assert!(alone == read(thread::Builder::new()));
        batch.records.insert(Slot(last + 1), Some(record(5, Some(2))));
        store.commit(&batch, &Facts::default(), true).expect("a commit");
        for reader in [thread::Builder::new(), thread::Builder::new().stack_size(REFUSED)] {
            let error = tree_of(&store, reader).expect_err("one is there twice").to_string();
            assert!(error.contains("is there twice"), "{error}");
        }
    }
}
