//! Files without a name that get the very places that are wanted.
//!
//! XFS is not asked for a place, but where it puts what a file grows by is known: if the file grows behind a hole, as far behind its
//! last block on the disk as in the file. So a file that has one block anywhere gets any free places further behind in the same group:
//! it grows behind a hole as long as the way there. The holes are taken out afterwards, which moves no block.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use onesweep_sys::files::{allocate_part, give_back, insert_hole, open_unnamed, take_out};

use crate::file::Asked;
use crate::places::{Places, Run};

/// A file without a name with one block, from which the way to all others is measured.
#[derive(Debug)]
pub(super) struct Anchored {
    file: File,
    /// Where that block lies.
    anchor: u64,
}

/// Files that are put aside, at most, until one has its block before what it is to have.
const ASIDE: usize = 8;

impl Anchored {
    /// A file in a directory, near which its block comes to lie.
    pub(super) fn new(directory: BorrowedFd<'_>, asked: &mut Asked) -> io::Result<Anchored> {
        let file = File::from(open_unnamed(directory)?);
        allocate_part(file.as_fd(), 0, asked.block_bytes)?;
        let places = asked.donor_places(file.as_fd(), asked.block_bytes)?;
        let anchor = places.first().ok_or(io::ErrorKind::InvalidData)?;
        Ok(Anchored { file, anchor })
    }

    /// The same, of which these places can be reached, if there is one.
    pub(super) fn before(
        to: &Places,
        directory: BorrowedFd<'_>,
        asked: &mut Asked,
        group_blocks: u64,
    ) -> io::Result<Option<Anchored>> {
        let mut aside = Vec::new();
        while aside.len() < ASIDE {
            let anchored = Anchored::new(directory, asked)?;
            if to.runs().iter().all(|run| anchored.reaches(*run, group_blocks)) {
                return Ok(Some(anchored));
            }
            aside.push(anchored);
        }
        Ok(None)
    }

    /// Whether its blocks can come to lie there.
    pub(super) fn reaches(&self, run: Run, group_blocks: u64) -> bool {
        run.place > self.anchor && run.place / group_blocks == self.anchor / group_blocks
    }

    /// Has its blocks come to lie at these places, in the order of the file, and nowhere else; false when others have them.
    pub(super) fn place(&self, to: &Places, asked: &mut Asked) -> io::Result<bool> {
        let block = asked.block_bytes;
        let wanted = self.on_the_way(to)?;
        let ways = to.runs().iter().map(|run| (run.place - self.anchor, run.blocks));
        for (way, blocks) in ways {
            allocate_part(self.file.as_fd(), way * block, blocks * block)?;
        }
        let end = wanted.runs().last().map_or(0, |run| run.logical_end());
        if asked.donor_places(self.file.as_fd(), end * block)? == wanted {
            return self.take_out_holes(to, block).map(|()| true);
        }
        give_back(self.file.as_fd(), block, (end - 1) * block)?;
        self.file.set_len(block)?;
        Ok(false)
    }

    /// Its blocks before the holes are taken out.
    fn on_the_way(&self, to: &Places) -> io::Result<Places> {
        let runs = to.runs().iter().map(|run| Run { logical: run.place - self.anchor, ..*run });
        Places::of([Run { logical: 0, place: self.anchor, blocks: 1 }].into_iter().chain(runs))
            .ok_or(io::ErrorKind::InvalidInput.into())
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

    pub(super) fn into_file(self) -> File {
        self.file
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
