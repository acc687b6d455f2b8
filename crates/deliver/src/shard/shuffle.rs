//! A shuffle that looks so many bytes ahead, and is the same for the same seed.

/// SplitMix64 (Steele and others, 2014): the same numbers on every machine and in every version.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, each as likely as the others but for one part in 2^64 / `end`.
    fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.next()) * end as u128) >> 64) as usize
    }
}

/// Gives the items of `sizes` another order: a pool takes them one by one, and as soon as it holds more than `reach`
/// bytes, gives any one of them. So no item comes more than `reach` bytes before its turn; behind it, some come later.
///
/// A reach of 0 leaves the order as it is.
pub(super) fn shuffled(sizes: &[u64], reach: u64, seed: u64) -> Vec<u32> {
    let mut random = Random(seed);
    let mut pool: Vec<u32> = Vec::new();
    let mut held = 0;
    let mut order = Vec::with_capacity(sizes.len());
    let mut give = |pool: &mut Vec<u32>| pool.swap_remove(random.below(pool.len()));
    for (item, &size) in sizes.iter().enumerate() {
        pool.push(item as u32);
        held += size;
        while held > reach && !pool.is_empty() {
            let given = give(&mut pool);
            held -= sizes[given as usize];
            order.push(given);
        }
    }
    if reach == 0 {
        // Items without bytes may wait in the pool.
        pool.drain(..).for_each(|item| order.push(item));
    }
    while !pool.is_empty() {
        order.push(give(&mut pool));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [u64; 500] = [10; 500];

    #[test]
    fn each_item_comes_once() {
        for reach in [0, 1, 10, 95, 1000, u64::MAX] {
            let mut order = shuffled(&SIZES, reach, 7);
            order.sort_unstable();
            assert_eq!(order, (0..500).collect::<Vec<u32>>(), "{reach}");
        }
    }

    #[test]
    fn without_reach_the_order_stays() {
        assert_eq!(shuffled(&SIZES, 0, 7), (0..500).collect::<Vec<u32>>());
        assert_eq!(shuffled(&[0, 0, 5, 0], 0, 7).len(), 4);
    }

    #[test]
    fn no_item_comes_earlier_than_the_reach() {
        for (place, item) in shuffled(&SIZES, 200, 7).into_iter().enumerate() {
            assert!(item as usize <= place + 20, "{item} came at {place}");
        }
    }

    #[test]
    fn the_seed_alone_decides() {
        let order = |seed| shuffled(&SIZES, 1000, seed);
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
        // Numbers that other versions must give, too: data sets are made again from their seed.
        assert_eq!(shuffled(&[1; 8], u64::MAX, 0), [7, 3, 0, 4, 5, 6, 2, 1]);
    }

    #[test]
    fn all_orders_are_possible() {
        let mut seen: Vec<Vec<u32>> = (0..200).map(|seed| shuffled(&[1; 3], u64::MAX, seed)).collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 6);
    }
}
