//! Programs that know nothing of onesweep, with their files brought into memory ahead of them.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use crate::{
    cache::pages,
    image::{Folder, Fs, Image},
    run::{finish, onesweep, output, root_test, text},
    tree::{self, Rng},
    view::until,
};

const DIRECTORIES: usize = 12;
const FILES: usize = 300;
/// Files that a program reads by itself before it is known how it goes on.
pub(crate) const FIRST: usize = 7;

/// Whether these were brought in, as one sweep over all that was planned before does for those, too.
pub(crate) fn are_all_but_first(brought: usize, files: usize) -> bool {
    (files - FIRST..=files).contains(&brought)
}

/// Files of directories by turns: the tree, and they.
pub(crate) fn fill(image: &Image, count: usize) -> (PathBuf, Vec<PathBuf>) {
    let root = image.root().join("tree");
    let mut rng = Rng::new(5);
    let mut files = Vec::new();
    for number in 0..count {
        let path = root.join(format!("d{:02}/f{:03}", rng.below(DIRECTORIES as u64), number));
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, rng.bytes(4096 + number * 100 % (FILES * 100))).expect("a file");
        files.push(path);
    }
    tree::sync(&root);
    (root, files)
}

/// The same, cold.
fn scattered(fs: Fs) -> (Image, PathBuf, Vec<PathBuf>) {
    let mut image = Image::new(fs, 400 << 20);
    let (root, files) = fill(&image, FILES);
    image.cold();
    (image, root, files)
}

/// Files, sweeps and waits, as `--verbose` tells them.
pub(crate) fn figures(said: &[u8]) -> (usize, usize, usize) {
    let said = text(said);
    let line = said.lines().find(|line| line.contains("brought in by")).unwrap_or_else(|| panic!("{said}"));
    let number = |before: &str| -> usize {
        let at = line.find(before).unwrap_or_else(|| panic!("{line}")) + before.len();
        line[at..].split_whitespace().next().expect("a number").parse().unwrap_or_else(|_| panic!("{line}"))
    };
    (number("onesweep: "), number("brought in by "), number("waited "))
}

#[test]
fn unchanged_programs_find_their_files_in_memory() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let (mut image, root, files) = scattered(fs);
        let alone = output(Command::new("tar").args(["--format=gnu", "-cf", "-", "-C"]).arg(&root).arg("."));
        image.cold();
        let mut helped = onesweep(["run", "-v", "tar", "--format=gnu", "-cf", "-", "-C"]);
        let out = finish(helped.arg(&root).arg("."), 0);
        assert!(out.stdout == alone, "{}: the archive is another one", fs.name());
        let (brought, sweeps, _) = figures(&out.stderr);
        assert!(sweeps == 1 && are_all_but_first(brought, files.len()), "{}: {}", fs.name(), text(&out.stderr));
        assert!(pages(&files).values().all(|pages| *pages > 0), "{}", fs.name());
        // A program that ends first leaves the trees alone, and what is in memory may go where memory is short.
        let again = |seconds: u32| {
            files.iter().for_each(|file| drop(fs::read(file).expect("a file")));
            let mut helped = onesweep(["run", "-v", "--tree"]);
            helped.arg(&root).args(["--", "sh", "-c", "sleep $0; tar -cf /dev/null $1", &seconds.to_string()]);
            text(&finish(helped.arg(&root), 0).stderr)
        };
        let said = (0..10).map(again).find(|said| said.contains("everything is in memory"));
        assert!(said.is_some(), "{}", again(20));
    }
}

/// Content comes when the first file is wanted. An empty one needs none.
#[test]
fn who_reads_no_content_gets_none() {
    root_test!();
    let (mut image, root, files) = scattered(Fs::Ext4);
    fs::write(root.join("empty"), "").expect("a file");
    let helped = |image: &mut Image, limit: &[&str], script: &str| {
        image.cold();
        let mut command = onesweep(["run", "-v"]);
        command.args(limit).arg("--tree").arg(&root).args(["--", "sh", "-c", script, "sh"]).arg(&root);
        figures(&finish(&mut command, 0).stderr)
    };
    for limit in [&[][..], &["--limit", "1M"]] {
        for script in ["du -s \"$1\"", "find \"$1\" -size +1", "ls -lR \"$1\"", "cat \"$1\"/empty"] {
            assert_eq!(helped(&mut image, limit, script), (0, 0, 0), "{script}");
        }
    }
    // What is brought in ends with the program.
    assert!(are_all_but_first(helped(&mut image, &[], "cat \"$1\"/d00/*; sleep 1").0, files.len()));
    assert_eq!(helped(&mut image, &[], "rm -r \"$1\"/d*"), (0, 0, 0));
}

/// Each sweep brings in what fits, along the walk that the program makes; what it brought in before goes.
#[test]
fn a_limit_is_kept_whatever_the_walk() {
    root_test!();
    let (mut image, root, files) = scattered(Fs::Ext4);
    let bytes: u64 = files.iter().map(|file| fs::metadata(file).expect("a file").len().next_multiple_of(4096)).sum();
    let limit = bytes / 5;
    let by_name = "cat \"$1\"/*/*";
    let by_readdir = "find \"$1\" -type f -exec cat {} +";
    let from_the_end = "find \"$1\" -type f | sort -r | xargs cat";
    for (script, sweeps_most) in [(by_name, 8), (by_readdir, 8), (from_the_end, 8)] {
        let alone = output(Command::new("sh").args(["-c", script, "sh"]).arg(&root));
        image.cold();
        let mut helped = onesweep(["run", "-v", "--limit", &limit.to_string(), "--tree"]);
        let out = finish(helped.arg(&root).args(["--", "sh", "-c", script, "sh"]).arg(&root), 0);
        assert!(out.stdout == alone, "{script}");
        let (brought, sweeps, waits) = figures(&out.stderr);
        assert!(brought >= files.len() - FIRST, "{script}: {}", text(&out.stderr));
        assert!((5..=sweeps_most).contains(&sweeps) && waits >= sweeps, "{script}: {}", text(&out.stderr));
        let cached: u64 = pages(&files).values().sum::<u64>() * 4096;
        assert!(cached <= limit + limit / 4, "{script}: {cached} bytes of {limit} are in memory");
    }
}

/// Who looks at all and reads what has changed is no slower for it: each sweep would read what nobody wants.
#[test]
fn a_second_back_up_reads_by_itself_what_has_changed() {
    root_test!();
    let (mut image, root, files) = scattered(Fs::Ext4);
    let folder = Folder::new();
    let copy = folder.join("copy");
    let back_up = |words: &[&str]| {
        let mut command = onesweep(words);
        command.args(["rsync", "-a", "--no-whole-file"]).arg(root.join("")).arg(&copy);
        text(&finish(&mut command, 0).stderr)
    };
    back_up(&["run", "--"]);
    for limit in [&[][..], &["--limit", "1M"]] {
        let mut names = files.clone();
        names.sort();
        // Later than those of the copy, by whole seconds.
        thread::sleep(Duration::from_millis(1100));
        let changed: Vec<&PathBuf> = names.iter().skip(3).step_by(25).collect();
        changed.iter().for_each(|file| fs::write(file, format!("{limit:?}")).expect("a file"));
        image.cold();
        let said = back_up(&[&["run", "-v"][..], limit, &["--"]].concat());
        assert_eq!(figures(said.as_bytes()).0, 0, "{said}");
        assert!(changed.len() > FIRST && said.contains("left to it"), "{said}");
        let same =
            |file: &PathBuf| fs::read(file).ok() == fs::read(copy.join(file.strip_prefix(&root).expect("in it"))).ok();
        assert!(files.iter().all(same), "the copy is another one");
    }
}

/// Also where there is room for all others.
#[test]
fn what_is_larger_than_the_limit_is_left_alone() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 400 << 20);
    let (root, files) = fill(&image, FILES);
    let large = root.join("large");
    fs::write(&large, Rng::new(3).bytes(30 << 20)).expect("a file");
    tree::sync(&root);
    image.cold();
    let mut helped = onesweep(["run", "-v", "--limit", "20M", "--tree"]);
    let out = finish(helped.arg(&root).args(["--", "sh", "-c", "cat \"$1\"/d*/*", "sh"]).arg(&root), 0);
    let (brought, sweeps, _) = figures(&out.stderr);
    assert!(sweeps == 1 && are_all_but_first(brought, files.len()), "{}", text(&out.stderr));
    assert_eq!(pages(&[large]).values().sum::<u64>(), 0, "{}", text(&out.stderr));
}

/// Where there is room for all, all comes once to read on alone has cost as much.
#[test]
fn who_reads_in_no_known_order_gets_all_where_there_is_room() {
    root_test!();
    let (mut image, root, files) = scattered(Fs::Ext4);
    let folder = Folder::new();
    let (list, mut names, mut rng) = (folder.join("list"), files.clone(), Rng::new(9));
    (1..names.len()).rev().for_each(|at| names.swap(at, rng.below(at as u64 + 1) as usize));
    let lines: Vec<String> = names.iter().map(|file| format!("{}\n", file.display())).collect();
    fs::write(&list, lines.concat()).expect("a list");
    let script = "xargs cat < \"$1\"";
    let alone = output(Command::new("sh").args(["-c", script, "sh"]).arg(&list));
    image.cold();
    let mut helped = onesweep(["run", "-v", "--tree"]);
    let out = finish(helped.arg(&root).args(["--", "sh", "-c", script, "sh"]).arg(&list), 0);
    assert!(out.stdout == alone, "what was read is another");
    let (brought, sweeps, waits) = figures(&out.stderr);
    assert!(sweeps == 1 && brought >= files.len() * 3 / 4 && waits > 2 * FIRST, "{}", text(&out.stderr));
}

/// What readdir(3) gives is sorted, once for each entry; the end, places and beginning again are as ever.
#[test]
fn directories_are_listed_as_they_are_asked_to_be() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 100 << 20);
    let root = image.root().join("tree");
    fs::create_dir_all(root.join("folder")).expect("a folder");
    let mut rng = Rng::new(7);
    for number in 0..300 {
        fs::write(root.join(format!("f{}-{number}", rng.below(1000))), rng.bytes(5000)).expect("a file");
    }
    tree::sync(&root);
    image.cold();
    let folder = Folder::new();
    let lister = folder.join("lister");
    fs::write(folder.join("lister.c"), LISTER).expect("a file");
    output(Command::new("cc").args(["-Wall", "-o"]).arg(&lister).arg(folder.join("lister.c")));
    let list = |sort: &[&str]| -> Vec<String> {
        let mut command = onesweep(["run"]);
        command.args(sort).arg("--tree").arg(&root).arg("--").arg(&lister).arg(&root);
        text(&finish(&mut command, 0).stdout).lines().map(ToOwned::to_owned).collect()
    };
    let listed = list(&[]);
    assert_eq!(listed.len(), 303);
    let sorted_by = |key: &dyn Fn(&str) -> u64| {
        let mut names = listed.clone();
        names.sort();
        names.sort_by_key(|name| {
            if name == "." {
                (0, 0)
            } else if name == ".." {
                (1, 0)
            } else {
                (2, key(name))
            }
        });
        names
    };
    let inode = |name: &str| fs::metadata(root.join(name)).expect("an entry").ino();
    assert_ne!(listed, sorted_by(&|_| 0));
    assert_eq!(list(&["--sort", "name"]), sorted_by(&|_| 0));
    assert_eq!(list(&["--sort", "inode"]), sorted_by(&inode));
    // Places are told by filefrag; a folder has none, and comes before the files.
    let place = |name: &str| -> u64 {
        if root.join(name).is_dir() {
            return 0;
        }
        let told = text(&output(Command::new("filefrag").args(["-b4096", "-v"]).arg(root.join(name))));
        let first = told.lines().find(|line| line.trim_start().starts_with("0:")).expect("an extent");
        let (_, from) = first.split_once(':').and_then(|(_, rest)| rest.split_once(':')).expect("a place");
        from.split("..").next().expect("a block").trim().parse().expect("a number")
    };
    assert_eq!(list(&["--sort", "device"]), sorted_by(&place));
    // What isn't the helper's is as it was.
    let elsewhere = Folder::new();
    for name in ["c", "a", "b"] {
        fs::write(elsewhere.join(name), "").expect("a file");
    }
    let mut command = onesweep(["run", "--sort", "name", "--tree"]);
    command.arg(&root).arg("--").arg(&lister).arg(elsewhere.join("."));
    let alone = output(Command::new(&lister).arg(elsewhere.join(".")));
    assert_eq!(text(&finish(&mut command, 0).stdout), text(&alone));
    // Programs that walk go along, and their files come as they go.
    image.cold();
    let mut command = onesweep(["run", "-v", "--limit", "300K", "--sort", "name"]);
    let out = finish(command.args(["--", "tar", "-cf", "-", "-C"]).arg(&root).arg("."), 0);
    let mut by_tar = Command::new("tar");
    by_tar.args(["--sort=name", "-cf", "-", "-C"]).arg(&root).arg(".");
    assert!(out.stdout == output(&mut by_tar), "the archive is another one");
    assert!((8..=12).contains(&figures(&out.stderr).1), "{}", text(&out.stderr));
}

/// Prints what a directory has; first it goes through it in all the ways that readdir(3) knows, which have to agree.
const LISTER: &str = r#"
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define MOST 1000
static char names[MOST][256];
static long places[MOST];
#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s\n", __LINE__, #what); exit(1); } } while (0)
int main(int count, char **words)
{
    CHECK(count == 2);
    DIR *dir = opendir(words[1]), *other = opendir(words[1]);
    CHECK(dir && other);
    int entries = 0;
    struct dirent *entry;
    for (errno = 0; places[entries] = telldir(dir), (entry = readdir(dir)); entries++)
        strcpy(names[entries], entry->d_name);
    CHECK(errno == 0 && readdir(dir) == NULL && errno == 0);
    for (int at = entries - 1; at >= 0; at -= 7) {
        seekdir(dir, places[at]);
        entry = readdir(dir);
        CHECK(entry && strcmp(entry->d_name, names[at]) == 0);
    }
    rewinddir(dir);
    for (int at = 0; at < entries; at++) {
        struct dirent64 *again = readdir64(dir);
        CHECK(again && strcmp(again->d_name, names[at]) == 0);
        entry = readdir(other);
        CHECK(entry && strcmp(entry->d_name, names[at]) == 0 && entry->d_ino == again->d_ino);
        puts(names[at]);
    }
    CHECK(closedir(dir) == 0 && closedir(other) == 0);
    CHECK((dir = opendir(words[1])) && readdir(dir) && closedir(dir) == 0);
    return 0;
}
"#;

#[test]
fn the_end_of_the_program_is_the_end() {
    let folder = Folder::new();
    let tree = folder.join("tree");
    fs::create_dir(&tree).expect("a folder");
    fs::write(tree.join("a"), "a").expect("a file");
    let run = |words: &[&str], code| {
        let mut command = onesweep(["run", "--tree"]);
        text(&finish(command.arg(&tree).arg("--").args(words), code).stderr)
    };
    assert_eq!(run(&["sh", "-c", "exit 3"], 3), "");
    assert!(run(&["no-such-program"], 127).contains("no-such-program: cannot run it"));
    assert!(run(&[tree.join("a").to_str().expect("text")], 126).contains("cannot run it"));
    assert_eq!(run(&["sh", "-c", "kill -9 $$"], 137), "");
    let out = finish(onesweep(["run", "cat"]).arg(tree.join("a")), 2);
    assert!(text(&out.stderr).contains("--tree DIR"), "{}", text(&out.stderr));
    let out = finish(onesweep(["run", "--tree"]).arg(tree.join("none")).args(["--", "true"]), 2);
    assert!(text(&out.stderr).contains("none: "), "{}", text(&out.stderr));
    // What is sent to the helper alone comes to the program.
    let ready = folder.join("ready");
    let script = "trap 'echo ended; exit 5' TERM; touch \"$0\"; while :; do sleep 0.05; done";
    let mut helped = onesweep(["run", "--tree"]);
    helped.arg(&tree).args(["--", "sh", "-c", script]).arg(&ready).stdout(Stdio::piped());
    let mut running = helped.spawn().expect("it runs");
    wait_for(&ready, &mut running);
    output(Command::new("kill").arg(running.id().to_string()));
    let out = running.wait_with_output().expect("it ends");
    assert_eq!((out.status.code(), text(&out.stdout).as_str()), (Some(5), "ended\n"));
}

/// Without the helper a program reads by itself, also one that was waiting for it.
#[test]
fn programs_go_on_when_the_helper_is_killed() {
    root_test!();
    let (mut image, root, _) = scattered(Fs::Ext4);
    let folder = Folder::new();
    let alone = output(Command::new("sh").args(["-c", "cat \"$1\"/*/*", "sh"]).arg(&root));
    image.cold();
    let (ready, go, read, done) = (folder.join("ready"), folder.join("go"), folder.join("read"), folder.join("done"));
    let script = "touch \"$2\"; while ! test -e \"$3\"; do sleep 0.05; done; cat \"$1\"/*/* > \"$4\"; touch \"$5\"";
    let mut helped = onesweep(["run", "--limit", "1M", "--tree"]);
    helped.arg(&root).args(["--", "sh", "-c", script, "sh"]).args([&root, &ready, &go, &read, &done]);
    let mut running = helped.spawn().expect("it runs");
    wait_for(&ready, &mut running);
    running.kill().expect("it is killed");
    running.wait().expect("it ends");
    fs::write(&go, "").expect("a file");
    until("the program doesn't go on", || done.exists());
    assert!(fs::read(&read).expect("what was read") == alone);
}

/// Files may be written, made anew and removed by the program meanwhile.
#[test]
fn programs_may_change_what_they_read() {
    root_test!();
    let (_image, root, files) = scattered(Fs::Ext4);
    let script = "find \"$1\" -type f | while read -r file; do \
        case $file in *7) rm \"$file\";; *) echo more >> \"$file\"; cp \"$file\" \"$file.new\"; mv \"$file.new\" \"$file\";; esac; done";
    let mut helped = onesweep(["run", "--limit", "2M", "--tree"]);
    finish(helped.arg(&root).args(["--", "sh", "-c", script, "sh"]).arg(&root), 0);
    for (number, file) in files.iter().enumerate() {
        let ends_in_seven = file.to_str().expect("text").ends_with('7');
        let content = fs::read(file);
        assert_eq!(content.is_err(), ends_in_seven, "{}", file.display());
        let whole = |content: Vec<u8>| content.len() == 4096 + number * 100 + 5 && content.ends_with(b"more\n");
        assert!(content.map_or(ends_in_seven, whole), "{}", file.display());
    }
}

/// Waits for a file that comes from a process or what it has started, as long as that runs.
pub(crate) fn wait_for(path: &Path, running: &mut Child) {
    wait_while(path, || running.try_wait().expect("its state").is_none());
}

/// The same, of whatever goes on.
pub(crate) fn wait_while(path: &Path, mut goes_on: impl FnMut() -> bool) {
    loop {
        // Asked first: it may have ended just behind that.
        let may_come = goes_on();
        if path.exists() {
            return;
        }
        assert!(may_come, "{}: nobody is left who would make it", path.display());
        thread::sleep(Duration::from_millis(10));
    }
}
