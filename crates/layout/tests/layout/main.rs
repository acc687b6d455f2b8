//! Tests of where data lies: recorded trees of other machines, and real file systems of this one; and of what runs the fuzzer.

mod btrfs;
mod fuzz_run;
mod images;
mod partitions;
mod sys_trees;
