//! `onesweep view`.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, ValueEnum};

use crate::size::Size;

/// How the entries of a directory follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ViewOrder {
    /// as the files lie on the disk
    Device,
    /// by inode number
    Inode,
    /// by name
    Name,
    /// as the file system gives them
    Source,
}

/// Shows a tree once more, and brings the files into memory ahead of whoever walks over it there
///
/// For programs that `onesweep run` can't help: those that are linked statically (restic, rclone), and those in containers. The
/// tree is the same at DIR: names, bytes, inode numbers, attributes, links. Root has the kernel show it, by a mount of the same directory, which costs who
/// reads next to nothing; others have FUSE. It is shown until Ctrl-C, or until COMMAND
/// has ended. Only root's view is open to other users. Nothing is written to SRC unless --read-write is given.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  onesweep view /srv/mail /mnt/mail
  onesweep view /srv /mnt/srv -- restic -r /backup/repo backup /mnt/srv
  onesweep view --limit 2G --order name /srv/www /mnt/www
  onesweep view --read-write /srv/build /mnt/build")]
pub(crate) struct ViewArgs {
    /// The tree
    #[arg(value_name = "SRC")]
    pub(crate) source: PathBuf,
    /// An empty directory outside of the tree, where it is shown
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// The order in which directories are listed, by FUSE [default: device; inode where nothing turns in the disks; source where the kernel
    /// shows the tree]
    #[arg(long, value_name = "ORDER", value_enum)]
    pub(crate) order: Option<ViewOrder>,
    /// Page cache of SRC that may be filled at a time [default: the available memory, less a
    /// sixteenth of all and what reading needs; half of that by FUSE, where what was read lies in memory twice]
    #[arg(long, value_name = "SIZE")]
    pub(crate) limit: Option<Size>,
    /// Show it by FUSE, also as root
    #[arg(long)]
    pub(crate) fuse: bool,
    /// Let the tree be changed through the view
    #[arg(long)]
    pub(crate) read_write: bool,
    /// Show it by FUSE, and let the kernel read files of 1 MiB and more by itself (Linux 6.9, root): for trees of large files. Each open is a request
    /// then, of some 10 µs, which small files in memory would pay for. With --read-write it is so
    #[arg(long)]
    pub(crate) passthrough: bool,
    /// Let processors sleep also while a program asks for one thing after the other: it saves power, and such a program takes up to
    /// twice as long
    #[arg(long)]
    pub(crate) low_power: bool,
    /// Let other users look, too, when it isn't root who shows it (/etc/fuse.conf has to say user_allow_other)
    #[arg(long)]
    pub(crate) allow_other: bool,
    /// Tell how the tree is shown, and at the end what was brought in
    #[arg(long, short)]
    pub(crate) verbose: bool,
    /// A program, and what it is told, that runs while the tree is shown
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}
