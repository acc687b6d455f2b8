//! One file for each recipe, and what they share.

pub(super) mod daft;
pub(super) mod days;
pub(crate) mod dfs;
pub(super) mod fragmented;
pub(super) mod mail;
pub(super) mod mixed;
pub(super) mod random;
pub(super) mod source;

use crate::random::Random;

/// A log-normal size around `median`, between `least` and `most`.
fn log_normal(random: &mut Random, median: f64, deviation: f64, least: u64, most: u64) -> u64 {
    ((median * (random.normal() * deviation).exp()) as u64).clamp(least, most)
}
