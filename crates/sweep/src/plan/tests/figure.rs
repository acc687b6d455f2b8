//! Figure 1 of the DAFT paper. The figure itself is lost; what the text says of it fixes this much: the sweep begins
//! f2.1, f1.1, f3.1; the first two are near each other; f2.2 lies within file 1 and file 3; f4.1 lies behind it.
//!
//! ```text
//! 0         100 102       200   1000      1100   1300    1400    1500         1700    1800    1900
//! |-- f2.1 --|  |-- f1.1 --|     |-- f3.1 --|     | f1.2  | f2.2  |    f4.1    | f3.2  | f1.3  |
//! ```

use super::{
    super::{Budget, DiskModel, Estimate, PlanSource, RequestShape, Requests, Schedule, SweepOrder},
    Layout,
};

/// Files 0 to 3 are the paper's file 1 to 4. Each fragment is a hundred bytes long, but for f4.1 with two hundred.
fn figure() -> Layout {
    Layout::of(&[
        &[(102, 100), (1300, 100), (1800, 100)],
        &[(0, 100), (1400, 100)],
        &[(1000, 100), (1700, 100)],
        &[(1500, 200)],
    ])
}

/// Which file each step reads, in the paper's numbers, with its fragment.
fn names(layout: &Layout, budget: Budget) -> Vec<(u32, String)> {
    let name = |piece: &super::Piece| {
        let mut before = 1;
        layout.pieces(piece.file, &mut |other| before += u32::from(other.offset < piece.offset));
        format!("f{}.{before}", piece.file + 1)
    };
    layout.steps(budget).iter().map(|step| (step.bin, name(&step.piece))).collect()
}

fn joined(steps: &[(u32, String)], bin: u32) -> String {
    steps.iter().filter(|step| step.0 == bin).map(|step| step.1.as_str()).collect::<Vec<_>>().join(" ")
}

#[test]
fn with_room_for_all_it_is_one_sweep() {
    let steps = names(&figure(), Budget::unlimited());
    assert_eq!(joined(&steps, 0), "f2.1 f1.1 f3.1 f1.2 f2.2 f4.1 f3.2 f1.3");
    assert_eq!(steps.len(), 8);
}

/// "Assume f3.1 cannot be fit in the first bin, file3 will be put into other bins. When f4.1 is about to be read, since
/// file2 is completed, file4 may be put to the first bin again".
#[test]
fn first_fit_takes_file_4_into_the_bin_that_file_2_left() {
    let steps = names(&figure(), Budget::first_fit(600));
    assert_eq!(joined(&steps, 0), "f2.1 f1.1 f1.2 f2.2 f4.1 f1.3");
    assert_eq!(joined(&steps, 1), "f3.1 f3.2");
    let steps = names(&figure(), Budget::first_fit(500));
    assert_eq!(joined(&steps, 1), "f3.1 f3.2", "file 4 just fits: 300 are held for file 1");
}

/// "In the clean-up mode [...] it reads in all the remaining fragments of the pending files in the sorted order".
#[test]
fn on_demand_cleaning_completes_files_1_and_2_before_file_3() {
    let steps = names(&figure(), Budget::on_demand(600));
    assert_eq!(joined(&steps, 0), "f2.1 f1.1 f1.2 f2.2 f1.3 f3.1 f4.1 f3.2");
    assert_eq!(steps.len(), 8, "one bin");
}

/// With S = 300 the clean-up ends when file 2 is complete: 600 - 300 bytes are free. File 3 is admitted, and file 4 with
/// 100 free bytes waits for the next clean-up.
#[test]
fn a_threshold_between_ends_the_clean_up_early() {
    let steps = names(&figure(), Budget::batched(600, 300));
    assert_eq!(joined(&steps, 0), "f2.1 f1.1 f1.2 f2.2 f3.1 f3.2 f4.1 f1.3");
}

/// "f2.1 and f1.1 in Figure 1 can be fetched in one physical disk access because they are sufficiently close".
#[test]
fn near_fragments_are_one_request() {
    let layout = figure();
    let schedule = || Schedule::new(&layout, SweepOrder::Fragment, Budget::unlimited()).unwrap();
    let merged: Vec<_> =
        Requests::new(schedule(), RequestShape::merged(2)).map(|request| (request.address, request.length)).collect();
    assert_eq!(merged, [(0, 202), (1000, 100), (1300, 600)]);
    assert_eq!(Requests::new(schedule(), RequestShape::unmerged()).count(), 8);
}

/// 60 rpm and a byte a millisecond: a second for a revolution, a thousand bytes on a track.
fn slow_disk() -> DiskModel {
    DiskModel {
        name: "slow".into(),
        capacity: 12_000,
        rpm: 60.0,
        seek_track_ms: 100.0,
        seek_average_ms: 300.0,
        seek_full_ms: 700.0,
        outer_rate: 1000.0,
        inner_rate: 1000.0,
        zones: 1,
        overhead_ms: 1.0,
    }
}

#[test]
fn the_estimate_of_one_merged_sweep() {
    let layout = figure();
    let schedule = Schedule::new(&layout, SweepOrder::Fragment, Budget::unlimited()).unwrap();
    let estimate = Estimate::of(Requests::new(schedule, RequestShape::merged(2)), &slow_disk(), 1);
    let expected = Estimate {
        disk: "slow".into(),
        files: 4,
        fragments: 8,
        without_address: 0,
        requests: 3,
        seeks: 3,
        useful: 900,
        read: 902,
        wasted: 2,
        copied: 0,
        passes: 1,
        bins: 1,
        clean_ups: 0,
        // Merged, f1.2 to f1.3 are one request: files 1, 2, 3 and 4 are all held in it.
        peak_memory: 900,
        // Files 1, 3 and 4 at f4.1: 300 + 200 + 200.
        peak_unlimited: 700,
        // From where the head stands, 202; then 798 pass by, and 100; 200 pass by, and 600.
        seconds: 0.202 + 0.798 + 0.1 + 0.2 + 0.6,
    };
    assert!((estimate.seconds - expected.seconds).abs() < 1e-9, "{} seconds", estimate.seconds);
    assert_eq!(Estimate { seconds: expected.seconds, ..estimate }, expected);
    let shown = Estimate { useful: 900_000_000, ..expected }.to_string();
    let lines: Vec<_> = shown.lines().collect();
    assert_eq!(lines[0], "4 files, 8 fragments, 900.0 MB");
    assert_eq!(lines[1], "3 requests, 3 seeks, 1 passes, 0 clean-ups, 0.0 MB read, 0.0 MB of it in gaps");
    assert_eq!(lines[2], "1.9 s on slow, 0.0 MB of memory");
}

#[test]
fn the_estimate_of_two_passes() {
    let layout = figure();
    let estimate = |budget| {
        let schedule = Schedule::new(&layout, SweepOrder::Fragment, budget).unwrap();
        Estimate::of(Requests::new(schedule, RequestShape::unmerged()), &slow_disk(), 1)
    };
    let first_fit = estimate(Budget::first_fit(600));
    assert_eq!((first_fit.bins, first_fit.clean_ups, first_fit.passes), (2, 0, 2));
    // Of nine requests, f2.2, f4.1 and begin where the former ended.
    assert_eq!((first_fit.requests, first_fit.seeks), (8, 6));
    assert_eq!((first_fit.peak_memory, first_fit.peak_unlimited), (500, 700));
    let on_demand = estimate(Budget::on_demand(600));
    assert_eq!((on_demand.bins, on_demand.clean_ups, on_demand.passes), (1, 1, 2));
    assert_eq!((first_fit.wasted, first_fit.read), (0, 900));
}
