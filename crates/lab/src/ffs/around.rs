//! A better region: one that may begin before the block that is flushed.
//!
//! In the paper a region begins with that block, so what lies before it is never put in order by it, and a free place
//! just before it is of no use. Here the region may also begin with the first block of the directory that lies before it
//! in memory, with nothing but blocks of that directory and free places between; the one that joins more blocks is taken.

use onesweep_relocate::dfs::{Allocation, Block, Domains, Flaw, Plan, Region, relocate as by_paper};

use super::score::Score;

/// As DFS's `relocate`, but the plan may begin earlier. It always holds the block that is flushed.
pub(super) fn relocate(domains: &Domains, allocation: &impl Allocation, region: Region) -> Result<Option<Plan>, Flaw> {
    let flushed = region.start;
    let own = by_paper(domains, allocation, region)?;
    let earlier = match first_before(domains, allocation, region) {
        Some(start) => by_paper(domains, allocation, Region { start, ..region })?,
        None => None,
    };
    let earlier = earlier.filter(|plan| plan.blocks.iter().any(|block| block.from == flushed));
    Ok(match (own, earlier) {
        (Some(own), Some(earlier)) => Some(if gain(domains, &earlier) > gain(domains, &own) { earlier } else { own }),
        (own, earlier) => own.or(earlier),
    })
}

/// Where a region can begin so that it still holds the flushed block in its first half.
fn first_before(domains: &Domains, allocation: &impl Allocation, region: Region) -> Option<Block> {
    let domain = domains.domain_of(domains.at(region.start)?.file)?;
    let mut first = None;
    let most = region.start.saturating_sub(u64::from(region.blocks / 2));
    for place in (most..region.start).rev().filter(|place| allocation.is_allocated(*place)) {
        if domains.at(place).and_then(|cached| domains.domain_of(cached.file)) != Some(domain) {
            break;
        }
        first = Some(place);
    }
    first
}

/// How many blocks more lie right behind those before them in their files.
fn gain(domains: &Domains, plan: &Plan) -> i64 {
    let mut gain = 0;
    for file in plan.files() {
        let mut places: Vec<Block> = domains.places(file).iter().map(|place| place.unwrap_or(Block::MAX)).collect();
        gain -= Score::of(&places).adjoining as i64;
        for change in plan.moves().filter(|change| change.file == file) {
            places[change.logical as usize] = change.to;
        }
        gain += Score::of(&places).adjoining as i64;
    }
    gain
}
