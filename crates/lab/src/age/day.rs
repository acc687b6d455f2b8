//! One day's changes to a tree that is mounted, so that what depends on changes can be measured day by day.

use std::path::Path;

use serde::Serialize;

use super::apply;
use super::recipe::{Amount, Op, Recipe};
use super::tree::Tree;

/// What was done on a day.
#[derive(Debug, Serialize)]
pub(crate) struct Day {
    recipe: String,
    seed: u64,
    scale: f64,
    day: u32,
    operations: u64,
    operations_sha256: String,
    /// After it.
    files: u64,
    file_bytes: u64,
}

/// Does the operations of `day` below `root`, which must be as on the day before.
pub(crate) fn apply(recipe: Recipe, amount: &Amount, day: u32, root: &Path) -> Result<Day, String> {
    let mut ops = recipe.ops(&Amount { steps: None, ..*amount });
    let mut tree = Tree::default();
    loop {
        let op = ops.next().ok_or_else(|| format!("the recipe {} has no day {day}", recipe.name()))?;
        tree.follow(&op);
        if op == Op::Day(day) {
            break;
        }
    }
    let changes: Vec<Op> = ops.take_while(|op| !matches!(op, Op::Day(_))).collect();
    is_ready(&changes, &tree, root)?;
    let done = apply::apply(changes.into_iter(), root, &mut tree)?;
    Ok(Day {
        recipe: recipe.name(),
        seed: amount.seed,
        scale: amount.scale,
        day,
        operations: done.operations,
        operations_sha256: done.hash,
        files: tree.files(),
        file_bytes: tree.bytes(),
    })
}

/// Finds a wrong tree before anything in it is changed.
fn is_ready(changes: &[Op], before: &Tree, root: &Path) -> Result<(), String> {
    for op in changes {
        let (Op::Create(path, _) | Op::Resize(path, _) | Op::Remove(path)) = op else { continue };
        let found = root.join(path).symlink_metadata().ok().map(|facts| facts.len());
        if found != before.size(path) {
            let root = root.display();
            return Err(format!("{root} isn't as this recipe, seed and scale leave it on the day before: see {path}"));
        }
    }
    Ok(())
}
