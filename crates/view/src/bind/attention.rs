//! Whether the kernel is to ask before something is opened: pure.
//!
//! Each question costs who opens something some 10 µs or more, which is nothing beside a disk, and as much as reading a small file from
//! memory. So it asks from when something wasn't in memory until many openings in a row were of what was. Before, directories that
//! were opened are looked at now and then, beside who opened them.

use std::io;

use super::probe::Missing;

/// Openings in a row of what was in memory, after which nobody is asked any more.
const IN_MEMORY: u32 = 64;

/// From when on so many are left out between two, nobody listens all the time.
const APART_SURE: u32 = 4;

/// Of directories that are opened in quick succession one in so many is looked at, where all before were in memory.
const APART_MAX: u32 = 16;

/// What is known of those who open something.
#[derive(Debug, Default)]
pub(super) struct Attention {
    asks: bool,
    /// Nobody could answer.
    is_paused: bool,
    in_memory: u32,
    /// Directories until the next one that is looked at, and from that one to the next.
    left: u32,
    apart: u32,
}

impl Attention {
    /// Whether the kernel is to ask.
    pub(super) fn asks(&self) -> bool {
        self.asks && !self.is_paused
    }

    /// Whether nobody is asked because nobody could answer soon.
    pub(super) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Nobody is asked from now on, or again where that was so before.
    pub(super) fn pause(&mut self, is_paused: bool) {
        self.is_paused = is_paused;
    }

    /// Something is not in memory.
    pub(super) fn missed(&mut self) {
        self.asks = true;
        self.in_memory = 0;
        (self.left, self.apart) = (0, 1);
    }

    /// Something was asked for that is in memory, while no walk was helped.
    pub(super) fn found(&mut self) {
        self.in_memory += 1;
        if self.in_memory >= IN_MEMORY {
            self.asks = false;
        }
    }

    /// A directory was opened. Whether it is looked at. `is_slow` tells that others don't follow in quick succession: something may have come from a disk.
    pub(super) fn looks(&mut self, is_slow: bool) -> bool {
        let looks = self.left == 0 || is_slow;
        self.left = if looks { self.apart.saturating_sub(1) } else { self.left - 1 };
        looks
    }

    /// Whether so many directories were in memory that a moment may pass before the next one is heard of.
    pub(super) fn is_sure(&self) -> bool {
        !self.asks && self.apart >= APART_SURE
    }

    /// It was in memory, and what was looked at in it as well.
    fn found_beside(&mut self) {
        self.apart = (self.apart * 2).clamp(1, APART_MAX);
    }

    /// A directory was looked at, before it was opened or `beside` who has opened it. Where that has failed, nothing is known of it.
    pub(super) fn looked(&mut self, missing: &io::Result<Option<Missing>>, beside: bool) {
        match missing {
            Ok(Some(_)) => self.missed(),
            Ok(None) if beside => self.found_beside(),
            Ok(None) => self.found(),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_asks_until_many_were_in_memory() {
        let mut attention = Attention::default();
        assert!(!attention.asks());
        attention.missed();
        for _ in 1..IN_MEMORY {
            attention.found();
        }
        assert!(attention.asks());
        attention.missed();
        for _ in 1..IN_MEMORY {
            attention.found();
        }
        assert!(attention.asks(), "counted anew");
        attention.found();
        assert!(!attention.asks());
    }

    #[test]
    fn nobody_is_asked_in_a_pause_and_what_was_so_before_is_so_again() {
        let mut attention = Attention::default();
        assert!(!attention.is_paused());
        attention.pause(true);
        attention.missed();
        assert!(!attention.asks() && attention.is_paused(), "what was under way as it began");
        attention.pause(false);
        assert!(attention.asks());
        attention.pause(true);
        for _ in 0..IN_MEMORY {
            attention.found();
        }
        attention.pause(false);
        assert!(!attention.asks());
    }

    #[test]
    fn what_cannot_be_looked_at_is_neither_in_memory_nor_missing() {
        let gone = || Err(io::ErrorKind::NotFound.into());
        let mut attention = Attention::default();
        attention.looked(&gone(), false);
        assert!(!attention.asks());
        attention.looked(&Ok(Some(Missing::Content)), true);
        for _ in 0..IN_MEMORY * 2 {
            attention.looked(&gone(), false);
            attention.looked(&gone(), true);
        }
        assert!(attention.asks() && !attention.is_sure());
        for _ in 0..IN_MEMORY {
            attention.looked(&Ok(None), false);
        }
        assert!(!attention.asks());
    }

    #[test]
    fn what_is_in_memory_is_looked_at_now_and_then() {
        let mut attention = Attention::default();
        let looks = |attention: &mut Attention, is_slow| {
            let looks = attention.looks(is_slow);
            if looks {
                attention.found_beside();
            }
            looks
        };
        let looked: Vec<usize> = (0..60).filter(|_| looks(&mut attention, false)).collect();
        assert_eq!(looked, [0, 1, 2, 4, 8, 16, 32, 48]);
        assert!(attention.is_sure() && !Attention::default().is_sure());
        assert!(looks(&mut attention, true));
        attention.missed();
        assert!(attention.looks(false) && attention.looks(false), "each one");
        assert!(!attention.is_sure());
    }
}
