//! Files into the free space that there really is.

use std::ops::Range;

use super::free::{Free, Piece};
use crate::places::{Places, Run};

/// Where files would come to lie.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Fitted {
    /// In the order of the files.
    pub files: Vec<Places>,
    /// Breaks inside and between them.
    pub breaks: u64,
}

impl Fitted {
    /// The files by what lies in one piece: those between two places where the next file begins elsewhere than behind the one before.
    #[must_use]
    pub fn parts(&self) -> Vec<Range<usize>> {
        let begins = |&turn: &usize| turn == 0 || self.files[turn - 1].end() != self.files[turn].first();
        let begins: Vec<usize> = (0..self.files.len()).filter(begins).collect();
        let ends = begins.iter().copied().skip(1).chain([self.files.len()]);
        begins.iter().zip(ends).map(|(&begins, ends)| begins..ends).collect()
    }

    /// Some of the files alone.
    #[must_use]
    pub fn part(&self, files: Range<usize>) -> Fitted {
        let files = self.files[files].to_vec();
        let between = files.windows(2).filter(|pair| pair[0].end() != pair[1].first()).count() as u64;
        let breaks = files.iter().map(Places::breaks).sum::<u64>() + between;
        Fitted { files, breaks }
    }
}

/// Puts files, in their order, into as few pieces of free space as will do; `None` where there is too little of it.
///
/// The places rise. A file goes on in another piece only where none that follows can hold all of it, or where what is passed over for
/// that would be missing in the end, or would take several times as many pieces. `slack` places stay
/// free behind the last file, if there are so many.
#[must_use]
pub fn fit(files: &[&Places], free: &Free, slack: u64) -> Option<Fitted> {
    let needed: u64 = files.iter().map(|places| places.blocks()).sum();
    // The smallest piece that holds everything, so that larger ones stay whole.
    if let Some(one) = free.smallest(needed.saturating_add(slack)) {
        return in_pieces(files, &[one], Filled::ToTheEnd);
    }
    let mut total = 0_u64;
    let least = 1 + free.largest_first().position(|piece| {
        total = total.saturating_add(piece.blocks);
        total >= needed
    })?;
    in_whole_files(files, free, least).or_else(|| in_pieces(files, &largest(free, least), Filled::ToTheEnd))
}

/// Files in one piece each need so many times the pieces at most that files in several need: each piece is a break.
const MOST_PIECES: usize = 4;

/// Puts files that stay whole into as few of the largest pieces as is found by halves: `least` or more.
fn in_whole_files(files: &[&Places], free: &Free, least: usize) -> Option<Fitted> {
    let fitted = |count| in_pieces(files, &largest(free, count), Filled::ByWholeFiles);
    let most = free.largest_first().take(least * MOST_PIECES).count();
    let (mut too_few, mut enough, mut step) = (least - 1, least, 1);
    let mut found = loop {
        if let Some(found) = fitted(enough) {
            break found;
        }
        if enough == most {
            return None;
        }
        (too_few, enough, step) = (enough, most.min(enough + step), 2 * step);
    };
    while too_few + 1 < enough {
        let middle = usize::midpoint(too_few, enough);
        match fitted(middle) {
            Some(fewer) => (enough, found) = (middle, fewer),
            None => too_few = middle,
        }
    }
    Some(found)
}

/// So many of the largest pieces, or all that there are, rising.
fn largest(free: &Free, count: usize) -> Vec<Piece> {
    let mut largest: Vec<Piece> = free.largest_first().take(count).collect();
    largest.sort_unstable_by_key(|piece| piece.place);
    largest
}

/// Puts files, in their order, into places that were captured for them; `None` where those are too few.
#[must_use]
pub fn fit_into(files: &[&Places], captured: &Places) -> Option<Fitted> {
    let pieces: Vec<Piece> = captured.runs().iter().map(|run| Piece { place: run.place, blocks: run.blocks }).collect();
    if files.is_empty() || pieces.is_empty() { None } else { in_pieces(files, &pieces, Filled::ToTheEnd) }
}

/// How pieces are used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Filled {
    /// A file that doesn't fit into the rest of one goes into one that holds it.
    ByWholeFiles,
    /// Each to its end.
    ToTheEnd,
}

/// Into these pieces, in their order, from the first one on.
fn in_pieces(files: &[&Places], pieces: &[Piece], filled: Filled) -> Option<Fitted> {
    // Of each piece the most that it, or one behind it, holds.
    let mut most: Vec<u64> = pieces.iter().map(|piece| piece.blocks).collect();
    (1..most.len()).rev().for_each(|at| most[at - 1] = most[at - 1].max(most[at]));
    let (mut here, mut next) = (*pieces.first()?, 1);
    let mut fitted = Fitted::default();
    let mut previous: Option<u64> = None;
    for places in files {
        let needed = places.blocks();
        let is_wanted_whole = filled == Filled::ByWholeFiles && here.blocks < needed;
        if is_wanted_whole && most.get(next).is_some_and(|&most| most >= needed) {
            next += pieces[next..].iter().position(|piece| piece.blocks >= needed)?;
            (here, next) = (pieces[next], next + 1);
        }
        let mut runs = Vec::new();
        for run in places.runs() {
            let (mut logical, mut left) = (run.logical, run.blocks);
            while left > 0 {
                if here.blocks == 0 {
                    (here, next) = (*pieces.get(next)?, next + 1);
                    continue;
                }
                let blocks = left.min(here.blocks);
                runs.push(Run { logical, place: here.place, blocks });
                logical += blocks;
                left -= blocks;
                here = Piece { place: here.place + blocks, blocks: here.blocks - blocks };
            }
        }
        let places = Places::of(runs)?;
        fitted.breaks += places.breaks();
        if let (Some(end), Some(first)) = (previous, places.first()) {
            fitted.breaks += u64::from(end != first);
        }
        previous = places.end().or(previous);
        fitted.files.push(places);
    }
    Some(fitted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(blocks: u64) -> Places {
        Places::of([Run { logical: 0, place: 1 << 30, blocks }]).unwrap()
    }

    /// Of each file: place and blocks of its runs.
    type Drawn = Vec<Vec<(u64, u64)>>;

    fn fitted(files: &[u64], pieces: &[(u64, u64)], slack: u64) -> Option<(Drawn, u64)> {
        let files: Vec<_> = files.iter().map(|&blocks| file(blocks)).collect();
        let free: Free = pieces.iter().map(|&(place, blocks)| Piece { place, blocks }).collect();
        let fitted = fit(&files.iter().collect::<Vec<_>>(), &free, slack)?;
        let places = fitted.files.iter().map(|file| file.runs().iter().map(|run| (run.place, run.blocks)).collect());
        Some((places.collect(), fitted.breaks))
    }

    #[test]
    fn the_smallest_piece_that_holds_all_is_taken() {
        let told = fitted(&[3, 4], &[(100, 20), (200, 8), (300, 7)], 1);
        assert_eq!(told, Some((vec![vec![(200, 3)], vec![(203, 4)]], 0)));
        let told = fitted(&[3, 4], &[(100, 20), (200, 8), (300, 7)], 0);
        assert_eq!(told, Some((vec![vec![(300, 3)], vec![(303, 4)]], 0)));
    }

    #[test]
    fn pieces_that_touch_are_one() {
        assert_eq!(fitted(&[10], &[(116, 4), (100, 16)], 0), Some((vec![vec![(100, 10)]], 0)));
        assert_eq!(fitted(&[18], &[(116, 4), (100, 16)], 0), Some((vec![vec![(100, 18)]], 0)));
    }

    #[test]
    fn files_stay_whole_where_they_can() {
        let told = fitted(&[3, 4, 2], &[(100, 5), (200, 6)], 0);
        assert_eq!(told, Some((vec![vec![(100, 3)], vec![(200, 4)], vec![(204, 2)]], 1)));
        let told = fitted(&[9], &[(100, 5), (200, 5)], 0);
        assert_eq!(told, Some((vec![vec![(100, 5), (200, 4)]], 1)));
        assert_eq!(fitted(&[9], &[(100, 5), (200, 3)], 0), None);
    }

    #[test]
    fn files_are_cut_where_they_would_not_fit_else() {
        // The second file would pass over seven places for those that hold all of it, and the third would find two.
        let told = fitted(&[2, 4, 6], &[(100, 3), (200, 3), (300, 3), (400, 6)], 0);
        assert_eq!(told, Some((vec![vec![(100, 2)], vec![(102, 1), (200, 3)], vec![(400, 6)]], 2)));
    }

    #[test]
    fn what_was_captured_for_files_is_theirs_in_its_own_order() {
        let captured = |runs: &[(u64, u64)]| {
            let mut logical = 0;
            Places::of(runs.iter().map(|&(place, blocks)| {
                logical += blocks;
                Run { logical: logical - blocks, place, blocks }
            }))
            .unwrap()
        };
        let files = [file(3), file(4)];
        let files: Vec<&Places> = files.iter().collect();
        let told = |runs: &[(u64, u64)]| {
            let fitted = fit_into(&files, &captured(runs))?;
            Some((fitted.files.iter().map(|file| file.runs()[0].place).collect::<Vec<_>>(), fitted.breaks))
        };
        assert_eq!(told(&[(300, 7)]), Some((vec![300, 303], 0)));
        assert_eq!(told(&[(300, 3), (100, 4)]), Some((vec![300, 100], 1)), "it need not rise");
        assert_eq!(told(&[(300, 6)]), None);
        assert_eq!(told(&[]), None);
    }

    #[test]
    fn holes_stay_holes() {
        let sparse = Places::of([Run { logical: 0, place: 5, blocks: 1 }, Run { logical: 7, place: 9, blocks: 2 }]);
        let sparse = sparse.unwrap();
        let told = fit(&[&sparse], &Free::from_iter([Piece { place: 100, blocks: 3 }]), 0).unwrap();
        let runs = [Run { logical: 0, place: 100, blocks: 1 }, Run { logical: 7, place: 101, blocks: 2 }];
        assert_eq!((told.files[0].runs(), told.breaks), (runs.as_slice(), 0));
    }
}
