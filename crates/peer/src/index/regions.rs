//! Which regions of 1 MiB are being written, and whether their bytes are durable.

use std::{collections::HashMap, ops::RangeInclusive};

use super::header::{BYTES as SECTOR, Geometry, REGION_BYTES};

/// A moment in the order of writes, flushes and reads.
pub(super) type Moment = u64;

#[derive(Clone, Copy, Debug, Default)]
struct Activity {
    writers: u32,
    /// When the last write began.
    began: Moment,
    /// When the last write ended.
    ended: Moment,
    /// When the last flush that came to its end began.
    flushed: Moment,
}

impl Activity {
    fn is_durable(&self) -> bool {
        self.writers == 0 && self.flushed > self.ended
    }
}

/// The regions of a device.
#[derive(Debug)]
pub(super) struct Regions {
    now: Moment,
    /// Those that were written and not tidied up since. Each has its bit set, on the disk as well.
    active: HashMap<u64, Activity>,
    bitmap: Vec<u8>,
}

impl Regions {
    pub(super) fn new(geometry: &Geometry, bitmap: Vec<u8>) -> Regions {
        debug_assert_eq!(bitmap.len() as u64, geometry.regions().div_ceil(8));
        Regions { now: 1, active: HashMap::new(), bitmap }
    }

    pub(super) fn of(at: u64, len: u64) -> RangeInclusive<u64> {
        at / REGION_BYTES..=at.saturating_add(len.max(1) - 1) / REGION_BYTES
    }

    pub(super) fn tick(&mut self) -> Moment {
        self.now += 1;
        self.now
    }

    pub(super) fn is_set(&self, region: u64) -> bool {
        self.bitmap.get((region / 8) as usize).is_some_and(|eight| eight >> (region % 8) & 1 == 1)
    }

    pub(super) fn set(&mut self, region: u64, on: bool) {
        if let Some(eight) = self.bitmap.get_mut((region / 8) as usize) {
            let bit = 1 << (region % 8);
            *eight = if on { *eight | bit } else { *eight & !bit };
        }
    }

    pub(super) fn bitmap(&self) -> &[u8] {
        &self.bitmap
    }

    /// The part of the bitmap in whose sectors these regions are: where it begins, and its bytes.
    pub(super) fn sectors(&self, regions: &RangeInclusive<u64>) -> (u64, &[u8]) {
        let sector = SECTOR as u64;
        let first = regions.start() / 8 / sector * sector;
        let end = (regions.end() / 8 + 1).next_multiple_of(sector).min(self.bitmap.len() as u64);
        (first, self.bitmap.get(first as usize..end as usize).unwrap_or_default())
    }

    pub(super) fn begin_write(&mut self, regions: RangeInclusive<u64>) -> Moment {
        let now = self.tick();
        for region in regions {
            let activity = self.active.entry(region).or_default();
            activity.writers += 1;
            activity.began = now;
        }
        now
    }

    /// Ends a write, and tells whether no other overlapped it.
    pub(super) fn end_write(&mut self, regions: RangeInclusive<u64>, began: Moment) -> bool {
        let now = self.tick();
        let mut alone = true;
        for region in regions {
            let activity = self.active.entry(region).or_default();
            // Another that began before and ended meanwhile may have written after this one, too.
            alone &= activity.writers == 1 && activity.began == began && activity.ended < began;
            activity.writers = activity.writers.saturating_sub(1);
            activity.ended = now;
        }
        alone
    }

    /// Whether nothing was written in a region since that moment, nor is now.
    pub(super) fn is_unchanged_since(&self, region: u64, moment: Moment) -> bool {
        self.active.get(&region).is_none_or(|activity| activity.writers == 0 && activity.ended < moment)
    }

    /// Whether all that was written in a region is durable.
    pub(super) fn is_durable(&self, region: u64) -> bool {
        self.active.get(&region).is_none_or(Activity::is_durable)
    }

    /// A flush that began at that moment has ended.
    pub(super) fn flushed(&mut self, began: Moment) {
        self.active.values_mut().for_each(|activity| activity.flushed = activity.flushed.max(began));
    }

    /// Regions in which all is durable and nobody writes.
    pub(super) fn quiet(&self) -> Vec<u64> {
        let quiet = self.active.iter().filter(|(_, activity)| activity.is_durable());
        let mut quiet: Vec<u64> = quiet.map(|(region, _)| *region).collect();
        quiet.sort_unstable();
        quiet
    }

    pub(super) fn forget(&mut self, region: u64) {
        self.active.remove(&region);
        self.set(region, false);
    }
}
