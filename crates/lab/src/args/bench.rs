//! What was typed after `bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::bench::defrag;
use crate::bench::dfs;
use crate::bench::du;
use crate::bench::peer;
use crate::bench::quick::{self, Quick};
use crate::bench::report::{self, Part};
use crate::bench::sweep::{self, Again};
use crate::bench::work::Programs;
use crate::disk::model::DiskModel;

#[derive(Debug, Subcommand)]
pub(super) enum Bench {
    Sweep(SweepArgs),
    Du(DuArgs),
    Dfs(DfsArgs),
    Defrag(DefragArgs),
    Peer(PeerArgs),
    Report(ReportArgs),
}

/// Measure: every run that a table or figure needs and that the results lack
///
/// Runs are written down one by one, so a run that was ended goes on where it was.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    onesweep-lab bench sweep --out target/bench\n  \
    onesweep-lab bench sweep --out target/bench --case random-ext4 --again ours\n  \
    onesweep-lab bench sweep --out target/bench --list\n  \
    onesweep-lab bench sweep --out target/bench-quick --quick")]
pub(super) struct SweepArgs {
    /// The directory of the results
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// A case, or how its name begins; may be given again
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,
    /// Small images instead, whose ratios are held against the baseline
    #[arg(long, conflicts_with = "case")]
    quick: bool,
    /// The ratios that must not fall
    #[arg(long, value_name = "FILE", default_value = "bench/baseline.json")]
    baseline: PathBuf,
    /// Write the baseline
    #[arg(long, requires = "quick")]
    set_baseline: bool,
    /// Where the random numbers of the recipes start
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Make every image smaller or larger, to try things; the page shows none of these
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, conflicts_with = "quick")]
    scale: f64,
    /// Which runs of the results are made again
    #[arg(long, value_name = "WHICH", default_value = "no")]
    again: Again,
    /// Only print how many runs each case lacks
    #[arg(long, conflicts_with = "quick")]
    list: bool,
    #[command(flatten)]
    places: Places,
}

impl SweepArgs {
    fn run(self) -> Result<u8, String> {
        let (programs, cache) = self.places.find()?;
        let order = sweep::Order {
            out: self.out,
            cases: self.case,
            seed: self.seed,
            scale: self.scale,
            again: self.again,
            cache,
            programs,
        };
        if self.quick {
            quick::run(Quick { order, baseline: self.baseline, set: self.set_baseline })
        } else if self.list {
            sweep::list(&order)
        } else {
            sweep::run(&order)
        }
    }
}

/// Measure directory summaries beside du and its like
///
/// Cases are written down one by one, so what was ended goes on where it was.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    onesweep-lab bench du --out target/bench\n  \
    onesweep-lab bench du --out /tmp/try --case days-a-ext4 --scale 0.05")]
pub(super) struct DuArgs {
    /// The directory of the results
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// A case, or how its name begins; may be given again
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,
    /// Where the random numbers of the recipes start
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Make everything smaller or larger, to try things, below 0.1 in few rounds; the page shows none of these
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    scale: f64,
    /// Measure again what was measured before
    #[arg(long)]
    again: bool,
    #[command(flatten)]
    places: Places,
}

/// Where images and programs are.
#[derive(Debug, Args)]
struct Places {
    /// The directory of aged images [default: aged, in the target directory]
    #[arg(long, value_name = "DIR")]
    cache: Option<PathBuf>,
    /// The program that is measured [default: the one beside this]
    #[arg(long, value_name = "PROGRAM")]
    onesweep: Option<PathBuf>,
    /// A directory with peers [default: tools/bin, in the target directory]
    #[arg(long, value_name = "DIR")]
    tools: Option<PathBuf>,
}

impl Places {
    fn find(self) -> Result<(Programs, PathBuf), String> {
        let programs = sweep::programs(self.onesweep, self.tools)?;
        let cache = match self.cache {
            Some(cache) => cache,
            None => programs.lab.parent().and_then(|dir| dir.parent()).ok_or("no target directory")?.join("aged"),
        };
        Ok((programs, cache))
    }
}

impl DuArgs {
    fn run(self) -> Result<u8, String> {
        let (programs, cache) = self.places.find()?;
        let Self { out, case, seed, scale, again, .. } = self;
        du::run(&du::Order { out, cases: case, seed, scale, again, cache, programs })
    }
}

/// Measure DFS on a model of FFS, as its paper does: figures 6 to 9 and table 3
///
/// No disk and no privileges are needed. The operations are those of the recipes `dfs`, `dfs-small` and `dfs-short`; the
/// tables are printed, too.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    onesweep-lab bench dfs --out target/bench\n  \
    onesweep-lab bench dfs --out /tmp/try --scale 0.1 --seed 2\n  \
    onesweep-lab bench dfs --out target/bench --seeds 5\n  \
    onesweep-lab bench report target/bench --only dfs")]
pub(super) struct DfsArgs {
    /// The directory of the results
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Where the random numbers of the recipes start
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// So many seeds from that one on; what has to be reached is told as their mean, and the least and greatest
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=100))]
    seeds: u64,
    /// Make file system, cache and visits smaller, to try things; the page shows none of these
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    scale: f64,
    /// Another disk than the paper's, to try: what comes out is printed, and not kept
    #[arg(long, value_name = "NAME|FILE.toml", value_parser = super::model_of)]
    model: Option<DiskModel>,
}

impl DfsArgs {
    fn run(self) -> Result<u8, String> {
        let Self { out, seed, seeds, scale, model } = self;
        dfs::run(&dfs::Order { out, seed, seeds, scale, model })
    }
}

/// Measure `onesweep defrag` beside e4defrag: what it writes, and what readers gain
///
/// Copies of aged images are packed and read on an emulated disk. Packings are written down one by one, so what was ended
/// goes on where it was.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    onesweep-lab bench defrag --out target/bench\n  \
    onesweep-lab bench defrag --out /tmp/try --case dfs --scale 0.05\n  \
    onesweep-lab bench report target/bench --only defrag")]
pub(super) struct DefragArgs {
    /// The directory of the results
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// A case, or how its name begins; may be given again
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,
    /// Where the random numbers of the recipes start
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Make every image smaller, to try things; the page shows none of these
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    scale: f64,
    /// Measure again what was measured before
    #[arg(long)]
    again: bool,
    #[command(flatten)]
    places: Places,
}

impl DefragArgs {
    fn run(self) -> Result<u8, String> {
        let (programs, cache) = self.places.find()?;
        let Self { out, case, seed, scale, again, .. } = self;
        defrag::run(&defrag::Order { out, cases: case, seed, scale, again, cache, programs })
    }
}

/// Measure reads that a server answers when it is quicker, beside the disk alone
///
/// Disks are emulated, client and server are in network namespaces of their own. Cases are written down one by one, so what
/// was ended goes on where it was. Needs root, ip, tc, nsenter, unshare and taskset.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    onesweep-lab bench peer --out target/bench\n  \
    onesweep-lab bench peer --out /tmp/try --case figure-4 --scale 0.02\n  \
    onesweep-lab bench report target/bench --only peer")]
pub(super) struct PeerArgs {
    /// The directory of the results
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// A case, or how its name begins; may be given again
    #[arg(long, value_name = "NAME")]
    case: Vec<String>,
    /// Make everything smaller, to try things, below 0.1 in few rounds; the page shows none of these
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    scale: f64,
    /// Measure again what was measured before
    #[arg(long)]
    again: bool,
    #[command(flatten)]
    places: Places,
}

impl PeerArgs {
    fn run(self) -> Result<u8, String> {
        let (programs, _) = self.places.find()?;
        let Self { out, case, scale, again, .. } = self;
        peer::run(&peer::Order { out, cases: case, scale, again, programs })
    }
}

/// Write tables and pictures of the results into a page, between its marks
#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// The directory of the results
    dir: PathBuf,
    /// The seed that was measured
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The page
    #[arg(long, value_name = "FILE", default_value = "docs/BENCHMARKS.md")]
    page: PathBuf,
    /// The directory of the pictures, beside the page
    #[arg(long, value_name = "DIR", default_value = "docs/pictures")]
    pictures: PathBuf,
    /// Write one part alone, and leave the rest of the page as it is
    #[arg(long, value_name = "PART")]
    only: Option<Part>,
}

impl ReportArgs {
    fn run(self) -> Result<u8, String> {
        let Self { dir, seed, page, pictures, only } = self;
        report::run(&report::Order { dir, seed, page, pictures, only })
    }
}

impl Bench {
    pub(super) fn run(self) -> Result<u8, String> {
        match self {
            Self::Sweep(args) => args.run(),
            Self::Du(args) => args.run(),
            Self::Dfs(args) => args.run(),
            Self::Defrag(args) => args.run(),
            Self::Peer(args) => args.run(),
            Self::Report(args) => args.run(),
        }
    }
}
