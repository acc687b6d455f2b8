//! A process of its own that moves files: to be killed, or run by somebody else.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

use onesweep_relocate::ext4::keep::forget;
use onesweep_relocate::follow::{Follower, Moment, Policy};
use onesweep_relocate::host::{Host, Stays};
use onesweep_relocate::mounted::Mounted;
use onesweep_relocate::pack::Rules;

use crate::image::copy_program;
use crate::kinds::{Kind, OnBtrfs, OnExt4, OnXfs, host};
use crate::tree::{blocks_of, breaks, bytes, pack, sync};
use crate::undo::{pack_and_keep, undo_all};

const RULES: Rules = Rules { region: 512, slack: 0, budget: 32, dearest: 32, margin: 1 };
/// Has what the helper does, and where.
const HELPER: &str = "ONESWEEP_RELOCATE_HELPER";

/// This very binary, as a process of its own that packs a directory over and over, or holds a setting.
pub(crate) fn helper(does: &str, directory: &Path) -> Child {
    let program = std::env::current_exe().unwrap();
    // A shell has what it starts in the background ignore SIGINT, and so do all below.
    let mut command = Command::new("env");
    command.arg("--default-signal=INT,TERM").arg(program);
    command.args(["--exact", "helper::as_helper", "--nocapture", "--test-threads=1"]);
    command.env(HELPER, format!("{does}:{}", directory.display())).stdout(Stdio::piped()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// The test that is no test: what [`helper`] runs.
#[test]
fn as_helper() {
    let Ok(told) = std::env::var(HELPER) else { return };
    let (does, directory) = told.split_once(':').unwrap();
    let directory = Path::new(directory);
    if does == "xfs-follow" {
        return follow_for_ever(&mut OnXfs::host_of_cached(directory), directory);
    }
    if let Some(does) = does.strip_prefix("xfs-") {
        return without_a_setting(&mut OnXfs::host(directory), does, directory);
    }
    if let Some(does) = does.strip_prefix("btrfs-") {
        return without_a_setting(&mut OnBtrfs::host(directory), does, directory);
    }
    if does == "follow" {
        return follow_for_ever(&mut OnExt4::host_of_cached(directory), directory);
    }
    let mut mover = host(directory);
    if does == "owner" {
        assert!(mover.raise_unit(1024).is_err(), "that is for root");
        let (files, report) = pack(&mut mover, directory, &RULES);
        assert!(report.ended.is_none() && report.files > 50 && breaks(&files) < 10, "{report:?}");
        return;
    }
    if does == "keep" {
        println!("\nready");
        loop {
            let (id, _) = pack_and_keep(Path::new(directory));
            undo_all(Path::new(directory), &id);
            forget(&mut host(Path::new(directory)), &id).unwrap();
        }
    }
    // What set it back for the one that was killed before may still be at it.
    assert!(mover.raise_unit(1024).unwrap() || does == "pack");
    println!("\nready");
    if does == "panic" {
        panic!("on purpose");
    }
    if does == "wait" {
        thread::sleep(Duration::from_secs(600));
    }
    pack_for_ever(&mut mover, directory);
}

fn without_a_setting<H: Mounted>(mover: &mut H, does: &str, directory: &Path) {
    let report = match does {
        "pack" => {
            println!("\nready");
            return pack_for_ever(mover, directory);
        }
        _ => pack(mover, directory, &RULES),
    };
    let new_ctime_files = mover.new_ctime_files();
    match (does, report) {
        ("owner" | "owner-exchange", (files, report)) => {
            assert!(report.ended.is_none() && report.files > 50 && breaks(&files) < 10, "{report:?}");
            assert_eq!(new_ctime_files, if does == "owner" { 0 } else { report.files });
        }
        ("others", (files, report)) => {
            assert!(report.ended.is_none() && report.files == 0 && report.stayed.len() == files.len(), "{report:?}");
            assert!(report.stayed.values().all(|stays| *stays == Stays::Others), "{report:?}");
        }
        (does, _) => panic!("nothing is called {does}"),
    }
}

fn pack_for_ever<H: Host>(mover: &mut H, directory: &Path) {
    for round in 0.. {
        // Regions of other sizes and orders give something to do each time.
        let rules =
            Rules { region: if round % 2 == 0 { 512 } else { 64 }, budget: 1000, dearest: 1000, margin: 0, slack: 0 };
        let _ = pack(mover, directory, &rules);
        disturb(directory, round);
    }
}

/// What the daemon does with a directory to which somebody writes.
fn follow_for_ever<H: Mounted>(mover: &mut H, directory: &Path) {
    println!("\nready");
    for round in 0.. {
        let rules =
            Rules { region: if round % 2 == 0 { 512 } else { 64 }, budget: 1000, dearest: 1000, margin: 0, slack: 0 };
        let mut follower = Follower::new(Policy { settle: Duration::from_secs(2), rules, largest: 12, percent: None });
        follower.written((), Duration::ZERO);
        if let Some(now) = follower.next().filter(|&now| follower.take(now).is_some()) {
            let _ = follower.put_in_order(mover, ((), directory), Moment { now, written: 0 }, &mut || true);
        }
        disturb(directory, round);
    }
}

/// Files that are written anew, so that they lie apart again.
fn disturb(directory: &Path, round: u64) {
    for number in 0..12 {
        let path = directory.join(format!("again-{}", (number * 5 + round) % 60));
        let _ = fs::remove_file(&path);
        let size = blocks_of(number) as usize * 4096;
        let _ = fs::write(path, bytes(number, size));
    }
    sync(directory);
}

/// [`helper`] as another user, who has to succeed.
pub(crate) fn as_somebody_else(does: &str, hidden: &str, directory: &Path, root: &Path) {
    // Where the program lies may be closed to others.
    let program = root.join("program");
    if !program.exists() {
        copy_program(&std::env::current_exe().unwrap(), &program);
    }
    let mut command = Command::new(&program);
    command.args(["--exact", "helper::as_helper", "--nocapture"]).env("ONESWEEP_HIDE", hidden);
    command.env(HELPER, format!("{does}:{}", directory.display())).current_dir("/");
    let out = command.uid(NOBODY).gid(NOBODY).output().unwrap();
    assert!(out.status.success(), "{hidden} {}", String::from_utf8_lossy(&[out.stdout, out.stderr].concat()));
}

pub(crate) const NOBODY: u32 = 65_534;

pub(crate) fn wait_until_ready(child: &mut Child) {
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line == "ready")), "the helper has ended");
}
