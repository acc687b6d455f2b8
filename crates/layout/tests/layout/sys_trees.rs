//! Stacks of devices that the test machine does not have, from trees in the form of recordings of `/sys`.
//!
//! They were written by what the kernel documents, not taken on such machines; a real recording should replace each.
//!
//! A recording is a text of lines `path = content` (a file; `\n` is a newline) and `path -> target` (a link).

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use onesweep_layout::device::FileFacts;
use onesweep_layout::{DeviceError, DeviceStack, Devices, MountTable, SysTree};
use onesweep_sys::files::makedev;

const TIB_SECTORS: u64 = 7_814_037_168;

/// A recording, unpacked for one test.
struct Recording {
    dir: tempfile::TempDir,
}

impl Recording {
    fn new(name: &str) -> Recording {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/sys-trees/{name}.txt"));
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let dir = tempfile::tempdir().unwrap();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (path, is_link, value) = match (line.split_once(" -> "), line.split_once(" = ")) {
                (Some((path, target)), _) => (path, true, target.to_owned()),
                (None, Some((path, content))) => (path, false, content.replace("\\n", "\n") + "\n"),
                (None, None) => panic!("{name}: neither a file nor a link: {line}"),
            };
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match is_link {
                true => symlink(value, path).unwrap(),
                false => fs::write(path, value).unwrap(),
            }
        }
        Recording { dir }
    }

    /// The devices of the recorded machine, of which `files` lists the files that are asked for.
    fn devices(&self, mounts: &str, files: &'static [(&str, FileFacts)]) -> Devices {
        let stat = |path: &Path| {
            let found = files.iter().find(|(name, _)| Path::new(name) == path);
            found.map(|(_, facts)| *facts).ok_or_else(|| io::ErrorKind::NotFound.into())
        };
        Devices::new(SysTree::at(self.dir.path()), MountTable::parse(mounts.as_bytes()).unwrap(), stat)
    }
}

/// What lies under the device `major:minor` of a recording without loop devices.
fn stack(name: &str, major: u32, minor: u32) -> DeviceStack {
    Recording::new(name).devices("", &[]).by_dev(makedev(major, minor)).unwrap()
}

fn disks(stack: &DeviceStack) -> Vec<&str> {
    stack.disks.iter().map(|disk| disk.name.as_str()).collect()
}

const fn on(dev: u64, mnt_id: u64) -> FileFacts {
    FileFacts { dev, mnt_id: Some(mnt_id), is_device: None }
}

const fn node(dev: u64) -> FileFacts {
    FileFacts { dev: 6, mnt_id: Some(1), is_device: Some(dev) }
}

/// `makedev` for numbers below 256, in constants.
const fn dev(major: u64, minor: u64) -> u64 {
    major << 8 | minor
}

#[test]
fn partition_begins_inside_its_disk() {
    let stack = stack("partition", 8, 2);
    assert_eq!((stack.name.as_str(), stack.node.as_path()), ("sda2", Path::new("/dev/sda2")));
    assert_eq!(stack.base, Some(1_050_624 * 512));
    assert_eq!(stack.size, 7_812_984_832 * 512);
    assert_eq!(stack.logical_block, 512, "a partition has the queue of its disk");
    assert_eq!(disks(&stack), ["sda"]);
    assert_eq!((stack.disks[0].rotational, stack.disks[0].size), (Some(true), TIB_SECTORS * 512));
    assert!(!stack.is_seekless());
    assert_eq!(stack.to_string(), "sda2 > sda");
    assert_eq!(stack.members, 1);
}

#[test]
fn whole_disk_begins_at_zero() {
    let stack = stack("partition", 8, 0);
    assert_eq!((stack.base, stack.to_string().as_str()), (Some(0), "sda"));
}

#[test]
fn names_that_begin_alike_are_different_disks() {
    let (first, late) = (stack("many-disks", 8, 1), stack("many-disks", 65, 161));
    assert_eq!((disks(&first), disks(&late)), (vec!["sda"], vec!["sdaa"]));
    assert_ne!(first.spindle_key(), late.spindle_key());
    assert!(!first.is_seekless() && late.is_seekless());
}

#[test]
fn volumes_on_one_disk_share_its_head() {
    let (home, mail) = (stack("lvm-one-disk", 253, 0), stack("lvm-one-disk", 253, 1));
    assert_eq!(home.spindle_key(), mail.spindle_key());
    assert_eq!(home.spindle_key(), stack("lvm-one-disk", 8, 1).spindle_key());
    assert_eq!(disks(&home), ["sda"]);
    assert_eq!(home.base, None, "where a volume lies is not in /sys");
    assert_eq!(home.to_string(), "dm-0 (LVM) > sda1 + sda2 > sda");
    assert_eq!(mail.to_string(), "dm-1 (LVM) > sda2 > sda");
    assert_eq!(home.mapper_node.as_deref(), Some(Path::new("/dev/mapper/vg-home")));
    assert_eq!(stack("lvm-one-disk", 8, 1).mapper_node, None);
}

#[test]
fn volume_over_two_disks_has_both() {
    let stack = stack("lvm-two-disks", 253, 0);
    assert_eq!(disks(&stack), ["sda", "sdb"]);
    assert_eq!(stack.spindle_key(), [makedev(8, 0), makedev(8, 16)]);
    assert_eq!(stack.to_string(), "dm-0 (LVM) > sda + sdb1 > sdb");
}

#[test]
fn mirror_has_both_disks() {
    let stack = stack("md-raid1", 9, 127);
    assert_eq!(disks(&stack), ["sda", "sdb"]);
    assert_eq!(stack.to_string(), "md127 (md raid1) > sda1 + sdb1 > sda + sdb");
    assert_eq!((stack.base, stack.is_seekless()), (None, false));
}

#[test]
fn layers_lie_on_layers() {
    let stack = stack("lvm-on-md", 253, 3);
    assert_eq!(disks(&stack), ["sda", "sdb"]);
    assert_eq!(stack.to_string(), "dm-3 (LVM) > md0 (md raid1) > sda3 + sdb3 > sda + sdb");
}

#[test]
fn encryption_is_seen_through() {
    let stack = stack("crypt", 253, 0);
    assert_eq!(stack.to_string(), "dm-0 (crypt) > sda3 > sda");
    assert!(stack.is_seekless());
}

const LOOP_FILES: &[(&str, FileFacts)] = &[
    ("/srv/images/disk.img", on(dev(8, 1), 30)),
    ("/mnt/fuse/disk.img", on(dev(0, 50), 31)),
    ("/dev/sda1", node(dev(8, 1))),
];

const LOOP_MOUNTS: &str =
    "30 1 8:1 / /srv rw - ext4 /dev/sda1 rw\n31 1 0:50 / /mnt/fuse rw - fuse.sshfs /dev/sda1 rw\n";

fn loop_stack(minor: u32) -> DeviceStack {
    Recording::new("loop").devices(LOOP_MOUNTS, LOOP_FILES).by_dev(makedev(7, minor)).unwrap()
}

#[test]
fn loop_is_judged_by_what_lies_under_its_file() {
    let stack = loop_stack(0);
    assert_eq!(disks(&stack), ["sda"]);
    assert_eq!(stack.to_string(), "loop0 (loop) > sda1 > sda");
    assert_eq!(stack.base, None);
    let partition = Recording::new("loop").devices(LOOP_MOUNTS, LOOP_FILES).by_dev(makedev(259, 0)).unwrap();
    assert_eq!(partition.to_string(), "loop0p1 > loop0 (loop) > sda1 > sda");
    assert_eq!(disks(&loop_stack(3)), ["sda"], "the file of a loop device may be a device");
}

#[test]
fn loop_without_a_device_under_it_seeks() {
    // A FUSE file, a deleted file, and no file at all.
    for minor in [1, 2, 4] {
        let stack = loop_stack(minor);
        assert_eq!(disks(&stack), [format!("loop{minor}")]);
        assert_eq!(stack.disks[0].rotational, Some(false), "which proves nothing");
        assert!(!stack.is_seekless());
    }
}

#[test]
fn loops_on_each_other_end() {
    const FILES: &[(&str, FileFacts)] =
        &[("/inside/loop0.img", on(dev(7, 0), 1)), ("/inside/loop1.img", on(dev(7, 1), 1))];
    let stack = Recording::new("snake").devices("", FILES).by_dev(makedev(7, 0)).unwrap();
    assert!(!stack.is_seekless());
    assert_eq!(stack.disks.len(), 1);
}

#[test]
fn nvme_does_not_seek() {
    let stack = stack("nvme", 259, 2);
    assert!(stack.is_seekless());
    assert_eq!(stack.spindle_key(), [makedev(259, 0)]);
    assert_eq!((stack.logical_block, stack.base), (4096, Some(1_050_624 * 512)));
    assert_eq!(stack.to_string(), "nvme0n1p2 > nvme0n1");
}

#[test]
fn virtual_disks_are_believed_only_when_they_do_not_rotate() {
    assert!(!stack("virtio", 254, 1).is_seekless());
    assert!(stack("virtio", 254, 16).is_seekless());
    assert!(stack("virtio", 251, 0).is_seekless(), "memory does not seek, whatever it says");
    assert!(!stack("virtio", 43, 0).is_seekless(), "what is behind a network block device is not known");
}

#[test]
fn disk_behind_a_cache_still_seeks() {
    let stack = stack("bcache", 252, 0);
    assert_eq!(disks(&stack), ["sda", "nvme0n1"]);
    assert!(!stack.is_seekless());
    assert_eq!(stack.spindle_key(), [makedev(8, 0)], "only the disk has a head");
    assert_eq!(stack.to_string(), "bcache0 (bcache) > nvme0n1p1 + sda > nvme0n1");
}

#[test]
fn slash_in_a_name_is_kept() {
    let stack = stack("cciss", 104, 1);
    assert_eq!(stack.node, Path::new("/dev/cciss/c0d0p1"));
    assert_eq!(disks(&stack), ["cciss/c0d0"]);
}

#[test]
fn btrfs_is_found_by_the_node_that_was_mounted() {
    const FILES: &[(&str, FileFacts)] = &[("/dev/sdb", node(dev(8, 16))), ("/dev/sdc1", node(dev(8, 33)))];
    let mounts = "30 1 0:40 /@srv /srv rw - btrfs /dev/sdb rw\n31 1 0:41 / /one rw - btrfs /dev/sdc1 rw\n";
    let recording = Recording::new("btrfs");
    let devices = recording.devices(mounts, FILES);
    let both = devices.by_mount(devices.mounts().by_id(30).unwrap()).unwrap();
    assert_eq!((disks(&both), both.members), (vec!["sda", "sdb"], 2));
    assert_eq!((both.name.as_str(), both.base), ("sdb", None));
    let one = devices.by_mount(devices.mounts().by_id(31).unwrap()).unwrap();
    assert_eq!((disks(&one), one.members, one.base), (vec!["sdc"], 1, Some(2048 * 512)));
}

#[test]
fn file_systems_without_a_device_say_so() {
    let mounts = "1 0 0:20 / /n rw - nfs4 server:/x rw\n2 0 0:21 / /f rw - fuse.sshfs /dev/sda1 rw\n3 0 9:9 / /g rw - ext4 /dev/md9 rw\n";
    const FILES: &[(&str, FileFacts)] = &[("/dev/sda1", node(dev(8, 1)))];
    let recording = Recording::new("partition");
    let devices = recording.devices(mounts, FILES);
    let by_id = |id| devices.by_mount(devices.mounts().by_id(id).unwrap()).unwrap_err();
    assert_eq!(by_id(1).to_string(), "nfs4 is on no block device");
    assert!(matches!(by_id(2), DeviceError::NoDevice { .. }), "the source of FUSE is any word");
    assert_eq!(by_id(3).to_string(), "block device 9:9 is not in /sys");
}
