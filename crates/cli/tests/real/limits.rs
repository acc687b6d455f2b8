//! A sweep that is held back: few open files, threads and bytes in a file, little bandwidth, the idle class.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::{
    equality::differences,
    image::{Folder, Fs, Image},
    run::{figure, finish, members, onesweep, program, root_test, seed, summary, text},
    trace,
    tree::{self, Rng, Varied, sum_lines, sums},
};

fn sum_is_right(mut command: Command, root: &Path) -> serde_json::Value {
    let there = sums(&[root]);
    let out = finish(&mut command, 0);
    let delivered = sum_lines(&out.stdout).into_iter().collect();
    assert_eq!(differences(&there, &delivered), None, "{command:?}");
    summary(&out.stderr)
}

const SUM: [&str; 4] = ["sum", "--json", "--algorithm", "sha256"];

/// With 32 file descriptors, a few of which the program needs for itself.
#[test]
fn few_open_files_are_enough() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let mut image = Image::new(fs, 640 << 20);
        let root = image.root().join("tree");
        tree::varied(&root, fs, &Varied { files: 400, sparse: 4 << 20 }, seed());
        let there = sums(&[&root]);
        let mut ways = vec![&[][..], &["--order", "directory"], &["--large", "16K"], &["--queue-depth", "256"]];
        if fs.has_device_mode() {
            ways.push(&["--device"]);
        }
        for options in ways {
            for hidden in ["", "io_uring"] {
                image.cold();
                let mut sum = Command::new("prlimit");
                sum.arg("--nofile=32:32").arg(program()).args(SUM).args(options).arg(&root);
                let out = finish(sum.env("ONESWEEP_HIDE", hidden), 0);
                let delivered = sum_lines(&out.stdout).into_iter().collect();
                assert_eq!(differences(&there, &delivered), None, "{} {options:?} {hidden}", fs.name());
            }
        }
    }
}

/// More roots than descriptors, of which the metadata is read ahead, and large files that are streamed from them.
#[test]
fn few_open_files_are_enough_for_many_roots() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 640 << 20);
    let mut rng = Rng::new(seed());
    let roots: Vec<_> = (0..300).map(|number| image.root().join(format!("{number}"))).collect();
    for root in &roots {
        fs::create_dir_all(root.join("below")).expect("folders");
        fs::write(root.join("small"), rng.bytes(100)).expect("a file");
        fs::write(root.join("below/large"), rng.bytes(40_000)).expect("a file");
    }
    tree::sync(&image.root());
    let there = sums(&roots.iter().map(PathBuf::as_path).collect::<Vec<_>>());
    for options in [&[][..], &["--large", "16K"], &["--device"]] {
        image.cold();
        let mut sum = Command::new("prlimit");
        let out = finish(sum.arg("--nofile=64:64").arg(program()).args(SUM).args(options).args(&roots), 0);
        assert_eq!(differences(&there, &sum_lines(&out.stdout).into_iter().collect()), None, "{options:?}");
    }
}

/// As a user who may have so many processes, threads counted, and has no other.
fn with_processes(most: u32, tool: &Path, arguments: &[&str]) -> Command {
    // Root itself isn't limited. Nobody else's number, also where tests run side by side.
    let user = 100_000 + std::process::id();
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={user}"), &format!("--regid={user}"), "--clear-groups"]);
    command.args(["prlimit", &format!("--nproc={most}")]).arg(tool).args(arguments).env_remove("ONESWEEP_HIDE");
    command
}

/// With the thread that hears signals and the one that reads all is delivered; with fewer nothing is, and that is told.
#[test]
fn few_threads_are_enough() {
    root_test!();
    let image = Image::new(Fs::Ext4, 128 << 20);
    let (root, tool, open) = (image.root().join("tree"), image.beside("onesweep"), image.root().join("open"));
    let mut rng = Rng::new(seed());
    for number in 0..30 {
        let folder = root.join(format!("{number}"));
        fs::create_dir_all(&folder).expect("folders");
        fs::write(folder.join("file.txt"), rng.bytes(1000 * number)).expect("a file");
    }
    fs::create_dir(&open).expect("a folder");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("its mode");
    crate::run::copy_program(&crate::run::program(), &tool);
    tree::sync(&image.root());
    let there = sums(&[&root]);
    let names =
        ["x.tar", "copy", "shards", "keys", "keys/domain.key", "disk", "disk.index"].map(|name| open.join(name));
    let [archive, copy, shards, keys, key, disk, index] = names.each_ref().map(|path| path.to_str().expect("text"));
    let tree = root.to_str().expect("text");
    finish(&mut with_processes(100, &tool, &["peer", "keys", keys]), 0);
    fs::write(disk, rng.bytes(3 << 20)).expect("a file");
    fs::set_permissions(disk, fs::Permissions::from_mode(0o666)).expect("its mode");
    let count = |out: &Output| text(&out.stdout).lines().count();
    for most in 1..=6 {
        let run = |arguments: &[&str]| {
            let mut command = with_processes(most, &tool, arguments);
            let out = command.output().expect("it runs");
            let said = text(&out.stderr);
            assert!(!said.contains("panicked"), "{command:?}: {said}");
            if out.status.code() == Some(0) {
                return Some(out);
            }
            let is_told = said.starts_with("onesweep: cannot start a thread: ") && said.lines().count() == 1;
            assert!(out.status.code() == Some(2) && is_told && said.contains("ulimit -u"), "{command:?}: {said}");
            assert!(out.stdout.is_empty() && most < 3, "{command:?}");
            None
        };
        if let Some(out) = run(&["sum", "--algorithm", "sha256", "--json", tree]) {
            assert_eq!(differences(&there, &sum_lines(&out.stdout).into_iter().collect()), None, "{most}");
        }
        if let Some(out) = run(&["list", tree]) {
            assert_eq!(count(&out), 30, "{most}");
        }
        if let Some(out) = run(&["warm", "--json", tree]) {
            assert_eq!(figure(&summary(&out.stdout), "files"), 30, "{most}");
        }
        run(&["plan", tree]);
        // What is there is not replaced by less.
        fs::write(archive, "a good one").expect("a file");
        fs::set_permissions(archive, fs::Permissions::from_mode(0o666)).expect("its mode");
        match run(&["tar", "-cf", archive, "-C", tree, "."]) {
            Some(_) => assert_eq!(members(Path::new(archive)).len(), 61, "{most}"),
            None => assert_eq!(fs::read_to_string(archive).expect("it is there"), "a good one"),
        }
        for (command, to) in [("copy", copy), ("shard", shards)] {
            let is_done = run(&[command, tree, to]).is_some();
            assert!(is_done || fs::read_dir(to).map_or(0, Iterator::count) == 0, "{command} {most}");
            if is_done && command == "copy" {
                assert_eq!(sums(&[&Path::new(to).join("")]).len(), there.len(), "{most}");
            }
            let _ = fs::remove_dir_all(to);
        }
        // Walks and hashes by itself.
        assert_eq!(count(&run(&["du", tree]).expect("it needs no thread")), 31, "{most}");
        let is_done = run(&["peer", "index", "--key", key, "--index", index, disk]).is_some();
        assert!(is_done == Path::new(index).exists() && is_done == (most > 1), "{most}");
        if is_done {
            run(&["peer", "index", "--check", "--key", key, "--index", index, disk]).expect("it is as it was");
            fs::remove_file(index).expect("it is there");
        }
        fs::remove_file(archive).expect("it is there");
    }
}

/// What would be larger than a file may be is told by its name, and nothing half is left.
#[test]
fn a_limit_on_the_size_of_files_is_an_error() {
    root_test!();
    let image = Image::new(Fs::Ext4, 128 << 20);
    let (root, results) = (image.root().join("tree"), image.root().join("results"));
    fs::create_dir_all(&root).expect("a folder");
    fs::create_dir_all(&results).expect("a folder");
    fs::write(root.join("large"), vec![1; 100_000]).expect("a file");
    fs::write(root.join("small"), "x").expect("a file");
    fs::set_permissions(&root, fs::Permissions::from_mode(0o755)).expect("its mode");
    let limited = |arguments: &[&Path], code: i32| {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 10; exec \"$0\" \"$@\""]).arg(program()).args(arguments);
        finish(&mut command, code)
    };
    let left = || fs::read_dir(&results).expect("a folder").map(|entry| entry.expect("one").path()).collect::<Vec<_>>();
    let (archive, copy) = (results.join("x.tar"), results.join("copy"));
    let told = limited(&["tar".as_ref(), "-cf".as_ref(), &archive, &root], 2);
    let said = text(&told.stderr);
    assert!(said.contains("x.tar: cannot write") && said.contains("File too large; raise the limit"), "{said}");
    assert_eq!(left(), Vec::<PathBuf>::new());
    let told = limited(&["copy".as_ref(), &root, &copy], 1);
    let said = text(&told.stderr);
    assert!(said.contains("copy/large: cannot ") && said.contains("File too large; raise the limit"), "{said}");
    assert_eq!(fs::metadata(&copy).expect("the copy").permissions().mode() & 0o7777, 0o755);
    assert_eq!(fs::read_to_string(copy.join("small")).expect("it was copied"), "x");
    assert_eq!(fs::read_dir(&copy).expect("a folder").count(), 1, "half a file was left");
}

/// Programs that are started end by the signal, as they would by themselves.
#[test]
fn what_is_started_has_signals_as_they_were() {
    let folder = Folder::new();
    let tree = folder.join("tree");
    fs::create_dir_all(&tree).expect("a folder");
    fs::write(tree.join("f"), "x").expect("a file");
    // Bit 24 of what is blocked, ignored and caught: SIGXFSZ is signal 25.
    let script = "while read -r name mask; do case $name in Sig[BIC]*) echo $((0x$mask >> 24 & 1));; esac; done </proc/self/status";
    let run = finish(onesweep(["run", "--tree"]).arg(&tree).args(["--", "bash", "-c", script]), 0);
    assert_eq!(text(&run.stdout), "0\n0\n0\n");
    let engine = format!("{script} | grep -q 1; test $? = 1 || exit 2");
    let wrapped = format!("bash -c '{engine}'");
    finish(onesweep(["scan", "--command", &wrapped]).arg(&tree), 0);
}

/// Three mebibytes at two in a second take a second at least, however they are read.
#[test]
fn bandwidth_is_limited() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 128 << 20);
    let root = image.root().join("tree");
    fs::create_dir(&root).expect("a folder");
    let mut rng = Rng::new(seed());
    for number in 0..24 {
        fs::write(root.join(format!("{number}")), rng.bytes(128 << 10)).expect("a file");
    }
    tree::sync(&root);
    for options in [&[][..], &["--device"], &["--large", "64K"], &["--order", "directory"]] {
        for hidden in ["", "io_uring"] {
            image.cold();
            let there = sums(&[&root]);
            image.cold();
            let mut sum = onesweep(SUM);
            sum.args(["--bwlimit", "2M", "--max-request", "128K"]).args(options).arg(&root);
            let out = finish(sum.env("ONESWEEP_HIDE", hidden), 0);
            assert_eq!(differences(&there, &sum_lines(&out.stdout).into_iter().collect()), None);
            let told = summary(&out.stderr);
            let (seconds, bytes) = (told["seconds"].as_f64().expect("seconds"), figure(&told, "bytes"));
            let least = bytes as f64 / f64::from(2 << 20) * 0.8;
            assert!(seconds >= least, "{options:?} {hidden}: {bytes} bytes in {seconds} s, faster than {least} s");
        }
    }
}

#[test]
fn the_idle_class_reads_the_same() {
    root_test!();
    for options in [&["--idle"][..], &["--idle", "--device"]] {
        let mut image = Image::new(Fs::Ext4, 640 << 20);
        let root = image.root().join("tree");
        tree::varied(&root, Fs::Ext4, &Varied { files: 100, sparse: 1 << 20 }, seed());
        image.cold();
        let mut sum = onesweep(SUM);
        sum.args(options).arg(&root);
        assert_eq!(figure(&sum_is_right(sum, &root), "errors"), 0);
    }
}

/// Metadata that is read ahead, content and streams: all of it steps back behind others.
#[test]
fn the_idle_class_reaches_the_disk() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 640 << 20);
    let root = image.root().join("tree");
    tree::varied(&root, Fs::Ext4, &Varied { files: 400, sparse: 1 << 20 }, seed());
    for options in [&[][..], &["--idle"], &["--idle", "--device", "--large", "16K"]] {
        let mut tar = onesweep(["tar", "-cf", "-"]);
        tar.args(options).arg("-C").arg(image.root()).arg("tree");
        let requests = trace::from_cold(&mut image, tar);
        let ours: Vec<_> = requests.iter().filter(|request| request.thread.starts_with("onesweep")).collect();
        assert!(ours.len() > 100, "{options:?}: {} requests", ours.len());
        for request in ours {
            let idle = options.contains(&"--idle");
            assert!(request.class.as_ref().is_none_or(|class| (class == "idle") == idle), "{options:?}: {request:?}");
        }
    }
}
