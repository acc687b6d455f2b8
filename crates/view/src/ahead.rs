//! The helper: looks at the trees, finds out where the program is, and brings in by one sweep each what it comes to next.
//!
//! What a program opens first it reads by itself, until it is known whether it reads on (`pace`). Then, where the budget holds
//! all that the trees have, there is a single sweep. Else each sweep brings in as many files as fit,
//! along the walk that the program seems to make ([`course`](crate::course)); when the program opens a file that isn't
//! there, it waits, what was brought in before is dropped, and the next sweep begins with that file. A sweep ends early when the program
//! goes elsewhere.
//!
//! Whatever fails here, the program goes on without help.

mod following;
mod guided;

use std::{
    fs, io,
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use onesweep::{BulkRead, CachePolicy, Cancel, SweepError};
use onesweep_deliver::warm::{Memory, default_limit};
use onesweep_layout::device::{DeviceStack, Devices};
use onesweep_sys::{cache, files::open_file_untouched, priority, usage::blocks_read};
use thiserror::Error;

use self::{following::Following, guided::Guided};
use crate::{
    board::{Board, News, Phase},
    lock,
    order::Order,
    pulse::Pulse,
    tree::Tree,
};

/// How often the helper says that it lives.
const BEAT: Duration = Duration::from_millis(100);

/// Why nothing was brought in.
const ENDED_BEFORE: &str = "the program had ended before the trees were known";
const IN_MEMORY: &str = "everything is in memory";
const PICKED: &str = "the program read few files, or some that lie far apart: they were left to it";

/// Files, or entries of a directory, that are looked at to find out whether all are in memory.
const SAMPLE: usize = 64;

/// The least memory that sweeps hold.
const SWEEP_BYTES_MIN: u64 = 1 << 20;

/// Why no helper was started.
#[derive(Debug, Error)]
pub enum AheadError {
    /// A tree can't be looked at.
    #[error("{}: {source}", path.display())]
    Tree {
        /// The tree.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The system refuses something else.
    #[error("cannot {step}: {source}")]
    System {
        /// What was to be done.
        step: &'static str,
        /// Why it can't be.
        source: io::Error,
    },
}

/// What a helper did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Figures {
    /// Files that were brought in.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Sweeps.
    pub sweeps: u64,
    /// How often the program had to wait for a file.
    pub waits: u64,
    /// Files that the kernel was given before the program asked for them, through a view.
    pub given: u64,
    /// Directories that were looked at before the program asked for them, through a view.
    pub seen: u64,
    /// Directories that the kernel has listed before the program did, through a view.
    pub listed: u64,
    /// Openings of which the kernel asked, where it shows a tree itself.
    pub asked: u64,
    /// Why nothing, or no more, was brought in.
    pub remark: Option<String>,
}

/// A helper at work. Ends with [`Ahead::finish`]; programs that still run then go on without it.
#[derive(Debug)]
pub struct Ahead {
    board: Arc<Board>,
    end: Arc<End>,
    worker: JoinHandle<Figures>,
    pulse: Pulse,
}

/// Whether all is to end, and what ends the sweeps: each has its own, for one that is dropped early cancels it.
#[derive(Debug, Default)]
struct End {
    is_due: AtomicBool,
    sweeps: Mutex<Vec<Cancel>>,
}

impl End {
    fn is_due(&self) -> bool {
        self.is_due.load(Ordering::SeqCst)
    }

    /// For the next sweep.
    fn of_a_sweep(&self) -> Cancel {
        let cancel = Cancel::new();
        lock(&self.sweeps).push(cancel.clone());
        if self.is_due() {
            cancel.cancel();
        }
        cancel
    }

    fn now(&self) {
        self.is_due.store(true, Ordering::SeqCst);
        lock(&self.sweeps).iter().for_each(Cancel::cancel);
    }
}

impl Ahead {
    /// Begins to look at the trees below the directories `roots`. Content is brought in when a program reads one file after the other: at
    /// most `limit` bytes of page cache are filled, or what the machine can spare.
    ///
    /// Programs see directories listed as `order` has it.
    ///
    /// # Errors
    ///
    /// A directory isn't there or is none; no thread can be started.
    pub fn start(roots: &[PathBuf], limit: Option<u64>, order: Order) -> Result<Self, AheadError> {
        Self::with(roots, limit, order, None)
    }

    /// As [`Ahead::start`], for programs for which this process is asked itself.
    pub(crate) fn follow(
        roots: &[PathBuf],
        limit: Option<u64>,
        order: Order,
        reader: Reader,
        news: News,
    ) -> Result<Self, AheadError> {
        Self::with(roots, limit, order, Some((reader, news)))
    }

    /// What this process looks at as a program.
    pub(crate) fn board(&self) -> &Arc<Board> {
        &self.board
    }

    fn with(
        roots: &[PathBuf],
        limit: Option<u64>,
        order: Order,
        news: Option<(Reader, News)>,
    ) -> Result<Self, AheadError> {
        let roots: Vec<PathBuf> = roots.iter().map(|root| open_root(root)).collect::<Result<_, _>>()?;
        let mut devices: Vec<u64> =
            roots.iter().filter_map(|root| fs::metadata(root).ok()).map(|it| it.dev()).collect();
        devices.sort_unstable();
        devices.dedup();
        let system = |step| move |source| AheadError::System { step, source };
        let (reader, board) = match &news {
            None => (Reader::Itself, Board::named(&devices)),
            Some((reader, news)) => (*reader, Board::new(&devices, Some(Arc::clone(news)))),
        };
        let hears_of_all = news.is_none() || reader == Reader::ThroughFuse;
        let board = Arc::new(board.map_err(system("share memory with programs"))?);
        if are_quick(&devices) {
            board.pass(Phase::Looking, Phase::Aside);
        }
        let end = Arc::new(End::default());
        let is_warm = Arc::new(AtomicBool::new(false));
        let pulse = Pulse::start(Arc::clone(&board), Arc::clone(&is_warm), BEAT).map_err(system("start a thread"))?;
        let helper = Helper {
            board: Arc::clone(&board),
            end: Arc::clone(&end),
            is_warm,
            devices,
            limit,
            reader,
            hears_of_all,
            order,
        };
        let worker = thread::Builder::new().name("ahead".into()).spawn(move || helper.run(&roots));
        let worker = worker.map_err(system("start a thread"))?;
        Ok(Self { board, end, worker, pulse })
    }

    /// What the variable `ONESWEEP_BOARD` of the program has to say.
    pub fn board_path(&self) -> PathBuf {
        self.board.path().unwrap_or(Path::new("")).to_owned()
    }

    /// Ends the helper, and tells what it did.
    pub fn finish(self) -> Figures {
        self.end.now();
        self.board.enter_phase(Phase::Over);
        self.board.ring();
        let figures = self.worker.join().unwrap_or_default();
        self.pulse.end();
        Figures { waits: self.board.waits().into(), ..figures }
    }
}

/// Who reads the files of the tree for the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    /// The program does: what was brought in is what it reads.
    Itself,
    /// FUSE does: what is read lies in memory twice.
    ThroughFuse,
}

/// What may be brought in where nobody says how much. More than half of what can be spared would be pushed out by its own copies before
/// it is read, where there are any.
fn limit_of(memory: Memory, reader: Reader) -> u64 {
    let spared = default_limit(memory, BulkRead::BUDGET);
    match reader {
        Reader::Itself => spared,
        Reader::ThroughFuse => spared / 2,
    }
}

fn open_root(root: &Path) -> Result<PathBuf, AheadError> {
    let opened = root.canonicalize().and_then(|root| fs::read_dir(&root).map(|_| root));
    opened.map_err(|source| AheadError::Tree { path: root.to_owned(), source })
}

/// Whether nothing turns in the disks below a tree, so that there is nothing to sort for.
pub fn is_on_quick_disks(root: &Path) -> bool {
    fs::metadata(root).is_ok_and(|facts| are_quick(&[facts.dev()]))
}

/// Whether nothing turns in all these devices. What is gained there are reads in flight at the same time, and a program looks at
/// the trees as quickly as this helper: nobody waits for that.
fn are_quick(devices: &[u64]) -> bool {
    let Ok(system) = Devices::of_system() else { return false };
    devices.iter().all(|dev| system.by_dev(*dev).is_ok_and(|stack| is_quick(&stack)))
}

/// Whether all disks say that nothing turns in them.
fn is_quick(stack: &DeviceStack) -> bool {
    stack.disks.iter().all(|disk| disk.rotational == Some(false))
}

/// Whether the first entries of a tree are looked at without a read of the disk.
fn begins_in_memory(root: &Path) -> bool {
    let before = blocks_read();
    let entries = fs::read_dir(root).into_iter().flatten().flatten().take(SAMPLE);
    let below = entries.filter(|entry| entry.metadata().is_ok_and(|facts| facts.is_dir()));
    for entry in below {
        let looked = fs::read_dir(entry.path()).into_iter().flatten().flatten().take(SAMPLE);
        looked.for_each(|entry| drop(entry.metadata()));
    }
    blocks_read() == before
}

/// Whether files of the tree that lie far apart are all in the page cache. If so, nobody should wait for the others.
fn is_in_memory(tree: &Tree) -> bool {
    let with_content: Vec<u32> =
        (0..tree.files.len() as u32).filter(|&file| tree.files[file as usize].bytes > 0).collect();
    let step = (with_content.len() / SAMPLE).max(1);
    with_content.iter().step_by(step).all(|&file| {
        let bytes = tree.files[file as usize].bytes;
        let open = open_file_untouched(tree.path(file).as_path());
        open.and_then(|open| cache::is_cached(open.as_fd(), bytes)).unwrap_or(false)
    })
}

/// Does some work in a thread that gives way to others.
fn aside<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let given_way = || {
        let _ = priority::give_way();
        work()
    };
    thread::scope(|scope| scope.spawn(given_way).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

struct Helper {
    board: Arc<Board>,
    end: Arc<End>,
    is_warm: Arc<AtomicBool>,
    devices: Vec<u64>,
    limit: Option<u64>,
    reader: Reader,
    /// Of each file that is opened; where the kernel asks, it is silent while all is in memory.
    hears_of_all: bool,
    order: Order,
}

/// Whoever waits goes on when the help ends, also by a fault: the pulse would go on to tell that it lives.
struct LetsGo(Arc<Board>);

impl Drop for LetsGo {
    fn drop(&mut self) {
        self.0.enter_phase(Phase::Over);
    }
}

impl Helper {
    fn run(self, roots: &[PathBuf]) -> Figures {
        let _at_the_end = LetsGo(Arc::clone(&self.board));
        let mut figures = Figures::default();
        match self.guide(roots, &mut figures) {
            Ok(()) => {}
            Err(error) if !self.end.is_due() => figures.remark = Some(error.to_string()),
            Err(_) if figures.sweeps == 0 => figures.remark = Some(ENDED_BEFORE.into()),
            Err(_) => {}
        }
        figures
    }

    fn guide(&self, roots: &[PathBuf], figures: &mut Figures) -> Result<(), SweepError> {
        let limit = self.limit.unwrap_or_else(|| Memory::now().map_or(0, |memory| limit_of(memory, self.reader)));
        if limit == 0 {
            figures.remark = Some("there is no memory to spare".into());
            return Ok(());
        }
        let is_warm = roots.iter().all(|root| begins_in_memory(root));
        self.is_warm.store(is_warm, Ordering::SeqCst);
        let bulk = || {
            let bulk = BulkRead::new(roots).cache(CachePolicy::Fill).one_file_system(true);
            bulk.budget((limit / 8).clamp(SWEEP_BYTES_MIN, BulkRead::BUDGET)).cancel(self.end.of_a_sweep())
        };
        let has_ended = || self.end.is_due();
        // Nobody waits for what is looked at in memory, and the program may need every processor.
        let known = if is_warm { aside(|| self.look_in_memory(roots)) } else { None };
        if known.as_ref().is_some_and(is_in_memory) {
            figures.remark = Some(IN_MEMORY.into());
            return Ok(());
        }
        // From a disk the plan brings in what is looked at then, in its order.
        let sweep = if known.is_some() { aside(|| bulk().plan()) } else { bulk().plan() }?;
        let tree = match known {
            Some(tree) => tree,
            None => {
                let tree = Tree::look(roots, self.order, has_ended);
                if !has_ended() && is_in_memory(&tree) {
                    figures.remark = Some(IN_MEMORY.into());
                    return Ok(());
                }
                tree
            }
        };
        if has_ended() {
            figures.remark = Some(ENDED_BEFORE.into());
            return Ok(());
        }
        let guided = match Guided::enter(tree, &self.board, &self.devices) {
            Ok(guided) => guided,
            Err(error) => {
                figures.remark = Some(format!("cannot share memory with programs: {error}"));
                return Ok(());
            }
        };
        Following::new(self, guided, limit).run(sweep, bulk, figures)?;
        if figures.sweeps == 0 && self.board.waits() > 0 {
            figures.remark = Some(PICKED.into());
        }
        Ok(())
    }

    /// The trees, unless a part of them has to be read from a disk, or all ends before.
    fn look_in_memory(&self, roots: &[PathBuf]) -> Option<Tree> {
        let before = blocks_read();
        let is_over = || self.end.is_due() || blocks_read() != before;
        let tree = Tree::look(roots, self.order, is_over);
        (!is_over()).then_some(tree)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use onesweep_layout::device::Disk;

    use super::*;
    use crate::testing;

    #[test]
    fn nobody_waits_for_a_helper_that_has_failed() {
        let folder = tempfile::tempdir().unwrap();
        // A hole isn't in memory, so that there is something to wait for.
        fs::File::create(folder.path().join("file")).unwrap().set_len(1 << 20).unwrap();
        let (fail, may_fail) = mpsc::channel();
        let may_fail = Mutex::new(may_fail);
        let news: News = Arc::new(move || {
            let fails = thread::current().name() == Some("ahead") && lock(&may_fail).recv().is_ok();
            assert!(!fails, "on purpose");
        });
        let roots = [folder.path().to_owned()];
        let ahead = Ahead::follow(&roots, Some(1 << 30), Order::Source, Reader::Itself, news).unwrap();
        let Ahead { board, worker, pulse, .. } = ahead;
        while matches!(board.phase(), Phase::Looking | Phase::Aside) {
            thread::yield_now();
        }
        assert_eq!(board.phase(), Phase::Guided);
        fail.send(()).unwrap();
        drop(fail);
        assert!(worker.join().is_err(), "it has told nobody");
        assert_eq!(board.phase(), Phase::Over);
        pulse.end();
    }

    /// Of files that are others' nobody is told.
    #[test]
    fn a_user_sees_that_everything_is_in_memory() {
        let folder = testing::open_folder();
        let file = |number: usize| folder.path().join(format!("{number:03}"));
        for number in 0..2 * SAMPLE {
            fs::write(file(number), [1; 20_000]).unwrap();
            fs::File::open(file(number)).unwrap().sync_all().unwrap();
        }
        let tree = Tree::look(&[folder.path().to_owned()], Order::Name, || false);
        let told = || testing::as_stranger(folder.path(), || is_in_memory(&tree));
        assert!(told().is_none_or(|is_in_memory| is_in_memory));
        let gone = fs::File::open(tree.path(SAMPLE as u32)).unwrap();
        cache::drop_cached(gone.as_fd(), 0, 0).unwrap();
        let is_gone = cache::residency(gone.as_fd(), 0, 0).unwrap().cached == 0;
        assert!(!is_gone || told().is_none_or(|is_in_memory| !is_in_memory));
    }

    #[test]
    fn what_is_read_through_a_view_fits_twice() {
        let memory = Memory { total_bytes: 16 << 30, available_bytes: 12 << 30 };
        let spared = default_limit(memory, BulkRead::BUDGET);
        assert_eq!(limit_of(memory, Reader::Itself), spared);
        assert!(spared > 8 << 30 && (spared - 1..=spared).contains(&(2 * limit_of(memory, Reader::ThroughFuse))));
    }

    #[test]
    fn only_disks_of_which_none_turns_are_quick() {
        let stack = |turns: &[Option<bool>]| {
            let disk = |(dev, rotational): (u64, &Option<bool>)| Disk {
                dev,
                name: "sd".into(),
                rotational: *rotational,
                size: 1 << 40,
                seekless: *rotational == Some(false),
            };
            DeviceStack {
                dev: 1,
                name: "sd".into(),
                node: "/dev/sd".into(),
                mapper_node: None,
                size: 1 << 40,
                logical_block: 512,
                disks: (0..).zip(turns).map(disk).collect(),
                base: Some(0),
                through: Vec::new(),
                members: 1,
            }
        };
        assert!(is_quick(&stack(&[Some(false)])));
        assert!(is_quick(&stack(&[Some(false), Some(false)])));
        for one_turns in [&[Some(true)][..], &[None], &[Some(false), Some(true)], &[None, Some(false)]] {
            assert!(!is_quick(&stack(one_turns)), "{one_turns:?}");
        }
    }
}
