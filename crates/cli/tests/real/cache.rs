//! The machine's page cache: left as it was found, and used first.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::ffi::OsStrExt,
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
    _image: Image,
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
    Half { _image: image, root, cached, cold, control }
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
