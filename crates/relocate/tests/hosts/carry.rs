//! Plans carried out on the model: any disk, and any call that fails.

use std::path::PathBuf;

use onesweep_relocate::carry::{Ended, Report, Settings, carry_out};
use onesweep_relocate::host::Stays;
use onesweep_relocate::pack::{Item, Rules, Score, plan, score};
use onesweep_relocate::passes::pack_until_rest;
use onesweep_relocate::survey::{Candidate, survey};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::model::{Fault, Model};

const RULES: Rules = Rules { region: 64, slack: 2, budget: 32, dearest: 32, margin: 1 };

fn scores(files: &[Candidate]) -> Score {
    score(&files.iter().map(Candidate::item).collect::<Vec<Item>>())
}

/// Plans and carries out.
fn pack(model: &mut Model, paths: &[PathBuf], fault: Option<(u64, Fault)>) -> (Vec<Candidate>, Report, Score) {
    let mut files = survey(model, paths.to_vec()).unwrap();
    let made = plan(&files.iter().map(Candidate::item).collect::<Vec<Item>>(), &RULES);
    model.fault = fault.map(|(call, fault)| (model.calls() + call, fault));
    let report = carry_out(model, &mut files, &made, &Settings { commit: 40, ..Settings::new(RULES) }, &mut |_| true);
    model.fault = None;
    (files, report, made.before)
}

/// Files of these sizes on a disk: which file has which place is drawn, and which places are in use by others.
fn any_disk() -> impl Strategy<Value = (Vec<usize>, Vec<u16>, Vec<bool>)> {
    let sizes = vec(0_usize..9, 1..40);
    (sizes, vec(any::<u16>(), 900), vec(prop::bool::weighted(0.3), 900))
}

fn disk((sizes, order, used): &(Vec<usize>, Vec<u16>, Vec<bool>)) -> (Model, Vec<PathBuf>) {
    let mut model = Model::new(900, 16);
    model.occupy((0..900).filter(|&place| used[place as usize]));
    let mut free: Vec<u64> = (0..900).filter(|&place| !used[place as usize]).collect();
    free.sort_by_key(|&place| order[place as usize]);
    let mut paths = Vec::new();
    for (number, &size) in sizes.iter().enumerate() {
        // Every other file lies in one or few pieces.
        let mut own: Vec<u64> = free.drain(..size.min(free.len())).collect();
        if number % 2 == 0 {
            own.sort_unstable();
        }
        paths.push(model.put(&format!("/{number}"), &own));
    }
    (model, paths)
}

proptest! {
    /// All bytes stay, the order comes to a better score or stays as it was, the report tells what was done, and further runs
    /// come to rest.
    #[test]
    fn packing_makes_it_better(drawn in any_disk()) {
        let (mut model, paths) = disk(&drawn);
        let (files, report, before) = pack(&mut model, &paths, None);
        model.check();
        prop_assert!(report.ended.is_none() && report.torn.is_empty() && report.stayed.is_empty());
        let after = scores(&files);
        prop_assert!(after.breaks() + report.regions * RULES.margin <= before.breaks());
        prop_assert!(report.blocks <= (before.breaks() - after.breaks()) * RULES.budget);
        for (file, path) in files.iter().zip(&paths) {
            let told: Vec<u64> = file.places.runs().iter().flat_map(|run| run.place..run.end()).collect();
            prop_assert_eq!(told, model.places_of(path));
        }
        // Free space in pieces leaves something to do for further runs, each of which gains, until one moves nothing.
        let mut breaks = after.breaks();
        for run in 0.. {
            let (files, report, _) = pack(&mut model, &paths, None);
            let now = scores(&files).breaks();
            prop_assert!(now + report.regions * (RULES.margin + 1) <= breaks && report.pieces >= report.regions, "run {run}");
            breaks = now;
            if report.regions == 0 {
                prop_assert_eq!(report.blocks, 0);
                break;
            }
        }
    }

    /// When a run has come to rest, the next one moves nothing; and half of what is free is always left to others.
    #[test]
    fn a_second_run_moves_nothing(drawn in any_disk()) {
        let (mut model, paths) = disk(&drawn);
        let free = (0..900).filter(|&place| model.is_free(place)).count();
        let settings = Settings::new(RULES);
        let mut files = survey(&mut model, paths.clone()).unwrap();
        let done = pack_until_rest(&mut model, &mut files, &settings, 100, &mut |_| true);
        model.check();
        prop_assert!(done.is_at_rest && done.after.breaks() <= done.before.breaks());
        prop_assert!(model.most_captured() <= free / 2);
        prop_assert_eq!(done.report.files, model.moved_files(), "each once, in {} passes", done.passes);
        let mut files = survey(&mut model, paths).unwrap();
        let again = pack_until_rest(&mut model, &mut files, &settings, 100, &mut |_| true);
        prop_assert_eq!((again.passes, again.report.blocks, again.after), (0, 0, done.after));
    }

    /// Whichever call fails in whichever way: all bytes stay, and what failed is told.
    #[test]
    fn no_failure_loses_anything(
        drawn in any_disk(),
        call in 1_u64..120,
        fault in prop::sample::select(vec![Fault::Broken, Fault::Full, Fault::Quota, Fault::InUse, Fault::Short]),
    ) {
        let (mut model, paths) = disk(&drawn);
        let (files, report, before) = pack(&mut model, &paths, Some((call, fault)));
        model.check();
        if fault == Fault::Broken && model.calls() >= call + paths.len() as u64 {
            prop_assert!(matches!(report.ended, Some(Ended::Failed(_))), "{report:?}");
        }
        if matches!(fault, Fault::InUse | Fault::Short | Fault::Quota) {
            prop_assert!(report.ended.is_none(), "{report:?}");
        }
        for &turn in report.stayed.keys() {
            prop_assert!(files[turn].stays.is_some());
        }
        if report.stayed.is_empty() && report.ended.is_none() {
            prop_assert!(scores(&files).breaks() <= before.breaks());
        }
        // Whoever comes next can go on.
        let (_, next, _) = pack(&mut model, &paths, None);
        model.check();
        prop_assert!(next.ended.is_none());
    }
}

/// Ten files of three blocks, all blocks apart, on a disk with much room behind.
fn scattered() -> (Model, Vec<PathBuf>) {
    scattered_on(Model::new(400, 16))
}

fn scattered_on(mut model: Model) -> (Model, Vec<PathBuf>) {
    let paths = (0..10).map(|file| model.put(&format!("/{file}"), &[file * 2, 60 + file * 2, 120 + file * 2]));
    let paths: Vec<PathBuf> = paths.collect();
    model.occupy((0..200).filter(|place| place % 2 == 1));
    model.occupy((20..60).filter(|place| place % 2 == 0));
    model.occupy((80..120).filter(|place| place % 2 == 0));
    model.occupy((140..200).filter(|place| place % 2 == 0));
    (model, paths)
}

#[test]
fn scattered_files_come_to_lie_in_one_piece_once() {
    let (mut model, paths) = scattered();
    let (files, report, before) = pack(&mut model, &paths, None);
    assert_eq!((before.breaks(), scores(&files).breaks()), (29, 0));
    assert_eq!((report.regions, report.files, report.blocks, report.commits), (1, 10, 30, 1));
    let (_, second, _) = pack(&mut model, &paths, None);
    assert_eq!((second.regions, second.files, second.blocks, second.commits), (0, 0, 0, 0));
}

#[test]
fn a_file_that_stays_parts_the_region() {
    let (mut model, paths) = scattered();
    // What is free is asked, and two donors made and looked at, before they are opened: the fifth in the order of the disk.
    let (files, report, _) = pack(&mut model, &paths, Some((10, Fault::InUse)));
    assert_eq!(report.stayed, [(4, Stays::Busy)].into());
    assert_eq!((report.regions, report.files, scores(&files).breaks()), (2, 9, 4));
}

#[test]
fn what_is_cut_is_not_called_moved() {
    let (mut model, paths) = scattered();
    // What is free is asked, two donors made and looked at, ten files opened: the first exchange.
    let (files, report, _) = pack(&mut model, &paths, Some((16, Fault::Short)));
    model.check();
    assert_eq!((report.stayed.len(), report.torn.len()), (1, 1), "{report:?}");
    assert!(files.iter().any(|file| file.stays == Some(Stays::Changed)));
}

#[test]
fn a_full_disk_is_left_alone() {
    let (mut model, paths) = scattered();
    model.occupy((200..400).filter(|place| place % 5 > 0 || *place >= 260));
    let before: Vec<Vec<u64>> = paths.iter().map(|path| model.places_of(path)).collect();
    let (_, report, _) = pack(&mut model, &paths, None);
    assert_eq!((report.files, report.no_room), (0, 1));
    let after: Vec<Vec<u64>> = paths.iter().map(|path| model.places_of(path)).collect();
    assert_eq!(after, before);
}

#[test]
fn a_quota_is_as_a_full_disk() {
    let (mut model, paths) = scattered();
    let before: Vec<Vec<u64>> = paths.iter().map(|path| model.places_of(path)).collect();
    // What is free is asked: the first donor.
    let (_, report, _) = pack(&mut model, &paths, Some((2, Fault::Quota)));
    assert!(report.ended.is_none() && report.stayed.is_empty(), "{report:?}");
    assert_eq!((report.files, report.no_room), (0, 1));
    let after: Vec<Vec<u64>> = paths.iter().map(|path| model.places_of(path)).collect();
    assert_eq!(after, before);
}

#[test]
fn room_in_pieces_is_judged_by_its_pieces() {
    // Free space in single blocks would leave all as it is, in longer pieces it is better.
    for (piece, is_better) in [(1, false), (2, true), (6, true)] {
        let (mut model, paths) = scattered();
        model.occupy((200..400).filter(|place| place % (piece + 1) == 0));
        let (files, report, before) = pack(&mut model, &paths, None);
        assert_eq!(report.files > 0, is_better, "pieces of {piece}: {report:?}");
        assert_eq!(scores(&files).breaks() < before.breaks(), is_better);
        assert_eq!(report.not_better + report.no_room, u64::from(!is_better));
    }
}

/// Parts of files come by turns from pieces of free space that are of a size: then room is made for all of them in one.
#[test]
fn parts_are_captured_from_one_piece() {
    let (mut model, paths) = scattered();
    model.is_by_parts = true;
    model.occupy([300]);
    let (files, report, before) = pack(&mut model, &paths, None);
    model.check();
    assert_eq!((before.breaks(), scores(&files).breaks()), (29, 0));
    assert_eq!((report.regions, report.files, report.blocks), (1, 10, 30));
    let (_, second, _) = pack(&mut model, &paths, None);
    assert_eq!(second.regions, 0);
}

/// Where no piece holds them all, other space is captured, which need not be given by parts.
#[test]
fn where_parts_lie_apart_other_space_is_captured() {
    let (mut model, paths) = scattered();
    model.is_by_parts = true;
    model.occupy((200..400).filter(|place| place % 7 == 0));
    let (files, report, before) = pack(&mut model, &paths, None);
    model.check();
    assert!(report.files > 0 && scores(&files).breaks() < before.breaks(), "{report:?}");
}

/// Forty files of three blocks, all blocks apart, and room behind.
fn forty(mut model: Model) -> (Model, Vec<PathBuf>) {
    let lots = |file: u64| [file * 3, 120 + file * 3, 240 + file * 3];
    let paths = (0..40).map(|file| model.put(&format!("/{file}"), &lots(file))).collect();
    model.occupy((0..360).filter(|place| place % 3 > 0));
    (model, paths)
}

/// Slack is left behind a batch, and not behind each of its regions, but where each has donors of its own.
#[test]
fn regions_of_a_batch_lie_behind_each_other() {
    let rules = Rules { region: 34, slack: 4, budget: 32, dearest: 32, margin: 1 };
    // Behind the first of two batches the four that are left of its donors are free, and eight.
    for (shares_donors, batch, breaks, gaps) in
        [(true, 120, 0, vec![]), (true, 60, 1, vec![12]), (false, 120, 3, vec![18; 3])]
    {
        let (mut model, paths) = forty(Model::new(900, 16));
        model.shares_donors = shares_donors;
        let mut files = survey(&mut model, paths.clone()).unwrap();
        let made = plan(&files.iter().map(Candidate::item).collect::<Vec<Item>>(), &rules);
        let report =
            carry_out(&mut model, &mut files, &made, &Settings { batch, ..Settings::new(rules) }, &mut |_| true);
        model.check();
        assert_eq!((report.regions, report.files, report.saves), (4, 40, 116));
        assert_eq!(scores(&files).breaks(), breaks, "batches of {batch}");
        let between = files.windows(2).map(|pair| pair[1].places.first().unwrap() - pair[0].places.end().unwrap());
        assert_eq!(between.filter(|&gap| gap > 0).collect::<Vec<_>>(), gaps);
    }
}

/// What lies in one piece is judged for itself, and what would gain nothing there stays.
#[test]
fn a_region_comes_to_pieces_of_free_space_by_parts() {
    let (mut model, paths) = scattered();
    let is_free = |place: u64| {
        (200..215).contains(&place) || (300..312).contains(&place) || (place > 315 && place.is_multiple_of(2))
    };
    model.occupy((200..400).filter(|&place| !is_free(place)));
    let (files, report, before) = pack(&mut model, &paths, None);
    model.check();
    assert_eq!((report.regions, report.pieces, report.files, report.blocks, before.breaks()), (1, 2, 9, 27, 29));
    assert_eq!(scores(&files).breaks(), 4, "one between the parts, and the last file as it was");
}

/// Room for one region of forty: what that would save is too little to read and write for, and the next run would find as much.
#[test]
fn a_batch_that_saves_too_little_is_left() {
    let mut model = Model::new(2000, 16);
    let lots = |file: u64| [file * 3, 600 + file * 3, 1200 + file * 3];
    let paths: Vec<PathBuf> = (0..200).map(|file| model.put(&format!("/{file}"), &lots(file))).collect();
    model.occupy((0..1800).filter(|place| place % 3 > 0));
    model.occupy(1832..2000);
    let rules = Rules { region: 16, slack: 0, budget: 32, dearest: 32, margin: 1 };
    let mut files = survey(&mut model, paths).unwrap();
    let made = plan(&files.iter().map(Candidate::item).collect::<Vec<Item>>(), &rules);
    assert_eq!(made.regions.len(), 40);
    let mut carry = |batch: u64| {
        carry_out(&mut model, &mut files, &made, &Settings { batch, ..Settings::new(rules) }, &mut |_| true)
    };
    let whole = carry(16_384);
    assert_eq!((whole.regions, whole.not_better, whole.no_room), (0, 1, 39));
    let single = carry(0);
    assert!(single.regions > 0, "alone it is worth it");
    assert!(single.commits > 1 && model.settled == single.commits - 1, "places are freed for the next one");
}

/// Where free space is short, large files leave it to small ones, and that is so before and after a run. What is too large for any region
/// needs none.
#[test]
fn large_files_come_along_where_there_is_room_for_all() {
    let rules = Rules { region: 34, slack: 2, budget: 4, dearest: 16, margin: 0 };
    let mut model = Model::new(900, 16);
    let mut paths: Vec<PathBuf> = (0..7).map(|file| model.put(&format!("/{file}"), &[file * 2])).collect();
    paths.insert(3, model.put("/large", &Vec::from_iter(20..29)));
    paths.push(model.put("/too large", &Vec::from_iter(100..140)));
    let files = survey(&mut model, paths).unwrap();
    let regions = |free| {
        let settings = Settings::new(rules).with_free(free, &files, u64::MAX);
        let made = plan(&files.iter().map(Candidate::item).collect::<Vec<Item>>(), &settings.rules);
        made.regions.iter().map(|region| (region.files.start, region.files.end)).collect::<Vec<_>>()
    };
    assert_eq!(regions(32), [(0, 8)], "half of what is free is for regions");
    assert_eq!(regions(31), [(0, 3), (4, 8)]);
}

/// Where free space is short it is in small pieces, too. Files that fit into the regions that there are else count for that, whatever the
/// region is then: else a run that has moved them could see it in another way than the next.
#[test]
fn regions_are_small_where_there_is_no_room_for_all() {
    let rules = Rules { budget: 16, dearest: 128, ..Rules::for_regions(512) };
    let mut model = Model::new(4000, 16);
    let mut paths: Vec<PathBuf> = (0..10).map(|file| model.put(&format!("/{file}"), &[file * 2])).collect();
    paths.push(model.put("/large", &Vec::from_iter(100..190)));
    let files = survey(&mut model, paths).unwrap();
    let rules_with = |free, short| Settings::new(rules).with_free(free, &files, short).rules;
    assert_eq!(rules_with(200, 64), rules, "half of what is free is for regions");
    let short = Rules { region: 64, slack: 4, dearest: 16, ..rules };
    assert_eq!(rules_with(199, 64), short);
    assert_eq!(rules_with(199, 512), Rules { dearest: 16, ..rules }, "as large as was asked for");
    assert_eq!(rules_with(199, 2048), Rules { dearest: 16, ..rules }, "never larger");
}

#[test]
fn it_stops_where_it_is_told_to() {
    let (mut model, paths) = scattered();
    let mut files = survey(&mut model, paths).unwrap();
    let made = plan(&files.iter().map(Candidate::item).collect::<Vec<Item>>(), &Rules { region: 16, ..RULES });
    assert!(made.regions.len() > 1);
    let settings = Settings::new(RULES);
    let report = carry_out(&mut model, &mut files, &made, &settings, &mut |report| report.regions == 0);
    assert_eq!((report.regions, report.commits), (1, 1));
    assert!(matches!(report.ended, Some(Ended::Stopped)));
}

/// Room for a part of a region only: what finds no place as a whole comes by smaller regions, and then rests.
#[test]
fn smaller_regions_are_tried_where_large_ones_find_no_place() {
    let (mut model, paths) = scattered_on(Model::new(400, 4));
    model.occupy(240..400);
    let (_, report, before) = pack(&mut model, &paths, None);
    assert_eq!((report.files, report.no_room), (0, 1));
    let mut files = survey(&mut model, paths.clone()).unwrap();
    let settings = Settings::new(RULES);
    let done = pack_until_rest(&mut model, &mut files, &settings, 20, &mut |_| true);
    model.check();
    assert_eq!((before.breaks(), done.after.breaks(), done.passes), (29, 11, 2), "some of the files fit");
    let mut files = survey(&mut model, paths).unwrap();
    let again = pack_until_rest(&mut model, &mut files, &settings, 20, &mut |_| true);
    assert_eq!((again.report.blocks, again.after), (0, done.after));
}

#[test]
fn passes_go_on_until_nothing_gains() {
    let (mut model, paths) = scattered();
    // At first there is free space in threes alone; what is moved leaves more.
    model.occupy((200..400).filter(|place| place % 4 == 0));
    let settings = Settings::new(RULES);
    let mut files = survey(&mut model, paths.clone()).unwrap();
    let mut asked = 0;
    let done = pack_until_rest(&mut model, &mut files, &settings, 20, &mut |report| {
        assert!(report.regions >= asked);
        asked = report.regions;
        true
    });
    model.check();
    assert!(done.passes >= 1 && done.after.breaks() < done.before.breaks() && !done.is_stopped(), "{done:?}");
    assert_eq!(done.report.blocks % 30, 0, "whole passes");
    let mut files = survey(&mut model, paths).unwrap();
    let again = pack_until_rest(&mut model, &mut files, &settings, 20, &mut |_| true);
    assert_eq!((again.passes, again.report.blocks, again.after), (0, 0, done.after));
}

/// What the first pass leaves is a place for all of them side by side, so the second one moves them again.
#[test]
fn a_file_that_is_moved_twice_counts_once() {
    let mut model = Model::new(400, 16);
    let paths: Vec<PathBuf> =
        (0..10).map(|file| model.put(&format!("/{file}"), &[file, 10 + file, 20 + file])).collect();
    model.occupy(34..200);
    model.occupy((200..400).filter(|place| place % 4 == 0));
    let mut files = survey(&mut model, paths).unwrap();
    let done = pack_until_rest(&mut model, &mut files, &Settings::new(RULES), 20, &mut |_| true);
    model.check();
    assert_eq!(
        (done.before.breaks(), done.after.breaks(), done.passes, done.report.blocks),
        (29, 0, 2, 60),
        "{done:?}"
    );
    assert_eq!((done.report.files, model.moved_files()), (10, 10));
}
