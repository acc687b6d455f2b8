//! Directories put in order just after they were written, while their files are in memory.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use onesweep_relocate::ext4::Ext4;
use onesweep_relocate::follow::watch::Watch;
use onesweep_relocate::follow::{Follower, Moment, Policy, Told};
use onesweep_relocate::host::Host;
use onesweep_relocate::mounted::Mounted;
use onesweep_relocate::pack::Rules;
use onesweep_sys::files::open_dir;
use onesweep_sys::handle::handle_at;

use crate::image::{Image, is_root};
use crate::kinds::{Kind, OnExt4, OnXfs};
use crate::tree::{assert_same, breaks, kept, planned, scatter, sync};

const MIB: u64 = 1 << 20;
const SETTLE: Duration = Duration::from_secs(40);
const FILES: u64 = 100;
/// Files that may be read.
const SOME: u64 = 20;

fn follower(percent: Option<u32>) -> Follower<&'static str> {
    Follower::new(Policy { settle: SETTLE, rules: Rules::for_regions(64), largest: 12, percent })
}

/// Has a directory put in order that was written to, at such a moment.
fn put_in_order(follower: &mut Follower<&'static str>, host: &mut impl Mounted, path: &Path, written: u64) -> Told {
    follower.written("d", Duration::ZERO);
    let now = follower.next().expect("it waits");
    let directory = follower.take(now).expect("its time has come");
    follower.put_in_order(host, (directory, path), Moment { now, written }, &mut || true).unwrap()
}

fn breaks_of<K: Kind>(directory: &Path) -> u64 {
    breaks(&planned(&mut K::host(directory), directory, &Rules::for_regions(64)).0)
}

/// The machine may take pages from anybody at any moment, between a look at a file and its move too. What goes wrong without that
/// goes wrong each time.
fn if_memory_is_left(test: fn()) {
    if !is_root() {
        return;
    }
    for _ in 0..4 {
        if catch_unwind(test).is_ok() {
            return;
        }
        eprintln!("once more, as the machine may have taken pages from it");
    }
    test();
}

fn what_is_in_memory_is_put_in_order<K: Kind>() {
    let image = K::image(256 * MIB, "");
    let directory = image.root().join("d");
    scatter(&directory, FILES);
    let (before, breaks_before) = (kept(&directory), breaks_of::<K>(&directory));
    let mut follower = follower(None);
    let told = put_in_order(&mut follower, &mut K::host_of_cached(&directory), &directory, 0);
    assert_eq!((told.files, told.in_memory), (FILES as usize, FILES as usize));
    assert!(told.report.stayed.is_empty() && !told.again, "{told:?}");
    assert_eq!(told.report.commits, 0, "nobody waits for the disk");
    assert!(told.sizes_may_differ, "files of more pieces than an inode holds were joined");
    let now = breaks_of::<K>(&directory);
    assert!(now * 4 < breaks_before, "{breaks_before} breaks before, {now} now");
    assert_same(&directory, &before);
    let again = put_in_order(&mut follower, &mut K::host_of_cached(&directory), &directory, 0);
    assert!(again.report.blocks <= told.report.blocks / 4, "{again:?}");
}

#[test]
fn what_is_in_memory_is_put_in_order_on_ext4() {
    if_memory_is_left(what_is_in_memory_is_put_in_order::<OnExt4>);
}

#[test]
fn what_is_in_memory_is_put_in_order_on_xfs() {
    if_memory_is_left(what_is_in_memory_is_put_in_order::<OnXfs>);
}

fn nothing_is_read<K: Kind>() {
    let mut image = K::image(256 * MIB, "");
    let directory = image.root().join("d");
    let paths = scatter(&directory, FILES);
    image.restart();
    // One file comes into memory with all that is around it in the tables; of the others at most the facts.
    fs::read(&paths[0]).unwrap();
    let before = image.read();
    // Others have written a little, for which blocks may be moved, and no file read.
    let (mut follower, mut host) = (follower(Some(50)), K::host_of_cached(&directory));
    put_in_order(&mut follower, &mut host, &directory, 1000);
    let told = put_in_order(&mut follower, &mut host, &directory, 1024);
    assert_eq!((told.files, told.report.files, told.read), (FILES as usize, 0, 0));
    assert!(told.in_memory < FILES as usize / 2, "{told:?}");
    let sectors = image.read() - before;
    assert!(sectors < 8 * FILES / 2, "{sectors} sectors were read for {FILES} files");
}

#[test]
fn nothing_is_read_on_ext4() {
    if_memory_is_left(nothing_is_read::<OnExt4>);
}

#[test]
fn nothing_is_read_on_xfs() {
    if_memory_is_left(nothing_is_read::<OnXfs>);
}

fn what_is_not_in_memory_is_read<K: Kind>() {
    let mut image = K::image(256 * MIB, "");
    let directory = image.root().join("d");
    scatter(&directory, FILES);
    let (before, breaks_before) = (kept(&directory), breaks_of::<K>(&directory));
    image.restart();
    // Within a budget some of them, and without one all others.
    let (mut bounded, mut host) = (follower(Some(100)), K::host_of_cached(&directory));
    put_in_order(&mut bounded, &mut host, &directory, 0);
    let some = put_in_order(&mut bounded, &mut host, &directory, 25 * SOME);
    assert!(some.read > 0 && some.read <= SOME && some.report.files > 0, "{some:?}");
    sync(&directory);
    let all = put_in_order(&mut follower(None), &mut host, &directory, 0);
    assert!(all.read > 0 && all.report.files >= all.read, "{some:?}, {all:?}");
    sync(&directory);
    let now = breaks_of::<K>(&directory);
    assert!(now < breaks_before - 2 * (some.read + all.read), "{breaks_before} breaks before, {now} now");
    assert_same(&directory, &before);
    drop(host);
    // What lies in order isn't read again.
    image.restart();
    let again = put_in_order(&mut follower(None), &mut K::host_of_cached(&directory), &directory, 0);
    assert_eq!((again.read, again.report.files), (0, 0), "{again:?}");
}

#[test]
fn what_is_not_in_memory_is_read_on_ext4() {
    if_memory_is_left(what_is_not_in_memory_is_read::<OnExt4>);
}

#[test]
fn what_is_not_in_memory_is_read_on_xfs() {
    if_memory_is_left(what_is_not_in_memory_is_read::<OnXfs>);
}

/// What others have written is enough to read all files for it, and for a few blocks to be moved.
fn no_more_is_read_than_is_moved<K: Kind>() {
    let mut image = K::image(256 * MIB, "");
    let directory = image.root().join("d");
    scatter(&directory, FILES);
    image.restart();
    let (mut follower, mut host) = (follower(Some(1)), K::host_of_cached(&directory));
    put_in_order(&mut follower, &mut host, &directory, 0);
    let told = put_in_order(&mut follower, &mut host, &directory, 100 * 100);
    assert!(told.read > 0 && told.read <= told.report.files && told.again, "{told:?}");
    assert!((100..=100 + 64).contains(&told.report.blocks), "{told:?}");
    sync(&directory);
    let rest = put_in_order(&mut follower, &mut host, &directory, 10 * 100 * 100);
    assert!(rest.read > told.read && rest.read + told.read > FILES / 2, "the others' turn comes: {told:?}, {rest:?}");
}

#[test]
fn no_more_is_read_than_is_moved_on_ext4() {
    if_memory_is_left(no_more_is_read_than_is_moved::<OnExt4>);
}

#[test]
fn no_more_is_read_than_is_moved_on_xfs() {
    if_memory_is_left(no_more_is_read_than_is_moved::<OnXfs>);
}

#[test]
fn what_is_dirty_is_looked_at_again() {
    if_memory_is_left(|| {
        let image = OnExt4::image(256 * MIB, "");
        let directory = image.root().join("d");
        let paths = scatter(&directory, FILES);
        let mut host = OnExt4::host_of_cached(&directory);
        OpenOptions::new().append(true).open(&paths[7]).unwrap().write_all(b"more").unwrap();
        let before = kept(&directory);
        let mut follower = follower(None);
        let told = put_in_order(&mut follower, &mut host, &directory, 0);
        assert!(told.again && told.report.files > 0, "{told:?}");
        assert_eq!(follower.next(), Some(SETTLE * 2));
        sync(&directory);
        let rest = put_in_order(&mut follower, &mut host, &directory, 0);
        assert!(!rest.again && rest.report.stayed.is_empty(), "{rest:?}");
        assert_same(&directory, &before);
    });
}

/// What is left would be packed again in a moment, with all around it; but something may always be dirty.
#[test]
fn what_is_dirty_in_large_part_is_waited_for_but_not_for_ever() {
    if_memory_is_left(|| {
        let image = OnExt4::image(256 * MIB, "");
        let directory = image.root().join("d");
        let paths = scatter(&directory, FILES);
        let mut host = OnExt4::host_of_cached(&directory);
        let mut follower = follower(None);
        let mut looks = 0;
        let told = loop {
            kept(&directory);
            for path in &paths[..30] {
                OpenOptions::new().append(true).open(path).unwrap().write_all(b"more").unwrap();
            }
            let told = put_in_order(&mut follower, &mut host, &directory, 0);
            assert!(told.again, "{told:?}");
            if told.report.files > 0 {
                break told;
            }
            looks += 1;
            assert!(looks < 100, "it is waited for for ever");
        };
        assert!(looks >= 5, "nearly a third is dirty: {looks} looks, {told:?}");
    });
}

#[test]
fn files_above_a_size_are_passed_over() {
    if_memory_is_left(|| {
        let image = OnExt4::image(256 * MIB, "");
        let directory = image.root().join("d");
        scatter(&directory, FILES);
        let large: Vec<_> = (0..10).map(|number| directory.join(format!("large-{number}"))).collect();
        for path in &large {
            fs::write(path, vec![7; 13 * 4096]).unwrap();
        }
        sync(&directory);
        let (before, breaks_before) = (kept(&directory), breaks_of::<OnExt4>(&directory));
        let mut host = OnExt4::host_of_cached(&directory);
        let places = |host: &mut Ext4| large.iter().map(|path| host.look(path).unwrap().places).collect::<Vec<_>>();
        let places_before = places(&mut host);
        let told = put_in_order(&mut follower(None), &mut host, &directory, 0);
        assert!(told.report.files > FILES / 2, "{told:?}");
        assert_eq!(places(&mut host), places_before);
        assert!(breaks_of::<OnExt4>(&directory) * 3 < breaks_before);
        assert_same(&directory, &before);
    });
}

#[test]
fn no_more_is_moved_than_its_part() {
    if_memory_is_left(|| {
        let image = OnExt4::image(256 * MIB, "");
        let directory = image.root().join("d");
        scatter(&directory, FILES);
        // Others may have emptied the page cache of the whole machine meanwhile.
        kept(&directory);
        let mut host = OnExt4::host_of_cached(&directory);
        let mut follower = follower(Some(10));
        let told = put_in_order(&mut follower, &mut host, &directory, 5000);
        assert!(told.report.blocks == 0 && told.again, "nothing was written since it began: {told:?}");
        // Until more may be moved nobody is looked at in vain.
        follower.written("another", Duration::ZERO);
        assert!(follower.take(2 * SETTLE - Duration::from_secs(1)).is_none() && follower.next() == Some(2 * SETTLE));
        assert_eq!(follower.take(2 * SETTLE), Some("another"));
        let told = put_in_order(&mut follower, &mut host, &directory, 6000);
        assert!((1..=100 + 64).contains(&told.report.blocks) && told.again, "{told:?}");
    });
}

#[test]
fn directories_that_others_write_to_are_heard_of() {
    if !is_root() {
        return;
    }
    let image = Image::new(64 * MIB, &["-O", "^has_journal"], "");
    let directory = image.root().join("d");
    fs::create_dir(&directory).unwrap();
    let mut watch = Watch::start(&image.root()).unwrap();
    let heard = |watch: &mut Watch| {
        let mut all = Vec::new();
        watch.hear(|directory| all.push(directory)).unwrap();
        all
    };
    fs::write(directory.join("own"), "bytes").unwrap();
    assert_eq!(heard(&mut watch), [], "what this process does itself is no news");
    let script = "echo x > \"$0/one\"; echo x > \"$0/two\"";
    assert!(Command::new("sh").args(["-c", script]).arg(&directory).status().unwrap().success());
    let told = heard(&mut watch);
    let handle = handle_at(open_dir(directory.as_path()).unwrap().as_fd(), c"").unwrap();
    assert!(!told.is_empty() && told.iter().all(|one| *one == handle), "{told:?}");
    assert_eq!(watch.path_of(&handle).unwrap().as_deref(), Some(directory.as_path()));
    let moved = image.root().join("moved");
    fs::rename(&directory, &moved).unwrap();
    assert_eq!(watch.path_of(&handle).unwrap(), Some(moved.clone()));
    fs::remove_dir_all(&moved).unwrap();
    assert_eq!(watch.path_of(&handle).unwrap(), None);
}

/// A directory that goes while its turn comes ends nothing.
#[test]
fn a_directory_that_is_gone_is_an_error_of_its_own() {
    if !is_root() {
        return;
    }
    let image = OnExt4::image(64 * MIB, "");
    let directory = image.root().join("d");
    fs::create_dir(&directory).unwrap();
    let mut host = OnExt4::host_of_cached(&directory);
    fs::remove_dir(&directory).unwrap();
    let mut follower = follower(None);
    follower.written("d", Duration::ZERO);
    let moment = Moment { now: SETTLE, written: 0 };
    let directory = (follower.take(SETTLE).unwrap(), directory.as_path());
    let failure = follower.put_in_order(&mut host, directory, moment, &mut || true).unwrap_err();
    assert_eq!(failure.source.kind(), std::io::ErrorKind::NotFound);
}
