//! The store has what the disk of the file system never got.

use std::{
    fs::{self, File},
    os::{fd::AsFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use onesweep_summary::{
    file_system::FileSystem,
    service::server::Served,
    store::Store,
    summaries::{Freshness, Summaries},
    tracker::Fanotify,
    volume::Volume,
};

use crate::{
    catch_up::{forest, wait_until_old},
    image::{Fs, Image},
    run::{root_test, say},
    tracked::{as_du, du},
};

fn volume(image: &Image) -> Volume {
    Volume::of(&image.root()).expect("a file system with handles")
}

/// As a server does that begins.
fn serve(image: &Image) -> Arc<Served> {
    let volume: Arc<dyn FileSystem> = Arc::new(volume(image));
    let tracker = Fanotify::start(volume.clone()).expect("it is watched");
    let store = Store::open(&image.beside("store")).expect("a store");
    let root = volume.root();
    let summaries = Summaries::open(store, (volume, tracker), root, b"test").expect("summaries");
    let served = Served::new(image.root(), summaries);
    served.catch_up(|_, done| done.expect("it is known")).expect("it is written");
    served
}

fn ask(served: &Served, path: &Path, freshness: Freshness) -> [i64; 3] {
    let directory = File::open(path).expect("a directory");
    let id = Volume::of(path).and_then(|volume| volume.node_of(directory.as_fd())).expect("its number");
    let answer = served.summaries().answer(id, freshness).expect("an answer");
    assert!(answer.is_exact, "nobody writes");
    as_du(&answer)
}

/// What is written, named, moved and taken away in some directories.
fn change(root: &Path, from: u32) {
    let at = |number: u32, rest: &str| root.join(format!("a{}/{rest}", from + number));
    fs::write(at(0, "b1/new"), vec![1; 70_000]).expect("a file");
    fs::write(at(1, "b2/f0"), vec![1; 90_000]).expect("a file");
    fs::remove_file(at(2, "b3/f1")).expect("it goes");
    fs::rename(at(3, "b4"), at(4, "moved")).expect("it moves");
    fs::create_dir(at(5, "b5/new")).expect("a directory");
    fs::write(at(5, "b5/new/f"), vec![1; 5000]).expect("a file");
    fs::hard_link(at(6, "b6/f0"), at(7, "b7/l")).expect("a link");
    fs::remove_dir_all(at(8, "b8")).expect("it goes");
    fs::set_permissions(at(9, "b9"), fs::Permissions::from_mode(0o700)).expect("a mode");
}

/// Directories were read while what had changed in them was in memory alone, and the store is on another disk. The power goes, and
/// their file system is as it was before, under a store that isn't. What changes then has the numbers of what is lost.
fn what_is_lost_is_noticed(fs: Fs) {
    let mut image = Image::new(fs, 1 << 30);
    let directories: Vec<PathBuf> = forest(&image.root());
    wait_until_old(&image);
    let served = serve(&image);
    let on_disk = image.on_disk();
    change(&image.root(), 0);
    // Nothing is written for that.
    let answer = ask(&served, &image.root(), Freshness::Exact);
    assert_eq!(answer[1..], du(&image.root())[1..], "they were read");
    served.summaries().commit().expect("the store is durable");
    drop(served);
    image.power_cut(&on_disk);
    change(&image.root(), 10);
    let served = serve(&image);
    let readings = served.summaries().shared().readings();
    for directory in directories.iter().filter(|directory| directory.exists()) {
        let answer = ask(&served, directory, Freshness::Exact);
        assert_eq!(answer[1..], du(directory)[1..], "{} after a power cut, {}", directory.display(), fs.name());
        let answer = ask(&served, directory, Freshness::Synced);
        assert_eq!(answer, du(directory), "{} after a power cut, {}", directory.display(), fs.name());
    }
    // What was read before the cut and was on the disk isn't read again.
    assert!(readings * 3 < directories.len() as u64, "{}: {readings} of {}", fs.name(), directories.len());
    say(&format!("{}: {readings} of {} directories read after a power cut", fs.name(), directories.len()));
}

#[test]
fn ext4_loses_what_was_read() {
    root_test!();
    what_is_lost_is_noticed(Fs::Ext4);
}

#[test]
fn xfs_loses_what_was_read() {
    root_test!();
    what_is_lost_is_noticed(Fs::Xfs);
}

#[test]
fn btrfs_loses_what_was_read() {
    root_test!();
    what_is_lost_is_noticed(Fs::Btrfs);
}
