//! Answers the kernel: who opens something goes on at once, or when what he opens is in memory.

use std::{
    fs::File,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread,
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

/// How often it is looked, before a pause, whether somebody still waits, and how often in a row nobody has to: the kernel may be about to ask for who was there before.
const LOOK: Duration = Duration::from_millis(1);
const LOOKS: u32 = 5;
/// What a pause waits for that at most: somebody may have a lease on a file that is asked about.
const PATIENCE: Duration = Duration::from_secs(1);

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
    /// Questions that were taken and not answered, or are being taken.
    inside: Arc<AtomicUsize>,
}

/// One who has asked, and is let in when this is dropped.
struct Guest {
    opening: Opening,
    _inside: Inside,
}

/// Counts itself.
struct Inside(Arc<AtomicUsize>);

impl Inside {
    fn new(all: &Arc<AtomicUsize>) -> Self {
        all.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(all))
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What the kernel has said.
enum Heard {
    Asked(Guest),
    Opened(File),
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
            inside: Arc::default(),
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
                Ok(Some(Heard::Asked(guest))) => self.opens(guest),
                Ok(Some(Heard::Opened(file))) => opened.push(file),
                // What can't be asked, the kernel has answered; the next question is another one.
                Err(_) => {}
            }
        }
        false
    }

    /// The same beside somebody who does, while the kernel asks.
    pub(super) fn listen_to_questions(&self, bell: &Bell, post: &Post) {
        while !post.is_followed() && !self.is_over() {
            // In a pause those who have asked before are let in by all that can.
            if !self.asks() && !self.is_paused() {
                let _ = ready::wait_for_bell(&self.bell_of_questions, None);
                continue;
            }
            if matches!(self.gate.wait(bell), Ok(true)) {
                return self.let_in_the_last(post);
            }
            match self.take(post) {
                Ok(Some(Heard::Asked(guest))) => self.opens(guest),
                Ok(Some(Heard::Opened(file))) => self.was_opened(&file, false),
                Ok(None) | Err(_) => {}
            }
        }
    }

    fn take(&self, post: &Post) -> io::Result<Option<Heard>> {
        // Before, so that a question is always to be seen, here or in the kernel.
        let inside = Inside::new(&self.inside);
        post.takes(self.now());
        let taken = self.gate.take();
        post.has_taken();
        Ok(taken?.map(|event| match event {
            Event::Asked(opening) => Heard::Asked(Guest { opening, _inside: inside }),
            Event::Opened(file) => Heard::Opened(file),
        }))
    }

    /// This process is about to be stopped, and answers nobody then: nobody is asked, and who has asked goes on. What is opened meanwhile isn't told, either, for it
    /// would be kept for as long. Who is held by somebody else's lease goes on when that is over, and this process is there again.
    pub(super) fn pause(&self) {
        self.attend(|attention| attention.pause(true));
        let _ = self.gate.be_deaf(self.own.as_fd(), true);
        self.guide.be_passed_by(true);
        let began = Instant::now();
        let mut looks = 0;
        while looks < LOOKS && began.elapsed() < PATIENCE {
            thread::sleep(LOOK);
            let is_empty = !self.gate.has_something().unwrap_or(false);
            looks = if is_empty && self.inside.load(Ordering::SeqCst) == 0 { looks + 1 } else { 0 };
        }
    }

    /// All is as before the pause.
    pub(super) fn go_on(&self) {
        self.guide.be_passed_by(false);
        let _ = self.gate.be_deaf(self.own.as_fd(), false);
        self.attend(|attention| attention.pause(false));
    }

    /// Those who have asked before the end: nobody else does any more. Dropped, they are let in.
    fn let_in_the_last(&self, post: &Post) {
        while !matches!(self.take(post), Ok(None)) {}
    }

    /// Whether the kernel asks.
    pub(super) fn asks(&self) -> bool {
        lock(&self.attention).asks()
    }

    fn is_paused(&self) -> bool {
        lock(&self.attention).is_paused()
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

    fn opens(&self, guest: Guest) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        // Dropped, it is allowed: there is no time to look at anything.
        if self.is_paused() {
            return;
        }
        if let Some(awake) = &self.awake {
            awake.asked();
        }
        let file = guest.opening.file().as_fd();
        // Dropped, it is allowed.
        let (Some(route), Ok(stat)) = (self.route(file), statx_fd(file)) else { return };
        match stat.file_type() {
            EntryType::Dir => self.opens_directory(guest, &route),
            EntryType::File => self.opens_file(guest, &stat, &route),
            _ => {}
        }
    }

    fn route(&self, open: BorrowedFd<'_>) -> Option<Route> {
        path_of(open).ok().and_then(|path| self.routes.to(&path))
    }

    fn opens_directory(&self, guest: Guest, route: &Route) {
        let chain = route.chain();
        self.guide.passes(&chain);
        let go_on: Job = Box::new(move || drop(guest));
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

    fn opens_file(&self, guest: Guest, stat: &Stat, route: &Route) {
        let is_cached = probe::is_cached(guest.opening.file().as_fd(), stat.size);
        if !self.guide.helps() {
            self.attend(if is_cached { Attention::found } else { Attention::missed });
        }
        let inode = Inode { dev: stat.dev, ino: stat.ino };
        let above = route.above();
        let chain = || above.as_ref().map_or_else(Vec::new, Route::chain);
        let go_on: Job = Box::new(move || drop(guest));
        self.guide.before_reading(inode, || Some(is_cached), chain, |top| self.path_of(route, top), go_on);
    }

    /// A directory was opened, or a file through a mount of which nothing is known. `is_slow` tells that no other one was at that time.
    fn was_opened(&self, opened: &File, is_slow: bool) {
        if self.is_paused() {
            return;
        }
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
