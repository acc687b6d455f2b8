//! Plans of many files. Nothing is timed: a planner that is quadratic in anything would not come to an end here.

use super::super::{
    Budget, DiskModel, Estimate, Piece, PlanSource, RequestShape, Requests, Schedule, Strategy, SweepOrder,
};

const BLOCK: u64 = 4096;

/// Files of three blocks whose second and third lie far behind the first, computed rather than kept.
struct Aged {
    files: u32,
}

impl PlanSource for Aged {
    fn files(&self) -> u32 {
        self.files
    }

    fn cost(&self, _file: u32) -> u64 {
        3 * BLOCK
    }

    fn pieces(&self, file: u32, visit: &mut dyn FnMut(Piece)) {
        // 7919 is a prime that doesn't divide the number of files, so files are scattered over the device.
        let place = u64::from(file) * 7919 % u64::from(self.files);
        for (block, distance) in [0, 20_000 + place % 17, 50_000 + place % 29].into_iter().enumerate() {
            let address = (block as u64 + 3 * (place + distance)) * BLOCK;
            visit(Piece { address, file, offset: block as u64 * BLOCK, length: BLOCK, shared: false });
        }
    }
}

fn estimate(budget: Budget, strategy: Strategy) -> Estimate {
    let disk = DiskModel::default();
    let shape = RequestShape { strategy, ..RequestShape::merged(disk.break_even_gap()) };
    let schedule = Schedule::new(Aged { files: 200_000 }, SweepOrder::Fragment, budget).unwrap();
    Estimate::of(Requests::new(schedule, shape), &disk, 16)
}

#[test]
fn two_hundred_thousand_files_in_one_sweep() {
    let estimate = estimate(Budget::unlimited(), Strategy::Merged);
    assert_eq!((estimate.files, estimate.fragments, estimate.passes), (200_000, 600_000, 1));
    // Freed behind requests rather than pieces, memory can only last longer.
    assert!(estimate.peak_unlimited <= estimate.peak_memory);
}

#[test]
fn two_hundred_thousand_files_in_a_tenth_of_the_memory() {
    let bytes = 5_000 * 3 * BLOCK;
    for (budget, strategy) in [
        (Budget::first_fit(bytes), Strategy::Merged),
        (Budget::batched(bytes, bytes / 3), Strategy::Unmerged),
        (Budget::on_demand(bytes), Strategy::Vanilla),
    ] {
        let estimate = estimate(budget, strategy);
        assert_eq!((estimate.files, estimate.fragments), (200_000, 600_000));
        assert!(estimate.bins + estimate.clean_ups > 5 && estimate.peak_memory <= bytes);
    }
}

/// Each of many files is a reflink of one extent longer than a request.
struct Clones;

impl PlanSource for Clones {
    fn files(&self) -> u32 {
        20_000
    }

    fn cost(&self, _file: u32) -> u64 {
        16 << 20
    }

    fn pieces(&self, file: u32, visit: &mut dyn FnMut(Piece)) {
        visit(Piece { address: 1 << 30, file, offset: 0, length: 16 << 20, shared: true });
    }
}

#[test]
fn twenty_thousand_clones_are_read_once() {
    let schedule = Schedule::new(Clones, SweepOrder::Fragment, Budget::unlimited()).unwrap();
    let estimate = Estimate::of(Requests::new(schedule, RequestShape::unmerged()), &DiskModel::default(), 16);
    assert_eq!((estimate.files, estimate.requests, estimate.seeks), (20_000, 4, 1));
    assert_eq!((estimate.read, estimate.useful), (16 << 20, 20_000 * (16 << 20)));
}
