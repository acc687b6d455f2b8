//! btrfs on loop devices: what its trees say against what the kernel says, and the bytes of the devices.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use onesweep_layout::btrfs::{
    ChunkMap, DirItem, InodeItem, ItemExtents, Lanes, Mirror, NameRef, Place, ReadNodes, RootItem, Tree, kind, leaves,
    tree,
};
use onesweep_layout::{Extent, ExtentFlags, Fiemap, LayoutSource, MapError};
use onesweep_sys::btrfs::{self, Key, SearchBuffer};
use onesweep_sys::files::{self, clone_file, statx_fd};

use super::images::{run, skipped};

const MIB: u64 = 1 << 20;

/// A btrfs over several loop devices, unmounted when dropped.
struct Pool {
    /// Dropped last, and only when the mount is gone.
    dir: Option<tempfile::TempDir>,
    devices: Vec<PathBuf>,
}

impl Pool {
    fn new(devices: usize, options: &[&str], mount: &str) -> Option<Pool> {
        let made = Pool::try_new(devices, options, mount);
        made.inspect_err(|reason| skipped(reason)).ok()
    }

    fn try_new(devices: usize, options: &[&str], mount: &str) -> Result<Pool, String> {
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut pool = Pool { dir: Some(dir), devices: Vec::new() };
        for _ in 0..devices {
            pool.attach(1024 * MIB)?;
        }
        run(Command::new("mkfs.btrfs").args(["-q", "-f"]).args(options).args(&pool.devices))?;
        fs::create_dir(pool.path()).map_err(|error| error.to_string())?;
        pool.mount(mount)?;
        Ok(pool)
    }

    fn mount(&self, options: &str) -> Result<(), String> {
        let all: Vec<String> = self.devices.iter().map(|device| format!("device={}", device.display())).collect();
        let options = format!("noatime,{options}{}", all.join(","));
        run(Command::new("mount").args(["-t", "btrfs", "-o", &options]).args([&self.devices[0], &self.path()]))
            .map(drop)
    }

    /// A further device, which is of no file system yet.
    fn attach(&mut self, bytes: u64) -> Result<PathBuf, String> {
        let image = self.image(self.devices.len());
        File::create(&image).and_then(|file| file.set_len(bytes)).map_err(|error| error.to_string())?;
        let attached = run(Command::new("losetup").args(["--find", "--show"]).arg(&image))?;
        self.devices.push(PathBuf::from(String::from_utf8_lossy(&attached.stdout).trim()));
        Ok(self.devices[self.devices.len() - 1].clone())
    }

    fn dir(&self) -> &Path {
        self.dir.as_ref().expect("kept until it is dropped").path()
    }

    fn image(&self, number: usize) -> PathBuf {
        self.dir().join(format!("image-{number}"))
    }

    fn path(&self) -> PathBuf {
        self.dir().join("mounted")
    }

    fn fd(&self) -> OwnedFd {
        files::open_dir(self.path().as_path()).unwrap()
    }

    /// The image files of the devices, by the numbers that btrfs has for them.
    fn images(&self) -> BTreeMap<u64, File> {
        let fd = self.fd();
        let last = btrfs::fs_info(fd.as_fd()).unwrap().max_device;
        let of = |number| {
            let path = btrfs::device_info(fd.as_fd(), number).ok()?.path;
            let at = self.devices.iter().position(|device| *device == path)?;
            Some((number, File::open(self.image(at)).unwrap()))
        };
        (1..=last).filter_map(of).collect()
    }

    /// Everything is on the devices, and in the image files.
    fn sync(&self) {
        run(Command::new("btrfs").args(["filesystem", "sync"]).arg(self.path())).unwrap();
        run(Command::new("sync").arg("-f").arg(self.path())).unwrap();
        self.devices.iter().for_each(|device| drop(run(Command::new("blockdev").arg("--flushbufs").arg(device))));
    }

    fn btrfs(&self, arguments: &[&str]) {
        run(Command::new("btrfs").args(arguments).arg(self.path())).unwrap();
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mounted = || run(Command::new("mountpoint").arg("-q").arg(self.path())).is_ok();
        for _ in 0..100 {
            if !mounted() || run(Command::new("umount").arg(self.path())).is_ok() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        for device in &self.devices {
            let _ = run(Command::new("losetup").arg("--detach").arg(device));
        }
        if mounted() {
            // Removing the directory would remove what is mounted there.
            let kept = self.dir.take().map(tempfile::TempDir::keep);
            eprintln!("left mounted: {kept:?}");
        }
    }
}

/// Bytes that are nowhere else the same.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| next()).collect();
    bytes.truncate(len);
    bytes
}

/// Files of less than a block, of a few, and of many stripes.
fn write_files(folder: &Path, seed: u64) {
    for (number, len) in [3 * MIB + 5, 100, 4096, 70_000, MIB, 9 * MIB].into_iter().enumerate() {
        fs::write(folder.join(format!("{seed}-{number}")), noise(seed + number as u64, len as usize)).unwrap();
    }
}

fn extents_by_items(file: &File) -> Option<Vec<Extent>> {
    let stat = statx_fd(file.as_fd()).unwrap();
    let mut all = Vec::new();
    match ItemExtents::default().map(file.as_fd(), &stat, &mut |extent| all.push(extent)) {
        Err(MapError::Unsupported) => None,
        told => told.map(|_| Some(all)).unwrap(),
    }
}

/// Every plain byte of every file is on the device, at the byte, that the chunks say; gives how many were compared.
fn compare_with_devices(pool: &Pool) -> u64 {
    pool.sync();
    let images = pool.images();
    let fd = pool.fd();
    let mut compared = 0;
    for mirror in 0..5 {
        let map = ChunkMap::read(fd.as_fd(), Mirror(mirror)).unwrap();
        // Each copy, and then all in turns.
        let map = if mirror == 4 { map.in_turns() } else { map };
        for entry in fs::read_dir(pool.path()).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file())
        {
            let file = File::open(&entry).unwrap();
            let bytes = fs::read(&entry).unwrap();
            for extent in extents_by_items(&file).unwrap().into_iter().filter(Extent::is_plain) {
                let end = extent.logical_end().min(bytes.len() as u64);
                let mut at = extent.logical;
                while at < end {
                    let address = extent.physical.unwrap() + (at - extent.logical);
                    let Place { device, byte, run } = map.place(address).unwrap();
                    let length = run.min(end - at);
                    let mut raw = vec![0; length as usize];
                    images[&device].read_exact_at(&mut raw, byte).unwrap();
                    assert!(raw == bytes[at as usize..][..length as usize], "{entry:?} at {at}, copy {mirror}");
                    at += length;
                    compared += length;
                }
            }
        }
        lanes_agree(map);
    }
    compared
}

/// The order of several devices leads back to where the chunks say that a byte lies.
fn lanes_agree(map: ChunkMap) {
    let lanes = Lanes::new(map.clone()).unwrap();
    for chunk in map.chunks().filter(|chunk| chunk.is_data) {
        lanes.runs(chunk.address, chunk.length, &mut |run| {
            let (first, last) = (chunk.address + run.skip, chunk.address + run.skip + run.length - 1);
            assert_eq!(lanes.on_device(run.place.unwrap()), map.place(first));
            assert_eq!(lanes.on_device(run.place.unwrap() + run.length - 1), map.place(last));
        });
    }
}

fn bytes_lie_where_chunks_say(devices: usize, data: &str, metadata: &str) {
    let Some(pool) = Pool::new(devices, &["-d", data, "-m", metadata], "") else { return };
    write_files(&pool.path(), 1);
    let compared = compare_with_devices(&pool);
    assert!(compared > 5 * 13 * MIB, "{compared}");
    pool.btrfs(&["balance", "start", "-d"]);
    assert_eq!(compare_with_devices(&pool), compared);
}

#[test]
fn bytes_on_one_device() {
    bytes_lie_where_chunks_say(1, "single", "dup");
    bytes_lie_where_chunks_say(1, "dup", "dup");
    bytes_lie_where_chunks_say(1, "raid0", "dup");
}

#[test]
fn bytes_on_two_devices() {
    for data in ["single", "raid0", "raid1"] {
        bytes_lie_where_chunks_say(2, data, "raid1");
    }
}

#[test]
fn bytes_on_four_devices() {
    for data in ["raid10", "raid1c3", "raid1c4"] {
        bytes_lie_where_chunks_say(4, data, "raid1c3");
    }
}

#[test]
fn bytes_among_parity() {
    for (devices, data) in [(3, "raid5"), (4, "raid5"), (4, "raid6")] {
        bytes_lie_where_chunks_say(devices, data, "raid1");
    }
}

#[test]
fn bytes_move_with_devices_and_profiles() {
    let Some(mut pool) = Pool::new(2, &["-d", "raid0", "-m", "raid1"], "") else { return };
    write_files(&pool.path(), 1);
    compare_with_devices(&pool);
    let third = pool.attach(1500 * MIB).unwrap();
    pool.btrfs(&["device", "add", third.to_str().unwrap()]);
    write_files(&pool.path(), 20);
    compare_with_devices(&pool);
    pool.btrfs(&["balance", "start", "-dconvert=raid1"]);
    compare_with_devices(&pool);
    let map = ChunkMap::read(pool.fd().as_fd(), Mirror(0)).unwrap();
    assert_eq!(Lanes::new(map).unwrap().devices(), 3);
}

/// A subvolume as its items tell it.
#[derive(Default)]
struct Told {
    inodes: BTreeMap<u64, InodeItem>,
    /// Names by directory and name: what they lead to.
    names: BTreeMap<(u64, Vec<u8>), Key>,
    /// The same by the inodes' own items.
    references: BTreeSet<(u64, Vec<u8>, u64)>,
}

fn tell(fd: &OwnedFd) -> Told {
    let mut told = Told::default();
    let all = (Key::default(), Key { objectid: u64::MAX - 256, kind: u8::MAX, offset: u64::MAX });
    btrfs::search(fd.as_fd(), &mut SearchBuffer::default(), 0, all, &mut |item| {
        let Key { objectid, kind, offset } = item.key;
        match kind {
            kind::INODE_ITEM => drop(told.inodes.insert(objectid, InodeItem::parse(item.data).unwrap())),
            kind::DIR_INDEX => {
                let name = DirItem::parse(item.data).unwrap();
                told.names.insert((objectid, name.name.to_vec()), name.location);
            }
            kind::INODE_REF | kind::INODE_EXTREF => {
                let mut visit = |name: NameRef<'_>| {
                    told.references.insert((name.parent, name.name.to_vec(), objectid));
                };
                match kind {
                    kind::INODE_REF => NameRef::parse(item.data, offset, &mut visit).unwrap(),
                    _ => NameRef::parse_extended(item.data, &mut visit).unwrap(),
                }
            }
            _ => {}
        }
        true
    })
    .unwrap();
    told
}

/// Compares all of a subvolume with what the kernel shows; gives the subvolumes below it.
fn compare_with_kernel(root: &Path) -> Vec<PathBuf> {
    let told = tell(&files::open_dir(root).unwrap());
    let (mut nested, mut seen, mut references) = (Vec::new(), BTreeSet::from([256]), BTreeSet::new());
    let mut folders = vec![root.to_owned()];
    let mut names = 0;
    while let Some(folder) = folders.pop() {
        let above = fs::symlink_metadata(&folder).unwrap().ino();
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().as_bytes().to_vec();
            let location = told.names.get(&(above, name.clone())).unwrap_or_else(|| panic!("{path:?} has no item"));
            names += 1;
            let stat = fs::symlink_metadata(&path).unwrap();
            if location.kind == kind::ROOT_ITEM {
                // A snapshot holds the place of a subvolume, not what is in it.
                match stat.ino() {
                    btrfs::SUBVOLUME_ROOT => nested.push(path),
                    other => assert_eq!(other, 2, "{path:?}"),
                }
                continue;
            }
            assert_eq!((location.objectid, location.kind), (stat.ino(), kind::INODE_ITEM), "{path:?}");
            references.insert((above, name, stat.ino()));
            if stat.is_dir() {
                folders.push(path.clone());
            } else if stat.is_file() {
                same_extents(&path);
            }
            seen.insert(stat.ino());
            let inode = told.inodes[&stat.ino()];
            let times = [inode.atime, inode.mtime, inode.ctime].map(|time| (time.secs, i64::from(time.nanos)));
            let shown = [
                (stat.atime(), stat.atime_nsec()),
                (stat.mtime(), stat.mtime_nsec()),
                (stat.ctime(), stat.ctime_nsec()),
            ];
            assert_eq!(times, shown, "{path:?}");
            assert_eq!((inode.size, inode.mode), (stat.size(), stat.mode()), "{path:?}");
            assert_eq!((inode.uid, inode.gid), (stat.uid(), stat.gid()), "{path:?}");
            // btrfs counts one name for a directory, as stat does.
            assert_eq!(u64::from(inode.nlink), stat.nlink(), "{path:?}");
            let device = files::makedev((inode.rdev >> 20) as u32, (inode.rdev & 0xf_ffff) as u32);
            assert_eq!(device, stat.rdev(), "{path:?}");
        }
    }
    assert_eq!(names, told.names.len());
    assert_eq!(told.inodes.keys().copied().collect::<BTreeSet<_>>(), seen);
    let own: BTreeSet<_> = told.references.into_iter().filter(|(_, name, _)| name != b"..").collect();
    assert_eq!(own, references);
    nested
}

/// The extents by the items are those of FIEMAP, when each is as long as it can be.
fn same_extents(path: &Path) {
    let file = File::open(path).unwrap();
    let stat = statx_fd(file.as_fd()).unwrap();
    let mut by_fiemap = Vec::new();
    Fiemap::default().map(file.as_fd(), stat.size, &mut |extent| by_fiemap.push(extent)).unwrap();
    let by_fiemap = joined(by_fiemap);
    match extents_by_items(&file) {
        Some(by_items) => assert_eq!(joined(by_items), by_fiemap, "{path:?}"),
        None => {
            let is_unwritten = by_fiemap.iter().any(Extent::is_zeros);
            let is_behind_the_end = stat.blocks * 512 > stat.size.next_multiple_of(4096);
            assert!(is_unwritten || is_behind_the_end, "{path:?} is left to FIEMAP: {by_fiemap:?}");
            // They are the same all the same; what lies behind the end of the file FIEMAP was not asked for.
            let mut items = ItemExtents::default();
            let told = items.extents(file.as_fd(), stat.ino).unwrap().iter();
            let within = told.filter(|extent| extent.logical < stat.size);
            let starts: Vec<_> = within.map(|extent| (extent.logical, extent.physical, extent.flags)).collect();
            for extent in by_fiemap.iter().filter(|extent| extent.is_zeros()) {
                let start = (extent.logical, extent.physical.unwrap(), ExtentFlags::UNWRITTEN.bits());
                assert!(starts.contains(&start), "{path:?}: {extent:?} of {starts:?}");
            }
        }
    }
}

/// What waits to be written has blocks, but no items: it is not taken for a hole.
#[test]
fn holes_that_will_be_filled_are_left_to_fiemap() {
    let Some(pool) = Pool::new(1, &[], "commit=300,") else { return };
    let path = pool.path().join("file");
    let file = File::create(&path).unwrap();
    file.write_all_at(&noise(1, 100_000), 0).unwrap();
    file.set_len(4 * MIB).unwrap();
    pool.sync();
    assert_eq!(extents_by_items(&file).map(|extents| extents.len()), Some(1));
    file.write_all_at(&noise(2, 100_000), 2 * MIB).unwrap();
    assert_eq!(extents_by_items(&file), None);
    file.sync_all().unwrap();
    assert_eq!(extents_by_items(&file).map(|extents| extents.len()), Some(2));
}

/// Neighbours in one, without what differs by nature: which is the last, and what is surely shared.
fn joined(extents: Vec<Extent>) -> Vec<Extent> {
    let mut all: Vec<Extent> = Vec::new();
    for mut extent in extents {
        extent.flags &= ExtentFlags::UNWRITTEN | ExtentFlags::ENCODED | ExtentFlags::INLINE | ExtentFlags::NOT_ALIGNED;
        match all.last_mut() {
            Some(last)
                if last.flags == extent.flags
                    && last.logical_end() == extent.logical
                    && last.physical.is_some()
                    && last.physical_end() == extent.physical =>
            {
                last.length += extent.length;
            }
            _ => all.push(extent),
        }
    }
    all
}

/// Files of all kinds below `root`.
fn populate(root: &Path) {
    let path = |name: &str| root.join(name);
    write_files(root, 7);
    fs::write(path("inline"), b"a few bytes").unwrap();
    fs::write(path("text"), "a line that comes again and again\n".repeat(40_000)).unwrap();
    fs::write(path("short-text"), "again ".repeat(300)).unwrap();
    let sparse = File::create(path("sparse")).unwrap();
    for at in [0, 3 * MIB, 9 * MIB + 4096] {
        sparse.write_all_at(&noise(at, 10_000), at).unwrap();
    }
    sparse.set_len(20 * MIB).unwrap();
    let allocated = File::create(path("allocated")).unwrap();
    run(Command::new("fallocate").args(["-l", "5M"]).arg(path("allocated"))).unwrap();
    run(Command::new("fallocate").args(["-n", "-o", "5M", "-l", "5M"]).arg(path("allocated"))).unwrap();
    allocated.write_all_at(&noise(1, 100_000), MIB).unwrap();
    clone_file(File::open(path("sparse")).unwrap().as_fd(), File::create(path("clone")).unwrap().as_fd()).unwrap();
    File::options().write(true).open(path("clone")).unwrap().write_all_at(&noise(5, 5000), 3 * MIB + 4000).unwrap();
    fs::create_dir_all(path("a/b/c")).unwrap();
    // More names than one item has room for.
    fs::write(path("a/named"), noise(3, 5000)).unwrap();
    for number in 0..120 {
        fs::hard_link(path("a/named"), path(&format!("a/b/{number}-{}", "n".repeat(180)))).unwrap();
    }
    fs::hard_link(path("a/named"), path("a/b/c/other")).unwrap();
    std::os::unix::fs::symlink("a/named", path("link")).unwrap();
    run(Command::new("mknod").arg(path("device")).args(["c", "259", "70000"])).unwrap();
    run(Command::new("mkfifo").arg(path("fifo"))).unwrap();
    fs::write(root.join(OsString::from_vec(vec![0xff, b'x', 0x80])), b"no words").unwrap();
    std::os::unix::fs::chown(path("text"), Some(1234), Some(77)).unwrap();
    fs::set_permissions(path("inline"), std::os::unix::fs::PermissionsExt::from_mode(0o4751)).unwrap();
    run(Command::new("touch").args(["-d", "1960-02-03 04:05:06.789"]).arg(path("link")).arg("-h")).unwrap();
}

#[test]
fn items_say_what_the_kernel_says() {
    let Some(pool) = Pool::new(1, &["-d", "single", "-m", "dup"], "compress=zstd,") else { return };
    let root = pool.path();
    populate(&root);
    let sub = |arguments: &[&str]| run(Command::new("btrfs").arg("subvolume").args(arguments)).unwrap();
    let path = |name: &str| root.join(name).to_str().unwrap().to_owned();
    sub(&["create", &path("a/inner")]);
    populate(&root.join("a/inner"));
    sub(&["create", &path("a/inner/a/deep")]);
    fs::write(root.join("a/inner/a/deep/file"), noise(77, 300_000)).unwrap();
    pool.sync();
    sub(&["snapshot", "-r", &path("a/inner"), &path("kept")]);
    fs::write(root.join("a/inner/text"), noise(9, 50_000)).unwrap();
    pool.sync();
    let (mut roots, mut done) = (vec![root.clone()], 0);
    while let Some(next) = roots.pop() {
        roots.extend(compare_with_kernel(&next));
        done += 1;
    }
    assert_eq!(done, 4, "a subvolume in a subvolume, and a snapshot");
}

/// Nodes out of an image file.
struct Images(BTreeMap<u64, File>);

impl ReadNodes for Images {
    fn read(&mut self, places: &[Place], visit: &mut dyn FnMut(usize, &[u8])) {
        for (number, place) in places.iter().enumerate() {
            let mut bytes = vec![0; 16 << 10];
            self.0[&place.device].read_exact_at(&mut bytes, place.byte).unwrap();
            visit(number, &bytes);
        }
    }
}

/// The leaves of the subvolume and of the checksums are those that `btrfs inspect-internal` finds.
#[test]
fn leaves_are_those_of_the_tree() {
    let Some(pool) = Pool::new(2, &["-d", "raid0", "-m", "raid1"], "max_inline=0,") else { return };
    for folder in 0..20 {
        let folder = pool.path().join(format!("{folder}"));
        fs::create_dir(&folder).unwrap();
        for file in 0..500 {
            fs::write(folder.join(format!("{file}-{}", "n".repeat(100))), noise(file, 3000)).unwrap();
        }
    }
    pool.sync();
    let map = ChunkMap::read(pool.fd().as_fd(), Mirror(0)).unwrap();
    let whole = Key::default()..Key { objectid: u64::MAX, kind: u8::MAX, offset: u64::MAX };
    for (id, name) in [(tree::TOP_SUBVOLUME, "fs"), (tree::CHECKSUMS, "csum"), (tree::EXTENTS, "extent")] {
        let mut root = None;
        let key = |offset| Key { objectid: id, kind: kind::ROOT_ITEM, offset };
        let range = (key(0), key(u64::MAX));
        btrfs::search(pool.fd().as_fd(), &mut SearchBuffer::default(), tree::ROOTS, range, &mut |item| {
            root = Some(RootItem::parse(item.data).unwrap());
            true
        })
        .unwrap();
        let trees = [Tree { id, root: root.unwrap() }];
        let mut nodes = Images(pool.images());
        let found = leaves(&trees, &whole, &map, 100_000, &mut nodes);
        let mut dump = Command::new("btrfs");
        dump.args(["inspect-internal", "dump-tree", "-t", name]).arg(&pool.devices[0]);
        let dump = String::from_utf8_lossy(&run(&mut dump).unwrap().stdout).into_owned();
        let leaf = |line: &str| line.strip_prefix("leaf ")?.split(' ').next()?.parse::<u64>().ok();
        let shown: BTreeSet<u64> = dump.lines().filter(|line| line.contains("items")).filter_map(leaf).collect();
        assert_eq!(found.iter().map(|leaf| leaf.address).collect::<BTreeSet<_>>(), shown, "{name}");
        assert!(found.is_sorted_by_key(|leaf| leaf.place.byte) && shown.len() > 1, "{name}: {}", shown.len());
        // Each is reached by its key.
        let middle = found[found.len() / 2];
        let some = leaves(&trees, &(middle.key..middle.key.next().unwrap()), &map, 100_000, &mut nodes);
        assert!(some.contains(&middle) && some.len() <= 2, "{name}");
    }
}
