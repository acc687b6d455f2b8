//! Tables held against each other, where no checksum protects them.
//!
//! A file system tells some things twice: how many names an inode has, which blocks are in use, what the names of a directory
//! hash to. A damaged byte makes the two contradict each other, though each looks sound. What is compared here lies on the disk
//! anyway and takes little memory: sums of hashes for names, a bit for each block. Where a sum isn't even, the tables are gone over
//! once more, and only what can't be right is looked at one by one.

mod balance;
mod claims;
mod links;
mod twins;

use std::ops::ControlFlow;

pub(super) use balance::{Balance, mixed};
pub(super) use claims::Claims;
pub(super) use links::{Links, Said};
pub(super) use twins::Twins;

use super::{Found, Inode, Name, TableError};

/// Passes everything on, and remembers whether something was damaged already: what was left out contradicts all that is left.
pub(super) struct Watched<'a> {
    pub(super) found: &'a mut dyn Found,
    pub(super) has_problems: bool,
}

impl<'a> Watched<'a> {
    pub(super) fn new(found: &'a mut dyn Found) -> Watched<'a> {
        Watched { found, has_problems: false }
    }
}

impl Found for Watched<'_> {
    fn inode(&mut self, inode: Inode) -> ControlFlow<()> {
        self.found.inode(inode)
    }

    fn name(&mut self, name: Name<'_>) -> ControlFlow<()> {
        self.found.name(name)
    }

    fn incomplete(&mut self, directory: Option<u64>) {
        self.has_problems = true;
        self.found.incomplete(directory);
    }

    fn problem(&mut self, problem: TableError) -> ControlFlow<()> {
        self.has_problems = true;
        self.found.problem(problem)
    }
}

/// Takes everything and keeps nothing, for the second look.
pub(super) struct Nobody;

impl Found for Nobody {
    fn inode(&mut self, _: Inode) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn name(&mut self, _: Name<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn incomplete(&mut self, _: Option<u64>) {}

    fn problem(&mut self, _: TableError) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
