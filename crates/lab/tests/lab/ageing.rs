//! Images that are aged.

use std::fs;
use std::process::{Command, Stdio};

use crate::place::{PROGRAM, place, succeed};
use crate::shown::{Shown, eventually};

#[test]
fn ageing_is_repeatable_and_its_bounds_are_in_order() {
    let Some(place) = place(1) else { return };
    let mut labels = Vec::new();
    for _ in 0..2 {
        let mut age = Command::new(PROGRAM);
        age.args(["age", "random", "--scale", "0.01", "--out"]).arg(&place.image);
        let label: serde_json::Value = serde_json::from_str(&succeed(&mut age)).unwrap();
        labels.push(label["operations_sha256"].clone());
    }
    assert_eq!(labels[0], labels[1]);
    let sidecar = fs::read_to_string(place.home.path().join("image.json")).unwrap();
    let sidecar: serde_json::Value = serde_json::from_str(&sidecar).unwrap();
    assert_eq!((&sidecar["recipe"], &sidecar["files"]), (&"random".into(), &225.into()));
    let bound = succeed(Command::new(PROGRAM).args(["bound", "--json"]).arg(&place.image));
    let bound: serde_json::Value = serde_json::from_str(&bound).unwrap();
    assert_eq!((&bound["files"], &bound["useful_bytes"]), (&sidecar["files"], &sidecar["file_bytes"]));
    let (streaming, sweep) = (bound["streaming_ms"].as_f64().unwrap(), bound["sweep"]["ms"].as_f64().unwrap());
    assert!(0.0 < streaming && streaming < sweep, "{bound}");
    assert!(bound["metadata_bytes"].as_u64().unwrap() > 0, "{bound}");
    assert_eq!(bound["image_sha256"], sidecar["image_sha256"], "a bound changes nothing");
}

/// What was there before stays, with its label.
#[test]
fn ageing_that_is_told_to_end_leaves_nothing() {
    let Some(place) = place(1) else { return };
    let (image, label) = (place.image.clone(), place.home.path().join("image.json"));
    fs::write(&image, "an image").unwrap();
    fs::write(&label, "its label").unwrap();
    for name in ["INT", "TERM", "HUP"] {
        let mut age = Command::new(PROGRAM);
        age.args(["age", "source", "--out"]).arg(&image).env("TMPDIR", place.home.path());
        let mut age = Shown(age.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let home = place.home.path().to_str().unwrap();
        eventually("it is mounted", || fs::read_to_string("/proc/self/mountinfo").unwrap().contains(home));
        age.signal(name);
        assert_eq!(age.wait(), Some(130));
        place.assert_down();
        let mut left: Vec<_> = fs::read_dir(home).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["disk", "image", "image.json", "mount"]);
        assert_eq!(fs::read_to_string(&image).unwrap(), "an image");
        assert_eq!(fs::read_to_string(&label).unwrap(), "its label");
    }
}

/// A killed run can't take down its mount: `down` does, and the next run that makes the image.
#[test]
fn what_killed_ageing_leaves_is_taken_down_later() {
    let Some(place) = place(1) else { return };
    let home = place.home.path();
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap().matches(home.to_str().unwrap()).count();
    let killed = || {
        let mut age = Command::new(PROGRAM);
        age.args(["age", "source", "--out"]).arg(&place.image).env("TMPDIR", home);
        let mut age = Shown(age.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        eventually("it is mounted", || mounts() > 0);
        age.signal("KILL");
        age.wait();
        assert_eq!(mounts(), 1);
    };
    killed();
    succeed(Command::new(PROGRAM).arg("down").arg(&place.image));
    place.assert_down();
    killed();
    succeed(Command::new(PROGRAM).args(["age", "random", "--scale", "0.01", "--out"]).arg(&place.image));
    place.assert_down();
}

#[test]
fn an_image_that_is_not_that_of_its_label_is_not_unpacked() {
    let dir = tempfile::tempdir().unwrap();
    let [image, packed, label] = ["image", "image.zst", "image.json"].map(|name| dir.path().join(name));
    fs::write(&image, "an image").unwrap();
    succeed(Command::new(PROGRAM).arg("pack").arg(&image));
    fs::remove_file(&image).unwrap();
    fs::write(&label, "{\"image_sha256\": \"another\"}").unwrap();
    let refused = Command::new(PROGRAM).arg("unpack").arg(&packed).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is not the image of its label"), "{refused:?}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing is left of it");
    fs::remove_file(&label).unwrap();
    succeed(Command::new(PROGRAM).arg("unpack").arg(&packed));
    assert_eq!(fs::read_to_string(&image).unwrap(), "an image");
}
