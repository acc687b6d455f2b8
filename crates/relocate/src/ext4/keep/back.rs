//! What leads a step back, decided from where all lies now. Pure.

use super::Left;
use super::manifest::Step;
use crate::host::Exchange;
use crate::places::Places;

/// The exchanges that bring the blocks of a step back to where they lay: those that are still where the move has brought them,
/// while the donor has their old places. Blocks that lie there already need none.
pub(super) fn way_back(step: &Step, file: &Places, donor: &Places) -> Result<Vec<Exchange>, Left> {
    let mut exchanges: Vec<Exchange> = Vec::new();
    let start = step.was.runs().first().map_or(0, |run| run.logical);
    for number in 0..step.was.blocks() {
        let (from, to) = (start + number, step.to + number);
        let (was, became, now) = (step.was.at(from), step.became.at(from), file.at(from));
        if now == was {
            continue;
        }
        if now != became {
            return Err(Left::ElsewhereSince);
        }
        if donor.at(to) != was {
            return Err(Left::NotHeld);
        }
        match exchanges.last_mut() {
            Some(last) if last.from + last.blocks == from => last.blocks += 1,
            _ => exchanges.push(Exchange { from, to, blocks: 1 }),
        }
    }
    Ok(exchanges)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::Run;

    fn places(runs: &[(u64, u64, u64)]) -> Places {
        Places::of(runs.iter().map(|&(logical, place, blocks)| Run { logical, place, blocks })).unwrap()
    }

    /// Blocks 2 to 5 of a file, in a donor from its block 8 on.
    fn step() -> Step {
        Step { donor: 0, to: 8, was: places(&[(2, 10, 2), (4, 30, 2)]), became: places(&[(2, 100, 4)]) }
    }

    fn told(file: &[(u64, u64, u64)], donor: &[(u64, u64, u64)]) -> Result<Vec<(u64, u64, u64)>, Left> {
        let exchanges = way_back(&step(), &places(file), &places(donor))?;
        Ok(exchanges.iter().map(|one| (one.from, one.to, one.blocks)).collect())
    }

    #[test]
    fn what_was_moved_comes_back_and_the_rest_stays() {
        let donor = [(8, 10, 2), (10, 30, 2)];
        assert_eq!(told(&[(2, 100, 4)], &donor), Ok(vec![(2, 8, 4)]));
        // It has grown, and has another place before the step.
        assert_eq!(told(&[(0, 500, 2), (2, 100, 4), (6, 700, 9)], &donor), Ok(vec![(2, 8, 4)]));
        // Never moved, or back already.
        assert_eq!(told(&[(2, 10, 2), (4, 30, 2)], &[(8, 100, 4)]), Ok(vec![]));
    }

    #[test]
    fn half_a_way_is_gone_to_its_end() {
        assert_eq!(told(&[(2, 10, 1), (3, 101, 3)], &[(8, 100, 1), (9, 11, 1), (10, 30, 2)]), Ok(vec![(3, 9, 3)]));
        let both = [(2, 100, 1), (3, 11, 1), (4, 102, 2)];
        assert_eq!(told(&both, &[(8, 10, 1), (9, 101, 1), (10, 30, 2)]), Ok(vec![(2, 8, 1), (4, 10, 2)]));
    }

    #[test]
    fn what_lies_elsewhere_or_is_not_held_is_left() {
        let donor = [(8, 10, 2), (10, 30, 2)];
        assert_eq!(told(&[(2, 100, 3), (5, 900, 1)], &donor), Err(Left::ElsewhereSince));
        assert_eq!(told(&[(2, 100, 3)], &donor), Err(Left::ElsewhereSince), "it was cut");
        assert_eq!(told(&[(2, 100, 4)], &[(8, 10, 2), (10, 31, 2)]), Err(Left::NotHeld));
        assert_eq!(told(&[(2, 100, 4)], &[]), Err(Left::NotHeld));
    }
}
