//! What a file becomes by one of its names shows in the directories of all of them, not only what it takes: owners, modes, times.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions, Permissions},
    io,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt, fchown},
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use onesweep_summary::{custom::keys::Period, custom::view::view, summaries::Freshness};

use crate::{
    breakdowns::{self, everything, script},
    image::{Fs, Image},
    run::{root_test, run},
    tracked::{Tracked, agrees_when_synced, as_du, ask, du, kill, make_dirty, node, tracked},
    tree::sync,
};

const SYSTEMS: [Fs; 3] = [Fs::Ext4, Fs::Xfs, Fs::Btrfs];

const DECLARED: &str = "
[owner]
by = \"owner\"
[group]
by = \"group\"
[age]
by = \"age\"
[largest]
by = \"largest\"
count = 1
";

/// One of the ways to begin to track: with nothing declared, or with summaries of owners, groups and times.
type Start = fn(&Image) -> Tracked;

const STARTS: [Start; 2] = [tracked, |image| breakdowns::tracked(image, DECLARED)];

/// Directories `a` with a file `f`, `b` with a smaller one, all of it harvested.
fn two(fs: Fs, start: Start) -> (Image, Tracked, [PathBuf; 2]) {
    let image = Image::new(fs, 512 << 20);
    let [a, b] = ["a", "b"].map(|name| image.root().join(name));
    for (directory, bytes) in [(&a, 10_000), (&b, 5000)] {
        fs::create_dir(directory).expect("a directory");
        fs::write(directory.join("f"), vec![1; bytes]).expect("a file");
    }
    sync(&image.root());
    let mut tracked = start(&image);
    equal(&mut tracked, &image.root(), "the first harvest");
    (image, tracked, [a, b])
}

/// A summary, and the key of an inode.
type Key = (&'static str, fn(&fs::Metadata) -> String);

const KEYS: [Key; 3] = [
    ("owner", |facts| facts.uid().to_string()),
    ("group", |facts| facts.gid().to_string()),
    ("age", |facts| Period::Month.of(facts.mtime())),
];

/// Whatever is told of a directory is what looking at every file in it tells, without anything being written for that.
fn equal(tracked: &mut Tracked, directory: &Path, when: &str) {
    let when = &format!("{} {when}", directory.display());
    let answer = ask(tracked, directory, Freshness::Exact);
    assert!(answer.is_exact, "{when}: nobody writes");
    let all = everything(directory);
    let newest = all.iter().map(|(facts, _)| (facts.mtime(), facts.mtime_nsec())).max();
    let largest = all.iter().filter(|(facts, _)| facts.is_file()).map(|(facts, _)| facts.size()).max();
    let extremes = answer.totals.extremes;
    assert_eq!(extremes.newest.map(|time| (time.secs, i64::from(time.nanos))), newest, "the newest of {when}");
    assert_eq!(extremes.largest.map(|largest| largest.bytes), largest, "the largest of {when}");
    let slot = tracked.ledger().nodes.find(node(tracked, directory)).expect("it is known");
    let told = |name: &str| {
        let at = tracked.ledger().declared()?.find(name)?;
        Some(view(tracked.ledger(), slot, at, None).expect("it reads").expect("it is declared").tally.entries)
    };
    for (name, key) in KEYS {
        let Some(entries) = told(name) else { continue };
        let mut expected: BTreeMap<Vec<u8>, [i64; 2]> = BTreeMap::new();
        for (facts, _) in &all {
            let [inodes, bytes] = expected.entry(key(facts).into_bytes()).or_default();
            (*inodes, *bytes) = (*inodes + 1, *bytes + facts.size() as i64);
        }
        let entries: BTreeMap<Vec<u8>, [i64; 2]> =
            entries.into_iter().map(|(key, [n, bytes, _])| (key, [n, bytes])).collect();
        assert_eq!(entries, expected, "{name} of {when}");
    }
    if let Some(entries) = told("largest") {
        let bytes = entries.values().map(|amounts| amounts[0] as u64).max();
        assert_eq!(bytes, largest, "the largest that is declared of {when}");
    }
}

type Step = (&'static str, fn(&File, u32) -> io::Result<()>);

const DAY: u64 = 24 * 3600;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// Whatever changes of a file beside its size and its blocks, by the name by which it is open.
const STEPS: [Step; 6] = [
    ("an owner", |file, round| fchown(file, Some(1000 + round), None)),
    ("a group", |file, round| fchown(file, None, Some(2000 + round))),
    ("a mode", |file, round| file.set_permissions(Permissions::from_mode(0o640 + round % 4))),
    ("a newer time", |file, round| file.set_modified(at(2_000_000_000 + u64::from(round) * 40 * DAY))),
    ("an older time", |file, round| file.set_modified(at(1_000_000_000 - u64::from(round) * 40 * DAY))),
    ("another content", |file, round| file.write_all_at(&vec![round as u8; 4096], 0)),
];

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).expect("a file")
}

#[test]
fn by_a_name_in_an_ignored_directory() {
    root_test!();
    for fs in SYSTEMS {
        for (number, start) in STARTS.into_iter().enumerate() {
            let (image, mut tracked, [a, b]) = two(fs, start);
            make_dirty(&mut tracked, &b);
            fs::hard_link(a.join("f"), b.join("h")).expect("a link");
            let of = format!("of {}, {number}", fs.name());
            equal(&mut tracked, &a, &format!("after the link, {of}"));
            for round in 0..3 {
                for (what, step) in STEPS {
                    step(&open(&b.join("h")), round).expect(what);
                    equal(&mut tracked, &a, &format!("after {what} in round {round}, {of}"));
                }
            }
            // Whoever reads the other directory first tells of this one, too.
            for (what, step) in STEPS {
                step(&open(&b.join("h")), 7).expect(what);
                equal(&mut tracked, &b, &format!("asked for first after {what}, {of}"));
                equal(&mut tracked, &a, &format!("asked for last after {what}, {of}"));
                make_dirty(&mut tracked, &b);
            }
            equal(&mut tracked, &image.root(), "at last");
        }
    }
}

#[test]
fn by_a_name_in_a_directory_that_was_never_harvested() {
    root_test!();
    for fs in SYSTEMS {
        for (number, start) in STARTS.into_iter().enumerate() {
            let (image, mut tracked, [a, b]) = two(fs, start);
            let fresh = image.root().join("fresh");
            fs::create_dir(&fresh).expect("a directory");
            tracked.drain().expect("it is told");
            for name in ["h", "i"] {
                fs::hard_link(a.join("f"), fresh.join(name)).expect("a link");
            }
            fs::hard_link(a.join("f"), b.join("h")).expect("a link");
            let of = format!("of {}, {number}", fs.name());
            for (round, (what, step)) in STEPS.into_iter().chain(STEPS).enumerate() {
                step(&open(&fresh.join("h")), round as u32).expect(what);
                equal(&mut tracked, &a, &format!("after {what}, {of}"));
                equal(&mut tracked, &b, &format!("after {what}, {of}"));
            }
            equal(&mut tracked, &image.root(), "at last");
        }
    }
}

/// One directory is told of it and read, and then another one that names it is asked for.
#[test]
fn by_a_name_in_a_directory_that_is_read_first() {
    root_test!();
    for fs in SYSTEMS {
        for (number, start) in STARTS.into_iter().enumerate() {
            let (image, mut tracked, [a, b]) = two(fs, start);
            fs::hard_link(a.join("f"), b.join("h")).expect("a link");
            let of = format!("of {}, {number}", fs.name());
            equal(&mut tracked, &image.root(), &format!("after the link, {of}"));
            let longer: Step = ("more bytes", |file, round| file.set_len(20_000 + u64::from(round)));
            let shorter: Step = ("fewer bytes", |file, _| file.set_len(10));
            for (round, (what, step)) in STEPS.into_iter().chain([longer, shorter]).enumerate() {
                step(&open(&a.join("f")), round as u32).expect(what);
                equal(&mut tracked, &a, &format!("after {what}, {of}"));
                equal(&mut tracked, &b, &format!("after {what} by the other name, {of}"));
            }
            equal(&mut tracked, &image.root(), "at last");
        }
    }
}

#[test]
fn by_a_name_that_it_has_lost() {
    root_test!();
    for fs in SYSTEMS {
        for (number, start) in STARTS.into_iter().enumerate() {
            for names in 1..=2 {
                let (image, mut tracked, [a, b]) = two(fs, start);
                let file = open(&a.join("f"));
                for name in ["h", "i"].into_iter().take(names) {
                    fs::hard_link(a.join("f"), b.join(name)).expect("a link");
                }
                fs::remove_file(a.join("f")).expect("it goes");
                make_dirty(&mut tracked, &a);
                let of = format!("of {}, {number}, by {names} names", fs.name());
                for (round, (what, step)) in STEPS.into_iter().chain(STEPS).enumerate() {
                    step(&file, round as u32).expect(what);
                    equal(&mut tracked, &b, &format!("after {what}, {of}"));
                }
                drop(file);
                equal(&mut tracked, &image.root(), "at last");
            }
        }
    }
}

/// What was read before a kill, while another directory that names the file was not, is as little lost as what comes after it.
#[test]
fn before_and_after_a_kill() {
    root_test!();
    for fs in SYSTEMS {
        for (number, start) in STARTS.into_iter().enumerate() {
            let (image, mut tracked, [a, b]) = two(fs, start);
            fs::hard_link(a.join("f"), b.join("h")).expect("a link");
            equal(&mut tracked, &image.root(), "after the link");
            let of = format!("of {}, {number}", fs.name());
            for (round, (what, step)) in STEPS.into_iter().enumerate() {
                let round = round as u32;
                tracked.commit(true).expect("a commit");
                step(&open(&a.join("f")), round).expect(what);
                equal(&mut tracked, &a, &format!("after {what}, {of}"));
                make_dirty(&mut tracked, &b);
                tracked.commit(true).expect("a commit");
                kill(tracked, &image);
                tracked = start(&image);
                equal(&mut tracked, &b, &format!("after {what} and a kill, {of}"));
                tracked.commit(true).expect("a commit");
                make_dirty(&mut tracked, &b);
                step(&open(&b.join("h")), round + 20).expect(what);
                kill(tracked, &image);
                step(&open(&b.join("h")), round + 40).expect(what);
                tracked = start(&image);
                equal(&mut tracked, &a, &format!("after {what} without a server, {of}"));
                make_dirty(&mut tracked, &b);
                step(&open(&b.join("h")), round + 60).expect(what);
                equal(&mut tracked, &a, &format!("after {what} by a name in an ignored directory, {of}"));
            }
            equal(&mut tracked, &image.root(), "at last");
        }
    }
}

/// A command is told of modes and of times of inodes, too.
#[test]
fn for_a_command() {
    root_test!();
    for fs in SYSTEMS {
        let image = Image::new(fs, 512 << 20);
        let [a, b] = ["a", "b"].map(|name| image.root().join(name));
        for directory in [&a, &b] {
            fs::create_dir(directory).expect("a directory");
        }
        fs::write(a.join("f"), vec![1; 10_000]).expect("a file");
        sync(&image.root());
        let program = script(
            &image,
            "modes",
            "awk -F'\"' 'NR > 1 { for (at = 1; at < NF; at++) if ($at == \"mode\" || $at == \"ctime\") {\n\
             value = substr($(at + 1), 2) + 0; if (value > most[$at]) most[$at] = value } }\n\
             END { printf \"{\\\"mode\\\": %d, \\\"ctime\\\": %d}\", most[\"mode\"], most[\"ctime\"] }'\n",
        );
        let declared = format!("[most]\nby = \"command\"\ncommand = [{program:?}]\nuser = 12345\nmerge = \"max\"\n");
        let mut tracked = breakdowns::tracked(&image, &declared);
        let most = |tracked: &mut Tracked, directory: &Path| {
            assert!(ask(tracked, directory, Freshness::Exact).is_exact, "nobody writes");
            let slot = tracked.ledger().nodes.find(node(tracked, directory)).expect("it is known");
            let told = view(tracked.ledger(), slot, 0, None).expect("it reads").expect("it is declared").tally;
            assert_eq!(told.unknown, 0, "the command has answered");
            ["mode", "ctime"].map(|key| told.entries.get(key.as_bytes()).map(|amounts| amounts[0]))
        };
        most(&mut tracked, &image.root());
        make_dirty(&mut tracked, &b);
        fs::hard_link(a.join("f"), b.join("h")).expect("a link");
        for mode in [0o700, 0o640, 0o777] {
            fs::set_permissions(b.join("h"), Permissions::from_mode(mode)).expect("a mode");
            let facts = a.join("f").metadata().expect("its facts");
            let expected = [Some(facts.mode().into()), Some(facts.ctime())];
            assert_eq!(most(&mut tracked, &a), expected, "{} with {mode:o}", fs.name());
        }
    }
}

/// Directories of a copy, and files in each.
const COPY: (u64, u64) = (30, 5);

/// As backups are kept: a new copy has hard links to all files of the last one, and the oldest goes. Copies that stay aren't read again.
#[test]
fn copies_by_hard_links_come_and_go() {
    root_test!();
    for fs in SYSTEMS {
        for (number, start) in STARTS.into_iter().enumerate() {
            let image = Image::new(fs, 512 << 20);
            let copy = |number: u64| image.root().join(format!("copy{number}"));
            let copied = |from: u64| run(Command::new("cp").arg("-al").args([copy(from), copy(from + 1)]));
            for directory in 0..COPY.0 {
                let directory = copy(0).join(directory.to_string());
                fs::create_dir_all(&directory).expect("a directory");
                (0..COPY.1).for_each(|file| {
                    fs::write(directory.join(file.to_string()), vec![1; 3000 + 5000 * file as usize]).expect("a file");
                });
            }
            (0..4).for_each(copied);
            sync(&image.root());
            let mut tracked = start(&image);
            equal(&mut tracked, &image.root(), "the first harvest");
            for turn in 0..3 {
                let of = format!("in turn {turn} of {}, {number}", fs.name());
                let read = |tracked: &mut Tracked, when: &str| {
                    let before = tracked.readings();
                    let answer = ask(tracked, &image.root(), Freshness::Exact);
                    // Blocks of what was written may not have settled.
                    assert_eq!(as_du(&answer)[1..], du(&image.root())[1..], "{when} {of}");
                    let read = tracked.readings() - before;
                    equal(tracked, &image.root(), &format!("{when} {of}"));
                    read
                };
                copied(turn + 4);
                // The new ones, what they are in, and each once more if it was caught while it was filled.
                let new = read(&mut tracked, "a copy came");
                assert!((COPY.0..=2 * COPY.0 + 4).contains(&new), "{new} were read when a copy came {of}");
                fs::remove_dir_all(copy(turn)).expect("it goes");
                let gone = read(&mut tracked, "a copy went");
                assert!(gone <= COPY.0 + 4, "{gone} were read when a copy went {of}");
                // By another name than the one that is asked for.
                let file = copy(turn + 1).join("3/2");
                fs::write(&file, vec![2; 20_000 + turn as usize]).expect("a file");
                let changed = read(&mut tracked, "a file was written");
                assert!((5..=2 * 5 + 2).contains(&changed), "{changed} were read when a file was written {of}");
                agrees_when_synced(&mut tracked, &image.root(), &of);
            }
            // With one name each, they are counted as other files are.
            (3..7).for_each(|number| fs::remove_dir_all(copy(number)).expect("it goes"));
            equal(&mut tracked, &image.root(), "one copy is left");
        }
    }
}

/// A name that goes elsewhere lets more be freed, and has nothing read but the directory that it was in, which only who asks for that waits
/// for.
#[test]
fn what_removing_would_free_grows_when_a_name_goes_elsewhere() {
    root_test!();
    for fs in SYSTEMS {
        let image = Image::new(fs, 512 << 20);
        let [kept, elsewhere] = ["kept", "elsewhere"].map(|name| image.root().join(name));
        for directory in [&kept.join("a"), &kept.join("b"), &elsewhere] {
            fs::create_dir_all(directory).expect("a directory");
        }
        let file = kept.join("a/f");
        fs::write(&file, vec![1; 20_000]).expect("a file");
        [kept.join("b/f"), elsewhere.join("f")].iter().for_each(|name| fs::hard_link(&file, name).expect("a link"));
        sync(&image.root());
        let blocks = fs::metadata(&file).expect("its facts").blocks() as i64;
        let mut tracked = tracked(&image);
        let stays = |tracked: &mut Tracked| {
            let sums = ask(tracked, &kept, Freshness::Exact).totals.sums;
            sums.blocks - sums.freed_blocks
        };
        assert_eq!(stays(&mut tracked), blocks, "{}: it has a name elsewhere", fs.name());
        fs::remove_file(elsewhere.join("f")).expect("it goes");
        let before = tracked.readings();
        let alone = stays(&mut tracked);
        assert_eq!((alone, tracked.readings() - before), (0, 0), "{}: by itself", fs.name());
        equal(&mut tracked, &image.root(), "all of it");
        assert_eq!((stays(&mut tracked), tracked.readings() - before), (0, 1), "{}", fs.name());
    }
}
