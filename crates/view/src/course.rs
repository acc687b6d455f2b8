//! Which files a program comes to next: pure.
//!
//! Programs walk a tree in one of a few orders: as readdir gives entries (GNU tar, find, grep -r), by inode number (cp, and du
//! in large directories), by name (restic); each directory where its entry stands, or behind the files beside it (rsync, clamscan,
//! Python's os.walk); or from the end. Which one it is shows in the first files that it opens, and shows again whenever it opens one
//! that wasn't foreseen.

/// How many orders are known.
pub const ORDERS: usize = 6;

/// A program reads on when it has opened one of so many of those beside what it opens: to read them all costs less then.
pub const READ_PART: usize = 4;
/// So many beside a file are looked at, in each walk and on each side, and so many places for them: in a tree of hard links (rsnapshot)
/// nobody waits for most names.
const NEIGHBOURS: usize = 8;
const PLACES: usize = 1024;
/// Files between one and the end of a walk that are looked at.
const SAMPLE: usize = 16;

/// A file that is in no walk has no place.
const NONE: u32 = u32::MAX;

/// The files of a tree, by numbers from zero, in the orders in which a program may come to them.
#[derive(Debug, Clone)]
pub struct Course {
    /// Files in the order of each walk.
    walks: [Vec<u32>; ORDERS],
    /// Where each file stands in each walk.
    places: [Vec<u32>; ORDERS],
    bytes: Vec<u64>,
    /// How often a walk, and the same from its end, foresaw best what came.
    scores: [[u32; 2]; ORDERS],
}

impl Course {
    /// Each walk holds a file once at most; `bytes` tells the page-cache bytes of each.
    pub fn new(walks: [Vec<u32>; ORDERS], bytes: Vec<u64>) -> Self {
        let places = walks.each_ref().map(|walk| {
            let mut places = vec![NONE; bytes.len()];
            for (place, &file) in walk.iter().enumerate() {
                places[file as usize] = place as u32;
            }
            places
        });
        Self { walks, places, bytes, scores: [[0; 2]; ORDERS] }
    }

    /// Learns: after `last`, or as the first of all, a program opens `asked`. The walk on which the way is shortest is the
    /// likelier one; where ways are equally short, nothing is learnt of these.
    pub fn learn(&mut self, last: Option<u32>, asked: u32) {
        let ways: [[Option<u64>; 2]; ORDERS] = std::array::from_fn(|order| {
            let (places, end) = (&self.places[order], self.walks[order].len() as u64);
            let place = |file: u32| Some(places[file as usize]).filter(|place| *place != NONE).map(u64::from);
            let (Some(to), from) = (place(asked), last.map(place)) else { return [None; 2] };
            match from {
                None => [Some(to), (end - 1).checked_sub(to)],
                Some(from) => {
                    [from.and_then(|from| to.checked_sub(from + 1)), from.and_then(|from| from.checked_sub(to + 1))]
                }
            }
        });
        let Some(shortest) = ways.iter().flatten().flatten().min() else { return };
        for (score, way) in self.scores.iter_mut().flatten().zip(ways.iter().flatten()) {
            *score += u32::from(*way == Some(*shortest));
        }
    }

    /// The next files from `asked` on that are due, until `budget` bytes are full: along the likeliest walk, at whose end it
    /// goes on at its beginning. The one that is asked for is the first, however large.
    pub fn next(&self, asked: u32, budget: u64, is_due: impl FnMut(u32) -> bool) -> Vec<u32> {
        let ways = (0..ORDERS).flat_map(|order| [(order, false), (order, true)]);
        let score = |(order, is_from_end): (usize, bool)| self.scores[order][usize::from(is_from_end)];
        let (order, is_from_end) = ways.rev().max_by_key(|way| score(*way)).unwrap_or((0, false));
        let walk = &self.walks[order];
        let place = match self.places[order][asked as usize] {
            NONE => return vec![asked],
            place => place as usize,
        };
        match is_from_end {
            false => self.fitting(asked, budget, is_due, walk[place + 1..].iter().chain(&walk[..place])),
            true => {
                self.fitting(asked, budget, is_due, walk[..place].iter().rev().chain(walk[place + 1..].iter().rev()))
            }
        }
    }

    fn fitting<'a>(
        &self,
        asked: u32,
        budget: u64,
        mut is_due: impl FnMut(u32) -> bool,
        others: impl Iterator<Item = &'a u32>,
    ) -> Vec<u32> {
        let mut files = vec![asked];
        let mut bytes = self.bytes[asked as usize];
        for &file in others {
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

    /// Whether a program that opens `asked` has opened what stands before it in one of the walks, or behind it: a part of that, or
    /// nothing stands there. `was_opened` is `None` of files that nobody waits for.
    pub fn is_on_the_way(&self, asked: u32, was_opened: impl Fn(u32) -> Option<bool>) -> bool {
        self.walks.iter().zip(&self.places).any(|(walk, places)| {
            let place = places[asked as usize] as usize;
            place < walk.len()
                && (has_read(walk[..place].iter().rev(), &was_opened)
                    || has_read(walk[place + 1..].iter(), &was_opened))
        })
    }

    /// Whether a file stands at an end of a walk: all of some between it and the end are, that lie far apart, as `was_read` tells, which is
    /// `None` of files that nobody waits for.
    pub fn is_at_an_end(&self, asked: u32, was_read: impl Fn(u32) -> Option<bool>) -> bool {
        let are_read = |between: &[u32]| {
            let step = (between.len() / SAMPLE).max(1);
            between.iter().step_by(step).all(|file| was_read(*file) != Some(false))
        };
        self.walks.iter().zip(&self.places).any(|(walk, places)| {
            let place = places[asked as usize] as usize;
            place < walk.len() && (are_read(&walk[..place]) || are_read(&walk[place + 1..]))
        })
    }
}

fn has_read<'a>(mut beside: impl Iterator<Item = &'a u32>, was_opened: impl Fn(u32) -> Option<bool>) -> bool {
    let near = beside.by_ref().take(PLACES);
    let known: Vec<bool> = near.filter_map(|file| was_opened(*file)).take(NEIGHBOURS).collect();
    if known.is_empty() {
        // Something may stand further away.
        return beside.next().is_none();
    }
    known.iter().filter(|opened| **opened).count() * READ_PART >= known.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Ten files of a byte: as they are, and the even ones first; what is not told is as they are.
    fn ten() -> Course {
        let as_they_are: Vec<u32> = (0..10).collect();
        let even_first = vec![0, 2, 4, 6, 8, 1, 3, 5, 7, 9];
        let mut walks: [Vec<u32>; ORDERS] = std::array::from_fn(|_| as_they_are.clone());
        walks[ORDERS - 1] = even_first;
        Course::new(walks, vec![1; 10])
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
        assert_eq!(course.next(9, 3, |_| true), [9, 8, 7], "from the end");
        assert_eq!(course.next(1, 3, |_| true), [1, 0, 9]);
    }

    #[test]
    fn what_was_not_foreseen_tells_another_walk() {
        let mut course = ten();
        course.learn(None, 0);
        course.learn(Some(0), 2);
        assert_eq!(course.next(2, 3, |file| file != 6), [2, 4, 8]);
        // The same again is no walk at all, and says nothing.
        let before = course.scores;
        course.learn(Some(3), 3);
        assert_eq!(course.scores, before);
    }

    #[test]
    fn a_file_that_is_asked_for_comes_though_it_fills_the_budget() {
        let course = Course::new(std::array::from_fn(|_| vec![0, 1, 2]), vec![100, 1, 1]);
        assert_eq!(course.next(0, 10, |_| true), [0]);
        assert_eq!(course.next(1, 10, |_| true), [1, 2], "what doesn't fit ends it");
    }

    #[test]
    fn who_has_read_what_stands_beside_a_file_reads_on() {
        let course = Course::new(std::array::from_fn(|_| (0..100).collect()), vec![1; 100]);
        let opened = |those: &'static [u32]| move |file: u32| Some(those.contains(&file));
        for (asked, those) in [(0, &[][..]), (1, &[0]), (99, &[]), (98, &[99]), (50, &[45, 48]), (50, &[51, 58])] {
            assert!(course.is_on_the_way(asked, opened(those)), "{asked} after {those:?}");
        }
        for (asked, those) in [(1, &[][..]), (50, &[]), (50, &[49]), (50, &[30, 35, 70]), (98, &[50])] {
            assert!(!course.is_on_the_way(asked, opened(those)), "{asked} after {those:?}");
        }
        // Empty ones between are nobody's.
        let seldom = |file: u32| (file.is_multiple_of(7)).then_some(file == 42);
        assert!(course.is_on_the_way(49, |file| if file < 40 { None } else { seldom(file) }));
        assert!(!course.is_on_the_way(49, seldom));
        let read = |those: std::ops::Range<u32>| move |file: u32| Some(those.contains(&file));
        assert!(course.is_at_an_end(0, |_| Some(false)) && course.is_at_an_end(99, |_| Some(false)));
        assert!(course.is_at_an_end(60, read(0..60)) && course.is_at_an_end(60, read(61..100)));
        assert!(!course.is_at_an_end(1, read(1..50)) && !course.is_at_an_end(60, read(30..90)));
        assert!(course.is_at_an_end(3, |file| (file > 2).then_some(false)), "those before are nobody's");
        // By another order what lies far apart is side by side.
        assert!(ten().is_on_the_way(6, |file| Some([2, 4].contains(&file))));
    }

    /// Most names of a tree of hard links are of files that have another one.
    #[test]
    fn where_nobody_waits_for_most_names_the_others_tell() {
        let course = Course::new(std::array::from_fn(|_| (0..20_000).collect()), vec![1; 20_000]);
        let sparse = |file: u32| file.is_multiple_of(200).then_some((9_000..10_000).contains(&file));
        assert!(course.is_on_the_way(10_000, sparse) && !course.is_on_the_way(12_000, sparse));
        let far = |file: u32| (file == 5_000).then_some(true);
        assert!(!course.is_on_the_way(10_000, far), "nothing is known near it");
        assert!(course.is_on_the_way(20, far) && course.is_on_the_way(19_990, far), "nothing stands there");
    }

    proptest! {
        /// However a program goes, a batch has each file once, only due ones, and fits.
        #[test]
        fn batches_hold_what_was_promised(
            (walks, bytes) in (1_usize..40).prop_flat_map(|count| {
                let walk = Just((0..count as u32).collect::<Vec<u32>>()).prop_shuffle();
                let walks: [_; ORDERS] = std::array::from_fn(|_| walk.clone());
                (walks, prop::collection::vec(0_u64..9, count))
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
