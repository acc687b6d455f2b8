//! Free space, by where it lies and by how much of it lies side by side.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Free places side by side.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Piece {
    /// The first.
    pub place: u64,
    /// How many.
    pub blocks: u64,
}

impl Piece {
    fn end(self) -> u64 {
        self.place + self.blocks
    }
}

/// Free places, those that touch as one piece. What it is asked takes as many steps as its pieces have digits, for each piece that is told.
#[derive(Clone, Debug, Default)]
pub struct Free {
    /// How many lie side by side, by the first of them.
    by_place: BTreeMap<u64, u64>,
    /// The same pieces: how many places, and the first.
    by_size: BTreeSet<(u64, Reverse<u64>)>,
    blocks: u64,
}

impl Free {
    /// All places.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Adds places; those that are there already stay.
    pub fn add(&mut self, piece: Piece) {
        self.remove(piece);
        if piece.blocks == 0 {
            return;
        }
        let mut joined = piece;
        if let Some((&place, &blocks)) = self.by_place.range(..piece.place).next_back()
            && place + blocks == piece.place
        {
            self.forget(Piece { place, blocks });
            joined = Piece { place, blocks: blocks + joined.blocks };
        }
        if let Some(&blocks) = self.by_place.get(&piece.end()) {
            self.forget(Piece { place: piece.end(), blocks });
            joined.blocks += blocks;
        }
        self.note(joined);
    }

    /// Removes places, as far as they are there.
    pub fn remove(&mut self, piece: Piece) {
        let cut: Vec<Piece> = self.at(piece).collect();
        for old in cut {
            self.forget(old);
            self.note(Piece { place: old.place, blocks: piece.place.saturating_sub(old.place) });
            let end = piece.end().min(old.end());
            self.note(Piece { place: end, blocks: old.end() - end });
        }
    }

    /// The pieces that have any of these places, rising.
    pub fn at(&self, piece: Piece) -> impl Iterator<Item = Piece> + '_ {
        let reaches = |(place, blocks): &(&u64, &u64)| piece.blocks > 0 && **place + **blocks > piece.place;
        let before = self.by_place.range(..piece.place).next_back().filter(reaches);
        let within = self.by_place.range(piece.place..piece.end());
        before.into_iter().chain(within).map(|(&place, &blocks)| Piece { place, blocks })
    }

    /// The smallest piece of so many places or more; of equal ones the last on the disk.
    #[must_use]
    pub fn smallest(&self, blocks: u64) -> Option<Piece> {
        self.by_size
            .range((blocks, Reverse(u64::MAX))..)
            .next()
            .map(|&(blocks, Reverse(place))| Piece { place, blocks })
    }

    /// All pieces, the largest first, of equal ones the first on the disk.
    pub fn largest_first(&self) -> impl Iterator<Item = Piece> + '_ {
        self.by_size.iter().rev().map(|&(blocks, Reverse(place))| Piece { place, blocks })
    }

    fn note(&mut self, piece: Piece) {
        if piece.blocks > 0 {
            self.by_place.insert(piece.place, piece.blocks);
            self.by_size.insert((piece.blocks, Reverse(piece.place)));
            self.blocks += piece.blocks;
        }
    }

    fn forget(&mut self, piece: Piece) {
        self.by_place.remove(&piece.place);
        self.by_size.remove(&(piece.blocks, Reverse(piece.place)));
        self.blocks -= piece.blocks;
    }
}

/// In any order.
impl FromIterator<Piece> for Free {
    fn from_iter<I: IntoIterator<Item = Piece>>(pieces: I) -> Self {
        let mut free = Free::default();
        pieces.into_iter().for_each(|piece| free.add(piece));
        free
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What pieces a set of places has, found in the plain way.
    fn pieces(places: &BTreeSet<u64>) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::new();
        for &place in places {
            match pieces.last_mut() {
                Some(last) if last.end() == place => last.blocks += 1,
                _ => pieces.push(Piece { place, blocks: 1 }),
            }
        }
        pieces
    }

    proptest! {
        #[test]
        fn it_has_what_was_added_and_not_removed(
            steps in prop::collection::vec((any::<bool>(), 0_u64..60, 0_u64..12), 0..40),
            asked in (0_u64..60, 0_u64..30),
        ) {
            let (mut free, mut places) = (Free::default(), BTreeSet::new());
            for (is_added, place, blocks) in steps {
                let piece = Piece { place, blocks };
                if is_added {
                    free.add(piece);
                    places.extend(place..piece.end());
                } else {
                    free.remove(piece);
                    places.retain(|place| !(piece.place..piece.end()).contains(place));
                }
                let all = pieces(&places);
                prop_assert_eq!(free.blocks(), places.len() as u64);
                prop_assert_eq!(free.at(Piece { place: 0, blocks: 100 }).collect::<Vec<_>>(), all.clone());
                let mut by_size = all.clone();
                by_size.sort_by_key(|piece| (Reverse(piece.blocks), piece.place));
                prop_assert_eq!(free.largest_first().collect::<Vec<_>>(), by_size);
                let (place, blocks) = asked;
                let smallest = all.iter().filter(|piece| piece.blocks >= blocks).min_by_key(|piece| (piece.blocks, Reverse(piece.place)));
                prop_assert_eq!(free.smallest(blocks), smallest.copied());
                let has_any = |piece: &&Piece| piece.place.max(place) < piece.end().min(place + blocks);
                let at: Vec<Piece> = all.iter().filter(has_any).copied().collect();
                prop_assert_eq!(free.at(Piece { place, blocks }).collect::<Vec<_>>(), at);
            }
        }
    }
}
