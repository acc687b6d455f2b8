//! `onesweep-lab bench report`: the page and its pictures, from the results alone.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::du;
use super::exhibits;
use super::page;
use super::plot::Pictures;
use super::results::Results;

const BEGIN: &str = "<!-- lab: written by `onesweep-lab bench report` -->\n";
const END: &str = "<!-- end of lab -->\n";

/// What is asked for.
pub(crate) struct Order {
    /// The directory of the results.
    pub(crate) dir: PathBuf,
    pub(crate) seed: u64,
    pub(crate) page: PathBuf,
    /// The directory of the pictures, beside the page.
    pub(crate) pictures: PathBuf,
}

/// Writes the page's part between its marks.
pub(crate) fn run(order: &Order) -> Result<u8, String> {
    let results = Results::load(&order.dir)?;
    if results.runs.is_empty() {
        return Err(format!("{} has no results; `onesweep-lab bench sweep` makes them", order.dir.display()));
    }
    let mut pictures = Pictures::into(&order.pictures)?;
    let mut text = format!("\n## In the lab\n\n{}", preface(&results));
    for exhibit in exhibits::all(order.seed) {
        text += "\n";
        text += &exhibit.show(&results, &mut pictures)?;
    }
    text += &du::show(&order.dir, &mut pictures)?;
    text += "\n";
    page::publish(&order.page, BEGIN, END, &text)?;
    eprintln!("written to {}", order.page.display());
    Ok(0)
}

fn preface(results: &Results) -> String {
    let commits: Vec<String> = results.commits().into_iter().map(|commit| format!("`{commit}`")).collect();
    let machines = results.machines();
    let hosts = machines.iter().map(|machine| format!("{}, Linux {}", machine.processors, machine.kernel));
    // In the order of their names; each version that occurs.
    let programs = machines.iter().flat_map(|machine| machine.programs.iter()).collect::<BTreeSet<_>>();
    let programs: Vec<&str> = programs.into_iter().map(|program| program.1.as_str()).collect();
    format!(
        "Measured by `onesweep-lab bench sweep` on the emulated disks of [lab.md](lab.md), at {} {}, on {}. \
         Programs: {}. GNU tar is `tar --format=posix --pax-option=delete=atime,delete=ctime -cf - -C TREE .`, \
         ours `onesweep tar OPTIONS -cf - -C TREE .`; every other command line is in the results. Each run has a freshly \
         mounted, read-only image, so nothing is cached, and a pipe behind it, so that the content is read. There are two \
         exceptions: where everything is cached, a program runs twice on one mount, and the second time counts; and beside \
         a writer, a copy of the image is mounted for writing.\n",
        if commits.len() == 1 { "commit" } else { "commits" },
        commits.join(", "),
        hosts.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join("; and "),
        programs.join(", "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::results::tests::{on_its_image, record, setting};
    use crate::bench::results::{Machine, Record};
    use crate::bench::work::{Tool, Work};

    #[test]
    fn every_machine_that_was_measured_on_is_named() {
        let mut results = on_its_image();
        for (tool, kernel, tar) in [(Tool::GnuTar, "6.1", "tar 1.34"), (Tool::Tar, "6.18", "tar 1.35")] {
            let programs = [("tar", tar), ("cp", "cp 9.1")].map(|(name, version)| (name.into(), version.into()));
            let (processors, kernel) = ("2 processors".into(), kernel.into());
            let machine = results.number_of(Machine { processors, kernel, programs: programs.into() });
            results.enter(Record { machine, ..record(setting().run(Work::of(tool)), 1.0) });
        }
        let text = preface(&results);
        assert!(text.contains("on 2 processors, Linux 6.1; and 2 processors, Linux 6.18. "), "{text}");
        assert!(text.contains("Programs: cp 9.1, tar 1.34, tar 1.35. "), "{text}");
    }

    #[test]
    fn a_page_is_written_between_its_marks() {
        let dir = tempfile::tempdir().unwrap();
        let order = Order {
            dir: dir.path().into(),
            seed: 1,
            page: dir.path().join("page.md"),
            pictures: dir.path().join("pictures"),
        };
        assert!(run(&order).unwrap_err().contains("no results"));
        let mut results = on_its_image();
        results.enter(record(setting().run(Work::of(Tool::GnuTar)), 3000.0));
        results.enter(record(setting().run(Work::of(Tool::Tar)), 100.0));
        results.save(dir.path()).unwrap();
        std::fs::write(&order.page, "# Mine\n").unwrap();
        run(&order).unwrap();
        let first = std::fs::read_to_string(&order.page).unwrap();
        assert!(first.starts_with("# Mine\n") && first.contains("| 30.0 |"), "{first}");
        run(&order).unwrap();
        assert_eq!(std::fs::read_to_string(&order.page).unwrap(), first);
    }
}
