//! The files of a plan directory by directory, as another program would read them: where they lie, how that scores, what
//! reading them costs, and what it would cost if they lay side by side.
//!
//! A [`LaidDirectory`] is numbers alone: whatever is made of one does no I/O.

mod cost;
mod figures;

use std::{
    ffi::{OsStr, OsString},
    fmt,
    ops::Range,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    str::FromStr,
};

use onesweep_layout::{DynamicScore, LayoutScore};

pub use figures::{LaidFigures, LaidSide};

use crate::{
    catalogue::{Catalogue, EntryId, Flags},
    placement::{Placement, Placements, place_on_device, range_of},
    plan::NO_ADDRESS,
};

/// The order in which a program reads the files of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReaderOrder {
    /// As `readdir` gives them: GNU tar, `find`, `grep -r`. Of images that order isn't known: there it is that of the tables.
    Readdir,
    /// By inode number.
    Inode,
    /// By name, byte by byte: shells' patterns, programs that sort.
    Name,
}

impl ReaderOrder {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Readdir, Self::Inode, Self::Name];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Readdir => "readdir",
            Self::Inode => "inode",
            Self::Name => "name",
        }
    }
}

impl fmt::Display for ReaderOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ReaderOrder {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|order| order.name() == text);
        found.ok_or_else(|| format!("unknown order of reading '{text}'; use one of readdir, inode, name"))
    }
}

/// Where the content of a file lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilePlace {
    /// In these runs of whole blocks, in the order of the file: bytes of the device. What touches is one run, holes are left
    /// out. Never empty. Of a btrfs on several devices, as root tells it, each device has a range of 2^48 of its own.
    Runs(Vec<Range<u64>>),
    /// It has no block of its own: it is empty, a hole, or lies among the metadata.
    NoBlocks,
    /// It is compressed: which blocks have which of its bytes is not told.
    Compressed,
    /// Its file system tells no place, or addresses there mean nothing.
    Unknown,
}

/// A file of a [`LaidDirectory`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaidFile {
    /// Its name in the directory; the first one met, if it has several.
    pub name: OsString,
    /// Its inode number.
    pub ino: u64,
    /// Its bytes.
    pub size: u64,
    /// Where they lie.
    pub place: FilePlace,
}

impl LaidFile {
    /// Its runs; none where they are not known.
    pub fn runs(&self) -> &[Range<u64>] {
        match &self.place {
            FilePlace::Runs(runs) => runs,
            _ => &[],
        }
    }
}

/// A directory with the files directly in it, in the order in which they are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaidDirectory {
    /// Its path, as the plan's paths begin.
    pub path: PathBuf,
    /// The disks below, by their kernel names.
    pub disk: String,
    /// The device of its file system, by its kernel name; the type of a file system that has none.
    pub device: String,
    /// Its file system: the device number, as entries tell it.
    pub dev: u64,
    /// The type of its file system.
    pub fs_type: String,
    /// Bytes that addresses are below, where that is known: those of the device.
    pub device_bytes: Option<u64>,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Where addresses begin on the disk, and how large it is: for times.
    pub(crate) on_disk: (u64, Option<u64>),
    /// Its files.
    pub files: Vec<LaidFile>,
}

impl LaidDirectory {
    /// The blocks of a run.
    fn blocks(&self, run: &Range<u64>) -> u64 {
        (run.end - run.start).div_ceil(self.block_bytes)
    }

    /// Blocks of all files.
    pub fn block_count(&self) -> u64 {
        self.runs().map(|run| self.blocks(run)).sum()
    }

    /// Runs of all files, in the order of reading.
    pub fn runs(&self) -> impl Iterator<Item = &Range<u64>> {
        self.files.iter().flat_map(LaidFile::runs)
    }

    /// The layout score: how much of each file lies in one piece. Files of one block are left out.
    pub fn layout_score(&self) -> LayoutScore {
        let of_file = |file: &LaidFile| {
            let blocks: u64 = file.runs().iter().map(|run| self.blocks(run)).sum();
            // What touches is one run.
            let breaks = file.runs().len().saturating_sub(1) as u64;
            let pairs = blocks.saturating_sub(1);
            LayoutScore { contiguous: pairs.saturating_sub(breaks), pairs }
        };
        self.files.iter().map(of_file).sum()
    }

    /// The dynamic score: how much of what is read one after the other lies side by side.
    pub fn dynamic_score(&self) -> LayoutScore {
        let mut score = DynamicScore::default();
        self.runs().for_each(|run| score.read(run.start, self.blocks(run), self.block_bytes));
        score.score()
    }

    /// The same files in one piece each, side by side in the order of reading, from the lowest address of any of them on.
    pub fn packed(&self) -> Self {
        let mut at = self.runs().map(|run| run.start).min().unwrap_or(0);
        let mut pack = |file: &LaidFile| {
            let blocks: u64 = file.runs().iter().map(|run| self.blocks(run)).sum();
            let place = match &file.place {
                FilePlace::Runs(_) => {
                    let start = at;
                    at = at.saturating_add(blocks.saturating_mul(self.block_bytes));
                    FilePlace::Runs(std::iter::once(start..at).collect())
                }
                other => other.clone(),
            };
            LaidFile { place, ..file.clone() }
        };
        let files = self.files.iter().map(&mut pack).collect();
        Self { files, ..self.clone() }
    }
}

/// The directories of a catalogue that have any of these files.
pub(crate) struct Laid<'a> {
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) placements: &'a Placements,
    pub(crate) disk: &'a str,
    pub(crate) disk_bytes: Option<u64>,
    /// The file system of the first root.
    pub(crate) first: &'a Placement,
    /// Bytes that addresses are below in an image.
    pub(crate) image_bytes: Option<u64>,
}

impl<'a> Laid<'a> {
    /// Directory by directory, in the order in which they were met.
    pub(crate) fn directories(
        self,
        mut files: Vec<EntryId>,
        order: ReaderOrder,
    ) -> impl Iterator<Item = LaidDirectory> + 'a {
        let catalogue = self.catalogue;
        // Files that are named have no directory in the catalogue, but one in their path.
        let above = |id: EntryId| match catalogue.get(id).parent.some() {
            Some(_) => Vec::new(),
            None => directory_of(&catalogue.path(id)).as_os_str().as_bytes().to_vec(),
        };
        files.sort_by_cached_key(|&id| {
            let entry = catalogue.get(id);
            let name = if order == ReaderOrder::Name { catalogue.name(id).to_vec() } else { Vec::new() };
            let ino = if order == ReaderOrder::Inode { entry.ino } else { 0 };
            (entry.parent, above(id), entry.device, name, ino, id)
        });
        let mut files = files.into_iter().peekable();
        std::iter::from_fn(move || {
            let first = files.next()?;
            let directory = |id: EntryId| (catalogue.get(id).parent, above(id), catalogue.get(id).device);
            let mut laid = self.directory(first);
            laid.files.push(self.file(first));
            let here = directory(first);
            while let Some(id) = files.next_if(|&id| directory(id) == here) {
                laid.files.push(self.file(id));
            }
            Some(laid)
        })
    }

    /// The directory of a file, without its files.
    fn directory(&self, id: EntryId) -> LaidDirectory {
        let volume = self.catalogue.volume(self.catalogue.get(id).device);
        let path = match self.catalogue.get(id).parent.some() {
            Some(parent) => self.catalogue.path(parent),
            None => directory_of(&self.catalogue.path(id)).to_owned(),
        };
        let known = self.placements.known(volume.dev);
        let placement = known.as_deref().unwrap_or(self.first);
        LaidDirectory {
            path,
            disk: self.disk.to_owned(),
            dev: volume.shown_dev,
            device: placement.stack.as_ref().map_or(&placement.fs_type, |stack| &stack.name).clone(),
            fs_type: placement.fs_type.clone(),
            device_bytes: self.image_bytes.or(placement.span_bytes()).filter(|_| placement.several_lanes().is_none()),
            block_bytes: volume.block.into(),
            on_disk: (place_on_device(volume.base), self.disk_bytes),
            files: Vec::new(),
        }
    }

    fn file(&self, id: EntryId) -> LaidFile {
        let entry = self.catalogue.get(id);
        let volume = self.catalogue.volume(entry.device);
        let name = self.catalogue.name(id);
        // A file that is named has the whole path for its name.
        let name = Path::new(OsStr::from_bytes(name)).file_name().unwrap_or(OsStr::from_bytes(name));
        let place = match entry.flags {
            flags if flags.has(Flags::INLINE) => FilePlace::NoBlocks,
            flags if flags.has(Flags::ENCODED) || flags.has(Flags::PACKED) => FilePlace::Compressed,
            flags if flags.has(Flags::UNMAPPED) || flags.has(Flags::UNREADABLE) => FilePlace::Unknown,
            // Two devices have no distances between them.
            _ if volume.is_beside_image() => FilePlace::Unknown,
            _ => self.runs(id, volume.base, volume.block.into()),
        };
        LaidFile { name: name.to_owned(), ino: entry.ino, size: entry.size, place }
    }

    fn runs(&self, id: EntryId, base: u64, block: u64) -> FilePlace {
        let known = self.placements.known(self.catalogue.volume(self.catalogue.get(id).device).dev);
        let several = known.as_ref().and_then(|placement| placement.several_lanes());
        let mut runs: Vec<Range<u64>> = Vec::new();
        for fragment in self.catalogue.fragments(id) {
            if fragment.address() == NO_ADDRESS {
                return FilePlace::Unknown;
            }
            let place = fragment.address() - base;
            // The order goes over devices in turns; on its device, a file goes on.
            let start =
                several.and_then(|lanes| lanes.undivided(place)).map_or(place, |(lane, at)| range_of(lane) + at);
            let end = start + u64::from(fragment.length()) * block;
            match runs.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => runs.push(start..end),
            }
        }
        if runs.is_empty() { FilePlace::NoBlocks } else { FilePlace::Runs(runs) }
    }
}

/// The directory in the path of a file.
fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(super) const BLOCK: u64 = 4096;

    /// A directory of files of which each entry is a run: first block, blocks.
    pub(super) fn directory(files: &[&[(u64, u64)]]) -> LaidDirectory {
        let file = |(number, runs): (usize, &&[(u64, u64)])| {
            let bytes = |&(start, blocks): &(u64, u64)| start * BLOCK..(start + blocks) * BLOCK;
            let place = match runs.is_empty() {
                true => FilePlace::NoBlocks,
                false => FilePlace::Runs(runs.iter().map(bytes).collect()),
            };
            LaidFile { name: format!("{number}").into(), ino: number as u64, size: 1, place }
        };
        LaidDirectory {
            path: "/d".into(),
            disk: "sda".into(),
            device: "sda1".into(),
            dev: 1,
            fs_type: "ext4".into(),
            device_bytes: None,
            block_bytes: BLOCK,
            on_disk: (0, None),
            files: files.iter().enumerate().map(file).collect(),
        }
    }

    #[test]
    fn scores_by_hand() {
        // Five blocks in two runs, one block, two blocks behind the five, and an empty file.
        let laid = directory(&[&[(10, 2), (30, 3)], &[(50, 1)], &[(51, 2)], &[]]);
        assert_eq!(laid.layout_score(), LayoutScore { contiguous: 3 + 1, pairs: 4 + 1 });
        // 10 11 30 31 32 50 51 52: breaks before 30 and before 50.
        assert_eq!(laid.dynamic_score(), LayoutScore { contiguous: 5, pairs: 7 });
        assert_eq!((laid.block_count(), laid.runs().count()), (8, 4));
    }

    #[test]
    fn packed_files_lie_side_by_side_from_the_lowest_address_on() {
        let laid = directory(&[&[(90, 2), (30, 3)], &[(20, 1)], &[], &[(51, 2)]]);
        let packed = laid.packed();
        let runs: Vec<_> = packed.runs().map(|run| run.start / BLOCK..run.end / BLOCK).collect();
        assert_eq!(runs, [20..25, 25..26, 26..28]);
        assert_eq!((packed.layout_score().ratio(), packed.dynamic_score().ratio()), (Some(1.0), Some(1.0)));
        assert_eq!(packed.block_count(), laid.block_count());
        assert_eq!(packed.packed(), packed, "what is packed stays");
        let mut unknown = directory(&[&[(5, 1)], &[(9, 1)]]);
        unknown.files[0].place = FilePlace::Compressed;
        assert_eq!(unknown.packed(), unknown, "what is not known is not moved");
    }

    #[test]
    fn orders_have_names() {
        for order in ReaderOrder::ALL {
            assert_eq!(order.name().parse(), Ok(order));
        }
        assert!("sideways".parse::<ReaderOrder>().unwrap_err().contains("readdir"));
        assert_eq!(directory_of(Path::new("a")), Path::new("."));
        assert_eq!(directory_of(Path::new("/b/a")), Path::new("/b"));
    }
}
