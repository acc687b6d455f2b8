//! A tree that the kernel shows: as the source in all, helped wherever somebody walks over it, and in nobody's way.

use std::{
    fs::{self, File},
    io::{Read, Write},
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{Advice, fadvise},
    io::Errno,
    process::{Pid, Resource, Rlimit, Signal, prlimit},
};

use crate::{
    cache::pages,
    held_back::{self, in_memory},
    image::{Fs, Image, mounts_below},
    peer_mount::wait_until,
    run::{finish, long, onesweep, output, root_test, run, text},
    tree::{self, Rng, Varied},
    view::{OLDER_KERNEL, THIS_KERNEL, View, brought_in, inodes, place},
};

#[test]
fn what_the_kernel_shows_is_the_source() {
    root_test!();
    for fs in Fs::MAIN {
        let image = Image::new(fs, 300 << 20);
        let (root, dir) = place(&image);
        tree::varied(&root, fs, &Varied { files: 160, sparse: 40 << 20 }, 8);
        crate::run::copy_program(Path::new("/usr/bin/id"), &root.join("id"));
        fs::set_permissions(root.join("id"), fs::Permissions::from_mode(0o4755)).expect("a mode");
        run(Command::new("mknod").arg(root.join("null")).args(["c", "1", "3"]));
        fs::write(root.join("file"), "bytes").expect("a file");
        let accessed = || fs::metadata(root.join("file")).expect("a file").atime_nsec();
        let before = accessed();
        let view = View::by_kernel(&root, &dir, &["--verbose"]);
        assert!(inodes(&dir) == inodes(&root), "{}: inodes differ", fs.name());
        assert!(tree::manifest(&dir) == tree::manifest(&root), "{}: entries differ", fs.name());
        let device = |path: &Path| fs::metadata(path).expect("a directory").dev();
        assert_eq!(device(&dir), device(&root));
        assert_eq!((fs::read(dir.join("file")).expect("a file"), accessed()), (b"bytes".to_vec(), before));
        let written = fs::write(dir.join("file"), "other").expect_err("it is only to be read");
        assert_eq!(written.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
        let device = File::open(dir.join("null")).expect_err("a device");
        assert_eq!(device.raw_os_error(), Some(Errno::ACCESS.raw_os_error()));
        let mut as_nobody = Command::new("setpriv");
        as_nobody.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(dir.join("id")).arg("-u");
        assert_eq!(text(&output(&mut as_nobody)), "65534\n");
        // What changes in the source has changed.
        fs::write(root.join("file"), "other bytes").expect("a file");
        assert_eq!(fs::read(dir.join("file")).expect("a file"), b"other bytes");
        view.signal(Signal::INT);
        assert!(view.end(Some(0)).contains("by a mount of the same directory"));
        assert!(fs::read_dir(&dir).expect("a folder").next().is_none());
        let view = View::by_kernel(&root, &dir, &["--read-write"]);
        fs::write(dir.join("new"), "through the view").expect("a file");
        assert_eq!(fs::read(root.join("new")).expect("a file"), b"through the view");
        drop(view);
    }
}

/// Small files in directories one below the other, cold, and how many.
fn cold_tree(image: &mut Image, root: &Path) -> usize {
    let mut rng = Rng::new(21);
    for number in 0..400_u64 {
        let path = root.join(format!("d{}/e{}/f{number:03}", number % 7, number % 3));
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, rng.bytes(3000 + number as usize * 40)).expect("a file");
    }
    tree::sync(root);
    image.cold();
    400
}

fn entries(path: &Path) -> Vec<PathBuf> {
    fs::read_dir(path).expect("a folder").map(|entry| entry.expect("an entry").path()).collect()
}

fn archive_of(root: &Path) -> Command {
    let mut command = Command::new("tar");
    command.args(["--format=gnu", "--sort=name", "-cf", "-", "-C"]).arg(root).arg(".");
    command
}

/// Files that were brought in, and of how many openings the kernel asked.
fn figures(said: &str) -> (usize, u64) {
    let line = said.lines().find(|line| line.contains("brought in by")).unwrap_or_else(|| panic!("{said}"));
    let asked = line.split("; ").find_map(|part| part.split_once(" opening").map(|(number, _)| number));
    (brought_in(said.as_bytes()).0, asked.map_or(0, |asked| asked.parse().expect("a number")))
}

#[test]
fn a_cold_walk_is_swept_ahead_of_and_a_warm_one_is_left_alone() {
    root_test!(alone);
    for (fs, kernel) in Fs::MAIN.map(|fs| (fs, THIS_KERNEL)).into_iter().chain([(Fs::Ext4, OLDER_KERNEL)]) {
        let mut image = Image::new(fs, 300 << 20);
        let (root, dir) = place(&image);
        let files = cold_tree(&mut image, &root);
        let view = View::on(kernel, &[], &root, &dir, &["--verbose"]);
        let last = entries(&root.join("d6/e2"));
        let first = held_back::until(|| in_memory(&last) > 0, &mut archive_of(&dir)).stdout;
        view.signal(Signal::INT);
        let said = view.end(Some(0));
        // But for what is read before it is known to be a walk.
        assert!(figures(&said).0 >= files * 3 / 4, "{}: {said}", fs.name());
        assert!(first == output(&mut archive_of(&root)), "{}: another archive", fs.name());
        let view = View::on(kernel, &[], &root, &dir, &["--verbose"]);
        assert!(first == output(&mut archive_of(&dir)), "{}: another archive", fs.name());
        view.signal(Signal::INT);
        let said = view.end(Some(0));
        let (brought, asked) = figures(&said);
        // Nobody is asked for what is in memory, but for a page or another that the kernel has taken meanwhile.
        assert!(brought == 0 && asked < 200, "{}: {said}", fs.name());
    }
}

/// Nor is a view asked for what another one looks at by mounts of its own.
#[test]
fn two_views_of_a_tree_help_their_own_readers_alone() {
    root_test!(alone);
    let mut image = Image::new(Fs::Ext4, 300 << 20);
    let (root, dir) = place(&image);
    let other = image.beside("shown once more");
    for (way, reads_by_the_first) in [(&[][..], false), (&[], true), (&["--fuse"], false)] {
        let files = cold_tree(&mut image, &root);
        let first = View::by_kernel(&root, &dir, &["--verbose"]);
        let second = View::by(way, &root, &other, &["--verbose"]);
        let (read, helping, idle) = match reads_by_the_first {
            true => (&dir, first, second),
            false => (&other, second, first),
        };
        let last = entries(&root.join("d6/e2"));
        let archive = held_back::until(|| in_memory(&last) > 0, &mut archive_of(read)).stdout;
        let [said, said_beside] = [helping, idle].map(|view| {
            view.signal(Signal::INT);
            view.end(Some(0))
        });
        assert!(figures(&said).0 >= files * 3 / 4, "{way:?}: {said}");
        assert_eq!(figures(&said_beside), (0, 0), "{way:?}: {said_beside}");
        assert!(archive == output(&mut archive_of(&root)), "another archive");
    }
}

/// Where the kernel was built so that it asks nobody.
#[test]
fn what_the_kernel_cannot_show_is_shown_by_fuse() {
    root_test!();
    let image = Image::new(Fs::Ext4, 100 << 20);
    let (root, dir) = place(&image);
    fs::create_dir_all(&root).expect("a folder");
    fs::write(root.join("file"), "bytes").expect("a file");
    let view = View::on("permissions", &[], &root, &dir, &["--verbose"]);
    assert_eq!(fs::read(dir.join("file")).expect("a file"), b"bytes");
    assert!(text(&output(Command::new("findmnt").args(["-no", "FSTYPE"]).arg(&dir))).starts_with("fuse"));
    view.signal(Signal::INT);
    let said = view.end(Some(0));
    assert!(said.contains("by FUSE, since the kernel can't show it itself (Invalid argument"), "{said}");
}

/// As borg reads: what it has read the kernel is to forget. Files that are gone before it comes to them are no reason to bring all in
/// that it has read.
#[test]
fn what_was_read_and_forgotten_is_not_brought_in_again() {
    root_test!(alone);
    let mut image = Image::new(Fs::Ext4, 300 << 20);
    let (root, dir) = place(&image);
    let files = cold_tree(&mut image, &root);
    let view = View::by_kernel(&root, &dir, &["--verbose"]);
    let listed = |path: &Path| {
        let mut paths = entries(path);
        paths.sort();
        paths
    };
    let forget = |path: &Path| {
        let mut file = File::open(path).expect("a file");
        file.read_to_end(&mut Vec::new()).expect("its bytes");
        fadvise(&file, 0, None, Advice::DontNeed).expect("it is forgotten");
    };
    let folders: Vec<PathBuf> = listed(&dir).iter().flat_map(|path| listed(path)).collect();
    for (number, folder) in folders.iter().enumerate() {
        let inside = listed(folder);
        if number == folders.len() / 2 {
            let coming = listed(&root.join("d6/e2"));
            wait_until("all is brought in", || pages(&coming).values().all(|pages| *pages > 0));
            // The sweep ends when it has brought in the last one.
            thread::sleep(Duration::from_millis(300));
            // Those by which it is told whether the next folder is in memory, and not through the view.
            let next = root.join(folders[number + 1].strip_prefix(&dir).expect("a path below"));
            let unsorted = entries(&next);
            unsorted.iter().step_by(unsorted.len() / 2).take(2).for_each(|path| forget(path));
        }
        if number == folders.len() / 2 + 1 {
            // From when that is known, the kernel asks.
            thread::sleep(Duration::from_millis(100));
        }
        inside.iter().for_each(|path| forget(path));
    }
    view.signal(Signal::INT);
    let said = view.end(Some(0));
    let (brought, sweeps) = brought_in(said.as_bytes());
    // A walk that has begun once more would have swept by now, or been ended while it looked at the tree.
    assert!(sweeps == 1 && brought <= files && !said.contains("before the trees were known"), "{said}");
}

/// Content that isn't in memory is brought in, though all metadata are; also where there is one directory alone.
#[test]
fn a_walk_over_what_lacks_content_alone_is_swept_ahead_of() {
    root_test!(alone);
    let mut image = Image::new(Fs::Ext4, 300 << 20);
    let (root, dir) = place(&image);
    let files = cold_tree(&mut image, &root);
    let mut rng = Rng::new(22);
    fs::create_dir(root.join("flat")).expect("a folder");
    for number in 0..400 {
        fs::write(root.join(format!("flat/{number}")), rng.bytes(9000)).expect("a file");
    }
    tree::sync(&root);
    for folder in [root.join("flat"), root.clone()] {
        image.cold();
        run(Command::new("du").arg(&root).stdout(Stdio::null()));
        let view = View::by_kernel(&folder, &dir, &["--verbose"]);
        let whole = tree::files(&folder);
        let is_ahead = || in_memory(&whole) > whole.len() / 2;
        let archive = held_back::until(is_ahead, &mut archive_of(&dir)).stdout;
        view.signal(Signal::INT);
        let said = view.end(Some(0));
        assert!(figures(&said).0 >= files * 3 / 4, "{}: {said}", folder.display());
        assert!(archive == output(&mut archive_of(&folder)), "another archive");
    }
}

fn killed(view: &mut View) {
    let mut running = view.running.take().expect("it runs");
    running.kill().expect("it is killed");
    running.wait().expect("it ends");
}

#[test]
fn a_killed_one_is_read_on_and_followed_by_another_one() {
    // All that is in memory goes.
    root_test!(alone);
    let mut image = Image::new(Fs::Ext4, 300 << 20);
    let (root, dir) = place(&image);
    let files = cold_tree(&mut image, &root);
    let whole = output(&mut archive_of(&root));
    for turn in 0..if long() { 100 } else { 5 } {
        run(Command::new("sync").arg("-f").arg(&root));
        fs::write("/proc/sys/vm/drop_caches", "3").expect("a setting");
        let mut view = View::by_kernel(&root, &dir, &["--limit", "1M"]);
        // In the middle of it.
        let mut reading = archive_of(&dir).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut archive = vec![0; 1 + turn * 37_123 % 400_000];
        reading.stdout.as_mut().expect("a pipe").read_exact(&mut archive).expect("bytes");
        killed(&mut view);
        reading.stdout.take().expect("a pipe").read_to_end(&mut archive).expect("bytes");
        assert!(reading.wait().expect("it ends").success());
        assert!(archive == whole, "another archive");
        assert_eq!((tree::manifest(&dir).len(), mounts_below(&dir).len()), (files + 29, 1));
        // Not dropped: what was left there has to stay.
        std::mem::forget(view);
    }
    let view = View::by_kernel(&root, &dir, &[]);
    assert_eq!(mounts_below(&dir).len(), 1, "nothing lies below it");
    for way in [&[][..], &["--fuse"]] {
        let out = finish(onesweep(["view"]).args(way).args([&root, &dir]), 2);
        assert!(text(&out.stderr).contains("another view is shown there"), "{}", text(&out.stderr));
    }
    drop(view);
    // A mount of somebody else's is not taken away.
    run(Command::new("mount").arg("--bind").arg(&root).arg(&dir));
    let out = finish(onesweep(["view"]).args([&root, &dir]), 2);
    assert!(text(&out.stderr).contains("it lies in the tree"), "{}", text(&out.stderr));
    assert_eq!(mounts_below(&dir).len(), 1);
    run(Command::new("umount").arg(&dir));
}

#[test]
fn who_still_reads_it_at_its_end_reads_on() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    let (root, dir) = place(&image);
    fs::create_dir_all(root.join("below")).expect("a folder");
    fs::write(root.join("below/file"), "bytes").expect("a file");
    for _ in 0..5 {
        let view = View::by_kernel(&root, &dir, &[]);
        let mut used = File::open(dir.join("below/file")).expect("a file");
        view.signal(Signal::TERM);
        assert_eq!(view.end(Some(0)), "");
        assert!(mounts_below(&dir).is_empty());
        let mut bytes = String::new();
        used.read_to_string(&mut bytes).expect("it is read");
        assert_eq!(bytes, "bytes");
    }
    // Another one may unmount it.
    let view = View::by_kernel(&root, &dir, &[]);
    run(Command::new("umount").arg(&dir));
    assert_eq!(view.end(Some(0)), "");
    assert!(!Path::new("/run/onesweep-view").exists() || notes_of(&dir).is_empty(), "it has left a note");
}

/// What is noted of mounts at a place.
fn notes_of(dir: &Path) -> Vec<PathBuf> {
    let notes = fs::read_dir("/run/onesweep-view").into_iter().flatten().flatten().map(|entry| entry.path());
    let place = dir.to_str().expect("text").to_owned();
    notes.filter(|note| fs::read_to_string(note).is_ok_and(|text| text.ends_with(&place))).collect()
}

/// Who waits can be killed, and the others go on.
#[test]
fn who_waits_for_what_comes_can_be_killed() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 300 << 20);
    let (root, dir) = place(&image);
    for turn in 0..6 {
        cold_tree(&mut image, &root);
        let view = View::by_kernel(&root, &dir, &["--limit", "1M"]);
        let mut reading = archive_of(&dir).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut some = vec![0; 1 + turn * 30_000];
        reading.stdout.as_mut().expect("a pipe").read_exact(&mut some).expect("bytes");
        reading.kill().expect("it is killed");
        reading.wait().expect("it ends");
        assert!(output(&mut archive_of(&dir)) == output(&mut archive_of(&root)), "another archive");
        view.signal(Signal::INT);
        view.end(Some(0));
    }
}

/// A view in a group of its own, as a shell's: where nobody could continue it, the kernel stops nothing.
fn view_of_a_shell(root: &Path, dir: &Path, options: &[&str]) -> View {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,TSTP"]).arg(crate::run::program()).arg("view").args(options);
    View::started(command.arg(root).arg(dir).process_group(0), dir)
}

fn is_stopped(view: &View) -> bool {
    let daemon = view.running.as_ref().expect("it runs").id();
    let status = fs::read_to_string(format!("/proc/{daemon}/status")).expect("it is there");
    status.lines().any(|line| line.starts_with("State:\tT"))
}

fn stop(view: &View) {
    view.signal(Signal::TSTP);
    wait_until("it is not stopped", || is_stopped(view));
}

fn go_on(view: &View) {
    view.signal(Signal::CONT);
    wait_until("it does not go on", || !is_stopped(view));
}

/// By Ctrl-Z. Who is stopped answers nobody.
#[test]
fn who_walks_over_a_view_that_is_stopped_reads_on() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 300 << 20);
    let (root, dir) = place(&image);
    cold_tree(&mut image, &root);
    let view = view_of_a_shell(&root, &dir, &["--limit", "256K", "--verbose"]);
    // It stands in the middle, so that the kernel asks.
    let mut walking = walk_that_stands(&dir.join("d0"));
    for other in ["d1", "d2"] {
        stop(&view);
        let archive = image.beside(other);
        let mut tar = Command::new("tar");
        let mut reading = Beside::start(tar.arg("-cf").arg(&archive).arg("-C").arg(dir.join(other)).arg("."));
        wait_until("who reads waits for who is stopped", || reading.has_ended());
        reading.said();
        let compare = output(Command::new("tar").arg("-df").arg(&archive).arg("-C").arg(root.join(other)));
        assert!(is_stopped(&view) && compare.is_empty(), "{}", text(&compare));
        go_on(&view);
    }
    assert!(!walking.has_ended());
    assert!(walking.said().len() > 100_000);
    view.signal(Signal::INT);
    let said = view.end(Some(0));
    assert!(figures(&said).1 > 0, "the kernel asks: {said}");
}

#[test]
fn who_walks_over_a_view_that_was_stopped_is_helped() {
    root_test!(alone);
    let mut image = Image::new(Fs::Ext4, 300 << 20);
    let (root, dir) = place(&image);
    let files = cold_tree(&mut image, &root);
    let view = view_of_a_shell(&root, &dir, &["--verbose"]);
    for _ in 0..2 {
        stop(&view);
        go_on(&view);
    }
    let last = entries(&root.join("d6/e2"));
    let archive = held_back::until(|| in_memory(&last) > 0, &mut archive_of(&dir)).stdout;
    view.signal(Signal::INT);
    let said = view.end(Some(0));
    assert!(figures(&said).0 >= files * 3 / 4, "{said}");
    assert!(archive == output(&mut archive_of(&root)), "another archive");
}

/// Has a lease on the file `$1` from before anybody reads it, tells so, and gives it back when it is asked, a moment later; with a second word, when it is also told to.
const LEASE: &str = r#"
import fcntl, os, signal, sys, time
file = os.open(sys.argv[1], os.O_RDWR)
def broken(number, frame):
    # As a server does that has to ask a client first: who opens the file meanwhile waits.
    if len(sys.argv) > 2:
        os.read(0, 1)
    time.sleep(0.3)
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    print("given back", flush=True)
signal.signal(signal.SIGIO, broken)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
while True:
    signal.pause()
"#;

struct Lease(Beside);

impl Lease {
    fn on(file: &Path, words: &[&str]) -> Self {
        let mut command = Command::new("python3");
        command.args(["-c", LEASE]).arg(file).args(words).stdin(Stdio::piped());
        let mut running = Beside::start(&mut command);
        assert_eq!(running.reads(5), b"held\n");
        Self(running)
    }

    /// Gives it back to who wants it.
    fn give_back(&mut self) {
        self.0.0.stdin.as_mut().expect("a pipe").write_all(b"now\n").expect("it listens");
    }
}

/// A program that runs beside others, no longer than this is there.
struct Beside(Child);

impl Beside {
    fn start(command: &mut Command) -> Self {
        Self(command.stdout(Stdio::piped()).spawn().expect("it starts"))
    }

    /// So many bytes of what it says.
    fn reads(&mut self, bytes: usize) -> Vec<u8> {
        let mut said = vec![0; bytes];
        self.0.stdout.as_mut().expect("a pipe").read_exact(&mut said).expect("bytes");
        said
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("it is ours").is_some()
    }

    /// What it has said, when it has ended well.
    fn said(mut self) -> Vec<u8> {
        let mut said = Vec::new();
        self.0.stdout.take().expect("a pipe").read_to_end(&mut said).expect("bytes");
        assert!(self.0.wait().expect("it ends").success());
        said
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A cold walk that stands still in the middle, so that the kernel goes on to ask.
fn walk_that_stands(dir: &Path) -> Beside {
    let mut walking = Beside::start(&mut archive_of(dir));
    walking.reads(1);
    walking
}

/// As a server of files has one: it is waited for, and nobody is refused anything.
#[test]
fn a_file_on_which_somebody_has_a_lease_is_read() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 300 << 20);
    let (root, dir) = place(&image);
    cold_tree(&mut image, &root);
    let leased = root.join("d0/e0/leased");
    let mut file = File::create(&leased).expect("a file");
    file.write_all(&[7; 5000]).expect("bytes");
    drop(file);
    tree::sync(&root);
    image.cold();
    let _lease = Lease::on(&leased, &[]);
    let view = View::by_kernel(&root, &dir, &["--verbose"]);
    // Not tar, which waits for no lease, without a view either.
    let read = |root: &Path| {
        let mut all = Command::new("sh");
        output(all.args(["-c", "find . -type f | sort | xargs cat"]).current_dir(root))
    };
    let shown = read(&dir);
    view.signal(Signal::INT);
    let said = view.end(Some(0));
    assert!(figures(&said).1 > 0 && shown == read(&root), "other bytes: {said}");
}

/// Each listener that is told of such a file waits for the lease. Who opens other files has nothing to do with that.
#[test]
fn leases_are_waited_for_by_who_opens_those_files_alone() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 300 << 20);
    let (root, dir) = place(&image);
    fs::create_dir_all(root.join("beside")).expect("a folder");
    let names = ["a", "b", "c", "d"];
    for name in names {
        fs::write(root.join("beside").join(name), name).expect("a file");
    }
    fs::write(root.join("beside/other"), "bytes").expect("a file");
    cold_tree(&mut image, &root);
    let mut leases = names.map(|name| Lease::on(&root.join("beside").join(name), &["told"]));
    let view = View::by_kernel(&root, &dir, &["--limit", "1M", "--verbose"]);
    let walking = walk_that_stands(&dir.join("d0"));
    let read = |name: &str| Beside::start(Command::new("cat").arg(dir.join("beside").join(name)));
    let mut waiting = names.map(read);
    // So that all of them are asked about.
    thread::sleep(Duration::from_millis(300));
    let mut others: Vec<Beside> = (0..4).map(|_| read("other")).collect();
    // The kernel takes a lease away after 45 seconds where nobody has set another time.
    let began = Instant::now();
    while !others.iter_mut().all(Beside::has_ended) {
        assert!(began.elapsed() < Duration::from_secs(20), "who opens something else waits, too");
        thread::sleep(Duration::from_millis(10));
    }
    assert!(others.into_iter().all(|other| other.said() == b"bytes"));
    assert!(!waiting.iter_mut().any(Beside::has_ended), "a lease was passed over");
    // Who waits for one isn't refused by the end of the view.
    view.signal(Signal::INT);
    leases.iter_mut().for_each(Lease::give_back);
    drop(walking);
    let said = view.end(Some(0));
    for (name, waiting) in names.iter().zip(waiting) {
        assert_eq!(waiting.said(), name.as_bytes(), "{said}");
    }
}

/// The kernel asks nobody about them.
#[test]
fn a_named_pipe_is_opened_as_without_a_view() {
    root_test!();
    let mut image = Image::new(Fs::Ext4, 300 << 20);
    let (root, dir) = place(&image);
    fs::create_dir_all(&root).expect("a folder");
    let names = ["one", "two"];
    run(Command::new("mkfifo").args(names.map(|name| root.join(name))));
    cold_tree(&mut image, &root);
    let view = View::by_kernel(&root, &dir, &["--limit", "1M"]);
    let walking = walk_that_stands(&dir.join("d0"));
    let reading = names.map(|name| Beside::start(Command::new("cat").arg(dir.join(name))));
    let write = |name: &str| {
        let mut writes = Command::new("sh");
        Beside::start(writes.args(["-c", "echo bytes > \"$1\"", "sh"]).arg(dir.join(name)))
    };
    let mut writing = names.map(write);
    wait_until("nobody reads what is written", || writing.iter_mut().all(Beside::has_ended));
    assert!(reading.into_iter().all(|reading| reading.said() == b"bytes\n"));
    drop(walking);
    view.signal(Signal::INT);
    view.end(Some(0));
}

/// Each opening that is told of takes a descriptor until it is looked at, and what finds none left the kernel refuses.
#[test]
fn many_who_walk_at_once_are_refused_nothing() {
    root_test!(alone);
    let mut image = Image::new(Fs::Ext4, 300 << 20);
    let (root, dir) = place(&image);
    let folders = if long() { 20_000 } else { 4_000 };
    for number in 0..folders {
        fs::create_dir_all(root.join(format!("many/{}/{number}", number % 50))).expect("a folder");
    }
    cold_tree(&mut image, &root);
    // Less than what is in `d0`, so that this walk is helped, and the kernel asks, as long as it stands.
    let view = View::by_kernel(&root, &dir, &["--limit", "256K", "--verbose"]);
    let walking = walk_that_stands(&dir.join("d0"));
    let descriptors = 600;
    let limit = Rlimit { current: Some(descriptors), maximum: Some(descriptors) };
    let daemon = Pid::from_child(view.running.as_ref().expect("it runs"));
    prlimit(Some(daemon), Resource::Nofile, limit).expect("a limit");
    let find = |_| Beside::start(Command::new("find").arg(dir.join("many")).args(["-printf", "."]));
    let all: Vec<Beside> = (0..16).map(find).collect();
    assert!(all.into_iter().all(|found| found.said().len() == folders + 51));
    drop(walking);
    view.signal(Signal::INT);
    let said = view.end(Some(0));
    assert!(figures(&said).1 > descriptors, "the kernel asks: {said}");
}
