//! The library that `onesweep run` loads into programs: whichever way a program opens a file, it waits for it, and reads what it reads alone.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{
    image::{Folder, Fs, Image},
    peer_mount::wait_until,
    quick_disks::FUTEX,
    run::{finish, hold, onesweep, output, root_test, text},
    run_program::{figures, fill, wait_for},
};

const SOURCE: &str = include_str!("preloaded.c");

fn compiled(folder: &Folder, compiler: &str) -> PathBuf {
    let (source, program) = (folder.join("preloaded.c"), folder.join(compiler));
    fs::write(&source, SOURCE).expect("a file");
    output(Command::new(compiler).args(["-Wall", "-O2", "-pthread", "-o"]).arg(&program).arg(source));
    program
}

/// Runs a program under the helper from a disk that is cold, and gives how often it waited. It writes what it writes alone.
fn waits(image: &mut Image, root: &Path, program: &Path, words: &[&str], files: &[PathBuf]) -> usize {
    let mut command = Command::new(program);
    let alone = output(command.args(words).args(files));
    assert!(!alone.is_empty());
    image.cold();
    let mut helped = onesweep(["run", "-v", "--tree"]);
    let out = finish(helped.arg(root).arg("--").arg(program).args(words).args(files), 0);
    assert!(out.stdout == alone, "{words:?}: other bytes: {}", text(&out.stderr));
    let said = text(&out.stderr);
    assert_eq!(said.lines().count(), 1, "{words:?}: {said}");
    figures(&out.stderr).2
}

#[test]
fn a_program_waits_for_its_file_whichever_way_it_opens_it() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 400 << 20);
    let (root, mut files) = fill(&image, 120);
    files.sort();
    let folder = Folder::new();
    let program = compiled(&folder, "cc");
    for way in [
        "open",
        "open-to-write",
        "openat",
        "open64",
        "openat64",
        "__open_2",
        "__open64_2",
        "__openat_2",
        "__openat64_2",
        "fopen",
        "fopen64",
        "fopen-to-write",
        "fork",
        "vfork",
        "posix_spawn",
    ] {
        assert!(waits(&mut image, &root, &program, &[way], &files[..1]) > 0, "{way}");
    }
    for way in ["open", "threads", "handler"] {
        assert!(waits(&mut image, &root, &program, &[way], &files) > 0, "{way}");
    }
}

/// A program with another C library, and what it starts.
#[test]
fn a_program_with_musl_is_helped() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 400 << 20);
    let (root, files) = fill(&image, 60);
    let folder = Folder::new();
    let program = compiled(&folder, "musl-gcc");
    for way in ["open", "open-to-write", "openat", "fopen", "fork", "posix_spawn", "threads", "handler"] {
        assert!(waits(&mut image, &root, &program, &[way], &files) > 0, "{way}");
    }
    // Directories are sorted for it, too: it has the same structures.
    let mut listed = onesweep(["run", "--sort", "name", "--tree"]);
    finish(listed.arg(&root).arg("--").arg(&program).arg("fork-beside-lists").arg(&root), 0);
}

/// With `--sort` the library has a lock, which a child must not find taken by a thread that it doesn't have.
#[test]
fn children_list_directories_that_are_sorted() {
    root_test!();
    let image = Image::new(Fs::Ext4, 100 << 20);
    let (root, _) = fill(&image, 40);
    let folder = Folder::new();
    let program = compiled(&folder, "cc");
    let mut listed = onesweep(["run", "--sort", "name", "--tree"]);
    finish(listed.arg(&root).arg("--").arg(&program).arg("fork-beside-lists").arg(&root), 0);
}

/// Ctrl-Z, `docker pause`: the program, which goes on first, must not take the helper for dead.
#[test]
fn who_was_stopped_for_long_is_helped_afterwards() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 400 << 20);
    let (root, mut files) = fill(&image, 60);
    files.sort();
    let alone: Vec<u8> = files.iter().flat_map(|file| fs::read(file).expect("a file")).collect();
    image.cold();
    let folder = Folder::new();
    let (ready, go) = (folder.join("ready"), folder.join("go"));
    let script = "echo $$ > \"$0.new\"; mv \"$0.new\" \"$0\"; while ! test -e \"$1\"; do sleep 0.05; done; shift; exec cat \"$@\"";
    let mut helped = onesweep(["run", "-v", "--tree"]);
    helped.arg(&root).args(["--", "sh", "-c", script]).arg(&ready).arg(&go).args(&files);
    let out = folder.join("out");
    let said = folder.join("said");
    helped.stdout(fs::File::create(&out).expect("a file")).stderr(fs::File::create(&said).expect("a file"));
    let mut running = helped.spawn().expect("it runs");
    wait_for(&ready, &mut running);
    let program: i32 = fs::read_to_string(&ready).expect("its number").trim().parse().expect("a number");
    let held = hold(&running);
    fs::write(&go, "").expect("a file");
    // It waits for its first file, and looks for beats.
    let told = |of: &str| fs::read_to_string(format!("/proc/{program}/{of}")).unwrap_or_default();
    let waits = || told("comm") == "cat\n" && told("syscall").split(' ').next() == Some(FUTEX);
    wait_until("it waits for nothing", waits);
    let program = Pid::from_raw(program).expect("a number");
    kill_process(program, Signal::STOP).expect("it is there");
    // Longer than the silence of five seconds by which a helper is taken for dead.
    thread::sleep(Duration::from_secs(7));
    kill_process(program, Signal::CONT).expect("it is there");
    // So that it looks again, thrice, before there is a beat.
    thread::sleep(Duration::from_millis(300));
    drop(held);
    assert!(running.wait().expect("it ends").success());
    assert!(fs::read(&out).expect("what it wrote") == alone);
    let said = fs::read(&said).expect("what was said");
    let (brought, _, waited) = figures(&said);
    assert!(brought > 0 && waited > 0, "{}", text(&said));
}
