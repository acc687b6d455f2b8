//! The file systems that were met, and what is free on them.

use std::{
    ops::Range,
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use onesweep::{ImageOptions, LaidDirectory};
use onesweep_layout::{
    BlockRead, Devices, FreeBySize, free_space,
    image::{ImageName, OpenImage},
};
use onesweep_sys::files::{self, EntryType};
use serde::Serialize;

use crate::{message, named, session::Session};

/// A file system.
#[derive(Debug)]
pub(super) struct Volume {
    /// The device number that its entries tell; `None` of an image of which no file was met.
    pub(super) dev: Option<u64>,
    /// How it is called: its device, or the image.
    pub(super) device: String,
    pub(super) fs_type: Option<String>,
    pub(super) bytes: Option<u64>,
    source: Source,
}

/// By what its free space is asked for.
#[derive(Debug)]
enum Source {
    /// A directory on it.
    Mounted(PathBuf),
    Image {
        name: PathBuf,
        options: ImageOptions,
    },
}

impl Volume {
    /// The file system of a directory that was met.
    pub(super) fn of_directory(session: &Session, roots: &[PathBuf], laid: &LaidDirectory) -> Self {
        let is_inside = |root: &&PathBuf| {
            session.reads_images()
                && onesweep::is_image(root, roots.len(), session.follows_roots())
                && laid.path.starts_with(onesweep::path_of_image(root))
        };
        let (device, source) = match roots.iter().find(is_inside) {
            Some(root) => (message::path_text(root), Source::of_image(session, root)),
            None => (laid.device.clone(), Source::Mounted(laid.path.clone())),
        };
        Self { dev: Some(laid.dev), device, fs_type: Some(laid.fs_type.clone()), bytes: laid.device_bytes, source }
    }

    /// Visits what is free, in bytes of the device. `Err` says why that is not known.
    pub(super) fn free(&self, each: &mut dyn FnMut(Range<u64>)) -> Result<(), String> {
        match &self.source {
            Source::Mounted(directory) => {
                let fd = files::open_dir(directory.as_path()).map_err(|error| message::why(&error))?;
                let fs_type = self.fs_type.as_deref().unwrap_or("the file system");
                free_space::of_mounted(fd.as_fd(), fs_type, each).map_err(|error| message::of_error(&error))
            }
            Source::Image { name, options } => {
                let name = ImageName::of(name).ok_or("it is gone")?;
                let OpenImage { part, tables, .. } =
                    name.open_tables(options).map_err(|error| message::of_error(&error.why))?;
                let mut joined = free_space::Joined::new(each);
                let told = tables.free(&mut |at, length| joined.add(part.start() + at, length));
                told.map_err(|error| message::of_error(&error))?;
                joined.finish();
                Ok(())
            }
        }
    }
}

impl Source {
    fn of_image(session: &Session, name: &Path) -> Self {
        Self::Image { name: name.to_owned(), options: session.image_options() }
    }
}

/// The file systems of named paths that are not among those known, since no file of them was met.
pub(super) fn of_paths(session: &Session, roots: &[PathBuf], known: &[Volume]) -> Vec<Volume> {
    let follow = session.follows_roots();
    let mut more: Vec<Volume> = Vec::new();
    for root in roots {
        if session.reads_images() && onesweep::is_image(root, roots.len(), follow) {
            let device = message::path_text(root);
            if !known.iter().chain(&more).any(|volume| volume.device == device) {
                more.extend(of_image(session, root, device));
            }
            continue;
        }
        let Ok(found) = named::look(root, follow) else { continue };
        // What a directory holds is on its own file system, a file mostly on that of its directory.
        let directory = match found.file_type() {
            EntryType::Dir => root.clone(),
            EntryType::File => {
                root.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new(".")).into()
            }
            _ => continue,
        };
        if !known.iter().chain(&more).any(|volume| volume.dev == Some(found.dev)) {
            more.push(mounted(directory, &found));
        }
    }
    more
}

/// An image that has no files.
fn of_image(session: &Session, root: &Path, device: String) -> Option<Volume> {
    let source = Source::of_image(session, root);
    let name = ImageName::of(root)?;
    let OpenImage { part, tables, .. } = name.open_tables(&session.image_options()).ok()?;
    let facts = tables.facts();
    let bytes = Some(part.start() + part.len());
    Some(Volume { dev: None, device, fs_type: Some(facts.fs_type.to_owned()), bytes, source })
}

fn mounted(directory: PathBuf, found: &files::Stat) -> Volume {
    let devices = Devices::of_system().ok();
    let stack = devices.as_ref().and_then(|devices| devices.by_stat(found).ok());
    let mount = devices.as_ref().and_then(|devices| {
        let mounts = devices.mounts();
        found.mnt_id.and_then(|id| mounts.by_id(id)).or_else(|| mounts.iter().find(|mount| mount.dev == found.dev))
    });
    let fs_type = mount.map(|mount| mount.fs_type.clone());
    let device = stack.as_ref().map(|stack| stack.name.clone()).or_else(|| fs_type.clone()).unwrap_or_default();
    let bytes = stack.map(|stack| stack.size);
    Volume { dev: Some(found.dev), device, fs_type, bytes, source: Source::Mounted(directory) }
}

/// Pieces of nearly one size.
#[derive(Debug, Serialize)]
pub(super) struct Class {
    /// The least size; the next class begins at twice as many bytes.
    pub(super) from: u64,
    pub(super) pieces: u64,
    pub(super) bytes: u64,
}

/// What is free on a file system, as it is told.
#[derive(Debug, Serialize)]
pub(super) struct FreeSpace {
    pub(super) device: String,
    pub(super) fs_type: Option<String>,
    pub(super) device_bytes: Option<u64>,
    /// Why nothing is known.
    pub(super) unknown: Option<String>,
    pub(super) bytes: Option<u64>,
    pub(super) pieces: Option<u64>,
    pub(super) largest: Option<u64>,
    pub(super) by_size: Vec<Class>,
}

impl FreeSpace {
    pub(super) fn of(volume: &Volume) -> Self {
        let mut free = FreeBySize::default();
        let unknown = volume.free(&mut |run| free.add(run.end - run.start)).err();
        let known = unknown.is_none().then_some(free);
        let classes = known.iter().flat_map(FreeBySize::classes);
        Self {
            device: volume.device.clone(),
            fs_type: volume.fs_type.clone(),
            device_bytes: volume.bytes,
            bytes: known.as_ref().map(|free| free.bytes),
            pieces: known.as_ref().map(|free| free.pieces),
            largest: known.as_ref().map(|free| free.largest),
            by_size: classes
                .map(|class| Class { from: class.from, pieces: class.pieces, bytes: class.bytes })
                .collect(),
            unknown,
        }
    }
}
