//! A first harvest reads what the file system tells of many inodes at a time, and comes to what each directory says itself.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io,
    mem::MaybeUninit,
    os::{
        fd::AsFd,
        unix::fs::{FileExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use onesweep_summary::{
    identity::NodeId,
    reading::{Directories, Empty, Reading},
    summaries::Freshness,
    volume::Volume,
};
use onesweep_sys::{
    rights::{Right, keep_only},
    xfs,
};

use crate::{
    image::{Fs, Image},
    run::{long, root_test, run, say, seed},
    shuffled::Shuffled,
    tracked::{agrees, as_du, ask, du, tracked},
    tree::until_another_second,
};

const THREE: [Fs; 3] = [Fs::Ext4, Fs::Xfs, Fs::Btrfs];

/// Whatever directories may hold.
fn fill(root: &Path, fs: Fs) {
    fs::create_dir_all(root.join("a/b/empty")).expect("folders");
    for number in 0..3000 {
        fs::write(root.join(format!("a/file with a longer name {number}")), vec![7; number]).expect("a file");
    }
    for number in 0..200 {
        fs::create_dir(root.join(format!("a/b/{number}"))).expect("a folder");
    }
    // More than is told of one in one answer.
    for number in 0..600 {
        let name = format!("{number:0>250}");
        fs::create_dir_all(root.join("a/b/5").join(name)).expect("a folder");
    }
    fs::hard_link(root.join("a/file with a longer name 9"), root.join("a/b/link")).expect("a link");
    fs::hard_link(root.join("a/file with a longer name 9"), root.join("a/another link")).expect("a link");
    // Directories that were large, the one empty again and the other with the shortest name.
    for (directory, left) in [("a/b/emptied", None), ("a/b/shrunk", Some("x"))] {
        let directory = root.join(directory);
        fs::create_dir(&directory).expect("a folder");
        let names: Vec<PathBuf> = (0..500).map(|number| directory.join(format!("file {number}"))).collect();
        names.iter().for_each(|name| fs::write(name, "").expect("a file"));
        left.into_iter().for_each(|left| fs::write(directory.join(left), "").expect("a file"));
        names.iter().for_each(|name| fs::remove_file(name).expect("it is there"));
    }
    // Names of one inode that find no room in one item.
    fs::create_dir(root.join("names")).expect("a folder");
    fs::write(root.join("names/one"), "x").expect("a file");
    for number in 0..800 {
        fs::hard_link(root.join("names/one"), root.join(format!("names/{number:0>100}"))).expect("a link");
    }
    symlink("x".repeat(100), root.join("a/b/0/symlink")).expect("a link");
    symlink("x".repeat(1000), root.join("a/b/0/long symlink")).expect("a link");
    let sparse = File::create(root.join("a/b/0/sparse")).expect("a file");
    sparse.write_all_at(b"x", 1 << 30).expect("it is written");
    let pieces = File::create(root.join("a/b/0/pieces")).expect("a file");
    for piece in 0..1500 {
        pieces.write_all_at(b"x", piece * 16384).expect("it is written");
    }
    run(Command::new("fallocate").args(["-l", "3000000"]).arg(root.join("a/b/0/reserved")));
    fs::write(root.join("a/b/0/reserved ahead"), "x").expect("a file");
    run(Command::new("fallocate").args(["-n", "-l", "3000000"]).arg(root.join("a/b/0/reserved ahead")));
    fs::set_permissions(root.join("a/b/1"), fs::Permissions::from_mode(0o700)).expect("a mode");
    run(Command::new("mkfifo").arg(root.join("a/b/1/fifo")));
    run(Command::new("mknod").arg(root.join("a/b/1/device")).args(["c", "1", "3"]));
    run(Command::new("setfattr").args(["-n", "user.a", "-v", "b"]).arg(root.join("a/b/2")));
    run(Command::new("chown").args(["70000:80000"]).arg(root.join("a/b/3")));
    fs::create_dir(root.join("a/b/3/covered")).expect("a folder");
    run(Command::new("setfacl").args(["-m", "u:1234:r-x"]).arg(root.join("a/b/4")));
    // Attributes that take a block of their own, and many of them.
    run(Command::new("setfattr").args(["-n", "user.large", "-v", &"v".repeat(3000)]).arg(root.join("a/b/6")));
    for number in 0..15 {
        let (name, value) = (format!("user.{number:0>60}"), "v".repeat(60));
        run(Command::new("setfattr").args(["-n", &name, "-v", &value]).arg(root.join("a/b/7")));
    }
    run(Command::new("setfattr").args(["-n", "user.large", "-v", &"v".repeat(3000)]).arg(root.join("a/b/0/sparse")));
    if fs.has_reflinks() {
        run(Command::new("cp")
            .arg("--reflink=always")
            .args(["a/file with a longer name 2999", "a/b/8/copy"].map(|path| root.join(path))));
    }
    if fs == Fs::Btrfs {
        let btrfs = |words: &[&str], paths: &[&str]| {
            let paths = paths.iter().map(|path| root.join(path));
            run(Command::new("btrfs").arg("--quiet").args(words).args(paths));
        };
        btrfs(&["subvolume", "create"], &["a/b/9/inner"]);
        fs::create_dir_all(root.join("a/b/9/inner/below/it")).expect("folders");
        btrfs(&["subvolume", "create"], &["a/b/9/inner/below/innermost"]);
        fs::write(root.join("a/b/9/inner/below/it/file"), vec![1; 30_000]).expect("a file");
        btrfs(&["subvolume", "snapshot"], &["a/b/9/inner", "a/b/10/copy"]);
    }
}

/// All directories, by a walk in the ordinary way.
fn all(volume: &Volume) -> Vec<NodeId> {
    let (mut all, mut at) = (vec![volume.root()], 0);
    while let Some(&directory) = all.get(at) {
        all.extend(volume.read(directory).expect("it is read").directories.into_iter().map(|(id, _)| id));
        at += 1;
    }
    all
}

/// All that it says of the directory, but for those in it that are empty.
fn shown(reading: io::Result<Reading>) -> String {
    format!("{:?}", reading.map(|reading| Reading { waits: 0, empty: Vec::new(), ..reading }))
}

/// What is told of empty directories with those that they are in is what reading them says.
fn told_as_empty(fs: Fs, volume: &Volume, all: &[NodeId], each: &[String]) -> BTreeSet<NodeId> {
    let mut told = BTreeSet::new();
    for reading in volume.read_some(all).into_iter().map(|reading| reading.expect("it is read")) {
        let mut named = reading.directories.iter().map(|(id, _)| *id);
        for Empty { id, access, blocks, own, stamp } in reading.empty {
            assert!(named.any(|named| named == id), "{}: {id:?} comes in the order of names", fs.name());
            let alone = Reading { access, blocks, own, stamp, ..Reading::default() };
            let place = all.binary_search(&id).expect("it is known");
            assert_eq!(shown(Ok(alone)), each[place], "{}: {id:?}", fs.name());
            assert!(told.insert(id));
        }
    }
    told
}

/// So are all of them, but for those of which the file system makes it hard.
fn same_empty(fs: Fs, (root, volume): (&Path, &Volume), all: &[NodeId], each: &[String]) {
    let mut expected = BTreeSet::new();
    for (id, _) in volume.read_in_bulk(all, usize::MAX).into_iter().flatten().flat_map(|reading| reading.directories) {
        let reading = volume.read(id).expect("it is read");
        let is_large = fs == Fs::Ext4 && reading.blocks > 8;
        if reading.entries() == 0 && reading.access.acl == 0 && !is_large {
            expected.insert(id);
        }
    }
    if fs == Fs::Ext4 {
        for with_attributes in ["a/b/2", "a/b/6", "a/b/7"] {
            let directory = File::open(root.join(with_attributes)).expect("a directory");
            expected.remove(&volume.node_of(directory.as_fd()).expect("its number"));
        }
    }
    assert!(expected.len() > 700, "{}: {}", fs.name(), expected.len());
    // Of what isn't in memory ext4 tells nothing, and the kernel may drop what was read.
    let is_same = (0..10).any(|_| told_as_empty(fs, volume, all, each) == expected);
    assert!(is_same, "{}: {:?}", fs.name(), told_as_empty(fs, volume, all, each).symmetric_difference(&expected));
}

fn same_readings(fs: Fs) {
    let image = Image::new(fs, 1 << 30);
    let root = image.root();
    fill(&root, fs);
    // What has changed just now has no stamp.
    (0..3).for_each(|_| until_another_second());
    let volume = Volume::of(&root).expect("a file system");
    let mut all = all(&volume);
    assert!(all.len() >= 805, "{}", all.len());
    all.sort_unstable();
    volume.sync().expect("it is written");
    assert!(volume.read_in_bulk(&all, usize::MAX).is_empty(), "it hasn't begun");
    let read = |up_to| volume.read_some_up_to(&all, up_to).into_iter().map(shown);
    let (each, few): (Vec<_>, Vec<_>) = (read(usize::MAX).collect(), read(100).collect());
    assert!(volume.begin_bulk(), "{}: it can be read in bulk", fs.name());
    read(usize::MAX).zip(&each).for_each(|(bulk, each)| assert_eq!(bulk, *each, "{}", fs.name()));
    read(100).zip(few).for_each(|(bulk, few)| assert_eq!(bulk, few, "{}", fs.name()));
    same_empty(fs, (&root, &volume), &all, &each);
    // One by one and in any order, too.
    for (&directory, each) in all.iter().zip(&each).rev().step_by(7) {
        let first = volume.read_some(&[directory, volume.root()]).swap_remove(0);
        assert_eq!(shown(first), *each, "{}", fs.name());
    }
    let bulk = volume.read_in_bulk(&all, usize::MAX);
    let ordinary: BTreeSet<NodeId> =
        all.iter().zip(bulk).filter(|(_, bulk)| bulk.is_none()).map(|(&id, _)| id).collect();
    let special: &[&str] = match fs {
        Fs::Btrfs => &["a/b/4", "a/b/9", "a/b/9/inner/below", "a/b/10", "a/b/10/copy/below"],
        Fs::Xfs => &[],
        _ => &["a/b/2", "a/b/4", "a/b/6", "a/b/7"],
    };
    let node = |path: &Path| volume.node_of(File::open(path).expect("a directory").as_fd());
    let expected: BTreeSet<NodeId> = special.iter().map(|path| node(&root.join(path)).expect("its number")).collect();
    // Those that stand for a subvolume in a snapshot aren't in a tree.
    let stubs = ordinary.iter().filter(|id| id.subvolume == u64::MAX).count();
    assert_eq!(stubs, usize::from(fs == Fs::Btrfs));
    let others: BTreeSet<NodeId> = ordinary.into_iter().filter(|id| id.subvolume != u64::MAX).collect();
    assert_eq!(others, expected, "{}", fs.name());
    volume.end_bulk();
    assert!(volume.read_in_bulk(&all, usize::MAX).is_empty());
}

/// By that a harvest tells a disk from memory.
#[test]
fn readings_tell_that_they_waited_for_a_disk() {
    root_test!();
    for fs in THREE {
        let image = Image::new(fs, 1 << 30);
        let root = image.root();
        (0..200).for_each(|number| fs::create_dir(root.join(number.to_string())).expect("a folder"));
        let volume = Volume::of(&root).expect("a file system");
        let all = all(&volume);
        for is_bulk in [false, true] {
            assert!(!is_bulk || volume.begin_bulk());
            let waits = || -> u32 {
                let readings = volume.read_some(&all);
                readings.into_iter().map(|reading| reading.expect("it is read").waits).sum()
            };
            // Others may bring back what was dropped, and drop what was read.
            let from_disk = (0..10).any(|_| {
                volume.sync().expect("it is written");
                fs::write("/proc/sys/vm/drop_caches", "3").expect("root may");
                waits() > 0
            });
            assert!(from_disk, "{}, in bulk: {is_bulk}", fs.name());
            assert!((0..10).any(|_| waits() == 0), "{}, in bulk: {is_bulk}", fs.name());
        }
        volume.end_bulk();
    }
}

#[test]
fn readings_in_bulk_are_those_of_each_directory() {
    root_test!();
    THREE.into_iter().for_each(same_readings);
}

/// A thousand directories of a few files, nothing of which is on the disk yet.
fn forest(root: &Path) -> Vec<PathBuf> {
    let mut directories = vec![root.to_owned()];
    for one in 0..20 {
        directories.push(root.join(format!("a{one}")));
        for two in 0..50 {
            let directory = root.join(format!("a{one}/b{two}"));
            fs::create_dir_all(&directory).expect("a directory");
            for file in 0..3 {
                fs::write(directory.join(format!("f{file}")), vec![3; 1000 * (one + file)]).expect("a file");
            }
            directories.push(directory);
        }
        fs::hard_link(root.join(format!("a{one}/b3/f1")), root.join(format!("a{}/l{one}", one / 2))).expect("a link");
    }
    directories
}

#[test]
fn what_waits_in_memory_is_in_a_first_harvest() {
    root_test!();
    for fs in THREE {
        let image = Image::new(fs, 1 << 30);
        forest(&image.root());
        let mut tracked = tracked(&image);
        let answer = ask(&mut tracked, &image.root(), Freshness::Exact);
        assert_eq!((answer.is_exact, as_du(&answer)), (true, du(&image.root())), "{}", fs.name());
    }
}

/// What changes while all is read is told of, and read once more.
#[test]
fn a_first_harvest_beside_a_writer_comes_to_what_du_says() {
    root_test!();
    for fs in THREE {
        let image = Image::new(fs, 1 << 30);
        let directories = forest(&image.root());
        let (is_over, harvests) = (AtomicBool::new(false), if long() { 20 } else { 3 });
        for round in 0..harvests {
            // Each is the first one.
            let _ = fs::remove_file(image.beside("store"));
            let mut tracked = tracked(&image);
            let mut tree = Shuffled::new(image.root(), seed() + round, fs.has_reflinks());
            tree.directories.extend(directories.iter().filter(|directory| directory.exists()).cloned());
            is_over.store(false, Ordering::SeqCst);
            let log = thread::scope(|scope| {
                let writer = scope.spawn(|| {
                    let mut log = Vec::new();
                    while !is_over.load(Ordering::SeqCst) || log.len() < 50 {
                        log.push(tree.step());
                    }
                    log
                });
                ask(&mut tracked, &image.root(), Freshness::Exact);
                is_over.store(true, Ordering::SeqCst);
                writer.join().expect("it writes")
            });
            let after = format!("{} of round {round} of seed {}:\n{}", fs.name(), seed(), log.join("\n"));
            agrees(&mut tracked, &image.root(), &after);
            for path in tree.directories.iter().filter(|directory| directory.exists()).step_by(30) {
                agrees(&mut tracked, path, &after);
            }
            say(&format!("{}: a first harvest beside {} operations", fs.name(), log.len()));
        }
    }
}

/// Who may not ask the file system so reads one directory after the other.
#[test]
fn without_the_right_to_ask_each_directory_is_read() {
    root_test!();
    for fs in [Fs::Xfs, Fs::Btrfs] {
        let image = Image::new(fs, 1 << 30);
        let root = image.root();
        let directories = forest(&root);
        let volume = Volume::of(&root).expect("a file system");
        thread::scope(|scope| {
            let restricted = scope.spawn(|| {
                keep_only(&[Right::DacReadSearch]).expect("it is given up");
                assert!(!volume.begin_bulk(), "{}: it may not be asked", fs.name());
                assert_eq!(all(&volume).len(), directories.len());
            });
            restricted.join().expect("no panic");
        });
        assert!(volume.begin_bulk(), "{}: it may be asked", fs.name());
    }
}

/// So no second call is needed to know that there are no more names, and a name that isn't the last is never taken for it.
#[test]
fn xfs_tells_behind_which_name_a_directory_ends() {
    root_test!();
    let image = Image::new(Fs::Xfs, 512 << 20);
    let end = xfs::facts(File::open(image.root()).expect("the top").as_fd()).expect("its facts").end_of_directory();
    let (mut with_end, mut without) = (0, 0);
    for entries in [0, 1, 5, 30, 60, 90, 120, 150, 200, 400, 1000] {
        let path = image.root().join(entries.to_string());
        fs::create_dir(&path).expect("a folder");
        (0..entries).for_each(|name| fs::write(path.join(format!("file {name:09}")), "").expect("a file"));
        let is_one_block = path.metadata().expect("its facts").len() <= 8 * end;
        for room in [400, 4096, 1 << 20] {
            let directory = File::open(&path).expect("a directory");
            let (mut buffer, mut cookies) = (vec![MaybeUninit::uninit(); room], Vec::new());
            let mut names = rustix::fs::RawDir::new(&directory, &mut buffer);
            while let Some(name) = names.next() {
                cookies.push(name.expect("a name").next_entry_cookie());
            }
            let last = cookies.pop().expect("itself, at least");
            assert_eq!((last == end, cookies.len()), (is_one_block, entries + 1), "{entries} by {room} bytes");
            assert!(!cookies.contains(&end), "{entries} by {room} bytes");
        }
        *(if is_one_block { &mut with_end } else { &mut without }) += 1;
    }
    assert!(with_end > 3 && without > 1, "{with_end} and {without}");
}
