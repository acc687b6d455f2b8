//! The mechanics of an image on a disk: those that plans are predicted with.

pub(crate) use onesweep::plan::{Geometry, Span};

use super::model::DiskModel;

/// An image of `len` bytes on that span of the disk.
pub(crate) fn of(model: &DiskModel, len: u64, span: Span) -> Geometry {
    Geometry::new(&model.mechanics(), len, span)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// 6,000 rpm: 10 ms for a revolution. 100 MB/s everywhere: 100,000 bytes a millisecond, a megabyte on a track.
    pub(crate) fn round() -> DiskModel {
        DiskModel {
            name: "round".into(),
            capacity: 1_200_000_000,
            rpm: 6000.0,
            seek_track_ms: 1.0,
            seek_average_ms: 9.0,
            seek_full_ms: 19.0,
            outer_rate: 100e6,
            inner_rate: 100e6,
            ..DiskModel::named("barracuda-7200.11").unwrap()
        }
    }

    #[track_caller]
    pub(crate) fn close(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-6, "{left} is not {right}");
    }

    #[test]
    fn a_span_takes_its_own_part_of_a_model() {
        let model = DiskModel { inner_rate: 40e6, zones: 4, ..round() };
        let inner = of(&model, 4_000_000, Span { from: 0.5, to: 1.0 });
        close(inner.transfer_ms(0, 2_000_000), 2_000_000.0 / 60_000.0); // 100, 80, 60, 40 MB/s
    }
}
