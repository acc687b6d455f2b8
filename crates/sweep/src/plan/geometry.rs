//! Zones, and where on its track an address lies.
//!
//! An image stands for a span of the disk and is stretched over it: seeks are those of the span, while the rates, and
//! with them the bytes on a track, stay those of the drive. Tracks are skewed so that reading on never waits, hence an
//! address's place on its track is simply the time at which a head that reads from the image's first byte passes it,
//! modulo one revolution.

use super::{DiskModel, SeekCurve};

/// The part of a disk that an image covers, from 0, the outer edge, to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// Where it begins.
    pub from: f64,
    /// Where it ends.
    pub to: f64,
}

impl Span {
    /// All of the disk.
    pub const WHOLE: Self = Self { from: 0.0, to: 1.0 };
}

/// A run of addresses with one rate.
#[derive(Debug, Clone)]
struct Zone {
    start: u64,
    end: u64,
    bytes_per_ms: f64,
    /// Milliseconds of reading from address 0 to `start`.
    start_ms: f64,
}

/// The mechanics of one image on one disk.
#[derive(Debug, Clone)]
pub struct Geometry {
    zones: Vec<Zone>,
    seek: SeekCurve,
    revolution_ms: f64,
    /// Stroke per byte.
    way_per_byte: f64,
    len: u64,
}

/// An address with what its zone says of it, for who asks often.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    address: u64,
    /// Milliseconds of reading from address 0 up to it.
    stream_ms: f64,
}

/// How a head comes to an address.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Positioning {
    /// Moving the arm.
    pub seek_ms: f64,
    /// Waiting for the turn of the disk.
    pub rotation_ms: f64,
}

impl Positioning {
    /// Both.
    #[must_use]
    pub fn ms(self) -> f64 {
        self.seek_ms + self.rotation_ms
    }
}

impl Geometry {
    /// An image of `len` bytes on that span of the disk.
    #[must_use]
    pub fn new(model: &DiskModel, len: u64, span: Span) -> Self {
        let len = len.max(1);
        let count = model.zones.max(1);
        let zones_of_disk = f64::from(count);
        let address = |place: f64| (((place - span.from) / (span.to - span.from)).clamp(0.0, 1.0) * len as f64) as u64;
        let steps = (zones_of_disk - 1.0).max(1.0);
        let mut zones: Vec<Zone> = Vec::new();
        let mut start_ms = 0.0;
        for zone in 0..count {
            let zone = f64::from(zone);
            let last = zone + 1.0 == zones_of_disk;
            let start = zones.last().map_or(0, |zone| zone.end);
            let end = if last { len } else { address((zone + 1.0) / zones_of_disk) };
            if end <= start {
                continue;
            }
            let rate = model.outer_rate + (model.inner_rate - model.outer_rate) * zone / steps;
            let bytes_per_ms = rate / 1000.0;
            zones.push(Zone { start, end, bytes_per_ms, start_ms });
            start_ms += (end - start) as f64 / bytes_per_ms;
        }
        Self {
            zones,
            seek: model.seek_curve(),
            revolution_ms: model.revolution_ms(),
            way_per_byte: (span.to - span.from) / len as f64,
            len,
        }
    }

    fn zone(&self, address: u64) -> &Zone {
        let next = self.zones.partition_point(|zone| zone.start <= address);
        &self.zones[next.saturating_sub(1)]
    }

    /// Milliseconds of reading from address 0 up to `address`.
    fn stream_ms(&self, address: u64) -> f64 {
        let zone = self.zone(address.min(self.len));
        zone.start_ms + address.min(self.len).saturating_sub(zone.start) as f64 / zone.bytes_per_ms
    }

    /// Milliseconds to read from `from` up to `to`, once the head is there.
    #[must_use]
    pub fn transfer_ms(&self, from: u64, to: u64) -> f64 {
        (self.stream_ms(to) - self.stream_ms(from)).max(0.0)
    }

    /// How far a head comes that reads on from `from` for that long.
    #[must_use]
    pub fn reach(&self, from: u64, ms: f64) -> u64 {
        let until = self.stream_ms(from) + ms;
        let next = self.zones.partition_point(|zone| zone.start_ms <= until);
        let zone = &self.zones[next.saturating_sub(1)];
        let reached = zone.start + ((until - zone.start_ms) * zone.bytes_per_ms) as u64;
        reached.clamp(from, self.len)
    }

    /// From a head that stood above `head` `idle_ms` ago to the moment at which `target` passes below it.
    ///
    /// What is still to come on the way is waited for without a seek, up to one track; for anything else the arm moves,
    /// and then waits for the turn of the disk.
    #[must_use]
    pub fn position(&self, head: u64, idle_ms: f64, target: u64) -> Positioning {
        self.position_at(self.place(head), idle_ms, self.place(target))
    }

    /// The place of an address.
    #[must_use]
    pub fn place(&self, address: u64) -> Place {
        Place { address, stream_ms: self.stream_ms(address) }
    }

    /// The same as [`Geometry::position`], for places.
    #[must_use]
    pub fn position_at(&self, head: Place, idle_ms: f64, target: Place) -> Positioning {
        if head.address == target.address || self.revolution_ms == 0.0 {
            return Positioning::default();
        }
        let ahead_ms = target.stream_ms - head.stream_ms - idle_ms;
        let seek_ms = self.seek.ms(head.address.abs_diff(target.address) as f64 * self.way_per_byte);
        let is_ahead = target.address > head.address;
        if (0.0..=self.revolution_ms).contains(&ahead_ms) && is_ahead && ahead_ms <= seek_ms {
            return Positioning { seek_ms: 0.0, rotation_ms: ahead_ms };
        }
        Positioning { seek_ms, rotation_ms: (ahead_ms - seek_ms).rem_euclid(self.revolution_ms) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tests::round;

    #[track_caller]
    fn close(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-6, "{left} is not {right}");
    }

    #[test]
    fn a_short_skip_waits_for_its_place_and_a_long_one_seeks() {
        let disk = Geometry::new(&round(), 1_200_000_000, Span::WHOLE);
        close(disk.position(0, 0.0, 50_000).ms(), 0.5); // half a millisecond of gap, before the arm could move
        // A twelfth of the stroke and a quarter of a track: 5 ms of seek, 2.5 ms come from angle, one turn more.
        let far = disk.position(0, 0.0, 100_250_000);
        close(far.seek_ms, 1.0 + 8.0 * (3.0_f64 * 100_250_000.0 / 1.2e9).sqrt());
        close(far.ms(), 12.5);
        // The same place after 2 ms of thought is reached 2 ms sooner, counted from now.
        close(disk.position(0, 2.0, 100_250_000).ms(), 10.5);
        // A place just missed comes by again a turn later.
        close(disk.position(0, 1.0, 50_000).ms(), 10.0 - 0.5);
        close(disk.position(50_000, 0.0, 0).ms(), 10.0 - 0.5);
    }

    #[test]
    fn reading_on_costs_nothing_even_after_thinking() {
        let disk = Geometry::new(&round(), 1_200_000_000, Span::WHOLE);
        assert_eq!(disk.position(4096, 3.0, 4096), Positioning::default());
    }

    #[test]
    fn zones_fall_by_equal_steps_and_a_span_takes_its_own() {
        let model = DiskModel { inner_rate: 40e6, zones: 4, ..round() };
        let disk = Geometry::new(&model, 4_000_000, Span::WHOLE);
        close(disk.transfer_ms(0, 1_000_000), 10.0); // 100, 80, 60, 40 MB/s
        close(disk.transfer_ms(500_000, 1_500_000), 5.0 + 6.25);
        close(disk.transfer_ms(3_000_000, 4_000_000), 25.0);
        assert_eq!(disk.reach(500_000, 11.25), 1_500_000);
        assert_eq!(disk.reach(3_999_999, 11.25), 4_000_000);
        let inner = Geometry::new(&model, 4_000_000, Span { from: 0.5, to: 1.0 });
        close(inner.transfer_ms(0, 2_000_000), 2_000_000.0 / 60_000.0);
        // Half the stroke is the longest way there: seek(1/2) = 9 + 10 * (1/6) * 1.5.
        close(inner.position(0, 0.0, 4_000_000).seek_ms, 11.5);
    }

    #[test]
    fn without_a_head_there_is_nothing_to_wait_for() {
        let disk = Geometry::new(&DiskModel::named("ssd").unwrap(), 1 << 30, Span::WHOLE);
        assert_eq!(disk.position(0, 5.0, 1 << 29), Positioning::default());
        close(disk.transfer_ms(0, 520_000), 1.0);
    }
}
