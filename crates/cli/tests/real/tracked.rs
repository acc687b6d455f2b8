//! Summaries of an image, kept by what is told of its changes, and what GNU du says of it.

use std::{
    fs::{self, File, OpenOptions},
    io,
    path::Path,
    process::Command,
    sync::Arc,
};

use onesweep_summary::{
    identity::NodeId,
    reading::Directories,
    store::Store,
    summaries::{Answer, Freshness, Summaries},
    tracker::{Fanotify, SizesFollow},
    volume::Volume,
};

use crate::{
    image::Image,
    run::{output, run, text},
};

pub(crate) type Tracked = Summaries<Arc<Volume>, Fanotify>;

pub(crate) fn tracked(image: &Image) -> Tracked {
    let volume = Arc::new(Volume::of(&image.root()).expect("a file system with handles"));
    let tracker = Fanotify::start(volume.clone()).expect("it is watched");
    let store = Store::open(&image.beside("store")).expect("a store");
    let root = volume.root();
    Summaries::open(store, (volume, tracker), root, b"test").expect("summaries")
}

pub(crate) fn node(tracked: &Tracked, path: &Path) -> NodeId {
    let fd = File::open(path).expect("a directory");
    tracked.directories().node_of(std::os::fd::AsFd::as_fd(&fd)).expect("its handle")
}

pub(crate) fn ask(tracked: &mut Tracked, path: &Path, freshness: Freshness) -> Answer {
    let node = node(tracked, path);
    tracked.query(node, freshness).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What GNU du says: allocated bytes, bytes, inodes.
pub(crate) fn du(path: &Path) -> [i64; 3] {
    [&["-sB1"][..], &["-sb"], &["-s", "--inodes"]].map(|options| {
        let said = text(&output(Command::new("du").args(options).arg(path)));
        said.split_whitespace().next().and_then(|figure| figure.parse().ok()).expect("a figure")
    })
}

/// The same of an answer. The du of this machine counts the sizes of directories.
pub(crate) fn as_du(answer: &Answer) -> [i64; 3] {
    let sums = answer.totals.sums;
    [sums.blocks * 512, sums.bytes + sums.directory_bytes, sums.inodes()]
}

/// By what was told alone, and then with all that is unsettled read once more, which nobody has to be told of.
pub(crate) fn agrees(tracked: &mut Tracked, path: &Path, after: &str) {
    was_told(tracked, path, after);
    agrees_when_synced(tracked, path, after);
}

/// Bytes and inodes are those of GNU du by what was told alone, where each write is. Blocks may not have settled.
pub(crate) fn was_told(tracked: &mut Tracked, path: &Path, after: &str) {
    if tracked.directories().sizes_follow() == SizesFollow::Close {
        return;
    }
    let answer = ask(tracked, path, Freshness::Exact);
    assert!(answer.is_exact, "{after}: nobody writes");
    assert_eq!(as_du(&answer)[1..], du(path)[1..], "{} by what was told after {after}: {answer:?}", path.display());
}

/// For what nobody is told of.
pub(crate) fn agrees_when_synced(tracked: &mut Tracked, path: &Path, after: &str) {
    let asked = node(tracked, path);
    let answered = tracked.query(asked, Freshness::Synced);
    let mut answer = answered.unwrap_or_else(|error| panic!("{} after {after}: {error}", path.display()));
    let mut told = du(path);
    // XFS gives back what it has allocated ahead when it forgets an inode, which may be between the two.
    if told[0] < as_du(&answer)[0] {
        answer = ask(tracked, path, Freshness::Synced);
        told = du(path);
    }
    assert!(answer.is_exact, "{after}: nobody writes");
    assert_eq!(as_du(&answer), told, "{} after {after}: {answer:?}", path.display());
}

/// Has a directory told of in two rounds, so that the kernel says nothing of it any more.
pub(crate) fn make_dirty(tracked: &mut Tracked, directory: &Path) {
    for _ in 0..2 {
        fs::write(directory.join("dirty"), b"x").expect("a file");
        tracked.drain().expect("it is told");
    }
    assert!(tracked.tracker().ignores(node(tracked, directory)), "{} is ignored", directory.display());
}

/// Makes a file so long, of holes, and writes all of it through a mapping.
pub(crate) fn write_mapped(path: &Path, length: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(0)?;
    file.set_len(length)?;
    let mut io = Command::new("xfs_io");
    io.args(["-c", &format!("mmap -rw 0 {length}"), "-c", &format!("mwrite 0 {length}"), "-c", "munmap"]).arg(path);
    run(&mut io);
    Ok(())
}

/// How a killed server leaves the store, for the next one: what has been written to the file by now, and nothing of its end.
pub(crate) fn kill(tracked: Tracked, image: &Image) {
    let (store, left) = (image.beside("store"), image.beside("store-left"));
    fs::copy(&store, &left).expect("a copy");
    drop(tracked);
    fs::rename(left, store).expect("it takes the other's place");
}
