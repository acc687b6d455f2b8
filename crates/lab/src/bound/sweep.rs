//! One pass over runs of addresses, each served once.

use serde::Serialize;

use crate::address_runs::AddressRun;
use crate::disk::drive::{Command, Drive};
use crate::disk::geometry::Geometry;
use crate::disk::queue::{self, Waiting};

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
    pub(super) fn over(runs: &[AddressRun], geometry: &Geometry, overhead_ms: f64) -> Self {
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

/// Milliseconds of the same pass when the drive's queue is always full, so that it may choose among the next runs.
///
/// A drive that chooses by angle makes better use of each turn than one that must follow the addresses: where runs are
/// many and near, this is below the pass in order.
pub(super) fn queued_ms(runs: &[AddressRun], mut drive: Drive) -> f64 {
    let depth = drive.model().queue_depth;
    let waiting = |run: &AddressRun| Waiting { command: Command::read(run.start, run.end - run.start), waited_ms: 0.0 };
    let mut coming = runs.iter().map(waiting);
    let mut queue: Vec<Waiting> = coming.by_ref().take(depth).collect();
    let mut ms = 0.0;
    while let Some(next) = queue::choose(&queue, &drive) {
        let command = queue.remove(next).command;
        ms += drive.serve(&command, true).ms();
        queue.extend(coming.next());
    }
    ms
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address_runs::tests::run;
    use crate::disk::geometry::tests::{close, round};
    use crate::disk::geometry::{self, Span};
    use crate::disk::model::DiskModel;

    /// 100,000 bytes a millisecond, 10 ms a turn, a twelfth of the stroke in 5 ms.
    #[test]
    fn a_pass_costs_what_was_computed_by_hand() {
        let disk = geometry::of(&round(), 1_200_000_000, Span::WHOLE);
        let sweep = Sweep::over(&[run(0, 100_000), run(150_000, 50_000), run(100_400_000, 100_000)], &disk, 0.1);
        // 1 ms; 0.5 ms of gap and 0.5 ms; then 100.2 MB: a seek of just over 5 ms. Streaming there would take 1,002 ms:
        // the place comes by at 2 ms, too soon, and at 12 ms. 1 ms of transfer.
        close(sweep.ms, 1.0 + 1.0 + 12.0 + 1.0);
        assert_eq!((sweep.runs, sweep.seeks, sweep.gap_bytes), (3, 1, 50_000));
    }

    /// In order, the second run is just missed and costs a turn; a drive that may choose takes the third before it.
    #[test]
    fn a_queue_makes_use_of_a_turn() {
        let model = DiskModel { buffer_segments: 0, ..round() };
        let disk = geometry::of(&model, 1_200_000_000, Span::WHOLE);
        // Tracks of 1 MB; from the end of the first run to the second it is one track and 50,000 bytes, so 0.5 ms of
        // angle, less than the 1.x ms of the seek; to the third half a turn more.
        let runs = [run(0, 100_000), run(1_150_000, 50_000), run(1_600_000, 50_000)];
        let in_order = Sweep::over(&runs, &disk, 0.1).ms;
        close(in_order, 1.0 + 10.5 + 0.5 + 4.0 + 0.5);
        let queued = queued_ms(&runs, Drive::new(model, 1_200_000_000, Span::WHOLE));
        close(queued, 1.0 + 5.0 + 0.5 + 5.0 + 0.5);
    }

    #[test]
    fn overhead_is_a_lower_bound_for_what_is_skipped_to() {
        let disk = geometry::of(&round(), 1_200_000_000, Span::WHOLE);
        close(Sweep::over(&[run(0, 1000)], &disk, 0.1).ms, 0.01);
        let ssd = DiskModel::named("ssd").unwrap();
        let flat = geometry::of(&ssd, 1 << 30, Span::WHOLE);
        close(Sweep::over(&[run(1 << 20, 520)], &flat, 0.02).ms, 0.02);
        assert_eq!(Sweep::over(&[], &flat, 0.02), Sweep::default());
    }
}
