//! What `onesweep run` and `onesweep view` give to the program that they start: what it would have alone. And where it can't be
//! helped, it runs all the same.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::{
        fs::{PermissionsExt, chown},
        process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    image::Folder,
    run::{copy_program, finish, interruptible, onesweep, output, program, root_test, short, text},
    run_program::wait_for,
};

/// Whoever has no more than this user's own rights.
const NOBODY: u32 = 65_534;

/// The words that run a program alone, under `run`, and over a view.
fn ways(folder: &Folder) -> [(&'static str, Vec<PathBuf>); 3] {
    let (tree, shown) = (folder.join("tree"), folder.join("shown"));
    for dir in [&tree, &shown] {
        fs::create_dir(dir).expect("a folder");
    }
    fs::write(tree.join("a"), "a").expect("a file");
    let run = [program(), "run".into(), "--tree".into(), tree.clone(), "--".into()];
    let view = [program(), "view".into(), tree, shown, "--".into()];
    [("alone", Vec::new()), ("run", run.to_vec()), ("view", view.to_vec())]
}

/// As under nohup, in the background of a script, as a service of systemd, and with a limit that somebody has set. Where the ends of
/// children are ignored, how the program ended is known all the same.
#[test]
fn signals_that_are_ignored_and_limits_are_as_without_help() {
    root_test!();
    let folder = Folder::new();
    let ways = ways(&folder);
    let signals = "HUP,INT,QUIT,PIPE,CHLD,XFSZ";
    let bits = [1, 2, 3, 13, 17, 25].map(|signal| 1_u64 << (signal - 1)).iter().sum::<u64>();
    for (treated, expected) in [("ignore", bits), ("default", 0)] {
        let told = ways.each_ref().map(|(name, words)| {
            let mut given = Command::new("sh");
            given.args(["-c", "ulimit -Sn 321; exec \"$@\"", "sh", "env", &format!("--{treated}-signal={signals}")]);
            given.args(words).args(["grep", "-h", "-e", "^SigIgn:", "-e", "^Max open files"]);
            (*name, text(&finish(given.args(["/proc/self/status", "/proc/self/limits"]), 0).stdout))
        });
        // But for the two signals that C libraries keep to themselves.
        let told = told.map(|(name, said)| {
            let (mask, limits) = said.trim_start_matches("SigIgn:").trim().split_once('\n').expect("lines");
            let mask = u64::from_str_radix(mask, 16).expect("a mask") & !(0b11 << 31);
            (name, mask, limits.to_owned())
        });
        assert!(told[0].1 & bits == expected && told[0].2.contains(" 321 "), "{told:?}");
        for (name, mask, limits) in &told[1..] {
            assert_eq!((mask, limits), (&told[0].1, &told[0].2), "{name}, {treated}");
        }
    }
}

#[test]
fn a_signal_that_is_sent_to_onesweep_alone_is_passed_on_as_it_is() {
    root_test!();
    let folder = Folder::new();
    for (name, words) in &ways(&folder)[1..] {
        for (signal, code) in [("HUP", 3), ("TERM", 4)] {
            let ready = folder.join(&format!("{name}-{signal}"));
            let script = "trap 'exit 3' HUP; trap 'exit 4' TERM; : > \"$0\"; while :; do sleep 0.05; done";
            let mut given = Command::new("env");
            given.arg("--default-signal=HUP,TERM").args(words).args(["sh", "-c", script]).arg(&ready);
            let mut running = given.spawn().expect("it runs");
            wait_for(&ready, &mut running);
            output(Command::new("kill").args(["-s", signal, &running.id().to_string()]));
            let status = running.wait().expect("it ends");
            assert_eq!(status.code(), Some(code), "{name}, {signal}: {status}");
        }
    }
}

/// A loop of bash's goes on after what only tells that it was interrupted.
#[test]
fn an_interrupt_that_ends_the_program_ends_onesweep() {
    root_test!();
    let folder = Folder::new();
    for (name, words) in &ways(&folder)[1..] {
        let mut given = Command::new("env");
        let status = given.arg("--default-signal=INT").args(words).args(["sh", "-c", "kill -INT $$"]).status();
        assert_eq!(status.expect("it runs").signal(), Some(2), "{name}");
        let shown = folder.join("shown");
        assert!(fs::read_dir(shown).expect("a folder").next().is_none(), "{name}: it is still shown");
    }
}

/// A JVM tells at Ctrl-\ what its threads do, and goes on. So does `onesweep`, which gets it from the terminal, too.
#[test]
fn what_a_terminal_sends_is_for_the_program_to_heed() {
    root_test!();
    let folder = Folder::new();
    for (name, words) in &ways(&folder)[1..] {
        for signal in ["INT", "QUIT"] {
            let [ready, heard, go] =
                ["ready", "heard", "go"].map(|what| folder.join(&format!("{name}-{signal}-{what}")));
            let script = "ulimit -c 0; trap ': > \"$1\"' INT QUIT; : > \"$0\"; \
                while test -e \"$0\" && ! test -e \"$2\"; do sleep 0.05; done; exit 3";
            let mut given = Command::new("env");
            given.arg("--default-signal=INT,QUIT").args(words).args(["sh", "-c", script]).args([&ready, &heard, &go]);
            let mut running = given.process_group(0).spawn().expect("it runs");
            wait_for(&ready, &mut running);
            output(Command::new("kill").args(["-s", signal, "--", &format!("-{}", running.id())]));
            wait_for(&heard, &mut running);
            fs::write(&go, "").expect("a file");
            let status = running.wait().expect("it ends");
            assert_eq!(status.code(), Some(3), "{name}, {signal}: {status}");
        }
    }
}

/// Ctrl-C comes to `onesweep` as well as to the program that it ends. It isn't the second one, by which nobody is waited for any longer.
#[test]
fn who_outlasts_an_interrupted_program_reads_on_through_its_view() {
    root_test!();
    let folder = Folder::new();
    ways(&folder);
    let [ready, go, read] = ["ready", "go", "read"].map(|name| folder.join(name));
    // What a script has in the background ignores Ctrl-C.
    let script = "cd \"$0\" || exit; (: > \"$1\"; while test -e \"$1\" && ! test -e \"$2\"; do sleep 0.05; done; cat a > \"$3\") & wait";
    let mut given = interruptible(["view", "--fuse"]);
    given.args([folder.join("tree"), folder.join("shown")]).args(["--", "sh", "-c", script]);
    given.args([&folder.join("shown"), &ready, &go, &read]).process_group(0).stderr(Stdio::piped());
    let mut running = given.spawn().expect("it runs");
    wait_for(&ready, &mut running);
    output(Command::new("kill").args(["-s", "INT", "--", &format!("-{}", running.id())]));
    let (mut told, mut said) = (BufReader::new(running.stderr.take().expect("a pipe")), String::new());
    told.read_line(&mut said).expect("what it says");
    assert!(said.contains("still in use"), "{said}");
    fs::write(&go, "").expect("a file");
    let status = running.wait().expect("it ends");
    assert_eq!(status.signal(), Some(2), "{status}");
    assert_eq!(fs::read(&read).expect("what was read"), b"a");
}

/// Of what can't be listed tar tells; it archives the rest, as it does alone.
#[test]
fn a_tree_that_cannot_be_listed_keeps_no_program_from_running() {
    root_test!();
    let folder = Folder::new();
    let copy = folder.join("onesweep");
    copy_program(&program(), &copy);
    let home = folder.join("home");
    for (name, owner, mode) in [("mine", NOBODY, 0o755), ("theirs", 0, 0o700)] {
        let dir = home.join(name);
        fs::create_dir_all(&dir).expect("a folder");
        fs::write(dir.join("file"), name).expect("a file");
        chown(&dir, Some(owner), None).expect("its owner");
        fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).expect("its mode");
    }
    let run = |words: &[&str], code: i32| {
        let mut helped = Command::new(&copy);
        helped.arg("run").args(words).current_dir(&home).env_remove("LD_PRELOAD").stdin(Stdio::null());
        let out = finish(helped.uid(NOBODY).gid(NOBODY).env("HOME", "/nonexistent"), code);
        (out.stdout, text(&out.stderr))
    };
    let (archive, said) = run(&["tar", "-cf", "-", "mine", "theirs"], 2);
    fs::write(folder.join("x.tar"), archive).expect("an archive");
    let listed = text(&output(Command::new("tar").arg("-tf").arg(folder.join("x.tar"))));
    assert!(listed.contains("mine/file") && said.contains("theirs: Cannot open"), "{listed}{said}");
    assert!(!said.contains("onesweep"), "{said}");
    // With nothing left that could be brought in it runs alone, and is told so.
    let (_, said) = run(&["ls", "-R", "theirs"], 2);
    assert!(said.contains("theirs: cannot list it; the program runs without help"), "{said}");
    assert!(said.contains("cannot open directory"), "{said}");
    // What was typed has to be right.
    let (out, said) = run(&["--tree", "theirs", "--", "echo", "ran"], 2);
    assert!(out.is_empty() && said.contains("theirs"), "{said}");
}

#[test]
fn without_a_folder_for_the_library_the_program_runs_alone() {
    root_test!();
    let folder = Folder::new();
    let tree = folder.join("tree");
    fs::create_dir(&tree).expect("a folder");
    fs::write(tree.join("a"), "a").expect("a file");
    let script =
        "for dir in /run /var/cache; do mount -t tmpfs -o noexec,mode=755 tmpfs $dir || exit; done; exec \"$@\"";
    let mut apart = Command::new("unshare");
    apart.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]).arg(program());
    apart.env_remove("LD_PRELOAD").env_remove("XDG_RUNTIME_DIR").env_remove("XDG_CACHE_HOME");
    apart.env("HOME", "/nonexistent").env("TMPDIR", "/tmp");
    let out = finish(apart.args(["run", "-v", "--tree"]).arg(&tree).args(["--", "cat"]).arg(tree.join("a")), 0);
    assert_eq!(text(&out.stdout), "a");
    let said = text(&out.stderr);
    assert!(said.contains("cannot give the program a library") && said.contains("runs without help"), "{said}");
}

/// Programs that don't load the library read as if alone, and somebody is told.
#[test]
fn who_cannot_be_helped_is_told() {
    root_test!();
    let folder = Folder::new();
    let tree = folder.join("tree");
    fs::create_dir(&tree).expect("a folder");
    fs::write(tree.join("a"), "a").expect("a file");
    let fixed = folder.join("fixed");
    let source = "#include <stdio.h>\nint main(int n, char **w) { FILE *f = fopen(w[1], \"r\"); return !f || putchar(getc(f)) == EOF; }\n";
    fs::write(folder.join("fixed.c"), source).expect("a file");
    output(Command::new("cc").args(["-static", "-o"]).arg(&fixed).arg(folder.join("fixed.c")));
    let run = |program: &Path| {
        let out = finish(onesweep(["run", "-v", "--tree"]).arg(&tree).arg("--").arg(program).arg(tree.join("a")), 0);
        assert_eq!(text(&out.stdout), "a", "{}", short(&out.stderr));
        text(&out.stderr)
    };
    let said = run(&fixed);
    assert!(said.contains("fixed is linked statically and can't be helped"), "{said}");
    let said = run(Path::new("/usr/bin/cat"));
    assert!(!said.contains("can't be helped"), "{said}");
}
