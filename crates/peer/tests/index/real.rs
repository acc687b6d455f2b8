//! Real file systems in images: mounted elsewhere, one file changed, and back again.
//!
//! These need root and loop devices, and are skipped with a reason elsewhere.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use onesweep_layout::{BlockRead, ImageFile};
use onesweep_peer::{
    id::TrustDomain,
    index::{
        Block, DeviceIndex, Geometry,
        fill::{Pass, pass},
    },
    marks::Marks,
};

use crate::windows_log;

fn skipped(reason: &str) {
    let thread = std::thread::current();
    let _ = writeln!(std::io::stderr(), "skipped: {}: {reason}", thread.name().unwrap_or("a test"));
}

fn run(command: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(command).args(arguments).output().map_err(|error| format!("{command}: {error}"))?;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    output.status.success().then_some(()).ok_or(format!("{command}: {told}"))
}

/// An image with a file system, which is mounted only within [`Self::mounted`].
struct Image {
    dir: tempfile::TempDir,
    mount: &'static [&'static str],
}

impl Image {
    fn new(mkfs: &[&str], megabytes: u64, mount: &'static [&'static str]) -> Option<Image> {
        if fs::metadata("/dev/loop-control").is_err() {
            skipped("there are no loop devices");
            return None;
        }
        let dir = match std::env::var_os("ONESWEEP_TEST_DIR") {
            Some(parent) => tempfile::tempdir_in(parent).unwrap(),
            None => tempfile::tempdir().unwrap(),
        };
        let image = Image { dir, mount };
        File::create(image.path()).unwrap().set_len(megabytes << 20).unwrap();
        fs::create_dir(image.dir.path().join("mnt")).unwrap();
        let path = image.path().to_string_lossy().into_owned();
        let (command, arguments) = mkfs.split_first().unwrap();
        if let Err(why) = run(command, &[arguments, &[&path]].concat()) {
            skipped(&why);
            return None;
        }
        Some(image)
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// Mounts it, does something there, and unmounts it. False where it can't be mounted.
    fn mounted(&self, work: impl FnOnce(&Path)) -> bool {
        let (image, mnt) = (self.path(), self.dir.path().join("mnt"));
        let (image, at) = (image.to_string_lossy(), mnt.to_string_lossy());
        let words: Vec<&str> = self
            .mount
            .iter()
            .map(|word| word.replace("IMAGE", &image).replace("MNT", &at))
            .map(|word| &*word.leak())
            .collect();
        if let Err(why) = run(words[0], &words[1..]) {
            skipped(&why);
            return false;
        }
        work(&mnt);
        // A program that another test is starting has our files open until its exec.
        let is_unmounted = (0..500).any(|_| {
            let is_done = run("umount", &[&at]).is_ok();
            if !is_done {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            is_done
        });
        assert!(is_unmounted, "{at} stays busy");
        // Until the loop device is gone, it may yet write.
        let path = self.path();
        for _ in 0..100 {
            let list = Command::new("losetup").arg("--associated").arg(&path).output().unwrap();
            if list.stdout.is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        true
    }

    /// The marks that its tables alone have, as of a device.
    fn marks(&self) -> Option<Marks> {
        Marks::read(&ImageFile::open(&self.path()).unwrap(), None)
    }
}

/// Nothing happened: the marks are the same. One file changed elsewhere: they are others, and all blocks suspect; and after
/// each was read once, the index knows the new bytes.
fn comes_back(mkfs: &[&str], megabytes: u64, mount: &'static [&'static str]) {
    comes_back_from(mkfs, megabytes, mount, |_| ());
}

/// The same, where something else has it between the old file and the index.
fn comes_back_from(mkfs: &[&str], megabytes: u64, mount: &'static [&'static str], other: impl FnOnce(&Path)) {
    let Some(image) = Image::new(mkfs, megabytes, mount) else { return };
    let old = vec![0x11; 64 << 10];
    if !image.mounted(|at| fs::write(at.join("file"), &old).unwrap()) {
        return;
    }
    other(&image.path());
    let marks = image.marks().expect("marks of a listed file system");
    assert_eq!(image.marks(), Some(marks.clone()), "nothing happened");

    let domain = TrustDomain::from_key([1; 32]);
    let store = image.dir.path().join("index");
    let device = ImageFile::open(&image.path()).unwrap();
    let open = || File::options().read(true).write(true).create(true).truncate(false).open(&store).unwrap();
    let mut index = DeviceIndex::create(open(), Geometry::new(4096, device.len()).unwrap(), &domain).unwrap();
    let read = |buffer: &mut [u8], at| device.read_at(buffer, at);
    let passed = pass(&mut index, Pass::Fill, &read, &mut |_| true);
    assert_eq!((passed.bytes, passed.new), (device.len(), index.geometry().blocks()));
    assert!(index.close(Some(marks.clone())).unwrap());
    let index = DeviceIndex::open(open(), device.len(), &domain, image.marks().as_ref()).unwrap();
    assert!(index.is_believed());
    assert!(index.close(Some(marks.clone())).unwrap());

    let new = vec![0x22; 64 << 10];
    image.mounted(|at| {
        let file = File::options().write(true).open(at.join("file")).unwrap();
        file.write_all_at(&new, 0).unwrap();
    });
    assert_ne!(image.marks(), Some(marks), "one file was changed");
    let mut index = DeviceIndex::open(open(), device.len(), &domain, image.marks().as_ref()).unwrap();
    assert!(!index.is_believed());
    let blocks = 0..index.geometry().blocks();
    let is_known = |block: &Block| matches!(block, Block::Valid(_) | Block::Zero);
    assert!(blocks.clone().all(|block| !is_known(&index.block(block))), "an old byte could be served");
    let passed = pass(&mut index, Pass::Fill, &read, &mut |_| true);
    assert!(passed.differing >= 16, "{passed:?}");
    let mut bytes = vec![0; 4096];
    for block in blocks {
        device.read_at(&mut bytes, block * 4096).unwrap();
        match index.block(block) {
            Block::Valid(hash) => assert_eq!(hash, domain.hash(&bytes), "{block}"),
            other => assert!(other == Block::Zero && bytes.iter().all(|byte| *byte == 0), "{block}: {other:?}"),
        }
    }
}

const LOOP: &[&str] = &["mount", "-o", "loop", "IMAGE", "MNT"];

/// What its own tools write past a file system that nobody has mounted.
fn tools_are_seen(mkfs: &[&str], megabytes: u64, tools: &[&[&str]]) {
    let Some(image) = Image::new(mkfs, megabytes, LOOP) else { return };
    if !image.mounted(|at| fs::write(at.join("file"), "x").unwrap()) {
        return;
    }
    for tool in tools {
        let before = image.marks().expect("marks");
        let (program, words) = tool.split_first().unwrap();
        let done = Command::new(program).args(words).arg(image.path()).output().unwrap();
        assert!(done.status.code().is_some_and(|code| code <= 1), "{tool:?}: {done:?}");
        assert_ne!(image.marks(), Some(before), "{tool:?}");
    }
}

#[test]
fn tools_of_ext4_are_seen_within_a_second() {
    tools_are_seen(
        &["mkfs.ext4", "-q", "-F"],
        32,
        &[&["tune2fs", "-L", "a"], &["tune2fs", "-L", "b"], &["tune2fs", "-c", "7"]],
    );
}

#[test]
fn tools_of_xfs_are_seen() {
    let links: &[&str] = &[
        "xfs_db",
        "-x",
        "-c",
        "path /file",
        "-c",
        "write -d core.nlinkv2 9",
        "-c",
        "agf 1",
        "-c",
        "write -d freeblks 5",
    ];
    tools_are_seen(
        &["mkfs.xfs", "-q"],
        320,
        &[&["xfs_admin", "-L", "a"], &["xfs_admin", "-L", "b"], links, &["xfs_repair"]],
    );
}

#[test]
fn ext4_changed_elsewhere_is_suspect() {
    comes_back(&["mkfs.ext4", "-q", "-F"], 32, LOOP);
}

#[test]
fn ext4_without_a_journal_changed_elsewhere_is_suspect() {
    comes_back(&["mkfs.ext4", "-q", "-F", "-O", "^has_journal"], 32, LOOP);
}

#[test]
fn xfs_changed_elsewhere_is_suspect() {
    comes_back(&["mkfs.xfs", "-q"], 320, LOOP);
}

#[test]
fn btrfs_changed_elsewhere_is_suspect() {
    comes_back(&["mkfs.btrfs", "-q"], 128, LOOP);
}

/// ntfs-3g leaves $LogFile empty, so nobody can tell what was changed: there are no marks, and nothing is ever believed.
#[test]
fn ntfs_without_a_log_has_no_marks() {
    let mount = &["ntfs-3g", "IMAGE", "MNT"];
    let Some(image) = Image::new(&["mkntfs", "-Q", "-F", "-q"], 16, mount) else { return };
    if image.mounted(|at| fs::write(at.join("file"), "x").unwrap()) {
        assert_eq!(image.marks(), None);
        let metadata = fs::metadata(image.path()).unwrap();
        let before = Marks::read(&ImageFile::open(&image.path()).unwrap(), Some(&metadata)).expect("those of the file");
        image.mounted(|at| fs::write(at.join("file"), "y").unwrap());
        let metadata = fs::metadata(image.path()).unwrap();
        assert_ne!(Marks::read(&ImageFile::open(&image.path()).unwrap(), Some(&metadata)), Some(before));
    }
}

/// NTFS as Windows leaves it: a sound restart page has an LSN, and another one after each time it was written.
#[test]
fn ntfs_with_a_log_has_the_marks_of_its_restart() {
    let Some(image) = Image::new(&["mkntfs", "-Q", "-F", "-q"], 16, &[]) else { return };
    let marks = [0x1000, 0x1000, 0x2000].map(|lsn| {
        windows_log::leave(&image.path(), lsn, true);
        image.marks().expect("marks")
    });
    assert_eq!(marks[0], marks[1]);
    assert_ne!(marks[1], marks[2]);
}

/// ntfs-3g takes the journal for a sound and closed one (else it would not mount it without mending), and leaves it as it is: the LSN
/// stays, and of what it writes the records alone tell.
#[test]
fn ntfs_of_windows_changed_by_ntfs_3g_is_suspect() {
    let mount = &["ntfs-3g", "-o", "norecover", "IMAGE", "MNT"];
    comes_back_from(&["mkntfs", "-Q", "-F", "-q"], 16, mount, |image| windows_log::leave(image, 0x0012_3456, true));
}

/// A journal that isn't closed, it empties.
#[test]
fn ntfs_that_windows_left_open_and_ntfs_3g_changed_is_suspect() {
    let mount = &["ntfs-3g", "IMAGE", "MNT"];
    comes_back_from(&["mkntfs", "-Q", "-F", "-q"], 16, mount, |image| windows_log::leave(image, 0x0012_3456, false));
}
