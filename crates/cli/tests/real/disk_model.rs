//! A disk with one head, in modelled milliseconds: what a list of requests would cost on a disk that seeks.
//!
//! The figures are those of a Seagate Barracuda 7200.11: 7200 revolutions a minute, 0.8 ms from track to track, 8.5 ms
//! on average, 105 MB/s on the outermost tracks and 55 MB/s on the innermost. Three simplifications:
//!
//! - The image is the whole disk: its first byte lies on the outermost track, its last on the innermost. A file system
//!   that fills a real disk has as long ways to go.
//! - The tracks are one spiral, so that reading on and on never waits (real disks skew their tracks for that).
//! - Requests are served one after the other in the order of issue, with no cache and no queue in the disk. A reader that
//!   sorts its requests itself gains nothing from a queue; one that doesn't rarely has two requests in flight.
//!
//! A seek takes `0.8 + b·√d` ms for the part `d` of the full stroke. Over random pairs of places √d is 8/15 on average, so
//! `b` follows from the average seek. When the head has arrived it waits until the first byte comes round; the angle is
//! kept from request to request, so short ways forward cost just the turn of the platter.

use crate::trace::Request;

const TURN_MS: f64 = 60_000.0 / 7200.0;
const TRACK_TO_TRACK_MS: f64 = 0.8;
const AVERAGE_SEEK_MS: f64 = 8.5;
const OUTER_BYTES_PER_MS: f64 = 105_000.0;
const INNER_BYTES_PER_MS: f64 = 55_000.0;

/// A disk of a given size.
pub(crate) struct Disk {
    bytes: f64,
    tracks: f64,
}

/// Where the modelled time of a list of requests went, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Cost {
    pub(crate) requests: u64,
    pub(crate) seek_ms: f64,
    pub(crate) turn_ms: f64,
    pub(crate) transfer_ms: f64,
}

impl Cost {
    pub(crate) fn total_ms(&self) -> f64 {
        self.seek_ms + self.turn_ms + self.transfer_ms
    }
}

impl Disk {
    pub(crate) fn of(bytes: u64) -> Self {
        let mut disk = Self { bytes: bytes as f64, tracks: 0.0 };
        disk.tracks = disk.track(bytes);
        disk
    }

    /// The track of a byte, counted from the outermost, with its angle as the fraction: the turns that reading from the
    /// first byte to this one takes. The speed falls evenly from `OUTER` to `INNER` over the bytes, and the integral of
    /// its reciprocal is a logarithm.
    fn track(&self, byte: u64) -> f64 {
        let slope = (OUTER_BYTES_PER_MS - INNER_BYTES_PER_MS) / self.bytes;
        let speed = OUTER_BYTES_PER_MS - slope * byte as f64;
        (OUTER_BYTES_PER_MS / speed).ln() / slope / TURN_MS
    }

    fn seek_ms(&self, tracks: f64) -> f64 {
        if tracks < 1.0 {
            return 0.0;
        }
        let b = (AVERAGE_SEEK_MS - TRACK_TO_TRACK_MS) * 15.0 / 8.0;
        TRACK_TO_TRACK_MS + b * (tracks / self.tracks).sqrt()
    }

    /// Serves the requests one after the other; the head starts before the first byte of the disk.
    pub(crate) fn serve<'a>(&self, requests: impl IntoIterator<Item = &'a Request>) -> Cost {
        self.each(requests).fold(Cost::default(), |sum, one| Cost {
            requests: sum.requests + 1,
            seek_ms: sum.seek_ms + one.seek_ms,
            turn_ms: sum.turn_ms + one.turn_ms,
            transfer_ms: sum.transfer_ms + one.transfer_ms,
        })
    }

    /// What each of them costs, served in the same way.
    pub(crate) fn each<'a>(&self, requests: impl IntoIterator<Item = &'a Request>) -> impl Iterator<Item = Cost> {
        let mut head = 0.0;
        requests.into_iter().map(move |request| {
            let (start, end) = (self.track(request.start), self.track(request.end()));
            let seek_ms = self.seek_ms((start - head).abs());
            // The platter turned on while the head moved; it waits for the angle of the first byte.
            let mut turn = (start - head - seek_ms / TURN_MS).rem_euclid(1.0);
            if turn > 1.0 - 1e-6 {
                turn = 0.0; // rounding: the byte is just here
            }
            head = end;
            Cost { requests: 1, seek_ms, turn_ms: turn * TURN_MS, transfer_ms: (end - start) * TURN_MS }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 50 GB with speeds from 105 to 55 kB/ms: the slope is 1 byte/ms for each million bytes.
    const BYTES: u64 = 50_000_000_000;

    fn request(start: u64, bytes: u64) -> Request {
        Request { device: (7, 0), start, bytes, metadata: false, class: None, thread: String::new() }
    }

    fn near(is: f64, should: f64) {
        assert!((is - should).abs() < should.abs() * 1e-3 + 1e-3, "{is} instead of {should}");
    }

    /// 105 MB from the first byte on take a second, 55 MB up to the last take a second, and nothing waits.
    #[test]
    fn streaming_runs_at_the_speed_of_the_zone() {
        let disk = Disk::of(BYTES);
        let cost = disk.serve(&[request(0, 105_000_000)]);
        near(cost.transfer_ms, 1000.5); // ln(105000/104895)·10⁶
        near(cost.seek_ms + cost.turn_ms, 0.0);
        let last = disk.serve(&[request(BYTES - 55_000_000, 55_000_000)]);
        near(last.transfer_ms, 999.5);
        let halves: Vec<Request> = (0..1000).map(|n| request(n * 105_000, 105_000)).collect();
        near(disk.serve(&halves).total_ms(), 1000.5);
    }

    /// A full turn at 105 kB/ms is 875,000 bytes: a gap of 210,000 bytes on the same track costs 2 ms of turning, and so
    /// does the same way back cost the rest of the turn.
    #[test]
    fn a_gap_on_a_track_is_turned_through() {
        let disk = Disk::of(BYTES);
        let cost = disk.serve(&[request(0, 105_000), request(315_000, 105_000)]);
        near(cost.turn_ms, 2.0);
        near(cost.seek_ms, 0.0);
        let back = disk.serve(&[request(0, 105_000), request(0, 105_000)]);
        near(back.turn_ms, 60_000.0 / 7200.0 - 1.0);
    }

    /// 8,750,000 bytes on are ten tracks: 0.8 ms and a little to get there, then a wait until the angle is right, in all
    /// a whole number of turns.
    #[test]
    fn a_seek_ends_with_the_platter_at_the_first_byte() {
        let disk = Disk::of(BYTES);
        let start = disk.track(8_750_000);
        near(start, 10.0004);
        let cost = disk.serve(&[request(8_750_000, 4096)]);
        // tracks in all: ln(105/55)·10⁶ / 8.333 = 77,595; b = 7.7·15/8 = 14.4375
        near(cost.seek_ms, 0.8 + 14.4375 * (10.0004f64 / 77_595.0).sqrt());
        near(cost.seek_ms + cost.turn_ms, 60_000.0 / 7200.0 * 1.0004);
    }

    /// From end to end: 0.8 + 14.4375 ms.
    #[test]
    fn the_full_stroke_is_the_longest_seek() {
        let disk = Disk::of(BYTES);
        near(disk.serve(&[request(BYTES - 1, 1)]).seek_ms, 15.2375);
    }

    /// Random places: 8.5 ms of seeking and half a turn of waiting, as the maker says.
    #[test]
    fn random_places_cost_the_average() {
        let disk = Disk::of(BYTES);
        let mut rng = crate::tree::Rng::new(1);
        let requests: Vec<Request> = (0..20_000).map(|_| request(rng.below(BYTES), 512)).collect();
        let cost = disk.serve(&requests);
        let mean_seek = cost.seek_ms / 20_000.0;
        // By tracks, not by bytes: there are fewer bytes on the inner tracks, so the mean is a little less.
        assert!((8.2..8.6).contains(&mean_seek), "{mean_seek}");
        let mean_turn = cost.turn_ms / 20_000.0;
        assert!((4.0..4.3).contains(&mean_turn), "{mean_turn}");
    }
}
