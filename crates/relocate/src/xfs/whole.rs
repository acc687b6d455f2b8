//! A file changes all its places with those of a file that was written for it, if nobody has changed it since before it was read.
//!
//! Whole files alone can do that, so what is to be one file's is taken from the donors first: they give up what a region is to have,
//! and files without a name get [these very places](super::placed), one for each.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::thread;
use std::time::{Duration, SystemTime};

use onesweep_sys::files::{
    Stat, Time, list_xattrs_fd, open_dir, remove_xattr_fd, reopen_to_write, set_owner_fd, set_xattr_fd, statx_fd,
    sync_data, xattr_fd,
};
use onesweep_sys::inode::{project, set_project};
use onesweep_sys::sharing::Part;
use onesweep_sys::swap_extents::{Changes, swap_if_same};

use super::placed::Growing;
use super::writers::refuse_writers;
use crate::errno::{EFAULT, EINVAL, is_short};
use crate::file::{Asked, MovableFile, not_opened, stays_by_flags, trouble};
use crate::giving::{Donor, capture, read_all, stays_by_error};
use crate::host::{Captured, Exchange, Failure, Moved, Moves, Stays, Trouble, donors_of};
use crate::places::{Places, Run};

/// Files that are to change places, and what those have left that did.
#[derive(Debug)]
pub(super) struct Wholes {
    facts: Known,
    /// By the inodes of directories in which donors are, and as long as those.
    growing: BTreeMap<u64, Weak<Growing>>,
    /// By the paths of those whose they will be.
    staged: BTreeMap<PathBuf, Staged>,
    /// Memory that is used again.
    bytes: Vec<u8>,
}

/// What has to be known of the file system.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// Blocks of a group.
    pub(super) group_blocks: u64,
    /// Bytes of an inode for the map of its places and its attributes.
    pub(super) inode_room: u64,
    /// A change is told from any before, however soon it comes.
    pub(super) tells_changes: bool,
}

/// A file without a name at the places that another file is to have.
#[derive(Debug)]
struct Staged {
    file: Borrowed,
    to: Places,
}

/// A file that goes back when it is dropped. What it has then is given back later: a read past the page cache may be on its way there.
#[derive(Debug)]
struct Borrowed {
    file: Option<File>,
    of: Rc<Growing>,
}

impl Borrowed {
    fn file(&self) -> &File {
        self.file.as_ref().expect("it goes back when it is dropped alone")
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            self.of.take_back(file);
        }
    }
}

/// Files that get their places by one write of the journal, for regions of so many blocks; any more take one each.
fn at_once(region: u64) -> u64 {
    (region / 4).clamp(16, 128)
}

/// Places on the way to the end of a group near which free space is looked for, where there is none nearer that can be reached.
const WAYS: u64 = 4;

/// What a donor gave up is free when the journal has it, or a little later where it is discarded first.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(5);

impl Wholes {
    pub(super) fn new(facts: Known) -> Wholes {
        Wholes { facts, growing: BTreeMap::new(), staged: BTreeMap::new(), bytes: Vec::new() }
    }

    /// Captures so many blocks as donors of a directory, of which as many as can be are within reach; of a second one where those of the first
    /// are not.
    pub(super) fn capture(
        &mut self,
        directories: [&Path; 2],
        blocks: u64,
        unit: u64,
        asked: &mut Asked,
    ) -> Captured<Donor> {
        let mut all = Captured { donors: Vec::new(), error: None };
        for directory in directories {
            let growing = match self.growing(directory, unit, asked) {
                Ok(growing) => growing,
                Err(error) => {
                    all.error = Some(error);
                    continue;
                }
            };
            let mut captured = capture(directory, donors_of(blocks, unit).map(Some), asked.block_bytes);
            let mut reached = self.hold(&mut all, captured.donors, &growing, asked);
            // The nearest ones lie before the first blocks, so farther ones are looked for.
            for share in 0..WAYS {
                if captured.error.is_some() || reached >= blocks {
                    break;
                }
                captured = self.capture_ahead(directory, (share, WAYS), blocks - reached, unit, &growing, asked);
                reached += self.hold(&mut all, captured.donors, &growing, asked);
            }
            all.error = captured.error;
            if 2 * reached >= blocks {
                break;
            }
        }
        all
    }

    /// Adds donors of which something can be reached; gives how many blocks that are.
    fn hold(&self, all: &mut Captured<Donor>, donors: Vec<Donor>, growing: &Rc<Growing>, asked: &mut Asked) -> u64 {
        let mut reached = 0;
        for donor in donors {
            let blocks = self.reachable(&donor, asked).map_or(0, |places| places.blocks());
            if blocks > 0 {
                donor.keep(Rc::clone(growing) as Rc<_>);
                all.donors.push(donor);
            }
            reached += blocks;
        }
        reached
    }

    fn capture_ahead(
        &self,
        directory: &Path,
        share: (u64, u64),
        blocks: u64,
        unit: u64,
        growing: &Growing,
        asked: &mut Asked,
    ) -> Captured<Donor> {
        let mut captured = Captured { donors: Vec::new(), error: None };
        let made = open_dir(directory).map(Rc::new).and_then(|directory| {
            for blocks in donors_of(blocks, unit) {
                let at = (*directory).as_fd();
                let (file, bytes) = growing.ahead(at, share, blocks, self.facts.group_blocks, asked)?;
                captured.donors.push(Donor::of(file, bytes, Rc::clone(&directory)));
            }
            Ok(())
        });
        captured.error = made.err();
        captured
    }

    /// Files in a directory that can come to what is captured there from now on.
    fn growing(&mut self, directory: &Path, region: u64, asked: &mut Asked) -> io::Result<Rc<Growing>> {
        let directory = open_dir(directory)?;
        let inode = statx_fd(directory.as_fd())?.ino;
        if let Some(growing) = self.growing.get(&inode).and_then(Weak::upgrade) {
            return Ok(growing);
        }
        let growing = Rc::new(Growing::new(directory.as_fd(), at_once(region), asked)?);
        self.growing.insert(inode, Rc::downgrade(&growing));
        Ok(growing)
    }

    fn growing_of(&self, donor: &Donor) -> io::Result<Option<Rc<Growing>>> {
        Ok(self.growing.get(&statx_fd(donor.directory())?.ino).and_then(Weak::upgrade))
    }

    /// What of a donor's places a file can come to whose first block lies near the donor's directory.
    pub(super) fn reachable(&self, donor: &Donor, asked: &mut Asked) -> io::Result<Places> {
        let places = asked.donor_places(donor.fd(), donor.bytes())?;
        let growing = self.growing_of(donor)?;
        Ok(growing.and_then(|growing| growing.reachable(&places, self.facts.group_blocks)).unwrap_or_default())
    }

    /// Gives back what moved files have left.
    pub(super) fn let_go(&mut self) -> io::Result<()> {
        self.growing.retain(|_, growing| growing.strong_count() > 0);
        self.growing.values().filter_map(Weak::upgrade).try_for_each(|growing| growing.let_go())
    }

    /// Makes files that lie where those of a region are to lie. Where that fails for one of them, all stay.
    pub(super) fn stage(&mut self, moves: &[Moves<'_, MovableFile, Donor>], asked: &mut Asked) -> Result<(), Failure> {
        let Some(first) = moves.first() else { return Ok(()) };
        let failed = |source| Failure::new("make ready to move it", first.path, source);
        self.staged.clear();
        self.let_go().map_err(failed)?;
        let mut at_once = usize::MAX;
        for (donor, _) in moves.iter().flat_map(|moves| &moves.steps) {
            let growing = self.growing_of(donor).map_err(failed)?;
            at_once = growing.map_or(at_once, |growing| growing.files().min(at_once));
        }
        let some = &moves[..moves.len().min(at_once)];
        let steps: Vec<&[_]> = some.iter().map(|moves| &moves.steps[..]).collect();
        for (moves, staged) in some.iter().zip(self.try_to_stage(&steps, asked).map_err(failed)?) {
            self.staged.extend(staged.map(|staged| (moves.path.to_owned(), staged)));
        }
        Ok(())
    }

    fn try_to_stage(&mut self, files: &[&[(&Donor, Exchange)]], asked: &mut Asked) -> io::Result<Vec<Option<Staged>>> {
        let block = asked.block_bytes;
        let mut donors: Vec<(&Donor, Places, Option<Rc<Growing>>)> = Vec::new();
        let mut wanted: Vec<(Places, Option<Rc<Growing>>)> = Vec::new();
        for steps in files {
            let (mut runs, mut of) = (Vec::new(), None);
            for &(donor, step) in *steps {
                if !donors.iter().any(|(known, ..)| std::ptr::eq(*known, donor)) {
                    donors.push((donor, asked.donor_places(donor.fd(), donor.bytes())?, self.growing_of(donor)?));
                }
                let Some((_, held, growing)) = donors.iter().find(|(known, ..)| std::ptr::eq(*known, donor)) else {
                    continue;
                };
                let held = held.within(step.to..step.to + step.blocks);
                runs.extend(held.runs().iter().map(|run| Run { logical: run.logical - step.to + step.from, ..*run }));
                of = of.or(growing.clone());
            }
            wanted.push((Places::of(runs).unwrap_or_default(), of));
        }
        // Before anything is given up that is near, so that no first block comes to lie there.
        for growing in donors.iter().filter_map(|(.., growing)| growing.as_ref()) {
            if growing.ready() < files.len() {
                growing.let_go()?;
                room(growing.make_ready(asked))?;
            }
        }
        for (donor, step) in files.iter().copied().flatten() {
            donor.give_up(Part { offset: step.to * block, bytes: step.blocks * block })?;
        }
        let mut staged: Vec<Option<Staged>> = wanted.iter().map(|_| None).collect();
        for again in 0..TRIES {
            thread::sleep(PAUSE * again);
            for (donor, ..) in &donors {
                sync_data(donor.fd())?;
            }
            for ((to, growing), staged) in wanted.iter().zip(&mut staged).filter(|(_, staged)| staged.is_none()) {
                let Some(growing) = growing.as_ref().filter(|_| to.blocks() > 0) else { continue };
                let made = room(growing.at(to, self.facts.group_blocks, asked))?.flatten();
                *staged = made.map(|file| {
                    let file = Borrowed { file: Some(file), of: Rc::clone(growing) };
                    Staged { file, to: to.clone() }
                });
            }
            if staged.iter().all(Option::is_some) {
                return Ok(staged);
            }
        }
        // One that lies elsewhere than planned costs two breaks, and none was planned for.
        Ok(staged.iter().map(|_| None).collect())
    }

    /// Has a file change places with what was made for it.
    pub(super) fn exchange(&mut self, file: &MovableFile, steps: &[(&Donor, Exchange)], asked: &mut Asked) -> Moved {
        match self.try_to_exchange(file, steps, asked) {
            Ok(blocks) => Moved { blocks, trouble: None },
            Err(trouble) => Moved { blocks: 0, trouble: Some(trouble) },
        }
    }

    fn try_to_exchange(
        &mut self,
        file: &MovableFile,
        steps: &[(&Donor, Exchange)],
        asked: &mut Asked,
    ) -> Result<u64, Trouble> {
        let begun = self.begin(file)?;
        let (now, stays) = asked.places(file.fd(), file.path())?;
        if let Some(stays) = stays {
            return Err(stays.into());
        }
        let staged = match self.staged.remove(file.path()) {
            Some(staged) => staged,
            None => self.stage_alone(file, steps, &now, asked)?,
        };
        // What the file has elsewhere would not come along.
        if logical(&now) != logical(&staged.to) {
            return Err(Stays::Changed.into());
        }
        self.fill(file, &staged, begun.size, asked.block_bytes)?;
        like(file, staged.file.file(), &begun)
            .map_err(|error| trouble("give a copy of it its owner", file.path(), error))?;
        swap(file, staged.file.file(), &begun, self.facts.inode_room)?;
        Ok(staged.to.blocks())
    }

    /// For a file that no region was made ready with.
    fn stage_alone(
        &mut self,
        file: &MovableFile,
        steps: &[(&Donor, Exchange)],
        now: &Places,
        asked: &mut Asked,
    ) -> Result<Staged, Trouble> {
        let end = now.runs().last().map_or(0, |run| run.logical_end());
        let clip = |&(donor, step): &(_, Exchange)| {
            let blocks = step.blocks.min(end.saturating_sub(step.from));
            (blocks > 0).then_some((donor, Exchange { blocks, ..step }))
        };
        let steps: Vec<_> = steps.iter().filter_map(clip).collect();
        let numbers = steps.iter().map(|(_, step)| Run { logical: step.from, place: step.from, blocks: step.blocks });
        if Places::of(numbers).is_none_or(|numbers| logical(&numbers) != logical(now)) {
            // A part of a file.
            return Err(Stays::Unsupported.into());
        }
        let made = self.try_to_stage(&[&steps], asked);
        let made = made.map_err(|source| Failure::new("make ready to move it", file.path(), source))?;
        Ok(made.into_iter().next().flatten().ok_or(Stays::NoRoom)?)
    }

    /// Looks at a file that is about to be read.
    fn begin(&self, file: &MovableFile) -> Result<Stat, Trouble> {
        let stat = statx_fd(file.fd()).map_err(|error| trouble("ask when it was changed", file.path(), error))?;
        if !self.facts.tells_changes && !is_settled(stat.ctime, SystemTime::now()) {
            return Err(Stays::Busy.into());
        }
        refuse_writers(file)?;
        Ok(stat)
    }

    /// Writes what a file has to the places that it is to have.
    fn fill(&mut self, file: &MovableFile, staged: &Staged, size: u64, block: u64) -> Result<(), Trouble> {
        let failed = |doing| move |source| Failure::new(doing, file.path(), source);
        staged.file.file().set_len(size).map_err(failed("make ready to move it"))?;
        for run in staged.to.runs() {
            let (from, end) = (run.logical * block, size.min(run.logical_end() * block));
            self.bytes.resize(usize::try_from(end.saturating_sub(from)).unwrap_or(usize::MAX), 0);
            if !read_all(file, &mut self.bytes, from).map_err(failed("read it"))? {
                return Err(Stays::Changed.into());
            }
            staged.file.file().write_all_at(&self.bytes, from).map_err(failed("write its bytes to its new place"))?;
        }
        Ok(())
    }
}

/// `None` where there is no room, or not for so large a file.
fn room<T>(told: io::Result<T>) -> io::Result<Option<T>> {
    match told {
        Ok(told) => Ok(Some(told)),
        Err(error) if is_short(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The blocks that a file has, by their numbers in it.
fn logical(places: &Places) -> Vec<(u64, u64)> {
    let mut parts: Vec<(u64, u64)> = Vec::new();
    for run in places.runs() {
        match parts.last_mut() {
            Some((_, end)) if *end == run.logical => *end = run.logical_end(),
            _ => parts.push((run.logical, run.logical_end())),
        }
    }
    parts
}

/// Whether a change from now on has another time than the last one: some kernels tell times by the ticks of a clock, of which there are 100
/// in a second or more.
fn is_settled(changed: Time, now: SystemTime) -> bool {
    now.duration_since(changed.into()).is_ok_and(|since| since >= Duration::from_secs(1))
}

/// Gives a file the owner, group and project of another one. While quotas are on, no others change places.
fn like(file: &MovableFile, copy: &File, facts: &Stat) -> io::Result<()> {
    let now = statx_fd(copy.as_fd())?;
    if (now.uid, now.gid) != (facts.uid, facts.gid) {
        set_owner_fd(copy.as_fd(), Some(facts.uid), Some(facts.gid))?;
    }
    match project(file.fd())? {
        wanted if wanted == project(copy.as_fd())? => Ok(()),
        wanted => set_project(copy.as_fd(), wanted.unwrap_or_default()),
    }
}

fn swap(file: &MovableFile, copy: &File, begun: &Stat, inode_room: u64) -> Result<(), Trouble> {
    let fd = reopen_to_write(file.fd()).map_err(|error| not_opened(file.path(), stays_by_flags, error))?;
    let seen = Changes { modified: begun.mtime, changed: begun.ctime };
    let swap = || swap_if_same(fd.as_fd(), copy.as_fd(), begun.size, seen);
    let is_unfit = |told: &io::Result<()>| told.as_ref().is_err_and(|error| error.raw_os_error() == Some(EINVAL));
    let mut told = swap();
    // What an inode has for its map depends on its attributes, and for a copy without any on the kernel. Where one map lies in the inode, the
    // other must not be as short and lie outside.
    if is_unfit(&told) {
        told = make_narrow(copy, inode_room).and_then(|()| swap());
    }
    if is_unfit(&told) {
        told = make_wide(copy).and_then(|()| swap());
    }
    told.map_err(|error| match error.raw_os_error() {
        Some(EINVAL) => Stays::Unsupported.into(),
        Some(EFAULT) => Stays::Changed.into(),
        _ if is_short(&error) => Stays::NoRoom.into(),
        _ => match stays_by_error(&error) {
            Some(stays) => stays.into(),
            None => Failure::new("move it", file.path(), error).into(),
        },
    })
}

/// Gives a file attributes that leave no more of its inode to the map of its places than the shortest one takes.
fn make_narrow(copy: &File, inode_room: u64) -> io::Result<()> {
    const SHORTEST_MAP: u64 = 56;
    const HEADER: u64 = 4;
    const ENTRY: u64 = 3;
    const NAME: u64 = 1;
    // Longer ones go to blocks of their own.
    const LONGEST: u64 = 200;
    let mut taken = SHORTEST_MAP + HEADER;
    for name in list_xattrs_fd(copy.as_fd())? {
        let value = xattr_fd(copy.as_fd(), name.as_c_str())?.map_or(0, |value| value.len());
        let bare =
            name.to_bytes().iter().position(|&byte| byte == b'.').map_or(0, |dot| name.to_bytes().len() - dot - 1);
        taken += ENTRY + (bare + value) as u64;
    }
    for number in b'a'..=b'z' {
        let Some(left) = inode_room.saturating_sub(taken).checked_sub(ENTRY + NAME) else { break };
        let value = left.min(LONGEST);
        set_xattr_fd(copy.as_fd(), &[b"user.", &[number][..]].concat()[..], &vec![0; value as usize])?;
        taken += ENTRY + NAME + value;
    }
    Ok(())
}

/// Takes the attributes away that were given to a file, and with the last one the room in its inode that is for them.
pub(super) fn make_wide(copy: &File) -> io::Result<()> {
    for name in list_xattrs_fd(copy.as_fd())?.iter().filter(|name| name.to_bytes().starts_with(b"user.")) {
        remove_xattr_fd(copy.as_fd(), name.as_c_str())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_this_second_are_not_settled() {
        let now = SystemTime::UNIX_EPOCH + Duration::new(100, 500);
        let at = |secs, nanos| is_settled(Time { secs, nanos }, now);
        assert!(at(99, 500) && at(0, 0) && at(-5, 0));
        assert!(!at(99, 501) && !at(100, 500) && !at(101, 0));
    }

    #[test]
    fn numbers_are_told_without_places() {
        let run = |logical, place, blocks| Run { logical, place, blocks };
        let places = Places::of([run(0, 10, 2), run(2, 50, 3), run(9, 53, 1)]).unwrap();
        assert_eq!(logical(&places), [(0, 5), (9, 10)]);
    }
}
