//! What `onesweep serve` takes.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use onesweep_summary::tracker;
use serde::{Deserialize, Deserializer, de::Error};

const AFTER_HELP: &str = "\
Examples:
  onesweep serve / /srv
  onesweep serve --config /etc/onesweep/serve.toml
  onesweep serve --socket /tmp/s --store /tmp/store /srv
  onesweep serve --timed /mnt/nas /srv
  onesweep serve --http-tokens /etc/onesweep/tokens --new-token 1000
  onesweep serve --http 127.0.0.1:8765 --http-tokens /etc/onesweep/tokens --metrics /srv/data /srv

Each option can be a line of the file of settings, with the same name (full-totals = [1000]), and paths = [\"/\", \"/srv\"]
stands for the paths; what is typed wins. SIGHUP has the file read again.

Stays in the foreground until it is told to end (SIGTERM, SIGINT). Needs root, and gives up what it doesn't need. Each user
is answered what du run by that user would print; root, and users named by --full-totals, get whole totals.";

/// Keeps directory summaries true, and answers `onesweep du`
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct ServeArgs {
    /// The file of settings [default: /etc/onesweep/serve.toml, where there is one]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) settings: ServeSettings,
    /// Makes a token for a user, by number, adds it to the file of tokens, prints it and ends
    #[arg(long, value_name = "UID", conflicts_with_all = ["http", "paths"])]
    pub(crate) new_token: Option<u32>,
    /// The part with the rights; its standard input is the socket to the rest.
    #[arg(long, hide = true)]
    pub(crate) warden: bool,
    /// The part that moves files; its standard input is a pipe from the rest.
    #[arg(long, hide = true)]
    pub(crate) mover: bool,
}

/// What can be typed and be a line of the file.
#[derive(Clone, Debug, Default, PartialEq, Args, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct ServeSettings {
    /// The file systems that are tracked, each by a path on it
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// File systems of which nobody can tell what changes, each by a path on it: those on other machines, in user space, overlays.
    /// They are read again each --harvest-after, and answers say how old they are; may be given again
    #[arg(long, value_name = "PATH")]
    pub(crate) timed: Vec<PathBuf>,
    /// Where to listen [default: $ONESWEEP_SOCKET, else /run/onesweep/summaries.sock]
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,
    /// The directory in which what is known is kept, one file for each file system [default: /var/lib/onesweep/summaries]
    #[arg(long, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
    /// Who it runs as, by name or number [default: onesweep, where there is such a user]
    #[arg(long, value_name = "USER")]
    #[serde(deserialize_with = "text_or_number")]
    pub(crate) user: Option<String>,
    /// File systems are read as they are mounted there, such as /proc/1/ns/mnt, where it runs in a namespace of its own
    #[arg(long, value_name = "FILE")]
    pub(crate) mount_namespace: Option<PathBuf>,
    /// Users that get whole totals, by number
    #[arg(long, value_name = "UID", value_delimiter = ',')]
    pub(crate) full_totals: Vec<u32>,
    /// Declares summaries that are kept beside the totals, for `du --by` [default: /etc/onesweep/summaries.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    pub(crate) summaries: Option<PathBuf>,
    /// Answers by HTTP, too, at a loopback address: a page, JSON and metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) http: Option<SocketAddr>,
    /// The file that says which token is whose; root's, with mode 0600
    #[arg(long, value_name = "FILE")]
    pub(crate) http_tokens: Option<PathBuf>,
    /// Who asks by HTTP waits no longer than so for what has to be read: then what is stored is told, and that it is late
    /// [default: as long as it takes]
    #[arg(long, value_name = "TIME")]
    pub(crate) http_max_time: Option<Seconds>,
    /// A directory that /metrics tells of; may be given again
    #[arg(long, value_name = "PATH")]
    pub(crate) metrics: Vec<PathBuf>,
    /// So long after the last time all that has changed is harvested by itself [default: 30m]
    #[arg(long, value_name = "TIME")]
    pub(crate) harvest_after: Option<Seconds>,
    /// Directories a second that are read then, at most, one for each 64 entries in them; 0 for as many as can be [default: 1000]
    #[arg(long, value_name = "N")]
    pub(crate) background_budget: Option<u32>,
    /// When the size of a file that is written is told. Writes cost less with close, and then files that stay open are looked at
    /// from time to time [default: write]
    #[arg(long, value_name = "WHEN")]
    pub(crate) sizes_follow: Option<SizesFollow>,
    /// So often files that stay open or mapped for writing are looked at [default: 1m]
    #[arg(long, value_name = "TIME")]
    pub(crate) check_open_every: Option<Seconds>,
    /// Whether small files are moved side by side when files beside them were written, as defrag does: never, on disks
    /// that seek, or always [default: never]
    #[arg(long, value_name = "WHEN")]
    pub(crate) relocate: Option<Relocate>,
    /// With --relocate: so long after the last write to a directory it is looked at, at the latest 15 times as long after
    /// the first, and then so often until it was flushed [default: 2s]
    #[arg(long, value_name = "TIME")]
    pub(crate) relocate_after: Option<Seconds>,
    /// With --relocate: so much is written for that at most, in percent of what others write to the device; 0 for as much as is
    /// worth it [default: 20]
    #[arg(long, value_name = "PERCENT")]
    pub(crate) relocate_budget: Option<u32>,
    /// With --relocate: while programs wait for disks for more of the time than this, in percent, nothing is moved; 100 to move all the
    /// same [default: 20]
    #[arg(long, value_name = "PERCENT")]
    pub(crate) relocate_pressure: Option<u8>,
    /// What is told on standard error [default: info]
    #[arg(long, value_name = "LEVEL")]
    pub(crate) log: Option<LogLevel>,
}

/// When sizes are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SizesFollow {
    /// With each write
    #[default]
    Write,
    /// When the file is closed
    Close,
}

/// Where files are moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Relocate {
    /// Nowhere
    #[default]
    Never,
    /// On disks that seek
    Seeking,
    /// On all disks
    Always,
}

/// How much is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogLevel {
    /// What could not be done
    Error,
    /// And what is odd
    Warn,
    /// And what is done
    #[default]
    Info,
    /// And each portion that is harvested in the background, and other details
    Debug,
}

/// A time as it is typed: 90m, 12h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seconds(pub(crate) i64);

impl std::str::FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        super::top::seconds(text).map(Seconds)
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        String::deserialize(input)?.parse().map_err(D::Error::custom)
    }
}

fn text_or_number<'de, D: Deserializer<'de>>(input: D) -> Result<Option<String>, D::Error> {
    crate::config::parsed(input)
}

impl ServeSettings {
    /// These, and what they leave open by `lower`.
    pub(crate) fn or(self, lower: Self) -> Self {
        fn list<T>(upper: Vec<T>, lower: Vec<T>) -> Vec<T> {
            if upper.is_empty() { lower } else { upper }
        }
        Self {
            paths: list(self.paths, lower.paths),
            timed: list(self.timed, lower.timed),
            socket: self.socket.or(lower.socket),
            store: self.store.or(lower.store),
            user: self.user.or(lower.user),
            mount_namespace: self.mount_namespace.or(lower.mount_namespace),
            full_totals: list(self.full_totals, lower.full_totals),
            summaries: self.summaries.or(lower.summaries),
            http: self.http.or(lower.http),
            http_tokens: self.http_tokens.or(lower.http_tokens),
            http_max_time: self.http_max_time.or(lower.http_max_time),
            metrics: list(self.metrics, lower.metrics),
            harvest_after: self.harvest_after.or(lower.harvest_after),
            background_budget: self.background_budget.or(lower.background_budget),
            sizes_follow: self.sizes_follow.or(lower.sizes_follow),
            check_open_every: self.check_open_every.or(lower.check_open_every),
            relocate: self.relocate.or(lower.relocate),
            relocate_after: self.relocate_after.or(lower.relocate_after),
            relocate_budget: self.relocate_budget.or(lower.relocate_budget),
            relocate_pressure: self.relocate_pressure.or(lower.relocate_pressure),
            log: self.log.or(lower.log),
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        socket(self.socket.as_ref())
    }

    pub(crate) fn http_max_time(&self) -> Option<Duration> {
        self.http_max_time.map(|Seconds(seconds)| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
    }

    /// Whether files are moved anywhere.
    pub(crate) fn relocates(&self) -> bool {
        self.relocate.unwrap_or_default() != Relocate::Never
    }

    pub(crate) fn sizes_follow(&self) -> tracker::SizesFollow {
        match self.sizes_follow.unwrap_or_default() {
            SizesFollow::Write => tracker::SizesFollow::Write,
            SizesFollow::Close => tracker::SizesFollow::Close,
        }
    }
}

/// Where the server listens.
pub(super) fn socket(named: Option<&PathBuf>) -> PathBuf {
    named.cloned().unwrap_or_else(onesweep_summary::service::default_socket)
}
