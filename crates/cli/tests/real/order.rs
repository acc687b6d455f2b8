//! The sweep as the disk sees it: requests rise in address, and modelled on a disk that seeks they take a fraction of
//! the time that GNU tar's take.

use std::{fs, path::Path, process::Command, sync::OnceLock};

use crate::{
    disk_model::{Cost, Disk},
    image::{Fs, Image},
    peer::{Place, Server},
    run::{long, onesweep, root_test, say, seed},
    trace::{self, Request},
    tree::{self, Rng},
};

const IMAGE_BYTES: u64 = 8 << 30;

fn files() -> u64 {
    if long() { 100_000 } else { 20_000 }
}

/// The requests of both programs on the same aged image, each from cold.
struct Traces {
    tar: Vec<Request>,
    onesweep: Vec<Request>,
}

fn traces(fs: Fs) -> &'static Traces {
    static EXT4: OnceLock<Traces> = OnceLock::new();
    static XFS: OnceLock<Traces> = OnceLock::new();
    let cell = if fs == Fs::Xfs { &XFS } else { &EXT4 };
    cell.get_or_init(|| {
        let mut image = tree::aged(fs, files(), IMAGE_BYTES);
        let tree = image.root().join("tree");
        let tar = trace::from_cold(&mut image, gnu_tar(&tree));
        let mut sweep = onesweep(["tar", "-cf", "-", "-C"]);
        sweep.arg(&tree).arg(".");
        let onesweep = trace::from_cold(&mut image, sweep);
        Traces { tar, onesweep }
    })
}

fn gnu_tar(tree: &Path) -> Command {
    let mut tar = Command::new("tar");
    tar.args(["-cf", "-", "-C"]).arg(tree).arg(".");
    tar
}

fn data(requests: &[Request]) -> Vec<&Request> {
    requests.iter().filter(|request| !request.metadata).collect()
}

/// Of all steps from one request to the next, the part that goes up.
fn rising(requests: &[&Request]) -> f64 {
    let up = requests.windows(2).filter(|pair| pair[1].start >= pair[0].start).count();
    up as f64 / requests.windows(2).count().max(1) as f64
}

/// The way of the head in bytes.
fn distance(requests: &[&Request]) -> u64 {
    requests.windows(2).map(|pair| pair[1].start.abs_diff(pair[0].end())).sum()
}

fn bytes(requests: &[&Request]) -> u64 {
    requests.iter().map(|request| request.bytes).sum()
}

fn tell(fs: Fs, program: &str, requests: &[Request]) -> Cost {
    let data = data(requests);
    let cost = Disk::of(IMAGE_BYTES).serve(requests);
    let data_cost = Disk::of(IMAGE_BYTES).serve(data.iter().copied());
    say(&format!(
        "{:>6} {program:>9}: {:6} requests, {:6} of data with {:4} MB, {:5.1} of 100 rise, way {:9.3} GB; \
         modelled {:7.2} s (seeks {:.2}, turns {:.2}, transfer {:.2}), data alone {:.2} s",
        fs.name(),
        requests.len(),
        data.len(),
        bytes(&data) / 1_000_000,
        rising(&data) * 100.0,
        distance(&data) as f64 / 1e9,
        cost.total_ms() / 1000.0,
        cost.seek_ms / 1000.0,
        cost.turn_ms / 1000.0,
        cost.transfer_ms / 1000.0,
        data_cost.total_ms() / 1000.0,
    ));
    cost
}

/// What nothing can beat without reading other bytes: the same requests, each byte once, in one sweep.
fn tell_the_bound(fs: Fs, requests: &[Request]) {
    let mut sorted = requests.to_vec();
    sorted.sort_by_key(|request| request.start);
    sorted.dedup_by_key(|request| request.start);
    tell(fs, "the bound", &sorted);
}

fn data_is_read_in_the_order_of_the_disk(fs: Fs) {
    let traces = traces(fs);
    let (tar, sweep) = (data(&traces.tar), data(&traces.onesweep));
    assert!(sweep.len() > 1000, "the sweep read next to nothing: {} requests", sweep.len());
    let rising = rising(&sweep);
    assert!(rising >= 0.97, "{}: only {:.1} of 100 data requests rise in address", fs.name(), rising * 100.0);
    let (way, way_of_tar) = (distance(&sweep), distance(&tar));
    assert!(way <= way_of_tar / 10, "{}: the head goes {way} bytes, for GNU tar {way_of_tar}", fs.name());
}

/// A server is filled from a directory as an archive is: in one sweep.
fn what_is_pushed_is_read_in_the_order_of_the_disk(fs: Fs) {
    let tar = data(&traces(fs).tar).into_iter().cloned().collect::<Vec<_>>();
    let mut image = tree::aged(fs, files(), IMAGE_BYTES);
    let place = Place::new();
    let server = Server::start(&place);
    let mut push = onesweep(["peer", "push", "--server", &server.address, "--key"]);
    push.arg(place.path("key")).arg(image.root().join("tree"));
    let requests = trace::from_cold(&mut image, push);
    tell(fs, "push", &requests);
    let (tar, pushed) = (tar.iter().collect::<Vec<_>>(), data(&requests));
    assert!(bytes(&pushed) * 10 >= bytes(&tar) * 9, "{} of {} bytes were read", bytes(&pushed), bytes(&tar));
    let rising = rising(&pushed);
    assert!(rising >= 0.97, "{}: only {:.1} of 100 data requests rise in address", fs.name(), rising * 100.0);
    let (way, way_of_tar) = (distance(&pushed), distance(&tar));
    assert!(way <= way_of_tar / 10, "{}: the head goes {way} bytes, for GNU tar {way_of_tar}", fs.name());
}

/// The modelled disk time of the whole trace, metadata and data, is at most one `part`-th of GNU tar's.
fn the_disk_is_busy_for_a_fraction(fs: Fs, part: f64) {
    let traces = traces(fs);
    let tar = tell(fs, "GNU tar", &traces.tar).total_ms();
    let sweep = tell(fs, "onesweep", &traces.onesweep).total_ms();
    tell_the_bound(fs, &traces.tar);
    say(&format!("{:>6} GNU tar takes {:.1} times the modelled disk time of onesweep", fs.name(), tar / sweep));
    assert!(
        sweep <= tar / part,
        "{}: {sweep:.0} ms of modelled disk time, more than 1/{part} of GNU tar's {tar:.0} ms",
        fs.name()
    );
}

/// Most of the metadata is asked for by the threads that read it ahead, so that the disk has a choice.
fn metadata_is_read_ahead(fs: Fs) {
    let metadata: Vec<_> = traces(fs).onesweep.iter().filter(|request| request.metadata).collect();
    let ahead = metadata.iter().filter(|request| request.thread == "onesweep-ahead").count();
    assert!(ahead * 2 > metadata.len(), "{}: {ahead} of {} metadata requests", fs.name(), metadata.len());
}

#[test]
fn ext4_metadata_is_read_ahead() {
    root_test!();
    metadata_is_read_ahead(Fs::Ext4);
}

#[test]
fn xfs_metadata_is_read_ahead() {
    root_test!();
    metadata_is_read_ahead(Fs::Xfs);
}

/// Directories within each other, made in an order that has nothing to do with their places in the tree.
#[test]
fn a_whole_xfs_is_brought_into_memory_before_it_is_walked() {
    root_test!();
    let mut image = Image::new(Fs::Xfs, 640 << 20);
    let mut rng = Rng::new(seed());
    let mut folders = vec![image.root()];
    for number in 0..1500 {
        let folder = folders[rng.below(folders.len() as u64) as usize].join(format!("{number}"));
        fs::create_dir(&folder).expect("a folder");
        // Names that don't fit into the folder's inode.
        (0..8).for_each(|file| fs::write(folder.join(format!("{file} {}", "x".repeat(60))), "").expect("a file"));
        folders.push(folder);
    }
    tree::sync(&image.root());
    reading_ahead_gains(&mut image, "bulkstat");
}

/// Directories that were made in one order and filled in another, so that their inodes tell nothing of their blocks.
#[test]
fn directories_of_an_xfs_are_read_in_the_order_of_their_blocks() {
    root_test!();
    let mut image = Image::new(Fs::Xfs, 640 << 20);
    let mut rng = Rng::new(seed());
    let mut folders: Vec<_> = (0..1500).map(|number| image.root().join(format!("{number}"))).collect();
    folders.iter().for_each(|folder| fs::create_dir(folder).expect("a folder"));
    tree::sync(&image.root());
    while !folders.is_empty() {
        let folder = folders.swap_remove(rng.below(folders.len() as u64) as usize);
        // Names that don't fit into the folder's inode.
        (0..8).for_each(|file| fs::write(folder.join(format!("{file} {}", "x".repeat(60))), "").expect("a file"));
    }
    tree::sync(&image.root());
    let mut rises = || {
        let mut list = onesweep(["list", "--order", "inode"]);
        list.arg(image.root());
        let requests = trace::from_cold(&mut image, list);
        // The kernel marks what it asks for itself as metadata; the inodes that we read from the device come before it.
        let own = requests.iter().rposition(|request| !request.metadata).expect("inodes are read from the device");
        let directories: Vec<_> = requests[own + 1..].iter().collect();
        assert!(directories.len() > 1000, "{} of {} requests are for directories", directories.len(), requests.len());
        rising(&directories)
    };
    let mut tries = Vec::new();
    while tries.len() < TRIES && tries.last().is_none_or(|share| *share <= 0.8) {
        tries.push(rises());
    }
    say(&format!("shares of requests for directories that rise: {tries:?}"));
    assert!(tries.last().is_some_and(|share| *share > 0.8), "shares of requests that rise: {tries:?}");
}

/// How often it is tried: a machine that has much else to do keeps less in flight, and a neighbour that empties the
/// caches has things read twice. Both can only make it worse.
const TRIES: usize = 3;

/// The metadata of a whole file system of 640 MiB, with and without what brings it into memory first.
fn reading_ahead_gains(image: &mut Image, hidden: &str) {
    let mut disk_ms = |hidden: &str| {
        let mut list = onesweep(["list", "--order", "inode"]);
        list.arg(image.root()).env("ONESWEEP_HIDE", hidden);
        Disk::of(640 << 20).serve(&trace::from_cold(image, list)).total_ms()
    };
    let mut tries = Vec::new();
    while tries.len() < TRIES && !tries.last().is_some_and(|(walked, preloaded)| *preloaded < 0.8 * walked) {
        tries.push((disk_ms(hidden), disk_ms("")));
    }
    let (walked, preloaded) = tries[tries.len() - 1];
    let fs = image.fs.name();
    say(&format!("metadata of a whole {fs}: {preloaded:.0} ms of the disk, {walked:.0} ms by the walk alone"));
    assert!(preloaded < 0.8 * walked, "by the walk alone, and brought in: {tries:?}");
}

/// Leaves that were written at many times lie anywhere.
#[test]
fn the_leaves_of_a_btrfs_are_brought_into_memory_before_it_is_walked() {
    root_test!();
    let mut image = Image::new(Fs::Btrfs, 640 << 20);
    let mut rng = Rng::new(seed());
    let mut folders = vec![image.root()];
    for number in 0..1500 {
        let folder = folders[rng.below(folders.len() as u64) as usize].join(format!("{number}"));
        fs::create_dir(&folder).expect("a folder");
        (0..8).for_each(|file| fs::write(folder.join(format!("{file} {}", "x".repeat(60))), "").expect("a file"));
        folders.push(folder);
        if number % 100 == 0 {
            tree::sync(&image.root());
        }
    }
    for _ in 0..10 {
        for folder in &folders {
            if rng.below(10) == 0 {
                fs::write(folder.join("more"), "").expect("a file");
            }
        }
        tree::sync(&image.root());
    }
    reading_ahead_gains(&mut image, "treesearch");
}

/// The root of an aged tree; what comes before the walk is one rising pass, and the walk asks for next to nothing.
#[test]
fn a_whole_ext4_is_brought_into_memory_before_it_is_walked() {
    root_test!();
    let mut image = tree::aged(Fs::Ext4, files(), IMAGE_BYTES);
    for source in ["auto", "tables"] {
        let mut requests = |hidden: &str| {
            let mut list = onesweep(["plan", "--metadata", source]);
            list.arg(image.root()).env("ONESWEEP_HIDE", hidden);
            trace::from_cold(&mut image, list)
        };
        let complaints: Vec<String> =
            (0..TRIES).map_while(|_| what_is_not_one_pass(&requests("tables"), &requests(""))).collect();
        assert!(complaints.len() < TRIES, "{source}: {complaints:?}");
    }
}

/// What keeps the requests that bring metadata in first from being one cheap pass, held against those of the walk
/// alone. `None` if nothing does.
fn what_is_not_one_pass(walked: &[Request], preloaded: &[Request]) -> Option<String> {
    let ms = |requests: &[Request]| Disk::of(IMAGE_BYTES).serve(requests).total_ms();
    let bytes = |requests: &[Request]| requests.iter().map(|request| request.bytes).sum::<u64>();
    // The kernel marks what it asks for itself as metadata.
    let by_walk = preloaded.iter().filter(|request| request.metadata).count();
    let rising = rising(&preloaded.iter().collect::<Vec<_>>());
    let told = format!(
        "metadata of a whole ext4: {:.0} ms of the disk in {} requests ({rising:.2} rise, {by_walk} by the walk, {} \
         bytes), {:.0} ms in {} by the walk alone ({} bytes)",
        ms(preloaded),
        preloaded.len(),
        bytes(preloaded),
        ms(walked),
        walked.len(),
        bytes(walked),
    );
    say(&told);
    let is_one_pass = ms(preloaded) < 0.6 * ms(walked)
        && by_walk * 20 < walked.len()
        && rising > 0.9
        && bytes(preloaded) * 10 <= bytes(walked) * 11;
    (!is_one_pass).then_some(told)
}

#[test]
fn ext4_data_is_read_in_the_order_of_the_disk() {
    root_test!();
    data_is_read_in_the_order_of_the_disk(Fs::Ext4);
}

#[test]
fn ext4_what_is_pushed_is_read_in_the_order_of_the_disk() {
    root_test!();
    what_is_pushed_is_read_in_the_order_of_the_disk(Fs::Ext4);
}

#[test]
fn xfs_what_is_pushed_is_read_in_the_order_of_the_disk() {
    root_test!();
    what_is_pushed_is_read_in_the_order_of_the_disk(Fs::Xfs);
}

#[test]
fn ext4_the_disk_is_busy_for_a_fifteenth_of_the_time() {
    root_test!();
    the_disk_is_busy_for_a_fraction(Fs::Ext4, 15.0);
}

#[test]
fn xfs_data_is_read_in_the_order_of_the_disk() {
    root_test!();
    data_is_read_in_the_order_of_the_disk(Fs::Xfs);
}

/// On XFS metadata cannot be swept through the device, so less is promised there.
#[test]
fn xfs_the_disk_is_busy_for_a_fifth_of_the_time() {
    root_test!();
    the_disk_is_busy_for_a_fraction(Fs::Xfs, 5.0);
}
