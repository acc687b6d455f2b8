//! The page of measurements beside the results that it was written from.

use std::path::Path;
use std::process::Command;
use std::{fs, io};

use crate::place::{PROGRAM, succeed};

/// Whoever changes what is asked for, or how it is told, writes the page anew.
#[test]
fn the_page_tells_what_the_results_tell() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let published = repository.join("docs/BENCHMARKS.md");
    let home = tempfile::tempdir().unwrap();
    let (page, results) = (home.path().join("BENCHMARKS.md"), home.path().join("results"));
    fs::create_dir(&results).unwrap();
    fs::copy(&published, &page).unwrap();
    for part in ["du", "dfs", "defrag", "peer"] {
        let kept = repository.join(format!("bench/results/{part}.json.zst"));
        succeed(Command::new("zstd").arg("-dq").arg(kept).arg("-o").arg(results.join(format!("{part}.json"))));
        let mut report = Command::new(PROGRAM);
        report.args(["bench", "report", "--only", part, "--page"]).arg(&page).arg("--pictures");
        succeed(report.arg(home.path().join("pictures")).arg(&results));
        let differs = first_difference(&published, &page).unwrap();
        assert!(differs.is_none(), "of {part}; `make bench` or `onesweep-lab bench report` writes it: {differs:?}");
    }
}

/// A line that is there, and the one that would be.
fn first_difference(there: &Path, would_be: &Path) -> io::Result<Option<(String, String)>> {
    let (there, would_be) = (fs::read_to_string(there)?, fs::read_to_string(would_be)?);
    let differs = there.lines().zip(would_be.lines()).find(|(one, other)| one != other);
    let count = |text: &str| format!("{} lines", text.lines().count());
    let pair = |(one, other): (&str, &str)| (one.to_owned(), other.to_owned());
    Ok(differs.map(pair).or_else(|| (there != would_be).then(|| (count(&there), count(&would_be)))))
}
