//! `onesweep list`.

use std::path::PathBuf;

use clap::Args;

use super::Common;

/// Lists files in the order of the disk, without reading them
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  onesweep list -0 /srv | tar --no-recursion --null -T - -cf /backup/srv.tar
  onesweep list -0 /srv | rsync -a -0 --files-from=- / backup:/
  onesweep list -l /srv | head")]
pub(crate) struct ListArgs {
    /// Files and directories
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// End each path with a NUL instead of a line feed
    #[arg(short = '0', long, conflicts_with = "json")]
    pub(crate) null: bool,
    /// Show disk, device address, fragments and size too
    #[arg(short, long, conflicts_with = "null")]
    pub(crate) long: bool,
    /// List directories, links and special files too
    #[arg(short, long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}
