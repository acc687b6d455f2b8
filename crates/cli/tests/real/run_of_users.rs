//! Programs of ordinary users over files that are others', of which the kernel doesn't tell what is in memory.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    cache::pages,
    image::{Fs, Image},
    run::{copy_program, finish, program, root_test, text},
    run_program::{FIRST, figures, fill},
};

const NOBODY: u32 = 65_534;
const FILES: usize = 300;

/// What `run` says of a script of a user, which has the tree as its first word.
fn run_by_a_user(image: &Image, options: &[&str], root: &Path, script: &str) -> String {
    let tool = image.beside("onesweep");
    if !tool.exists() {
        copy_program(&program(), &tool);
    }
    let mut command = Command::new(&tool);
    command.args(["run", "--verbose"]).args(options).arg("--tree").arg(root).args(["--", "sh", "-c", script, "sh"]);
    command.arg(root).env_remove("LD_PRELOAD").env_remove("ONESWEEP_HIDE").env("HOME", "/nonexistent");
    text(&finish(command.current_dir("/").uid(NOBODY).gid(NOBODY), 0).stderr)
}

fn read(files: &[PathBuf]) {
    files.iter().for_each(|file| drop(fs::read(file).expect("a file")));
}

#[test]
fn a_user_reads_what_others_have_in_memory_alone() {
    root_test!();
    let image = Image::new(Fs::Ext4, 400 << 20);
    let (root, files) = fill(&image, FILES);
    // A program that ends first leaves the trees alone, and what is in memory may go where memory is short.
    let again = |seconds: u32| {
        read(&files);
        run_by_a_user(&image, &[], &root, &format!("sleep {seconds}; cat \"$1\"/*/*"))
    };
    let said = (0..10).map(again).find(|said| said.contains("everything is in memory"));
    let said = said.unwrap_or_else(|| panic!("{}", again(20)));
    let (brought, sweeps, _) = figures(said.as_bytes());
    assert_eq!((brought, sweeps), (0, 0), "{said}");
}

/// Each part drops what the one before it has brought in, and nothing else.
#[test]
fn what_others_have_in_memory_stays_there() {
    root_test!(alone);
    let mut image = Image::new(Fs::Ext4, 400 << 20);
    let (root, files) = fill(&image, FILES);
    image.cold();
    let (hot, cold): (Vec<_>, Vec<_>) = (0..).zip(files).partition(|(number, _)| number % 3 == 0);
    let [hot, cold] = [hot, cold].map(|files| files.into_iter().map(|(_, file)| file).collect::<Vec<PathBuf>>());
    read(&hot);
    let before = pages(&hot);
    let page_bytes = |file: &PathBuf| fs::metadata(file).expect("a file").len().next_multiple_of(4096);
    let limit: u64 = hot.iter().chain(&cold).map(page_bytes).sum::<u64>() / 5;
    let said = run_by_a_user(&image, &["--limit", &limit.to_string()], &root, "cat \"$1\"/*/*");
    let (brought, sweeps, _) = figures(said.as_bytes());
    assert!(brought >= cold.len() * 3 / 4 && sweeps >= 3, "{said}");
    assert!(pages(&hot) == before, "others' pages are gone: {said}");
    let left: u64 = pages(&cold).values().sum::<u64>() * 4096;
    assert!(left <= limit + limit / 4, "{left} bytes of {limit} were left: {said}");
    assert!(pages(&cold).values().filter(|pages| **pages == 0).count() > FIRST, "{said}");
}
