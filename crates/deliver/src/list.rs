//! One line for each planned file, in the order in which a sweep would read it.

use std::{
    io::{self, Write},
    os::unix::ffi::OsStrExt,
};

use onesweep::PlannedFile;

use crate::sum::write_escaped;

/// How a line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// The path as it is, and a line feed. What reads it can't tell a line feed in a name from one at its end.
    Lines,
    /// The path as it is, and a NUL, for `xargs -0`, `rsync -0 --files-from` and `tar --null -T`.
    Nul,
    /// Disk, device address, fragments, size, flags and path in columns; `\`, line feed and carriage return in the path are
    /// written `\\`, `\n` and `\r`. Flags are `D` for a file of a file system that was not closed, `E` for an encrypted one, or `-`.
    Long,
}

/// The line above the long form.
pub const LONG_HEADER: &str = "DISK            ADDRESS FRAGMENTS         SIZE FLAGS PATH";

/// Writes one file.
pub fn write_file(out: &mut dyn Write, file: &PlannedFile, style: Style) -> io::Result<()> {
    let path = file.path.as_os_str().as_bytes();
    match style {
        Style::Lines => {
            out.write_all(path)?;
            out.write_all(b"\n")
        }
        Style::Nul => {
            out.write_all(path)?;
            out.write_all(b"\0")
        }
        Style::Long => {
            let address = file.address.map_or_else(|| "-".to_owned(), |address| address.to_string());
            let flags = match (file.marks.dirty, file.marks.encrypted) {
                (false, false) => "-",
                (true, false) => "D",
                (false, true) => "E",
                (true, true) => "DE",
            };
            write!(out, "{:<8} {address:>14} {:>9} {:>12} {flags:<5} ", file.disk, file.fragments, file.size)?;
            write_escaped(out, path)?;
            out.write_all(b"\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use onesweep::Marks;

    use super::*;

    fn line(path: &str, address: Option<u64>, style: Style) -> String {
        marked(path, address, style, Marks::default())
    }

    fn marked(path: &str, address: Option<u64>, style: Style, marks: Marks) -> String {
        let file = PlannedFile { path: path.into(), disk: "sda".into(), address, fragments: 3, size: 4096, marks };
        let mut out = Vec::new();
        write_file(&mut out, &file, style).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn plain_styles_leave_the_path_alone() {
        assert_eq!(line("a\\b\nc", None, Style::Lines), "a\\b\nc\n");
        assert_eq!(line("a\\b\nc", None, Style::Nul), "a\\b\nc\0");
    }

    #[test]
    fn the_long_form_stays_on_one_line_below_its_header() {
        let long = line("a\\b\nc", Some(123_456_789_012), Style::Long);
        assert_eq!(long, "sda        123456789012         3         4096 -     a\\\\b\\nc\n");
        assert_eq!(long.find("a\\"), LONG_HEADER.find("PATH"));
        assert!(line("x", None, Style::Long).contains(" - "));
        let flags = |dirty, encrypted| {
            let line = marked("x", None, Style::Long, Marks { dirty, encrypted });
            line.split_whitespace().nth(4).unwrap().to_owned()
        };
        assert_eq!(
            [flags(false, false), flags(true, false), flags(false, true), flags(true, true)],
            ["-", "D", "E", "DE"]
        );
    }
}
