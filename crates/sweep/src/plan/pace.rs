//! One order for several disks that share it, in which all of them come to their end together.
//!
//! Places of a file system on several disks are turns of units: the first unit of each lane, then the second of each. Where
//! files lie thickly in one part of a lane and thinly in another, such an order would leave one disk at work for long and the
//! others idle, for there are only so many requests in flight. So the units that hold something to read are put in an order
//! of their own: each lane keeps its order, and is everywhere as far through its work as the others are. Then the busiest
//! disk always has requests, and the time of all is its time.
//!
//! ```text
//! lane 1   ##########          ##          becomes   #1 ## ## ## ## ## ## ...
//! lane 2             #         ##########            (by work, not by place)
//! ```

/// The order of the units of several lanes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pace {
    unit_bytes: u64,
    /// The units in their order, by their numbers among the places.
    order: Vec<u64>,
    /// The same by their numbers, each with where it stands in the order.
    by_number: Vec<(u64, u64)>,
}

/// Something to read, or to skip to.
#[derive(Debug, Clone, Copy)]
struct Run {
    at: u64,
    length: u64,
}

impl Pace {
    /// The order for what lies at these places, each with its length. Unit `n` of the places is one of lane `n % lanes`. All lanes
    /// go on to each of the stages, which begin so far along in them, together.
    ///
    /// The work on a lane is counted in bytes. A way of the head over what nobody asked for counts as the bytes that could be
    /// read meanwhile, at most `gap`.
    #[must_use]
    pub fn new(
        (lanes, stages): (u64, &[u64]),
        unit_bytes: u64,
        gap: u64,
        places: impl Iterator<Item = (u64, u64)>,
    ) -> Self {
        let stage_of = |unit: u64| stages.partition_point(|&begins| begins <= unit.saturating_mul(unit_bytes));
        let mut runs: Vec<Vec<Run>> = (0..lanes).map(|_| Vec::new()).collect();
        for (place, length) in places {
            let unit = place / unit_bytes;
            let at = unit / lanes * unit_bytes + place % unit_bytes;
            runs[(unit % lanes) as usize].push(Run { at, length });
        }
        let mut units: Vec<(f64, u64)> = Vec::new();
        for (lane, runs) in (0..).zip(&mut runs) {
            runs.sort_unstable_by_key(|run| run.at);
            let work = work(runs, unit_bytes, gap);
            for stage in work.chunk_by(|&(one, ..), &(other, ..)| stage_of(one) == stage_of(other)) {
                let (&[(first, begun, _), ..], &[.., (_, _, end)]) = (stage, stage) else { continue };
                let (number, all) = (stage_of(first) as f64, (end - begun).max(1) as f64);
                let part = |before: u64| number + (before - begun) as f64 / all;
                units.extend(stage.iter().map(|&(unit, before, _)| (part(before), unit * lanes + lane)));
            }
        }
        units.sort_unstable_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let order: Vec<u64> = units.into_iter().map(|(_, number)| number).collect();
        let mut by_number: Vec<(u64, u64)> = order.iter().copied().zip(0..).collect();
        by_number.sort_unstable();
        Self { unit_bytes, order, by_number }
    }

    /// Where a place comes in the order; what lies in one unit keeps its distances. What the order wasn't made for comes last.
    #[must_use]
    pub fn of_place(&self, place: u64) -> u64 {
        let number = place / self.unit_bytes;
        match self.by_number.binary_search_by_key(&number, |&(number, _)| number) {
            Ok(found) => self.by_number[found].1 * self.unit_bytes + place % self.unit_bytes,
            Err(_) => self.end().saturating_add(place),
        }
    }

    /// The place that comes there.
    #[must_use]
    pub fn place(&self, ordered: u64) -> u64 {
        match self.order.get((ordered / self.unit_bytes) as usize) {
            Some(number) => number * self.unit_bytes + ordered % self.unit_bytes,
            None => ordered - self.end(),
        }
    }

    fn end(&self) -> u64 {
        self.order.len() as u64 * self.unit_bytes
    }
}

/// The units of a lane with something in them: number, work before, work after.
fn work(runs: &[Run], unit_bytes: u64, gap: u64) -> Vec<(u64, u64, u64)> {
    let mut units: Vec<(u64, u64, u64)> = Vec::new();
    let (mut done, mut head) = (0_u64, None);
    for run in runs {
        let before = done;
        let way = head.map_or(gap, |head| run.at.saturating_sub(head)).min(gap);
        let end = run.at.saturating_add(run.length);
        // What two files share is read once.
        let fresh = end - run.at.max(head.unwrap_or(0)).min(end);
        done = done.saturating_add(way).saturating_add(fresh);
        head = Some(head.map_or(end, |head: u64| head.max(end)));
        let unit = run.at / unit_bytes;
        match units.last_mut() {
            Some(last) if last.0 == unit => last.2 = done,
            _ => units.push((unit, before, done)),
        }
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u64 = 1000;
    const GAP: u64 = 100;

    /// The place of a byte of a lane, of two.
    fn place(lane: u64, at: u64) -> u64 {
        (at / UNIT * 2 + lane) * UNIT + at % UNIT
    }

    /// The lanes in the order in which these bytes of them are read, a letter each, 100 bytes.
    fn order(lanes: [&[u64]; 2]) -> String {
        order_in_stages(lanes, &[])
    }

    fn order_in_stages(lanes: [&[u64]; 2], stages: &[u64]) -> String {
        let places = || (0..2).flat_map(|lane| lanes[lane as usize].iter().map(move |&at| place(lane, at)));
        let pace = Pace::new((2, stages), UNIT, GAP, places().map(|place| (place, 100)));
        let mut ordered: Vec<u64> = places().map(|place| pace.of_place(place)).collect();
        ordered.sort_unstable();
        let back = ordered.iter().map(|&at| pace.place(at));
        let mut sorted: Vec<u64> = back.clone().collect();
        let lane = |place: u64| ['a', 'b'][(place / UNIT % 2) as usize];
        let letters = back.map(lane).collect();
        sorted.sort_unstable();
        let mut all: Vec<u64> = places().collect();
        all.sort_unstable();
        assert_eq!(sorted, all, "each place comes once");
        letters
    }

    #[test]
    fn lanes_with_as_much_to_read_take_turns_wherever_it_lies() {
        let (near, far) = ([0, 1000, 2000, 3000, 4000], [70_000, 71_000, 72_000, 73_000, 74_000]);
        assert_eq!(order([&near, &far]), "ababababab");
        // By place it would be one disk after the other, twice.
        let (thick_first, thick_last) = ([0, 1000, 2000, 3000, 90_000], [0, 87_000, 88_000, 89_000, 90_000]);
        assert_eq!(order([&thick_first, &thick_last]), "ababababab");
    }

    #[test]
    fn a_lane_with_more_to_read_is_read_more_often() {
        let long: Vec<u64> = (0..9).map(|unit| unit * UNIT).collect();
        assert_eq!(order([&long, &[0, 50_000, 90_000]]), "abaaabaaabaa");
        assert_eq!(order([&long, &[]]), "aaaaaaaaa");
    }

    /// From 50,000 on, what was read for one lane is read for the other.
    #[test]
    fn lanes_go_on_to_a_stage_together() {
        let (one, other) = ([0, 1000, 2000, 3000, 50_000], [0, 50_000, 51_000, 52_000, 53_000]);
        assert_eq!(order([&one, &other]), "ababababab");
        assert_eq!(order_in_stages([&one, &other], &[0, 50_000]), "abaaaabbbb");
        assert_eq!(order_in_stages([&one, &[]], &[0, 50_000]), "aaaaa");
    }

    #[test]
    fn what_lies_in_one_unit_stays_together() {
        let pace = Pace::new((2, &[]), UNIT, GAP, [(place(1, 5300), 100), (place(1, 5000), 200)].into_iter());
        assert_eq!([5000, 5300, 5999].map(|at| pace.of_place(place(1, at))), [0, 300, 999]);
        assert_eq!(pace.place(300), place(1, 5300));
        let unknown = place(0, 123_456);
        assert!(pace.of_place(unknown) >= UNIT);
        assert_eq!(pace.place(pace.of_place(unknown)), unknown);
    }

    #[test]
    fn work_is_bytes_and_ways_of_the_head() {
        let run = |at, length| Run { at, length };
        // A way of unknown length, 300 bytes; right behind it 100; over 50 bytes 200, of which 100 are read twice.
        let runs = [run(0, 300), run(300, 100), run(450, 200), run(550, 100), run(9000, 10)];
        assert_eq!(work(&runs, UNIT, GAP), [(0, 0, 750), (9, 750, 860)]);
        assert_eq!(work(&[run(u64::MAX - 1, 5)], UNIT, GAP).len(), 1);
        assert_eq!(work(&[], UNIT, GAP), []);
    }
}
