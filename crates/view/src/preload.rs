//! The library that programs load, as a file that is made for the time being: there is nothing to install, and nothing stays.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsFd,
    path::Path,
};

use onesweep_sys::{files::forbids_execution, memfd};

use crate::names::{self, Kind, Name};

static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ahead.so"));

const KIND: Kind = Kind { prefix: "ahead-", suffix: ".so", mode: 0o644, fill, in_memory: || memfd::sealed(LIBRARY) };

/// The library, as long as this lives.
#[derive(Debug)]
pub struct Library {
    _file: File,
    name: Name,
}

impl Library {
    /// Writes it where programs can load it from.
    ///
    /// # Errors
    ///
    /// There is no folder for it; each one that was tried is told.
    pub fn new() -> io::Result<Self> {
        let (file, name) = names::create(&KIND)?;
        Ok(Self { _file: file, name })
    }

    /// What goes into `LD_PRELOAD`.
    pub fn path(&self) -> &Path {
        self.name.path()
    }
}

fn fill(mut file: &File) -> io::Result<()> {
    if forbids_execution(file.as_fd())? {
        return Err(io::Error::other("no program runs from there (noexec)"));
    }
    file.write_all(LIBRARY)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{FileExt, MetadataExt, chown},
        process::Command,
    };

    use super::*;
    use crate::board::{Board, Phase, State};

    /// Words of the board (`preload/board.h`).
    const WORD_LAST: u64 = 7;
    const WORD_CAPACITY: u64 = 9;

    /// What a C library lacks a version of keeps every program from beginning: these are of 2012 at the latest.
    #[cfg(all(target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
    #[test]
    fn what_is_wanted_of_the_c_library_is_old() {
        let names = LIBRARY.split(|byte| *byte == 0).filter_map(|name| name.strip_prefix(b"GLIBC_"));
        let number = |part: &str| part.parse::<u32>().unwrap();
        let versions: Vec<(u32, u32)> = names
            .map(|name| {
                let mut parts = str::from_utf8(name).unwrap().split('.').map(number);
                (parts.next().unwrap(), parts.next().unwrap())
            })
            .collect();
        assert!(!versions.is_empty());
        assert!(versions.iter().all(|version| *version <= (2, 17)), "{versions:?}");
    }

    /// A board that programs may not believe is as none.
    #[test]
    fn boards_of_others_and_such_that_lie_are_left_alone() {
        if onesweep_sys::user::effective_uid() != 0 {
            return;
        }
        let library = Library::new().unwrap();
        let place = tempfile::tempdir_in("/run").unwrap();
        let read = place.path().join("read");
        fs::write(&read, "content").unwrap();
        let facts = fs::metadata(&read).unwrap();
        let board = Board::named(&[facts.dev()]).unwrap();
        board.make_room(1).unwrap();
        let slot = board.enter(0, facts.ino()).unwrap();
        board.set(slot, State::In);
        board.enter_phase(Phase::Guided);
        let copy = place.path().join("board");
        let mut head = vec![0; 4096];
        File::open(board.path().unwrap()).unwrap().read_exact_at(&mut head, 0).unwrap();
        fs::write(&copy, head).unwrap();
        let word = |board: &Path, at: u64| {
            let mut word = [0; 4];
            File::open(board).unwrap().read_exact_at(&mut word, 4 * at).unwrap();
            u32::from_ne_bytes(word)
        };
        let reads_with = |board: &Path| {
            let mut program = Command::new("cat");
            program.arg(&read).env("LD_PRELOAD", library.path()).env("ONESWEEP_BOARD", board);
            let out = program.output().unwrap();
            assert!(out.status.success() && out.stdout == b"content" && out.stderr.is_empty(), "{out:?}");
            word(board, WORD_LAST)
        };
        assert_eq!(word(&copy, WORD_LAST), 0);
        chown(&copy, Some(65_534), None).unwrap();
        assert_eq!(reads_with(&copy), 0, "it is another user's");
        chown(&copy, Some(0), None).unwrap();
        let file = File::options().write(true).open(&copy).unwrap();
        for capacity in [8_u32, 20, 31, 32, 63, u32::MAX] {
            file.write_all_at(&capacity.to_ne_bytes(), 4 * WORD_CAPACITY).unwrap();
            assert_eq!(reads_with(&copy), 0, "there are no 2^{capacity} slots");
        }
        assert_ne!(reads_with(board.path().unwrap()), 0);
        assert!(board.was_opened(slot));
    }
}
