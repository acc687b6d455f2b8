//! Appending to a file so that a new fragment begins.
//!
//! No file system takes orders about addresses. So the bytes are appended, brought to the disk and looked for; where they
//! lie right behind the old ones they are cut off again and written anew. In that moment file systems with a journal
//! don't give away again what they have just freed. ntfs-3g does; there another file is put in the way first.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use super::fragments::Maps;

/// Attempts of each kind before it is given up.
const ATTEMPTS: u32 = 3;

const OBSTACLE_BYTES: usize = 1 << 20;

/// Where in its file an obstacle's first block is; room for larger and smaller addresses on both sides.
const MIDDLE: u64 = 1 << 40;

const BLOCK: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Apart {
    maps: Maps,
}

impl Apart {
    /// Appends what `write` writes to the file at `path`, of `from` bytes, so that it begins a fragment.
    pub(super) fn append(&mut self, path: &Path, from: u64, write: impl Fn(&File) -> io::Result<()>) -> io::Result<()> {
        for attempt in 0..2 * ATTEMPTS {
            let _obstacle = (attempt >= ATTEMPTS).then(|| self.obstacle_behind(path, from)).transpose()?;
            // Closed again: space that is kept for an open file would be there for the next piece.
            write(&OpenOptions::new().append(true).open(path)?)?;
            let file = OpenOptions::new().write(true).read(true).open(path)?;
            file.sync_all()?;
            if self.maps.begins_fragment(&file, from)? {
                return Ok(());
            }
            file.set_len(from)?;
        }
        Err(io::Error::other("each time the new bytes came to lie right behind the old ones"))
    }

    /// A file that takes the room behind the first `from` bytes of the file at `path`.
    ///
    /// A hole in a file is filled so that the addresses fit those around it, and a file with a hole can have a block
    /// anywhere; so the distance in the file decides the address.
    fn obstacle_behind(&mut self, path: &Path, from: u64) -> io::Result<Obstacle> {
        let behind = self.maps.address(&File::open(path)?, from - 1)? + 1;
        let obstacle = Obstacle(path.with_extension("obstacle"));
        let file = OpenOptions::new().write(true).read(true).create_new(true).open(&obstacle.0)?;
        file.write_all_at(&[1; BLOCK], MIDDLE)?;
        file.sync_all()?;
        let middle = self.maps.address(&file, MIDDLE)?;
        file.write_all_at(&vec![1; OBSTACLE_BYTES], MIDDLE + behind - middle)?;
        file.sync_all()?;
        Ok(obstacle)
    }
}

/// A file that goes when this goes.
struct Obstacle(PathBuf);

impl Drop for Obstacle {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
