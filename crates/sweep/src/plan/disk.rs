//! A disk as a few numbers, as a data sheet gives them.
//!
//! Rates and seeks of the presets that no cited paper states are typical values, not checked against data sheets.
//!
//! # Positioning
//!
//! A request that begins where the former ended costs its transfer alone. Any other costs a seek and, on average, half a
//! revolution, with one exception: on a forward skip of at most one track the head just waits while the gap passes
//! below it, which takes as long as reading it.
//!
//! The seek follows the usual curve, [`SeekCurve`].
//!
//! # Transfer
//!
//! The rate falls linearly with the address, from the outer edge to the inner. Command overhead runs beside the
//! mechanics, since an engine keeps several requests in flight; it only bounds how many a second can be served.

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
    /// Milliseconds that each request takes at least.
    pub overhead_ms: f64,
}

/// (name, GB, rpm, seek to the next track, average, full, outer MB/s, inner MB/s, overhead)
type Preset = (&'static str, u64, f64, f64, f64, f64, f64, f64, f64);

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

    /// Where an address lies between the outer edge, 0, and the inner, 1.
    fn place(&self, address: u64) -> f64 {
        (address as f64 / self.capacity.max(1) as f64).min(1.0)
    }

    /// Bytes per millisecond at a place between 0 and 1.
    fn rate_at(&self, place: f64) -> f64 {
        let rate = self.outer_rate + (self.inner_rate - self.outer_rate) * place;
        rate.max(1.0) / 1000.0
    }

    /// The time of a seek over its distance.
    #[must_use]
    pub fn seek_curve(&self) -> SeekCurve {
        SeekCurve { track_ms: self.seek_track_ms, average_ms: self.seek_average_ms, full_ms: self.seek_full_ms }
    }

    /// Milliseconds to move the head over that many bytes of addresses.
    #[must_use]
    pub fn seek_ms(&self, distance: u64) -> f64 {
        self.seek_curve().ms(self.place(distance))
    }

    /// Milliseconds to read `length` bytes from `address` on, once the head is there.
    #[must_use]
    pub fn transfer_ms(&self, address: u64, length: u64) -> f64 {
        // The rate is linear, so the rate in the middle is close to the mean one.
        length as f64 / self.rate_at(self.place(address.saturating_add(length / 2)))
    }

    /// Milliseconds from the end of a request at `former_end` until the head is above `address`.
    #[must_use]
    pub fn position_ms(&self, former_end: u64, address: u64) -> f64 {
        let passing = address.checked_sub(former_end).map(|gap| self.transfer_ms(former_end, gap));
        match passing {
            Some(passing) if passing <= self.revolution_ms() => passing,
            _ => self.seek_ms(former_end.abs_diff(address)) + self.revolution_ms() / 2.0,
        }
    }

    /// Milliseconds for a request of `length` bytes at `address`, after one that ended at `former_end`.
    #[must_use]
    pub fn service_ms(&self, former_end: u64, address: u64, length: u64) -> f64 {
        (self.position_ms(former_end, address) + self.transfer_ms(address, length)).max(self.overhead_ms)
    }

    /// Milliseconds for a request of `length` bytes at an unknown place, or after one: an average seek, half a
    /// revolution, and the transfer at the rate in the middle.
    #[must_use]
    pub fn random_ms(&self, length: u64) -> f64 {
        let transfer = length as f64 / self.rate_at(0.5);
        (self.seek_average_ms + self.revolution_ms() / 2.0 + transfer).max(self.overhead_ms)
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
        (worth_ms * self.rate_at(0.5)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 6000 rpm: 10 ms for a revolution. 100 MB/s everywhere: 100,000 bytes a millisecond, a megabyte on a track.
    fn round() -> DiskModel {
        DiskModel {
            name: "round".into(),
            capacity: 1_200_000_000,
            rpm: 6000.0,
            seek_track_ms: 1.0,
            seek_average_ms: 9.0,
            seek_full_ms: 19.0,
            outer_rate: 100e6,
            inner_rate: 100e6,
            overhead_ms: 0.1,
        }
    }

    #[track_caller]
    fn close(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-9, "{left} is not {right}");
    }

    #[test]
    fn the_way_of_a_seek_is_its_part_of_the_addresses() {
        let disk = round();
        close(disk.seek_ms(0), 0.0);
        close(disk.seek_ms(100_000_000), 1.0 + 8.0 * 0.5); // a twelfth of the stroke: sqrt(3/12) = 1/2
        close(disk.seek_ms(400_000_000), 9.0); // a third
        close(disk.seek_ms(1_200_000_000), 19.0);
        close(disk.seek_ms(u64::MAX), 19.0);
        assert!((disk.seek_ms(1) - 1.0).abs() < 0.001);
    }

    #[test]
    fn a_request_behind_the_former_costs_its_transfer() {
        close(round().service_ms(5_000_000, 5_000_000, 1_000_000), 10.0);
    }

    #[test]
    fn a_short_skip_costs_the_gap_and_a_long_one_a_seek_with_half_a_revolution() {
        let disk = round();
        close(disk.service_ms(0, 500_000, 100_000), 5.0 + 1.0);
        close(disk.service_ms(0, 1_000_000, 100_000), 10.0 + 1.0); // a whole track
        close(disk.service_ms(0, 100_000_000, 100_000), 5.0 + 5.0 + 1.0);
        close(disk.service_ms(100_000_000, 0, 100_000), 5.0 + 5.0 + 1.0);
        let back = disk.seek_ms(1) + 5.0; // there is no short skip backwards
        close(disk.service_ms(1, 0, 100_000), back + 1.0);
    }

    #[test]
    fn overhead_is_a_lower_bound() {
        close(round().service_ms(0, 0, 1000), 0.1);
        close(round().service_ms(0, 0, 20_000), 0.2);
    }

    #[test]
    fn zones_are_linear_by_address() {
        let disk = DiskModel { inner_rate: 50e6, ..round() };
        close(disk.transfer_ms(0, 2), 2.0 / (100_000.0 - 50_000.0 / 1.2e9));
        close(disk.transfer_ms(1_200_000_000, 100_000), 2.0);
        close(disk.transfer_ms(599_950_000, 100_000), 100_000.0 / 75_000.0);
    }

    #[test]
    fn an_unknown_place_costs_an_average_seek() {
        close(round().random_ms(100_000), 9.0 + 5.0 + 1.0);
    }

    /// At the break-even gap reading through takes no longer than skipping; a little beyond, it does.
    #[test]
    fn the_break_even_gap_breaks_even() {
        assert_eq!(round().break_even_gap(), 1_000_000); // a track, 10 ms; a skip would be 6 ms
        let slow = DiskModel { seek_track_ms: 7.0, ..round() };
        assert_eq!(slow.break_even_gap(), 1_200_000); // 7 + 5 = 12 ms
        for disk in DiskModel::names().filter_map(DiskModel::named).filter(|disk| disk.rpm > 0.0) {
            let middle = disk.capacity / 2;
            let gap = disk.break_even_gap();
            let through = |gap| disk.transfer_ms(middle, gap);
            assert!(through(gap - 4096) <= disk.position_ms(middle, middle + gap - 4096) + 1e-9, "{}", disk.name);
            assert!(through(gap + 4096) > disk.position_ms(middle, middle + gap + 4096), "{}", disk.name);
        }
    }

    #[test]
    fn a_disk_without_a_head_has_no_seeks() {
        let disk = DiskModel::named("ssd").unwrap();
        close(disk.service_ms(1 << 30, 0, 520_000), 1.0);
        close(disk.service_ms(0, 1 << 30, 4096), 0.02);
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
