//! One moment: snapshots and frozen file systems, and that nothing of them stays.

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    os::fd::AsFd,
    os::unix::fs::{MetadataExt, symlink},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, mpsc},
    thread,
    time::Duration,
};

use onesweep::{BulkRead, Entries, FileError, Kind, Progress, SweptFile};
use onesweep_deliver::copy::{Copier, Reflink, Sources};

use crate::{
    image::{Fs, Image, unmount},
    run::{finish, interruptible, onesweep, output, root_test, run, text},
    tree::Rng,
};

/// Waits for something that will be so; a fault ends the test, sooner or later.
#[track_caller]
fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    for _ in 0..3000 {
        if let Some(found) = found() {
            return found;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("{what}: for a minute it was not so");
}

fn snapshots_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries.filter(|path| text(path.as_os_str().as_encoded_bytes()).contains("/.onesweep-snapshot-")).collect()
}

/// What a sweep hands over, read to its end: content, or the target of a link.
fn taken(item: Result<SweptFile, FileError>) -> (PathBuf, Vec<u8>) {
    let mut item = item.expect("no error");
    let mut content = Vec::new();
    match item.metadata().kind {
        Kind::File => drop(item.reader().read_to_end(&mut content).expect("it can be read")),
        Kind::Symlink => content = item.link_target().expect("a target").as_os_str().as_encoded_bytes().to_vec(),
        _ => {}
    }
    (item.path().to_owned(), content)
}

/// A tree with small files, one that is streamed, a link, and names in a folder.
fn make_tree(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fs::create_dir_all(root.join("folder")).expect("a folder");
    let mut rng = Rng::new(11);
    let mut there = BTreeMap::new();
    for (name, bytes) in [("a", 5000), ("folder/b", 70_000), ("folder/c", 10), ("large", 3 << 20)] {
        let content = rng.bytes(bytes);
        fs::write(root.join(name), &content).expect("a file");
        there.insert(root.join(name), content);
    }
    symlink("a", root.join("link")).expect("a link");
    there.insert(root.join("link"), b"a".to_vec());
    there
}

/// Changes everything that there is in a tree.
fn change_tree(root: &Path) {
    fs::write(root.join("a"), "other bytes").expect("a file");
    fs::write(root.join("large"), vec![7; 3 << 20]).expect("a file");
    fs::remove_file(root.join("folder/b")).expect("it goes");
    fs::rename(root.join("folder/c"), root.join("folder/d")).expect("another name");
    fs::write(root.join("new"), "new").expect("a file");
    fs::remove_file(root.join("link")).expect("it goes");
    run(Command::new("sync").arg("-f").arg(root));
}

/// Between the plan and the reading, everything changes; all comes as it was, by the names that were given, also what is
/// streamed, and also after everything else has come.
#[test]
fn a_snapshot_of_btrfs_holds_everything() {
    root_test!();
    let image = Image::new(Fs::Btrfs, 320 << 20);
    let root = image.root().join("tree");
    let mut there = make_tree(&root);
    there.insert(root.clone(), Vec::new());
    there.insert(root.join("folder"), Vec::new());
    let device = fs::metadata(&root).expect("the folder").dev();
    let read = BulkRead::new([&root]).entries(Entries::All).large(1 << 20).snapshot(true);
    let sweep = read.plan().expect("a plan");
    assert_eq!(snapshots_in(&image.root()).len(), 1);
    change_tree(&root);
    let mut came = BTreeMap::new();
    let mut last = None;
    for item in sweep.run().expect("it runs") {
        let file = item.as_ref().expect("no error");
        assert!(file.open_path() != file.path() && file.is_in_snapshot());
        assert_eq!(file.metadata().dev, device, "the device is that of the original");
        if file.path() == root.join("large") {
            last = Some(item);
        } else {
            let (path, content) = taken(item);
            came.insert(path, content);
        }
    }
    assert_eq!(snapshots_in(&image.root()).len(), 1, "a stream needs it still");
    let (path, content) = taken(last.expect("the large file"));
    came.insert(path, content);
    assert!(came == there, "{:?} came of {:?}", came.keys(), there.keys());
    assert_eq!(snapshots_in(&image.root()), Vec::<PathBuf>::new());
}

/// Copies that share blocks share those of the snapshot.
#[test]
fn copies_are_those_of_the_snapshot() {
    root_test!();
    let image = Image::new(Fs::Btrfs, 320 << 20);
    let (root, to) = (image.root().join("tree"), image.root().join("copy"));
    let there = make_tree(&root);
    let paths = [root.clone()];
    let sources = Sources { paths: &paths, follow: false, images: false };
    let mut copier = Copier::new(sources, &to, true, Reflink::Always).expect("a destination");
    assert!(!copier.wants_content());
    let read = BulkRead::new(copier.sources()).entries(Entries::All).xattrs(true).content(false).snapshot(true);
    let sweep = read.plan().expect("a plan");
    change_tree(&root);
    for item in sweep.run().expect("it runs") {
        copier.copy(item.expect("no error")).expect("a copy");
    }
    for (path, content) in there.iter().filter(|(path, _)| !path.ends_with("link")) {
        let copy = to.join(path.strip_prefix(&root).expect("below"));
        assert!(fs::read(&copy).expect("the copy") == *content, "{}", copy.display());
    }
    assert_eq!((copier.copied().files, copier.copied().cloned_files), (4, 4));
    assert!(!to.join("new").exists());
}

/// The archive that is written is left out, as ever, and the times are those before.
#[test]
fn an_archive_may_lie_in_what_it_holds() {
    root_test!();
    let image = Image::new(Fs::Btrfs, 320 << 20);
    let root = image.root();
    make_tree(&root);
    let archive = root.join("a.tar");
    for _ in 0..2 {
        let out = finish(onesweep(["tar", "--snapshot", "-cf"]).arg(&archive).arg("-C").arg(&root).arg("."), 0);
        assert!(text(&out.stderr).contains("file is the archive; not dumped"), "{}", text(&out.stderr));
        let names = text(&output(Command::new("tar").arg("-tf").arg(&archive)));
        assert!(names.contains("./folder/b\n"), "{names}");
        assert!(
            !names.contains(".tar") && !names.contains("onesweep-snapshot") && !names.contains("partial"),
            "{names}"
        );
    }
}

/// Subvolumes below are told of once and read as they are; so is what is mounted below.
#[test]
fn what_no_snapshot_holds_is_read_live() {
    root_test!();
    let image = Image::new(Fs::Btrfs, 320 << 20);
    let root = image.root();
    fs::write(root.join("a"), "a").expect("a file");
    for name in ["one", "folder/two"] {
        fs::create_dir_all(root.join(name).parent().expect("a folder")).expect("a folder");
        run(Command::new("btrfs").args(["-q", "subvolume", "create"]).arg(root.join(name)));
        fs::write(root.join(name).join("inside"), name).expect("a file");
    }
    fs::create_dir(root.join("mounted")).expect("a folder");
    run(Command::new("mount").args(["-t", "tmpfs", "none"]).arg(root.join("mounted")));
    fs::write(root.join("mounted/inside"), "m").expect("a file");
    let out = finish(onesweep(["sum", "--snapshot"]).arg(&root), 0);
    let names: Vec<String> =
        text(&out.stdout).lines().map(|line| line.rsplit('/').next().unwrap().to_owned()).collect();
    assert_eq!(names.iter().filter(|name| *name == "inside").count(), 3, "{names:?}");
    assert_eq!(names.len(), 4, "{names:?}");
    assert_eq!(text(&out.stderr).matches("a subvolume of its own").count(), 1, "{}", text(&out.stderr));
    let out = finish(onesweep(["sum", "--snapshot", "-q", "-x"]).arg(&root), 0);
    assert_eq!((text(&out.stdout).lines().count(), text(&out.stderr)), (1, String::new()));
    // Of a subvolume that nobody can write to there is no need of a snapshot, nor room for one.
    run(Command::new("btrfs").args(["property", "set"]).arg(root.join("one")).args(["ro", "true"]));
    finish(onesweep(["sum", "--snapshot"]).arg(root.join("one")), 0);
}

fn signal(process: &Child, signal: &str) {
    run(Command::new("kill").args([&format!("-{signal}"), &process.id().to_string()]));
}

/// However a run ends, its snapshot goes.
#[test]
fn a_snapshot_goes_with_its_run() {
    root_test!();
    let image = Image::new(Fs::Btrfs, 320 << 20);
    let root = image.root();
    for number in 0..8 {
        fs::write(root.join(format!("f{number}")), Rng::new(number).bytes(1 << 20)).expect("a file");
    }
    finish(onesweep(["sum", "--snapshot"]).arg(&root), 0);
    assert_eq!(snapshots_in(&root), Vec::<PathBuf>::new(), "after success");
    finish(onesweep(["sum", "--snapshot"]).arg(&root).arg(root.join("missing")), 1);
    finish(onesweep(["tar", "--snapshot", "-cf", "/no-such-folder/a"]).arg(&root), 2);
    assert_eq!(snapshots_in(&root), Vec::<PathBuf>::new(), "after an error");
    for (sent, code) in [("INT", Some(130)), ("TERM", Some(130)), ("KILL", None)] {
        let mut tar = interruptible(["tar", "--snapshot", "-cf", "-", "-C"]);
        let mut running =
            tar.arg(&root).arg(".").stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        // More than a pipe holds is to come.
        running.stdout.as_mut().expect("a pipe").read_exact(&mut [0; 4096]).expect("the start of the archive");
        assert_eq!(snapshots_in(&root).len(), 1);
        signal(&running, sent);
        let ended = running.wait_with_output().expect("it ends");
        assert_eq!(ended.status.code(), code, "{sent}");
        until(sent, || snapshots_in(&root).is_empty().then_some(()));
    }
}

/// What a run could not remove, since even its keeper was killed, the next run removes; nothing else.
#[test]
fn a_snapshot_that_was_left_is_removed() {
    root_test!();
    let image = Image::new(Fs::Btrfs, 320 << 20);
    let root = image.root();
    fs::write(root.join("a"), "a").expect("a file");
    let name = |maker: u32| root.join(format!(".onesweep-snapshot-{maker}-0"));
    // No process has such a number, but the last.
    let (left, in_use, alive, folder) = (name(4_194_305), name(4_194_306), name(1), name(4_194_307));
    for path in [&left, &in_use, &alive] {
        run(Command::new("btrfs").args(["-q", "subvolume", "snapshot", "-r"]).arg(&root).arg(path));
    }
    fs::create_dir(&folder).expect("a folder");
    let mark = fs::File::open(&in_use).expect("the snapshot");
    assert!(onesweep_sys::subvolume::mark_in_use(mark.as_fd()).expect("a mark"));
    let out = finish(onesweep(["sum", "--snapshot", "--exclude", "*snapshot*"]).arg(&root), 0);
    let told = text(&out.stderr);
    assert!(told.contains(&format!("{}: a snapshot that an earlier run left; removed", left.display())), "{told}");
    assert!(told.contains(&format!("{}: a snapshot that seems left over, but process 1", alive.display())), "{told}");
    let mut stay = snapshots_in(&root);
    stay.sort();
    let mut expected = vec![in_use, alive, folder];
    expected.sort();
    assert_eq!(stay, expected);
}

/// What the process waits for in the kernel.
fn waits_in(process: u32, places: &[&str]) -> bool {
    let place = fs::read_to_string(format!("/proc/{process}/wchan")).unwrap_or_default();
    places.iter().any(|known| place.contains(known))
}

/// Where a process waits for a file system that is frozen.
const HELD: [&str; 3] = ["rwsem", "sb_start_write", "freeze"];

fn writer(file: &Path) -> Child {
    Command::new("sh").args(["-c", "echo x > \"$0\""]).arg(file).spawn().expect("a writer")
}

/// A sweep in another thread, which stops in the midst of its plan until it is let go on.
struct Stopped<'scope> {
    go_on: mpsc::Sender<()>,
    sweep: thread::ScopedJoinHandle<'scope, Vec<Result<SweptFile, FileError>>>,
}

impl<'scope> Stopped<'scope> {
    fn sweep(scope: &'scope thread::Scope<'scope, '_>, read: BulkRead) -> Self {
        let ((told, stopped), (go_on, wait)) = (mpsc::channel(), mpsc::channel::<()>());
        let once = Mutex::new(Some((told, wait)));
        let read = read.observer(move |event| {
            if let Progress::Walked { .. } = event
                && let Some((told, wait)) = once.lock().expect("nobody panicked").take()
            {
                let _ = told.send(());
                let _ = wait.recv();
            }
        });
        let sweep = scope.spawn(|| read.start().expect("it starts").collect());
        stopped.recv().expect("it comes to its plan");
        Self { go_on, sweep }
    }

    fn end(self) -> Vec<Result<SweptFile, FileError>> {
        self.go_on.send(()).expect("it waits");
        self.sweep.join().expect("it ends")
    }
}

/// A writer waits while the plan is made, and goes on as soon as it stands.
#[test]
fn writers_wait_for_the_plan() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs] {
        let image = Image::new(fs, 320 << 20);
        let root = image.root().join("tree");
        let there = make_tree(&root);
        thread::scope(|scope| {
            let read = BulkRead::new([&root]).snapshot(true).freeze_limit(Duration::from_secs(3600));
            let stopped = Stopped::sweep(scope, read);
            let mut writer = writer(&root.join("late"));
            until("the writer waits", || waits_in(writer.id(), &HELD).then_some(()));
            assert!(writer.try_wait().expect("its state").is_none());
            let came: BTreeMap<_, _> = stopped.end().into_iter().map(taken).collect();
            assert!(writer.wait().expect("it ends").success());
            assert!(came.iter().all(|(path, content)| there[path] == *content));
            assert_eq!(came.len(), 4, "{}: {:?}", fs.name(), came.keys());
        });
        assert_eq!(fs::read(root.join("late")).expect("what was written"), b"x\n");
    }
}

/// When the time is up, writers go on, the sweep too, and it is told that the picture is not from one moment.
#[test]
fn writers_wait_for_no_longer_than_is_allowed() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs] {
        let image = Image::new(fs, 320 << 20);
        let root = image.root().join("tree");
        make_tree(&root);
        thread::scope(|scope| {
            let read = BulkRead::new([&root]).snapshot(true).freeze_limit(Duration::from_millis(300));
            let stopped = Stopped::sweep(scope, read);
            assert!(writer(&root.join("late")).wait().expect("it ends").success());
            let items = stopped.end();
            let errors: Vec<String> =
                items.iter().filter_map(|item| item.as_ref().err()).map(ToString::to_string).collect();
            let expected = "tree: is not from one moment: the plan took longer than 0.3 s";
            assert!(errors.len() == 1 && errors[0].contains(expected), "{}: {errors:?}", fs.name());
            assert_eq!(items.len(), 5, "the files come all the same");
        });
    }
}

/// A catalogue that holds a part of the tree only can't be planned at one moment, and says so.
#[test]
fn a_tree_that_goes_by_windows_is_not_from_one_moment() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    for number in 0..40 {
        let folder = image.root().join(format!("d{number}"));
        fs::create_dir(&folder).expect("a folder");
        (0..50).for_each(|file| fs::write(folder.join(format!("f{file}")), "x").expect("a file"));
    }
    let out = finish(onesweep(["sum", "--snapshot", "--catalog-limit", "64K"]).arg(image.root()), 1);
    assert_eq!(text(&out.stdout).lines().count(), 2000);
    assert!(text(&out.stderr).contains("not all of it fits in the catalogue at once; raise --catalog-limit"));
    fs::write(image.root().join("late"), "x").expect("nobody is held any more");
}

/// A fault of the program lets writers go on.
#[test]
fn a_panic_thaws() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs] {
        let image = Image::new(fs, 320 << 20);
        make_tree(&image.root().join("tree"));
        let read = BulkRead::new([image.root()]).snapshot(true).freeze_limit(Duration::from_secs(3600));
        let read = read.observer(|event| assert!(!matches!(event, Progress::Walked { .. }), "on purpose"));
        assert!(catch_unwind(AssertUnwindSafe(|| read.start().map(drop))).is_err());
        let mut writer = writer(&image.root().join("late"));
        until("the writer ends", || writer.try_wait().expect("its state"));
    }
}

/// Runs the program until its keeper has frozen the file system, and stops it there.
fn stopped_while_frozen(root: &Path) -> Child {
    for _ in 0..50 {
        let mut sum = interruptible(["sum", "--snapshot"]);
        let mut running = sum.arg(root).stdout(Stdio::null()).spawn().expect("it starts");
        let children = format!("/proc/{0}/task/{0}/children", running.id());
        while running.try_wait().expect("its state").is_none() {
            let keeper = fs::read_to_string(&children).unwrap_or_default().trim().parse::<u32>().ok();
            if keeper.is_some_and(|keeper| waits_in(keeper, &["poll"])) {
                signal(&running, "STOP");
                let state = format!("/proc/{}/stat", running.id());
                until("it stops", || fs::read_to_string(&state).ok()?.contains(") T ").then_some(()));
                // It may have thawed meanwhile.
                if keeper.is_some_and(|keeper| waits_in(keeper, &["poll"])) {
                    return running;
                }
                signal(&running, "CONT");
            }
        }
    }
    panic!("the program was never met while it froze");
}

/// Whatever ends the program while writers wait, they go on.
#[test]
fn a_killed_run_thaws() {
    root_test!();
    for fs in [Fs::Ext4, Fs::Xfs] {
        let image = Image::new(fs, 320 << 20);
        for number in 0..3000 {
            fs::write(image.root().join(format!("f{number}")), "x").expect("a file");
        }
        for sent in ["KILL", "INT"] {
            let mut running = stopped_while_frozen(&image.root());
            let mut writer = writer(&image.root().join(sent));
            until("the writer waits", || waits_in(writer.id(), &HELD).then_some(()));
            signal(&running, sent);
            signal(&running, "CONT");
            let ended = running.wait().expect("it ends");
            assert_eq!(ended.code(), (sent == "INT").then_some(130), "{}, {sent}", fs.name());
            let written = until("the writer ends", || writer.try_wait().expect("its state"));
            assert!(written.success());
        }
    }
}

/// What would wait for itself is refused before anything is held.
#[test]
fn results_on_a_frozen_file_system_are_refused() {
    root_test!();
    [Fs::Ext4, Fs::Xfs].into_iter().for_each(results_are_refused_on);
}

fn results_are_refused_on(fs: Fs) {
    let image = Image::new(fs, 320 << 20);
    let (root, elsewhere) = (image.root(), image.beside("elsewhere"));
    make_tree(&root.join("tree"));
    let stdout = || fs::File::create(root.join("out")).expect("a file");
    let mut to_file = onesweep(["sum", "--snapshot"]);
    to_file.arg(root.join("tree")).stdout(stdout());
    let mut errors_to_file = onesweep(["list", "--snapshot"]);
    errors_to_file.arg(root.join("tree")).stderr(stdout());
    let mut tar = onesweep(["tar", "--snapshot", "-cf"]);
    tar.arg(root.join("a.tar")).arg(root.join("tree"));
    // Links whose target isn't there, one behind the other.
    std::os::unix::fs::symlink(root.join("linked.tar"), image.beside("second link")).expect("a link");
    std::os::unix::fs::symlink("second link", image.beside("first link")).expect("a link");
    let mut by_link = onesweep(["tar", "--snapshot", "-cf"]);
    by_link.arg(image.beside("first link")).arg(root.join("tree"));
    let mut copy = onesweep(["copy", "--snapshot"]);
    copy.arg(root.join("tree")).arg(root.join("not/yet/there"));
    let mut picture = onesweep(["layout", "--snapshot", "--svg"]);
    picture.arg(root.join("tree.svg")).arg(root.join("tree"));
    let mut map = onesweep(["layout", "--snapshot", "--map"]);
    map.arg(root.join("tree.svg")).arg(root.join("tree"));
    let mut shard = onesweep(["shard", "--snapshot"]);
    shard.arg(root.join("tree")).arg(root.join("shards"));
    // Verdicts are written while files are read.
    let keys = image.beside("keys");
    finish(onesweep(["peer", "keys"]).arg(&keys), 0);
    let scan_with = |store: PathBuf| {
        let mut scan = onesweep(["scan", "--snapshot", "--command", "exit 0", "--key"]);
        scan.arg(keys.join("domain.key")).arg("--verdicts").arg(store).arg(root.join("tree"));
        scan
    };
    let mut scan = scan_with(root.join("verdicts"));
    for command in [&mut to_file, &mut tar, &mut by_link, &mut copy, &mut picture, &mut map, &mut shard, &mut scan] {
        let said = text(&finish(command, 2).stderr);
        assert!(said.contains("lies on the same file system, which is frozen while the plan is made"), "{said}");
        assert!(said.contains("write elsewhere, or leave out --snapshot"), "{said}");
    }
    finish(&mut errors_to_file, 2);
    finish(&mut scan_with(image.beside("verdicts")), 0);
    let is_there = |name: &&str| root.join(name).exists();
    assert_eq!(["a.tar", "linked.tar", "not", "tree.svg", "shards"].iter().find(|name| is_there(name)), None);
    // Whoever calls the library names what else is written meanwhile, such as a store that isn't there yet.
    let read = BulkRead::new([root.join("tree")]).snapshot(true);
    let to_store = read.writes_to([elsewhere.clone(), root.join("stores/totals")]).plan().map(drop);
    let said = to_store.expect_err("a store on the frozen file system").to_string();
    assert!(said.contains("stores/totals lies on the same file system, which is frozen"), "{said}");
    let read = BulkRead::new([root.join("tree")]).snapshot(true);
    read.writes_to([elsewhere.join("totals")]).plan().map(drop).expect("a plan with a store elsewhere");
    finish(onesweep(["copy", "--snapshot"]).arg(root.join("tree")).arg(&elsewhere), 0);
    assert!(elsewhere.join("folder/c").exists());
}

/// What is written to an image on the frozen file system, or through an overlay over it, would wait as well.
#[test]
fn results_that_end_on_a_frozen_file_system_are_refused() {
    root_test!();
    let image = Image::new(Fs::Ext4, 640 << 20);
    let root = image.root();
    make_tree(&root.join("tree"));
    let refused = |to: &Path| {
        let said = text(&finish(onesweep(["tar", "--snapshot", "-cf"]).arg(to).arg(root.join("tree")), 2).stderr);
        assert!(said.contains("lies in a file of the same file system, which is frozen"), "{said}");
        assert!(!to.exists());
    };
    let inner = image.beside("inner");
    fs::create_dir(&inner).expect("a folder");
    let file = root.join("inner.img");
    fs::File::create(&file).and_then(|file| file.set_len(64 << 20)).expect("a file");
    run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&file));
    run(Command::new("mount").args(["-o", "loop"]).arg(&file).arg(&inner));
    refused(&inner.join("a.tar"));
    unmount(&inner);
    ["lower", "upper", "work"].iter().for_each(|name| fs::create_dir(root.join(name)).expect("a folder"));
    let layer = |name: &str| format!("{name}dir={}", root.join(name).display());
    let options = ["lower", "upper", "work"].map(layer).join(",");
    let mounted = Command::new("mount").args(["-t", "overlay", "overlay", "-o", &options]).arg(&inner).output();
    if mounted.expect("mount runs").status.success() {
        refused(&inner.join("a.tar"));
        unmount(&inner);
    }
}

/// What can't be held says so, and what to do.
#[test]
fn what_cannot_be_held_says_so() {
    root_test!();
    let image = Image::new(Fs::Ext4, 64 << 20);
    let root = image.root();
    make_tree(&root.join("tree"));
    run(Command::new("fsfreeze").arg("--freeze").arg(&root));
    let out = onesweep(["sum", "--snapshot"]).arg(&root).output();
    run(Command::new("fsfreeze").arg("--unfreeze").arg(&root));
    let out = out.expect("it runs");
    assert_eq!(out.status.code(), Some(2));
    let said = text(&out.stderr);
    assert!(said.contains("is frozen already; thaw it (fsfreeze --unfreeze)"), "{said}");
    let said = text(&finish(&mut onesweep(["sum", "--snapshot", "/proc/self/status"]), 2).stderr);
    assert!(said.contains("proc has no snapshots and can't be frozen; leave out --snapshot"), "{said}");
    let said = text(&finish(onesweep(["warm", "--snapshot"]).arg(&root), 2).stderr);
    assert!(said.contains("leave out --snapshot"), "{said}");
    let tool = image.beside("onesweep");
    crate::run::copy_program(&crate::run::program(), &tool);
    for path in [root.join("tree"), PathBuf::from("/")] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&tool).args(["sum", "--snapshot"]);
        let said = text(&finish(command.arg(path), 2).stderr);
        assert!(said.contains("run as root, or leave out --snapshot"), "{said}");
    }
    // A bind mount of a part of a subvolume does not show its root.
    let btrfs = Image::new(Fs::Btrfs, 320 << 20);
    make_tree(&btrfs.root().join("tree"));
    let bound = btrfs.beside("bound");
    fs::create_dir(&bound).expect("a folder");
    run(Command::new("mount").arg("--bind").arg(btrfs.root().join("tree")).arg(&bound));
    let said = text(&finish(onesweep(["sum", "--snapshot"]).arg(&bound), 2).stderr);
    assert!(said.contains("name it by the mount of the whole"), "{said}");
    // What nobody can write to needs nothing.
    drop(btrfs);
    run(Command::new("mount").args(["-o", "remount,ro"]).arg(&root));
    finish(onesweep(["sum", "--snapshot"]).arg(&root), 0);
}
