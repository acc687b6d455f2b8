//! Answers the kernel: who opens something goes on at once, or when what he opens is in memory.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use onesweep_sys::{
    awake::Awake,
    files::{EntryType, Stat, path_of, statx_fd},
    permission::{Event, HelpersGate, Opening},
    ready::{self, Bell},
};

use super::{
    attention::Attention,
    listeners::Post,
    lookout::{Lookout, Mount},
    probe::{self, Missing},
    routes::{Route, Routes},
};
use crate::{
    ahead::{Figures, Reader},
    guide::{DirectoryId, Guide, Inode, Job},
    lock,
    order::Order,
};

/// How long nobody listens after directories were opened, where many before were in memory: to wake somebody takes a program longer than to open one. A program that had
/// to wait for a disk meanwhile has opened one at most.
const PAUSE: Duration = Duration::from_millis(4);

/// What is taken from the kernel at most, before directories that were opened are looked at. Each of them takes a descriptor until then, and where there is none left, the
/// kernel refuses what is opened.
const TOGETHER: usize = 256;

pub(super) struct Doorman {
    gate: HelpersGate,
    /// The tree, by a mount of which nobody asks.
    own: OwnedFd,
    source: PathBuf,
    routes: Routes,
    lookout: Mutex<Lookout>,
    guide: Guide,
    attention: Mutex<Attention>,
    /// Rung when the kernel begins to ask, and when all is to end.
    bell_of_questions: Bell,
    bell_of_the_end: Bell,
    began: Instant,
    is_over: AtomicBool,
    awake: Option<Awake>,
    asked: AtomicU64,
}

impl Doorman {
    /// One for the tree `source`, of which `own` is a mount of its own. `shown`, another one, is about to be shown at `dir`.
    pub(super) fn new(
        own: OwnedFd,
        source: &Path,
        (shown, dir): (BorrowedFd<'_>, &Path),
        limit: Option<u64>,
        awake: Option<Awake>,
    ) -> io::Result<Self> {
        let gate = HelpersGate::new()?;
        gate.be_silent(own.as_fd(), true)?;
        gate.leave_mount_out(own.as_fd())?;
        gate.watch_mount(shown)?;
        gate.watch_file_system(own.as_fd())?;
        let lookout = Lookout::new(source, own.as_fd(), shown)?;
        Ok(Self {
            gate,
            own,
            source: source.to_owned(),
            routes: Routes::new(dir),
            lookout: Mutex::new(lookout),
            guide: Guide::start(limit, Order::Source, Reader::Itself)?,
            attention: Mutex::default(),
            bell_of_questions: Bell::new()?,
            bell_of_the_end: Bell::new()?,
            began: Instant::now(),
            is_over: AtomicBool::new(false),
            awake,
            asked: AtomicU64::new(0),
        })
    }

    /// Listens to the kernel until the bell is rung, or another one does in its place.
    pub(super) fn listen(&self, bell: &Bell, post: &Post) {
        while !post.is_followed() {
            if matches!(self.gate.wait(bell), Ok(true)) {
                return self.let_in_the_last(post);
            }
            let mut opened = Vec::new();
            let is_all = self.take_together(post, &mut opened);
            let is_slow = opened.len() == 1;
            opened.iter().for_each(|file| self.was_opened(file, is_slow));
            drop(opened);
            let is_sure = is_all && lock(&self.attention).is_sure();
            if is_sure && matches!(ready::wait_for_bell(bell, Some(PAUSE)), Ok(true)) {
                bell.ring();
                return self.let_in_the_last(post);
            }
        }
    }

    /// Answers questions, and notes what was opened. Whether that was all.
    fn take_together(&self, post: &Post, opened: &mut Vec<File>) -> bool {
        for _ in 0..TOGETHER {
            match self.take(post) {
                Ok(None) => return true,
                Ok(Some(Event::Asked(opening))) => self.opens(opening),
                Ok(Some(Event::Opened(file))) => opened.push(file),
                // What can't be asked, the kernel has answered; the next question is another one.
                Err(_) => {}
            }
        }
        false
    }

    /// The same beside somebody who does, while the kernel asks.
    pub(super) fn listen_to_questions(&self, bell: &Bell, post: &Post) {
        while !post.is_followed() && !self.is_over() {
            if !self.asks() {
                let _ = ready::wait_for_bell(&self.bell_of_questions, None);
                continue;
            }
            if matches!(self.gate.wait(bell), Ok(true)) {
                return self.let_in_the_last(post);
            }
            match self.take(post) {
                Ok(Some(Event::Asked(opening))) => self.opens(opening),
                Ok(Some(Event::Opened(file))) => self.was_opened(&file, false),
                Ok(None) | Err(_) => {}
            }
        }
    }

    fn take(&self, post: &Post) -> io::Result<Option<Event>> {
        post.takes(self.now());
        let taken = self.gate.take();
        post.has_taken();
        taken
    }

    /// Those who have asked before the end: nobody else does any more. Dropped, they are let in.
    fn let_in_the_last(&self, post: &Post) {
        while !matches!(self.take(post), Ok(None)) {}
    }

    /// Whether the kernel asks.
    pub(super) fn asks(&self) -> bool {
        lock(&self.attention).asks()
    }

    /// The time since this began.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// Waits for the end, but no longer than that. One thread may.
    pub(super) fn wait_for_end(&self, time: Duration) {
        let _ = ready::wait_for_bell(&self.bell_of_the_end, Some(time));
    }

    fn opens(&self, opening: Opening) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        if let Some(awake) = &self.awake {
            awake.asked();
        }
        let route = self.route(opening.file().as_fd());
        // Dropped, it is allowed.
        let (Some(route), Ok(stat)) = (route, statx_fd(opening.file().as_fd())) else { return };
        match stat.file_type() {
            EntryType::Dir => self.opens_directory(opening, &route),
            EntryType::File => self.opens_file(opening, &stat, &route),
            _ => {}
        }
    }

    fn route(&self, open: BorrowedFd<'_>) -> Option<Route> {
        path_of(open).ok().and_then(|path| self.routes.to(&path))
    }

    fn opens_directory(&self, opening: Opening, route: &Route) {
        let chain = route.chain();
        self.guide.passes(&chain);
        let go_on: Job = Box::new(move || drop(opening));
        if self.guide.helps() {
            return self.guide.before_listing(|| chain, go_on);
        }
        let missing = probe::missing(self.own.as_fd(), route);
        self.attend(|attention| attention.looked(&missing, false));
        match missing {
            Ok(Some(Missing::Entries)) => self.guide.before_missed(&chain, |top| self.path_of(route, top), go_on),
            _ => go_on(),
        }
    }

    fn opens_file(&self, opening: Opening, stat: &Stat, route: &Route) {
        let is_cached = probe::is_cached(opening.file().as_fd(), stat.size);
        if !self.guide.helps() {
            self.attend(if is_cached { Attention::found } else { Attention::missed });
        }
        let inode = Inode { dev: stat.dev, ino: stat.ino };
        let above = route.above();
        let chain = || above.as_ref().map_or_else(Vec::new, Route::chain);
        let go_on: Job = Box::new(move || drop(opening));
        self.guide.before_reading(inode, || Some(is_cached), chain, |top| self.path_of(route, top), go_on);
    }

    /// A directory was opened, or a file through a mount of which nothing is known. `is_slow` tells that no other one was at that time.
    fn was_opened(&self, opened: &File, is_slow: bool) {
        let mount = lock(&self.lookout).sees(opened);
        match mount {
            Ok(Mount::Showing) => {}
            Ok(Mount::New(place)) => {
                self.routes.add(&place);
                let _ = self.gate.watch_mount(opened.as_fd());
            }
            // From now on it costs nobody anything.
            Ok(Mount::Other) => return drop(self.gate.leave_mount_out(opened.as_fd())),
            Ok(Mount::Unknown) | Err(_) => return,
        }
        let looks = {
            let mut attention = lock(&self.attention);
            // Whoever is asked for it has seen it.
            if attention.asks() {
                return;
            }
            attention.looks(is_slow)
        };
        let Some(route) = self.route(opened.as_fd()) else { return };
        let chain = route.chain();
        self.guide.passes(&chain);
        if !looks {
            return;
        }
        let missing = probe::missing(self.own.as_fd(), &route);
        self.attend(|attention| attention.looked(&missing, true));
        if let Ok(Some(Missing::Entries)) = missing {
            self.guide.listed_from_disk(&chain, |top| self.path_of(&route, top));
        }
    }

    /// Has the kernel ask or not, as what has happened wants it.
    fn attend(&self, happened: impl FnOnce(&mut Attention)) {
        let mut attention = lock(&self.attention);
        let before = attention.asks();
        happened(&mut attention);
        if attention.asks() != before {
            let _ = self.gate.be_silent(self.own.as_fd(), before);
            if !before {
                self.bell_of_questions.ring();
            }
        }
    }

    fn path_of(&self, route: &Route, directory: DirectoryId) -> Option<PathBuf> {
        route.of(directory).map(|path| match path.as_os_str().is_empty() {
            // Without a slash behind it.
            true => self.source.clone(),
            false => self.source.join(path),
        })
    }

    /// Lets all go on, now and, once this is dropped, those of whom nobody has heard yet. Rings the bell, and tells what was done.
    pub(super) fn finish(&self, bell: &Bell) -> Figures {
        let _ = self.gate.leave();
        self.is_over.store(true, Ordering::SeqCst);
        bell.ring();
        self.bell_of_questions.ring();
        self.bell_of_the_end.ring();
        Figures { asked: self.asked.load(Ordering::Relaxed), ..self.guide.finish() }
    }
}
