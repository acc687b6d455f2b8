//! However it ends, everything of ours is taken down, and nothing of others.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::place::{PROGRAM, place, succeed};
use crate::shown::{Shown, eventually, signal};

#[test]
fn signals_take_everything_down() {
    let Some(place) = place(64) else { return };
    place.ext4();
    for name in ["INT", "TERM"] {
        let mut shown = Shown::start(&mut place.mounted(&[]));
        fs::write(place.mount.join(name), name).unwrap();
        shown.signal(name);
        assert_eq!(shown.wait(), Some(130));
        place.assert_down();
    }
    let kept = place.script(&[], "cat INT TERM > ../kept");
    assert!(kept.status.success());
    assert_eq!(fs::read_to_string(place.home.path().join("kept")).unwrap(), "INTTERM");
}

#[test]
fn a_killed_server_leaves_nothing() {
    let Some(place) = place(64) else { return };
    place.ext4();
    let mut shown = Shown::start(&mut place.mounted(&[]));
    signal(shown.server(), "KILL");
    assert_eq!(shown.wait(), Some(2));
    place.assert_down();
}

#[test]
fn a_killed_guard_leaves_nothing() {
    let Some(place) = place(64) else { return };
    place.ext4();
    let mut shown = Shown::start(&mut place.mounted(&[]));
    let server = shown.server();
    shown.signal("KILL");
    shown.wait();
    eventually("the server ends", || !Path::new(&format!("/proc/{server}")).exists());
    place.assert_down();
}

/// A second run must not pull the disk from under the first.
#[test]
fn a_directory_shows_one_disk() {
    let Some(place) = place(16) else { return };
    let _shown = Shown::start(&mut place.lab(&[]));
    let second = place.lab(&["--", "true"]).output().unwrap();
    assert_eq!(second.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&second.stderr).contains("already shows"), "{second:?}");
    assert_eq!(place.stats()["errors"], 0);
    succeed(Command::new(PROGRAM).arg("down").arg(&place.disk));
    place.assert_down();
}

/// Neither a file system that somebody else has mounted there nor a loop device on a file called `disk` is ours.
#[test]
fn what_others_have_mounted_stays() {
    let Some(place) = place(64) else { return };
    place.ext4();
    let file = place.disk.join("disk");
    fs::copy(&place.image, &file).unwrap();
    succeed(Command::new("mount").args(["-o", "loop"]).arg(&file).arg(&place.mount));
    let mounted = || fs::read_to_string("/proc/self/mountinfo").unwrap().contains(place.mount.to_str().unwrap());
    succeed(Command::new(PROGRAM).arg("down").arg(&place.disk));
    let refused = place.lab(&["--", "true"]).output().unwrap();
    let is_mounted = mounted();
    succeed(Command::new("umount").arg(&place.mount));
    assert!(is_mounted);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is not empty"), "{refused:?}");
    let nothing = Command::new(PROGRAM).arg("down").arg(place.home.path().join("none")).output().unwrap();
    assert_eq!(nothing.status.code(), Some(2));
    place.assert_down();
}

/// What the command has started would keep the mount busy.
#[test]
fn a_signal_ends_all_of_a_command() {
    let Some(place) = place(64) else { return };
    place.ext4();
    let mut command = place.mounted(&["--", "sh", "-c", "cd mount; touch ready; sleep 1000; true"]);
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("the command runs", || place.mount.join("ready").exists());
    signal(child.id(), "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    place.assert_down();
}

/// Both killed at once: the next run, or `down`, finds what was left.
#[test]
fn what_two_killed_processes_leave_is_taken_down_later() {
    let Some(place) = place(64) else { return };
    place.ext4();
    let mut shown = Shown::start(&mut place.mounted(&[]));
    let server = shown.server();
    signal(server, "STOP");
    shown.signal("KILL");
    signal(server, "KILL");
    shown.wait();
    eventually("the server ends", || !Path::new(&format!("/proc/{server}")).exists());
    let output = place.script(&[], "ls");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    place.assert_down();
}
