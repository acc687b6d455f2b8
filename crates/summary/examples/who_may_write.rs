//! A summary of one's own: `who_may_write PATH STORE` tells what is below PATH by who may write it, and once more after each line of
//! standard input, for which only what has changed is read. Needs root.
//!
//! What is to be written for it is the type with its [`Summarise`], and [`Declared::add`]; the rest is as without it.

use std::{collections::BTreeMap, error::Error, io, os::fd::AsFd, path::Path, sync::Arc};

use onesweep_summary::{
    custom::{
        declare::Declared,
        keys::{Add, Entry, Summarise, amounts},
        tally::{Amounts, Merge, Rule},
        view::view,
    },
    file_system::FileSystem,
    store::Store,
    summaries::{Freshness, Summaries},
    tracker::Fanotify,
    volume::Volume,
};
use onesweep_sys::files::{self, EntryType};

/// Its name among those that are declared.
const NAME: &str = "who-may-write";
/// Another one when the keys mean something else: then all is harvested anew.
const VERSION: u64 = 1;

/// Keys are the widest circle of those who may write an entry.
#[derive(Debug)]
struct WhoMayWrite;

impl Summarise for WhoMayWrite {
    fn tell(&self, entry: &Entry<'_>, add: Add<'_>) {
        let key: &[u8] = match entry.stat.mode {
            // Everybody may write what it leads to, or nobody: that isn't its own to say.
            _ if entry.stat.file_type() == EntryType::Symlink => b"(symbolic link)",
            mode if mode & 0o002 != 0 => b"everybody",
            mode if mode & 0o020 != 0 => b"group",
            mode if mode & 0o200 != 0 => b"owner",
            _ => b"nobody",
        };
        add(key, amounts(entry.stat));
    }
}

/// A file system whose changes are told, by the summary above.
pub(crate) struct Kept(Summaries<Arc<Volume>, Fanotify>);

impl Kept {
    /// The file system at `path`, kept in a store.
    pub(crate) fn open(path: &Path, store: &Path) -> Result<Kept, Box<dyn Error>> {
        let mut declared = Declared::default();
        declared.add(NAME, Rule { merge: Merge::Sum, limit: 16 }, VERSION, Arc::new(WhoMayWrite))?;
        let volume = Arc::new(Volume::of(path)?.with_summaries(Some(Arc::new(declared))));
        // Before anything is read, so that nothing is missed.
        let tracker = Fanotify::start(volume.clone())?;
        let (root, identity) = (volume.root(), volume.identity()?);
        Ok(Kept(Summaries::open(Store::open(store)?, (volume, tracker), root, &identity)?))
    }

    /// What a directory comes to, with all below: of each key how many entries, their bytes, and what is allocated to them.
    pub(crate) fn told(&mut self, directory: &Path) -> Result<BTreeMap<String, Amounts>, Box<dyn Error>> {
        let Kept(kept) = self;
        let id = kept.directories().node_of(files::open_dir(directory)?.as_fd())?;
        // Harvests what has changed below it.
        kept.query(id, Freshness::Exact)?;
        let ledger = kept.ledger();
        let slot = ledger.nodes.find(id).ok_or("it isn't known")?;
        let at = ledger.declared().and_then(|declared| declared.find(NAME)).ok_or("it isn't declared")?;
        let seen = view(ledger, slot, at, None)?.ok_or("it isn't kept")?;
        let text = |key: Vec<u8>| String::from_utf8_lossy(&key).into_owned();
        Ok(seen.tally.entries.into_iter().map(|(key, amounts)| (text(key), amounts)).collect())
    }

    /// Directories that were read so far.
    pub(crate) fn readings(&self) -> u64 {
        self.0.readings()
    }

    /// Ends in good order; the next one goes on from there.
    pub(crate) fn close(mut self) -> Result<(), Box<dyn Error>> {
        Ok(self.0.close()?)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let [path, store] = &words[..] else { return Err("usage: who_may_write PATH STORE".into()) };
    let mut kept = Kept::open(path.as_ref(), store.as_ref())?;
    loop {
        for (key, [entries, bytes, allocated]) in kept.told(path.as_ref())? {
            println!("{key}: {entries} entries, {bytes} bytes, {allocated} allocated");
        }
        println!("{} directories were read", kept.readings());
        if io::stdin().read_line(&mut String::new())? == 0 {
            return kept.close();
        }
    }
}
