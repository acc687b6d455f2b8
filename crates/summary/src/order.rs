//! Maps and sets of which nobody can tell in which order they are gone through.
//!
//! Numbers of inodes and names come from users, who must not be able to choose many that collide: so each process has hashes of its own.
//! A test gives a number from which they come instead, so that what it has found can be had once more.

use std::{
    cell::Cell,
    collections::{HashMap, HashSet},
    hash::{BuildHasher, DefaultHasher, Hasher, RandomState},
};

/// A map in such an order.
pub type Map<K, V> = HashMap<K, V, Order>;
/// A set in such an order.
pub type Set<K> = HashSet<K, Order>;

/// What things hash to in one map.
#[derive(Clone, Debug)]
pub struct Order(Source);

#[derive(Clone, Debug)]
enum Source {
    Chance(RandomState),
    Number(u64),
}

thread_local! {
    static GIVEN: Cell<Option<u64>> = const { Cell::new(None) };
}

/// From now on the orders of all maps that this thread makes come from a number. For tests alone: whoever knows it can have all collide.
pub fn give(number: u64) {
    GIVEN.set(Some(number));
}

impl Default for Order {
    fn default() -> Order {
        Order(match GIVEN.get() {
            None => Source::Chance(RandomState::new()),
            Some(number) => {
                // The next one is another one, as it is by chance.
                GIVEN.set(Some(number.wrapping_add(1)));
                Source::Number(number)
            }
        })
    }
}

impl BuildHasher for Order {
    type Hasher = DefaultHasher;

    fn build_hasher(&self) -> DefaultHasher {
        match &self.0 {
            Source::Chance(state) => state.build_hasher(),
            Source::Number(number) => {
                let mut hasher = DefaultHasher::new();
                hasher.write_u64(*number);
                hasher
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn orders(number: Option<u64>) -> [Vec<u64>; 2] {
        thread::spawn(move || {
            number.into_iter().for_each(give);
            [(); 2].map(|()| (0..100).collect::<Set<u64>>().into_iter().collect())
        })
        .join()
        .expect("no panic")
    }

    #[test]
    fn a_number_gives_the_orders() {
        assert_eq!(orders(Some(7)), orders(Some(7)));
        assert_ne!(orders(Some(7)), orders(Some(1000)));
        let [one, next] = orders(Some(7));
        assert_ne!(one, next);
    }

    /// One of 100! orders: no two are the same.
    #[test]
    fn without_one_nobody_can_tell_them() {
        let all = [orders(None), orders(None)].concat();
        assert!((1..4).all(|at| !all[..at].contains(&all[at])));
    }
}
