//! `onesweep-lab bench`: every program on the same cold images, and tables and pictures of what came out.
//!
//! | module | what it knows |
//! |---|---|
//! | [`run`], [`work`] | what is measured: an image on a disk, and a program |
//! | [`images`] | aged images, kept packed |
//! | [`measure`] | one run, with the help of [`pipe`], [`share`], [`company`], [`in_flight`], [`scan`] and [`calibration`] |
//! | [`confined`], [`user`] | little memory for a program, and few rights |
//! | [`results`], [`statistics`] | all runs in one JSON file, and medians |
//! | [`sweep`] | measuring what is still missing |
//! | [`exhibits`] | the tables and figures: which runs each needs, and what it makes of them |
//! | [`report`], [`page`], [`section`] | the page and its pictures |
//! | [`du`] | directory summaries |
//! | [`dfs`] | DFS's tables and figures, from a model |
//! | [`defrag`] | files moved side by side by programs, and who reads them then |
//! | [`peer`] | reads that a server answers when it is quicker |
//! | [`quick`] | the small run that is held against a baseline |

mod calibration;
mod company;
mod confined;
pub(crate) mod defrag;
pub(crate) mod dfs;
pub(crate) mod du;
mod exhibits;
mod images;
pub(crate) mod in_flight;
mod measure;
mod page;
pub(crate) mod peer;
mod pipe;
mod plot;
pub(crate) mod quick;
pub(crate) mod report;
mod results;
mod run;
pub(crate) mod scan;
mod section;
mod share;
mod statistics;
pub(crate) mod sweep;
mod user;
mod versioned;
mod viewed;
pub(crate) mod work;
