//! What holds for any disk.

use std::collections::{BTreeMap, BTreeSet};

use onesweep_relocate::dfs::FileId;
use proptest::{collection::vec, prelude::*};

use crate::drawing::{Disk, disk};

const NAMES: &[u8] = b"abcdefghijkxyz";

/// A disk on which files are apart and between each other: each place holds the next block of some file, in order or not.
fn any_disk() -> impl Strategy<Value = String> {
    let place = (0_usize..NAMES.len() + 6, prop::bool::weighted(0.1), any::<u16>());
    vec(place, 8..90).prop_map(|places| {
        let mut lengths: BTreeMap<usize, Vec<u16>> = BTreeMap::new();
        for (kind, _, weight) in &places {
            lengths.entry(*kind).or_default().push(*weight);
        }
        let mut met: BTreeMap<usize, usize> = BTreeMap::new();
        let mut drawn = Vec::new();
        for (kind, is_uncached, _) in &places {
            let number = met.entry(*kind).or_default();
            *number += 1;
            let Some(&name) = NAMES.get(*kind) else {
                drawn.push(if *kind == NAMES.len() { "#" } else { "." }.to_owned());
                continue;
            };
            // Half of the files lie in order, the others in any.
            let logical = if kind % 2 == 0 {
                *number - 1
            } else {
                let weights = &lengths[kind];
                let mut order: Vec<usize> = (0..weights.len()).collect();
                order.sort_by_key(|&index| (weights[index], index));
                order[*number - 1]
            };
            drawn.push(format!("{}{}{logical}", if *is_uncached { "~" } else { "" }, char::from(name)));
        }
        drawn.join(" ")
    })
}

fn adjoining(disk: &Disk, name: u8) -> usize {
    let places = disk.domains.places(FileId(u64::from(name)));
    places.windows(2).filter(|pair| pair[0].unwrap() + 1 == pair[1].unwrap()).count()
}

fn sorted(places: &[String]) -> Vec<&String> {
    let mut all: Vec<&String> = places.iter().collect();
    all.sort();
    all
}

proptest! {
    /// No block is lost, none is there twice; what was not in memory, is metadata or of another directory stays where it was;
    /// no file comes to a worse score; and what is flushed a second time moves nothing.
    #[test]
    fn a_flush_does_no_harm(drawn in any_disk(), start in 0_usize..90, size in prop::sample::select(vec![2_u32, 5, 16, 24])) {
        let mut disk = disk(&drawn);
        let before = disk.places.clone();
        let scores: Vec<usize> = NAMES.iter().map(|&name| adjoining(&disk, name)).collect();
        let start = (start % before.len()) as u64;
        let Some(plan) = disk.plan(start, size) else { return Ok(()) };
        prop_assert_eq!(disk.check(&plan), Ok(()));
        let own = before[start as usize].as_bytes()[0];
        disk.carry_out(&plan);

        prop_assert_eq!(sorted(&before), sorted(&disk.places));
        for (place, block) in before.iter().enumerate() {
            let may_move = block == "." || NAMES.contains(&block.as_bytes()[0]) && (own < b'x') == (block.as_bytes()[0] < b'x');
            prop_assert!(may_move || disk.places[place] == *block, "{} at {}", block, place);
        }
        for (&name, score) in NAMES.iter().zip(scores) {
            prop_assert!(adjoining(&disk, name) >= score, "{}", char::from(name));
        }
        prop_assert_eq!(disk.plan(start, size), None);
    }

    /// Whatever is flushed, in whatever order, scores rise until nothing more moves.
    #[test]
    fn flushes_come_to_rest(drawn in any_disk(), size in prop::sample::select(vec![5_u32, 16, 24])) {
        let mut disk = disk(&drawn);
        let mut seen = BTreeSet::new();
        loop {
            let mut moved = false;
            for start in 0..disk.places.len() as u64 {
                if let Some(plan) = disk.plan(start, size) {
                    disk.carry_out(&plan);
                    moved = true;
                }
            }
            if !moved {
                break;
            }
            prop_assert!(seen.insert(disk.places.clone()), "it goes round");
        }
    }
}
