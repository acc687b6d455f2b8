//! Servers that are killed at any moment, among operations that nobody waits for, and what the next one answers; and those that are killed when
//! they have answered what isn't durable yet.

use std::{
    fs,
    io::{BufReader, Read},
    path::Path,
    process::{ChildStderr, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    image::{Fs, Image},
    run::{long, onesweep, output, root_test, say, seed, text},
    serving::Serving,
    shuffled::Shuffled,
    trouble::{Frozen, told_up_to},
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

/// One that can write nothing to its store from before all is known to it, most times: the file system of the store holds still.
struct Held<'a> {
    // The disk has to go on before who waits for it can end.
    frozen: Frozen<'a>,
    serving: Serving,
    heard: BufReader<ChildStderr>,
}

const STORED: &str = "what was harvested is stored";

impl<'a> Held<'a> {
    fn begin(image: &Image, stores: &'a Image) -> Held<'a> {
        let socket = image.beside("socket");
        let mut serve = onesweep(["serve", "--store"]);
        serve.arg(stores.root().join("stores")).arg("--socket").arg(&socket).arg(image.root());
        let mut running = serve.stderr(Stdio::piped()).spawn().expect("it starts");
        let mut heard = BufReader::new(running.stderr.take().expect("it is piped"));
        let pid = Pid::from_child(&running);
        let serving = Serving { running, socket };
        // The store is open by then, and all else is before it.
        told_up_to(&mut heard, "listening at ");
        kill_process(pid, Signal::STOP).expect("it is ours");
        let frozen = Frozen::new(stores);
        kill_process(pid, Signal::CONT).expect("it is ours");
        Held { frozen, serving, heard }
    }

    /// Kills it. True where nothing of what it has answered was durable.
    fn kill(mut self) -> bool {
        self.serving.running.kill().expect("it is killed");
        // Who waits for the disk is gone only then, without writing.
        drop(self.frozen);
        self.serving.running.wait().expect("it is gone");
        let mut said = String::new();
        self.heard.read_to_string(&mut said).expect("it ends");
        !said.contains(STORED)
    }
}

/// By a first harvest, or, where a store `is_there`, by a later start.
fn what_was_answered_is_found_again(fs: Fs, is_there: bool) {
    let (image, stores) = (Image::new(fs, 1 << 30), Image::new(Fs::Ext4, 256 << 20));
    let at = stores.root().join("stores");
    let mut tree = Shuffled::new(image.root(), seed(), fs.has_reflinks());
    (0..500).for_each(|_| _ = tree.step());
    if is_there {
        let serving = Serving::start_keeping(&[&image], &at, &[]);
        agrees(&serving, &image.root(), "a first harvest");
        serving.end();
    }
    let wanted = if long() { 20 } else { 2 };
    let (mut held, mut begun) = (0, 0);
    while held < wanted {
        begun += 1;
        assert!(begun <= 50 * wanted, "{}: {held} of {begun} could be held", fs.name());
        let mut steps = |count: u32| (0..count).for_each(|_| _ = tree.step());
        steps(30);
        let server = Held::begin(&image, &stores);
        let when = format!("start {begun} of seed {}, {}", seed(), fs.name());
        agrees(&server.serving, &image.root(), &when);
        // What is told is answered too, and durable as little; some of it nobody asks for.
        steps(20);
        agrees(&server.serving, &image.root(), &when);
        steps(10);
        let is_held = server.kill();
        held += u32::from(is_held);
        steps(10);
        let serving = Serving::start_keeping(&[&image], &at, &[]);
        let when =
            format!("{when}: killed, {}", if is_held { "and nothing was durable" } else { "and all was durable" });
        agrees(&serving, &image.root(), &when);
        for _ in 0..3 {
            agrees(&serving, &tree.directory(), &when);
        }
        serving.end();
        if !is_there {
            fs::remove_dir_all(&at).expect("it goes");
        }
    }
    say(&format!("{}: {held} of {begun} servers were killed before what they had answered was durable", fs.name()));
}

#[test]
fn before_a_first_harvest_is_durable() {
    root_test!();
    [Fs::Ext4, Fs::Xfs, Fs::Btrfs].into_iter().for_each(|fs| what_was_answered_is_found_again(fs, false));
}

#[test]
fn before_what_a_later_start_found_is_durable() {
    root_test!();
    [Fs::Ext4, Fs::Xfs, Fs::Btrfs].into_iter().for_each(|fs| what_was_answered_is_found_again(fs, true));
}
