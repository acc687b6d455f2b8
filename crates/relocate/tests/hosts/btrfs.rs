//! A real btrfs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use onesweep_relocate::btrfs::{Btrfs, Refusal};
use onesweep_relocate::host::{Host, Stays};
use onesweep_relocate::pack::Rules;
use onesweep_relocate::survey::Candidate;

use crate::conformance::conforms;
use crate::image::{BTRFS, Image, copy_program, is_root, run, text};
use crate::kinds::{Kind, Mounted, OnBtrfs, READ};
use crate::packing;
use crate::refusals::{Running, Swapped};
use crate::tree::{Kept, assert_same, breaks, bytes, kept, pack, planned, scatter, sync, why_it_stays};
use crate::xfs;

const MIB: u64 = 1 << 20;
const RULES: Rules = Rules { region: 512, slack: 0, budget: 32, dearest: 32, margin: 1 };

#[test]
fn btrfs_conforms() {
    if !is_root() {
        return;
    }
    conforms(&mut Mounted::<OnBtrfs>::new(OnBtrfs::image(512 * MIB, "max_inline=0")));
    // What is written for files isn't compressed.
    conforms(&mut Mounted::<OnBtrfs>::new(OnBtrfs::image(512 * MIB, "max_inline=0,autodefrag,compress=zstd")));
}

#[test]
fn a_scattered_directory_comes_to_lie_side_by_side() {
    packing::a_scattered_directory_comes_to_lie_side_by_side::<OnBtrfs>();
}

#[test]
fn odd_files_are_packed_or_left() {
    packing::odd_files_are_packed_or_left::<OnBtrfs>();
}

#[test]
fn only_what_is_in_memory_is_moved_when_that_is_asked_for() {
    packing::only_what_is_in_memory_is_moved_when_that_is_asked_for::<OnBtrfs>();
}

#[test]
fn a_full_disk_and_a_read_only_one_change_nothing() {
    packing::a_full_disk_and_a_read_only_one_change_nothing::<OnBtrfs>();
}

#[test]
fn free_space_in_pieces_is_used_where_it_is_better() {
    packing::free_space_in_pieces_is_used_where_it_is_better::<OnBtrfs>();
}

#[test]
fn what_is_cut_or_grows_meanwhile_keeps_its_bytes() {
    xfs::what_is_cut_or_grows_meanwhile_keeps_its_bytes_on::<OnBtrfs>();
}

#[test]
fn files_of_others_stay() {
    xfs::files_of_others_stay_on::<OnBtrfs>("btrfs-others");
}

#[test]
fn shared_files_stay_shared() {
    xfs::shared_files_stay_shared_on::<OnBtrfs>();
}

#[test]
fn file_systems_are_refused_by_name() {
    if !is_root() {
        return;
    }
    let refused = |options: &str| Btrfs::of(&Image::of(&BTRFS, 0, &[], options).root(), READ).unwrap_err();
    assert!(matches!(refused("ro"), Refusal::ReadOnly));
    assert!(matches!(refused("nodatasum"), Refusal::NoChecksums("nodatasum")));
    assert!(matches!(refused("nodatacow"), Refusal::NoChecksums("nodatacow")));
    assert!(matches!(Btrfs::of(Path::new("/dev/shm"), READ), Err(Refusal::NotBtrfs(name)) if name == "tmpfs"));
    assert!(matches!(Btrfs::of(Path::new("/dev/shm/none"), READ), Err(Refusal::Unknown { .. })));
}

/// Nobody may write there; what a snapshot shares with its subvolume stays in both, and what was written since moves.
#[test]
fn snapshots_stay_as_they_are() {
    if !is_root() {
        return;
    }
    let mut image = OnBtrfs::image(512 * MIB, "");
    let volume = image.root().join("volume");
    run("btrfs", &["subvolume", "create", text(&volume)]);
    let directory = volume.join("d");
    scatter(&directory, 30);
    let snapshot = image.root().join("snapshot");
    run("btrfs", &["subvolume", "snapshot", "-r", text(&volume), text(&snapshot)]);
    let since = scatter(&volume.join("d/since"), 30);
    let is_since = |path: &Path| since.iter().any(|file| file == path);
    image.cold();
    let (before, in_snapshot) = (kept(&volume), kept(&snapshot));

    let refusal = Btrfs::of(&snapshot.join("d"), READ).unwrap_err();
    assert!(matches!(refusal, Refusal::ReadOnlySubvolume), "{refusal}");
    let mut mover = OnBtrfs::host(&volume);
    let (files, _) = planned(&mut mover, &volume, &RULES);
    let (after, report) = pack(&mut mover, &volume, &RULES);
    assert!(report.ended.is_none() && report.torn.is_empty() && report.files >= 28, "{report:?}");
    for (was, now) in files.iter().zip(&after) {
        let stays = (!is_since(&was.path)).then_some(Stays::Shared);
        assert_eq!((was.stays, now.stays), (stays, stays), "{}", was.path.display());
        assert!(stays.is_none() || was.places == now.places);
    }
    // From the topmost subvolume, others are not gone into.
    let (files, _) = planned(&mut OnBtrfs::host(&image.root()), &image.root(), &RULES);
    assert_eq!(files.len(), 0);
    drop(mover);
    for _ in 0..2 {
        assert_same(&volume, &before);
        assert_same(&snapshot, &in_snapshot);
        image.check();
    }
}

/// Space is free by whole extents, and an extent that two files have parts of counts as shared: so each file has one of its own.
#[test]
fn each_file_has_an_extent_of_its_own() {
    if !is_root() {
        return;
    }
    let mut image = OnBtrfs::image(512 * MIB, "");
    let directory = image.root().join("d");
    let paths = scatter(&directory, 100);
    image.cold();
    let mut mover = OnBtrfs::host(&directory);
    let (after, report) = pack(&mut mover, &directory, &RULES);
    assert!(report.ended.is_none() && report.files >= 99, "{report:?}");
    assert!(after.iter().all(|file| mover.look(&file.path).unwrap().stays.is_none()));
    drop(mover);
    image.unmount();
    let (count, bytes) = data_extents(&image);
    image.mount();
    // One was where it is and may have its old pieces.
    assert!((100..=111).contains(&count), "{count} extents");
    let wanted: u64 = (0..100).map(|number| crate::tree::blocks_of(number) * 4096).sum();
    assert_eq!(bytes, wanted, "nothing is held in vain");
    for path in &paths[..50] {
        fs::remove_file(path).unwrap();
    }
    sync(&directory);
    image.unmount();
    let left: u64 = (50..100).map(|number| crate::tree::blocks_of(number) * 4096).sum();
    assert_eq!(data_extents(&image).1, left, "and each file frees its own");
    image.mount();
    image.check();
}

/// How many extents of data an unmounted btrfs has, and their bytes.
fn data_extents(image: &Image) -> (usize, u64) {
    let told = run("btrfs", &["inspect-internal", "dump-tree", "-t", "extent", text(image.device())]);
    let mut lines = told.lines();
    let (mut count, mut bytes) = (0, 0);
    while let Some(line) = lines.next() {
        let Some((_, rest)) = line.split_once(" EXTENT_ITEM ") else { continue };
        let length: u64 = rest.split(')').next().unwrap().parse().unwrap();
        if lines.next().is_some_and(|line| line.contains("flags DATA")) {
            count += 1;
            bytes += length;
        }
    }
    (count, bytes)
}

#[test]
fn files_are_left_by_name() {
    if !is_root() {
        return;
    }
    let mut image = OnBtrfs::image(512 * MIB, "");
    let directory = image.root().join("d");
    scatter(&directory, 30);
    for (name, flag) in [("file-3", "+i"), ("file-5", "+a")] {
        run("chattr", &[flag, text(&directory.join(name))]);
    }
    let made = |name: &str, option: &str, size: usize| {
        let path = directory.join(name);
        fs::write(&path, b"").unwrap();
        run("chattr", &[option, text(&path)]);
        fs::write(&path, bytes(4, size)).unwrap();
    };
    made("in-place", "+C", 40_000);
    fs::write(directory.join("packed"), b"").unwrap();
    run("chattr", &["+c", text(&directory.join("packed"))]);
    fs::write(directory.join("packed"), b"the same again ".repeat(5000)).unwrap();
    fs::write(directory.join("in-the-tree"), b"short").unwrap();
    run("fallocate", &["-l", "40000", text(&directory.join("preallocated"))]);
    let swap = directory.join("swap");
    made("swap", "+C", 1 << 20);
    run("chmod", &["600", text(&swap)]);
    run("mkswap", &[text(&swap)]);
    let program = directory.join("running");
    copy_program(Path::new("/bin/sleep"), &program);
    image.cold();
    // Written while there were no checksums.
    run("mount", &["-o", "remount,nodatasum", text(&image.root())]);
    let bare = directory.join("bare");
    fs::write(&bare, bytes(5, 20_000)).unwrap();
    sync(&directory);
    run("mount", &["-o", "remount,datasum", text(&image.root())]);
    let running = Running(Command::new(&program).arg("1000").spawn().unwrap());
    let swapped = Swapped::to(&swap);
    let before: BTreeMap<PathBuf, Kept> = kept(&directory);

    let mut mover = OnBtrfs::host(&directory);
    let (files, report): (Vec<Candidate>, _) = pack(&mut mover, &directory, &RULES);
    assert!(report.ended.is_none() && report.files > 20, "{report:?}");
    let stays = |name: &str| files.iter().find(|file| file.path.ends_with(name)).unwrap().stays;
    for (name, why) in [
        ("file-3", Stays::Immutable),
        ("file-5", Stays::AppendOnly),
        ("in-place", Stays::NoChecksums),
        ("packed", Stays::Compressed),
        ("in-the-tree", Stays::Inline),
        ("preallocated", Stays::Preallocated),
        ("swap", Stays::NoChecksums),
    ] {
        assert_eq!(stays(name), Some(why), "{name}");
    }
    // These lie in one piece, and so nobody has tried to move them.
    assert_eq!(why_it_stays(&mut mover, &directory, &program), Stays::Running);
    assert_eq!(why_it_stays(&mut mover, &directory, &bare), Stays::NoChecksums);
    drop((running, swapped, mover));
    assert_same(&directory, &before);
    for (name, flag) in [("file-3", "-i"), ("file-5", "-a")] {
        run("chattr", &[flag, text(&directory.join(name))]);
    }
    image.check();
}

/// A limit on what a subvolume may have is as a full disk.
#[test]
fn quotas_are_kept() {
    if !is_root() {
        return;
    }
    let mut image = OnBtrfs::image(512 * MIB, "");
    run("btrfs", &["quota", "enable", text(&image.root())]);
    let volume = image.root().join("volume");
    run("btrfs", &["subvolume", "create", text(&volume)]);
    let directory = volume.join("d");
    scatter(&directory, 100);
    let before = kept(&directory);
    let mut mover = OnBtrfs::host(&directory);
    let at_first = breaks(&planned(&mut mover, &directory, &RULES).0);
    let root = image.root();
    let limit = |bytes: &str| run("btrfs", &["qgroup", "limit", bytes, "0/256", text(&root)]);
    limit("2900K");
    let (_, report) = pack(&mut mover, &directory, &RULES);
    assert!(report.ended.is_none() && report.files == 0 && report.no_room > 0, "{report:?}");
    limit("none");
    let (after, report) = pack(&mut mover, &directory, &RULES);
    assert!(report.ended.is_none() && report.files >= 99 && breaks(&after) * 20 < at_first, "{report:?}");
    assert_same(&directory, &before);
    drop(mover);
    image.check();
}
