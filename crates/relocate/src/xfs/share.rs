//! A file comes to share what was written for it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use onesweep_sys::sharing::{Part, clone_part};

use crate::file::MovableFile;
use crate::giving::{Donor, Source, Way, share};
use crate::host::Trouble;

#[derive(Debug)]
pub(super) struct Sharing;

impl Way for Sharing {
    type Begun = ();

    fn begin(&self, _: &MovableFile) -> Result<(), Trouble> {
        Ok(())
    }

    fn stage(&self, donor: &Donor, whole: Part, bytes: &[u8]) -> io::Result<File> {
        let staged = donor.beside()?;
        donor.write(whole.offset, bytes)?;
        clone_part(donor.fd(), whole, staged.as_fd(), 0)?;
        // While the block was shared, to cut it would need another one.
        donor.give_up(whole)?;
        staged.set_len(bytes.len() as u64)?;
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
        share(file, from, source, part)
    }
}
