//! Files that are mapped for writing, or open for it where each write isn't told: nobody tells what is written to them until
//! they are closed.
//!
//! Nothing of any other file system is touched: one that doesn't answer would keep this waiting.

use std::{
    collections::HashSet,
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use onesweep_layout::MountTable;
use onesweep_sys::files::{makedev, open_handle_of_link};

use crate::{
    lost_names::{entries, processes},
    tracker::SizesFollow,
};

/// How a mapping is marked by which others see what is written.
const SHARED: &str = "s";
/// Of a link in `map_files`: the file was opened for writing.
const MAY_WRITE: u32 = 0o200;
/// Of the flags of an open file.
const ACCESS_MODE: u32 = 0o3;
const WRITE_ONLY: u32 = 0o1;
const READ_AND_WRITE: u32 = 0o2;
const PATH_ONLY: u32 = 0o10_000_000;

/// Those of the file system that is mounted under this number, once for each descriptor and each mapping; they are handles alone.
/// Processes that may not be looked at, or that end meanwhile, are left out. Costs some ten microseconds for each open file where
/// sizes follow at close; else only the mappings of each process are read.
pub(crate) fn files(mount: u64, sizes: SizesFollow, mut each: impl FnMut(BorrowedFd<'_>)) -> io::Result<()> {
    let unknown = || io::Error::new(io::ErrorKind::NotFound, "its mount isn't in the table of mounts");
    let device = MountTable::read()?.by_id(mount).ok_or_else(unknown)?.dev;
    let mut mounts = Mounts { device, known: HashSet::new(), told: HashSet::new() };
    for process in processes(Path::new("/proc"))? {
        // What is written through a descriptor is told else.
        let descriptors = (sizes == SizesFollow::Close).then(|| {
            mounts.add_those_of(&process);
            entries(&process.join("fd")).filter(|link| mounts.has(&process, link))
        });
        for link in descriptors.into_iter().flatten().chain(mappings(&process, device)) {
            if let Ok(file) = open_handle_of_link(link.as_path()) {
                each(file.as_fd());
            }
        }
    }
    Ok(())
}

/// The mounts of one file system, in all namespaces.
struct Mounts {
    device: u64,
    known: HashSet<u64>,
    /// Namespaces of mounts, and what processes see of them.
    told: HashSet<(u64, PathBuf)>,
}

impl Mounts {
    fn add_those_of(&mut self, process: &Path) {
        let namespace = fs::metadata(process.join("ns/mnt")).map(|namespace| namespace.ino());
        let Ok(sight) = namespace.and_then(|ino| Ok((ino, fs::read_link(process.join("root"))?))) else { return };
        if !self.told.insert(sight) {
            return;
        }
        let table = fs::read(process.join("mountinfo")).ok().and_then(|text| MountTable::parse(&text).ok());
        let ours = table.iter().flat_map(|table| table.iter()).filter(|mount| mount.dev == self.device);
        self.known.extend(ours.map(|mount| mount.id));
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

/// Links to files of a device of which a process has mappings that others see, and that were opened for writing.
fn mappings(process: &Path, device: u64) -> impl Iterator<Item = PathBuf> + use<> {
    let maps = fs::read(process.join("maps")).unwrap_or_default();
    let names: Vec<String> =
        String::from_utf8_lossy(&maps).lines().filter_map(|line| shared_on(line, device)).collect();
    let folder = process.join("map_files");
    let links = names.into_iter().map(move |name| folder.join(name));
    links.filter(|link| link.symlink_metadata().is_ok_and(|facts| facts.permissions().mode() & MAY_WRITE != 0))
}

/// The name of a mapping in `map_files`, by its line of `maps`.
fn shared_on(line: &str, device: u64) -> Option<String> {
    let mut fields = line.split_ascii_whitespace();
    let (range, marks, _, its_device) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let (start, end) = range.split_once('-')?;
    let (major, minor) = its_device.split_once(':')?;
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let small = |text: &str| u32::from_str_radix(text, 16).ok();
    let is_it = marks.ends_with(SHARED) && makedev(small(major)?, small(minor)?) == device;
    // There they have no zeros in front.
    let name = format!("{:x}-{:x}", hex(start)?, hex(end)?);
    is_it.then_some(name)
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{File, OpenOptions},
        io::Write,
        process::{Command, Stdio},
    };

    use onesweep_sys::files::{CURRENT_DIR, statx_at, statx_fd};

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
    fn lines_tell_what_is_shared() {
        let device = makedev(8, 0x12);
        let of = |line: &str| shared_on(line, device);
        assert_eq!(of("00400000-00452000 rw-s 00000000 08:12 173521   /a b"), Some("400000-452000".to_owned()));
        assert_eq!(
            of("7f0000000000-7f0000001000 r--s 00001000 08:12 1 /a"),
            Some("7f0000000000-7f0000001000".to_owned())
        );
        for other in
            ["00400000-00452000 rw-p 00000000 08:12 1 /a", "00400000-00452000 rw-s 00000000 08:13 1 /a", "x", ""]
        {
            assert_eq!(of(other), None, "{other}");
        }
    }

    /// Numbers of the files that are found.
    fn found(folder: &Path, sizes: SizesFollow) -> Vec<u64> {
        let mount = statx_at(CURRENT_DIR, folder, true).expect("its facts").mnt_id.expect("its mount");
        let mut found = Vec::new();
        files(mount, sizes, |file| found.push(statx_fd(file).expect("its facts").ino)).expect("all processes");
        found
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
        while !found(folder.path(), SizesFollow::Write).contains(&mapped) {
            assert!(mapping.try_wait().expect("its state").is_none(), "it ended");
        }
        let told = found(folder.path(), SizesFollow::Write);
        assert!(told.contains(&mapped), "{told:?}");
        assert!(!told.contains(&ino(&written)) && !told.contains(&ino(&appended)), "{told:?}");
        let all = found(folder.path(), SizesFollow::Close);
        assert!(all.contains(&ino(&written)) && all.contains(&ino(&appended)), "{all:?}");
        let looked = fs::metadata(at("looked")).expect("its facts").ino();
        assert!(!all.contains(&ino(&read)) && !all.contains(&looked), "{all:?}");
        drop((written, commands));
        mapping.wait().expect("it ends");
        let all = found(folder.path(), SizesFollow::Close);
        assert!(!all.contains(&mapped), "{all:?}");
        assert!(all.contains(&ino(&appended)));
    }
}
