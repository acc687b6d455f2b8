//! What was typed.

mod bench;

use std::fs;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::age::day;
use crate::age::image::{self, Fs};
use crate::age::pack;
use crate::age::recipe::Recipe;
use crate::bench::defrag;
use crate::bench::du;
use crate::bench::in_flight;
use crate::bench::peer;
use crate::bench::scan;
use crate::bound;
use crate::disk::model::DiskModel;
use crate::emulate::{self, MountSpec, Spec};
use crate::interrupt::{self, Interrupt};
use crate::mount;
use crate::partial::with_suffix;
use crate::size::SpanArg;

/// An emulated disk under real file systems, ageing, and bounds to measure against.
#[derive(Debug, Parser)]
#[command(name = "onesweep-lab", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Sub,
}

#[derive(Debug, Subcommand)]
enum Sub {
    Disk(Box<DiskArgs>),
    Age(AgeArgs),
    Bound(BoundArgs),
    /// Measure every program on the same cold images, and write tables and pictures of it
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Compress an image to IMAGE.zst
    Pack {
        /// The image, which stays
        image: PathBuf,
    },
    /// Unpack IMAGE.zst to IMAGE, sparse, and check it against IMAGE.json where that lies beside it
    Unpack {
        /// The packed image, which stays
        packed: PathBuf,
    },
    /// Take down a disk that a killed run has left, with everything on it, or mounts of an image
    Down {
        /// The directory that the disk was shown at, or the image
        place: PathBuf,
    },
    /// List the named disk models with their sources, or print one as TOML
    Models {
        /// The model to print
        name: Option<String>,
    },
    /// The serving process of `disk`
    #[command(hide = true)]
    Serve {
        spec: String,
    },
    /// A peer of `bench`: directory order, with many files in flight
    #[command(hide = true)]
    InFlight {
        root: PathBuf,
        threads: usize,
    },
    /// A part of `bench`: how fast tables are read that lie in memory
    #[command(hide = true)]
    Scan {
        image: PathBuf,
    },
    /// A part of `bench defrag`: a load, with what the daemon does beside it
    #[command(hide = true)]
    Ageing {
        order: String,
    },
    /// A part of `bench peer`: blocks of a server by the client library
    #[command(hide = true)]
    PeerGets {
        order: String,
    },
    /// A part of `bench peer`: what stands between client and server
    #[command(hide = true)]
    PeerRelay {
        listen: String,
        server: String,
    },
    /// A part of `bench peer`: a server that has known blocks, and from a word on never the right bytes
    #[command(hide = true)]
    PeerLiar {
        listen: String,
        key: PathBuf,
        identity: PathBuf,
        seed: u64,
        blocks: u64,
    },
    /// A part of `bench du`: a file by records of one size, done in the control group behind the door
    #[command(hide = true)]
    Records {
        door: PathBuf,
        kind: du::Kind,
        path: PathBuf,
        bytes: u64,
        record: u64,
    },
}

/// The model of that name, or in that file.
fn model_of(name: &str) -> Result<DiskModel, String> {
    if let Some(model) = DiskModel::named(name) {
        return Ok(model);
    }
    if Path::new(name).extension().is_some_and(|extension| extension == "toml") {
        let text = fs::read_to_string(name).map_err(|error| format!("{name}: {error}"))?;
        return DiskModel::from_toml(&text).map_err(|error| format!("{name}: {error}"));
    }
    let names: Vec<&str> = DiskModel::presets().map(|preset| preset.0).collect();
    Err(format!("no model {name:?}; known are {}, or a file named .toml", names.join(", ")))
}

/// Slower than that, nobody would see a command end.
const MOST_REAL: f64 = 1e6;

/// A disk: which, and which part of it.
#[derive(Debug, Clone, Args)]
pub(crate) struct ModelArgs {
    /// A named model (see `models`), or a TOML file
    #[arg(long, value_name = "NAME|FILE.toml", default_value = "barracuda-7200.11")]
    model: String,
    /// The part of the disk that the image covers, in sizes or percent
    #[arg(long, value_name = "FROM..TO", default_value = "0..100%")]
    span: SpanArg,
    /// The track buffer
    #[arg(long, value_name = "on|off", default_value = "on")]
    track_buffer: Switch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

impl ModelArgs {
    /// The model, and the part of it from 0 to 1.
    pub(crate) fn model(&self) -> Result<(DiskModel, (f64, f64)), String> {
        let mut model = model_of(&self.model)?;
        if self.track_buffer == Switch::Off {
            model.buffer_segments = 0;
        }
        let span = self.span.on(&model)?;
        Ok((model, (span.from, span.to)))
    }
}

/// Show an image as a disk with a head, as DIR/disk, with its books in DIR/stats
///
/// The books are in modelled milliseconds; nothing waits for them unless --real is given. Read them with `cat DIR/stats`,
/// reset them (and empty the track buffer) with `echo reset > DIR/stats`, add a fault with a line as for --fault.
///
/// Everything is taken down again at the end: by Ctrl-C, SIGTERM, the end of COMMAND, or when a part of it crashes.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    onesweep-lab disk aged.img /tmp/disk --mount /mnt --track-buffer off\n  \
    onesweep-lab disk aged.img /tmp/disk --mount /mnt --trace tar.trace -- tar cf /dev/null -C /mnt .\n  \
    onesweep-lab disk old.img /tmp/disk --model fireball-ex --span 0..2G --real 1\n  \
    onesweep-lab disk new.img /tmp/disk --mount /mnt --fault 'power-cut 500 7'")]
struct DiskArgs {
    /// The image
    image: PathBuf,
    /// An empty directory to show the disk at
    dir: PathBuf,
    #[command(flatten)]
    model: ModelArgs,
    /// Put a loop device with direct I/O on the disk, and mount the file system there
    #[arg(long, value_name = "MNT")]
    mount: Option<PathBuf>,
    /// The file system's type, as `mount -t` takes it
    #[arg(long, value_name = "TYPE", requires = "mount")]
    fs: Option<String>,
    /// Options of the mount
    #[arg(long, value_name = "OPTIONS", requires = "mount")]
    mount_options: Option<String>,
    /// What the loop device says of itself; by the model unless given
    #[arg(long, value_name = "on|off", requires = "mount")]
    rotational: Option<Switch>,
    /// The loop device's scheduler: none, mq-deadline, bfq, kyber
    #[arg(long, requires = "mount")]
    scheduler: Option<String>,
    /// The loop device's read-ahead
    #[arg(long, value_name = "KB", requires = "mount")]
    read_ahead: Option<u32>,
    /// Sleep the modelled times, multiplied by FACTOR
    #[arg(long, value_name = "FACTOR")]
    real: Option<f64>,
    /// Idle seconds before the spindle stops
    #[arg(long, value_name = "SECONDS")]
    standby: Option<f64>,
    /// Write a line for each request
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// "unreadable START+LENGTH", "slow START+LENGTH MILLISECONDS" or "power-cut WRITES SEED"
    #[arg(long, value_name = "FAULT")]
    fault: Vec<String>,
    /// Change nothing on the image
    #[arg(long)]
    read_only: bool,
    /// Run this beside the disk, print the books to standard error, and end
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl DiskArgs {
    fn spec(&self) -> Result<Spec, String> {
        let (mut model, span) = self.model.model()?;
        if let Some(seconds) = self.standby {
            if !seconds.is_finite() || seconds < 0.0 {
                return Err("--standby needs a number of seconds, 0 for never".into());
            }
            model.standby_after_s = seconds;
        }
        if self.real.is_some_and(|factor| factor <= 0.0 || !(0.0..=MOST_REAL).contains(&factor)) {
            return Err(format!("--real needs a factor above 0, at most {MOST_REAL}"));
        }
        for fault in &self.fault {
            fault.parse::<crate::disk::faults::Fault>()?;
        }
        Ok(Spec {
            image: self.image.canonicalize().map_err(|error| format!("{}: {error}", self.image.display()))?,
            dir: mount::absolute(&self.dir)?,
            model,
            span,
            real: self.real,
            trace: self.trace.as_deref().map(mount::absolute).transpose()?,
            faults: self.fault.clone(),
            read_only: self.read_only,
        })
    }

    fn mount(&self) -> Result<Option<MountSpec>, String> {
        let Some(target) = &self.mount else {
            return Ok(None);
        };
        Ok(Some(MountSpec {
            target: mount::absolute(target)?,
            fs: self.fs.clone(),
            options: self.mount_options.clone(),
            rotational: self.rotational.map(|switch| switch == Switch::On),
            scheduler: self.scheduler.clone(),
            read_ahead_kb: self.read_ahead,
        }))
    }
}

/// Make an aged file system from a recipe and a seed
///
/// The same recipe, seed and scale give the same operations on every machine. Beside the image comes IMAGE.json, with
/// the SHA-256 of the operations and of the image.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    onesweep-lab age random --out random.img\n  \
    onesweep-lab age source --steps 0 --fs xfs --out clean.img\n  \
    onesweep-lab age daft-4k --scale 0.01 --mkfs=-O --mkfs=^dir_index --out small.img\n  \
    onesweep-lab age days-a --steps 0 --out a.img        # the server on its first day\n  \
    onesweep-lab age days-a --day 1 --dir /mnt           # the next day's changes to it, where it is mounted\n  \
    onesweep-lab age random --list | sha256sum           # what the sidecar calls operations_sha256")]
struct AgeArgs {
    /// What is done to the file system
    recipe: Recipe,
    /// Where the random numbers start
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How much of it: files, directories and the image's size
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Steps of ageing; 0 is a clean file system [default: all of the recipe]
    #[arg(long)]
    steps: Option<u32>,
    /// The file system
    #[arg(long, default_value = "ext4")]
    fs: Fs,
    /// The image's size, instead of the recipe's
    #[arg(long, value_name = "SIZE", value_parser = crate::size::bytes)]
    image_size: Option<u64>,
    /// An option for mkfs; may be given again
    #[arg(long = "mkfs", value_name = "OPTION", allow_hyphen_values = true)]
    mkfs_options: Vec<String>,
    /// The image
    #[arg(long, value_name = "IMAGE", required_unless_present_any = ["day", "list"])]
    out: Option<PathBuf>,
    /// Make no image, but do the changes of this day of the recipe below --dir
    #[arg(long, value_name = "N", requires = "dir", conflicts_with_all = ["out", "list", "steps", "fs", "image_size", "mkfs_options"])]
    day: Option<u32>,
    /// Where the recipe is mounted, as it is after the day before
    #[arg(long, requires = "day")]
    dir: Option<PathBuf>,
    /// Make no image, but print the operations
    #[arg(long, conflicts_with = "out")]
    list: bool,
}

impl AgeArgs {
    fn run(self) -> Result<u8, String> {
        if !self.scale.is_finite() || self.scale <= 0.0 {
            return Err("--scale needs a number above 0".into());
        }
        let order = image::Order {
            recipe: self.recipe,
            seed: self.seed,
            scale: self.scale,
            steps: self.steps,
            fs: self.fs,
            image_bytes: self.image_size,
            mkfs_options: self.mkfs_options,
            out: self.out.unwrap_or_default(),
        };
        if order.amount().image_bytes > i64::MAX as u64 / 2 {
            return Err(format!("--scale {}: no file can be that large", self.scale));
        }
        if self.steps.is_some_and(|steps| steps > 0) && !order.recipe.ages() {
            return Err(format!("--steps: {} is made in one go, and nothing of it ages", order.recipe.name()));
        }
        if self.list {
            return list(&order);
        }
        let interrupt = Interrupt::by_signals()?;
        let said = match (self.day, &self.dir) {
            (Some(day), Some(dir)) => day::apply(order.recipe, &order.amount(), day, dir, &interrupt)
                .map(|day| serde_json::to_string_pretty(&day)),
            _ => image::make(&order, &interrupt).map(|label| serde_json::to_string_pretty(&label)),
        };
        if interrupt.came() && said.is_err() {
            return Ok(interrupt::EXIT_CODE);
        }
        println!("{}", said?.map_err(|error| error.to_string())?);
        Ok(0)
    }
}

/// Prints a text. Whoever has seen enough of it may go.
fn print(text: &str) -> Result<u8, String> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string()),
        _ => Ok(0),
    }
}

/// Prints the operations, one a line.
fn list(order: &image::Order) -> Result<u8, String> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut ops = order.recipe.ops(&order.amount());
    let printed = ops.try_for_each(|op| writeln!(out, "{op}")).and_then(|()| out.flush());
    match printed {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        printed => printed.map(|()| 0).map_err(|error| error.to_string()),
    }
}

/// Print two bounds for reading all files of an image: streaming their bytes, and one perfect sweep
///
/// The sweep takes the extents as filefrag prints them, and the sectors outside them that `find -size +0` and one FIEMAP
/// of each file read from cold caches with read-ahead 0; sorted, gaps read through where that is cheaper, served once,
/// one after the other, without a track buffer: a drive with a queue may be a little quicker.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    onesweep-lab bound aged.img\n  \
    onesweep-lab bound aged.img --model st373455lw --span 0..10% --json")]
struct BoundArgs {
    /// The image
    image: PathBuf,
    #[command(flatten)]
    model: ModelArgs,
    /// The file system's type, as `mount -t` takes it
    #[arg(long, value_name = "TYPE")]
    fs: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl BoundArgs {
    fn run(self) -> Result<u8, String> {
        let (model, span) = self.model.model()?;
        let bound = bound::bound(&bound::Subject { image: self.image, fs: self.fs, model, span, most_kib: None })?;
        if self.json {
            return print(&(serde_json::to_string_pretty(&bound).map_err(|error| error.to_string())? + "\n"));
        }
        print(&bound::told(&bound))
    }
}

/// Does what was typed; the exit code.
pub(crate) fn run() -> Result<u8, String> {
    match Cli::parse().command {
        Sub::Disk(args) => emulate::run(&args.spec()?, args.mount()?.as_ref(), &args.command),
        Sub::Age(args) => args.run(),
        Sub::Bound(args) => args.run(),
        Sub::Pack { image } => {
            pack::pack(&image, &with_suffix(&image, ".zst"))?;
            Ok(0)
        }
        Sub::Unpack { packed } => unpack(&packed),
        Sub::Down { place } => {
            let place = mount::absolute(&place)?;
            if !mount::is_shown(&place) && !place.exists() {
                return Err(format!("{}: there is nothing of that name", place.display()));
            }
            let complaints = [mount::take_down(&place), mount::clear_image(&place)].concat();
            if complaints.is_empty() { Ok(0) } else { Err(complaints.join("\n")) }
        }
        Sub::Models { name } => models(name.as_deref()),
        Sub::Serve { spec } => emulate::serve(&spec),
        Sub::Bench(args) => args.run(),
        Sub::InFlight { root, threads } => {
            let (files, bytes) = in_flight::read(&root, threads)?;
            println!("{files} files, {bytes} bytes");
            Ok(0)
        }
        Sub::Scan { image } => {
            println!("{}", serde_json::to_string(&scan::measure(&image)?).map_err(|error| error.to_string())?);
            Ok(0)
        }
        Sub::Ageing { order } => {
            println!("{}", defrag::do_ageing(&order)?);
            Ok(0)
        }
        Sub::PeerGets { order } => peer::gets::run(&order),
        Sub::PeerRelay { listen, server } => peer::relay::run(&listen, &server),
        Sub::PeerLiar { listen, key, identity, seed, blocks } => {
            peer::liar::run(&listen, &key, &identity, seed, blocks)
        }
        Sub::Records { door, kind, path, bytes, record } => {
            println!("{}", du::do_records(&door, kind, &path, (bytes, record))?);
            Ok(0)
        }
    }
}

fn unpack(packed: &Path) -> Result<u8, String> {
    if packed.extension().is_none_or(|extension| extension != "zst") {
        return Err(format!("{}: not a .zst file", packed.display()));
    }
    let image = packed.with_extension("");
    let label = image::sidecar(&image);
    let expected = match fs::read_to_string(&label) {
        Err(_) => None,
        Ok(text) => {
            let said = |why: &str| format!("{}: {why}", label.display());
            let facts: serde_json::Value = serde_json::from_str(&text).map_err(|error| said(&error.to_string()))?;
            Some(facts["image_sha256"].as_str().ok_or_else(|| said("no image_sha256"))?.to_owned())
        }
    };
    let hash = pack::unpack(packed, &image, expected.as_deref())?;
    println!("{hash}  {}", image.display());
    Ok(0)
}

fn models(name: Option<&str>) -> Result<u8, String> {
    let Some(name) = name else {
        return print(
            &DiskModel::presets().map(|(name, source)| format!("{name}\n    {source}\n")).collect::<String>(),
        );
    };
    let model = DiskModel::named(name).ok_or_else(|| format!("no model {name:?}; `onesweep-lab models` lists them"))?;
    print(&toml::to_string(&model).map_err(|error| error.to_string())?)
}
