//! A tree shown once more by a mount of the same directory (a bind mount), for programs that load no library: static ones, and those in containers.
//!
//! The kernel reads for whoever reads there, and tells of directories that are opened through that mount. From when something isn't in
//! memory it asks before anything is opened through it, and who waits for the answer finds in memory what he opens. While all is
//! in memory, nobody waits for anything.
//!
//! ```text
//!  kernel ──► doorman ──┬─► lookout: does that mount show the tree?
//!               ▲       ├─► routes: where that lies in the tree
//!               │       ├─► probe: is it in memory? ──► attention: is the kernel to ask?
//!               │       └─► guide ──► walks: a walk begins here? ──► ahead: one sweep for what fits
//!               └── openings that wait ◄── board ◄────────────────────┘
//! ```
//!
//! | module | subject |
//! |---|---|
//! | `routes` | where what is opened lies in the tree, pure |
//! | `attention` | whether the kernel is to ask, pure |
//! | `probe` | whether a directory and what is in it are in memory |
//! | `doorman` | hears what is opened, and answers the kernel |
//! | `listeners` | its threads, of which one that waits for a lease is followed by another |
//! | `lookout` | which mounts show the tree, also in containers |

mod attention;
mod doorman;
mod listeners;
mod lookout;
mod probe;
mod routes;

use std::{
    fmt, io,
    os::fd::AsFd,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, Weak},
    thread::{self, JoinHandle},
};

use onesweep_layout::mounts::MountTable;
use onesweep_sys::{
    awake::{Awake, Busy},
    limits,
    mounting::{self, MountWatch},
    ready::Bell,
};

use self::{doorman::Doorman, listeners::Listeners};
use crate::{ahead::Figures, lock, record::Record};

/// How a tree is shown.
#[derive(Debug, Clone)]
pub struct BindSettings {
    /// Page cache that the sweep ahead may fill; else what the machine can spare.
    pub limit: Option<u64>,
    /// The tree may be changed there.
    pub read_write: bool,
    /// While one thing is asked for after the other, no processor sleeps, where that may be asked for.
    pub awake: bool,
}

/// A tree that is shown. Dropped, it stays so, and who walks over it is helped, until the process ends; the mount stays behind. [`Bound::unmount`] takes it
/// away, [`Bound::finish`] ends the help.
pub struct Bound {
    dir: PathBuf,
    mount: u64,
    watch: MountWatch,
    is_gone: Mutex<bool>,
    doorman: Arc<Doorman>,
    bell: Arc<Bell>,
    keeper: JoinHandle<()>,
    /// What other views are to know of its mounts.
    _noted: [Option<Record>; 2],
}

impl fmt::Debug for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("dir", &self.dir).field("mount", &self.mount).finish_non_exhaustive()
    }
}

impl Bound {
    /// Shows the tree below `source` at `dir`, a directory that is neither in it nor above it; both are absolute paths without symbolic links.
    ///
    /// Linux 6.0 and `CAP_SYS_ADMIN`: `PermissionDenied` without; `EINVAL` where the kernel was built without permissions of fanotify. Nothing is
    /// left behind then.
    pub fn show(source: &Path, dir: &Path, settings: &BindSettings) -> io::Result<Self> {
        // Each question comes with an open file.
        let _ = limits::raise_open_files();
        // Nothing that is opened by it is asked for: it is another mount.
        let own = mounting::own_mount_of(source, true)?;
        let own_noted = Record::of_own(own.as_fd()).ok();
        let awake = settings.awake.then(|| Awake::while_busy(Busy::default()).ok()).flatten();
        let watch = MountWatch::new()?;
        let bell = Arc::new(Bell::new()?);
        let shown = mounting::mount_to_show(source, !settings.read_write)?;
        let mount = mounting::mount_id(shown.as_fd())?;
        // Before anybody can open anything through it.
        let shown_noted = Record::of_shown(shown.as_fd(), dir).ok();
        let doorman = Arc::new(Doorman::new(own, source, (shown.as_fd(), dir), settings.limit, awake)?);
        let mut begun = Begun(Some((Arc::clone(&doorman), Arc::clone(&bell))));
        let listeners = Listeners::begin(&doorman, &bell)?;
        let keeper = thread::Builder::new().name("view-keeper".into()).spawn(move || listeners.keep())?;
        mounting::show_mount(shown.as_fd(), dir)?;
        begun.0 = None;
        let _noted = [own_noted, shown_noted];
        Ok(Self { dir: dir.to_owned(), mount, watch, is_gone: Mutex::new(false), doorman, bell, keeper, _noted })
    }

    /// How it is shown, in words.
    pub fn how(&self) -> String {
        "by a mount of the same directory; who walks over it is seen, also in containers; files are read as ever".into()
    }

    /// For who is to stop this process: it answers nobody then.
    pub fn pauses(&self) -> Pauses {
        Pauses(Arc::downgrade(&self.doorman))
    }

    /// Unmounts it: `EBUSY` while somebody uses it.
    pub fn unmount(&mut self) -> io::Result<()> {
        mounting::unmount(&self.dir)
    }

    /// Whether somebody has unmounted it.
    pub fn is_over(&self) -> bool {
        let mut is_gone = lock(&self.is_gone);
        if !*is_gone && self.watch.has_changed() {
            let is_there = |mounts: MountTable| mounts.by_id(self.mount).is_some_and(|it| it.mount_point == self.dir);
            *is_gone = MountTable::read().is_ok_and(|mounts| !is_there(mounts));
        }
        *is_gone
    }

    /// Helps nobody any more: who has something of it open goes on as ever. Tells what was brought in.
    pub fn finish(self) -> Figures {
        let figures = self.doorman.finish(&self.bell);
        let _ = self.keeper.join();
        figures
    }
}

/// Lets programs go by without help while this process is stopped.
#[derive(Clone)]
pub struct Pauses(Weak<Doorman>);

impl fmt::Debug for Pauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pauses").finish_non_exhaustive()
    }
}

impl Pauses {
    /// From now on nobody waits for this process, but who opens a file on which somebody else has a lease. Returns when those go on who did, a second later
    /// at most.
    pub fn begin(&self) {
        if let Some(doorman) = self.0.upgrade() {
            doorman.pause();
        }
    }

    /// All is as before.
    pub fn end(&self) {
        if let Some(doorman) = self.0.upgrade() {
            doorman.go_on();
        }
    }
}

/// Threads that are to end if what comes next fails.
struct Begun(Option<(Arc<Doorman>, Arc<Bell>)>);

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some((doorman, bell)) = &self.0 {
            doorman.finish(bell);
        }
    }
}
