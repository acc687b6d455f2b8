//! A tree shown once more, by FUSE, for programs that load no library: static ones, and those in containers.
//!
//! ```text
//!  kernel ──► fuse ──┬─► source: a node leads to an open file of the tree, or nowhere
//!    ▲               ├─► contents: who reads the bytes of a file
//!    │               ├─► guide ──► walks: a walk begins here? ──► ahead: one sweep for what fits
//!    │               │     └── requests that wait ◄── board ◄────────┘
//!    └── changes ◄───┴── fanotify or inotify on the source
//! ```
//!
//! | module | subject |
//! |---|---|
//! | `nodes` | numbers and names of the inodes that the kernel knows, pure |
//! | `births` | what tells an inode from a later one of its number |
//! | `source` | nodes as open files |
//! | [`contents`] | who reads the bytes of files |
//! | `opened` | what programs have open |
//! | `fuse` | the face: requests in, answers out |
//! | `writes` | those that change something |
//! | `following` | which files a program reads next, pure |
//! | `given` | those are given to the kernel before it asks |
//! | `forerun` | a thread that does so in the directories to which the program comes next |
//! | `prepared` | directories that are looked at before a program asks |
//! | `changes` | what changes in the source, and what the kernel has to forget |
//! | `mapped` | files that are written through mappings, of which nothing is told |

mod attributes;
mod births;
mod changes;
pub mod contents;
mod following;
mod forerun;
mod fuse;
mod given;
mod mapped;
mod nodes;
mod opened;
mod prepared;
mod shown;
mod source;
mod writes;

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
};

use fuser::{Config, MountOption, Session, SessionACL, SessionUnmounter};
use onesweep_sys::{
    awake::{Awake, Busy},
    fuse_guard::FuseGuard,
    limits,
    mounting::{self, mount_fuse},
    user,
};

use self::{
    changes::Changes,
    contents::{Contents, OfSource},
    fuse::Face,
    source::Source,
};
use crate::{ahead::Figures, lock, order::Order};

/// How a view is called among the mounts.
pub const SHOWN: &str = "onesweep-view";

/// Threads that take requests, beside two for each processor.
const THREADS: usize = 6;

/// How a tree is shown.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How directories are listed.
    pub order: Order,
    /// Page cache that the sweep ahead may fill; else what the machine can spare.
    pub limit: Option<u64>,
    /// The tree may be changed through the view.
    pub read_write: bool,
    /// Files are brought into memory ahead of whoever walks over the tree.
    pub sweeps_ahead: bool,
    /// Files of 1 MiB and more are read by the kernel itself, where it can. Each open is a request then; else a tree that is only to
    /// be read does without.
    pub passthrough: bool,
    /// While programs ask for one thing after the other, no processor sleeps, where that may be asked for (root): they wait half as
    /// long for each answer, and power is spent.
    pub awake: bool,
    /// How it is called among the mounts.
    pub name: &'static str,
    /// Users other than the one who shows it may look at it. As root they always may.
    pub allow_other: bool,
}

/// A tree that is shown. Dropped, it stays until the process ends; [`View::unmount`] takes it away.
pub struct View {
    source: PathBuf,
    unmounter: Unmounter,
    serving: JoinHandle<io::Result<()>>,
    teller: JoinHandle<()>,
    changes: Arc<Changes>,
    face: Arc<shown::Shown>,
    /// Where it can't be had, a thread that is killed while it tells the kernel of something may wait for ever.
    guard: Option<FuseGuard>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").field("source", &self.source).finish_non_exhaustive()
    }
}

impl View {
    /// Shows the tree below `source` at `dir`, a directory that is neither in it nor above it.
    pub fn show(source: &Path, dir: &Path, settings: &Settings) -> io::Result<Self> {
        Self::show_with(source, dir, settings, Arc::new(OfSource))
    }

    /// The same, with somebody else who reads the bytes of files.
    pub fn show_with(source: &Path, dir: &Path, settings: &Settings, contents: Arc<dyn Contents>) -> io::Result<Self> {
        // Directories stay open.
        let _ = limits::raise_open_files();
        let is_root = user::effective_uid() == 0;
        let source = Arc::new(Source::open(source, !settings.read_write)?);
        let changes = Arc::new(Changes::watch(&source)?);
        let face = Arc::new(shown::Shown::new(Arc::clone(&source), Arc::clone(&changes), settings, contents)?);
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName(settings.name.into()),
            MountOption::DefaultPermissions,
            if settings.read_write { MountOption::RW } else { MountOption::RO },
            // Access times are the source's matter.
            MountOption::NoAtime,
        ];
        config.acl = if is_root || settings.allow_other { SessionACL::All } else { SessionACL::Owner };
        config.n_threads = Some(THREADS + 2 * thread::available_parallelism().map_or(1, usize::from));
        config.clone_fd = true;
        let awake = settings.awake.then(|| Awake::while_busy(Busy::default()).ok()).flatten();
        let (session, unmounter) = mounted(Face { shown: Arc::clone(&face), awake }, dir, settings, &config)?;
        let notifier = session.notifier();
        let mut begun = Begun(matches!(unmounter, Unmounter::Path(_)).then(|| dir.to_owned()));
        // What programs write themselves may be newer than what is given.
        if settings.sweeps_ahead && !settings.read_write {
            face.given.start(notifier.clone());
            face.start_forerun(std::path::absolute(dir)?)?;
        }
        let tidy = {
            let face = Arc::clone(&face);
            move || face.tidy()
        };
        let teller = changes.start(Arc::clone(&source), notifier, tidy)?;
        let guard = FuseGuard::start("view-guard", dir).ok();
        let serving = thread::Builder::new().name("view".into()).spawn(move || session.run())?;
        begun.0 = None;
        Ok(Self { source: source.path().to_owned(), unmounter, serving, teller, changes, face, guard })
    }

    /// How it is shown, in words.
    pub fn how(&self) -> String {
        self.face.how()
    }

    /// Unmounts it: `EBUSY` while somebody uses it.
    pub fn unmount(&mut self) -> io::Result<()> {
        match &mut self.unmounter {
            Unmounter::Path(dir) => mounting::unmount(dir),
            Unmounter::Session(session) => session.unmount(),
        }
    }

    /// Whether it isn't mounted any more, and nobody uses it.
    pub fn is_over(&self) -> bool {
        self.serving.is_finished()
    }

    /// Waits until it isn't mounted any more, and nobody uses it. Tells what was brought in.
    pub fn wait(self) -> io::Result<Figures> {
        let served = self.serving.join().unwrap_or_else(|_| Err(io::Error::other("a thread has ended early")));
        let served = ended(served);
        // Nobody answers any more, whyever: who goes ahead isn't to wait for that.
        if let Some(guard) = self.guard {
            guard.release();
        }
        let figures = self.face.finish();
        self.changes.end();
        let _ = self.teller.join();
        served.map(|()| figures)
    }
}

/// A mount that is to go if what comes next fails.
struct Begun(Option<PathBuf>);

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(dir) = &self.0 {
            let _ = mounting::detach(dir);
        }
    }
}

/// What takes a mount away.
enum Unmounter {
    Path(PathBuf),
    Session(SessionUnmounter),
}

/// Mounts it. As root by its own means: a session that has mounted something unmounts what it finds there at its end, and when somebody has
/// unmounted it before, that may be another one's.
fn mounted(face: Face, dir: &Path, settings: &Settings, config: &Config) -> io::Result<(Session<Face>, Unmounter)> {
    let dir = std::path::absolute(dir)?;
    let own = match user::effective_uid() {
        0 => mount_fuse(settings.name, &dir, !settings.read_write),
        _ => Err(io::ErrorKind::PermissionDenied.into()),
    };
    match own {
        Ok(device) => match Session::from_fd(face, device, config.acl, config.clone()) {
            Ok(session) => Ok((session, Unmounter::Path(dir))),
            Err(error) => {
                let _ = mounting::unmount(&dir);
                Err(error)
            }
        },
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let mut session = Session::new(face, &dir, config)?;
            let unmounter = Unmounter::Session(session.unmount_callable());
            Ok((session, unmounter))
        }
        Err(error) => Err(error),
    }
}

/// How it ended. When the last user closes a file of what is unmounted already, the kernel ends the connection beside the
/// request that tells of it: who is about to read that request gets `ECONNABORTED`, and `ENODEV` only a moment later.
fn ended(served: io::Result<()>) -> io::Result<()> {
    match served {
        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unmount_beside_a_request_is_an_end_as_any() {
        assert!(ended(Ok(())).is_ok());
        assert!(ended(Err(io::Error::from_raw_os_error(libc::ECONNABORTED))).is_ok());
        assert!(ended(Err(io::Error::from_raw_os_error(libc::EIO))).is_err());
    }
}
