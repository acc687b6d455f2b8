//! Totals of a directory over time, the fewer the older they are.

use crate::code::{Reader, Writer};
use crate::{totals::Sums, whole_for::WholeFor};

/// What a directory came to at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// Seconds since 1970.
    pub at: i64,
    /// Bytes as sizes tell them, directories too.
    pub bytes: i64,
    /// Units of 512 bytes that are allocated.
    pub blocks: i64,
    /// Everything that has an inode.
    pub inodes: i64,
    /// For whom that was all there was.
    pub whole_for: WholeFor,
}

/// Up to which age, and one in how many seconds is kept.
const KEPT: [(i64, i64); 4] = [(DAY, 10 * MINUTE), (7 * DAY, 3600), (31 * DAY, 6 * 3600), (366 * DAY, DAY)];
/// What is older.
const OLDEST_EVERY: i64 = 7 * DAY;
/// Of a time in which nothing changes the end is moved so often, and no oftener: to write that takes as much as what has changed.
const STILL_EVERY: i64 = 3600;
/// How it is stored. What was stored before had no such number, and began with the seconds from 1970 to its first point.
const FORMAT: u8 = 1;
const MINUTE: i64 = 60;
const DAY: i64 = 86_400;

/// How totals are noted at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noting {
    /// Seconds since 1970, as the clock says.
    pub at: i64,
    /// The same, as far as the clock is believed: by this points are old.
    pub old_by: i64,
    /// When somebody asked for the directory last, likewise.
    pub asked_at: i64,
    /// A directory gets its first point.
    pub begins: bool,
    /// Points that are later are of a clock that was wrong, and go.
    pub ends_future: bool,
}

impl Point {
    /// Of sums.
    pub fn of(sums: &Sums, at: i64, whole_for: WholeFor) -> Point {
        Point { at, bytes: sums.bytes + sums.directory_bytes, blocks: sums.blocks, inodes: sums.inodes(), whole_for }
    }

    fn is_like(&self, other: &Point) -> bool {
        Point { at: 0, ..*self } == Point { at: 0, ..*other }
    }
}

/// The points of a directory, from the oldest on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// When somebody asked for it last, in seconds since 1970, as it was known when something was noted.
    pub asked_at: i64,
    points: Vec<Point>,
}

impl History {
    /// From the oldest on.
    pub fn points(&self) -> &[Point] {
        &self.points
    }

    /// What may be told to a user: what that one could have counted then.
    pub fn for_user(mut self, uid: u32) -> History {
        self.points.retain(|point| point.whole_for.includes(uid));
        self
    }

    /// What it came to at a time: the last point that isn't later. `None` when nothing was known then.
    pub fn at(&self, time: i64) -> Option<Point> {
        let later = self.points.partition_point(|point| point.at <= time);
        self.points.get(later.checked_sub(1)?).copied()
    }

    /// Whether it says so already: nothing has changed between its last two points and this one, and the last isn't old.
    pub(crate) fn says(&self, point: &Point) -> bool {
        let [.., before, last] = &self.points[..] else { return false };
        let age = point.at - last.at;
        before.is_like(point) && last.is_like(point) && (0..STILL_EVERY).contains(&age)
    }

    /// Adds what is true at the time of `noting`, and thins out what is old. Of a time in which nothing changes both ends are kept. False where
    /// the clock stands before the last point: then all stays as it is, unless that one goes.
    pub fn add(&mut self, point: Point, noting: Noting) -> bool {
        if noting.ends_future {
            self.points.retain(|before| before.at < point.at);
        }
        match self.points.last() {
            Some(last) if last.at > point.at => return false,
            Some(last) if last.at == point.at => _ = self.points.pop(),
            None if !noting.begins => return true,
            _ => {}
        }
        let still = self.points.iter().rev().take_while(|before| before.is_like(&point)).count();
        if still >= 2 {
            self.points.pop();
        }
        self.points.push(point);
        self.thin(noting.old_by);
        true
    }

    /// Keeps the last point of each span, and the first of all.
    fn thin(&mut self, now: i64) {
        let span = |at: i64| {
            let age = now - at;
            let every = KEPT.iter().find(|(up_to, _)| age <= *up_to).map_or(OLDEST_EVERY, |(_, every)| *every);
            (every, at.div_euclid(every))
        };
        let points = std::mem::take(&mut self.points);
        for (index, point) in points.iter().enumerate() {
            let is_last = points.get(index + 1).is_none_or(|next| span(next.at) != span(point.at));
            if is_last || index == 0 {
                self.points.push(*point);
            }
        }
    }

    /// As it is stored: differences from point to point.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Writer(vec![FORMAT]);
        out.unsigned(self.asked_at.max(0) as u64);
        let mut last = Point::default();
        for point in &self.points {
            out.unsigned((point.at - last.at).max(0) as u64);
            let whole_for = match point.whole_for {
                WholeFor::All => 0,
                WholeFor::Owner(uid) => 1 + i64::from(uid),
                WholeFor::Root => -1,
            };
            out.sparse(&[point.bytes - last.bytes, point.blocks - last.blocks, point.inodes - last.inodes, whole_for]);
            last = *point;
        }
        out.0
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<History> {
        // Nobody noted for whom points were before.
        let is_old = bytes.first() != Some(&FORMAT);
        let mut reader = Reader(bytes);
        let mut asked_at = 0;
        if !is_old {
            reader.0 = &bytes[1..];
            asked_at = reader.unsigned()?.try_into().ok()?;
        }
        let (mut points, mut last) = (Vec::new(), Point::default());
        while !reader.0.is_empty() {
            let at = last.at.checked_add_unsigned(reader.unsigned()?)?;
            let [bytes, blocks, inodes, whole_for] = match is_old {
                true => reader.sparse::<3>().map(|[bytes, blocks, inodes]| [bytes, blocks, inodes, -1])?,
                false => reader.sparse()?,
            };
            last = Point {
                at,
                bytes: last.bytes.checked_add(bytes)?,
                blocks: last.blocks.checked_add(blocks)?,
                inodes: last.inodes.checked_add(inodes)?,
                whole_for: match whole_for {
                    0 => WholeFor::All,
                    -1 => WholeFor::Root,
                    owner => WholeFor::Owner(owner.checked_sub(1)?.try_into().ok()?),
                },
            };
            points.push(last);
        }
        if is_old {
            asked_at = last.at;
        }
        Some(History { asked_at, points })
    }

    /// The same of the time alone, without reading all.
    pub(crate) fn asked_at_of(bytes: &[u8]) -> Option<i64> {
        match bytes {
            [FORMAT, rest @ ..] => Reader(rest).unsigned()?.try_into().ok(),
            _ => Some(History::decode(bytes)?.asked_at),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn point(at: i64, bytes: i64) -> Point {
        Point { at, bytes, blocks: bytes / 512, inodes: 3, whole_for: WholeFor::All }
    }

    fn at(at: i64) -> Noting {
        Noting { at, old_by: at, asked_at: at, begins: true, ends_future: false }
    }

    fn times(history: &History) -> Vec<i64> {
        history.points().iter().map(|point| point.at).collect()
    }

    #[test]
    fn old_points_are_thinned_out() {
        let mut history = History::default();
        let (start, years, month) = (1_700_000_000, 3 * 366 * DAY, 32 * DAY);
        let early = (0..years - month).step_by(6 * 3600);
        for age in early.chain((years - month..years).step_by(600)) {
            assert!(history.add(point(start + age, age), at(start + age)));
        }
        let points = history.points();
        let now = points.last().expect("points").at;
        let between = |from: i64, to: i64| points.iter().filter(|point| (from..to).contains(&(now - point.at))).count();
        assert_eq!(between(0, DAY), 144);
        assert!((140..=150).contains(&between(DAY, 7 * DAY)), "{}", between(DAY, 7 * DAY));
        assert!((94..=98).contains(&between(7 * DAY, 31 * DAY)), "{}", between(7 * DAY, 31 * DAY));
        assert!((333..=337).contains(&between(31 * DAY, 366 * DAY)));
        assert_eq!(points[0], point(start, 0));
        assert!(points.len() < 1000);
        assert_eq!(history.at(start - 1), None);
        assert_eq!(history.at(now + 5), points.last().copied());
        // In the last day to the ten minutes.
        assert_eq!(history.at(now - 3599).map(|point| now - point.at), Some(3600));
    }

    #[test]
    fn of_a_time_without_change_both_ends_are_kept() {
        let mut history = History::default();
        for (time, bytes) in [(1000, 5), (2000, 5), (3000, 5), (4000, 5), (5000, 6), (6000, 6)] {
            assert!(history.add(point(time, bytes), at(time)));
        }
        let found: Vec<(i64, i64)> = history.points().iter().map(|point| (point.at, point.bytes)).collect();
        assert_eq!(found, [(1000, 5), (4000, 5), (5000, 6), (6000, 6)]);
    }

    #[test]
    fn of_a_time_without_change_the_end_is_moved_each_hour() {
        let mut history = History::default();
        assert!(!history.says(&point(1000, 5)));
        for time in [1000, 2000] {
            assert!(!history.says(&point(time, 5)));
            assert!(history.add(point(time, 5), at(time)));
        }
        for (time, bytes, says) in
            [(2000, 5, true), (5599, 5, true), (5600, 5, false), (2600, 6, false), (1900, 5, false)]
        {
            assert_eq!(history.says(&point(time, bytes)), says, "{time} {bytes}");
        }
        assert!(history.add(point(3000, 6), at(3000)));
        assert!(!history.says(&point(3600, 6)), "of that there is one end only");
    }

    #[test]
    fn a_clock_that_is_set_back_takes_nothing_unless_it_is_believed() {
        let mut history = History::default();
        for time in [1000, 9_000_000] {
            assert!(history.add(point(time, time), at(time)));
        }
        assert!(!history.add(point(2000, 2000), at(2000)));
        assert_eq!(times(&history), [1000, 9_000_000]);
        assert!(history.add(point(9_000_000, 5), at(9_000_000)), "it stands where it stood");
        assert_eq!((times(&history), history.points()[1].bytes), (vec![1000, 9_000_000], 5));
        assert!(history.add(point(2000, 2000), Noting { ends_future: true, ..at(2000) }));
        assert_eq!(times(&history), [1000, 2000]);
    }

    #[test]
    fn points_are_as_old_as_the_clock_is_believed() {
        let mut history = History::default();
        let (start, later) = (1_700_000_000, 1_700_000_000 + 400 * DAY);
        for time in (start..start + DAY).step_by(600) {
            history.add(point(time, time), at(time));
        }
        let before = times(&history);
        assert!(history.add(point(later, 0), Noting { old_by: start + DAY, ..at(later) }));
        assert_eq!(times(&history), [&before[..], &[later]].concat());
        assert!(history.add(point(later + 600, 1), at(later + 600)));
        assert!(times(&history).len() <= 6, "{:?}", times(&history));
    }

    #[test]
    fn nothing_begins_by_a_clock_that_is_wrong() {
        let mut history = History::default();
        assert!(history.add(point(1000, 1), Noting { begins: false, ..at(1000) }));
        assert!(history.points().is_empty());
        assert!(history.add(point(2000, 1), at(2000)));
        assert!(history.add(point(3000, 2), Noting { begins: false, ..at(3000) }));
        assert_eq!(times(&history), [2000, 3000]);
    }

    /// Who may not have seen all of it is told nothing of it.
    #[test]
    fn what_was_stored_before_is_for_root() {
        let mut old = Writer::default();
        for (seconds, bytes) in [(1_700_000_000, 4096), (600, -512)] {
            old.unsigned(seconds);
            old.sparse(&[bytes, bytes / 512, 1]);
        }
        let history = History::decode(&old.0).expect("it is taken over");
        let told: Vec<_> = history.points().iter().map(|point| (point.at, point.bytes, point.inodes)).collect();
        assert_eq!(told, [(1_700_000_000, 4096, 1), (1_700_000_600, 3584, 2)]);
        assert_eq!([&old.0, &history.encode()].map(|bytes| History::asked_at_of(bytes)), [Some(1_700_000_600); 2]);
        assert_eq!(History::decode(&history.encode()), Some(history.clone()));
        assert!(history.clone().for_user(7).points().is_empty());
        assert_eq!(history.clone().for_user(0), history);
    }

    #[test]
    fn a_user_is_told_of_what_was_open_then() {
        let mut history = History::default();
        for (time, whole_for) in [(1000, WholeFor::All), (2000, WholeFor::Owner(7)), (3000, WholeFor::Root)] {
            assert!(history.add(Point { whole_for, ..point(time, 5) }, at(time)));
        }
        assert_eq!(times(&history), [1000, 2000, 3000], "they are not alike");
        let told = |uid| times(&history.clone().for_user(uid));
        assert_eq!((told(0), told(7), told(8)), (vec![1000, 2000, 3000], vec![1000, 2000], vec![1000]));
    }

    proptest! {
        #[test]
        fn histories_come_back(
            steps in prop::collection::vec((1_i64..100_000, -1_000_000_i64..1_000_000, any::<u32>()), 0..60),
        ) {
            let (mut history, mut now, mut bytes) = (History::default(), 0, 0);
            for (time, change, uid) in steps {
                (now, bytes) = (now + time, bytes + change);
                let whole_for = match uid % 4 {
                    0 => WholeFor::All,
                    1 => WholeFor::Root,
                    _ => WholeFor::Owner(uid),
                };
                history.add(Point { whole_for, ..point(now, bytes) }, at(now));
            }
            prop_assert_eq!(History::decode(&history.encode()), Some(history));
        }

        #[test]
        fn anything_can_be_decoded(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = History::decode(&bytes);
        }
    }
}
