//! IAD and IED: the blocks of each file side by side, and the files too (3.4).

use super::{Block, Cached, Domains, FileId, Placed, Plan, choose::Chosen, gather::Gathered};

/// The plan, if it moves anything.
pub(super) fn arrange(domains: &Domains, mut gathered: Gathered, chosen: &Chosen) -> Option<Plan> {
    leave_what_goes_on_behind(domains, &mut gathered, chosen);
    let mut files: Vec<FileId> = Vec::new();
    for (_, cached) in &gathered.blocks {
        if !files.contains(&cached.file) {
            files.push(cached.file);
        }
    }
    files.extend(&chosen.fetched);

    let is_whole = |file| chosen.completed.contains(&file) || chosen.fetched.contains(&file);
    let mut blocks = Vec::new();
    for file in files {
        if is_whole(file) {
            let places = domains.places(file).iter().enumerate();
            blocks.extend(
                places.filter_map(|(logical, place)| Some(Placed { file, logical: logical as u32, from: (*place)? })),
            );
        } else {
            blocks.extend(inside(domains, &gathered, file));
        }
    }
    let plan = Plan { region: gathered.region, blocks };
    let moves = plan.moves().next().is_some();
    moves.then_some(plan)
}

/// Blocks of a file that comes in no further, by their numbers, where that puts more of them side by side, so that what is moved
/// is never moved back; but what goes on from a block just before the region stays first, where it is.
fn inside(domains: &Domains, gathered: &Gathered, file: FileId) -> Vec<Placed> {
    let own = gathered.blocks.iter().filter(|(_, cached)| cached.file == file);
    let blocks: Vec<Placed> = own.map(|&(from, Cached { file, logical, .. })| Placed { file, logical, from }).collect();
    let start = gathered.region.start;
    let goes_on = blocks[0].from == start && before(domains, file, blocks[0].logical) == start.checked_sub(1);
    let first = blocks[0].logical;
    // The head's own number comes first, then those above it, and those below at last.
    let mut by_number = blocks.clone();
    by_number.sort_by_key(|block| (goes_on && block.logical < first, block.logical));
    if in_order(&by_number) > in_order(&blocks) { by_number } else { blocks }
}

/// Pairs of which the second is the next block of the file.
fn in_order(blocks: &[Placed]) -> usize {
    blocks.windows(2).filter(|pair| pair[0].logical + 1 == pair[1].logical).count()
}

fn before(domains: &Domains, file: FileId, logical: u32) -> Option<Block> {
    domains.place_of(file, logical.checked_sub(1)?)
}

/// A run at the end that the same file goes on from, just behind, is left out: moved, it would be torn from the rest.
fn leave_what_goes_on_behind(domains: &Domains, gathered: &mut Gathered, chosen: &Chosen) {
    let mut next = gathered.end;
    while let Some(&(place, cached)) = gathered.blocks.last() {
        let goes_on = place + 1 == next
            && !chosen.completed.contains(&cached.file)
            && domains.place_of(cached.file, cached.logical + 1) == Some(next);
        if !goes_on {
            break;
        }
        gathered.blocks.pop();
        gathered.end = place;
        next = place;
    }
}
