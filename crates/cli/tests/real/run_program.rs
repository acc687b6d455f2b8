//! Programs that know nothing of onesweep, with their files brought into memory ahead of them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use crate::{
    cache::pages,
    image::{Folder, Fs, Image},
    run::{finish, onesweep, output, root_test, text},
    tree::{self, Rng},
};

const DIRECTORIES: usize = 12;
const FILES_EACH: usize = 25;

/// Files that grew by turns, cold.
fn scattered(fs: Fs) -> (Image, PathBuf, Vec<PathBuf>) {
    let mut image = Image::new(fs, 400 << 20);
    let root = image.root().join("tree");
    let mut rng = Rng::new(5);
    let mut files = Vec::new();
    for number in 0..DIRECTORIES * FILES_EACH {
        let path = root.join(format!("d{:02}/f{:03}", rng.below(DIRECTORIES as u64), number));
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, rng.bytes(4096 + number * 100)).expect("a file");
        files.push(path);
    }
    tree::sync(&root);
    image.cold();
    (image, root, files)
}

/// Files, sweeps and waits, as `--verbose` tells them.
fn figures(said: &[u8]) -> (usize, usize, usize) {
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
        assert_eq!((brought, sweeps), (files.len(), 1), "{}: {}", fs.name(), text(&out.stderr));
        assert!(pages(&files).values().all(|pages| *pages > 0), "{}", fs.name());
        let out = finish(onesweep(["run", "-v", "tar", "-cf", "/dev/null"]).arg(&root), 0);
        assert!(text(&out.stderr).contains("everything is in memory"), "{}", text(&out.stderr));
    }
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
    for (script, sweeps_most) in [(by_name, 8), (by_readdir, 8), (from_the_end, files.len())] {
        let alone = output(Command::new("sh").args(["-c", script, "sh"]).arg(&root));
        image.cold();
        let mut helped = onesweep(["run", "-v", "--limit", &limit.to_string(), "--tree"]);
        let out = finish(helped.arg(&root).args(["--", "sh", "-c", script, "sh"]).arg(&root), 0);
        assert!(out.stdout == alone, "{script}");
        let (brought, sweeps, waits) = figures(&out.stderr);
        assert!(brought >= files.len(), "{script}: {}", text(&out.stderr));
        assert!((5..=sweeps_most).contains(&sweeps) && waits >= sweeps, "{script}: {}", text(&out.stderr));
        let cached: u64 = pages(&files).values().sum::<u64>() * 4096;
        assert!(cached <= limit + limit / 4, "{script}: {cached} bytes of {limit} are in memory");
    }
}

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
    let running = helped.spawn().expect("it runs");
    wait_for(&ready);
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
    wait_for(&ready);
    running.kill().expect("it is killed");
    running.wait().expect("it ends");
    fs::write(&go, "").expect("a file");
    wait_for(&done);
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

fn wait_for(path: &Path) {
    while !path.exists() {
        thread::sleep(Duration::from_millis(10));
    }
}
