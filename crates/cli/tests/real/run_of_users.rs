//! Programs of ordinary users over files that are others', of which the kernel doesn't tell what is in memory.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    image::{Fs, Image},
    run::{copy_program, finish, program, root_test, text},
    run_program::{figures, fill},
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
