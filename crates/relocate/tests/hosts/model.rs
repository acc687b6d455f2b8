//! A disk in memory whose calls can be made to fail.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use onesweep_relocate::host::{
    Captured, Exchange, Failure, Host, Looked, Moved, Moves, Opened, Stays, Trouble, one_by_one,
};
use onesweep_relocate::places::{Places, Run};

use crate::conformance::{Fixture, conforms};

/// What a call does instead of its work.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Fault {
    /// The disk fails.
    Broken,
    /// There is no room, where there could be too little; else as [`Fault::Broken`].
    Full,
    /// There is no quota left, where free space is captured; else nothing.
    Quota,
    /// The file is in use, where that could be.
    InUse,
    /// An exchange ends after one block; else nothing.
    Short,
}

#[derive(Clone, Debug, Default)]
struct ModelFile {
    inode: u64,
    /// By number in the file.
    places: Vec<u64>,
    is_dirty: bool,
}

#[derive(Debug, Default)]
struct Disk {
    /// What each place holds: a file's inode and block, or nothing.
    bytes: Vec<Option<(u64, usize)>>,
    is_used: Vec<bool>,
    files: BTreeMap<PathBuf, ModelFile>,
    donors: BTreeMap<u64, Vec<u64>>,
    /// Blocks of the donors' parts that may only be given as a whole.
    parts: BTreeMap<u64, Vec<u64>>,
    /// Not free before the next commit.
    given_back: Vec<u64>,
    next: u64,
    /// Inodes of which a block was moved.
    moved: BTreeSet<u64>,
    /// The most places that donors had at once.
    most_captured: usize,
}

impl Disk {
    fn largest_piece(&self) -> Option<Vec<u64>> {
        let free = (0..self.is_used.len() as u64).filter(|&place| !self.is_used[place as usize]);
        let mut pieces: Vec<Vec<u64>> = Vec::new();
        for place in free {
            match pieces.last_mut() {
                Some(piece) if piece.last() == Some(&(place - 1)) => piece.push(place),
                _ => pieces.push(vec![place]),
            }
        }
        pieces.into_iter().max_by_key(Vec::len)
    }
}

pub(crate) struct Model {
    disk: Rc<RefCell<Disk>>,
    unit: u64,
    calls: u64,
    /// Commits that were to free places alone.
    pub(crate) settled: u64,
    /// Donors are captured part by part, each from the largest piece of free space, and parts are given as a whole.
    pub(crate) is_by_parts: bool,
    /// Several regions may come to one donor.
    pub(crate) shares_donors: bool,
    /// The call that fails, from 1.
    pub(crate) fault: Option<(u64, Fault)>,
}

/// A donor gives back its places.
pub(crate) struct ModelDonor {
    disk: Rc<RefCell<Disk>>,
    id: u64,
}

impl Drop for ModelDonor {
    fn drop(&mut self) {
        let mut disk = self.disk.borrow_mut();
        let places = disk.donors.remove(&self.id).unwrap();
        disk.given_back.extend(places);
    }
}

impl Model {
    pub(crate) fn new(blocks: usize, unit: u64) -> Self {
        let disk = Disk { bytes: vec![None; blocks], is_used: vec![false; blocks], ..Disk::default() };
        let disk = Rc::new(RefCell::new(disk));
        Self { disk, unit, calls: 0, settled: 0, is_by_parts: false, shares_donors: true, fault: None }
    }

    /// A file at these places.
    pub(crate) fn put(&mut self, path: &str, places: &[u64]) -> PathBuf {
        let mut disk = self.disk.borrow_mut();
        disk.next += 1;
        let inode = disk.next;
        for (number, &place) in places.iter().enumerate() {
            assert!(!disk.is_used[place as usize]);
            disk.is_used[place as usize] = true;
            disk.bytes[place as usize] = Some((inode, number));
        }
        let path = PathBuf::from(path);
        disk.files.insert(path.clone(), ModelFile { inode, places: places.to_vec(), is_dirty: false });
        path
    }

    /// Places that nothing can have.
    pub(crate) fn occupy(&mut self, places: impl IntoIterator<Item = u64>) {
        let mut disk = self.disk.borrow_mut();
        places.into_iter().for_each(|place| disk.is_used[place as usize] = true);
    }

    pub(crate) fn is_free(&self, place: u64) -> bool {
        !self.disk.borrow().is_used[place as usize]
    }

    pub(crate) fn places_of(&self, path: &Path) -> Vec<u64> {
        self.disk.borrow().files[path].places.clone()
    }

    /// How many files were moved.
    pub(crate) fn moved_files(&self) -> u64 {
        self.disk.borrow().moved.len() as u64
    }

    /// How many calls there were.
    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    /// The most places that were captured at once.
    pub(crate) fn most_captured(&self) -> usize {
        self.disk.borrow().most_captured
    }

    /// Each file has its own bytes, and no place is two blocks'.
    pub(crate) fn check(&self) {
        let disk = self.disk.borrow();
        let mut taken: Vec<u64> = disk.donors.values().flatten().chain(&disk.given_back).copied().collect();
        for (path, file) in &disk.files {
            for (number, &place) in file.places.iter().enumerate() {
                assert_eq!(disk.bytes[place as usize], Some((file.inode, number)), "{}", path.display());
                taken.push(place);
            }
        }
        let count = taken.len();
        taken.sort_unstable();
        taken.dedup();
        assert_eq!(taken.len(), count, "a place that is two blocks'");
        assert!(taken.iter().all(|&place| disk.is_used[place as usize]));
    }

    /// What this call is to do instead of its work.
    fn fault(&mut self) -> Option<Fault> {
        self.calls += 1;
        self.fault.filter(|(call, _)| *call == self.calls).map(|(_, fault)| fault)
    }

    fn file_fault(&mut self, path: &Path) -> Result<(), Trouble> {
        match self.fault() {
            Some(Fault::InUse) => Err(Stays::Busy.into()),
            Some(Fault::Broken | Fault::Full) => {
                Err(Failure::new("use it", path, io::Error::from_raw_os_error(5)).into())
            }
            Some(Fault::Short | Fault::Quota) | None => Ok(()),
        }
    }

    fn call_fault(&mut self) -> io::Result<()> {
        match self.fault() {
            Some(Fault::Broken | Fault::Full) => Err(io::Error::from_raw_os_error(5)),
            _ => Ok(()),
        }
    }

    fn file(&self, path: &Path) -> Result<ModelFile, Stays> {
        self.disk.borrow().files.get(path).cloned().ok_or(Stays::Gone)
    }
}

fn places(places: &[u64]) -> Places {
    let runs = places.iter().zip(0..).map(|(&place, logical)| Run { logical, place, blocks: 1 });
    Places::of(runs).unwrap()
}

impl Host for Model {
    type File = PathBuf;
    type Donor = ModelDonor;

    fn unit(&self) -> u64 {
        self.unit
    }

    fn shares_donors(&self) -> bool {
        self.shares_donors
    }

    fn look(&mut self, path: &Path) -> Result<Looked, Trouble> {
        self.file_fault(path)?;
        let file = self.file(path)?;
        Ok(Looked { inode: file.inode, places: places(&file.places), stays: None })
    }

    fn look_in_memory(&mut self, path: &Path) -> Result<Option<Looked>, Trouble> {
        let is_dirty = self.file(path)?.is_dirty;
        let looked = self.look(path)?;
        Ok(Some(Looked { stays: is_dirty.then_some(Stays::Busy), ..looked }))
    }

    fn announce(&mut self, _: &Path) {}

    fn open(&mut self, path: &Path, inode: u64) -> Result<Opened<PathBuf>, Trouble> {
        self.file_fault(path)?;
        let file = self.file(path)?;
        match (file.inode == inode, file.is_dirty) {
            (false, _) => Err(Stays::Gone.into()),
            (true, true) => Err(Stays::Busy.into()),
            (true, false) => Ok(Opened { file: path.to_owned(), places: places(&file.places), was_large: false }),
        }
    }

    fn places(&mut self, file: &PathBuf) -> Result<Places, Trouble> {
        self.file_fault(file)?;
        Ok(places(&self.file(file)?.places))
    }

    fn free_blocks(&mut self) -> io::Result<u64> {
        self.call_fault()?;
        Ok(self.disk.borrow().is_used.iter().filter(|&&is_used| !is_used).count() as u64)
    }

    fn capture(&mut self, _: &Path, blocks: u64) -> Captured<ModelDonor> {
        let mut captured = Captured { donors: Vec::new(), error: None };
        let mut left = blocks;
        while left > 0 {
            let unit = left.min(self.unit);
            left -= unit;
            let error = match self.fault() {
                Some(Fault::Full) => Some(io::ErrorKind::StorageFull.into()),
                Some(Fault::Quota) => Some(io::ErrorKind::QuotaExceeded.into()),
                Some(Fault::Broken) => Some(io::Error::from_raw_os_error(5)),
                _ => None,
            };
            let mut disk = self.disk.borrow_mut();
            let free: Vec<u64> =
                (0..disk.is_used.len()).filter(|&place| !disk.is_used[place]).map(|place| place as u64).collect();
            if error.is_some() || (free.len() as u64) < unit {
                captured.error = error.or(Some(io::ErrorKind::StorageFull.into()));
                break;
            }
            let taken = free[..unit as usize].to_vec();
            taken.iter().for_each(|&place| disk.is_used[place as usize] = true);
            disk.next += 1;
            let id = disk.next;
            disk.donors.insert(id, taken);
            disk.most_captured = disk.donors.values().map(Vec::len).sum::<usize>().max(disk.most_captured);
            captured.donors.push(ModelDonor { disk: Rc::clone(&self.disk), id });
        }
        captured
    }

    fn capture_for(&mut self, _: &Path, parts: &[u64]) -> Option<Captured<ModelDonor>> {
        if !self.is_by_parts {
            return None;
        }
        let mut disk = self.disk.borrow_mut();
        let mut taken = Vec::new();
        for &part in parts {
            let Some(first) = disk.largest_piece().filter(|piece| piece.len() as u64 >= part).map(|piece| piece[0])
            else {
                taken.into_iter().for_each(|place: u64| disk.is_used[place as usize] = false);
                return Some(Captured { donors: Vec::new(), error: Some(io::ErrorKind::StorageFull.into()) });
            };
            (first..first + part).for_each(|place| disk.is_used[place as usize] = true);
            taken.extend(first..first + part);
        }
        disk.next += 1;
        let id = disk.next;
        disk.donors.insert(id, taken);
        disk.parts.insert(id, parts.to_vec());
        Some(Captured { donors: vec![ModelDonor { disk: Rc::clone(&self.disk), id }], error: None })
    }

    fn donor_places(&mut self, donor: &ModelDonor) -> io::Result<Places> {
        self.call_fault()?;
        Ok(places(&self.disk.borrow().donors[&donor.id]))
    }

    fn prepare(&mut self, _: &[Moves<'_, PathBuf, ModelDonor>]) -> Result<(), Failure> {
        Ok(())
    }

    fn exchange(&mut self, file: &PathBuf, donor: &ModelDonor, exchange: Exchange) -> Moved {
        let fault = self.fault();
        let failed = |error| Some(Failure::new("move it", file, error).into());
        match fault {
            Some(Fault::InUse) => return Moved { blocks: 0, trouble: Some(Stays::Busy.into()) },
            Some(Fault::Broken) => return Moved { blocks: 0, trouble: failed(io::Error::from_raw_os_error(5)) },
            Some(Fault::Full) => return Moved { blocks: 0, trouble: failed(io::ErrorKind::StorageFull.into()) },
            Some(Fault::Short | Fault::Quota) | None => {}
        }
        let mut disk = self.disk.borrow_mut();
        let disk = &mut *disk;
        let known = disk.files.get_mut(file).unwrap();
        if let Some(parts) = disk.parts.get(&donor.id) {
            let mut from = 0;
            let is_whole = parts.iter().any(|&part| {
                from += part;
                (from - part, part) == (exchange.to, exchange.blocks)
            });
            assert!(is_whole, "{exchange:?} of {parts:?}");
        }
        let donor = disk.donors.get_mut(&donor.id).unwrap();
        let room = (known.places.len() as u64 - exchange.from).min(donor.len() as u64 - exchange.to);
        let most = if fault == Some(Fault::Short) { 1 } else { u64::MAX };
        let blocks = exchange.blocks.min(room).min(most);
        for number in 0..blocks {
            let old = &mut known.places[(exchange.from + number) as usize];
            let new = &mut donor[(exchange.to + number) as usize];
            disk.bytes[*new as usize] = disk.bytes[*old as usize].take();
            std::mem::swap(old, new);
        }
        known.is_dirty = false;
        if blocks > 0 {
            disk.moved.insert(known.inode);
        }
        Moved { blocks, trouble: None }
    }

    fn exchange_all(&mut self, file: &PathBuf, steps: &[(&ModelDonor, Exchange)]) -> Moved {
        one_by_one(steps, |donor, exchange| self.exchange(file, donor, exchange))
    }

    fn settle(&mut self, _: &Path) -> io::Result<()> {
        self.settled += 1;
        self.commit()
    }

    fn commit(&mut self) -> io::Result<()> {
        self.call_fault()?;
        let mut disk = self.disk.borrow_mut();
        for place in std::mem::take(&mut disk.given_back) {
            disk.is_used[place as usize] = false;
            disk.bytes[place as usize] = None;
        }
        disk.files.values_mut().for_each(|file| file.is_dirty = false);
        Ok(())
    }
}

impl Fixture for Model {
    type Host = Self;
    const SWAPS: bool = true;

    fn host(&mut self) -> &mut Self {
        self
    }

    fn directory(&self) -> PathBuf {
        PathBuf::from("/")
    }

    fn make(&mut self, name: &str, blocks: u64, _: u64) -> PathBuf {
        let count = self.disk.borrow().is_used.len() as u64;
        let free: Vec<u64> = (0..count).filter(|&place| self.is_free(place)).step_by(3).take(blocks as usize).collect();
        self.put(&format!("/{name}"), &free)
    }

    fn dirty(&mut self, path: &Path) {
        self.disk.borrow_mut().files.get_mut(path).unwrap().is_dirty = true;
    }

    fn contents(&mut self, path: &Path) -> Vec<u8> {
        let disk = self.disk.borrow();
        let blocks = disk.files[path].places.iter().map(|&place| disk.bytes[place as usize]);
        blocks.flat_map(|block| format!("{block:?}").into_bytes()).collect()
    }
}

#[test]
fn the_model_conforms() {
    conforms(&mut Model::new(300, 16));
}
