//! Requests bring every byte once, keep to the budget when memory is freed behind them, and change no assignment.

use std::collections::BTreeMap;

use proptest::{prelude::*, test_runner::TestCaseResult};

use super::{
    super::{
        Budget, DiskModel, Estimate, NO_ADDRESS, Part, Piece, Request, RequestShape, Requests, Schedule,
        Strategy as Requesting, SweepOrder,
    },
    Case, Layout, cases, config, layouts, shapes,
};

fn requests(layout: &Layout, order: SweepOrder, budget: Budget, shape: RequestShape) -> Requests<&Layout> {
    Requests::new(Schedule::new(layout, order, budget).unwrap(), shape)
}

fn sweep(layout: &Layout, shape: RequestShape) -> Vec<Request> {
    requests(layout, SweepOrder::Fragment, Budget::unlimited(), shape).collect()
}

/// An engine that frees memory only behind completed requests.
struct Replay<'a> {
    layout: &'a Layout,
    budget: Budget,
    shape: RequestShape,
    held: u64,
    /// How often each byte of each admitted file was delivered.
    delivered: BTreeMap<u32, Vec<u8>>,
    completed: BTreeMap<u32, u32>,
}

impl<'a> Replay<'a> {
    fn new(layout: &'a Layout, budget: Budget, shape: RequestShape) -> Self {
        Self { layout, budget, shape, held: 0, delivered: BTreeMap::new(), completed: BTreeMap::new() }
    }

    fn request(&mut self, request: &Request) -> TestCaseResult {
        for &file in &request.admits {
            let cost = self.layout.costs[file as usize];
            self.held += cost;
            prop_assert!(self.delivered.insert(file, vec![0; cost as usize]).is_none(), "admitted once");
        }
        prop_assert!(self.held <= self.budget.bytes(), "the budget holds");
        self.tiles(request)?;
        for (at, part) in request.parts.iter().enumerate() {
            match part {
                Part::Read(piece) => self.deliver(piece)?,
                Part::Gap { .. } => {}
                Part::Copy { from_file, from_offset, to } => {
                    self.deliver(to)?;
                    self.copy(&request.parts[..at], *from_file, *from_offset, to)?;
                }
            }
        }
        for &file in &request.completes {
            let bytes = &self.delivered[&file];
            for piece in &self.layout.pieces[file as usize] {
                let bytes = &bytes[piece.offset as usize..][..piece.length as usize];
                prop_assert!(bytes.iter().all(|&times| times == 1), "each byte once when the file is complete");
            }
            prop_assert!(self.completed.insert(file, request.bin).is_none(), "completed once");
            self.held -= self.layout.costs[file as usize];
        }
        Ok(())
    }

    /// Reads and gaps cover the range of the request without a hole, and it is as the shape asks.
    fn tiles(&self, request: &Request) -> TestCaseResult {
        prop_assert!(request.length > 0 && request.length <= self.shape.max_request);
        let tiles: Vec<_> = request.tiles().collect();
        prop_assert_eq!(tiles.iter().map(|tile| tile.0).sum::<u64>(), request.length);
        prop_assert!(tiles[0].1.is_some() && tiles[tiles.len() - 1].1.is_some(), "gaps are between reads");
        if !request.has_address() || self.shape.strategy == Requesting::Vanilla {
            prop_assert_eq!(request.parts.len(), 1);
        }
        let mut address = request.address;
        for (length, piece) in tiles {
            match piece {
                Some(piece) => prop_assert_eq!(piece.address, address),
                None => {
                    prop_assert_eq!(self.shape.strategy, Requesting::Merged);
                    prop_assert!(length > 0 && length <= self.shape.gap);
                }
            }
            address = address.saturating_add(length);
        }
        Ok(())
    }

    /// The run is part of a piece of its file, at that place of the device.
    fn deliver(&mut self, run: &Piece) -> TestCaseResult {
        let holds = |piece: &&Piece| {
            piece.offset <= run.offset && run.offset + run.length <= piece.offset + piece.length && piece.length > 0
        };
        let piece = self.layout.pieces[run.file as usize].iter().find(holds).expect("the run lies in a piece");
        prop_assert_eq!(piece.part(run.offset - piece.offset, run.length), *run);
        let bytes = self.delivered.get_mut(&run.file).expect("the file was admitted");
        bytes[run.offset as usize..][..run.length as usize].iter_mut().for_each(|times| *times += 1);
        Ok(())
    }

    /// What is copied was read by the same request, from the same place of the device.
    fn copy(&self, before: &[Part], from_file: u32, from_offset: u64, to: &Piece) -> TestCaseResult {
        let source = before.iter().find_map(|part| match part {
            Part::Read(read) if read.file == from_file && read.offset <= from_offset => {
                let skip = from_offset - read.offset;
                (skip + to.length <= read.length).then(|| read.part(skip, to.length))
            }
            _ => None,
        });
        let source = source.expect("the source of a copy was read before");
        prop_assert_eq!(source.address, to.address);
        prop_assert!(self.shape.strategy == Requesting::Merged || source.shared && to.shared);
        Ok(())
    }
}

/// The files in the order of admission, each with its bin.
fn admissions(layout: &Layout, order: SweepOrder, budget: Budget) -> Vec<(u32, u32)> {
    let schedule = Schedule::new(layout, order, budget).unwrap();
    schedule.filter(|step| step.admits).map(|step| (step.piece.file, step.bin)).collect()
}

fn check(layout: &Layout, order: SweepOrder, budget: Budget, shape: RequestShape) -> TestCaseResult {
    let mut replay = Replay::new(layout, budget, shape);
    let mut admitted = Vec::new();
    for request in requests(layout, order.clone(), budget, shape) {
        replay.request(&request)?;
        admitted.extend(request.admits.iter().map(|&file| (file, request.bin)));
    }
    prop_assert_eq!(replay.held, 0);
    prop_assert_eq!(&admitted, &admissions(layout, order, budget), "the assignment is that of the schedule");
    prop_assert_eq!(replay.completed, admitted.into_iter().collect(), "what a bin admits, it completes");
    Ok(())
}

/// How many bytes of the device belong to any piece.
fn covered(layout: &Layout) -> u64 {
    let mut end = 0;
    let mut sum = 0;
    for piece in layout.sorted().iter().filter(|piece| piece.has_address()) {
        sum += piece.end().saturating_sub(piece.address.max(end));
        end = end.max(piece.end());
    }
    sum
}

fn without_address(layout: &Layout) -> u64 {
    layout.sorted().iter().filter(|piece| !piece.has_address()).map(|piece| piece.length).sum()
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_byte_comes_once_within_the_budget(Case { layout, budget } in cases(), shape in shapes()) {
        check(&layout, SweepOrder::Fragment, budget, shape)?;
    }

    #[test]
    fn whole_files_come_once_within_the_budget(Case { layout, budget } in cases(), shape in shapes()) {
        let order = SweepOrder::WholeFiles((0..layout.costs.len() as u32).rev().collect());
        check(&layout, order, budget, shape)?;
    }

    #[test]
    fn in_one_sweep_addresses_rise(layout in layouts(), shape in shapes()) {
        if shape.strategy != Requesting::Vanilla {
            let addresses: Vec<_> = sweep(&layout, shape).iter().map(|request| request.address).collect();
            prop_assert!(addresses.is_sorted(), "{:?}", addresses);
        }
    }

    #[test]
    fn shared_bytes_are_read_once(layout in layouts(), shape in shapes()) {
        let layout = layout.all_shared();
        if shape.strategy != Requesting::Vanilla {
            let read: u64 = sweep(&layout, shape).iter().flat_map(Request::reads).map(|piece| piece.length).sum();
            prop_assert_eq!(read, covered(&layout) + without_address(&layout));
        }
    }

    #[test]
    fn an_estimate_adds_up(Case { layout, budget } in cases(), shape in shapes()) {
        let plan = || requests(&layout, SweepOrder::Fragment, budget, shape);
        let estimate = Estimate::of(plan(), &DiskModel::default(), 16);
        let steps = layout.steps(budget);
        let all = layout.sorted();
        prop_assert_eq!(estimate.read + estimate.copied, estimate.useful + estimate.wasted);
        prop_assert_eq!(estimate.useful, all.iter().map(|piece| piece.length).sum::<u64>());
        prop_assert_eq!(estimate.fragments, all.len() as u64);
        prop_assert_eq!(estimate.files, steps.iter().filter(|step| step.admits).count() as u64);
        prop_assert_eq!(estimate.without_address, all.iter().filter(|piece| !piece.has_address()).count() as u64);
        prop_assert_eq!(estimate.requests, plan().count() as u64);
        prop_assert_eq!(estimate.bins, steps.last().map_or(0, |step| u64::from(step.bin) + 1));
        let clean_ups: BTreeMap<_, _> = steps.iter().map(|step| (step.bin, u64::from(step.epoch))).collect();
        prop_assert_eq!(estimate.clean_ups, clean_ups.values().sum::<u64>());
        prop_assert!(estimate.seeks <= estimate.requests && estimate.passes <= estimate.seeks);
        prop_assert!(estimate.peak_memory <= budget.bytes());
        prop_assert!(estimate.bins == 0 || estimate.seconds > 0.0);
    }

    /// A list kept from the former request must not show in the next.
    #[test]
    fn a_reused_request_is_like_a_new_one(Case { layout, budget } in cases(), shape in shapes()) {
        let plan = || requests(&layout, SweepOrder::Fragment, budget, shape);
        let (mut filled, mut reused) = (plan(), Request::default());
        for request in plan() {
            prop_assert!(filled.next_into(&mut reused));
            prop_assert_eq!(&reused, &request);
        }
        prop_assert!(!filled.next_into(&mut reused));
        prop_assert_eq!(reused, Request::default());
    }
}

/// (address, length) of each request.
fn ranges(requests: &[Request]) -> Vec<(u64, u64)> {
    requests.iter().map(|request| (request.address, request.length)).collect()
}

#[test]
fn gaps_are_read_through_up_to_the_gap_and_requests_end_at_the_longest() {
    let layout = Layout::of(&[&[(0, 4)], &[(6, 4)], &[(13, 4)], &[(17, 4)]]);
    assert_eq!(ranges(&sweep(&layout, RequestShape::merged(1))), [(0, 4), (6, 4), (13, 8)]);
    assert_eq!(ranges(&sweep(&layout, RequestShape::merged(2))), [(0, 10), (13, 8)]);
    assert_eq!(ranges(&sweep(&layout, RequestShape::merged(3))), [(0, 21)]);
    assert_eq!(ranges(&sweep(&layout, RequestShape::merged(3).max_request(17))), [(0, 17), (17, 4)]);
    assert_eq!(ranges(&sweep(&layout, RequestShape::merged(3).max_request(16))), [(0, 10), (13, 8)], "none is cut");
    assert_eq!(ranges(&sweep(&layout, RequestShape::merged(3).max_request(3))).len(), 8, "all are cut");
    assert_eq!(ranges(&sweep(&layout, RequestShape::unmerged())), [(0, 4), (6, 4), (13, 4), (17, 4)]);
}

/// The second file begins in the first and ends behind it: it copies, then reads.
#[test]
fn a_partial_overlap_is_copied_as_far_as_it_goes() {
    let layout = Layout::of(&[&[(0, 8)], &[(4, 8)]]).all_shared();
    let [first, second] = [layout.pieces[0][0], layout.pieces[1][0]];
    for shape in [RequestShape::unmerged(), RequestShape::merged(0)] {
        let [request] = sweep(&layout, shape).try_into().unwrap();
        let copy = Part::Copy { from_file: 0, from_offset: 4, to: second.part(0, 4) };
        assert_eq!(request.parts, [Part::Read(first), copy, Part::Read(second.part(4, 4))]);
        assert_eq!((request.admits, request.completes), (vec![0, 1], vec![0, 1]));
    }
    assert_eq!(ranges(&sweep(&layout, RequestShape::vanilla())), [(0, 8), (4, 8)]);
}

/// Device ranges of compressed extents overlap though no byte is shared: nothing may be copied through the file system.
#[test]
fn what_is_not_shared_is_not_copied() {
    let mut layout = Layout::of(&[&[(0, 8)], &[(4, 8)]]);
    assert_eq!(ranges(&sweep(&layout, RequestShape::unmerged())), [(0, 8), (4, 8)]);
    layout.pieces[0][0].shared = true;
    assert_eq!(ranges(&sweep(&layout, RequestShape::unmerged())), [(0, 8), (4, 8)]);
}

/// A long piece is cut; a copy of its middle comes with the first half, and completes before it.
#[test]
fn a_rest_waits_for_what_lies_before_it() {
    let layout = Layout::of(&[&[(0, 10)], &[(2, 3)]]).all_shared();
    let requests = sweep(&layout, RequestShape::unmerged().max_request(6));
    assert_eq!(ranges(&requests), [(0, 6), (6, 4)]);
    assert_eq!(requests[0].completes, [1]);
    assert_eq!(requests[1].completes, [0]);
}

/// A file is admitted behind the request that frees its memory, though both would fit in one.
#[test]
fn a_request_never_waits_for_itself() {
    let layout = Layout::of(&[&[(0, 4)], &[(4, 4)]]);
    let plan = |bytes| requests(&layout, SweepOrder::Fragment, Budget::on_demand(bytes), RequestShape::merged(0));
    assert_eq!(plan(8).count(), 1);
    assert_eq!(plan(7).count(), 2);
    assert!(plan(7).all(|request| request.admits == request.completes));
}

/// The long file is finished before memory is there for the one within it: the sweep returns once.
#[test]
fn a_rest_comes_before_a_file_without_memory() {
    let layout = Layout::of(&[&[(0, 10)], &[(2, 3)]]).all_shared();
    let budget = Budget::on_demand(10);
    let requests: Vec<_> =
        requests(&layout, SweepOrder::Fragment, budget, RequestShape::merged(0).max_request(4)).collect();
    assert_eq!(ranges(&requests), [(0, 4), (4, 4), (8, 2), (2, 3)]);
}

#[test]
fn pieces_without_an_address_are_requests_of_their_own() {
    let layout = Layout::of(&[&[(NO_ADDRESS, 5), (NO_ADDRESS, 2)], &[(0, 1)]]).all_shared();
    let requests = sweep(&layout, RequestShape::merged(100).max_request(4));
    assert_eq!(ranges(&requests), [(0, 1), (NO_ADDRESS, 4), (NO_ADDRESS, 1), (NO_ADDRESS, 2)]);
    assert_eq!(requests[3].completes, [0]);
}

#[test]
fn strategies_have_names() {
    for strategy in Requesting::ALL {
        assert_eq!(strategy.to_string().parse(), Ok(strategy));
    }
    assert!("daftm".parse::<Requesting>().unwrap_err().contains("merged"));
}

/// Files one after the other: what was cut off the first is read before the second, wherever that lies.
#[test]
fn a_rest_comes_before_a_later_run() {
    let layout = Layout::of(&[&[(100, 10)], &[(0, 4)], &[(102, 4)]]);
    let plan = |list: [u32; 2], shape: RequestShape| {
        let order = SweepOrder::WholeFiles(list.to_vec());
        ranges(&requests(&layout, order, Budget::unlimited(), shape.max_request(4)).collect::<Vec<_>>())
    };
    assert_eq!(plan([0, 1], RequestShape::merged(0)), [(100, 4), (104, 4), (108, 2), (0, 4)]);
    assert_eq!(plan([0, 2], RequestShape::vanilla()), [(100, 4), (104, 4), (108, 2), (102, 4)]);
}

/// File 0 begins where the files that keep it out of the first bin end. Its request is one of the second bin, though by
/// then there is memory enough to copy its bytes, and comes behind the rests of the first.
#[test]
fn a_request_is_of_one_bin() {
    let mut layout = Layout::of(&[&[(9, 3)], &[(0, 1), (9, 3)], &[(2, 1), (9, 3)]]).all_shared();
    layout.pieces[1][1].shared = false;
    let budget = Budget::first_fit(8);
    for max_request in [2, 4] {
        let shape = RequestShape::unmerged().max_request(max_request);
        let requests: Vec<_> = requests(&layout, SweepOrder::Fragment, budget, shape).collect();
        assert!(requests.is_sorted_by_key(|request| request.bin));
        let of_file_0: Vec<_> = requests.iter().filter(|request| request.bin == 1).flat_map(Request::reads).collect();
        assert!(of_file_0.iter().all(|piece| piece.file == 0));
        assert_eq!(of_file_0.iter().map(|piece| piece.length).sum::<u64>(), 3);
    }
}

/// The second file's completion, by a rest, frees the memory for the third. The sweep returns to it, and what is cut off
/// it takes its place before the rest of the first.
#[test]
fn rests_are_read_by_address() {
    let layout = Layout::of(&[&[(0, 20)], &[(1, 5)], &[(2, 10)]]);
    let shape = RequestShape::merged(0).max_request(4);
    let requests: Vec<_> = requests(&layout, SweepOrder::Fragment, Budget::on_demand(30), shape).collect();
    assert_eq!(ranges(&requests), [(0, 4), (4, 4), (2, 4), (6, 4), (10, 4), (14, 4), (18, 2)]);
    assert_eq!((&requests[1].completes, &requests[2].admits), (&vec![1], &vec![2]));
}
