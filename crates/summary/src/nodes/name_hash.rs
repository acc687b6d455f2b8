//! What names hash to: enough to see a rename without a look into the store.

use std::hash::BuildHasher;

use crate::order::Order;

/// What names hash to in one tree.
#[derive(Clone, Debug)]
pub struct NameHash(pub(super) Order);

impl NameHash {
    /// Of a name.
    pub fn of(&self, name: &[u8]) -> u32 {
        self.0.hash_one(name) as u32
    }
}
