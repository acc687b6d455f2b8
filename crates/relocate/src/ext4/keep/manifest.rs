//! What leads one region back, as it is written beside its donors: one JSON object.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use onesweep_sys::files::Time;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::places::{Places, Run};

/// What it says that it is.
const MAGIC: &str = "onesweep undo";
const VERSION: u64 = 1;
/// No region has as many.
const MAX_BLOCKS: u64 = 1 << 24;

/// The files of a region.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Manifest {
    pub(super) block_bytes: u64,
    pub(super) files: Vec<Moved>,
}

/// A file, as it was before.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Moved {
    /// Below the mount point, or from the root on.
    pub(super) path: PathBuf,
    pub(super) inode: u64,
    pub(super) generation: u32,
    pub(super) size: u64,
    pub(super) mtime: Time,
    pub(super) ctime: Time,
    pub(super) steps: Vec<Step>,
}

/// Blocks that change places with those of one donor.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Step {
    /// The number of the donor.
    pub(super) donor: usize,
    /// The first block in the donor.
    pub(super) to: u64,
    /// Where the blocks of the file lay.
    pub(super) was: Places,
    /// Where they were to lie.
    pub(super) became: Places,
}

/// Why a manifest can't be used.
#[derive(Debug, Error)]
pub(super) enum Unusable {
    #[error("it is no manifest of onesweep")]
    Foreign,
    #[error("it has version {0}, and this program knows version {VERSION}")]
    Version(u64),
    #[error("it is damaged: {0}")]
    Damaged(String),
}

impl From<Unusable> for io::Error {
    fn from(error: Unusable) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, error.to_string())
    }
}

#[derive(Deserialize, Serialize)]
struct Head {
    what: String,
    version: u64,
}

#[derive(Deserialize, Serialize)]
struct Written {
    #[serde(flatten)]
    head: Head,
    block_bytes: u64,
    files: Vec<WrittenFile>,
}

#[derive(Deserialize, Serialize)]
struct WrittenFile {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    inode: u64,
    generation: u32,
    size: u64,
    mtime: (i64, u32),
    ctime: (i64, u32),
    steps: Vec<WrittenStep>,
}

/// Runs are the number of the first block in the file, its place, and how many there are.
#[derive(Deserialize, Serialize)]
struct WrittenStep {
    donor: usize,
    to: u64,
    was: Vec<(u64, u64, u64)>,
    became: Vec<(u64, u64, u64)>,
}

impl Manifest {
    pub(super) fn encode(&self) -> io::Result<Vec<u8>> {
        let files = self.files.iter().map(|file| WrittenFile {
            path: file.path.to_string_lossy().into_owned(),
            path_hex: file.path.to_str().is_none().then(|| hex(&file.path)),
            inode: file.inode,
            generation: file.generation,
            size: file.size,
            mtime: (file.mtime.secs, file.mtime.nanos),
            ctime: (file.ctime.secs, file.ctime.nanos),
            steps: file.steps.iter().map(WrittenStep::of).collect(),
        });
        let head = Head { what: MAGIC.to_owned(), version: VERSION };
        let mut bytes = serde_json::to_vec(&Written { head, block_bytes: self.block_bytes, files: files.collect() })?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Manifest, Unusable> {
        let head: Head = serde_json::from_slice(bytes).map_err(|_| Unusable::Foreign)?;
        if head.what != MAGIC {
            return Err(Unusable::Foreign);
        }
        if head.version != VERSION {
            return Err(Unusable::Version(head.version));
        }
        let damaged = |why: &str| Unusable::Damaged(why.to_owned());
        let written: Written = serde_json::from_slice(bytes).map_err(|error| damaged(&error.to_string()))?;
        let file = |file: WrittenFile| {
            let steps = file.steps.into_iter().map(WrittenStep::read).collect::<Option<Vec<Step>>>();
            let path = match file.path_hex {
                Some(hex) => unhex(&hex).map(|bytes| PathBuf::from(OsStr::from_bytes(&bytes))),
                None => Some(PathBuf::from(file.path)),
            };
            Ok(Moved {
                path: path.ok_or_else(|| damaged("a name is not written in hexadecimal"))?,
                inode: file.inode,
                generation: file.generation,
                size: file.size,
                mtime: Time { secs: file.mtime.0, nanos: file.mtime.1 },
                ctime: Time { secs: file.ctime.0, nanos: file.ctime.1 },
                steps: steps.ok_or_else(|| damaged("places contradict each other"))?,
            })
        };
        let files = written.files.into_iter().map(file).collect::<Result<_, Unusable>>()?;
        Ok(Manifest { block_bytes: written.block_bytes, files })
    }
}

impl WrittenStep {
    fn of(step: &Step) -> WrittenStep {
        let runs = |places: &Places| places.runs().iter().map(|run| (run.logical, run.place, run.blocks)).collect();
        WrittenStep { donor: step.donor, to: step.to, was: runs(&step.was), became: runs(&step.became) }
    }

    /// Both are the same blocks of the file, without a hole, and not beyond what a region has.
    fn read(self) -> Option<Step> {
        let places = |runs: Vec<(u64, u64, u64)>| {
            Places::of(runs.into_iter().map(|(logical, place, blocks)| Run { logical, place, blocks }))
        };
        let range = |places: &Places| {
            let (first, last) = (places.runs().first()?, places.runs().last()?);
            let blocks = last.logical_end() - first.logical;
            (blocks == places.blocks() && blocks <= MAX_BLOCKS).then_some((first.logical, blocks))
        };
        let (was, became) = (places(self.was)?, places(self.became)?);
        (range(&was)? == range(&became)?).then_some(())?;
        self.to.checked_add(was.blocks())?;
        Some(Step { donor: self.donor, to: self.to, was, became })
    }
}

fn hex(path: &Path) -> String {
    path.as_os_str().as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok().filter(|_| pair.len() == 2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(runs: &[(u64, u64, u64)]) -> Places {
        Places::of(runs.iter().map(|&(logical, place, blocks)| Run { logical, place, blocks })).unwrap()
    }

    fn manifest() -> Manifest {
        let step = Step { donor: 1, to: 7, was: places(&[(3, 10, 1), (4, 30, 2)]), became: places(&[(3, 100, 3)]) };
        let time = Time { secs: -5, nanos: 999 };
        let file = |path: &[u8]| Moved {
            path: OsStr::from_bytes(path).into(),
            inode: 12,
            generation: 77,
            size: 20_000,
            mtime: time,
            ctime: time,
            steps: vec![step.clone()],
        };
        Manifest { block_bytes: 4096, files: vec![file(b"a/b"), file(b"a/\xff\n")] }
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let bytes = manifest().encode().unwrap();
        assert_eq!(Manifest::decode(&bytes).unwrap(), manifest());
    }

    #[test]
    fn what_cannot_be_used_is_refused_by_name() {
        let text = String::from_utf8(manifest().encode().unwrap()).unwrap();
        let told = |text: &str| Manifest::decode(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(told("[]"), "it is no manifest of onesweep");
        assert_eq!(told(&text.replace("onesweep undo", "else")), "it is no manifest of onesweep");
        assert_eq!(
            told(&text.replace("\"version\":1", "\"version\":2")),
            "it has version 2, and this program knows version 1"
        );
        assert_eq!(told(&text[..text.len() / 2]), "it is no manifest of onesweep");
        for (whole, broken) in [
            ("[3,10,1]", "[3,10,2]"),
            ("[4,30,2]", "[5,30,2]"),
            ("[3,100,3]", "[3,100,18446744073709551615]"),
            ("[3,100,3]", "[2,100,3]"),
            ("612fff0a", "612fff0"),
        ] {
            assert!(text.contains(whole), "{text}");
            assert!(told(&text.replace(whole, broken)).starts_with("it is damaged: "), "{broken}");
        }
    }
}
