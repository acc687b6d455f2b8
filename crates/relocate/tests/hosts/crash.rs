//! Machines that stop: at the commit, after a run, and at any moment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, thread};

use onesweep_relocate::carry::{Ended, Settings, carry_out};
use onesweep_relocate::ext4::keep::undo;
use onesweep_relocate::host::{Exchange, Host, Stays, Trouble};
use onesweep_relocate::mounted::Mounted;
use onesweep_relocate::pack::{Piece, Rules, fit};
use onesweep_relocate::places::Places;
use onesweep_relocate::survey::Candidate;

use crate::alone::alone;
use crate::helper::{helper, wait_until_ready};
use crate::image::{Image, is_root, run, text};
use crate::killed::{is_long, places_of, undo_what_is_left};
use crate::kinds::{Kind, OnBtrfs, OnExt4, OnXfs, OnXfsExchange, OnXfsWhole, OnXfsWholeMapped, host};
use crate::tree::{Kept, assert_same, kept, pack, planned, scatter};
use crate::undo::{RULES as KEPT, layout, pack_and_keep};

const MIB: u64 = 1 << 20;

const RULES: Rules = Rules { region: 512, slack: 0, budget: 32, dearest: 32, margin: 1 };

/// A file has its old or its new places.
fn assert_old_or_new<K: Kind>(
    directory: &Path,
    old: &BTreeMap<PathBuf, Places>,
    new: &BTreeMap<PathBuf, Places>,
) -> usize {
    let (files, _) = planned(&mut K::host(directory), directory, &RULES);
    let mut moved = 0;
    for file in &files {
        let (old, new) = (&old[&file.path], &new[&file.path]);
        assert!([old, new].contains(&&file.places), "{}: {:?}", file.path.display(), file.places);
        moved += usize::from(file.places == *new);
    }
    moved
}

/// Moves a file into a donor of its own. `None` where there is no room for it, and nothing was moved.
fn moved_somewhere<H: Mounted>(mover: &mut H, directory: &Path, file: &Candidate) -> Option<Places> {
    let captured = mover.capture(directory, mover.unit());
    // What can't be reached of a donor is not told.
    let free = |donor| mover.donor_places(donor).unwrap();
    let places: Vec<Places> = captured.donors.iter().map(free).collect();
    let most = (0..places.len()).max_by_key(|&donor| places[donor].blocks())?;
    let (donor, free) = (&captured.donors[most], &places[most]);
    let pieces = free.runs().iter().map(|run| Piece { place: run.place, blocks: run.blocks });
    let to = fit(&[&file.places], &pieces.collect(), 0)?.files.remove(0);
    let opened = mover.open(&file.path, file.inode).unwrap();
    let mut done = 0;
    for run in to.runs() {
        // What lies side by side may be in the donor in another order.
        let (mut from, mut place) = (run.logical, run.place);
        while place < run.end() {
            let held = free.runs().iter().find(|held| (held.place..held.end()).contains(&place)).unwrap();
            let blocks = run.end().min(held.end()) - place;
            let exchange = Exchange { from, to: held.logical + place - held.place, blocks };
            let moved = mover.exchange(&opened.file, donor, exchange);
            if done + moved.blocks == 0 && matches!(moved.trouble, Some(Trouble::Stays(Stays::NoRoom))) {
                return None;
            }
            assert!(moved.trouble.is_none() && moved.blocks == blocks, "{moved:?}");
            (from, place, done) = (from + blocks, place + blocks, done + blocks);
        }
    }
    Some(to)
}

/// Moves all files into donors without a commit, so that a crash comes in the middle of it.
fn move_all<K: Kind>(directory: &Path) -> (BTreeMap<PathBuf, Places>, BTreeMap<PathBuf, Places>) {
    let mut mover = K::host(directory);
    let (files, _) = planned(&mut mover, directory, &RULES);
    let (mut old, mut new, mut has_moved) = (BTreeMap::new(), BTreeMap::new(), false);
    for file in files {
        // Of 16 blocks, which hold any file but where blocks are small.
        if file.places.blocks() > mover.unit() {
            old.insert(file.path.clone(), file.places.clone());
            new.insert(file.path, file.places);
            continue;
        }
        let to = moved_somewhere(&mut mover, directory, &file);
        // Where whole files change places, a place that was given up is not always free in time, and the file stays.
        assert!(to.is_some() || K::WHOLE, "{}", file.path.display());
        has_moved |= to.is_some();
        let to = to.unwrap_or_else(|| file.places.clone());
        old.insert(file.path.clone(), file.places);
        new.insert(file.path, to);
    }
    assert!(has_moved);
    (old, new)
}

#[test]
fn a_crash_leaves_every_byte_before_and_after_the_commit() {
    crashes_at_the_commit::<OnExt4>(&[("data=ordered", &[]), ("data=ordered", &["-b", "1024"])]);
}

#[test]
fn a_crash_of_xfs_leaves_every_byte_before_and_after_the_commit() {
    crashes_at_the_commit::<OnXfs>(&[("", &[]), ("", &["-b", "size=1024"])]);
}

#[test]
fn a_crash_of_xfs_without_reflinks_leaves_every_byte_before_and_after_the_commit() {
    alone(|| crashes_at_the_commit::<OnXfsExchange>(&[("", &[]), ("", &["-b", "size=1024"])]));
}

#[test]
fn a_crash_of_xfs_of_wholes_leaves_every_byte_before_and_after_the_commit() {
    alone(|| crashes_at_the_commit::<OnXfsWhole>(&[("", &[]), ("", &["-b", "size=1024"])]));
}

#[test]
fn a_crash_of_xfs_of_wholes_with_a_reverse_map_leaves_every_byte_before_and_after_the_commit() {
    alone(|| crashes_at_the_commit::<OnXfsWholeMapped>(&[("", &[]), ("", &["-b", "size=1024"])]));
}

#[test]
fn a_crash_of_btrfs_leaves_every_byte_before_and_after_the_commit() {
    crashes_at_the_commit::<OnBtrfs>(&[("commit=600", &[])]);
}

fn crashes_at_the_commit<K: Kind>(options: &[(&str, &[&str])]) {
    if !is_root() {
        return;
    }
    for (options, mkfs) in options {
        for is_flushed in [false, true] {
            let mut image = Image::of(K::TOOLS, 512 * MIB, mkfs, options);
            let directory = image.root().join("d");
            scatter(&directory, 60);
            image.cold();
            let before = kept(&directory);
            let (old, new) = move_all::<K>(&directory);
            image.shut_down(is_flushed);
            let moved = assert_old_or_new::<K>(&directory, &old, &new);
            eprintln!("{options}, journal flushed {is_flushed}: {moved} of 60 files have their new places");
            // Access times of directories aside, nothing was written since.
            assert_same(&directory, &before);
            if is_flushed {
                assert_eq!(moved, 60);
            }
            image.check();
            assert_same(&directory, &before);
        }
    }
}

#[test]
fn a_crash_after_a_run_leaves_what_the_run_has_done() {
    crashes_after_a_run::<OnExt4>();
}

/// Where only old places are to be free, the journal has all that was moved, and inodes are written back some day.
#[test]
fn what_is_settled_on_ext4_stays_after_a_crash() {
    if !is_root() {
        return;
    }
    for is_crash in [true, false] {
        let mut image = Image::new(512 * MIB, &[], "");
        let directory = image.root().join("d");
        scatter(&directory, 60);
        image.cold();
        let before = kept(&directory);
        let (old, new) = move_all::<OnExt4>(&directory);
        let mut mover = OnExt4::host(&directory);
        mover.settle(&directory).unwrap();
        if is_crash {
            drop(mover);
            image.shut_down(false);
            assert_eq!(assert_old_or_new::<OnExt4>(&directory, &old, &new), 60);
        } else {
            // In sectors of 512 bytes.
            let (_, settled) = image.written();
            mover.commit().unwrap();
            let left = image.written().1 - settled;
            assert!(left >= 60 * 256 / 512, "{left} sectors were left");
            drop(mover);
        }
        image.check();
        assert_same(&directory, &before);
    }
}

#[test]
fn a_crash_of_xfs_after_a_run_leaves_what_the_run_has_done() {
    crashes_after_a_run::<OnXfs>();
}

#[test]
fn a_crash_of_xfs_without_reflinks_after_a_run_leaves_what_the_run_has_done() {
    alone(crashes_after_a_run::<OnXfsExchange>);
}

#[test]
fn a_crash_of_xfs_of_wholes_after_a_run_leaves_what_the_run_has_done() {
    alone(crashes_after_a_run::<OnXfsWhole>);
}

#[test]
fn a_crash_of_btrfs_after_a_run_leaves_what_the_run_has_done() {
    crashes_after_a_run::<OnBtrfs>();
}

fn crashes_after_a_run<K: Kind>() {
    if !is_root() {
        return;
    }
    let mut image = K::image(512 * MIB, "");
    let directory = image.root().join("d");
    scatter(&directory, 60);
    image.cold();
    let before = kept(&directory);
    let (files, report) = pack(&mut K::host(&directory), &directory, &RULES);
    assert!(report.commits == 1 && report.files > 50, "{report:?}");
    image.shut_down(false);
    let (after, _) = planned(&mut K::host(&directory), &directory, &RULES);
    assert!(files.iter().zip(&after).all(|(file, now)| (&file.path, &file.places) == (&now.path, &now.places)));
    assert_same(&directory, &before);
    image.check();
}

/// The machine stops at any moment of a run.
#[test]
fn a_machine_that_stops_at_any_moment_loses_nothing() {
    stopped_machines::<OnExt4>("pack");
}

/// What the daemon moves is on the disk some day, and whole before and after.
#[test]
fn a_machine_that_stops_beside_a_follower_loses_nothing() {
    stopped_machines::<OnExt4>("follow");
}

#[test]
fn a_machine_that_stops_beside_a_follower_loses_nothing_on_xfs() {
    stopped_machines::<OnXfs>("xfs-follow");
}

#[test]
fn a_machine_that_stops_at_any_moment_loses_nothing_on_xfs() {
    stopped_machines::<OnXfs>("xfs-pack");
}

#[test]
fn a_machine_that_stops_at_any_moment_loses_nothing_on_xfs_without_reflinks() {
    stopped_machines::<OnXfsExchange>("xfs-pack");
}

#[test]
fn a_machine_that_stops_at_any_moment_loses_nothing_on_xfs_of_wholes() {
    stopped_machines::<OnXfsWhole>("xfs-pack");
}

#[test]
fn a_machine_that_stops_at_any_moment_loses_nothing_on_xfs_of_wholes_with_a_reverse_map() {
    stopped_machines::<OnXfsWholeMapped>("xfs-pack");
}

#[test]
fn a_machine_that_stops_at_any_moment_loses_nothing_on_btrfs() {
    stopped_machines::<OnBtrfs>("btrfs-pack");
}

fn stopped_machines<K: Kind>(does: &str) {
    if !is_root() {
        return;
    }
    let mut image = K::image(512 * MIB, "");
    let is_btrfs = image.is_btrfs();
    if is_btrfs {
        // No commit but those of the mover.
        run("mount", &["-o", "remount,commit=600", text(&image.root())]);
    }
    let directory = image.root().join("d");
    let still = scatter(&directory, 60);
    // All of it is on the disk.
    image.cold();
    let before: BTreeMap<PathBuf, Kept> = kept(&directory);
    let (there, mut found) = (places_of::<K>(&directory, &still), 0);
    for stop in 0..if is_long() { 100 } else { 8 } {
        let mut child = helper(does, &directory);
        wait_until_ready(&mut child);
        thread::sleep(Duration::from_millis(stop * 53 % 240));
        if is_btrfs {
            // Between two calls, then, but for what the kernel does for itself.
            run("kill", &["-STOP", &child.id().to_string()]);
            let state = format!("/proc/{}/stat", child.id());
            // Or it has ended by itself before.
            while !fs::read_to_string(&state).is_ok_and(|told| told.contains(") T ") || told.contains(") Z ")) {
                thread::yield_now();
            }
        }
        image.stop(stop % 2 == 1);
        child.kill().unwrap();
        child.wait().unwrap();
        image.restart();
        let mut now = kept(&directory);
        now.retain(|path, _| still.contains(path));
        assert!(now == before, "after stop {stop}");
        found += u32::from(places_of::<K>(&directory, &still) != there);
        image.check();
    }
    eprintln!("files lay elsewhere after {found} stops");
    assert!(found > 0);
}

/// The machine stops between any two regions, forwards or backwards: an undo ends at the old places.
#[test]
fn a_crash_leaves_what_can_be_undone() {
    if !is_root() {
        return;
    }
    let mut image = Image::new(512 * MIB, &[], "");
    let directory = image.root().join("d");
    scatter(&directory, 60);
    image.cold();
    let (before, there) = (kept(&directory), layout(&directory));
    let mut moved = Vec::new();
    // It is asked before it looks for a region's place and before it moves its files.
    let by_one = Settings { batch: 0, ..Settings::new(KEPT) };
    for (is_flushed, at) in [(false, 0), (false, 1), (true, 2), (false, 4)] {
        let mut mover = host(&directory);
        let (mut files, made) = planned(&mut mover, &directory, &KEPT);
        assert!(made.regions.len() > at + 1);
        mover.keep_old_places().unwrap();
        let mut regions = 0;
        let report = carry_out(&mut mover, &mut files, &made, &by_one, &mut |_| {
            if regions == at {
                image.stop(is_flushed);
            }
            regions += 1;
            true
        });
        assert!(matches!(report.ended, Some(Ended::Failed(_))), "{report:?}");
        drop((mover, files));
        image.restart();
        assert_same(&directory, &before);
        moved.push(layout(&directory).iter().filter(|(path, places)| there[*path] != **places).count());
        undo_what_is_left(&directory);
        assert!(layout(&directory) == there);

        let (id, _) = pack_and_keep(&directory);
        let mut mover = host(&directory);
        let mut regions = 0;
        let undone = undo(&mut mover, &id, &mut |_| {
            if regions == at {
                image.stop(is_flushed);
            }
            regions += 1;
            true
        });
        assert!(matches!(undone.unwrap().ended, Some(Ended::Failed(_))));
        drop(mover);
        image.restart();
        assert_same(&directory, &before);
        undo_what_is_left(&directory);
        assert!(layout(&directory) == there);
        image.check();
    }
    eprintln!("{moved:?} files had new places after crashes");
    assert!(moved[2] > 0);
    assert_same(&directory, &before);
}
