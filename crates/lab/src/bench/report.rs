//! `onesweep-lab bench report`: the page and its pictures, from the results alone.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::defrag;
use super::dfs;
use super::du;
use super::exhibits::{self, Exhibit};
use super::page::{self, Table};
use super::peer;
use super::plot::Pictures;
use super::results::{Record, Results};
use super::run::Subject;
use super::section;

const BEGIN: &str = "<!-- lab: written by `onesweep-lab bench report` -->\n";
const END: &str = "<!-- end of lab -->\n";
const IMAGES: &str = "Images";
/// What stands around the list of programs.
const PROGRAMS: &str = "Programs: ";
const PROGRAMS_END: &str = ". GNU tar";

/// What is asked for.
pub(crate) struct Order {
    /// The directory of the results.
    pub(crate) dir: PathBuf,
    pub(crate) seed: u64,
    pub(crate) page: PathBuf,
    /// The directory of the pictures, beside the page.
    pub(crate) pictures: PathBuf,
    /// One part alone; all others stay as they are.
    pub(crate) only: Option<Part>,
}

/// A part that can be written without the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// What `bench du` measured
    Du,
    /// What `bench dfs` measured
    Dfs,
    /// What `bench defrag` measured
    Defrag,
    /// What `bench peer` measured
    Peer,
}

impl Part {
    /// In the order of the page.
    const ALL: [Self; 4] = [Self::Du, Self::Dfs, Self::Defrag, Self::Peer];

    fn name(self) -> &'static str {
        match self {
            Self::Du => "du",
            Self::Dfs => "dfs",
            Self::Defrag => "defrag",
            Self::Peer => "peer",
        }
    }

    /// What stands around it.
    fn marks(self) -> (&'static str, &'static str) {
        match self {
            Self::Du => (du::BEGIN, du::END),
            Self::Dfs => (dfs::BEGIN, dfs::END),
            Self::Defrag => (defrag::BEGIN, defrag::END),
            Self::Peer => (peer::BEGIN, peer::END),
        }
    }

    /// The part, without its marks; empty where nothing was measured at full size.
    fn show(self, dir: &Path, pictures: &mut Pictures) -> Result<String, String> {
        match self {
            Self::Du => du::show(dir, pictures),
            Self::Dfs => dfs::show(dir, pictures),
            Self::Defrag => defrag::show(dir, pictures),
            Self::Peer => peer::show(dir, pictures),
        }
    }
}

/// Writes the page's part between its marks.
pub(crate) fn run(order: &Order) -> Result<u8, String> {
    if let Some(part) = order.only {
        let text = part.show(&order.dir, &mut Pictures::into(&order.pictures)?)?;
        if text.is_empty() {
            let (dir, name) = (order.dir.display(), part.name());
            return Err(format!("{dir} has no results; `onesweep-lab bench {name}` makes them"));
        }
        let (begin, end) = part.marks();
        page::publish(&order.page, begin, end, &text)?;
        eprintln!("written to {}", order.page.display());
        return Ok(0);
    }
    let results = Results::load(&order.dir)?;
    if results.runs.is_empty() {
        return Err(format!("{} has no results; `onesweep-lab bench sweep` makes them", order.dir.display()));
    }
    let mut pictures = Pictures::into(&order.pictures)?;
    let mut former = page::published(&order.page, BEGIN, END)?;
    let mut text = String::new();
    let mut is_any_kept = false;
    for exhibit in exhibits::all(order.seed) {
        let exhibit = exhibit.as_ref();
        text += "\n";
        match section::with_more_behind(&former, exhibit.title(), exhibits::lacking(exhibit, &results)) {
            Some(kept) => {
                eprintln!("stays, for more runs are behind it: {}", exhibit.title());
                text += &format!("{}\n", kept.trim_end());
                former = former.replace(kept, "");
                is_any_kept = true;
            }
            None => text += &section(exhibit, &results, &mut pictures)?,
        }
    }
    let kept = if is_any_kept { former.clone() } else { String::new() };
    text = format!("\n## In the lab\n\n{}{text}{}", preface(&results, &kept), images(&results, &kept));
    for part in Part::ALL {
        let (begin, end) = part.marks();
        let mut shown = part.show(&order.dir, &mut pictures)?;
        if shown.is_empty() {
            // Measured elsewhere: it stays as it is, with its pictures.
            shown = page::published(&order.page, begin, end)?;
            former = page::between(&former, begin, end, "");
        }
        if !shown.is_empty() {
            text += &format!("\n{begin}{shown}{end}");
        }
    }
    pictures.drop_others(&former)?;
    text += "\n";
    page::publish(&order.page, BEGIN, END, &text)?;
    eprintln!("written to {}", order.page.display());
    Ok(0)
}

/// An exhibit with what is behind it.
fn section(exhibit: &dyn Exhibit, results: &Results, pictures: &mut Pictures) -> Result<String, String> {
    let mut text = format!("### {}\n\n{}", exhibit.title(), exhibit.show(results, pictures)?);
    let records = exhibits::behind(exhibit, results).into_iter().flatten();
    for line in [exhibits::source(exhibit, results), exhibits::missing(exhibit, results), measured_at(records, results)]
    {
        text += &line.map(|line| format!("\n{line}")).unwrap_or_default();
    }
    Ok(text)
}

/// By which programs of ours, and where.
fn measured_at<'a>(records: impl Iterator<Item = &'a Record>, results: &Results) -> Option<String> {
    let (mut commits, mut hosts) = (BTreeSet::new(), BTreeSet::new());
    for record in records {
        commits.insert(format!("`{}`", record.outcome.commit));
        hosts
            .extend(results.machine(record).map(|machine| format!("{}, Linux {}", machine.processors, machine.kernel)));
    }
    let joined = |set: BTreeSet<String>, by: &str| set.into_iter().collect::<Vec<_>>().join(by);
    let name = if commits.len() == 1 { "commit" } else { "commits" };
    (!commits.is_empty())
        .then(|| format!("*Measured at {name} {}, on {}.*\n", joined(commits, ", "), joined(hosts, "; and ")))
}

/// What is measured; with the programs that the page tells of already, where sections of it stay.
fn preface(results: &Results, former: &str) -> String {
    let machines = results.machines();
    let told = former.split_once(PROGRAMS).and_then(|(_, told)| told.split_once(PROGRAMS_END));
    // Their names begin them; each version that occurs.
    let programs: BTreeSet<&str> = machines
        .iter()
        .flat_map(|machine| machine.programs.values().map(String::as_str))
        .chain(told.iter().flat_map(|(told, _)| told.split(", ")))
        .filter(|program| !program.is_empty())
        .collect();
    format!(
        "Measured by `onesweep-lab bench sweep` on the emulated disks of [lab.md](lab.md). \
         {PROGRAMS}{}{PROGRAMS_END} is `tar --format=posix --pax-option=delete=atime,delete=ctime -cf - -C TREE .`, \
         ours `onesweep tar OPTIONS -cf - -C TREE .`; every other command line is in the results. Each run has a freshly \
         mounted, read-only image, so nothing is cached, and a pipe behind it, so that the content is read. There are two \
         exceptions: where everything is cached, GNU tar has brought the files in before; and beside \
         a writer, a copy of the image is mounted for writing. {} marks ratios of which one side was measured once: their spread \
         is that of the other side's rounds. What is computed, as the bounds are, is the same each time, and has no mark. Both sides of a ratio are of the same image, by its hash, and of \
         the same emulated disk; where ours was measured again after a change, another program's run may be that of an earlier \
         commit.\n",
        programs.into_iter().collect::<Vec<_>>().join(", "),
        page::ONE_SIDED,
    )
}

/// What was read, for the tables above; and for those that stay what the page says already.
fn images(results: &Results, former: &str) -> String {
    let mut table =
        Table::new(&["recipe", "file system", "scale", "steps", "seed", "options of mkfs", "files", "SHA-256"]);
    let mut subjects: Vec<&Subject> = Vec::new();
    for record in &results.runs {
        let subject = &record.run.setting.image;
        if results.of(&record.run).is_some() && !subjects.contains(&subject) {
            subjects.push(subject);
        }
    }
    subjects.sort_by_key(|subject| subject.name());
    for subject in subjects {
        let Some(facts) = results.images.get(&subject.name()) else { continue };
        table.row(vec![
            format!("`{}`", subject.recipe),
            subject.fs.clone(),
            subject.scale.to_string(),
            subject.steps.map_or("all".into(), |steps| steps.to_string()),
            subject.seed.to_string(),
            subject.mkfs.join(" "),
            page::count(facts.files),
            format!("`{}`", facts.image_sha256),
        ]);
    }
    // An image that was made anew has its old name, and stays beside the old one: what was measured on that may stay, too.
    let key = |cells: &[&str]| {
        let hash = cells.get(7).map_or("", |hash| hash.trim_matches(['`', '…']));
        format!("{} {}", cells[..cells.len().min(6)].join(" "), page::beginning(hash, 16))
    };
    table.keep_rows_of(section::of(former, IMAGES).unwrap_or_default(), key);
    let table = table.to_string();
    let cut =
        "A hash that ends in … was written down before whole ones were; the sidecar of the image has all of it.\n\n";
    let cut = if table.contains('…') { cut } else { "" };
    format!(
        "\n### {IMAGES}\n\nMade by `onesweep-lab age`. The first six columns, one behind the other, are an image's name, as in \
         `random-ext4-1-all-1`.\n\n{cut}{table}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::results::Machine;
    use crate::bench::results::tests::{on_its_image, record, setting};
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
        let text = measured_at(results.runs.iter(), &results).unwrap();
        assert_eq!(text, "*Measured at commit ``, on 2 processors, Linux 6.1; and 2 processors, Linux 6.18.*\n");
        let text = preface(&results, "");
        assert!(text.contains("Programs: cp 9.1, tar 1.34, tar 1.35. "), "{text}");
        let former = preface(&on_its_image(), "Programs: rsync 3, tar 1.35. GNU tar is …");
        let text = preface(&results, &former);
        assert!(text.contains("Programs: cp 9.1, rsync 3, tar 1.34, tar 1.35. "), "what stays was measured with these");
    }

    /// A section that stays names the old one.
    #[test]
    fn an_image_that_was_made_anew_stands_beside_the_old_one() {
        let mut results = on_its_image();
        results.enter(record(setting().run(Work::of(Tool::Tar)), 1.0));
        let row = |hash: &str| format!("| `random` | ext4 | 1 | all | 1 |  | 0 | `{hash}` |\n");
        let former = format!("### Images\n\n| recipe |\n|---|\n{}{}", row("abc…"), row("def…"));
        let text = images(&results, &former);
        assert!(text.contains(&row("abc")) && text.contains(&row("def…")) && !text.contains("abc…"), "{text}");
    }

    #[test]
    fn a_page_is_written_between_its_marks() {
        let dir = tempfile::tempdir().unwrap();
        let order = Order {
            dir: dir.path().into(),
            seed: 1,
            page: dir.path().join("page.md"),
            pictures: dir.path().join("pictures"),
            only: None,
        };
        assert!(run(&order).unwrap_err().contains("no results"));
        let mut results = on_its_image();
        results.enter(record(setting().run(Work::of(Tool::GnuTar)), 3000.0));
        results.enter(record(setting().run(Work::of(Tool::Tar)), 100.0));
        results.save(dir.path()).unwrap();
        let of_dfs = format!("{}![words](pictures/of-dfs.svg)\n{}", dfs::BEGIN, dfs::END);
        let stays = "### qtar, figure 5: partial sorts\n\n![words](pictures/of-figure-5.svg)\n";
        let goes = "### qtar, figure 6: as the file system ages\n\n*Not yet measured: 9000 of 9001 runs.*\n";
        let former = format!("{BEGIN}![words](pictures/of-former-results.svg)\n{stays}\n{goes}\n{of_dfs}{END}");
        std::fs::write(&order.page, format!("# Mine\n![mine](pictures/mine.svg)\n{former}")).unwrap();
        std::fs::create_dir(&order.pictures).unwrap();
        for name in ["of-former-results.svg", "of-dfs.svg", "of-figure-5.svg", "mine.svg", "of-another-page.svg"] {
            std::fs::write(order.pictures.join(name), "<svg/>").unwrap();
        }
        run(&order).unwrap();
        let first = std::fs::read_to_string(&order.page).unwrap();
        assert!(first.starts_with("# Mine\n") && first.contains("| 30.0, one round |"), "{first}");
        assert!(first.contains("of the [images](#images)") && first.contains(" |  | 0 | `abc` |\n"), "{first}");
        assert!(
            first.contains("*Not yet measured: ") && first.contains("| `random` | ext4 | 1 | all | 1 |"),
            "{first}"
        );
        run(&order).unwrap();
        assert_eq!(std::fs::read_to_string(&order.page).unwrap(), first);
        assert!(first.contains(&of_dfs) && first.contains(stays), "what was measured elsewhere stays: {first}");
        assert!(!first.contains("9000 of 9001"), "{first}");
        let mut order = order;
        for part in Part::ALL {
            order.only = Some(part);
            assert!(run(&order).unwrap_err().contains(&format!("bench {}", part.name())));
        }
        assert_eq!(std::fs::read_to_string(&order.page).unwrap(), first);
        let is_there = |name| order.pictures.join(name).exists();
        assert!(!is_there("of-former-results.svg") && is_there("of-dfs.svg") && is_there("of-figure-5.svg"));
        assert!(is_there("mine.svg") && is_there("of-another-page.svg"));
    }
}
