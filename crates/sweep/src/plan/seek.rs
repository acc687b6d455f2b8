//! The time of a seek over its distance.
//!
//! The arm speeds up and slows down over short ways, so their time grows with the square root of the way, and coasts
//! over long ones. With the way `d` from 0 to 1, in addresses,
//!
//! ```text
//! seek(d) = track + (average - track) * sqrt(3 d)                   d <= 1/3
//!         = average + (full - average) * (d - 1/3) * 3/2            d >  1/3
//! ```
//!
//! so that a third of the stroke, the mean way between two random places, takes the average of the data sheet.

/// Three points of a data sheet with a curve through them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeekCurve {
    /// Milliseconds to the next track.
    pub track_ms: f64,
    /// Milliseconds over a third of the stroke.
    pub average_ms: f64,
    /// Milliseconds over the whole stroke.
    pub full_ms: f64,
}

impl SeekCurve {
    /// Milliseconds for a way from 0 to 1, the whole stroke. Longer ways count as 1.
    #[must_use]
    pub fn ms(&self, way: f64) -> f64 {
        let way = way.clamp(0.0, 1.0);
        if way == 0.0 {
            0.0
        } else if way <= 1.0 / 3.0 {
            self.track_ms + (self.average_ms - self.track_ms) * (3.0 * way).sqrt()
        } else {
            self.average_ms + (self.full_ms - self.average_ms) * (way - 1.0 / 3.0) * 1.5
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_passes_through_the_data_sheet() {
        let curve = SeekCurve { track_ms: 1.0, average_ms: 9.0, full_ms: 19.0 };
        let takes = |way, ms: f64| assert!((curve.ms(way) - ms).abs() < 1e-9, "{} is not {ms}", curve.ms(way));
        takes(0.0, 0.0);
        takes(1.0 / 12.0, 5.0); // sqrt(3/12) = 1/2
        takes(1.0 / 3.0, 9.0);
        takes(2.0 / 3.0, 14.0); // half way from average to full
        takes(1.0, 19.0);
        takes(7.0, 19.0);
        assert!((curve.ms(1e-12) - 1.0).abs() < 1e-4);
    }
}
