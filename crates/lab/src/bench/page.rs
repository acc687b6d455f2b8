//! Markdown: numbers, tables, and putting text between marks of a page.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::fs;
use std::path::Path;

use super::results::Results;
use super::run::{Setting, Stretch, Subject};
use super::statistics::Spread;

/// Three digits that count.
pub(crate) fn number(value: f64) -> String {
    let digits = match value.abs() {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.digits$}")
}

/// A number of things, with commas.
pub(crate) fn count(things: u64) -> String {
    let digits = things.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}

/// Commits that figures were measured at and the repository no longer has, since its history was rewritten afterwards.
const REWRITTEN: [&str; 7] = ["1a001de", "51f80b7", "63c8a93", "9252ea4", "aefcc2d", "b10151f", "d5638c0"];

/// A commit that something was measured at.
pub(crate) fn commit(commit: &str) -> String {
    let note = if REWRITTEN.contains(&commit) { " (rewritten since)" } else { "" };
    format!("`{commit}`{note}")
}

/// At what commit what was measured, by case and commit: the commit of most cases, and the cases of each other one.
pub(crate) fn commits<'a>(all: impl IntoIterator<Item = (String, &'a str)>) -> String {
    of_most(all.into_iter().map(|(case, of)| (case, of.to_owned())), "at", commit).unwrap_or(NOT_MEASURED.into())
}

/// The same of machines; `None` where none is told.
pub(crate) fn hosts(all: impl IntoIterator<Item = (String, String)>) -> Option<String> {
    of_most(all, "on", str::to_owned)
}

/// What most cases have, and the cases of each other; `None` where there is no case.
fn of_most(
    all: impl IntoIterator<Item = (String, String)>,
    at: &str,
    shown: impl Fn(&str) -> String,
) -> Option<String> {
    let mut cases_of: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (case, of) in all {
        cases_of.entry(of).or_default().insert(case);
    }
    let most = cases_of.iter().max_by_key(|(_, cases)| cases.len()).map(|(of, _)| of.clone())?;
    cases_of.remove(&most);
    let named =
        |cases: BTreeSet<String>| cases.into_iter().map(|case| format!("`{case}`")).collect::<Vec<_>>().join(", ");
    let others: Vec<String> =
        cases_of.into_iter().map(|(of, cases)| format!("{} {at} {}", named(cases), shown(&of))).collect();
    let most = shown(&most);
    Some(if others.is_empty() { most } else { format!("{most} (but {})", others.join("; ")) })
}

/// Stands behind the spread of ratios of which one side was measured once.
pub(crate) const ONE_SIDED: char = '†';

/// The median, with the least and the greatest where there are several.
pub(crate) fn spread(spread: Spread) -> String {
    if spread.count == 1 {
        return number(spread.median);
    }
    let mark = if spread.one_sided { ONE_SIDED.to_string() } else { String::new() };
    format!("{} ({} to {}){mark}", number(spread.median), number(spread.least), number(spread.greatest))
}

/// What stands in a cell where nothing was measured.
pub(crate) const NOT_MEASURED: &str = "not measured";

/// A spread, or that there is none.
pub(crate) fn measured(figure: Option<Spread>) -> String {
    figure.map_or_else(|| NOT_MEASURED.to_owned(), spread)
}

/// A file system as it writes itself.
pub(crate) fn fs_name(fs: &str) -> &str {
    match fs {
        "xfs" => "XFS",
        "ntfs" => "NTFS",
        other => other,
    }
}

/// The name of an image, with the beginning of its hash: one that is made anew has the same name.
pub(crate) fn image(image: &Subject, results: &Results) -> String {
    let name = image.name();
    match results.images.get(&name) {
        Some(facts) => format!("`{name}` (`{}…`)", beginning(&facts.image_sha256, 12)),
        None => format!("`{name}`"),
    }
}

/// So many digits of a hash, or all of a shorter one.
pub(crate) fn beginning(hash: &str, digits: usize) -> &str {
    hash.get(..digits).unwrap_or(hash)
}

/// What the runs of a table were made on.
pub(crate) fn subject(setting: &Setting, results: &Results) -> String {
    let image = &setting.image;
    let mut text = format!(
        "Image {}: recipe `{}`, {}, seed {}",
        self::image(image, results),
        image.recipe,
        fs_name(&image.fs),
        image.seed
    );
    if image.scale != 1.0 {
        text += &format!(", scale {}", image.scale);
    }
    if let Some(steps) = image.steps {
        text += &format!(", {steps} steps");
    }
    if !image.mkfs.is_empty() {
        text += &format!(", `{}`", image.mkfs.join(" "));
    }
    if let Some(facts) = results.images.get(&image.name()) {
        let megabytes = facts.file_bytes as f64 / 1e6;
        text += &format!("; {} files, {megabytes:.0} MB", count(facts.files));
    }
    let part = if setting.disk.span == Stretch::Whole { "" } else { " (a part in proportion)" };
    text + &format!("; model `{}`{part}.", setting.disk.model)
}

/// A head and a rule.
const HEAD_LINES: usize = 2;

/// A table. Columns behind the first hold numbers.
pub(crate) struct Table {
    columns: usize,
    lines: Vec<String>,
}

impl Table {
    pub(crate) fn new(heads: &[&str]) -> Self {
        let rule = heads.iter().enumerate().map(|(column, _)| if column == 0 { "---|" } else { "--:|" });
        let lines = vec![format!("| {} |", heads.join(" | ")), format!("|{}", rule.collect::<String>())];
        Self { columns: heads.len(), lines }
    }

    /// A row; what it lacks at the end stays empty.
    pub(crate) fn row(&mut self, mut cells: Vec<String>) {
        cells.resize(self.columns, String::new());
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        self.lines.push(format!("| {} |", cells.join(" | ")));
    }

    /// Adds the rows of a published table of the same columns whose key no row here has, and sorts all.
    pub(crate) fn keep_rows_of(&mut self, published: &str, key: impl Fn(&[&str]) -> String) {
        let key = |line: &str| key(&line.trim_matches(['|', ' ']).split(" | ").collect::<Vec<_>>());
        let is_row = |line: &&str| line.starts_with("| ");
        let known: HashSet<String> = self.lines.iter().map(String::as_str).filter(is_row).map(key).collect();
        let kept = published.lines().filter(is_row).filter(|line| !known.contains(&key(line)));
        self.lines.extend(kept.map(str::to_owned));
        self.lines[HEAD_LINES..].sort();
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(out, "{line}"))
    }
}

/// Puts `text` between two marks; what stands around them stays. A page without them gets them at its end.
pub(crate) fn between(page: &str, begin: &str, end: &str, text: &str) -> String {
    match page.split_once(begin).and_then(|(before, rest)| Some((before, rest.split_once(end)?.1))) {
        Some((before, after)) => format!("{before}{begin}{text}{end}{after}"),
        None => format!("{page}\n{begin}{text}{end}"),
    }
}

/// What stands there between the marks.
pub(crate) fn published(path: &Path, begin: &str, end: &str) -> Result<String, String> {
    let page = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let part = page.split_once(begin).and_then(|(_, behind)| behind.split_once(end));
    Ok(part.map(|(part, _)| part.to_owned()).unwrap_or_default())
}

pub(crate) fn publish(path: &Path, begin: &str, end: &str, text: &str) -> Result<(), String> {
    let said = |error: std::io::Error| format!("{}: {error}", path.display());
    let page = fs::read_to_string(path).map_err(said)?;
    fs::write(path, between(&page, begin, end, text)).map_err(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::statistics;

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(
            [0.5, 9.994, 9.996, 99.94, 99.96, 1234.5].map(number),
            ["0.50", "9.99", "10.0", "99.9", "100", "1234"]
        );
        assert_eq!(spread(statistics::spread(vec![2.0]).unwrap()), "2.00");
        let three = statistics::spread(vec![2.0, 1.0, 30.0]).unwrap();
        assert_eq!(spread(three), "2.00 (1.00 to 30.0)");
        assert_eq!(spread(three.one_sided(true)), "2.00 (1.00 to 30.0)†");
    }

    #[test]
    fn commits_name_their_cases() {
        let at = |case: &str, commit| (case.to_owned(), commit);
        assert_eq!(commits([at("a", "1"), at("b", "1")]), "`1`");
        assert_eq!(
            commits([at("a", "1"), at("b", "2"), at("c", "2"), at("d", "3")]),
            "`2` (but `a` at `1`; `d` at `3`)"
        );
        assert_eq!(commits([]), NOT_MEASURED);
        let on = |case: &str, host: &str| (case.to_owned(), host.to_owned());
        let all = [on("a", "2 processors"), on("b", "4 processors"), on("c", "4 processors")];
        assert_eq!(hosts(all).unwrap(), "4 processors (but `a` on 2 processors)");
        assert_eq!(hosts([]), None);
    }

    #[test]
    fn commits_that_are_gone_are_no_promise() {
        assert_eq!(["8b48a3b", "9252ea4"].map(commit), ["`8b48a3b`", "`9252ea4` (rewritten since)"]);
    }

    #[test]
    fn counts_have_commas() {
        assert_eq!([0, 999, 28_315, 1_000_000].map(count), ["0", "999", "28,315", "1,000,000"]);
    }

    #[test]
    fn a_table_is_rectangular() {
        let mut table = Table::new(&["a", "b", "c"]);
        table.row(vec!["x|y".into(), "1".into()]);
        assert_eq!(table.to_string(), "| a | b | c |\n|---|--:|--:|\n| x\\|y | 1 |  |\n");
    }

    #[test]
    fn rows_that_are_not_made_anew_are_kept() {
        let mut table = Table::new(&["name", "size", "hash"]);
        table.row(["b", "1", "new"].map(String::from).into());
        let published =
            "words\n\n| name | size | hash |\n|---|--:|--:|\n| b | 1 | old |\n| b | 2 | old |\n| a | 1 | old |\n";
        table.keep_rows_of(published, |cells| cells[..2].join(" "));
        let rows: Vec<&str> = table.lines.iter().skip(HEAD_LINES).map(String::as_str).collect();
        assert_eq!(rows, ["| a | 1 | old |", "| b | 1 | new |", "| b | 2 | old |"]);
    }

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let page = "before\n<!-- a -->\nold\n<!-- b -->\nafter\n";
        let new = between(page, "<!-- a -->\n", "<!-- b -->\n", "new\n");
        assert_eq!(new, page.replace("old", "new"));
        assert_eq!(between("page\n", "<a>\n", "<b>\n", "new\n"), "page\n\n<a>\nnew\n<b>\n");
    }
}
