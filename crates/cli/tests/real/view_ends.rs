//! Whose a view is, and how it ends.

use std::{
    fs::{self, File},
    io::Read,
    os::unix::fs::{FileExt, PermissionsExt, chown},
    process::Command,
};

use rustix::fs::{Advice, fadvise};

use crate::{
    cache::pages,
    held_back::{self, in_memory},
    image::{Fs, Image, mounts_below},
    run::{finish, onesweep, root_test, run, text},
    run_program::figures,
    tree,
    view::{View, WAYS, brought_in, cold_tree, place, until},
};

#[test]
fn a_user_has_a_view_of_ones_own() {
    root_test!(alone);
    let image = Image::new(Fs::Ext4, 64 << 20);
    let (root, dir) = place(&image);
    fs::create_dir_all(root.join("a")).expect("a folder");
    for number in 0..20 {
        fs::write(root.join(format!("a/{number}")), format!("{number}")).expect("a file");
    }
    fs::write(root.join("a/secret"), "secret").expect("a file");
    fs::create_dir_all(&dir).expect("a place");
    run(Command::new("chown").arg("-R").arg("65534:65534").arg(&root).arg(&dir));
    chown(root.join("a/secret"), Some(0), Some(0)).expect("an owner");
    fs::set_permissions(root.join("a/secret"), fs::Permissions::from_mode(0o600)).expect("a mode");
    let script = "cat \"$1\"/a/[0-9]* && ! cat \"$1\"/a/secret 2> /dev/null && echo more >> \"$2\"/a/3 && \
        for i in $(seq 200); do test \"$(cat \"$1\"/a/3)\" = \"$(cat \"$2\"/a/3)\" && exit 0; sleep 0.05; done; exit 1";
    let mut command = by_a_user(&image);
    command.arg("view").args([&root, &dir]).args(["--", "sh", "-c", script, "sh"]).args([&dir, &root]);
    finish(&mut command, 0);
}

/// The program, as an ordinary user has it.
fn by_a_user(image: &Image) -> Command {
    let tool = image.beside("onesweep");
    crate::run::copy_program(&crate::run::program(), &tool);
    // Where nobody cares for devices, /dev/fuse is root's alone.
    let open = "mknod -m 666 \"$0\" c 10 229 && mount --bind \"$0\" /dev/fuse && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", open]).arg(image.beside("fuse"));
    command.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&tool);
    command
}

/// Of files that are others' a user isn't told what is in memory.
#[test]
fn a_user_is_helped_over_files_of_others() {
    root_test!(alone);
    let mut image = Image::new(Fs::Ext4, 100 << 20);
    let (root, dir) = place(&image);
    cold_tree(&mut image, &root);
    let files = tree::files(&root);
    fs::create_dir_all(&dir).expect("a place");
    chown(&dir, Some(65534), Some(65534)).expect("an owner");
    let mut command = by_a_user(&image);
    command.args(["view", "--verbose"]).args([&root, &dir]).args(["--", "tar", "-cf", "-", "-C"]).arg(&dir).arg(".");
    let out = held_back::until(|| in_memory(&files) > files.len() / 2, &mut command);
    let (brought, sweeps) = brought_in(&out.stderr);
    assert!(brought >= files.len() * 3 / 4 && (1..=3).contains(&sweeps), "{}", text(&out.stderr));
}

/// Where no read can be tried it isn't told either, and nothing is taken for missing: no walk begins, and nobody waits.
#[test]
fn a_user_is_left_alone_over_files_of_others_on_tmpfs() {
    root_test!(alone);
    let image = Image::new(Fs::Ext4, 64 << 20);
    let (root, dir) = place(&image);
    let source = image.beside("in memory");
    for folder in [&root, &dir, &source] {
        fs::create_dir_all(folder).expect("a folder");
    }
    chown(&dir, Some(65534), Some(65534)).expect("an owner");
    run(Command::new("mount").args(["-t", "tmpfs", "-o", "mode=755", "none"]).arg(&source));
    for number in 0..200 {
        let path = source.join(format!("d{}/f{number}", number % 5));
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, vec![7; 3000 + number * 50]).expect("a file");
    }
    let mut command = by_a_user(&image);
    command.args(["view", "--verbose"]).args([&source, &dir]).args(["--", "tar", "-cf", "-", "-C"]).arg(&dir).arg(".");
    let out = finish(&mut command, 0);
    run(Command::new("umount").arg(&source));
    assert_eq!(figures(&out.stderr), (0, 0, 0), "{}", text(&out.stderr));
}

/// The begin of a file tells nothing of the rest.
#[test]
fn a_user_is_helped_over_files_of_others_that_are_in_memory_in_part() {
    root_test!(alone);
    let mut image = Image::new(Fs::Ext4, 100 << 20);
    let (root, dir) = place(&image);
    cold_tree(&mut image, &root);
    let files = tree::files(&root);
    for path in &files {
        let file = File::open(path).expect("a file");
        fadvise(&file, 0, None, Advice::Random).expect("no read-ahead");
        file.read_exact_at(&mut [0], 0).expect("a byte");
    }
    let there = || pages(&files).values().sum::<u64>();
    let whole: u64 = files.iter().map(|path| fs::metadata(path).expect("a file").len().div_ceil(4096)).sum();
    assert!(there() < whole / 2, "{} pages of {whole} are in memory", there());
    fs::create_dir_all(&dir).expect("a place");
    chown(&dir, Some(65534), Some(65534)).expect("an owner");
    let mut command = by_a_user(&image);
    command.args(["view", "--verbose"]).args([&root, &dir]).args(["--", "tar", "-cf", "-", "-C"]).arg(&dir).arg(".");
    let out = held_back::until(|| there() > whole * 3 / 4, &mut command);
    let (brought, sweeps) = brought_in(&out.stderr);
    assert!(brought >= files.len() / 2 && (1..=3).contains(&sweeps), "{}", text(&out.stderr));
}

/// The helper that mounts for others than root is a package of its own.
#[test]
fn a_user_without_the_helper_is_told_which() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    let (root, dir) = place(&image);
    for folder in [&root, &dir] {
        fs::create_dir_all(folder).expect("a folder");
    }
    run(Command::new("chown").arg("65534:65534").arg(&root).arg(&dir));
    let [tool, setpriv] = ["onesweep", "setpriv"].map(|name| image.beside(name));
    crate::run::copy_program(&crate::run::program(), &tool);
    // Where nobody cares for devices, /dev/fuse is root's alone.
    let script = "mknod -m 666 \"$1\" c 10 229 && mount --bind \"$1\" /dev/fuse && cp \"$(command -v setpriv)\" \"$2\" && \
        mount -t tmpfs none /usr/bin && shift && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, "sh"]).arg(image.beside("fuse")).arg(&setpriv);
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    let out = finish(command.arg(&tool).arg("view").args([&root, &dir]), 2);
    assert!(text(&out.stderr).contains("install the package fuse3"), "{}", text(&out.stderr));
}

/// By the words of `--allow-other`, and of whoever runs the machine.
#[test]
fn others_see_the_view_of_a_user_where_both_allow_it() {
    root_test!(alone);
    let image = Image::new(Fs::Ext4, 64 << 20);
    let (root, dir) = place(&image);
    for folder in [&root, &dir] {
        fs::create_dir_all(folder).expect("a folder");
    }
    fs::write(root.join("file"), "bytes").expect("a file");
    run(Command::new("chown").arg("-R").arg("65534:65534").arg(&root).arg(&dir));
    let tool = image.beside("onesweep");
    crate::run::copy_program(&crate::run::program(), &tool);
    // Root is one of the others. Where nobody cares for devices, /dev/fuse is root's alone.
    let script = "mknod -m 666 \"$1\" c 10 229; mount --bind \"$1\" /dev/fuse; mount --bind \"$2\" /etc/fuse.conf; shift 2\n\
        \"$@\" & shown=$!\n\
        until grep -qF \" $DIR \" /proc/self/mountinfo; do kill -0 $shown || { wait $shown; exit; }; sleep 0.05; done\n\
        cat \"$DIR/file\"; code=$?; kill $shown; wait $shown; exit $code";
    let mut number = 0;
    let mut seen = |conf: &str, options: &[&str], code: i32| {
        number += 1;
        let settings = image.beside("fuse.conf");
        fs::write(&settings, conf).expect("a file");
        let mut command = Command::new("unshare");
        command.env("DIR", &dir).args(["--mount", "sh", "-c", script, "sh"]);
        command.arg(image.beside(&format!("fuse{number}"))).arg(&settings);
        command.args(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]);
        let out = finish(command.arg(&tool).arg("view").args(options).args([&root, &dir]), code);
        (text(&out.stdout), text(&out.stderr))
    };
    assert_eq!(seen("user_allow_other\n", &["--allow-other"], 0).0, "bytes");
    assert!(seen("user_allow_other\n", &[], 1).1.contains("Permission denied"), "it is his alone");
    let (_, said) = seen("", &["--allow-other"], 2);
    assert!(said.contains("user_allow_other"), "{said}");
}

#[test]
fn the_end_of_the_program_is_the_end_of_the_view() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    let (root, dir) = place(&image);
    fs::create_dir_all(&root).expect("a folder");
    fs::create_dir_all(&dir).expect("a place");
    fs::write(root.join("file"), "bytes").expect("a file");
    let file = dir.join("file");
    for way in WAYS {
        let view = |words: &[&str], code| {
            let out = finish(onesweep(["view"]).args(way).args([&root, &dir]).arg("--").args(words), code);
            assert!(mounts_below(&dir).is_empty());
            (text(&out.stdout), text(&out.stderr))
        };
        assert_eq!(view(&["cat", file.to_str().expect("text")], 0), ("bytes".into(), String::new()));
        assert_eq!(view(&["sh", "-c", "exit 3"], 3), Default::default());
        assert_eq!(view(&["sh", "-c", "kill -9 $$"], 137), Default::default());
        assert!(view(&["no-such-program"], 127).1.contains("no-such-program: cannot run it"));
        assert!(view(&[root.join("file").to_str().expect("text")], 126).1.contains("cannot run it"));
    }
    // One that is still used goes when it isn't any more. The kernel then ends the connection beside the last request.
    for _ in 0..12 {
        let shown = View::show(&root, &dir, &[]);
        let mut used = File::open(&file).expect("a file");
        shown.signal(rustix::process::Signal::INT);
        until("it isn't unmounted", || mounts_below(&dir).is_empty());
        let mut bytes = String::new();
        used.read_to_string(&mut bytes).expect("it is still served");
        assert_eq!(bytes, "bytes");
        drop(used);
        assert!(shown.end(Some(0)).contains("still in use"));
    }
    // Another one may unmount it.
    let shown = View::show(&root, &dir, &[]);
    run(Command::new("umount").arg(&dir));
    shown.end(Some(0));
}

/// A view that was killed is in nobody's way.
#[test]
fn a_killed_view_is_followed_by_another_one() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    let (root, dir) = place(&image);
    fs::create_dir_all(&root).expect("a folder");
    fs::write(root.join("file"), "bytes").expect("a file");
    for _ in 0..3 {
        let mut view = View::show(&root, &dir, &[]);
        assert_eq!(fs::read(dir.join("file")).expect("a file"), b"bytes");
        let mut running = view.running.take().expect("it runs");
        running.kill().expect("it is killed");
        running.wait().expect("it ends");
        // What was read may still be in memory.
        for dead in [fs::read_dir(&dir).err(), fs::read(dir.join("another file")).err()] {
            let dead = dead.expect("nobody serves it");
            assert_eq!(dead.raw_os_error(), Some(rustix::io::Errno::NOTCONN.raw_os_error()));
        }
        // Not dropped: what was left there has to stay.
        std::mem::forget(view);
    }
    let view = View::show(&root, &dir, &[]);
    assert_eq!(mounts_below(&dir).len(), 1, "nothing lies below it");
    let out = finish(onesweep(["view"]).args([&root, &dir]), 2);
    assert!(text(&out.stderr).contains("another view is shown there"), "{}", text(&out.stderr));
    assert_eq!(fs::read(dir.join("file")).expect("a file"), b"bytes");
    drop(view);
}

/// Who still uses it is waited for until a second signal.
#[test]
fn a_second_signal_ends_a_view_that_is_used() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    let (root, dir) = place(&image);
    fs::create_dir_all(&root).expect("a folder");
    fs::write(root.join("file"), "bytes").expect("a file");
    let shown = View::show(&root, &dir, &[]);
    let used = File::open(dir.join("file")).expect("a file");
    shown.signal(rustix::process::Signal::INT);
    until("it isn't unmounted", || mounts_below(&dir).is_empty());
    shown.signal(rustix::process::Signal::INT);
    assert!(shown.end(Some(130)).contains("still in use"));
    drop(used);
}
