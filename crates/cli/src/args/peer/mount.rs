//! `onesweep peer mount`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};
use onesweep_peer::race::Policy;

use super::{Servers, index::block_bytes};
use crate::args::LogLevel;

const AFTER_HELP: &str = "\
Examples:
  onesweep peer mount --device /dev/sda2 --mount /srv /run/onesweep/sda2
  onesweep peer mount --device /dev/sda2 --learn --share --mount /srv /run/onesweep/sda2
  onesweep peer mount --device disk.img --read-only --policy local-first ./shown
  onesweep peer mount --device /dev/sdb1 --policy-of '*.flac=quiet-disk' --mount /music /run/onesweep/sdb1
  onesweep peer mount --device /dev/sda2 --server box:7497 --tls /etc/onesweep/peer/notebook --mount /srv /run/onesweep/sda2
  onesweep peer mount --dir /home/.disk /home
  onesweep peer mount --dir /srv/build --read-write --learn --share --write-through /mnt/build
  onesweep peer mount --dir /srv/media --policy race --policy-of '*.iso=quiet-disk' /mnt/media

A read goes to the disk, to a server that has the blocks, or to both, and the first valid answer wins; servers that are slow, dead
or lie only fail to help. Writes go to the disk. With --device DIR gets two files: block, which is the device, and metrics. With
--dir it shows the tree; its files are raced where they are as the index knows them. Stays in the foreground until it is told to
end (SIGTERM, SIGINT), and takes down what it has mounted. --device needs root.

Exit codes: 0 ended in order; 1 ended, but something could not be taken down, or the index not be closed; 2 could not run, or
serving failed.";

/// Shows a device or a tree whose reads are raced between the disk and servers
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
#[command(group = ArgGroup::new("shown").required(true).args(["device", "tree"]))]
pub(crate) struct PeerMountArgs {
    /// An empty directory, where the device is shown as a file, or the tree
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// A device that nobody has mounted, or an image
    #[arg(long, value_name = "DEVICE|IMAGE")]
    pub(crate) device: Option<PathBuf>,
    /// A directory; DIR is outside of it
    #[arg(long = "dir", value_name = "SRC", conflicts_with_all = ["mount", "read_only", "reclaim"])]
    pub(crate) tree: Option<PathBuf>,
    /// Let the tree be changed at DIR
    #[arg(long, requires = "tree", conflicts_with = "device")]
    pub(crate) read_write: bool,
    /// Let processors sleep also while a program asks for one thing after the other: it saves power, and such a program waits up to
    /// twice as long for what is in memory or on a quick device
    #[arg(long)]
    pub(crate) low_power: bool,
    /// Let other users look, too, when it isn't root who shows the tree (/etc/fuse.conf has to say user_allow_other)
    #[arg(long, requires = "tree", conflicts_with = "device")]
    pub(crate) allow_other: bool,
    /// Mount its file system there, by a loop device
    #[arg(long, value_name = "MNT")]
    pub(crate) mount: Option<PathBuf>,
    /// The type of the file system, as of mount(8)
    #[arg(long = "type", value_name = "TYPE", requires = "mount")]
    pub(crate) fs_type: Option<String>,
    /// Options of the mount, as of mount(8)
    #[arg(long, value_name = "OPTIONS", requires = "mount")]
    pub(crate) options: Option<String>,
    /// Who is asked first
    #[arg(long, value_name = "POLICY", default_value = "race")]
    pub(crate) policy: PolicyName,
    /// Another policy for the files that a pattern matches, as of --exclude ('*.iso', 'home/*/music'); may be given again, the
    /// first that matches counts. Of a device their places are looked up at the start, in the tables of ext2, ext3, ext4, XFS or NTFS
    #[arg(long = "policy-of", value_name = "PATTERN=POLICY", value_parser = policy_of)]
    pub(crate) policies_of: Vec<PolicyOf>,
    /// Reads that the device truly serves at the same time [default: 8 where nothing turns, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) lanes: Option<u16>,
    /// Where there is no index, begin with one that knows nothing
    #[arg(long)]
    pub(crate) learn: bool,
    /// Bytes of a block of such an index: a power of two from 4K to 64K
    #[arg(long, value_name = "SIZE", default_value = "4K", requires = "learn", value_parser = block_bytes)]
    pub(crate) block_size: u32,
    /// Refuse writes (a tree is only read unless --read-write is given)
    #[arg(long, conflicts_with_all = ["write_through", "reclaim"])]
    pub(crate) read_only: bool,
    /// Let the kernel read an image by itself (Linux 6.9, root): as quick as without a mount, and nothing is raced [default: where nothing
    /// turns, by race or local-first, unless an option here asks for more]
    #[arg(long, requires = "read_only", conflicts_with_all = ["tree", "learn", "share", "trace", "policies_of"])]
    pub(crate) passthrough: bool,
    /// Servers get what is written, once the disk has it
    #[arg(long)]
    pub(crate) write_through: bool,
    /// Servers get what is read from the disk, when they lack it
    #[arg(long)]
    pub(crate) share: bool,
    /// Write what the disk couldn't read, and a server had, over the bad place
    #[arg(long)]
    pub(crate) reclaim: bool,
    /// A line for each read goes there: where it went, why, and how long it took
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// The file of the index [default: /var/lib/onesweep/index/NAME.index, NAME being the
    /// path, links followed, with - for / and -- for -]
    #[arg(long, value_name = "FILE")]
    pub(crate) index: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) servers: Servers,
    /// What is told on standard error
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub(crate) log: LogLevel,
    /// This is the process that serves; the one that was typed watches over it.
    #[arg(long, hide = true)]
    pub(crate) serving: bool,
}

/// The policy of the files that a pattern matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyOf {
    pub(crate) pattern: String,
    pub(crate) policy: PolicyName,
}

fn policy_of(text: &str) -> Result<PolicyOf, String> {
    let (pattern, policy) = text.rsplit_once('=').ok_or("write PATTERN=POLICY, as '*.iso=quiet-disk'")?;
    if pattern.is_empty() {
        return Err("the pattern is empty; write PATTERN=POLICY, as '*.iso=quiet-disk'".to_owned());
    }
    let policy = PolicyName::from_str(policy, false)
        .map_err(|_| format!("{policy} is no policy: race, local-first, remote-first or quiet-disk"))?;
    Ok(PolicyOf { pattern: pattern.to_owned(), policy })
}

/// Who is asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyName {
    /// Both at once, unless the disk mostly answers within 0.5 ms or the link is too slow for so many bytes
    Race,
    /// The disk; a server as well once it is likelier to win than not
    LocalFirst,
    /// A server; the disk on any error, or after the time that it mostly takes
    RemoteFirst,
    /// A server, so that a disk in standby is not woken; the disk on any error, or after 300 ms
    QuietDisk,
}

impl From<PolicyName> for Policy {
    fn from(name: PolicyName) -> Self {
        match name {
            PolicyName::Race => Self::Race,
            PolicyName::LocalFirst => Self::LocalFirst,
            PolicyName::RemoteFirst => Self::RemoteFirst,
            PolicyName::QuietDisk => Self::QuietDisk,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, PeerCommand, parse_line};

    #[test]
    fn what_is_typed_is_understood() {
        let line = "peer mount --device x --policy quiet-disk --learn --block-size 16K --mount m --type xfs d";
        let Ok(Command::Peer(peer)) = parse_line(line) else { panic!() };
        let PeerCommand::Mount(mount) = peer.command else { panic!() };
        assert_eq!((mount.policy, mount.block_size, mount.serving), (PolicyName::QuietDisk, 16384, false));
        let of = parse_line("peer mount --device x --policy-of a=b=race --policy-of *.iso=quiet-disk d");
        let Ok(Command::Peer(peer)) = of else { panic!() };
        let PeerCommand::Mount(mount) = peer.command else { panic!() };
        let told: Vec<_> = mount.policies_of.iter().map(|of| (of.pattern.as_str(), of.policy)).collect();
        assert_eq!(told, [("a=b", PolicyName::Race), ("*.iso", PolicyName::QuietDisk)]);
        let tree = parse_line("peer mount --dir s --read-write --learn --share --policy-of *.iso=race d");
        let Ok(Command::Peer(peer)) = tree else { panic!() };
        let PeerCommand::Mount(mount) = peer.command else { panic!() };
        assert_eq!((mount.tree, mount.device, mount.read_write), (Some("s".into()), None, true));
        for line in [
            "d",
            "--dir s --device x d",
            "--dir s --mount m d",
            "--dir s --reclaim d",
            "--device x --read-write d",
            "--device x --policy-of quiet-disk d",
            "--device x --policy-of =race d",
            "--device x --policy-of *.iso=fast d",
            "--device x",
            "--device x --options ro d",
            "--device x --read-only --reclaim d",
            "--device x --block-size 8K d",
        ] {
            parse_line(&format!("peer mount {line}")).unwrap_err();
        }
    }
}
