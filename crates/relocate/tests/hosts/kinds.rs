//! Real file systems of each kind, on which the same tests run.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use onesweep_relocate::btrfs::Btrfs;
use onesweep_relocate::ext4::Ext4;
use onesweep_relocate::host::Uncached;
use onesweep_relocate::mounted::Mounted as MountedHost;
use onesweep_relocate::xfs::Xfs;

use crate::conformance::Fixture;
use crate::image::{BTRFS, EXT4, Image, Tools, XFS, XFS_EXCHANGE, XFS_WHOLE, XFS_WHOLE_MAPPED};
use crate::tree::{bytes, sync};

pub(crate) const READ: Uncached = Uncached::Read;

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

    /// A host that does this with files that are not in memory.
    fn host_with(directory: &Path, uncached: Uncached) -> Self::Host;

    /// A host that reads them.
    fn host(directory: &Path) -> Self::Host {
        Self::host_with(directory, READ)
    }

    /// A host that leaves them, and reads nothing.
    fn host_of_cached(directory: &Path) -> Self::Host {
        Self::host_with(directory, Uncached::Stays)
    }

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

    fn host_with(directory: &Path, uncached: Uncached) -> Ext4 {
        Ext4::of(directory, uncached).unwrap()
    }
}

pub(crate) struct OnXfs;

impl Kind for OnXfs {
    type Host = Xfs;
    const TOOLS: &'static Tools = &XFS;
    const JOURNAL_FIRST: &[&str] = &["-l", "agnum=0"];
    const SWAPS: bool = false;
    const CLONES: bool = true;

    fn host_with(directory: &Path, uncached: Uncached) -> Xfs {
        Xfs::of(directory, uncached).unwrap()
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

    fn host_with(directory: &Path, uncached: Uncached) -> Xfs {
        OnXfs::host_with(directory, uncached)
    }
}

/// An XFS with neither reflinks nor exchange-range; with a reverse map, pieces change places one by one.
pub(crate) struct OnXfsOfWholes<const HAS_REVERSE_MAP: bool>;

pub(crate) type OnXfsWhole = OnXfsOfWholes<false>;
pub(crate) type OnXfsWholeMapped = OnXfsOfWholes<true>;

impl<const HAS_REVERSE_MAP: bool> Kind for OnXfsOfWholes<HAS_REVERSE_MAP> {
    type Host = Xfs;
    const TOOLS: &'static Tools = if HAS_REVERSE_MAP { &XFS_WHOLE_MAPPED } else { &XFS_WHOLE };
    const JOURNAL_FIRST: &[&str] = OnXfs::JOURNAL_FIRST;
    const SWAPS: bool = false;
    const CLONES: bool = false;
    const WHOLE: bool = true;
    // The journal is written for each of some 162 regions.
    const METADATA_REQUESTS: u64 = if HAS_REVERSE_MAP { 400 } else { 260 };

    fn host_with(directory: &Path, uncached: Uncached) -> Xfs {
        OnXfs::host_with(directory, uncached)
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

    fn host_with(directory: &Path, uncached: Uncached) -> Btrfs {
        Btrfs::of(directory, uncached).unwrap()
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

/// The mover of an ext4.
pub(crate) fn host(directory: &Path) -> Ext4 {
    OnExt4::host(directory)
}
