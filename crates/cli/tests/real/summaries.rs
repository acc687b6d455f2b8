//! Summaries of a real file system under random operations, against GNU du.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::unix::fs::{FileExt, PermissionsExt, symlink},
    process::Command,
};

use onesweep_summary::{reading::Directories, volume::Volume};

use crate::{
    image::{Fs, Image},
    run::{long, root_test, run, say, seed},
    shuffled::Shuffled,
    storms::scarce,
    tracked::{Tracked, agrees, kill, tracked},
    tree::until_another_second,
};

/// `starts`: the ways to begin to track, one of which by chance after each kill.
pub(crate) fn random_operations(fs: Fs, starts: &[fn(&Image) -> Tracked]) {
    root_test!();
    let image = Image::new(fs, 1 << 30);
    let mut tracked = starts[0](&image);
    let steps = if long() { 100_000 } else { 1500 };
    let mut tree = Shuffled::new(image.root(), seed(), fs.has_reflinks());
    let (mut log, mut kills, mut commits, mut losses) = (Vec::new(), 0, 0, 0);
    for step in 0..steps {
        log.push(tree.step());
        match tree.rng.below(400) {
            0..=2 => {
                tracked.commit(true).expect("it is written");
                commits += 1;
                log.push("commit".to_owned());
            }
            3 => {
                losses += tracked.losses();
                kill(tracked, &image);
                let start = tree.rng.below(starts.len() as u64) as usize;
                // Some of what happens is told to nobody.
                log.extend((0..tree.rng.below(30)).map(|_| tree.step()));
                tracked = starts[start](&image);
                kills += 1;
                log.push(format!("kill, start {start}"));
            }
            _ => {}
        }
        if tree.rng.below(10) == 0 {
            let path = tree.directory();
            // The last ones say most.
            let recent = log[log.len().saturating_sub(30)..].join("\n");
            agrees(&mut tracked, &path, &format!("step {step} of seed {}:\n{recent}\n", seed()));
        }
        // So that not all of a long run is about one tree that only grows.
        if tree.files.len() > 2000 {
            for path in tree.files.split_off(200) {
                let _ = fs::remove_file(path);
            }
        }
    }
    for path in tree.directories.clone() {
        agrees(&mut tracked, &path, "all");
    }
    let mut kinds: BTreeMap<String, u32> = BTreeMap::new();
    for line in &log {
        let kind = line.split(' ').next().unwrap_or_default();
        *kinds.entry(kind.to_owned()).or_default() += 1;
    }
    losses += tracked.losses();
    say(&format!(
        "{}: {steps} random operations, {commits} commits, {kills} kills, {losses} times events lost: {kinds:?}",
        fs.name()
    ));
    assert!(kills > 0 && commits > 0, "nothing was killed, so no start was tested");
}

/// With a queue that loses events, too.
const STARTS: [fn(&Image) -> Tracked; 2] = [tracked, scarce];

#[test]
fn ext4_under_random_operations() {
    random_operations(Fs::Ext4, &STARTS);
}

#[test]
fn xfs_under_random_operations() {
    random_operations(Fs::Xfs, &STARTS);
}

#[test]
fn btrfs_under_random_operations() {
    random_operations(Fs::Btrfs, &STARTS);
}

/// What is read of many inodes at a time is what each directory says itself.
#[test]
fn readings_in_bulk_are_those_of_each_directory() {
    root_test!();
    let image = Image::new(Fs::Ext4, 512 << 20);
    let root = image.root();
    fs::create_dir_all(root.join("a/b/empty")).expect("folders");
    for number in 0..3000 {
        fs::write(root.join(format!("a/file with a longer name {number}")), vec![7; number]).expect("a file");
    }
    for number in 0..200 {
        fs::create_dir(root.join(format!("a/b/{number}"))).expect("a folder");
    }
    fs::hard_link(root.join("a/file with a longer name 9"), root.join("a/b/link")).expect("a link");
    symlink("x".repeat(100), root.join("a/b/0/symlink")).expect("a link");
    let sparse = File::create(root.join("a/b/0/sparse")).expect("a file");
    sparse.write_all_at(b"x", 1 << 30).expect("it is written");
    fs::set_permissions(root.join("a/b/1"), fs::Permissions::from_mode(0o700)).expect("a mode");
    run(Command::new("mkfifo").arg(root.join("a/b/1/fifo")));
    run(Command::new("setfattr").args(["-n", "user.a", "-v", "b"]).arg(root.join("a/b/2")));
    run(Command::new("chown").args(["70000:80000"]).arg(root.join("a/b/3")));
    fs::create_dir(root.join("a/b/3/covered")).expect("a folder");
    // What has changed just now has no stamp.
    (0..3).for_each(|_| until_another_second());
    let volume = Volume::of(&root).expect("a file system");
    let (mut all, mut at) = (vec![volume.root()], 0);
    while let Some(&directory) = all.get(at) {
        all.extend(volume.read(directory).expect("it is read").directories.into_iter().map(|(id, _)| id));
        at += 1;
    }
    assert!(all.len() >= 205, "{}", all.len());
    all.sort_unstable();
    volume.sync().expect("it is written");
    let read = |up_to| volume.read_some_up_to(&all, up_to).into_iter().map(|reading| format!("{reading:?}"));
    let (each, few): (Vec<_>, Vec<_>) = (read(usize::MAX).collect(), read(100).collect());
    assert!(volume.begin_bulk(), "it can be read in bulk");
    read(usize::MAX).zip(each).for_each(|(bulk, each)| assert_eq!(bulk, each));
    read(100).zip(few).for_each(|(bulk, few)| assert_eq!(bulk, few));
    volume.end_bulk();
}
