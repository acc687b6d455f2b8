//! What was moved, moved back.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use onesweep_layout::source::Fiemap;
use onesweep_sys::files::statx_fd;

use super::back::way_back;
use super::manifest::{Manifest, Moved};
use super::{Left, MANIFEST, Unknown, donor_name, find};
use crate::carry::Ended;
use crate::ext4::Ext4;
use crate::ext4::donor::Donor;
use crate::ext4::file;
use crate::ext4::keep::folder::RunFolder;
use crate::file::MovableFile;
use crate::host::{Exchange, Failure, Host, Stays, Trouble};

/// What came of an undo.
#[derive(Debug, Default)]
pub struct Undone {
    /// Files that were moved back.
    pub files: u64,
    /// Blocks that were written for them.
    pub blocks: u64,
    /// Files that lay at their old places already.
    pub back_already: u64,
    /// Files of both kinds that were written since, as their times tell. Their bytes are those of today.
    pub written_since: u64,
    /// Files that lie where they lay before the undo, or are back in part, and why.
    pub left: BTreeMap<PathBuf, Left>,
    /// Manifests that can't be read or used: the files of their regions, whichever they are, stay.
    pub unread: Vec<Failure>,
    /// Why it ended before its time.
    pub ended: Option<Ended>,
}

/// Moves the files of a run back to their old places, the last region first. A region whose manifest can't be read is passed over.
///
/// `goes_on` is asked before each region with what was done so far. What was moved is on the disk at the end. The old places
/// stay held, so that this can be done again; [`forget`](super::forget) frees them.
///
/// # Errors
///
/// When there is no such run, it can't be listed, or another process moves files of the file system so. What fails later is in [`Undone::ended`].
pub fn undo(host: &mut Ext4, id: &str, goes_on: &mut dyn FnMut(&Undone) -> bool) -> Result<Undone, Unknown> {
    let (folder, run) = find(host, id)?;
    let _claim = folder.claim()?;
    let failed = |doing: &'static str, error| Failure::new(doing, &run.path, error);
    host.rehearse(&run.path).map_err(|refusal| failed("move files back", refusal.into()))?;
    let names = run.names().map_err(|error| failed("list it", error))?;
    let manifests: Vec<&String> = names.iter().rev().filter(|name| name.ends_with(MANIFEST)).collect();
    // What is dirty has no place before it is written.
    host.commit().map_err(|error| failed("write what is dirty", error))?;
    let mut undone = Undone::default();
    for name in manifests {
        if !goes_on(&undone) {
            undone.ended = Some(Ended::Stopped);
            break;
        }
        let way = match read(host, &run, name) {
            Ok(way) => way,
            Err(error) => {
                undone.unread.push(Failure::new("read what leads back", &run.path.join(name), error));
                continue;
            }
        };
        if let Err(failure) = undo_region(host, &run, &way, &mut undone) {
            undone.ended = Some(Ended::Failed(failure));
            break;
        }
    }
    if let Err(error) = host.commit()
        && undone.ended.is_none()
    {
        undone.ended = Some(Ended::Failed(failed("write what was moved back", error)));
    }
    Ok(undone)
}

/// What leads a region back.
struct WayBack {
    region: u32,
    files: Vec<Moved>,
}

fn undo_region(host: &mut Ext4, run: &RunFolder, way: &WayBack, undone: &mut Undone) -> Result<(), Failure> {
    let paths: Vec<PathBuf> = way.files.iter().map(|file| host.mount_point.join(&file.path)).collect();
    // They lie side by side, in this order.
    paths.iter().for_each(|path| host.announce(path));
    let mut donors = Donors { run, region: way.region, open: BTreeMap::new() };
    for (file, path) in way.files.iter().zip(paths) {
        match undo_file(host, &mut donors, file, &path, undone) {
            Ok(()) => {}
            Err(Trouble::Stays(stays)) => drop(undone.left.insert(path, stays.into())),
            Err(Trouble::Failed(failure)) => return Err(failure),
        }
    }
    Ok(())
}

fn read(host: &Ext4, run: &RunFolder, name: &str) -> io::Result<WayBack> {
    let mut bytes = Vec::new();
    File::from(run.open(name)?).read_to_end(&mut bytes)?;
    let manifest = Manifest::decode(&bytes)?;
    if manifest.block_bytes != host.asked.block_bytes {
        return Err(io::Error::other("it is of a file system with other blocks"));
    }
    let region = name.trim_end_matches(MANIFEST).parse().map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(WayBack { region, files: manifest.files })
}

fn undo_file(
    host: &mut Ext4,
    donors: &mut Donors<'_>,
    file: &Moved,
    path: &Path,
    undone: &mut Undone,
) -> Result<(), Trouble> {
    let opened = file::open_again(host, path, file.inode, file.generation)?;
    let stat = statx_fd(opened.file.fd()).map_err(|error| Failure::new("look at it", path, error))?;
    let mut steps = Vec::new();
    for step in &file.steps {
        let held = match donors.get(step.donor) {
            Some(donor) => donor.places(&mut host.asked).unwrap_or_default(),
            None => Default::default(),
        };
        match way_back(step, &opened.places, &held) {
            Ok(exchanges) => steps.extend(exchanges.into_iter().map(|exchange| (step.donor, exchange))),
            Err(left) => {
                undone.left.insert(path.to_owned(), left);
                return Ok(());
            }
        }
    }
    if steps.is_empty() {
        undone.back_already += 1;
    } else {
        exchange_all(host, donors, &opened.file, &steps, &mut undone.blocks)?;
        undone.files += 1;
    }
    undone.written_since += u64::from((stat.size, stat.mtime) != (file.size, file.mtime));
    Ok(())
}

/// Counts the blocks that were exchanged, also when not all were.
fn exchange_all(
    host: &mut Ext4,
    donors: &mut Donors<'_>,
    file: &MovableFile,
    steps: &[(usize, Exchange)],
    blocks: &mut u64,
) -> Result<(), Trouble> {
    for &(donor, exchange) in steps {
        let Some(donor) = donors.get(donor) else { return Err(Stays::Changed.into()) };
        let moved = host.exchange(file, donor, exchange);
        *blocks += moved.blocks;
        if let Some(trouble) = moved.trouble {
            return Err(trouble);
        }
        // It was cut meanwhile.
        if moved.blocks < exchange.blocks {
            return Err(Stays::Changed.into());
        }
    }
    Ok(())
}

/// The donors of a region, opened when they are needed.
struct Donors<'a> {
    run: &'a RunFolder,
    region: u32,
    open: BTreeMap<usize, Option<Donor>>,
}

impl Donors<'_> {
    /// `None` when it is gone, or not what was put there.
    fn get(&mut self, index: usize) -> Option<&Donor> {
        let (run, region) = (self.run, self.region);
        let donor = self.open.entry(index).or_insert_with(|| {
            let fd = run.open_to_write(&donor_name(region, index)).ok()?;
            Donor::kept(fd, &mut Fiemap::default()).ok().flatten()
        });
        donor.as_ref()
    }
}
