//! The machine's page cache: left as it was found, and used first.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::{
        fd::AsFd,
        unix::{ffi::OsStrExt, fs::FileExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    bad_input::interrupt,
    image::{Folder, Fs, Image},
    run::{finish, interruptible, onesweep, output, root_test, run, skipped, text},
    tree::{self, Rng, sum_lines},
};

const FILES: usize = 300;

/// Pages in memory of each file, by `fincore`.
pub(crate) fn pages(files: &[PathBuf]) -> BTreeMap<PathBuf, u64> {
    let mut all = BTreeMap::new();
    for some in files.chunks(100) {
        let out = output(Command::new("fincore").args(["--noheadings", "--raw", "--output", "PAGES,FILE"]).args(some));
        for line in text(&out).lines() {
            let (pages, file) = line.trim().split_once(' ').expect("pages and a file");
            all.insert(PathBuf::from(file), pages.parse().expect("a number of pages"));
        }
    }
    assert_eq!(all.len(), files.len(), "fincore tells of each file");
    all
}

fn read(files: &[PathBuf]) {
    for some in files.chunks(100) {
        run(Command::new("cat").args(some).stdout(Stdio::null()));
    }
}

/// A tree from cold, in which some files were read, and as many beside it that nobody else will touch.
struct Half {
    _mounted: Image,
    root: PathBuf,
    cached: Vec<PathBuf>,
    cold: Vec<PathBuf>,
    control: Vec<PathBuf>,
}

fn half_cached(fs: Fs) -> Half {
    let mut image = Image::new(fs, 400 << 20);
    let root = image.root().join("tree");
    let beside = image.root().join("control");
    let mut rng = Rng::new(11);
    let make = |folder: &Path, rng: &mut Rng| -> Vec<PathBuf> {
        fs::create_dir(folder).expect("a folder");
        let paths = (0..FILES).map(|number| folder.join(format!("{number:03}")));
        paths
            .inspect(|path| {
                let size = 4096 + rng.below(100_000) as usize;
                fs::write(path, rng.bytes(size)).expect("a file");
            })
            .collect()
    };
    let files = make(&root, &mut rng);
    let control = make(&beside, &mut rng);
    tree::sync(&root);
    image.cold();
    let (cached, cold): (Vec<PathBuf>, Vec<PathBuf>) = files.into_iter().partition(|_| rng.below(3) == 0);
    read(&cached);
    read(&control);
    Half { _mounted: image, root, cached, cold, control }
}

/// Makes up to five trials until one succeeds. The kernel may reclaim pages by itself at any time, so one failure may be
/// its doing and not the program's; five in turn with the control files untouched are not.
fn on_a_quiet_machine(fs: Fs, trial: impl Fn(&Half) -> Result<(), String>) {
    let mut failure = None;
    for _ in 0..5 {
        let half = half_cached(fs);
        let before = pages(&half.control);
        let result = trial(&half);
        if pages(&half.control) != before {
            continue;
        }
        match result {
            Ok(()) => return,
            Err(why) => failure = Some(why),
        }
    }
    match failure {
        Some(why) => panic!("{}: {why}", fs.name()),
        None => skipped("the kernel reclaimed the page cache of files that nobody touched, five times in turn"),
    }
}

fn is_left_as_it_was(fs: Fs, options: &[&str], hidden: &str) {
    on_a_quiet_machine(fs, |half| {
        let cached = pages(&half.cached);
        assert_eq!(pages(&half.cold).values().sum::<u64>(), 0, "nothing of the unread files is in memory");
        // Into a pipe: what goes to /dev/null need not be read.
        let mut tar = onesweep(["tar", "-cf", "-"]);
        finish(tar.args(options).arg(&half.root).env("ONESWEEP_HIDE", hidden), 0);
        // Here the kernel's own reclaiming is no excuse.
        let brought: u64 = pages(&half.cold).values().sum();
        assert_eq!(brought, 0, "{}: {options:?} left {brought} pages of files that were not cached", fs.name());
        let after = pages(&half.cached);
        let fewer = cached.iter().filter(|(file, pages)| after[*file] < **pages).count();
        if fewer > 0 {
            return Err(format!("{options:?} dropped pages of {fewer} files that were cached"));
        }
        Ok(())
    });
}

#[test]
fn it_is_left_as_it_was() {
    root_test!(alone);
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        is_left_as_it_was(fs, &[], "");
    }
    is_left_as_it_was(Fs::Ext4, &["--device"], "");
    is_left_as_it_was(Fs::Ext4, &["--order", "directory"], "");
}

/// Without uncached reads in the kernel, pages are dropped behind the reader.
#[test]
fn it_is_left_as_it_was_without_uncached_reads() {
    root_test!(alone);
    is_left_as_it_was(Fs::Ext4, &[], "dontcache");
    is_left_as_it_was(Fs::Ext4, &[], "dontcache,io_uring");
}

/// Cached files cost no disk time and may be gone soon: they come first.
#[test]
fn cached_files_come_first() {
    root_test!(alone);
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        on_a_quiet_machine(fs, |half| {
            let out = finish(onesweep(["sum", "--algorithm", "sha256"]).arg(&half.root), 0);
            let delivered = sum_lines(&out.stdout);
            assert_eq!(delivered.len(), FILES);
            let first: BTreeSet<&[u8]> = delivered[..half.cached.len()].iter().map(|(name, _)| &name[..]).collect();
            let late = half.cached.iter().filter(|path| !first.contains(path.as_os_str().as_bytes())).count();
            if late > 0 {
                return Err(format!("{late} of {} cached files came late", half.cached.len()));
            }
            Ok(())
        });
    }
}

/// `onesweep warm` is for bringing files in, and they stay.
#[test]
fn warmed_files_stay() {
    root_test!(alone);
    on_a_quiet_machine(Fs::Ext4, |half| {
        finish(onesweep(["warm"]).arg(&half.root), 0);
        for (file, pages) in pages(&half.cold) {
            let size = fs::metadata(&file).expect("the file").len();
            if pages != size.div_ceil(4096) {
                return Err(format!("{pages} pages of {} are in memory, it has {size} bytes", file.display()));
            }
        }
        Ok(())
    });
}

/// What comes into memory stays below the limit, but for the file at which it was reached and for what was read ahead of
/// it, which the budget bounds.
#[test]
fn warming_stops_at_the_limit() {
    root_test!(alone);
    const LIMIT: u64 = 1 << 20;
    for hidden in ["", "io_uring"] {
        on_a_quiet_machine(Fs::Ext4, |half| {
            let size = |path: &PathBuf| fs::metadata(path).expect("the file").len().next_multiple_of(4096);
            let sizes: Vec<u64> = half.cold.iter().map(size).collect();
            let (all, largest) = (sizes.iter().sum::<u64>(), sizes.into_iter().max().expect("a file"));
            let most = LIMIT + LIMIT / 8 + largest;
            assert!(all > 4 * most, "{all} bytes are too few to be stopped at");
            let mut warm = onesweep(["warm", "--limit", "1M"]);
            let out = finish(warm.args(&half.cold).env("ONESWEEP_HIDE", hidden), 0);
            assert!(text(&out.stdout).contains("would pass the limit of 1.0 MiB"), "{}", text(&out.stdout));
            let brought = pages(&half.cold).values().sum::<u64>() * 4096;
            assert!(brought <= most, "without {hidden:?} {brought} bytes were brought in");
            if brought + largest < LIMIT {
                return Err(format!("without {hidden:?} only {brought} bytes are in memory"));
            }
            Ok(())
        });
    }
}

/// More than `--large 1M` lets wait, and less.
const SIZES: [(&str, u64); 2] = [("large", 3000), ("small", 90)];

/// What of a file is in memory when the sweep meets it.
const STATES: [&str; 4] = ["none", "runs", "begun", "all"];

/// Brings pages of a file into memory.
fn bring_in(path: &Path, state: &str, pages: u64) {
    let file = fs::File::open(path).expect("the file");
    let size = file.metadata().expect("its size").len();
    let read = |pages: std::ops::Range<u64>| {
        let bytes = (pages.end * 4096).min(size) - pages.start * 4096;
        file.read_exact_at(&mut vec![0; bytes as usize], pages.start * 4096).expect("some pages");
    };
    if state == "begun" {
        // As a reader that gave up leaves it: with pages read ahead, and a mark to go on from.
        for page in 0..pages / 6 {
            read(page..page + 1);
        }
        return;
    }
    // Each read brings in what it reads, and nothing ahead.
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).expect("no reading ahead");
    match state {
        "runs" => [0..3, 10..11, 40..60, pages / 2..pages / 2 + 9, pages - 2..pages].into_iter().for_each(read),
        "all" => read(0..pages),
        _ => {}
    }
}

/// A file, and for each of its pages whether it is in memory.
type Pages = (PathBuf, Vec<bool>);

/// Files of both sizes in all states, met from cold, with what is in memory of each. An error for a file that is in no
/// such state, which may be the kernel's doing.
fn mixed(image: &Image) -> Result<(PathBuf, Vec<Pages>), String> {
    let folder = image.root().join("mixed");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).expect("a folder");
    let content = Rng::new(17).bytes(SIZES[0].1 as usize * 4096);
    let each = || SIZES.into_iter().flat_map(|size| STATES.map(|state| (size, state)));
    for ((size, pages), state) in each() {
        let path = folder.join(format!("{size}-{state}"));
        fs::write(&path, &content[..pages as usize * 4096 - 100]).expect("a file");
        let file = fs::File::open(&path).expect("the file");
        file.sync_all().expect("its blocks");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("none of it is in memory");
    }
    let files = each().map(|((size, pages), state)| {
        let path = folder.join(format!("{size}-{state}"));
        bring_in(&path, state, pages);
        // What is read ahead comes later than what was read.
        let before = loop {
            let now = map(&path);
            std::thread::sleep(std::time::Duration::from_millis(20));
            if map(&path) == now {
                break now;
            }
        };
        let cached = before.iter().filter(|page| **page).count() as u64;
        let is_met = match state {
            "none" => cached == 0,
            "all" => cached == pages,
            _ => (1..pages).contains(&cached),
        };
        if is_met { Ok((path, before)) } else { Err(format!("{cached} pages of {}", path.display())) }
    });
    let files = files.collect::<Result<_, _>>()?;
    Ok((folder, files))
}

/// For each page of a file whether it is in memory.
fn map(path: &Path) -> Vec<bool> {
    let file = fs::File::open(path).expect("the file");
    let pages = file.metadata().expect("its size").len().div_ceil(4096);
    let is_cached = |page| onesweep_sys::cache::residency(file.as_fd(), page * 4096, 4096).expect("told").cached > 0;
    (0..pages).map(is_cached).collect()
}

/// An error for pages that are gone, which may be the kernel's doing; more of them never are.
fn compare(files: &[Pages], what: &str) -> Result<(), String> {
    for (path, before) in files {
        let after = map(path);
        let more = before.iter().zip(&after).filter(|(before, after)| !**before && **after).count();
        assert_eq!(more, 0, "{what}: {more} more pages of {path:?}");
        let fewer = before.iter().zip(&after).filter(|(before, after)| **before && !**after).count();
        if fewer > 0 {
            return Err(format!("{what}: {fewer} fewer pages of {}", path.display()));
        }
    }
    Ok(())
}

/// The ways round direct and uncached reads and round asking what is cached.
const HIDDEN: [&str; 4] = ["", "dontcache", "dontcache,direct", "dontcache,direct,cachestat,io_uring"];

/// Runs `tar` on files in all states, up to five times until no page was lost: the kernel may reclaim some.
fn leaves_pages_as_they_were(image: &Image, what: &str, tar: impl Fn() -> Command) {
    let trial = || {
        let (folder, files) = mixed(image)?;
        let out = finish(tar().arg(&folder), 0);
        let content: u64 = SIZES.iter().map(|(_, pages)| STATES.len() as u64 * (pages - 1) * 4096).sum();
        assert!(out.stdout.len() as u64 > content);
        compare(&files, what)
    };
    let failures: Vec<String> = (0..5).map_while(|_| trial().err()).collect();
    assert!(failures.len() < 5, "{}", failures[0]);
}

/// Files that are partly in memory too, large and small, are left as they were page for page.
#[test]
fn pages_are_left_as_they_were() {
    root_test!(alone);
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let image = Image::new(fs, 400 << 20);
        let device = fs.has_device_mode().then_some((Some("--device"), ""));
        for (option, hidden) in HIDDEN.map(|hidden| (None, hidden)).into_iter().chain(device) {
            leaves_pages_as_they_were(&image, &format!("{} {option:?} {hidden:?}", fs.name()), || {
                let mut tar = onesweep(["tar", "--large", "1M", "-cf", "-"]);
                tar.args(option).env("ONESWEEP_HIDE", hidden);
                tar
            });
        }
    }
}

/// Of others' files the kernel does not tell what is in memory; they are left as they were all the same.
#[test]
fn an_ordinary_user_leaves_it_as_it_was() {
    root_test!(alone);
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        let image = Image::new(fs, 400 << 20);
        let tool = image.beside("onesweep");
        crate::run::copy_program(&crate::run::program(), &tool);
        for hidden in HIDDEN {
            leaves_pages_as_they_were(&image, &format!("an ordinary user on {} {hidden:?}", fs.name()), || {
                let mut tar = Command::new("setpriv");
                tar.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&tool);
                tar.args(["tar", "--large", "1M", "-cf", "-"]).env("ONESWEEP_HIDE", hidden);
                tar
            });
        }
    }
}

/// Reading a hole makes pages of zeros, which are dropped as others are.
#[test]
fn holes_leave_nothing() {
    root_test!(alone);
    let image = Image::new(Fs::Ext4, 100 << 20);
    let folder = image.root().join("holes");
    fs::create_dir(&folder).expect("a folder");
    let path = folder.join("small");
    fs::File::create(&path).expect("a file").set_len(400 << 10).expect("a hole");
    finish(onesweep(["tar", "-cf", "-"]).arg(&folder), 0);
    assert!(!map(&path).contains(&true));
}

/// Where it is not told what of others' files is cached, and can't be tried either, direct reads are all there is.
#[test]
fn an_ordinary_user_leaves_nothing_of_a_file_system_in_user_space() {
    root_test!();
    let folder = Folder::new();
    let (file, mount) = (folder.join("disk.img"), folder.join("mnt"));
    fs::File::create(&file).and_then(|file| file.set_len(64 << 20)).expect("a sparse file");
    run(Command::new("mkntfs").args(["--quick", "--force", "--quiet"]).arg(&file).stderr(Stdio::null()));
    fs::create_dir(&mount).expect("a mount point");
    if !Path::new("/dev/fuse").exists() {
        return skipped("no FUSE here");
    }
    run(Command::new("ntfs-3g").args(["-o", "allow_other,umask=022"]).arg(&file).arg(&mount));
    let files: Vec<PathBuf> = ["a", "b", "c"].map(|name| mount.join(name)).into();
    for path in &files {
        fs::write(path, Rng::new(5).bytes(1_000_000)).expect("a file");
        let file = fs::File::open(path).expect("the file");
        file.sync_all().expect("its blocks");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("none of it is in memory");
    }
    assert!(files.iter().all(|path| !map(path).contains(&true)));
    let tool = folder.join("onesweep");
    crate::run::copy_program(&crate::run::program(), &tool);
    let mut tar = Command::new("setpriv");
    tar.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&tool).args(["tar", "-cf", "-"]).arg(&mount);
    let out = finish(tar.env_remove("ONESWEEP_HIDE"), 0);
    assert!(out.stdout.len() > 3_000_000);
    assert!(files.iter().all(|path| !map(path).contains(&true)), "something stayed in memory");
}

/// One file that was never read, cold, on an image of its own.
fn one_cold_file(bytes: usize) -> (Image, PathBuf) {
    let mut image = Image::new(Fs::Ext4, 128 << 20);
    let path = image.root().join("file");
    fs::write(&path, Rng::new(23).bytes(bytes)).expect("a file");
    image.set_options("ro,noload");
    image.cold();
    (image, path)
}

const THROUGH_THE_CACHE: &str = "dontcache,direct";

/// What was read of a file before its disk failed does not stay.
#[test]
fn a_file_that_fails_leaves_nothing() {
    root_test!(alone);
    let (image, path) = one_cold_file(100 << 20);
    // The file is larger than what is left of its disk.
    fs::File::options().write(true).open(image.file()).expect("the image").set_len(64 << 20).expect("a cut");
    run(Command::new("losetup").arg("--set-capacity").arg(image.device()));
    let mut sum = onesweep(["sum", "--algorithm", "md5", "--budget", "400M", "--large", "200M"]);
    let out = finish(sum.arg(&path).env("ONESWEEP_HIDE", THROUGH_THE_CACHE), 1);
    assert!(text(&out.stderr).contains("cannot read at byte"), "{}", text(&out.stderr));
    let stayed = map(&path).iter().filter(|page| **page).count();
    assert_eq!(stayed, 0);
}

/// Nor does what was read of a file when the sweep was interrupted.
#[test]
fn an_interrupt_leaves_nothing() {
    root_test!(alone);
    let (_image, path) = one_cold_file(64 << 20);
    let mut sum =
        interruptible(["sum", "--algorithm", "md5", "--budget", "400M", "--large", "200M", "--bwlimit", "1M"]);
    sum.args(["--max-request", "256K"]).arg(&path).env("ONESWEEP_HIDE", THROUGH_THE_CACHE);
    let mut running = sum.stderr(Stdio::null()).spawn().expect("it starts");
    while !map(&path).contains(&true) {
        assert!(running.try_wait().expect("its state").is_none(), "it ended before it was interrupted");
    }
    interrupt(&running);
    assert_eq!(running.wait().expect("it ends").code(), Some(130));
    assert!(!map(&path).contains(&true));
}

/// Ignore files are read like others: their pages go, and what was there stays.
#[test]
fn ignore_files_are_left_as_they_were() {
    root_test!(alone);
    let mut image = Image::new(Fs::Ext4, 64 << 20);
    let folders = ["cold", "cached"].map(|name| image.root().join(name));
    for folder in &folders {
        fs::create_dir(folder).expect("a folder");
        fs::write(folder.join(".gitignore"), vec![b'x'; 10_000]).expect("a file");
    }
    image.cold();
    read(&[folders[1].join(".gitignore")]);
    finish(onesweep(["list", "--gitignore"]).args(&folders), 0);
    assert_eq!(map(&folders[0].join(".gitignore")), [false; 3]);
    // What the kernel reclaims by itself is no fault of the program, but three fresh pages hardly are.
    assert_eq!(map(&folders[1].join(".gitignore")), [true; 3]);
}
