//! Files that are open for writing, or mapped for it: of some nobody tells what is written to them until they are closed.
//!
//! Those are the mapped ones; those of processes that write by `io_submit` (libaio), which the kernel doesn't report; and those that
//! lie below a loop device, which the kernel writes to by itself. Where sizes follow at close, all of them.
//!
//! Nothing of any other file system is touched: one that doesn't answer would keep this waiting.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::{
            ffi::OsStrExt,
            fs::{MetadataExt, PermissionsExt},
        },
    },
    path::{Path, PathBuf},
};

use onesweep_layout::{Mount, MountTable};
use onesweep_sys::{
    files::{open_handle_at, open_handle_of_link},
    mappings::shared_on,
};

use crate::lost_names::{entries, processes};

/// The mapping of who may call `io_submit`: without it no call has a context.
const RING: &[u8] = b" /[aio]";
/// Of a link in `fd` or `map_files`: the file was opened for writing.
const MAY_WRITE: u32 = 0o200;
/// Of the flags of an open file.
const ACCESS_MODE: u32 = 0o3;
const WRITE_ONLY: u32 = 0o1;
const READ_AND_WRITE: u32 = 0o2;
const PATH_ONLY: u32 = 0o10_000_000;

/// Those of the file system that is mounted under this number, of whose mount `top` is the top; once for each descriptor, each
/// mapping and each loop device. They are handles alone, and `true` stands for those of which no write is told.
///
/// Processes that may not be looked at, or that end meanwhile, are left out. Costs some ten microseconds for each file that is open
/// for writing, one for each other one, and what it takes to read the mappings of each process.
///
/// Says whether overlays lie on it, in any namespace that a process has.
pub(crate) fn files(mount: u64, top: BorrowedFd<'_>, mut each: impl FnMut(BorrowedFd<'_>, bool)) -> io::Result<bool> {
    let unknown = || io::Error::new(io::ErrorKind::NotFound, "its mount isn't in the table of mounts");
    let table = MountTable::read()?;
    let ours = table.by_id(mount).ok_or_else(unknown)?;
    let has_overlays = has_overlays(&table, ours.dev);
    let mut mounts = Mounts { device: ours.dev, known: HashSet::new(), told: HashSet::new(), has_overlays };
    for process in processes(Path::new("/proc"))? {
        let maps = fs::read(process.join("maps")).unwrap_or_default();
        // The kernel's own have none, and no files either.
        if maps.is_empty() {
            continue;
        }
        mounts.add_those_of(&process);
        let has_ring = has_ring(&maps);
        let descriptors = entries(&process.join("fd")).filter(|link| may_write(link) && mounts.has(&process, link));
        let mapped = mappings(&process, &maps, ours.dev).map(|link| (link, true));
        for (link, is_silent) in descriptors.map(|link| (link, has_ring)).chain(mapped) {
            if let Ok(file) = open_handle_of_link(link.as_path()) {
                each(file.as_fd(), is_silent);
            }
        }
    }
    for path in backing_files(Path::new("/sys/block")) {
        let opened = below_top(&table, ours, &path).map(|path| open_handle_at(top, path.as_path()));
        if let Some(Ok(file)) = opened {
            each(file.as_fd(), true);
        }
    }
    Ok(mounts.has_overlays)
}

/// Before this nobody tells the file system below what is written through an overlay.
const OVERLAYS_ARE_TOLD: (u32, u32) = (6, 5);

/// Whether a kernel says nothing of what is written through overlays.
pub(crate) fn are_overlays_silent(kernel: (u32, u32)) -> bool {
    kernel < OVERLAYS_ARE_TOLD
}

/// Whether what is written to an overlay lands on a device, by the mounts of who has mounted it.
fn has_overlays(table: &MountTable, device: u64) -> bool {
    let upper = |mount: &Mount| {
        mount.super_options.split(',').find_map(|of| Some(PathBuf::from(of.strip_prefix("upperdir=")?)))
    };
    let overlays = table.iter().filter(|mount| mount.fs_type == "overlay");
    // From where a path goes that isn't whole is not known.
    overlays
        .filter_map(upper)
        .any(|upper| !upper.is_absolute() || table.of_path(&upper).is_some_and(|mount| mount.dev == device))
}

/// Whether a link of `fd` or `map_files` is of a file that was opened for writing.
fn may_write(link: &Path) -> bool {
    link.symlink_metadata().is_ok_and(|facts| facts.permissions().mode() & MAY_WRITE != 0)
}

/// Whether a process may write by `io_submit`, by its `maps`.
fn has_ring(maps: &[u8]) -> bool {
    // As the kernel writes it; a file of that name has more in front of it.
    maps.split(|&byte| byte == b'\n').any(|line| line.windows(RING.len()).any(|part| part == RING))
}

/// The files below all loop devices that may be written to, as this process would name them.
fn backing_files(devices: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    entries(devices).filter_map(|device| {
        // No other devices have it.
        let path = fs::read(device.join("loop/backing_file")).ok()?;
        let is_read_only = fs::read(device.join("ro")).is_ok_and(|ro| ro.starts_with(b"1"));
        let path = PathBuf::from(OsStr::from_bytes(path.strip_suffix(b"\n").unwrap_or(&path)));
        (!is_read_only).then_some(path)
    })
}

/// The way to a path from the top of a mount, where it is on the same file system and below that; by another mount, too.
fn below_top(table: &MountTable, ours: &Mount, path: &Path) -> Option<PathBuf> {
    let mount = table.of_path(path).filter(|mount| mount.dev == ours.dev)?;
    let rest = path.strip_prefix(&mount.mount_point).ok()?;
    let within = mount.root.components().chain(rest.components()).collect::<PathBuf>();
    let below = within.strip_prefix(&ours.root).ok().filter(|below| !below.as_os_str().is_empty())?;
    // Something else may be mounted on the way.
    let by_ours = table.of_path(&ours.mount_point.join(below));
    by_ours.is_some_and(|mount| mount.dev == ours.dev).then(|| below.to_owned())
}

/// The mounts of one file system, in all namespaces.
struct Mounts {
    device: u64,
    known: HashSet<u64>,
    /// Namespaces of mounts, and what processes see of them.
    told: HashSet<(u64, PathBuf)>,
    /// Overlays lie on it.
    has_overlays: bool,
}

impl Mounts {
    fn add_those_of(&mut self, process: &Path) {
        let namespace = fs::metadata(process.join("ns/mnt")).map(|namespace| namespace.ino());
        let Ok(sight) = namespace.and_then(|ino| Ok((ino, fs::read_link(process.join("root"))?))) else { return };
        if !self.told.insert(sight) {
            return;
        }
        let table = fs::read(process.join("mountinfo")).ok().and_then(|text| MountTable::parse(&text).ok());
        let Some(table) = table else { return };
        self.known.extend(table.iter().filter(|mount| mount.dev == self.device).map(|mount| mount.id));
        self.has_overlays |= has_overlays(&table, self.device);
    }

    /// Whether a descriptor is of a file on one of them, and for writing.
    fn has(&self, process: &Path, link: &Path) -> bool {
        // Sockets and the like have no path, and some of them very long facts.
        if !fs::read_link(link).is_ok_and(|target| target.is_absolute()) {
            return false;
        }
        let Some(number) = link.file_name() else { return false };
        let facts = fs::read_to_string(process.join("fdinfo").join(number)).unwrap_or_default();
        written_on(&facts).is_some_and(|mount| self.known.contains(&mount))
    }
}

/// The mount of a file that is open for writing, by `fdinfo`.
fn written_on(facts: &str) -> Option<u64> {
    let field = |name: &str| facts.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let flags = u32::from_str_radix(field("flags:")?, 8).ok()?;
    let is_written = matches!(flags & ACCESS_MODE, WRITE_ONLY | READ_AND_WRITE) && flags & PATH_ONLY == 0;
    field("mnt_id:")?.parse().ok().filter(|_| is_written)
}

/// Links to files of a device of which a process has mappings that others see, by its `maps`, and that were opened for writing.
fn mappings(process: &Path, maps: &[u8], device: u64) -> impl Iterator<Item = PathBuf> + use<> {
    let maps = String::from_utf8_lossy(maps);
    let names: Vec<String> = maps.lines().filter_map(|line| Some(shared_on(line, device)?.name)).collect();
    let folder = process.join("map_files");
    names.into_iter().map(move |name| folder.join(name)).filter(|link| may_write(link))
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{File, OpenOptions},
        io::Write,
        process::{Command, Stdio},
    };

    use onesweep_sys::files::{CURRENT_DIR, makedev, open_dir, statx_at, statx_fd};

    use super::*;

    #[test]
    fn facts_tell_who_writes() {
        let of = |flags: &str| written_on(&format!("pos:\t0\nflags:\t{flags}\nmnt_id:\t29\nino:\t5\n"));
        assert_eq!(["0100001", "02100002", "0102001"].map(of), [Some(29); 3]);
        assert_eq!(["0100000", "012000002", "0100003", "x", ""].map(of), [None; 5]);
        assert_eq!(written_on("flags:\t01\n"), None);
        assert_eq!(written_on(""), None);
    }

    #[test]
    fn who_has_a_ring_writes_silently() {
        let line = |name: &str| format!("7f12a000-7f12b000 rw-s 00000000 00:0f 5   {name}\n");
        let maps = |name: &str| [line("/usr/bin/x"), line(name)].concat();
        assert!(has_ring(maps("/[aio] (deleted)").as_bytes()));
        assert!(!has_ring(maps("/srv/[aio] (deleted)").as_bytes()) && !has_ring(maps("[stack]").as_bytes()));
    }

    #[test]
    fn a_backing_file_is_found_by_any_mount_of_the_same_file_system() {
        let table = MountTable::parse(
            b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
              2 1 8:2 / /srv rw - ext4 /dev/sda2 rw\n\
              3 1 8:2 /images /bound rw - ext4 /dev/sda2 rw\n\
              4 1 8:2 /images/one /one rw - ext4 /dev/sda2 rw\n\
              5 2 0:9 / /srv/other rw - nfs host:/x rw\n\
              6 1 8:2 / /again rw - ext4 /dev/sda2 rw\n",
        )
        .expect("mounts");
        let from = |id: u64, path: &str| {
            let found = below_top(&table, table.by_id(id).expect("a mount"), Path::new(path));
            found.map(|path| path.to_str().expect("text").to_owned())
        };
        assert_eq!(from(2, "/srv/images/one"), Some("images/one".to_owned()));
        assert_eq!(from(2, "/bound/two"), Some("images/two".to_owned()));
        assert_eq!(from(2, "/one"), Some("images/one".to_owned()));
        assert_eq!(from(3, "/srv/images/one"), Some("one".to_owned()));
        assert_eq!(from(6, "/srv/images/two"), Some("images/two".to_owned()));
        let (elsewhere, covered) =
            ([(3, "/srv/elsewhere"), (2, "/home/image")], [(2, "/srv/other/x"), (2, "/again/other/x")]);
        for (id, path) in elsewhere.into_iter().chain(covered).chain([(1, "/srv/images/one")]) {
            assert_eq!(from(id, path), None, "{path} from mount {id}");
        }
        assert_eq!(from(1, "/home/image"), Some("home/image".to_owned()));
    }

    #[test]
    fn overlays_tell_where_they_are_written() {
        assert!(are_overlays_silent((6, 1)) && are_overlays_silent((5, 15)));
        assert!(!are_overlays_silent((6, 5)) && !are_overlays_silent((7, 0)));
        let with = |options: &str| {
            let text = format!(
                "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n2 1 8:2 / /var rw - xfs /dev/sda2 rw\n\
                 3 2 0:40 / /var/lib/x/merged rw - overlay overlay rw,lowerdir=/l{options}\n"
            );
            let table = MountTable::parse(text.as_bytes()).expect("mounts");
            [makedev(8, 1), makedev(8, 2)].map(|device| has_overlays(&table, device))
        };
        assert_eq!(with(",upperdir=/var/lib/x/diff,workdir=/var/lib/x/work"), [false, true]);
        assert_eq!(with(",upperdir=/srv/diff,workdir=/srv/work"), [true, false]);
        assert_eq!(with(",upperdir=x/diff,workdir=x/work"), [true, true]);
        assert_eq!(with(""), [false, false], "it can't be written to");
    }

    #[test]
    fn loop_devices_that_may_be_written_to_name_their_files() {
        let devices = tempfile::tempdir().expect("a folder");
        for (name, ro, file) in [
            ("loop0", "0", Some("/srv/a b\n")),
            ("loop1", "1", Some("/srv/c\n")),
            ("loop2", "0", None),
            ("sda", "0", None),
        ] {
            let device = devices.path().join(name);
            fs::create_dir_all(device.join(if name == "sda" { "queue" } else { "loop" })).expect("a folder");
            fs::write(device.join("ro"), format!("{ro}\n")).expect("a file");
            if let Some(file) = file {
                fs::write(device.join("loop/backing_file"), file).expect("a file");
            }
        }
        assert_eq!(backing_files(devices.path()).collect::<Vec<_>>(), [Path::new("/srv/a b")]);
    }

    /// Numbers of the files that are found, and of those of which no write is told.
    fn found(folder: &Path) -> [Vec<u64>; 2] {
        let mount = statx_at(CURRENT_DIR, folder, true).expect("its facts").mnt_id.expect("its mount");
        let top = open_dir(folder).expect("it opens");
        let (mut all, mut silent) = (Vec::new(), Vec::new());
        files(mount, top.as_fd(), |file, is_silent| {
            let ino = statx_fd(file).expect("its facts").ino;
            all.push(ino);
            silent.extend(is_silent.then_some(ino));
        })
        .expect("all processes");
        [all, silent]
    }

    #[test]
    fn files_are_found_that_are_open_for_writing_or_mapped_so() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name);
        let ino = |file: &File| file.metadata().expect("its facts").ino();
        let written = File::create(at("written")).expect("a file");
        let appended = OpenOptions::new().append(true).create(true).open(at("appended")).expect("a file");
        fs::write(at("read"), "x").expect("a file");
        let read = File::open(at("read")).expect("a file");
        // Files that are mapped and not open any more, by another process: one to be written, one to be read.
        fs::write(at("mapped"), [1; 5000]).expect("a file");
        fs::write(at("looked"), [1; 5000]).expect("a file");
        let mut mapping = Command::new("xfs_io")
            .arg("mapped")
            .current_dir(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("xfs_io; try `make deps`");
        let mut commands = mapping.stdin.take().expect("it was piped");
        let said = b"open -r looked\nmmap -r 0 4096\nclose\nmmap -rw 0 4096\nclose\n";
        commands.write_all(said).expect("it reads");
        let mapped = fs::metadata(at("mapped")).expect("its facts").ino();
        while !found(folder.path())[1].contains(&mapped) {
            assert!(mapping.try_wait().expect("its state").is_none(), "it ended");
        }
        let [all, silent] = found(folder.path());
        assert!(silent.contains(&mapped) && all.contains(&mapped), "{silent:?}");
        assert!(!silent.contains(&ino(&written)) && !silent.contains(&ino(&appended)), "{silent:?}");
        assert!(all.contains(&ino(&written)) && all.contains(&ino(&appended)), "{all:?}");
        let looked = fs::metadata(at("looked")).expect("its facts").ino();
        assert!(!all.contains(&ino(&read)) && !all.contains(&looked), "{all:?}");
        drop((written, commands));
        mapping.wait().expect("it ends");
        let [all, _] = found(folder.path());
        assert!(!all.contains(&mapped), "{all:?}");
        assert!(all.contains(&ino(&appended)));
    }
}
