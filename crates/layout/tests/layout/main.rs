//! Tests of where data lies: recorded trees of other machines, and real file systems of this one.

mod btrfs;
mod images;
mod sys_trees;
