//! `onesweep-lab bench dfs`: DFS's tables and figures, from a model of FFS on an emulated disk.
//!
//! | module | what it knows |
//! |---|---|
//! | [`measure`] | a recipe under one variant of the file system, from the first operation to the paper's point 2 |
//! | [`outcomes`] | what came out, in a file |
//! | [`goals`] | the paper's figures, and what has to be reached |
//! | [`page`] | tables and pictures of it |

mod goals;
mod measure;
mod outcomes;
mod page;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::{fs, thread};

use self::measure::Variant;
use self::outcomes::{Outcome, Outcomes, Recipes};
use super::sweep;
use crate::age::recipe::{Amount, Recipe};
use crate::age::recipes::dfs::Points;
use crate::disk::model::DiskModel;
use crate::interrupt::{EXIT_CODE, Interrupt};

pub(crate) use self::page::{BEGIN, END, show};

/// What is asked for.
pub(crate) struct Order {
    /// The directory of the results.
    pub(crate) out: PathBuf,
    pub(crate) seed: u64,
    /// How many, from that one on.
    pub(crate) seeds: u64,
    /// Of the file system, the cache and the visits to a directory.
    pub(crate) scale: f64,
    /// Another disk than the paper's, to try: what comes out is printed, not kept.
    pub(crate) model: Option<DiskModel>,
}

/// The same operations with the three kinds of sizes.
const RECIPES: [Recipe; 3] = [Recipe::Dfs, Recipe::DfsSmall, Recipe::DfsShort];

/// The paper's file system, which the recipe fills.
const IMAGE_BYTES: u64 = 2 << 30;

impl Order {
    /// All operations, however many are needed to come to the points.
    fn amount(&self, seed: u64) -> Amount {
        let image_bytes = (IMAGE_BYTES as f64 * self.scale) as u64;
        Amount { seed, scale: self.scale, steps: Some(u32::MAX), image_bytes }
    }
}

/// Measures all variants, as many at a time as there are processors.
pub(crate) fn run(order: &Order) -> Result<u8, String> {
    if !(0.01..=1.0).contains(&order.scale) {
        return Err("--scale needs a number from 0.01 to 1".into());
    }
    let model = match &order.model {
        Some(model) => model.clone(),
        None => DiskModel::named("fireball-ex").ok_or("there is no model fireball-ex")?,
    };
    let interrupt = Interrupt::by_signals()?;
    fs::create_dir_all(&order.out).map_err(|error| format!("{}: {error}", order.out.display()))?;
    let mut jobs = Vec::new();
    let mut outcomes = Outcomes::new(sweep::commit(), order.seed, order.scale);
    for seed in order.seed..order.seed.saturating_add(order.seeds) {
        let amount = order.amount(seed);
        for recipe in RECIPES {
            let points = Points::of(recipe.ops(&amount), amount.image_bytes)
                .ok_or_else(|| format!("{}: three quarters are never used", recipe.name()))?;
            outcomes.of_seed(seed).insert(recipe.name(), Recipes { points, variants: BTreeMap::new() });
            // The longest ones first.
            jobs.extend(Variant::ALL.into_iter().map(|variant| (recipe, seed, variant, points)));
        }
    }
    let (jobs, done) = (Mutex::new(jobs), Mutex::new(Vec::new()));
    let next = || jobs.lock().ok().and_then(|mut jobs| jobs.pop());
    let work = || {
        while let Some((recipe, seed, variant, points)) = next() {
            let outcome = measure::measure(recipe, &order.amount(seed), variant, &model, points, &interrupt);
            if let Ok(mut done) = done.lock() {
                done.push((recipe, seed, variant, outcome));
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, |count| count.get()) {
            scope.spawn(work);
        }
    });
    let done: Vec<(Recipe, u64, Variant, Result<Outcome, String>)> = done.into_inner().unwrap_or_default();
    for (recipe, seed, variant, outcome) in done {
        if interrupt.came() {
            return Ok(EXIT_CODE);
        }
        let outcome = outcome.map_err(|error| format!("{}, {}: {error}", recipe.name(), variant.name()))?;
        if let Some(recipe) = outcomes.of_seed(seed).get_mut(&recipe.name()) {
            recipe.variants.insert(variant.name().to_owned(), outcome);
        }
    }
    if order.model.is_none() {
        outcomes.save(&order.out)?;
    }
    print!("{}", page::told(&outcomes));
    Ok(0)
}
