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
    image::{Fs, Image},
    run::{finish, onesweep, output, root_test, run, skipped, text},
    tree::{self, Rng, sum_lines},
};

const FILES: usize = 300;

/// Pages in memory of each file, by `fincore`.
fn pages(files: &[PathBuf]) -> BTreeMap<PathBuf, u64> {
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
    image: Image,
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
    Half { image, root, cached, cold, control }
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

const LARGE_PAGES: u64 = 3000;

/// A file that is streamed, as it may be when the sweep meets it: its first pages in memory, and no others.
fn large(path: &Path, cached_pages: u64) {
    fs::write(path, Rng::new(17).bytes(LARGE_PAGES as usize * 4096 - 100)).expect("a file");
    let file = fs::File::open(path).expect("the file");
    file.sync_all().expect("its blocks");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("none of it is in memory");
    // Each read brings in what it reads, and nothing ahead.
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).expect("no reading ahead");
    let cached_bytes = (cached_pages * 4096).min(file.metadata().expect("its size").len());
    file.read_exact_at(&mut vec![0; cached_bytes as usize], 0).expect("its first pages");
}

/// For each page of a file whether it is in memory.
fn map(path: &Path) -> Vec<bool> {
    let file = fs::File::open(path).expect("the file");
    let is_cached = |page| onesweep_sys::cache::residency(file.as_fd(), page * 4096, 4096).expect("told").cached > 0;
    (0..LARGE_PAGES).map(is_cached).collect()
}

/// A large file passes by the cache too, page for page.
#[test]
fn pages_of_large_files_are_left_as_they_were() {
    root_test!(alone);
    for fs in [Fs::Ext4, Fs::Xfs, Fs::Btrfs] {
        for (options, hidden) in [(&[][..], ""), (&[], "dontcache"), (&[], "dontcache,direct"), (&["--device"], "")] {
            if !options.is_empty() && !fs.has_device_mode() {
                continue;
            }
            on_a_quiet_machine(fs, |half| {
                let folder = half.image.root().join("large");
                fs::create_dir(&folder).expect("a folder");
                let files = [("none", 0), ("some", 64), ("all", LARGE_PAGES)].map(|(name, pages)| {
                    let path = folder.join(name);
                    large(&path, pages);
                    path
                });
                let before = files.each_ref().map(|path| map(path));
                assert!(!before[0].contains(&true), "nothing of the unread file is in memory");
                let cached = before[1].iter().filter(|page| **page).count();
                assert!((64..128).contains(&cached), "{cached} pages are in memory");
                let mut tar = onesweep(["tar", "--large", "1M", "-cf", "-"]);
                finish(tar.args(options).arg(&folder).env("ONESWEEP_HIDE", hidden), 0);
                for (path, before) in files.iter().zip(before) {
                    let after = map(path);
                    let more = before.iter().zip(&after).filter(|(before, after)| !**before && **after).count();
                    // Here the kernel's own reclaiming is no excuse.
                    assert_eq!(more, 0, "{} {options:?} {hidden}: {more} more pages of {path:?}", fs.name());
                    let fewer = before.iter().zip(&after).filter(|(before, after)| **before && !**after).count();
                    if fewer > 0 {
                        return Err(format!("{options:?} {hidden} dropped {fewer} pages of {}", path.display()));
                    }
                }
                Ok(())
            });
        }
    }
}

/// Of others' files the kernel does not tell what is in memory; nothing is brought in all the same.
#[test]
fn an_ordinary_user_leaves_it_as_it_was() {
    root_test!(alone);
    for (fs, hidden) in [(Fs::Ext4, ""), (Fs::Xfs, "")] {
        let mut image = Image::new(fs, 400 << 20);
        let root = image.root().join("tree");
        fs::create_dir(&root).expect("a folder");
        let path = root.join("large");
        large(&path, 0);
        image.cold();
        assert!(!map(&path).contains(&true));
        let tool = image.beside("onesweep");
        fs::copy(crate::run::program(), &tool).expect("a copy of the program");
        let mut tar = Command::new("setpriv");
        tar.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&tool);
        let out = finish(tar.args(["tar", "--large", "1M", "-cf", "-"]).arg(&root).env("ONESWEEP_HIDE", hidden), 0);
        assert!(out.stdout.len() as u64 > (LARGE_PAGES - 1) * 4096);
        let brought = map(&path).iter().filter(|page| **page).count();
        assert_eq!(brought, 0, "{} {hidden}: {brought} pages of another user's file were left", fs.name());
    }
}
