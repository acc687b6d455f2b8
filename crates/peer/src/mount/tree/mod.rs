//! The files of a tree, whose reads are raced.
//!
//! ```text
//!   read ──► key (fstat) ──► books: hashes? ──► in memory? ──► race ──► the key still? ──► reply
//!                                                              │
//!                                                              └─ what the disk has read ──► books learn
//!   write ─► books forget the file, durably ──► whoever shows the tree writes ──► close ──► servers, where they are to have it
//! ```
//!
//! * A hash counts for a file whose inode, generation, size, mtime and ctime are those under which it was taken, at the
//!   beginning of a read and when a server has answered.
//! * What is in the page cache comes from there.
//! * The local file system is always right: what its file has is read through it, never past it.

mod books;
mod debts;
mod file;

use std::{
    fs::File,
    io,
    ops::Range,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, Mutex},
};

use onesweep_sys::files::{open_again_with, statx_fd};

pub use self::file::TreeFile;
use self::{books::Books, debts::FileDebts};
use super::{
    counters::add,
    engine::{Engine, Running, Setting},
    lock,
    offers::Debts,
};
use crate::{
    client::Peers,
    id::TrustDomain,
    index::{IndexError, tree::TreeIndex},
    race::Policy,
};

/// The extended attribute of the topmost directory that has the counters, where a tree is shown.
pub const METRICS_ATTRIBUTE: &str = "user.onesweep.peer.metrics";

/// How reads of a tree are raced.
#[derive(Debug)]
pub struct TreeSettings {
    /// Who is asked first.
    pub policy: Policy,
    /// How many reads the device below truly serves at the same time: 1 for a disk with one head.
    pub lanes: usize,
    /// Nothing below turns: until both were measured, the disk is taken to be quicker than the network.
    pub is_seekless: bool,
    /// Servers get what is read from the disk, when they lack it.
    pub share: bool,
    /// Servers get what is written, after the disk.
    pub write_through: bool,
    /// A line for each read goes there.
    pub trace: Option<File>,
}

impl TreeSettings {
    /// With nothing but a policy, for a disk with one head.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { policy, lanes: 1, is_seekless: false, share: false, write_through: false, trace: None }
    }
}

/// Of the threads that show a tree so many may wait for a quick disk. There are several more.
const OWN_READS: usize = 4;

/// `O_RDONLY`.
const READ_ONLY: i32 = 0;

struct Shared {
    engine: Arc<Engine>,
    books: Books,
    dev: u64,
    is_seekless: bool,
    /// What was written, where servers are to have it.
    debts: Option<Arc<FileDebts>>,
}

impl Shared {
    /// Servers get what was written to a file, or to all of them.
    fn offer_gathered(&self, inode: Option<u64>) {
        for debt in self.debts.iter().flat_map(|debts| debts.gathered(inode)) {
            self.engine.offer_written(&[], Box::new(debt));
        }
    }
}

/// A tree whose reads are raced.
pub struct Tree {
    shared: Arc<Shared>,
    running: Mutex<Option<Running>>,
}

impl std::fmt::Debug for Tree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tree").field("dev", &self.shared.dev).finish_non_exhaustive()
    }
}

impl Tree {
    /// Begins to serve. `root` is a directory of the tree, open for reading; the index is of its file system.
    pub fn start(
        root: OwnedFd,
        index: TreeIndex,
        peers: Peers,
        domain: TrustDomain,
        settings: TreeSettings,
    ) -> io::Result<Self> {
        let dev = statx_fd(root.as_fd())?.dev;
        let debts = settings.write_through.then(|| FileDebts::new(index.block_bytes()));
        let setting = Setting {
            policy: settings.policy,
            lanes: settings.lanes,
            block_bytes: index.block_bytes() as usize,
            shares: settings.share,
            debts: debts.clone().map(|debts| debts as Arc<dyn Debts>),
            trace: settings.trace,
            of_files: true,
            own_reads: OWN_READS,
        };
        let engine = Engine::new(peers, domain.clone(), setting)?;
        let books = Books::new(index, domain, root);
        let shared = Arc::new(Shared { engine, books, dev, is_seekless: settings.is_seekless, debts });
        let tidied = Arc::clone(&shared);
        let running = Running::start(&shared.engine, move || {
            tidied.books.tidy();
            tidied.offer_gathered(None);
        })?;
        Ok(Self { shared, running: Mutex::new(Some(running)) })
    }

    /// A file of the tree that is open, to be read by this policy, or by that of the tree.
    pub fn file(&self, file: Arc<OwnedFd>, policy: Option<Policy>) -> io::Result<TreeFile> {
        TreeFile::new(Arc::clone(&self.shared), file, policy)
    }

    /// A file is about to be written, cut or left to the kernel for that; who does it has it open for writing. When this
    /// returns, no server is asked for it until it was read from the disk again.
    pub fn before_change(&self, inode: u64) {
        let is_forgotten = self.shared.books.before_change(inode);
        add(&self.shared.engine.counters.forgotten, is_forgotten.into());
    }

    /// These bytes of a file that is open were changed. Servers get them when it is [closed](Self::closed), or some seconds later,
    /// where they are to.
    pub fn changed(&self, inode: u64, file: &OwnedFd, bytes: Range<u64>) {
        let Some(debts) = &self.shared.debts else { return };
        // It may have been opened for writing alone.
        debts.touch(inode, bytes, || open_again_with(file.as_fd(), READ_ONLY));
    }

    /// Somebody who may have changed a file has closed it.
    pub fn closed(&self, inode: u64) {
        self.shared.offer_gathered(Some(inode));
    }

    /// A file that was just opened is left to the kernel.
    pub fn note_left_to_kernel(&self) {
        add(&self.shared.engine.counters.left_to_kernel, 1);
    }

    /// What was counted so far, in the text form of OpenMetrics 1.0.
    #[must_use]
    pub fn metrics(&self) -> String {
        let owed = self.shared.debts.as_ref().map(|debts| debts.owed()).unwrap_or_default();
        self.shared.engine.metrics(self.shared.books.works(), owed)
    }

    /// The network is another one: servers that failed are tried at once.
    pub fn network_changed(&self) {
        self.shared.engine.network_changed();
    }

    /// Ends all threads, and keeps what was learnt. Nobody may read any more. What servers are to have is sent first.
    pub fn end(&self) -> Result<(), IndexError> {
        self.shared.engine.readers.end();
        self.shared.offer_gathered(None);
        let running = lock(&self.running).take();
        running.into_iter().for_each(Running::end);
        self.shared.books.keep()
    }
}
