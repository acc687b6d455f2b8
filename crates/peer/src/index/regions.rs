//! Which regions of 1 MiB are being written, and whether their bytes are durable.
//!
//! A region has its bit while it is being written, and some have it ahead of that: making one bit durable costs as much as making
//! many, so writes that go here and there have more and more neighbours marked with them. A bit that was not needed costs
//! nothing but after a crash: then nothing is known of its blocks, where it would only be suspect.

use std::{collections::HashMap, ops::RangeInclusive};

use super::header::{BYTES as SECTOR, Geometry, REGION_BYTES};

/// A moment in the order of writes, flushes and reads.
pub(super) type Moment = u64;

/// How many times as many regions each mark has as the one before.
const REACH_GROWS: u64 = 64;
/// Regions that are marked at once, at most: 256 GiB, for which 32 KiB are written.
pub(super) const REACH_MOST: u64 = 1 << 18;

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
    /// When the last write ended of those that were tidied up.
    tidied: Moment,
    bitmap: Vec<u8>,
    count: u64,
    /// The next mark is of so many regions.
    reach: u64,
    reach_most: u64,
}

impl Regions {
    pub(super) fn new(geometry: &Geometry, bitmap: Vec<u8>) -> Regions {
        debug_assert_eq!(bitmap.len() as u64, geometry.regions().div_ceil(8));
        let (active, count) = (HashMap::new(), geometry.regions());
        Regions { now: 1, active, tidied: 0, bitmap, count, reach: 1, reach_most: REACH_MOST }
    }

    /// No mark is of more regions from then on.
    pub(super) fn reach_at_most(&mut self, regions: u64) {
        self.reach_most = regions.clamp(1, REACH_MOST);
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

    /// Marks regions that are about to be written, and others around them. What of the bitmap is to be made durable for that:
    /// nothing where all have their bit.
    pub(super) fn mark(&mut self, regions: &RangeInclusive<u64>) -> Option<RangeInclusive<u64>> {
        if regions.clone().all(|region| self.is_set(region)) {
            return None;
        }
        let reach = self.reach.min(self.reach_most);
        let first = regions.start() / reach * reach;
        let end = ((regions.end() / reach + 1) * reach).min(self.count.max(regions.end() + 1));
        (first..end).for_each(|region| self.set(region, true));
        self.reach = (reach * REACH_GROWS).min(REACH_MOST);
        Some(first..=end - 1)
    }

    pub(super) fn has_bits(&self) -> bool {
        self.bitmap.iter().any(|eight| *eight != 0)
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

    /// Whether nothing was written in a region since that moment, nor is now. Of one that was tidied up it counts as written when any
    /// other of them was.
    pub(super) fn is_unchanged_since(&self, region: u64, moment: Moment) -> bool {
        match self.active.get(&region) {
            Some(activity) => activity.writers == 0 && activity.ended < moment,
            None => self.tidied < moment,
        }
    }

    /// Whether all that was written in a region is durable.
    pub(super) fn is_durable(&self, region: u64) -> bool {
        self.active.get(&region).is_none_or(Activity::is_durable)
    }

    /// A flush that began at that moment has ended.
    pub(super) fn flushed(&mut self, began: Moment) {
        self.active.values_mut().for_each(|activity| activity.flushed = activity.flushed.max(began));
    }

    /// Regions that were written, in which all is durable and nobody writes.
    pub(super) fn quiet(&self) -> Vec<u64> {
        let quiet = self.active.iter().filter(|(_, activity)| activity.is_durable());
        let mut quiet: Vec<u64> = quiet.map(|(region, _)| *region).collect();
        quiet.sort_unstable();
        quiet
    }

    /// Takes away the bits of these, and of all that were never written. Which part of the bitmap is another now.
    pub(super) fn forget(&mut self, quiet: &[u64]) -> Option<RangeInclusive<u64>> {
        let ended = quiet.iter().filter_map(|region| self.active.remove(region)).map(|activity| activity.ended);
        self.tidied = ended.fold(self.tidied, Moment::max);
        self.reach = 1;
        let mut bitmap = vec![0; self.bitmap.len()];
        std::mem::swap(&mut self.bitmap, &mut bitmap);
        let active: Vec<u64> = self.active.keys().copied().collect();
        active.into_iter().for_each(|region| self.set(region, true));
        let mut differ = (0..).zip(bitmap.iter().zip(&self.bitmap)).filter(|(_, (old, new))| old != new);
        let first: u64 = differ.next()?.0;
        let last = differ.last().map_or(first, |(last, _)| last);
        Some(first * 8..=last * 8 + 7)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn regions(count: u64) -> Regions {
        let geometry = Geometry::new(4096, count * REGION_BYTES).unwrap();
        Regions::new(&geometry, vec![0; count.div_ceil(8) as usize])
    }

    #[test]
    fn marks_reach_farther_each_time_and_never_past_the_end() {
        let mut all = regions(1_000_003);
        assert_eq!(all.mark(&(70..=70)), Some(70..=70));
        assert_eq!(all.mark(&(70..=71)), Some(64..=127));
        assert_eq!((all.mark(&(64..=65)), all.is_set(63), all.is_set(128)), (None, false, false));
        assert_eq!(all.mark(&(4095..=4096)), Some(0..=8191));
        assert_eq!(all.mark(&(300_000..=300_000)), Some(1 << 18..=(2 << 18) - 1));
        assert_eq!(all.mark(&(1_000_002..=1_000_002)), Some(3 << 18..=1_000_002));
        assert!((0..8192).chain(1 << 18..2 << 18).chain(3 << 18..1_000_003).all(|region| all.is_set(region)));
        assert!((8192..1 << 18).all(|region| !all.is_set(region)));
    }

    #[test]
    fn a_bound_keeps_marks_small() {
        let mut all = regions(10_000);
        all.reach_at_most(64);
        let marks = (0..100).filter(|mark| all.mark(&(mark * 100..=mark * 100)).is_some());
        assert_eq!(marks.count(), 100);
        assert!((0..10_000).filter(|region| all.is_set(*region)).count() <= 6400);
    }

    #[test]
    fn bits_stay_with_what_is_written_and_go_with_the_rest() {
        let mut all = regions(10_000);
        assert_eq!(all.forget(&[]), None);
        all.mark(&(5..=5));
        let first = all.begin_write(5..=5);
        all.mark(&(200..=200));
        let second = all.begin_write(200..=200);
        all.end_write(200..=200, second);
        assert_eq!(all.quiet(), [0; 0], "nothing is durable yet");
        let flush = all.tick();
        all.flushed(flush);
        assert_eq!(all.quiet(), [200]);
        assert_eq!(all.forget(&[200]), Some(192..=255));
        assert!(all.is_set(5) && (6..10_000).all(|region| !all.is_set(region)));
        assert_eq!(all.mark(&(5..=6)), Some(5..=6), "it begins small again");
        all.end_write(5..=5, first);
    }
}
