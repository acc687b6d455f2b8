//! One pass over a device: its index is filled, or compared with what is there.

use std::{io, ops::Range, sync::mpsc, thread};

use super::{DeviceIndex, IndexFile, device::Compared};

/// Bytes that are read at a time.
const CHUNK: usize = 4 << 20;

/// What a pass does with what it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Takes hashes that aren't known for sure.
    Fill,
    /// Compares every hash, and takes the true one where it is another.
    Check,
}

/// What a pass found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Bytes that were read.
    pub bytes: u64,
    /// Blocks that are zeros.
    pub zeros: u64,
    /// Blocks whose hash was not known before.
    pub new: u64,
    /// Blocks that were suspect.
    pub suspect: u64,
    /// Blocks that have another hash than the index had, in bytes of the device; near ones joined.
    pub differ: Vec<Range<u64>>,
    /// Their number.
    pub differing: u64,
    /// Of them called valid.
    pub stale: u64,
    /// Places that can't be read.
    pub unreadable: Vec<(Range<u64>, String)>,
    /// Whether it was ended before its end.
    pub is_cancelled: bool,
}

/// Reads a device from its first byte to its last, once.
///
/// `read` fills a buffer from an address on. `go_on` is told how far it has come, and ends the pass by `false`. What can't be
/// read is told, and stays unknown.
pub fn pass<F: IndexFile>(
    index: &mut DeviceIndex<F>,
    pass: Pass,
    read: &(dyn Fn(&mut [u8], u64) -> io::Result<()> + Sync),
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Passed {
    let mut passed = Passed::default();
    let geometry = index.geometry();
    let ticket = index.begin_read();
    thread::scope(|scope| {
        let places = (0..geometry.device_bytes).step_by(CHUNK);
        let chunk = move |at: u64| {
            let len = (geometry.device_bytes - at).min(CHUNK as u64) as usize;
            let mut chunk = vec![0; len];
            let done = read(&mut chunk, at).is_ok();
            (at, chunk, done)
        };
        // The next bytes are read while those before are hashed; without a thread for that, after.
        let (sender, read_ahead) = mpsc::sync_channel(1);
        let all = places.clone();
        let reader = thread::Builder::new().spawn_scoped(scope, move || {
            let _ = all.map(chunk).try_for_each(|chunk| sender.send(chunk));
        });
        let chunks: Box<dyn Iterator<Item = _>> = match reader {
            Ok(_) => Box::new(read_ahead.into_iter()),
            Err(_) => Box::new(places.map(chunk)),
        };
        for (at, mut chunk, done) in chunks {
            if !go_on(at) {
                passed.is_cancelled = true;
                return;
            }
            if done {
                passed.take(&index.compare(ticket, at, &chunk, pass), at, geometry.block_bytes);
            } else {
                // A part of it may be readable.
                for (piece, block) in (0..).zip(chunk.chunks_mut(geometry.block_bytes as usize)) {
                    let at = at + piece * u64::from(geometry.block_bytes);
                    match read(block, at) {
                        Ok(()) => passed.take(&index.compare(ticket, at, block, pass), at, geometry.block_bytes),
                        Err(error) => passed.fail(at..at + block.len() as u64, &error),
                    }
                }
            }
            passed.bytes += chunk.len() as u64;
        }
    });
    passed
}

impl Passed {
    fn fail(&mut self, range: Range<u64>, error: &io::Error) {
        match self.unreadable.last_mut().filter(|(last, _)| last.end == range.start) {
            Some((last, _)) => last.end = range.end,
            None => self.unreadable.push((range, error.to_string())),
        }
    }

    fn take(&mut self, blocks: &[Compared], at: u64, block_bytes: u32) {
        for (number, block) in (0..).zip(blocks) {
            self.zeros += u64::from(block.is_zero);
            self.new += u64::from(block.was_unknown);
            self.suspect += u64::from(block.was_suspect);
            if block.differs {
                self.differing += 1;
                self.stale += u64::from(!block.was_suspect);
                let begin = at + number * u64::from(block_bytes);
                let end = begin + u64::from(block_bytes);
                match self.differ.last_mut().filter(|range| range.end == begin) {
                    Some(range) => range.end = end,
                    None => self.differ.push(begin..end),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, sync::Mutex};

    use super::*;
    use crate::{
        id::TrustDomain,
        index::{Block, Geometry},
    };

    fn index(geometry: Geometry) -> DeviceIndex<File> {
        DeviceIndex::create(tempfile::tempfile().unwrap(), geometry, &TrustDomain::from_key([1; 32])).unwrap()
    }

    /// A device of three chunks and a bit, of which some blocks can't be read.
    #[test]
    fn what_cannot_be_read_stays_unknown() {
        let bytes: Vec<u8> =
            (0..(3 * CHUNK + 5000) / 4).flat_map(|word: usize| (word as u32 / 1024).to_le_bytes()).collect();
        let bad = [CHUNK as u64 + 8192..CHUNK as u64 + 16384, 2 * CHUNK as u64..2 * CHUNK as u64 + 4096];
        let requests = Mutex::new(Vec::new());
        let read = |buffer: &mut [u8], at: u64| {
            requests.lock().unwrap().push((at, buffer.len()));
            let end = at + buffer.len() as u64;
            if bad.iter().any(|bad| at < bad.end && bad.start < end) {
                return Err(io::Error::other("bad sector"));
            }
            buffer.copy_from_slice(&bytes[at as usize..end as usize]);
            Ok(())
        };
        let geometry = Geometry::new(4096, bytes.len() as u64).unwrap();
        let mut index = index(geometry);
        let passed = pass(&mut index, Pass::Fill, &read, &mut |_| true);
        let unreadable: Vec<_> = passed.unreadable.iter().map(|(range, _)| range.clone()).collect();
        assert_eq!(unreadable, bad);
        assert_eq!((passed.new, passed.zeros), (geometry.blocks() - 3, 1));
        let unknown = (0..geometry.blocks()).filter(|block| index.block(*block) == Block::Unknown).count();
        assert_eq!(unknown, 3);
        let whole = requests.lock().unwrap().iter().filter(|(_, len)| *len > 4096).count();
        assert_eq!(whole, 4, "one sweep");
    }

    #[test]
    fn a_check_puts_the_index_right() {
        let geometry = Geometry::new(4096, 1 << 20).unwrap();
        let mut index = index(geometry);
        let mut bytes = vec![1; 1 << 20];
        let run = |index: &mut DeviceIndex<File>, bytes: &[u8], what| {
            let read = |buffer: &mut [u8], at: u64| {
                buffer.copy_from_slice(&bytes[at as usize..at as usize + buffer.len()]);
                Ok(())
            };
            pass(index, what, &read, &mut |_| true)
        };
        run(&mut index, &bytes, Pass::Fill);
        bytes[5000] = 2;
        bytes[9000] = 2;
        assert_eq!(run(&mut index, &bytes, Pass::Fill).differing, 0, "what is known isn't looked at again");
        let passed = run(&mut index, &bytes, Pass::Check);
        assert_eq!((passed.stale, passed.differ.len()), (2, 1));
        assert_eq!(passed.differ[0], 4096..12288);
        assert_eq!(run(&mut index, &bytes, Pass::Check), Passed { bytes: 1 << 20, ..Passed::default() });
    }

    #[test]
    fn a_pass_ends_when_it_is_told() {
        let mut index = index(Geometry::new(65536, 1 << 30).unwrap());
        let passed = pass(&mut index, Pass::Fill, &|_, _| Ok(()), &mut |at| at < 8 << 20);
        assert!(passed.is_cancelled);
        assert_eq!(passed.bytes, 8 << 20);
    }
}
