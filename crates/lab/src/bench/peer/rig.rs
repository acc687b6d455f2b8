//! Two emulated disks with the same bytes: one that is read as it is, and one whose reads are raced.

use std::fs::{self, File};
use std::io::BufWriter;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use onesweep_sys::files::dev_numbers;

use super::contents;
use super::network::Host;
use super::series::said;
use super::site::{PORT, Raced, Site};
use crate::bench::run::{Disk, Stretch};
use crate::emulate::{Emulation, Spec};
use crate::mount;

/// The seed of what images hold.
pub(super) const CONTENT: u64 = 1;
pub(super) const MODEL: &str = "barracuda-7200.11";

/// The disk that seeks, its track buffer on, of which the image is all.
pub(super) fn disk() -> Disk {
    Disk::new(MODEL, Stretch::Whole).buffered(true)
}

pub(super) fn ssd() -> Disk {
    Disk::new("ssd", Stretch::Whole)
}

/// An image of known bytes, without a file system.
pub(super) fn plain_image(site: &Site, bytes: u64) -> Result<PathBuf, String> {
    let image = site.scratch.file("image");
    let file = File::create(&image).map_err(said(&image))?;
    let mut file = BufWriter::with_capacity(1 << 20, file);
    contents::write(&mut file, CONTENT, bytes).map_err(said(&image))?;
    file.into_inner().map_err(|error| error.to_string())?.sync_all().map_err(said(&image))?;
    Ok(image)
}

/// A disk that is shown at a directory of its own.
pub(super) struct Shown {
    emulation: Emulation,
    pub(super) file: PathBuf,
}

impl Shown {
    pub(super) fn new(
        site: &Site,
        name: &str,
        image: &Path,
        disk: &Disk,
        faults: Vec<String>,
        read_only: bool,
    ) -> Result<Self, String> {
        let bytes = fs::metadata(image).map_err(said(image))?.len();
        let model = disk.emulated()?;
        let span = disk.span.span(bytes, &model);
        Self::of(
            site,
            name,
            Spec {
                image: image.to_owned(),
                dir: PathBuf::new(),
                span,
                model,
                real: disk.real,
                trace: None,
                faults,
                read_only,
            },
        )
    }

    pub(super) fn of(site: &Site, name: &str, spec: Spec) -> Result<Self, String> {
        let dir = site.scratch.file(name);
        if !dir.exists() {
            site.scratch.dir(name)?;
        }
        let file = dir.join("disk");
        Ok(Self { emulation: Emulation::start(&Spec { dir, ..spec }, None)?, file })
    }

    pub(super) fn reset(&self) -> Result<(), String> {
        self.emulation.reset()
    }

    /// A figure of its books: `busy_ms`, or `reads.requests`.
    pub(super) fn book(&self, name: &str) -> Result<f64, String> {
        let books: serde_json::Value =
            serde_json::from_str(&self.emulation.stats()?).map_err(|error| error.to_string())?;
        let value = name.split('.').fold(&books, |books, name| &books[name]);
        value.as_f64().ok_or_else(|| format!("the books have no {name}"))
    }

    pub(super) fn end(mut self) -> Result<(), String> {
        let complaints = self.emulation.stop();
        if complaints.is_empty() { Ok(()) } else { Err(complaints.join("\n")) }
    }
}

/// The file of a shown disk or device is cached by nobody.
pub(super) fn open_to_read(path: &Path) -> Result<File, String> {
    File::open(path).map_err(said(path))
}

pub(super) fn open_to_write(path: &Path) -> Result<File, String> {
    File::options().read(true).write(true).open(path).map_err(said(path))
}

/// Both disks, an index of their bytes, and a server that has them all.
pub(super) struct Rig {
    pub(super) image: PathBuf,
    pub(super) index: PathBuf,
    disk: Disk,
}

impl Rig {
    /// Indexes an image as the disk shows it, and fills the server over a link without limit.
    pub(super) fn new(site: &mut Site, image: PathBuf, disk: Disk) -> Result<Self, String> {
        Self::with_blocks(site, image, disk, &[])
    }

    /// The same, with what says how large blocks are.
    pub(super) fn with_blocks(site: &mut Site, image: PathBuf, disk: Disk, size: &[&str]) -> Result<Self, String> {
        let index = site.scratch.file("index");
        // The times that it takes count for nothing here.
        let modelled = Disk { real: None, ..disk.clone() };
        let shown = Shown::new(site, "raced", &image, &modelled, Vec::new(), true)?;
        site.index(&index, &shown.file, size)?;
        shown.end()?;
        site.serve()?;
        site.push_as(Host::Client.identity(), &image, size)?;
        Ok(Self { image, index, disk })
    }

    /// The disk that is read as it is, or the one below the race.
    pub(super) fn shown(&self, site: &Site, name: &str) -> Result<Shown, String> {
        Shown::new(site, name, &self.image, &self.disk, Vec::new(), true)
    }

    /// The race on a disk, with a server that was reached.
    pub(super) fn raced(&self, site: &Site, below: &Shown, policy: &str, more: &[&str]) -> Result<Raced, String> {
        let words = [&["--read-only", "--policy", policy], more].concat();
        let raced = site.mount(PORT, &self.index, &below.file, &words)?;
        raced.wait_for_server(site.interrupt)?;
        Ok(raced)
    }
}

/// Where the device of a file says whether something turns in it, by which Linux reads more or less far ahead.
fn rotational(file: &Path) -> Result<PathBuf, String> {
    let (major, minor) = dev_numbers(fs::metadata(file).map_err(said(file))?.dev());
    Ok(format!("/sys/dev/block/{major}:{minor}/queue/rotational").into())
}

/// Whether the device of a file says that something turns in it.
pub(super) fn turns(file: &Path) -> Result<bool, String> {
    let path = rotational(file)?;
    fs::read_to_string(&path).map(|says| says.trim() != "0").map_err(said(&path))
}

/// Has the device of a file say so.
pub(super) fn set_turns(file: &Path, turns: bool) -> Result<(), String> {
    let path = rotational(file)?;
    fs::write(&path, if turns { "1" } else { "0" }).map_err(said(&path))
}

/// A file system on a shown disk, by a loop device. Both go with the disk.
pub(super) struct Mounted(PathBuf);

impl Mounted {
    pub(super) fn new(site: &Site, name: &str, shown: &Shown) -> Result<Self, String> {
        Self::on(site, name, shown, true)
    }

    /// The kernel is told whether something turns below.
    pub(super) fn on(site: &Site, name: &str, shown: &Shown, turns: bool) -> Result<Self, String> {
        let device = mount::Loop::attach(&shown.file, &["--direct-io=on", "--read-only"])?;
        device.set("rotational", if turns { "1" } else { "0" })?;
        let at = site.scratch.file(name);
        if !at.exists() {
            site.scratch.dir(name)?;
        }
        mount::mount(&device.device, &at, Some("ext4"), Some("ro,noatime"))?;
        Ok(Self(at))
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}
