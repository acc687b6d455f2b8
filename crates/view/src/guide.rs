//! The sweep ahead of those who read a tree: begins it when a walk begins, and lets requests wait for what comes with it.
//!
//! No thread that takes requests ever waits here: a request that has to is parked, and answered by a thread of its own kind when
//! its file is in memory. So whatever the helper looks at, also at the view itself, is answered.

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{
    ahead::{Ahead, Figures, Reader},
    board::{Board, News, Phase},
    lock,
    order::Order,
    walks::{Missed, Walks},
};

/// A directory, by a number of whoever asks.
pub(crate) type DirectoryId = u64;

/// A file of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Inode {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
}

/// What is done when a request needs to wait no more.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Threads that answer requests that were parked.
const THREADS: usize = 4;
/// How often the helper is looked at when nothing happens.
const TICK: Duration = Duration::from_secs(1);
/// A walk that has stood still so long gives way to another one.
const GIVES_WAY: Duration = Duration::from_secs(5);
/// A walk that has stood still so long is over. Longer than most programs work on what they have read, since for one that goes on
/// after that the rest of the tree is looked at once more; the helper holds the catalogue of the tree until then.
const OVER: Duration = Duration::from_secs(60);
/// How long no walk begins again where the last one found nothing to do: each directory that comes from the disk would begin one,
/// which looks at the whole tree. Shorter than [`OVER`]: what was in memory may be gone by then.
const QUIET: Duration = Duration::from_secs(30);

/// Of what a sweep has brought in, a part may be gone again, as of one file in so many, and is read by the program itself. For a walk
/// that begins once more all is brought in that isn't in memory: also what back-ups have read, and had the kernel forget.
const GONE_PART: u64 = 64;

enum Message {
    /// A walk begins over a directory.
    Begin(DirectoryId, PathBuf),
    Wait(Waiting),
    News,
    End,
}

/// A request that waits for a file; or, without one, until the tree has been looked at.
struct Waiting {
    /// The directory that it is about, or in which the file is, and those above it.
    chain: Vec<DirectoryId>,
    file: Option<Inode>,
    job: Job,
}

/// The last walk, which has brought something in.
struct Brought {
    root: DirectoryId,
    /// So often something of its tree may be missed.
    most_missed: u64,
    missed: AtomicU64,
}

impl Brought {
    /// Something below `root` has to come from the disk: whether that is left to who needs it, as little else was missed.
    fn leaves(&self, root: DirectoryId) -> bool {
        self.root == root && self.missed.fetch_add(1, Ordering::Relaxed) < self.most_missed
    }
}

struct Shared {
    walks: Mutex<Walks>,
    /// Until another walk ends, or none is there for long.
    brought: Mutex<Option<Brought>>,
    /// The walk that is helped now, and its directory.
    current: RwLock<Option<(DirectoryId, Arc<Board>)>>,
    /// When it was used last.
    used_ms: AtomicU64,
    /// Nobody is to wait.
    is_passed_by: AtomicBool,
    began: Instant,
    figures: Mutex<Figures>,
}

impl Shared {
    fn current(&self) -> Option<(DirectoryId, Arc<Board>)> {
        self.current.read().map_or(None, |current| current.clone())
    }
}

/// The helper of a view.
pub(crate) struct Guide {
    shared: Arc<Shared>,
    messages: mpsc::Sender<Message>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Guide {
    /// Begins to help; `limit` is the page cache that may be filled, `order` that in which directories are seen.
    pub(crate) fn start(limit: Option<u64>, order: Order, reader: Reader) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            walks: Mutex::default(),
            brought: Mutex::default(),
            current: RwLock::default(),
            used_ms: AtomicU64::new(0),
            is_passed_by: AtomicBool::new(false),
            began: Instant::now(),
            figures: Mutex::default(),
        });
        let (messages, told) = mpsc::channel();
        let (jobs, taken) = mpsc::channel::<Job>();
        let taken = Arc::new(Mutex::new(taken));
        for number in 0..THREADS {
            let taken = Arc::clone(&taken);
            let work = move || {
                loop {
                    let next = lock(&taken).recv();
                    let Ok(job) = next else { return };
                    job();
                }
            };
            thread::Builder::new().name(format!("view-late-{number}")).spawn(work)?;
        }
        let worker = Worker {
            shared: Arc::clone(&shared),
            news: messages.clone(),
            jobs,
            limit,
            order,
            reader,
            running: None,
            parked: VecDeque::new(),
            quiet: None,
        };
        let thread = thread::Builder::new().name("view-guide".into()).spawn(move || worker.run(&told))?;
        Ok(Self { shared, messages, thread: Mutex::new(Some(thread)) })
    }

    /// A program has opened a directory.
    pub(crate) fn opened(&self, directory: DirectoryId) {
        lock(&self.shared.walks).opened(directory);
    }

    /// It has closed it.
    pub(crate) fn closed(&self, directory: DirectoryId) {
        lock(&self.shared.walks).closed(self.shared.began.elapsed(), directory);
    }

    /// A program opens the first directory of `chain`; when it closes it nobody will tell. Whether that may be a walk.
    pub(crate) fn passes(&self, chain: &[DirectoryId]) -> bool {
        lock(&self.shared.walks).passed(self.shared.began.elapsed(), chain)
    }

    /// Whether a walk is helped.
    pub(crate) fn helps(&self) -> bool {
        self.current().is_some_and(|(_, board)| board.phase() != Phase::Over)
    }

    /// Something of the directory that is to be listed has to come from the disk: if that is a walk, its tree is looked at first.
    pub(crate) fn before_missed(
        &self,
        chain: &[DirectoryId],
        path: impl FnOnce(DirectoryId) -> Option<PathBuf>,
        job: Job,
    ) {
        if self.begin(chain, Missed::Entries, path) {
            self.wait(chain.to_vec(), None, job);
        } else {
            job();
        }
    }

    /// Lists a directory when its tree isn't being looked at. `chain` are the directories above it, and it itself.
    pub(crate) fn before_listing(&self, chain: impl FnOnce() -> Vec<DirectoryId>, job: Job) {
        let Some((root, board)) = self.current() else { return job() };
        let chain = chain();
        // Who lists elsewhere doesn't keep this walk going: that may be the one to which it gives way.
        if !chain.contains(&root) {
            return job();
        }
        self.touch();
        if board.phase() == Phase::Looking {
            self.wait(chain, None, job);
        } else {
            job();
        }
    }

    /// Listing a directory has read the disk: that may be a walk.
    pub(crate) fn listed_from_disk(&self, chain: &[DirectoryId], path: impl FnOnce(DirectoryId) -> Option<PathBuf>) {
        if self.current().is_none_or(|(root, _)| !chain.contains(&root)) {
            self.begin(chain, Missed::Entries, path);
        }
    }

    /// Reads a file when it is in memory, or will not come. `is_cached` tells whether it is in memory; `None` where that
    /// can't be told: who reads it waits for what comes, and no walk begins for it.
    pub(crate) fn before_reading(
        &self,
        inode: Inode,
        is_cached: impl Fn() -> Option<bool>,
        chain: impl FnOnce() -> Vec<DirectoryId>,
        path: impl FnOnce(DirectoryId) -> Option<PathBuf>,
        job: Job,
    ) {
        let mut looked_at = None;
        if let Some((root, board)) = self.current() {
            let slot = board.find(inode.dev, inode.ino);
            match (board.phase(), slot) {
                (Phase::Looking, _) => looked_at = Some(root),
                (Phase::Guided, Some(slot)) => {
                    self.touch();
                    // Who reads from memory waits for no sweep, also where the file was to come with one.
                    if !board.is_ready(slot) && is_cached() != Some(true) {
                        return self.wait(chain(), Some(inode), job);
                    }
                    board.note_opened(slot);
                    return job();
                }
                (Phase::Aside, _) => return job(),
                (Phase::Over, _) | (Phase::Guided, None) => {}
            }
        }
        if is_cached() != Some(false) {
            return job();
        }
        let chain = chain();
        let is_looked_at = looked_at.is_some_and(|root| chain.contains(&root));
        if is_looked_at || self.begin(&chain, Missed::Content, path) {
            return self.wait(chain, Some(inode), job);
        }
        job();
    }

    /// Whether a file that is in memory may be read before a program asks for it. If so, that counts as opened.
    pub(crate) fn may_be_given(&self, inode: Inode) -> bool {
        let Some((_, board)) = self.current() else { return true };
        match (board.phase(), board.find(inode.dev, inode.ino)) {
            // Somebody may wait for it.
            (Phase::Looking, _) => false,
            (Phase::Guided, Some(slot)) => {
                let is_ready = board.is_ready(slot);
                if is_ready {
                    board.note_opened(slot);
                }
                is_ready
            }
            (Phase::Guided, None) | (Phase::Aside | Phase::Over, _) => true,
        }
    }

    fn begin(&self, chain: &[DirectoryId], missed: Missed, path: impl FnOnce(DirectoryId) -> Option<PathBuf>) -> bool {
        let found = lock(&self.shared.walks).missed(self.shared.began.elapsed(), chain, missed);
        let Some((root, path)) = found.and_then(|root| Some((root, path(root)?))) else { return false };
        if lock(&self.shared.brought).as_ref().is_some_and(|brought| brought.leaves(root)) {
            self.touch();
            return false;
        }
        self.send(Message::Begin(root, path));
        true
    }

    fn current(&self) -> Option<(DirectoryId, Arc<Board>)> {
        self.shared.current()
    }

    fn touch(&self) {
        let now = self.shared.began.elapsed().as_millis() as u64;
        self.shared.used_ms.store(now, Ordering::Relaxed);
    }

    /// From now on nobody waits, and who does goes on; or all is as before again.
    pub(crate) fn be_passed_by(&self, is_passed_by: bool) {
        self.shared.is_passed_by.store(is_passed_by, Ordering::SeqCst);
        // For those who wait already.
        self.send(Message::News);
    }

    fn wait(&self, chain: Vec<DirectoryId>, file: Option<Inode>, job: Job) {
        self.send(Message::Wait(Waiting { chain, file, job }));
    }

    fn send(&self, message: Message) {
        if let Err(mpsc::SendError(Message::Wait(waiting))) = self.messages.send(message) {
            (waiting.job)();
        }
    }

    /// Ends the helper; whoever waits goes on. Tells what was done.
    pub(crate) fn finish(&self) -> Figures {
        let _ = self.messages.send(Message::End);
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
        lock(&self.shared.figures).clone()
    }
}

struct Running {
    root: DirectoryId,
    ahead: Ahead,
}

/// The thread that holds the helper.
struct Worker {
    shared: Arc<Shared>,
    news: mpsc::Sender<Message>,
    jobs: mpsc::Sender<Job>,
    limit: Option<u64>,
    order: Order,
    reader: Reader,
    running: Option<Running>,
    /// With each, whether it is known to have waited.
    parked: VecDeque<(Waiting, bool)>,
    /// Where the last walk found nothing to do, and when.
    quiet: Option<(DirectoryId, Instant)>,
}

impl Worker {
    fn run(mut self, told: &mpsc::Receiver<Message>) {
        loop {
            match told.recv_timeout(TICK) {
                Ok(Message::Begin(root, path)) => self.begin(root, path),
                Ok(Message::Wait(waiting)) => self.parked.push_back((waiting, false)),
                Ok(Message::News) | Err(mpsc::RecvTimeoutError::Timeout) => {}
                Ok(Message::End) | Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
            let idle = self.idle();
            let is_long_over = idle > OVER && self.parked.is_empty();
            if is_long_over || self.running.as_ref().is_some_and(|running| running.is_over()) {
                self.end();
            }
            if is_long_over {
                *lock(&self.shared.brought) = None;
            }
            self.let_go();
        }
        self.end();
        self.let_go();
    }

    fn idle(&self) -> Duration {
        let used = Duration::from_millis(self.shared.used_ms.load(Ordering::Relaxed));
        self.shared.began.elapsed().saturating_sub(used)
    }

    fn begin(&mut self, root: DirectoryId, path: PathBuf) {
        let is_busy = self
            .running
            .as_ref()
            .is_some_and(|running| running.root == root || (!running.is_over() && self.idle() < GIVES_WAY));
        let is_quiet = self.quiet.is_some_and(|(quiet, when)| quiet == root && when.elapsed() < QUIET);
        if is_busy || is_quiet {
            return;
        }
        self.end();
        let news = Mutex::new(self.news.clone());
        let news: News = Arc::new(move || drop(lock(&news).send(Message::News)));
        // Without a helper the program reads by itself.
        let Ok(ahead) = Ahead::follow(&[path], self.limit, self.order, self.reader, news) else { return };
        self.shared.used_ms.store(self.shared.began.elapsed().as_millis() as u64, Ordering::Relaxed);
        self.set_current(Some((root, Arc::clone(ahead.board()))));
        self.running = Some(Running { root, ahead });
    }

    fn set_current(&self, current: Option<(DirectoryId, Arc<Board>)>) {
        if let Ok(mut place) = self.shared.current.write() {
            *place = current;
        }
    }

    fn end(&mut self) {
        let Some(Running { root, ahead }) = self.running.take() else { return };
        let figures = ahead.finish();
        let brought = Brought { root, most_missed: figures.files / GONE_PART, missed: AtomicU64::new(0) };
        *lock(&self.shared.brought) = (figures.files > 0).then_some(brought);
        self.set_current(None);
        self.quiet = (figures.files == 0).then(|| (root, Instant::now()));
        let mut all = lock(&self.shared.figures);
        all.files += figures.files;
        all.bytes += figures.bytes;
        all.sweeps += figures.sweeps;
        all.waits += figures.waits;
        all.remark = figures.remark.or(all.remark.take());
    }

    /// Answers what needs to wait no more.
    fn let_go(&mut self) {
        // Who has begun to wait as that was told is heard of later, and goes on then.
        let is_passed_by = self.shared.is_passed_by.load(Ordering::SeqCst);
        let walk = self.shared.current().filter(|_| !is_passed_by);
        for (waiting, has_waited) in std::mem::take(&mut self.parked) {
            match &walk {
                Some((root, board)) if waits(*root, board, &waiting, has_waited) => {
                    self.parked.push_back((waiting, true));
                }
                // A channel that nobody reads gives the job back.
                _ => {
                    if let Err(mpsc::SendError(job)) = self.jobs.send(waiting.job) {
                        job();
                    }
                }
            }
        }
    }
}

impl Running {
    fn is_over(&self) -> bool {
        self.ahead.board().phase() == Phase::Over
    }
}

/// Whether a request has to wait longer, while the walk over `root` is helped. Elsewhere nobody waits until that has been looked at.
fn waits(root: DirectoryId, board: &Board, waiting: &Waiting, has_waited: bool) -> bool {
    match (board.phase(), waiting.file) {
        (Phase::Looking, _) => waiting.chain.contains(&root),
        (Phase::Guided, Some(inode)) => {
            let Some(slot) = board.find(inode.dev, inode.ino) else { return false };
            if board.is_ready(slot) {
                board.note_opened(slot);
                return false;
            }
            if !has_waited {
                board.note_wait();
            }
            board.want(slot, !has_waited);
            true
        }
        (Phase::Guided | Phase::Aside | Phase::Over, _) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::State;

    const FILE: Inode = Inode { dev: 7, ino: 12 };

    /// A guide whose walk over `root` is being looked at, and what it is told.
    fn looking(root: DirectoryId) -> (Guide, Arc<Board>, mpsc::Receiver<Message>) {
        let board = Arc::new(Board::new(&[FILE.dev], None).unwrap());
        let shared = Arc::new(Shared {
            walks: Mutex::default(),
            brought: Mutex::default(),
            current: RwLock::new(Some((root, Arc::clone(&board)))),
            used_ms: AtomicU64::new(0),
            is_passed_by: AtomicBool::new(false),
            began: Instant::now(),
            figures: Mutex::default(),
        });
        let (messages, told) = mpsc::channel();
        (Guide { shared, messages, thread: Mutex::new(None) }, board, told)
    }

    fn reads(guide: &Guide, chain: &[DirectoryId], is_cached: impl Into<Option<bool>>) -> bool {
        let is_cached = is_cached.into();
        let (done, is_done) = mpsc::channel();
        let job: Job = Box::new(move || done.send(()).unwrap());
        let path = |_| Some(PathBuf::from("tree"));
        guide.before_reading(FILE, || is_cached, || chain.to_vec(), path, job);
        is_done.try_recv().is_ok()
    }

    #[test]
    fn a_file_waits_for_a_look_at_its_own_tree_alone() {
        let (guide, _, told) = looking(10);
        assert!(!reads(&guide, &[11, 10, 1], false), "below");
        assert!(reads(&guide, &[11, 10, 1], true), "in memory");
        assert!(reads(&guide, &[20, 1], false), "beside");
        assert!(reads(&guide, &[1], false), "above");
        let waiting: Vec<Message> = told.try_iter().collect();
        assert!(matches!(&waiting[..], [Message::Wait(Waiting { file: Some(FILE), .. })]));
    }

    #[test]
    fn what_is_in_memory_is_read_at_once_though_it_is_to_come() {
        for state in [State::Later, State::Coming] {
            let (guide, board, told) = looking(10);
            board.make_room(1).unwrap();
            let slot = board.enter(0, FILE.ino).unwrap();
            board.set(slot, state);
            board.enter_phase(Phase::Guided);
            assert!(!reads(&guide, &[11, 10, 1], false), "{state:?}");
            assert_eq!((told.try_iter().count(), board.was_opened(slot)), (1, false), "{state:?}");
            assert!(reads(&guide, &[11, 10, 1], true), "{state:?}");
            assert_eq!((told.try_iter().count(), board.was_opened(slot)), (0, true), "{state:?}");
        }
    }

    /// Where neither the page cache nor a read tells.
    #[test]
    fn what_may_be_in_memory_is_waited_for_where_it_is_to_come() {
        let (guide, board, told) = looking(10);
        assert!(reads(&guide, &[20, 1], None), "no walk begins for it");
        board.make_room(1).unwrap();
        let slot = board.enter(0, FILE.ino).unwrap();
        board.set(slot, State::Coming);
        board.enter_phase(Phase::Guided);
        assert!(!reads(&guide, &[11, 10, 1], None));
        assert_eq!((told.try_iter().count(), board.was_opened(slot)), (1, false));
        board.set(slot, State::In);
        assert!(reads(&guide, &[11, 10, 1], None) && board.was_opened(slot));
    }

    /// Also who comes later; and when that is over, they wait again.
    #[test]
    fn who_waits_goes_on_when_the_guide_is_passed_by() {
        let (guide, _, told) = looking(10);
        let (jobs, answered) = mpsc::channel();
        let mut worker = Worker {
            shared: Arc::clone(&guide.shared),
            news: guide.messages.clone(),
            jobs,
            limit: None,
            order: Order::Source,
            reader: Reader::Itself,
            running: None,
            parked: VecDeque::new(),
            quiet: None,
        };
        let mut let_go_of_one = |expected: usize| {
            let waiting = Waiting { chain: vec![11, 10, 1], file: Some(FILE), job: Box::new(|| {}) };
            worker.parked.push_back((waiting, false));
            worker.let_go();
            assert_eq!(answered.try_iter().count(), expected);
        };
        let_go_of_one(0);
        guide.be_passed_by(true);
        assert!(matches!(told.try_recv(), Ok(Message::News)), "at once, also where nothing else happens");
        let_go_of_one(2);
        guide.be_passed_by(false);
        let_go_of_one(0);
    }

    /// Another walk that isn't helped yet is none for which somebody waits.
    #[test]
    fn who_waits_elsewhere_is_let_go_while_a_tree_is_looked_at() {
        let (_, board, _) = looking(10);
        board.make_room(1).unwrap();
        let slot = board.enter(0, FILE.ino).unwrap();
        let waiting = |chain: &[DirectoryId], file| Waiting { chain: chain.to_vec(), file, job: Box::new(|| {}) };
        for file in [None, Some(FILE)] {
            assert!(waits(10, &board, &waiting(&[11, 10, 1], file), false));
            assert!(!waits(10, &board, &waiting(&[20, 1], file), false));
        }
        board.enter_phase(Phase::Guided);
        assert!(waits(10, &board, &waiting(&[20, 1], Some(FILE)), false), "one of its names is below");
        assert!(!waits(10, &board, &waiting(&[11, 10, 1], None), false));
        board.set(slot, State::In);
        assert!(!waits(10, &board, &waiting(&[11, 10, 1], Some(FILE)), false));
    }
}
