//! What is left to chance in the program comes from a number here: the orders of maps, and how quickly time passes.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use onesweep_summary::{clock::Clock, order, store::Store};

use crate::{Tracked, opened, tree::Tree};

/// Seconds since 1970.
const THEN: u64 = 1_700_000_000;

/// The seeds of a test: the one that `ONESWEEP_TEST_WRITER` tells, or so many, more in the long set.
pub(crate) fn seeds(few: u64, many: u64) -> Range<u64> {
    match told("ONESWEEP_TEST_WRITER") {
        Some(seed) => seed..seed + 1,
        None if std::env::var_os("ONESWEEP_TEST_LONG").is_some() => 0..many,
        None => 0..few,
    }
}

/// What `ONESWEEP_TEST_CHANCE` tells: by another one the same writers meet other orders and other clocks.
pub(crate) fn given() -> u64 {
    told("ONESWEEP_TEST_CHANCE").unwrap_or(0)
}

fn told(name: &str) -> Option<u64> {
    let told = std::env::var(name).ok()?;
    Some(told.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// What is known of a tree, by orders and clocks that a seed and a chance give. All that this thread makes from then on has such orders.
pub(crate) fn opened_by(tree: &Tree, store: Store, (seed, chance): (u64, u64)) -> Tracked {
    order::give(seed << 32 ^ chance << 16);
    opened(tree, store).with_clock(Arc::new(Fits::of(seed, chance)))
}

/// Clocks that go by fits and starts, as on a machine that has much to do: mostly they stand, and now and then seconds pass.
#[derive(Debug)]
struct Fits {
    seed: AtomicU64,
    passed: AtomicU64,
    /// Of so many looks one finds that time has passed.
    every: u64,
}

impl Fits {
    fn of(seed: u64, chance: u64) -> Fits {
        // Some stand still.
        let every = [u64::MAX, 100, 20, 5, 2][(seed + chance) as usize % 5];
        Fits { seed: AtomicU64::new(seed << 32 ^ chance), passed: AtomicU64::new(0), every }
    }
}

impl Clock for Fits {
    fn time(&self) -> Duration {
        Duration::from_secs(THEN + self.passed.load(Ordering::Relaxed))
    }

    fn passed(&self) -> Duration {
        let next = |seed: u64| seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let seed = next(self.seed.load(Ordering::Relaxed));
        self.seed.store(seed, Ordering::Relaxed);
        let random = seed >> 33;
        if random.is_multiple_of(self.every) {
            self.passed.fetch_add(1 + random / self.every % 3, Ordering::Relaxed);
        }
        Duration::from_secs(self.passed.load(Ordering::Relaxed))
    }
}
