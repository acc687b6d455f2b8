//! Which files a program comes to next: pure.
//!
//! Programs walk a tree in one of a few orders: as readdir gives entries (GNU tar, find, grep -r), by inode number (cp, and du
//! in large directories), by name (rsync, restic). Which one it is shows in the first files that it opens, and shows again
//! whenever it opens one that wasn't foreseen.

/// How many orders are known.
pub const ORDERS: usize = 3;

/// The files of a tree, by numbers from zero, in the orders in which a program may come to them.
#[derive(Debug, Clone)]
pub struct Course {
    /// Files in the order of each walk.
    walks: [Vec<u32>; ORDERS],
    /// Where each file stands in each walk.
    places: [Vec<u32>; ORDERS],
    bytes: Vec<u64>,
    /// How often a walk foresaw best what came.
    scores: [u32; ORDERS],
}

impl Course {
    /// Each walk holds each file once; `bytes` tells the page-cache bytes of each.
    pub fn new(walks: [Vec<u32>; ORDERS], bytes: Vec<u64>) -> Self {
        let places = walks.each_ref().map(|walk| {
            let mut places = vec![0; bytes.len()];
            for (place, &file) in walk.iter().enumerate() {
                places[file as usize] = place as u32;
            }
            places
        });
        Self { walks, places, bytes, scores: [0; ORDERS] }
    }

    /// Learns: after `last`, or as the first of all, a program opens `asked`. The walk on which the way is shortest is the
    /// likelier one; where ways are equally short, nothing is learnt of these.
    pub fn learn(&mut self, last: Option<u32>, asked: u32) {
        let ways = self.places.each_ref().map(|places| {
            let from = last.map_or(0, |last| u64::from(places[last as usize]) + 1);
            u64::from(places[asked as usize]).checked_sub(from)
        });
        let Some(shortest) = ways.iter().flatten().min() else { return };
        for (score, way) in self.scores.iter_mut().zip(ways) {
            *score += u32::from(way == Some(*shortest));
        }
    }

    /// The next files from `asked` on that are due, until `budget` bytes are full: along the likeliest walk, at whose end it
    /// goes on at its beginning. The one that is asked for is the first, however large.
    pub fn next(&self, asked: u32, budget: u64, mut is_due: impl FnMut(u32) -> bool) -> Vec<u32> {
        let likeliest = (0..ORDERS).rev().max_by_key(|&order| self.scores[order]).unwrap_or(0);
        let (walk, place) = (&self.walks[likeliest], self.places[likeliest][asked as usize] as usize);
        let mut files = vec![asked];
        let mut bytes = self.bytes[asked as usize];
        for &file in walk[place + 1..].iter().chain(&walk[..place]) {
            if !is_due(file) {
                continue;
            }
            bytes += self.bytes[file as usize];
            if bytes > budget {
                break;
            }
            files.push(file);
        }
        files
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Ten files of a byte: as they are, from the end, and the even ones first.
    fn ten() -> Course {
        let even_first = [0, 2, 4, 6, 8, 1, 3, 5, 7, 9];
        Course::new([(0..10).collect(), (0..10).rev().collect(), even_first.to_vec()], vec![1; 10])
    }

    #[test]
    fn nothing_known_is_the_order_of_readdir() {
        assert_eq!(ten().next(3, 3, |_| true), [3, 4, 5]);
        assert_eq!(ten().next(8, 4, |_| true), [8, 9, 0, 1], "and again from the beginning");
    }

    #[test]
    fn the_first_file_tells_the_walk() {
        let mut course = ten();
        course.learn(None, 9);
        assert_eq!(course.next(9, 3, |_| true), [9, 8, 7]);
    }

    #[test]
    fn what_was_not_foreseen_tells_another_walk() {
        let mut course = ten();
        course.learn(None, 0);
        course.learn(Some(0), 2);
        assert_eq!(course.next(2, 3, |file| file != 6), [2, 4, 8]);
        // Back again is no walk at all, and says nothing.
        let before = course.scores;
        course.learn(Some(3), 3);
        assert_eq!(course.scores, before);
    }

    #[test]
    fn a_file_that_is_asked_for_comes_though_it_fills_the_budget() {
        let walk: Vec<u32> = (0..3).collect();
        let course = Course::new([walk.clone(), walk.clone(), walk], vec![100, 1, 1]);
        assert_eq!(course.next(0, 10, |_| true), [0]);
        assert_eq!(course.next(1, 10, |_| true), [1, 2], "what doesn't fit ends it");
    }

    proptest! {
        /// However a program goes, a batch has each file once, only due ones, and fits.
        #[test]
        fn batches_hold_what_was_promised(
            (walks, bytes) in (1_usize..40).prop_flat_map(|count| {
                let walk = Just((0..count as u32).collect::<Vec<u32>>()).prop_shuffle();
                ([walk.clone(), walk.clone(), walk], prop::collection::vec(0_u64..9, count))
            }),
            opened in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..9),
            asked: prop::sample::Index,
            budget in 0_u64..60,
            due: u64,
        ) {
            let count = bytes.len();
            let mut course = Course::new(walks, bytes.clone());
            for (last, next) in opened {
                course.learn(Some(last.index(count) as u32), next.index(count) as u32);
            }
            let asked = asked.index(count) as u32;
            let batch = course.next(asked, budget, |file| due >> file & 1 == 1);
            prop_assert_eq!(batch[0], asked);
            prop_assert!(batch[1..].iter().all(|file| due >> file & 1 == 1 && *file != asked));
            let mut once = batch.clone();
            once.sort_unstable();
            once.dedup();
            prop_assert_eq!(once.len(), batch.len());
            let total: u64 = batch.iter().map(|file| bytes[*file as usize]).sum();
            prop_assert!(batch.len() == 1 || total <= budget);
        }
    }
}
