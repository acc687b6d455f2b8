//! `onesweep-lab bound`: what streaming all files of an image costs on a disk, and one perfect sweep over them.
//!
//! What is to be read is found without any of the code that it is held against: extents as `filefrag` prints them, and the sectors outside them
//! that the emulated disk saw while `find -size +0` and one FIEMAP of each file ran from cold caches with read-ahead 0.
//! On btrfs, whose extents have addresses of its own, the sectors that the disk saw while every file was read stand for
//! the extents. On NTFS, where `filefrag` knows nothing, ntfs-3g is asked for the blocks one by one.

mod blocks;
mod layout;
mod sweep;

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::address_runs::{self, AddressRun};
use crate::age::image::sha256;
use crate::disk::drive::{Drive, Op};
use crate::disk::geometry::{self, Span};
use crate::disk::model::DiskModel;
use crate::disk::trace::Entry;
use crate::emulate::{Emulation, MountSpec, Spec};
use crate::interrupt::Interrupt;
use crate::mount::{self, run};
use crate::scratch::Scratch;
use layout::Layout;
use sweep::Sweep;

/// Both bounds, and what they were made from.
#[derive(Debug, Serialize)]
pub(crate) struct Bound {
    model: String,
    span: (f64, f64),
    image_sha256: String,
    files: u64,
    /// Bytes in the files.
    useful_bytes: u64,
    extents: u64,
    /// Bytes in the files' blocks.
    data_bytes: u64,
    /// Bytes outside them that finding the files and their places read.
    metadata_bytes: u64,
    /// The useful bytes at the rate of where they lie, nothing else.
    streaming_ms: f64,
    /// All of it in one pass over the disk.
    sweep: Sweep,
    /// The metadata alone in one pass.
    metadata_sweep: Sweep,
    /// The same runs through a drive that may choose among as many of the next ones as its queue holds.
    queued_sweep_ms: f64,
    /// Two such passes, the first over the metadata: for who doesn't know where the data lies before that is read.
    metadata_first_ms: f64,
}

/// The image that a bound is for.
pub(crate) struct Subject {
    pub(crate) image: PathBuf,
    pub(crate) fs: Option<String>,
    pub(crate) model: DiskModel,
    pub(crate) span: (f64, f64),
    /// Larger files are left out.
    pub(crate) most_kib: Option<u64>,
}

/// What there is to read of an image, on whatever disk.
#[derive(Debug)]
pub(crate) struct Survey {
    layout: Layout,
    /// What was read to find the files and their places.
    touched: Vec<AddressRun>,
    image_bytes: u64,
    image_sha256: String,
}

/// Measures what there is to read, and computes the bounds.
pub(crate) fn bound(subject: &Subject) -> Result<Bound, String> {
    Ok(survey(subject)?.bound(&subject.model, subject.span))
}

impl Survey {
    /// The bounds on a disk.
    pub(crate) fn bound(&self, model: &DiskModel, (from, to): (f64, f64)) -> Bound {
        let Self { layout, touched, image_bytes, image_sha256 } = self;
        let (image_bytes, span) = (*image_bytes, Span { from, to });
        let geometry = geometry::of(model, image_bytes, span);
        let data = address_runs::joined(layout.extents.clone());
        let data_bytes = address_runs::bytes(&data);
        let metadata = address_runs::joined(touched.clone());
        let all = address_runs::joined(data.iter().chain(&metadata).copied().collect());
        let drive = || Drive::new(unbuffered(model), image_bytes, span);
        let streamed: f64 = data.iter().map(|run| geometry.transfer_ms(run.start, run.end)).sum();
        Bound {
            model: model.name.clone(),
            span: (from, to),
            image_sha256: image_sha256.clone(),
            files: layout.files,
            useful_bytes: layout.bytes,
            extents: layout.extents.len() as u64,
            data_bytes,
            metadata_bytes: address_runs::bytes(&all) - data_bytes,
            streaming_ms: streamed * (layout.bytes as f64 / data_bytes.max(1) as f64).min(1.0),
            queued_sweep_ms: sweep::queued_ms(&all, drive()),
            metadata_first_ms: sweep::queued_ms(&metadata, drive()) + sweep::queued_ms(&data, drive()),
            metadata_sweep: Sweep::over(&metadata, &geometry, model.overhead_ms),
            sweep: Sweep::over(&all, &geometry, model.overhead_ms),
        }
    }
}

/// Milliseconds of one rising pass over those runs, of an image that covers that part of the disk.
pub(crate) fn pass_ms(runs: &[AddressRun], model: &DiskModel, image_bytes: u64, (from, to): (f64, f64)) -> f64 {
    let geometry = geometry::of(model, image_bytes, Span { from, to });
    Sweep::over(runs, &geometry, model.overhead_ms).ms
}

/// The model without its track buffer: what is touched doesn't depend on it, and a pass needs none.
fn unbuffered(model: &DiskModel) -> DiskModel {
    DiskModel { buffer_segments: 0, ..model.clone() }
}

/// Finds the files and their places while the disk's trace is kept. The model matters little: time is not measured.
pub(crate) fn survey(subject: &Subject) -> Result<Survey, String> {
    let scratch = Scratch::new("bound")?;
    let trace = scratch.file("trace");
    let said = |error: std::io::Error| format!("{}: {error}", subject.image.display());
    let spec = Spec {
        image: subject.image.canonicalize().map_err(said)?,
        dir: scratch.dir("disk")?,
        model: unbuffered(&subject.model),
        span: subject.span,
        real: None,
        trace: Some(trace.clone()),
        faults: Vec::new(),
        read_only: true,
    };
    let mount = MountSpec {
        target: scratch.dir("mount")?,
        fs: subject.fs.clone(),
        read_ahead_kb: Some(0),
        ..MountSpec::default()
    };
    let mut emulation = Emulation::start(&spec, Some(&mount))?;
    let began_ms = now_ms(&emulation.stats()?)?;
    let chosen = Chosen { most_bytes: subject.most_kib.map(|kib| kib << 10) };
    let layout = map_files(&mount.target, chosen);
    let mapped_ms = now_ms(&emulation.stats()?)?;
    let maps_elsewhere = mount::fs_of(&mount.target).is_some_and(|fs| fs == "btrfs");
    let read = if maps_elsewhere { read_files(&mount.target, chosen) } else { Ok(()) };
    emulation.stats()?; // writes the trace out
    let complaints = emulation.stop();
    let text = fs::read_to_string(&trace);
    if !complaints.is_empty() {
        return Err(complaints.join("\n"));
    }
    let text = text.map_err(|error| format!("{}: {error}", trace.display()))?;
    let mut layout = layout.and_then(|layout| read.map(|()| layout))?;
    let reads = text.lines().filter_map(Entry::parse).filter(|entry| entry.command.op == Op::Read);
    let mut touched = Vec::new();
    let mut data = Vec::new();
    for entry in reads.filter(|entry| entry.time_ms >= began_ms) {
        let run = AddressRun { start: entry.command.start, end: entry.command.end() };
        if entry.time_ms < mapped_ms { touched.push(run) } else { data.push(run) }
    }
    if maps_elsewhere {
        layout.extents = data;
    }
    let image_bytes = fs::metadata(&subject.image).map_err(said)?.len();
    let image_sha256 = sha256(&subject.image, &Interrupt::default())?;
    Ok(Survey { layout, touched, image_bytes, image_sha256 })
}

/// Which files are to be read.
#[derive(Debug, Clone, Copy, Default)]
struct Chosen {
    /// Larger ones are left out.
    most_bytes: Option<u64>,
}

impl Chosen {
    fn has(self, bytes: u64) -> bool {
        bytes > 0 && self.most_bytes.is_none_or(|most| bytes <= most)
    }

    /// A script that gives their names below its first argument to `program`.
    fn script(self, program: &str) -> String {
        let not_larger = self.most_bytes.map_or_else(String::new, |most| format!(" ! -size +{most}c"));
        format!("cd \"$1\" && find . -xdev -type f -size +0{not_larger} -print0 | xargs -0 -r {program}")
    }
}

/// Reads every file. What btrfs tells of extents are addresses of its own; on the disk they show when they are read.
fn read_files(root: &Path, chosen: Chosen) -> Result<(), String> {
    let script = chosen.script("cat > /dev/null");
    run("sh", ["-c".as_ref(), script.as_ref(), "sh".as_ref(), root.as_os_str()]).map(drop)
}

/// Where content lies below a mount; `None` where addresses are of another kind.
pub(crate) fn places(root: &Path) -> Result<Option<Vec<AddressRun>>, String> {
    if mount::fs_of(root).is_none_or(|fs| fs == "btrfs") {
        return Ok(None);
    }
    map_files(root, Chosen::default()).map(|layout| Some(layout.extents))
}

/// `find -size +0` and a `filefrag` of each file.
fn map_files(root: &Path, chosen: Chosen) -> Result<Layout, String> {
    if mount::fs_of(root).is_some_and(|fs| fs == "fuseblk") {
        return blocks::map_files(root, chosen);
    }
    let script = chosen.script("filefrag -v");
    let output = run("sh", ["-c".as_ref(), script.as_ref(), "sh".as_ref(), root.as_os_str()])?;
    Layout::parse(&String::from_utf8_lossy(&output.stdout))
}

/// The disk's time from its statistics. Its last digits may be rounded in the trace.
fn now_ms(stats: &str) -> Result<f64, String> {
    let stats: serde_json::Value = serde_json::from_str(stats).map_err(|error| error.to_string())?;
    Ok(stats["now_ms"].as_f64().unwrap_or_default() - 0.001)
}

/// The bounds for people.
pub(crate) fn told(bound: &Bound) -> String {
    let mb = |bytes: u64| bytes as f64 / 1e6;
    let Bound { model, image_sha256, sweep, .. } = bound;
    let counts = format!("{} files, {:.1} MB in {} extents", bound.files, mb(bound.useful_bytes), bound.extents);
    let of_sweep = format!(
        "   {} runs, {} seeks, {:.1} MB of metadata, {:.1} MB read through",
        sweep.runs,
        sweep.seeks,
        mb(bound.metadata_bytes),
        mb(sweep.gap_bytes)
    );
    let rows = [
        ("streaming the useful bytes", bound.streaming_ms, ""),
        ("one perfect sweep", sweep.ms, of_sweep.as_str()),
        ("the metadata alone", bound.metadata_sweep.ms, ""),
        ("the same with a queue", bound.queued_sweep_ms, ""),
        ("metadata first, then data", bound.metadata_first_ms, ""),
    ];
    let rows = rows.map(|(name, ms, more)| format!("{name:<26}  {:>10.2} s{more}\n", ms / 1000.0)).concat();
    format!("{counts}\n{rows}on {model}, image {image_sha256}\n")
}
