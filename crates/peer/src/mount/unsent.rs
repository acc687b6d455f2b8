//! Where something was written that servers may lack: one bit for each region of 1 MiB, kept in a file of its own.
//!
//! A region counts from before its write begins until servers have what was written, whatever comes between: an absent server,
//! a full queue, a kill. While it is marked in the index as being written, that mark is enough; before the index takes its mark
//! away, the region is in this file, durably ([`Unsent::keep`]). What was being written when the last mount was killed is added
//! at the next start ([`Unsent::add`]).

use std::{
    collections::{BTreeSet, HashMap},
    fs::File,
    io,
    ops::RangeInclusive,
    os::unix::fs::FileExt,
    path::Path,
    sync::Mutex,
};

use super::lock;
use crate::index::REGION_BYTES;

const MAGIC: [u8; 24] = *b"onesweep unsent blocks\r\n";
const VERSION: u32 = 1;
/// The bitmap begins here.
const HEADER_BYTES: usize = 512;

/// The regions of a device in which something was written that servers may lack.
#[derive(Debug, Default)]
pub struct Unsent {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How many parts of each are being written or sent.
    on_the_way: HashMap<u64, u32>,
    /// To be read from the disk and sent.
    lost: BTreeSet<u64>,
    file: Option<Kept>,
}

#[derive(Debug)]
struct Kept {
    file: File,
    bitmap: Vec<u8>,
}

impl Unsent {
    /// Of a device of so many bytes, in this file, which is made where there is none. One that is damaged says that all is unsent:
    /// servers are then asked about each block.
    pub fn open(path: &Path, device_bytes: u64) -> io::Result<Self> {
        let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        let regions = device_bytes.div_ceil(REGION_BYTES);
        let len = regions.div_ceil(8) as usize;
        let mut bytes = vec![0; HEADER_BYTES + len];
        let is_new = file.metadata()?.len() == 0;
        let is_whole = file.read_exact_at(&mut bytes, 0).is_ok() && bytes[..HEADER_BYTES] == header(device_bytes);
        let bitmap = bytes.split_off(HEADER_BYTES);
        let lost = match (is_new, is_whole) {
            (true, _) => BTreeSet::new(),
            (false, true) => (0..regions).filter(|region| is_set(&bitmap, *region)).collect(),
            (false, false) => (0..regions).collect(),
        };
        if !is_whole {
            file.set_len(0)?;
            file.write_all_at(&bitmap_of(lost.iter().copied(), len), HEADER_BYTES as u64)?;
            file.sync_all()?;
            // What is cut off before this is damaged, and says that all is unsent.
            file.write_all_at(&header(device_bytes), 0)?;
            file.sync_all()?;
        }
        let bitmap = bitmap_of(lost.iter().copied(), len);
        let state = State { lost, file: Some(Kept { file, bitmap }), on_the_way: HashMap::new() };
        Ok(Self { state: Mutex::new(state) })
    }

    /// What of these regions servers have isn't known.
    pub fn add(&self, regions: impl IntoIterator<Item = u64>) {
        lock(&self.state).lost.extend(regions);
    }

    /// Makes durable which regions are unsent by now.
    pub fn keep(&self) -> io::Result<()> {
        let mut state = lock(&self.state);
        let State { on_the_way, lost, file } = &mut *state;
        let Some(Kept { file, bitmap }) = file else { return Ok(()) };
        let now = bitmap_of(on_the_way.keys().chain(lost.iter()).copied(), bitmap.len());
        if now == *bitmap {
            return Ok(());
        }
        file.write_all_at(&now, HEADER_BYTES as u64)?;
        file.sync_data()?;
        *bitmap = now;
        Ok(())
    }

    /// Bytes are about to be written.
    pub(super) fn begin(&self, regions: RangeInclusive<u64>) {
        let mut state = lock(&self.state);
        regions.for_each(|region| *state.on_the_way.entry(region).or_default() += 1);
    }

    /// They are there, or were not written.
    pub(super) fn sent(&self, regions: RangeInclusive<u64>) {
        lock(&self.state).end(regions);
    }

    /// Nobody knows whether they are; they will be read from the disk.
    pub(super) fn lost(&self, regions: RangeInclusive<u64>) {
        let mut state = lock(&self.state);
        state.lost.extend(regions.clone());
        state.end(regions);
    }

    /// A region that is to be read from the disk and sent now.
    pub(super) fn take(&self) -> Option<u64> {
        let mut state = lock(&self.state);
        let region = state.lost.pop_first()?;
        *state.on_the_way.entry(region).or_default() += 1;
        Some(region)
    }

    /// How many are unsent.
    pub(super) fn count(&self) -> u64 {
        let state = lock(&self.state);
        let both = state.lost.iter().filter(|region| state.on_the_way.contains_key(region)).count();
        (state.lost.len() + state.on_the_way.len() - both) as u64
    }
}

impl State {
    fn end(&mut self, regions: RangeInclusive<u64>) {
        for region in regions {
            if let Some(count) = self.on_the_way.get_mut(&region) {
                *count -= 1;
                if *count == 0 {
                    self.on_the_way.remove(&region);
                }
            }
        }
    }
}

fn header(device_bytes: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..24].copy_from_slice(&MAGIC);
    header[24..28].copy_from_slice(&VERSION.to_le_bytes());
    header[32..40].copy_from_slice(&device_bytes.to_le_bytes());
    header
}

fn is_set(bitmap: &[u8], region: u64) -> bool {
    bitmap.get((region / 8) as usize).is_some_and(|eight| eight >> (region % 8) & 1 == 1)
}

fn bitmap_of(regions: impl IntoIterator<Item = u64>, len: usize) -> Vec<u8> {
    let mut bitmap = vec![0; len];
    for region in regions {
        if let Some(eight) = bitmap.get_mut((region / 8) as usize) {
            *eight |= 1 << (region % 8);
        }
    }
    bitmap
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE_BYTES: u64 = 20 * REGION_BYTES + 5;

    fn opened(path: &Path) -> Unsent {
        Unsent::open(path, DEVICE_BYTES).unwrap()
    }

    fn taken(unsent: &Unsent) -> Vec<u64> {
        std::iter::from_fn(|| unsent.take()).collect()
    }

    #[test]
    fn what_was_not_sent_is_known_after_a_kill() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("unsent");
        let unsent = opened(&path);
        unsent.begin(3..=4);
        unsent.begin(4..=4);
        unsent.begin(9..=9);
        unsent.begin(20..=20);
        unsent.sent(4..=4);
        unsent.lost(9..=9);
        unsent.sent(20..=20);
        assert_eq!(unsent.count(), 3);
        unsent.keep().unwrap();
        unsent.sent(3..=4);
        // Not kept yet: what is there twice does no harm.
        drop(unsent);
        let unsent = opened(&path);
        assert_eq!(taken(&unsent), [3, 4, 9]);
        // While they are being sent they are unsent.
        assert_eq!(unsent.count(), 3);
        unsent.sent(3..=3);
        unsent.lost(4..=4);
        unsent.sent(9..=9);
        unsent.add([11]);
        unsent.keep().unwrap();
        drop(unsent);
        assert_eq!(taken(&opened(&path)), [4, 11]);
    }

    #[test]
    fn a_write_during_the_sending_of_its_region_is_sent_as_well() {
        let unsent = Unsent::default();
        unsent.add([2]);
        assert_eq!(unsent.take(), Some(2));
        unsent.begin(2..=2);
        unsent.sent(2..=2);
        assert_eq!(unsent.count(), 1);
        unsent.lost(2..=2);
        assert_eq!((unsent.take(), unsent.count()), (Some(2), 1));
    }

    #[test]
    fn a_damaged_file_or_one_of_another_device_says_that_all_is_unsent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("unsent");
        drop(opened(&path));
        assert!(taken(&opened(&path)).is_empty());
        let whole = std::fs::read(&path).unwrap();
        let mut changed = whole.clone();
        changed[7] ^= 1;
        for damaged in [&whole[..whole.len() - 1], &whole[..100], &changed] {
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(taken(&opened(&path)).len(), 21);
            std::fs::write(&path, &whole).unwrap();
        }
        assert_eq!(taken(&Unsent::open(&path, 2 * REGION_BYTES).unwrap()), [0, 1]);
    }
}
