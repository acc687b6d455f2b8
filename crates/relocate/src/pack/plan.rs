//! The cheapest way to pack an order of files.
//!
//! The cost of a way is the breaks that stay, each at the price of the most blocks that may be written for it, and the blocks that
//! are written; no region of it writes more for its breaks, on average, than the budget. So a region that does not pay is not in the cheapest
//! way, and when the cheapest way has been gone, nothing is cheaper than to stay.

use std::ops::Range;

use super::{Item, Rules, Score, score};

/// The most files of a region: so many are open at once.
pub const MAX_FILES: usize = 256;

/// Files that are to lie side by side.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Region {
    /// Their turns in the order. Those without blocks among them stay as they are.
    pub files: Range<usize>,
    /// Their blocks.
    pub blocks: u64,
    /// Breaks that this saves, when it comes to lie in one piece that touches no other.
    pub saves: u64,
}

/// Which files to pack.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Plan {
    /// In the order of reading, in which free space comes side by side; no file is in two.
    pub regions: Vec<Region>,
    /// The scores as it is.
    pub before: Score,
    /// The scores when each region comes to lie in one piece that touches no other.
    pub after: Score,
}

impl Plan {
    /// Blocks that are to be written.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.regions.iter().map(|region| region.blocks).sum()
    }

    /// Puts the regions first that save most for what is written, for who has not the time for all of them.
    pub fn sort_by_gain(&mut self) {
        let gain = |region: &Region| region.saves as f64 / region.blocks.max(1) as f64;
        self.regions.sort_by(|one, other| gain(other).total_cmp(&gain(one)));
    }
}

/// How a way up to some file ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum End {
    /// That file stays where it is.
    Stays,
    /// It is the last one of a region. Where it led to the next file, either this region counts that as lost, or the next one has to.
    Packed { counts: bool },
}

/// A way up to some file.
#[derive(Clone, Copy, Debug)]
struct Way {
    cost: u64,
    /// How the way up to what is before the file, or before its region, ends.
    before: End,
}

const NO_WAY: u64 = u64::MAX;

/// The cheapest way whose last region ends with some file, and the first file of that region.
type Packed = (Way, usize);

/// The same for regions that count as lost that their last file led to the next one, and for those that don't, since the next region does.
#[derive(Clone, Copy, Debug)]
struct Regions {
    counting: Packed,
    not_counting: Packed,
}

impl Regions {
    fn of(&self, counts: bool) -> Packed {
        if counts { self.counting } else { self.not_counting }
    }
}

/// Plans, for files in the order of their reader.
///
/// Takes as many steps for each file as fit into a region, and 64 bytes.
#[must_use]
pub fn plan(items: &[Item<'_>], rules: &Rules) -> Plan {
    let before = score(items);
    // Files that have blocks, by their turns.
    let turns: Vec<usize> = (0..items.len()).filter(|&turn| items[turn].places.blocks() > 0).collect();
    let ways = Ways::find(items, &turns, rules);
    let mut regions = ways.regions();
    let mut after = before;
    let numbers: Vec<Range<usize>> = regions.iter().map(|region| region.files.clone()).collect();
    for (index, region) in regions.iter_mut().enumerate() {
        let files = &numbers[index];
        let inside: u64 = files.clone().map(|number| items[turns[number]].places.breaks()).sum();
        let between = files.clone().skip(1).filter(|&number| !ways.led_to[number]).count() as u64;
        // Where neighbours that stay led to it, or it to them, that is lost; where both are packed, neither of them loses it alone.
        let follows_a_region = index > 0 && numbers[index - 1].end == files.start;
        let leads_to_a_region = numbers.get(index + 1).is_some_and(|next| next.start == files.end);
        let led_to = ways.led_to[files.start];
        let leads = ways.led_to.get(files.end) == Some(&true);
        region.saves = (inside + between)
            .saturating_sub(u64::from(led_to && !follows_a_region))
            .saturating_sub(u64::from(leads && !leads_to_a_region));
        after.files.contiguous += inside;
        after.order.contiguous =
            (after.order.contiguous + region.saves).saturating_sub(u64::from(led_to && follows_a_region));
        region.files = turns[files.start]..turns[files.end - 1] + 1;
    }
    Plan { regions, before, after }
}

/// The cheapest ways up to each file, for both ends.
struct Ways {
    stays: Vec<Way>,
    packed: Vec<Regions>,
    /// Of each file whether the one before leads to it.
    led_to: Vec<bool>,
    blocks: Vec<u64>,
}

impl Ways {
    fn find(items: &[Item<'_>], turns: &[usize], rules: &Rules) -> Ways {
        let price = rules.dearest.max(rules.budget).clamp(1, 1 << 20);
        let places = |number: usize| items[turns[number]].places;
        let blocks: Vec<u64> = turns.iter().map(|&turn| items[turn].places.blocks()).collect();
        let led_to: Vec<bool> =
            (0..turns.len()).map(|number| number > 0 && places(number - 1).leads_to(places(number))).collect();
        let mut ways = Ways { stays: Vec::new(), packed: Vec::new(), led_to, blocks };
        for number in 0..turns.len() {
            let (cost, before) = ways.to_one_that_stays(number, price);
            let inside = places(number).breaks() * price;
            ways.stays.push(Way { cost: cost.saturating_add(inside), before });

            let none = (Way { cost: NO_WAY, before: End::Stays }, number);
            let mut best = Regions { counting: none, not_counting: none };
            let (mut room, mut saves) = (rules.room(), 0);
            let leads = u64::from(ways.led_to.get(number + 1) == Some(&true));
            for first in (0..=number).rev().take(MAX_FILES) {
                let own = ways.blocks[first];
                if !items[turns[first]].may_move || own > room {
                    break;
                }
                room -= own;
                saves += places(first).breaks();
                let blocks = rules.room() - room;
                let own_cost = blocks.saturating_add(rules.margin.saturating_mul(price));
                // Where no break may cost more than the budget, the cheapest way keeps to it by itself.
                let is_worth = |lost| price <= rules.budget || rules.is_worth(saves.saturating_sub(lost), blocks);
                for (best, lost) in [(&mut best.counting, leads), (&mut best.not_counting, 0)] {
                    let way = ways.to_a_region(first, price, &|led_to| is_worth(lost + led_to));
                    let Some((cost, before)) = way else { continue };
                    let cost = cost.saturating_add(own_cost);
                    // Of equal ways the one with the longer region.
                    if cost <= best.0.cost {
                        *best = (Way { cost, before }, first);
                    }
                }
                saves += u64::from(!ways.led_to[first]);
            }
            ways.packed.push(best);
        }
        ways
    }

    /// The cheapest way up to a file that stays, without its own breaks, and how that way ends.
    fn to_one_that_stays(&self, number: usize, price: u64) -> (u64, End) {
        let Some(last) = number.checked_sub(1) else { return (0, End::Stays) };
        let edge = if self.led_to[number] { 0 } else { price };
        let stays = self.stays[last].cost.saturating_add(edge);
        let packed = self.packed[last].counting.0.cost.saturating_add(price);
        if packed < stays { (packed, End::Packed { counts: true }) } else { (stays, End::Stays) }
    }

    /// The cheapest way up to a region that begins with a file, and how that way ends; of those with which the region is worth it when it
    /// counts as lost that so many files led to its first one.
    fn to_a_region(&self, first: usize, price: u64, is_worth: &dyn Fn(u64) -> bool) -> Option<(u64, End)> {
        let Some(last) = first.checked_sub(1) else { return is_worth(0).then_some((0, End::Stays)) };
        let counted = |counts| (self.packed[last].of(counts).0.cost, End::Packed { counts });
        let before = is_worth(0).then(|| counted(true));
        let here = [(self.stays[last].cost, End::Stays), counted(false)];
        let here = is_worth(u64::from(self.led_to[first])).then_some(here);
        let (cost, end) = here.into_iter().flatten().chain(before).min_by_key(|(cost, _)| *cost)?;
        Some((cost.saturating_add(price), end))
    }

    /// The regions of the cheapest way, by numbers among the files that have blocks.
    fn regions(&self) -> Vec<Region> {
        let mut regions = Vec::new();
        let Some(mut number) = self.stays.len().checked_sub(1) else { return regions };
        let is_packed = self.packed[number].counting.0.cost < self.stays[number].cost;
        let mut end = if is_packed { End::Packed { counts: true } } else { End::Stays };
        loop {
            let (begins, before) = match end {
                End::Stays => (number, self.stays[number].before),
                End::Packed { counts } => {
                    let (way, first) = self.packed[number].of(counts);
                    let blocks = self.blocks[first..=number].iter().sum();
                    regions.push(Region { files: first..number + 1, blocks, saves: 0 });
                    (first, way.before)
                }
            };
            let Some(next) = begins.checked_sub(1) else { break };
            (number, end) = (next, before);
        }
        regions.reverse();
        regions
    }
}
