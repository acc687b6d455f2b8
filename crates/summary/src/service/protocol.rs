//! What is said on the socket: lines of JSON (docs/FORMATS.md).
//!
//! A question is one line. With its first byte comes the directory that is asked for, open: so who asks has shown that it can be
//! reached, and names mean the same to both sides. Who can't send an open file names a path instead. The answer is one line that
//! begins it, then one for each directory.

use std::{ops::AddAssign, time::Instant};

use onesweep_sys::files::{EntryType, Stat};
use serde::{Deserialize, Serialize};

use super::breakdown::Breakdown;
use super::{
    listing::{Largest, Listing},
    pages::{Page, PageHead},
    patience::Progress,
    portions::{Cursor, PortionHead},
};
use crate::{
    history::{History, Point},
    summaries::Freshness,
    totals::{Sums, Totals},
    view::Line,
};

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub struct Question {
    /// The directory, where no open one came with the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Name>,
    /// The same by numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inode: Option<Inode>,
    /// How far below it directories get a line of their own.
    #[serde(default)]
    pub depth: u32,
    /// How true it has to be.
    #[serde(default)]
    pub freshness: Freshness,
    /// Without other subvolumes of btrfs, which have device numbers of their own. For lines alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub one_file_system: bool,
    /// What the directories came to then is told, too, in seconds since 1970. From now on it is noted of the 100 largest, and of the 100
    /// with the most inodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<i64>,
    /// The declared summary that is asked for instead; `depth` and `since` don't matter then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The answer is a listing instead: this directory, and the largest of those in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list: Option<Largest>,
    /// The answer is a page of all directories below instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<Page>,
    /// The answer is a portion of all directories below, each by itself, instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub portion: Option<Cursor>,
    /// Where there are too many lines for one answer, none come, and it is [`long`](Head::long): who asks takes portions then. Without
    /// it that is refused. For lines alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub takes_portions: bool,
    /// What has to be harvested for it is waited for so many milliseconds at most: then what is stored is told, and that it is
    /// [`late`](Head::late).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_ms: Option<u64>,
    /// What is found out, and harvested, of the time before the server began is waited for until then: that may take hours. Nobody asks for
    /// it on the socket.
    #[serde(skip)]
    pub catching_up_until: Option<Instant>,
    /// While it is waited for, lines come that say how far it is. For lines alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub progress: bool,
}

impl Question {
    /// For one directory alone, exactly.
    pub fn plain() -> Question {
        Question {
            path: None,
            inode: None,
            depth: 0,
            freshness: Freshness::Exact,
            one_file_system: false,
            since: None,
            by: None,
            list: None,
            page: None,
            portion: None,
            takes_portions: false,
            max_ms: None,
            catching_up_until: None,
            progress: false,
        }
    }
}

/// A directory as `stat` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inode {
    /// The device, as `makedev` packs it.
    pub dev: u64,
    /// The number on it.
    pub ino: u64,
}

/// A name or path: text where it is, else its bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Name {
    /// UTF-8.
    Text(String),
    /// Anything else.
    Bytes(Vec<u8>),
}

impl Name {
    /// Of bytes.
    pub fn of(bytes: &[u8]) -> Name {
        match str::from_utf8(bytes) {
            Ok(text) => Name::Text(text.to_owned()),
            Err(_) => Name::Bytes(bytes.to_vec()),
        }
    }

    /// Its bytes.
    pub fn into_bytes(self) -> Vec<u8> {
        match self {
            Name::Text(text) => text.into_bytes(),
            Name::Bytes(bytes) => bytes,
        }
    }
}

/// How an answer begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Beginning {
    /// There is one.
    Answer(Head),
    /// To a question for a declared summary; no more lines follow.
    Breakdown(Box<Breakdown>),
    /// It is this.
    Listing(Box<Listing>),
    /// Its directories follow.
    Page(PageHead),
    /// The same, each by itself.
    Portion(PortionHead),
    /// None yet: what has changed is being read. Another line follows.
    Working(Progress),
    /// There is none.
    Refused(Refusal),
}

/// Of the answer as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// Directories that follow.
    pub lines: u64,
    /// Something was left out that the asker may not see.
    pub partial: bool,
    /// Nothing is known to have changed since it was counted.
    pub exact: bool,
    /// When files were looked for of which nobody tells what is written, in seconds since 1970: what was written so since may not be
    /// counted. Absent where they were looked at for this answer, or nothing was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked_at: Option<i64>,
    /// Nobody tells what changes there: all below was read again at `checked_at`, or later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed: bool,
    /// When the directory was harvested, in seconds since 1970.
    pub harvested_at: i64,
    /// Directories below that could not be read.
    pub unreadable: u64,
    /// Something that is told has names elsewhere, too: outside, or where the asker may not see them. For lines alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leads_out: bool,
    /// There are too many lines for one answer.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub long: bool,
    /// Time was up: what was stored by then is told, and so many directories, or more, have changed since that aren't counted. How
    /// many isn't told where something is left out: then it is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late: Option<u64>,
    /// So many seconds ago what is told was right: the oldest change that isn't counted is no older. 0 where none is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age: Option<u64>,
    /// What was left out, some of it, in the order of the paths. For lines alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
}

/// A directory of which not all is in an answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeftOut {
    /// The names that lead to it from the one that was asked for.
    pub path: Name,
    /// Why.
    pub why: String,
}

/// Directories that an answer names as left out, at most.
pub const LEFT_OUT_MAX: usize = 100;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The directory isn't on a file system that is tracked, or isn't known.
    NotTracked,
    /// The asker may not reach it.
    Denied,
    /// Time was up, and nothing is stored of it yet.
    Late,
    /// Something else, in words.
    Failed(String),
}

/// One directory of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Its name, without those of the directories above; empty for the one that was asked for.
    pub name: Name,
    /// How far below.
    pub depth: u32,
    /// All that is in it.
    pub total: Figures,
    /// The same without the directories in it.
    pub own: Figures,
    /// The newest change of a content in it, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest: Option<i64>,
    /// The bytes of the largest file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest: Option<u64>,
    /// What it came to at the time that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub past: Option<Past>,
}

/// What a directory came to in the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// When, in seconds since 1970: at the time that was asked for or before it, or the first that is known.
    pub at: i64,
    /// Bytes as sizes tell them, directories too.
    pub bytes: i64,
    /// Bytes that were allocated.
    pub allocated: i64,
    /// Everything that has an inode.
    pub inodes: i64,
}

impl Past {
    /// Of a point.
    pub fn of(point: &Point) -> Past {
        let Point { at, bytes, blocks, inodes, .. } = *point;
        Past { at, bytes, allocated: blocks * BLOCK_BYTES, inodes }
    }

    /// By its totals over time.
    pub fn since(history: &History, time: i64) -> Option<Past> {
        history.at(time).as_ref().or(history.points().first()).map(Past::of)
    }
}

/// Sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Bytes as sizes tell them, but for directories.
    pub bytes: i64,
    /// Bytes of directories as their sizes tell them.
    pub directory_bytes: i64,
    /// Bytes that are allocated.
    pub allocated: i64,
    /// Bytes that removing it would free; 0 in answers that leave something out.
    pub freed: i64,
    /// Regular files.
    pub files: i64,
    /// Directories.
    pub directories: i64,
    /// Everything else.
    pub others: i64,
}

const BLOCK_BYTES: i64 = 512;

impl Figures {
    /// Of sums.
    pub fn of(sums: &Sums) -> Figures {
        Figures {
            bytes: sums.bytes,
            directory_bytes: sums.directory_bytes,
            allocated: sums.blocks * BLOCK_BYTES,
            freed: sums.freed_blocks * BLOCK_BYTES,
            files: sums.files,
            directories: sums.directories,
            others: sums.others,
        }
    }

    /// Of one inode by itself.
    pub fn of_inode(stat: &Stat) -> Figures {
        let allocated = stat.blocks as i64 * BLOCK_BYTES;
        // What it frees depends on where its other names are.
        let freed = if stat.nlink > 1 { 0 } else { allocated };
        let size = stat.size as i64;
        match stat.file_type() {
            EntryType::Dir => {
                Figures { directory_bytes: size, directories: 1, allocated, freed: allocated, ..Figures::default() }
            }
            EntryType::File => Figures { bytes: size, files: 1, allocated, freed, ..Figures::default() },
            _ => Figures { bytes: size, others: 1, allocated, freed, ..Figures::default() },
        }
    }

    /// Everything that has an inode.
    pub fn inodes(&self) -> i64 {
        self.files + self.directories + self.others
    }
}

impl AddAssign<&Figures> for Figures {
    fn add_assign(&mut self, more: &Figures) {
        let Figures { bytes, directory_bytes, allocated, freed, files, directories, others } = *more;
        self.bytes += bytes;
        self.directory_bytes += directory_bytes;
        self.allocated += allocated;
        self.freed += freed;
        self.files += files;
        self.directories += directories;
        self.others += others;
    }
}

impl Row {
    /// Of a line; `name` is that of its directory. What removing it frees isn't told where something is left out.
    pub fn of(line: &Line, name: &[u8], is_partial: bool) -> Row {
        let Totals { sums, extremes } = &line.totals;
        let told = |sums: &Sums| {
            let figures = Figures::of(sums);
            if is_partial { Figures { freed: 0, ..figures } } else { figures }
        };
        Row {
            name: Name::of(name),
            depth: line.depth,
            total: told(sums),
            own: told(&line.own),
            newest: extremes.newest.map(|time| time.secs),
            largest: extremes.largest.map(|largest| largest.bytes),
            past: None,
        }
    }
}
