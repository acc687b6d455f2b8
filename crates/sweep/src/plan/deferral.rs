//! Which files the first bin leaves to the next one, so that the others fit without a clean-up.
//!
//! Beyond the paper, which decides when a file comes that doesn't fit: by then the memory is full of whatever came before.
//! A plan knows where every file begins and ends, so it can leave out those that would hold much for long, and are cheap to
//! read later: each piece of a file that is left out costs a seek.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::{fragment::Piece, schedule::look_up, source::PlanSource};

/// Takes files out of `queue`, which is sorted by first pieces, until those that stay never hold more than `budget` at
/// once. Returns them in the same order. Each file must fit in the budget alone.
///
/// Costs one look at every piece, 9 bytes for each file, and at most some 250 bytes for each that waits for pieces at the same
/// time.
pub(super) fn defer<S: PlanSource>(source: &S, queue: &mut Vec<u32>, budget: u64) -> Vec<u32> {
    let mut waiting =
        Waiting { bytes: 0, by_end: BinaryHeap::new(), by_weight: BinaryHeap::new(), stays: vec![true; queue.len()] };
    let mut pieces = Vec::new();
    for (place, &file) in queue.iter().enumerate() {
        look_up(source, file, &mut pieces);
        let (Some(&first), Some(&last)) = (pieces.iter().min(), pieces.iter().max()) else { continue };
        waiting.complete_before(first);
        let cost = source.cost(file);
        if pieces.len() == 1 {
            // It is complete at once, and needs its memory only then.
            waiting.shrink_to(budget.saturating_sub(cost));
        } else {
            waiting.admit(Held { place, cost }, last, weight(cost, first, last, pieces.len()));
            waiting.shrink_to(budget);
        }
    }
    let mut stays = waiting.stays.into_iter();
    let mut deferred = queue.clone();
    deferred.retain({
        let mut stays = stays.clone();
        move |_| stays.next() == Some(false)
    });
    queue.retain(|_| stays.next() == Some(true));
    deferred
}

/// Bytes times the way over which they are held, for each piece that would be read later instead.
fn weight(cost: u64, first: Piece, last: Piece, pieces: usize) -> u128 {
    let way = (last.address - first.address).saturating_add(last.length);
    u128::from(cost) * u128::from(way) / pieces as u128
}

/// A file that waits for pieces: its place in the queue, and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    place: usize,
    cost: u64,
}

/// The files that wait for pieces at one place of the sweep.
struct Waiting {
    bytes: u64,
    by_end: BinaryHeap<Reverse<(Piece, Held)>>,
    /// With some that are complete.
    by_weight: BinaryHeap<(u128, Reverse<Piece>, Held)>,
    /// By the place in the queue.
    stays: Vec<bool>,
}

impl Waiting {
    fn admit(&mut self, held: Held, last: Piece, weight: u128) {
        self.bytes += held.cost;
        self.by_end.push(Reverse((last, held)));
        self.by_weight.push((weight, Reverse(last), held));
    }

    fn complete_before(&mut self, piece: Piece) {
        while let Some(&Reverse((last, held))) = self.by_end.peek() {
            if last >= piece {
                break;
            }
            self.by_end.pop();
            if self.stays[held.place] {
                self.bytes -= held.cost;
            }
        }
        if self.by_weight.len() > 2 * self.by_end.len() + 1024 {
            self.by_weight.retain(|&(_, Reverse(last), _)| last >= piece);
        }
    }

    fn shrink_to(&mut self, room: u64) {
        let next = self.by_end.peek().map(|&Reverse((last, _))| last);
        while self.bytes > room {
            let Some((_, Reverse(last), held)) = self.by_weight.pop() else { return };
            if next.is_some_and(|next| last >= next) {
                self.bytes -= held.cost;
                self.stays[held.place] = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files as (cost, addresses of pieces of one byte).
    struct Files(Vec<(u64, Vec<u64>)>);

    impl PlanSource for Files {
        fn files(&self) -> u32 {
            self.0.len() as u32
        }
        fn cost(&self, file: u32) -> u64 {
            self.0[file as usize].0
        }
        fn pieces(&self, file: u32, visit: &mut dyn FnMut(Piece)) {
            for (offset, &address) in self.0[file as usize].1.iter().enumerate() {
                visit(Piece { file, address, offset: offset as u64, length: 1, shared: false });
            }
        }
    }

    fn deferred(files: &[(u64, &[u64])], budget: u64) -> Vec<u32> {
        let files = Files(files.iter().map(|(cost, addresses)| (*cost, addresses.to_vec())).collect());
        let mut queue: Vec<u32> = (0..files.files()).collect();
        let left_out = defer(&files, &mut queue, budget);
        let mut both = [&queue[..], &left_out].concat();
        both.sort_unstable();
        assert_eq!(both, (0..files.files()).collect::<Vec<_>>());
        left_out
    }

    #[test]
    fn what_fits_stays() {
        assert_eq!(deferred(&[(4, &[0, 9]), (4, &[1, 8])], 8), []);
        assert_eq!(deferred(&[(8, &[0, 1]), (8, &[2, 9]), (8, &[10])], 8), [], "one after the other");
    }

    #[test]
    fn who_holds_long_is_left_out() {
        assert_eq!(deferred(&[(4, &[0, 90]), (4, &[1, 3]), (4, &[2, 4])], 8), [0]);
        assert_eq!(deferred(&[(4, &[0, 2]), (4, &[1, 90]), (8, &[50, 51])], 8), [1], "not the one that comes last");
    }

    #[test]
    fn who_is_cheap_to_read_later_is_left_out() {
        assert_eq!(deferred(&[(4, &[0, 2, 4, 6, 8, 90]), (4, &[1, 91]), (4, &[3, 40])], 8), [1]);
    }

    #[test]
    fn a_file_in_one_piece_needs_its_room_for_a_moment() {
        assert_eq!(deferred(&[(4, &[0, 90]), (6, &[5]), (4, &[6, 91])], 8), [0]);
        assert_eq!(deferred(&[(2, &[0, 90]), (6, &[5]), (6, &[6, 91])], 8), []);
    }
}
