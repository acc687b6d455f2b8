//! The time of a seek over its distance.
//!
//! The same curve as in the model that predicts a plan's time: the square root of the way up to a third of the stroke,
//! where the average of the data sheet lies, and a straight line from there to the full stroke.

use super::model::DiskModel;

/// Three points of a data sheet with a curve through them.
#[derive(Debug, Clone)]
pub(crate) struct SeekCurve {
    track_ms: f64,
    average_ms: f64,
    full_ms: f64,
}

impl SeekCurve {
    pub(crate) fn of(model: &DiskModel) -> Self {
        Self { track_ms: model.seek_track_ms, average_ms: model.seek_average_ms, full_ms: model.seek_full_ms }
    }

    /// Milliseconds for a way from 0 to 1, the whole stroke.
    pub(crate) fn ms(&self, way: f64) -> f64 {
        let way = way.abs().min(1.0);
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
        assert_eq!(curve.ms(0.0), 0.0);
        assert!((curve.ms(1e-12) - 1.0).abs() < 1e-4);
        assert!((curve.ms(1.0 / 12.0) - 5.0).abs() < 1e-9); // sqrt(3/12) = 1/2
        assert!((curve.ms(1.0 / 3.0) - 9.0).abs() < 1e-9);
        assert!((curve.ms(2.0 / 3.0) - 14.0).abs() < 1e-9);
        assert!((curve.ms(-1.0) - 19.0).abs() < 1e-9);
    }
}
