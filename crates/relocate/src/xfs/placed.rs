//! Files without a name that get the very places that are wanted.
//!
//! XFS is not asked for a place, but where it puts what a file grows by is known: if the file grows behind a hole, as far behind its
//! last block on the disk as in the file. So a file that has one block anywhere gets any free places further behind in the same group:
//! it grows behind a hole as long as the way there. The holes are taken out afterwards, which moves no block.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use onesweep_sys::files::{allocate_part, insert_hole, open_unnamed, reserve_part, sync_data, take_out};

use super::whole::make_wide;
use crate::file::Asked;
use crate::places::{Places, Run};

/// A file without a name with one block, from which the way to all others is measured.
#[derive(Debug)]
struct Anchored {
    file: File,
    /// Where that block lies.
    anchor: u64,
}

impl Anchored {
    /// Gives an empty file its block, which comes to lie near the file's inode.
    fn of(file: File, asked: &mut Asked) -> io::Result<Anchored> {
        allocate_part(file.as_fd(), 0, asked.block_bytes)?;
        let places = asked.donor_places(file.as_fd(), asked.block_bytes)?;
        let anchor = places.first().ok_or(io::ErrorKind::InvalidData)?;
        Ok(Anchored { file, anchor })
    }

    /// Has its blocks come to lie at these places, in the order of the file, and nowhere else; false when others have them, or a later block
    /// is to lie before an earlier one.
    fn place(&self, to: &Places, asked: &mut Asked) -> io::Result<bool> {
        let block = asked.block_bytes;
        let Some(wanted) = on_the_way(self.anchor, to) else { return Ok(false) };
        let ways = to.runs().iter().map(|run| (run.place - self.anchor, run.blocks));
        for (way, blocks) in ways {
            allocate_part(self.file.as_fd(), way * block, blocks * block)?;
        }
        let end = wanted.runs().last().map_or(0, |run| run.logical_end());
        if asked.donor_places(self.file.as_fd(), end * block)? == wanted {
            return self.take_out_holes(to, block).map(|()| true);
        }
        self.file.set_len(block)?;
        Ok(false)
    }

    /// Has each block come to lie where it is in the file; the first one goes.
    fn take_out_holes(&self, to: &Places, block: u64) -> io::Result<()> {
        for step in steps(to, self.anchor) {
            match step {
                Step::Out(at, blocks) => take_out(self.file.as_fd(), at * block, blocks * block)?,
                Step::In(at, blocks) => insert_hole(self.file.as_fd(), at * block, blocks * block)?,
            }
        }
        Ok(())
    }
}

/// The blocks of a file that has one there, and grew to these places, before its holes are taken out; `None` for places it can't grow to, as
/// those that don't rise.
fn on_the_way(anchor: u64, to: &Places) -> Option<Places> {
    let ways = to.runs().iter().map(|run| Some(Run { logical: run.place.checked_sub(anchor)?, ..*run }));
    let runs: Vec<Run> = ways.collect::<Option<_>>()?;
    Places::of([Run { logical: 0, place: anchor, blocks: 1 }].into_iter().chain(runs))
}

/// Whether a file with a block there can grow to these places.
fn is_ahead(anchor: u64, run: Run, group_blocks: u64) -> bool {
    run.place > anchor && run.place / group_blocks == anchor / group_blocks
}

/// Files without a name in a directory whose first blocks lie before what is to be reached from there.
///
/// XFS gives a file's first block the nearest place to its inode. So these are there before anything is captured that they are to come to,
/// and used again and again: an inode made later may lie behind that.
#[derive(Debug)]
pub(super) struct Growing {
    ready: RefCell<Vec<Anchored>>,
    /// Those that have something else.
    used: RefCell<Vec<File>>,
    /// Those that have nothing.
    empty: RefCell<Vec<File>>,
    /// The last of their first blocks.
    last: u64,
}

impl Growing {
    /// So many of them in a directory.
    pub(super) fn new(directory: BorrowedFd<'_>, files: u64, asked: &mut Asked) -> io::Result<Growing> {
        // All inodes before the first block.
        let files: Vec<File> = (0..files).map(|_| open_unnamed(directory).map(File::from)).collect::<Result<_, _>>()?;
        let ready: Vec<Anchored> = files.into_iter().map(|file| Anchored::of(file, asked)).collect::<Result<_, _>>()?;
        let last = ready.iter().map(|one| one.anchor).max().ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Growing { ready: RefCell::new(ready), used: RefCell::default(), empty: RefCell::default(), last })
    }

    /// What of these places they can come to.
    pub(super) fn reachable(&self, places: &Places, group_blocks: u64) -> Option<Places> {
        Places::of(places.runs().iter().filter(|run| is_ahead(self.last, **run, group_blocks)).copied())
    }

    /// A file with so many places behind its first block, near a share of the way from the last first block to the end of the group: by its
    /// size, and they are at its end.
    pub(super) fn ahead(
        &self,
        directory: BorrowedFd<'_>,
        (share, of): (u64, u64),
        blocks: u64,
        group_blocks: u64,
        asked: &mut Asked,
    ) -> io::Result<(File, u64)> {
        let anchored = Anchored::of(open_unnamed(directory)?.into(), asked)?;
        let end = (self.last / group_blocks + 1) * group_blocks;
        let target = self.last + 1 + (end - self.last - 1) * share / of;
        let way = target.saturating_sub(anchored.anchor).max(1);
        let block = asked.block_bytes;
        reserve_part(anchored.file.as_fd(), way * block, blocks * block)?;
        Ok((anchored.file, (way + blocks) * block))
    }

    /// How many there are.
    pub(super) fn files(&self) -> usize {
        self.ready.borrow().len() + self.empty.borrow().len() + self.used.borrow().len()
    }

    /// Takes one back, with what it has.
    pub(super) fn take_back(&self, file: File) {
        self.used.borrow_mut().push(file);
    }

    /// Gives back what those have that were taken back.
    pub(super) fn let_go(&self) -> io::Result<()> {
        for file in self.used.take() {
            file.set_len(0)?;
            make_wide(&file)?;
            self.empty.borrow_mut().push(file);
        }
        Ok(())
    }

    /// Makes those ready that were let go of, by a write of the journal: then their first blocks are free again.
    pub(super) fn make_ready(&self, asked: &mut Asked) -> io::Result<()> {
        let mut behind = Vec::new();
        let empty = self.empty.take();
        if let Some(last) = empty.last() {
            sync_data(last.as_fd())?;
        }
        for file in empty {
            let anchored = Anchored::of(file, asked)?;
            let is_ready = anchored.anchor <= self.last;
            if is_ready { self.ready.borrow_mut().push(anchored) } else { behind.push(anchored.file) }
        }
        behind.iter().try_for_each(|file| file.set_len(0))?;
        self.empty.replace(behind);
        Ok(())
    }

    /// How many are ready.
    pub(super) fn ready(&self) -> usize {
        self.ready.borrow().len()
    }

    /// One of them with exactly these places, which nobody has; `None` when somebody has them, or none of them is ready.
    pub(super) fn at(&self, to: &Places, group_blocks: u64, asked: &mut Asked) -> io::Result<Option<File>> {
        let can = |one: &Anchored| to.runs().iter().all(|run| is_ahead(one.anchor, *run, group_blocks));
        let found = self.ready.borrow().iter().rposition(can);
        let Some(found) = found else { return Ok(None) };
        let anchored = self.ready.borrow_mut().swap_remove(found);
        match anchored.place(to, asked) {
            Ok(true) => return Ok(Some(anchored.file)),
            Ok(false) => self.ready.borrow_mut().push(anchored),
            Err(error) => {
                self.take_back(anchored.file);
                return Err(error);
            }
        }
        Ok(None)
    }
}

/// What brings a block to another number in its file, and not to another place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Step {
    /// Takes out so many blocks from one on.
    Out(u64, u64),
    /// Puts so many in before one.
    In(u64, u64),
}

/// From blocks that are as far from an anchor in the file as on the disk, behind it, to these.
fn steps(to: &Places, anchor: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    // What is before this block is as it is to be, and so far the rest has come nearer to the start, or gone from it.
    let (mut done, mut out, mut r#in) = (0, 0, 0);
    for (number, run) in to.runs().iter().enumerate() {
        let gap = run.place - anchor + r#in - out - done;
        let wanted = run.logical - done;
        // The anchor is in the first one.
        let stays = if number == 0 { 0 } else { gap.min(wanted) };
        if gap > stays {
            steps.push(Step::Out(done, gap - stays));
            out += gap - stays;
        }
        if wanted > stays {
            steps.push(Step::In(done, wanted - stays));
            r#in += wanted - stays;
        }
        done = run.logical_end();
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_grows_to_places_that_rise_behind_its_block() {
        let run = |logical, place, blocks| Run { logical, place, blocks };
        let grown = |runs: &[Run]| on_the_way(100, &Places::of(runs.iter().copied()).unwrap());
        let rising = grown(&[run(0, 120, 5), run(9, 130, 2)]).unwrap();
        assert_eq!(rising.runs(), [run(0, 100, 1), run(20, 120, 5), run(30, 130, 2)]);
        assert_eq!(grown(&[run(0, 130, 2), run(2, 120, 5)]), None, "the second piece lies before the first");
        assert_eq!(grown(&[run(0, 99, 2)]), None, "before the file's own block");
    }

    #[test]
    fn blocks_come_to_their_numbers() {
        let steps = |runs: &[(u64, u64, u64)]| {
            let run = |&(logical, place, blocks)| Run { logical, place, blocks };
            super::steps(&Places::of(runs.iter().map(run)).unwrap(), 100)
        };
        assert_eq!(steps(&[(0, 101, 5)]), [Step::Out(0, 1)]);
        assert_eq!(steps(&[(0, 120, 5)]), [Step::Out(0, 20)]);
        // In two pieces, of a file without holes.
        assert_eq!(steps(&[(0, 120, 5), (5, 130, 2)]), [Step::Out(0, 20), Step::Out(5, 5)]);
        // In one piece, of a file with a hole of 3 blocks.
        assert_eq!(steps(&[(0, 120, 5), (8, 125, 2)]), [Step::Out(0, 20), Step::In(5, 3)]);
        // A hole at the start, a larger one on the disk, and as large a one.
        let holes = [(4, 120, 5), (11, 130, 2), (15, 134, 1)];
        assert_eq!(steps(&holes), [Step::Out(0, 20), Step::In(0, 4), Step::Out(9, 3)]);
    }
}
