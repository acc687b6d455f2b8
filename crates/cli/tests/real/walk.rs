//! Finding the files: very many in one folder, mounts in and out, loops, patterns, and files that vanish.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::{ffi::OsStrExt, fs::PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use crate::{
    equality::differences,
    image::{Folder, Fs, Image},
    run::{finish, long, members, onesweep, output, program, root_test, run, seed, short, text},
    tree::{self, Rng, Varied, sum_lines, sums},
};

/// A bind mount, gone at the end. Declare it after the images, so that it goes before them.
pub(crate) struct Bind(PathBuf);

impl Bind {
    pub(crate) fn new(from: &Path, to: &Path) -> Self {
        fs::create_dir_all(to).expect("a mount point");
        run(Command::new("mount").arg("--bind").arg(from).arg(to));
        Self(to.to_path_buf())
    }

    /// A file on another one, which is made.
    pub(crate) fn over_file(from: &Path, to: &Path) -> Self {
        fs::write(to, "").expect("a file to be mounted on");
        run(Command::new("mount").arg("--bind").arg(from).arg(to));
        Self(to.to_path_buf())
    }

    /// A file system of its own, in memory.
    pub(crate) fn in_memory(to: &Path) -> Self {
        fs::create_dir_all(to).expect("a mount point");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=16m", "none"]).arg(to));
        Self(to.to_path_buf())
    }
}

impl Drop for Bind {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).output();
    }
}

fn listed(options: &[&str], root: &Path) -> BTreeSet<Vec<u8>> {
    let out = finish(onesweep(["list", "-0"]).args(options).arg(root), 0);
    names(&out.stdout)
}

fn found(root: &Path, options: &[&str]) -> BTreeSet<Vec<u8>> {
    names(&output(Command::new("find").arg(root).args(options).args(["-type", "f", "-print0"])))
}

fn names(listed: &[u8]) -> BTreeSet<Vec<u8>> {
    listed.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect()
}

#[test]
fn very_many_files_in_one_folder_are_all_found() {
    root_test!();
    let count = if long() { 1_000_000 } else { 100_000 };
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        // ext4 has one inode for each 16 KiB.
        let image = Image::new(fs, if long() { 17 << 30 } else { 2 << 30 });
        let root = image.root().join("many");
        tree::many(&root, count);
        let there = found(&root, &[]);
        assert!(listed(&[], &root) == there, "{}: the list differs", fs.name());
        let sums = sums(&[&root]);
        let mut ways = vec![&["--budget", "1M"][..]];
        if long() {
            ways.push(&["--order", "first-extent"]);
            ways.extend(fs.has_device_mode().then_some(&["--device"][..]));
        }
        for options in ways {
            let out = finish(onesweep(["sum", "--algorithm", "sha256"]).args(options).arg(&root), 0);
            let lines = sum_lines(&out.stdout);
            let count = lines.len();
            assert_eq!(count, there.len(), "{} {options:?}: some came twice or not at all", fs.name());
            let delivered: std::collections::BTreeMap<_, _> = lines.into_iter().collect();
            assert_eq!(differences(&sums, &delivered), None, "{} {options:?}", fs.name());
        }
    }
}

#[test]
fn a_path_longer_than_the_kernel_takes_is_read() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    let below = tree::deep(&image.root(), b"at the very end");
    let out = finish(onesweep(["sum", "--algorithm", "md5"]).arg(image.root()), 0);
    // printf 'at the very end' | md5sum
    let sum = output(Command::new("sh").args(["-c", "printf 'at the very end' | md5sum | cut -c1-32"]));
    let expected = (image.root().join(below).as_os_str().as_bytes().to_vec(), text(&sum).trim().to_owned());
    assert!(sum_lines(&out.stdout) == [expected], "{}", text(&out.stdout));
}

/// A list of files, or a shell that knows no limit, may name what no system call takes.
#[test]
fn what_has_a_longer_path_than_the_kernel_takes_may_be_named() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    let leaf = image.root().join(tree::deep(&image.root(), b"at the very end"));
    let folder = leaf.parent().expect("its folder");
    let at_folder = onesweep_sys::files::open_dir(folder).expect("the folder");
    rustix::fs::symlinkat("leaf", &at_folder, "link").expect("a link");
    let link = folder.join("link");
    let sums = |paths: &[&Path], options: &[&str]| {
        finish(onesweep(["sum", "--algorithm", "md5"]).args(options).args(paths), 0).stdout
    };
    let line = |path: &Path| [text(&sums(&[&leaf], &[])[..34]).as_bytes(), path.as_os_str().as_bytes(), b"\n"].concat();
    assert_eq!(text(&sums(&[&leaf], &[])), text(&line(&leaf)));
    assert_eq!(text(&sums(&[folder], &[])), text(&line(&leaf)));
    assert_eq!(text(&sums(&[&link], &["-H"])), text(&line(&link)));
    let outside = Folder::new();
    let manifest = outside.join("manifest");
    fs::write(&manifest, sums(&[&leaf], &[])).expect("a manifest");
    assert!(text(&finish(onesweep(["sum", "--check"]).arg(&manifest), 0).stdout).ends_with("/leaf: OK\n"));
    let list = outside.join("list");
    fs::write(&list, leaf.as_os_str().as_bytes()).expect("a list");
    let archive = outside.join("archive.tar");
    finish(onesweep(["tar", "-cf"]).arg(&archive).arg("-T").arg(&list), 0);
    let member = leaf.strip_prefix("/").expect("an absolute path").as_os_str().as_bytes().to_vec();
    assert!(members(&archive) == [member], "{:?}", members(&archive));
    let copy = outside.join("copy");
    finish(onesweep(["copy"]).args([&leaf, &copy]), 0);
    assert_eq!(fs::read(&copy).expect("the copy"), b"at the very end");
    finish(onesweep(["copy"]).args([&link, &outside.join("copied-link")]), 0);
    assert_eq!(fs::read_link(outside.join("copied-link")).expect("a link"), Path::new("leaf"));
    let missing = finish(onesweep(["sum"]).arg(folder.join("none")), 2);
    assert!(text(&missing.stderr).contains("No such file or directory"), "{}", text(&missing.stderr));
}

/// Whoever was put into a directory that is closed from above (`sudo -u` in somebody's home), or deeper than a path can tell,
/// reads what is there by relative paths.
#[test]
fn a_directory_without_a_way_from_the_root_is_read() {
    root_test!();
    let folder = Folder::new();
    let (private, inside) = (folder.join("private"), folder.join("private/inside"));
    fs::create_dir_all(inside.join("d")).expect("folders");
    fs::write(inside.join("d/f"), "x").expect("a file");
    for (path, mode) in [(&inside, 0o777), (&private, 0o700)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
    }
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program()).args(arguments);
        finish(command.current_dir(&inside), 0).stdout
    };
    assert_eq!(as_nobody(&["list", "."]), b"./d/f\n");
    assert_eq!(as_nobody(&["list", "d/f", "d"]), b"d/f\nd/f\n");
    as_nobody(&["tar", "-cf", "archive.tar", "-C", "d", "f"]);
    assert_eq!(members(&inside.join("archive.tar")), [b"f"]);
    as_nobody(&["copy", "d", "copied"]);
    assert_eq!(fs::read(inside.join("copied/f")).expect("the copy"), b"x");
    // Two steps of this are more than a path may have.
    let step = format!("{}/", "d".repeat(200)).repeat(12);
    let below = |arguments: &[&str]| {
        let mut command = Command::new("env");
        command.current_dir(&inside).args(arguments);
        command
    };
    run(&mut below(&["mkdir", "-p", &step]));
    run(&mut below(&["-C", &step, "mkdir", "-p", &step]));
    run(&mut below(&["-C", &step, "env", "-C", &step, "touch", "g"]));
    let out = finish(below(&["-C", &step, "env", "-C", &step]).arg(program()).args(["list", "."]), 0);
    assert_eq!(text(&out.stdout), "./g\n");
}

#[test]
fn mounts_are_entered_unless_told_otherwise() {
    root_test!();
    let outer = Image::new(Fs::Ext4, 64 << 20);
    let inner = Image::new(Fs::Xfs, 320 << 20);
    tree::many(&outer.root().join("own"), 20);
    tree::many(&inner.root().join("other"), 20);
    let _inner = Bind::new(&inner.root(), &outer.root().join("mounted"));
    // A bind mount of a folder of the same file system: the same files under a second path.
    let _again = Bind::new(&outer.root().join("own"), &outer.root().join("again"));
    assert_eq!(listed(&[], &outer.root()), found(&outer.root(), &[]));
    let own = listed(&["--one-file-system"], &outer.root());
    assert!(own.iter().any(|name| name.ends_with(b"own/0000001")));
    assert!(!own.iter().any(|name| text(name).contains("/mounted/")), "another file system was entered");
    let out = finish(onesweep(["sum", "--algorithm", "sha256"]).arg(outer.root()), 0);
    assert!(sum_lines(&out.stdout).into_iter().collect::<std::collections::BTreeMap<_, _>>() == sums(&[&outer.root()]));
}

/// A folder bound into itself would go on for ever; `find` says so and goes on, and so does the sweep.
#[test]
fn a_mount_of_an_ancestor_ends() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    let top = image.root().join("top");
    tree::many(&top.join("files"), 20);
    let _loop = Bind::new(&top, &top.join("files/below/top"));
    let out = onesweep(["list", "-0"]).arg(&top).output().expect("it runs");
    let code = out.status.code();
    let listed = names(&out.stdout);
    assert_eq!(code, Some(1), "{}", text(&out.stderr));
    assert!(listed.len() >= 20 && listed.len() <= 40, "{} files instead of 20", listed.len());
    assert!(text(&out.stderr).contains("below/top"), "the message names the loop: {}", text(&out.stderr));
}

/// Patterns mean what they mean to GNU tar: its own archive tells.
#[test]
fn patterns_exclude_what_gnu_tar_excludes() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let root = image.root().join("tree");
    tree::varied(&root, Fs::Ext4, &Varied { files: 200, sparse: 1 << 20 }, seed());
    let spaced = ["a/b/Upper", "Upper ", "a/at the end ", "a/last line", "a/[U", "a/Ax"];
    for path in ["a/core", "a/b/core", "core/a", "x.o", "a/x.o/y", "a/b.c", ".git/config", "a/.hidden", "[b]", "a/ä.o"]
        .iter()
        .chain(&spaced)
    {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("folders");
        fs::write(path, "x").expect("a file");
    }
    let patterns = image.beside("patterns");
    fs::write(&patterns, "core \t\n\n   \n Upper\nfile-?.bin\r\nat the end\\ \nlast line ").expect("patterns");
    let from_file = format!("--exclude-from={}", patterns.display());
    let lists: &[&[&str]] = &[
        &["--exclude=core"],
        &["--exclude=*.o"],
        &["--exclude=a/b"],
        &["--exclude=./a/b"],
        &["--exclude=a/*"],
        &["--exclude=b/*"],
        &["--exclude=a/b/core"],
        &["--exclude=[b]"],
        &["--exclude=\\[b\\]"],
        &["--exclude=[!a-z]*"],
        &["--exclude=.*"],
        &["--exclude=?"],
        &["--exclude=a/"],
        &["--exclude=*/core"],
        &["--exclude=folder 1", "--exclude=file-?.bin"],
        &["--exclude=*.bin", "--exclude=core", "--exclude=names"],
        &["--exclude=*\\\\*"],
        &["--exclude=no such thing"],
        &["--exclude=[[:upper:]]*"],
        &["--exclude=*[![:alnum:]/.]*"],
        &["--exclude=file-[[:digit:][:punct:]].bin"],
        &["--exclude=[[:nonsense:]]*"],
        &["--exclude=[[:upper:]*"],
        &["--exclude=a/?.o"],
        &["--exclude=??.o"],
        &["--exclude=[à-ï].o"],
        &["--exclude=*[!ä].o"],
        &["--exclude=[[:alpha:]].o"],
        &["--exclude=[[:upper]*"],
        &[&from_file],
        &["-X", "-"],
    ];
    let input = || fs::File::open(&patterns).expect("the patterns");
    let (ours, theirs) = (image.beside("ours.tar"), image.beside("theirs.tar"));
    for excludes in lists {
        for start in [".", "a", "./a"] {
            let mut tar = onesweep(["tar", "-cf"]);
            finish(tar.arg(&ours).args(*excludes).arg("-C").arg(&root).arg(start).stdin(input()), 0);
            let mut tar = Command::new("tar");
            tar.stdin(input());
            run(tar
                .env("LC_ALL", "C.UTF-8")
                .args(["--format=posix", "-cf"])
                .arg(&theirs)
                .args(*excludes)
                .arg("-C")
                .arg(&root)
                .arg(start));
            let (ours, theirs) = (members(&ours), members(&theirs));
            if ours != theirs {
                let only = |a: &[Vec<u8>], b: &[Vec<u8>]| {
                    let only = a.iter().filter(|name| !b.contains(name)).take(5).map(|name| text(name));
                    only.collect::<Vec<_>>()
                };
                panic!(
                    "{excludes:?} from {start}: only ours {:?}, only GNU tar's {:?}",
                    only(&ours, &theirs),
                    only(&theirs, &ours)
                );
            }
        }
    }
}

/// Files that are deleted while the sweep runs are error items; all others are delivered with their own bytes.
#[test]
fn vanishing_files_are_error_items() {
    root_test!();
    let mut image = tree::aged(Fs::Ext4, 3000, 1 << 30);
    let root = image.root().join("tree");
    let there = sums(&[&root]);
    image.cold();
    let mut doomed: Vec<PathBuf> = there.keys().map(|name| crate::run::path_of(name)).collect();
    let mut rng = Rng::new(seed());
    // A small budget and a pipe that is read late hold the sweep back, so that deletions meet it half way.
    let mut sweep = onesweep(["sum", "--algorithm", "sha256", "--budget", "1M"]);
    let running = sweep.arg(&root).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let stop = AtomicBool::new(false);
    let out = thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..1500 {
                let path = doomed.swap_remove(rng.below(doomed.len() as u64) as usize);
                fs::remove_file(&path).expect("a deletion");
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                thread::sleep(Duration::from_micros(200));
            }
        });
        let out = running.wait_with_output().expect("it ends");
        stop.store(true, Ordering::Relaxed);
        out
    });
    let said = short(&out.stderr);
    let delivered = sum_lines(&out.stdout);
    for (name, sum) in &delivered {
        assert_eq!(there.get(name), Some(sum), "{:?} came with other bytes", text(name));
    }
    // A deleted file that the walk never met is no error; one that it had met is, and then the exit code tells.
    match out.status.code() {
        Some(0) => assert_eq!(said, ""),
        Some(1) => assert!(said.contains("vanished"), "{said}"),
        other => panic!("exit code {other:?}: {said}"),
    }
    assert!(delivered.len() >= there.len() - 1500, "{} of {} delivered", delivered.len(), there.len());
    // The same again with nobody deleting: no errors are left.
    finish(onesweep(["sum", "--algorithm", "sha256"]).arg(&root), 0);
}

/// What an ignore file names is not left out when its reader may not read it, and that is told.
#[test]
fn an_ignore_file_that_may_not_be_read_is_told_of() {
    root_test!();
    let folder = Folder::new();
    let root = folder.join("root");
    fs::create_dir(&root).expect("a folder");
    fs::write(root.join(".gitignore"), "named").expect("a file");
    fs::set_permissions(root.join(".gitignore"), fs::Permissions::from_mode(0o600)).expect("its mode");
    std::os::unix::fs::symlink("nowhere", root.join(".ignore")).expect("a link");
    fs::write(root.join("named"), "").expect("a file");
    let tool = folder.join("onesweep");
    crate::run::copy_program(&crate::run::program(), &tool);
    let mut list = Command::new("setpriv");
    list.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&tool);
    let out = finish(list.args(["list", "--gitignore"]).arg(&root), 1);
    assert!(text(&out.stdout).contains("/named\n"));
    let said = text(&out.stderr);
    assert!(said.contains(".gitignore: cannot take patterns from it, so what it names is not left out: "), "{said}");
    assert!(!said.contains("/.ignore"), "{said}");
}
