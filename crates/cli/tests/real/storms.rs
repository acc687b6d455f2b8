//! Changes faster than they can be told.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard},
    thread,
};

use onesweep_summary::{
    store::Store,
    summaries::{CaughtUp, Freshness, Summaries},
    tracker::Fanotify,
    volume::Volume,
};

use crate::{
    image::{Fs, Image},
    run::{long, root_test, say, seed},
    shuffled::Shuffled,
    tracked::{Tracked, agrees, as_du, ask, du, tracked},
    tree::sync,
};

/// How many events wait in a queue of the kernel, from the next one on.
const LIMIT: &str = "/proc/sys/fs/fanotify/max_queued_events";

/// Brings the limit back, whatever happens. One at a time: another one's limit isn't the one to bring back.
struct Limited {
    before: String,
    _one: MutexGuard<'static, ()>,
}

static LIMITED: Mutex<()> = Mutex::new(());

impl Limited {
    fn to(events: u32) -> Self {
        let _one = LIMITED.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let before = fs::read_to_string(LIMIT).expect("the limit");
        fs::write(LIMIT, events.to_string()).expect("another limit");
        Self { before, _one }
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        fs::write(LIMIT, self.before.trim()).expect("the limit as it was");
    }
}

/// A tracker whose queue holds next to nothing. The limit is that of the machine for a moment, which others with a queue of their own don't heed.
pub(crate) fn scarce(image: &Image) -> Tracked {
    let volume = Arc::new(Volume::of(&image.root()).expect("a file system with handles"));
    let tracker = {
        let _limited = Limited::to(8);
        Fanotify::start_with(volume.clone(), false).expect("it is watched")
    };
    let store = Store::open(&image.beside("store")).expect("a store");
    let root = volume.root();
    Summaries::open(store, (volume, tracker), root, b"test").expect("summaries")
}

fn overflows(fs: Fs) {
    let image = Image::new(fs, 1 << 30);
    let directories: Vec<PathBuf> = (0..300).map(|number| image.root().join(format!("d{number}"))).collect();
    for directory in &directories {
        fs::create_dir(directory).expect("a directory");
        fs::write(directory.join("f"), vec![1; 5000]).expect("a file");
    }
    sync(&image.root());
    let mut tracked = scarce(&image);
    agrees(&mut tracked, &image.root(), "the first harvest");
    assert!(tracked.caught_up().is_none());
    let mut tree = Shuffled::new(image.root(), seed(), fs.has_reflinks());
    tree.directories.extend(directories.iter().cloned());
    let (mut losses, mut log) = (0, Vec::new());
    for round in 0..6 {
        // Faster than every 100 ms.
        for (number, directory) in directories.iter().enumerate().filter(|(number, _)| number % 6 == round) {
            if directory.exists() {
                let _ = fs::write(directory.join(format!("g{round}")), vec![2; 100 * number]);
            }
        }
        log.extend((0..30).map(|_| tree.step()));
        agrees(&mut tracked, &image.root(), &format!("round {round}:\n{}", log.join("\n")));
        losses += usize::from(matches!(tracked.caught_up(), Some(CaughtUp::Changed(changed)) if *changed > 0));
        for directory in tree.directories.clone().iter().step_by(5) {
            let answer = ask(&mut tracked, directory, Freshness::Exact);
            assert_eq!(as_du(&answer)[1..], du(directory)[1..], "{} in round {round}", directory.display());
        }
    }
    assert!(losses > 0, "nothing was lost, so nothing was tested");
    assert!(tracked.losses() > 0, "it is told");
    for directory in &tree.directories {
        agrees(&mut tracked, directory, "the end");
    }
}

/// `alone`, since the limit is one of the whole machine.
#[test]
fn events_that_are_lost_are_caught_up_with() {
    root_test!(alone);
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        overflows(fs);
    }
}

/// Each directory is new, each file gets a second name: events that no ignoring keeps back.
fn storm(root: &Path, writers: usize, directories: usize) {
    thread::scope(|scope| {
        for writer in 0..writers {
            scope.spawn(move || {
                let own = root.join(format!("w{writer}"));
                fs::create_dir(&own).expect("a directory");
                for number in 0..directories / writers {
                    let directory = own.join(format!("d{number}"));
                    fs::create_dir(&directory).expect("a directory");
                    fs::write(directory.join("f"), b"some").expect("a file");
                    fs::hard_link(directory.join("f"), own.join(format!("l{number}"))).expect("a link");
                    if number % 3 == 0 {
                        fs::remove_file(directory.join("f")).expect("it goes");
                    }
                }
            });
        }
    });
}

/// `alone`: when others have the caches dropped, the kernel looks through a large directory for each name in it.
#[test]
fn a_storm_of_events_loses_nothing() {
    root_test!(alone);
    let image = Image::with(Fs::Ext4, 2 << 30, &["-N", "600000"]);
    let mut tracked = tracked(&image);
    agrees(&mut tracked, &image.root(), "the first harvest");
    // As many as find room in memory until somebody asks.
    let directories = if long() { 80_000 } else { 34_000 };
    storm(&image.root(), 4, directories);
    let (told, waiting) = tracked.tracker().told();
    let (answer, expected) = (ask(&mut tracked, &image.root(), Freshness::Exact), du(&image.root()));
    assert!(answer.is_exact);
    assert_eq!(as_du(&answer)[1..], expected[1..]);
    assert!(tracked.caught_up().is_none() && tracked.losses() == 0, "nothing was lost");
    // About one for each directory, and one for each inode that got a name or lost one.
    let bound = 5 * directories;
    assert!(waiting <= bound, "{waiting} changes of {directories} directories wait");
    let told = tracked.tracker().told().0.max(told);
    say(&format!("a storm over {directories} directories: {told} events, {waiting} changes waited"));
    assert!(told as usize > 2 * directories, "{told}");
    agrees(&mut tracked, &image.root().join("w2"), "the storm");
}
