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

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;
    use std::os::unix::fs::FileExt as _;

    use super::*;
    use crate::address_runs::tests::run as piece;
    use crate::age::image::{Fs, PlainMount};
    use crate::disk::geometry::tests::{close, round};

    /// 100,000 bytes a millisecond, 10 ms a turn. Data and metadata share 50,000 bytes.
    #[test]
    fn the_bounds_are_those_computed_by_hand() {
        let survey = |bytes| Survey {
            layout: Layout { files: 2, bytes, extents: vec![piece(150_000, 50_000), piece(0, 100_000)] },
            touched: vec![piece(90_000, 30_000), piece(50_000, 60_000)],
            image_bytes: 1_200_000_000,
            image_sha256: "abc".into(),
        };
        let bound = survey(120_000).bound(&round(), (0.0, 1.0));
        assert_eq!((bound.files, bound.extents), (2, 2));
        assert_eq!((bound.useful_bytes, bound.data_bytes, bound.metadata_bytes), (120_000, 150_000, 20_000));
        // 1.5 ms for the blocks, of which four fifths are bytes of files.
        close(bound.streaming_ms, 1.2);
        // 0 to 120,000, a gap of 30,000 that is read through, 50,000 more.
        close(bound.sweep.ms, 1.2 + 0.3 + 0.5);
        assert_eq!((bound.sweep.runs, bound.sweep.seeks, bound.sweep.gap_bytes), (2, 0, 30_000));
        close(bound.queued_sweep_ms, 1.2 + 0.3 + 0.5);
        // 50,000 to 120,000, from the start of the disk on.
        close(bound.metadata_sweep.ms, 0.5 + 0.7);
        assert_eq!((bound.metadata_sweep.runs, bound.metadata_sweep.gap_bytes), (1, 50_000));
        // That pass; and one over 0 to 100,000 and 150,000 to 200,000.
        close(bound.metadata_first_ms, 1.2 + 1.0 + 0.5 + 0.5);
        // Bytes that are on no block, of files with holes or compressed, are not streamed.
        close(survey(900_000).bound(&round(), (0.0, 1.0)).streaming_ms, 1.5);
        // An image on the inner half is as quick, since the rate is the same everywhere.
        close(survey(120_000).bound(&round(), (0.5, 1.0)).streaming_ms, 1.2);
        let nothing = Survey { layout: Layout::default(), touched: Vec::new(), ..survey(0) };
        let nothing = nothing.bound(&round(), (0.0, 1.0));
        assert_eq!((nothing.streaming_ms, nothing.sweep.ms, nothing.metadata_first_ms), (0.0, 0.0, 0.0));
    }

    #[test]
    fn empty_files_and_larger_ones_are_left_out() {
        let most = Chosen { most_bytes: Some(1024) };
        assert_eq!([0, 1, 1024, 1025].map(|bytes| most.has(bytes)), [false, true, true, false]);
        assert_eq!([0, 1 << 40].map(|bytes| Chosen::default().has(bytes)), [false, true]);
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in [("none", 0), ("small", 1), ("most", 1024), ("more", 1025)] {
            fs::write(dir.path().join(name), vec![0; bytes]).unwrap();
        }
        let found = |chosen: Chosen| {
            let script = chosen.script("printf '%s\\n'");
            let output = run("sh", ["-c".as_ref(), script.as_ref(), "sh".as_ref(), dir.path().as_os_str()]).unwrap();
            let mut names: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(String::from).collect();
            names.sort();
            names
        };
        assert_eq!(found(most), ["./most", "./small"]);
        assert_eq!(found(Chosen::default()), ["./more", "./most", "./small"]);
    }

    /// Five files with bytes: of one block, two of 16 that grow in turns, of 256, and one with holes.
    fn files(root: &Path) {
        let create = |name: &str| File::create(root.join(name)).unwrap();
        let block = |file: &File, number: u64| file.write_all_at(&[7; 4096], number * 4096).unwrap();
        block(&create("one"), 0);
        let turns = ["this", "that"].map(create);
        for number in 0..16 {
            for file in &turns {
                block(file, number);
                file.sync_all().unwrap();
            }
        }
        let (large, holed) = (create("large"), create("holed"));
        (0..256).for_each(|number| block(&large, number));
        [0, 40, 41, 99].into_iter().for_each(|number| block(&holed, number));
        fs::write(root.join("empty"), "").unwrap();
        run("sync", ["--file-system".as_ref(), root.as_os_str()]).unwrap();
    }

    /// What `xfs_bmap -v` prints of files below a root: its numbers are sectors of 512 bytes.
    fn by_xfs_bmap(root: &Path) -> Vec<AddressRun> {
        let mut runs = Vec::new();
        for entry in fs::read_dir(root).unwrap().map(Result::unwrap) {
            let printed = run("xfs_bmap", ["-v".as_ref(), entry.path().as_os_str()]).unwrap().stdout;
            for line in String::from_utf8_lossy(&printed).lines().filter(|line| line.contains("]:")) {
                let place = line.split_once("]:").unwrap().1.split_whitespace().next().unwrap();
                if let Some((first, last)) = place.split_once("..") {
                    let [first, last]: [u64; 2] = [first, last].map(|sector| sector.parse().unwrap());
                    runs.push(AddressRun { start: first * 512, end: (last + 1) * 512 });
                }
            }
        }
        address_runs::joined(runs)
    }

    /// Two programs that ask the kernel in two ways.
    #[test]
    fn filefrag_and_xfs_bmap_tell_the_same_of_xfs() {
        if onesweep_sys::user::effective_uid() != 0
            || !Path::new("/dev/loop-control").exists()
            || ["mkfs.xfs", "xfs_bmap", "filefrag"].iter().any(|program| run("which", [program]).is_err())
        {
            let _ = writeln!(std::io::stderr(), "skipped: filefrag_and_xfs_bmap_tell_the_same_of_xfs: no XFS here");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (image, root) = (dir.path().join("image"), dir.path().join("root"));
        File::create(&image).unwrap().set_len(320 << 20).unwrap();
        Fs::Xfs.make(&image, 0, &[]).unwrap();
        fs::create_dir(&root).unwrap();
        let mut mounted = PlainMount::writable(&image, &root, "xfs", "noatime,allocsize=4k").unwrap();
        files(&root);
        let layout = map_files(&root, Chosen::default());
        let by_bmap = by_xfs_bmap(&root);
        mounted.end().unwrap();
        let layout = layout.unwrap();
        assert_eq!((layout.files, layout.bytes), (5, (1 + 32 + 256 + 100) * 4096));
        assert!(layout.extents.len() > 8, "some are in pieces: {:?}", layout.extents);
        assert_eq!(address_runs::joined(layout.extents), by_bmap);
        assert_eq!(address_runs::bytes(&by_bmap), (1 + 32 + 256 + 4) * 4096);
    }

    /// The survey of a part of the files knows nothing of the others.
    #[test]
    fn a_part_of_the_files_is_surveyed() {
        if onesweep_sys::user::effective_uid() != 0 || !Path::new("/dev/loop-control").exists() {
            let _ = writeln!(std::io::stderr(), "skipped: a_part_of_the_files_is_surveyed: no mounts here");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (image, root) = (dir.path().join("image"), dir.path().join("root"));
        File::create(&image).unwrap().set_len(64 << 20).unwrap();
        Fs::Ext4.make(&image, 4096, &[]).unwrap();
        fs::create_dir(&root).unwrap();
        let mut mounted = PlainMount::writable(&image, &root, "ext4", "noatime").unwrap();
        files(&root);
        let whole = map_files(&root, Chosen::default()).unwrap();
        let part = map_files(&root, Chosen { most_bytes: Some(64 << 10) }).unwrap();
        mounted.end().unwrap();
        assert_eq!((whole.files, whole.bytes), (5, (1 + 32 + 256 + 100) * 4096));
        assert_eq!((part.files, part.bytes), (3, (1 + 32) * 4096));
        assert!(part.extents.iter().all(|run| whole.extents.contains(run)));
        assert_eq!(address_runs::bytes(&address_runs::joined(part.extents)), (1 + 32) * 4096);
    }
}
