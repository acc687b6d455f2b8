//! LMDB by heed. A commit that need not be on the disk is one without a sync; a durable one syncs then.

use std::{fs, path::Path};

use heed::{
    CompactionOption, Database, Env, EnvFlags, EnvOpenOptions,
    byteorder::BigEndian,
    types::{Bytes, U32},
};

use crate::{Fallible, Store};

pub struct Lmdb {
    env: Env,
    directories: Database<U32<BigEndian>, Bytes>,
}

impl Store for Lmdb {
    const NAME: &'static str = "LMDB (heed)";

    fn open(dir: &Path, records: u32) -> Fallible<Self> {
        let mut options = EnvOpenOptions::new();
        options.map_size((1 << 30) + records as usize * 4096);
        // SAFETY: nobody else has the file, and NO_SYNC is made good by `force_sync`.
        let env = unsafe { options.flags(EnvFlags::NO_SYNC).open(dir)? };
        let mut transaction = env.write_txn()?;
        let directories = env.create_database(&mut transaction, None)?;
        transaction.commit()?;
        Ok(Self { env, directories })
    }

    fn commit(&self, records: &mut dyn Iterator<Item = (u32, Vec<u8>)>, durable: bool) -> Fallible<()> {
        let mut transaction = self.env.write_txn()?;
        for (key, record) in records {
            self.directories.put(&mut transaction, &key, &record)?;
        }
        transaction.commit()?;
        if durable {
            self.env.force_sync()?;
        }
        Ok(())
    }

    fn read(&self, key: u32) -> Fallible<usize> {
        let transaction = self.env.read_txn()?;
        Ok(self.directories.get(&transaction, &key)?.map_or(0, <[u8]>::len))
    }

    fn compacted(self, dir: &Path) -> Fallible<u64> {
        let copy = dir.join("compacted");
        drop(self.env.copy_to_path(&copy, CompactionOption::Enabled)?);
        Ok(fs::metadata(copy)?.len())
    }
}
