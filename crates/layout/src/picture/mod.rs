//! Pictures of where data lies: numbers in, text out. Nothing here does I/O.
//!
//! | module | subject |
//! |---|---|
//! | [`directory`] | a directory's files on the line of the disk, with the seeks between them, before and after: SVG |
//! | [`device_map`], [`map`] | a device as cells on a Hilbert curve, and as SVG |
//! | [`terminal`] | the same two in characters |
//! | `svg` | text of SVG: escaped, bounded |
//!
//! Colours differ in brightness as well as in hue, so that a picture in grey tells the same; where a page is dark, so are they.

pub mod device_map;
pub mod directory;
pub mod map;
mod svg;
pub mod terminal;

use std::ops::Range;

/// A file in a picture.
#[derive(Clone, Copy, Debug)]
pub struct DrawnFile<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where its bytes lie on the device, in the order of the file.
    pub runs: &'a [Range<u64>],
}

/// One reading of a directory.
#[derive(Clone, Debug)]
pub struct Reading<'a> {
    /// What is said of it, in one line.
    pub caption: String,
    /// Its files, in the order in which they are read.
    pub files: Vec<DrawnFile<'a>>,
}

/// A directory as it lies, and as it would lie packed.
#[derive(Clone, Debug)]
pub struct DirectoryPicture<'a> {
    /// Its path.
    pub title: String,
    /// What is said of both.
    pub subtitle: String,
    /// The device, by its name.
    pub device: String,
    /// Bytes of the device, where known.
    pub device_bytes: Option<u64>,
    /// As it lies.
    pub before: Reading<'a>,
    /// As it would lie.
    pub after: Reading<'a>,
}

impl DirectoryPicture<'_> {
    /// From the lowest to the highest byte of all files, before and after.
    pub fn span(&self) -> Range<u64> {
        let runs = || self.before.files.iter().chain(&self.after.files).flat_map(|file| file.runs);
        let start = runs().map(|run| run.start).min().unwrap_or(0);
        let end = runs().map(|run| run.end).max().unwrap_or(0);
        start..end.max(start.saturating_add(1))
    }
}

/// The way of the head from the end of one run to the start of the next.
fn seeks<'a>(files: &'a [DrawnFile<'a>]) -> impl Iterator<Item = (u64, u64)> + 'a {
    let runs = || files.iter().flat_map(|file| file.runs);
    runs().zip(runs().skip(1)).map(|(from, to)| (from.end, to.start)).filter(|(from, to)| from != to)
}

/// A number of bytes as people read it.
pub fn bytes_text(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    let decimals = usize::from(unit != "B" && value < 100.0);
    format!("{value:.decimals$} {unit}")
}

/// At most `most` characters of a text, without its middle where it is longer.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let (front, back) = (most.saturating_sub(1) / 2, most.saturating_sub(1).div_ceil(2));
    let head: String = text.chars().take(front).collect();
    let tail: String = text.chars().skip(count - back).collect();
    format!("{head}…{tail}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seek_is_where_the_next_run_does_not_begin_at_the_end() {
        let runs =
            [vec![0..10, 20..30], Vec::from([Range { start: 30, end: 40 }]), Vec::from([Range { start: 5, end: 6 }])];
        let files: Vec<_> = runs.iter().map(|runs| DrawnFile { name: "", runs }).collect();
        assert_eq!(seeks(&files).collect::<Vec<_>>(), [(10, 20), (40, 5)]);
    }

    #[test]
    fn long_texts_lose_their_middle() {
        assert_eq!(shortened("abcdefghij", 10), "abcdefghij");
        assert_eq!(shortened("abcdefghijk", 10), "abcd…ghijk");
        assert_eq!(shortened("äöüäöü", 3).chars().count(), 3);
        assert_eq!(shortened("abc", 1), "…");
    }

    #[test]
    fn bytes_are_shown() {
        assert_eq!([0, 1023, 1024, 5 << 30].map(bytes_text), ["0 B", "1023 B", "1.0 KiB", "5.0 GiB"]);
    }
}
