//! Sums that are even when two tables tell the same, in whatever order they tell it.

use crate::tables::cast::to_usize;

/// So many parts are summed by themselves, which shows where something is wrong. Fit into the nearest cache.
const PARTS: usize = 1024;

/// What one table tells is added, and what the other tells is taken off.
#[derive(Clone, Debug)]
pub(in crate::tables) struct Balance(Box<[u64]>);

impl Default for Balance {
    fn default() -> Balance {
        Balance(vec![0; PARTS].into_boxed_slice())
    }
}

impl Balance {
    fn part(key: u64) -> usize {
        to_usize(key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - PARTS.ilog2()))
    }

    /// Adds so many of something to what belongs to a key.
    pub(in crate::tables) fn add(&mut self, key: u64, what: u64, count: u64) {
        let sum = &mut self.0[Balance::part(key)];
        *sum = sum.wrapping_add(what.wrapping_mul(count));
    }

    /// Takes one off.
    pub(in crate::tables) fn take(&mut self, key: u64, what: u64) {
        let sum = &mut self.0[Balance::part(key)];
        *sum = sum.wrapping_sub(what);
    }

    /// Whether both told the same of all keys.
    pub(in crate::tables) fn is_even(&self) -> bool {
        self.0.iter().all(|sum| *sum == 0)
    }

    /// Whether both told the same of a key, and of those that share its part.
    pub(in crate::tables) fn is_even_for(&self, key: u64) -> bool {
        self.0[Balance::part(key)] == 0
    }
}

/// A number that stands for two in a sum.
pub(in crate::tables) fn mixed(one: u64, other: u64) -> u64 {
    let mut mixed = one.wrapping_add(other.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_both_tell_is_even_in_any_order() {
        let told = || (0..5000_u64).map(|number| (number % 700, mixed(number, number % 7)));
        let mut balance = Balance::default();
        told().for_each(|(key, what)| balance.add(key, what, 1));
        assert!(!balance.is_even());
        let mut backwards: Vec<_> = told().collect();
        backwards.reverse();
        backwards.iter().for_each(|(key, what)| balance.take(*key, *what));
        assert!(balance.is_even());
        balance.add(33, mixed(1, 2), 2);
        balance.take(33, mixed(1, 2));
        balance.take(33, mixed(2, 1));
        assert!(!balance.is_even() && !balance.is_even_for(33));
        assert!((0..700).filter(|&key| !balance.is_even_for(key)).count() < 10, "the others are not suspected");
    }
}
