//! What was asked to be read is never written to: images and devices stay what they are, byte by byte, whatever is done with
//! them and however damaged they are, and what is open of them is open for reading alone.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::Read,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use crate::{
    image::{Fs, Image, attach_loop_as},
    images::{Made, ntfs, of_kernel},
    run::{long, onesweep, output, root_test, run, seed, short, text},
    tree::Rng,
};

/// Attached until it's dropped.
struct Loop(PathBuf);

impl Loop {
    fn read_only(file: &Path) -> Loop {
        let device = Loop(attach_loop_as(file, &["--read-only"]));
        assert!(device.is_read_only());
        device
    }

    /// One that would take what is written to it.
    fn writable(file: &Path) -> Loop {
        let device = Loop(attach_loop_as(file, &[]));
        assert!(!device.is_read_only());
        device
    }

    fn is_read_only(&self) -> bool {
        text(&output(Command::new("blockdev").arg("--getro").arg(&self.0))).trim() == "1"
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

/// What shows that a file was written to: its bytes, its times, and how much of it is allocated.
fn state(file: &Path) -> (String, [i64; 4], u64) {
    let metadata = fs::metadata(file).expect("the image");
    let times = [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()];
    (text(&output(Command::new("sha256sum").arg(file))), times, metadata.blocks())
}

/// Every way to use an image or a device: each must end by itself, with success where nothing is damaged.
fn every_use(made: &Made, named: &Path, is_sound: bool) {
    let inside = |path: &Path| PathBuf::from(format!("{}:/", path.display()));
    for (number, arguments) in [
        &["tar", "-cf", "/dev/null"][..],
        &["tar", "--xattrs", "--acls", "-S", "-cf", "/dev/null"],
        &["list", "-l"],
        &["sum"],
        &["sum", "--order", "inode", "--budget", "1M"],
        &["plan"],
        &["layout", "--draw"],
        &["find", "-l"],
        &["find", "--json"],
        &["copy"],
    ]
    .into_iter()
    .enumerate()
    {
        let mut command = onesweep(arguments);
        command.arg(inside(named));
        let copied = made.folder.join(&format!("copied {number}"));
        if arguments[0] == "copy" {
            command.arg(&copied);
        }
        let out = command.stdin(Stdio::null()).output().expect("onesweep runs");
        let _ = fs::remove_dir_all(&copied);
        let most = if is_sound { 0 } else { 2 };
        let code = out.status.code();
        assert!(code.is_some_and(|code| code <= most), "{arguments:?} {code:?}: {}", short(&out.stderr));
    }
}

fn stays_what_it_is(made: &Made) {
    let file = made.file();
    let before = state(&file);
    every_use(made, &file, true);
    {
        let device = Loop::read_only(&file);
        every_use(made, &device.0, true);
    }
    assert_eq!(state(&file), before, "sound");
    used_where_it_could_be_written(made, true);
    // The first MiB has metadata of all of them.
    let mut rng = Rng::new(seed());
    let image = File::options().write(true).open(&file).expect("the image");
    let rounds = if long() { 8 } else { 2 };
    for round in 1..=rounds {
        let mut start = vec![0; 1 << 20];
        File::open(&file).and_then(|image| image.read_exact_at(&mut start, 0)).expect("its beginning");
        let used: Vec<usize> = (1024..start.len()).filter(|&at| start[at] != 0).collect();
        for _ in 0..round * 10 {
            let at = used[rng.below(used.len() as u64) as usize];
            image.write_all_at(&rng.bytes(1), at as u64).expect("damage");
        }
        image.sync_all().expect("damage");
        let before = state(&file);
        every_use(made, &file, false);
        if round == rounds {
            let device = Loop::read_only(&file);
            every_use(made, &device.0, false);
        }
        assert_eq!(state(&file), before, "damaged, round {round}");
        if round == rounds {
            used_where_it_could_be_written(made, false);
        }
    }
}

/// By a device that takes writes: neither what it shows nor the file below changes, also when all is written back.
fn used_where_it_could_be_written(made: &Made, is_sound: bool) {
    let file = made.file();
    let before = state(&file);
    {
        let device = Loop::writable(&file);
        every_use(made, &device.0, is_sound);
        run(Command::new("blockdev").arg("--flushbufs").arg(&device.0));
        let sum = text(&output(Command::new("sha256sum").arg(&device.0)));
        assert_eq!(sum.split(' ').next(), before.0.split(' ').next(), "what the device shows");
    }
    assert_eq!(state(&file), before, "behind a device that can be written to");
}

#[test]
fn an_ext4_stays_what_it_is() {
    root_test!();
    stays_what_it_is(&of_kernel(Fs::Ext4, 60));
}

#[test]
fn an_xfs_stays_what_it_is() {
    root_test!();
    stays_what_it_is(&of_kernel(Fs::Xfs, 60));
}

#[test]
fn an_ntfs_stays_what_it_is() {
    root_test!();
    stays_what_it_is(&ntfs(60));
}

/// How a process has a file open: the flags of each descriptor on it.
fn flags_of(process: u32, file: &Path) -> Vec<u32> {
    let folder = PathBuf::from(format!("/proc/{process}"));
    let links = fs::read_dir(folder.join("fd")).into_iter().flatten().flatten();
    let on_it = links.filter(|link| fs::read_link(link.path()).is_ok_and(|target| target == file));
    let flags = on_it.filter_map(|link| {
        let told = fs::read_to_string(folder.join("fdinfo").join(link.file_name())).ok()?;
        let flags = told.lines().find_map(|line| line.strip_prefix("flags:"))?;
        u32::from_str_radix(flags.trim(), 8).ok()
    });
    flags.collect()
}

const PATIENCE: Duration = Duration::from_secs(30);

/// Until it ends, a command has what it reads open for reading alone, through each descriptor, each time that it is looked at;
/// its full pipe holds it between parts of its output.
fn is_open_for_reading_alone(command: &mut Command, path: &Path) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("onesweep runs");
    let mut output = child.stdout.take().expect("a pipe");
    let (has_ended, is_seen, mut seen) = (AtomicBool::new(false), AtomicBool::new(false), HashSet::new());
    let until = Instant::now() + PATIENCE;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Ordering::Relaxed) {
                seen.extend(flags_of(child.id(), path));
                is_seen.store(!seen.is_empty(), Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
        // Until then nothing is taken from the pipe, which holds up who has much to say.
        while !is_seen.load(Ordering::Relaxed) && Instant::now() < until {
            std::thread::yield_now();
        }
        let mut part = [0; 16 << 10];
        while output.read(&mut part).expect("its output") > 0 {}
        has_ended.store(true, Ordering::Relaxed);
    });
    assert!(child.wait().expect("it ends").success(), "{command:?}");
    const WRITING: u32 = 0o3;
    assert!(!seen.is_empty(), "{command:?} was not seen to open {}", path.display());
    assert!(seen.iter().all(|flags| flags & WRITING == 0), "{command:?} {}: {seen:?}", path.display());
}

/// More than a pipe and the buffer of a command take.
const MUCH: usize = 128 << 10;

#[test]
fn what_is_open_is_open_for_reading_alone() {
    root_test!();
    for made in [of_kernel(Fs::Ext4, 60), of_kernel(Fs::Xfs, 60), ntfs(60)] {
        let (read_only, writable) = (Loop::read_only(&made.file()), Loop::writable(&made.file()));
        let bytes = output(onesweep(["find", "--json"]).arg(made.named(":/"))).len();
        for path in [made.file(), read_only.0.clone(), writable.0.clone()] {
            let named = format!("{}:/", path.display());
            is_open_for_reading_alone(onesweep(["tar", "-cf", "-"]).arg(&named), &path);
            let often = vec![named; MUCH / bytes + 1];
            is_open_for_reading_alone(onesweep(["find", "--json"]).args(often), &path);
        }
    }
}

/// The device below a mounted file system, which `find` and sweeps of root read.
fn the_device_is_open_for_reading_alone(fs: Fs, commands: &[&[&str]]) {
    let image = Image::new(fs, 400 << 20);
    let mut rng = Rng::new(seed());
    for file in 0..700 {
        fs::write(image.root().join(format!("file {file}")), rng.bytes(10_000)).expect("a file");
    }
    run(Command::new("sync").arg("--file-system").arg(image.root()));
    for command in commands {
        is_open_for_reading_alone(onesweep(*command).arg(image.root()), image.device());
    }
}

#[test]
fn the_device_of_a_mounted_ext4_is_open_for_reading_alone() {
    root_test!();
    the_device_is_open_for_reading_alone(Fs::Ext4, &[&["find", "--json"], &["tar", "--device", "-cf", "-"]]);
}

#[test]
fn the_device_of_a_mounted_xfs_is_open_for_reading_alone() {
    root_test!();
    the_device_is_open_for_reading_alone(Fs::Xfs, &[&["tar", "--device", "-cf", "-"]]);
}

#[test]
fn the_device_of_a_mounted_ntfs_is_open_for_reading_alone() {
    root_test!();
    the_device_is_open_for_reading_alone(Fs::Ntfs, &[&["tar", "-cf", "-"]]);
}

/// A device that can't be written to is read as any other: nothing is even tried.
#[test]
fn a_file_that_nobody_may_write_to_is_enough() {
    root_test!();
    let made = ntfs(30);
    fs::set_permissions(made.file(), std::os::unix::fs::PermissionsExt::from_mode(0o444)).expect("its mode");
    run(Command::new("chmod").arg("a+rx").arg(made.file().parent().expect("its folder")));
    let mut find = Command::new("setpriv");
    find.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(crate::run::program()).arg("find");
    let found = output(find.arg(made.named(":/")));
    assert!(found.iter().filter(|byte| **byte == b'\n').count() > 10);
}
