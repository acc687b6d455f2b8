//! Power that fails while the store is written: what was acknowledged is there, and what has changed since is found.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard},
};

use onesweep_summary::{
    store::Store,
    summaries::{Freshness, Summaries, SummaryError},
};
use redb::{StorageBackend, backends::InMemoryBackend};

use crate::{
    agrees, opened,
    tree::{ROOT, Tree, id},
};

/// What a disk writes as a whole.
const SECTOR: usize = 512;

/// What reaches the disk of what was written and not yet flushed when the power fails.
#[derive(Clone, Copy, Debug)]
enum Kept {
    Nothing,
    All,
    /// All but the last write, and of that so many sectors.
    Cut(usize),
    /// Each sector or not, by chance.
    Some(u64),
}

/// A disk whose power fails at some write, cut or flush.
#[derive(Clone, Debug)]
struct Disk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    flushed: Vec<u8>,
    /// With what wasn't flushed yet.
    seen: Vec<u8>,
    unflushed: Vec<(usize, Vec<u8>)>,
    done: u64,
    fails_at: u64,
}

impl Disk {
    fn new(fails_at: u64) -> Disk {
        Disk(Arc::new(Mutex::new(State { fails_at, ..State::default() })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nobody panics with it")
    }

    /// One further thing to do, if there is power.
    fn step(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        state.done += 1;
        if state.done > state.fails_at { Err(io::Error::other("no power")) } else { Ok(state) }
    }

    /// What is found when there is power again.
    fn found(&self, kept: Kept) -> InMemoryBackend {
        let state = self.state();
        let mut bytes = state.flushed.clone();
        let mut random = match kept {
            Kept::Some(seed) => seed | 1,
            _ => 1,
        };
        for (number, (at, data)) in state.unflushed.iter().enumerate() {
            let is_last = number + 1 == state.unflushed.len();
            for (sector, data) in data.chunks(SECTOR).enumerate() {
                let at = at + sector * SECTOR;
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let is_kept = match kept {
                    Kept::Nothing => false,
                    Kept::All => true,
                    Kept::Cut(sectors) => !is_last || sector < sectors,
                    Kept::Some(_) => random % 2 == 0,
                };
                if is_kept {
                    bytes.resize(bytes.len().max(at + data.len()), 0);
                    bytes[at..at + data.len()].copy_from_slice(data);
                }
            }
        }
        let found = InMemoryBackend::new();
        found.set_len(bytes.len() as u64).expect("room");
        found.write(0, &bytes).expect("room");
        found
    }

    /// Sectors of the last write.
    fn last_sectors(&self) -> usize {
        self.state().unflushed.last().map_or(0, |(_, data)| data.len().div_ceil(SECTOR))
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.state().seen.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let at = offset as usize;
        out.copy_from_slice(&self.state().seen[at..at + out.len()]);
        Ok(())
    }

    /// Lengths are kept at once, as by a journal: more is zeros, and less is gone.
    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut state = self.step()?;
        state.seen.resize(len as usize, 0);
        state.flushed.resize(len as usize, 0);
        state.unflushed.retain(|(at, data)| at + data.len() <= len as usize);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.step()?;
        state.flushed = state.seen.clone();
        state.unflushed.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        // The write that the power fails in may reach the disk in part.
        let mut state = self.state();
        let has_power = state.done < state.fails_at;
        if has_power || state.done == state.fails_at {
            state.unflushed.push((offset as usize, data.to_vec()));
        }
        state.done += 1;
        if !has_power {
            return Err(io::Error::other("no power"));
        }
        let at = offset as usize;
        state.seen[at..at + data.len()].copy_from_slice(data);
        Ok(())
    }
}

/// Changes, questions and durable writes until the power fails. The number of the last harvest that was acknowledged; `None`
/// when not even the store was made: it gets its name after that.
fn until_it_fails(tree: &Tree, disk: &Disk) -> Option<u32> {
    let store = Store::with_backend(disk.clone(), "no file").ok()?;
    let mut acknowledged = 0;
    let mut tracked = match Summaries::open(store, (tree.clone(), tree.clone()), id(ROOT), b"tree") {
        Err(SummaryError::Store(_)) => return Some(acknowledged),
        opened => opened.expect("nothing else fails"),
    };
    for round in 0..6 {
        let asked = if round == 0 { ROOT } else { tree.state().any_directory() };
        match tracked.query(id(asked), Freshness::Exact) {
            Err(SummaryError::Store(_)) => return Some(acknowledged),
            answer => _ = answer.expect("nothing else fails"),
        }
        // Not durable: more of the same file is written.
        let is_durable = round % 3 != 1;
        if tracked.commit(is_durable).is_err() {
            return Some(acknowledged);
        }
        if is_durable {
            acknowledged = tracked.ledger().store().facts().map_or(acknowledged, |facts| facts.count);
        }
        (0..6).for_each(|_| tree.state().change());
    }
    Some(acknowledged)
}

fn taken_up(tree: &Tree, disk: &Disk, kept: Kept, acknowledged: u32, when: &str) {
    let when = format!("{when}, {kept:?}, {:?}", tree.state().method);
    let store = Store::with_backend(disk.found(kept), "no file");
    let store = store.unwrap_or_else(|error| panic!("{when}: {error}"));
    let found = store.facts().expect("facts").count;
    assert!(found >= acknowledged, "{when}: {found} of {acknowledged}");
    tree.state().told.clear();
    tree.state().ignored.clear();
    let mut tracked = opened(tree, store);
    let directories: Vec<u64> = tree.state().directories.keys().copied().collect();
    for directory in directories {
        agrees(&mut tracked, tree, directory, &when);
    }
    tracked.commit(true).expect("it is written");
}

/// At each write, cut and flush, with each sector of the last write or not.
#[test]
fn what_was_acknowledged_is_there_after_the_power_has_failed() {
    let seeds = if std::env::var_os("ONESWEEP_TEST_LONG").is_some() { 48 } else { 3 };
    let (mut failed, mut later) = (0, 0);
    for seed in 0..seeds {
        for fails_at in 0.. {
            let tree = if seed % 3 == 2 { Tree::with_summaries(seed) } else { Tree::new(seed) };
            let disk = Disk::new(fails_at);
            let acknowledged = until_it_fails(&tree, &disk);
            let has_failed = disk.state().done > fails_at;
            let when = format!("seed {seed}, at {fails_at}");
            let mut all = vec![Kept::Nothing, Kept::All, Kept::Some(seed * 1000 + fails_at)];
            all.extend((1..disk.last_sectors()).map(Kept::Cut));
            for kept in all.into_iter().filter(|_| acknowledged.is_some()) {
                let acknowledged = acknowledged.unwrap_or(0);
                taken_up(&tree, &disk, kept, acknowledged, &when);
            }
            if !has_failed {
                break;
            }
            failed += 1;
            later += u64::from(acknowledged.is_some_and(|count| count > 0));
        }
    }
    assert!(failed > 20 && later > 10, "{failed} and {later}");
}
