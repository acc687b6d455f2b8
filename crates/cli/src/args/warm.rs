//! `onesweep warm`.

use std::path::PathBuf;

use clap::Args;

use super::Common;
use crate::size::Size;

/// Brings files into the page cache, and stops before they push each other out
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  onesweep warm /srv/db
  onesweep warm --limit 4G /srv/www /srv/db
  onesweep warm --directory /srv/mail/cur         its own files, in few large requests")]
pub(crate) struct WarmArgs {
    /// Files and directories
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Stop at so many bytes [default: the available memory, less a sixteenth of all and what reading needs]
    #[arg(long, value_name = "SIZE")]
    pub(crate) limit: Option<Size>,
    /// Of each directory its own files alone, handed to the disk in batches, so that neighbours become one request
    #[arg(long)]
    pub(crate) directory: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}
