//! What is shown: tables and figures. Each knows the runs that it needs, and what to make of them.

mod budgets;
mod daft;
mod goals;
mod peers;
mod qtar;

pub(crate) use goals::{Goals, quick};

use super::plot::Pictures;
use super::results::Results;
use super::run::Run;

/// A name that can be asked for alone, with the runs that it needs.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) runs: Vec<Run>,
}

/// A table or a figure.
pub(crate) trait Exhibit {
    fn cases(&self) -> Vec<Case>;

    /// Its part of the page, with its pictures drawn. Says what wasn't measured.
    fn show(&self, results: &Results, pictures: &mut Pictures) -> Result<String, String>;
}

/// All of them, in the order of the page.
pub(crate) fn all(seed: u64) -> Vec<Box<dyn Exhibit>> {
    vec![
        Box::new(Goals::all(seed)),
        Box::new(peers::Peers::new(seed)),
        Box::new(budgets::Budgets::new(seed)),
        Box::new(daft::Figure2::new(seed)),
        Box::new(qtar::Figure1::new(seed)),
        Box::new(qtar::Figure3::new(seed)),
        Box::new(qtar::Figure4::new(seed)),
        Box::new(qtar::Figure5::new(seed)),
        Box::new(qtar::Figure6::new(seed)),
        Box::new(qtar::Figure7::new(seed)),
    ]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn cases_have_names_of_their_own_and_runs() {
        let mut names = HashSet::new();
        for case in all(1).iter().flat_map(|exhibit| exhibit.cases()) {
            assert!(!case.runs.is_empty(), "{}", case.name);
            assert!(names.insert(case.name.clone()), "{} twice", case.name);
            for run in &case.runs {
                assert!(run.setting.image.recipe().is_ok() && run.setting.image.fs().is_ok(), "{}", case.name);
                assert!(run.setting.disk.emulated().is_ok(), "{}", case.name);
            }
        }
    }

    /// Nothing measured yet is no reason to fail.
    #[test]
    fn a_page_without_results_says_so() {
        for exhibit in all(1) {
            let page = exhibit.show(&Results::default(), &mut Pictures::none()).unwrap();
            assert!(!page.is_empty());
        }
    }
}
