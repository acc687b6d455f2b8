//! `onesweep peer index`: what it keeps of devices, images and directories, and what it refuses; `peer mount`: what comes
//! through the race.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, SystemTime},
};

use crate::image::{attach_loop, unmount};
use crate::openmetrics;
use crate::peer_mount::{of_servers, wait_until};
use crate::run::{figure, finish, onesweep, output, root_test, run, summary, text};
use crate::windows_log;

pub(crate) struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        let place = Place { dir: tempfile::tempdir().expect("a folder") };
        place.key('7');
        place
    }

    /// A key whose digits are all this one.
    fn key(&self, digit: char) {
        let key = self.path("key");
        fs::write(&key, format!("onesweep-peer-key 1 {}\n", digit.to_string().repeat(64))).expect("a key");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("a key of one's own");
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs `peer index` with these options, and gives its details.
    pub(crate) fn index(&self, options: &[&str], of: &Path, code: i32) -> serde_json::Value {
        let mut command = onesweep(["peer", "index", "--json", "--key"]);
        command.arg(self.path("key")).arg("--index").arg(self.path("index")).args(options).arg(of);
        summary(&finish(&mut command, code).stdout)["details"].clone()
    }

    fn image(&self) -> PathBuf {
        let image = self.path("image");
        File::create(&image).expect("an image").set_len(32 << 20).expect("its size");
        run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image));
        image
    }
}

#[test]
fn an_image_is_indexed_once_and_checked() {
    let place = Place::new();
    let image = place.image();
    let before = fs::read(&image).expect("its bytes");
    let made = place.index(&["--block-size", "16K"], &image, 0);
    assert_eq!((figure(&made, "blocks"), figure(&made, "new")), (2048, 2048));
    assert!(figure(&made, "zero_blocks") > 1500 && made["has_marks"] == true, "{made}");
    // Not 36 bytes for each block, whatever its size.
    assert!(fs::metadata(place.path("index")).expect("the index").len() <= 36 * 2048);
    assert_eq!(fs::read(&image).expect("its bytes"), before, "nothing is written to it");

    let checked = place.index(&["--check"], &image, 0);
    assert_eq!((figure(&checked, "differing"), figure(&checked, "suspect")), (0, 0));

    // The file's own times tell that it was written, so this is no surprise.
    let file = File::options().write(true).open(&image).expect("the image");
    file.write_all_at(b"changed", 20 << 20).expect("it is written");
    let checked = place.index(&["--check"], &image, 0);
    assert_eq!((figure(&checked, "differing"), figure(&checked, "stale")), (1, 0));
    assert_eq!(figure(&checked, "suspect"), 2048);
    let checked = place.index(&["--check"], &image, 0);
    assert_eq!((figure(&checked, "differing"), figure(&checked, "suspect")), (0, 0), "it was put right");

    let learning = place.index(&["--learn"], &image, 0);
    assert_eq!((figure(&learning, "new"), figure(&learning, "bytes")), (0, 0));
}

/// The bytes of a file, and what of the disk it takes, whichever is more.
fn on_disk(file: &Path) -> u64 {
    let about = fs::metadata(file).expect("the index");
    about.len().max(about.blocks() * 512)
}

#[test]
fn an_index_of_an_image_takes_at_most_36_bytes_a_block() {
    for (size, blocks) in [("4K", 8192), ("16K", 2048)] {
        let place = Place::new();
        let made = place.index(&["--block-size", size], &place.image(), 0);
        assert_eq!(figure(&made, "blocks"), blocks);
        let bytes = on_disk(&place.path("index"));
        assert!((32 * blocks..=36 * blocks).contains(&bytes), "{size}: {bytes} for {blocks} blocks");
    }
}

#[test]
fn an_index_of_files_of_many_sizes_takes_at_most_36_bytes_a_block() {
    let place = Place::new();
    let tree = place.path("tree");
    fs::create_dir(&tree).expect("a folder");
    let mut blocks = 0;
    for number in 0..600 {
        let of_file = 16 + number % 50;
        blocks += of_file;
        let content: Vec<u8> = (0..of_file * 4096).map(|at| (at / 4096 + at % 251 + number * 7) as u8 | 1).collect();
        fs::write(tree.join(number.to_string()), content).expect("a file");
    }
    settle();
    let made = place.index(&["--block-size", "4K"], &tree, 0);
    assert_eq!((figure(&made, "blocks"), figure(&made, "unsettled_files")), (blocks, 0));
    let bytes = on_disk(&place.path("index"));
    assert!((32 * blocks..=36 * blocks).contains(&bytes), "{bytes} for {blocks} blocks");
    // Nobody else may read which blocks are equal.
    let mode = fs::metadata(place.path("index")).expect("the index").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(fs::read_dir(place.path(".")).expect("the folder").count(), 3, "the key, the tree and the index");
}

/// Until a file that was changed before can't be changed again without another ctime: times are those of the clock, which may be set.
pub(crate) fn settle() {
    let settled = SystemTime::now() + Duration::from_secs(4);
    while SystemTime::now() < settled {
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn another_key_or_a_damaged_index_is_refused() {
    let place = Place::new();
    let image = place.image();
    place.index(&[], &image, 0);
    let refused = |why: &str| {
        let mut command = onesweep(["peer", "index", "--check", "--key"]);
        command.arg(place.path("key")).arg("--index").arg(place.path("index")).arg(&image);
        let told = text(&finish(&mut command, 2).stderr);
        assert!(told.contains(why), "{told}");
    };
    place.key('8');
    refused("another trust domain");
    place.key('7');
    let index = File::options().write(true).open(place.path("index")).expect("the index");
    index.write_all_at(&[9], 16).expect("it is written");
    refused("version 9");
    index.write_all_at(&[1], 16).expect("it is written");
    index.write_all_at(&[9], 24).expect("it is written");
    refused("sum of its header");
}

/// What is written past the file system changes no mark. Only `--check` finds it.
#[test]
fn a_device_is_opened_alone_and_checked() {
    root_test!();
    let place = Place::new();
    let image = place.image();
    let device = text(&output(Command::new("losetup").args(["--find", "--show"]).arg(&image)));
    let device = Path::new(device.trim());
    let mnt = place.path("mnt");
    fs::create_dir(&mnt).expect("a folder");
    place.index(&[], device, 0);

    let raw = File::options().write(true).open(device).expect("the device");
    raw.write_all_at(b"past the file system", 20 << 20).expect("it is written");
    raw.sync_all().expect("it is there");
    drop(raw);
    let checked = place.index(&["--check"], device, 1);
    assert_eq!((figure(&checked, "differing"), figure(&checked, "stale")), (1, 1));
    assert_eq!(figure(&place.index(&["--check"], device, 0), "differing"), 0);

    run(Command::new("mount").arg(device).arg(&mnt));
    let mut command = onesweep(["peer", "index", "--check", "--key"]);
    command.arg(place.path("key")).arg("--index").arg(place.path("index")).arg(device);
    let told = text(&finish(&mut command, 2).stderr);
    unmount(&mnt);
    // Mounted and unmounted, it has other marks.
    let checked = place.index(&["--check"], device, 0);
    run(Command::new("losetup").arg("--detach").arg(device));
    assert!(told.contains("mounted or in use"), "{told}");
    assert_eq!((figure(&checked, "suspect"), figure(&checked, "stale")), (8192, 0));
}

#[test]
fn files_of_a_directory_are_found_only_as_they_were() {
    let place = Place::new();
    let tree = place.path("tree");
    fs::create_dir(&tree).expect("a folder");
    for number in 0..50 {
        fs::write(tree.join(number.to_string()), vec![number; 1000 * usize::from(number)]).expect("a file");
    }
    // A file changed just now could be changed again without another ctime.
    let made = place.index(&[], &tree, 0);
    assert_eq!((figure(&made, "new"), figure(&made, "unsettled_files")), (50, 50));
    settle();
    let made = place.index(&[], &tree, 0);
    assert_eq!((figure(&made, "new"), figure(&made, "unsettled_files")), (50, 0));
    let checked = place.index(&["--check"], &tree, 0);
    assert_eq!((figure(&checked, "new"), figure(&checked, "stale")), (0, 0));
    fs::write(tree.join("7"), "changed").expect("a file");
    fs::remove_file(tree.join("8")).expect("a file");
    fs::write(tree.join("8"), vec![8; 8000]).expect("a file");
    let checked = place.index(&["--check"], &tree, 0);
    assert_eq!((figure(&checked, "new"), figure(&checked, "stale")), (2, 0));
}

/// A server of blocks, which is killed when this is dropped.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn start(place: &Place) -> Server {
        let mut command = onesweep(["peer", "serve", "--listen", "127.0.0.1:0", "--disk", "0", "--key"]);
        let mut child = command.arg(place.path("key")).stderr(Stdio::piped()).spawn().expect("a server");
        let mut said = BufReader::new(child.stderr.take().expect("what it says")).lines();
        let line = said.next().expect("where it listens").expect("a line");
        let (_, rest) = line.split_once("listening at ").unwrap_or_else(|| panic!("{line}"));
        let address = rest.split(',').next().expect("an address").to_owned();
        std::thread::spawn(move || said.for_each(drop));
        Server { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An image that is shown through the race, and may be mounted, until it is ended.
pub(crate) struct Raced {
    pub(crate) child: Child,
}

impl Raced {
    /// Its file system is mounted.
    pub(crate) fn start(place: &Place, image: &Path, server: &str, more: &[&str]) -> Raced {
        let mnt = place.path("mnt");
        let _ = fs::create_dir(&mnt);
        let mount = ["--server", server, "--mount", mnt.to_str().expect("a path of text")];
        Raced::show(place, image, &[&mount, more].concat())
    }

    /// Only shown, unless the options say more.
    pub(crate) fn show(place: &Place, image: &Path, options: &[&str]) -> Raced {
        Raced::show_by(place, image, options, onesweep([""; 0]))
    }

    /// The same by a command that ends with the program's name.
    pub(crate) fn show_by(place: &Place, image: &Path, options: &[&str], mut command: Command) -> Raced {
        let _ = fs::create_dir(place.path("shown"));
        command.args(["peer", "mount", "--key"]);
        command.arg(place.path("key")).arg("--index").arg(place.path("index")).args(options);
        command.arg("--device").arg(image).arg(place.path("shown"));
        let mut child = command.stderr(Stdio::piped()).spawn().expect("a mount");
        let mut said = BufReader::new(child.stderr.take().expect("what it says")).lines();
        let mut before = Vec::new();
        loop {
            let line = said.next().unwrap_or_else(|| panic!("it did not come up: {before:?}")).expect("a line");
            if line.contains(" is shown at ") {
                break;
            }
            before.push(line);
        }
        std::thread::spawn(move || said.for_each(drop));
        Raced { child }
    }

    pub(crate) fn end(mut self) -> Option<i32> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it is ours");
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Raced {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let pid = rustix::process::Pid::from_child(&self.child);
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

/// The metrics of what is mounted there, which are OpenMetrics.
pub(crate) fn metrics(dir: &Path) -> String {
    let told = text(&finish(onesweep(["peer", "stat", "--metrics", "--mount"]).arg(dir), 0).stdout);
    openmetrics::parse(&told).unwrap_or_else(|why| panic!("{why}: {told}"));
    told
}

/// What a mount has counted.
pub(crate) fn counted(place: &Place, name: &str) -> u64 {
    let told = metrics(&place.path("shown"));
    let name = format!("onesweep_peer_mount_{name}_total ");
    let value = told.lines().find_map(|line| line.strip_prefix(&name)).unwrap_or_else(|| panic!("{name}: {told}"));
    value.parse().expect("a number")
}

/// Through the race come the bytes of the disk; after an end in order the index holds for all of them; and where the image was
/// changed elsewhere, the new bytes come though the server has the old ones.
fn is_raced(mkfs: &[&str], megabytes: u64) {
    let place = Place::new();
    let image = place.path("image");
    File::create(&image).expect("an image").set_len(megabytes << 20).expect("its size");
    run(Command::new(mkfs[0]).args(&mkfs[1..]).arg(&image));
    is_raced_on(&place, &image, true);
}

/// The same on a loop device: no times of a file tell that it was changed, the marks of its file system alone do.
fn is_raced_on_a_device(mkfs: &[&str], megabytes: u64, has_marks: bool) {
    let place = Place::new();
    let file = place.path("image");
    File::create(&file).expect("an image").set_len(megabytes << 20).expect("its size");
    run(Command::new(mkfs[0]).args(&mkfs[1..]).arg(&file));
    let device = Attached(attach_loop(&file));
    is_raced_on(&place, &device.0, has_marks);
}

/// A loop device, which goes when this goes, with what is mounted of it.
struct Attached(PathBuf);

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).output();
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).output();
    }
}

/// Whether marks tell that nobody else has changed it; else each block has to be read once more.
fn is_raced_on(place: &Place, image: &Path, has_marks: bool) {
    let is_device = !image.is_file();
    place.index(&[], image, 0);
    let server = Server::start(place);
    let push = |place: &Place| {
        let mut command = onesweep(["peer", "push", "--server", &server.address, "--key"]);
        finish(command.arg(place.path("key")).arg(image), 0);
    };
    push(place);
    let file = place.path("mnt").join("file");
    let old: Vec<u8> = (0..4 << 20).map(|at: u32| (at / 4096 * 7 + at % 251) as u8).collect();

    let raced = Raced::start(place, image, &server.address, &["--policy", "quiet-disk"]);
    assert!(!has_marks || counted(place, "reads_remote") > 0, "its tables are on the server");
    fs::write(&file, &old).expect("it is written");
    File::open(&file).expect("the file").sync_all().expect("it is there");
    assert_eq!(raced.end(), Some(0));
    // All that was written through it is known, and nothing else.
    let checked = place.index(&["--check"], image, 0);
    assert_eq!(figure(&checked, "stale"), 0, "{checked}");
    assert_eq!(figure(&checked, "suspect") == 0, has_marks, "{checked}");
    push(place);

    let raced = Raced::start(place, image, &server.address, &["--policy", "quiet-disk"]);
    let before = counted(place, "read_bytes_remote");
    assert!(fs::read(&file).expect("it is read") == old);
    assert!(!has_marks || counted(place, "read_bytes_remote") > before, "the server has it");
    assert_eq!(raced.end(), Some(0));

    // Elsewhere.
    let options: &[&str] = if is_device { &[] } else { &["-o", "loop"] };
    run(Command::new("mount").args(options).arg(image).arg(place.path("mnt")));
    let new = vec![0x22; 64 << 10];
    let changed = File::options().write(true).open(&file).expect("the file");
    changed.write_all_at(&new, 1 << 20).expect("it is written");
    drop(changed);
    unmount(&place.path("mnt"));
    let until = std::time::Instant::now() + Duration::from_secs(30);
    // ntfs-3g is a process, and holds the device a little longer than its mount.
    while is_used(image, is_device) {
        assert!(std::time::Instant::now() < until, "the loop device stays");
        std::thread::sleep(Duration::from_millis(50));
    }

    let raced = Raced::start(place, image, &server.address, &["--policy", "quiet-disk"]);
    let mut expected = old;
    expected[1 << 20..][..new.len()].copy_from_slice(&new);
    assert!(fs::read(&file).expect("it is read") == expected, "old bytes were served");
    // A server that is gone makes no difference.
    drop(server);
    fs::write(place.path("mnt").join("other"), &expected).expect("it is written");
    assert_eq!(raced.end(), Some(0));
    let checked = place.index(&["--check"], image, 0);
    assert_eq!(figure(&checked, "stale"), 0, "{checked}");
}

fn is_used(image: &Path, is_device: bool) -> bool {
    match is_device {
        true => File::options().read(true).custom_flags(rustix::fs::OFlags::EXCL.bits() as i32).open(image).is_err(),
        false => !output(Command::new("losetup").arg("--associated").arg(image)).is_empty(),
    }
}

#[test]
fn an_ext4_on_a_device_is_raced_and_no_old_byte_is_served() {
    root_test!();
    is_raced_on_a_device(&["mkfs.ext4", "-q", "-F"], 64, true);
}

#[test]
fn an_xfs_on_a_device_is_raced_and_no_old_byte_is_served() {
    root_test!();
    is_raced_on_a_device(&["mkfs.xfs", "-q", "-f"], 320, true);
}

#[test]
fn an_ntfs_on_a_device_is_raced_and_no_old_byte_is_served() {
    root_test!();
    is_raced_on_a_device(&["mkntfs", "-q", "-F", "-Q"], 64, false);
}

/// As Windows leaves it, its marks are believed. ntfs-3g, which then has it elsewhere, leaves its journal as it is.
#[test]
fn an_ntfs_of_windows_changed_by_ntfs_3g_on_a_device_serves_no_old_byte() {
    root_test!();
    let place = Place::new();
    let file = place.path("image");
    File::create(&file).expect("an image").set_len(16 << 20).expect("its size");
    run(Command::new("mkntfs").args(["-q", "-F", "-Q"]).arg(&file));
    let mnt = place.path("mnt");
    fs::create_dir(&mnt).expect("a folder");
    let elsewhere = |device: &Path, at: u64, bytes: &[u8]| {
        // Without mending: a journal that isn't closed would be refused.
        run(Command::new("ntfs-3g").args(["-o", "norecover"]).arg(device).arg(&mnt));
        let changed = File::options().write(true).create(true).truncate(false).open(mnt.join("file")).expect("a file");
        changed.write_all_at(bytes, at).expect("it is written");
        drop(changed);
        unmount(&mnt);
        wait_until("the device stays in use", || !is_used(device, true));
    };
    let old: Vec<u8> = (0..4 << 20).map(|at: u32| (at / 4096 * 7 + at % 251) as u8).collect();
    let device = Attached(attach_loop(&file));
    elsewhere(&device.0, 0, &old);
    drop(device);
    windows_log::leave(&file, 0x0012_3456, true);

    let device = Attached(attach_loop(&file));
    place.index(&[], &device.0, 0);
    let server = Server::start(&place);
    let mut push = onesweep(["peer", "push", "--server", &server.address, "--key"]);
    finish(push.arg(place.path("key")).arg(&device.0), 0);
    let options = ["--server", &server.address, "--read-only", "--policy", "quiet-disk"];
    let are_read = |times: usize| {
        let is = fs::read(&device.0).expect("the device");
        let raced = Raced::show(&place, &device.0, &options);
        wait_until("the server is not reached", || of_servers(&place, "server_usable") == [1]);
        let remote: Vec<u64> = (0..times)
            .map(|_| {
                let before = counted(&place, "reads_remote");
                let file = File::open(place.path("shown/block")).expect("the device as it is shown");
                // By portions that the kernel doesn't cut: no block is read twice.
                for (portion, at) in is.chunks(64 << 10).zip((0..).step_by(64 << 10)) {
                    let mut bytes = vec![0; portion.len()];
                    file.read_exact_at(&mut bytes, at).expect("it is read");
                    assert!(bytes == portion, "other bytes than the device's at {at}");
                }
                counted(&place, "reads_remote") - before
            })
            .collect();
        assert_eq!(raced.end(), Some(0));
        (remote, is)
    };
    let (remote, before) = are_read(1);
    assert!(remote[0] > 0, "what Windows has left is believed");

    let new = vec![0x22; 64 << 10];
    elsewhere(&device.0, 1 << 20, &new);
    let (remote, after) = are_read(2);
    assert!(after.windows(new.len()).any(|bytes| bytes == new) && after != before);
    // Each block is suspect until the disk has confirmed it; then what didn't change is the server's again.
    assert!(remote[0] == 0 && remote[1] > 0, "{remote:?}");
}

#[test]
fn a_btrfs_on_a_device_is_raced_and_no_old_byte_is_served() {
    root_test!();
    is_raced_on_a_device(&["mkfs.btrfs", "-q", "-f"], 128, true);
}

#[test]
fn an_ext4_is_raced_and_no_old_byte_is_served() {
    root_test!();
    is_raced(&["mkfs.ext4", "-q", "-F"], 64);
}

#[test]
fn an_xfs_is_raced_and_no_old_byte_is_served() {
    root_test!();
    is_raced(&["mkfs.xfs", "-q", "-f"], 320);
}

#[test]
fn an_ntfs_is_raced_and_no_old_byte_is_served() {
    root_test!();
    is_raced(&["mkntfs", "-q", "-F", "-Q"], 64);
}

#[test]
fn a_btrfs_is_raced_and_no_old_byte_is_served() {
    root_test!();
    is_raced(&["mkfs.btrfs", "-q", "-f"], 128);
}
