//! What the tables of a file system say of its files, and which of them are wanted.

mod condition;
mod kernel;
mod mounted;
mod row;

pub use condition::{Condition, ConditionError};
pub use mounted::{MountedDirectory, MountedError, MountedOptions};
pub use row::{LONG_HEADER, Moment, Row, Style, write_row};
