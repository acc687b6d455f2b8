//! `onesweep sum`.

use std::path::PathBuf;

use clap::Args;
use onesweep_deliver::sum::Algorithm;

use super::Common;

/// Writes checksums of all files, or checks them
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  onesweep sum /srv > manifest                  b3sum --check manifest reads it
  onesweep sum --algorithm sha256 /srv > SHA256SUMS
  onesweep sum --check --quiet manifest")]
pub(crate) struct SumArgs {
    /// Files and directories; with --check, manifests (-, the default, is standard input)
    #[arg(required_unless_present = "check", value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// blake3, sha256 or md5; with --check, what a line of 64 digits is
    #[arg(short, long, default_value = "blake3", value_name = "NAME")]
    pub(crate) algorithm: Algorithm,
    /// Read manifests and check the files that they name, in the order of the disk; with --quiet, print no OK
    #[arg(short, long, conflicts_with = "sort")]
    pub(crate) check: bool,
    /// Print by path instead of in the order of the disk, when all is read
    #[arg(long)]
    pub(crate) sort: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}
