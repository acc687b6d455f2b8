//! Old places that are kept, so that what was moved can be moved back.
//!
//! While files are moved, the donors are given names in `.onesweep/undo/ID`, in the root of the mount: after the exchanges they
//! hold the old places. Beside those of each region lies a manifest, which tells what leads back. Both are on the disk
//! before the first exchange of the region; the manifest gets its name when it is whole. What of a donor no file came to is given
//! back before. So a folder holds as many blocks as were moved, and 4 KiB or more for each region.
//!
//! [`undo`] exchanges again. It never uses a donor's own bytes, which are zeros: what was written to a file since comes back
//! with it. Each block is looked at: those that lie where the move has brought them go back; those that lie at their old
//! places, since they were never moved or went back already, stay; and when one lies elsewhere the whole file stays as it is.
//! So it may be ended at any moment and run again. It frees nothing; [`forget`] does. What a manifest that can't be read would
//! lead back stays, and the other regions go back.
//!
//! One process at a time moves files of a file system so.

mod back;
mod folder;
mod manifest;
mod undo;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use onesweep_sys::{
    files::{give_back, name_file, open_unnamed, path_of, statx_fd},
    inode,
};
use thiserror::Error;

pub(super) use self::folder::folder_path;
use self::folder::{Claim, Folder, RunFolder};
use self::manifest::{Manifest, Moved, Step};
pub use self::undo::{Undone, undo};
use super::Ext4;
use super::donor::Donor;
use crate::file::{Asked, MovableFile};
use crate::host::{Exchange, Failure, Moves, Stays};

/// Why a file is not moved back.
#[derive(Clone, Copy, Debug, Eq, Error, Hash, Ord, PartialEq, PartialOrd)]
pub enum Left {
    /// It can't be moved now.
    #[error(transparent)]
    Stays(#[from] Stays),
    /// Somebody wrote it anew, cut it, or moved it since.
    #[error("it has other places since, or is shorter")]
    ElsewhereSince,
    /// The donor is gone, or was changed.
    #[error("its old places are not held any more")]
    NotHeld,
}

/// Why nothing can be undone or forgotten.
#[derive(Debug, Error)]
pub enum Unknown {
    /// There is no such run.
    #[error("no old places are kept as {id}; {}", there_are(known))]
    Id {
        /// The name that was given.
        id: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// Something failed.
    #[error(transparent)]
    Failed(#[from] Failure),
}

fn there_are(known: &[String]) -> String {
    match known {
        [] => "there are none".to_owned(),
        known => format!("there are {}", known.join(", ")),
    }
}

/// Keeps the old places of one run.
pub(super) struct Keeper {
    folder: Folder,
    run: RunFolder,
    /// Regions that were kept.
    regions: u32,
    mount_point: PathBuf,
    _claim: Arc<Claim>,
}

impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").field("run", &self.run).field("regions", &self.regions).finish_non_exhaustive()
    }
}

impl Keeper {
    pub(super) fn begin(mount_point: &Path, dev: u64) -> Result<Keeper, Failure> {
        let folder = Folder::open(mount_point, dev, true)?;
        let lost = || Failure::new("find its folder for old places", mount_point, io::ErrorKind::NotFound.into());
        let folder = folder.ok_or_else(lost)?;
        let claim = folder.claim()?;
        let run = folder.add()?;
        Ok(Keeper { folder, run, regions: 0, mount_point: mount_point.to_owned(), _claim: claim })
    }

    pub(super) fn id(&self) -> &str {
        &self.run.id
    }

    /// Whether anything was kept.
    pub(super) fn is_used(&self) -> bool {
        self.regions > 0
    }

    /// Keeps what leads back from these moves.
    pub(super) fn keep(&mut self, moves: &[Moves<'_, MovableFile, Donor>], asked: &mut Asked) -> Result<(), Failure> {
        let mut donors: Vec<&Donor> = Vec::new();
        for (donor, _) in moves.iter().flat_map(|file| &file.steps) {
            if !donors.iter().any(|known| std::ptr::eq(*known, *donor)) {
                donors.push(donor);
            }
        }
        let number = self.regions;
        self.regions += 1;
        let kept = self.describe(moves, &donors, asked).and_then(|manifest| {
            give_back_unused(&manifest, &donors, manifest.block_bytes)?;
            self.write(number, &manifest, &donors)
        });
        kept.map_err(|error| {
            self.take_away(number, donors.len());
            Failure::new("keep old places", &self.run.path, error)
        })
    }

    fn describe(
        &self,
        moves: &[Moves<'_, MovableFile, Donor>],
        donors: &[&Donor],
        asked: &mut Asked,
    ) -> io::Result<Manifest> {
        let held: Vec<_> = donors.iter().map(|donor| donor.places(asked)).collect::<Result<_, _>>()?;
        let file = |file: &Moves<'_, MovableFile, Donor>| {
            let fd = file.file.fd();
            let stat = statx_fd(fd)?;
            let step = |(donor, exchange): &(&Donor, Exchange)| {
                let donor = donors.iter().position(|known| std::ptr::eq(*known, *donor))?;
                let range = exchange.from..exchange.from + exchange.blocks;
                let to = donors[donor].number(exchange.to);
                let became = held[donor].within(to..to + exchange.blocks).shifted(exchange.from);
                Some(Step { donor, to, was: file.places.within(range), became })
            };
            Ok(Moved {
                path: self.name_of(file),
                inode: stat.ino,
                generation: inode::generation(fd)?.ok_or(io::ErrorKind::Unsupported)?,
                size: stat.size,
                mtime: stat.mtime,
                ctime: stat.ctime,
                steps: file.steps.iter().filter_map(step).collect(),
            })
        };
        Ok(Manifest { block_bytes: asked.block_bytes, files: moves.iter().map(file).collect::<io::Result<_>>()? })
    }

    /// Its path below the mount point.
    fn name_of(&self, file: &Moves<'_, MovableFile, Donor>) -> PathBuf {
        let path = path_of(file.file.fd()).unwrap_or_else(|_| file.path.to_owned());
        path.strip_prefix(&self.mount_point).map_or(path.clone(), Path::to_owned)
    }

    /// Names the donors, then the whole manifest; all of it is on the disk afterwards.
    fn write(&self, number: u32, manifest: &Manifest, donors: &[&Donor]) -> io::Result<()> {
        for (index, donor) in donors.iter().enumerate() {
            name_file(donor.fd(), self.run.fd(), donor_name(number, index).as_str())?;
        }
        let mut file = File::from(open_unnamed(self.run.fd())?);
        file.write_all(&manifest.encode()?)?;
        file.sync_all()?;
        name_file(file.as_fd(), self.run.fd(), manifest_name(number).as_str())?;
        // The journal keeps the order: where this name is, there are the donors, too, and their places.
        self.run.sync()
    }

    fn take_away(&self, number: u32, donors: usize) {
        let _ = self.run.remove(&manifest_name(number));
        for index in 0..donors {
            let _ = self.run.remove(&donor_name(number, index));
        }
    }
}

impl Drop for Keeper {
    /// The folder of a run that has moved nothing goes again.
    fn drop(&mut self) {
        let _ = self.folder.remove(&self.run);
    }
}

fn give_back_unused(manifest: &Manifest, donors: &[&Donor], block_bytes: u64) -> io::Result<()> {
    for (index, donor) in donors.iter().enumerate() {
        let steps = manifest.files.iter().flat_map(|file| &file.steps).filter(|step| step.donor == index);
        let mut used: Vec<(u64, u64)> = steps.map(|step| (step.to, step.to + step.was.blocks())).collect();
        used.sort_unstable();
        let end = donor.bytes() / block_bytes;
        let mut free = 0;
        for (start, behind) in used.into_iter().chain([(end, end)]) {
            if start > free {
                give_back(donor.fd(), free * block_bytes, (start - free) * block_bytes)?;
            }
            free = free.max(behind);
        }
    }
    Ok(())
}

const MANIFEST: &str = ".json";

fn manifest_name(region: u32) -> String {
    format!("{region:06}{MANIFEST}")
}

fn donor_name(region: u32, donor: usize) -> String {
    format!("{region:06}-{donor}")
}

/// The runs whose old places are kept on a file system.
///
/// # Errors
///
/// When the folder can't be listed, or is not the caller's own.
pub fn kept(host: &Ext4) -> Result<Vec<String>, Failure> {
    let folder = Folder::open(&host.mount_point, host.asked.dev, false)?;
    folder.map_or(Ok(Vec::new()), |folder| folder.ids())
}

fn find(host: &Ext4, id: &str) -> Result<(Folder, RunFolder), Unknown> {
    if let Some(folder) = Folder::open(&host.mount_point, host.asked.dev, false)?
        && let Some(run) = folder.run(id)?
    {
        return Ok((folder, run));
    }
    Err(Unknown::Id { id: id.to_owned(), known: kept(host)? })
}

/// Frees the old places of a run; gives how many blocks of 512 bytes were held. What was moved stays, and can't be moved back any more.
///
/// # Errors
///
/// When there is no such run, or its files can't be removed.
pub fn forget(host: &mut Ext4, id: &str) -> Result<u64, Unknown> {
    let (folder, run) = find(host, id)?;
    let failed = |doing| {
        let path = run.path.clone();
        move |error| Failure::new(doing, &path, error)
    };
    let mut names = run.names().map_err(failed("list it"))?;
    names.retain(|name| is_ours(name));
    // A donor without its manifest leads nowhere, a manifest without its donor promises what isn't there.
    names.sort_by_key(|name| !name.ends_with(MANIFEST));
    let mut held = 0;
    for name in names {
        let stat = run.open(&name).and_then(|fd| statx_fd(fd.as_fd())).map_err(failed("look at what is in it"))?;
        held += stat.blocks;
        run.remove(&name).map_err(failed("remove what is in it"))?;
    }
    folder.remove(&run).map_err(failed("remove it, without what others put there"))?;
    Ok(held)
}

/// Whether a donor or a manifest has such a name.
fn is_ours(name: &str) -> bool {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_region = |text: &str| text.len() >= 6 && is_number(text);
    match name.split_once('-') {
        Some((region, donor)) => is_region(region) && is_number(donor),
        None => name.strip_suffix(MANIFEST).is_some_and(is_region),
    }
}
