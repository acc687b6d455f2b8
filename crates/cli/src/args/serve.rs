//! What `onesweep serve` takes.

use std::{net::SocketAddr, path::PathBuf};

use clap::Args;

/// Where the server listens, unless told otherwise.
const SOCKET: &str = "/run/onesweep/summaries.sock";

const AFTER_HELP: &str = "\
Examples:
  onesweep serve / /srv
  onesweep serve --socket /tmp/s --store /tmp/store /srv
  onesweep serve --http-tokens /etc/onesweep-tokens --new-token 1000
  onesweep serve --http 127.0.0.1:8765 --http-tokens /etc/onesweep-tokens --metrics /srv/data /srv

Stays in the foreground until it is told to end (SIGTERM, SIGINT). Needs root. Each user is answered what du run
by that user would print; root, and users named by --full-totals, get whole totals.";

/// Keeps directory summaries true, and answers `onesweep du`
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ServeArgs {
    /// The file systems that are tracked, each by a path on it
    #[arg(required_unless_present = "new_token", value_name = "PATH")]
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
    /// Declares summaries that are kept beside the totals, for `du --by` [default: /etc/onesweep/summaries.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    pub(crate) summaries: Option<PathBuf>,
    /// Answers by HTTP, too, at a loopback address: a page, JSON and metrics
    #[arg(long, value_name = "ADDRESS:PORT", requires = "http_tokens")]
    pub(crate) http: Option<SocketAddr>,
    /// The file that says which token is whose; root's, with mode 0600
    #[arg(long, value_name = "FILE")]
    pub(crate) http_tokens: Option<PathBuf>,
    /// Makes a token for a user, by number, adds it to the file of tokens, prints it and ends
    #[arg(long, value_name = "UID", requires = "http_tokens", conflicts_with_all = ["http", "paths"])]
    pub(crate) new_token: Option<u32>,
    /// A directory that /metrics tells of; may be given again
    #[arg(long, value_name = "PATH", requires = "http")]
    pub(crate) metrics: Vec<PathBuf>,
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
