//! Problems as they are kept: of a badly damaged file system there may be millions.

use super::TableError;

/// Problems that are kept; the others are counted.
pub(super) const MOST: usize = 1000;

/// The first problems of many, and how many there were.
#[derive(Debug, Default)]
pub(super) struct Problems {
    kept: Vec<TableError>,
    met: u64,
}

impl Problems {
    /// Problems that are kept.
    pub(super) const MOST: usize = MOST;

    pub(super) fn push(&mut self, problem: TableError) {
        self.met += 1;
        if self.kept.len() < MOST {
            self.kept.push(problem);
        }
    }

    pub(super) fn extend(&mut self, problems: impl IntoIterator<Item = TableError>) {
        problems.into_iter().for_each(|problem| self.push(problem));
    }

    pub(super) fn clear(&mut self) {
        *self = Problems::default();
    }

    /// Those that were kept.
    pub(super) fn kept(&self) -> &[TableError] {
        &self.kept
    }

    /// All that there were.
    pub(super) fn met(&self) -> u64 {
        self.met
    }

    /// Takes out what was kept.
    pub(super) fn take(&mut self) -> Vec<TableError> {
        std::mem::take(self).kept
    }
}
