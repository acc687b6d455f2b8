//! The daemon beside a load that ages the file system: what it costs the disk meanwhile, and what readers gain.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::ageing::{Ageing, Daemon};
use super::contents::Contents;
use super::outcomes::Packed;
use super::{small, written};
use crate::age::image::{self, Fs};
use crate::age::recipe::{Amount, Recipe};
use crate::bench::confined::Confined;
use crate::bench::images::Facts;
use crate::bench::measure::{Surveys, Unpacked, count, mount_options, number, stats};
use crate::bench::pipe;
use crate::bench::run::{Disk, Setting, Stretch, Subject};
use crate::bench::share::Content;
use crate::bench::work::Programs;
use crate::disk::trace::Entry;
use crate::emulate::{Emulation, MountSpec, Spec};
use crate::interrupt::Interrupt;
use crate::mount;
use crate::partial::Partial;
use crate::scratch::Scratch;

/// What tables call the case.
pub(super) const CASE: &str = "daemon-dfs-ext4";
/// The paper's file cache.
const MEMORY_BYTES: u64 = 128 << 20;
const LEAST_MEMORY_BYTES: u64 = 24 << 20;
const RECIPE: Recipe = Recipe::Dfs;

/// The daemon or none, with what tables call it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    pub(super) name: &'static str,
    daemon: Option<Daemon>,
}

const fn with(name: &'static str, percent: Option<u32>) -> Way {
    Way { name, daemon: Some(Daemon { percent }) }
}

pub(super) const OFF: Way = Way { name: "no daemon", daemon: None };
pub(super) const TENTH: Way = with("daemon, budget 10 %", Some(10));
pub(super) const DEFAULT: Way = with("daemon, budget 20 %", Some(onesweep_relocate::follow::PERCENT));
pub(super) const HALF: Way = with("daemon, budget 50 %", Some(50));
pub(super) const UNBOUNDED: Way = with("daemon, no budget", None);
pub(super) const WAYS: [Way; 5] = [OFF, TENTH, DEFAULT, HALF, UNBOUNDED];

/// The emulated disk of a fresh image, under a load.
pub(super) struct Load<'a> {
    pub(super) scale: f64,
    pub(super) seed: u64,
    pub(super) programs: &'a Programs,
    pub(super) interrupt: &'a Interrupt,
}

impl Load<'_> {
    /// Ages a fresh ext4 that way, and reads its small files then. The files have to be those that come without a daemon.
    pub(super) fn measure(&self, way: Way, without: Option<&Packed>) -> Result<Packed, String> {
        let subject = Subject::new("dfs", "ext4", self.scale, self.seed).mkfs(&["-b", "4096"]);
        let setting = Setting::new(subject.clone(), Disk::new(super::measure::MODEL, Stretch::Whole).buffered(true));
        let scratch = Scratch::new("defrag-daemon")?;
        let partial = Partial::new(&scratch.file("image"))?;
        let (image, amount) = (partial.path(), self.amount(&subject)?);
        let inodes = ((RECIPE.image().1 as f64 * self.scale) as u64).max(4096);
        let said = |error: std::io::Error| format!("{}: {error}", image.display());
        File::create(image).and_then(|file| file.set_len(amount.image_bytes)).map_err(said)?;
        Fs::Ext4.make(image, inodes, &subject.mkfs)?;
        let mut packed = self.age(way, &setting, image, &amount)?;
        mount::run("e2fsck", ["-fn".as_ref(), image.as_os_str()])?;
        let contents = Contents::of(image, "ext4", self.interrupt)?;
        packed.contents_sha256 = contents.sha256();
        if way.daemon.is_some() {
            same_files(&packed, without)?;
        }
        let content = Some(Content::new(contents.places()));
        let facts = Facts { image_bytes: amount.image_bytes, ..Facts::default() };
        packed.image = facts.clone();
        let unpacked = Unpacked { image: image.to_owned(), facts, content, peak: 0, surveys: Surveys::default() };
        let outcome = small::measure(&setting, &unpacked, self.interrupt)?;
        eprintln!("  {}: {:.2} s of disk", small::NAME, outcome.busy_ms / 1000.0);
        packed.readers.insert(small::NAME.to_owned(), outcome);
        Ok(packed)
    }

    /// A smaller file system has less of it, but what a program needs for itself.
    fn memory_bytes(&self) -> u64 {
        ((MEMORY_BYTES as f64 * self.scale) as u64).clamp(LEAST_MEMORY_BYTES, MEMORY_BYTES)
    }

    fn amount(&self, subject: &Subject) -> Result<Amount, String> {
        let order = image::Order {
            recipe: RECIPE,
            seed: self.seed,
            scale: self.scale,
            steps: None,
            fs: Fs::Ext4,
            image_bytes: None,
            mkfs_options: subject.mkfs.clone(),
            out: PathBuf::new(),
        };
        Ok(order.amount())
    }

    fn age(&self, way: Way, setting: &Setting, image: &Path, amount: &Amount) -> Result<Packed, String> {
        let scratch = Scratch::new("defrag-ageing")?;
        let (trace, target) = (scratch.file("trace"), scratch.dir("tree")?);
        let model = setting.disk.emulated()?;
        let spec = Spec {
            image: image.to_owned(),
            dir: scratch.dir("disk")?,
            span: setting.disk.span.span(amount.image_bytes, &model),
            model,
            real: None,
            trace: Some(trace.clone()),
            faults: Vec::new(),
            read_only: false,
        };
        let mount = MountSpec {
            target: target.clone(),
            fs: Some("ext4".to_owned()),
            options: Some(mount_options("ext4", true)),
            scheduler: Some(setting.disk.scheduler.clone()),
            ..MountSpec::default()
        };
        let mut emulation = Emulation::start(&spec, Some(&mount))?;
        let confined = Confined::to(self.memory_bytes())?;
        let ageing = Ageing {
            door: confined.door(),
            root: target.clone(),
            scale: amount.scale,
            steps: amount.steps,
            seed: amount.seed,
            image_bytes: amount.image_bytes,
            daemon: way.daemon,
        };
        let text = serde_json::to_string(&ageing).map_err(|error| error.to_string())?;
        let argv = [self.programs.lab.display().to_string(), "ageing".to_owned(), text];
        emulation.reset()?;
        let ended = pipe::run(&argv, self.interrupt);
        // What waits in the journal is a part of the cost.
        for option in ["-f", "-u"] {
            mount::run("fsfreeze", [option.as_ref(), target.as_os_str()])?;
        }
        let books = stats(&emulation);
        let complaints = emulation.stop();
        if !complaints.is_empty() {
            return Err(complaints.join("\n"));
        }
        let (ended, books) = (ended?, books?);
        if ended.code != 0 {
            return Err(format!("ageing ended with {}: {}", ended.code, ended.complaint));
        }
        let said = serde_json::from_slice(&ended.output).map_err(|error| format!("what ageing said: {error}"))?;
        let text = fs::read_to_string(&trace).map_err(|error| format!("{}: {error}", trace.display()))?;
        let entries: Vec<Entry> = text.lines().filter_map(Entry::parse).collect();
        let busy_ms = number(&books, "busy_ms");
        eprintln!("  {:.0} s of disk while it aged", busy_ms / 1000.0);
        Ok(Packed {
            busy_ms,
            read_bytes: count(&books["reads"], "bytes"),
            wall_s: ended.wall_s,
            written: written::of(&entries, &Content::new(Vec::new())),
            said,
            ..Packed::default()
        })
    }
}

/// Whether the daemon has left the files as they would be without it.
fn same_files(with: &Packed, without: Option<&Packed>) -> Result<(), String> {
    match without.map(|without| without.contents_sha256.as_str()) {
        None | Some("") => Err(format!("the files of \"{}\" are not known; measure it first (--again)", OFF.name)),
        Some(expected) if expected == with.contents_sha256 => Ok(()),
        Some(_) => Err("its files have other names or bytes than without the daemon".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_to_be_those_that_come_without_it() {
        let of = |sum: &str| Packed { contents_sha256: sum.into(), ..Packed::default() };
        assert_eq!(same_files(&of("1"), Some(&of("1"))), Ok(()));
        assert!(same_files(&of("1"), Some(&of("2"))).unwrap_err().contains("other names or bytes"));
        for unknown in [None, Some(&of(""))] {
            assert!(same_files(&of(""), unknown).unwrap_err().contains("measure it first"));
        }
    }
}
