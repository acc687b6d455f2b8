//! The figures of qtar, by number.

mod figure_1;
mod figure_3;
mod figure_4;
mod figure_5;
mod figure_6;
mod figure_7;
mod own_order;

pub(crate) use figure_1::Figure1;
pub(crate) use figure_3::Figure3;
pub(crate) use figure_4::Figure4;
pub(crate) use figure_5::Figure5;
pub(crate) use figure_6::Figure6;
pub(crate) use figure_7::Figure7;
pub(crate) use own_order::OwnOrder;

use crate::bench::page;
use crate::bench::plot::{Draw, Pictures};
use crate::bench::results::Results;
use crate::bench::run::{Disk, Run, Stretch, Subject};
use crate::bench::work::{Tool, Work};

const BARRACUDA: &str = "barracuda-7200.11";
/// The older disk, on which the paper looks for the program and the scheduler.
const DIAMONDMAX: &str = "diamondmax-10";
/// What `source` is made with at full scale.
const FILES: f64 = 22_500.0;
/// The versions that age it.
const STEPS: u32 = 24;
/// The paper's times are means of as many runs.
const PAPER_ROUNDS: u32 = 5;

fn disk() -> Disk {
    // The paper's disk has a track buffer.
    Disk::new(BARRACUDA, Stretch::Whole).buffered(true)
}

fn by_first_extent() -> Work {
    Work::with(Tool::Tar, &["--order", "first-extent"])
}

fn seconds(results: &Results, run: &Run) -> Option<f64> {
    results.busy_ms(run).map(|busy| busy.median / 1000.0)
}

/// The time of a run as a cell.
fn cell(results: &Results, run: &Run) -> String {
    page::measured(results.seconds(run))
}

/// How many files a tree is made with; and how many there are after its versions, which add more than they remove.
fn files(made_with: f64, aged: &Subject, results: &Results) -> String {
    let made_with = page::count(made_with as u64);
    match results.images.get(&aged.name()) {
        Some(facts) => format!("{made_with} files, {} after {STEPS} versions", page::count(facts.files)),
        None => format!("{made_with} files, more after {STEPS} versions"),
    }
}

/// A picture, or how to get what it is drawn from.
fn drawn(
    pictures: &mut Pictures,
    (name, words): (&str, &str),
    picture: &impl Draw,
    (values, case): (usize, &str),
) -> Result<String, String> {
    if values == 0 {
        return Ok(format!("Not measured yet: `onesweep-lab bench sweep --case {case}`.\n"));
    }
    pictures.add(name, words, picture)
}

/// The scale of so many files, with four digits.
fn thousandths(files: f64) -> f64 {
    (files / FILES * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::exhibits::Exhibit;
    use crate::bench::images::Facts;

    /// Ageing adds files: what is read after it is more than the tree was made with.
    #[test]
    fn an_aged_tree_is_shown_with_the_files_that_it_has() {
        let mut results = Results::default();
        let fresh = Figure3::new(1).show(&results, &mut Pictures::none()).unwrap();
        assert!(fresh.contains("22,500 files, more after 24 versions"), "{fresh}");
        for (image, files) in [(Figure3::new(1).image(None), 28_315), (Figure5::new(1).image(), 1281)] {
            results.images.insert(image.name(), Facts { files, ..Facts::default() });
        }
        let text = |exhibit: &dyn Exhibit| exhibit.show(&results, &mut Pictures::none()).unwrap();
        let said = "22,500 files, 28,315 after 24 versions";
        assert!(text(&Figure3::new(1)).contains(said) && text(&Figure7::new(1)).contains(said));
        assert!(text(&Figure5::new(1)).contains("1,000 files, 1,281 after 24 versions"));
    }
}
