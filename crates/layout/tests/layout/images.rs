//! Real file systems on loop devices: what the kernel says of files whose layout is known.
//!
//! These need root and loop devices, and are skipped with a reason elsewhere.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use onesweep_layout::{
    AddressSampler, AddressTrust, Devices, Extent, ExtentFlags, Fibmap, Fiemap, LayoutScore, LayoutSource, SourceKind,
    Sources,
};
use onesweep_sys::block;
use onesweep_sys::files::{clone_file, statx_fd, sync_data};

const MIB: u64 = 1 << 20;

/// A file system on a loop device on a sparse image, unmounted when dropped.
struct Mounted {
    /// Dropped last, and only when the mount is gone.
    dir: Option<tempfile::TempDir>,
    device: PathBuf,
    mounted: bool,
}

/// Says that the running test is left out, or a part of it, and why.
pub(crate) fn skipped(reason: &str) {
    let thread = std::thread::current();
    // Past the test harness, which would keep it back: a run as root must not leave tests out unseen.
    let _ = writeln!(std::io::stderr(), "skipped: {}: {reason}", thread.name().unwrap_or("a test"));
}

impl Mounted {
    /// Makes and mounts a file system; `None`, with the reason printed, where that is not possible.
    fn new(size: u64, mkfs: &[&str], options: &str) -> Option<Mounted> {
        match Mounted::try_new(size, mkfs, options) {
            Ok(mounted) => Some(mounted),
            Err(reason) => {
                skipped(&reason);
                None
            }
        }
    }

    fn try_new(size: u64, mkfs: &[&str], options: &str) -> Result<Mounted, String> {
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let image = dir.path().join("image");
        File::create(&image).and_then(|file| file.set_len(size)).map_err(|error| error.to_string())?;
        run(Command::new(mkfs[0]).args(&mkfs[1..]).arg(&image))?;
        let attached = run(Command::new("losetup").args(["--find", "--show"]).arg(&image))?;
        let device = PathBuf::from(String::from_utf8_lossy(&attached.stdout).trim());
        let mut mounted = Mounted { dir: Some(dir), device, mounted: false };
        fs::create_dir(mounted.path()).map_err(|error| error.to_string())?;
        run(Command::new("mount").args(["-o", options]).args([&mounted.device, &mounted.path()]))?;
        mounted.mounted = true;
        Ok(mounted)
    }

    fn path(&self) -> PathBuf {
        self.dir.as_ref().expect("kept until it is dropped").path().join("mounted")
    }

    fn create(&self, name: &str) -> File {
        File::options().read(true).write(true).create_new(true).open(self.path().join(name)).unwrap()
    }
}

impl Mounted {
    /// Unmounts, trying again for a while: a process that another test is starting has our files open until its exec.
    fn unmount(&self) -> bool {
        let patience = Instant::now() + Duration::from_secs(10);
        while let Err(error) = run(Command::new("umount").arg(self.path())) {
            if Instant::now() > patience {
                eprintln!("{error}");
                return run(Command::new("umount").arg("--lazy").arg(self.path())).is_ok();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = !self.mounted || self.unmount();
        if let Err(error) = run(Command::new("losetup").arg("--detach").arg(&self.device)) {
            eprintln!("{error}");
        }
        if !unmounted {
            // Removing the directory would remove what is mounted there.
            let kept = self.dir.take().map(tempfile::TempDir::keep);
            eprintln!("left mounted: {kept:?}");
        }
    }
}

/// Runs a command; its messages are the error.
pub(crate) fn run(command: &mut Command) -> Result<Output, String> {
    let named = format!("{command:?}");
    let output = command.output().map_err(|error| format!("{named}: {error}"))?;
    match output.status.success() {
        true => Ok(output),
        false => Err(format!("{named}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

fn ext4() -> Option<Mounted> {
    Mounted::new(64 * MIB, &["mkfs.ext4", "-q", "-b", "4096", "-O", "inline_data", "-I", "256"], "noatime")
}

/// All extents of a file by one source.
fn map_with(source: &mut dyn LayoutSource, file: &File) -> Vec<Extent> {
    let size = file.metadata().unwrap().len();
    let mut extents = Vec::new();
    let mapped = source.map(file.as_fd(), size, &mut |extent| extents.push(extent)).unwrap();
    assert_eq!(mapped.extents, extents.len());
    assert_eq!(mapped.bytes, extents.iter().map(|extent| extent.length).sum());
    extents
}

fn map(file: &File) -> Vec<Extent> {
    map_with(&mut Fiemap::default(), file)
}

fn fallocate(file: &File, mode: &[&str], offset: u64, length: u64) {
    let path = format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(file));
    let (offset, length) = (offset.to_string(), length.to_string());
    run(Command::new("fallocate").args(mode).args(["-o", &offset, "-l", &length, &path])).unwrap();
}

/// Whether the bytes of the device at the addresses of a file are those of the file.
fn device_has(mounted: &Mounted, file: &File, extents: &[Extent]) -> bool {
    // Whoever looked at the device while it was mounted may have left what was there before.
    run(Command::new("blockdev").arg("--flushbufs").arg(&mounted.device)).unwrap();
    let device: File = block::open_device(&mounted.device).unwrap().into();
    extents.iter().all(|extent| {
        let mut of_file = vec![0; extent.length as usize];
        let read = file.read_at(&mut of_file, extent.logical).unwrap();
        let mut of_device = vec![0; read];
        device.read_exact_at(&mut of_device, extent.physical.unwrap()).unwrap();
        of_device == of_file[..read]
    })
}

#[test]
fn addresses_are_those_of_the_device() {
    let Some(mounted) = ext4() else { return };
    let mut file = mounted.create("data");
    file.write_all(&b"some bytes to look for ".repeat(20_000)).unwrap();
    sync_data(file.as_fd()).unwrap();
    let extents = map(&file);
    assert!(extents.iter().all(Extent::is_plain));
    assert!(device_has(&mounted, &file, &extents));
    assert_eq!(extents.last().unwrap().logical_end(), 460_000_u64.next_multiple_of(4096));
}

#[test]
fn holes_and_preallocation_are_told_apart() {
    let Some(mounted) = ext4() else { return };
    let file = mounted.create("sparse");
    file.write_all_at(&[1; 8192], 0).unwrap();
    file.write_all_at(&[2; 4096], MIB).unwrap();
    fallocate(&file, &[], 2 * MIB, 65536);
    fallocate(&file, &["--keep-size"], 3 * MIB, MIB);
    sync_data(file.as_fd()).unwrap();
    let extents = map(&file);
    let runs: Vec<_> = extents.iter().map(|extent| (extent.logical, extent.length, extent.is_zeros())).collect();
    assert_eq!(runs, [(0, 8192, false), (MIB, 4096, false), (2 * MIB, 65536, true)]);
    assert!(device_has(&mounted, &file, &extents[..2]));
}

#[test]
fn bytes_in_memory_have_no_address_yet() {
    let Some(mounted) = ext4() else { return };
    let mut file = mounted.create("young");
    file.write_all(&[1; 100_000]).unwrap();
    let before = map(&file);
    sync_data(file.as_fd()).unwrap();
    let after = map(&file);
    match before.as_slice() {
        [young] => {
            assert!(young.flags.contains(ExtentFlags::DELALLOC));
            assert_eq!(young.physical, None);
        }
        written => eprintln!("written back too early to see: {written:?}"),
    }
    assert!(after.iter().all(|extent| extent.physical.is_some()));
}

#[test]
fn small_file_lies_in_its_inode() {
    let Some(mounted) = ext4() else { return };
    let mut file = mounted.create("tiny");
    file.write_all(b"tiny").unwrap();
    sync_data(file.as_fd()).unwrap();
    let [extent] = map(&file)[..] else { panic!("one extent for a tiny file") };
    assert!(extent.flags.contains(ExtentFlags::INLINE));
    assert!(!extent.is_plain());
    let address = extent.physical.expect("ext4 tells where the inode is");
    let mut of_device = [0; 4];
    let device: File = block::open_device(&mounted.device).unwrap().into();
    run(&mut Command::new("sync")).unwrap();
    device.read_exact_at(&mut of_device, address).unwrap();
    assert_eq!(&of_device, b"tiny");
    assert_eq!(LayoutScore::of_file(&[extent], 4096).pairs, 0);
}

#[test]
fn empty_file_has_no_extent() {
    let Some(mounted) = ext4() else { return };
    assert_eq!(map(&mounted.create("empty")), []);
}

#[test]
fn block_by_block_gives_the_same_addresses() {
    let Some(mounted) = ext4() else { return };
    let file = mounted.create("sparse");
    for block in [0, 1, 2, 7, 8, 20] {
        file.write_all_at(&[9; 4096], block * 4096).unwrap();
    }
    sync_data(file.as_fd()).unwrap();
    let places = |extents: Vec<Extent>| -> Vec<(u64, Option<u64>)> {
        let blocks = |extent: Extent| {
            (0..extent.length / 4096).map(move |n| (extent.logical + n * 4096, extent.physical.map(|at| at + n * 4096)))
        };
        extents.into_iter().flat_map(blocks).collect()
    };
    let by_block = map_with(&mut Fibmap, &file);
    assert!(by_block.iter().all(|extent| extent.flags == ExtentFlags::MERGED));
    assert_eq!(places(by_block), places(map(&file)));
}

#[test]
fn many_extents_come_in_several_answers() {
    let Some(mounted) = ext4() else { return };
    let file = mounted.create("holey");
    for number in 0..700 {
        file.write_all_at(&[7; 4096], number * 8192).unwrap();
    }
    sync_data(file.as_fd()).unwrap();
    let extents = map(&file);
    assert_eq!(extents.len(), 700);
    assert!(extents.iter().zip(0..).all(|(extent, number)| extent.logical == number * 8192));
}

#[test]
fn best_source_is_found_and_remembered() {
    let Some(mounted) = ext4() else { return };
    let mut sources = Sources::new();
    let file = mounted.create("file");
    file.write_all_at(&[1; 8192], 0).unwrap();
    let stat = statx_fd(file.as_fd()).unwrap();
    let wanted = if onesweep_sys::features::features().fiemap { SourceKind::Fiemap } else { SourceKind::Fibmap };
    assert_eq!(sources.choose(file.as_fd(), &stat), wanted);
    let mapped = sources.map(file.as_fd(), &stat, &mut |_| ()).unwrap();
    assert_eq!(mapped.bytes, 8192);

    let Ok(in_memory) = tempfile::tempfile_in("/dev/shm") else { return skipped("no /dev/shm") };
    in_memory.set_len(5000).unwrap();
    let stat = statx_fd(in_memory.as_fd()).unwrap();
    assert_eq!(sources.choose(in_memory.as_fd(), &stat), SourceKind::Unmapped);
    let mut extents = Vec::new();
    sources.map(in_memory.as_fd(), &stat, &mut |extent| extents.push(extent)).unwrap();
    assert_eq!((extents.len(), extents[0].physical), (1, None));
}

#[test]
fn clones_share_their_extents() {
    let Some(mounted) = Mounted::new(320 * MIB, &["mkfs.xfs", "-q", "-m", "reflink=1"], "noatime") else { return };
    let mut file = mounted.create("first");
    file.write_all(&[3; 65536]).unwrap();
    sync_data(file.as_fd()).unwrap();
    let clone = mounted.create("second");
    clone_file(file.as_fd(), clone.as_fd()).unwrap();
    clone.write_all_at(&[4; 4096], 16384).unwrap();
    sync_data(clone.as_fd()).unwrap();
    let (first, second) = (map(&file), map(&clone));
    assert_eq!(first[0].physical, second[0].physical);
    assert!(first[0].flags.contains(ExtentFlags::SHARED) && first[0].is_plain());
    let own = second.iter().find(|extent| extent.logical == 16384).unwrap();
    assert!(!own.flags.contains(ExtentFlags::SHARED));
    assert!(device_has(&mounted, &clone, &second));
}

#[test]
fn stack_goes_from_the_loop_device_to_a_disk() {
    let Some(mounted) = ext4() else { return };
    let file = mounted.create("file");
    let stack = Devices::of_system().unwrap().by_fd(file.as_fd()).unwrap();
    assert_eq!(stack.node, mounted.device);
    assert_eq!(stack.size, 64 * MIB);
    assert_eq!(stack.through[0].to_string(), format!("{} (loop)", stack.name));
    assert_eq!(stack.base, None);
    let below = Devices::of_system().unwrap().by_fd(File::open(std::env::temp_dir()).unwrap().as_fd());
    match below {
        Ok(below) => assert_eq!(stack.spindle_key(), below.spindle_key()),
        Err(error) => {
            eprintln!("the image is on no device: {error}");
            assert!(!stack.is_seekless());
        }
    }
}

#[test]
fn mount_is_found_and_trusted() {
    let Some(mounted) = ext4() else { return };
    let devices = Devices::of_system().unwrap();
    let path = fs::canonicalize(mounted.path()).unwrap();
    let mount = devices.mounts().of_path(&path.join("file")).unwrap();
    assert_eq!((mount.mount_point.as_path(), mount.fs_type.as_str()), (path.as_path(), "ext4"));
    let stat = statx_fd(mounted.create("file").as_fd()).unwrap();
    assert_eq!((stat.mnt_id, stat.dev), (Some(mount.id), mount.dev));
    assert_eq!(AddressTrust::of_file_system(&mount.fs_type, 1), AddressTrust::Physical);
    assert_eq!(devices.by_mount(mount).unwrap().name, devices.by_dev(mount.dev).unwrap().name);

    let mut sampler = AddressSampler::new(Some(64 * MIB));
    for number in 0..20 {
        let mut file = mounted.create(&format!("file-{number}"));
        file.write_all(&[5; 4096]).unwrap();
        sync_data(file.as_fd()).unwrap();
        map(&file).iter().for_each(|extent| sampler.add(extent.physical.unwrap(), extent.length));
    }
    assert_eq!(sampler.verdict(), None);
}

#[test]
fn btrfs_is_resolved_from_its_anonymous_device() {
    let Some(mounted) = Mounted::new(256 * MIB, &["mkfs.btrfs", "-q"], "noatime") else { return };
    let mut file = mounted.create("file");
    file.write_all(&[5; 100_000]).unwrap();
    sync_data(file.as_fd()).unwrap();
    let stack = Devices::of_system().unwrap().by_fd(file.as_fd()).unwrap();
    assert_eq!((stack.node.as_path(), stack.members), (mounted.device.as_path(), 1));
    assert!(map(&file).iter().all(|extent| extent.physical.is_some()));
    let mut small = mounted.create("small");
    small.write_all(b"inline").unwrap();
    sync_data(small.as_fd()).unwrap();
    assert_eq!(map(&small)[0].physical, None, "btrfs does not tell where small files are");
}

#[test]
fn files_in_memory_are_on_no_device() {
    let path = Path::new("/dev/shm");
    let devices = Devices::of_system().unwrap();
    let Some(mount) = devices.mounts().of_path(path).filter(|mount| mount.fs_type == "tmpfs") else {
        return skipped(&format!("no tmpfs at {}", path.display()));
    };
    assert_eq!(devices.by_mount(mount).unwrap_err().to_string(), "tmpfs is on no block device");
    let error = devices.by_fd(File::open(path).unwrap().as_fd()).unwrap_err();
    assert_eq!(error.to_string(), "tmpfs is on no block device");
}
