//! What who sits at a terminal sees, and nobody else.

use std::{fs, process::Command};

use crate::{
    image::Folder,
    run::{finish, output, program, run, text},
    tree::Rng,
};

/// Two mebibytes in half a second at least: a stream is held back wherever it comes from.
const SLOWLY: &str = "--large 64K --bwlimit 2M";

/// What the bar says at the end of its line.
const BAR: &str = " left";

/// Runs a line of a shell on a terminal of its own; gives what is to be seen there.
fn on_a_terminal(line: &str) -> String {
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", line, "/dev/null"]);
    // A terminal that can do nothing gets no bar.
    text(&output(script.env("TERM", "xterm").env_remove("NO_COLOR").env_remove("ONESWEEP_HIDE")))
}

fn sum_slowly(folder: &Folder) -> String {
    let path = folder.join("large");
    fs::write(&path, Rng::new(7).bytes(2 << 20)).expect("a file");
    format!("'{}' sum --algorithm md5 {SLOWLY} '{}'", program().display(), path.display())
}

/// It stands between the lines of nobody: where data goes to the terminal there is none.
#[test]
fn a_bar_is_shown_on_a_terminal() {
    let folder = Folder::new();
    let (sum, out) = (sum_slowly(&folder), folder.join("out"));
    let seen = on_a_terminal(&format!("{sum} > '{}'", out.display()));
    assert!(seen.contains("/2.00 MiB, ") && seen.contains(BAR), "{seen:?}");
    let line = fs::read(&out).expect("the sums");
    assert!(text(&line).ends_with("/large\n"), "{:?}", text(&line));
    let seen = on_a_terminal(&format!("{sum} --quiet > '{}'", out.display()));
    assert_eq!(seen, "", "with --quiet");
    let seen = on_a_terminal(&sum);
    assert_eq!(seen.replace("\r\n", "\n"), text(&line), "sums on the terminal itself");
}

#[test]
fn no_bar_is_written_into_a_pipe() {
    let folder = Folder::new();
    let sum = sum_slowly(&folder);
    let out = finish(Command::new("sh").args(["-c", &sum]).env_remove("ONESWEEP_HIDE"), 0);
    assert_eq!(text(&out.stderr), "");
    assert!(text(&out.stdout).ends_with("/large\n"), "{}", text(&out.stdout));
}

/// A name can tell neither a terminal what to do nor, where a program reads it, be another than it is.
#[test]
fn names_are_harmless_on_a_terminal_and_exact_elsewhere() {
    let folder = Folder::new();
    let path = folder.join("a\u{1b}[31m\u{9b}\tb");
    fs::write(&path, "x").expect("a file");
    let list = |options: &str| format!("'{}' list {options} '{}'", program().display(), folder.join("").display());
    let seen = on_a_terminal(&list(""));
    assert!(seen.contains(r"/a\u{1b}[31m\u{9b}\tb") && !seen.contains('\u{1b}'), "{seen:?}");
    let seen = on_a_terminal(&list("--long"));
    assert!(seen.contains(r"/a\u{1b}[31m\u{9b}\tb"), "escaped once: {seen:?}");
    assert!(!seen.contains('\u{1b}'), "{seen:?}");
    let image = folder.join("ext4.img");
    fs::File::create(&image).and_then(|file| file.set_len(8 << 20)).expect("a sparse file");
    let tree = folder.join("tree");
    fs::create_dir(&tree).expect("a folder");
    fs::rename(&path, tree.join("a\u{1b}[31m\u{9b}\tb")).expect("another place");
    run(Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096", "-d"]).arg(&tree).arg(&image));
    fs::rename(tree.join("a\u{1b}[31m\u{9b}\tb"), &path).expect("its place");
    let find = |options: &str| format!("'{}' find {options} '{}'", program().display(), image.display());
    for options in ["", "-l"] {
        let seen = on_a_terminal(&find(options));
        assert!(seen.contains(r"/a\u{1b}[31m\u{9b}\tb") && !seen.contains('\u{1b}'), "{options}: {seen:?}");
    }
    let piped = on_a_terminal(&format!("{} | od -An -c", find("")));
    assert!(piped.contains("033") && piped.contains("\\t"), "{piped:?}");
    let piped = on_a_terminal(&format!("{} | od -An -c", list("")));
    assert!(piped.contains("033") && piped.contains("\\t"), "{piped:?}");
}

#[test]
fn an_archive_is_not_written_to_a_terminal() {
    let folder = Folder::new();
    fs::write(folder.join("file"), "x").expect("a file");
    let tar = format!("'{}' tar -cf - -C '{}' . || echo ended with $?", program().display(), folder.join("").display());
    let seen = on_a_terminal(&tar);
    assert!(seen.contains("nothing for a terminal") && seen.contains("ended with 2"), "{seen:?}");
    assert!(!seen.contains("ustar"), "{seen:?}");
}
