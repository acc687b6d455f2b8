//! Making an image, ageing the file system in it, and naming what came out.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::apply::{self, hex};
use super::check::{self, Found};
use super::recipe::{Amount, Recipe};
use super::tree::Tree;
use crate::interrupt::Interrupt;
use crate::mount::{self, Loop, run};
use crate::partial::{Partial, with_suffix};
use crate::scratch::Scratch;

/// The file systems that an image can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Fs {
    Ext4,
    Xfs,
    Btrfs,
    /// Through ntfs-3g
    Ntfs,
}

/// What the order of ext4's directories hangs on is the same in every image. On the others nothing hangs on it, and of two
/// with the same identity only one could be in use.
const EXT4_UUID: &str = "6f6e6573-7765-4570-8000-000000000001";

impl Fs {
    /// The least that its mkfs takes, or on NTFS the least where its own files don't cut the others.
    fn least_bytes(self) -> u64 {
        match self {
            Self::Ext4 => 64 << 20,
            Self::Xfs => 320 << 20,
            Self::Btrfs | Self::Ntfs => 256 << 20,
        }
    }

    pub(crate) fn make(self, image: &Path, inodes: u64, options: &[String]) -> Result<(), String> {
        let inodes = inodes.to_string();
        let (program, mut args): (&str, Vec<&str>) = match self {
            Self::Ext4 => {
                let hash = concat!("hash_seed=", "6f6e6573-7765-4570-8000-000000000002", ",root_owner=0:0");
                ("mkfs.ext4", vec!["-q", "-F", "-U", EXT4_UUID, "-N", &inodes, "-E", hash])
            }
            Self::Xfs => ("mkfs.xfs", vec!["-q", "-f"]),
            Self::Btrfs => ("mkfs.btrfs", vec!["-q", "-f"]),
            Self::Ntfs => ("mkntfs", vec!["-q", "-F", "-Q"]),
        };
        args.extend(options.iter().map(String::as_str));
        let image = image.to_str().ok_or("the image's path is not UTF-8")?;
        args.push(image);
        run(program, args).map(drop)
    }

    /// Whether its mkfs takes these options; else its words.
    pub(crate) fn can_make(self, options: &[String]) -> Result<(), String> {
        let scratch = Scratch::new("mkfs")?;
        let image = scratch.file("image");
        let said = |error: std::io::Error| format!("{}: {error}", image.display());
        File::create(&image).and_then(|file| file.set_len(self.least_bytes())).map_err(said)?;
        self.make(&image, 4096, options)
    }

    /// The type for `mount -t`.
    pub(crate) fn mount_type(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Ntfs => "ntfs-3g",
        }
    }
}

/// What is asked for.
pub(crate) struct Order {
    pub(crate) recipe: Recipe,
    pub(crate) seed: u64,
    pub(crate) scale: f64,
    pub(crate) steps: Option<u32>,
    pub(crate) fs: Fs,
    pub(crate) image_bytes: Option<u64>,
    pub(crate) mkfs_options: Vec<String>,
    pub(crate) out: PathBuf,
}

impl Order {
    /// How much of the recipe, for an image that this file system can have.
    pub(crate) fn amount(&self) -> Amount {
        let scaled = (self.recipe.image().0 as f64 * self.scale) as u64 / (1 << 20) * (1 << 20);
        let image_bytes = self.image_bytes.unwrap_or(scaled).max(self.fs.least_bytes());
        Amount { seed: self.seed, scale: self.scale, steps: self.steps, image_bytes }
    }
}

/// The sidecar: what an image is.
#[derive(Debug, Serialize)]
pub(crate) struct Label {
    recipe: String,
    seed: u64,
    scale: f64,
    steps: Option<u32>,
    fs: Fs,
    mkfs_options: Vec<String>,
    kernel: String,
    operations: u64,
    operations_sha256: String,
    files: u64,
    file_bytes: u64,
    /// For a recipe that promises how its files lie.
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<Found>,
    image_bytes: u64,
    image_sha256: String,
}

/// A plain mount that goes when this goes.
pub(crate) struct PlainMount {
    target: PathBuf,
    up: bool,
}

impl PlainMount {
    pub(crate) fn writable(image: &Path, target: &Path, fs: &str, options: &str) -> Result<Self, String> {
        Self::on(Loop::attach(image, &[])?, target, fs, options)
    }

    /// The same past the page cache of the image: what isn't cached of the file system comes from where the image lies.
    pub(crate) fn direct(image: &Path, target: &Path, fs: &str, options: &str) -> Result<Self, String> {
        Self::on(Loop::attach(image, &["--direct-io=on"])?, target, fs, options)
    }

    fn on(device: Loop, target: &Path, fs: &str, options: &str) -> Result<Self, String> {
        let mounted = mount::mount(&device.device, target, Some(fs), Some(options));
        // From now on the device goes with the mount, so that nobody has to know of it.
        let detached = device.detach();
        mounted?;
        let mounted = Self { target: target.to_owned(), up: true };
        detached.map(|()| mounted)
    }

    /// For reading alone: the image stays as it is, to the byte.
    pub(crate) fn read_only(image: &Path, target: &Path, fs: &str, options: &str) -> Result<Self, String> {
        let options = if options.is_empty() { "ro".to_owned() } else { format!("ro,{options}") };
        Self::on(Loop::attach(image, &["--read-only"])?, target, fs, &options)
    }

    pub(crate) fn end(&mut self) -> Result<(), String> {
        if !std::mem::replace(&mut self.up, false) {
            return Ok(());
        }
        mount::unmount(&self.target)
    }
}

impl Drop for PlainMount {
    fn drop(&mut self) {
        if let Err(complaint) = self.end() {
            eprintln!("onesweep-lab: {complaint}");
        }
    }
}

/// The sidecar of an image.
pub(crate) fn sidecar(image: &Path) -> PathBuf {
    with_suffix(image, ".json")
}

/// Makes the image and its sidecar. Until both are whole, those that were there before stay.
pub(crate) fn make(order: &Order, interrupt: &Interrupt) -> Result<Label, String> {
    let amount = order.amount();
    let inodes = ((order.recipe.image().1 as f64 * order.scale) as u64).max(4096);
    let sidecar = sidecar(&order.out);
    for complaint in mount::clear(&Partial::path_of(&mount::absolute(&order.out)?)) {
        eprintln!("onesweep-lab: left by a former run: {complaint}");
    }
    let image = Partial::new(&order.out)?;
    let said = |error: std::io::Error| format!("{}: {error}", image.path().display());
    File::create(image.path()).and_then(|file| file.set_len(amount.image_bytes)).map_err(said)?;
    order.fs.make(image.path(), inodes, &order.mkfs_options)?;
    let scratch = Scratch::new("age")?;
    let target = scratch.dir("mount")?;
    // Nothing is lost when the power goes while an image is made, so nothing needs to wait for a flush.
    let options = if order.fs == Fs::Ext4 { "barrier=0,noatime" } else { "noatime" };
    let mut mounted = PlainMount::writable(image.path(), &target, order.fs.mount_type(), options)?;
    let mut tree = Tree::default();
    let done = apply::apply(order.recipe.ops(&amount), &target, &mut tree, interrupt)?;
    let promise = order.recipe.promise().filter(|promise| promise.holds_after(order.steps));
    let found = promise.map(|promise| check::check(promise, &target)).transpose()?;
    mounted.end()?;

    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
    let label = Label {
        recipe: order.recipe.name(),
        seed: order.seed,
        scale: order.scale,
        steps: order.steps,
        fs: order.fs,
        mkfs_options: order.mkfs_options.clone(),
        kernel,
        operations: done.operations,
        operations_sha256: done.hash,
        files: tree.files(),
        file_bytes: tree.bytes(),
        found,
        image_bytes: amount.image_bytes,
        image_sha256: sha256(image.path(), interrupt)?,
    };
    interrupt.check()?;
    let text = serde_json::to_string_pretty(&label).map_err(|error| error.to_string())?;
    let written = Partial::new(&sidecar)?;
    fs::write(written.path(), text + "\n").map_err(|error| format!("{}: {error}", written.path().display()))?;
    // The label of one image must not lie beside another, whenever this ends.
    remove(&sidecar)?;
    image.finish()?;
    written.finish()?;
    Ok(label)
}

fn remove(path: &Path) -> Result<(), String> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {error}", path.display())),
        _ => Ok(()),
    }
}

/// SHA-256 of a file, holes read as zeros.
pub(crate) fn sha256(path: &Path, interrupt: &Interrupt) -> Result<String, String> {
    let said = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut file = File::open(path).map_err(said)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        interrupt.check()?;
        match file.read(&mut buffer).map_err(said)? {
            0 => return Ok(hex(&hash.finalize())),
            len => hash.update(&buffer[..len]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_mkfs_does_not_take_is_told() {
        let can_make = |options: [&str; 2]| Fs::Xfs.can_make(&options.map(str::to_owned));
        assert_eq!(can_make(["-m", "reflink=0"]), Ok(()));
        let complaint = can_make(["-i", "wings=1"]).unwrap_err();
        assert!(complaint.contains("wings"), "{complaint}");
    }

    #[test]
    fn a_hash_can_be_ended() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        fs::write(&image, "abc").unwrap();
        let interrupt = Interrupt::default();
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256(&image, &interrupt).as_deref(), Ok(known));
        interrupt.tell();
        assert!(sha256(&image, &interrupt).is_err());
    }
}
