//! Summaries that an administrator declares: by owner, type, size, age, project, the largest files, or what a command or a type
//! of Rust says. The paper's `AggregatedProperty[]` (FastDu, 1.1 and 4): pairs of key and value.
//!
//! ```text
//! a directory's entries ──► found ──► books ──► store
//!                           what it    totals of each
//!                           adds       directory, links     └──► view ──► answer
//! ```
//!
//! They are kept apart from the totals, so that nothing costs where nothing is declared. Two directories' tallies become one by
//! an associative [merge](tally::Merge). Sums go up as differences; what can't be taken back (minimum, maximum, the largest) is
//! made again from the children where what a total stood on has gone.

pub mod books;
pub mod command;
pub mod declare;
pub mod found;
pub mod keys;
pub mod parts;
pub mod tally;
pub mod view;
