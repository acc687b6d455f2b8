//! One day's changes to a tree that is mounted, so that what depends on changes can be measured day by day.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;

use super::apply;
use super::recipe::{Amount, Op, Recipe};
use super::tree::Tree;
use crate::interrupt::Interrupt;

/// What was done on a day.
#[derive(Debug, Serialize)]
pub(crate) struct Day {
    recipe: String,
    seed: u64,
    scale: f64,
    day: u32,
    pub(crate) operations: u64,
    operations_sha256: String,
    /// After it.
    files: u64,
    file_bytes: u64,
}

/// Does the operations of `day` below `root`, which must be as on the day before.
pub(crate) fn apply(
    recipe: Recipe,
    amount: &Amount,
    day: u32,
    root: &Path,
    interrupt: &Interrupt,
) -> Result<Day, String> {
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
    let done = apply::apply(changes.into_iter(), root, &mut tree, interrupt)?;
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

/// Finds a wrong tree before anything in it is changed: the directories of the day must hold what they should.
fn is_ready(changes: &[Op], before: &Tree, root: &Path) -> Result<(), String> {
    let new: BTreeSet<&str> =
        changes.iter().filter_map(|op| if let Op::Dir(path) = op { Some(&**path) } else { None }).collect();
    let dirs: BTreeSet<&str> = changes.iter().filter_map(dir_of).filter(|dir| !new.contains(dir)).collect();
    let wanted = before.files_in(&dirs);
    let mut found = BTreeMap::new();
    for dir in &dirs {
        let path = root.join(dir);
        files_in(&path, dir, &mut found)
            .map_err(|error| format!("{}, which this day changes: {error}", path.display()))?;
    }
    let missing = wanted.iter().find(|file| found.get(*file.0) != Some(file.1)).map(|file| *file.0);
    let foreign = found.keys().map(String::as_str).find(|path| !wanted.contains_key(path));
    match missing.or(foreign) {
        None => Ok(()),
        Some(path) => {
            let root = root.display();
            Err(format!("{root} isn't as this recipe, seed and scale leave it on the day before: see {path}"))
        }
    }
}

/// The directory of a file that is changed.
fn dir_of(op: &Op) -> Option<&str> {
    let (Op::Create(path, _) | Op::Resize(path, _) | Op::Remove(path)) = op else { return None };
    path.rsplit_once('/').map(|split| split.0)
}

fn files_in(path: &Path, dir: &str, found: &mut BTreeMap<String, u64>) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let facts = entry.metadata()?;
        if facts.is_file() {
            found.insert(format!("{dir}/{}", entry.file_name().to_string_lossy()), facts.len());
        }
    }
    Ok(())
}
