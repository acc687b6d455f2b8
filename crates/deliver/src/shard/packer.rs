//! [`Packer`]: files as they come, each to its place.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs::File,
    io::{self, Read},
    os::{fd::AsFd as _, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
};

use onesweep::{Kind, Metadata, Route, SweptFile};
use onesweep_sys::files;

use super::{
    error::{ShardError, ShardWarning},
    index,
    layout::Layout,
    store::Store,
};
use crate::tar::PlainHeaders;

/// Bytes that are copied at a time.
const PIECE: usize = 1 << 20;
/// Files up to this size are written in one call with their header.
const SMALL: usize = 128 << 10;

const ALLOCATE: &str = "make room for the shards";
const WRITE: &str = "write the shards";
const COMMIT: &str = "put the finished shards in place";
const INDEX: &str = "index.json";

/// What a data set holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ShardTotals {
    /// Shards.
    pub shards: u64,
    /// Samples.
    pub samples: u64,
    /// Files.
    pub members: u64,
    /// Bytes of their content.
    pub content_bytes: u64,
    /// Bytes of all shards.
    pub shard_bytes: u64,
    /// Samples that were planned and are not there.
    pub incomplete_samples: u64,
    /// Shards without a list of places, since names have spaces.
    pub without_lines: u64,
}

/// What became of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Awaited,
    /// It isn't there, which was told.
    Failed,
    Packed,
}

/// Writes a data set. Dropping it without [`Packer::finish`] leaves nothing.
pub struct Packer<S: Store> {
    layout: Layout,
    store: S,
    /// The start of all paths.
    root: PathBuf,
    out: PathBuf,
    name: String,
    headers: PlainHeaders,
    states: Vec<State>,
    /// The member that has the content of a file, by the name that it was handed over with, where that is none.
    stand_ins: HashMap<PathBuf, usize>,
    strangers: u64,
    buffer: Vec<u8>,
}

impl<S: Store> Packer<S> {
    /// Makes all files. `root` is what the paths of all items begin with, `out` the store as people know it, `name` what shards are
    /// called, before their numbers.
    pub fn new(layout: Layout, store: S, root: &Path, out: &Path, name: &str) -> Result<Self, ShardError> {
        let mut packer = Self {
            states: vec![State::Awaited; layout.members.len()],
            layout,
            store,
            root: root.to_owned(),
            out: out.to_owned(),
            name: name.to_owned(),
            headers: PlainHeaders::new(),
            stand_ins: HashMap::new(),
            strangers: 0,
            buffer: Vec::new(),
        };
        for shard in 0..packer.layout.shards.len() {
            let (name, bytes) = (packer.shard_name(shard), packer.layout.shards[shard].file_len());
            packer.store.make(&name, bytes).map_err(|source| packer.failed(ALLOCATE, source))?;
        }
        Ok(packer)
    }

    fn shard_name(&self, number: usize) -> String {
        format!("{}-{number:06}.tar", self.name)
    }

    fn failed(&self, step: &'static str, source: io::Error) -> ShardError {
        ShardError::Io { path: self.out.clone(), step, source }
    }

    /// Files that came and were not in the plan.
    pub fn strangers(&self) -> u64 {
        self.strangers
    }

    /// Writes a file with all its names. Whatever is no regular file is passed over.
    ///
    /// After an error nothing more can be written.
    pub fn pack(&mut self, mut item: SweptFile) -> Result<Vec<ShardWarning>, ShardError> {
        if item.metadata().kind != Kind::File {
            return Ok(Vec::new());
        }
        let paths = std::iter::once(item.path()).chain(item.links().iter().map(PathBuf::as_path));
        self.strangers += paths.clone().filter(|path| !self.layout.knows(self.name_of(path))).count() as u64;
        let found: Vec<(usize, PathBuf)> =
            paths.filter_map(|path| self.member_of(path).map(|member| (member, path.to_owned()))).collect();
        let Some(((first, path), others)) = found.split_first() else { return Ok(Vec::new()) };
        let packed = match item.linked_to() {
            Some(earlier) => match (self.member_of(earlier), self.stand_ins.get(earlier)) {
                (None, None) => self.pack_from_file(*first, path, &item),
                (member, stand_in) => {
                    let earlier = member.or(stand_in.copied());
                    self.pack_again(*first, path, earlier, item.metadata().mtime.seconds)
                }
            },
            None => self.pack_content(*first, path, &mut item),
        };
        let mut warnings = Vec::new();
        let outcome = packed.map_err(|source| self.failed(WRITE, source))?;
        self.note(*first, outcome, &mut warnings);
        let handed_over = item.linked_to().unwrap_or(item.path());
        if item.metadata().nlink > 1 && self.states[*first] == State::Packed && self.member_of(handed_over).is_none() {
            self.stand_ins.insert(handed_over.to_owned(), *first);
        }
        for (other, path) in others {
            let packed = self.pack_again(*other, path, Some(*first), item.metadata().mtime.seconds);
            let outcome = packed.map_err(|source| self.failed(WRITE, source))?;
            self.note(*other, outcome, &mut warnings);
        }
        Ok(warnings)
    }

    /// Takes note of a file whose failure was told.
    pub fn give_up(&mut self, path: &Path) {
        if let Some(member) = self.member_of(path) {
            self.states[member] = State::Failed;
        }
    }

    fn member_of(&self, path: &Path) -> Option<usize> {
        self.layout.find(self.name_of(path))
    }

    /// A path from the root of the tree.
    fn name_of<'a>(&self, path: &'a Path) -> &'a [u8] {
        path.strip_prefix(&self.root).unwrap_or(path).as_os_str().as_bytes()
    }

    fn note(&mut self, member: usize, outcome: Result<(), ShardWarning>, warnings: &mut Vec<ShardWarning>) {
        self.states[member] = if outcome.is_ok() { State::Packed } else { State::Failed };
        warnings.extend(outcome.err());
    }

    /// Errors of the outer result are the store's.
    fn pack_content(
        &mut self,
        member: usize,
        path: &Path,
        item: &mut SweptFile,
    ) -> io::Result<Result<(), ShardWarning>> {
        let size = self.layout.members[member].size;
        let changed = || Ok(Err(ShardWarning::Changed { path: path.to_owned() }));
        if item.metadata().size != size {
            return changed();
        }
        let mtime = item.metadata().mtime.seconds;
        match item.bytes() {
            Some(bytes) if bytes.len() as u64 != size => changed(),
            Some(bytes) => self.write_member(member, mtime, bytes).map(Ok),
            // All of it is one hole, and so is its place.
            None if item.route() == Route::NoRead => self.write_member(member, mtime, &[]).map(Ok),
            None => {
                let mut reader = item.reader();
                match self.write_stream(member, &mut reader)? {
                    Ok(true) => self.write_member(member, mtime, &[]).map(Ok),
                    Ok(false) => changed(),
                    Err(source) => Ok(Err(ShardWarning::Read { path: path.to_owned(), source })),
                }
            }
        }
    }

    /// The content of a file that was handed over by a name that is no member: it is read once more.
    fn pack_from_file(&mut self, member: usize, path: &Path, item: &SweptFile) -> io::Result<Result<(), ShardWarning>> {
        let changed = || Ok(Err(ShardWarning::Changed { path: path.to_owned() }));
        let unread = |source| Ok(Err(ShardWarning::Read { path: path.to_owned(), source }));
        let expected = item.metadata();
        let is_as_it_was = |file: &File| -> io::Result<bool> {
            let now = Metadata::of(Kind::File, &files::statx_fd(file.as_fd())?);
            let facts = |of: &Metadata| (of.ino, of.size, of.mtime, of.ctime);
            Ok(facts(&now) == facts(expected))
        };
        let mut file = match files::open_file_untouched(item.open_path()) {
            Ok(file) => File::from(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Err(ShardWarning::Vanished { path: path.to_owned() }));
            }
            Err(error) => return unread(error),
        };
        if expected.size != self.layout.members[member].size {
            return changed();
        }
        match self.write_stream(member, &mut file)? {
            Ok(true) => {}
            Ok(false) => return changed(),
            Err(error) => return unread(error),
        }
        match is_as_it_was(&file) {
            Ok(true) => self.write_member(member, expected.mtime.seconds, &[]).map(Ok),
            Ok(false) => changed(),
            Err(error) => unread(error),
        }
    }

    /// A header, and content behind it.
    fn write_member(&mut self, member: usize, mtime: i64, content: &[u8]) -> io::Result<()> {
        let placed = &self.layout.members[member];
        let (shard, at, behind) = (placed.shard as usize, placed.at, placed.content_at());
        let header = self.headers.of(self.layout.name_of(member), placed.size, mtime);
        debug_assert_eq!(header.len() as u64, placed.header, "as long as it was planned");
        self.buffer.clear();
        self.buffer.extend_from_slice(header);
        if content.len() <= SMALL {
            self.buffer.extend_from_slice(content);
            return self.store.write(shard, &self.buffer, at);
        }
        self.store.write(shard, &self.buffer, at)?;
        self.store.write(shard, content, behind)
    }

    /// Writes what a reader gives; false when that isn't as much as was planned.
    fn write_stream(&mut self, member: usize, reader: &mut impl Read) -> io::Result<io::Result<bool>> {
        let placed = &self.layout.members[member];
        let (shard, size, start) = (placed.shard as usize, placed.size, placed.content_at());
        self.buffer.resize(PIECE, 0);
        let mut done = 0;
        loop {
            // At the end one byte more is asked for: it must not be there.
            let wanted = (size - done).clamp(1, PIECE as u64) as usize;
            let got = match reader.read(&mut self.buffer[..wanted]) {
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(Ok(false)),
                Err(error) => return Ok(Err(error)),
            };
            if got == 0 || done == size {
                return Ok(Ok(got == 0 && done == size));
            }
            self.store.write(shard, &self.buffer[..got], start + done)?;
            done += got as u64;
        }
    }

    /// The content of a member that is packed, under another name.
    fn pack_again(
        &mut self,
        member: usize,
        path: &Path,
        first: Option<usize>,
        mtime: i64,
    ) -> io::Result<Result<(), ShardWarning>> {
        let path = || path.to_owned();
        let Some(first) = first.filter(|&first| self.states[first] == State::Packed) else {
            return Ok(Err(ShardWarning::OtherName { path: path() }));
        };
        let (from, to) = (&self.layout.members[first], &self.layout.members[member]);
        if from.size != to.size {
            return Ok(Err(ShardWarning::Changed { path: path() }));
        }
        let (from, to, size) =
            ((from.shard as usize, from.content_at()), (to.shard as usize, to.content_at()), to.size);
        self.copy(from, to, size)?;
        self.write_member(member, mtime, &[]).map(Ok)
    }

    /// Copies bytes from one place to another; within a shard to one that is nearer to its start, or lies apart.
    fn copy(&mut self, from: (usize, u64), to: (usize, u64), bytes: u64) -> io::Result<()> {
        self.buffer.resize(PIECE, 0);
        let mut done = 0;
        while done < bytes {
            let piece = (bytes - done).min(PIECE as u64);
            let buffer = &mut self.buffer[..piece as usize];
            self.store.read(from.0, buffer, from.1 + done)?;
            self.store.write(to.0, buffer, to.1 + done)?;
            done += piece;
        }
        Ok(())
    }

    /// The files that never came, and were not told of.
    pub fn vanished(&self) -> impl Iterator<Item = ShardWarning> + '_ {
        let awaited = self.states.iter().enumerate().filter(|(_, state)| **state == State::Awaited);
        awaited.map(|(member, _)| ShardWarning::Vanished {
            path: self.root.join(OsStr::from_bytes(self.layout.name_of(member))),
        })
    }

    /// Leaves out samples that are not whole, writes the index, and gives all files their names, that of the index last.
    pub fn finish(mut self) -> Result<ShardTotals, ShardError> {
        let planned = self.layout.samples();
        self.mend().map_err(|source| self.failed(WRITE, source))?;
        if self.layout.samples() == 0 {
            return Err(ShardError::Nothing { path: self.out });
        }
        let mut totals = ShardTotals {
            samples: self.layout.samples() as u64,
            incomplete_samples: (planned - self.layout.samples()) as u64,
            members: self.layout.members.len() as u64,
            content_bytes: self.layout.members.iter().map(|member| member.size).sum(),
            ..ShardTotals::default()
        };
        let mut finished = Vec::new();
        let mut names = Vec::new();
        for shard in 0..self.layout.shards.len() {
            if self.layout.shards[shard].samples.is_empty() {
                self.store.remove(shard).map_err(|source| self.failed(COMMIT, source))?;
                continue;
            }
            let name = self.shard_name(names.len());
            totals.shards += 1;
            totals.shard_bytes += self.layout.shards[shard].file_len();
            match index::lines(&self.layout, shard) {
                Some(text) => {
                    let name = format!("{}.idx", name.trim_end_matches(".tar"));
                    finished.push((self.write_text(&name, &text)?, name));
                }
                None => totals.without_lines += 1,
            }
            finished.push((shard, name.clone()));
            names.push(name);
        }
        let text = index::json(&self.layout, &self.name, &names);
        let index = self.write_text(INDEX, &text)?;
        self.store.sync().map_err(|source| self.failed(WRITE, source))?;
        for (file, name) in finished.iter().map(|(file, name)| (*file, name.as_str())).chain([(index, INDEX)]) {
            self.store.publish(file, name).map_err(|source| self.failed(COMMIT, source))?;
        }
        self.store.keep().map_err(|source| self.failed(COMMIT, source))?;
        Ok(totals)
    }

    fn mend(&mut self) -> io::Result<()> {
        let mut whole = vec![true; self.layout.samples()];
        for (member, state) in self.layout.members.iter().zip(&self.states) {
            whole[member.sample as usize] &= *state == State::Packed;
        }
        if whole.iter().all(|whole| *whole) {
            return Ok(());
        }
        let before: Vec<u64> = self.layout.shards.iter().map(|shard| shard.bytes).collect();
        let moves = self.layout.mend(|sample| whole[sample]);
        for step in moves {
            self.copy((step.shard, step.from), (step.shard, step.to), step.bytes)?;
        }
        for (number, before) in before.into_iter().enumerate() {
            let shard = &self.layout.shards[number];
            if shard.bytes != before {
                self.store.shorten(number, shard.bytes, shard.file_len())?;
            }
        }
        Ok(())
    }

    fn write_text(&mut self, name: &str, text: &[u8]) -> Result<usize, ShardError> {
        let made = self.store.make(name, text.len() as u64);
        let written = made.and_then(|file| self.store.write(file, text, 0).map(|()| file));
        written.map_err(|source| self.failed(WRITE, source))
    }
}

#[cfg(test)]
mod tests;
