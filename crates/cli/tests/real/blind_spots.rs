//! Changes of which the kernel tells little or nothing: each is seen all the same.

use std::{
    fs::{self, File, OpenOptions},
    io::Write,
    os::{
        fd::AsFd,
        unix::fs::{FileExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    process::Command,
};

use onesweep_summary::{summaries::Freshness, tracker::Tracker};
use onesweep_sys::{files, handle};

use crate::{
    image::{Fs, Image, unmount},
    run::{root_test, run},
    tracked::{Tracked, agrees, as_du, ask, du, make_dirty, node, tracked, write_mapped},
    tree::sync,
};

const SYSTEMS: [Fs; 3] = [Fs::Ext4, Fs::Xfs, Fs::Btrfs];

/// Three directories: `a` with a file `f`, `b` with one, `c` with nothing.
fn three(fs: Fs) -> (Image, Tracked, [PathBuf; 3]) {
    let image = Image::new(fs, 512 << 20);
    let [a, b, c] = ["a", "b", "c"].map(|name| image.root().join(name));
    for directory in [&a, &b, &c] {
        fs::create_dir(directory).expect("a directory");
    }
    fs::write(a.join("f"), vec![1; 10_000]).expect("a file");
    fs::write(b.join("g"), vec![1; 20_000]).expect("a file");
    sync(&image.root());
    let mut tracked = tracked(&image);
    agrees(&mut tracked, &image.root(), "the first harvest");
    (image, tracked, [a, b, c])
}

/// Bytes and inodes are those of GNU du, without anything being written for that.
fn equal(tracked: &mut Tracked, directory: &Path, when: &str) {
    let answer = ask(tracked, directory, Freshness::Exact);
    assert!(answer.is_exact, "{when}: nobody writes");
    assert_eq!(as_du(&answer)[1..], du(directory)[1..], "{} {when}", directory.display());
}

fn append(file: &File, bytes: usize) {
    let end = file.metadata().expect("its size").len();
    file.write_all_at(&vec![7; bytes], end).expect("a write");
}

fn open(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).expect("a file")
}

/// A directory that goes on being told of is ignored, for as long as the kernel keeps its inode.
#[test]
fn an_ignored_directory_that_the_kernel_has_forgotten_is_told_of_again() {
    root_test!();
    for fs in SYSTEMS {
        let (image, mut tracked, [a, ..]) = three(fs);
        make_dirty(&mut tracked, &a);
        fs::write(a.join("silent"), b"x").expect("a file");
        assert!(tracked.tracker().is_quiet(), "{}: it is ignored", fs.name());
        let mut tries = 0;
        while tracked.tracker().is_quiet() {
            assert!(tries < 50, "{}: it is silent", fs.name());
            tries += 1;
            // Whoever has something to write isn't forgotten.
            sync(&image.root());
            fs::write("/proc/sys/vm/drop_caches", "2").expect("root may");
            fs::write(a.join(format!("more-{tries}")), b"x").expect("a file");
        }
        equal(&mut tracked, &a, "after the mark was lost");
        fs::write(a.join("after"), b"x").expect("a file");
        equal(&mut tracked, &a, "after a further file");
    }
}

/// The first name is in a clean directory, the second in one that is ignored because it is dirty.
#[test]
fn a_write_through_a_name_in_an_ignored_directory() {
    root_test!();
    for fs in SYSTEMS {
        let (_image, mut tracked, [a, b, _]) = three(fs);
        make_dirty(&mut tracked, &b);
        fs::hard_link(a.join("f"), b.join("h")).expect("a link");
        equal(&mut tracked, &a, "after the link");
        let file = open(&b.join("h"));
        for step in 0..5 {
            append(&file, 5000);
            equal(&mut tracked, &a, &format!("after write {step}"));
            drop(open(&b.join("h")));
            equal(&mut tracked, &a, &format!("after close {step}"));
        }
        file.set_len(3).expect("a cut");
        equal(&mut tracked, &a, "after a cut");
        fs::remove_file(a.join("f")).expect("it goes");
        append(&file, 100);
        equal(&mut tracked, &a, "after it is gone there");
        fs::remove_file(b.join("h")).expect("it goes");
        equal(&mut tracked, &a, "after it is gone everywhere");
        equal(&mut tracked, &b, "at last");
    }
}

/// The second name is in a directory that nobody has harvested yet.
#[test]
fn a_write_through_a_name_in_a_directory_that_was_never_harvested() {
    root_test!();
    for fs in SYSTEMS {
        let (image, mut tracked, [a, b, _]) = three(fs);
        let fresh = image.root().join("fresh");
        fs::create_dir(&fresh).expect("a directory");
        tracked.drain().expect("it is told");
        fs::hard_link(a.join("f"), fresh.join("h")).expect("a link");
        equal(&mut tracked, &a, "after the link");
        let file = open(&fresh.join("h"));
        for step in 0..5 {
            append(&file, 5000);
            equal(&mut tracked, &a, &format!("after write {step}"));
        }
        fs::hard_link(fresh.join("h"), b.join("i")).expect("a link");
        for step in 0..3 {
            append(&file, 5000);
            equal(&mut tracked, &b, &format!("after further write {step}"));
            equal(&mut tracked, &a, &format!("after further write {step}"));
        }
        equal(&mut tracked, &image.root(), "at last");
    }
}

/// Only the directory itself tells of it, and the kernel counts that as something that happens in the one above, too.
#[test]
fn what_changes_of_a_directory_in_one_that_is_ignored() {
    root_test!();
    for fs in SYSTEMS {
        let (image, mut tracked, [a, ..]) = three(fs);
        let inner = a.join("inner");
        fs::create_dir(&inner).expect("a directory");
        equal(&mut tracked, &a, "after it was made");
        let its_mode = |tracked: &mut Tracked, asked: &Path| {
            equal(tracked, asked, "at any time");
            let slot = tracked.ledger().nodes.find(node(tracked, &inner)).expect("it is known");
            tracked.record(slot).expect("its record").access.mode & 0o777
        };
        for (mode, asked) in [(0o700, image.root()), (0o755, inner.clone()), (0o711, a.clone())] {
            make_dirty(&mut tracked, &a);
            fs::set_permissions(&inner, fs::Permissions::from_mode(mode)).expect("other rights");
            assert_eq!(its_mode(&mut tracked, &asked), mode, "{}", asked.display());
        }
    }
}

#[test]
fn a_file_without_a_name_that_gets_one() {
    root_test!();
    for fs in SYSTEMS {
        let (image, mut tracked, [a, b, _]) = three(fs);
        // One that such a file is told of goes on being heeded.
        for (home, is_ignored) in [(&a, true), (&image.root(), false), (&a, false)] {
            if is_ignored {
                make_dirty(&mut tracked, home);
            }
            let dir = files::open_dir(home.as_path()).expect("a directory");
            let file = File::from(files::open_unnamed(dir.as_fd()).expect("a file"));
            append(&file, 1000);
            equal(&mut tracked, &b, "before it has a name");
            let name = format!("named-{}-{is_ignored}", home.file_name().expect("a name").to_string_lossy());
            let into = files::open_dir(b.as_path()).expect("a directory");
            files::name_file(file.as_fd(), into.as_fd(), name.as_str()).expect("a name");
            for step in 0..5 {
                append(&file, 5000);
                equal(&mut tracked, &b, &format!("after write {step}, ignored: {is_ignored}"));
                equal(&mut tracked, home, &format!("after write {step}, ignored: {is_ignored}"));
            }
        }
    }
}

/// The kernel goes on telling of the name by which it was opened.
#[test]
fn a_file_that_is_open_under_a_name_that_it_has_lost() {
    root_test!();
    for fs in SYSTEMS {
        for is_asked_between in [false, true] {
            let (_image, mut tracked, [a, b, _]) = three(fs);
            let file = open(&a.join("f"));
            fs::hard_link(a.join("f"), b.join("h")).expect("a link");
            if is_asked_between {
                equal(&mut tracked, &b, "after the link");
            }
            fs::remove_file(a.join("f")).expect("it goes");
            for step in 0..5 {
                equal(&mut tracked, &b, &format!("before write {step}, {is_asked_between}"));
                append(&file, 5000);
                equal(&mut tracked, &b, &format!("after write {step}, {is_asked_between}"));
            }
            drop(file);
            equal(&mut tracked, &b, "after it was closed");
            equal(&mut tracked, &a, "at last");
        }
    }
}

/// The same, and it was so before anybody was told.
#[test]
fn a_file_that_had_lost_its_name_before_the_start() {
    root_test!();
    for fs in SYSTEMS {
        let (image, mut before, [a, b, _]) = three(fs);
        let file = open(&a.join("f"));
        fs::hard_link(a.join("f"), b.join("h")).expect("a link");
        fs::remove_file(a.join("f")).expect("it goes");
        equal(&mut before, &image.root(), "before the end");
        before.close().expect("an end");
        drop(before);
        let mut tracked = tracked(&image);
        equal(&mut tracked, &image.root(), "after the start");
        make_dirty(&mut tracked, &a);
        for step in 0..3 {
            append(&file, 5000);
            equal(&mut tracked, &b, &format!("after write {step}"));
        }
        drop(file);
        equal(&mut tracked, &b, "at last");
    }
}

/// The same, and it has two names elsewhere.
#[test]
fn a_linked_file_that_is_open_under_a_name_that_it_has_lost() {
    root_test!();
    for fs in SYSTEMS {
        let (_image, mut tracked, [a, b, c]) = three(fs);
        let file = open(&a.join("f"));
        for directory in [&b, &c] {
            fs::hard_link(a.join("f"), directory.join("h")).expect("a link");
        }
        fs::remove_file(a.join("f")).expect("it goes");
        for step in 0..5 {
            append(&file, 5000);
            equal(&mut tracked, &b, &format!("after write {step}"));
            equal(&mut tracked, &c, &format!("after write {step}"));
        }
        drop(file);
        equal(&mut tracked, &a, "at last");
    }
}

/// As an NFS server writes: the inode is opened by its handle, and no name of it is in memory.
#[test]
fn a_write_by_a_file_handle() {
    root_test!();
    for fs in SYSTEMS {
        let (mut image, mut before, [a, _, _]) = three(fs);
        let told = handle::handle_at(open(&a.join("f")).as_fd(), c"").expect("a handle");
        before.close().expect("an end");
        drop(before);
        image.cold();
        let mut tracked = tracked(&image);
        let top = files::open_dir(image.root().as_path()).expect("the top");
        let opened = handle::open_by_handle(top.as_fd(), &told, handle::Access::Facts).expect("an inode");
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&opened));
        let file = open(Path::new(&path));
        for step in 0..5 {
            append(&file, 5000);
            let answer = ask_by_number(&mut tracked, &top);
            assert!(answer >= 10_000 + 5000 * (step + 1), "{}: {answer} after write {step}", fs.name());
        }
        drop(file);
        equal(&mut tracked, &a, "at last");
    }
}

/// The bytes of all files, without a look at any name.
fn ask_by_number(tracked: &mut Tracked, top: &impl AsFd) -> i64 {
    let node = tracked.directories().node_of(top.as_fd()).expect("its number");
    let answer = tracked.query(node, Freshness::Exact).expect("an answer");
    // The other file has 20,000.
    answer.totals.sums.bytes - 20_000
}

#[test]
fn a_write_through_a_mapping() {
    root_test!();
    for fs in SYSTEMS {
        let (_image, mut tracked, [a, _, _]) = three(fs);
        for length in [1, 50_000, 4096, 200_000] {
            write_mapped(&a.join("f"), length).expect("it is mapped");
            agrees(&mut tracked, &a, &format!("{length} bytes were written through a mapping"));
        }
    }
}

/// XFS gives a growing file more blocks than it needs, and takes them back by and by.
#[test]
fn blocks_that_are_allocated_ahead() {
    root_test!();
    let (_image, mut tracked, [a, _, _]) = three(Fs::Xfs);
    let path = a.join("f");
    let mut seen = Vec::new();
    for round in 0..4 {
        let mut file = OpenOptions::new().append(true).open(&path).expect("a file");
        for _ in 0..40 {
            file.write_all(&[1; 30_000]).expect("a write");
        }
        seen.push(as_du(&ask(&mut tracked, &a, Freshness::Exact))[0]);
        agrees(&mut tracked, &a, &format!("it is open, in round {round}"));
        drop(file);
        agrees(&mut tracked, &a, &format!("it was closed, in round {round}"));
        // As the kernel does by itself after some minutes, without a word.
        run(Command::new("xfs_spaceman").args(["-c", "prealloc -s"]).arg(_image.root()));
        agrees(&mut tracked, &a, &format!("blocks were taken back, in round {round}"));
        seen.push(du(&a)[0]);
    }
    assert!(seen.windows(2).any(|pair| pair[1] < pair[0]), "blocks were never taken back: {seen:?}");
}

/// They are no part of what du counts.
#[test]
fn open_files_that_have_no_name_any_more() {
    root_test!();
    for fs in SYSTEMS {
        let (_image, mut tracked, [a, b, _]) = three(fs);
        let file = open(&a.join("f"));
        fs::remove_file(a.join("f")).expect("it goes");
        for step in 0..3 {
            append(&file, 50_000);
            equal(&mut tracked, &a, &format!("after write {step}"));
            equal(&mut tracked, &b, &format!("after write {step}"));
        }
        drop(file);
        agrees(&mut tracked, &a, "it was closed");
    }
}

/// What is mounted on a directory hides it, and what was there comes back.
#[test]
fn mounts_that_come_and_go() {
    root_test!();
    for fs in SYSTEMS {
        let (image, mut tracked, [a, b, c]) = three(fs);
        let (below, outside) = (a.join("x"), a.join("x/y"));
        fs::create_dir_all(&outside).expect("directories");
        fs::write(outside.join("f"), vec![1; 30_000]).expect("a file");
        let same = |tracked: &mut Tracked, directory: &Path, when: &str| {
            let answer = ask(tracked, directory, Freshness::Exact);
            let said = crate::run::text(&crate::run::output(Command::new("du").arg("-sbx").arg(directory)));
            let expected: i64 = said.split('\t').next().and_then(|bytes| bytes.parse().ok()).expect("bytes");
            let told = (as_du(&answer)[1], answer.is_exact, answer.unreadable);
            assert_eq!(told, (expected, true, 0), "{}: {when}", fs.name());
        };
        same(&mut tracked, &a, "before");
        run(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&below));
        fs::write(below.join("elsewhere"), vec![1; 70_000]).expect("a file");
        same(&mut tracked, &a, "something is mounted");
        same(&mut tracked, &image.root(), "something is mounted");
        fs::write(a.join("f"), vec![1; 15_000]).expect("a file");
        same(&mut tracked, &a, "and something else changed");
        unmount(&below);
        same(&mut tracked, &a, "it was unmounted");
        // The inodes of this one have no handles.
        run(Command::new("mount").args(["-t", "proc", "none"]).arg(&below));
        fs::write(a.join("f"), vec![1; 16_000]).expect("a file");
        same(&mut tracked, &a, "proc is mounted");
        unmount(&below);
        same(&mut tracked, &a, "it was unmounted, too");
        // Two, one on the other, which go in one step.
        for _ in 0..2 {
            run(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&c));
        }
        same(&mut tracked, &image.root(), "two are mounted");
        fs::write(b.join("g"), vec![1; 5]).expect("a file");
        run(Command::new("umount").arg("--recursive").arg(&c));
        same(&mut tracked, &image.root(), "at last");
        drop(tracked);
        // As /proc lies in the root of most machines, when all is read for the first time.
        run(Command::new("mount").args(["-t", "proc", "none"]).arg(&below));
        let mut anew = crate::tracked::tracked(&image);
        same(&mut anew, &image.root(), "from the start");
        unmount(&below);
        same(&mut anew, &image.root(), "and then no more");
    }
}

/// A backup of hard links makes questions dear for nobody but who asks for it, and is counted right.
#[test]
fn a_backup_of_hard_links_costs_others_nothing() {
    root_test!();
    for fs in SYSTEMS {
        let (image, mut tracked, [a, b, c]) = three(fs);
        for number in 0..500 {
            fs::write(a.join(format!("f{number}")), vec![1; 3000]).expect("a file");
        }
        sync(&image.root());
        agrees(&mut tracked, &image.root(), "the first harvest");
        ask(&mut tracked, &c, Freshness::Exact);
        let backup = image.root().join("backup");
        run(Command::new("cp").arg("-al").arg(&a).arg(&backup));
        // Nothing has to be looked at for it, whatever has settled meanwhile.
        let is_clean = |tracked: &Tracked, directory: &Path| {
            let nodes = &tracked.ledger().nodes;
            let slot = nodes.find(node(tracked, directory)).expect("it is known");
            !nodes.may_be_outdated(slot) && !nodes.may_have_open(slot)
        };
        // They are told, and not read yet.
        ask(&mut tracked, &c, Freshness::Exact);
        assert!(is_clean(&tracked, &c) && !is_clean(&tracked, &a), "{}", fs.name());
        for directory in [&backup, &a, &image.root()] {
            equal(&mut tracked, directory, "after cp -al");
        }
        assert!(is_clean(&tracked, &a) && is_clean(&tracked, &image.root()), "{}: all names are known", fs.name());
        // What is written through a name in a directory that is dirty shows nowhere.
        make_dirty(&mut tracked, &backup);
        ask(&mut tracked, &b, Freshness::Exact);
        assert!(is_clean(&tracked, &b) && !is_clean(&tracked, &a), "{}", fs.name());
        append(&open(&backup.join("f7")), 9000);
        equal(&mut tracked, &a, "after a write by the other name");
        // The marks go along with a directory.
        fs::rename(&a, c.join("moved")).expect("it moves");
        append(&open(&backup.join("f8")), 9000);
        equal(&mut tracked, &c, "after a move and a write");
        equal(&mut tracked, &image.root(), "all of it");
        assert!(is_clean(&tracked, &c), "{}", fs.name());
    }
}
