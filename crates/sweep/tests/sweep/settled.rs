//! Trees in which nothing has changed for some time, and most of which lies in memory.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    os::{fd::AsFd, unix::fs::MetadataExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use onesweep::{BulkRead, Route};
use onesweep_sys::{cache, files};

/// With them come files of one page and of several, those that are too large for being read first, and those that hold nothing.
const SIZES: [usize; 9] = [700, 4096, 1, 4097, 9000, 4096, 65_536, 65_537, 0];

fn content(number: usize) -> Vec<u8> {
    (0..SIZES[number % SIZES.len()]).map(|at| (at * 31 / 7 + number) as u8).collect()
}

/// Files by path, in the order in which they were made.
fn tree(root: &Path, count: usize) -> Vec<(PathBuf, Vec<u8>)> {
    let made = (0..count).map(|number| {
        let path = root.join(format!("d{}/f{number:04}", number * 3 / count));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content(number)).unwrap();
        files::sync_data(File::open(&path).unwrap().as_fd()).unwrap();
        (path, content(number))
    });
    let made = made.collect();
    // Then no time of a file is that of a change that may go on.
    let seconds = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let then = seconds() + 3;
    while seconds() < then {
        std::thread::sleep(Duration::from_millis(50));
    }
    made
}

fn cached(path: &Path) -> u64 {
    cache::residency(File::open(path).unwrap().as_fd(), 0, 0).unwrap().cached
}

/// Each file with its content and its route. What is told of it is what it is.
fn sweep(root: &Path) -> BTreeMap<PathBuf, (Vec<u8>, Route)> {
    let mut met = BTreeMap::new();
    for item in BulkRead::new([root]).start().unwrap() {
        let mut file = item.unwrap();
        let (told, is) = (*file.metadata(), fs::symlink_metadata(file.path()).unwrap());
        assert_eq!((told.size, told.ino, told.mode, told.nlink), (is.len(), is.ino(), is.mode(), is.nlink() as u32));
        assert_eq!((told.ctime.seconds, told.mtime.nanoseconds), (is.ctime(), is.mtime_nsec() as u32));
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut file.reader(), &mut bytes).unwrap();
        assert_eq!(file.data_ranges().iter().map(|range| range.end - range.start).sum::<u64>(), told.size);
        assert!(met.insert(file.path().to_owned(), (bytes, file.route())).is_none(), "{:?} came twice", file.path());
    }
    met
}

#[test]
fn what_lies_in_memory_comes_whole_and_what_does_not_is_left_out_of_it() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let root = folder.path().join("tree");
    let made = tree(&root, 450);
    fs::hard_link(&made[200].0, root.join("d1/link")).unwrap();
    std::os::unix::fs::symlink("f0000", root.join("d0/symlink")).unwrap();
    let expected: BTreeMap<PathBuf, Vec<u8>> = made.iter().cloned().collect();
    let contents = |met: &BTreeMap<PathBuf, (Vec<u8>, Route)>| {
        // Of two names the one that was met first is told.
        let name = |path: &PathBuf| if path.ends_with("link") { made[200].0.clone() } else { path.clone() };
        met.iter().map(|(path, (bytes, _))| (name(path), bytes.clone())).collect::<BTreeMap<_, _>>()
    };

    made.iter().for_each(|(path, _)| drop(fs::read(path).unwrap()));
    let met = sweep(&root);
    assert!(contents(&met) == expected);
    if onesweep_sys::features::features().cachestat {
        let is_cached = |(bytes, route): &(Vec<u8>, Route)| *route == Route::Cached || bytes.is_empty();
        assert!(met.values().all(is_cached));
    }

    let (gone, stays): (Vec<_>, Vec<_>) = made.iter().partition(|(path, _)| path.starts_with(root.join("d1")));
    for (path, _) in &gone {
        cache::drop_cached(File::open(path).unwrap().as_fd(), 0, 0).unwrap();
    }
    let can_drop = gone.iter().all(|(path, _)| cached(path) == 0);
    assert!(contents(&sweep(&root)) == expected);
    if can_drop {
        let brought_in: Vec<_> = gone.iter().filter(|(path, _)| cached(path) > 0).collect();
        assert!(brought_in.is_empty(), "{} of {}", brought_in.len(), gone.len());
        assert!(stays.iter().all(|(path, bytes)| bytes.is_empty() || cached(path) > 0));
    }
}
