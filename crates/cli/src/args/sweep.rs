//! The options that all commands share.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use onesweep::{DiskModel, ImageOptions, MetadataSource, Order, Reassembly, Strategy};
use serde::Deserialize;

use crate::{config::parsed, forecast, size::Size};

/// Everything that every command takes.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) settings: Settings,
    #[command(flatten)]
    pub(crate) selection: Selection,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Which files are left out.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Which files")]
pub(crate) struct Selection {
    /// Leave out what matches PATTERN, and all below it (as GNU tar does)
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<std::ffi::OsString>,
    /// Leave out what matches a line of FILE (- is standard input)
    #[arg(short = 'X', long, value_name = "FILE")]
    pub(crate) exclude_from: Vec<PathBuf>,
    /// Follow symbolic links that are named as paths (and no others)
    #[arg(short = 'H', long)]
    pub(crate) follow_roots: bool,
    /// Of images, take in what is in use but has no name, as lost/INODE
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
}

impl Selection {
    /// How images are opened.
    pub(crate) fn image_options(&self) -> ImageOptions {
        ImageOptions { force_dirty: self.force_dirty, logdev: self.logdev.clone(), rtdev: self.rtdev.clone() }
    }

    /// The options that are for images alone, as far as they are given.
    pub(crate) fn for_images_alone(&self) -> Vec<&'static str> {
        for_images_alone(self.lost, &self.image_options())
    }
}

/// The options that are for images alone, as far as they are given.
pub(super) fn for_images_alone(lost: bool, options: &ImageOptions) -> Vec<&'static str> {
    let given = [
        ("--lost", lost),
        ("--force-dirty", options.force_dirty),
        ("--logdev", options.logdev.is_some()),
        ("--rtdev", options.rtdev.is_some()),
    ];
    given.into_iter().filter_map(|(name, is_given)| is_given.then_some(name)).collect()
}

/// When to show the bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ProgressWhen {
    /// When standard error is a terminal
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl std::str::FromStr for ProgressWhen {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        <Self as ValueEnum>::from_str(text, false)
            .map_err(|_| format!("unknown value '{text}'; use auto, always or never"))
    }
}

/// What is told beside the result.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Output {
    /// Show the plan on standard error before reading
    #[arg(long)]
    pub(crate) show_plan: bool,
    /// Print a summary as one JSON object (on standard error where standard output carries data)
    #[arg(long)]
    pub(crate) json: bool,
    /// Print errors only
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Defines [`Settings`] and what is done with each of its fields.
macro_rules! settings {
    ($($(#[$meta:meta])* $name:ident: $type:ty,)*) => {
        /// How to read. Each can be an option, a variable (`ONESWEEP_QUEUE_DEPTH`) or a key of the configuration file
        /// (`queue-depth`).
        #[derive(Debug, Clone, Default, PartialEq, Args, Deserialize)]
        #[command(next_help_heading = "How to read")]
        #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
        pub(crate) struct Settings {
            $($(#[$meta])* #[serde(deserialize_with = "parsed")] pub(crate) $name: Option<$type>,)*
        }

        impl Settings {
            /// The names of all settings, as fields.
            pub(crate) const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// These settings, and `other`'s where these say nothing.
            pub(crate) fn or(self, other: Self) -> Self {
                Self { $($name: self.$name.or(other.$name),)* }
            }
        }
    };
}

settings! {
    /// Order of reading: auto (fragment, but directory on disks without seeks), fragment, first-extent, inode,
    /// inode-per-directory, first-extent-per-directory, directory [default: auto]
    #[arg(long, value_name = "ORDER", ignore_case = true)]
    order: Order,
    /// How fragments become requests: vanilla, unmerged, merged [default: merged with --device, else unmerged]
    #[arg(long, value_name = "STRATEGY")]
    strategy: Strategy,
    /// How files wait for their fragments: auto, deferred, on-demand, first-fit [default: auto]
    #[arg(long, value_name = "WAY", value_parser = forecast::reassembly)]
    reassembly: ReassemblyName,
    /// Batch threshold in bytes, between first-fit (0) and on-demand (the budget)
    #[arg(long, value_name = "SIZE", conflicts_with = "reassembly")]
    threshold: Size,
    /// Memory for files in flight [default: 256M]
    #[arg(long, value_name = "SIZE")]
    budget: Size,
    /// Stream files over this size after the sweep [default: a quarter of the budget]
    #[arg(long, value_name = "SIZE")]
    large: Size,
    /// Memory for names and fragments [default: an eighth of the memory]
    #[arg(long, value_name = "SIZE")]
    catalog_limit: Size,
    /// Where names come from: auto (the tables of images and of devices that are not mounted, else a walk), walk (an
    /// image is a file), tables (as auto; of a mounted ext4, XFS or btrfs the tables are read before the walk, else it is an
    /// error)
    /// [default: auto; walk for `sum --check`, `warm`, and `tar` with -T or --no-recursion]
    #[arg(long, value_name = "SOURCE")]
    metadata: MetadataSource,
    /// Read the block device itself (needs read access to it, and Linux 6.5)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    device: bool,
    /// Read everything as it is at one moment: by a snapshot (btrfs, LVM), else by holding writers until the plan stands
    /// (at most 30 s). Needs root
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    snapshot: bool,
    /// Stay on the file systems of the named paths
    #[arg(short = 'x', long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    one_file_system: bool,
    /// Leave out what .gitignore and .ignore files name
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    gitignore: bool,
    /// Read at most so many bytes a second
    #[arg(long, value_name = "RATE")]
    bwlimit: Size,
    /// Read in the idle I/O class, when nobody else does
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    idle: bool,
    /// Requests in flight for each disk [default: 16]
    #[arg(long, value_name = "NUMBER")]
    queue_depth: std::num::NonZeroUsize,
    /// Read through gaps up to this size when merging [default: the disk's break-even gap]
    #[arg(long, value_name = "SIZE")]
    gap: Size,
    /// Largest request [default: 4M]
    #[arg(long, value_name = "SIZE")]
    max_request: Size,
    /// Disk that times are predicted for
    #[arg(long, value_name = "MODEL", value_parser = forecast::disk_model, long_help = forecast::disk_help())]
    disk: DiskName,
    /// Show a progress bar [default: auto]
    #[arg(long, value_name = "WHEN")]
    progress: ProgressWhen,
}

/// A way of reassembly, by its name on the command line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ReassemblyName(pub(crate) Reassembly);

impl std::str::FromStr for ReassemblyName {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        forecast::reassembly(text)
    }
}

/// A disk model, by its name on the command line.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DiskName(pub(crate) DiskModel);

impl std::str::FromStr for DiskName {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        forecast::disk_model(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Command, parse_line};

    fn settings(line: &str) -> Settings {
        match parse_line(line).unwrap() {
            Command::Sum(args) => args.common.settings,
            Command::Plan(args) => args.common.settings,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_arrive() {
        let typed = settings("sum --order=first-extent --budget 1G --threshold=64K --queue-depth=8 -x --idle=false p");
        assert_eq!(typed.order, Some(Order::FirstExtent));
        assert_eq!((typed.budget, typed.threshold), (Some(Size(1 << 30)), Some(Size(65536))));
        assert_eq!(typed.queue_depth.map(Into::into), Some(8_usize));
        assert_eq!((typed.one_file_system, typed.idle, typed.device), (Some(true), Some(false), None));
        let typed = settings("plan --strategy merged --reassembly first-fit --bwlimit 10MB/s --gap 0 p");
        assert_eq!(typed.strategy, Some(Strategy::Merged));
        assert_eq!(typed.reassembly, Some(ReassemblyName(Reassembly::FirstFit)));
        assert_eq!((typed.bwlimit, typed.gap), (Some(Size(10_000_000)), Some(Size(0))));
        assert_eq!(settings("plan p"), Settings::default());
    }

    #[test]
    fn contradictions_and_nonsense_are_refused() {
        for line in [
            "sum --threshold 1 --reassembly first-fit p",
            "sum --queue-depth 0 p",
            "sum --order sideways p",
            "sum --idle=maybe p",
            "sum --progress sometimes p",
        ] {
            parse_line(line).unwrap_err();
        }
        assert!(parse_line("sum --order sideways p").unwrap_err().contains("first-extent-per-directory"));
    }
}
