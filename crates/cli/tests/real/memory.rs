//! The memory that a sweep takes is bounded by the budget, whatever the tree.

use std::{fs, process::Command, process::Stdio};

use crate::{
    image::{Fs, Image},
    run::{long, onesweep, output, program, root_test, say, summary, text},
    tree,
};

/// Peak resident memory of a run in bytes, by `time`.
fn peak(mut command: Command) -> u64 {
    let out = command.stdout(Stdio::null()).output().expect("it runs; try `make deps`");
    let said = text(&out.stderr);
    assert!(out.status.success(), "{said}");
    let kib = said.lines().find_map(|line| line.trim().strip_prefix("Maximum resident set size (kbytes): "));
    kib.expect("a figure").parse::<u64>().expect("a number") << 10
}

fn timed(arguments: &[&str]) -> Command {
    let mut command = Command::new("/usr/bin/time");
    command.arg("-v").arg(program()).args(arguments).env_remove("ONESWEEP_HIDE");
    command
}

/// A million small files (a hundred thousand in the short set) in at most 200 MiB and the budget.
#[test]
fn many_files_take_little_memory() {
    root_test!();
    let count = if long() { 1_000_000 } else { 100_000 };
    let image = Image::new(Fs::Ext4, if long() { 20 << 30 } else { 2 << 30 });
    let root = image.root().join("tree");
    for folder in 0..count / 1000 {
        tree::many(&root.join(format!("{folder:04}")), 1000);
    }
    for (options, budget) in [(&["--budget", "64M"][..], 64 << 20), (&["--budget", "1M", "--device"], 1 << 20)] {
        let mut sum = timed(&["sum", "--algorithm", "md5"]);
        sum.args(options).arg(&root);
        let peak = peak(sum);
        say(&format!("{count} files with {options:?}: peak {} MiB", peak >> 20));
        let most = (200 << 20) * count / 1_000_000 + (24 << 20) + budget;
        assert!(peak <= most, "{count} files with {options:?} took {} MiB, more than {}", peak >> 20, most >> 20);
    }
}

/// A file that is streamed is read once, whatever it is compared with; it never lies in memory as a whole.
#[test]
fn a_large_file_with_two_sums_takes_little_memory() {
    root_test!();
    let image = Image::new(Fs::Ext4, 512 << 20);
    let (large, manifest) = (image.root().join("large"), image.beside("manifest"));
    fs::write(&large, vec![7; 200 << 20]).expect("a file");
    let lines = ["md5sum", "sha256sum"].map(|tool| output(Command::new(tool).arg(&large)));
    fs::write(&manifest, lines.concat()).expect("a manifest");
    let mut sum = timed(&["sum", "--check", "--algorithm", "sha256", "--large", "1M", "--budget", "8M"]);
    sum.arg(&manifest);
    let peak = peak(sum);
    say(&format!("two sums of 200 MiB: peak {} MiB", peak >> 20));
    assert!(peak < 64 << 20, "{} MiB", peak >> 20);
}

/// Files of every size within a small budget: what is waiting for its fragments never grows beyond it.
#[test]
fn the_budget_holds() {
    root_test!();
    let mut image = tree::aged(Fs::Ext4, 3000, 1 << 30);
    let root = image.root().join("tree");
    image.cold();
    for budget in [1u64 << 20, 8 << 20, 64 << 20] {
        for reassembly in ["deferred", "first-fit", "on-demand"] {
            let budget_text = budget.to_string();
            let mut tar = onesweep(["tar", "--json", "--budget", &budget_text, "--reassembly", reassembly, "-cf"]);
            let archive = image.beside("a.tar");
            let out = tar.arg(&archive).arg("-C").arg(&root).arg(".").output().expect("it runs");
            assert!(out.status.success(), "{}", text(&out.stderr));
            let summary = summary(&[out.stdout, out.stderr].concat());
            let held = summary["peak_budget"].as_u64().expect("a number");
            assert!(held <= budget, "{held} bytes held, the budget is {budget}");
            assert_eq!(summary["errors"].as_u64(), Some(0));
            fs::remove_file(&archive).expect("the archive goes");
            image.cold();
        }
    }
}
