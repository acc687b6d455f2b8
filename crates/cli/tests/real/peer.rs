//! `onesweep peer index`: what it keeps of devices, images and directories, and what it refuses.

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use crate::run::{figure, finish, onesweep, output, root_test, run, summary, text};

struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let place = Place { dir: tempfile::tempdir().expect("a folder") };
        place.key('7');
        place
    }

    /// A key whose digits are all this one.
    fn key(&self, digit: char) {
        let key = self.path("key");
        fs::write(&key, format!("onesweep-peer-key 1 {}\n", digit.to_string().repeat(64))).expect("a key");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("a key of one's own");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs `peer index` with these options, and gives its details.
    fn index(&self, options: &[&str], of: &Path, code: i32) -> serde_json::Value {
        let mut command = onesweep(["peer", "index", "--json", "--key"]);
        command.arg(self.path("key")).arg("--index").arg(self.path("index")).args(options).arg(of);
        summary(&finish(&mut command, code).stdout)["details"].clone()
    }

    fn image(&self) -> PathBuf {
        let image = self.path("image");
        File::create(&image).expect("an image").set_len(32 << 20).expect("its size");
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image));
        image
    }
}

#[test]
fn an_image_is_indexed_once_and_checked() {
    let place = Place::new();
    let image = place.image();
    let before = fs::read(&image).expect("its bytes");
    let made = place.index(&["--block-size", "16K"], &image, 0);
    assert_eq!((figure(&made, "blocks"), figure(&made, "new")), (2048, 2048));
    assert!(figure(&made, "zero_blocks") > 1500 && made["has_marks"] == true, "{made}");
    // Not 36 bytes for each block, whatever its size.
    assert!(fs::metadata(place.path("index")).expect("the index").len() <= 36 * 2048);
    assert_eq!(fs::read(&image).expect("its bytes"), before, "nothing is written to it");

    let checked = place.index(&["--check"], &image, 0);
    assert_eq!((figure(&checked, "differing"), figure(&checked, "suspect")), (0, 0));

    // The file's own times tell that it was written, so this is no surprise.
    let file = File::options().write(true).open(&image).expect("the image");
    file.write_all_at(b"changed", 20 << 20).expect("it is written");
    let checked = place.index(&["--check"], &image, 0);
    assert_eq!((figure(&checked, "differing"), figure(&checked, "stale")), (1, 0));
    assert_eq!(figure(&checked, "suspect"), 2048);
    let checked = place.index(&["--check"], &image, 0);
    assert_eq!((figure(&checked, "differing"), figure(&checked, "suspect")), (0, 0), "it was put right");

    let learning = place.index(&["--learn"], &image, 0);
    assert_eq!((figure(&learning, "new"), figure(&learning, "bytes")), (0, 0));
}

#[test]
fn another_key_or_a_damaged_index_is_refused() {
    let place = Place::new();
    let image = place.image();
    place.index(&[], &image, 0);
    let refused = |why: &str| {
        let mut command = onesweep(["peer", "index", "--check", "--key"]);
        command.arg(place.path("key")).arg("--index").arg(place.path("index")).arg(&image);
        let told = text(&finish(&mut command, 2).stderr);
        assert!(told.contains(why), "{told}");
    };
    place.key('8');
    refused("another trust domain");
    place.key('7');
    let index = File::options().write(true).open(place.path("index")).expect("the index");
    index.write_all_at(&[9], 16).expect("it is written");
    refused("version 9");
    index.write_all_at(&[1], 16).expect("it is written");
    index.write_all_at(&[9], 24).expect("it is written");
    refused("sum of its header");
}

/// What is written past the file system changes no mark. Only `--check` finds it.
#[test]
fn a_device_is_opened_alone_and_checked() {
    root_test!();
    let place = Place::new();
    let image = place.image();
    let device = text(&output(Command::new("losetup").args(["--find", "--show"]).arg(&image)));
    let device = Path::new(device.trim());
    let mnt = place.path("mnt");
    fs::create_dir(&mnt).expect("a folder");
    place.index(&[], device, 0);

    let raw = File::options().write(true).open(device).expect("the device");
    raw.write_all_at(b"past the file system", 20 << 20).expect("it is written");
    raw.sync_all().expect("it is there");
    drop(raw);
    let checked = place.index(&["--check"], device, 1);
    assert_eq!((figure(&checked, "differing"), figure(&checked, "stale")), (1, 1));
    assert_eq!(figure(&place.index(&["--check"], device, 0), "differing"), 0);

    run(Command::new("mount").arg(device).arg(&mnt));
    let mut command = onesweep(["peer", "index", "--check", "--key"]);
    command.arg(place.path("key")).arg("--index").arg(place.path("index")).arg(device);
    let told = text(&finish(&mut command, 2).stderr);
    run(Command::new("umount").arg(&mnt));
    // Mounted and unmounted, it has other marks.
    let checked = place.index(&["--check"], device, 0);
    run(Command::new("losetup").arg("--detach").arg(device));
    assert!(told.contains("mounted or in use"), "{told}");
    assert_eq!((figure(&checked, "suspect"), figure(&checked, "stale")), (8192, 0));
}

#[test]
fn files_of_a_directory_are_found_only_as_they_were() {
    let place = Place::new();
    let tree = place.path("tree");
    fs::create_dir(&tree).expect("a folder");
    for number in 0..50 {
        fs::write(tree.join(number.to_string()), vec![number; 1000 * usize::from(number)]).expect("a file");
    }
    // A file changed just now could be changed again without another ctime.
    let made = place.index(&[], &tree, 0);
    assert_eq!((figure(&made, "new"), figure(&made, "unsettled_files")), (50, 50));
    let settled = SystemTime::now() + Duration::from_secs(4);
    while SystemTime::now() < settled {
        std::thread::sleep(Duration::from_millis(100));
    }
    let made = place.index(&[], &tree, 0);
    assert_eq!((figure(&made, "new"), figure(&made, "unsettled_files")), (50, 0));
    let checked = place.index(&["--check"], &tree, 0);
    assert_eq!((figure(&checked, "new"), figure(&checked, "stale")), (0, 0));
    fs::write(tree.join("7"), "changed").expect("a file");
    fs::remove_file(tree.join("8")).expect("a file");
    fs::write(tree.join("8"), vec![8; 8000]).expect("a file");
    let checked = place.index(&["--check"], &tree, 0);
    assert_eq!((figure(&checked, "new"), figure(&checked, "stale")), (2, 0));
}
