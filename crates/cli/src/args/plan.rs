//! `onesweep plan`.

use std::path::PathBuf;

use clap::Args;

use super::Common;

/// Shows what reading would cost, in every order and by every strategy; reads no content
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  onesweep plan /srv/mail
  onesweep plan --disk barracuda-7200.11 --json /srv/mail")]
pub(crate) struct PlanArgs {
    /// Files and directories
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) common: Common,
}
