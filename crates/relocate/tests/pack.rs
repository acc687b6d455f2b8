//! Plans for any files: what holds of them, and some cases by hand.

use onesweep_relocate::pack::{Fitted, Flaw, Free, Item, Piece, Plan, Rules, check, fit, plan, score};
use onesweep_relocate::places::{Places, Run};
use proptest::collection::vec;
use proptest::prelude::*;

/// A file: how far behind the one before each of its runs lies, and the runs' blocks; and whether it may move.
type Drawn = (Vec<(u64, u64)>, bool);

fn any_order() -> impl Strategy<Value = Vec<Drawn>> {
    let gap = prop_oneof![4 => Just(0_u64), 3 => 1_u64..50];
    let file = (vec((gap, 1_u64..6), 0..4), prop::bool::weighted(0.9));
    vec(file, 0..60)
}

fn any_rules() -> impl Strategy<Value = Rules> {
    let region = prop::sample::select(vec![1_u64, 5, 16, 24, 64, 512]);
    let dearest = prop::sample::select(vec![1, 2, 8]);
    (region, 0_u64..4, 1_u64..60, dearest, 0_u64..3).prop_map(|(region, slack, budget, dearest, margin)| Rules {
        region,
        slack,
        budget,
        dearest: budget * dearest,
        margin,
    })
}

fn files(drawn: &[Drawn]) -> Vec<(Places, bool)> {
    let mut place = 0;
    let file = |(runs, may_move): &Drawn| {
        let mut logical = 0;
        let runs: Vec<Run> = runs
            .iter()
            .map(|&(gap, blocks)| {
                let run = Run { logical, place: place + gap, blocks };
                place = run.end();
                logical += blocks;
                run
            })
            .collect();
        (Places::of(runs).unwrap(), *may_move)
    };
    drawn.iter().map(file).collect()
}

fn items(files: &[(Places, bool)]) -> Vec<Item<'_>> {
    files.iter().map(|(places, may_move)| Item { places, may_move: *may_move }).collect()
}

/// Each region comes to one free piece that touches nothing.
fn carried_out(files: &[(Places, bool)], plan: &Plan) -> Vec<(Places, bool)> {
    let mut after = files.to_vec();
    let mut free = 1 << 40;
    for region in &plan.regions {
        let old: Vec<&Places> = files[region.files.clone()].iter().map(|(places, _)| places).collect();
        let Fitted { files: new, breaks } =
            fit(&old, &Free::from_iter([Piece { place: free, blocks: region.blocks }]), 0).unwrap();
        assert_eq!(breaks, 0);
        for (file, places) in after[region.files.clone()].iter_mut().zip(new) {
            file.0 = places;
        }
        free += 2 * region.blocks;
    }
    after
}

proptest! {
    /// Regions hold what they may, no file is in two, none is moved that may not be; each saves what the rules want of it,
    /// the scores come out as foretold, and a second plan moves nothing.
    #[test]
    fn a_plan_keeps_the_rules(drawn in any_order(), rules in any_rules()) {
        let files = files(&drawn);
        let made = plan(&items(&files), &rules);
        let mut behind = 0;
        for region in &made.regions {
            prop_assert!(region.files.start >= behind && !region.files.is_empty());
            behind = region.files.end;
            let inside = &files[region.files.clone()];
            prop_assert!(inside.iter().all(|(places, may_move)| *may_move || places.blocks() == 0));
            prop_assert_eq!(region.blocks, inside.iter().map(|(places, _)| places.blocks()).sum::<u64>());
            prop_assert!(region.blocks > 0 && region.blocks <= rules.room());
            prop_assert!(rules.is_worth(region.saves, region.blocks) || rules.margin == 0, "{region:?}");
        }
        prop_assert_eq!(made.before, score(&items(&files)));
        let after = carried_out(&files, &made);
        prop_assert_eq!(made.after, score(&items(&after)));
        let saved = made.before.breaks() - made.after.breaks();
        prop_assert!(saved >= made.regions.len() as u64 * rules.margin);
        prop_assert!(made.blocks() <= saved * rules.budget);
        prop_assert!(made.after.files.contiguous >= made.before.files.contiguous);

        let second = plan(&items(&after), &rules);
        prop_assert_eq!(second.regions, vec![]);
    }

    /// A new file in a directory that is packed moves nothing, wherever it comes in the order.
    #[test]
    fn a_new_file_moves_nothing(sizes in vec(1_u64..12, 1..60), at in any::<prop::sample::Index>(), new in 1_u64..12) {
        let mut place = 1000;
        let mut files: Vec<(Places, bool)> = Vec::new();
        for blocks in sizes {
            files.push((Places::of([Run { logical: 0, place, blocks }]).unwrap(), true));
            place += blocks;
        }
        files.insert(at.index(files.len() + 1), (Places::of([Run { logical: 0, place: 5, blocks: new }]).unwrap(), true));
        for region in [16, 512] {
            prop_assert_eq!(plan(&items(&files), &Rules::for_regions(region)).regions, vec![]);
        }
    }

    /// A plan that is as it should be is found so, in any order of the pieces; one that takes a block from a file, has two at one
    /// place or one at a place that isn't held, is not.
    #[test]
    fn plans_that_do_harm_are_found(
        drawn in vec(vec((0_u64..4, 1_u64..6), 1..4), 1..12),
        gaps in vec((0_u64..9, 1_u64..20), 60),
        turn in any::<prop::sample::Index>(),
        other in any::<prop::sample::Index>(),
        block in any::<prop::sample::Index>(),
    ) {
        let mut place = 1 << 30;
        let files: Vec<Places> = drawn.iter().map(|runs| {
            let mut logical = 0;
            Places::of(runs.iter().map(|&(hole, blocks)| {
                let run = Run { logical: logical + hole, place, blocks };
                (logical, place) = (run.logical_end(), run.end() + 1);
                run
            })).unwrap()
        }).collect();
        let mut place = 0;
        let mut pieces: Vec<Piece> = gaps.iter().map(|&(gap, blocks)| {
            let piece = Piece { place: place + gap, blocks };
            place = piece.place + blocks;
            piece
        }).collect();
        let files: Vec<&Places> = files.iter().collect();
        let Some(Fitted { files: fitted, .. }) = fit(&files, &pieces.iter().copied().collect(), 0) else { return Ok(()) };
        pieces.reverse();
        let judge = |fitted: &[Places], pieces: &[Piece]| check(&files, fitted, pieces.iter().copied());
        prop_assert_eq!(judge(&fitted, &pieces), Ok(()));

        let turn = turn.index(files.len());
        let with = |places: Vec<(u64, u64)>| {
            let mut fitted = fitted.clone();
            fitted[turn] = Places::of(places.into_iter().map(|(logical, place)| Run { logical, place, blocks: 1 })).unwrap();
            fitted
        };
        let blocks = |file: &Places| -> Vec<(u64, u64)> {
            file.runs().iter().flat_map(|run| (0..run.blocks).map(|at| (run.logical + at, run.place + at))).collect()
        };
        let own = blocks(&fitted[turn]);
        let block = block.index(own.len());

        let mut shorter = own.clone();
        shorter.remove(block);
        prop_assert_eq!(judge(&with(shorter), &pieces), Err(Flaw::Blocks(turn)));
        let mut later = own.clone();
        later.last_mut().unwrap().0 += 1;
        prop_assert_eq!(judge(&with(later), &pieces), Err(Flaw::Blocks(turn)));
        let counted = matches!(judge(&fitted[1..], &pieces), Err(Flaw::Count { .. }));
        prop_assert!(counted);

        let all: Vec<u64> = fitted.iter().flat_map(blocks).map(|(_, place)| place).collect();
        let taken = all[other.index(all.len())];
        if taken != own[block].1 {
            let mut twice = own.clone();
            twice[block].1 = taken;
            prop_assert!(matches!(judge(&with(twice), &pieces), Err(Flaw::Twice(_))));
        }

        let lost = own[block].1;
        let without: Vec<Piece> = pieces.iter().flat_map(|piece| {
            let end = piece.place + piece.blocks;
            let cut = if (piece.place..end).contains(&lost) { lost } else { end };
            [Piece { blocks: cut - piece.place, ..*piece }, Piece { place: (cut + 1).min(end), blocks: end.saturating_sub(cut + 1) }]
        }).collect();
        prop_assert_eq!(judge(&fitted, &without), Err(Flaw::NotHeld(lost)));
    }

    /// Files get all their blocks, each place once, within the free pieces, in rising order; and as many breaks as are told.
    #[test]
    fn files_come_into_free_places(
        sizes in vec(1_u64..12, 1..20),
        gaps in vec((0_u64..9, 1_u64..20), 1..30),
        slack in 0_u64..5,
    ) {
        let files: Vec<Places> =
            sizes.iter().map(|&blocks| Places::of([Run { logical: 0, place: 1 << 30, blocks }]).unwrap()).collect();
        let mut place = 0;
        let pieces: Vec<Piece> = gaps
            .iter()
            .map(|&(gap, blocks)| {
                let piece = Piece { place: place + gap, blocks };
                place = piece.place + blocks;
                piece
            })
            .collect();
        let room: u64 = pieces.iter().map(|piece| piece.blocks).sum();
        let needed: u64 = sizes.iter().sum();
        match fit(&files.iter().collect::<Vec<_>>(), &pieces.iter().copied().collect(), slack) {
            None => prop_assert!(needed > room, "{needed} of {room} blocks"),
            Some(fitted) => {
                let mut behind = 0;
                for (file, blocks) in fitted.files.iter().zip(&sizes) {
                    prop_assert_eq!(file.blocks(), *blocks);
                    for run in file.runs() {
                        prop_assert!(run.place >= behind);
                        behind = run.end();
                        let is_free = |place| pieces.iter().any(|piece| (piece.place..piece.place + piece.blocks).contains(&place));
                        prop_assert!((run.place..run.end()).all(is_free));
                    }
                }
                let fitted_items: Vec<Item> =
                    fitted.files.iter().map(|places| Item { places, may_move: true }).collect();
                prop_assert_eq!(fitted.breaks, score(&fitted_items).breaks());
            }
        }
    }
}

fn at(runs: &[(u64, u64)]) -> (Places, bool) {
    let mut logical = 0;
    let run = |&(place, blocks): &(u64, u64)| {
        logical += blocks;
        Run { logical: logical - blocks, place, blocks }
    };
    (Places::of(runs.iter().map(run)).unwrap(), true)
}

const RULES: Rules = Rules { region: 16, slack: 0, budget: 32, dearest: 32, margin: 1 };

fn regions(files: &[(Places, bool)], rules: &Rules) -> Vec<(std::ops::Range<usize>, u64)> {
    plan(&items(files), rules).regions.into_iter().map(|region| (region.files, region.saves)).collect()
}

#[test]
fn what_stays_parts_what_is_packed() {
    let mut files: Vec<(Places, bool)> = (0..7).map(|number| at(&[(number * 100, 2)])).collect();
    assert_eq!(regions(&files, &RULES), [(0..7, 6)]);
    files[3].1 = false;
    assert_eq!(regions(&files, &RULES), [(0..3, 2), (4..7, 2)]);
    files[3].0 = Places::default();
    assert_eq!(regions(&files, &RULES), [(0..7, 5)], "an empty file is as if it was not there");
}

#[test]
fn a_file_in_pieces_is_joined_and_a_large_one_left() {
    assert_eq!(regions(&[at(&[(10, 3), (90, 3), (50, 3)])], &RULES), [(0..1, 2)]);
    assert_eq!(regions(&[at(&[(10, 9), (90, 3), (50, 5)])], &RULES), []);
}

#[test]
fn what_lies_well_is_left_and_its_surroundings_are_packed() {
    // Three side by side, between two groups that are apart.
    let mut files: Vec<(Places, bool)> = (0..3).map(|number| at(&[(number * 100, 4)])).collect();
    files.extend([at(&[(1000, 16)]), at(&[(1016, 16)]), at(&[(1032, 16)])]);
    files.extend((5..8).map(|number| at(&[(number * 100, 4)])));
    assert_eq!(regions(&files, &RULES), [(0..3, 2), (6..9, 2)]);
}

#[test]
fn the_budget_bounds_what_is_written() {
    let files: Vec<(Places, bool)> = (0..4).map(|number| at(&[(number * 100, 4)])).collect();
    assert_eq!(regions(&files, &Rules { budget: 9, ..RULES }), [(0..4, 3)]);
    assert_eq!(regions(&files, &Rules { budget: 7, ..RULES }), []);
    assert_eq!(regions(&files, &Rules { budget: 8, dearest: 8, ..RULES }), [], "it is no better");
}

/// A file of 9 blocks between small ones makes two breaks, for which the others leave enough.
#[test]
fn a_large_file_among_small_ones_comes_along() {
    let mut files: Vec<(Places, bool)> = (0..7).map(|number| at(&[(number * 100, 1)])).collect();
    files[3] = at(&[(300, 9)]);
    let rules = Rules { budget: 4, dearest: 4, margin: 0, ..RULES };
    assert_eq!(regions(&files, &rules), [(0..3, 2), (4..7, 2)]);
    let dear = Rules { dearest: 16, ..rules };
    assert_eq!(regions(&files, &dear), [(0..7, 6)], "15 blocks for 6 breaks");
    assert_eq!(regions(&files, &Rules { budget: 2, ..dear }), [(0..3, 2), (4..7, 2)], "that is more than 2 for each");
}

/// Where one file leads to the next, and both are packed into two regions, that break is new: one of them has to pay for it.
#[test]
fn what_is_lost_between_two_regions_counts_against_one_of_them() {
    let rules = Rules { region: 16, slack: 1, budget: 8, dearest: 64, margin: 0 };
    let drawn: [&[(u64, u64)]; 6] = [&[(0, 1)], &[(1, 1)], &[(1, 2)], &[(0, 5)], &[(0, 5), (1, 3)], &[(1, 3), (0, 5)]];
    let all: Vec<Drawn> = drawn.iter().zip(0..).map(|(runs, turn)| (runs.to_vec(), turn % 5 > 0)).collect();
    let before = files(&all);
    let made = plan(&items(&before), &rules);
    assert!(made.blocks() <= (made.before.breaks() - made.after.breaks()) * rules.budget, "{made:?}");

    // The second region can't, so the first one does, and the next run finds nothing.
    let rules = Rules { region: 16, slack: 1, budget: 13, dearest: 26, margin: 1 };
    let drawn: [&[(u64, u64)]; 7] =
        [&[(0, 2)], &[(1, 2)], &[(1, 5), (1, 2)], &[(0, 1), (1, 3)], &[(0, 3)], &[(1, 4), (1, 5)], &[(1, 1)]];
    let all: Vec<Drawn> = drawn.iter().zip(0..).map(|(runs, turn)| (runs.to_vec(), turn % 6 > 0)).collect();
    let before = files(&all);
    let made = plan(&items(&before), &rules);
    assert_eq!(made.regions.len(), 2, "{made:?}");
    assert_eq!(plan(&items(&carried_out(&before, &made)), &rules).regions, []);
}

#[test]
fn the_greatest_gain_comes_first_when_that_is_asked_for() {
    let mut files: Vec<(Places, bool)> = (0..4).map(|number| at(&[(number * 100, 4)])).collect();
    files.push((Places::of([Run { logical: 0, place: 5000, blocks: 50 }]).unwrap(), false));
    files.extend((10..14).map(|number| at(&[(number * 100, 1), (number * 100 + 50, 1)])));
    let mut made = plan(&items(&files), &RULES);
    made.sort_by_gain();
    let order: Vec<_> = made.regions.iter().map(|region| (region.files.clone(), region.saves)).collect();
    assert_eq!(order, [(5..9, 7), (0..4, 3)]);
}
