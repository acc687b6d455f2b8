//! A file comes to share what was written for it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use onesweep_sys::files::{reserve_part, statx_fd, sync_file_system};
use onesweep_sys::sharing::{Part, clone_part};

use crate::file::MovableFile;
use crate::giving::{Donor, Source, Way, share};
use crate::host::{Failure, Moves, Stays, Trouble};

#[derive(Debug)]
pub(super) struct Sharing;

impl Way for Sharing {
    type Begun = ();

    fn begin(&self, _: &MovableFile) -> Result<(), Trouble> {
        Ok(())
    }

    fn stage(&self, donor: &Donor, whole: Part, bytes: &[u8]) -> io::Result<File> {
        let staged = match donor.take_staged(whole.offset) {
            Some(staged) => staged,
            None => {
                let staged = hand_over(donor, whole)?;
                sync_file_system(donor.fd())?;
                staged
            }
        };
        staged.set_len(bytes.len() as u64)?;
        staged.write_all_at(bytes, 0)?;
        Ok(staged)
    }

    fn pass(
        &mut self,
        (): &(),
        file: &MovableFile,
        from: u64,
        source: &Source<'_>,
        part: Part,
        _: &Donor,
    ) -> Result<u64, Trouble> {
        match share(file, from, source, part) {
            // The kernel says the same of a file that was cut, and of one without checksums, which can't share with one that has them.
            Err(Trouble::Stays(Stays::Changed))
                if statx_fd(file.fd()).is_ok_and(|stat| stat.size >= from.saturating_add(part.bytes)) =>
            {
                Err(Stays::NoChecksums.into())
            }
            told => told,
        }
    }
}

/// Makes ready for parts of files that do not come in the order of their donors: each gets a file of its own, all by one commit.
pub(super) fn stage_ahead(moves: &[Moves<'_, MovableFile, Donor>], block: u64) -> Result<(), Failure> {
    let steps: Vec<_> = moves.iter().flat_map(|file| file.steps.iter().map(move |step| (file, step))).collect();
    let mut ends: Vec<(&Donor, u64, bool)> = Vec::new();
    for (file, (donor, exchange)) in &steps {
        let at = match ends.iter().position(|(known, ..)| std::ptr::eq(*known, *donor)) {
            Some(at) => at,
            None => {
                let end = donor.end().map_err(|source| Failure::new("make ready to move it", file.path, source))?;
                ends.push((donor, end, true));
                ends.len() - 1
            }
        };
        let (_, end, rises) = &mut ends[at];
        *rises &= exchange.to * block >= *end;
        *end = (exchange.to + exchange.blocks) * block;
    }
    let mut staged = None;
    for (file, (donor, exchange)) in &steps {
        if ends.iter().any(|(known, _, rises)| *rises && std::ptr::eq(*known, *donor)) {
            continue;
        }
        let failed = |source| Failure::new("make ready to move it", file.path, source);
        let size = statx_fd(file.file.fd()).map_err(failed)?.size;
        let length = size.saturating_sub(exchange.from * block).min(exchange.blocks * block);
        if !length.is_multiple_of(block) {
            let whole = Part { offset: exchange.to * block, bytes: length.next_multiple_of(block) };
            donor
                .make_long()
                .and_then(|()| hand_over(donor, whole))
                .map(|file| donor.put_staged(whole.offset, file))
                .map_err(failed)?;
            staged = Some((donor, file.path));
        }
    }
    match staged {
        Some((donor, path)) => {
            sync_file_system(donor.fd()).map_err(|source| Failure::new("make ready to move it", path, source))
        }
        None => Ok(()),
    }
}

/// A file of its own that has reserved places of a donor, which has them no longer.
///
/// What is written would be copied when it is cut, and reserved places aren't, so these go first. They are written to only while no
/// other file is known to have them, which the donor is until a commit.
fn hand_over(donor: &Donor, whole: Part) -> io::Result<File> {
    let staged = donor.beside()?;
    // Only a file that has once reserved anything itself is looked at for reserved places.
    reserve_part(staged.as_fd(), 0, 1)?;
    clone_part(donor.fd(), whole, staged.as_fd(), 0)?;
    donor.give_up(whole)?;
    Ok(staged)
}
