//! A sweep that is held back: few open files, little bandwidth, the idle class.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    equality::differences,
    image::{Fs, Image},
    run::{figure, finish, onesweep, program, root_test, seed, summary},
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
