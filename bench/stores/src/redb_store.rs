//! redb, as `crates/summary` uses it.

use std::{fs, path::Path};

use redb::{Database, Durability, ReadableDatabase, TableDefinition};

use crate::{Fallible, Store};

const DIRECTORIES: TableDefinition<u32, &[u8]> = TableDefinition::new("directories");
const CACHE_BYTES: usize = 16 << 20;

pub struct Redb(Database);

impl Store for Redb {
    const NAME: &'static str = "redb";

    fn open(dir: &Path, _: u32) -> Fallible<Self> {
        Ok(Self(Database::builder().set_cache_size(CACHE_BYTES).create(dir.join("store"))?))
    }

    fn commit(&self, records: &mut dyn Iterator<Item = (u32, Vec<u8>)>, durable: bool) -> Fallible<()> {
        let mut transaction = self.0.begin_write()?;
        transaction.set_durability(if durable { Durability::Immediate } else { Durability::None })?;
        let mut table = transaction.open_table(DIRECTORIES)?;
        for (key, record) in records {
            table.insert(key, record.as_slice())?;
        }
        drop(table);
        Ok(transaction.commit()?)
    }

    fn read(&self, key: u32) -> Fallible<usize> {
        let table = self.0.begin_read()?.open_table(DIRECTORIES)?;
        Ok(table.get(key)?.map_or(0, |record| record.value().len()))
    }

    fn compacted(mut self, dir: &Path) -> Fallible<u64> {
        while self.0.compact()? {}
        Ok(fs::metadata(dir.join("store"))?.len())
    }
}
