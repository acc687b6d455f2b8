//! One pass over the $MFT: every file record tells its inode and its names itself, so no directory is read at all.

use std::{collections::HashSet, ops::ControlFlow};

use super::{
    EXTEND, FIRST_FILE, ROOT,
    attributes::{Attributes, kind},
    bytes::shown,
    file::File,
    listed::{Listed, Loaded, list_in, read_file},
    mft::Mft,
    record::{Header, Record, Reference},
    stream::Stream,
};
use crate::{
    block_read::BlockRead,
    tables::{Found, Name, TableError, Wanted},
};

/// Bytes of the $MFT that are read at once.
const READ_BYTES: usize = 2 << 20;
/// Memory for files that wait for their further records, together with those.
const LISTED_BYTES_MAX: usize = 16 << 20;
/// Memory for names whose directory comes later in the $MFT.
const EARLY_BYTES_MAX: usize = 64 << 20;

/// What a scan keeps while it goes over the $MFT.
pub(super) struct Scan<'a, B> {
    mft: &'a Mft<B>,
    wanted: Wanted,
    found: &'a mut dyn Found,
    file: File,
    problems: Vec<TableError>,
    in_use: Bitmap,
    /// Records that continue others, and those that some attribute list names.
    extensions: Bitmap,
    needed: Bitmap,
    directories: Directories,
    early: EarlyNames,
    /// Files with attribute lists, whose further records are read in the order of the disk, many at a time.
    listed: Vec<Listed>,
    listed_bytes: usize,
    /// Further records, and bytes of attribute lists, that there can still be.
    needs_left: u64,
    list_bytes_left: u64,
    /// Bytes that are read at once; fewer only in tests.
    read_bytes: usize,
    /// Records before this one were looked at.
    looked_at: u64,
}

impl<'a, B: BlockRead> Scan<'a, B> {
    pub(super) fn new(mft: &'a Mft<B>, wanted: Wanted, found: &'a mut dyn Found) -> Scan<'a, B> {
        Scan {
            mft,
            wanted,
            found,
            file: File::default(),
            problems: Vec::new(),
            in_use: Bitmap::default(),
            extensions: Bitmap::default(),
            needed: Bitmap::default(),
            directories: Directories::default(),
            early: EarlyNames::default(),
            listed: Vec::new(),
            listed_bytes: 0,
            needs_left: mft.records,
            list_bytes_left: mft.device.len(),
            read_bytes: READ_BYTES,
            looked_at: 0,
        }
    }

    /// Tells everything; ends early when nobody wants more.
    pub(super) fn run(&mut self) -> ControlFlow<()> {
        match Bitmap::read(self.mft) {
            Ok(in_use) => self.in_use = in_use,
            Err(problem) => self.found.problem(problem)?,
        }
        let record_bytes = self.mft.geometry.record_bytes as usize;
        let mut buffer = vec![0; self.read_bytes.next_multiple_of(record_bytes)];
        let mut number = 0;
        while number < self.mft.records {
            let covered = self.mft.covered(number, (buffer.len() / record_bytes) as u64);
            if covered == 0 {
                let next = self.mft.next_placed(number);
                let found = format!("no place for records {number} to {}", next - 1);
                self.found.problem(TableError::damaged("the $MFT's runlist", 0, "all of its records", found))?;
                number = next;
                continue;
            }
            let bytes = &mut buffer[..usize::try_from(covered).unwrap_or(0) * record_bytes];
            self.chunk(bytes, number, record_bytes)?;
            number += covered;
        }
        self.looked_at = self.mft.records;
        self.tell_listed()?;
        self.tell_lost_extensions()?;
        self.tell_early_names()
    }

    /// Reads and tells some records that follow each other.
    fn chunk(&mut self, bytes: &mut [u8], first: u64, record_bytes: usize) -> ControlFlow<()> {
        let together = self.mft.read(bytes, first).is_ok();
        let records = (first..).zip(bytes.chunks_exact_mut(record_bytes));
        if !together {
            // Somewhere in there the disk has a bad place: what can be read is read record by record.
            for (number, record) in records {
                if let Err(problem) = self.mft.read(record, number) {
                    record.fill(0);
                    self.in_use.clear(number); // Told here, so not again as a record that is missing.
                    self.found.problem(problem)?;
                }
            }
        }
        let records = (first..).zip(bytes.chunks_exact_mut(record_bytes));
        for (number, record) in records {
            if let Some(header) = Header::parse(record).filter(Header::is_in_use)
                && header.is_directory()
                && header.is_base()
            {
                self.directories.add(Reference { number, sequence: header.sequence });
            }
        }
        self.looked_at = first + (bytes.len() / record_bytes) as u64;
        let records = (first..).zip(bytes.chunks_exact_mut(record_bytes));
        for (number, record) in records {
            if number >= FIRST_FILE || number == ROOT {
                self.record(record, number)?;
            }
        }
        ControlFlow::Continue(())
    }

    fn record(&mut self, bytes: &mut [u8], number: u64) -> ControlFlow<()> {
        let at = self.mft.at(number).unwrap_or(0);
        let Some(header) = Header::parse(bytes) else {
            if self.in_use.has(number) || bytes.starts_with(b"BAAD") {
                let found = shown(bytes.get(..4).unwrap_or_default());
                self.found.problem(TableError::damaged("a file record that is in use", at, "\"FILE\"", found))?;
            }
            return ControlFlow::Continue(());
        };
        if !header.is_in_use() {
            if self.in_use.has(number) {
                let what = "a file record that is in use by $MFT's bitmap";
                self.found.problem(TableError::damaged(what, at + 22, "its flag", "a free record"))?;
            }
            return ControlFlow::Continue(());
        }
        if !self.in_use.0.is_empty() && !self.in_use.has(number) {
            let what = "a file record that is free by $MFT's bitmap";
            self.found.problem(TableError::damaged(what, at + 22, "no flag", "a record in use"))?;
        }
        if !header.is_base() {
            // Read with the file that it belongs to.
            if header.base.number >= FIRST_FILE || header.base.number == ROOT {
                self.extensions.set(number);
            }
            return ControlFlow::Continue(());
        }
        let record = match Record::open(bytes, number, at) {
            Ok(record) => record,
            Err(problem) => return self.found.problem(problem),
        };
        match list_in(record) {
            Ok(None) => {}
            Ok(Some(list)) => {
                // Nor can they have more bytes than the device: lists that lie on each other would be read again and again.
                let Some(left) = self.list_bytes_left.checked_sub(list.clusters_bytes()) else {
                    let (expected, found) = ("clusters that no other has", "those of others");
                    return self.found.problem(TableError::damaged("an attribute list", list.at, expected, found));
                };
                self.list_bytes_left = left;
                return match Listed::new(self.mft, &record, &list) {
                    Ok(listed) => self.keep(listed),
                    Err(problem) => self.found.problem(problem),
                };
            }
            Err(problem) => return self.found.problem(problem),
        }
        self.file.clear();
        let mut whole = Ok(());
        for attribute in Attributes::of(record) {
            let taken = attribute.map(|attribute| self.file.take(&attribute, &self.mft.geometry, self.wanted));
            match taken {
                Ok(taken) => self.problems.extend(taken.err()),
                Err(problem) => whole = Err(problem),
            }
        }
        self.tell(&record, whole)
    }

    /// Keeps a file until its further records are read.
    fn keep(&mut self, listed: Listed) -> ControlFlow<()> {
        let needs = listed.needs();
        // Each record continues one file, so all lists together can't need more than there are.
        let Some(left) = self.needs_left.checked_sub(needs.len() as u64) else {
            let (expected, found) = ("records that no other list names", "more than there are");
            return self.found.problem(TableError::damaged("an attribute list", listed.at(), expected, found));
        };
        self.needs_left = left;
        needs.iter().for_each(|number| self.needed.set(*number));
        self.listed_bytes += listed.memory();
        self.listed.push(listed);
        match self.listed_bytes >= LISTED_BYTES_MAX {
            true => self.tell_listed(),
            false => ControlFlow::Continue(()),
        }
    }

    /// Tells the files that waited for further records.
    fn tell_listed(&mut self) -> ControlFlow<()> {
        let listed = std::mem::take(&mut self.listed);
        self.listed_bytes = 0;
        let mut loaded = Loaded::read(self.mft, listed.iter().flat_map(Listed::needs).copied().collect());
        for problem in loaded.problems.drain(..) {
            self.found.problem(problem)?;
        }
        for one in &listed {
            self.file.clear();
            let Scan { file, problems, mft, wanted, .. } = self;
            let whole = one.attributes(&loaded, &mut |attribute| {
                problems.extend(file.take(attribute, &mft.geometry, *wanted).err());
                Ok(())
            });
            match one.record() {
                Ok(record) => self.tell(&record, whole)?,
                Err(problem) => self.found.problem(problem)?,
            }
        }
        ControlFlow::Continue(())
    }

    /// Tells a file whose attributes were taken, as far as they are whole.
    fn tell(&mut self, record: &Record<'_>, whole: Result<(), TableError>) -> ControlFlow<()> {
        let is_directory = record.header.is_directory();
        // A file of which parts are missing might look empty; a directory is needed for what is below it.
        let is_told = whole.is_ok() || is_directory;
        self.problems.extend(whole.err());
        let names = self.file.names().count();
        let hidden = self.file.names().filter(|(directory, _)| self.directories.is_hidden(*directory)).count();
        if names > 0 && names == hidden {
            // Below $Extend, which ntfs-3g doesn't show either.
            if is_directory {
                self.directories.hide(record.number);
            }
            self.problems.clear();
            return ControlFlow::Continue(());
        }
        if is_told {
            let inode = self.file.finish(record, self.mft, self.wanted, &mut self.problems);
            self.found.inode(inode)?;
            for (directory, name) in self.file.names() {
                if self.directories.is_hidden(directory) {
                    continue;
                }
                let name = Name { directory: directory.number, inode: record.number, name };
                let is_early = directory.number >= self.looked_at && directory.number < self.mft.records;
                if is_early && self.early.keep(directory, name) {
                    continue;
                }
                match is_early || self.directories.has(directory) {
                    true => self.found.name(name)?,
                    false => self.problems.push(no_directory(directory, record.number, record.at)),
                }
            }
        }
        for problem in self.problems.drain(..) {
            self.found.problem(problem)?;
        }
        ControlFlow::Continue(())
    }

    /// Records that continue a file which doesn't know of them: a part of something.
    fn tell_lost_extensions(&mut self) -> ControlFlow<()> {
        for number in self.extensions.without(&self.needed) {
            let at = self.mft.at(number).unwrap_or(0);
            let expected = "a file with it in its attribute list";
            self.found.problem(TableError::damaged(
                "a file record that continues another",
                at + 32,
                expected,
                "none",
            ))?;
        }
        ControlFlow::Continue(())
    }

    fn tell_early_names(&mut self) -> ControlFlow<()> {
        for (directory, inode, name) in self.early.names() {
            if self.directories.is_hidden(directory) {
                continue;
            }
            match self.directories.has(directory) {
                true => self.found.name(Name { directory: directory.number, inode, name })?,
                false => self.found.problem(no_directory(directory, inode, self.mft.at(inode).unwrap_or(0)))?,
            }
        }
        ControlFlow::Continue(())
    }
}

fn no_directory(directory: Reference, inode: u64, at: u64) -> TableError {
    let expected = format!("record {} with sequence {}", directory.number, directory.sequence);
    TableError::damaged(format!("the directory of file {inode}"), at, expected, "none")
}

/// Which directories there are: two bytes for each record up to the last directory.
#[derive(Debug, Default)]
struct Directories {
    /// Their sequence numbers, which are never 0.
    sequences: Vec<u16>,
    /// Those below $Extend; a dozen, made with the volume, before anything that lies in them.
    hidden: HashSet<u64>,
}

impl Directories {
    fn add(&mut self, directory: Reference) {
        let Ok(index) = usize::try_from(directory.number) else { return };
        if self.sequences.len() <= index {
            self.sequences.resize(index + 1, 0);
        }
        self.sequences[index] = directory.sequence;
    }

    fn has(&self, directory: Reference) -> bool {
        let sequence = usize::try_from(directory.number).ok().and_then(|index| self.sequences.get(index));
        // A reference without a sequence number means whatever is there.
        sequence.is_some_and(|sequence| *sequence != 0 && [*sequence, 0].contains(&directory.sequence))
    }

    fn hide(&mut self, number: u64) {
        self.hidden.insert(number);
    }

    fn is_hidden(&self, directory: Reference) -> bool {
        (directory.number == EXTEND || self.hidden.contains(&directory.number)) && self.has(directory)
    }
}

/// Names whose directory comes later in the $MFT, so that nothing is known of it yet.
#[derive(Debug, Default)]
struct EarlyNames {
    /// The directory, the file, and how many bytes of the names are its.
    names: Vec<(Reference, u64, u16)>,
    bytes: Vec<u8>,
}

impl EarlyNames {
    /// Keeps a name; not when there's no room left, so it's told as it is.
    fn keep(&mut self, directory: Reference, name: Name<'_>) -> bool {
        let taken = self.bytes.len() + self.names.len() * size_of::<(Reference, u64, u16)>();
        if taken + name.name.len() > EARLY_BYTES_MAX {
            return false;
        }
        let Ok(length) = u16::try_from(name.name.len()) else { return false };
        self.names.push((directory, name.inode, length));
        self.bytes.extend_from_slice(name.name);
        true
    }

    fn names(&self) -> impl Iterator<Item = (Reference, u64, &[u8])> {
        let mut rest = &self.bytes[..];
        self.names.iter().map(move |&(directory, inode, length)| {
            let (name, behind) = rest.split_at(usize::from(length).min(rest.len()));
            rest = behind;
            (directory, inode, name)
        })
    }
}

/// A bit for each record.
#[derive(Debug, Default)]
struct Bitmap(Vec<u8>);

impl Bitmap {
    /// Which records are in use, as the $MFT has it itself.
    fn read<B: BlockRead>(mft: &Mft<B>) -> Result<Bitmap, TableError> {
        let mut bitmap = Stream::default();
        read_file(mft, 0, &mut |attribute| match attribute.kind {
            kind::BITMAP => bitmap.take(attribute, &mft.geometry),
            _ => Ok(()),
        })?;
        bitmap.finish(&mft.geometry)?;
        Ok(Bitmap(bitmap.read(&mft.device, mft.records.div_ceil(8))?))
    }

    fn place(number: u64) -> (usize, u8) {
        (usize::try_from(number / 8).unwrap_or(usize::MAX), 1 << (number % 8))
    }

    fn has(&self, number: u64) -> bool {
        let (index, bit) = Bitmap::place(number);
        self.0.get(index).is_some_and(|byte| byte & bit != 0)
    }

    fn set(&mut self, number: u64) {
        let (index, bit) = Bitmap::place(number);
        if self.0.len() <= index {
            self.0.resize(index.saturating_add(1), 0);
        }
        self.0[index] |= bit;
    }

    /// The records that are here, and not in the other one.
    fn without(&self, other: &Bitmap) -> impl Iterator<Item = u64> {
        let others = other.0.iter().copied().chain(std::iter::repeat(0));
        let bytes = (0_u64..).zip(self.0.iter().zip(others));
        let left = bytes.map(|(index, (byte, other))| (index, byte & !other)).filter(|(_, byte)| *byte != 0);
        left.flat_map(|(index, byte)| (0..8).filter(move |bit| byte >> bit & 1 != 0).map(move |bit| index * 8 + bit))
    }

    fn clear(&mut self, number: u64) {
        let (index, bit) = Bitmap::place(number);
        if let Some(byte) = self.0.get_mut(index) {
            *byte &= !bit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{attributes::tests::resident, mft, names, record},
        *,
    };
    use crate::tables::Inode;

    #[derive(Default)]
    struct Kept {
        inodes: Vec<u64>,
        names: Vec<(u64, u64, String)>,
        problems: Vec<String>,
        /// How much is wanted still.
        left: Option<usize>,
    }

    impl Kept {
        fn count(&mut self) -> ControlFlow<()> {
            match self.left.as_mut() {
                Some(0) => panic!("told after the end"),
                Some(left) => {
                    *left -= 1;
                    if *left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                }
                None => ControlFlow::Continue(()),
            }
        }
    }

    impl Found for Kept {
        fn inode(&mut self, inode: Inode) -> ControlFlow<()> {
            self.inodes.push(inode.number);
            self.count()
        }

        fn name(&mut self, name: Name<'_>) -> ControlFlow<()> {
            self.names.push((name.directory, name.inode, String::from_utf8_lossy(name.name).into_owned()));
            self.count()
        }

        fn problem(&mut self, problem: TableError) -> ControlFlow<()> {
            self.problems.push(problem.to_string());
            self.count()
        }
    }

    const FILE: u16 = 1;
    const DIRECTORY: u16 = 3;
    const FREE: u16 = 0;

    /// A record with a name in this directory.
    fn named(number: u32, flags: u16, directory: u64, sequence: u16, name: &str) -> Vec<u8> {
        let value = names::tests::on_disk(Reference { number: directory, sequence }, name, 1);
        record::tests::on_disk(number, flags, &resident(kind::FILE_NAME, 0, "", &value))
    }

    /// A volume with these records at their own numbers, and nothing between them; four are read at once.
    fn scanned(records: Vec<Vec<u8>>, left: Option<usize>) -> Kept {
        let mut all = vec![vec![0; 1024]; 40];
        for record in records {
            let number = usize::from(record[44]);
            all[number - 1] = record;
        }
        let (bytes, geometry) = mft::tests::volume(all);
        let mft = Mft::open(bytes, geometry, &mut Vec::new()).unwrap();
        let mut kept = Kept { left, ..Kept::default() };
        let mut scan = Scan::new(&mft, Wanted::default(), &mut kept);
        scan.read_bytes = 4096;
        let ended = scan.run();
        assert_eq!(ended.is_break(), left == Some(0) || kept.left == Some(0));
        kept
    }

    #[test]
    fn names_come_whatever_the_order_of_records() {
        let kept = scanned(
            vec![
                named(5, DIRECTORY, 5, 7, "."),
                named(24, FILE, 30, 7, "in a later directory"),
                named(30, DIRECTORY, 5, 7, "directory"),
                named(31, FILE, 30, 7, "in an earlier one"),
                named(32, FREE, 30, 7, "deleted"),
            ],
            None,
        );
        assert_eq!(kept.inodes, [5, 24, 30, 31]);
        let name = |directory, inode, name: &str| (directory, inode, name.to_owned());
        let expected =
            [name(5, 30, "directory"), name(30, 31, "in an earlier one"), name(30, 24, "in a later directory")];
        assert_eq!(kept.names, expected);
        assert_eq!(kept.problems, [""; 0]);
    }

    #[test]
    fn orphans_come_without_names() {
        let kept = scanned(
            vec![
                named(5, DIRECTORY, 5, 7, "."),
                named(24, FILE, 30, 6, "of an earlier directory"),
                named(25, FILE, 38, 7, "of none"),
                named(26, FILE, 24, 7, "of a file"),
                named(30, DIRECTORY, 5, 7, "directory"),
                named(31, FILE, 30, 8, "of a later directory"),
                named(32, FILE, 30, 7, "of/this"),
                record::tests::on_disk(33, FILE, &[]),
            ],
            None,
        );
        assert_eq!(kept.inodes, [5, 24, 25, 26, 30, 31, 32, 33]);
        assert_eq!(kept.names, [(5, 30, "directory".to_owned())]);
        assert_eq!(kept.problems.len(), 5, "{:?}", kept.problems);
    }

    #[test]
    fn what_is_the_systems_is_left_out() {
        let kept = scanned(
            vec![
                named(5, DIRECTORY, 5, 7, "."),
                named(6, FILE, 5, 7, "$Bitmap"),
                named(11, DIRECTORY, 5, 7, "$Extend"),
                named(24, FILE, 11, 7, "$Quota"),
                named(25, DIRECTORY, 11, 7, "$RmMetadata"),
                named(26, FILE, 25, 7, "$Repair"),
            ],
            None,
        );
        assert_eq!((kept.inodes, kept.names.len(), kept.problems.len()), (vec![5], 0, 0));
    }

    #[test]
    fn what_is_damaged_is_told_and_passed_over() {
        let base = Reference { number: 24, sequence: 7 };
        let mut bad = named(26, FILE, 5, 7, "bad");
        bad[..4].copy_from_slice(b"BAAD");
        let mut torn = named(27, FILE, 5, 7, "torn");
        torn[1023] ^= 1;
        let kept = scanned(
            vec![
                named(5, DIRECTORY, 5, 7, "."),
                named(24, FILE, 5, 7, "file"),
                record::tests::on_disk_of(base, 25, FILE, &[]),
                bad,
                torn,
                named(28, FILE, 5, 7, "last"),
            ],
            None,
        );
        assert_eq!(kept.inodes, [5, 24, 28]);
        assert_eq!(kept.problems.len(), 3, "{:?}", kept.problems);
    }

    #[test]
    fn a_scan_ends_where_nobody_wants_more() {
        let records = || {
            let torn = [&named(27, FILE, 5, 7, "torn")[..1023], &[0xaa]].concat();
            let early = named(24, FILE, 30, 7, "early");
            vec![
                named(5, DIRECTORY, 5, 7, "."),
                early,
                torn,
                named(30, DIRECTORY, 5, 7, "late"),
                named(31, FILE, 5, 7, "x"),
            ]
        };
        let whole = scanned(records(), None);
        let count = whole.inodes.len() + whole.names.len() + whole.problems.len();
        assert_eq!(count, 8);
        for left in 1..=count {
            let kept = scanned(records(), Some(left));
            assert_eq!(kept.inodes.len() + kept.names.len() + kept.problems.len(), left);
        }
    }

    #[test]
    fn early_names_come_back_in_order() {
        let mut early = EarlyNames::default();
        let directory = |number| Reference { number, sequence: 1 };
        let long = vec![b'x'; 765];
        assert!(early.keep(directory(70), Name { directory: 70, inode: 64, name: b"one" }));
        assert!(early.keep(directory(80), Name { directory: 80, inode: 65, name: &long }));
        assert!(early.keep(directory(70), Name { directory: 70, inode: 66, name: b"two" }));
        let names: Vec<_> = early.names().collect();
        let expected = [(directory(70), 64, &b"one"[..]), (directory(80), 65, &long), (directory(70), 66, b"two")];
        assert_eq!(names, expected);
    }

    #[test]
    fn bits_of_one_that_are_not_in_the_other() {
        let (mut one, mut other) = (Bitmap::default(), Bitmap::default());
        [3, 8, 9, 700].into_iter().for_each(|number| one.set(number));
        [8, 20].into_iter().for_each(|number| other.set(number));
        assert_eq!(one.without(&other).collect::<Vec<_>>(), [3, 9, 700]);
        one.clear(9);
        assert!(one.has(3) && !one.has(9) && !one.has(10_000));
    }

    #[test]
    fn a_directory_of_another_time_is_not_meant() {
        let mut directories = Directories::default();
        directories.add(Reference { number: 70, sequence: 3 });
        assert!(directories.has(Reference { number: 70, sequence: 3 }));
        assert!(directories.has(Reference { number: 70, sequence: 0 }));
        for (number, sequence) in [(70, 2), (69, 0), (71, 3), (u64::MAX, 3)] {
            assert!(!directories.has(Reference { number, sequence }));
        }
    }

    #[test]
    fn what_lies_below_the_system_is_hidden() {
        let mut directories = Directories::default();
        let directory = |number| Reference { number, sequence: 11 };
        [EXTEND, ROOT, 70, 80].into_iter().for_each(|number| directories.add(directory(number)));
        directories.hide(80);
        assert!(directories.is_hidden(directory(EXTEND)) && directories.is_hidden(directory(80)));
        assert!(!directories.is_hidden(directory(ROOT)) && !directories.is_hidden(directory(70)));
        // Another time's, or damaged.
        assert!(!directories.is_hidden(Reference { number: EXTEND, sequence: 3 }));
    }
}
