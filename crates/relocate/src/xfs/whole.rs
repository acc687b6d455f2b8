//! A file changes all its places with those of a file that was written for it, if nobody has changed it since before it was read.
//!
//! Whole files alone can do that, so what is to be one file's is taken from the donors first: they give up what a region is to have,
//! and files without a name get [these very places](super::placed), one for each.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, SystemTime};

use onesweep_sys::files::{
    Stat, Time, list_xattrs_fd, reopen_to_write, set_owner_fd, set_xattr_fd, statx_fd, sync_data, xattr_fd,
};
use onesweep_sys::inode::{XFLAG_HAS_ATTRIBUTES, extended_flags, project, set_project};
use onesweep_sys::sharing::Part;
use onesweep_sys::swap_extents::{Changes, swap_if_same};

use super::placed::Anchored;
use super::writers::refuse_writers;
use crate::errno::{EFAULT, EINVAL, is_short};
use crate::file::{Asked, MovableFile, not_opened, stays_by_flags, trouble};
use crate::giving::{Donor, read_all, stays_by_error};
use crate::host::{Exchange, Failure, Moved, Moves, Stays, Trouble};
use crate::places::{Places, Run};

/// Files that are to change places, and what those have left that did.
#[derive(Debug)]
pub(super) struct Wholes {
    facts: Known,
    /// By the paths of those whose they will be.
    staged: BTreeMap<PathBuf, Staged>,
    /// Files that have old places. They hold them for a while, since a read past the page cache may be on its way there.
    left: Vec<File>,
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
    file: File,
    to: Places,
}

/// What a donor gave up is free when the journal has it, or a little later where it is discarded first.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(5);

impl Wholes {
    pub(super) fn new(facts: Known) -> Wholes {
        Wholes { facts, staged: BTreeMap::new(), left: Vec::new(), bytes: Vec::new() }
    }

    /// What of a donor's places a file can come to, whose first block lies near the donor's directory.
    pub(super) fn reachable(&self, donor: &Donor, places: Places, asked: &mut Asked) -> io::Result<Places> {
        let anchored = Anchored::new(donor.directory(), asked)?;
        let runs = places.runs().iter().filter(|run| anchored.reaches(**run, self.facts.group_blocks)).copied();
        Places::of(runs).ok_or(io::ErrorKind::InvalidData.into())
    }

    /// Gives back what moved files have left.
    pub(super) fn let_go(&mut self) -> io::Result<()> {
        self.left.drain(..).try_for_each(|file| file.set_len(0))
    }

    /// Makes files that lie where those of a region are to lie. Where that fails for one, it stays.
    pub(super) fn stage(
        &mut self,
        moves: &[Moves<'_, MovableFile, Donor>],
        asked: &mut Asked,
    ) -> Result<(), Failure> {
        let Some(first) = moves.first() else { return Ok(()) };
        let failed = |source| Failure::new("make ready to move it", first.path, source);
        self.staged.clear();
        self.let_go().map_err(failed)?;
        let steps = moves.iter().map(|moves| moves.steps.clone());
        for (moves, staged) in moves.iter().zip(self.try_to_stage(steps, asked).map_err(failed)?) {
            self.staged.extend(staged.map(|staged| (moves.path.to_owned(), staged)));
        }
        Ok(())
    }

    fn try_to_stage<'a>(
        &self,
        files: impl Iterator<Item = Vec<(&'a Donor, Exchange)>>,
        asked: &mut Asked,
    ) -> io::Result<Vec<Option<Staged>>> {
        let block = asked.block_bytes;
        let mut donors: Vec<(&Donor, Places)> = Vec::new();
        let mut staged = Vec::new();
        let mut parts = Vec::new();
        for steps in files {
            let mut runs = Vec::new();
            for (donor, step) in &steps {
                let known = donors.iter().position(|(known, _)| std::ptr::eq(*known, *donor));
                let known = match known {
                    Some(known) => known,
                    None => {
                        donors.push((donor, asked.donor_places(donor.fd(), donor.bytes())?));
                        donors.len() - 1
                    }
                };
                let end = step.to.saturating_add(step.blocks);
                let held = donors[known].1.within(step.to..end);
                runs.extend(held.runs().iter().map(|run| Run { logical: run.logical - step.to + step.from, ..*run }));
                parts.push((known, Part { offset: step.to * block, bytes: step.blocks * block }));
            }
            let to = Places::of(runs).unwrap_or_default();
            // Before the donors give anything up, so that none gets its first block from there.
            let anchored = match steps.first() {
                Some((donor, _)) => {
                    room(Anchored::before(&to, donor.directory(), asked, self.facts.group_blocks))?.flatten()
                }
                None => None,
            };
            staged.push(anchored.map(|anchored| (anchored, to, false)));
        }
        for (donor, part) in parts {
            donors[donor].0.give_up(part)?;
        }
        for again in 0..TRIES {
            if again > 0 {
                thread::sleep(PAUSE * again);
            }
            for (donor, _) in &donors {
                sync_data(donor.fd())?;
            }
            for (anchored, to, is_placed) in staged.iter_mut().flatten().filter(|(.., is_placed)| !is_placed) {
                *is_placed = room(anchored.place(to, asked))?.unwrap_or(false);
            }
            if staged.iter().flatten().all(|(.., is_placed)| *is_placed) {
                break;
            }
        }
        let placed = |(anchored, to, is_placed): (Anchored, Places, bool)| {
            is_placed.then(|| Staged { file: anchored.into_file(), to })
        };
        Ok(staged.into_iter().map(|one| one.and_then(placed)).collect())
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
        like(file, &staged.file, &begun).map_err(|error| trouble("give a copy of it its owner", file.path(), error))?;
        swap(file, &staged.file, &begun, self.facts.inode_room)?;
        self.left.push(staged.file);
        Ok(staged.to.blocks())
    }

    /// For a file that no region was made ready with.
    fn stage_alone(
        &self,
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
        let made = self.try_to_stage([steps].into_iter(), asked);
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
        staged.file.set_len(size).map_err(failed("make ready to move it"))?;
        for run in staged.to.runs() {
            let (from, end) = (run.logical * block, size.min(run.logical_end() * block));
            self.bytes.resize(usize::try_from(end.saturating_sub(from)).unwrap_or(usize::MAX), 0);
            if !read_all(file, &mut self.bytes, from).map_err(failed("read it"))? {
                return Err(Stays::Changed.into());
            }
            staged.file.write_all_at(&self.bytes, from).map_err(failed("write its bytes to its new place"))?;
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
    let has_attributes = || extended_flags(file.fd()).is_ok_and(|told| told.unwrap_or(0) & XFLAG_HAS_ATTRIBUTES != 0);
    if is_unfit(&told) && has_attributes() {
        // They have its map lie outside of the inode, and without any it would have to be in that of the copy.
        told = make_narrow(copy, inode_room).and_then(|()| swap());
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
    const LONGEST: u64 = 255;
    let mut taken = SHORTEST_MAP + HEADER;
    for name in list_xattrs_fd(copy.as_fd())? {
        let value = xattr_fd(copy.as_fd(), name.as_c_str())?.map_or(0, |value| value.len());
        let bare = name.to_bytes().iter().position(|&byte| byte == b'.').map_or(0, |dot| name.to_bytes().len() - dot - 1);
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
