//! The words of a command: options, and names of programs.

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::Path,
};

/// An option, and what is joined to it by `=`.
pub(super) fn split(word: &OsStr) -> (&OsStr, Option<&OsStr>) {
    let bytes = word.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=').filter(|_| bytes.starts_with(b"--"));
    at.map_or((word, None), |at| (OsStr::from_bytes(&bytes[..at]), Some(OsStr::from_bytes(&bytes[at + 1..]))))
}

/// Whether it is that option. A letter may be the last of several (`-at`), and what follows is a word of its own.
pub(super) fn is(option: &OsStr, letter: u8, long: &str) -> bool {
    let bytes = option.as_bytes();
    option == long || (!bytes.starts_with(b"--") && bytes.last() == Some(&letter))
}

/// An option that is said with something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Valued<'a> {
    pub(super) known: &'a str,
    /// It stands in the same word (`-g*.md`), else it is the next one.
    pub(super) is_joined: bool,
}

/// Which of those it is: of several letters the first one that is said with something, which is what follows it.
pub(super) fn valued<'a>(option: &OsStr, known: impl Iterator<Item = &'a str> + Clone) -> Option<Valued<'a>> {
    if let Some(known) = known.clone().find(|known| option == *known) {
        return Some(Valued { known, is_joined: false });
    }
    let letters = option.as_bytes().strip_prefix(b"-").filter(|letters| !letters.starts_with(b"-"))?;
    letters.iter().enumerate().find_map(|(at, letter)| {
        let known = known.clone().find(|known| known.as_bytes() == [b'-', *letter])?;
        Some(Valued { known, is_joined: at + 1 < letters.len() })
    })
}

/// What a program is called, wherever it is.
pub(super) fn name(program: &OsStr) -> OsString {
    Path::new(program).file_name().map(ToOwned::to_owned).unwrap_or_default()
}
