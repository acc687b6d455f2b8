//! What is set outside of the command line, and what is made from it: variables, the settings file, ignore files, pages
//! of the manual, completions.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use crate::{
    image::Folder,
    run::{finish, onesweep, output, program, root_test, run, summary, text},
};

fn listed(root: &Path, options: &[&str]) -> BTreeSet<String> {
    let out = finish(onesweep(["list"]).args(options).arg(root), 0);
    let below = |line: &str| Path::new(line).strip_prefix(root).expect("below the root").display().to_string();
    text(&out.stdout).lines().map(below).collect()
}

/// What `git` would not take is left out, through all folders.
#[test]
fn ignore_files_are_heeded() {
    let folder = Folder::new();
    let root = folder.join("tree");
    let write = |name: &str, content: &str| {
        let path = root.join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        fs::write(path, content).expect("a file");
    };
    write(".gitignore", "*.o\n/build\n!kept.o\nsub/*.tmp\n# a remark\n");
    write("sub/.gitignore", "*.log\n!*.o\n");
    let files = ["a.c", "a.o", "kept.o", "build/x", "deep/build/x", "sub/a.o", "sub/a.log", "sub/a.tmp", "sub/b/a.log"];
    files.iter().for_each(|name| write(name, "x"));
    let git = |words: &[&str]| output(Command::new("git").arg("-C").arg(&root).args(words));
    git(&["init", "-q"]);
    let taken = git(&["ls-files", "--others", "--exclude-standard"]);
    fs::remove_dir_all(root.join(".git")).expect("the repository goes");
    let taken: BTreeSet<String> = text(&taken).lines().map(str::to_owned).collect();
    assert!(taken.contains("kept.o") && !taken.contains("a.o"), "{taken:?}");
    assert_eq!(listed(&root, &["--gitignore"]), taken);
    assert_eq!(listed(&root, &[]).len(), files.len() + 2);
}

fn order_of(command: &mut Command, root: &Path) -> String {
    let plan = summary(&finish(command.args(["plan", "--json"]).arg(root), 0).stdout);
    plan["disks"][0]["order"].as_str().expect("an order").to_owned()
}

/// The technique can be turned off for a whole system, and for one run on again.
#[test]
fn the_order_can_be_set_from_outside() {
    let folder = Folder::new();
    let root = folder.join("tree");
    fs::create_dir_all(root.join("a")).expect("folders");
    for name in ["z", "a/y", "b"] {
        fs::write(root.join(name), vec![1; 5000]).expect("a file");
    }
    let settings = folder.join("config.toml");
    fs::write(&settings, "order = \"inode\"\n").expect("the settings");
    let none: [&str; 0] = [];
    assert_eq!(order_of(onesweep(none).env("ONESWEEP_ORDER", "directory"), &root), "directory");
    assert_eq!(order_of(onesweep(none).env("ONESWEEP_CONFIG", &settings), &root), "inode");
    let mut both = onesweep(none);
    both.env("ONESWEEP_CONFIG", &settings).env("ONESWEEP_ORDER", "directory");
    assert_eq!(order_of(&mut both, &root), "directory", "a variable wins over the file");
    let mut typed = onesweep(["plan", "--json", "--order", "first-extent"]);
    let plan = summary(&finish(typed.arg(&root).env("ONESWEEP_ORDER", "directory"), 0).stdout);
    assert_eq!(plan["disks"][0]["order"], "first-extent", "what is typed wins");
    let out = finish(onesweep(["plan", "--json"]).arg(&root).env("ONESWEEP_ORDER", "sideways"), 2);
    assert!(text(&out.stderr).contains("ONESWEEP_ORDER"), "{}", text(&out.stderr));
}

/// The settings of the system are where the manual says: an /etc of our own is mounted over the machine's, for one program.
#[test]
fn the_settings_of_the_system_are_read() {
    // Its namespace keeps mounted what others unmount meanwhile.
    root_test!(alone);
    let folder = Folder::new();
    let root = folder.join("tree");
    fs::create_dir(&root).expect("a folder");
    fs::write(root.join("a"), vec![1; 5000]).expect("a file");
    let script = "mount -t tmpfs none /etc && mkdir /etc/onesweep && echo 'order = \"inode\"' > /etc/onesweep/config.toml && \
                  exec \"$0\" plan --json \"$1\"";
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", script]).arg(program()).arg(&root);
    let plan = summary(&finish(&mut unshare, 0).stdout);
    assert_eq!(plan["disks"][0]["order"], "inode");
}

/// Each shell that the machine has reads the completions made for it.
#[test]
fn completions_are_understood() {
    let folder = Folder::new();
    let mut read_by = 0;
    for shell in ["bash", "zsh", "fish"] {
        let script = folder.join(shell);
        fs::write(&script, finish(&mut onesweep(["completions", shell]), 0).stdout).expect("a script");
        assert!(fs::metadata(&script).expect("the script").len() > 1000, "{shell}");
        let there = Command::new(shell).args(["-c", "exit"]).output().is_ok_and(|out| out.status.success());
        if there {
            run(Command::new(shell).arg("-n").arg(&script));
            read_by += 1;
        }
    }
    assert!(read_by > 0, "bash at least is on every machine");
    finish(&mut onesweep(["completions", "no-such-shell"]), 2);
}

/// Each command has a page, and no page makes groff complain.
#[test]
fn pages_of_the_manual_are_understood() {
    let folder = Folder::new();
    let pages = folder.join("man");
    fs::create_dir(&pages).expect("a folder");
    finish(onesweep(["man"]).arg(&pages), 0);
    let names: BTreeSet<String> = fs::read_dir(&pages)
        .expect("the pages")
        .map(|entry| entry.expect("a page").file_name().to_string_lossy().into_owned())
        .collect();
    for command in ["tar", "list", "sum", "warm", "run", "copy", "shard", "plan"] {
        assert!(names.contains(&format!("onesweep-{command}.1")), "{names:?}");
    }
    let main = finish(&mut onesweep(["man"]), 0).stdout;
    assert!(text(&main).contains(".TH onesweep"), "{}", text(&main));
    let has_groff = Command::new("groff").arg("--version").output().is_ok_and(|out| out.status.success());
    for name in names.iter().filter(|_| has_groff) {
        let out = Command::new("groff").args(["-man", "-Tutf8", "-ww", "-P-cbou"]).arg(pages.join(name)).output();
        let out = out.expect("groff runs");
        assert!(out.status.success() && out.stderr.is_empty(), "{name}: {}", text(&out.stderr));
        assert!(text(&out.stdout).contains("SYNOPSIS"), "{name}");
    }
}
