//! `onesweep defrag`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::Seconds;
use crate::size::Size;

/// Moves small files side by side, in the order in which they are read (ext4, XFS; with --dedupe btrfs)
///
/// Contents, times and names stay as they are, also while programs use the files, and when the machine stops: each file has
/// its old or its new place, and its right bytes. Files that others write, and all that can't be moved, stay. As an ordinary user,
/// for files and directories of one's own.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  onesweep defrag --dry-run /srv/mail             the plan, and nothing else
  onesweep defrag /srv/mail                       for who reads it as GNU tar does
  onesweep defrag --order name /srv/www           for rsync, and cp with patterns
  onesweep defrag --max-time 30m /srv/a /srv/b
  onesweep defrag --dedupe /srv/mail              on btrfs, where else it only tells how files lie
  onesweep defrag --peer /srv/mail                on what onesweep peer mount has mounted
  onesweep defrag --keep /srv/mail                hold the old places; it tells an ID
  onesweep defrag --undo 20260314-151926 /srv/mail
  onesweep defrag --forget 20260314-151926 /srv/mail")]
pub(crate) struct DefragArgs {
    /// Directories, without what is mounted below; or files, of which only their own pieces are joined
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Show what would be moved, and move nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
    /// The order of the reader who is to profit
    #[arg(long, value_enum, default_value_t)]
    pub(crate) order: OrderName,
    /// The most that is put side by side at once; 64K to 8M [default: 2M, and 256K where half of what is free doesn't hold all files]
    #[arg(long, value_name = "SIZE", value_parser = region)]
    pub(crate) region: Option<Size>,
    /// The most that is written for each seek that a region saves, on average
    #[arg(long, value_name = "SIZE", default_value = "64K")]
    pub(crate) write_budget: Size,
    /// Stop after so long, where nothing is lost; a number with s, m, h or d behind it. What gains most comes first, of whichever path
    #[arg(long, value_name = "TIME")]
    pub(crate) max_time: Option<Seconds>,
    /// Move only what lies in memory: read nothing
    #[arg(long)]
    pub(crate) cached: bool,
    /// Refuse unless what is moved can come from a server of blocks: on a file system that onesweep peer mount --device has
    /// mounted, whose reads are raced
    #[arg(long)]
    pub(crate) peer: bool,
    /// As root, put regions near their directories on ext4, for which its setting mb_stream_req is raised to --region meanwhile. Else
    /// they come where ext4 puts large files, in fewer pieces
    #[arg(long)]
    pub(crate) near: bool,
    /// Also on disks that don't seek
    #[arg(long)]
    pub(crate) force: bool,
    /// Also on btrfs: files are written anew and come to share that, if it is equal. What snapshots or reflinks share stays. On ext4
    /// and XFS it changes nothing
    #[arg(long)]
    pub(crate) dedupe: bool,
    /// Hold the old places, in .onesweep/undo at the root of the mount, so that --undo can move all back
    #[arg(long)]
    pub(crate) keep: bool,
    /// Move back what a run with --keep has moved, on the file system of the directory
    #[arg(
        long, value_name = "ID",
        conflicts_with_all = ["forget", "keep", "dry_run", "order", "region", "write_budget", "max_time", "cached", "peer", "near", "dedupe"],
    )]
    pub(crate) undo: Option<String>,
    /// Free the old places of a run with --keep
    #[arg(
        long, value_name = "ID",
        conflicts_with_all = ["keep", "dry_run", "order", "region", "write_budget", "max_time", "cached", "peer", "near", "force", "dedupe"],
    )]
    pub(crate) forget: Option<String>,
    /// Name each file that stays, and why
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) verbose: bool,
    /// Tell nothing but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Write a JSON object for each path, one to a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Who reads.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(crate) enum OrderName {
    /// As directories list them: GNU tar, find, grep -r
    #[default]
    Readdir,
    /// By inode in each directory: tar --sort=inode
    Inode,
    /// By name in each directory: rsync, tar --sort=name
    Name,
}

fn region(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    if (64 << 10..=8 << 20).contains(&size.0) { Ok(size) } else { Err("write a size from 64K to 8M".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, parse_line};

    #[test]
    fn sizes_and_times_are_read() {
        let Ok(Command::Defrag(args)) = parse_line("defrag --order inode --region 64K --max-time 5m a b") else {
            panic!("it is understood");
        };
        assert_eq!((args.region, args.write_budget), (Some(Size(64 << 10)), Size(64 << 10)));
        for (region, bytes) in [("8M", 8 << 20), ("100K", 100 << 10)] {
            let Ok(Command::Defrag(args)) = parse_line(&format!("defrag --region {region} a")) else {
                panic!("{region}: it is understood");
            };
            assert_eq!(args.region, Some(Size(bytes)));
        }
        assert_eq!((args.order, args.max_time.map(|time| time.0)), (OrderName::Inode, Some(300)));
        for line in [
            "defrag",
            "defrag --order none a",
            "defrag -v --json a",
            "defrag --max-time x a",
            "defrag --region 1K a",
            "defrag --region 65535 a",
            "defrag --region 8193K a",
            "defrag --region 1G a",
            "defrag --undo 1 --forget 1 a",
            "defrag --keep --undo 1 a",
            "defrag --undo 1 -n a",
            "defrag --undo 1 --peer a",
            "defrag --undo 1 --dedupe a",
            "defrag --forget 1 --dedupe a",
        ] {
            assert!(parse_line(line).is_err(), "{line}");
        }
    }
}
