//! What `onesweep top` takes.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::serve::socket;

const AFTER_HELP: &str = "\
Examples:
  onesweep top /srv
  onesweep top --by grew --since 7d /home
  onesweep top -d 3 -n 50 --by inodes /
  onesweep top --json --cached /srv | jq -r '.directories[].path'

Asks the server (onesweep serve), and prints for each directory what it takes, by how much that has grown, and since
when. Totals are noted from when a directory was first asked for: of one that is new to the server nothing older is
known. A user who may not see everything below PATH is told of no growth.";

/// Tells which directories take most, and which grew most
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct TopArgs {
    /// Where to look
    #[arg(value_name = "PATH", default_value = ".")]
    pub(crate) path: PathBuf,
    /// What the order is
    #[arg(long, value_name = "WHAT", default_value = "allocated")]
    pub(crate) by: By,
    /// Growth is counted from so long ago: 90m, 12h, 7d, 4w
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = seconds)]
    pub(crate) since: i64,
    /// Directories so far below PATH
    #[arg(short = 'd', long, value_name = "N", default_value_t = 1)]
    pub(crate) max_depth: u32,
    /// So many lines at most
    #[arg(short = 'n', long, value_name = "N", default_value_t = 20)]
    pub(crate) lines: usize,
    /// As JSON: one object, with the directories in their order
    #[arg(long)]
    pub(crate) json: bool,
    /// Answer what is stored, however old
    #[arg(long, conflicts_with = "sync")]
    pub(crate) cached: bool,
    /// Have everything written first, so that blocks are what they will be
    #[arg(long)]
    pub(crate) sync: bool,
    /// Where the server listens [default: $ONESWEEP_SOCKET, else /run/onesweep/summaries.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// An order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// What is allocated
    Allocated,
    /// Sizes
    Bytes,
    /// Everything that has an inode
    Inodes,
    /// By how much what is allocated has grown
    Grew,
}

impl TopArgs {
    pub(crate) fn socket(&self) -> PathBuf {
        socket(self.socket.as_ref())
    }
}

pub(super) fn seconds(text: &str) -> Result<i64, String> {
    let wrong = || format!("'{text}' is no time; write 90m, 12h, 7d or 4w");
    let unit = text.chars().last().ok_or_else(wrong)?;
    let each = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        'w' => 7 * 86_400,
        _ => return Err(wrong()),
    };
    let number: i64 = text.strip_suffix(unit).and_then(|number| number.parse().ok()).ok_or_else(wrong)?;
    Some(number).filter(|number| *number >= 0).and_then(|number| number.checked_mul(each)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(seconds("90m"), Ok(5400));
        assert_eq!(seconds("4w"), Ok(28 * 86_400));
        for wrong in ["", "7", "d", "-1d", "1y", "99999999999999999w"] {
            assert!(seconds(wrong).unwrap_err().contains("write 90m"), "{wrong}");
        }
    }
}
