//! Which sample goes into which shard, and where: pure, by names and sizes alone.
//!
//! The sizes of all files are known before the first is read, and with them the place of every byte of every shard. So
//! files can be written as they come, in whatever order the disk gives them, and nothing waits in memory.

use std::{collections::HashSet, ops::Range};

use super::{key::key_len, shuffle::shuffled};
use crate::tar::{archive_len, content_len};

/// How samples are dealt out.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Samples of a shard, at most.
    pub max_count: u64,
    /// Bytes of a shard, at most; a sample that is larger has a shard of its own.
    pub max_bytes: u64,
    /// How many bytes the shuffle looks ahead; 0 keeps the order of reading.
    pub reach: u64,
    /// What the shuffle begins with.
    pub seed: u64,
}

/// A file of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// Its path from the root of the tree.
    pub name: Vec<u8>,
    /// Bytes of content.
    pub size: u64,
}

/// A file that goes into a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Member {
    name: Range<usize>,
    pub(super) size: u64,
    /// Bytes of the header before the content.
    pub(super) header: u64,
    /// Where the header begins in the shard.
    pub(super) at: u64,
    pub(super) shard: u32,
    pub(super) sample: u32,
}

impl Member {
    /// Where the content begins.
    pub(super) fn content_at(&self) -> u64 {
        self.at + self.header
    }

    /// Header, content, and zeros up to a whole block.
    pub(super) fn bytes(&self) -> u64 {
        self.header + content_len(self.size)
    }
}

/// One shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shard {
    /// Its samples, which are numbered in the order of the shards.
    pub(super) samples: Range<usize>,
    /// Bytes of its members, side by side.
    pub(super) bytes: u64,
}

impl Shard {
    /// The length of the file.
    pub(super) fn file_len(&self) -> u64 {
        archive_len(self.bytes)
    }
}

/// A file that is part of no sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeftOut {
    /// Its name has no extension, or no key: readers of shards would skip it, or misread it.
    NoSample {
        /// Its path from the root.
        name: Vec<u8>,
    },
    /// Its sample has the extension already, but for capitals: readers of shards would stop there.
    SameExtension {
        /// Its path from the root.
        name: Vec<u8>,
        /// The file that has it.
        other: Vec<u8>,
    },
}

impl LeftOut {
    /// Its path from the root.
    pub fn name(&self) -> &[u8] {
        match self {
            Self::NoSample { name } | Self::SameExtension { name, .. } => name,
        }
    }
}

/// Every byte of a data set that is to be written.
#[derive(Debug, Default)]
pub struct Layout {
    /// In the order of the shards, those of a sample together.
    pub(super) members: Vec<Member>,
    /// The members of each sample.
    pub(super) samples: Vec<Range<usize>>,
    pub(super) shards: Vec<Shard>,
    names: Vec<u8>,
    /// Members by name.
    by_name: Vec<u32>,
    /// Files of the plan that are no members.
    passed_over: HashSet<Vec<u8>>,
}

/// A file while its place is sought.
struct Entry {
    name: Range<usize>,
    key_len: usize,
    size: u64,
    header: u64,
    /// When it is read.
    turn: u32,
}

impl Entry {
    fn bytes(&self) -> u64 {
        self.header + content_len(self.size)
    }
}

/// Files sample by sample.
struct Groups {
    names: Vec<u8>,
    files: Vec<Entry>,
    /// Those of each sample, in the order of reading.
    samples: Vec<Range<usize>>,
}

impl Groups {
    fn new(
        files: impl IntoIterator<Item = Planned>,
        mut header_len: impl FnMut(&[u8], u64) -> u64,
    ) -> (Self, Vec<LeftOut>) {
        let (mut names, mut entries, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
        for Planned { name, size } in files {
            let Some(key_len) = key_len(&name) else {
                left_out.push(LeftOut::NoSample { name });
                continue;
            };
            let (start, turn, header) = (names.len(), entries.len() as u32, header_len(&name, size));
            names.extend_from_slice(&name);
            entries.push(Entry { name: start..names.len(), key_len, size, header, turn });
        }
        let mut groups = Self { names, files: Vec::with_capacity(entries.len()), samples: Vec::new() };
        entries.sort_by(|one, other| groups.parts(one).cmp(&groups.parts(other)));
        let mut extensions: HashSet<Vec<u8>> = HashSet::new();
        for entry in entries {
            let key = |entry: &Entry| groups.parts(entry).0;
            let sample = match groups.samples.last() {
                Some(last) if key(&groups.files[last.start]) == key(&entry) => last.clone(),
                _ => {
                    extensions.clear();
                    groups.files.len()..groups.files.len()
                }
            };
            if !extensions.insert(groups.parts(&entry).1.to_ascii_lowercase()) {
                left_out.push(groups.same_extension(&entry, sample));
                continue;
            }
            if sample.is_empty() {
                groups.samples.push(sample);
            }
            groups.files.push(entry);
            if let Some(last) = groups.samples.last_mut() {
                last.end += 1;
            }
        }
        let Self { files, samples, .. } = &mut groups;
        samples.sort_by_key(|sample| files[sample.clone()].iter().map(|entry| entry.turn).min());
        (groups, left_out)
    }

    /// Key and extension.
    fn parts(&self, entry: &Entry) -> (&[u8], &[u8]) {
        self.names[entry.name.clone()].split_at(entry.key_len)
    }

    fn same_extension(&self, entry: &Entry, sample: Range<usize>) -> LeftOut {
        let name = |entry: &Entry| self.names[entry.name.clone()].to_vec();
        let is_same = |other: &&Entry| self.parts(other).1.eq_ignore_ascii_case(self.parts(entry).1);
        let other = self.files[sample].iter().find(is_same).map(name).unwrap_or_default();
        LeftOut::SameExtension { name: name(entry), other }
    }

    fn sizes(&self) -> Vec<u64> {
        let size = |sample: &Range<usize>| self.files[sample.clone()].iter().map(Entry::bytes).sum();
        self.samples.iter().map(size).collect()
    }
}

impl Layout {
    /// Deals out `files`, which come in the order of reading; `header_len` tells the length of a member's header by its name and
    /// size. A sample has the turn of the first of its files.
    pub fn new(
        files: impl IntoIterator<Item = Planned>,
        rules: Rules,
        header_len: impl FnMut(&[u8], u64) -> u64,
    ) -> (Self, Vec<LeftOut>) {
        let (groups, left_out) = Groups::new(files, header_len);
        let mut layout = Self::default();
        for sample in shuffled(&groups.sizes(), rules.reach, rules.seed) {
            layout.append(&groups.files[groups.samples[sample as usize].clone()], rules);
        }
        layout.names = groups.names;
        layout.passed_over = left_out.iter().map(|file| file.name().to_vec()).collect();
        let mut by_name: Vec<u32> = (0..layout.members.len() as u32).collect();
        by_name.sort_by(|&one, &other| layout.name_of(one as usize).cmp(layout.name_of(other as usize)));
        layout.by_name = by_name;
        (layout, left_out)
    }

    /// Puts a sample behind the last, or into a new shard where that is full.
    fn append(&mut self, files: &[Entry], rules: Rules) {
        let bytes: u64 = files.iter().map(Entry::bytes).sum();
        let has_room = |shard: &Shard| {
            (shard.samples.len() as u64) < rules.max_count && archive_len(shard.bytes + bytes) <= rules.max_bytes
        };
        let sample = self.samples.len();
        if !self.shards.last().is_some_and(has_room) {
            self.shards.push(Shard { samples: sample..sample, bytes: 0 });
        }
        let number = self.shards.len() - 1;
        let shard = &mut self.shards[number];
        let first = self.members.len();
        for entry in files {
            self.members.push(Member {
                name: entry.name.clone(),
                size: entry.size,
                header: entry.header,
                at: shard.bytes,
                shard: number as u32,
                sample: sample as u32,
            });
            shard.bytes += entry.bytes();
        }
        shard.samples.end += 1;
        self.samples.push(first..self.members.len());
    }

    /// The name of a member.
    pub(super) fn name_of(&self, member: usize) -> &[u8] {
        &self.names[self.members[member].name.clone()]
    }

    /// The extension of a member, without the dot.
    pub(super) fn extension_of(&self, member: usize) -> &[u8] {
        let name = self.name_of(member);
        &name[key_len(name).map_or(name.len(), |len| len + 1)..]
    }

    /// The member of that name.
    pub(super) fn find(&self, name: &[u8]) -> Option<usize> {
        let found = self.by_name.binary_search_by(|&member| self.name_of(member as usize).cmp(name));
        found.ok().map(|at| self.by_name[at] as usize)
    }

    /// Whether the plan had a file of that name, which may be no member.
    pub(super) fn knows(&self, name: &[u8]) -> bool {
        self.passed_over.contains(name) || self.find(name).is_some()
    }

    /// Samples that are to be written.
    pub fn samples(&self) -> usize {
        self.samples.len()
    }

    /// Shards that are to be written.
    pub fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Bytes of all shards.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(Shard::file_len).sum()
    }

    /// Leaves out the samples for which `is_whole` is false, and moves the others of their shards to the front. Gives the moves,
    /// shard by shard and in the order in which none overwrites what is still to be moved.
    pub(super) fn mend(&mut self, is_whole: impl Fn(usize) -> bool) -> Vec<Move> {
        let mut moves = Vec::new();
        let old = std::mem::take(self);
        let mut new = Self { names: old.names, ..Self::default() };
        for (number, shard) in old.shards.into_iter().enumerate() {
            let first = new.samples.len();
            let mut at = 0;
            for sample in shard.samples.filter(|&sample| is_whole(sample)) {
                let members = old.samples[sample].clone();
                let start = new.members.len();
                for member in &old.members[members] {
                    let bytes = member.bytes();
                    if member.at != at {
                        moves.push(Move { shard: number, from: member.at, to: at, bytes });
                    }
                    new.members.push(Member { at, sample: new.samples.len() as u32, ..member.clone() });
                    at += bytes;
                }
                new.samples.push(start..new.members.len());
            }
            new.shards.push(Shard { samples: first..new.samples.len(), bytes: at });
        }
        *self = new;
        moves
    }
}

/// Bytes of a shard that go nearer to its start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Move {
    pub(super) shard: usize,
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Rules = Rules { max_count: u64::MAX, max_bytes: u64::MAX, reach: 0, seed: 0 };

    fn deal(names: &[(&str, u64)], rules: Rules) -> (Layout, Vec<LeftOut>) {
        let files = names.iter().map(|&(name, size)| Planned { name: name.into(), size });
        Layout::new(files, rules, |_, _| 512)
    }

    /// The names of each shard.
    fn shards(layout: &Layout) -> Vec<String> {
        let name = |member: usize| String::from_utf8_lossy(layout.name_of(member)).into_owned();
        let sample = |sample: usize| layout.samples[sample].clone().map(name).collect::<Vec<_>>().join("+");
        layout.shards.iter().map(|shard| shard.samples.clone().map(sample).collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn files_of_a_key_stay_together_wherever_they_lie() {
        let files = [("b.jpg", 9), ("d/a.cls", 1), ("a.txt", 1), ("a-b.txt", 1), ("d/a.jpg", 1), ("a.jpg", 1)];
        let (layout, left_out) = deal(&files, ALL);
        assert_eq!(shards(&layout), ["b.jpg d/a.cls+d/a.jpg a.jpg+a.txt a-b.txt"]);
        assert_eq!(left_out, []);
    }

    #[test]
    fn members_lie_side_by_side() {
        let (layout, _) = deal(&[("b.x", 513), ("a.x", 0), ("a.y", 512)], ALL);
        let places: Vec<_> = layout.members.iter().map(|member| (member.at, member.bytes())).collect();
        assert_eq!(places, [(0, 1536), (1536, 512), (2048, 1024)]);
        assert_eq!((layout.shards[0].bytes, layout.bytes()), (3072, 10240));
        for member in 0..3 {
            assert_eq!(layout.find(layout.name_of(member)), Some(member));
        }
        assert_eq!(layout.find(b"a"), None);
        assert_eq!(layout.extension_of(2), b"y");
    }

    #[test]
    fn shards_end_by_count_and_by_bytes() {
        let files = [("a.x", 1), ("a.y", 1), ("b.x", 1), ("c.x", 1), ("d.x", 30_000), ("e.x", 1), ("f.x", 1)];
        let (layout, _) = deal(&files, Rules { max_count: 2, ..ALL });
        assert_eq!(shards(&layout), ["a.x+a.y b.x", "c.x d.x", "e.x f.x"]);
        // 9 blocks of 1 KiB and the end fit into 10240 bytes; a larger sample is alone.
        let (layout, _) = deal(&files, Rules { max_bytes: 10_240, ..ALL });
        assert_eq!(shards(&layout), ["a.x+a.y b.x c.x", "d.x", "e.x f.x"]);
        let many: Vec<_> = (0..10).map(|number| (format!("{number}.x"), 1)).collect();
        let many: Vec<_> = many.iter().map(|(name, size)| (&**name, *size)).collect();
        let (layout, _) = deal(&many, Rules { max_bytes: 10_240, ..ALL });
        assert_eq!(layout.shards.iter().map(|shard| shard.samples.len()).collect::<Vec<_>>(), [9, 1]);
        assert!(layout.shards.iter().all(|shard| shard.file_len() == 10_240));
    }

    #[test]
    fn shuffling_keeps_samples_whole() {
        let names: Vec<String> = (0..100).flat_map(|key| [format!("{key}.a"), format!("{key}.b")]).collect();
        let files: Vec<_> = names.iter().map(|name| (&**name, 100)).collect();
        let rules = Rules { reach: u64::MAX, max_count: 7, seed: 3, ..ALL };
        let (layout, _) = deal(&files, rules);
        let (again, _) = deal(&files, rules);
        assert_eq!(shards(&layout), shards(&again));
        assert_ne!(shards(&layout), shards(&deal(&files, Rules { seed: 4, ..rules }).0));
        assert_eq!((layout.samples(), layout.shards()), (100, 15));
        for sample in &layout.samples {
            let key = |member: usize| layout.name_of(member).split(|&byte| byte == b'.').next().unwrap();
            assert_eq!((sample.len(), key(sample.start)), (2, key(sample.end - 1)));
        }
    }

    #[test]
    fn what_readers_would_trip_over_is_left_out() {
        let (layout, left_out) = deal(&[("a.JPG", 1), ("README", 1), ("a.jpg", 1), ("b.jpg", 1), ("a.jpg", 1)], ALL);
        assert_eq!(shards(&layout), ["a.JPG b.jpg"]);
        let same = LeftOut::SameExtension { name: b"a.jpg".to_vec(), other: b"a.JPG".to_vec() };
        assert_eq!(left_out, [LeftOut::NoSample { name: b"README".to_vec() }, same.clone(), same]);
        let known = ["README", "a.jpg", "a.JPG", "new.jpg"].map(|name| layout.knows(name.as_bytes()));
        assert_eq!(known, [true, true, true, false]);
    }

    #[test]
    fn mending_closes_gaps() {
        let files = [("a.x", 1), ("a.y", 1), ("b.x", 1), ("c.x", 513), ("d.x", 1), ("e.x", 1)];
        let (mut layout, _) = deal(&files, Rules { max_count: 4, ..ALL });
        assert_eq!(shards(&layout), ["a.x+a.y b.x c.x d.x", "e.x"]);
        let moves = layout.mend(|sample| sample != 1);
        assert_eq!(shards(&layout), ["a.x+a.y c.x d.x", "e.x"]);
        let of = |from, to, bytes| Move { shard: 0, from, to, bytes };
        assert_eq!(moves, [of(3072, 2048, 1536), of(4608, 3584, 1024)]);
        assert_eq!(layout.shards[0].bytes, 4608);
        layout.mend(|sample| sample != 3);
        assert_eq!(shards(&layout), ["a.x+a.y c.x d.x", ""]);
        assert_eq!(layout.mend(|_| true), []);
    }
}
