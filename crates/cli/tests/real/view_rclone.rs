//! rclone, which nobody will change, through a view.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use crate::{
    image::{Fs, Image},
    run::{finish, onesweep, root_test, run, text},
    tree::{self, Rng},
    view::{WAYS, at_least, brought_in, place},
};

/// Carries `rclone` out on what a view shows of `root`. It has no configuration, and asks the network for nothing.
fn rclone(way: &[&str], root: &Path, dir: &Path, args: &[&str], to: &Path, code: i32) -> Output {
    let mut command = onesweep(["view", "--verbose"]);
    command.args(way).args([root, dir]).args(["--", "rclone", "--config", ""]).args(args).args([dir, to]);
    finish(&mut command, code)
}

#[test]
fn rclone_copies_and_checks_a_cold_tree_through_a_view() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 200 << 20);
    let (root, dir) = place(&image);
    let mut rng = Rng::new(11);
    let mut files = Vec::new();
    for number in 0..300_u64 {
        let path = root.join(format!("d{}/e {}/f\u{fc}{number:03}", number % 5, number % 3));
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        // An empty one, and some that don't end where a page does.
        fs::write(&path, rng.bytes((number * 137) as usize)).expect("a file");
        files.push(path);
    }
    fs::create_dir(root.join("empty")).expect("a folder");
    tree::sync(&root);
    fs::create_dir_all(&dir).expect("a place");
    let out = image.beside("copied");
    for way in WAYS {
        image.cold();
        // It takes three seconds, or on a quick disk it would be done before it is told that all it reads is a walk.
        let copied = rclone(way, &root, &dir, &["copy", "--bwlimit", "2M", "--create-empty-src-dirs"], &out, 0);
        // But for the empty one, and those that were read before it was known to be a walk, of four directories at a time.
        let (brought, sweeps) = brought_in(&copied.stderr);
        assert!(brought >= at_least(way, 240) && sweeps >= 1, "{way:?}: {}", text(&copied.stderr));
        run(Command::new("diff").args(["-r", "--no-dereference"]).args([&root, &out]));
        fs::rename(&out, image.beside(&format!("copied {}", way.len()))).expect("another one");
    }

    let out = image.beside("copied 0");
    rclone(&[], &root, &dir, &["check", "--download"], &out, 0);
    let changed = out.join(files[299].strip_prefix(&root).expect("below it"));
    let mut bytes = fs::read(&changed).expect("a copy");
    *bytes.last_mut().expect("a byte") ^= 1;
    fs::write(&changed, bytes).expect("another one");
    let differs = rclone(&[], &root, &dir, &["check", "--download"], &out, 1);
    assert!(text(&differs.stderr).contains("1 differences found"), "{}", text(&differs.stderr));
}
