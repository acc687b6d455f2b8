//! `onesweep find`.

use std::path::PathBuf;

use clap::Args;
use onesweep::ImageOptions;

use super::sweep::for_images_alone;
use crate::size::Size;

/// Finds files by what the tables of a file system say, without a walk
///
/// Reads the tables of an image or an unmounted device: ext2, ext3, ext4, XFS or NTFS; as root also those of a mounted ext2,
/// ext3, ext4, XFS or btrfs, where a directory is named. What is changed meanwhile, and what is mounted below, the kernel is
/// asked about on ext4; on XFS and btrfs it may come as it was, and what is mounted is left out. All conditions have to be met.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  onesweep find disk.img                              all paths
  onesweep find /dev/sdb1 -name '*.mbox' -size +10M
  onesweep find disk.img@2:/home -mtime -7 -type f -l
  onesweep find /srv -mtime -1 -type f                root, on a mounted ext4, XFS or btrfs
  onesweep find --json usb.img | jq -r 'select(.fragments > 10).path'

An image is named by its file, with a partition as IMAGE@2, with a directory as IMAGE:/home.
Nothing is ever written to it.")]
pub(crate) struct FindArgs {
    /// Images or devices, also as IMAGE@PARTITION and IMAGE:/DIRECTORY; directories of a mounted ext4, XFS or btrfs
    #[arg(required = true, value_name = "IMAGE|DIRECTORY")]
    pub(crate) images: Vec<PathBuf>,
    /// The last part of the path matches a shell pattern
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    pub(crate) name: Vec<std::ffi::OsString>,
    /// Its size in units rounded up: N, +N for more, -N for less; c bytes, k, M, G, else blocks of 512
    #[arg(long, value_name = "N[ckMG]", allow_hyphen_values = true)]
    pub(crate) size: Vec<String>,
    /// Changed N days ago, +N for longer, -N for less; also fractions
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) mtime: Vec<String>,
    /// Owned by a user, by name or number
    #[arg(long, value_name = "USER", allow_hyphen_values = true)]
    pub(crate) user: Vec<String>,
    /// A file (f), directory (d), symbolic link (l), pipe (p), socket (s), device (b, c)
    #[arg(long = "type", value_name = "LETTERS")]
    pub(crate) kind: Vec<String>,
    /// Stay on the file system of a named directory
    #[arg(short = 'x', long, alias = "xdev")]
    pub(crate) one_file_system: bool,
    /// List what is in use but has no name, too, as lost/INODE
    #[arg(long)]
    pub(crate) lost: bool,
    /// Read an NTFS that was not closed, too: what was written last may be missing or half there
    #[arg(long)]
    pub(crate) force_dirty: bool,
    /// Of an XFS image whose log lies elsewhere (mkfs.xfs -l logdev=), the device or image with that log
    #[arg(long, value_name = "PATH")]
    pub(crate) logdev: Option<PathBuf>,
    /// Of an XFS image with a realtime device (mkfs.xfs -r rtdev=), that device or an image of it
    #[arg(long, value_name = "PATH")]
    pub(crate) rtdev: Option<PathBuf>,
    /// Memory for names and inodes: what has more is read part by part, directories first [default: an eighth of the memory]
    #[arg(long, value_name = "SIZE")]
    pub(crate) catalog_limit: Option<Size>,
    /// Ask for so many allocation groups of a mounted XFS at a time, for measuring
    #[arg(long, hide = true, value_name = "N")]
    pub(crate) groups_at_a_time: Option<usize>,
    /// End each path with a NUL instead of a line feed
    #[arg(short = '0', long, conflicts_with_all = ["long", "json"])]
    pub(crate) null: bool,
    /// Show mode, names, owner, group, size, time, fragments, address and flags too
    #[arg(short, long, conflicts_with = "json")]
    pub(crate) long: bool,
    /// Write a JSON object for each file, one to a line
    #[arg(long)]
    pub(crate) json: bool,
}

impl FindArgs {
    /// How images are opened.
    pub(crate) fn image_options(&self) -> ImageOptions {
        ImageOptions { force_dirty: self.force_dirty, logdev: self.logdev.clone(), rtdev: self.rtdev.clone() }
    }

    /// The options that are for images alone, as far as they are given.
    pub(crate) fn for_images_alone(&self) -> Vec<&'static str> {
        for_images_alone(self.lost, &self.image_options())
    }
}

/// The conditions in the language of find(1).
const WORDS: [&str; 6] = ["-name", "-size", "-mtime", "-user", "-type", "-xdev"];

/// Lets `-name` stand for `--name`, as in find(1).
pub(super) fn expand(words: Vec<std::ffi::OsString>) -> Vec<std::ffi::OsString> {
    if words.get(1).is_none_or(|command| command != "find") {
        return words;
    }
    let mut is_value = false;
    let expanded = |word: std::ffi::OsString| {
        let condition = word.to_str().filter(|_| !is_value).and_then(|text| {
            WORDS.into_iter().find(|condition| *condition == text || text.strip_prefix('-') == Some(condition))
        });
        // What stands behind is its value, whatever it looks like.
        is_value = condition.is_some_and(|condition| condition != "-xdev");
        condition.map_or(word, |condition| format!("-{condition}").into())
    };
    words.into_iter().map(expanded).collect()
}

#[cfg(test)]
mod tests {
    use crate::args::{Command, parse_line};

    #[test]
    fn conditions_are_those_of_find() {
        let Ok(Command::Find(args)) =
            parse_line("find a.img -xdev -name *.c -size -10M --mtime +7 -type f,d -user root -l")
        else {
            panic!("it is understood");
        };
        assert_eq!((args.name[0].to_str(), &*args.size[0], &*args.mtime[0]), (Some("*.c"), "-10M", "+7"));
        assert_eq!((&*args.kind[0], &*args.user[0], args.long), ("f,d", "root", true));
        assert!(args.one_file_system);
        for line in ["find", "find a -0 --json", "find a -l --json", "find a -name"] {
            assert!(parse_line(line).is_err(), "{line}");
        }
        for line in ["find a -name -dash -user -7", "find -name -dash --user=-7 a"] {
            let Ok(Command::Find(args)) = parse_line(line) else { panic!("{line}") };
            assert_eq!((args.name[0].to_str(), &*args.user[0]), (Some("-dash"), "-7"));
        }
        let Ok(Command::Find(args)) = parse_line("find a -name -size") else { panic!("it is understood") };
        assert_eq!(args.name[0].to_str(), Some("-size"));
        assert!(parse_line("list -name x").is_err(), "elsewhere it is none");
    }
}
