//! The files of one directory, as this user sees them: the server keeps totals of directories alone.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    io,
    os::fd::{AsFd, BorrowedFd},
};

use onesweep_sys::files::{self, DirReader, EntryType, Stat};

use super::look::{Entry, Look, Measure, Seen, Sizes};

/// Files that are told of by name, at most.
const NAMED_MAX: usize = 1000;

/// Adds the largest files of an open directory, and all others as one. `goes_on` is asked for each: where it says no, the look
/// is wanted by nobody any more.
pub(super) fn add(
    look: &mut Look,
    directory: BorrowedFd<'_>,
    by: Measure,
    goes_on: impl Fn() -> bool,
) -> io::Result<()> {
    let directory = files::reopen(directory)?;
    let mut kept: BinaryHeap<(Reverse<i64>, Vec<u8>, Reading)> = BinaryHeap::new();
    DirReader::default().read(directory.as_fd(), |entry| {
        if entry.kind == EntryType::Dir || !goes_on() {
            return;
        }
        // One that vanished meanwhile is no file of it.
        let Ok(stat) = files::statx_at(directory.as_fd(), entry.name, true) else { return };
        if stat.file_type() == EntryType::Dir {
            return;
        }
        let reading = Reading::of(&stat);
        kept.push((Reverse(reading.sizes().by(by)), entry.name.to_bytes().to_vec(), reading));
        if kept.len() > NAMED_MAX
            && let Some((_, _, smallest)) = kept.pop()
        {
            look.rest_files += 1;
            look.rest.add(smallest.sizes());
        }
    })?;
    look.entries.extend(kept.into_iter().map(|(_, name, reading)| Entry {
        name,
        is_directory: false,
        seen: Seen::Whole,
        sizes: reading.sizes(),
        newest: Some(reading.mtime),
    }));
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Reading {
    allocated: i64,
    apparent: i64,
    mtime: i64,
}

impl Reading {
    fn of(stat: &Stat) -> Reading {
        let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        Reading {
            allocated: bytes(stat.blocks.saturating_mul(512)),
            apparent: bytes(stat.size),
            mtime: stat.mtime.secs,
        }
    }

    fn sizes(&self) -> Sizes {
        Sizes { allocated: self.allocated, apparent: self.apparent, inodes: 1 }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn look(path: &std::path::Path, goes_on: bool) -> Look {
        let mut look = Look::default();
        let directory = files::open_dir_handle(path).unwrap();
        add(&mut look, directory.as_fd(), Measure::Apparent, || goes_on).unwrap();
        look
    }

    #[test]
    fn the_largest_files_are_named_and_the_others_summed_up() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("directory")).unwrap();
        for number in 0..NAMED_MAX + 5 {
            fs::write(folder.path().join(format!("f{number}")), vec![1; number]).unwrap();
        }
        let look = look(folder.path(), true);
        assert_eq!((look.entries.len(), look.rest_files), (NAMED_MAX, 5));
        assert_eq!((look.rest.apparent, look.rest.inodes), (1 + 2 + 3 + 4, 5));
        assert!(look.entries.iter().all(|entry| !entry.is_directory && entry.sizes.apparent >= 5));
    }

    #[test]
    fn a_look_that_nobody_wants_ends() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("f"), "x").unwrap();
        assert_eq!(look(folder.path(), false).entries, []);
    }
}
