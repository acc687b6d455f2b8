//! One pass over the $MFT: every file record tells its inode and its names itself, so no directory is read at all.

use std::ops::ControlFlow;

use super::{
    FIRST_FILE, ROOT,
    attributes::{Attribute, Attributes, kind},
    bitmap::Bitmap,
    bytes::shown,
    directories::{Directories, EarlyNames},
    file::File,
    indexes::Indexes,
    listed::{Listed, Loaded, list_in},
    mft::{MIRRORED, Mft},
    record::{Header, Record, Reference},
    space::Space,
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

/// The record of $UpCase, the table of capital letters, two bytes for each unit of UTF-16.
const CAPITALS: u64 = 10;
const CAPITALS_BYTES: u64 = 2 << 16;

/// Where a file record has its link count.
const LINKS_AT: u64 = 18;

/// What a scan keeps while it goes over the $MFT.
pub(super) struct Scan<'a, B> {
    mft: &'a Mft<B>,
    wanted: Wanted,
    found: &'a mut dyn Found,
    file: File,
    problems: Vec<TableError>,
    in_use: Bitmap,
    /// The system's files, which may have further records, too.
    system: Vec<Reference>,
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
    /// The volume was closed.
    is_closed: bool,
    /// Clusters in use. `None` where nobody can tell.
    space: Option<Space>,
    /// Names in directories. `None` in a volume that wasn't closed.
    indexes: Option<Indexes>,
    /// Bytes of content that files have in clusters of their own.
    content_bytes: u64,
    /// Bytes that are read at once; fewer only in tests and for the fuzzer.
    pub(super) read_bytes: usize,
    /// Records before this one were looked at.
    looked_at: u64,
}

impl<'a, B: BlockRead> Scan<'a, B> {
    pub(super) fn new(mft: &'a Mft<B>, wanted: Wanted, is_closed: bool, found: &'a mut dyn Found) -> Scan<'a, B> {
        Scan {
            mft,
            wanted,
            found,
            file: File::default(),
            problems: Vec::new(),
            in_use: Bitmap::default(),
            system: Vec::new(),
            extensions: Bitmap::default(),
            needed: Bitmap::default(),
            directories: Directories::default(),
            early: EarlyNames::default(),
            listed: Vec::new(),
            listed_bytes: 0,
            needs_left: mft.records,
            list_bytes_left: mft.device.len(),
            is_closed,
            space: None,
            indexes: is_closed.then(|| Indexes::new(mft.records, mft.device.len(), wanted.indexes)),
            content_bytes: 0,
            read_bytes: READ_BYTES,
            looked_at: 0,
        }
    }

    /// Tells everything; ends early when nobody wants more.
    pub(super) fn run(&mut self) -> ControlFlow<()> {
        // In a volume that wasn't closed, clusters may be told of before they are counted as used.
        if self.is_closed {
            match Space::new(self.mft) {
                Ok(space) => self.space = Some(space),
                Err(problem) => self.found.problem(problem)?,
            }
        }
        let Scan { mft, space, .. } = self;
        match Bitmap::read(mft, &mut |attribute| claim(space, mft, 0, attribute)) {
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
                self.found.problem(TableError::damaged(
                    "the $MFT's runlist",
                    self.mft.own_at(),
                    "all of its records",
                    found,
                ))?;
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
        self.tell_early_names()?;
        let space = self.space.take().into_iter();
        let mut wrong = space.flat_map(|space| space.contradictions(self.mft));
        wrong.try_for_each(|problem| self.found.problem(problem))?;
        let Some(mut indexes) = self.indexes.take() else { return ControlFlow::Continue(()) };
        indexes
            .read_blocks(self.mft, self.content_bytes)
            .into_iter()
            .try_for_each(|problem| self.found.problem(problem))?;
        indexes.contradictions(self.mft).into_iter().try_for_each(|problem| self.found.problem(problem))
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
            let Some(header) = Header::parse(record).filter(|header| header.is_in_use() && header.is_base()) else {
                continue;
            };
            let reference = Reference { number, sequence: header.sequence };
            if header.is_directory() {
                self.directories.add(reference);
            }
            if number < FIRST_FILE && number != ROOT {
                self.system.push(reference);
            }
        }
        self.looked_at = first + (bytes.len() / record_bytes) as u64;
        let records = (first..).zip(bytes.chunks_exact_mut(record_bytes));
        for (number, record) in records {
            match number >= FIRST_FILE || number == ROOT {
                true => self.record(record, number)?,
                false => self.system_record(record, number)?,
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
        if !self.in_use.is_empty() && !self.in_use.has(number) {
            let what = "a file record that is free by $MFT's bitmap";
            self.found.problem(TableError::damaged(what, at + 22, "no flag", "a record in use"))?;
        }
        if !header.is_base() {
            // Read with the file that it belongs to, unless that is the system's.
            if !self.system.contains(&header.base) {
                self.extensions.set(number);
            } else if let Ok(record) = Record::open(bytes, number, at) {
                Attributes::of(record).flatten().for_each(|attribute| self.claim(&record, &attribute));
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
                claim(&mut self.space, self.mft, number, &list);
                return match Listed::new(self.mft, &record, &list) {
                    Ok(listed) => self.keep(listed),
                    Err(problem) => self.found.problem(problem),
                };
            }
            Err(problem) => return self.found.problem(problem),
        }
        self.begin_file();
        let mut whole = Ok(());
        for attribute in Attributes::of(record) {
            match attribute {
                Ok(attribute) => {
                    let taken = self.file.take(&attribute, &self.mft.geometry, self.wanted);
                    self.problems.extend(taken.err());
                    let indexed = self.indexes.as_mut().map(|indexes| indexes.take(&attribute, self.mft));
                    self.problems.extend(indexed.and_then(Result::err));
                    claim(&mut self.space, self.mft, number, &attribute);
                }
                Err(problem) => whole = Err(problem),
            }
        }
        self.tell(&record, whole)
    }

    /// A record of one of the system's files, which isn't told, but says whether all is well.
    fn system_record(&mut self, bytes: &mut [u8], number: u64) -> ControlFlow<()> {
        let at = self.mft.at(number).unwrap_or(0);
        let is_there = Header::parse(bytes).is_some_and(|header| header.is_in_use() && header.is_base());
        // The first was told of when the volume was opened; one that couldn't be read isn't among those that are there any more.
        if number == 0 || !self.is_closed || !is_there && !self.in_use.has(number) {
            return ControlFlow::Continue(());
        }
        let record = match Record::open(bytes, number, at) {
            Ok(record) => record,
            Err(problem) => return self.found.problem(problem),
        };
        if (1..MIRRORED).contains(&number)
            && let Err(problem) = self.mft.check_mirror(number)
        {
            self.found.problem(problem)?;
        }
        let mut letters = (number == CAPITALS).then(Stream::default);
        for attribute in Attributes::of(record) {
            let taken = attribute.and_then(|attribute| {
                self.claim(&record, &attribute);
                match &mut letters {
                    Some(letters) if attribute.kind == kind::DATA && attribute.name.is_empty() => {
                        letters.take(&attribute, &self.mft.geometry)
                    }
                    _ => Ok(()),
                }
            });
            if let Err(problem) = taken {
                return self.found.problem(problem);
            }
        }
        match letters {
            Some(letters) if letters.size != CAPITALS_BYTES => {
                let what = "the size of $UpCase";
                self.found.problem(TableError::damaged(what, at, CAPITALS_BYTES, letters.size))
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn begin_file(&mut self) {
        self.file.clear();
        self.indexes.iter_mut().for_each(Indexes::clear);
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
            self.begin_file();
            let Scan { file, problems, mft, wanted, indexes, space, .. } = self;
            let number = one.number();
            let whole = one.attributes(&loaded, &mut |attribute| {
                problems.extend(file.take(attribute, &mft.geometry, *wanted).err());
                let indexed = indexes.as_mut().map(|indexes| indexes.take(attribute, mft));
                problems.extend(indexed.and_then(Result::err));
                claim(space, mft, number, attribute);
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
        let is_whole = whole.is_ok();
        let is_told = is_whole || is_directory;
        let links = u32::from(record.header.links);
        if whole.is_ok() && self.problems.is_empty() && self.file.name_count() != links {
            let what = format!("the link count of file {}", record.number);
            let expected = format!("{}, as it has names", self.file.name_count());
            self.problems.push(TableError::damaged(what, record.at + LINKS_AT, expected, links));
        }
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
        if is_whole {
            let added = self.indexes.as_mut().map(|indexes| indexes.add(record.reference(), self.mft));
            self.problems.extend(added.and_then(Result::err));
            if let Some(indexes) = self.indexes.as_mut().filter(|indexes| indexes.is_full()) {
                self.problems.extend(indexes.read_blocks(self.mft, self.content_bytes));
            }
        }
        if is_told {
            let inode = self.file.finish(record, self.mft, self.wanted, &mut self.problems);
            let content_bytes = inode.extents.iter().map(|extent| extent.length).fold(0, u64::saturating_add);
            self.content_bytes = self.content_bytes.saturating_add(content_bytes);
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

    /// Claims the clusters of an attribute in a record of one of the system's files. Those of the $MFT were claimed before.
    fn claim(&mut self, record: &Record<'_>, attribute: &Attribute<'_>) {
        let file = if record.header.is_base() { record.reference() } else { record.header.base };
        if file.number > 0 && self.system.contains(&file) {
            claim(&mut self.space, self.mft, file.number, attribute);
        }
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

/// Claims the clusters of an attribute of a file.
fn claim<B>(space: &mut Option<Space>, mft: &Mft<B>, file: u64, attribute: &Attribute<'_>) {
    space.iter_mut().for_each(|space| space.claim(mft, file, attribute));
}

fn no_directory(directory: Reference, inode: u64, at: u64) -> TableError {
    let expected = format!("record {} with sequence {}", directory.number, directory.sequence);
    TableError::damaged(format!("the directory of file {inode}"), at, expected, "none")
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            attributes::{kind, tests::resident},
            index, mft, names, record,
        },
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

        fn incomplete(&mut self, _: Option<u64>) {}

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
        let attributes = [
            resident(kind::STANDARD_INFORMATION, 0, "", &[0; 48]),
            resident(kind::FILE_NAME, 1, "", &value),
            resident(kind::DATA, 2, "", b"content"),
        ];
        record::tests::on_disk(number, flags, &attributes.concat())
    }

    /// A volume with these records at their own numbers, and nothing between them; four are read at once.
    fn scanned(records: Vec<Vec<u8>>, left: Option<usize>) -> Kept {
        let mut all = vec![vec![0; 1024]; 40];
        let in_use = resident(kind::DATA, 0, "", &[0xff; 128]);
        all[5] = record::tests::on_disk(6, FILE, &in_use);
        for record in records {
            let number = usize::from(record[44]);
            all[number - 1] = record;
        }
        let (bytes, geometry) = mft::tests::volume(all);
        let mft = Mft::open(bytes, geometry, &mut Vec::new()).unwrap();
        let mut kept = Kept { left, ..Kept::default() };
        let mut scan = Scan::new(&mft, Wanted::default(), true, &mut kept);
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
            ],
            None,
        );
        assert_eq!(kept.inodes, [5, 24, 25, 26, 30, 31, 32]);
        assert_eq!(kept.names, [(5, 30, "directory".to_owned())]);
        assert_eq!(kept.problems.len(), 5, "{:?}", kept.problems);
    }

    /// A directory whose index has these names of files.
    fn with_index(number: u32, names: &[(u64, &str)]) -> Vec<u8> {
        let directory = Reference { number: number.into(), sequence: 7 };
        let mut index = vec![0; 16];
        index.extend(16_u32.to_le_bytes());
        index.extend([0; 12]);
        let file = |number| Reference { number, sequence: 7 };
        names
            .iter()
            .for_each(|(number, name)| index.extend(index::tests::entry_of(directory, file(*number), name, None)));
        index.extend(index::tests::entry(directory, 0, "", None));
        let value = names::tests::on_disk(Reference { number: 5, sequence: 7 }, "directory", 1);
        let attributes = [
            resident(kind::STANDARD_INFORMATION, 0, "", &[0; 48]),
            resident(kind::FILE_NAME, 1, "", &value),
            resident(kind::INDEX_ROOT, 2, "$I30", &index),
        ];
        record::tests::on_disk(number, DIRECTORY, &attributes.concat())
    }

    #[test]
    fn names_are_those_of_the_index_of_their_directory() {
        let told = |of_files: &[(u32, u64, &str)], of_index: &[(u64, &str)]| {
            let files = of_files.iter().map(|(number, directory, name)| named(*number, FILE, *directory, 7, name));
            let others = [named(5, DIRECTORY, 5, 7, "."), with_index(30, of_index)];
            scanned(others.into_iter().chain(files).collect(), None)
        };
        let files = [(24, 30, "before"), (31, 30, "behind"), (32, 5, "in the root")];
        let sound = told(&files, &[(31, "behind"), (24, "before")]);
        assert_eq!((sound.names.len(), &sound.problems), (4, &Vec::new()));
        for (of_index, expected) in [
            (&[(24, "before"), (31, "beyond")][..], "the name of file 31 in the index of directory 30"),
            (&[(24, "before"), (32, "behind")], "the name of file 32 in the index of directory 30"),
            (&[(24, "before"), (31, "behind"), (38, "behind")], ""),
            (&[(24, "before")], "the index of directory 30"),
            (&[(24, "before"), (24, "before")], "the index of directory 30"),
            (&[(24, "before"), (31, "behind"), (32, "x")], "expected none, found \"x\""),
        ] {
            let kept = told(&files, of_index);
            assert_eq!((kept.inodes.len(), kept.names.len()), (5, 4), "all comes as its record has it");
            let problems = usize::from(!expected.is_empty());
            assert_eq!(kept.problems.len(), problems, "{of_index:?}: {:?}", kept.problems);
            assert!(kept.problems.iter().all(|problem| problem.contains(expected)), "{:?}", kept.problems);
        }
        // A file that came later to the record, and a name that only DOS programs see.
        let mut records: Vec<_> =
            files.iter().map(|(number, directory, name)| named(*number, FILE, *directory, 7, name)).collect();
        let dos = records[0].windows(12).position(|window| window == b"b\0e\0f\0o\0r\0e\0").unwrap() - 1;
        (records[0][dos], records[1][16]) = (2, 8);
        let others = [named(5, DIRECTORY, 5, 7, "."), with_index(30, &[(24, "before"), (31, "behind")])];
        let kept = scanned(others.into_iter().chain(records).collect(), None);
        assert!(
            kept.problems[0].contains("expected \"before\" for DOS alone, found \"before\""),
            "{:?}",
            kept.problems
        );
        assert!(kept.problems[1].contains("the sequence number of file 31"), "{:?}", kept.problems);
        assert!(kept.problems[1].contains("expected 8, found 7") && kept.problems.len() == 2, "{:?}", kept.problems);
        // The byte is that of the name in the index.
        let kept = told(&files, &[(24, "before"), (31, "beyond")]);
        let index = with_index(30, &[(24, "before"), (31, "beyond")]);
        let name: Vec<u8> = "beyond".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let within = index.windows(name.len()).position(|window| window == name).unwrap() as u64;
        let expected =
            format!("at byte {} is damaged: expected \"behind\", found \"beyond\"", 4096 + 30 * 1024 + within);
        assert!(kept.problems[0].contains(&expected), "{expected}: {:?}", kept.problems);
    }

    #[test]
    fn what_is_the_systems_is_left_out() {
        let kept = scanned(
            vec![
                named(5, DIRECTORY, 5, 7, "."),
                named(9, FILE, 5, 7, "$Secure"),
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
}
