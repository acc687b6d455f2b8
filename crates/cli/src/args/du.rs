//! What `onesweep du` takes: the options of GNU du, and some of its own.

use std::{ffi::OsString, path::PathBuf};

use clap::Args;

mod units;

pub(crate) use self::units::{Units, Wanted};
use super::serve::{Seconds, socket};

const AFTER_HELP: &str = "\
Examples:
  onesweep du -sh /srv/*
  onesweep du -d1 --inodes /home
  onesweep du -h --by owner /srv
  onesweep du -s --within 5s /srv/spool
  alias du='onesweep du'

Asks the server (onesweep serve) where it tracks the file system, which takes no time however large the tree is, and walks
in the order of inodes where it doesn't. What needs single files walks always: -a, -D (-H), -L, -l, --exclude, -X, --time, and
several paths with links from one to another. Lines of what is in one directory come in the order of their names.
Whatever goes wrong, it ends with 1 as GNU du does; it tells what in words of its own.

SIZE is a number with K, M, G, T, P (powers of 1024) or KB, MB and so on (powers of 1000).";

/// Tells how much directories take, as du does
#[derive(Debug, Default, Args)]
#[command(
    after_help = AFTER_HELP,
    disable_help_flag = true,
    version,
    disable_version_flag = true,
    infer_long_args = true,
    args_override_self = true
)]
pub(crate) struct DuArgs {
    /// What is measured
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// A line for each file, too
    #[arg(short, long, conflicts_with = "summarize")]
    pub(crate) all: bool,
    /// End each line with a zero byte
    #[arg(short = '0', long)]
    pub(crate) null: bool,
    /// Tell sizes instead of what is allocated
    #[arg(short = 'A', long)]
    pub(crate) apparent_size: bool,
    #[command(flatten)]
    pub(crate) units: Units,
    /// End with a total
    #[arg(short = 'c', long)]
    pub(crate) total: bool,
    /// Follow the symbolic links that are named as PATH
    #[arg(short = 'D', visible_short_alias = 'H', long, overrides_with = "dereference")]
    pub(crate) dereference_args: bool,
    /// Follow all symbolic links
    #[arg(short = 'L', long)]
    pub(crate) dereference: bool,
    /// Follow none
    #[arg(short = 'P', long, overrides_with_all = ["dereference", "dereference_args"])]
    pub(crate) no_dereference: bool,
    /// Leave out what matches PATTERN; may be given again
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<OsString>,
    /// Leave out what matches a pattern in FILE (- for standard input)
    #[arg(short = 'X', long, value_name = "FILE")]
    pub(crate) exclude_from: Vec<PathBuf>,
    /// Take the paths from FILE (- for standard input), each with a zero byte at its end
    #[arg(long, value_name = "FILE", conflicts_with = "paths")]
    pub(crate) files0_from: Option<PathBuf>,
    /// Count what has several names for each of them
    #[arg(short = 'l', long)]
    pub(crate) count_links: bool,
    /// Tell the latest time, too: mtime, atime or ctime
    #[arg(long, value_name = "WORD", num_args = 0..=1, require_equals = true, default_missing_value = "mtime")]
    pub(crate) time: Option<String>,
    /// How times are written: full-iso, long-iso, iso or +FORMAT [default: $TIME_STYLE, else long-iso]
    #[arg(long, value_name = "STYLE")]
    pub(crate) time_style: Option<String>,
    /// Print directories at most so far below
    #[arg(short = 'd', long, value_name = "N")]
    pub(crate) max_depth: Option<u32>,
    /// Tell what removing each directory would free instead: names elsewhere keep a file
    #[arg(long, conflicts_with_all = [
        "all", "apparent_size", "bytes", "count_links", "dereference", "dereference_args", "exclude", "exclude_from",
        "inodes", "separate_dirs", "time", "total",
    ])]
    pub(crate) freed: bool,
    /// Count inodes instead
    #[arg(long)]
    pub(crate) inodes: bool,
    /// Leave out of each directory those in it
    #[arg(short = 'S', long)]
    pub(crate) separate_dirs: bool,
    /// Only a line for each PATH, as --max-depth=0
    #[arg(short, long)]
    pub(crate) summarize: bool,
    /// Leave out what is smaller than SIZE, or larger where it is negative
    #[arg(short, long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) threshold: Option<String>,
    /// Leave out what is on other file systems
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,
    /// By a declared summary instead, such as owner: a line for each key, the largest first
    #[arg(long, value_name = "NAME", conflicts_with_all = [
        "all", "null", "count_links", "dereference", "dereference_args", "exclude", "exclude_from", "freed", "max_depth",
        "separate_dirs", "threshold", "time", "total",
    ])]
    pub(crate) by: Option<String>,
    /// With --by: as JSON, an object for each PATH
    #[arg(long, requires = "by")]
    pub(crate) json: bool,
    /// Answer what is stored, however old
    #[arg(long, conflicts_with = "sync")]
    pub(crate) cached: bool,
    /// Have everything written first, so that blocks are what they will be
    #[arg(long)]
    pub(crate) sync: bool,
    /// Wait no longer than so for what has to be read (5s, 2m): then what is stored is told, and a line says so
    #[arg(long, value_name = "TIME", conflicts_with_all = [
        "all", "cached", "count_links", "dereference", "dereference_args", "exclude", "exclude_from", "time",
    ])]
    pub(crate) within: Option<Seconds>,
    /// Tell where each answer comes from
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Where the server listens [default: $ONESWEEP_SOCKET, else /run/onesweep/summaries.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Print version
    #[arg(long, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

impl DuArgs {
    /// Whether sizes are told, and not what is allocated.
    pub(crate) fn tells_sizes(&self) -> bool {
        self.apparent_size || self.units.tells_sizes
    }

    /// The same in milliseconds.
    pub(crate) fn max_ms(&self) -> Option<u64> {
        self.within.map(|Seconds(seconds)| u64::try_from(seconds).unwrap_or(0).saturating_mul(1000))
    }

    pub(crate) fn socket(&self) -> PathBuf {
        socket(self.socket.as_ref())
    }
}
