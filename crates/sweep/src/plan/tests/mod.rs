//! Tests of the plan as a whole. Layouts are random unless a test is an example; `PROPTEST_CASES` sets how many.

mod figure;
mod reference;
mod requests;
mod scale;
mod schedules;

use proptest::{collection::vec, prelude::*};

use super::{
    Budget, DiskModel, NO_ADDRESS, Piece, PlanSource, RequestShape, Schedule, Step, Strategy as Requesting, SweepOrder,
};

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
        zones: 16,
        overhead_ms: 0.1,
    }
}

/// Files as a list of lists of pieces.
#[derive(Debug, Clone, Default)]
struct Layout {
    costs: Vec<u64>,
    pieces: Vec<Vec<Piece>>,
}

impl PlanSource for Layout {
    fn files(&self) -> u32 {
        self.pieces.len() as u32
    }

    fn cost(&self, file: u32) -> u64 {
        self.costs[file as usize]
    }

    fn pieces(&self, file: u32, visit: &mut dyn FnMut(Piece)) {
        self.pieces[file as usize].iter().copied().for_each(visit);
    }
}

impl Layout {
    /// Files of pieces given as (address, length), one behind the other in the file.
    fn of(files: &[&[(u64, u64)]]) -> Self {
        let mut layout = Self::default();
        for (file, runs) in files.iter().enumerate() {
            let mut offset = 0;
            let pieces = runs.iter().map(|&(address, length)| {
                offset += length;
                Piece { address, file: file as u32, offset: offset - length, length, shared: false }
            });
            layout.pieces.push(pieces.collect());
            layout.costs.push(offset);
        }
        layout
    }

    fn all_shared(mut self) -> Self {
        self.pieces.iter_mut().flatten().for_each(|piece| piece.shared = true);
        self
    }

    /// All pieces in the order of a sweep.
    fn sorted(&self) -> Vec<Piece> {
        let mut all: Vec<_> = self.pieces.iter().flatten().copied().filter(|piece| piece.length > 0).collect();
        all.sort_unstable();
        all
    }

    fn steps(&self, budget: Budget) -> Vec<Step> {
        Schedule::new(self, SweepOrder::Fragment, budget).unwrap().collect()
    }

    /// The cost of the largest file that takes part, at least 1.
    fn least_budget(&self) -> u64 {
        let takes_part = |file: &usize| self.pieces[*file].iter().any(|piece| piece.length > 0);
        (0..self.costs.len()).filter(takes_part).map(|file| self.costs[file]).max().unwrap_or(1).max(1)
    }

    fn total_cost(&self) -> u64 {
        self.costs.iter().sum()
    }
}

/// A layout with a budget that its files fit in, one by one.
#[derive(Debug, Clone)]
struct Case {
    layout: Layout,
    budget: Budget,
}

/// What a piece is made from: length, hole before it in the file, rank on the device, gap before it there, bytes by which
/// it reaches back into what lies before it there, kind.
type Draft = (u64, u64, u16, u64, u64, u8);

fn lay_out(drafts: &[(u64, Vec<Draft>)]) -> Layout {
    let mut layout = Layout::default();
    let mut placed = Vec::new();
    for (file, (slack, drafts)) in drafts.iter().enumerate() {
        let mut end = 0;
        let mut pieces = Vec::new();
        for &(length, hole, rank, gap, back, kind) in drafts {
            let piece = Piece { address: NO_ADDRESS, file: file as u32, offset: end + hole, length, shared: kind > 3 };
            end = piece.offset + length;
            if kind != 0 {
                placed.push((rank, file, pieces.len(), gap, if kind > 2 { back } else { 0 }));
            }
            pieces.push(piece);
        }
        layout.costs.push(end + slack);
        layout.pieces.push(pieces);
    }
    placed.sort_unstable();
    let mut end = 0_u64;
    for (_, file, at, gap, back) in placed {
        let piece = &mut layout.pieces[file][at];
        piece.address = if back > 0 { end.saturating_sub(back) } else { end + gap };
        end = end.max(piece.address + piece.length);
    }
    layout
}

/// Up to a dozen files with up to seven pieces each: out of order, some overlapping (shared or not), some without an
/// address, some empty.
fn layouts() -> impl Strategy<Value = Layout> {
    let draft = (0_u64..9, 0_u64..3, any::<u16>(), 0_u64..12, 0_u64..14, 0_u8..7);
    vec((0_u64..4, vec(draft, 0..8)), 0..13).prop_map(|drafts| lay_out(&drafts))
}

fn cases() -> impl Strategy<Value = Case> {
    (layouts(), 0_u64..101, 0_u64..101, 0_u8..4).prop_map(|(layout, more, threshold, kind)| {
        let least = layout.least_budget();
        let bytes = least + layout.total_cost().saturating_sub(least) * more * more / 10_000;
        let budget = match kind {
            0 => Budget::first_fit(bytes),
            1 => Budget::on_demand(bytes),
            _ => Budget::batched(bytes, bytes * threshold / 100),
        };
        Case { layout, budget }
    })
}

fn shapes() -> impl Strategy<Value = RequestShape> {
    let strategy = prop_oneof![Just(Requesting::Vanilla), Just(Requesting::Unmerged), Just(Requesting::Merged)];
    (strategy, 0_u64..16, prop_oneof![1_u64..24, Just(super::request::MAX_REQUEST)])
        .prop_map(|(strategy, gap, max_request)| RequestShape { strategy, gap, max_request })
}

/// Fewer cases than proptest's own default, so that the suite stays quick; the environment may ask for more.
fn config() -> ProptestConfig {
    let default = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { default.cases } else { 512 };
    ProptestConfig { cases, ..default }
}
