//! What `onesweep watch` takes.

use std::path::PathBuf;

use clap::Args;

use super::serve::socket;

const AFTER_HELP: &str = "\
Examples:
  onesweep watch /srv
  onesweep watch --apparent-size /home

Keys: arrows (or h j k l), Page Up, Page Down, Home, End move; Enter or right opens a directory, left or Backspace
goes up; s, e, g, n sort by size, entries, growth, name; a changes between what is allocated and apparent sizes;
q, Esc or Ctrl-C ends it.

Asks the server (onesweep serve) again two seconds after each answer, or twenty times as long as that took. Without
a server the tree is walked once, at the start. Growth counts from when a directory was first shown. Directories that
are mounted elsewhere below aren't shown.";

/// Shows what takes space in a directory, live, on the terminal
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct WatchArgs {
    /// The directory
    #[arg(value_name = "DIR", default_value = ".")]
    pub(crate) path: PathBuf,
    /// Begin with sizes instead of what is allocated
    #[arg(long)]
    pub(crate) apparent_size: bool,
    /// Where the server listens [default: $ONESWEEP_SOCKET, else /run/onesweep/summaries.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl WatchArgs {
    pub(crate) fn socket(&self) -> PathBuf {
        socket(self.socket.as_ref())
    }
}
