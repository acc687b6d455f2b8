//! Subvolumes and snapshots of btrfs, which are one file system to the server and have device numbers of their own.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    os::fd::AsFd,
    path::Path,
    process::Command,
};

use onesweep_summary::service::{client::Client, pages::Page, protocol::Question};

use crate::{
    image::{Fs, Image},
    run::{finish, onesweep, output, root_test, run, text},
    serving::Serving,
};

fn btrfs(words: &[&str], paths: &[&Path]) {
    run(Command::new("btrfs").arg("--quiet").args(words).args(paths));
}

/// Subvolumes in each other, snapshots of one that holds others, one deep in a directory, and hard links in them.
fn tree(root: &Path) {
    fs::create_dir_all(root.join("d/e")).expect("a folder");
    for name in ["a", "a/n", "a/m", "d/e/deep"] {
        btrfs(&["subvolume", "create"], &[&root.join(name)]);
    }
    for (number, name) in ["a/f", "a/n/f", "d/f", "d/e/f", "d/e/deep/f"].iter().enumerate() {
        fs::write(root.join(name), vec![1; 30_000 * (number + 1)]).expect("a file");
    }
    fs::create_dir(root.join("d/e/deep/below")).expect("a folder");
    for (name, link) in [("a/f", "a/link"), ("d/f", "d/link"), ("d/e/deep/f", "d/e/deep/below/link")] {
        fs::hard_link(root.join(name), root.join(link)).expect("a link");
    }
    btrfs(&["subvolume", "snapshot"], &[&root.join("a"), &root.join("s")]);
    btrfs(&["subvolume", "snapshot", "-r"], &[&root.join("a"), &root.join("d/r")]);
    crate::tree::sync(root);
}

fn lines(said: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = text(said).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

const OPTIONS: [&[&str]; 9] = [
    &["-s"],
    &["-sx"],
    &["-sb"],
    &["-sxb"],
    &["-s", "--inodes"],
    &["-sx", "--inodes"],
    &["-xd1"],
    &["-x", "-b", "-S"],
    &["--inodes", "-S"],
];

fn equal(image: &Image, socket: &Path) {
    for below in ["", "a", "d", "d/e", "s", "d/r"] {
        let path = image.root().join(below);
        for options in OPTIONS {
            let expected = lines(&output(Command::new("du").args(options).arg(&path)));
            let mut asked = onesweep(["du", "-v", "--socket"]);
            let asked = finish(asked.arg(socket).args(options).arg(&path), 0);
            let is_served = text(&asked.stderr).contains("from the server");
            assert_eq!(is_served, socket.exists(), "{options:?} {below}: {}", text(&asked.stderr));
            if options.contains(&"-S") && !options.contains(&"-x") {
                // In which line a file with several names counts is up to the order.
                assert_eq!(lines(&asked.stdout).len(), expected.len(), "{options:?} {below}");
            } else {
                assert_eq!(lines(&asked.stdout), expected, "{options:?} {below} at {}", socket.display());
            }
        }
    }
}

/// What an export is made of: each directory once, those that stand for subvolumes in snapshots as well.
fn pages(image: &Image, serving: &Serving) {
    let top = File::open(image.root()).expect("a directory");
    let (mut paths, mut ids) = (Vec::new(), BTreeSet::new());
    let mut client = Client::connect(&serving.socket).expect("a connection");
    let mut from = Some(0);
    while let Some(at) = from {
        let page = Page { from: at, limit: 1000, ..Page::default() };
        let head = client.page(top.as_fd(), &Question::plain(), page, |entry| {
            assert!(ids.insert(entry.id.clone()), "{} is there twice", entry.id);
            let path = entry.path.expect("a short path").into_bytes();
            paths.push(String::from_utf8(path).expect("text"));
        });
        from = head.expect("a connection").expect("an answer").next;
    }
    paths.sort();
    let found = text(&output(Command::new("find").arg(image.root()).args(["-type", "d", "-printf", "%P\\n"])));
    let mut found: Vec<&str> = found.lines().collect();
    found.sort();
    assert_eq!(paths, found);
}

#[test]
fn subvolumes_are_left_out_where_that_is_asked_for() {
    root_test!();
    let image = Image::new(Fs::Btrfs, 512 << 20);
    tree(&image.root());
    equal(&image, Path::new("/nowhere"));
    // Single files, too.
    for options in [&["-a"][..], &["-ax"]] {
        let expected = output(Command::new("du").args(options).arg(image.root())).split(|&byte| byte == b'\n').count();
        let walked = output(onesweep(["du"]).args(options).arg(image.root())).split(|&byte| byte == b'\n').count();
        assert_eq!(walked, expected, "{options:?}");
    }
    let serving = Serving::start(&image);
    equal(&image, &serving.socket);
    fs::write(image.root().join("d/e/deep/new"), vec![1; 50_000]).expect("a file");
    fs::write(image.root().join("s/new"), vec![1; 60_000]).expect("a file");
    btrfs(&["subvolume", "snapshot"], &[&image.root().join("s"), &image.root().join("d/t")]);
    btrfs(&["subvolume", "delete"], &[&image.root().join("a/m")]);
    fs::remove_dir(image.root().join("s/n")).expect("it goes");
    crate::tree::sync(&image.root());
    equal(&image, &serving.socket);
    pages(&image, &serving);
    serving.end();
    // What changed while nobody was told, with subvolumes that came and went.
    fs::write(image.root().join("a/n/f"), vec![1; 5000]).expect("a file");
    btrfs(&["subvolume", "delete"], &[&image.root().join("d/t")]);
    btrfs(&["subvolume", "snapshot"], &[&image.root().join("a"), &image.root().join("d/e/u")]);
    crate::tree::sync(&image.root());
    let serving = Serving::start(&image);
    equal(&image, &serving.socket);
    let said = serving.end();
    assert!(!said.contains("harvested anew"), "{said}");
}
