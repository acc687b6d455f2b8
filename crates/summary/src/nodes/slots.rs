//! Slots: the numbers of directories.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// The number of a directory in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot(pub u32);

/// Something of each of many directories.
pub type SlotMap<V> = HashMap<Slot, V, BuildHasherDefault<SlotHasher>>;

/// Numbers of directories are given out one after the other, so nobody can choose some that collide.
#[derive(Debug, Default)]
pub struct SlotHasher(u64);

impl Hasher for SlotHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    fn write_u32(&mut self, number: u32) {
        // The golden ratio: neighbours come far from each other.
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Stands for no directory: all numbers are less.
pub(super) const NONE: u32 = u32::MAX;

/// The directory that such a number stands for.
pub(super) fn some(slot: u32) -> Option<Slot> {
    (slot != NONE).then_some(Slot(slot))
}
