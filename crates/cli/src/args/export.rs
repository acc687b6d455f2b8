//! What `onesweep export` takes.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::serve::socket;

const AFTER_HELP: &str = "\
Examples:
  onesweep export --parquet /backup/summaries/$(hostname).parquet /srv
  onesweep export --json-lines - /home | jq -r .path

Asks the server (onesweep serve) for all directories below PATH on its file system, a thousand at a time: a row for each,
with the name of the host and what each comes to by the summaries that are declared there, so that files of many hosts are one
table in DuckDB or Spark. The file gets its name when it is
complete; - stands for standard output. Each user gets what du run by that user would print.";

/// Writes the totals of all directories as a table
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, group = ArgGroup::new("form").required(true))]
pub(crate) struct ExportArgs {
    /// The directory
    #[arg(value_name = "PATH", default_value = ".")]
    pub(crate) path: PathBuf,
    /// Writes a file of Apache Parquet
    #[arg(long, value_name = "FILE", group = "form")]
    pub(crate) parquet: Option<PathBuf>,
    /// Writes a line of JSON for each directory
    #[arg(long, value_name = "FILE", group = "form")]
    pub(crate) json_lines: Option<PathBuf>,
    /// What stands for this machine [default: its name]
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,
    /// Leaves out what each directory comes to by declared summaries: its owners, types and so on
    #[arg(long)]
    pub(crate) no_keys: bool,
    /// Takes what is stored, however old
    #[arg(long)]
    pub(crate) cached: bool,
    /// Where the server listens [default: $ONESWEEP_SOCKET, else /run/onesweep/summaries.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl ExportArgs {
    pub(crate) fn socket(&self) -> PathBuf {
        socket(self.socket.as_ref())
    }
}
