//! Servers that are killed at any moment, among operations that nobody waits for, and what the next one answers.

use std::{
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use crate::{
    image::{Fs, Image},
    run::{long, output, root_test, say, seed, text},
    serving::Serving,
    shuffled::Shuffled,
};

const FIGURES: [&str; 3] = ["-b", "-B1", "--inodes"];

fn agrees(serving: &Serving, path: &Path, after: &str) {
    for figure in FIGURES {
        let both = || {
            let ours = text(&output(&mut serving.du(&["--sync", "-s", figure], path)));
            (ours, text(&output(Command::new("du").args(["-s", figure]).arg(path))))
        };
        let (ours, theirs) = both();
        // XFS gives back what it has allocated ahead when it forgets an inode, which may be between the two.
        let (ours, theirs) = if ours == theirs { (ours, theirs) } else { both() };
        assert_eq!(ours, theirs, "{figure} {} after {after}", path.display());
    }
}

fn each_is_followed_by_another(fs: Fs) {
    root_test!();
    let image = Image::new(fs, 1 << 30);
    let mut tree = Shuffled::new(image.root(), seed(), fs.has_reflinks());
    (0..300).for_each(|_| _ = tree.step());
    let rounds = if long() { 35 } else { 3 };
    let mut operations = 0;
    for round in 0..rounds {
        let serving = Serving::start(&image);
        let moment = Duration::from_millis(tree.rng.below(1500));
        let is_killed = AtomicBool::new(false);
        let beside = thread::scope(|scope| {
            let changes = scope.spawn(|| {
                let mut steps = 0_u32;
                while !is_killed.load(Ordering::SeqCst) {
                    tree.step();
                    steps += 1;
                }
                steps
            });
            thread::sleep(moment);
            serving.kill();
            is_killed.store(true, Ordering::SeqCst);
            changes.join().expect("it changes files")
        });
        let unheard = tree.rng.below(30);
        (0..unheard).for_each(|_| _ = tree.step());
        operations += u64::from(beside) + unheard;
        let when = format!("round {round} of seed {}: killed after {moment:?}, {unheard} more", seed());
        let serving = Serving::start(&image);
        agrees(&serving, &image.root(), &when);
        for _ in 0..3 {
            agrees(&serving, &tree.directory(), &when);
        }
        // The next one begins with what this one had written down by now.
        serving.kill();
    }
    say(&format!("{}: {} kills among {operations} operations", fs.name(), 2 * rounds));
    assert!(operations > rounds * 10, "hardly anything changed: {operations}");
}

#[test]
fn of_ext4() {
    each_is_followed_by_another(Fs::Ext4);
}

#[test]
fn of_xfs() {
    each_is_followed_by_another(Fs::Xfs);
}

#[test]
fn of_btrfs() {
    each_is_followed_by_another(Fs::Btrfs);
}
