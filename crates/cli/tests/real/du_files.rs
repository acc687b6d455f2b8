//! `onesweep du` where single files are asked for, beside GNU du.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
};

use rustix::fs::{Mode, OFlags};

use crate::{
    run::{finish, onesweep, output, root_test, text},
    walk::Bind,
};

/// Files, directories, links to both, a link in a circle, one to nothing, and names of one inode here and there.
fn tree(root: &Path) {
    for directory in ["a/b/c", "d/e f", "outside"] {
        fs::create_dir_all(root.join(directory)).expect("a directory");
    }
    for (number, name) in
        (1..).zip(["a/one", "a/two.o", "a/b/three", "a/b/c/four.o", "d/five", "d/e f/six", "outside/seven"])
    {
        fs::write(root.join(name), vec![number; usize::from(number) * 5000]).expect("a file");
    }
    fs::hard_link(root.join("a/one"), root.join("d/link")).expect("a link");
    fs::hard_link(root.join("a/one"), root.join("a/b/link")).expect("a link");
    for (to, name) in
        [("../outside", "a/to outside"), ("..", "a/b/up"), ("nothing", "d/nowhere"), ("../a/two.o", "d/to two")]
    {
        symlink(to, root.join(name)).expect("a symbolic link");
    }
    let at = fs::File::options().write(true).open(root.join("a/b/three")).expect("a file");
    at.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(4_000_000_000)).expect("a time");
}

/// Lines in an order of their own.
fn sorted(bytes: &[u8]) -> Vec<String> {
    let mut lines: Vec<String> = text(bytes).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn single_files_are_told_as_gnu_du_tells_them() {
    let folder = tempfile::tempdir().expect("a folder");
    tree(folder.path());
    let patterns = folder.path().join("patterns");
    fs::write(&patterns, "*.o\ne f\n").expect("a file");
    let from = format!("--exclude-from={}", patterns.display());
    let cases: [&[&str]; 18] = [
        &["-l", "-b"],
        &["-lS", "--inodes"],
        &["--exclude=*.o", "-b"],
        &["--exclude=b", "-b"],
        &["--exclude=a/b", "-b"],
        &["--exclude", "?", "-b"],
        &[&from, "-b"],
        &["-X", patterns.to_str().expect("text"), "--inodes"],
        &["--time", "-b"],
        &["--time=atime", "-b", "--time-style=full-iso"],
        &["--time=ctime", "-b", "--time-style=+%s"],
        &["--time", "-S", "-l", "-b"],
        &["--time", "-S", "-l", "-b", "-c"],
        &["-L", "-s", "-b"],
        &["-L", "-s", "--inodes"],
        &["-c", "-l"],
        &["-a", "-l", "-b"],
        &["-a", "-d1", "-l", "-b"],
    ];
    for options in cases {
        for below in ["a", "d", "."] {
            let du = |mut command: Command| {
                command.args(options).arg(below).current_dir(folder.path()).output().expect("du")
            };
            let (theirs, ours) = (du(Command::new("du")), du(onesweep(["du", "--socket", "/nowhere"])));
            assert_eq!(sorted(&ours.stdout), sorted(&theirs.stdout), "{options:?} {below}");
            assert_eq!(ours.status.code(), theirs.status.code(), "{options:?} {below}");
        }
    }
}

/// Words, and variables.
type Called = (&'static [&'static str], &'static [(&'static str, &'static str)]);

/// What an alias of du is called with.
#[test]
fn an_alias_of_du_takes_what_du_takes() {
    let folder = tempfile::tempdir().expect("a folder");
    tree(folder.path());
    symlink("a", folder.path().join("to a")).expect("a symbolic link");
    let cases: [Called; 22] = [
        // As an alias with options of its own has them.
        (&["-s", "-sb", "-b", "a"], &[]),
        (&["-d0", "-d1", "--inodes", "--inodes", "a"], &[]),
        (&["-B1", "-s", "-B4K", "a"], &[]),
        (&["-s", "-d0", "a"], &[]),
        (&["-s", "--max-depth=0", "-b", "a"], &[]),
        (&["--max=0", "a"], &[]),
        (&["--sum", "--app", "a"], &[]),
        (&["--inode", "--sep", "a"], &[]),
        (&["--block-size='1", "-s", "a"], &[]),
        (&["--block='4K", "-s", "a"], &[]),
        (&["-s", "a"], &[("BLOCK_SIZE", "junk")]),
        (&["-s", "a"], &[("DU_BLOCK_SIZE", "0"), ("BLOCK_SIZE", "1")]),
        (&["-s", "a"], &[("BLOCKSIZE", "junk"), ("POSIXLY_CORRECT", "1")]),
        (&["-s", "a"], &[("BLOCK_SIZE", "'1")]),
        (&["-s", "--time", "a"], &[("TIME_STYLE", "full-iso"), ("TZ", "UTC")]),
        (&["-s", "--time", "a"], &[("TIME_STYLE", "posix-iso")]),
        (&["-s", "--time", "a"], &[("TIME_STYLE", "+%s\n%H")]),
        (&["-s", "--time", "a"], &[("TIME_STYLE", "locale")]),
        (&["-s", "a"], &[("TIME_STYLE", "junk")]),
        // What stands behind a link with a slash.
        (&["-s", "to a/"], &[]),
        (&["to a/."], &[]),
        (&["-b", "to a/b"], &[]),
    ];
    for (options, variables) in cases {
        let du = |mut command: Command| {
            let variables = variables.iter().copied();
            command.args(options).envs(variables).current_dir(folder.path()).output().expect("du")
        };
        let (theirs, ours) = (du(Command::new("du")), du(onesweep(["du", "--socket", "/nowhere"])));
        assert_eq!(sorted(&ours.stdout), sorted(&theirs.stdout), "{options:?} {variables:?}: {}", text(&ours.stderr));
        assert_eq!(theirs.status.code(), Some(0), "{options:?}");
        assert_eq!(ours.status.code(), Some(0), "{options:?}");
        assert_eq!(ours.stderr.is_empty(), theirs.stderr.is_empty(), "{options:?}: {}", text(&ours.stderr));
    }
    let refused: [Called; 3] = [(&["-s", "-d1"], &[]), (&["--time"], &[("TIME_STYLE", "junk")]), (&["--no"], &[])];
    for (options, variables) in refused {
        let du = |mut command: Command| {
            command
                .args(options)
                .envs(variables.iter().copied())
                .arg("a")
                .current_dir(folder.path())
                .output()
                .expect("du")
        };
        let is_refused = |found: &std::process::Output| !found.status.success() && found.stdout.is_empty();
        assert_eq!(is_refused(&du(onesweep(["du"]))), is_refused(&du(Command::new("du"))), "{options:?}");
    }
    let version = output(&mut onesweep(["du", "--version"]));
    assert!(text(&version).contains(env!("CARGO_PKG_VERSION")), "{}", text(&version));
}

/// One inode counts once over all paths, and a path in another one too.
#[test]
fn several_paths_count_once() {
    let folder = tempfile::tempdir().expect("a folder");
    tree(folder.path());
    let du = |command: &mut Command, options: &[&str], paths: &[&str]| {
        text(&output(command.arg("-s").args(options).args(paths).current_dir(folder.path())))
    };
    for options in [&["-b"][..], &["-c"], &["--inodes"], &["-cb"]] {
        for paths in [
            &["a", "d"][..],
            &["d", "a"],
            &["a/b", "a"],
            &["a", "a/b"],
            &["a", "a"],
            &["a/one", "d/link"],
            &["d/to two", "a"],
        ] {
            let expected = du(&mut Command::new("du"), options, paths);
            let ours = du(&mut onesweep(["du", "--socket", "/nowhere"]), options, paths);
            assert_eq!(ours, expected, "{options:?} {paths:?}");
        }
    }
    let expected = du(&mut Command::new("du"), &["-D", "-b"], &["a/to outside"]);
    assert_eq!(du(&mut onesweep(["du", "--socket", "/nowhere"]), &["-D", "-b"], &["a/to outside"]), expected);
}

/// The same place under two names, as a path and in one.
#[test]
fn what_is_mounted_twice_counts_once_over_all_paths() {
    root_test!();
    let folder = tempfile::tempdir().expect("a folder");
    // Without names of one inode here and there, for which all is walked.
    for (number, name) in (1..).zip(["a/one", "a/b/two", "a/b/c/three", "d/four", "outside/five"]) {
        let file = folder.path().join(name);
        fs::create_dir_all(file.parent().expect("a directory")).expect("directories");
        fs::write(file, vec![number; usize::from(number) * 5000]).expect("a file");
    }
    let _bound = Bind::new(&folder.path().join("a"), &folder.path().join("bound"));
    let _inside = Bind::new(&folder.path().join("a/b"), &folder.path().join("d/inside"));
    let du = |command: &mut Command, options: &[&str], paths: &[&str]| {
        text(&output(command.arg("-s").args(options).args(paths).current_dir(folder.path())))
    };
    for options in [&["-b"][..], &["-cb"], &["--inodes"], &["-xb"]] {
        for paths in [
            &["a", "bound"][..],
            &["bound", "a"],
            &["a", "bound/b"],
            &["bound/b", "a"],
            &["a/b", "bound"],
            &["a", "d"],
            &["d", "a"],
            &["outside", "bound"],
        ] {
            let expected = du(&mut Command::new("du"), options, paths);
            let ours = du(&mut onesweep(["du", "--socket", "/nowhere"]), options, paths);
            assert_eq!(ours, expected, "{options:?} {paths:?}");
        }
    }
}

/// Whatever leads there.
#[test]
fn files_of_other_file_systems_are_left_out() {
    root_test!();
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    tree(folder.path());
    let _other = Bind::in_memory(&at("other"));
    fs::write(at("other/file"), vec![1; 50_000]).expect("a file");
    for (to, name) in [("../other/file", "a/elsewhere"), ("../other", "a/there")] {
        symlink(to, at(name)).expect("a symbolic link");
    }
    let _covered = Bind::over_file(&at("other/file"), &at("a/covered"));
    for options in ["-Lxsb", "-Lsb", "-xalb", "-alb", "-xsb", "-sb"] {
        let du = |command: &mut Command| sorted(&output(command.args([options, "a"]).current_dir(folder.path())));
        let ours = du(&mut onesweep(["du", "--socket", "/nowhere"]));
        assert_eq!(ours, du(&mut Command::new("du")), "{options}");
    }
}

#[test]
fn paths_come_from_a_list() {
    let folder = tempfile::tempdir().expect("a folder");
    tree(folder.path());
    let names = format!("{0}/a\0{0}/d\0", folder.path().display());
    let expected =
        text(&output(Command::new("du").arg("-sb").args([folder.path().join("a"), folder.path().join("d")])));
    let list = folder.path().join("list");
    fs::write(&list, &names).expect("a file");
    let du = || {
        let mut du = onesweep(["du", "--socket", "/nowhere", "-sb"]);
        du.stdout(Stdio::piped()).stderr(Stdio::piped());
        du
    };
    assert_eq!(text(&output(du().arg(format!("--files0-from={}", list.display())))), expected);
    let mut child = du().arg("--files0-from=-").stdin(Stdio::piped()).spawn().expect("it starts");
    child.stdin.take().expect("a pipe").write_all(names.as_bytes()).expect("names");
    assert_eq!(text(&child.wait_with_output().expect("it ends").stdout), expected);
    fs::write(&list, format!("\0{names}")).expect("a file");
    let found = finish(du().arg(format!("--files0-from={}", list.display())), 1);
    assert_eq!(text(&found.stdout), expected);
    assert!(text(&found.stderr).contains("name 1 is empty"), "{}", text(&found.stderr));
    let found = finish(du().arg("--files0-from=/nowhere/list"), 1);
    assert!(text(&found.stderr).contains("/nowhere/list: cannot read the list of paths"), "{}", text(&found.stderr));
}

/// A path longer than the kernel takes at once.
#[test]
fn deep_trees_have_lines_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = "d".repeat(200);
    let mut at = rustix::fs::open(folder.path(), OFlags::PATH, Mode::empty()).expect("a directory");
    for _ in 0..40 {
        rustix::fs::mkdirat(&at, &name, Mode::from_raw_mode(0o755)).expect("a directory");
        at = rustix::fs::openat(&at, &name, OFlags::PATH, Mode::empty()).expect("a directory");
    }
    let flags = OFlags::CREATE | OFlags::WRONLY;
    let file = rustix::fs::openat(&at, "file", flags, Mode::from_raw_mode(0o644)).expect("a file");
    rustix::io::write(&file, b"content").expect("content");
    let run = |mut command: Command| sorted(&output(command.args(["-a", "-b", "."]).current_dir(folder.path())));
    assert_eq!(run(onesweep(["du", "--socket", "/nowhere"])), run(Command::new("du")));
}

#[test]
fn wrong_words_are_told() {
    for (argument, said) in [("--time=birth", "mtime, atime or ctime"), ("--time-style=short", "full-iso")] {
        let found = finish(&mut onesweep(["du", argument, "/"]), 1);
        assert!(text(&found.stderr).contains(said), "{}", text(&found.stderr));
    }
    let found = finish(&mut onesweep(["du", "-a", "/nowhere/at/all"]), 1);
    assert!(text(&found.stderr).contains("/nowhere/at/all: cannot look at it"), "{}", text(&found.stderr));
}

/// `alias du='onesweep du'` stands in scripts that heed the exit code, which no other command shares.
#[test]
fn what_is_wrong_ends_as_with_gnu_du() {
    let wrong: [&[&str]; 9] = [
        &["-s", "-d1"],
        &["-s", "-a"],
        &["--max-depth=x"],
        &["--bogus"],
        &["-B0", "/"],
        &["--time=birth", "/"],
        &["--files0-from=/nowhere/list"],
        &["--threshold=x", "/"],
        &["/nowhere/at/all"],
    ];
    for words in wrong {
        let gnu = Command::new("du").args(words).output().expect("du runs; try `make deps`");
        assert_eq!(gnu.status.code(), Some(1), "{words:?}: {}", text(&gnu.stderr));
        let ours = finish(onesweep(["du", "--socket", "/nowhere"]).args(words), 1);
        assert!(ours.stdout.is_empty() && !ours.stderr.is_empty(), "{words:?}");
    }
    finish(&mut onesweep(["top", "--bogus"]), 2);
    finish(&mut onesweep(["list", "du", "--bogus"]), 2);
}
