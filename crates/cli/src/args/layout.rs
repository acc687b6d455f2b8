//! `onesweep layout`.

use std::path::PathBuf;

use clap::Args;
use onesweep::{MetadataSource, ReaderOrder};

use super::{Common, DiskName, Output, ProgressWhen, Selection, Settings};
use crate::{forecast, size::Size};

const AFTER_HELP: &str = "\
Examples:
  onesweep layout /srv/mail
  onesweep layout --draw --order name ~/photos
  onesweep layout --svg mail.svg --map disk.svg --of /srv/mail/inbox /srv/mail
  onesweep layout --json --disk modern-20tb disk.img | jq .total

LAYOUT is the share of the blocks of each file that lie right behind the one before them; DYNAMIC is the same over
all blocks of a directory in the order in which a program reads it. SEEKS and TIME are those of such a program, which
reads one file after the other, before, and after the files of each directory would have been packed side by side in
that order. Nothing is moved, and no content is read.";

/// Shows how well the files of each directory lie for who reads them, and what packing them would gain; changes nothing
#[derive(Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct LayoutArgs {
    /// Files and directories, images and devices that are not mounted
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// In which order a program reads the files of a directory: readdir (as the directory lists them: tar, grep -r), inode,
    /// name [default: readdir; of images, where that is not told, inode]
    #[arg(long, value_name = "READER")]
    pub(crate) order: Option<ReaderOrder>,
    /// Show so many directories, those first that packing would gain most; 0 for all
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    pub(crate) top: usize,
    /// Draw a directory and the device in characters
    #[arg(long, conflicts_with = "json")]
    pub(crate) draw: bool,
    /// Write a picture of a directory: its files on the line of the disk, and the seeks between them, before and after
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Write a picture of the device that this directory lies on, as a Hilbert map
    #[arg(long, value_name = "FILE")]
    pub(crate) map: Option<PathBuf>,
    /// The directory that pictures show [default: the first of the table]
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) of: Option<PathBuf>,
    #[command(flatten)]
    selection: Selection,
    /// Print one JSON object
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Print errors only, beside the result
    #[arg(short, long, help_heading = "Output")]
    quiet: bool,
    #[command(flatten)]
    how: How,
}

/// Those of the common options that mean something here.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "How to look")]
struct How {
    /// Disk that times are predicted for
    #[arg(long, alias = "disk-model", value_name = "MODEL", value_parser = forecast::disk_model, long_help = forecast::disk_help())]
    disk: Option<DiskName>,
    /// Where names come from: auto (the tables of images and of devices that are not mounted, else a walk), walk (an
    /// image is a file), tables (as auto; of a mounted ext4, XFS or btrfs the tables are read before the walk, of anything
    /// else that is mounted it is an error) [default: auto]
    #[arg(long, value_name = "SOURCE")]
    metadata: Option<MetadataSource>,
    /// Memory for names and fragments [default: an eighth of the memory]
    #[arg(long, value_name = "SIZE")]
    catalog_limit: Option<Size>,
    /// Look at everything as it is at one moment: by a snapshot (btrfs, LVM), else by holding writers (at most 30 s).
    /// Needs root
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    snapshot: Option<bool>,
    /// Stay on the file systems of the named paths
    #[arg(short = 'x', long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    one_file_system: Option<bool>,
    /// Leave out what .gitignore and .ignore files name
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    gitignore: Option<bool>,
    /// Read in the idle I/O class, when nobody else does
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    idle: Option<bool>,
    /// Show a progress bar [default: auto]
    #[arg(long, value_name = "WHEN")]
    progress: Option<ProgressWhen>,
}

impl LayoutArgs {
    /// The options that all commands share.
    pub(crate) fn common(&self) -> Common {
        let how = self.how.clone();
        let settings = Settings {
            disk: how.disk,
            metadata: how.metadata,
            catalog_limit: how.catalog_limit,
            snapshot: how.snapshot,
            one_file_system: how.one_file_system,
            gitignore: how.gitignore,
            idle: how.idle,
            progress: how.progress,
            ..Settings::default()
        };
        let output = Output { show_plan: false, json: self.json, quiet: self.quiet };
        Common { settings, selection: self.selection.clone(), output }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, parse_line};

    fn typed(line: &str) -> LayoutArgs {
        match parse_line(line).unwrap() {
            Command::Layout(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_arrive() {
        let args = typed("layout --order name --top 3 --disk-model ssd -x --json --exclude y --map m p q");
        assert_eq!((args.order, args.top, args.paths.len()), (Some(ReaderOrder::Name), 3, 2));
        let common = args.common();
        assert_eq!(common.settings.disk.map(|disk| disk.0.name), Some("ssd".to_owned()));
        assert_eq!((common.settings.one_file_system, common.settings.order), (Some(true), None));
        assert!(common.output.json && common.selection.exclude.len() == 1);
        let plain = typed("layout p");
        assert_eq!(
            (plain.order, plain.top, plain.draw, plain.common().settings),
            (None, 20, false, Settings::default())
        );
    }

    #[test]
    fn nonsense_is_refused() {
        for line in ["layout", "layout --order sideways p", "layout --top few p", "layout --draw --json p"] {
            parse_line(line).unwrap_err();
        }
        assert!(parse_line("layout --order first-extent p").unwrap_err().contains("readdir"));
    }
}
