//! How many inodes a second one core takes from tables that lie in memory.
//!
//! The tables are read from the image once, and every read is kept; then they are read from what was kept. The processor's
//! time counts, not the clock, so that a busy machine changes little; and beside the figure stand those of a system call and
//! of copying, by which machines can be compared.

use std::collections::HashMap;
use std::hint::black_box;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use onesweep_layout::tables::{self, Found, Inode, Name, TableError, Wanted};
use onesweep_layout::{BlockRead, ImageFile};
use serde::Serialize;

use super::calibration;

/// How often the tables are read from memory.
const ROUNDS: u32 = 7;

/// What came out.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Scanned {
    inodes: u64,
    names: u64,
    problems: u64,
    /// Bytes of tables and directories that were read.
    table_bytes: u64,
    /// Of the processor, for one reading.
    processor_s: f64,
    /// By the clock: the quickest reading.
    wall_s: f64,
    inodes_per_second: f64,
    getppid_ns: f64,
    memcpy_gb_per_second: f64,
}

/// Reads the tables of an image from memory.
pub(crate) fn measure(image: &Path) -> Result<Scanned, String> {
    let said = |error: &dyn std::fmt::Display| format!("{}: {error}", image.display());
    let file = ImageFile::open(image).map_err(|error| said(&error))?;
    let memory = Arc::new(Memory { file, kept: Mutex::default() });
    let scan = || -> Result<Count, String> {
        let mut count = Count::default();
        let mut tables = tables::open(Arc::clone(&memory), tables::Options::default()).map_err(|error| said(&error))?;
        tables.scan(Wanted::default(), &mut count).map_err(|error| said(&error))?;
        Ok(count)
    };
    scan()?; // brings everything into memory
    let table_bytes = memory.bytes();
    let began = calibration::processor_s("self")?;
    let (mut wall_s, mut count) = (f64::INFINITY, Count::default());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        count = scan()?;
        wall_s = wall_s.min(began.elapsed().as_secs_f64());
    }
    let processor_s = (calibration::processor_s("self")? - began) / f64::from(ROUNDS);
    Ok(Scanned {
        inodes: count.inodes,
        names: count.names,
        problems: count.problems,
        table_bytes,
        processor_s,
        wall_s,
        // A small image takes less than a tick.
        inodes_per_second: count.inodes as f64 / processor_s.max(1.0 / calibration::TICKS),
        getppid_ns: calibration::getppid_ns(),
        memcpy_gb_per_second: memcpy_gb_per_second(),
    })
}

/// What is found, counted.
#[derive(Debug, Default)]
struct Count {
    inodes: u64,
    names: u64,
    problems: u64,
}

impl Found for Count {
    fn inode(&mut self, inode: Inode) -> ControlFlow<()> {
        self.inodes += 1;
        black_box(inode);
        ControlFlow::Continue(())
    }

    fn name(&mut self, name: Name<'_>) -> ControlFlow<()> {
        self.names += 1;
        black_box(name);
        ControlFlow::Continue(())
    }

    fn incomplete(&mut self, _: Option<u64>) {}

    fn problem(&mut self, _: TableError) -> ControlFlow<()> {
        self.problems += 1;
        ControlFlow::Continue(())
    }
}

/// The bytes of reads by their address and length.
type Kept = HashMap<(u64, usize), Arc<[u8]>>;

/// An image of which nothing is read twice.
struct Memory {
    file: ImageFile,
    kept: Mutex<Kept>,
}

impl Memory {
    fn bytes(&self) -> u64 {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).keys().map(|&(_, len)| len as u64).sum()
    }
}

impl BlockRead for Memory {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let place = (at, buffer.len());
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(&place).cloned();
        if let Some(bytes) = kept {
            buffer.copy_from_slice(&bytes);
            return Ok(());
        }
        self.file.read_at(buffer, at)?;
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).insert(place, Arc::from(&*buffer));
        Ok(())
    }

    fn len(&self) -> u64 {
        self.file.len()
    }
}

fn memcpy_gb_per_second() -> f64 {
    const BYTES: usize = 64 << 20;
    const COPIES: usize = 16;
    let (from, mut to) = (vec![1_u8; BYTES], vec![0_u8; BYTES]);
    let began = Instant::now();
    for _ in 0..COPIES {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
    }
    (BYTES * COPIES) as f64 / 1e9 / began.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_was_read_once_is_read_from_memory() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        fs::write(&path, [7; 10_000]).unwrap();
        let memory = Memory { file: ImageFile::open(&path).unwrap(), kept: Mutex::default() };
        let mut buffer = [0; 4096];
        memory.read_at(&mut buffer, 4096).unwrap();
        fs::write(&path, [9; 10_000]).unwrap();
        memory.read_at(&mut buffer, 4096).unwrap();
        assert_eq!((buffer, memory.bytes()), ([7; 4096], 4096));
        memory.read_at(&mut buffer, 0).unwrap();
        assert_eq!(buffer, [9; 4096]);
        assert!(memory.read_at(&mut buffer, 8192).is_err());
    }

    #[test]
    fn inodes_of_an_image_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        crate::mount::run("mkfs.ext4", ["-q", "-F", image.to_str().unwrap()]).unwrap();
        let scanned = measure(&image).unwrap();
        // The root and lost+found.
        assert_eq!((scanned.inodes, scanned.names, scanned.problems), (2, 1, 0), "{scanned:?}");
        assert!(scanned.table_bytes > 0 && scanned.inodes_per_second > 0.0);
    }
}
