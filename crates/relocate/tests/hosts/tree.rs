//! Trees of files that lie apart, and all that must be the same afterwards.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use onesweep_relocate::btrfs::Btrfs;
use onesweep_relocate::carry::{Report, Settings, carry_out};
use onesweep_relocate::ext4::Ext4;
use onesweep_relocate::host::{Exchange, Host, Stays, Trouble, Uncached};
use onesweep_relocate::mounted::Mounted as MountedHost;
use onesweep_relocate::pack::{Item, Plan, Rules, plan, score};
use onesweep_relocate::survey::{Candidate, Order, files_below, survey};
use onesweep_relocate::xfs::Xfs;
use onesweep_sys::files::{
    CURRENT_DIR, Time, list_xattrs_fd, open_file_at, set_xattr_fd, statx_fd, sync_file_system, xattr_fd,
};

use crate::conformance::Fixture;
use crate::image::{BTRFS, EXT4, Image, Tools, XFS, XFS_EXCHANGE, XFS_WHOLE, XFS_WHOLE_MAPPED};

pub(crate) const READ: Uncached = Uncached::Read;

/// Bytes of which each block tells its file and number.
pub(crate) fn bytes(file: u64, size: usize) -> Vec<u8> {
    let word = |at: usize| (file << 32 | at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..size.div_ceil(8)).flat_map(|at| word(at).to_le_bytes()).take(size).collect()
}

/// Blocks of the file with this number: 2 to 12.
pub(crate) fn blocks_of(number: u64) -> u64 {
    2 + number * 7 % 11
}

pub(crate) fn sync(directory: &Path) {
    sync_file_system(File::open(directory).unwrap().as_fd()).unwrap();
}

/// Files of 2 to 12 blocks (the last not full) that grew by turns, each block for itself.
pub(crate) fn scatter(directory: &Path, count: u64) -> Vec<PathBuf> {
    fs::create_dir_all(directory).unwrap();
    let paths: Vec<PathBuf> = (0..count).map(|number| directory.join(format!("file-{number}"))).collect();
    let files: Vec<File> = paths.iter().map(|path| File::create(path).unwrap()).collect();
    for block in 0..12 {
        for (number, file) in (0..).zip(&files).filter(|&(number, _)| block < blocks_of(number)) {
            let all = bytes(number, blocks_of(number) as usize * 4096 - 100);
            let part = &all[block as usize * 4096..all.len().min((block as usize + 1) * 4096)];
            file.write_all_at(part, block * 4096).unwrap();
        }
        sync(directory);
    }
    set_xattr_fd(files[0].as_fd(), c"user.kept", b"yes").unwrap();
    paths
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Kept {
    bytes: Vec<u8>,
    facts: (u64, u32, u32, u32, u32, u64),
    times: [Time; 3],
    xattrs: Vec<(Option<Vec<u8>>, CString)>,
}

/// All that nobody may see change, read without leaving a trace.
pub(crate) fn kept(directory: &Path) -> BTreeMap<PathBuf, Kept> {
    let paths = files_below(directory, Order::Name, &mut |path, error| panic!("{}: {error}", path.display())).unwrap();
    let one = |path: PathBuf| {
        let fd = open_file_at(CURRENT_DIR, &path).unwrap();
        let stat = statx_fd(fd.as_fd()).unwrap();
        let names = list_xattrs_fd(fd.as_fd()).unwrap();
        let value = |name: &CString| xattr_fd(fd.as_fd(), name.as_c_str()).unwrap();
        let xattrs = names.into_iter().map(|name| (value(&name), name)).collect();
        let mut bytes = Vec::new();
        File::from(fd).read_to_end(&mut bytes).unwrap();
        let facts = (stat.ino, stat.mode, stat.nlink, stat.uid, stat.gid, stat.size);
        (path, Kept { bytes, facts, times: [stat.atime, stat.mtime, stat.ctime], xattrs })
    };
    paths.into_iter().map(one).collect()
}

/// The same with no time of the last change of an inode (ctime).
pub(crate) fn without_ctime(mut all: BTreeMap<PathBuf, Kept>) -> BTreeMap<PathBuf, Kept> {
    all.values_mut().for_each(|kept| kept.times[2] = Time::default());
    all
}

/// Fails with what differs.
pub(crate) fn assert_same(directory: &Path, before: &BTreeMap<PathBuf, Kept>) {
    assert_equal(before, &kept(directory));
}

/// The same of what was looked at already.
pub(crate) fn assert_equal(before: &BTreeMap<PathBuf, Kept>, after: &BTreeMap<PathBuf, Kept>) {
    assert_eq!(after.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    for ((path, before), after) in before.iter().zip(after.values()) {
        assert_eq!((before.facts, before.times, &before.xattrs), (after.facts, after.times, &after.xattrs), "{path:?}");
        assert!(before.bytes == after.bytes, "{path:?} has other bytes");
    }
}

pub(crate) fn breaks(files: &[Candidate]) -> u64 {
    score(&files.iter().map(Candidate::item).collect::<Vec<Item>>()).breaks()
}

pub(crate) fn planned<H: Host>(host: &mut H, directory: &Path, rules: &Rules) -> (Vec<Candidate>, Plan) {
    let paths =
        files_below(directory, Order::Readdir, &mut |path, error| panic!("{}: {error}", path.display())).unwrap();
    let files = survey(host, paths).unwrap();
    let made = plan(&files.iter().map(Candidate::item).collect::<Vec<Item>>(), rules);
    (files, made)
}

/// Packs a directory in the order in which it is listed.
pub(crate) fn pack<H: Host>(host: &mut H, directory: &Path, rules: &Rules) -> (Vec<Candidate>, Report) {
    let (mut files, made) = planned(host, directory, rules);
    let report = carry_out(host, &mut files, &made, &Settings::new(*rules), &mut |_| true);
    (files, report)
}

pub(crate) fn host(directory: &Path) -> Ext4 {
    Ext4::of(directory, READ).unwrap()
}

/// A file system on which the same tests run as on others.
pub(crate) trait Kind {
    type Host: MountedHost;

    const TOOLS: &'static Tools;
    /// A donor has the old places of what it gave its own to, so that the same again brings them back.
    const SWAPS: bool;
    /// Files can share blocks.
    const CLONES: bool;
    /// Files change places as wholes alone.
    const WHOLE: bool = false;
    /// Without root all times stay, too, also that of the last change of the inode (ctime).
    const KEEPS_CTIME_OF_OWNERS: bool = true;

    /// Write requests for metadata, at most, when 256 files are moved.
    const METADATA_REQUESTS: u64 = 60;

    fn host(directory: &Path) -> Self::Host;

    /// A host that reads nothing.
    fn host_of_cached(directory: &Path) -> Self::Host;

    /// Has mkfs put the journal before all files.
    const JOURNAL_FIRST: &[&str];

    fn image(bytes: u64, options: &str) -> Image {
        Image::of(Self::TOOLS, bytes, &[], options)
    }
}

pub(crate) struct OnExt4;

impl Kind for OnExt4 {
    type Host = Ext4;
    const TOOLS: &'static Tools = &EXT4;
    const JOURNAL_FIRST: &[&str] = &["-J", "size=16,location=8M"];
    const SWAPS: bool = true;
    const CLONES: bool = false;

    fn host(directory: &Path) -> Ext4 {
        host(directory)
    }

    fn host_of_cached(directory: &Path) -> Ext4 {
        Ext4::of(directory, Uncached::Stays).unwrap()
    }
}

pub(crate) struct OnXfs;

impl Kind for OnXfs {
    type Host = Xfs;
    const TOOLS: &'static Tools = &XFS;
    const JOURNAL_FIRST: &[&str] = &["-l", "agnum=0"];
    const SWAPS: bool = false;
    const CLONES: bool = true;

    fn host(directory: &Path) -> Xfs {
        Xfs::of(directory, READ).unwrap()
    }

    fn host_of_cached(directory: &Path) -> Xfs {
        Xfs::of(directory, Uncached::Stays).unwrap()
    }
}

/// An XFS without reflinks.
pub(crate) struct OnXfsExchange;

impl Kind for OnXfsExchange {
    type Host = Xfs;
    const TOOLS: &'static Tools = &XFS_EXCHANGE;
    const JOURNAL_FIRST: &[&str] = OnXfs::JOURNAL_FIRST;
    const SWAPS: bool = false;
    const CLONES: bool = false;
    const KEEPS_CTIME_OF_OWNERS: bool = false;

    fn host(directory: &Path) -> Xfs {
        OnXfs::host(directory)
    }

    fn host_of_cached(directory: &Path) -> Xfs {
        OnXfs::host_of_cached(directory)
    }
}

/// An XFS with neither reflinks nor exchange-range.
pub(crate) struct OnXfsWhole;

impl Kind for OnXfsWhole {
    type Host = Xfs;
    const TOOLS: &'static Tools = &XFS_WHOLE;
    const JOURNAL_FIRST: &[&str] = OnXfs::JOURNAL_FIRST;
    const SWAPS: bool = false;
    const CLONES: bool = false;
    const WHOLE: bool = true;
    // The journal is written for each of some 162 regions.
    const METADATA_REQUESTS: u64 = 260;

    fn host(directory: &Path) -> Xfs {
        OnXfs::host(directory)
    }

    fn host_of_cached(directory: &Path) -> Xfs {
        OnXfs::host_of_cached(directory)
    }
}

/// The same with a reverse map, where pieces change places one by one.
pub(crate) struct OnXfsWholeMapped;

impl Kind for OnXfsWholeMapped {
    type Host = Xfs;
    const TOOLS: &'static Tools = &XFS_WHOLE_MAPPED;
    const JOURNAL_FIRST: &[&str] = OnXfs::JOURNAL_FIRST;
    const SWAPS: bool = false;
    const CLONES: bool = false;
    const WHOLE: bool = true;
    // The journal is written for each of some 162 regions.
    const METADATA_REQUESTS: u64 = 400;

    fn host(directory: &Path) -> Xfs {
        OnXfs::host(directory)
    }

    fn host_of_cached(directory: &Path) -> Xfs {
        OnXfs::host_of_cached(directory)
    }
}

pub(crate) struct OnBtrfs;

impl Kind for OnBtrfs {
    type Host = Btrfs;
    const TOOLS: &'static Tools = &BTRFS;
    // Each changed node of a tree goes to a new place, and twice, by each commit, some of which come by time. Block by block, data alone would
    // take 1,500 requests more.
    const METADATA_REQUESTS: u64 = 1000;
    const JOURNAL_FIRST: &[&str] = &[];
    const SWAPS: bool = false;
    const CLONES: bool = true;

    fn host(directory: &Path) -> Btrfs {
        Btrfs::of(directory, READ).unwrap()
    }

    fn host_of_cached(directory: &Path) -> Btrfs {
        Btrfs::of(directory, Uncached::Stays).unwrap()
    }
}

/// A mounted file system as the suite of all hosts wants it.
pub(crate) struct Mounted<K: Kind> {
    image: Image,
    host: K::Host,
}

impl<K: Kind> Mounted<K> {
    pub(crate) fn new(image: Image) -> Self {
        let host = K::host(&image.root());
        Self { image, host }
    }
}

impl<K: Kind> Fixture for Mounted<K> {
    type Host = K::Host;
    const SWAPS: bool = K::SWAPS;
    const WHOLE: bool = K::WHOLE;

    fn host(&mut self) -> &mut K::Host {
        &mut self.host
    }

    fn directory(&self) -> PathBuf {
        self.image.root()
    }

    fn make(&mut self, name: &str, blocks: u64, cut: u64) -> PathBuf {
        let path = self.image.root().join(name);
        let block = self.host.block_bytes();
        fs::write(&path, bytes(blocks, (blocks * block).saturating_sub(cut.min(block - 1)) as usize)).unwrap();
        sync(&self.image.root());
        path
    }

    fn dirty(&mut self, path: &Path) {
        File::options().write(true).open(path).unwrap().write_all_at(b"!", 1024).unwrap();
    }

    fn contents(&mut self, path: &Path) -> Vec<u8> {
        fs::read(path).unwrap()
    }
}

/// Why a file that lies well is not moved, by trying to.
pub(crate) fn why_it_stays<H: Host>(mover: &mut H, directory: &Path, path: &Path) -> Stays {
    let inode = mover.look(path).unwrap().inode;
    let opened = match mover.open(path, inode) {
        Err(Trouble::Stays(stays)) => return stays,
        opened => opened.unwrap(),
    };
    let blocks = opened.places.blocks();
    let captured = mover.capture(directory, blocks);
    match mover.exchange(&opened.file, &captured.donors[0], Exchange { from: 0, to: 0, blocks }).trouble {
        Some(Trouble::Stays(stays)) => stays,
        other => panic!("{other:?}"),
    }
}
