//! `find` in directories of a mounted XFS or btrfs says what find(1) says.

use std::{collections::BTreeSet, fs, os::unix::fs::FileExt, path::Path, process::Command};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

use crate::{
    find,
    image::{Fs, Image, unmount},
    run::{finish, onesweep, output, root_test, run, text},
    tree::Rng,
};

fn lines(out: &[u8]) -> BTreeSet<String> {
    let all: Vec<String> = text(out).lines().map(str::to_owned).collect();
    let set: BTreeSet<String> = all.iter().cloned().collect();
    assert_eq!(set.len(), all.len(), "a line came twice");
    set
}

/// What find(1) says with the same words.
fn by_find(root: &Path, conditions: &[&str]) -> BTreeSet<String> {
    lines(&output(Command::new("find").arg(root).arg("-xdev").args(conditions)))
}

#[test]
fn a_mounted_xfs_is_found_without_a_walk() {
    root_test!();
    is_found_without_a_walk(Fs::Xfs);
}

#[test]
fn a_mounted_btrfs_is_found_without_a_walk() {
    root_test!();
    is_found_without_a_walk(Fs::Btrfs);
}

fn is_found_without_a_walk(fs: Fs) {
    let image = Image::new(fs, 320 << 20);
    let root = image.root();
    let mut rng = Rng::new(3);
    for folder in 0..20 {
        let folder = root.join(format!("d{}/e{folder}", folder % 4));
        fs::create_dir_all(&folder).expect("a folder");
        for file in 0..30 {
            fs::write(folder.join(format!("f{file}")), rng.bytes(file * 700)).expect("a file");
        }
    }
    std::os::unix::fs::symlink("f1", root.join("d1/link")).expect("a link");
    fs::hard_link(root.join("d0/e0/f9"), root.join("d1/again")).expect("a link");
    run(Command::new("mkfifo").arg(root.join("d1/pipe")));
    fs::create_dir(root.join("d1/small")).expect("a folder");
    run(Command::new("chown").arg("nobody").arg(root.join("d1/e1/f3")));
    // Blocks of attributes, beside what takes none itself.
    let large = "v".repeat(3000);
    for name in ["d1/link", "d1/pipe", "d1/small", "d1/e1/f2"] {
        run(Command::new("setfattr").args(["-h", "-n", "trusted.large", "-v", &large]).arg(root.join(name)));
    }
    let conditions: [&[&str]; 6] = [
        &[],
        &["-size", "+10k"],
        &["-type", "l"],
        &["-name", "f1*"],
        &["-mtime", "-1", "-type", "d"],
        &["-user", "nobody"],
    ];
    assert_eq!(by_find(&root, &["-user", "nobody"]).len(), 1);
    for conditions in conditions {
        for limit in [&[][..], &["--catalog-limit", "50K"]] {
            let out = finish(onesweep(["find"]).args(limit).arg(&root).args(conditions), 0);
            assert_eq!(lines(&out.stdout), by_find(&root, conditions), "{conditions:?} {limit:?}");
            assert_eq!(text(&out.stderr), "");
        }
    }
    assert_eq!(find::by_onesweep(&root, &[]), find::by_find(&root, &[]), "each fact of each path");
    let below = root.join("d1");
    let out = finish(onesweep(["find"]).arg(&below).args(["-type", "f"]), 0);
    assert_eq!(lines(&out.stdout), by_find(&below, &["-type", "f"]));
    // By a mount that shows a part of it.
    let bound = image.beside("bound");
    fs::create_dir(&bound).expect("a folder");
    run(Command::new("mount").arg("--bind").arg(&below).arg(&bound));
    assert_eq!(lines(&finish(onesweep(["find"]).arg(&bound), 0).stdout), by_find(&bound, &[]));
    unmount(&bound);
    // Places are those that filefrag tells.
    let file = root.join("d0/e4/f29");
    let json = finish(onesweep(["find", "--json", "-name", "f29"]).arg(&root), 0);
    let shown = |line: &&str| line.contains("d0/e4/f29");
    let line = text(&json.stdout).lines().find(shown).expect("the file").to_owned();
    let row: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let told = text(&output(Command::new("filefrag").args(["-b1", "-v"]).arg(&file)));
    let address =
        told.lines().find_map(|line| line.trim().strip_prefix("0:")?.split(':').nth(1)?.trim().split('.').next());
    let address: u64 = address.and_then(|address| address.trim().parse().ok()).expect("an address");
    assert_eq!((row["fragments"].as_u64(), row["address"].as_u64()), (Some(1), Some(address)), "{told}");
    let link = finish(onesweep(["find", "--json", "--type", "l"]).arg(&root), 0);
    let row: serde_json::Value = serde_json::from_str(&text(&link.stdout)).expect("JSON of one link");
    assert_eq!(row["target"], "f1");
}

/// Where files lie comes from the reverse map where there is one: no file is opened for it, and the same is told.
#[test]
fn places_come_from_a_reverse_map_without_opening_a_file() {
    root_test!();
    let told = |map: &str| {
        let image = Image::with(Fs::Xfs, 320 << 20, &["-m", &format!("rmapbt={map}")]);
        let root = image.root();
        let mut rng = Rng::new(5);
        for number in 0..50 {
            fs::write(root.join(format!("file{number}")), rng.bytes(number * 1000)).expect("a file");
        }
        let pieces = fs::File::create(root.join("pieces")).expect("a file");
        (0..40).for_each(|number| pieces.write_all_at(&[7; 4096], number * 8192).expect("a piece"));
        rustix::fs::syncfs(fs::File::open(&root).expect("the root")).expect("all of it is written");
        let opened = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("watches");
        inotify::add_watch(&opened, &root, WatchFlags::OPEN).expect("a watch");
        let rows = text(&finish(onesweep(["find", "--json"]).arg(&root), 0).stdout);
        let mut buffer = [std::mem::MaybeUninit::uninit(); 16 << 10];
        let mut reader = inotify::Reader::new(&opened, &mut buffer);
        let mut files = BTreeSet::new();
        while let Ok(event) = reader.next() {
            files.extend(event.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
        let mut all = 0;
        for row in rows.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")) {
            if row["type"] != "file" || row["size"] == 0 {
                continue;
            }
            all += 1;
            let path = row["path"].as_str().expect("a path");
            let mapped = output(Command::new("filefrag").args(["-b1", "-v", path]));
            let mapped = text(&mapped);
            // What XFS has reserved between the pieces has no data.
            let has_data = |line: &&str| line.contains("..") && line.contains(':') && !line.contains("unwritten");
            let extents: Vec<&str> = mapped.lines().filter(has_data).collect();
            let first = extents[0].split(':').nth(2).and_then(|place| place.trim().split('.').next());
            let address = first.and_then(|first| first.parse::<u64>().ok());
            assert_eq!(
                (row["fragments"].as_u64(), row["address"].as_u64()),
                (Some(extents.len() as u64), address),
                "{row}\n{mapped}"
            );
        }
        assert_eq!(all, 50);
        files
    };
    assert_eq!(told("1"), BTreeSet::new());
    assert_eq!(told("0").len(), 50, "each of them is asked");
}

/// A subvolume has inodes of its own: it is told, and found when it is named, from any directory in it.
#[test]
fn subvolumes_below_a_mounted_btrfs_are_named() {
    root_test!();
    let image = Image::new(Fs::Btrfs, 320 << 20);
    let root = image.root();
    fs::create_dir(root.join("a")).expect("a folder");
    fs::write(root.join("a/file"), "x").expect("a file");
    let home = root.join("a/home");
    run(Command::new("btrfs").args(["subvolume", "create"]).arg(&home));
    fs::create_dir_all(home.join("b/c")).expect("folders");
    fs::write(home.join("b/c/file"), "x").expect("a file");
    for limit in ["1G", "1"] {
        let out = finish(onesweep(["find", "--catalog-limit", limit]).arg(&root), 0);
        let expected = ["", "/a", "/a/file"].map(|name| format!("{}{name}", root.display()));
        assert_eq!(lines(&out.stdout), expected.into());
        let told = format!("onesweep: {}: another subvolume is there, which is not read; name it\n", home.display());
        assert_eq!(text(&out.stderr), told);
    }
    for below in [home.clone(), home.join("b"), home.join("b/c")] {
        let out = finish(onesweep(["find"]).arg(&below), 0);
        assert_eq!(lines(&out.stdout), by_find(&below, &[]));
        assert_eq!(text(&out.stderr), "");
    }
}

/// What a mount hides is not told, and the mount is; ordinary users are told what they lack.
#[test]
fn what_is_mounted_below_is_named() {
    root_test!();
    [Fs::Xfs, Fs::Btrfs].into_iter().for_each(mounts_are_named);
}

fn mounts_are_named(fs: Fs) {
    let image = Image::new(fs, 320 << 20);
    let root = image.root();
    let mount = root.join("a/mount");
    fs::create_dir_all(mount.join("hidden")).expect("a folder");
    fs::write(root.join("a/file"), "x").expect("a file");
    run(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&mount));
    for limit in ["1G", "1"] {
        let out = finish(onesweep(["find", "--catalog-limit", limit]).arg(&root), 0);
        let expected = ["", "/a", "/a/file"].map(|name| format!("{}{name}", root.display()));
        assert_eq!(lines(&out.stdout), expected.into());
        let told = format!(
            "onesweep: {}: another file system is mounted there, which is not read; name it\n",
            mount.display()
        );
        assert_eq!(text(&out.stderr), told);
    }
    unmount(&mount);
    let tool = image.beside("onesweep");
    crate::run::copy_program(&crate::run::program(), &tool);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&tool).arg("find").arg(&root);
    let said = text(&finish(&mut command, 2).stderr);
    assert!(said.contains("cannot read its file system: Operation not permitted; run as root"), "{said}");
}
