//! What one directory adds to each summary, as a harvest finds it.

use std::hash::{DefaultHasher, Hash, Hasher};

use onesweep_sys::files::Stat;

use super::{
    command,
    declare::{Declared, Source},
    keys::Entry,
    tally::{GATHERED, Merge, Tally},
};
use crate::{
    code::{Reader, Writer},
    identity::NodeId,
    warden::wire::{all, id, put_all, put_id},
};

/// Bytes of lines that a command gets of a directory: some hundred thousand entries.
const LINES_BYTES_MAX: usize = 32 << 20;

/// A tally for each summary, in the order of their declaration.
pub type Tallies = Vec<Tally>;

/// What a directory adds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The directory itself, without its entries.
    pub itself: Tallies,
    /// Its entries, but for those below; of sums without inodes that have several names.
    pub own: Tallies,
    /// Inodes with several names, one for each name in it; those of one inode in the order of the names.
    pub linked: Vec<FoundName>,
    /// Summaries, as they stand among those declared, of which it isn't known what the directory adds, and why.
    pub failed: Vec<(u32, String)>,
}

impl Found {
    /// Of some summary it isn't known what the directory adds.
    pub fn is_unknown(&self) -> bool {
        self.own.iter().any(|tally| tally.unknown > 0)
    }

    /// Has each command that failed remember why.
    pub(crate) fn note_failures(&self, declared: &Declared) {
        for (at, why) in &self.failed {
            if let Some(Source::Command(command)) = declared.all().get(*at as usize).map(|one| &one.source) {
                command.note_failure(why);
            }
        }
    }

    /// Whether it tells of as many summaries as are declared.
    pub(crate) fn is_of(&self, declared: &Declared) -> bool {
        let linked = self.linked.iter().map(|name| &name.tallies);
        [&self.itself, &self.own].into_iter().chain(linked).all(|tallies| tallies.len() == declared.all().len())
    }

    pub(crate) fn put(&self, out: &mut Writer) {
        let Found { itself, own, linked, failed } = self;
        put_tallies(out, itself);
        put_tallies(out, own);
        put_all(out, linked, |out, FoundName { id, facts, tallies }| {
            put_id(out, *id);
            out.fixed(*facts);
            put_tallies(out, tallies);
        });
        put_all(out, failed, |out, (at, why)| {
            out.unsigned((*at).into());
            out.bytes(why.as_bytes());
        });
    }

    pub(crate) fn take(from: &mut Reader<'_>) -> Option<Found> {
        let (itself, own) = (tallies(from)?, tallies(from)?);
        let name =
            |from: &mut Reader<'_>| Some(FoundName { id: id(from)?, facts: from.fixed()?, tallies: tallies(from)? });
        let linked = all(from, name)?;
        let failed = all(from, |from| Some((from.small()?, String::from_utf8_lossy(from.bytes()?).into_owned())))?;
        Some(Found { itself, own, linked, failed })
    }
}

fn put_tallies(out: &mut Writer, tallies: &Tallies) {
    put_all(out, tallies, |out, tally| tally.encode(out));
}

fn tallies(from: &mut Reader<'_>) -> Option<Tallies> {
    all(from, Tally::decode)
}

/// A name of an inode that has several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundName {
    /// The inode.
    pub id: NodeId,
    /// Changes when what the inode adds may have changed.
    pub facts: u64,
    /// What it adds by this name.
    pub tallies: Tallies,
}

/// Takes a directory's entries, one by one.
#[derive(Debug)]
pub struct Gathering<'a> {
    declared: &'a Declared,
    subvolume: u64,
    found: Found,
    linked: Vec<(Vec<u8>, FoundName)>,
    /// For commands.
    lines: Vec<u8>,
    has_commands: bool,
}

impl<'a> Gathering<'a> {
    /// Of a directory.
    pub fn new(declared: &'a Declared, stat: &Stat, subvolume: u64, project: Option<u32>) -> Self {
        let own = vec![Tally::default(); declared.all().len()];
        let mut gathering = Gathering {
            declared,
            subvolume,
            found: Found { own, ..Found::default() },
            linked: Vec::new(),
            lines: Vec::new(),
            has_commands: declared.has_commands(),
        };
        gathering.found.itself = gathering.tallies(b"", stat, project);
        gathering.write_line(b"", stat);
        gathering
    }

    /// An entry that is no directory; `linked` when it has several names.
    pub fn add(&mut self, name: &[u8], stat: &Stat, project: Option<u32>, linked: Option<NodeId>) {
        self.write_line(name, stat);
        if let Some(id) = linked {
            let mut hash = DefaultHasher::new();
            (stat.mode, stat.uid, stat.gid, stat.size, stat.blocks, stat.mtime, project).hash(&mut hash);
            let tallies = self.tallies(name, stat, project);
            for ((own, tally), one) in self.found.own.iter_mut().zip(&tallies).zip(self.declared.all()) {
                if one.rule.merge != Merge::Sum {
                    own.join(tally, one.rule);
                }
            }
            self.linked.push((name.to_vec(), FoundName { id, facts: hash.finish(), tallies }));
            return;
        }
        let entry = Entry { name, stat, subvolume: self.subvolume, project };
        for (own, one) in self.found.own.iter_mut().zip(self.declared.all()) {
            if let Source::Entries(by) = &one.source {
                by.tell(&entry, &mut |key, amounts| own.add(key, amounts, one.rule.merge));
                // All keys of a sum count until it is known which of them stand out.
                let kept = if one.rule.merge == Merge::Sum { GATHERED } else { 2 };
                if own.entries.len() > kept * one.rule.limit {
                    own.bound(one.rule);
                }
            }
        }
    }

    fn tallies(&self, name: &[u8], stat: &Stat, project: Option<u32>) -> Tallies {
        let entry = Entry { name, stat, subvolume: self.subvolume, project };
        let tally = |one: &super::declare::Declaration| {
            let mut tally = Tally::default();
            if let Source::Entries(by) = &one.source {
                by.tell(&entry, &mut |key, amounts| tally.add(key, amounts, one.rule.merge));
            }
            tally.bound(one.rule);
            tally
        };
        self.declared.all().iter().map(tally).collect()
    }

    fn write_line(&mut self, name: &[u8], stat: &Stat) {
        if self.has_commands && self.lines.len() <= LINES_BYTES_MAX {
            self.lines.extend(command::line(name, stat));
        }
    }

    /// All that was found. Commands run now.
    pub fn finish(mut self) -> Found {
        for (at, (own, one)) in (0..).zip(self.found.own.iter_mut().zip(self.declared.all())) {
            match &one.source {
                Source::Entries(_) => own.bound(one.rule),
                Source::Command(command) => {
                    let said = match self.lines.len() {
                        ..=LINES_BYTES_MAX => command.run(&self.lines, one.rule),
                        _ => Err("the directory has too many entries to be told of".to_owned()),
                    };
                    match said {
                        Ok(said) => *own = said,
                        Err(why) => {
                            own.unknown = 1;
                            self.found.failed.push((at, why));
                        }
                    }
                }
            }
        }
        self.found.note_failures(self.declared);
        self.linked.sort_by(|(one, a), (other, b)| (a.id, one).cmp(&(b.id, other)));
        self.found.linked = self.linked.into_iter().map(|(_, found)| found).collect();
        self.found
    }
}
