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

/// Whether it is one of those.
pub(super) fn is_any<'a>(option: &OsStr, known: impl IntoIterator<Item = &'a str>) -> bool {
    known.into_iter().any(|known| match known.as_bytes() {
        [b'-', letter] if *letter != b'-' => is(option, *letter, known),
        _ => option == known,
    })
}

/// What a program is called, wherever it is.
pub(super) fn name(program: &OsStr) -> OsString {
    Path::new(program).file_name().map(ToOwned::to_owned).unwrap_or_default()
}
