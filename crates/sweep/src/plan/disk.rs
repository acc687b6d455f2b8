//! A disk as a few numbers, as a data sheet gives them.
//!
//! Rates and seeks of the presets that no cited paper states are typical values, not checked against data sheets.
//!
//! How a head comes from one address to another is told by [`Geometry`](super::Geometry), and in which order a drive
//! serves what it holds by [`DriveQueue`](super::DriveQueue).

use super::SeekCurve;

/// A disk with a head, or one without.
#[derive(Debug, Clone, PartialEq)]
pub struct DiskModel {
    /// Its name, as [`DiskModel::named`] knows it.
    pub name: String,
    /// How many bytes it has. Addresses beyond count as its last.
    pub capacity: u64,
    /// Revolutions per minute; 0 for a disk that doesn't turn.
    pub rpm: f64,
    /// Milliseconds to the next track.
    pub seek_track_ms: f64,
    /// Milliseconds over a third of the stroke.
    pub seek_average_ms: f64,
    /// Milliseconds over the whole stroke.
    pub seek_full_ms: f64,
    /// Bytes per second at address 0.
    pub outer_rate: f64,
    /// Bytes per second at the last address.
    pub inner_rate: f64,
    /// Zones of equal size; the rate falls by equal steps from one to the next.
    pub zones: u32,
    /// Milliseconds that each request takes at least.
    pub overhead_ms: f64,
}

/// (name, GB, rpm, seek to the next track, average, full, outer MB/s, inner MB/s, overhead)
type Preset = (&'static str, u64, f64, f64, f64, f64, f64, f64, f64);

/// Zones of every preset: data sheets don't give them.
const ZONES: u32 = 16;

const PRESETS: [Preset; 6] = [
    // qtar's newer disk, 1 TB. Typical: read seek below 8.5 ms, 0.8 ms to the next track, 105 MB/s outermost. The full
    // stroke and the inner rate are not on it; both are usual for its class.
    ("barracuda-7200.11", 1000, 7200.0, 0.8, 8.5, 18.0, 105.0, 55.0, 0.1),
    // qtar's older disk, 300 GB. Typical: average seek about 9 ms, and rates of its time.
    ("diamondmax-10", 300, 7200.0, 0.8, 9.0, 18.0, 65.0, 36.0, 0.1),
    // DAFT's fast disk, table I: rates, and 5.8 ms access time, from which half a revolution (2 ms) is taken. The other
    // seeks are those of the Cheetah 15K family.
    ("st373455lw", 73, 15000.0, 0.2, 3.8, 7.4, 128.0, 76.0, 0.1),
    // DAFT's slow disk, table I: 19.8 ms access time less half a revolution (4.2 ms). The other seeks are in proportion.
    ("6y160p0", 163, 7200.0, 1.0, 15.6, 30.0, 56.0, 30.0, 0.1),
    // Nearline disks of 20 TB: 285 MB/s outermost; seeks are assumed.
    ("modern-20tb", 20000, 7200.0, 0.5, 8.0, 16.0, 285.0, 130.0, 0.05),
    // A SATA solid-state disk.
    ("ssd", 1000, 0.0, 0.0, 0.0, 0.0, 520.0, 520.0, 0.02),
];

impl Default for DiskModel {
    /// The first of the presets, barracuda-7200.11.
    fn default() -> Self {
        Self::preset(&PRESETS[0])
    }
}

impl DiskModel {
    /// The preset of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        PRESETS.iter().find(|preset| preset.0 == name).map(Self::preset)
    }

    /// The names of the presets, the default first.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|preset| preset.0)
    }

    fn preset(&(name, gigabytes, rpm, track, average, full, outer, inner, overhead_ms): &Preset) -> Self {
        Self {
            name: name.to_owned(),
            capacity: gigabytes * 1_000_000_000,
            rpm,
            seek_track_ms: track,
            seek_average_ms: average,
            seek_full_ms: full,
            outer_rate: outer * 1e6,
            inner_rate: inner * 1e6,
            zones: ZONES,
            overhead_ms,
        }
    }

    /// The same disk with its stroke and its zones stretched over `capacity` bytes: a small device in the place of a
    /// large one.
    #[must_use]
    pub fn with_capacity(self, capacity: u64) -> Self {
        Self { capacity, ..self }
    }

    /// Milliseconds for one revolution.
    #[must_use]
    pub fn revolution_ms(&self) -> f64 {
        if self.rpm > 0.0 { 60_000.0 / self.rpm } else { 0.0 }
    }

    /// Bytes per millisecond in the middle of the disk.
    fn middle_rate(&self) -> f64 {
        f64::midpoint(self.outer_rate, self.inner_rate).max(1.0) / 1000.0
    }

    /// The time of a seek over its distance.
    #[must_use]
    pub fn seek_curve(&self) -> SeekCurve {
        SeekCurve { track_ms: self.seek_track_ms, average_ms: self.seek_average_ms, full_ms: self.seek_full_ms }
    }

    /// Milliseconds for a request of `length` bytes at an unknown place, or after one: an average seek, half a
    /// revolution, and the transfer at the rate in the middle.
    #[must_use]
    pub fn random_ms(&self, length: u64) -> f64 {
        (self.seek_average_ms + self.revolution_ms() / 2.0 + length as f64 / self.middle_rate()).max(self.overhead_ms)
    }

    /// Milliseconds for a request of `length` bytes that begins where the head is, at an unknown place.
    #[must_use]
    pub fn transfer_ms(&self, length: u64) -> f64 {
        (length as f64 / self.middle_rate()).max(self.overhead_ms)
    }

    /// The widest gap that is read through in no more time than it takes to skip it.
    ///
    /// A gap of up to one track passes below the head in any case. A wider one is skipped by a seek to a near track and
    /// half a revolution, which is most often less than a whole revolution; where it is more, the gap may be as wide as
    /// what passes by meanwhile. Without a head, what counts is the request saved. The rate is that in the middle of the
    /// disk. Whoever pays for the bytes that pass, and not for time alone, takes a narrower gap.
    #[must_use]
    pub fn break_even_gap(&self) -> u64 {
        let skip_ms = self.seek_track_ms + self.revolution_ms() / 2.0;
        let worth_ms = self.revolution_ms().max(skip_ms).max(self.overhead_ms);
        (worth_ms * self.middle_rate()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::round;

    #[track_caller]
    fn close(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-9, "{left} is not {right}");
    }

    #[test]
    fn an_unknown_place_costs_an_average_seek() {
        close(round().random_ms(100_000), 9.0 + 5.0 + 1.0);
    }

    #[test]
    fn the_break_even_gap_breaks_even() {
        assert_eq!(round().break_even_gap(), 1_000_000); // a track, 10 ms; a skip would be 6 ms
        let slow = DiskModel { seek_track_ms: 7.0, ..round() };
        assert_eq!(slow.break_even_gap(), 1_200_000); // 7 + 5 = 12 ms
    }

    #[test]
    fn a_disk_without_a_head_has_no_seeks() {
        let disk = DiskModel::named("ssd").unwrap();
        close(disk.random_ms(520_000), 1.0);
        close(disk.random_ms(4096), 0.02);
        assert_eq!(disk.break_even_gap(), 10_400);
    }

    #[test]
    fn presets_are_found_by_name_and_are_sound() {
        assert_eq!(DiskModel::default().name, "barracuda-7200.11");
        assert_eq!(DiskModel::named("floppy"), None);
        for name in DiskModel::names() {
            let disk = DiskModel::named(name).unwrap();
            assert_eq!(disk.name, name);
            assert!(disk.seek_track_ms <= disk.seek_average_ms && disk.seek_average_ms <= disk.seek_full_ms);
            assert!(disk.outer_rate >= disk.inner_rate && disk.inner_rate > 1e6 && disk.capacity > 0);
        }
    }
}
