//! Tables of declared summaries. They are there while some are declared.

use redb::{Durability, ReadableDatabase, ReadableTable, TableDefinition};

use super::{FACTS, Store, StoreError};
use crate::{custom::books::Unwritten, links::LinkKey, nodes::Slot};

pub(super) const CUSTOM: TableDefinition<u32, &[u8]> = TableDefinition::new("custom");
pub(super) const CUSTOM_LINKED: TableDefinition<(u64, u64), &[u8]> = TableDefinition::new("custom linked");

impl Store {
    /// What a directory comes to by declared summaries, as it was written.
    pub(crate) fn custom(&self, slot: Slot) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(bytes) = self.staged().and_then(|staged| staged.custom.directories.get(&slot).cloned()) {
            return Ok(bytes);
        }
        self.get_of(|tables| tables.custom.as_ref(), slot.0)
    }

    /// The same of an inode that has several names.
    pub(crate) fn custom_linked(&self, key: LinkKey) -> Result<Option<Vec<u8>>, StoreError> {
        if let Some(bytes) = self.staged().and_then(|staged| staged.custom.linked.get(&key).cloned()) {
            return Ok(bytes);
        }
        self.get_of(|tables| tables.custom_linked.as_ref(), (key.subvolume, key.ino))
    }

    /// Forgets all declared summaries.
    pub(crate) fn forget_custom(&self) -> Result<(), StoreError> {
        self.write_staged()?;
        self.held.let_go(std::iter::empty());
        self.write("write", Durability::Immediate, |transaction| {
            transaction.delete_table(CUSTOM)?;
            transaction.delete_table(CUSTOM_LINKED)?;
            transaction.open_table(FACTS)?.remove("custom")?;
            Ok(())
        })
    }

    /// Bytes that declared summaries take, and of how many directories.
    pub fn custom_size(&self) -> Result<(u64, u64), StoreError> {
        self.write_staged()?;
        let failed = self.failed("read");
        let transaction = self.database.begin_read().map_err(|error| failed(error.into()))?;
        let table = match transaction.open_table(CUSTOM) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok((0, 0)),
            Err(error) => return Err(failed(error.into())),
        };
        let (mut bytes, mut directories) = (0, 0);
        for found in table.iter().map_err(|error| failed(error.into()))? {
            bytes += found.map_err(|error| failed(error.into()))?.1.value().len() as u64;
            directories += 1;
        }
        Ok((bytes, directories))
    }
}

/// A part of what is written in one go.
pub(super) fn write(transaction: &redb::WriteTransaction, custom: &Unwritten) -> Result<(), redb::Error> {
    if custom.is_empty() {
        return Ok(());
    }
    let mut table = transaction.open_table(CUSTOM)?;
    let mut directories: Vec<_> = custom.directories.iter().collect();
    directories.sort_unstable_by_key(|(slot, _)| **slot);
    for (slot, bytes) in directories {
        match bytes {
            Some(bytes) => table.insert(slot.0, bytes.as_slice())?,
            None => table.remove(slot.0)?,
        };
    }
    drop(table);
    let mut table = transaction.open_table(CUSTOM_LINKED)?;
    for (key, bytes) in &custom.linked {
        let key = (key.subvolume, key.ino);
        match bytes {
            Some(bytes) => table.insert(key, bytes.as_slice())?,
            None => table.remove(key)?,
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use redb::backends::InMemoryBackend;

    use super::*;
    use crate::{
        order::Map,
        store::{Batch, Facts},
    };

    /// A program that knows of no declared summaries goes on counting without them: then they are no more believed.
    #[test]
    fn summaries_that_another_program_left_behind_are_not_believed() {
        let store = Store::with_backend(InMemoryBackend::new(), "memory").expect("a store");
        let facts = |count, declared| Facts { count, declared, ..Facts::default() };
        let custom = Unwritten { directories: Map::from_iter([(Slot(1), Some(vec![7]))]), ..Unwritten::default() };
        store.commit_with(&Batch::default(), &custom, &facts(5, 8), true).expect("a commit");
        assert_eq!(store.facts().expect("facts").declared, 8);
        assert_eq!(store.custom(Slot(1)).expect("it reads"), Some(vec![7]));
        store.commit(&Batch::default(), &facts(6, 0), true).expect("a commit");
        assert_eq!(store.facts().expect("facts").declared, 0);
        store.commit(&Batch::default(), &facts(7, 8), true).expect("a commit");
        assert_eq!(store.facts().expect("facts").declared, 8);
        store.forget_custom().expect("they go");
        assert_eq!(store.facts().expect("facts").declared, 0);
        assert_eq!(store.custom(Slot(1)).expect("it reads"), None);
    }
}
