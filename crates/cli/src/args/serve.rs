//! What `onesweep serve` takes.

use std::path::PathBuf;

use clap::Args;

/// Where the server listens, unless told otherwise.
const SOCKET: &str = "/run/onesweep/summaries.sock";

const AFTER_HELP: &str = "\
Examples:
  onesweep serve / /srv
  onesweep serve --socket /tmp/s --store /tmp/store /srv

Stays in the foreground until it is told to end (SIGTERM, SIGINT). Needs root. Each user is answered what du run
by that user would print; root, and users named by --full-totals, get whole totals.";

/// Keeps directory summaries true, and answers `onesweep du`
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ServeArgs {
    /// The file systems that are tracked, each by a path on it
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Where to listen [default: $ONESWEEP_SOCKET, else /run/onesweep/summaries.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The directory in which what is known is kept, one file for each file system
    #[arg(long, value_name = "DIR", default_value = "/var/lib/onesweep")]
    pub(crate) store: PathBuf,
    /// Users that get whole totals, by number
    #[arg(long, value_name = "UID", value_delimiter = ',')]
    pub(crate) full_totals: Vec<u32>,
}

impl ServeArgs {
    pub(crate) fn socket(&self) -> PathBuf {
        socket(self.socket.as_ref())
    }
}

/// Where the server listens.
pub(super) fn socket(named: Option<&PathBuf>) -> PathBuf {
    let from_environment = || std::env::var_os("ONESWEEP_SOCKET").map(PathBuf::from);
    named.cloned().or_else(from_environment).unwrap_or_else(|| SOCKET.into())
}
