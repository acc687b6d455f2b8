//! XFS whose log lies on another device (`mkfs.xfs -l logdev=`): that is asked whether all was written to its place.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
};

use onesweep_layout::{
    ImageFile,
    image::{ImageName, ImageOptions, WhyNot},
    tables::{
        TableError, Tables,
        xfs::{DirectoryPlaces, MountedXfs, Xfs},
    },
};

use crate::{
    conformance::{Tree, by_kernel, by_tables, compare, scan},
    image::{Image, run},
    xfs_mounted::{node, without_content},
    xfs_tree::{ATTRIBUTE_MAX, Recipe, fill},
};

const MIB: u64 = 1 << 20;

/// A file for a log, and a loop device of it: the kernel takes nothing else.
struct Log {
    folder: tempfile::TempDir,
    device: String,
}

impl Log {
    fn new() -> Log {
        let folder = tempfile::tempdir().unwrap();
        File::create(folder.path().join("log")).unwrap().set_len(80 * MIB).unwrap();
        let out = run(Command::new("losetup").args(["--find", "--show"]).arg(folder.path().join("log")));
        Log { folder, device: String::from_utf8(out.stdout).unwrap().trim().to_owned() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    fn beside(&self, name: &str) -> PathBuf {
        let copy = self.folder.path().join(name);
        run(Command::new("cp").arg("--sparse=always").arg(self.path()).arg(&copy));
        copy
    }

    /// The option of mount.
    fn option(&self) -> String {
        format!("logdev={}", self.device)
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}

/// A file system and its log; `None` where nothing can be mounted.
fn made(mkfs: &[&str]) -> Option<(Image, Log)> {
    if !rustix::process::geteuid().is_root() {
        crate::image::skipped("only root can mount");
        return None;
    }
    let log = Log::new();
    let option = format!("{},size=64m", log.option());
    let image = Image::new(320 * MIB, &[&["mkfs.xfs", "-q", "-l", &option], mkfs].concat())?;
    Some((image, log))
}

fn open_with(image: &Path, log: &Path) -> Result<Xfs<ImageFile>, TableError> {
    Xfs::open_with_log(ImageFile::open(image).unwrap(), &ImageFile::open(log).unwrap())
}

fn told(image: &Path, log: &Path) -> TableError {
    match open_with(image, log) {
        Err(error) => error,
        Ok(tables) => panic!("{:?} was opened", tables.facts()),
    }
}

fn by_kernel_for_reading(image: &mut Image, log: &Log) -> Tree {
    image.mount(&["-t", "xfs"], &format!("ro,{}", log.option()));
    let kernel = by_kernel(&image.root(), &[]);
    image.unmount();
    kernel
}

fn sum(path: &Path) -> Vec<u8> {
    run(Command::new("sha256sum").arg(path)).stdout
}

#[test]
fn a_clean_external_log_conforms() {
    for mkfs in [&[][..], &["-b", "size=1024", "-d", "agcount=2"]] {
        let Some((mut image, log)) = made(mkfs) else { return };
        assert!(scan(&mut open_with(&image.path(), &log.path()).unwrap()).problems.is_empty(), "fresh from mkfs.xfs");
        image.mount(&["-t", "xfs"], &log.option());
        fill(&image.root(), &Recipe { names: 2000, reflink: true, attribute: ATTRIBUTE_MAX });
        image.unmount();
        let before = [sum(&image.path()), sum(&log.path())];
        let tables = by_tables(&mut open_with(&image.path(), &log.path()).unwrap(), &[]);
        assert!([sum(&image.path()), sum(&log.path())] == before, "reading changed something");
        compare(&by_kernel_for_reading(&mut image, &log), &tables);

        let without = Xfs::open(ImageFile::open(&image.path()).unwrap()).expect_err("a log elsewhere");
        assert!(matches!(without, TableError::LogElsewhere { .. }) && without.at() == Some(48), "{without}");
        assert!(without.to_string().contains("--logdev"), "{without}");

        // Another UUID, which the log gets too.
        run(Command::new("xfs_admin").args(["-U", "generate"]).arg(image.path()).arg(log.path()));
        let tables = by_tables(&mut open_with(&image.path(), &log.path()).unwrap(), &[]);
        compare(&by_kernel_for_reading(&mut image, &log), &tables);
    }
}

#[test]
fn a_dirty_external_log_is_refused_and_a_recovered_one_is_read() {
    let Some((mut image, log)) = made(&[]) else { return };
    let write = |image: &Image, folder: &str| {
        let folder = image.root().join(folder);
        fs::create_dir(&folder).unwrap();
        (0..300).for_each(|number| fs::write(folder.join(format!("file {number}")), b"content").unwrap());
        run(Command::new("sync").arg("-f").arg(&folder));
    };
    let refused = |image: &Path, log: &Path| {
        let error = told(image, log);
        let shown = error.to_string();
        assert!(matches!(error, TableError::Dirty { .. }), "{shown}");
        assert!(shown.contains("logdev=DEVICE") && shown.contains("xfs_repair -L -l"), "{shown}");
    };
    let fresh = log.beside("fresh");
    image.mount(&["-t", "xfs"], &log.option());
    write(&image, "first");
    let copy = image.path().with_extension("copy");
    run(Command::new("cp").arg("--sparse=always").arg(image.path()).arg(&copy));
    refused(&copy, &log.beside("copy"));
    run(Command::new("xfs_io").args(["-x", "-c", "shutdown -f"]).arg(image.root()));
    image.unmount();
    refused(&image.path(), &log.path());

    // By one advice of the message, and by the other.
    image.mount(&["-t", "xfs"], &log.option());
    image.unmount();
    let tables = by_tables(&mut open_with(&image.path(), &log.path()).unwrap(), &[]);
    compare(&by_kernel_for_reading(&mut image, &log), &tables);
    image.mount(&["-t", "xfs"], &log.option());
    write(&image, "second");
    run(Command::new("xfs_io").args(["-x", "-c", "shutdown -f"]).arg(image.root()));
    image.unmount();
    refused(&image.path(), &log.path());
    run(Command::new("xfs_repair").args(["-L", "-l"]).arg(log.path()).arg(image.path()));
    let tables = by_tables(&mut open_with(&image.path(), &log.path()).unwrap(), &[]);
    compare(&by_kernel_for_reading(&mut image, &log), &tables);

    // Clean as well, but of a time before the file system was written to.
    let old = told(&image.path(), &fresh);
    assert!(matches!(old, TableError::NotTheLog { .. }) && old.to_string().contains("round"), "{old}");
}

/// Needs no root: what mkfs.xfs makes in files.
#[test]
fn a_log_in_a_file_has_to_be_that_of_the_image() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let sized = |name: &str, bytes: u64| File::create(path(name)).unwrap().set_len(bytes).unwrap();
    for name in ["one", "other"] {
        sized(name, 320 * MIB);
        sized(&format!("log of {name}"), 64 * MIB);
        let log = format!("logdev={},size=64m", path(&format!("log of {name}")).display());
        run(Command::new("mkfs.xfs").args(["-q", "-l", &log]).arg(path(name)));
    }
    scan(&mut open_with(&path("one"), &path("log of one")).unwrap());

    let named = |error: TableError, expected: &str| {
        let shown = error.to_string();
        assert!(matches!(error, TableError::NotTheLog { .. }) && shown.contains(expected), "{shown}");
        assert!(shown.contains("byte ") && error.at().is_none(), "the byte is of another device: {shown}");
    };
    named(told(&path("one"), &path("log of other")), "UUID");
    sized("empty", 64 * MIB);
    named(told(&path("one"), &path("empty")), "found nothing");
    named(told(&path("one"), &path("other")), "log");
    let short = File::options().write(true).open(path("log of other")).unwrap();
    short.set_len(64 * MIB - 512).unwrap();
    named(told(&path("one"), &path("log of other")), &format!("byte {}", 64 * MIB - 512));
    let all = told(&path("one"), &path("one")).to_string();
    assert!(all.contains("not the log"), "{all}");

    // As it is named on a command line.
    let image = ImageName::of(&path("one")).unwrap();
    let refused = |logdev: Option<&str>| {
        let options = ImageOptions { logdev: logdev.map(path), ..ImageOptions::default() };
        image.open_tables(&options).err().map(|error| (error.to_string(), error.why))
    };
    assert!(refused(Some("log of one")).is_none());
    assert!(matches!(refused(None), Some((shown, WhyNot::Tables(_))) if shown.contains("--logdev")));
    for (logdev, expected) in [("log of other", "the end of the device"), ("none", "cannot open")] {
        let (shown, why) = refused(Some(logdev)).unwrap();
        let names_both = shown.contains("/one: its log ") && shown.contains(&*path(logdev).to_string_lossy());
        assert!(names_both && shown.contains(expected) && matches!(why, WhyNot::Log(_)), "{shown}");
    }

    // One with a log of its own takes no notice.
    run(Command::new("mkfs.xfs").args(["-q", "-f"]).arg(path("other")));
    let options = ImageOptions { logdev: Some(path("none")), ..ImageOptions::default() };
    ImageName::of(&path("other")).unwrap().open_tables(&options).map(drop).unwrap();
    scan(&mut open_with(&path("other"), &path("empty")).unwrap());
}

/// Only what is not mounted has to be told of its log.
#[test]
fn a_mounted_file_system_with_an_external_log_is_read() {
    let Some((mut image, log)) = made(&[]) else { return };
    image.mount(&["-t", "xfs"], &log.option());
    fill(&image.root(), &Recipe { names: 2000, reflink: true, attribute: ATTRIBUTE_MAX });
    let mut mounted = MountedXfs::open(&image.root()).unwrap().unwrap();
    let tables = by_tables(&mut mounted, &[]);
    drop(mounted);
    compare(&without_content(by_kernel(&image.root(), &[])), &without_content(tables));
    let found = fs::metadata(image.root().join("large")).unwrap();
    image.unmount();
    image.mount(&["-t", "xfs"], &log.option());
    let dev = fs::metadata(image.root()).unwrap().dev();
    let places = DirectoryPlaces::of_mounted(&node(dev), dev).unwrap();
    assert!(places.first_block(found.ino()).is_some());
    drop(places);
    image.unmount();
}
