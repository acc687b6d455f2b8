//! Tables and pictures of what was measured.

use std::fmt::Write as _;
use std::path::Path;

use super::goals;
use super::outcomes::{Outcome, Outcomes, Point, Recipes};
use crate::bench::page::{Table, commit, count, number};
use crate::bench::plot::{Bars, Line, Lines, Pictures};

/// Marks of this part, which can be written without the others.
pub(crate) const BEGIN: &str = "<!-- dfs: written by `onesweep-lab bench report` -->\n";
pub(crate) const END: &str = "<!-- end of dfs -->\n";

/// The variants in the order in which they are shown.
const SHOWN: [&str; 5] = ["ffs", "dfs-16", "dfs-24", "around-16", "around-24"];

/// The part of the page, without its marks; empty where nothing was measured at full size.
pub(crate) fn show(dir: &Path, pictures: &mut Pictures) -> Result<String, String> {
    match Outcomes::load(dir)?.filter(|outcomes| outcomes.scale == 1.0) {
        Some(outcomes) => part(&outcomes, pictures),
        None => Ok(String::new()),
    }
}

fn part(outcomes: &Outcomes, pictures: &mut Pictures) -> Result<String, String> {
    let mut text = format!(
        "\n## Small files moved side by side: DFS on a model\n\nMeasured by `onesweep-lab bench dfs {}`, at {}: \
         a model of FFS on the emulated Fireball EX, as [lab.md](lab.md) tells, under the operations of the recipes `dfs`, \
         `dfs-small` and `dfs-short`, each of which stands for the paper's figure 5, which is missing from our text. `dfs-16` and `dfs-24` \
         are the paper's, with target regions of 16 and 24 blocks; with `around` a region may begin before the block that is \
         flushed. Figures are gains over FFS under the same operations; bold ones don't reach what they have to.{}\n",
        seeds(outcomes),
        commit(&outcomes.commit),
        if outcomes.further.is_empty() {
            String::new()
        } else {
            format!(
                " Each of the first tables tells the mean of {} seeds, and the least and greatest; all else is of seed {}.",
                outcomes.further.len() + 1,
                outcomes.seed
            )
        }
    );
    for (name, recipe) in &outcomes.recipes {
        text += &of_recipe(name, recipe, &outcomes.seeds_of(name), pictures)?;
    }
    let figures: [(&str, &str, Speed); 2] = [
        ("dfs-8", "Figure 8: writing by programs before point 2", Outcome::write_speed),
        ("dfs-9", "Figure 9: flushing before point 2", Outcome::flush_speed),
    ];
    text += "\n### DFS, figures 8 and 9\n\nFigure 8 counts what a program that writes over files waits for, be they in memory or \
             not; figure 9 dirty blocks of files, and the disk's time for them and for the metadata. Both are of the last \
             tenth of the operations before point 2.\n\n";
    for (file, title, value) in figures {
        let series = SHOWN.map(|variant| {
            let of = |recipe: &Recipes| recipe.variants.get(variant).map(value);
            (variant.to_owned(), outcomes.recipes.values().map(of).collect())
        });
        let groups = outcomes.recipes.keys().cloned().collect();
        let bars = Bars { title: title.into(), axis: "MB/s".into(), groups, series: series.into() };
        text += &pictures.add(file, title, &bars)?;
    }
    Ok(text)
}

/// The options that make the same again.
fn seeds(outcomes: &Outcomes) -> String {
    match outcomes.further.len() {
        0 => format!("--seed {}", outcomes.seed),
        further => format!("--seed {} --seeds {}", outcomes.seed, further + 1),
    }
}

fn of_recipe(name: &str, recipe: &Recipes, seeds: &[&Recipes], pictures: &mut Pictures) -> Result<String, String> {
    let points = recipe.points;
    let mut text = format!(
        "\n### DFS, recipe `{name}`\n\nThree quarters are used after {} operations; point 1 is after {}, point 2 after {}.\n\n{}",
        count(points.reached),
        count(points.first),
        count(points.second),
        goals::table(seeds)
    );
    let _ = write!(text, "\n{}\n", state(recipe));
    let curve = |variant: &str| {
        let curve = &recipe.variants.get(variant)?.curve;
        let points = curve.iter().map(|(operations, score)| (*operations as f64 / 1000.0, *score)).collect();
        Some(Line { name: variant.to_owned(), points })
    };
    let title = format!("Figure 6: aggregate layout score, {name}");
    let lines = Lines {
        title: title.clone(),
        x_axis: "thousand operations".into(),
        y_axis: "layout score".into(),
        lines: SHOWN.into_iter().filter_map(curve).collect(),
        ..Lines::default()
    };
    text += &pictures.add(&format!("dfs-6-{name}"), &title, &lines)?;
    let figures: [(&str, &str, &str, Figure); 4] = [
        ("7a", "reading at point 1", "MB/s", |outcome, blocks| outcome.first.speed(blocks..=blocks)),
        ("7b", "layout score at point 1", "layout score", |outcome, blocks| {
            outcome.first.score(blocks..=blocks).share()
        }),
        ("7c", "reading at point 2", "MB/s", |outcome, blocks| outcome.second.speed(blocks..=blocks)),
        ("7d", "layout score at point 2", "layout score", |outcome, blocks| {
            outcome.second.score(blocks..=blocks).share()
        }),
    ];
    for (number, what, axis, value) in figures {
        let title = format!("Figure {number}: {what}, {name}");
        let line = |variant: &str| {
            let outcome = recipe.variants.get(variant)?;
            let points = (2..=16).map(|blocks| (f64::from(blocks), value(outcome, blocks)));
            Some(Line { name: variant.to_owned(), points: points.filter(|point| point.1.is_finite()).collect() })
        };
        let lines = Lines {
            title: title.clone(),
            x_axis: "blocks of a file".into(),
            y_axis: axis.into(),
            lines: SHOWN.into_iter().filter_map(line).collect(),
            ..Lines::default()
        };
        text += &pictures.add(&format!("dfs-{number}-{name}"), &title, &lines)?;
    }
    Ok(text)
}

type Speed = fn(&Outcome) -> f64;
type Figure = fn(&Outcome, u32) -> f64;

/// In the table of all figures, FFS stands also as it would be if it put new files into one run.
const COLUMNS: [&str; 6] = ["ffs", "ffs-realloc", "dfs-16", "dfs-24", "around-16", "around-24"];

/// The figures themselves.
fn state(recipe: &Recipes) -> Table {
    let heads = ["figure"].into_iter().chain(COLUMNS).collect::<Vec<_>>();
    let mut table = Table::new(&heads);
    let mut row = |what: &str, value: &dyn Fn(&Outcome) -> String| {
        let cells = COLUMNS.map(|variant| recipe.variants.get(variant).map_or("–".into(), value));
        table.row([what.to_owned()].into_iter().chain(cells).collect());
    };
    for (at, point) in [("point 1", first as fn(&Outcome) -> &Point), ("point 2", second)] {
        let score = |blocks: std::ops::RangeInclusive<u32>| {
            move |it: &Outcome| format!("{:.3}", point(it).score(blocks.clone()).share())
        };
        let speed = |blocks: std::ops::RangeInclusive<u32>| move |it: &Outcome| number(point(it).speed(blocks.clone()));
        row(&format!("{at}: files"), &|it| count(point(it).files(1..=u32::MAX)));
        row(&format!("{at}: blocks used, %"), &|it| number(100.0 * point(it).used));
        row(&format!("{at}: aggregate layout score, by blocks"), &score(2..=u32::MAX));
        row(&format!("{at}: the mean of the files' scores"), &|it| format!("{:.3}", point(it).mean_score()));
        row(&format!("{at}: layout score of 2 to 12 blocks"), &score(2..=12));
        row(&format!("{at}: layout score above 12 blocks"), &score(13..=u32::MAX));
        row(&format!("{at}: reading 1 block, MB/s"), &speed(1..=1));
        row(&format!("{at}: reading 2 and 3 blocks, MB/s"), &speed(2..=3));
        row(&format!("{at}: reading 2 to 12 blocks, MB/s"), &speed(2..=12));
        row(&format!("{at}: reading above 12 blocks, MB/s"), &speed(13..=u32::MAX));
        row(&format!("{at}: reading all, MB/s"), &speed(1..=u32::MAX));
    }
    row("writing by programs, MB/s", &|it| number(it.write_speed()));
    row("flushing, MB/s", &|it| number(it.flush_speed()));
    row("dirty blocks flushed", &|it| count(it.flush.flushed));
    row("requests for them", &|it| count(it.flush.requests));
    row("of these, regions", &|it| count(it.flush.regions));
    row("dirty blocks in a region", &|it| per_region(it, it.flush.region_dirty));
    row("blocks in a region that get another place", &|it| per_region(it, it.flush.moved));
    table
}

fn first(outcome: &Outcome) -> &Point {
    &outcome.first
}

fn second(outcome: &Outcome) -> &Point {
    &outcome.second
}

fn per_region(outcome: &Outcome, of: u64) -> String {
    if outcome.flush.regions == 0 { "–".into() } else { number(of as f64 / outcome.flush.regions as f64) }
}

/// The tables for a terminal.
pub(super) fn told(outcomes: &Outcomes) -> String {
    let tables = outcomes
        .recipes
        .iter()
        .map(|(name, recipe)| format!("{name}\n\n{}\n{}\n", goals::table(&outcomes.seeds_of(name)), state(recipe)));
    tables.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::age::recipes::dfs::Points;

    #[test]
    fn only_full_size_comes_to_the_page_with_all_figures() {
        let dir = tempfile::tempdir().unwrap();
        let mut pictures = Pictures::into(&dir.path().join("pictures")).unwrap();
        assert_eq!(show(dir.path(), &mut pictures).unwrap(), "");
        let points = Points { reached: 1000, first: 1100, second: 3000 };
        let outcome = Outcome { curve: vec![(1000, 0.9), (3000, 0.5)], ..Outcome::default() };
        for (scale, is_shown) in [(0.5, false), (1.0, true)] {
            let mut outcomes = Outcomes::new("abc".into(), 1, scale);
            let variants = SHOWN.map(|variant| (variant.to_owned(), outcome.clone())).into();
            outcomes.recipes.insert("dfs".into(), Recipes { points, variants });
            outcomes.save(dir.path()).unwrap();
            let text = show(dir.path(), &mut pictures).unwrap();
            assert_eq!(text.contains("point 2 after 3,000"), is_shown);
        }
        for figure in ["6-dfs", "7a-dfs", "7b-dfs", "7c-dfs", "7d-dfs", "8", "9"] {
            assert!(dir.path().join(format!("pictures/dfs-{figure}.svg")).exists(), "{figure}");
        }
    }
}
