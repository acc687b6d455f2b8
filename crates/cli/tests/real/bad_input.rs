//! When something is wrong: the message says what failed, on which path, and what can be done; the exit code tells
//! whether some files failed (1) or the run as a whole (2); and what could be done was done.

use std::{
    fs,
    io::Read,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use crate::{
    image::{Folder, Fs, Image},
    run::{disk_bytes_read, finish, interruptible, members, onesweep, output, program, root_test, run, text},
    tree::{Rng, sum_lines},
};

const SUM: [&str; 3] = ["sum", "--algorithm", "sha256"];

#[track_caller]
fn says(stderr: &[u8], parts: &[&str]) {
    let said = text(stderr);
    for part in parts {
        assert!(said.contains(part), "the message lacks {part:?}: {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
    assert!(said.lines().count() <= 12, "a message of a page: {said}");
}

#[test]
fn no_such_path() {
    let missing = "/no-such-folder-here/at all";
    for command in [&SUM[..], &["list"], &["warm"], &["plan"], &["tar", "-cf", "-"]] {
        let out = finish(onesweep(command).arg(missing), 2);
        says(&out.stderr, &[missing, "No such file or directory; check the name"]);
    }
}

/// As in a chroot that was made in a hurry.
#[test]
fn no_proc() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    let root = image.root().join("tree");
    fs::create_dir(&root).expect("a folder");
    fs::write(root.join("f"), "x").expect("a file");
    let path = root.to_str().expect("text");
    let archive = image.root().join("x.tar");
    for command in [
        &SUM[..],
        &["list"],
        &["warm", "--limit", "64M"],
        &["plan"],
        &["layout"],
        &["tar", "-cf", archive.to_str().expect("text")],
        &["find"],
        &["defrag", "-n"],
        &["sum", "--snapshot"],
    ] {
        let mut without = Command::new("unshare");
        without.args(["-m", "sh", "-c", "mount -t tmpfs none /proc; exec \"$0\" \"$@\""]).arg(program());
        let out = finish(without.args(command).arg(path).env_remove("ONESWEEP_HIDE"), 2);
        let why = "/proc/self/mountinfo: cannot read the table of mounts: No such file or directory; mount /proc";
        says(&out.stderr, &[why]);
        assert_eq!(text(&out.stderr).lines().count(), 1, "{}", text(&out.stderr));
        assert!(!text(&out.stderr).contains("check the name"), "{}", text(&out.stderr));
    }
    assert!(!archive.exists());
}

/// Help and version are an output like any other.
#[test]
fn help_that_cannot_be_written() {
    let (of_all, of_du) = (2, 1);
    let words: [&[&str]; 5] = [&["tar", "--help"], &["-h"], &["--version"], &["peer", "index", "--help"], &["man"]];
    let cases = words.into_iter().map(|words| (words, of_all)).chain([(&["du", "--help"][..], of_du)]);
    for (arguments, code) in cases {
        let full = fs::File::options().write(true).open("/dev/full").expect("a full device");
        let out = finish(onesweep(arguments).stdout(full), code);
        says(&out.stderr, &["standard output: cannot write: No space left on device"]);
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let out = finish(onesweep(arguments).stdout(writer), 0);
        assert!(out.stderr.is_empty(), "{}", text(&out.stderr));
    }
}

/// It is the directory that is not there, whatever is looked up in it.
#[test]
fn no_such_base() {
    let gone = "No such file or directory; check the name";
    for (base, why) in [("/no-such-folder-here", gone), ("/etc/hostname", "ot a directory")] {
        let out = finish(&mut onesweep(["tar", "-cf", "-", "-C", base, "x"]), 2);
        says(&out.stderr, &[&format!("onesweep: {base}: cannot enter"), why]);
        assert!(out.stdout.is_empty());
    }
}

#[test]
fn wrong_flags() {
    let cases: &[(&[&str], &[&str])] = &[
        (&["tar", "--no-such-flag", "-cf", "-", "."], &["--no-such-flag"]),
        (&["tar", "--order", "sideways", "-cf", "-", "."], &["sideways", "use one of auto, fragment, first-extent"]),
        (&["sum", "--algorithm", "crc9", "."], &["crc9", "use blake3, sha256 or md5"]),
        (&["sum", "--algorithm", "md5", "--budget", "lots", "."], &["lots", "--budget", "write 4096, 512K"]),
        (&["list", "-0", "--json", "."], &["--null", "--json"]),
        (&["no-such-command"], &["no-such-command"]),
        (&["tar", "-cf"], &["-f", "value is required"]),
        (&["tar", "-cf", "-"], &["<PATH>"]),
        (&["sum"], &["<PATH>"]),
    ];
    for (arguments, parts) in cases {
        let out = finish(&mut onesweep(*arguments), 2);
        says(&out.stderr, parts);
        says(&out.stderr, &["try '--help'"]);
        assert!(out.stdout.is_empty(), "{arguments:?}: {}", text(&out.stdout));
    }
}

/// A terminal is no place for an archive, but a file that cannot be made is named.
#[test]
fn an_output_that_cannot_be_made() {
    let out = finish(&mut onesweep(["tar", "-cf", "/no-such-folder-here/out.tar", "/etc/hostname"]), 2);
    says(&out.stderr, &["/no-such-folder-here/out.tar", "No such file or directory; check the name"]);
}

/// An ordinary user may not read some files; the others are delivered.
#[test]
fn no_permission() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    let root = image.root();
    fs::create_dir_all(root.join("open")).expect("a folder");
    fs::create_dir_all(root.join("shut")).expect("a folder");
    fs::write(root.join("open/readable"), "a").expect("a file");
    fs::write(root.join("open/unreadable"), "b").expect("a file");
    fs::write(root.join("shut/unreachable"), "c").expect("a file");
    run(Command::new("rmdir").arg(root.join("lost+found")));
    fs::set_permissions(root.join("open/unreadable"), fs::Permissions::from_mode(0o600)).expect("a mode");
    fs::set_permissions(root.join("shut"), fs::Permissions::from_mode(0o700)).expect("a mode");
    // The folder that cargo builds in may itself be closed to others.
    let tool = image.beside("onesweep");
    crate::run::copy_program(&crate::run::program(), &tool);
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&tool).args(arguments);
        command
    };
    let out = finish(as_nobody(&SUM).arg(&root), 1);
    let advice = "Permission denied; run as root, or leave it out with --exclude";
    says(&out.stderr, &["open/unreadable", "shut", advice]);
    assert_eq!(text(&out.stderr).matches(advice).count(), 2, "{}", text(&out.stderr));
    let delivered = sum_lines(&out.stdout);
    assert_eq!(delivered.len(), 1);
    assert!(text(&delivered[0].0).ends_with("open/readable"));
    // Device mode needs the device, and says that and what to do.
    let out = finish(as_nobody(&["sum", "--device", "--algorithm", "sha256"]).arg(&root), 2);
    says(&out.stderr, &["device", "Permission denied; be root, or leave out --device"]);
    assert!(!text(&out.stderr).contains("os error"), "{}", text(&out.stderr));
    // What can't be written can't be left out.
    let archive = root.join("no.tar");
    let out = finish(as_nobody(&["tar", "-cf"]).arg(archive).arg(root.join("open/readable")), 2);
    says(&out.stderr, &["no.tar", "Permission denied; run as root, or change its permissions"]);
    assert!(!text(&out.stderr).contains("--exclude"), "{}", text(&out.stderr));
    // To leave unreadable files out can be what is wanted.
    let tar = ["tar", "-cf", "-", "--ignore-failed-read"];
    let out = finish(as_nobody(&tar).arg(root.join("open")), 0);
    says(&out.stderr, &["open/unreadable", advice]);
}

/// Nothing that was named is left out in silence.
#[test]
fn a_named_pipe_is_told_of() {
    let folder = Folder::new();
    fs::create_dir_all(folder.join("")).expect("a folder");
    let (pipe, file) = (folder.join("pipe"), folder.join("file"));
    run(Command::new("mkfifo").arg(&pipe));
    fs::write(&file, "x").expect("a file");
    let out = finish(onesweep(SUM).arg(&pipe).arg(&file), 1);
    says(&out.stderr, &[&format!("{}: a pipe, not read", pipe.display())]);
    assert_eq!(sum_lines(&out.stdout).len(), 1);
    let out = finish(onesweep(["warm"]).arg(&pipe), 0);
    says(&out.stderr, &[&format!("{}: a pipe, not read", pipe.display())]);
}

/// A reader that stops half way, so that a file can be changed while the program waits in the middle of it.
struct Held {
    running: Child,
    taken: Vec<u8>,
}

impl Held {
    fn after(mut command: Command, bytes: usize) -> Self {
        let mut running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let mut taken = vec![0; bytes];
        running.stdout.as_mut().expect("a pipe").read_exact(&mut taken).expect("the start of the archive");
        Self { running, taken }
    }

    /// Exit code, everything that was written, and what was said.
    fn rest(mut self) -> (Option<i32>, Vec<u8>, Vec<u8>) {
        let out = self.running.wait_with_output().expect("the program ends");
        self.taken.extend(out.stdout);
        (out.status.code(), self.taken, out.stderr)
    }
}

fn archive_of_one_large_file(image: &Image, change: impl Fn(&fs::File)) -> (Option<i32>, Vec<u8>, Vec<u8>, Vec<u8>) {
    let path = image.root().join("large");
    let content = Rng::new(5).bytes(48 << 20);
    fs::write(&path, &content).expect("a file");
    fs::write(image.root().join("small"), "small").expect("a file");
    let mut tar = onesweep(["tar", "--large", "1M", "-cf", "-", "-C"]);
    tar.arg(image.root()).args(["large", "small"]);
    // Both files' headers and a mebibyte of content: the program is in the midst of the large file.
    let held = Held::after(tar, 1 << 20);
    change(&fs::File::options().write(true).open(&path).expect("the file"));
    let (code, archive, said) = held.rest();
    let kept = image.beside("held.tar");
    fs::write(&kept, &archive).expect("the archive");
    let large = output(Command::new("tar").arg("-xOf").arg(&kept).arg("large"));
    let small = output(Command::new("tar").arg("-xOf").arg(&kept).arg("small"));
    assert_eq!(text(&small), "small");
    assert_eq!(large.len(), content.len(), "the member has the size that its header says");
    let same = large.iter().zip(&content).take_while(|(a, b)| a == b).count();
    assert!(same >= 1 << 20, "the part that was read before the change");
    (code, large, content, said)
}

/// The header is out with the old size when the file shrinks: zeros fill it up, and the message and the code say so.
#[test]
fn a_file_that_shrinks_while_it_is_read() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let (code, large, content, said) = archive_of_one_large_file(&image, |file| file.set_len(24 << 20).expect("a cut"));
    assert_eq!(code, Some(1));
    says(
        &said,
        &["large: File shrank by 25165824 bytes; padding with zeros; archive it again when nobody writes to it"],
    );
    assert_eq!(large[..24 << 20], content[..24 << 20]);
    assert!(large[24 << 20..].iter().all(|byte| *byte == 0));
}

/// What is appended after the header is out is not in the archive; the rest is as it was.
#[test]
fn a_file_that_grows_while_it_is_read() {
    root_test!();
    let image = Image::new(Fs::Ext4, 256 << 20);
    let (code, large, content, said) = archive_of_one_large_file(&image, |file| {
        file.write_all_at(&[9; 100_000], 48 << 20).expect("growth");
    });
    assert_eq!(code, Some(1));
    says(
        &said,
        &["large: file changed as it was read: it grew while it was read; archive it again when nobody writes to it"],
    );
    assert!(large == content);
}

#[test]
fn a_full_disk_under_the_output() {
    root_test!();
    let folder = Folder::new();
    let (tiny, root) = (folder.join("tiny"), folder.join("root"));
    fs::create_dir(&tiny).expect("a folder");
    fs::create_dir(&root).expect("a folder");
    fs::write(root.join("a"), vec![1; 4 << 20]).expect("a file");
    run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none"]).arg(&tiny));
    let archive = tiny.join("out.tar");
    let out = finish(onesweep(["tar", "-cf"]).arg(&archive).arg("-C").arg(&root).arg("."), 2);
    says(&out.stderr, &["out.tar", "No space left on device; make room and run again"]);
    assert_eq!(files_in(&tiny), Vec::<PathBuf>::new(), "half an archive was left");
    let out = finish(onesweep(["copy"]).arg(&root).arg(tiny.join("copy")), 1);
    says(&out.stderr, &["No space left on device; make room and run again"]);
    let names = fs::File::options().write(true).open("/dev/full").expect("a full device");
    let mut tar = onesweep(["tar", "-cvf"]);
    let out = finish(tar.arg(folder.join("whole.tar")).arg("-C").arg(&root).arg(".").stdout(names), 1);
    says(&out.stderr, &["cannot write the names of the members: No space left on device"]);
    assert_eq!(text(&out.stderr).matches("the names of the members").count(), 1);
    let pages = tiny.join("pages");
    fs::create_dir(&pages).expect("a folder");
    let filled = fs::write(tiny.join("filler"), vec![1; 2 << 20]);
    assert!(filled.is_err(), "the disk is full");
    let out = finish(onesweep(["man"]).arg(&pages), 2);
    says(&out.stderr, &["No space left on device"]);
    assert_eq!(files_in(&pages), Vec::<PathBuf>::new(), "half a page was left");
}

/// Who copies to a device loses nothing but the copy.
#[test]
fn a_copy_replaces_no_pipe_and_no_device() {
    root_test!();
    let folder = Folder::new();
    let (root, there) = (folder.join("root"), folder.join("there"));
    fs::create_dir_all(&root).expect("a folder");
    fs::create_dir_all(there.join("root")).expect("a folder");
    for (name, make, kind) in [("pipe", "mkfifo", &[][..]), ("device", "mknod", &["c", "1", "3"])] {
        let node = there.join("root").join(name);
        run(Command::new(make).arg(&node).args(kind));
        let before = fs::symlink_metadata(&node).expect("the node");
        fs::write(root.join(name), "x").expect("a file");
        let named = finish(onesweep(["copy", "-T"]).arg(root.join(name)).arg(&node), 2);
        let below = finish(onesweep(["copy"]).arg(&root).arg(&there), 1);
        for out in [named, below] {
            says(&out.stderr, &[node.to_str().expect("a path"), name, "not replaced", "another destination"]);
            assert_eq!(text(&out.stderr).lines().count(), 1);
        }
        let after = fs::symlink_metadata(&node).expect("the node");
        assert_eq!((after.ino(), after.mode(), after.rdev()), (before.ino(), before.mode(), before.rdev()), "{name}");
        fs::remove_file(&node).expect("the node goes");
        fs::remove_file(root.join(name)).expect("the file goes");
    }
}

/// What nothing can be copied to is told once, and not for each file.
#[test]
fn a_copy_whose_destination_cannot_be_made() {
    let folder = Folder::new();
    let root = folder.join("root");
    fs::create_dir_all(root.join("below")).expect("folders");
    for number in 0..50 {
        fs::write(root.join("below").join(number.to_string()), "x").expect("a file");
    }
    fs::write(folder.join("file"), "x").expect("a file");
    let gone = "No such file or directory; check the name";
    for (to, why) in [("missing/deep", gone), ("file/copy", "Not a directory")] {
        let to = folder.join(to);
        let out = finish(onesweep(["copy", "-T"]).arg(root.join("below")).arg(&to), 2);
        says(&out.stderr, &[to.to_str().expect("a path"), "cannot make the directory", why]);
        assert_eq!(text(&out.stderr).lines().count(), 1, "{}", text(&out.stderr));
    }
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect()
}

/// The disk loses its second half under a mounted file system: files there fail by name, the others are delivered.
#[test]
fn a_disk_that_cannot_be_read() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 128 << 20);
    let mut rng = Rng::new(3);
    let root = image.root().join("files");
    fs::create_dir(&root).expect("a folder");
    for number in 0..90 {
        fs::write(root.join(format!("f{number:02}")), rng.bytes(1 << 20)).expect("a file");
    }
    let there: std::collections::BTreeMap<_, _> = crate::tree::sums(&[&root]);
    image.set_options("ro,noload");
    image.cold();
    // All inodes lie in the first half; the contents lie in both.
    fs::File::options().write(true).open(image.file()).expect("the image").set_len(64 << 20).expect("a cut");
    run(Command::new("losetup").arg("--set-capacity").arg(image.device()));
    for options in [&["--order", "fragment"][..], &["--order", "directory"], &["--device"], &["--strategy", "vanilla"]]
    {
        let out = finish(onesweep(SUM).args(options).arg(&root), 1);
        says(
            &out.stderr.split_inclusive(|b| *b == b'\n').take(10).collect::<Vec<_>>().concat(),
            &["Input/output error; the disk can't read it: see the kernel log"],
        );
        let delivered = sum_lines(&out.stdout);
        assert!((20..85).contains(&delivered.len()), "{options:?}: {} of 90 delivered", delivered.len());
        for (name, sum) in &delivered {
            assert_eq!(there.get(name), Some(sum), "{options:?}: {:?} came with other bytes", text(name));
        }
        let failed = there.keys().filter(|name| !delivered.iter().any(|(other, _)| other == *name));
        for name in failed {
            assert!(text(&out.stderr).contains(&text(name)), "{options:?}: no word about {:?}", text(name));
        }
    }
}

/// A name whose file could not be read must not become a link to a member that the archive lacks.
#[test]
fn another_name_of_a_file_that_failed_fails_too() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 128 << 20);
    let root = image.root().join("files");
    let folders = [root.join("first"), root.join("second")];
    folders.iter().for_each(|folder| fs::create_dir_all(folder).expect("a folder"));
    for number in 0..90 {
        let name = format!("f{number:02}");
        fs::write(folders[0].join(&name), Rng::new(number).bytes(1 << 20)).expect("a file");
        fs::hard_link(folders[0].join(&name), folders[1].join(&name)).expect("a link");
    }
    image.set_options("ro,noload");
    image.cold();
    fs::File::options().write(true).open(image.file()).expect("the image").set_len(64 << 20).expect("a cut");
    run(Command::new("losetup").arg("--set-capacity").arg(image.device()));
    let archive = image.beside("a.tar");
    for options in [&["--order", "directory"][..], &["--order", "inode-per-directory", "--catalog-limit", "4K"]] {
        let mut tar = onesweep(["tar", "-cf"]);
        finish(tar.arg(&archive).args(options).arg("-C").arg(&root).arg("."), 1);
        let listed = output(Command::new("tar").arg("-tvf").arg(&archive));
        let listed = text(&listed);
        let files = listed.lines().filter(|line| line.starts_with('-')).count();
        let links = listed.lines().filter(|line| line.starts_with('h')).count();
        assert!((20..85).contains(&files), "{options:?}: {files} of 90 files");
        assert_eq!(files, links, "{options:?}");
    }
}

/// An archive that is interrupted is not there, neither under its own name nor as a remnant.
#[test]
fn an_interrupt_leaves_no_half_archive() {
    root_test!();
    let folder = Folder::new();
    let (root, out) = (folder.join("root"), folder.join("out"));
    fs::create_dir(&root).expect("a folder");
    fs::create_dir(&out).expect("a folder");
    // 32 GiB of zeros take long enough to be interrupted.
    fs::File::create(root.join("zeros")).and_then(|file| file.set_len(32 << 30)).expect("a sparse file");
    let mut tar = interruptible(["tar", "-cf"]);
    tar.arg(out.join("a.tar")).arg("-C").arg(&root).arg(".").stderr(Stdio::piped());
    let mut running = tar.spawn().expect("it starts");
    while !files_in(&out).iter().any(|file| fs::metadata(file).is_ok_and(|metadata| metadata.len() > 0)) {
        assert!(running.try_wait().expect("its state").is_none(), "it ended before it wrote anything");
        thread::sleep(Duration::from_millis(5));
    }
    interrupt(&running);
    let status = running.wait().expect("it ends");
    assert_eq!(status.code(), Some(130), "{status}");
    assert_eq!(files_in(&out), Vec::<PathBuf>::new());
}

/// Who asks twice has no patience: the program ends at once, but still leaves no remnant.
#[test]
fn a_second_interrupt_leaves_no_half_archive() {
    root_test!();
    let folder = Folder::new();
    let (root, out) = (folder.join("root"), folder.join("out"));
    fs::create_dir(&root).expect("a folder");
    fs::create_dir(&out).expect("a folder");
    fs::File::create(root.join("zeros")).and_then(|file| file.set_len(32 << 30)).expect("a sparse file");
    let mut tar = interruptible(["tar", "-cf"]);
    let mut running = tar.arg(out.join("a.tar")).arg("-C").arg(&root).arg(".").spawn().expect("it starts");
    while !files_in(&out).iter().any(|file| fs::metadata(file).is_ok_and(|metadata| metadata.len() > 0)) {
        assert!(running.try_wait().expect("its state").is_none(), "it ended before it wrote anything");
        thread::sleep(Duration::from_millis(5));
    }
    // Both wait when it goes on, so that it has no time to end by the first alone.
    for signal in ["-STOP", "-INT", "-TERM", "-CONT"] {
        run(Command::new("kill").args([signal, &running.id().to_string()]));
    }
    let status = running.wait().expect("it ends");
    assert_eq!(status.code(), Some(130), "{status}");
    assert_eq!(files_in(&out), Vec::<PathBuf>::new());
}

/// Files that are read at a rate that leaves time for an interrupt, from a disk that nothing of them is cached of.
fn slow_files() -> (Image, PathBuf) {
    let mut image = Image::new(Fs::Ext4, 128 << 20);
    let root = image.root().join("tree");
    fs::create_dir(&root).expect("a folder");
    for number in 0..40 {
        fs::write(root.join(format!("f{number:02}")), Rng::new(number).bytes(512 << 10)).expect("a file");
    }
    fs::write(root.join("large"), Rng::new(99).bytes(8 << 20)).expect("a file");
    crate::tree::sync(&root);
    image.cold();
    (image, root)
}

const SLOWLY: [&str; 8] = ["--bwlimit", "2M", "--budget", "2M", "--large", "1M", "--max-request", "512K"];

pub(crate) fn interrupt(running: &Child) {
    run(Command::new("kill").args(["-INT", &running.id().to_string()]));
}

/// What a copy that is interrupted has made is whole, and there is nothing else.
#[test]
fn an_interrupt_leaves_no_half_copy() {
    root_test!();
    let (image, root) = slow_files();
    let copy = image.beside("copy");
    let mut running = interruptible(["copy"]).args(SLOWLY).arg(&root).arg(&copy).spawn().expect("it starts");
    while !copy.exists() || files_in(&copy).len() < 3 {
        assert!(running.try_wait().expect("its state").is_none(), "it ended before it was interrupted");
        thread::sleep(Duration::from_millis(5));
    }
    interrupt(&running);
    let status = running.wait().expect("it ends");
    assert_eq!(status.code(), Some(130), "{status}");
    let made = files_in(&copy);
    assert!(made.len() < 41, "it was not interrupted");
    for path in made {
        let name = path.file_name().expect("a name");
        let original = root.join(name);
        assert!(original.exists(), "{name:?} is a remnant");
        assert!(fs::read(&original).expect("a file") == fs::read(&path).expect("its copy"), "{name:?} is half a file");
    }
}

/// Sums that were written before the interrupt are right, and no line is cut.
#[test]
fn an_interrupt_leaves_no_wrong_sum() {
    root_test!();
    let (_image, root) = slow_files();
    let mut sum = interruptible(SUM);
    let running = sum.args(SLOWLY).arg(&root).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut running = running.expect("it starts");
    // Sums come in rows; what has been read tells how far it is.
    while disk_bytes_read(&running) < 2 << 20 {
        assert!(running.try_wait().expect("its state").is_none(), "it ended before it was interrupted");
        thread::sleep(Duration::from_millis(5));
    }
    interrupt(&running);
    let out = running.wait_with_output().expect("it ends");
    assert_eq!(out.status.code(), Some(130), "{} {}", out.status, text(&out.stderr));
    says(&out.stderr, &["interrupted"]);
    assert!(out.stdout.is_empty() || out.stdout.ends_with(b"\n"), "a line is cut");
    let delivered = sum_lines(&out.stdout);
    assert!(delivered.len() < 41, "{} files were summed", delivered.len());
    let there = crate::tree::sums(&[&root]);
    for (name, sum) in delivered {
        assert_eq!(there.get(&name), Some(&sum), "{:?}", text(&name));
    }
}

/// A reader that has stopped, but not ended, takes no more bytes: one interrupt is enough all the same.
#[test]
fn an_interrupt_ends_what_nobody_reads() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = "a name that fills a pipe sooner".repeat(6);
    for number in 0..1000 {
        fs::write(folder.path().join(format!("{number} {name}")), "x").expect("a file");
    }
    let commands: [&[&str]; 4] = [&["tar", "-cf", "-"], &["sum"], &["sum", "--sort"], &["list"]];
    for arguments in commands {
        let mut running =
            interruptible(arguments).arg(folder.path()).stdout(Stdio::piped()).spawn().expect("it starts");
        let pipe = running.stdout.take().expect("a pipe");
        let in_pipe = || rustix::io::ioctl_fionread(&pipe).expect("what is in the pipe");
        while in_pipe() < 60_000 {
            assert!(running.try_wait().expect("its state").is_none(), "{arguments:?} ended before it was interrupted");
            thread::sleep(Duration::from_millis(5));
        }
        interrupt(&running);
        let status = running.wait().expect("it ends");
        assert_eq!(status.code(), Some(130), "{arguments:?}: {status}");
    }
}

/// Whoever reads may stop: `onesweep … | head -c 1`.
#[test]
fn a_broken_pipe_is_no_error() {
    let folder = tempfile::tempdir().expect("a folder");
    for number in 0..200 {
        fs::write(folder.path().join(format!("{number}")), vec![1; 20_000]).expect("a file");
    }
    let commands: [&[&str]; 3] = [&["tar", "-cf", "-"], &["sum", "--algorithm", "md5"], &["list"]];
    for arguments in commands {
        let mut command = onesweep(arguments);
        // Lists are short: name the folder often enough to fill the pipe.
        let paths = vec![Path::new("."); if arguments[0] == "tar" { 1 } else { 40 }];
        let held = command.args(paths).current_dir(folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut running = held.expect("it starts");
        let mut one = [0];
        running.stdout.as_mut().expect("a pipe").read_exact(&mut one).expect("a byte");
        drop(running.stdout.take());
        let out = running.wait_with_output().expect("it ends");
        assert_eq!(out.status.code(), Some(0), "{arguments:?}: {} {}", out.status, text(&out.stderr));
        assert_eq!(text(&out.stderr), "", "{arguments:?}");
    }
}

/// What went wrong before nobody read any more is told by the code all the same; a pipe by name is an output like any other.
#[test]
fn a_broken_pipe_hides_no_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let in_folder = |name: &str| folder.path().join(name);
    fs::write(in_folder("file"), "as it is now").expect("a file");
    let line = format!("{}  {}\n", "0".repeat(32), in_folder("file").display());
    fs::write(in_folder("manifest"), line.repeat(5000)).expect("a manifest");
    let mut check = onesweep(["sum", "--check", "--algorithm", "md5"]);
    let mut running = check.arg(in_folder("manifest")).stdout(Stdio::piped()).spawn().expect("it starts");
    drop(running.stdout.take());
    assert_eq!(running.wait().expect("it ends").code(), Some(1), "the mismatch counts");

    let pipe = in_folder("pipe");
    run(Command::new("mkfifo").arg(&pipe));
    fs::write(in_folder("large"), vec![1; 4 << 20]).expect("a file");
    let mut tar = onesweep(["tar", "-cf"]);
    let mut running = tar.arg(&pipe).arg(in_folder("large")).stderr(Stdio::piped()).spawn().expect("it starts");
    fs::File::open(&pipe).and_then(|mut end| end.read_exact(&mut [0])).expect("the start of the archive");
    let mut said = Vec::new();
    running.stderr.take().expect("a pipe").read_to_end(&mut said).expect("its messages");
    assert_eq!(running.wait().expect("it ends").code(), Some(2));
    says(&said, &[&pipe.display().to_string(), "Broken pipe"]);
}

/// A program that a script put into the background lives on when the user interrupts the script.
#[test]
fn an_interrupt_that_was_ignored_from_the_start_is_no_interrupt() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("large"), vec![1; 4 << 20]).expect("a file");
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' INT; exec \"$0\" tar -cf - -C \"$1\" ."]).arg(crate::run::program()).arg(folder.path());
    let mut running = shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut archive = vec![0];
    let mut out = running.stdout.take().expect("a pipe");
    out.read_exact(&mut archive).expect("the start of the archive");
    interrupt(&running);
    out.read_to_end(&mut archive).expect("the rest");
    assert!(running.wait().expect("it ends").success());
    assert!(archive.len() > 4 << 20);
}

/// An archive is still made of what can be read, and the code tells.
#[test]
fn an_archive_of_what_can_be_read() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    fs::write(image.root().join("good"), "good").expect("a file");
    let archive = image.beside("a.tar");
    let mut tar = onesweep(["tar", "-cf"]);
    tar.arg(&archive).arg("-C").arg(image.root()).args(["good", "missing"]);
    let out = tar.output().expect("it runs");
    assert_eq!(out.status.code(), Some(1), "{}", out.status);
    says(&out.stderr, &["missing", "No such file or directory; check the name"]);
    assert_eq!(members(&archive), [b"good"]);
    // With nothing to read nothing is written.
    let none = image.beside("none.tar");
    let out = finish(onesweep(["tar", "-cf"]).arg(&none).arg("-C").arg(image.root()).args(["missing", "gone"]), 2);
    says(&out.stderr, &["missing", "gone", "No such file or directory; check the name"]);
    assert!(!none.exists());
}
