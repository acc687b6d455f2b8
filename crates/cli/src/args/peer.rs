//! What `onesweep peer` takes.

mod index;
mod mount;

use std::{net::SocketAddr, path::PathBuf};

use clap::{Args, Subcommand, ValueEnum};

pub(crate) use self::{
    index::PeerIndexArgs,
    mount::{PeerMountArgs, PolicyOf},
};
use super::LogLevel;
use crate::size::Size;

/// Where the keys are, unless told otherwise.
const KEYS: &str = "/etc/onesweep/peer";
/// Where a server listens, unless told otherwise: nobody but this machine comes there.
const LISTEN: &str = "127.0.0.1:7497";

const AFTER_HELP: &str = "\
Examples:
  onesweep peer keys                                      once, on one machine
  onesweep peer serve --disk 100G                         on the server
  onesweep peer push /dev/sda2                            fills it
  onesweep peer index /dev/sda2                           what each block holds
  onesweep peer mount --device /dev/sda2 --mount /srv /run/onesweep/sda2
  onesweep peer mount --dir /home/.disk /home             the same of a tree
  onesweep peer stat

The local disk is always right: a server is asked by the hash of what is on the disk, what comes is checked, and a server that
is slow, dead or lies can only fail to help.";

/// Keeps blocks on another machine, for reads that the local disk would be slow to answer
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP, disable_help_subcommand = true)]
pub(crate) struct PeerArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: PeerCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PeerCommand {
    Index(Box<PeerIndexArgs>),
    Mount(Box<PeerMountArgs>),
    Serve(PeerServeArgs),
    Push(PeerPushArgs),
    Keys(PeerKeysArgs),
    Stat(PeerStatArgs),
}

/// Whose blocks, and who it is that talks.
#[derive(Debug, Args)]
pub(crate) struct Membership {
    /// The key of the trust domain
    #[arg(long, value_name = "FILE", default_value = "/etc/onesweep/peer/domain.key")]
    pub(crate) key: PathBuf,
    /// Encrypts; the certificate is DIR/NAME.pem, its key DIR/NAME.key, the authority's certificate DIR/ca.pem. Needed where
    /// the address is not a loopback one
    #[arg(long, value_name = "DIR/NAME")]
    pub(crate) tls: Option<PathBuf>,
}

/// Who is asked.
#[derive(Debug, Args)]
pub(crate) struct Servers {
    /// A server; may be given again, and then each block has its own. All clients should name them alike
    #[arg(long = "server", value_name = "HOST:PORT", default_value = LISTEN)]
    pub(crate) servers: Vec<String>,
    #[command(flatten)]
    pub(crate) membership: Membership,
}

const AFTER_SERVE_HELP: &str = "\
Examples:
  onesweep peer serve --disk 100G
  onesweep peer serve --listen 0.0.0.0:7497 --tls /etc/onesweep/peer/server
  onesweep peer serve --memory 16G --disk 0 --key ./domain.key
  onesweep peer serve --engine redis://box
  onesweep peer serve --engine 'rediss+cluster://one,two,three?ttl=30d'
  onesweep peer serve --engine 's3://bucket/blocks?endpoint=https://objects.example&limit=2T'

Stays in the foreground until it is told to end (SIGTERM, SIGINT). Needs no privilege. Equal blocks are kept once, whoever
sends them; when there is no room, the oldest go. An engine that is slow, down or lies only fails to help. It learns hashes and blocks, never a path, and keeps no block that isn't
that of its hash.";

/// Keeps blocks, and gives them to whoever has the right hash
#[derive(Debug, Args)]
#[command(after_help = AFTER_SERVE_HELP)]
pub(crate) struct PeerServeArgs {
    /// Where to listen
    #[arg(long, value_name = "ADDRESS:PORT", default_value = LISTEN)]
    pub(crate) listen: SocketAddr,
    #[command(flatten)]
    pub(crate) membership: Membership,
    /// Memory for blocks
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub(crate) memory: Size,
    /// Room for blocks on disk; 0 to keep them in memory alone
    #[arg(long, value_name = "SIZE", default_value = "10G")]
    pub(crate) disk: Size,
    /// The directory of the blocks on disk, and of the verdicts
    #[arg(long, value_name = "DIR", default_value = "/var/lib/onesweep/peer")]
    pub(crate) store: PathBuf,
    /// Where blocks are kept below the memory instead of on disk: redis://HOST, redis+cluster://HOST,HOST, s3://BUCKET/PREFIX;
    /// rediss for TLS. Credentials are in ONESWEEP_REDIS_USER and ONESWEEP_REDIS_PASSWORD, or AWS_ACCESS_KEY_ID and
    /// AWS_SECRET_ACCESS_KEY
    // A text as long as it isn't known to hold no password: what isn't understood here would be shown.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "disk")]
    pub(crate) engine: Option<String>,
    /// Connections at a time, at most
    #[arg(long, value_name = "N", default_value_t = 256)]
    pub(crate) connections: usize,
    /// Connections from one address at a time, at most; for IPv6, from one network of 64 bits. Those of the machine itself are not
    /// counted
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) connections_per_address: usize,
    /// Verdicts of scanners that are kept, at most; about 300 bytes each
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    pub(crate) verdicts: u64,
    /// What is told on standard error
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log: LogLevel,
}

const AFTER_PUSH_HELP: &str = "\
Examples:
  onesweep peer push /dev/sda2
  onesweep peer push --server box:7497 --tls /etc/onesweep/peer/notebook disk.img
  onesweep peer push --block-size 64K /srv/images

Devices, images and files are read from their start to their end, directories in one sweep of the disk. Asks first which
blocks are there; blocks of zeros are left out. Nothing local is written.

Exit codes: 0 done; 1 some files could not be read; 2 could not run, or the server went away; 130 interrupted.";

/// Sends servers the blocks that they lack
#[derive(Debug, Args)]
#[command(after_help = AFTER_PUSH_HELP)]
pub(crate) struct PeerPushArgs {
    /// Devices, images, files and directories
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) servers: Servers,
    /// Bytes of a block: 4K, 8K, 16K, 32K or 64K; the same as in the client's index
    #[arg(long, value_name = "SIZE", default_value = "4K")]
    pub(crate) block_size: Size,
    /// Tells what was done as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

const AFTER_KEYS_HELP: &str = "\
Examples:
  onesweep peer keys                                      makes the authority and the domain's key
  onesweep peer keys --add server --role server
  onesweep peer keys --add notebook --role client
  onesweep peer keys ./keys --add scanner1 --role scanner --days 90

A machine needs domain.key, ca.pem, and NAME.pem and NAME.key of its own. ca.key stays where machines are added. Nothing that
is there is ever replaced.";

/// Makes the keys and certificates of a trust domain
#[derive(Debug, Args)]
#[command(after_help = AFTER_KEYS_HELP)]
pub(crate) struct PeerKeysArgs {
    /// The directory of the keys
    #[arg(value_name = "DIR", default_value = KEYS)]
    pub(crate) dir: PathBuf,
    /// Makes a certificate for a machine of this name
    #[arg(long, value_name = "NAME", requires = "role")]
    pub(crate) add: Option<String>,
    /// What that machine may do
    #[arg(long, value_name = "ROLE", requires = "add")]
    pub(crate) role: Option<RoleName>,
    /// So long it counts [default: 3650 for the authority, 825 for machines]
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub(crate) days: Option<u32>,
}

/// What a machine may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RoleName {
    /// Ask for blocks and send blocks
    Client,
    /// A client that tells verdicts of a virus scanner, too
    Scanner,
    /// Keep blocks
    Server,
}

const AFTER_STAT_HELP: &str = "\
Examples:
  onesweep peer stat
  onesweep peer stat --server box:7497 --tls /etc/onesweep/peer/notebook
  onesweep peer stat --mount /run/onesweep/sda2
  onesweep peer stat --metrics > /var/lib/node_exporter/onesweep_peer.prom";

/// Tells what servers, or a mount, have counted
#[derive(Debug, Args)]
#[command(after_help = AFTER_STAT_HELP)]
pub(crate) struct PeerStatArgs {
    #[command(flatten)]
    pub(crate) servers: Servers,
    /// What a mount has counted that shows its device or tree there; no server is asked
    #[arg(long, value_name = "DIR", conflicts_with = "servers")]
    pub(crate) mount: Option<PathBuf>,
    /// In the text form of OpenMetrics; one server, or a mount
    #[arg(long)]
    pub(crate) metrics: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, parse_line};

    fn parsed(line: &str) -> PeerCommand {
        match parse_line(line) {
            Ok(Command::Peer(args)) => args.command,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_not_typed_stays_on_this_machine() {
        let PeerCommand::Serve(serve) = parsed("peer serve") else { panic!() };
        assert!(serve.listen.ip().is_loopback());
        let PeerCommand::Push(push) = parsed("peer push /dev/sda") else { panic!() };
        assert_eq!(push.servers.servers, [LISTEN]);
        let PeerCommand::Stat(stat) = parsed("peer stat --server a:1 --server b:2") else { panic!() };
        assert_eq!(stat.servers.servers, ["a:1", "b:2"]);
    }

    #[test]
    fn an_engine_takes_the_place_of_the_disk() {
        let PeerCommand::Serve(serve) = parsed("peer serve --engine redis+cluster://a,b:1") else { panic!() };
        assert_eq!(serve.engine.as_deref(), Some("redis+cluster://a,b:1"));
        parse_line("peer serve --engine redis://a --disk 5G").unwrap_err();
    }

    #[test]
    fn a_machine_is_added_with_its_role() {
        let PeerCommand::Keys(keys) = parsed("peer keys x --add box --role server --days 5") else { panic!() };
        assert_eq!((keys.role, keys.days), (Some(RoleName::Server), Some(5)));
        for line in ["peer", "peer push", "peer keys --add box", "peer keys --role client", "peer keys --days 0"] {
            parse_line(line).unwrap_err();
        }
    }
}
