//! One pass over runs of addresses, each served once.

use serde::Serialize;

use crate::disk::geometry::Geometry;

/// Bytes from `start` up to `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Run {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Sorted, with what overlaps or touches joined.
pub(super) fn merged(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_unstable();
    let mut merged: Vec<Run> = Vec::new();
    for run in runs {
        match merged.last_mut() {
            Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
            _ => merged.push(run),
        }
    }
    merged
}

pub(super) fn bytes(runs: &[Run]) -> u64 {
    runs.iter().map(|run| run.end - run.start).sum()
}

/// What the pass costs.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct Sweep {
    pub(super) ms: f64,
    pub(super) runs: u64,
    pub(super) seeks: u64,
    /// Bytes between runs that were read since that was no slower than skipping them.
    pub(super) gap_bytes: u64,
}

impl Sweep {
    /// The pass over merged runs, with the head at address 0 before it.
    pub(super) fn over(runs: &[Run], geometry: &Geometry, overhead_ms: f64) -> Self {
        let mut sweep = Self { runs: runs.len() as u64, ..Self::default() };
        let mut head = 0;
        for run in runs {
            let through_ms = geometry.transfer_ms(head, run.start);
            let skip = geometry.position(head, 0.0, run.start);
            let transfer_ms = geometry.transfer_ms(run.start, run.end);
            let skipped_ms = (skip.ms() + transfer_ms).max(overhead_ms);
            if through_ms + transfer_ms <= skipped_ms {
                sweep.gap_bytes += run.start - head;
                sweep.ms += through_ms + transfer_ms;
            } else {
                sweep.seeks += u64::from(skip.seek_ms > 0.0);
                sweep.ms += skipped_ms;
            }
            head = run.end;
        }
        sweep
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::geometry::Span;
    use crate::disk::geometry::tests::{close, round};

    fn run(start: u64, len: u64) -> Run {
        Run { start, end: start + len }
    }

    #[test]
    fn runs_are_joined() {
        let runs = merged(vec![run(500, 10), run(0, 100), run(50, 20), run(100, 50), run(505, 100)]);
        assert_eq!(runs, [run(0, 150), run(500, 105)]);
        assert_eq!(bytes(&runs), 255);
    }

    /// 100,000 bytes a millisecond, 10 ms a turn, a twelfth of the stroke in 5 ms.
    #[test]
    fn a_pass_costs_what_was_computed_by_hand() {
        let disk = Geometry::new(&round(), 1_200_000_000, Span::WHOLE);
        let sweep = Sweep::over(&[run(0, 100_000), run(150_000, 50_000), run(100_400_000, 100_000)], &disk, 0.1);
        // 1 ms; 0.5 ms of gap and 0.5 ms; then 100.2 MB: a seek of just over 5 ms. Streaming there would take 1,002 ms:
        // the place comes by at 2 ms, too soon, and at 12 ms. 1 ms of transfer.
        close(sweep.ms, 1.0 + 1.0 + 12.0 + 1.0);
        assert_eq!((sweep.runs, sweep.seeks, sweep.gap_bytes), (3, 1, 50_000));
    }

    #[test]
    fn overhead_is_a_lower_bound_for_what_is_skipped_to() {
        let disk = Geometry::new(&round(), 1_200_000_000, Span::WHOLE);
        close(Sweep::over(&[run(0, 1000)], &disk, 0.1).ms, 0.01);
        let ssd = crate::disk::model::DiskModel::named("ssd").unwrap();
        let flat = Geometry::new(&ssd, 1 << 30, Span::WHOLE);
        close(Sweep::over(&[run(1 << 20, 520)], &flat, 0.02).ms, 0.02);
        assert_eq!(Sweep::over(&[], &flat, 0.02), Sweep::default());
    }
}
