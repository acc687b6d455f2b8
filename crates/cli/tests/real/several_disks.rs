//! A btrfs on several disks as each of them sees the sweep: its head goes forward, it has its share of the work, and none
//! waits for another.

use std::{
    collections::BinaryHeap,
    fs::{self, File},
    path::Path,
    process::Command,
    thread,
    time::Duration,
};

use crate::{
    disk_model::Disk,
    image::Image,
    run::{onesweep, root_test, run, say, seed},
    trace::{self, Request},
    tree::Rng,
};

const DISK_BYTES: u64 = 2 << 30;

/// Requests that the sweep has in flight for each disk.
const IN_FLIGHT: usize = 16;

/// Files of random directories, a few behind each other, with room between them. Where the room is `uneven`, they lie
/// thickly where a disk has them while another has few, and the other way round.
fn fill(image: &Image, data_bytes: u64, devices: u64, uneven: bool) {
    const FILES: u64 = 3000;
    const TOGETHER: u64 = 25;
    // The kernel keeps pieces of 128 KiB and more in other chunks than smaller ones.
    const PIECE: u64 = 120 << 10;
    let mut rng = Rng::new(seed());
    let tree = image.root().join("tree");
    let folders: Vec<_> = (0..150).map(|number| tree.join(format!("{number}"))).collect();
    folders.iter().for_each(|folder| fs::create_dir_all(folder).expect("a folder"));
    let room = image.root().join("room");
    fs::create_dir(&room).expect("a folder");
    // What mkfs and the kernel make of disks of this size.
    let chunk = devices * DISK_BYTES / 10;
    let mut written = 0;
    for first in (0..FILES).step_by(TOGETHER as usize) {
        for number in first..first + TOGETHER {
            let size = 2100 + rng.size(15_000.0, 1 << 20);
            let bytes = rng.bytes(size as usize);
            fs::write(rng.pick(&folders).join(format!("{number}")), bytes).expect("a file");
            written += size;
        }
        run(Command::new("btrfs").args(["filesystem", "sync"]).arg(image.root()));
        let even = data_bytes * 6 / 10 / (FILES / TOGETHER);
        let turn = written / chunk;
        let left_out = match (uneven, (turn % devices + turn / devices).is_multiple_of(2)) {
            (false, _) => even,
            (true, true) => even * 11 / 20,
            (true, false) => even * 4,
        };
        let file = File::create(room.join(format!("{first}"))).expect("a file");
        for at in (0..left_out).step_by(PIECE as usize) {
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), at, PIECE).expect("room");
        }
        written += left_out;
    }
    fs::remove_dir_all(&room).expect("the room is free again");
    run(Command::new("btrfs").args(["filesystem", "sync"]).arg(image.root()));
    // A file that has changed within two seconds is read once more when its bytes are there.
    thread::sleep(Duration::from_secs(3));
}

fn sweep(tree: &Path, hidden: &str) -> Command {
    let mut sweep = onesweep(["tar", "-cf", "-", "-C"]);
    sweep.arg(tree).arg(".").env("ONESWEEP_HIDE", hidden);
    sweep
}

/// What content cost a group of disks, in modelled milliseconds.
#[derive(Debug)]
struct Told {
    /// Each disk.
    busy_ms: Vec<f64>,
    /// Each disk, had the same been asked of it in the order of its addresses.
    rising_ms: Vec<f64>,
    /// All together, with so many requests in flight.
    took_ms: f64,
}

impl Told {
    fn by(requests: &[Request], devices: &[(u32, u32)]) -> Self {
        let data: Vec<&Request> = requests.iter().filter(|request| !request.metadata).collect();
        let of = |&device: &(u32, u32)| data.iter().copied().filter(move |request| request.device == device);
        let disk = Disk::of(DISK_BYTES);
        let each: Vec<Vec<f64>> =
            devices.iter().map(|device| disk.each(of(device)).map(|cost| cost.total_ms()).collect()).collect();
        let rising = |device| {
            let mut sorted: Vec<&Request> = of(device).collect();
            sorted.sort_by_key(|request| request.start);
            disk.serve(sorted).total_ms()
        };
        let at = |request: &&Request| devices.iter().position(|device| *device == request.device);
        let order: Vec<usize> = data.iter().filter_map(at).collect();
        Self {
            busy_ms: each.iter().map(|costs| costs.iter().sum()).collect(),
            rising_ms: devices.iter().map(rising).collect(),
            took_ms: together_ms(&order, &each, IN_FLIGHT * devices.len()),
        }
    }

    fn busiest_ms(&self) -> f64 {
        self.busy_ms.iter().copied().fold(0.0, f64::max)
    }

    /// The part of all work that the busiest disk had, in shares of which each disk should have one.
    fn most_shares(&self) -> f64 {
        self.busiest_ms() / self.busy_ms.iter().sum::<f64>() * self.busy_ms.len() as f64
    }
}

/// When the last of these requests is served: each disk serves its own one after the other, and the next is only asked for
/// when fewer than so many are in flight.
fn together_ms(order: &[usize], costs: &[Vec<f64>], in_flight: usize) -> f64 {
    let mut costs: Vec<_> = costs.iter().map(|costs| costs.iter()).collect();
    let mut free_at = vec![0.0_f64; costs.len()];
    // In nanoseconds, the first to end on top.
    let mut ends: BinaryHeap<std::cmp::Reverse<u64>> = BinaryHeap::new();
    let mut now = 0.0_f64;
    for &disk in order {
        if ends.len() == in_flight {
            let std::cmp::Reverse(end) = ends.pop().expect("some are in flight");
            now = now.max(end as f64 / 1e6);
        }
        free_at[disk] = free_at[disk].max(now) + costs[disk].next().expect("a cost for each request");
        ends.push(std::cmp::Reverse((free_at[disk] * 1e6) as u64));
    }
    free_at.into_iter().fold(0.0, f64::max)
}

/// How often it is tried: a machine that has much else to do keeps less in flight.
const TRIES: usize = 3;

fn all_disks_are_at_work(devices: usize, data: &str, uneven: bool) {
    let mut image = Image::btrfs_on_devices(devices, data, DISK_BYTES);
    let copies = if matches!(data, "raid1" | "raid10") { 2 } else { 1 };
    fill(&image, DISK_BYTES * devices as u64 / copies, devices as u64, uneven);
    let (tree, numbers) = (image.root().join("tree"), image.device_numbers());
    let mut tries = Vec::new();
    for _ in 0..TRIES {
        let told = Told::by(&trace::from_cold(&mut image, sweep(&tree, "")), &numbers);
        let busiest = told.busiest_ms();
        say(&format!(
            "{data}{}, {devices} disks: content {:.0?} ms of each, {:.0?} in rising order, {:.0} all together",
            if uneven { ", uneven" } else { "" },
            told.busy_ms,
            told.rising_ms,
            told.took_ms
        ));
        let all = |each: &[f64]| each.iter().sum::<f64>();
        let goes_forward = all(&told.busy_ms) <= all(&told.rising_ms) * 1.25;
        let is_shared = told.most_shares() <= 1.35;
        let waits_for_none = told.took_ms <= busiest * 1.1;
        tries.push((told, goes_forward, is_shared, waits_for_none));
        if goes_forward && is_shared && waits_for_none {
            return;
        }
    }
    panic!("{data}: each goes forward, has its share, waits for none: {tries:?}");
}

#[test]
fn two_disks_with_single_data_are_at_work_together() {
    root_test!();
    all_disks_are_at_work(2, "single", false);
}

/// In the order of places, one disk would be at work after the other.
#[test]
fn two_disks_on_which_files_lie_unevenly_are_at_work_together() {
    root_test!();
    all_disks_are_at_work(2, "single", true);
}

/// A single thread would have one disk of each pair read everything.
#[test]
fn disks_with_the_same_data_share_the_work() {
    root_test!();
    all_disks_are_at_work(2, "raid1", false);
    all_disks_are_at_work(4, "raid10", false);
}

#[test]
fn two_striped_disks_are_at_work_together() {
    root_test!();
    all_disks_are_at_work(2, "raid0", false);
}

/// Where it can't be chosen which copy is read, the bytes come all the same.
#[test]
fn disks_with_the_same_data_are_swept_without_a_choice() {
    root_test!();
    let mut image = Image::btrfs_on_devices(2, "raid1", DISK_BYTES);
    let tree = image.root().join("tree");
    fs::create_dir(&tree).expect("a folder");
    let mut rng = Rng::new(seed());
    for number in 0..40 {
        fs::write(tree.join(format!("{number}")), rng.bytes(300_000)).expect("a file");
    }
    crate::tree::sync(&tree);
    let there = crate::tree::sums(&[&tree]);
    for hidden in [None, Some("copies"), Some("treesearch"), Some("io_uring")] {
        image.cold();
        let options = (vec!["--order", "fragment"], hidden);
        assert_eq!(crate::equality::differences(&there, &crate::equality::by_sum(&[&tree], &options)), None);
    }
}

#[test]
fn requests_wait_for_room_and_for_their_disk() {
    let near = |is: f64, should: f64| assert!((is - should).abs() < 1e-3, "{is} instead of {should}");
    // In turns, both are at work all the time.
    near(together_ms(&[0, 1, 0, 1], &[vec![1.0, 1.0], vec![1.0, 1.0]], 2), 2.0);
    // One after the other, with room for two: the second disk begins when one of the first's is over.
    near(together_ms(&[0, 0, 0, 1, 1, 1], &[vec![1.0; 3], vec![1.0; 3]], 2), 5.0);
    near(together_ms(&[0, 0, 0, 1, 1, 1], &[vec![1.0; 3], vec![1.0; 3]], 6), 3.0);
}
