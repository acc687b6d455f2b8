//! Those who listen to the kernel. Before one of them hears of an opening the kernel opens the same file for it, and where somebody has a lease
//! on that file, both wait until it is given back. So one that is held is followed by another one: what else is opened has nothing to do with that lease.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use onesweep_sys::{lease, ready::Bell};

use super::doorman::Doorman;

/// Who takes something from the kernel so long is held: it has been there before he asked for it, and is opened in microseconds.
const HELD: Duration = Duration::from_millis(100);
/// How often that is looked at, while the kernel asks, and while it doesn't.
const LOOK: Duration = Duration::from_millis(50);
const RARE_LOOK: Duration = Duration::from_secs(1);
/// The same at the end.
const LAST_LOOK: Duration = Duration::from_millis(2);

/// What is known of one who listens.
#[derive(Debug, Default)]
pub(super) struct Post {
    /// When it began to take something from the kernel, in milliseconds and one; 0 while it doesn't.
    since: AtomicU64,
    is_followed: AtomicBool,
}

impl Post {
    /// It takes something from the kernel. Times are counted from any moment.
    pub(super) fn takes(&self, now: Duration) {
        self.since.store(now.as_millis() as u64 + 1, Ordering::SeqCst);
    }

    /// It has it, or there was nothing.
    pub(super) fn has_taken(&self) {
        self.since.store(0, Ordering::SeqCst);
    }

    /// Whether another one has taken its place, so that it is to listen no more.
    pub(super) fn is_followed(&self) -> bool {
        self.is_followed.load(Ordering::SeqCst)
    }

    /// Whether it stands there for long, and nobody has taken its place.
    fn is_held(&self, now: Duration) -> bool {
        let since = self.since.load(Ordering::SeqCst);
        since != 0 && !self.is_followed() && now.as_millis() as u64 + 1 >= since + HELD.as_millis() as u64
    }
}

type Work = fn(&Doorman, &Bell, &Post);

struct Listener {
    work: Work,
    post: Arc<Post>,
    thread: JoinHandle<()>,
}

pub(super) struct Listeners {
    doorman: Arc<Doorman>,
    bell: Arc<Bell>,
    all: Vec<Listener>,
}

impl Listeners {
    /// The first ones. They end when the bell is rung.
    pub(super) fn begin(doorman: &Arc<Doorman>, bell: &Arc<Bell>) -> io::Result<Self> {
        let mut listeners = Self { doorman: Arc::clone(doorman), bell: Arc::clone(bell), all: Vec::new() };
        listeners.add(Doorman::listen)?;
        listeners.add(Doorman::listen_to_questions)?;
        Ok(listeners)
    }

    fn add(&mut self, work: Work) -> io::Result<()> {
        let post = Arc::new(Post::default());
        let (doorman, bell, own) = (Arc::clone(&self.doorman), Arc::clone(&self.bell), Arc::clone(&post));
        let thread = thread::Builder::new().name("view-door".into()).spawn(move || work(&doorman, &bell, &own))?;
        self.all.push(Listener { work, post, thread });
        Ok(())
    }

    /// Sees to it that there are always some who aren't held, until all is over. Who waits for a lease then is waited for as long as the kernel lets it be
    /// kept: when this process ends, the kernel refuses his question to who asked.
    pub(super) fn keep(mut self) {
        while !self.doorman.is_over() {
            let is_asked = self.doorman.asks() || self.all.iter().any(|listener| listener.post.is_followed());
            self.doorman.wait_for_end(if is_asked { LOOK } else { RARE_LOOK });
            self.follow();
        }
        let until = Instant::now() + lease::longest_wait() + RARE_LOOK;
        while !self.all.is_empty() && Instant::now() < until {
            thread::sleep(LAST_LOOK);
            self.follow();
        }
    }

    fn follow(&mut self) {
        self.all.retain(|listener| !listener.thread.is_finished());
        let now = self.doorman.now();
        for at in 0..self.all.len() {
            // Without another thread this one is looked at once more.
            if self.all[at].post.is_held(now) && self.add(self.all[at].work).is_ok() {
                self.all[at].post.is_followed.store(true, Ordering::SeqCst);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_something_for_long_is_held() {
        let post = Post::default();
        assert!(!post.is_held(HELD * 9), "it takes nothing");
        post.takes(Duration::ZERO);
        assert!(!post.is_held(HELD / 2) && post.is_held(HELD));
        post.takes(HELD);
        assert!(!post.is_held(HELD), "something else");
        post.has_taken();
        assert!(!post.is_held(HELD * 9));
        post.takes(HELD);
        post.is_followed.store(true, Ordering::SeqCst);
        assert!(!post.is_held(HELD * 9), "by one");
    }
}
