//! What the fuzzer calls: each parser and each reader with bytes that nobody has looked at before.
//!
//! Compiled for `cargo fuzz` and for the tests of this crate, which go through all that the fuzzer has found before. A target
//! panics when what was read breaks a promise of [`tables`](crate::tables): that it ends, that all it tells can be, and that
//! what lies outside of the device is a problem.

use std::{
    collections::HashSet,
    io,
    ops::ControlFlow,
    sync::atomic::{AtomicU64, Ordering},
};

use crate::{
    block_read::BlockRead,
    extent::Extent,
    tables::{Found, Indexes, Inode, Name, TableError, Tables, Wanted},
};

mod beginnings;
mod images;
mod mounted;
mod names;

pub use self::images::{IMAGE_TARGETS, Image, ImageTarget};

/// One thing to fuzz.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which is that of its folder of inputs, too.
    pub name: &'static str,
    /// Panics where a promise is broken.
    pub run: fn(&[u8]),
    /// Bytes that it may have allocated at any moment.
    pub memory: usize,
}

/// All targets that take nothing but their input.
pub fn targets() -> impl Iterator<Item = &'static Target> {
    let all: [&'static [Target]; 6] = [
        beginnings::TARGETS,
        crate::btrfs::fuzzing::TARGETS,
        crate::tables::ext4::fuzzing::TARGETS,
        crate::tables::ntfs::fuzzing::TARGETS,
        crate::tables::xfs::fuzzing::TARGETS,
        names::TARGETS,
    ];
    all.into_iter().flatten()
}

/// The first byte of an input, which chooses between variants, and the rest.
pub(crate) fn options(input: &[u8]) -> (u8, &[u8]) {
    input.split_first().map_or((0, input), |(&first, rest)| (first, rest))
}

/// The first `N` bytes, with zeros for what is missing, and the rest.
pub(crate) fn cut<const N: usize>(input: &[u8]) -> ([u8; N], &[u8]) {
    let (first, rest) = input.split_at(input.len().min(N));
    let mut piece = [0; N];
    piece[..first.len()].copy_from_slice(first);
    (piece, rest)
}

/// A device that ends the run when it's read too often, and counts the bytes.
#[derive(Debug)]
pub(crate) struct Counted<B> {
    inner: B,
    reads: AtomicU64,
    most: u64,
    bytes: AtomicU64,
}

impl<B: BlockRead> Counted<B> {
    pub(crate) fn new(inner: B, most: u64) -> Counted<B> {
        Counted { inner, reads: AtomicU64::new(0), most, bytes: AtomicU64::new(0) }
    }

    /// Bytes that `run` reads.
    pub(crate) fn bytes_of(&self, run: impl FnOnce()) -> u64 {
        let before = self.bytes.load(Ordering::Relaxed);
        run();
        self.bytes.load(Ordering::Relaxed) - before
    }
}

impl<B: BlockRead> BlockRead for Counted<B> {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<()> {
        let reads = self.reads.fetch_add(1, Ordering::Relaxed) + 1;
        assert!(reads <= self.most, "more than {} reads", self.most);
        self.bytes.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.inner.read_at(buffer, at)
    }

    fn read_at_if_cached(&self, buffer: &mut [u8], at: u64) -> io::Result<bool> {
        self.read_at(buffer, at).map(|()| true)
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }
}

/// A device made of few blocks: `first` lies at its place, and all around it are the blocks of `rest`, again and again.
#[derive(Debug)]
pub(crate) struct Repeated<'a> {
    pub(crate) first: Vec<u8>,
    pub(crate) first_at: u64,
    pub(crate) rest: &'a [u8],
    pub(crate) block_bytes: usize,
    pub(crate) len: u64,
}

impl BlockRead for Repeated<'_> {
    fn read_at(&self, mut buffer: &mut [u8], mut at: u64) -> io::Result<()> {
        let end = at.checked_add(buffer.len() as u64).filter(|&end| end <= self.len);
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        while !buffer.is_empty() {
            let within = (at % self.block_bytes as u64) as usize;
            let length = buffer.len().min(self.block_bytes - within);
            let (piece, behind) = buffer.split_at_mut(length);
            let own = at.checked_sub(self.first_at).filter(|&own| own < self.first.len() as u64);
            let blocks = self.rest.len().div_ceil(self.block_bytes).max(1) as u64;
            let (from, start) = match own {
                Some(own) => (self.first.as_slice(), own as usize),
                None => (self.rest, (at / self.block_bytes as u64 % blocks) as usize * self.block_bytes + within),
            };
            let there = from.get(start..).unwrap_or_default();
            let there = &there[..there.len().min(length)];
            piece[..there.len()].copy_from_slice(there);
            piece[there.len()..].fill(0);
            (buffer, at) = (behind, at + length as u64);
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        self.len
    }
}

/// So many problems of a device are shown, and a few more.
const SHOWN: u64 = 64;

/// Looks at everything that tables tell, and keeps what has to be held against the whole.
#[derive(Debug, Default)]
pub(crate) struct Checker {
    /// Inodes that were told.
    pub(crate) inodes: HashSet<u64>,
    /// Files whose content is packed.
    pub(crate) packed: Vec<Inode>,
    names: u64,
    problems: u64,
    /// The first problem.
    pub(crate) first: Option<String>,
    /// Where the farthest extent ends.
    end: u64,
}

impl Checker {
    /// Reads all that tables tell of a device of so many bytes.
    pub(crate) fn scan(tables: &mut dyn Tables, device_bytes: u64) -> Checker {
        let mut checker = Checker::default();
        let wanted = Wanted { xattrs: true, indexes: Indexes::All, ..Wanted::default() };
        if let Err(error) = tables.scan(wanted, &mut checker) {
            checker.look(&error);
        }
        checker.finish(device_bytes);
        free_space(tables, device_bytes);
        checker
    }

    /// Verifies what only the end of a scan shows.
    pub(crate) fn finish(&self, device_bytes: u64) {
        assert!(self.end <= device_bytes || self.problems > 0, "content up to byte {} of {device_bytes}", self.end);
    }

    fn look(&mut self, problem: &TableError) {
        self.problems += 1;
        // To show thousands of them takes nearly all the time of a run.
        if self.problems <= SHOWN || self.problems.is_power_of_two() {
            let shown = problem.to_string();
            assert!(shown.len() < 4096, "a message of {} bytes", shown.len());
            self.first.get_or_insert(shown);
        }
    }

    fn extents(&mut self, extents: &[Extent]) {
        let mut next = 0;
        for extent in extents {
            assert!(extent.length > 0 && extent.logical >= next, "{extent:?} after {next}");
            next = extent.logical.checked_add(extent.length).expect("an end below 2^64");
            if let Some(physical) = extent.physical {
                self.end = self.end.max(physical.checked_add(extent.length).expect("an address below 2^64"));
            }
        }
    }
}

/// Free runs rise, don't overlap, and lie in the file system.
fn free_space(tables: &dyn Tables, device_bytes: u64) {
    let (most, mut next) = (device_bytes.max(tables.facts().bytes), 0);
    let told = tables.free(&mut |at, length| {
        assert!(length > 0 && at >= next, "{length} bytes free at {at} after {next}");
        next = at.checked_add(length).expect("an end below 2^64");
        assert!(next <= most, "free up to byte {next} of {most}");
    });
    if let Err(error) = told {
        assert!(error.to_string().len() < 4096, "a message of that length");
    }
}

impl Found for Checker {
    fn inode(&mut self, inode: Inode) -> ControlFlow<()> {
        assert!(self.inodes.insert(inode.number), "inode {} was told twice", inode.number);
        self.extents(&inode.extents);
        for time in [inode.mtime, inode.ctime, inode.atime].into_iter().chain(inode.btime) {
            assert!(time.nanoseconds < 1_000_000_000, "{time:?}");
        }
        if let Some(inline) = &inode.inline {
            assert_eq!(inline.len() as u64, inode.size, "content among the metadata");
            assert!(inode.extents.is_empty());
        }
        for (name, value) in &inode.xattrs {
            assert!(name.contains(&b'.') && value.len() <= 1 << 20, "{}", name.escape_ascii());
        }
        if inode.flags.contains(crate::tables::InodeFlags::COMPRESSED) && self.packed.len() < 4 {
            self.packed.push(inode);
        }
        ControlFlow::Continue(())
    }

    fn name(&mut self, name: Name<'_>) -> ControlFlow<()> {
        self.names += 1;
        let sound = !matches!(name.name, b"" | b"." | b"..") && !name.name.iter().any(|byte| matches!(byte, 0 | b'/'));
        assert!(sound && name.name.len() <= 1024, "a name {}", name.name.escape_ascii());
        ControlFlow::Continue(())
    }

    fn incomplete(&mut self, _: Option<u64>) {}

    fn problem(&mut self, problem: TableError) -> ControlFlow<()> {
        self.look(&problem);
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::Write,
        path::{Path, PathBuf},
        process::Command,
    };

    use super::*;

    /// Inputs by target, each of which broke a promise once.
    fn crashers() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/crashers")
    }

    /// What is in a folder; nothing when it isn't there.
    fn within(folder: &Path) -> Vec<PathBuf> {
        fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("an entry").path()).collect()
    }

    fn name(path: &Path) -> &str {
        path.file_stem().and_then(|name| name.to_str()).expect("a name")
    }

    fn run_all(folder: &Path, run: &dyn Fn(&[u8])) {
        run(&[]);
        for input in within(folder) {
            eprintln!("{}", input.display());
            run(&fs::read(&input).expect("an input"));
        }
    }

    #[test]
    fn what_the_fuzzer_found_is_mended() {
        for target in targets() {
            run_all(&crashers().join(target.name), &target.run);
        }
    }

    /// Inputs of whole images lie below the name of their image, and change this one alone.
    #[test]
    fn what_the_fuzzer_found_in_whole_images_is_mended() {
        let mut systems = vec!["ext4", "xfs"];
        if rustix::process::geteuid().is_root() {
            systems.push("ntfs");
        } else {
            let _ = writeln!(io::stderr(), "skipped: images of NTFS: only root can mount");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
        let made = Command::new(seeds).arg(folder.path()).args(&systems).output().expect("fuzz/seeds runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        for ImageTarget { name: target, images, run } in IMAGE_TARGETS {
            let images = within(&folder.path().join(images));
            assert_eq!(images.is_empty(), !systems.iter().any(|system| target.starts_with(system)), "{target}");
            let kept = crashers().join(target);
            for inputs in within(&kept).iter().filter(|_| !images.is_empty()) {
                assert!(images.iter().any(|image| name(image) == name(inputs)), "no image for {}", inputs.display());
            }
            for path in images {
                let image = Image::new(&fs::read(&path).expect("an image"));
                run_all(&kept.join(name(&path)), &|input| run(&image, input));
            }
        }
    }

    #[test]
    fn every_folder_of_inputs_has_a_target() {
        let names: Vec<_> =
            targets().map(|target| target.name).chain(IMAGE_TARGETS.map(|target| target.name)).collect();
        for folder in within(&crashers()) {
            assert!(names.contains(&name(&folder)), "{}", folder.display());
        }
    }

    #[test]
    fn blocks_are_repeated_around_the_first() {
        let rest: Vec<u8> = (0..6).collect();
        let device = Repeated { first: vec![9; 2], first_at: 4, rest: &rest, block_bytes: 4, len: 20 };
        let mut bytes = [7; 20];
        device.read_at(&mut bytes, 0).unwrap();
        assert_eq!(bytes, [0, 1, 2, 3, 9, 9, 0, 0, 0, 1, 2, 3, 4, 5, 0, 0, 0, 1, 2, 3]);
        assert!(device.read_at(&mut bytes, 1).is_err());
    }
}
