//! A file system on an emulated disk.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use super::outcomes::Cost;
use super::peers::first_word;
use crate::bench::pipe;
use crate::bench::run::{Disk, Stretch};
use crate::disk::model::DiskModel;
use crate::emulate::{Emulation, MountSpec, Spec};
use crate::interrupt::Interrupt;
use crate::mount;
use crate::scratch::Scratch;

pub(super) const MODEL: &str = "barracuda-7200.11";

/// The whole disk is as long as the image; the track buffer is off.
pub(super) fn disk() -> Disk {
    Disk::new(MODEL, Stretch::Whole)
}

/// What the disk is, and the part of it that an image covers.
pub(super) fn emulated(disk: &Disk, image_bytes: u64) -> Result<(DiskModel, (f64, f64)), String> {
    let model = disk.emulated()?;
    let span = disk.span.span(image_bytes, &model);
    Ok((model, span))
}

/// The file system. It is taken down when this goes.
pub(super) struct Stage {
    emulation: Emulation,
    pub(super) tree: PathBuf,
}

/// One on a copy of an image, so that all begin alike: in a directory of its own, which goes with it.
pub(super) struct OwnStage {
    stage: Stage,
    pub(super) scratch: Scratch,
}

impl OwnStage {
    pub(super) fn end(&mut self) -> Result<(), String> {
        let ended = self.stage.end();
        let _ = fs::remove_dir_all(self.scratch.file("store"));
        ended
    }
}

impl Deref for OwnStage {
    type Target = Stage;

    fn deref(&self) -> &Stage {
        &self.stage
    }
}

impl Stage {
    pub(super) fn up(disk: &Disk, image: &Path, fs: &str, scratch: &Scratch) -> Result<Self, String> {
        let bytes = fs::metadata(image).map_err(|error| format!("{}: {error}", image.display()))?.len();
        let (model, span) = emulated(disk, bytes)?;
        let spec = Spec {
            image: image.to_owned(),
            dir: scratch.dir("disk")?,
            span,
            model,
            real: disk.real,
            trace: None,
            faults: Vec::new(),
            read_only: false,
        };
        let tree = scratch.dir("tree")?;
        let options = match fs {
            "xfs" => "noatime,nouuid",
            "ext4" => "noatime,noinit_itable",
            _ => "noatime",
        };
        let mount = MountSpec {
            target: tree.clone(),
            fs: Some(fs.to_owned()),
            options: Some(options.to_owned()),
            scheduler: Some(disk.scheduler.clone()),
            ..MountSpec::default()
        };
        Ok(Self { emulation: Emulation::start(&spec, Some(&mount))?, tree })
    }

    pub(super) fn on_a_copy(disk: &Disk, made: &Path, fs: &str) -> Result<OwnStage, String> {
        let scratch = Scratch::new("du")?;
        let image = scratch.file("image");
        let options = ["--sparse=always", "--reflink=auto"].map(AsRef::as_ref);
        mount::run("cp", options.into_iter().chain([made.as_os_str(), image.as_os_str()]))?;
        Ok(OwnStage { stage: Self::up(disk, &image, fs, &scratch)?, scratch })
    }

    /// Everything on the disk, nothing in memory, books at zero. A file system that is frozen has no log that waits.
    pub(super) fn cold(&self) -> Result<(), String> {
        for option in ["-f", "-u"] {
            mount::run("fsfreeze", [option.as_ref(), self.tree.as_os_str()])?;
        }
        drop_caches()?;
        self.emulation.reset()
    }

    pub(super) fn books(&self, wall_s: f64) -> Result<Cost, String> {
        let books: serde_json::Value =
            serde_json::from_str(&self.emulation.stats()?).map_err(|error| error.to_string())?;
        let busy_ms = books["busy_ms"].as_f64().unwrap_or_default();
        Ok(Cost { busy_ms, requests: books["reads"]["requests"].as_u64().unwrap_or_default(), wall_s })
    }

    /// What a program costs the disk, and the first word that it prints.
    pub(super) fn cost(&self, argv: &[String], interrupt: &Interrupt) -> Result<(Cost, String), String> {
        self.cold()?;
        let ended = pipe::run(argv, interrupt)?;
        let cost = self.books(ended.wall_s)?;
        if ended.code != 0 {
            return Err(format!("{} ended with {}: {}", argv.join(" "), ended.code, ended.complaint));
        }
        Ok((cost, first_word(&ended.output)))
    }

    pub(super) fn end(&mut self) -> Result<(), String> {
        let complaints = self.emulation.stop();
        if complaints.is_empty() { Ok(()) } else { Err(complaints.join("\n")) }
    }
}

pub(super) fn drop_caches() -> Result<(), String> {
    fs::write("/proc/sys/vm/drop_caches", "3").map_err(|error| format!("drop_caches: {error}"))
}
