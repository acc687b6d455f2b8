//! Archives of `onesweep_deliver::tar`, read back by GNU tar and bsdtar.

mod attributes;
mod interleaved;
mod names;
mod options;
mod output;
mod sparse;
mod support;
