//! `onesweep run`.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, ValueEnum};

use crate::size::Size;

/// The orders in which directories may be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListingOrder {
    /// As the first blocks of the files lie on the disk
    Device,
    /// By inode number
    Inode,
    /// By name
    Name,
}

/// Runs a program that reads a tree, and brings the files into memory ahead of it, in the order of the disk
///
/// The program waits where it opens a file until that file is there. Trees are the directories that the command names (after
/// -C DIR: below that one), but for those that are known to be written to. Programs that are linked statically are not helped, and told of.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  onesweep run tar -cf /backup/home.tar -C /srv home
  onesweep run rsync -a /srv/mail/ backup:mail/
  onesweep run --limit 1G -- borg create /backup::today /srv
  onesweep run --tree /srv/www -- sh -c 'grep -rl TODO /srv/www > found'")]
pub(crate) struct RunArgs {
    /// A directory that the program will read; may be given again [default: those that the command names]
    #[arg(long, value_name = "DIR")]
    pub(crate) tree: Vec<PathBuf>,
    /// Page cache that may be filled at a time [default: the available memory, less a sixteenth of all and what reading needs]
    #[arg(long, value_name = "SIZE")]
    pub(crate) limit: Option<Size>,
    /// Sort what readdir(3) gives the program (64-bit programs); alone it gains nothing [default: as the file system gives it]
    #[arg(long, value_name = "ORDER", value_enum)]
    pub(crate) sort: Option<ListingOrder>,
    /// Tell what was brought in, when the program has ended
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// The program and what it is told
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}
