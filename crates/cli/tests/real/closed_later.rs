//! What is closed while a server runs, by its rights or by where it goes, tells others nothing of what comes after, before it is read itself.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

use crate::{
    image::{Fs, Image},
    run::{onesweep, root_test, text},
    web_server::{NOBODY, Web, du, figures},
};

const GROWN: usize = 1 << 20;

/// Directories that are read when they are asked for.
fn start(image: &Image) -> Web {
    for (below, kib) in
        [("s/sub", 300), ("open/d", 200), ("open/e", 100), ("private", 50), ("mine/a/d", 70), ("mine/b", 30)]
    {
        fs::create_dir_all(image.root().join(below)).expect("a directory");
        fs::write(image.root().join(below).join("f"), vec![1; kib << 10]).expect("a file");
    }
    mode(&image.root().join("private"), 0o700);
    for below in ["mine", "mine/a", "mine/a/d", "mine/b"] {
        chown(image.root().join(below), Some(NOBODY), None).expect("an owner");
        mode(&image.root().join(below), 0o700);
    }
    crate::tree::sync(&image.root());
    let web = Web::start_with(image, &[], &["--harvest-after", "1h"].map(OsStr::new));
    read(&web, &image.root());
    web
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
}

/// Root asks for it.
fn read(web: &Web, path: &Path) {
    let listing = web.listing(&web.root, &format!("path={}", path.display()));
    assert_eq!(figures(&listing["total"]), du(0, path));
}

/// Somebody else does.
fn ask(image: &Image, options: &[&str], below: &str) -> Output {
    let mut du = onesweep(["du", "-B1", "--socket"]);
    du.arg(image.beside("socket")).args(options).arg(image.root().join(below));
    let mut user = Command::new("setpriv");
    user.args([&format!("--reuid={NOBODY}"), &format!("--regid={NOBODY}"), "--clear-groups"]).arg(du.get_program());
    user.args(du.get_args()).output().expect("it runs")
}

/// The bytes of the last line, and whether all is shown.
fn total(said: &Output) -> (i64, bool) {
    let last = text(&said.stdout).lines().last().and_then(|line| line.split('\t').next()?.parse().ok());
    let is_whole = said.status.code() == Some(0);
    (last.unwrap_or_else(|| panic!("no line: {}{}", text(&said.stdout), text(&said.stderr))), is_whole)
}

/// Many that are still to be read, of which an answer that doesn't wait takes what is stored.
fn be_busy(image: &Image) {
    for number in 0..300 {
        fs::create_dir_all(image.root().join(format!("open/e/{number}"))).expect("a directory");
    }
}

#[test]
fn what_is_closed_tells_nothing_of_what_comes_after() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let image = Image::new(fs, 512 << 20);
        let (root, at) = (image.root(), |below: &str| image.root().join(below));
        let web = start(&image);
        let allocated = |below: &str| du(NOBODY, &at(below))[0];
        let (before, open) = (allocated(""), allocated("s"));
        assert_eq!(total(&ask(&image, &["-s", "--cached"], "s")), (open, true));
        mode(&at("s"), 0o700);
        let expected = before - open + allocated("s");
        fs::create_dir(at("s/sub/unheard")).expect("a directory");
        fs::write(at("s/sub/unheard/grown"), vec![1; GROWN]).expect("a file");
        crate::tree::sync(&root);
        read(&web, &at("s/sub"));
        for options in [&["-s", "--cached"][..], &["-d9", "--cached"], &["-S", "--cached"]] {
            let said = ask(&image, options, "");
            assert!(!text(&said.stdout).contains("s/sub"), "{fs:?} {options:?}: {}", text(&said.stdout));
            if !options.contains(&"-S") {
                assert_eq!(total(&said), (expected, false), "{fs:?} {options:?}");
            }
        }
        assert_eq!(total(&ask(&image, &["-s", "--cached"], "s")), (allocated("s"), false), "{fs:?}");
        let (_, said) = web.get(&web.nobody, &format!("/api/directory?freshness=cached&path={}", root.display()));
        let listing: Value = serde_json::from_str(&said).expect("JSON");
        assert_eq!((figures(&listing["total"])[0], &listing["partial"]), (expected, &true.into()), "{fs:?}");
        be_busy(&image);
        for options in [&["-s", "--within", "0s"][..], &["-d9", "--within", "0s"]] {
            let said = ask(&image, options, "");
            assert!(!text(&said.stdout).contains("s/sub"), "{fs:?} {options:?}: {}", text(&said.stdout));
            assert!(total(&said).0 < before - open + (GROWN as i64) / 2 + 300 * 8192, "{fs:?} {options:?}");
        }
        assert_eq!(total(&ask(&image, &["-s"], "")), (allocated(""), false), "{fs:?}");
        // It is open again, and is shown at once.
        mode(&at("s"), 0o755);
        read(&web, &at("open"));
        let said = ask(&image, &["-d9", "--cached"], "s");
        assert!(text(&said.stdout).contains("s/sub/unheard"), "{fs:?}: {}", text(&said.stderr));
        assert_eq!(total(&said), (allocated("s"), true), "{fs:?}");
    }
}

#[test]
fn what_goes_into_a_closed_one_tells_nothing_of_what_comes_after() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let image = Image::new(fs, 512 << 20);
        let (root, at) = (image.root(), |below: &str| image.root().join(below));
        let web = start(&image);
        let allocated = |below: &str| du(NOBODY, &at(below))[0];
        let before = [allocated(""), allocated("open")];
        let itself = allocated("open/d") - (200 << 10);
        fs::rename(at("open/d"), at("private/d")).expect("it moves");
        fs::create_dir(at("private/d/unheard")).expect("a directory");
        fs::write(at("private/d/unheard/grown"), vec![1; GROWN]).expect("a file");
        crate::tree::sync(&root);
        read(&web, &at("private/d"));
        for (below, before) in ["", "open"].into_iter().zip(before) {
            for depth in ["-d0", "-d9"] {
                let said = ask(&image, &[depth, "--cached"], below);
                assert!(!text(&said.stdout).contains("unheard"), "{fs:?} {below} {depth}: {}", text(&said.stdout));
                let (seen, is_whole) = total(&said);
                // Its own size may be what it is now.
                let grown = seen - (before - (200 << 10));
                assert!((0..=4096.max(itself)).contains(&grown) && !is_whole, "{fs:?} {below} {depth}: {grown}");
            }
        }
        assert_eq!(total(&ask(&image, &["-s"], "")), (allocated(""), false), "{fs:?}");
        assert_eq!(total(&ask(&image, &["-s", "--cached"], "open")), (allocated("open"), true), "{fs:?}");
    }
}

#[test]
fn owners_see_what_they_move_and_close() {
    root_test!();
    let image = Image::new(Fs::Ext4, 512 << 20);
    let at = |below: &str| image.root().join(below);
    let _web = start(&image);
    let before = total(&ask(&image, &["-s", "--cached"], "mine"));
    assert!(before.1);
    fs::create_dir_all(at("mine/new/deep")).expect("a directory");
    for below in ["mine/new", "mine/new/deep"] {
        chown(at(below), Some(NOBODY), None).expect("an owner");
        mode(&at(below), 0o700);
    }
    fs::rename(at("mine/a/d"), at("mine/new/deep/d")).expect("it moves");
    mode(&at("mine/b"), 0o500);
    for options in [&["-s", "--cached"][..], &["-d9", "--cached"]] {
        // What changes without being asked for is read by nobody.
        assert_eq!(total(&ask(&image, options, "mine")), before, "{options:?}");
    }
    assert_eq!(total(&ask(&image, &["-s"], "mine")), (du(NOBODY, &at("mine"))[0], true));
}
