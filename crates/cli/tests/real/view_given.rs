//! What a view gives of what is in memory: files before they are asked for, and directories without their addresses.

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use crate::{
    image::{Fs, Image},
    run::{long, output, root_test, seed, text},
    tree::Rng,
    view::{View, inodes, place, until},
};

/// Files of a few folders, of up to a page and more.
fn small_files(root: &Path, count: usize) -> Vec<PathBuf> {
    let mut rng = Rng::new(5);
    let mut files = Vec::new();
    for number in 0..count {
        let path = root.join(format!("d{}/f{number:03}", number % 3));
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, rng.bytes(1 + number * 40)).expect("a file");
        files.push(path);
    }
    files
}

/// Most files are in the kernel's memory before a program asks for them, in whatever order it goes, and have the right bytes.
#[test]
fn files_are_given_before_they_are_asked_for() {
    root_test!();
    let image = Image::new(Fs::Ext4, 128 << 20);
    let (root, dir) = place(&image);
    small_files(&root, 300);
    let archive = |from: &Path, options: &[&str]| {
        output(Command::new("tar").args(["--format=gnu", "-cf", "-"]).args(options).arg("-C").arg(from).arg("."))
    };
    for (sort, is_listed_before) in [("none", false), ("none", true), ("name", false), ("inode", false)] {
        let sort = &format!("--sort={sort}");
        let view = View::show(&root, &dir, &["--verbose", "--order", "source"]);
        if is_listed_before {
            inodes(&dir);
        }
        assert!(archive(&dir, &[sort]) == archive(&root, &[sort]), "{sort}: the archive is another one");
        view.signal(rustix::process::Signal::INT);
        let said = view.end(Some(0));
        let given = said.split("given ").nth(1).and_then(|rest| rest.split(' ').next()).map(str::parse);
        let given: usize = given.and_then(Result::ok).unwrap_or_else(|| panic!("{sort}: {said}"));
        // Some twice, where the order turns out to be another one.
        assert!((200..600).contains(&given), "{sort}: {said}");
    }
    // What was given isn't older than what the program has written itself.
    let view = View::show(&root, &dir, &["--verbose", "--read-write"]);
    archive(&dir, &[]);
    view.signal(rustix::process::Signal::INT);
    let said = view.end(Some(0));
    assert!(!said.contains("given"), "{said}");
}

/// Programs read through a view what is overwritten meanwhile, with as many bytes: what they see in the end is what is there.
#[test]
fn what_is_given_while_it_changes_does_not_stay() {
    root_test!();
    let image = Image::new(Fs::Ext4, 128 << 20);
    let (root, dir) = place(&image);
    let files = small_files(&root, 120);
    let _view = View::show(&root, &dir, &[]);
    let read = || output(Command::new("sh").args(["-c", "cat \"$1\"/d0/*", "sh"]).arg(&dir));
    let mut rng = Rng::new(seed());
    for round in 0..if long() { 300 } else { 20 } {
        thread::scope(|scope| {
            let reader = scope.spawn(|| drop(read()));
            for _ in 0..200 {
                let file = &files[3 * rng.below(40) as usize];
                let len = fs::metadata(file).expect("a file").len() as usize;
                let open = File::options().write(true).open(file).expect("a file");
                open.write_all_at(&rng.bytes(len), 0).expect("bytes");
            }
            reader.join().expect("bytes");
        });
        let contents = |from: &Path| -> Vec<Vec<u8>> {
            let below = |file: &PathBuf| from.join(file.strip_prefix(&root).expect("below"));
            files.iter().step_by(3).map(|file| fs::read(below(file)).expect("a file")).collect()
        };
        let there = contents(&root);
        until(&format!("round {round}: old bytes stay"), || contents(&dir) == there);
    }
}

/// 40 folders that hold these files, of five bytes each; their names.
fn folders_with(root: &Path, files: &[String]) -> Vec<String> {
    let folders: Vec<String> = (0..40).map(|number| format!("d{number:02}")).collect();
    for folder in &folders {
        fs::create_dir_all(root.join(folder)).expect("a folder");
        files.iter().for_each(|file| fs::write(root.join(folder).join(file), "bytes").expect("a file"));
    }
    folders
}

/// Directories are looked at before a program comes to them. What changes until it comes is seen.
#[test]
fn what_is_seen_ahead_is_not_shown_when_it_has_changed() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    let (root, dir) = place(&image);
    let folders = folders_with(&root, &(0..20).map(|file| format!("f{file}")).collect::<Vec<_>>());
    let _view = View::show(&root, &dir, &[]);
    let told = |from: &Path| -> Vec<(String, Option<(u64, u32)>)> {
        let told = folders.iter().flat_map(|folder| fs::read_dir(from.join(folder)).expect("a folder")).map(|entry| {
            let entry = entry.expect("an entry");
            // One of which the view doesn't know yet that it is gone has none.
            let meta = entry.metadata().ok().map(|meta| (meta.len(), meta.mode()));
            (entry.path().strip_prefix(from).expect("below").display().to_string(), meta)
        });
        let mut told: Vec<_> = told.collect();
        told.sort();
        told
    };
    // The others are looked at meanwhile.
    assert_eq!(fs::read_dir(&dir).expect("a folder").count(), folders.len());
    fs::read_dir(dir.join(&folders[0])).expect("a folder").for_each(drop);
    for folder in &folders {
        let folder = root.join(folder);
        fs::remove_file(folder.join("f0")).expect("a file goes");
        fs::write(folder.join("new"), "more bytes").expect("a file comes");
        fs::write(folder.join("f1"), "other bytes").expect("it grows");
        fs::rename(folder.join("f2"), folder.join("f3")).expect("one takes the place of another");
        fs::set_permissions(folder.join("f4"), fs::Permissions::from_mode(0o600)).expect("a mode");
    }
    until("what was seen ahead stays", || told(&dir) == told(&root));
}

/// The same of files alone, of which the kernel hasn't been told: no name of their folder changes, and who lists it just afterwards isn't told
/// of what was before.
#[test]
fn files_that_change_before_they_are_told_are_told_as_they_are() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    let (root, dir) = place(&image);
    let folders = folders_with(&root, &["grows", "closed"].map(str::to_owned));
    let told = |from: &Path, file: &str| {
        let entry = fs::read_dir(from).expect("a folder").map(|entry| entry.expect("an entry"));
        let meta = entry.filter(|entry| entry.file_name() == file).map(|entry| entry.metadata().expect("what it is"));
        meta.map(|meta| (meta.len(), meta.mode())).next().expect("the file")
    };
    // The first change, after which nothing is left of what was seen ahead, is of either kind; and it is either in the queue still
    // when its folder is listed, or taken from it.
    let mut turn = 0;
    for (first, pause) in [(0, 0), (0, 50), (1, 0), (1, 50)] {
        let are_seen_ahead = (1..=20).any(|round| {
            turn += 1;
            let view = View::show(&root, &dir, &["--verbose"]);
            assert_eq!(fs::read_dir(&dir).expect("a folder").count(), folders.len());
            // They are looked at meanwhile, which is told at the end alone: one that isn't yet is told as it is in any case.
            thread::sleep(Duration::from_millis(200 * round));
            for (number, folder) in folders.iter().enumerate() {
                let source = root.join(folder);
                let file = if (number + first).is_multiple_of(2) {
                    fs::write(source.join("grows"), vec![1; 100 + turn]).expect("it grows");
                    "grows"
                } else {
                    let mode = 0o600 + turn as u32;
                    fs::set_permissions(source.join("closed"), fs::Permissions::from_mode(mode)).expect("a mode");
                    "closed"
                };
                // Once: the folders behind it are looked at as any.
                thread::sleep(Duration::from_millis(if number == 0 { pause } else { 0 }));
                assert_eq!(told(&dir.join(folder), file), told(&source, file), "{folder}/{file}");
            }
            view.signal(rustix::process::Signal::INT);
            // All of them before the first change: none is looked at after one.
            view.end(Some(0)).contains(&format!("; {} directories seen ahead", folders.len()))
        });
        assert!(are_seen_ahead, "they were never looked at in time");
    }
}

/// A folder `a` whose files lie on the disk in another order than their numbers: their names by number, and by address.
pub(crate) fn in_two_orders(root: &Path) -> [Vec<String>; 2] {
    fs::create_dir_all(root.join("a")).expect("a folder");
    let names: Vec<String> = (0..8).map(|number| format!("f{number}")).collect();
    for name in &names {
        File::create(root.join("a").join(name)).expect("a file");
    }
    // The last one made gets the first blocks.
    for name in names.iter().rev() {
        fs::write(root.join("a").join(name), vec![1; 64 << 10]).expect("a file");
        File::open(root.join("a").join(name)).and_then(|file| file.sync_all()).expect("it lies somewhere");
    }
    let address = |name: &String| -> u64 {
        let told = text(&output(Command::new("filefrag").args(["-b1", "-v"]).arg(root.join("a").join(name))));
        let first = told.lines().find_map(|line| line.trim().strip_prefix("0:")?.split(':').nth(1));
        let first = first.and_then(|places| places.trim().split('.').next()?.parse().ok());
        first.unwrap_or_else(|| panic!("{told}"))
    };
    let (mut by_number, mut by_address) = (names.clone(), names);
    by_number.sort_by_key(|name| fs::metadata(root.join("a").join(name)).expect("a file").ino());
    by_address.sort_by_key(address);
    assert_ne!(by_address, by_number, "the orders differ");
    [by_number, by_address]
}

/// What a view lists there.
pub(crate) fn listed(root: &Path, dir: &Path, options: &[&str]) -> Vec<String> {
    let view = View::show(root, dir, options);
    let entries = fs::read_dir(dir.join("a")).expect("a folder");
    let listed = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("a name")).collect();
    drop(view);
    listed
}

/// Where files are in memory no order saves a seek, and none is asked of their maps.
#[test]
fn directories_are_listed_as_their_files_lie_on_the_disk() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 64 << 20);
    let (root, dir) = place(&image);
    let [by_number, by_address] = in_two_orders(&root);
    // Said, since the machine's disk may be one in which nothing turns.
    assert_eq!(listed(&root, &dir, &["--order", "device"]), by_number, "in memory");
    image.cold();
    assert_eq!(listed(&root, &dir, &["--order", "device"]), by_address, "on the disk");
}
