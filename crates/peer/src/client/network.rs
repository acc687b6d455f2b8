//! When the network has become another one: every server is tried at once, and not when its pause is over.
//!
//! A notebook that is docked, or a cable that is plugged in again, would otherwise be noticed by the next try alone, and after a
//! while there is one every ten seconds.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use onesweep_sys::{
    links::LinkWatch,
    ready::{self, Bell},
};

use super::link::Link;

/// After an error that will not go by itself at once, changes are waited for anew after so long.
const PAUSE: Duration = Duration::from_secs(1);

/// Told of each change.
type Told = Box<dyn Fn() + Send>;

/// The network that servers are asked by.
pub(super) struct Network {
    links: Vec<Arc<Link>>,
    told: Mutex<Vec<Told>>,
    changes: AtomicU64,
    is_ended: AtomicBool,
    bell: Bell,
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network").field("changes", &self.changes).finish_non_exhaustive()
    }
}

impl Network {
    /// Watches the network of the calling thread from now on. Where it can't be watched, servers are tried all the same, only later.
    pub(super) fn watch(links: Vec<Arc<Link>>) -> io::Result<Arc<Self>> {
        let network = Arc::new(Self {
            links,
            told: Mutex::default(),
            changes: AtomicU64::new(0),
            is_ended: AtomicBool::new(false),
            bell: Bell::new()?,
        });
        if let Ok(watch) = LinkWatch::new() {
            let watching = Arc::clone(&network);
            thread::Builder::new().name("peer-links".into()).spawn(move || watching.wait_for_changes(&watch))?;
        }
        Ok(network)
    }

    fn wait_for_changes(&self, watch: &LinkWatch) {
        while !self.is_ended.load(Ordering::Acquire) {
            match watch.wait(&self.bell, None) {
                Ok(true) => self.changed(),
                Ok(false) => {}
                Err(_) => _ = ready::wait_for_bell(&self.bell, Some(PAUSE)),
            }
        }
    }

    /// Tries all servers, and then tells who wants to know.
    pub(super) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.links.iter().for_each(|link| link.nudge());
        self.told.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|tell| tell());
    }

    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    pub(super) fn tell(&self, tell: Told) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).push(tell);
    }

    /// Nobody is waited for: the last one who asks may be told of a change just now, on that thread.
    pub(super) fn end(&self) {
        self.is_ended.store(true, Ordering::Release);
        self.bell.ring();
    }
}
