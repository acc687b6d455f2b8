//! `onesweep peer mount` through the kernel: kills between any two steps of a write, servers that stand still, several of them,
//! and what is written down, shared, learnt and refused.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::{self, File},
    io::Read,
    os::{
        fd::AsFd,
        unix::fs::{FileExt, MetadataExt},
    },
    path::{Path, PathBuf},
    process::Command,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use rustix::fs::OFlags;

use crate::{
    image::{attach_loop, unmount},
    peer::{Place, Raced, Server, counted},
    peer_tree::has_passthrough,
    run::{figure, finish, hold, long, onesweep, output, root_test, run, seed, text},
};

const BLOCK: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes that no other block and no other time has.
fn block(time: u64, number: u64) -> Vec<u8> {
    (0..BLOCK as u64 / 8).flat_map(|at| (time << 40 | number << 16 | at << 1 | 1).to_le_bytes()).collect()
}

/// How any process has opened a file.
fn flags_of_openings(file: &Path) -> Vec<OFlags> {
    let entries = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
    let opened = entries("/proc".into()).flat_map(|process| {
        let descriptors = entries(process.path().join("fd"));
        let of_file = descriptors.filter(|descriptor| fs::read_link(descriptor.path()).is_ok_and(|path| path == file));
        let infos = of_file.map(move |descriptor| process.path().join("fdinfo").join(descriptor.file_name()));
        infos.collect::<Vec<_>>()
    });
    let flags = opened.filter_map(|info| {
        let text = fs::read_to_string(info).ok()?;
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?.trim().to_owned();
        Some(OFlags::from_bits_retain(u32::from_str_radix(&flags, 8).expect("octal")))
    });
    flags.collect()
}

/// An image of so many blocks, each as at time 0.
fn image(place: &Place, blocks: u64) -> PathBuf {
    let image = place.path("image");
    fs::write(&image, (0..blocks).flat_map(|number| block(0, number)).collect::<Vec<u8>>()).expect("an image");
    image
}

/// Sends servers what they lack of an image, and tells how much that was.
pub(crate) fn push(place: &Place, image: &Path, servers: &[&Server]) -> u64 {
    let mut command = onesweep(["peer", "push", "--json", "--key"]);
    command.arg(place.path("key")).args(servers.iter().flat_map(|server| ["--server", &server.address])).arg(image);
    let told = text(&finish(&mut command, 0).stdout);
    figure(&serde_json::from_str(&told).expect("JSON"), "sent_blocks")
}

fn shown(place: &Place) -> PathBuf {
    place.path("shown/block")
}

/// Of each server.
pub(crate) fn of_servers(place: &Place, name: &str) -> Vec<u64> {
    let told = fs::read_to_string(place.path("shown/metrics")).expect("what is counted");
    let name = format!("onesweep_peer_mount_{name}");
    let values = told.lines().filter(|line| line.starts_with(&name)).filter_map(|line| line.rsplit(' ').next());
    values.map(|value| value.parse().expect("a number")).collect()
}

pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// What a block may hold: what was acknowledged last, or what was begun after that.
type Possible = BTreeMap<u64, Vec<u64>>;

/// Writes blocks until the mount is gone.
fn write_until_gone(file: &File, possible: &Mutex<Possible>, mut time: u64, blocks: u64, writer: u64) {
    loop {
        time += 4;
        // Each writer has blocks of its own.
        let number = time.wrapping_mul(0x9e37_79b9) % (blocks / 4) * 4 + writer;
        possible.lock().unwrap().entry(number).or_insert_with(|| vec![0]).push(time);
        if file.write_all_at(&block(time, number), number * BLOCK as u64).is_err() {
            return;
        }
        possible.lock().unwrap().insert(number, vec![time]);
        if time.is_multiple_of(7) {
            let _ = file.sync_data();
        }
    }
}

/// Both processes at once.
fn kill(mut raced: Raced) {
    let id = raced.child.id();
    let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).expect("its children");
    for child in children.split_whitespace() {
        let child = rustix::process::Pid::from_raw(child.parse().expect("a number")).expect("a process");
        // It may be on its way out.
        let _ = rustix::process::kill_process(child, rustix::process::Signal::KILL);
    }
    let _ = raced.child.kill();
    let _ = raced.child.wait();
    // Until then it may take down what is mounted there next.
    let is_gone =
        |child: &str| fs::read_to_string(format!("/proc/{child}/stat")).map_or(true, |stat| stat.contains(") Z"));
    wait_until("a helper lives on", || children.split_whitespace().all(is_gone));
}

/// A kill comes between mark, write and acknowledgement. Servers have all that ever was written; none of it comes back.
#[test]
fn a_mount_that_is_killed_among_writes_serves_no_old_byte() {
    root_test!();
    let (place, blocks) = (Place::new(), 512);
    let image = image(&place, blocks);
    place.index(&[], &image, 0);
    let server = Server::start(&place);
    push(&place, &image, &[&server]);
    let possible = Mutex::new(Possible::new());
    let kills = if long() { 200 } else { 8 };
    let options = ["--server", &server.address, "--write-through", "--share", "--policy", "remote-first"];
    let mut remote = 0;
    for turn in 0..=kills {
        let raced = Raced::show(&place, &image, &options);
        let file = File::options().read(true).write(true).open(shown(&place)).expect("the device");
        let mut bytes = vec![0; BLOCK];
        // The first time each block is suspect, and the disk's; the second time it may be the server's.
        for number in (0..blocks).chain(0..blocks) {
            file.read_exact_at(&mut bytes, number * BLOCK as u64).expect("it is read");
            let mut possible = possible.lock().unwrap();
            let times = possible.entry(number).or_insert_with(|| vec![0]);
            let is = times.iter().copied().find(|&time| bytes == block(time, number));
            let is = is.unwrap_or_else(|| panic!("turn {turn}: block {number} is none of {times:?}"));
            // Whichever it is, it stays.
            *times = vec![is];
        }
        remote += counted(&place, "reads_remote");
        if turn == kills {
            // What every kill has left unsent is sent by then.
            wait_until_all_is_sent(&place);
            drop(file);
            assert_eq!(raced.end(), Some(0));
            break;
        }
        thread::scope(|scope| {
            for writer in 0..4 {
                let (file, possible) = (&file, &possible);
                scope.spawn(move || write_until_gone(file, possible, (turn + 1) * 1_000_000 + writer, blocks, writer));
            }
            thread::sleep(Duration::from_micros((seed() + turn) * 7919 % 60_000));
            kill(raced);
        });
    }
    assert!(remote > 0, "no server was ever quicker");
    let checked = place.index(&["--check"], &image, 0);
    assert_eq!((figure(&checked, "stale"), figure(&checked, "differing")), (0, 0), "{checked}");
    // It lacks nothing, and what it has was checked when it came.
    assert_eq!(push(&place, &image, &[&server]), 0, "server and disk agree");
}

fn wait_until_all_is_sent(place: &Place) {
    wait_until("something is never sent", || of_servers(place, "offers_waiting") == [0]);
}

/// A server that stands still, one that is not there, and more than may wait: what was written meanwhile is sent later, also by the
/// next mount; and of a block that was written in parts all is sent.
#[test]
fn what_servers_could_not_be_sent_is_sent_when_they_are_back() {
    root_test!();
    let (place, blocks) = (Place::new(), 24 << 10);
    let image = place.path("image");
    File::create(&image).expect("an image").set_len(blocks * BLOCK as u64).expect("its size");
    place.index(&["--block-size", "16K"], &image, 0);
    let server = Server::start(&place);
    let options = ["--server", &server.address, "--write-through"];
    let raced = Raced::show(&place, &image, &options);
    wait_until("the server is not reached", || of_servers(&place, "server_usable") == [1]);
    let file = File::options().read(true).write(true).open(shown(&place)).expect("the device");
    let write = |time: u64, numbers: std::ops::Range<u64>| {
        for number in numbers {
            file.write_all_at(&block(time, number), number * BLOCK as u64).expect("it is written");
        }
    };
    // A quarter of a block of the index each, not all of them.
    write(1, 1..3);
    write(1, 6..7);
    file.sync_all().expect("it is there");
    wait_until_all_is_sent(&place);
    assert_eq!(push_by(&place, &image, &server, "16K"), 0, "parts of blocks");

    let held = hold(&server.child);
    // More than may wait in memory, in whole blocks.
    let large: Vec<u8> = (4096..5120).flat_map(|number| block(2, number)).collect();
    for at in 0..20 {
        file.write_all_at(&large, (4096 + at * 1024) * BLOCK as u64).expect("it is written");
    }
    write(2, 0..1);
    let unsent = of_servers(&place, "offers_waiting");
    assert!(unsent[0] >= 80, "{unsent:?}");
    drop(held);
    wait_until_all_is_sent(&place);
    assert_eq!(push_by(&place, &image, &server, "16K"), 0, "after it stood still");

    let held = hold(&server.child);
    write(3, 100..140);
    drop(file);
    kill(raced);
    // Where its helper hasn't done so before it was killed.
    let _ = Command::new("umount").arg("--lazy").arg(place.path("shown")).output();
    // One that writes nothing through keeps what is owed.
    let raced = Raced::show(&place, &image, &["--server", &server.address]);
    assert_eq!(raced.end(), Some(0));
    drop(held);
    let raced = Raced::show(&place, &image, &options);
    wait_until_all_is_sent(&place);
    assert_eq!(raced.end(), Some(0));
    assert_eq!(push_by(&place, &image, &server, "16K"), 0, "after a kill");
}

fn push_by(place: &Place, image: &Path, server: &Server, block_size: &str) -> u64 {
    let mut command = onesweep(["peer", "push", "--json", "--block-size", block_size, "--key"]);
    let told = text(&finish(command.arg(place.path("key")).args(["--server", &server.address]).arg(image), 0).stdout);
    figure(&serde_json::from_str(&told).expect("JSON"), "sent_blocks")
}

#[test]
fn servers_get_what_is_written_and_what_is_read_when_they_are_to() {
    root_test!();
    let (place, blocks) = (Place::new(), 256);
    let image = image(&place, blocks);
    let server = Server::start(&place);
    // Nobody knows anything of it yet.
    let learning = ["--server", &server.address, "--learn"];
    let raced = Raced::show(&place, &image, &[&learning[..], &["--share"]].concat());
    let before = fs::read(&image).expect("the image");
    assert!(fs::read(shown(&place)).expect("it is read") == before);
    assert_eq!(raced.end(), Some(0));
    assert_eq!(push(&place, &image, &[&server]), 0, "it was shared");
    let checked = place.index(&["--check"], &image, 0);
    assert_eq!((figure(&checked, "new"), figure(&checked, "suspect")), (0, 0), "it was learnt: {checked}");

    let raced = Raced::show(&place, &image, &[&learning[..], &["--write-through", "--policy", "quiet-disk"]].concat());
    wait_until("the server is not reached", || of_servers(&place, "server_usable") == [1]);
    let file = File::options().read(true).write(true).open(shown(&place)).expect("the device");
    for number in 0..64 {
        file.write_all_at(&block(5, number), number * BLOCK as u64).expect("it is written");
    }
    file.sync_all().expect("it is there");
    let mut bytes = vec![0; BLOCK];
    file.read_exact_at(&mut bytes, 70 * BLOCK as u64).expect("it is read");
    assert!(bytes == block(0, 70) && counted(&place, "reads_remote") > 0, "what was learnt is asked for");
    // Past the page cache: writing back pages of what is shown must need no pages of what is below.
    let flags = flags_of_openings(&image);
    assert!(!flags.is_empty() && flags.iter().all(|flags| flags.contains(OFlags::DIRECT)), "{flags:?}");
    drop(file);
    assert_eq!(raced.end(), Some(0));
    assert_eq!(push(&place, &image, &[&server]), 0, "it was written through");
}

#[test]
fn a_device_that_is_only_read_stays_as_it_is_and_a_trace_tells_of_each_read() {
    root_test!();
    let (place, blocks) = (Place::new(), 128);
    let image = image(&place, blocks);
    place.index(&[], &image, 0);
    let server = Server::start(&place);
    push(&place, &image, &[&server]);
    let (before, trace) = (fs::read(&image).expect("the image"), place.path("trace"));
    let options = ["--server", &server.address, "--read-only", "--trace", trace.to_str().expect("text")];
    let raced = Raced::show(&place, &image, &options);
    // Root may open what nobody may write.
    if let Ok(file) = File::options().write(true).open(shown(&place)) {
        assert!(file.write_all_at(b"new", 0).is_err());
    }
    let mut read = Vec::new();
    File::open(shown(&place)).and_then(|mut file| file.read_to_end(&mut read)).expect("it is read");
    assert!(read == before);
    let reads = counted(&place, "reads");
    assert_eq!(raced.end(), Some(0));
    assert!(fs::read(&image).expect("the image") == before);
    let trace = fs::read_to_string(&trace).expect("the trace");
    let mut lines = trace.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    assert_eq!(lines.next().expect("a head"), ["us", "at", "bytes", "from", "why", "took_us", "servers"]);
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines.len() as u64, reads, "{trace}");
    let number = |text: &str| text.parse::<u64>().expect("a number");
    assert_eq!(lines.iter().map(|line| number(line[2])).sum::<u64>(), before.len() as u64);
    for line in &lines {
        assert!(
            ["disk", "server"].contains(&line[3])
                && ["raced", "not-yet", "no-chance", "no-server", "no-budget"].contains(&line[4]),
            "{line:?}"
        );
        assert!(line[3] != "server" || line[4] == "raced", "{line:?}");
        assert_eq!(line[6] == server.address, line[3] == "server", "{line:?}");
        assert!(number(line[1]) < before.len() as u64 && line.len() == 7, "{line:?}");
    }
}

/// Each block has its own server; when one stands still or is gone, its blocks are the disk's.
#[test]
fn several_servers_are_asked_and_any_of_them_may_stop() {
    root_test!();
    let (place, blocks) = (Place::new(), 512);
    let image = image(&place, blocks);
    place.index(&[], &image, 0);
    let servers: [Server; 3] = std::array::from_fn(|_| Server::start(&place));
    push(&place, &image, &servers.each_ref());
    let named: Vec<&str> = servers.iter().flat_map(|server| ["--server", &server.address]).collect();
    let (trace, addresses) = (place.path("trace"), servers.each_ref().map(|server| server.address.clone()));
    let more = ["--read-only", "--policy", "quiet-disk", "--trace", trace.to_str().expect("text")];
    let raced = Raced::show(&place, &image, &[&named[..], &more].concat());
    wait_until("a server is not reached", || of_servers(&place, "server_usable") == [1, 1, 1]);
    let file = File::open(shown(&place)).expect("the device");
    let reads_are_right = |numbers: std::ops::Range<u64>| {
        let mut bytes = vec![0; BLOCK];
        for number in numbers {
            file.read_exact_at(&mut bytes, number * BLOCK as u64).expect("it is read");
            assert!(bytes == block(0, number), "block {number}");
        }
    };
    reads_are_right(0..blocks);
    let hits = of_servers(&place, "server_hits");
    assert!(hits.iter().all(|&hits| hits > 50), "each has some: {hits:?}");
    assert_eq!(counted(&place, "reads_failed"), 0);

    let held = hold(&servers[0].child);
    reads_are_right(0..64);
    drop(held);
    let [first, second, third] = servers;
    drop(second);
    reads_are_right(64..256);
    let before = of_servers(&place, "server_hits");
    wait_until("the one that stood still is not asked again", || {
        reads_are_right(0..64);
        of_servers(&place, "server_hits")[0] > before[0]
    });
    drop((first, third));
    reads_are_right(0..64);
    assert_eq!(counted(&place, "reads_failed"), 0);
    drop(file);
    assert_eq!(raced.end(), Some(0));
    // The trace names who answered, and nobody where the disk did.
    let trace = fs::read_to_string(&trace).expect("the trace");
    let lines: Vec<Vec<&str>> = trace.lines().skip(1).map(|line| line.split('\t').collect()).collect();
    for (address, hits) in addresses.iter().zip(hits) {
        let named = lines.iter().filter(|line| line[6] == address).count() as u64;
        assert!(named >= hits, "{address}: {named} of {hits} are in the trace");
    }
    assert!(
        lines.iter().all(|line| (line[3] == "server") == addresses.iter().any(|address| line[6] == address)),
        "{trace}"
    );
}

/// Files that a pattern matches go by another policy, and others, and the tables, by that of the mount.
fn goes_by_pattern(mkfs: &[&str], megabytes: u64) {
    let place = Place::new();
    let (image, mnt) = (place.path("image"), place.path("mnt"));
    File::create(&image).expect("an image").set_len(megabytes << 20).expect("its size");
    run(Command::new(mkfs[0]).args(&mkfs[1..]).arg(&image));
    fs::create_dir(&mnt).expect("a folder");
    run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&mnt));
    let content = |seed: u64| (0..256).flat_map(|number| block(seed, number)).collect::<Vec<u8>>();
    fs::create_dir_all(mnt.join("music/deep")).expect("a folder");
    for (number, name) in ["music/deep/song", "film.iso", "text", "other.iso.txt"].iter().enumerate() {
        fs::write(mnt.join(name), content(number as u64)).expect("a file");
    }
    unmount(&mnt);
    wait_until("the loop device goes", || output(Command::new("losetup").arg("--associated").arg(&image)).is_empty());
    place.index(&[], &image, 0);
    let server = Server::start(&place);
    push(&place, &image, &[&server]);

    let policies = ["--policy", "local-first", "--policy-of", "music=remote-first", "--policy-of", "*.iso=quiet-disk"];
    let raced = Raced::start(&place, &image, &server.address, &policies);
    let by = || {
        ["local_first", "remote_first", "quiet_disk", "race"].map(|name| counted(&place, &format!("reads_by_{name}")))
    };
    assert!(by()[0] > 0, "tables are read by the policy of the mount");
    let device = output(Command::new("findmnt").args(["--noheadings", "--output", "SOURCE", "--target"]).arg(&mnt));
    // By which policy a file is read. Others may be read meanwhile: whoever looks for file systems on a new device reads some of it.
    for (number, name, policy) in
        [(0, "music/deep/song", 1), (1, "film.iso", 2), (2, "text", 0), (3, "other.iso.txt", 0)]
    {
        // ntfs-3g reads through the cache of the device, which may hold what comes behind the file before.
        run(Command::new("blockdev").arg("--flushbufs").arg(text(&device).trim()));
        let before = by();
        assert!(fs::read(mnt.join(name)).expect("it is read") == content(number), "{name}");
        let grown: Vec<u64> = by().iter().zip(before).map(|(after, before)| after - before).collect();
        assert!(grown[policy] > 0, "{name}: {grown:?}");
        assert_eq!(grown[3], 0, "{name}: nobody named race");
    }
    assert_eq!(raced.end(), Some(0));
}

#[test]
fn files_of_an_ext4_go_by_the_policy_of_their_pattern() {
    root_test!();
    goes_by_pattern(&["mkfs.ext4", "-q", "-F"], 64);
}

#[test]
fn files_of_an_ext2_and_an_ext3_go_by_the_policy_of_their_pattern() {
    root_test!();
    goes_by_pattern(&["mkfs.ext2", "-q", "-F"], 64);
    goes_by_pattern(&["mkfs.ext3", "-q", "-F"], 64);
}

#[test]
fn files_of_an_ntfs_go_by_the_policy_of_their_pattern() {
    root_test!();
    goes_by_pattern(&["mkntfs", "-q", "-F", "-Q"], 64);
}

#[test]
fn files_of_an_xfs_go_by_the_policy_of_their_pattern() {
    root_test!();
    goes_by_pattern(&["mkfs.xfs", "-q", "-f"], 320);
}

/// Where files lie is looked up at the start. What is written and moved later goes by the policy of the mount, and a place by that of
/// the file that was there, until the next start; the bytes are right before and after.
#[test]
fn files_that_move_go_by_their_pattern_from_the_next_start_on() {
    root_test!();
    let place = Place::new();
    let (image, mnt) = (place.path("image"), place.path("mnt"));
    File::create(&image).expect("an image").set_len(64 << 20).expect("its size");
    run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image));
    fs::create_dir(&mnt).expect("a folder");
    run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&mnt));
    let content = |seed: u64| (0..256).flat_map(|number| block(seed, number)).collect::<Vec<u8>>();
    fs::write(mnt.join("film.iso"), content(1)).expect("a file");
    fs::write(mnt.join("text"), content(2)).expect("a file");
    unmount(&mnt);
    wait_until("the loop device goes", || output(Command::new("losetup").arg("--associated").arg(&image)).is_empty());
    place.index(&[], &image, 0);
    let server = Server::start(&place);
    push(&place, &image, &[&server]);

    let policies = ["--policy", "local-first", "--policy-of", "*.iso=quiet-disk"];
    let goes_by = |files: &[(&str, u64, &str)]| {
        for (name, seed, policy) in files {
            let file = mnt.join(name);
            // Only what isn't in memory is read here.
            run(Command::new("dd")
                .args(["of=/dev/null", "iflag=nocache", "count=0", "status=none"])
                .arg(format!("if={}", file.display())));
            let by = || ["quiet_disk", "local_first"].map(|name| counted(&place, &format!("reads_by_{name}")));
            let before = by();
            assert!(fs::read(&file).expect("it is read") == content(*seed), "{name}");
            let grown: [u64; 2] = std::array::from_fn(|at| by()[at] - before[at]);
            // Others may read tables meanwhile, by the policy of the mount.
            let is_quiet = *policy == "quiet-disk";
            assert_eq!(grown[0] > 0, is_quiet, "{name}: {grown:?}");
            assert!(is_quiet || grown[1] > 0, "{name}: {grown:?}");
        }
    };
    let raced = Raced::start(&place, &image, &server.address, &policies);
    goes_by(&[("film.iso", 1, "quiet-disk"), ("text", 2, "local-first")]);
    // A place that has another name now, one that is new, and one whose file is another.
    fs::rename(mnt.join("film.iso"), mnt.join("film")).expect("another name");
    fs::write(mnt.join("new.iso"), content(3)).expect("a file");
    fs::rename(mnt.join("text"), mnt.join("text.iso")).expect("another name");
    run(Command::new("sync").arg("-f").arg(&mnt));
    goes_by(&[("film", 1, "quiet-disk"), ("new.iso", 3, "local-first"), ("text.iso", 2, "local-first")]);
    assert_eq!(raced.end(), Some(0));

    let raced = Raced::start(&place, &image, &server.address, &policies);
    goes_by(&[("film", 1, "local-first"), ("new.iso", 3, "quiet-disk"), ("text.iso", 2, "quiet-disk")]);
    assert_eq!(raced.end(), Some(0));
}

/// On a device without a file system, and on btrfs, whose addresses are none of the device.
#[test]
fn a_pattern_where_no_tables_tell_places_is_refused() {
    root_test!();
    for mkfs in [&["true"][..], &["mkfs.btrfs", "-q", "-f"]] {
        let place = Place::new();
        let image = image(&place, 16);
        File::options().write(true).open(&image).and_then(|file| file.set_len(128 << 20)).expect("its size");
        run(Command::new(mkfs[0]).args(&mkfs[1..]).arg(&image));
        place.index(&[], &image, 0);
        let mut command = onesweep(["peer", "mount", "--key"]);
        fs::create_dir(place.path("shown")).expect("a folder");
        command.arg(place.path("key")).arg("--index").arg(place.path("index")).args(["--policy-of", "*.iso=race"]);
        let told = text(&finish(command.arg("--device").arg(&image).arg(place.path("shown")), 2).stderr);
        assert!(told.contains("leave --policy-of out"), "{told}");
    }
}

/// Linux reads further ahead of a device in which something turns, and takes one on a file of FUSE for what has no disk.
#[test]
fn what_is_mounted_says_whether_something_turns_below() {
    root_test!();
    let place = Place::new();
    let image = image(&place, 512);
    run(Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096"]).arg(&image));
    let turns = |path: &Path| {
        let dev = fs::metadata(path).expect("a file").dev();
        let disk = format!("/sys/dev/block/{}:{}", rustix::fs::major(dev), rustix::fs::minor(dev));
        // A partition has the queue of its disk.
        let queues = ["queue", "../queue"].map(|queue| format!("{disk}/{queue}/rotational"));
        queues.iter().find_map(|queue| fs::read_to_string(queue).ok())
    };
    // What isn't known may turn.
    let below = turns(&image).unwrap_or_else(|| "1\n".to_owned());
    place.index(&[], &image, 0);
    let server = Server::start(&place);
    let raced = Raced::start(&place, &image, &server.address, &[]);
    assert_eq!(turns(&place.path("mnt")), Some(below));
    assert_eq!(raced.end(), Some(0));
}

/// The kernel reads an image by itself where it is told to, with a file system on it, too; the index holds for who mounts it next.
#[test]
fn an_image_that_is_only_read_may_be_left_to_the_kernel() {
    root_test!();
    let (place, blocks) = (Place::new(), 512);
    let image = image(&place, blocks);
    run(Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096"]).arg(&image));
    let expected = fs::read(&image).expect("the image");
    place.index(&[], &image, 0);
    let server = Server::start(&place);
    for (option, is_left) in [("--passthrough", has_passthrough()), ("--low-power", false)] {
        let raced = Raced::start(&place, &image, &server.address, &["--read-only", option]);
        assert_eq!(fs::read_dir(place.path("mnt")).expect("its root").count(), 1, "{option}");
        assert!(fs::read(shown(&place)).expect("it is read") == expected, "{option}");
        let told = (counted(&place, "opens_kernel") > 0, counted(&place, "read_bytes") == 0);
        assert_eq!(told, (is_left, is_left), "{option}");
        let write = || File::options().write(true).open(shown(&place)).and_then(|file| file.write_at(&[1], 0));
        assert!(write().is_err(), "{option}");
        // Nor for who may take that off the mount.
        run(Command::new("mount").args(["-i", "-o", "remount,rw"]).arg(place.path("shown")));
        assert!(write().is_err() && fs::read(&image).expect("the image") == expected, "{option}");
        assert_eq!(raced.end(), Some(0), "{option}");
    }
    let device = attach_loop(&image);
    place.index(&["--learn"], &device, 0);
    let mut refused = onesweep(["peer", "mount", "--read-only", "--passthrough", "--key"]);
    refused.arg(place.path("key")).args(["--server", &server.address, "--index"]).arg(place.path("index"));
    let told = finish(refused.arg("--device").arg(&device).arg(place.path("shown")), 2);
    run(Command::new("losetup").arg("--detach").arg(&device));
    assert!(text(&told.stderr).contains("leave --passthrough out"), "{}", text(&told.stderr));
}

/// A slip in the options costs no pass over the device: the index still counts.
#[test]
fn a_mount_that_does_not_start_leaves_the_index_as_it_was() {
    root_test!();
    let place = Place::new();
    let image = image(&place, 512);
    run(Command::new("mkfs.ext4").args(["-q", "-F", "-b", "4096"]).arg(&image));
    let blocks = figure(&place.index(&[], &image, 0), "blocks");
    let server = Server::start(&place);
    fs::create_dir(place.path("shown")).expect("a folder");
    fs::write(place.path("file"), "no folder").expect("a file");
    let (shown, file, nowhere) = (place.path("shown"), place.path("file"), place.path("none/trace"));
    let others: Vec<String> = (1..=16).map(|port| format!("--server=127.0.0.1:{port}")).collect();
    let slips: [(Vec<&OsStr>, &Path, &str); 3] = [
        (vec!["--trace".as_ref(), nowhere.as_os_str()], &shown, "No such file or directory"),
        (others.iter().map(AsRef::as_ref).collect(), &shown, "there can be 16 servers"),
        (Vec::new(), &file, "Not a directory"),
    ];
    for (options, dir, why) in slips {
        let mut refused = onesweep(["peer", "mount", "--key"]);
        refused.arg(place.path("key")).args(["--server", &server.address, "--index"]).arg(place.path("index"));
        let told = text(&finish(refused.args(options).arg("--device").arg(&image).arg(dir), 2).stderr);
        assert!(told.contains(why), "{told}");
        let checked = place.index(&["--check"], &image, 0);
        let known = ["new", "suspect", "stale"].map(|name| figure(&checked, name));
        assert_eq!((known, figure(&checked, "blocks")), ([0; 3], blocks), "{told}: {checked}");
    }
    // A machine that runs from it locks it in its own way; one that only reads does no harm to who only reads.
    let machine = File::open(&image).expect("an image");
    assert!(onesweep_sys::image_lock::lock_image(machine.as_fd(), false).expect("a lock"));
    let mut refused = onesweep(["peer", "mount", "--key"]);
    refused.arg(place.path("key")).args(["--server", &server.address, "--index"]).arg(place.path("index"));
    let told = text(&finish(refused.arg("--device").arg(&image).arg(&shown), 2).stderr);
    assert!(told.contains("such as QEMU"), "{told}");
    assert_eq!(Raced::start(&place, &image, &server.address, &["--read-only"]).end(), Some(0));
    drop(machine);
    // Nor does a second one get it while it is served.
    let raced = Raced::start(&place, &image, &server.address, &[]);
    fs::create_dir(place.path("second")).expect("a folder");
    let mut second = onesweep(["peer", "mount", "--learn", "--key"]);
    second.arg(place.path("key")).args(["--server", &server.address, "--index"]).arg(place.path("other"));
    let told = text(&finish(second.arg("--device").arg(&image).arg(place.path("second")), 2).stderr);
    assert!(told.contains("it is in use") || told.contains("a loop device is on it"), "{told}");
    assert_eq!(raced.end(), Some(0));
}
