//! A file of which a power cut keeps only a part, and which fails when it is told to.

use std::{
    io,
    sync::{Arc, Mutex},
};

use onesweep_peer::index::{IndexFile, REGION_BYTES, regions_written};

const SECTOR: usize = 512;

/// A small generator of its own, so that a seed always gives the same cut.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ mixed >> 31) % end
    }
}

/// What a file has, what of it is durable, and the writes between.
#[derive(Debug, Default)]
pub(crate) struct Content {
    pub(crate) now: Vec<u8>,
    pub(crate) durable: Vec<u8>,
    unsynced: Vec<(usize, Vec<u8>)>,
    /// So many more operations succeed, and then one fails, or all.
    fails_after: Option<(u64, bool)>,
    /// Of what is lost by a sync that fails.
    pub(crate) random: u64,
}

fn put(bytes: &mut Vec<u8>, at: usize, part: &[u8]) {
    if bytes.len() < at + part.len() {
        bytes.resize(at + part.len(), 0);
    }
    bytes[at..at + part.len()].copy_from_slice(part);
}

impl Content {
    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) {
        put(&mut self.now, at, bytes);
        self.unsynced.push((at, bytes.to_vec()));
    }

    pub(crate) fn sync(&mut self) {
        for (at, bytes) in std::mem::take(&mut self.unsynced) {
            put(&mut self.durable, at, &bytes);
        }
    }

    /// The power goes: of what wasn't synced, each sector of each write is there or not.
    pub(crate) fn cut(&mut self, random: &mut Random) {
        for (at, bytes) in std::mem::take(&mut self.unsynced) {
            let mut done = 0;
            while done < bytes.len() {
                let end = (done + SECTOR - (at + done) % SECTOR).min(bytes.len());
                if random.below(2) == 0 {
                    put(&mut self.durable, at + done, &bytes[done..end]);
                }
                done = end;
            }
        }
        self.now = self.durable.clone();
    }

    pub(crate) fn fail_after(&mut self, operations: Option<(u64, bool)>) {
        self.fails_after = operations;
    }

    fn step(&mut self) -> io::Result<()> {
        match &mut self.fails_after {
            None => Ok(()),
            Some((0, for_ever)) => {
                if !*for_ever {
                    self.fails_after = None;
                }
                Err(io::Error::other("simulated"))
            }
            Some((left, _)) => {
                *left -= 1;
                Ok(())
            }
        }
    }

    /// A sync that fails: the kernel takes the pages for clean all the same, so what it had not written is gone as soon as
    /// they are dropped, and some are at once.
    fn lose(&mut self) {
        let mut random = Random(self.random);
        self.random += 1;
        for (at, bytes) in std::mem::take(&mut self.unsynced) {
            match random.below(3) {
                0 => put(&mut self.durable, at, &bytes),
                1 => {
                    let mut old = self.durable.get(at..).unwrap_or_default().to_vec();
                    old.resize(bytes.len(), 0);
                    put(&mut self.now, at, &old);
                }
                _ => {}
            }
        }
    }
}

/// The file of an index, on a disk that outlives the process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Simulated(pub(crate) Arc<Mutex<Content>>);

impl Simulated {
    /// What a power cut would leave says of each region of these bytes of the device that it is being written.
    pub(crate) fn assert_marked(&self, at: u64, len: u64) {
        let content = self.0.lock().unwrap();
        let left = Content { now: content.durable.clone(), ..Content::default() };
        drop(content);
        let marked = regions_written(&Simulated(Arc::new(Mutex::new(left)))).unwrap();
        let mut regions = at / REGION_BYTES..=(at + len - 1) / REGION_BYTES;
        assert!(regions.all(|region| marked.contains(&region)), "{at}, {len}: only {marked:?} are marked");
    }
}

impl IndexFile for Simulated {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let mut content = self.0.lock().unwrap();
        content.step()?;
        let at = at as usize;
        let bytes = content.now.get(at..at + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(bytes);
        Ok(())
    }

    fn write_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut content = self.0.lock().unwrap();
        if let Err(error) = content.step() {
            // Some sectors may have been written.
            content.write(at as usize, &bytes[..bytes.len() / 2 / SECTOR * SECTOR]);
            return Err(error);
        }
        content.write(at as usize, bytes);
        Ok(())
    }

    /// As a write with `RWF_DSYNC`: nothing else becomes durable, but what was written to the same place is there no more.
    fn write_durably_at(&mut self, bytes: &[u8], at: u64) -> io::Result<()> {
        let mut earlier = std::mem::take(&mut self.0.lock().unwrap().unsynced);
        let written = self.write_at(bytes, at).and_then(|()| self.sync());
        let mut content = self.0.lock().unwrap();
        for (begin, old) in &mut earlier {
            for (place, byte) in (*begin..).zip(old) {
                *byte = place.checked_sub(at as usize).and_then(|place| bytes.get(place)).copied().unwrap_or(*byte);
            }
        }
        let later = std::mem::replace(&mut content.unsynced, earlier);
        content.unsynced.extend(later);
        written
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut content = self.0.lock().unwrap();
        if let Err(error) = content.step() {
            content.lose();
            return Err(error);
        }
        content.sync();
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().now.len() as u64)
    }
}
