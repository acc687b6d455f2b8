//! Summaries of a real file system under random operations, against GNU du.

use std::{collections::BTreeMap, fs};

use crate::{
    image::{Fs, Image},
    run::{long, root_test, say, seed},
    shuffled::Shuffled,
    storms::scarce,
    tracked::{Tracked, agrees, kill, tracked, was_told},
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
        // The last ones say most.
        let when = |log: &[String]| {
            format!("step {step} of seed {}:\n{}\n", seed(), log[log.len().saturating_sub(30)..].join("\n"))
        };
        if tree.rng.below(10) == 0 {
            let path = tree.directory();
            agrees(&mut tracked, &path, &when(&log));
        }
        // All of it, and soon after each change: what is read again for another reason hides that nobody told.
        if tree.rng.below(4) == 0 {
            was_told(&mut tracked, &image.root(), &when(&log));
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

/// ext3 in the long set alone: they are one driver.
#[test]
fn ext2_and_ext3_under_random_operations() {
    for fs in if long() { &[Fs::Ext2, Fs::Ext3][..] } else { &[Fs::Ext2] } {
        random_operations(*fs, &STARTS);
    }
}

#[test]
fn xfs_under_random_operations() {
    random_operations(Fs::Xfs, &STARTS);
}

#[test]
fn btrfs_under_random_operations() {
    random_operations(Fs::Btrfs, &STARTS);
}
