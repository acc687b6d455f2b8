//! What a file system has shown of the ways in which it can be read.

use onesweep_sys::features::features;

use crate::settings::CachePolicy;

/// The ways of reading that a file system has shown itself to have.
#[derive(Clone, Copy)]
pub(super) struct Ways {
    pub(super) direct: bool,
    pub(super) dont_cache: bool,
    /// What is cached can be tried; `None` until somebody asks.
    pub(super) trial: Option<bool>,
    /// Files in a row whose direct reads were refused, or left pages in the cache.
    in_vain_in_a_row: u32,
}

impl Ways {
    /// Nothing is known yet.
    pub(super) fn of(policy: CachePolicy) -> Self {
        let fill = policy == CachePolicy::Fill;
        Self {
            direct: features().direct && !fill,
            dont_cache: features().dontcache && !fill,
            trial: None,
            in_vain_in_a_row: 0,
        }
    }

    /// Takes note of a file whose direct reads were `of_use` or not.
    pub(super) fn learn(&mut self, of_use: bool) {
        self.in_vain_in_a_row = if of_use { 0 } else { self.in_vain_in_a_row + 1 };
        self.direct &= self.in_vain_in_a_row < IN_VAIN_MAX;
    }
}

/// After so many files in a row whose direct reads were in vain, reads of their volume are not direct any more. One file
/// alone may be special, or have been read by somebody else meanwhile.
const IN_VAIN_MAX: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_special_file_does_not_turn_direct_reads_off() {
        let fresh = Ways { direct: true, dont_cache: true, trial: None, in_vain_in_a_row: 0 };
        let mut ways = fresh;
        for _ in 0..IN_VAIN_MAX - 1 {
            ways.learn(false);
        }
        assert!(ways.direct);
        ways.learn(true);
        for _ in 0..IN_VAIN_MAX - 1 {
            ways.learn(false);
        }
        assert!(ways.direct, "not in a row");
        ways.learn(false);
        assert!(!ways.direct && ways.dont_cache);
    }
}
