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
  onesweep warm --limit 4G /srv/www /srv/db")]
pub(crate) struct WarmArgs {
    /// Files and directories
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Stop at so many bytes [default: the available memory, less a sixteenth of all and what reading needs]
    #[arg(long, value_name = "SIZE")]
    pub(crate) limit: Option<Size>,
    #[command(flatten)]
    pub(crate) common: Common,
}
