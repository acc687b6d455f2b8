//! Movers that are killed, at any moment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};

use onesweep_relocate::ext4::keep::{forget, kept as kept_runs};

use crate::helper::{helper, wait_until_ready};
use crate::image::{Image, is_root};
use crate::kinds::{Kind, OnBtrfs, OnExt4, OnXfs, OnXfsExchange, OnXfsWhole, OnXfsWholeMapped, host};
use crate::tree::{Kept, assert_same, kept, planned, scatter};
use crate::undo::{Layout, RULES, layout, undo_all};

const MIB: u64 = 1 << 20;

/// The setting is set back whatever ends the process.
#[test]
fn the_setting_is_set_back_however_the_process_ends() {
    if !is_root() {
        return;
    }
    let image = Image::new(256 * MIB, &[], "");
    let setting = format!("/sys/fs/ext4/{}/mb_stream_req", image.name());
    let told = || fs::read_to_string(&setting).unwrap().trim().to_owned();
    for end in ["TERM", "INT", "KILL", "panic"] {
        let mut child = helper(if end == "panic" { "panic" } else { "wait" }, &image.root());
        wait_until_ready(&mut child);
        if end != "panic" {
            assert_eq!(told(), "1024");
            let signal = Command::new("kill").arg(format!("-{end}")).arg(child.id().to_string()).status().unwrap();
            assert!(signal.success());
        }
        child.wait().unwrap();
        // The process that sets it back does so when it sees the end of this one.
        for _ in 0..200 {
            if told() == "16" {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(told(), "16", "after {end}");
    }
}

/// kill -9 at any moment: contents, times and the file system are as they were.
#[test]
fn killed_movers_lose_nothing() {
    killed_movers::<OnExt4>("pack");
}

#[test]
fn killed_movers_lose_nothing_on_xfs() {
    killed_movers::<OnXfs>("xfs-pack");
}

#[test]
fn killed_movers_lose_nothing_on_xfs_without_reflinks() {
    killed_movers::<OnXfsExchange>("xfs-pack");
}

#[test]
fn killed_movers_lose_nothing_on_xfs_of_wholes() {
    killed_movers::<OnXfsWhole>("xfs-pack");
}

#[test]
fn killed_movers_lose_nothing_on_xfs_of_wholes_with_a_reverse_map() {
    killed_movers::<OnXfsWholeMapped>("xfs-pack");
}

#[test]
fn killed_movers_lose_nothing_on_btrfs() {
    killed_movers::<OnBtrfs>("btrfs-pack");
}

/// The daemon, that is, which waits for nothing to be on the disk.
#[test]
fn killed_followers_lose_nothing() {
    killed_movers::<OnExt4>("follow");
}

#[test]
fn killed_followers_lose_nothing_on_xfs() {
    killed_movers::<OnXfs>("xfs-follow");
}

/// Where these files lie: movers alone change that.
pub(crate) fn places_of<K: Kind>(directory: &Path, still: &[PathBuf]) -> Layout {
    let (files, _) = planned(&mut K::host(directory), directory, &RULES);
    files.into_iter().filter(|file| still.contains(&file.path)).map(|file| (file.path, file.places)).collect()
}

fn killed_movers<K: Kind>(does: &str) {
    if !is_root() {
        return;
    }
    let mut image = K::image(512 * MIB, "");
    let directory = image.root().join("d");
    let still = scatter(&directory, 60);
    let before: BTreeMap<PathBuf, Kept> = kept(&directory);
    let (there, mut found) = (places_of::<K>(&directory, &still), 0);
    let kills = if is_long() { 200 } else { 12 };
    for kill in 0..kills {
        let mut child = helper(does, &directory);
        wait_until_ready(&mut child);
        thread::sleep(Duration::from_millis(kill * 37 % 220));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut now = kept(&directory);
        now.retain(|path, _| still.contains(path));
        assert!(now == before, "after kill {kill}");
        found += u32::from(places_of::<K>(&directory, &still) != there);
        if kill % 6 == 5 {
            image.check();
        }
    }
    eprintln!("files lay elsewhere after {found} of {kills} kills");
    assert!(found > 0);
    image.check();
}

pub(crate) fn is_long() -> bool {
    std::env::var_os("ONESWEEP_TEST_LONG").is_some_and(|value| !value.is_empty() && value != "0")
}

/// Undoes what is left of runs, whose end nobody knows, and forgets it.
pub(crate) fn undo_what_is_left(directory: &Path) {
    for id in kept_runs(&host(directory)).unwrap().into_iter().rev() {
        let undone = undo_all(directory, &id);
        assert!(undone.left.is_empty(), "{undone:?}");
        forget(&mut host(directory), &id).unwrap();
    }
}

/// kill -9 while files are moved, moved back, or forgotten: an undo ends at the old places.
#[test]
fn killed_runs_can_be_undone() {
    if !is_root() {
        return;
    }
    let mut image = Image::new(512 * MIB, &[], "");
    let directory = image.root().join("d");
    scatter(&directory, 60);
    let (before, there) = (kept(&directory), layout(&directory));
    let mut found = 0;
    for kill in 0..if is_long() { 300 } else { 20 } {
        let mut child = helper("keep", &directory);
        wait_until_ready(&mut child);
        thread::sleep(Duration::from_millis(kill * 37 % 300));
        child.kill().unwrap();
        child.wait().unwrap();
        found += kept_runs(&host(&directory)).unwrap().len();
        assert_same(&directory, &before);
        undo_what_is_left(&directory);
        assert!(layout(&directory) == there, "after kill {kill}");
        if kill % 10 == 9 {
            image.check();
        }
    }
    eprintln!("{found} runs were cut short and undone");
    assert!(found > 0);
    image.check();
    assert_same(&directory, &before);
}
