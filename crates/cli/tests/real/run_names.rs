//! The names that `onesweep run` gives programs: what they leave behind keeps them, and nobody else may ever come to stand behind them.

use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    image::Folder,
    run::{copy_program, finish, interruptible, onesweep, output, program, root_test, text},
    run_program::wait_for,
    view::until,
};

/// Whoever has no more than this user's own rights.
const NOBODY: u32 = 65_534;

/// A tree to be read.
fn tree(folder: &Folder) -> PathBuf {
    let tree = folder.join("tree");
    fs::create_dir(&tree).expect("a folder");
    fs::write(tree.join("a"), "a").expect("a file");
    tree
}

/// The files that an environment names.
fn names(environment: &[u8]) -> Vec<PathBuf> {
    let told = environment.split(|byte| matches!(byte, 0 | b'\n')).map(text);
    let named = told.filter_map(|line| {
        ["LD_PRELOAD=", "ONESWEEP_BOARD="].iter().find_map(|name| line.strip_prefix(name).map(PathBuf::from))
    });
    let found: Vec<PathBuf> = named.collect();
    assert_eq!(found.len(), 2, "{found:?}");
    found
}

/// Whether none but that user and root can make, rename and remove anything on the way to a file.
fn assert_is_out_of_reach(file: &Path, user: u32) {
    for above in file.ancestors().skip(1) {
        let facts = fs::symlink_metadata(above).expect("a directory");
        let is_apart = facts.is_dir() && [0, user].contains(&facts.uid()) && facts.mode() & 0o022 == 0;
        assert!(is_apart, "{}: {:o}, of {}", above.display(), facts.mode(), facts.uid());
    }
}

/// A shell, a daemon: what the program started and didn't wait for.
#[test]
fn what_outlasts_the_program_has_names_that_nobody_else_can_take() {
    root_test!();
    let folder = Folder::new();
    let tree = tree(&folder);
    let left = folder.join("left");
    let script = "setsid sleep 1000 <&- >&- 2>&- & echo $! > \"$0\"; env";
    let mut helped = onesweep(["run", "--tree"]);
    let during = finish(helped.arg(&tree).args(["--", "sh", "-c", script]).arg(&left), 0).stdout;
    let left = fs::read_to_string(&left).expect("its number");
    let mut kept = Vec::new();
    // It has none in the moment in which it becomes another program.
    until("it has no environment", || {
        kept = fs::read(format!("/proc/{}/environ", left.trim())).expect("what it was given");
        !kept.is_empty()
    });
    output(Command::new("kill").arg(left.trim()));
    let names_kept = names(&kept);
    assert_eq!(names_kept, names(&during));
    for name in names_kept {
        assert!(!name.starts_with("/proc") && !name.exists(), "{}", name.display());
        assert_is_out_of_reach(&name, 0);
    }
}

/// Their files are removed by whoever runs next; what still uses them goes on.
#[test]
fn what_a_killed_helper_leaves_goes_with_the_next_run() {
    root_test!();
    let folder = Folder::new();
    let tree = tree(&folder);
    let (ready, go, done) = (folder.join("ready"), folder.join("go"), folder.join("done"));
    let script = "env > \"$1.new\"; mv \"$1.new\" \"$1\"; while test -e \"$0\" && ! test -e \"$2\"; do sleep 0.05; done; \
        cat \"$0/a\" > \"$3.new\"; mv \"$3.new\" \"$3\"";
    let mut helped = onesweep(["run", "--tree"]);
    helped.arg(&tree).args(["--", "sh", "-c", script]).args([&tree, &ready, &go, &done]);
    let mut running = helped.spawn().expect("it runs");
    wait_for(&ready, &mut running);
    let names = names(&fs::read(&ready).expect("its environment"));
    running.kill().expect("it is killed");
    running.wait().expect("it ends");
    for name in &names {
        assert!(name.exists(), "{}", name.display());
        assert_is_out_of_reach(name, 0);
    }
    finish(onesweep(["run", "--tree"]).arg(&tree).args(["--", "true"]), 0);
    for name in names {
        assert!(!name.exists(), "{}", name.display());
    }
    fs::write(&go, "").expect("a file");
    until("the program doesn't go on", || done.exists());
    assert_eq!(fs::read(&done).expect("what was read"), b"a");
}

#[test]
fn a_signal_leaves_nothing() {
    root_test!();
    let folder = Folder::new();
    let tree = tree(&folder);
    for signal in ["INT", "TERM", "HUP", "QUIT"] {
        let ready = folder.join(signal);
        let script = "env > \"$0.new\"; mv \"$0.new\" \"$0\"; exec sleep 1000";
        let mut helped = interruptible(["run", "--tree"]);
        helped.arg(&tree).args(["--", "sh", "-c", script]).arg(&ready).process_group(0);
        let mut running = helped.spawn().expect("it runs");
        wait_for(&ready, &mut running);
        // As a terminal does, to all of the group.
        output(Command::new("kill").args(["-s", signal, "--", &format!("-{}", running.id())]));
        let status = running.wait().expect("it ends");
        // Ctrl-C ends loops of shells, which look for who ended by it.
        if signal == "INT" {
            assert_eq!(status.signal(), Some(2), "{status}");
        } else {
            assert!(status.code() > Some(128), "{signal}: {status}");
        }
        for name in names(&fs::read(&ready).expect("its environment")) {
            assert!(!name.exists(), "{signal}: {}", name.display());
        }
    }
}

/// Users have their files in folders of their own, or in memory, which the kernel keeps from others.
#[test]
fn users_have_names_of_their_own() {
    root_test!();
    let folder = Folder::new();
    let tree = tree(&folder);
    let copy = folder.join("onesweep");
    copy_program(&program(), &copy);
    fs::set_permissions(&tree, fs::Permissions::from_mode(0o755)).expect("open to all");
    let own = tempfile::tempdir_in("/run").expect("a folder");
    std::os::unix::fs::chown(own.path(), Some(NOBODY), Some(NOBODY)).expect("a folder of nobody's");
    let run = |runtime: &Path| {
        let mut helped = Command::new(&copy);
        helped.args(["run", "--tree"]).arg(&tree).args(["--", "sh", "-c", "cat \"$0/a\" >&2; env"]).arg(&tree);
        helped.env_remove("LD_PRELOAD").env("HOME", "/nonexistent").env("XDG_RUNTIME_DIR", runtime);
        helped.env_remove("XDG_CACHE_HOME").env_remove("TMPDIR");
        let out = helped.uid(NOBODY).gid(NOBODY).stdin(Stdio::null()).output().expect("it runs");
        assert!(out.status.success(), "{out:?}");
        assert_eq!(text(&out.stderr), "a");
        names(&out.stdout)
    };
    for name in run(own.path()) {
        assert!(name.starts_with(own.path()) && !name.exists(), "{}", name.display());
        assert_is_out_of_reach(&name, NOBODY);
    }
    // Where everybody can write, it is in memory.
    for name in run(Path::new("/tmp")) {
        assert!(name.starts_with("/proc"), "{}", name.display());
    }
    // So it is where there are no other users, and root's folders belong to nobody that is known.
    let mut helped = Command::new("setpriv");
    helped
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "unshare", "--user", "--map-root-user"])
        .arg(&copy);
    helped.args(["run", "--tree"]).arg(&tree).args(["--", "env"]).env_remove("LD_PRELOAD").env("HOME", "/nonexistent");
    for name in names(&finish(&mut helped, 0).stdout) {
        assert!(name.starts_with("/proc"), "{}", name.display());
    }
}

/// `/run` is mounted so by many systems.
#[test]
fn the_library_is_where_programs_can_be_loaded_from() {
    root_test!();
    let folder = Folder::new();
    let tree = tree(&folder);
    let script = "mount -t tmpfs -o noexec,mode=755 tmpfs /run && exec \"$@\"";
    let mut apart = Command::new("unshare");
    apart.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]).arg(program());
    apart.env_remove("LD_PRELOAD").env_remove("XDG_RUNTIME_DIR");
    apart.args(["run", "--tree"]).arg(&tree).args(["--", "sh", "-c", "cat \"$0/a\" >&2; env"]).arg(&tree);
    let out = finish(&mut apart, 0);
    // What can't be loaded is told by ld.so.
    assert_eq!(text(&out.stderr), "a");
    let names = names(&out.stdout);
    let library = names.iter().find(|name| name.extension().is_some()).expect("a library");
    assert!(!library.starts_with("/run") && !library.starts_with("/proc"), "{}", library.display());
    assert_is_out_of_reach(library, 0);
    assert!(names.iter().any(|name| name.starts_with("/run")), "{names:?}");
}

/// Programs that give up root's rights load the library, which finds no board for them, and say nothing.
#[test]
fn programs_that_become_another_user_go_on_alone() {
    root_test!();
    let folder = Folder::new();
    let tree = tree(&folder);
    let mut helped = onesweep(["run", "--tree"]);
    helped.arg(&tree).args(["--", "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    let out = finish(helped.args(["sh", "-c", "cat /etc/hostname > /dev/null; cat \"$ONESWEEP_BOARD\" || id -u"]), 0);
    assert_eq!(text(&out.stdout), "65534\n");
    let said = text(&out.stderr);
    assert!(!said.contains("ld.so") && said.contains("denied"), "{said}");
}
